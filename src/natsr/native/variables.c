#include "variables.h"

#include <stdlib.h>
#include <string.h>

/* ---- making and freeing ----------------------------------------------------------------------------------------- */

static void release(void *slot)
{
    void **p = slot;
    free(*p);
    *p = NULL;
}

static void free_room(variables *n)
{
    for (int q = 0; q < 2 * n->blocks; q++) {
        across *v = n->convs + q;
        release(&v->h), release(&v->d), release(&v->g), release(&v->from), release(&v->to), release(&v->pull);
    }
    release(&n->rows), release(&n->values), release(&n->raw), release(&n->projected), release(&n->peak);
    release(&n->keep), release(&n->said), release(&n->pulls), release(&n->input_grad), release(&n->around);
    release(&n->at_window), release(&n->at_width), release(&n->at_top), release(&n->at_horizon);
    n->room = 0;
}

void variables_free(variables *n)
{
    if (!n)
        return;
    if (n->convs) {
        free_room(n);
        for (int q = 0; q < 2 * n->blocks; q++)
            release(&n->convs[q].place);
    }
    release(&n->back), release(&n->scratch);
    free(n->convs);
    free(n->layer);
    free(n);
}

static void add_layer(variables *n, int *index, int in, int out)
{
    layer *l = n->layer + (*index)++;
    *l = (layer){.start = n->weights, .in = in, .out = out, .places = n->channels};
    n->weights += (int64_t)in * out;
}

/* Where the columns lie among the inputs of a convolution. */
static int arrange(across *v, int channels, long dilation)
{
    v->taps = dilation < channels ? 3 : 1;
    if (!(v->place = zeroed((size_t)channels, sizeof(int32_t))))
        return 0;
    if (v->taps == 1)
        dilation = 1;
    int32_t row = 0;
    for (long first = 0; first < dilation; first++) {
        row += v->taps == 3;
        for (long j = first; j < channels; j += dilation)
            v->place[j] = row++;
    }
    v->rows = row + (v->taps == 3);
    return 1;
}

static int make_matrices(variables *n)
{
    long part = 0;
    size_t back = (size_t)n->horizon * padded(n->top);
    for (int i = 0; i < n->layers; i++) {
        const layer *l = n->layer + i;
        part = rows_at_once(l) * l->out > part ? rows_at_once(l) * l->out : part;
    }
    for (int q = 0; q < 2 * n->blocks; q++) {
        const size_t whole = (size_t)n->convs[q].taps * n->convs[q].out * padded(n->convs[q].in);
        back = whole > back ? whole : back;
    }
    n->scratch = zeroed((size_t)part, sizeof(float));
    n->back = zeroed(back, sizeof(float));
    return n->scratch && n->back;
}

/* sizes: window, inputs, channels, width, top, horizon, blocks. */
variables *variables_new(const int32_t *sizes)
{
    variables *n = calloc(1, sizeof *n);
    if (!n)
        return NULL;
    n->window = sizes[0], n->inputs = sizes[1], n->channels = sizes[2], n->width = sizes[3], n->top = sizes[4];
    n->horizon = sizes[5], n->blocks = sizes[6], n->layers = 2 * n->blocks + 3;
    n->convs = calloc((size_t)(2 * n->blocks), sizeof(across));
    n->layer = calloc((size_t)n->layers, sizeof(layer));
    int next = 0, ok = n->convs && n->layer;
    if (ok)
        add_layer(n, &next, n->window + 1, n->width);
    for (int q = 0; ok && q < 2 * n->blocks; q++) {
        across *v = n->convs + q;
        v->in = q == 2 * n->blocks - 1 ? n->top : n->width, v->out = q >= 2 * n->blocks - 2 ? n->top : n->width;
        v->layer = next;
        ok = arrange(v, n->channels, 1L << (q / 2));
        add_layer(n, &next, v->taps * v->in + 1, v->out);
    }
    if (ok) {
        add_layer(n, &next, n->width + 1, n->top);
        add_layer(n, &next, n->top + 1, n->horizon);
        ok = make_matrices(n);
    }
    if (!ok) {
        variables_free(n);
        return NULL;
    }
    return n;
}

int64_t variables_weights(const variables *n) { return n->weights; }

void variables_passed(const variables *n, passed *p)
{
    *p = (passed){.layer = n->layer, .layers = n->layers, .examples = n->B, .scratch = n->scratch};
}

/* ---- room for a batch ------------------------------------------------------------------------------------------- */

static int reserve_conv(const variables *n, across *v, long B)
{
    const size_t rows = (size_t)B * (size_t)v->rows, each = (size_t)B * (size_t)n->channels;
    v->h = zeroed(rows * v->in, sizeof(float)), v->d = zeroed(each * v->in, sizeof(float));
    v->g = zeroed(rows * v->out, sizeof(float));
    v->from = zeroed(each, sizeof(int32_t)), v->to = zeroed(each, sizeof(int32_t));
    v->pull = zeroed(each, sizeof(int32_t));
    if (!(v->h && v->d && v->g && v->from && v->to && v->pull))
        return 0;
    const int before = v->taps == 3;
    for (long b = 0; b < B; b++)
        for (long j = 0; j < n->channels; j++) {
            const long i = b * n->channels + j, row = b * v->rows + v->place[j];
            v->from[i] = (int32_t)((row - before) * v->in);
            v->to[i] = (int32_t)(row * v->out), v->pull[i] = (int32_t)((row - before) * v->out);
        }
    layer *l = n->layer + v->layer;
    l->x = v->h, l->xo = v->from, l->g = v->g, l->go = v->to;
    return 1;
}

static int reserve(variables *n, int32_t B)
{
    if (B <= n->room)
        return 1;
    free_room(n);
    int ok = 1;
    for (int q = 0; ok && q < 2 * n->blocks; q++)
        ok = reserve_conv(n, n->convs + q, B);
    const long each = (long)B * n->channels;
    const size_t count = (size_t)each, widest = (size_t)(n->top > n->width ? n->top : n->width);
    n->rows = zeroed(count * n->window, sizeof(float)), n->values = zeroed(count * widest, sizeof(float));
    n->raw = zeroed(count * widest, sizeof(float)), n->projected = zeroed(count * n->width, sizeof(float));
    n->peak = zeroed(count * n->top, sizeof(float)), n->keep = zeroed(count * n->top, sizeof(float));
    n->said = zeroed(count * n->horizon, sizeof(float)), n->pulls = zeroed(count * n->horizon, sizeof(float));
    n->input_grad = zeroed(count * n->width, sizeof(float)), n->around = zeroed(count * n->width, sizeof(float));
    n->at_window = evenly(each, n->window), n->at_width = evenly(each, n->width);
    n->at_top = evenly(each, n->top), n->at_horizon = evenly(each, n->horizon);
    ok = ok && n->rows && n->values && n->raw && n->projected && n->peak && n->keep && n->said && n->pulls &&
         n->input_grad && n->around && n->at_window && n->at_width && n->at_top && n->at_horizon;
    if (!ok) {
        free_room(n);
        return 0;
    }
    layer *l = n->layer, *projection = l + n->layers - 2, *head = projection + 1;
    const across *last = n->convs + 2 * n->blocks - 1;
    l->x = n->rows, l->xo = n->at_window, l->g = n->input_grad, l->go = n->at_width;
    projection->x = n->projected, projection->xo = n->at_width, projection->g = last->g, projection->go = last->to;
    head->x = n->peak, head->xo = n->at_top, head->g = n->pulls, head->go = n->at_horizon;
    n->room = B;
    return 1;
}

/* ---- forward ---------------------------------------------------------------------------------------------------- */

static void affine(const variables *n, const float *w, int index, const float *x, const int32_t *xo, enum start start,
                   float *y, const int32_t *yo)
{
    const layer *l = n->layer + index;
    const float *matrix = w + l->start;
    product(x, xo, (long)n->B * n->channels, l->in - 1, matrix, l->out, l->out, start,
            matrix + (long)(l->in - 1) * l->out, y, yo);
}

static void activate(const variables *n, across *v, const float *x)
{
    const long rows = (long)n->B * n->channels;
    double sum = 0;
    for (long b = 0, r = 0; b < n->B; b++)
        for (long j = 0; j < n->channels; j++, r++)
            sum += gelu(x + r * v->in, v->h + (b * v->rows + v->place[j]) * v->in, v->d + r * v->in, v->in);
    n->layer[v->layer].input_squares = sum * v->taps + (double)rows;
}

/* Biases of a block's second convolution and what goes around it: the block's own input, or its projection. */
static void around(variables *n, const across *v, const float *w, const float *x, float *y)
{
    const layer *l = n->layer + v->layer;
    const float *bias = w + l->start + (long)(l->in - 1) * l->out;
    const long rows = (long)n->B * n->channels;
    if (v->layer == n->layers - 3) {
        memcpy(n->projected, x, (size_t)(rows * n->width) * sizeof(float));
        affine(n, w, n->layers - 2, x, n->at_width, FROM_BIAS, y, n->at_top);
        x = y;
    }
    for (long r = 0; r < rows; r++)
        for (long i = 0; i < v->out; i++)
            y[r * v->out + i] = bias[i] + x[r * v->out + i];
}

int variables_forward(variables *n, const float *w, const float *window, int32_t B, const float *keep, float *output)
{
    if (!reserve(n, B))
        return 0;
    const long C = n->channels, rows = (long)B * C, size = (long)n->window * n->inputs;
    n->B = B, n->has_keep = keep != NULL;
    for (long b = 0; b < B; b++)
        transpose(window + b * size, n->inputs, n->window, C, n->rows + b * C * n->window, n->window);
    n->layer->input_squares = squares(n->rows, rows * n->window) + (double)rows;
    float *x = n->values, *y = n->raw;
    affine(n, w, 0, n->rows, n->at_window, FROM_BIAS, x, n->at_width);
    for (int q = 0; q < 2 * n->blocks; q += 2) {
        across *one = n->convs + q, *two = one + 1;
        const int32_t *at = q == 2 * n->blocks - 2 ? n->at_top : n->at_width;
        activate(n, one, x);
        affine(n, w, one->layer, one->h, one->from, FROM_BIAS, y, at);
        activate(n, two, y);
        around(n, two, w, x, y);
        affine(n, w, two->layer, two->h, two->from, FROM_RESULT, y, at);
        float *swap = x;
        x = y, y = swap;
    }
    memcpy(n->peak, x, (size_t)(rows * n->top) * sizeof(float));
    if (keep) {
        memcpy(n->keep, keep, (size_t)(rows * n->top) * sizeof(float));
        for (long i = 0; i < rows * n->top; i++)
            n->peak[i] *= keep[i];
    }
    n->layer[n->layers - 2].input_squares = squares(n->projected, rows * n->width) + (double)rows;
    n->layer[n->layers - 1].input_squares = squares(n->peak, rows * n->top) + (double)rows;
    affine(n, w, n->layers - 1, n->peak, n->at_top, FROM_BIAS, n->said, n->at_horizon);
    for (long b = 0; b < B; b++)
        transpose(n->said + b * C * n->horizon, n->horizon, C, n->horizon, output + b * C * n->horizon, C);
    return 1;
}

/* ---- backward --------------------------------------------------------------------------------------------------- */

/* Pull gradients through a convolution and the GELU before it, into rows of `sink`. */
static void pull_back(const variables *n, const across *v, const float *w, float *sink, const int32_t *to)
{
    const layer *l = n->layer + v->layer;
    const long ld = padded(v->in), rows = (long)n->B * n->channels;
    for (int t = 0; t < v->taps; t++)
        transpose(w + l->start + (long)t * v->in * v->out, v->out, v->in, v->out,
                  n->back + (long)(v->taps - 1 - t) * v->out * ld, ld);
    product(v->g, v->pull, rows, (long)v->taps * v->out, n->back, ld, v->in, FROM_ZERO, NULL, sink, to);
    for (long r = 0; r < rows; r++)
        for (long i = 0; i < v->in; i++)
            sink[to[r] + i] *= v->d[r * v->in + i];
}

/* The gradient that goes around the last block. */
static void pull_around(variables *n, const float *w)
{
    const layer *p = n->layer + n->layers - 2;
    transpose(w + p->start, n->top, n->width, n->top, n->back, padded(n->width));
    product(p->g, p->go, (long)n->B * n->channels, n->top, n->back, padded(n->width), n->width, FROM_ZERO,
            NULL, n->around, n->at_width);
}

void variables_backward(variables *n, const float *w, const float *pull)
{
    const long C = n->channels, H = n->horizon, rows = (long)n->B * C;
    const layer *head = n->layer + n->layers - 1;
    const across *last = n->convs + 2 * n->blocks - 1;
    for (long b = 0; b < n->B; b++)
        transpose(pull + b * C * H, C, H, C, n->pulls + b * C * H, H);
    transpose(w + head->start, H, n->top, H, n->back, padded(n->top));
    product(n->pulls, n->at_horizon, rows, H, n->back, padded(n->top), n->top, FROM_ZERO, NULL, last->g, last->to);
    for (long r = 0; n->has_keep && r < rows; r++)
        for (long i = 0; i < n->top; i++)
            last->g[last->to[r] + i] *= n->keep[r * n->top + i];
    pull_around(n, w);
    for (int q = 2 * n->blocks - 2; q >= 0; q -= 2) {
        const across *one = n->convs + q, *two = one + 1, *below = q ? one - 1 : NULL;
        float *sink = below ? below->g : n->input_grad;
        const int32_t *to = below ? below->to : n->at_width;
        const int is_last = two == last;
        pull_back(n, two, w, one->g, one->to);
        pull_back(n, one, w, sink, to);
        for (long r = 0; r < rows; r++) {
            const float *skip = is_last ? n->around + r * n->width : two->g + two->to[r];
            for (long i = 0; i < n->width; i++)
                sink[to[r] + i] += skip[i];
        }
    }
}

void variables_gradient(const variables *n, float *flat)
{
    for (int i = 0; i < n->layers; i++)
        layer_gradient(n->layer + i, n->B, 0, n->layer[i].in, flat + n->layer[i].start);
}

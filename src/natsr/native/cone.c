#include "cone.h"

#include <stdlib.h>
#include <string.h>

/* ---- making and freeing ----------------------------------------------------------------------------------------- */

void *zeroed(size_t count, size_t size)
{
    const size_t bytes = (count * size + SLACK * sizeof(float) + 63) / 64 * 64;
    void *p = aligned_alloc(64, bytes);
    if (p)
        memset(p, 0, bytes);
    return p;
}

int32_t *evenly(long count, long step)
{
    int32_t *offsets = zeroed((size_t)count, sizeof(int32_t));
    for (long i = 0; offsets && i < count; i++)
        offsets[i] = (int32_t)(i * step);
    return offsets;
}

static void release(void *slot)
{
    void **p = slot;
    free(*p);
    *p = NULL;
}

static void free_forward(cone *c)
{
    for (int q = 0; q < 2 * c->blocks; q++) {
        conv *v = c->convs + q;
        release(&v->h), release(&v->d), release(&v->from);
    }
    release(&c->rows), release(&c->values), release(&c->raw), release(&c->projected), release(&c->peak);
    release(&c->keep), release(&c->dense_in), release(&c->dense_width), release(&c->dense_top);
    release(&c->dense_result);
    c->room = 0;
}

static void free_backward(cone *c)
{
    for (int q = 0; q < 2 * c->blocks; q++) {
        conv *v = c->convs + q;
        release(&v->g), release(&v->to);
        for (int k = 0; k < 2; k++)
            release(&v->pull[k]), release(&v->sink[k]);
    }
    release(&c->pull), release(&c->input_grad), release(&c->dense_out), release(&c->dense_grad), release(&c->around_to);
    release(&c->owner);
    c->grad_room = 0;
}

static void free_thin(cone *c)
{
    for (int i = 0; i < c->layers; i++)
        release(&c->layer[i].thin_x), release(&c->layer[i].thin_g), release(&c->layer[i].thin_xo),
            release(&c->layer[i].thin_go);
    c->thin_room = 0;
}

void cone_free(cone *c)
{
    if (!c)
        return;
    if (c->convs) {
        free_forward(c);
        free_backward(c);
        for (int q = 0; q < 2 * c->blocks; q++)
            release(&c->convs[q].back);
    }
    if (c->layer)
        free_thin(c);
    release(&c->head_back), release(&c->projection_back), release(&c->scratch), release(&c->delta), release(&c->work);
    release(&c->packed), release(&c->packed_to);
    free(c->convs);
    free(c->layer);
    free(c);
}

static void add_layer(cone *c, int *index, int in, int out, int places)
{
    layer *l = c->layer + (*index)++;
    *l = (layer){.start = c->weights, .in = in, .out = out, .places = places, .lda = padded(in), .ldg = padded(out)};
    c->weights += (int64_t)in * out;
}

/* sizes: window, inputs, rows read, width, top, outputs, blocks. convs: src, dst, stride, first, last of each. */
cone *cone_new(const int32_t *sizes, const int32_t *convs)
{
    cone *c = calloc(1, sizeof *c);
    if (!c)
        return NULL;
    c->window = sizes[0], c->inputs = sizes[1], c->read = sizes[2], c->width = sizes[3], c->top = sizes[4];
    c->outputs = sizes[5], c->blocks = sizes[6], c->layers = 2 * c->blocks + 3;
    c->convs = calloc((size_t)(2 * c->blocks), sizeof(conv));
    c->layer = calloc((size_t)c->layers, sizeof(layer));
    int next = 0, ok = c->convs && c->layer;
    if (ok)
        add_layer(c, &next, c->inputs + 1, c->width, c->read);
    for (int q = 0; ok && q < 2 * c->blocks; q++) {
        const int32_t *s = convs + 5 * q;
        const int last = q >= 2 * c->blocks - 2, first = s[3], final = s[4];
        conv *v = c->convs + q;
        v->src = s[0], v->dst = s[1], v->stride = s[2], v->taps = final - first + 1;
        const int lead = v->src - 1 - v->stride * (v->dst - 1);
        v->start = lead + first;
        v->before = v->start < 0, v->rows = v->src + v->before + (final > 0);
        v->ahead = v->stride == 1 ? lead + final : lead, v->grad_rows = v->ahead + v->dst - first;
        v->in = q == 2 * c->blocks - 1 ? c->top : c->width, v->out = last ? c->top : c->width;
        v->layer = next;
        add_layer(c, &next, v->taps * v->in + 1, v->out, v->dst);
        ok = (v->back = zeroed((size_t)v->taps * v->out * padded(v->in), sizeof(float))) != NULL;
    }
    if (ok) {
        add_layer(c, &next, c->width + 1, c->top, 1);
        add_layer(c, &next, c->top + 1, c->outputs, 1);
        long widest = 0, part = 0;
        for (int i = 0; i < c->layers; i++) {
            const layer *l = c->layer + i;
            widest = l->lda > widest ? l->lda : widest;
            part = rows_at_once(l) * l->out > part ? rows_at_once(l) * l->out : part;
        }
        c->scratch = zeroed((size_t)part, sizeof(float));
        c->head_back = zeroed((size_t)c->outputs * padded(c->top), sizeof(float));
        c->projection_back = zeroed((size_t)c->top * padded(c->width), sizeof(float));
        c->packed = zeroed((size_t)(PIECE * widest), sizeof(float));
        c->packed_to = evenly(PIECE, 1);
        ok = c->scratch && c->head_back && c->projection_back && c->packed && c->packed_to;
    }
    if (!ok) {
        cone_free(c);
        return NULL;
    }
    return c;
}

int64_t cone_weights(const cone *c) { return c->weights; }

/* ---- room for a batch ------------------------------------------------------------------------------------------- */

static int32_t *patches(const conv *v, long B)
{
    int32_t *offsets = zeroed((size_t)(B * v->dst), sizeof(int32_t));
    for (long b = 0; offsets && b < B; b++)
        for (long j = 0; j < v->dst; j++)
            offsets[b * v->dst + j] =
                (int32_t)((b * v->rows + v->start + v->before + j * v->stride) * v->in);
    return offsets;
}

static int reserve(cone *c, int32_t B)
{
    if (B <= c->room)
        return 1;
    free_forward(c);
    int ok = 1;
    size_t widest = (size_t)c->read * c->width;
    for (int q = 0; ok && q < 2 * c->blocks; q++) {
        conv *v = c->convs + q;
        v->h = zeroed((size_t)B * v->rows * v->in, sizeof(float));
        v->d = zeroed((size_t)B * v->src * v->in, sizeof(float));
        v->from = patches(v, B);
        ok = v->h && v->d && v->from;
        if ((size_t)v->dst * v->out > widest)
            widest = (size_t)v->dst * v->out;
        c->layer[v->layer].x = v->h, c->layer[v->layer].xo = v->from;
    }
    c->rows = zeroed((size_t)B * c->read * c->inputs, sizeof(float));
    c->values = zeroed((size_t)B * widest, sizeof(float));
    c->raw = zeroed((size_t)B * widest, sizeof(float));
    c->projected = zeroed((size_t)B * c->width, sizeof(float));
    c->peak = zeroed((size_t)B * c->top, sizeof(float));
    c->keep = zeroed((size_t)B * c->top, sizeof(float));
    c->dense_in = evenly((long)B * c->read, c->inputs);
    c->dense_width = evenly((long)B * c->read, c->width);
    c->dense_top = evenly(2L * B, c->top);
    c->dense_result = evenly(B, c->outputs);
    ok = ok && c->rows && c->values && c->raw && c->projected && c->peak && c->keep && c->dense_in &&
         c->dense_width && c->dense_top && c->dense_result;
    layer *l = c->layer, *projection = l + c->layers - 2, *head = projection + 1;
    l->x = c->rows, l->xo = c->dense_in;
    projection->x = c->projected, projection->xo = c->dense_width;
    head->x = c->peak, head->xo = c->dense_top;
    if (ok)
        c->room = B;
    else
        free_forward(c);
    return ok;
}

/* Source rows of one kind (step 2: the odd or the even ones) and what they are pulled from. */
static int plan_pull(conv *v, int kind, int step, long N, long sink_rows, long sink_ahead)
{
    const int lead = v->src - 1 - v->stride * (v->dst - 1);
    int count = 0;
    for (int p = 0; p < v->src; p++)
        count += step == 1 || ((p - lead) & 1) == (kind == 0);
    v->pulls[kind] = count;
    v->pull[kind] = zeroed((size_t)(N * count), sizeof(int32_t));
    v->sink[kind] = zeroed((size_t)(N * count), sizeof(int32_t));
    if (!v->pull[kind] || !v->sink[kind])
        return 0;
    long i = 0;
    for (long n = 0; n < N; n++)
        for (int p = 0; p < v->src; p++) {
            const int q = p - lead;
            if (step == 2 && (q & 1) != (kind == 0))
                continue;
            const long row = step == 1 ? p : v->ahead + (q - (q & 1)) / 2;
            v->pull[kind][i] = (int32_t)((n * v->grad_rows + row) * v->out);
            v->sink[kind][i++] = (int32_t)((n * sink_rows + sink_ahead + p) * v->in);
        }
    return 1;
}

static int reserve_backward(cone *c, int32_t N)
{
    if (N <= c->grad_room)
        return 1;
    free_backward(c);
    int ok = 1;
    layer *head = c->layer + c->layers - 1, *projection = head - 1;
    for (int q = 0; ok && q < 2 * c->blocks; q++) {
        conv *v = c->convs + q;
        const conv *below = q ? v - 1 : NULL;
        v->g = zeroed((size_t)N * v->grad_rows * v->out, sizeof(float));
        v->to = zeroed((size_t)N * v->dst, sizeof(int32_t));
        ok = v->g && v->to;
        for (long n = 0; ok && n < N; n++)
            for (long j = 0; j < v->dst; j++)
                v->to[n * v->dst + j] = (int32_t)((n * v->grad_rows + v->ahead + j) * v->out);
        const long rows = below ? below->grad_rows : c->read, ahead = below ? below->ahead : 0;
        for (int kind = 0; ok && kind < v->stride; kind++)
            ok = plan_pull(v, kind, v->stride, N, rows, ahead);
        c->layer[v->layer].g = v->g, c->layer[v->layer].go = v->to;
    }
    const conv *last = c->convs + 2 * c->blocks - 1, *first = last - 1, *below = c->blocks > 1 ? last - 2 : NULL;
    const long rows = below ? below->grad_rows : c->read, ahead = below ? below->ahead : 0;
    c->around_to = zeroed((size_t)N, sizeof(int32_t));
    for (long n = 0; c->around_to && n < N; n++)
        c->around_to[n] = (int32_t)((n * rows + ahead + first->src - 1) * c->width);
    c->owner = zeroed((size_t)N, sizeof(int32_t));
    c->pull = zeroed((size_t)N * c->outputs, sizeof(float));
    c->input_grad = zeroed((size_t)N * c->read * c->width, sizeof(float));
    c->dense_out = evenly(N, c->outputs);
    c->dense_grad = evenly((long)N * c->read, c->width);
    c->layer->g = c->input_grad, c->layer->go = c->dense_grad;
    head->g = c->pull, head->go = c->dense_out;
    ok = ok && c->owner && c->around_to && c->pull && c->input_grad && c->dense_out && c->dense_grad;
    if (ok) {
        projection->g = last->g, projection->go = last->to;
        c->grad_room = N;
    } else
        free_backward(c);
    return ok;
}

/* ---- forward ---------------------------------------------------------------------------------------------------- */

static void activate(cone *c, conv *v, const float *x)
{
    double sum = 0;
    for (long b = 0; b < c->B; b++) {
        const long size = (long)v->src * v->in;
        sum += gelu(x + b * size, v->h + (b * v->rows + v->before) * v->in, v->d + b * size, size);
    }
    c->layer[v->layer].input_squares = sum * v->taps + (double)c->B * v->dst;
}

static void affine(const cone *c, const float *w, int index, const float *x, const int32_t *xo, long rows,
                   enum start start, float *y, const int32_t *yo)
{
    const layer *l = c->layer + index;
    const float *matrix = w + l->start;
    product(x, xo, rows, l->in - 1, matrix, l->out, l->out, start, matrix + (long)(l->in - 1) * l->out, y, yo);
}

/* Biases and what goes around the second convolution: the block's own input, or its projection. */
static void around(cone *c, const conv *v, const float *w, const float *x, float *y)
{
    const layer *l = c->layer + v->layer, *p = c->layer + c->layers - 2;
    const float *bias = w + l->start + (long)(l->in - 1) * l->out, *other = w + p->start + (long)(p->in - 1) * p->out;
    const int last = v->layer == c->layers - 3;
    const conv *first = v - 1;
    const long lead = first->src - 1 - (long)v->stride * (v->dst - 1);
    for (long b = 0; b < c->B; b++)
        for (long j = 0; j < v->dst; j++) {
            const float *skip = last ? other : x + (b * first->src + lead + j * v->stride) * v->out;
            float *out = y + (b * v->dst + j) * v->out;
            for (long i = 0; i < v->out; i++)
                out[i] = bias[i] + skip[i];
        }
    if (last) {
        for (long b = 0; b < c->B; b++)
            memcpy(c->projected + b * c->width, x + ((b + 1) * first->src - 1) * c->width,
                   (size_t)c->width * sizeof(float));
        affine(c, w, c->layers - 2, c->projected, c->dense_width, c->B, FROM_RESULT, y, c->dense_top);
    }
}

int cone_forward(cone *c, const float *w, const float *window, int32_t B, const float *keep, float *output)
{
    if (!reserve(c, B))
        return 0;
    const long size = (long)c->read * c->inputs, skipped = (long)(c->window - c->read) * c->inputs;
    c->B = B, c->has_keep = keep != NULL;
    for (long b = 0; b < B; b++)
        memcpy(c->rows + b * size, window + b * (size + skipped) + skipped, (size_t)size * sizeof(float));
    c->layer->input_squares = squares(c->rows, B * size) + (double)B * c->read;
    float *x = c->values, *y = c->raw;
    affine(c, w, 0, c->rows, c->dense_in, (long)B * c->read, FROM_BIAS, x, c->dense_width);
    for (int q = 0; q < 2 * c->blocks; q += 2) {
        conv *one = c->convs + q, *two = one + 1;
        const int32_t *dense = one->out == c->width ? c->dense_width : c->dense_top;
        activate(c, one, x);
        affine(c, w, one->layer, one->h, one->from, (long)B * one->dst, FROM_BIAS, y, dense);
        activate(c, two, y);
        around(c, two, w, x, y);
        affine(c, w, two->layer, two->h, two->from, (long)B * two->dst, FROM_RESULT, y, dense);
        float *swap = x;
        x = y, y = swap;
    }
    memcpy(c->peak, x, (size_t)B * c->top * sizeof(float));
    if (keep) {
        memcpy(c->keep, keep, (size_t)B * c->top * sizeof(float));
        for (long i = 0; i < (long)B * c->top; i++)
            c->peak[i] *= keep[i];
    }
    c->layer[c->layers - 2].input_squares = squares(c->projected, (long)B * c->width) + B;
    c->layer[c->layers - 1].input_squares = squares(c->peak, (long)B * c->top) + B;
    affine(c, w, c->layers - 1, c->peak, c->dense_top, B, FROM_BIAS, output, c->dense_result);
    return 1;
}

/* ---- backward --------------------------------------------------------------------------------------------------- */

static void turn(const cone *c, conv *v, const float *w)
{
    const layer *l = c->layer + v->layer;
    static const int order[3] = {1, 2, 0}; /* stride 2: the tap after, the tap before; then the centre */
    for (int t = 0; t < v->taps; t++) {
        const int place = v->stride == 2 ? order[t] : v->taps - 1 - t;
        transpose(w + l->start + (long)t * v->in * v->out, v->out, v->in, v->out,
                  v->back + (long)place * v->out * padded(v->in), padded(v->in));
    }
}

/* Pull gradients through a convolution and the GELU before it, into `sink`. */
static void pull_back(cone *c, conv *v, const float *w, float *sink, long sink_rows, long sink_ahead)
{
    const layer *l = c->layer + v->layer;
    const long ld = padded(v->in);
    if (v->src == 1 && v->dst == 1 && c->N <= 2)
        dots(v->g, v->pull[0], c->N, v->out, w + l->start, v->out, v->in, sink, v->sink[0]);
    else if (v->stride == 1) {
        turn(c, v, w);
        product(v->g, v->pull[0], (long)c->N * v->src, (long)v->taps * v->out, v->back, ld, v->in, FROM_ZERO, NULL,
                sink, v->sink[0]);
    } else {
        turn(c, v, w);
        product(v->g, v->pull[0], (long)c->N * v->pulls[0], 2L * v->out, v->back, ld, v->in, FROM_ZERO, NULL, sink,
                v->sink[0]);
        product(v->g, v->pull[1], (long)c->N * v->pulls[1], v->out, v->back + 2L * v->out * ld, ld, v->in, FROM_ZERO,
                NULL, sink, v->sink[1]);
    }
    const long size = (long)v->src * v->in;
    for (long n = 0; n < c->N; n++) {
        float *out = sink + (n * sink_rows + sink_ahead) * v->in;
        const float *slope = v->d + c->owner[n] * size;
        for (long i = 0; i < size; i++)
            out[i] *= slope[i];
    }
}

/* The gradient that goes around a block. */
static void pull_around(cone *c, const conv *v, const float *w, float *sink, long sink_rows, long sink_ahead)
{
    const conv *first = v - 1;
    const long lead = first->src - 1 - (long)v->stride * (v->dst - 1);
    const layer *p = c->layer + c->layers - 2;
    if (v->layer != c->layers - 3) {
        for (long n = 0; n < c->N; n++)
            for (long j = 0; j < v->dst; j++) {
                float *out = sink + (n * sink_rows + sink_ahead + lead + j * v->stride) * v->out;
                const float *g = v->g + v->to[n * v->dst + j];
                for (long i = 0; i < v->out; i++)
                    out[i] += g[i];
            }
        return;
    }
    /* Through the projection: its only row is the last of the block's input. */
    transpose(w + p->start, c->top, c->width, c->top, c->projection_back, padded(c->width));
    product(v->g, v->to, c->N, c->top, c->projection_back, padded(c->width), c->width, FROM_RESULT, NULL, sink,
            c->around_to);
}

/* Pull N rows back; row n belongs to example owner[n], or n % B. */
int cone_backward(cone *c, const float *w, const float *pull, const int32_t *owner, int32_t N)
{
    if (!reserve_backward(c, N))
        return 0;
    c->N = N;
    for (int32_t n = 0; n < N; n++)
        c->owner[n] = owner ? owner[n] : n % c->B;
    memcpy(c->pull, pull, (size_t)N * c->outputs * sizeof(float));
    const layer *head = c->layer + c->layers - 1;
    conv *last = c->convs + 2 * c->blocks - 1;
    /* Few or long rows: inner products; else the transposed matrix, in one pass over it. */
    if (N <= 2 || (N <= 32 && c->outputs > 1024))
        dots(c->pull, c->dense_out, N, c->outputs, w + head->start, c->outputs, c->top, last->g, last->to);
    else {
        transpose(w + head->start, c->outputs, c->top, c->outputs, c->head_back, padded(c->top));
        product(c->pull, c->dense_out, N, c->outputs, c->head_back, padded(c->top), c->top, FROM_ZERO, NULL, last->g,
                last->to);
    }
    if (c->has_keep)
        for (long n = 0; n < N; n++)
            for (long i = 0; i < c->top; i++)
                last->g[last->to[n] + i] *= c->keep[(long)c->owner[n] * c->top + i];
    for (int q = 2 * c->blocks - 2; q >= 0; q -= 2) {
        conv *one = c->convs + q, *two = one + 1, *below = q ? one - 1 : NULL;
        float *sink = below ? below->g : c->input_grad;
        const long rows = below ? below->grad_rows : c->read, ahead = below ? below->ahead : 0;
        pull_back(c, two, w, one->g, one->grad_rows, one->ahead);
        pull_back(c, one, w, sink, rows, ahead);
        pull_around(c, two, w, sink, rows, ahead);
    }
    return 1;
}

/* ---- gradients -------------------------------------------------------------------------------------------------- */

void column_sums(const float *g, const int32_t *go, long rows, long n, float *out)
{
    memset(out, 0, (size_t)n * sizeof(float));
    for (long r = 0; r < rows; r++) {
        const float *row = g + go[r];
        for (long i = 0; i < n; i++)
            out[i] += row[i];
    }
}

void gradient_rows(const cone *c, const layer *l, long i, long j, float *out)
{
    const long rows = (long)c->B * l->places, matrix = least(j, l->in - 1);
    if (matrix > i)
        outer(l->x + i, l->xo, matrix - i, l->g, l->go, l->out, rows, 0, 0, out, l->out);
    if (j == l->in)
        column_sums(l->g, l->go, rows, l->out, out + (long)(l->in - 1 - i) * l->out);
}

void cone_gradient(const cone *c, float *flat)
{
    for (int i = 0; i < c->layers; i++)
        gradient_rows(c, c->layer + i, 0, c->layer[i].in, flat + c->layer[i].start);
}

/* A layer's inputs (B, S, I-1) and gradients (N, S, O), side by side. */
void cone_tap(const cone *c, int32_t index, float *inputs, float *grads)
{
    const layer *l = c->layer + index;
    const long in = l->in - 1;
    for (long r = 0; r < (long)c->B * l->places; r++)
        memcpy(inputs + r * in, l->x + l->xo[r], (size_t)in * sizeof(float));
    for (long r = 0; r < (long)c->N * l->places; r++)
        memcpy(grads + r * l->out, l->g + l->go[r], (size_t)l->out * sizeof(float));
}

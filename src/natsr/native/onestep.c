#include "experts.h"

#include <math.h>
#include <string.h>

#define LARGEST_BATCH 128

/* Where everything lies: the matrices, their gradients, and room to work with rows of whole vectors. */
typedef struct {
    long in, width, C, B, ldx, ldw, ldc;
    float *w[4], *g[4];
    float *x, *one, *two, *slope_one, *slope_two, *flow_one, *flow_two; /* (B, ...) each */
    float *out, *target, *known;                                       /* (B, C) each */
    float *back, *head, *head_back, *path, *path_back;                 /* matrices, padded or transposed */
    float *rows, *window, *tiled;
    int32_t xo[LARGEST_BATCH], wo[LARGEST_BATCH], co[LARGEST_BATCH];
} desk;

static int64_t lay(const onestep *n, desk *d)
{
    const long C = n->channels, in = n->inputs, width = n->width, B = n->batch;
    const long ldx = padded((int32_t)in), ldw = padded((int32_t)width), ldc = padded((int32_t)C);
    const long sizes[4] = {(in + 1) * width, (width + 1) * width, (width + 1) * C, in * C};
    *d = (desk){.in = in, .width = width, .C = C, .B = B, .ldx = ldx, .ldw = ldw, .ldc = ldc};
    for (long i = 0, at = 0; i < 4; at += sizes[i++])
        d->w[i] = n->weights + at, d->g[i] = n->gradient + at;
    for (long b = 0; b < B; b++)
        d->xo[b] = (int32_t)(b * ldx), d->wo[b] = (int32_t)(b * ldw), d->co[b] = (int32_t)(b * ldc);
    long at = 0;
#define PART(name, count) d->name = n->work ? n->work + at : NULL, at += ((count) + SLACK + 15) / 16 * 16
    PART(x, B * ldx), PART(one, B * ldw), PART(two, B * ldw), PART(slope_one, B * ldw), PART(slope_two, B * ldw);
    PART(flow_one, B * ldw), PART(flow_two, B * ldw), PART(out, B * ldc), PART(target, B * ldc), PART(known, B * ldc);
    PART(back, width * ldw), PART(head, (width + 1) * ldc), PART(head_back, C * ldw), PART(path, in * ldc);
    PART(path_back, C * ldx), PART(rows, (n->reach + n->horizon) * C), PART(window, n->window * C), PART(tiled, n->window * C);
#undef PART
    return at;
}

/* Numbers that the work needs. */
int64_t onestep_room(const onestep *n)
{
    desk d;
    onestep empty = *n;
    empty.work = NULL;
    return lay(&empty, &d);
}

/* From a window (L, C), the newest row last, its inputs: differences from the last row, that row, waves. */
static void read_window(const onestep *n, const float *window, const double *calendar, float *tiled, float *to)
{
    const long C = n->channels, wide = (n->window - 1) * C, count = n->inputs - wide - C;
    const float *last = window + wide, limit = (float)n->limit;
    memcpy(tiled, last, (size_t)C * sizeof(float));
    for (long done = C; done < wide; done *= 2)
        memcpy(tiled + done, tiled, (size_t)least(done, wide - done) * sizeof(float));
    for (long i = 0; i < wide; i++)
        to[i] = window[i] - tiled[i];
    memcpy(to + wide, last, (size_t)C * sizeof(float));
    for (long i = 0; i < count; i++)
        to[wide + C + i] = (float)calendar[i];
    for (long i = 0; i < n->inputs; i++)
        to[i] = to[i] > limit ? limit : to[i] < -limit ? -limit : to[i];
}

/* Windows that end before the labels, and the labels as changes in usual changes. */
static void read_batch(const onestep *n, const past *p, desk *d, const int64_t *labels, int64_t rows)
{
    const long C = d->C, L = n->window;
    const float limit = (float)n->limit;
    double calendar[64];
    for (long b = 0; b < d->B; b++) {
        const float *label = n->values + labels[b] % n->memory * C, *last = d->window + (L - 1) * C;
        for (long l = 0; l < L; l++)
            memcpy(d->window + l * C, n->values + (labels[b] - 1 - n->taps[l]) % n->memory * C,
                   (size_t)C * sizeof(float));
        waves_of(&n->calendar, (double)(labels[b] - 1 + p->seen - rows), calendar);
        read_window(n, d->window, calendar, d->tiled, d->x + b * d->ldx);
        for (long c = 0; c < C; c++) {
            const double size = sqrt(p->square[c]);
            const float change = (label[c] - last[c]) / (float)(size > 1e-9 ? size : 1e-9);
            d->target[b * d->ldc + c] = change > limit ? limit : change < -limit ? -limit : change;
            d->known[b * d->ldc + c] = n->known[labels[b] % n->memory * C + c] ? 1.0f : 0.0f;
        }
    }
}

static void widen(const float *from, long rows, long C, float *to, long ld)
{
    for (long i = 0; i < rows; i++)
        for (long c = 0; c < C; c++)
            to[i * ld + c] = from[i * C + c];
}

static void forward(const desk *d)
{
    const long B = d->B;
    product(d->x, d->xo, B, d->in, d->w[0], d->width, d->width, FROM_BIAS, d->w[0] + d->in * d->width, d->one, d->wo);
    silu(d->one, d->one, d->slope_one, B * d->ldw);
    product(d->one, d->wo, B, d->width, d->w[1], d->width, d->width, FROM_BIAS, d->w[1] + d->width * d->width, d->two,
            d->wo);
    silu(d->two, d->two, d->slope_two, B * d->ldw);
    product(d->two, d->wo, B, d->width, d->head, d->ldc, d->ldc, FROM_BIAS, d->head + d->width * d->ldc, d->out, d->co);
    product(d->x, d->xo, B, d->in, d->path, d->ldc, d->ldc, FROM_RESULT, NULL, d->out, d->co);
}

/* The gradient of one matrix: what came in times what flows back, and the flow's sum for the bias. */
static void put(const desk *d, int part, const float *source, const int32_t *so, long I, const float *flow,
                const int32_t *fo, long N)
{
    outer(source, so, I, flow, fo, N, d->B, 0, 0, d->g[part], N);
    if (part == 3)
        return;
    float *bias = d->g[part] + I * N;
    memset(bias, 0, (size_t)N * sizeof(float));
    for (long b = 0; b < d->B; b++)
        for (long i = 0; i < N; i++)
            bias[i] += flow[fo[b] + i];
}

static void backward(const desk *d, float dof)
{
    const long B = d->B, C = d->C, width = d->width;
    float *pull = d->out;
    for (long b = 0; b < B; b++)
        for (long c = 0; c < d->ldc; c++) {
            const long i = b * d->ldc + c;
            const float e = c < C && d->known[i] > 0 ? pull[i] - d->target[i] : 0.0f;
            pull[i] = e * (dof + 1) / ((float)B * (dof + e * e));
        }
    put(d, 2, d->two, d->wo, width, pull, d->co, C);
    put(d, 3, d->x, d->xo, d->in, pull, d->co, C);
    product(pull, d->co, B, C, d->head_back, d->ldw, width, FROM_ZERO, NULL, d->flow_two, d->wo);
    for (long i = 0; i < B * d->ldw; i++)
        d->flow_two[i] *= d->slope_two[i];
    put(d, 1, d->one, d->wo, width, d->flow_two, d->wo, width);
    product(d->flow_two, d->wo, B, width, d->back, d->ldw, width, FROM_ZERO, NULL, d->flow_one, d->wo);
    for (long i = 0; i < B * d->ldw; i++)
        d->flow_one[i] *= d->slope_one[i];
    put(d, 0, d->x, d->xo, d->in, d->flow_one, d->wo, width);
}

/* One step of Adam on a batch of windows, by the rows that their labels are; 0 if it was refused. `rows` have been
 * kept, and `rate` has Adam's corrections in it. */
int onestep_learn(const onestep *n, const past *p, const int64_t *labels, int64_t rows, double rate)
{
    desk d;
    lay(n, &d);
    const long count = (d.in + 1 + d.width + 1) * d.width + (d.width + 1 + d.in) * d.C;
    const float slow = (float)n->slow, fast = (float)n->fast, by = (float)rate;
    float *restrict w = n->weights, *restrict g = n->gradient, *restrict m = n->first, *restrict v = n->second;
    read_batch(n, p, &d, labels, rows);
    widen(d.w[2], d.width + 1, d.C, d.head, d.ldc);
    widen(d.w[3], d.in, d.C, d.path, d.ldc);
    transpose(d.w[1], d.width, d.width, d.width, d.back, d.ldw);
    transpose(d.w[2], d.C, d.width, d.C, d.head_back, d.ldw);
    forward(&d);
    backward(&d, (float)n->dof);
    if (!isfinite(squares(g, count)))
        return 0;
    for (long i = 0; i < count; i++) {
        m[i] = m[i] * slow + (1 - slow) * g[i];
        v[i] = v[i] * fast + (1 - fast) * (g[i] * g[i]);
        w[i] -= by * m[i] / (sqrtf(v[i]) + 1e-8f);
    }
    return 1;
}

/* Row after row, each from those before it: (H, C). */
void onestep_forecast(const onestep *n, const past *p, double *out)
{
    desk d;
    lay(n, &d);
    d.B = 1;
    const long C = d.C, L = n->window, reach = n->reach;
    const float farthest = (float)n->farthest;
    const double *clean = p->clean + (p->end - reach) * C;
    double calendar[64];
    transpose(d.w[2], C, d.width, C, d.head_back, d.ldw);
    transpose(d.w[3], C, d.in, C, d.path_back, d.ldx);
    for (long i = 0; i < reach * C; i++)
        d.rows[i] = (float)clean[i];
    for (long step = 0; step < n->horizon; step++) {
        float *next = d.rows + (step + reach) * C, *path = d.out + d.ldc;
        for (long l = 0; l < L; l++)
            memcpy(d.window + l * C, next - (1 + n->taps[l]) * C, (size_t)C * sizeof(float));
        waves_of(&n->calendar, (double)(p->seen - 1 + step), calendar);
        read_window(n, d.window, calendar, d.tiled, d.x);
        product(d.x, d.xo, 1, d.in, d.w[0], d.width, d.width, FROM_BIAS, d.w[0] + d.in * d.width, d.one, d.wo);
        silu(d.one, d.one, d.slope_one, d.width);
        product(d.one, d.wo, 1, d.width, d.w[1], d.width, d.width, FROM_BIAS, d.w[1] + d.width * d.width, d.two, d.wo);
        silu(d.two, d.two, d.slope_two, d.width);
        dots(d.two, d.wo, 1, d.width, d.head_back, d.ldw, C, d.out, d.co);
        dots(d.x, d.xo, 1, d.in, d.path_back, d.ldx, C, path, d.co);
        for (long c = 0; c < C; c++) {
            float change = d.out[c] + path[c] + d.w[2][d.width * C + c];
            change = change > farthest ? farthest : change < -farthest ? -farthest : change;
            next[c] = next[c - C] + (float)sqrt(p->square[c]) * change;
            out[step * C + c] = (double)next[c] + (p->begin[step * C + c] - clean[(reach - 1) * C + c]);
        }
    }
}

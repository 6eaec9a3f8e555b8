#include "layers.h"

#include <math.h>
#include <string.h>

void cone_passed(const cone *c, passed *p)
{
    *p = (passed){.layer = c->layer, .layers = c->layers, .examples = c->B, .scratch = c->scratch};
}

void layer_gradient(const layer *l, long examples, long i, long j, float *out)
{
    const long rows = examples * l->places, matrix = least(j, l->in - 1);
    if (matrix > i)
        outer(l->x + i, l->xo, matrix - i, l->g, l->go, l->out, rows, 0, 0, out, l->out);
    if (j == l->in)
        column_sums(l->g, l->go, rows, l->out, out + (l->in - 1 - i) * l->out);
}

double layer_bound(const layer *l, long examples)
{
    double grads = 0;
    for (long r = 0; r < examples * l->places; r++)
        grads += squares(l->g + l->go[r], l->out);
    return l->input_squares * grads;
}

void layer_take(const layer *l, long examples, const finish *f, float *w, float *m, float *v, float *scratch,
                float *copy)
{
    const long step = rows_at_once(l);
    for (long r = 0; r < l->in; r += step) {
        const long end = least(l->in, r + step), at = l->start + r * l->out, n = (end - r) * l->out;
        layer_gradient(l, examples, r, end, scratch);
        move_weights(f, w + at, m + at, v + at, scratch, n);
        memcpy(copy + at, w + at, (size_t)n * sizeof(float));
    }
}

void layers_judge(const float *output, const float *target, int64_t n, int mae, float *pull, double *found)
{
    double farthest = 0, loss = 0;
    long known = 0;
    for (int64_t i = 0; i < n; i++) {
        const double size = fabs((double)output[i]);
        farthest = size <= farthest ? farthest : size == size ? size : INFINITY;
        const int is_known = isfinite(target[i]);
        const float e = is_known ? limited_error(target[i], output[i]) : 0.0f;
        loss += (double)loss_of(e, mae);
        pull[i] = slope_of(e, mae);
        known += is_known;
    }
    for (int64_t i = 0; i < n; i++)
        pull[i] /= (float)known;
    found[0] = farthest, found[1] = loss / (double)known;
}

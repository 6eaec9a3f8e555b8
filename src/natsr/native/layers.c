#include "layers.h"

#include <string.h>

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

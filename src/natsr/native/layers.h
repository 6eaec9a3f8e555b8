/* Layers after a backward pass, of whatever network: their gradients and how they are taken. */
#ifndef NATSR_LAYERS_H
#define NATSR_LAYERS_H

#include "step.h"

/* The layers of a network with what its last passes left in them. */
typedef struct {
    const layer *layer;
    int64_t layers, examples;
    float *scratch; /* room for some rows of any gradient */
} passed;

EXPORT void cone_passed(const cone *c, passed *p);

/* Rows of a layer's gradient over some examples, from row i of its matrix to row j, bias row included. */
void layer_gradient(const layer *l, long examples, long i, long j, float *out);

/* No gradient of the layer has a larger sum of squares. */
double layer_bound(const layer *l, long examples);

/* Move a layer's weights against its gradient, a few rows at a time, and copy them. */
void layer_take(const layer *l, long examples, const finish *f, float *w, float *m, float *v, float *scratch,
                float *copy);

/* Squared (mae = 0) or absolute errors of n outputs: `pull`, the gradient of their mean over known targets; `found`: the
 * largest output, the mean. */
EXPORT void layers_judge(const float *output, const float *target, int64_t n, int mae, float *pull, double *found);

INLINE float limited_error(float target, float output)
{
    const float e = target - output;
    return e > 1e15f ? 1e15f : e < -1e15f ? -1e15f : e; /* as in natsr.likelihoods */
}

INLINE float loss_of(float e, int mae) { return mae ? (e < 0 ? -e : e) : e * e; }
INLINE float slope_of(float e, int mae) { return mae ? (float)((e < 0) - (e > 0)) : -2 * e; }

#endif

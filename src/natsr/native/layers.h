/* Layers after a backward pass, of whatever network: their gradients and how they are taken. */
#ifndef NATSR_LAYERS_H
#define NATSR_LAYERS_H

#include "step.h"

/* Rows of a layer's gradient over some examples, from row i of its matrix to row j, bias row included. */
void layer_gradient(const layer *l, long examples, long i, long j, float *out);

/* No gradient of the layer has a larger sum of squares. */
double layer_bound(const layer *l, long examples);

/* Move a layer's weights against its gradient, a few rows at a time, and copy them. */
void layer_take(const layer *l, long examples, const finish *f, float *w, float *m, float *v, float *scratch,
                float *copy);

#endif

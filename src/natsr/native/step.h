/* What a step does with a pass through the network: the loss, and the move of the weights. */
#ifndef NATSR_STEP_H
#define NATSR_STEP_H

#include "cone.h"

/* How a direction moves the weights. */
typedef struct {
    double rate;
    double adam; /* 0: w - rate * direction; else AdamW with what follows */
    double beta1, beta2, eps, decay, step;
} finish;

typedef struct {
    double student; /* 0: Gaussian */
    double dof, variance, tracked;
    double share, distil, factor;
} losses;

void move_weights(const finish *f, float *w, float *m, float *v, const float *direction, long n);

EXPORT int natsr_abi(void);
EXPORT void step_judge(const losses *s, const float *output, const float *target, const float *stored, int32_t B,
                       int32_t fresh, int32_t m, float *pull, float *weights, double *found);
EXPORT double step_bound(const cone *c);
EXPORT void step_descend(cone *c, const finish *f, float *w, float *m, float *v);
EXPORT void step_move(const finish *f, float *w, float *m, float *v, const float *direction, int64_t n);

#endif

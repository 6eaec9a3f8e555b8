/* Curvature: Kronecker factors of each layer's Fisher information, their damped inverses, and the step they give.
 *
 * A factor or its inverse is a symmetric matrix with rows `padded(n)` numbers apart. The head's G is a number, so the
 * last entry of each list of G's is not looked at.
 */
#ifndef NATSR_CURVE_H
#define NATSR_CURVE_H

#include "step.h"

/* dst = (src + shift 1)^-1; 0 if there is none. `panel` has room for 64 rows. */
int invert(const float *src, long n, long ld, double shift, float *dst, float *panel);

/* What is above the diagonal, below it too. */
void mirror(float *m, long n, long ld);

EXPORT int curve_known(cone *c, const float *w, const float *weights, double kappa, float **g);
EXPORT int curve_probe(cone *c, const float *w, const float *probes, const int32_t *owner, int32_t N, int known,
                       int add, float **g);
EXPORT int curve_blend(cone *c, const float *weights, double share, const float *const *old_a,
                       const float *const *old_g, float **a, float **g);
EXPORT int curve_invert(cone *c, const float *const *a, const float *const *g, double head, double damping, float **ia,
                        float **ig, double *head_inverse);
EXPORT double curve_solve(cone *c, const float *const *ia, const float *const *ig, double head_inverse);
EXPORT void curve_take(cone *c, const finish *f, double scale, double average, float *smoothed, float *w, float *m,
                       float *v);

#endif

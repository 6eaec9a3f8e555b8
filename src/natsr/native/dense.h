/* Products of small matrices in float64, for least squares. Rows of what is read lie `ld` numbers apart; results have
 * rows of whole vectors, so that there is room for what is computed beside them. */
#ifndef NATSR_DENSE_H
#define NATSR_DENSE_H

#include "kernels.h"

#define DL (VL / 2) /* numbers in a vector; rows are as long as a multiple of 8 */
#define DN 3        /* vectors in a row of a tile */
#if defined(__AVX512F__)
#define DR 8 /* rows of a tile */
#else
#define DR 4
#endif

typedef double dvec __attribute__((vector_size(8 * DL)));
typedef double udvec __attribute__((vector_size(8 * DL), aligned(8), may_alias));

INLINE dvec ldd(const double *p) { return *(const udvec *)p; }
INLINE void std(double *p, dvec x) { *(udvec *)p = x; }
INLINE long whole(long n) { return (n + 7) / 8 * 8; }

/* C (M, N) = A (M, K) · B (K, N), C with rows of whole vectors. `beside` has room for K vectors. */
void multiply(const double *a, long lda, long M, long K, const double *b, long ldb, long N, double *c, long ldc,
              double *beside);

/* C (I, N) += Xᵀ Y over K rows, and `rounded` is the same in float32. X and Y have rows of whole vectors. */
void gather(const double *x, long ldx, long I, const double *y, long ldy, long N, long K, double *c, float *rounded);

/* C (n, n) = (C - Xᵀ X) / by, symmetric: half of it is computed and mirrored. */
void shrink(const double *x, long ldx, long n, long K, double by, double *c);

/* From a positive definite matrix its Cholesky factor U, C = Uᵀ U, on and above the diagonal; 0 if it is none. */
int factor(double *c, long ldc, long n);

/* X (K, n) = U⁻ᵀ X, in place, rows of whole vectors; the sum of all of it comes back. */
double solve(const double *u, long ldu, long K, double *x, long ldx, long n);

#endif

/* Matrix products on rows that lie anywhere, without packing.
 *
 * Every operand is read where it is: a row of the left factor, or of the result, is a base address and an entry of a
 * table of offsets, so a convolution's overlapping patches, its rows of zeros and its strides cost nothing. Columns are
 * read in whole vectors: up to SLACK numbers beyond a row's end are read (never written), so every buffer has that many
 * to spare at its end.
 */
#ifndef NATSR_KERNELS_H
#define NATSR_KERNELS_H

#define NATSR_ABI 5 /* as in natsr.native.build */

#include <stddef.h>
#include <stdint.h>

#define EXPORT __attribute__((visibility("default")))

#if defined(__AVX512F__)
#define VL 16 /* numbers in a vector */
#define NV 4  /* vectors in a row of a wide tile */
#elif defined(__AVX__)
#define VL 8
#define NV 2
#else
#define VL 4
#define NV 2
#endif
#define MR 6 /* rows of a wide tile; a tall one has twice as many, and half the vectors */
#define SLACK 64
#define INLINE static inline __attribute__((always_inline))

typedef float vec __attribute__((vector_size(4 * VL)));
typedef float uvec __attribute__((vector_size(4 * VL), aligned(4), may_alias));

INLINE vec ld(const float *p) { return *(const uvec *)p; }
INLINE void st(float *p, vec x) { *(uvec *)p = x; }
INLINE long least(long a, long b) { return a < b ? a : b; }
INLINE float vsum(vec x)
{
    float s = 0.0f;
    for (int i = 0; i < VL; i++)
        s += x[i];
    return s;
}

/* What a result starts from. */
enum start { FROM_ZERO, FROM_BIAS, FROM_RESULT };

/* C (M, N) = start + A (M, K) · B (K, N); row r of A is at a + ao[r], of C at c + co[r]. */
void product(const float *a, const int32_t *ao, long M, long K, const float *b, long ldb, long N, enum start start,
             const float *bias, float *c, const int32_t *co);

/* C (I, N) = start + Σ_k x_k y_kᵀ over `rows` rows at x + xo[k] and y + yo[k]; with `upper`, on and above the diagonal
 * at least. Columns between N and ldc may be written to. */
void outer(const float *x, const int32_t *xo, long I, const float *y, const int32_t *yo, long N, long rows, int add,
           int upper, float *c, long ldc);

/* C (M, N) = A (M, K) · Bᵀ with rows of B at b + n·ldb: for few rows or long ones. */
void dots(const float *a, const int32_t *ao, long M, long K, const float *b, long ldb, long N, float *c,
          const int32_t *co);

/* dst (cols, rows) = src (rows, cols)ᵀ. */
void transpose(const float *src, long lds, long rows, long cols, float *dst, long ldd);

/* h = gelu(x), d = gelu'(x); the sum of h² comes back. */
float gelu(const float *x, float *h, float *d, long n);

/* h = silu(x) = x / (1 + exp(-x)), d = silu'(x). */
void silu(const float *x, float *h, float *d, long n);

/* The sum of squares. */
double squares(const float *x, long n);

#endif

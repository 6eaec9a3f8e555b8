#include "curve.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define NB 32 /* pivots at once */
#define ROUNDING 1e-6 /* of a matrix in float32, relative to its trace */

/* From a small positive definite matrix, which is spent, the inverse of its lower Cholesky factor; 0 if a pivot is not
 * positive. */
static int invert_factor(float d[NB][NB], int n, float e[NB][NB])
{
    memset(e, 0, NB * sizeof *e);
    for (int i = 0; i < n; i++)
        e[i][i] = 1.0f;
    for (int k = 0; k < n; k++) {
        const float pivot = d[k][k];
        if (!(pivot > 0 && pivot < INFINITY))
            return 0;
        const float root = 1.0f / sqrtf(pivot);
        vec row[NB / VL], unit[NB / VL];
        for (int j = 0; j < NB / VL; j++) {
            row[j] = ld(d[k] + j * VL) * root;
            unit[j] = ld(e[k] + j * VL) * root;
            st(d[k] + j * VL, row[j]);
            st(e[k] + j * VL, unit[j]);
        }
        for (int i = k + 1; i < n; i++) {
            const float f = d[k][i];
            for (int j = 0; j < NB / VL; j++) {
                st(d[i] + j * VL, ld(d[i] + j * VL) - f * row[j]);
                st(e[i] + j * VL, ld(e[i] + j * VL) - f * unit[j]);
            }
        }
    }
    return 1;
}

/* Sweep the pivots one after the other in float64, for a matrix whose sum with the damping float32 cannot invert. What
 * rounding may have made of its smallest eigenvalues is added to the damping. */
static int invert_slowly(const float *src, long n, long ld, double shift, float *dst)
{
    double *d = malloc((size_t)(n * n) * sizeof(double));
    int ok = d != NULL;
    for (long i = 0; i < n; i++)
        shift += ROUNDING * (double)src[i * ld + i];
    for (long i = 0; ok && i < n; i++)
        for (long j = 0; j < n; j++)
            d[i * n + j] = (double)src[i < j ? i * ld + j : j * ld + i] + (i == j ? shift : 0);
    for (long k = 0; ok && k < n; k++) {
        const double pivot = d[k * n + k];
        ok = pivot > 0 && pivot < INFINITY;
        for (long j = 0; j < n; j++)
            d[k * n + j] = j == k ? 1 / pivot : d[k * n + j] / pivot;
        for (long i = 0; i < n; i++) {
            if (i == k)
                continue;
            const double f = d[i * n + k];
            d[i * n + k] = 0;
            for (long j = 0; j < n; j++)
                d[i * n + j] -= f * d[k * n + j];
        }
    }
    for (long i = 0; ok && i < n; i++)
        for (long j = 0; j < n; j++)
            dst[i * ld + j] = (float)(0.5 * (d[i * n + j] + d[j * n + i]));
    free(d);
    return ok;
}

/* The sweep operator, a block of pivots at a time, on and above the diagonal: each block is one symmetric update of the
 * whole matrix, so nearly all of the work is one kind of product. `m` begins as the negated matrix and ends as the
 * inverse. A block's own inverse is never used whole, but as its Cholesky factor's, first on one side and then on the
 * other, which costs as many digits as a Cholesky decomposition of all would. */
static int sweep(long n, long ld, float *m, float *panel)
{
    float *p = panel, *y = panel + NB * ld, d[NB][NB], e[NB][NB], turned[NB][NB];
    int32_t small[NB], wide[NB];
    for (int r = 0; r < NB; r++)
        small[r] = r * NB, wide[r] = (int32_t)(r * ld);
    for (long k = 0; k < n; k += NB) {
        const long nb = least(NB, n - k), after = k + nb;
        memset(d, 0, sizeof d);
        for (long r = 0; r < nb; r++)
            for (long j = r; j < nb; j++)
                d[r][j] = d[j][r] = -m[(k + r) * ld + k + j];
        if (!invert_factor(d, (int)nb, e))
            return 0;
        /* Rows of the block, whole; zero at the block itself, which the update then leaves alone. */
        transpose(m + k, ld, k, nb, p, ld);
        for (long r = 0; r < nb; r++) {
            memset(p + r * ld + k, 0, (size_t)nb * sizeof(float));
            memcpy(p + r * ld + after, m + (k + r) * ld + after, (size_t)(n - after) * sizeof(float));
        }
        product(e[0], small, nb, nb, p, ld, n, FROM_ZERO, NULL, y, wide);
        outer(y, wide, n, y, wide, n, nb, 1, 1, m, ld);
        transpose(e[0], NB, NB, NB, turned[0], NB);
        product(turned[0], small, nb, nb, y, ld, n, FROM_ZERO, NULL, p, wide);
        outer(e[0], small, nb, e[0], small, nb, nb, 0, 1, d[0], NB);
        transpose(p, ld, nb, k, m + k, ld);
        for (long r = 0; r < nb; r++) {
            memcpy(m + (k + r) * ld + after, p + r * ld + after, (size_t)(n - after) * sizeof(float));
            memcpy(m + (k + r) * ld + k + r, d[r] + r, (size_t)(nb - r) * sizeof(float));
        }
    }
    return 1;
}

void mirror(float *m, long n, long ld)
{
    for (long i = 0; i < n; i += VL) {
        const long rows = least(VL, n - i), after = i + rows;
        for (long r = i; r < after; r++)
            for (long j = i; j < r; j++)
                m[r * ld + j] = m[j * ld + r];
        transpose(m + i * ld + after, ld, rows, n - after, m + after * ld + i, ld);
    }
}

int invert(const float *src, long n, long ld, double shift, float *dst, float *panel)
{
    for (long i = 0; i < n; i++) {
        for (long j = i; j < n; j++)
            dst[i * ld + j] = -src[i * ld + j];
        dst[i * ld + i] -= (float)shift;
    }
    if (!sweep(n, ld, dst, panel))
        return invert_slowly(src, n, ld, shift, dst);
    mirror(dst, n, ld);
    return 1;
}

#include "dense.h"

#include <math.h>
#include <string.h>

/* ---- rows times a matrix ---------------------------------------------------------------------------------------- */

INLINE void tile(const int mr, const int nv, const double *a, long lda, long K, const double *b, long ldb, double *c,
                 long ldc)
{
    dvec acc[DR][DN] = {{{0}}};
    for (long k = 0; k < K; k++) {
        dvec bv[DN];
#pragma GCC unroll 4
        for (int j = 0; j < nv; j++) {
            __builtin_prefetch(b + (k + 12) * ldb + j * DL);
            bv[j] = ldd(b + k * ldb + j * DL);
        }
#pragma GCC unroll 8
        for (int r = 0; r < mr; r++) {
            const double s = a[r * lda + k];
#pragma GCC unroll 4
            for (int j = 0; j < nv; j++)
                acc[r][j] += s * bv[j];
        }
    }
#pragma GCC unroll 8
    for (int r = 0; r < mr; r++)
#pragma GCC unroll 4
        for (int j = 0; j < nv; j++)
            std(c + r * ldc + j * DL, acc[r][j]);
}

typedef void (*rows_tile)(const double *, long, long, const double *, long, double *, long);
#define ROWS(mr, nv)                                                                                                   \
    static void rows_##mr##_##nv(const double *a, long lda, long K, const double *b, long ldb, double *c, long ldc)    \
    {                                                                                                                  \
        tile(mr, nv, a, lda, K, b, ldb, c, ldc);                                                                       \
    }
#define ROWS4(nv) ROWS(1, nv) ROWS(2, nv) ROWS(3, nv) ROWS(4, nv)
#define NAMES4(nv) rows_1_##nv, rows_2_##nv, rows_3_##nv, rows_4_##nv
#if DR == 8
#define ROWS_ALL(nv) ROWS4(nv) ROWS(5, nv) ROWS(6, nv) ROWS(7, nv) ROWS(8, nv)
#define NAMES_ALL(nv) NAMES4(nv), rows_5_##nv, rows_6_##nv, rows_7_##nv, rows_8_##nv
#else
#define ROWS_ALL(nv) ROWS4(nv)
#define NAMES_ALL(nv) NAMES4(nv)
#endif
ROWS_ALL(1) ROWS_ALL(2) ROWS_ALL(3)
static const rows_tile tiles[DN][DR] = {{NAMES_ALL(1)}, {NAMES_ALL(2)}, {NAMES_ALL(3)}};

static void panel(int nv, const double *a, long lda, long M, long K, const double *b, long ldb, double *c, long ldc)
{
    for (long r = 0; r < M; r += DR)
        tiles[nv - 1][least(DR, M - r) - 1](a + r * lda, lda, K, b, ldb, c + r * ldc, ldc);
}

void multiply(const double *a, long lda, long M, long K, const double *b, long ldb, long N, double *c, long ldc,
              double *beside)
{
    const long vectors = N / DL, rest = N % DL;
    for (long v = 0; v < vectors; v += DN)
        panel((int)least(DN, vectors - v), a, lda, M, K, b + v * DL, ldb, c + v * DL, ldc);
    if (!rest)
        return;
    for (long k = 0; k < K; k++)
        for (long j = 0; j < DL; j++)
            beside[k * DL + j] = j < rest ? b[k * ldb + vectors * DL + j] : 0.0;
    panel(1, a, lda, M, K, beside, DL, c + vectors * DL, ldc);
}

/* ---- sums of outer products ------------------------------------------------------------------------------------- */

/* Σ_k x_k y_kᵀ of DR columns of X and `nv` vectors of Y. */
INLINE void sums(const int nv, const double *x, long ldx, const double *y, long ldy, long K, double out[DR][DN * DL])
{
    dvec acc[DR][DN] = {{{0}}};
    for (long k = 0; k < K; k++) {
        dvec yv[DN];
#pragma GCC unroll 4
        for (int j = 0; j < nv; j++)
            yv[j] = ldd(y + k * ldy + j * DL);
#pragma GCC unroll 8
        for (int r = 0; r < DR; r++) {
            const double s = x[k * ldx + r];
#pragma GCC unroll 4
            for (int j = 0; j < nv; j++)
                acc[r][j] += s * yv[j];
        }
    }
#pragma GCC unroll 8
    for (int r = 0; r < DR; r++)
#pragma GCC unroll 4
        for (int j = 0; j < nv; j++)
            std(out[r] + j * DL, acc[r][j]);
}

static void sums_of(long nv, const double *x, long ldx, const double *y, long ldy, long K, double out[DR][DN * DL])
{
    if (nv == 3)
        sums(3, x, ldx, y, ldy, K, out);
    else if (nv == 2)
        sums(2, x, ldx, y, ldy, K, out);
    else
        sums(1, x, ldx, y, ldy, K, out);
}

void gather(const double *x, long ldx, long I, const double *y, long ldy, long N, long K, double *c, float *rounded)
{
    double out[DR][DN * DL] __attribute__((aligned(64)));
    for (long j = 0; j < N; j += DN * DL) {
        const long wide = least(DN * DL, N - j);
        for (long i = 0; i < I; i += DR) {
            sums_of((wide + DL - 1) / DL, x + i, ldx, y + j, ldy, K, out);
            for (long r = 0; r < least(DR, I - i); r++) {
                double *to = c + (i + r) * N + j;
                float *single = rounded + (i + r) * N + j;
                for (long q = 0; q < wide; q++) {
                    to[q] += out[r][q];
                    single[q] = (float)to[q];
                }
            }
        }
    }
}

/* One tile of `shrink`, and its mirror image. */
INLINE void settle(double out[DR][DN * DL], long i, long rows, long j, long wide, double by, double *c, long n)
{
    for (long r = 0; r < rows; r++) {
        double *to = c + (i + r) * n + j;
        for (long q = i + r > j ? i + r - j : 0; q < wide; q++)
            to[q] = out[r][q] = (to[q] - out[r][q]) * by;
    }
    for (long q = i + 1 > j ? i + 1 - j : 0; q < wide; q++) {
        double *to = c + (j + q) * n + i;
        for (long r = 0; r < least(rows, j + q - i); r++)
            to[r] = out[r][q];
    }
}

void shrink(const double *x, long ldx, long n, long K, double by, double *c)
{
    double out[DR][DN * DL] __attribute__((aligned(64)));
    for (long i = 0; i < n; i += DR)
        for (long j = i; j < n; j += DN * DL) {
            const long wide = least(DN * DL, n - j);
            sums_of((wide + DL - 1) / DL, x + i, ldx, x + j, ldx, K, out);
            settle(out, i, least(DR, n - i), j, wide, 1 / by, c, n);
        }
}

/* ---- Cholesky --------------------------------------------------------------------------------------------------- */

int factor(double *c, long ldc, long n)
{
    for (long k = 0; k < n; k++) {
        double *row = c + k * ldc;
        if (!(row[k] > 0 && row[k] < INFINITY))
            return 0;
        const double root = 1 / sqrt(row[k]);
        for (long j = k; j < n; j++)
            row[j] *= root;
        for (long i = k + 1; i < n; i++) {
            double *to = c + i * ldc;
            const double f = row[i];
            for (long j = i; j < n; j++)
                to[j] -= f * row[j];
        }
    }
    return 1;
}

/* A strip of four vectors, which stays near from row to row. */
INLINE dvec strip(const int nv, const double *u, long ldu, long K, double *x, long ldx)
{
    dvec total = {0};
    for (long i = 0; i < K; i++) {
        dvec acc[4];
        double *row = x + i * ldx;
#pragma GCC unroll 4
        for (int j = 0; j < nv; j++)
            acc[j] = ldd(row + j * DL);
        for (long q = 0; q < i; q++) {
            const double s = u[q * ldu + i];
#pragma GCC unroll 4
            for (int j = 0; j < nv; j++)
                acc[j] -= s * ldd(x + q * ldx + j * DL);
        }
        const double scale = 1 / u[i * ldu + i];
#pragma GCC unroll 4
        for (int j = 0; j < nv; j++) {
            acc[j] *= scale;
            std(row + j * DL, acc[j]);
            total += acc[j];
        }
    }
    return total;
}

double solve(const double *u, long ldu, long K, double *x, long ldx, long n)
{
    dvec total = {0};
    const long vectors = (n + DL - 1) / DL;
    long v = 0;
    for (; v + 4 <= vectors; v += 4)
        total += strip(4, u, ldu, K, x + v * DL, ldx);
    for (; v < vectors; v++)
        total += strip(1, u, ldu, K, x + v * DL, ldx);
    double sum = 0;
    for (int j = 0; j < DL; j++)
        sum += total[j];
    return sum;
}

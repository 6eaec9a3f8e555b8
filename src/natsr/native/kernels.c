#include "kernels.h"

#include <math.h>
#include <string.h>

/* ---- rows times a matrix ---------------------------------------------------------------------------------------- */

INLINE void tile(const int mr, const int nv, const float *a, const int32_t *ao, long K, const float *b, long ldb,
                 enum start start, const float *bias, float *c, const int32_t *co)
{
    vec acc[2 * MR][NV];
    const float *ap[2 * MR];
#pragma GCC unroll 16
    for (int r = 0; r < mr; r++) {
        ap[r] = a + ao[r];
#pragma GCC unroll 4
        for (int j = 0; j < nv; j++)
            acc[r][j] = start == FROM_BIAS     ? ld(bias + j * VL)
                        : start == FROM_RESULT ? ld(c + co[r] + j * VL)
                                               : (vec){0};
    }
    for (long k = 0; k < K; k++) {
        vec bv[NV];
#pragma GCC unroll 4
        for (int j = 0; j < nv; j++)
            bv[j] = ld(b + k * ldb + j * VL);
#pragma GCC unroll 16
        for (int r = 0; r < mr; r++) {
            const float s = ap[r][k];
#pragma GCC unroll 4
            for (int j = 0; j < nv; j++)
                acc[r][j] += s * bv[j];
        }
    }
#pragma GCC unroll 16
    for (int r = 0; r < mr; r++)
#pragma GCC unroll 4
        for (int j = 0; j < nv; j++)
            st(c + co[r] + j * VL, acc[r][j]);
}

#define ROWS_ARGS                                                                                                      \
    const float *a, const int32_t *ao, long K, const float *b, long ldb, enum start start, const float *bias,          \
        float *c, const int32_t *co
#define ROWS_PASS a, ao, K, b, ldb, start, bias, c, co
typedef void (*rows_tile)(ROWS_ARGS);
#define ROWS(mr, nv)                                                                                                   \
    static void rows_##mr##_##nv(ROWS_ARGS) { tile(mr, nv, ROWS_PASS); }
#define ROWS6(nv) ROWS(1, nv) ROWS(2, nv) ROWS(3, nv) ROWS(4, nv) ROWS(5, nv) ROWS(6, nv)
#define ROWS12(nv) ROWS6(nv) ROWS(7, nv) ROWS(8, nv) ROWS(9, nv) ROWS(10, nv) ROWS(11, nv) ROWS(12, nv)
#define NAMES6(nv) rows_1_##nv, rows_2_##nv, rows_3_##nv, rows_4_##nv, rows_5_##nv, rows_6_##nv
#define NAMES12(nv) NAMES6(nv), rows_7_##nv, rows_8_##nv, rows_9_##nv, rows_10_##nv, rows_11_##nv, rows_12_##nv

#if NV == 4
ROWS12(1) ROWS12(2) ROWS6(3) ROWS6(4)
static const rows_tile tall[2][12] = {{NAMES12(1)}, {NAMES12(2)}};
static const rows_tile wide[4][12] = {{NAMES6(1)}, {NAMES6(2)}, {NAMES6(3)}, {NAMES6(4)}};
#else
ROWS12(1) ROWS6(2)
static const rows_tile tall[1][12] = {{NAMES12(1)}};
static const rows_tile wide[2][12] = {{NAMES6(1)}, {NAMES6(2)}};
#endif

/* The last columns, fewer than a vector's: whole vectors beside the result, then what belongs to it. */
static void narrow(rows_tile f, long mr, ROWS_ARGS, long cols)
{
    static const int32_t beside[2 * MR] = {0,           NV * VL,     2 * NV * VL, 3 * NV * VL,
                                           4 * NV * VL, 5 * NV * VL, 6 * NV * VL, 7 * NV * VL,
                                           8 * NV * VL, 9 * NV * VL, 10 * NV * VL, 11 * NV * VL};
    float part[2 * MR * NV * VL] __attribute__((aligned(64)));
    const size_t bytes = (size_t)cols * sizeof(float);
    for (long r = 0; start == FROM_RESULT && r < mr; r++) {
        memset(part + beside[r], 0, NV * VL * sizeof(float));
        memcpy(part + beside[r], c + co[r], bytes);
    }
    f(a, ao, K, b, ldb, start, bias, part, beside);
    for (long r = 0; r < mr; r++)
        memcpy(c + co[r], part + beside[r], bytes);
}

void product(const float *a, const int32_t *ao, long M, long K, const float *b, long ldb, long N, enum start start,
             const float *bias, float *c, const int32_t *co)
{
    /* Few rows: all of them in one tall tile, so that the matrix is read once. */
    const int is_tall = M > MR && M <= 2 * MR;
    const long vectors = is_tall ? NV / 2 : NV, height = is_tall ? 2 * MR : MR;
    for (long n = 0; n < N; n += vectors * VL) {
        const long cols = least(N - n, vectors * VL), nv = (cols + VL - 1) / VL;
        for (long m = 0; m < M; m += height) {
            const long mr = least(M - m, height);
            const rows_tile f = is_tall ? tall[nv - 1][mr - 1] : wide[nv - 1][mr - 1];
            const float *bn = b + n, *from = bias ? bias + n : NULL;
            if (cols % VL)
                narrow(f, mr, a, ao + m, K, bn, ldb, start, from, c + n, co + m, cols);
            else
                f(a, ao + m, K, bn, ldb, start, from, c + n, co + m);
        }
    }
}

/* ---- sums of outer products ------------------------------------------------------------------------------------- */

INLINE void tile_outer(const int mr, const int nv, const float *x, const int32_t *xo, const float *y,
                       const int32_t *yo, long rows, int add, float *c, long ldc)
{
    vec acc[2 * MR][NV];
#pragma GCC unroll 16
    for (int r = 0; r < mr; r++)
#pragma GCC unroll 4
        for (int j = 0; j < nv; j++)
            acc[r][j] = add ? ld(c + r * ldc + j * VL) : (vec){0};
    for (long k = 0; k < rows; k++) {
        const float *xp = x + xo[k], *yp = y + yo[k];
        vec yv[NV];
#pragma GCC unroll 4
        for (int j = 0; j < nv; j++)
            yv[j] = ld(yp + j * VL);
#pragma GCC unroll 16
        for (int r = 0; r < mr; r++) {
            const float s = xp[r];
#pragma GCC unroll 4
            for (int j = 0; j < nv; j++)
                acc[r][j] += s * yv[j];
        }
    }
#pragma GCC unroll 16
    for (int r = 0; r < mr; r++)
#pragma GCC unroll 4
        for (int j = 0; j < nv; j++)
            st(c + r * ldc + j * VL, acc[r][j]);
}

#define OUTER_ARGS                                                                                                     \
    const float *x, const int32_t *xo, const float *y, const int32_t *yo, long rows, int add, float *c, long ldc
#define OUTER_PASS x, xo, y, yo, rows, add, c, ldc
typedef void (*outer_tile)(OUTER_ARGS);
#define OUTER(mr, nv)                                                                                                  \
    static void outer_##mr##_##nv(OUTER_ARGS) { tile_outer(mr, nv, OUTER_PASS); }
#define OUTER6(nv) OUTER(1, nv) OUTER(2, nv) OUTER(3, nv) OUTER(4, nv) OUTER(5, nv) OUTER(6, nv)
#define ONAMES(nv) outer_1_##nv, outer_2_##nv, outer_3_##nv, outer_4_##nv, outer_5_##nv, outer_6_##nv

#define OUTER12(nv) OUTER6(nv) OUTER(7, nv) OUTER(8, nv) OUTER(9, nv) OUTER(10, nv) OUTER(11, nv) OUTER(12, nv)
#define ONAMES12(nv) ONAMES(nv), outer_7_##nv, outer_8_##nv, outer_9_##nv, outer_10_##nv, outer_11_##nv, outer_12_##nv

#if NV == 4
OUTER12(1) OUTER12(2) OUTER6(3) OUTER6(4)
static const outer_tile tall_outers[2][12] = {{ONAMES12(1)}, {ONAMES12(2)}};
static const outer_tile wide_outers[4][12] = {{ONAMES(1)}, {ONAMES(2)}, {ONAMES(3)}, {ONAMES(4)}};
#else
OUTER12(1) OUTER6(2)
static const outer_tile tall_outers[1][12] = {{ONAMES12(1)}};
static const outer_tile wide_outers[2][12] = {{ONAMES(1)}, {ONAMES(2)}};
#endif

static void narrow_outer(outer_tile f, long mr, OUTER_ARGS, long cols)
{
    float part[2 * MR * NV * VL] __attribute__((aligned(64)));
    const size_t bytes = (size_t)cols * sizeof(float);
    for (long r = 0; add && r < mr; r++) {
        memset(part + r * NV * VL, 0, NV * VL * sizeof(float));
        memcpy(part + r * NV * VL, c + r * ldc, bytes);
    }
    f(x, xo, y, yo, rows, add, part, NV * VL);
    for (long r = 0; r < mr; r++)
        memcpy(c + r * ldc, part + r * NV * VL, bytes);
}

void outer(const float *x, const int32_t *xo, long I, const float *y, const int32_t *yo, long N, long rows, int add,
           int upper, float *c, long ldc)
{
    /* Above the diagonal: narrower panels leave less below it to be computed in vain. */
    const long width = (upper ? NV / 2 : NV) * VL, height = upper ? 2 * MR : MR;
    if (rows == 0 && !add) {
        for (long i = 0; i < I; i++)
            memset(c + i * ldc, 0, (size_t)N * sizeof(float));
        return;
    }
    /* Rows in pieces that stay in a near cache while every tile of the result takes them in. */
    long piece = 24576 / (N < NV * VL ? NV * VL : N > 512 ? 512 : N);
    piece = rows <= piece + piece / 2 ? rows : piece;
    for (long k = 0, count; k < rows; k += count) {
        count = rows - k < piece + piece / 2 ? rows - k : piece;
        for (long n = 0; n < N; n += width) {
            const long cols = least(N - n, width), nv = (cols + VL - 1) / VL;
            const long last = upper ? least(I, n + cols) : I;
            for (long i = 0; i < last; i += height) {
                const long mr = least(last - i, height);
                const outer_tile f = upper ? tall_outers[nv - 1][mr - 1] : wide_outers[nv - 1][mr - 1];
                float *to = c + i * ldc + n;
                if (cols % VL && n + nv * VL > ldc) /* rows of the result that have room to spare need no care */
                    narrow_outer(f, mr, x + i, xo + k, y + n, yo + k, count, add || k > 0, to, ldc, cols);
                else
                    f(x + i, xo + k, y + n, yo + k, count, add || k > 0, to, ldc);
            }
        }
    }
}

/* ---- inner products --------------------------------------------------------------------------------------------- */

INLINE void tile_dots(const int mr, const int nr, const float *a, const int32_t *ao, long K, const float *b, long ldb,
                      float *c, const int32_t *co)
{
    vec acc[4][4];
    const float *ap[4];
#pragma GCC unroll 4
    for (int r = 0; r < mr; r++) {
        ap[r] = a + ao[r];
#pragma GCC unroll 4
        for (int j = 0; j < nr; j++)
            acc[r][j] = (vec){0};
    }
    long k = 0;
    for (; k + VL <= K; k += VL) {
        vec bv[4];
#pragma GCC unroll 4
        for (int j = 0; j < nr; j++)
            bv[j] = ld(b + j * ldb + k);
#pragma GCC unroll 4
        for (int r = 0; r < mr; r++) {
            const vec av = ld(ap[r] + k);
#pragma GCC unroll 4
            for (int j = 0; j < nr; j++)
                acc[r][j] += av * bv[j];
        }
    }
#pragma GCC unroll 4
    for (int r = 0; r < mr; r++)
#pragma GCC unroll 4
        for (int j = 0; j < nr; j++) {
            float s = vsum(acc[r][j]);
            for (long t = k; t < K; t++)
                s += ap[r][t] * b[j * ldb + t];
            c[co[r] + j] = s;
        }
}

void dots(const float *a, const int32_t *ao, long M, long K, const float *b, long ldb, long N, float *c,
          const int32_t *co)
{
    for (long n = 0; n < N; n += 4) {
        const float *bn = b + n * ldb;
        for (long m = 0; m < M;) {
            if (N - n < 4) {
                for (long j = 0; j < N - n; j++)
                    tile_dots(1, 1, a, ao + m, K, bn + j * ldb, ldb, c + n + j, co + m);
                m += 1;
            } else if (M - m >= 3) {
                tile_dots(3, 4, a, ao + m, K, bn, ldb, c + n, co + m);
                m += 3;
            } else {
                tile_dots(1, 4, a, ao + m, K, bn, ldb, c + n, co + m);
                m += 1;
            }
        }
    }
}

/* ---- transposing ------------------------------------------------------------------------------------------------ */

#if defined(__clang__) || (defined(__GNUC__) && __GNUC__ >= 12)
#if VL == 16
#define LOW 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23
#define HIGH 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31
#define ROUNDS 4
#elif VL == 8
#define LOW 0, 8, 1, 9, 2, 10, 3, 11
#define HIGH 4, 12, 5, 13, 6, 14, 7, 15
#define ROUNDS 3
#else
#define LOW 0, 4, 1, 5
#define HIGH 2, 6, 3, 7
#define ROUNDS 2
#endif
/* A perfect shuffle of rows and columns rotates the bits of an index; half a turn swaps rows with columns. */
INLINE void transpose_square(const float *src, long lds, float *dst, long ldd)
{
    vec x[VL], y[VL];
#pragma GCC unroll 16
    for (int i = 0; i < VL; i++)
        x[i] = ld(src + i * lds);
#pragma GCC unroll 4
    for (int round = 0; round < ROUNDS; round++) {
#pragma GCC unroll 8
        for (int i = 0; i < VL / 2; i++) {
            y[2 * i] = __builtin_shufflevector(x[i], x[i + VL / 2], LOW);
            y[2 * i + 1] = __builtin_shufflevector(x[i], x[i + VL / 2], HIGH);
        }
#pragma GCC unroll 16
        for (int i = 0; i < VL; i++)
            x[i] = y[i];
    }
#pragma GCC unroll 16
    for (int i = 0; i < VL; i++)
        st(dst + i * ldd, x[i]);
}
#else
static void transpose_square(const float *src, long lds, float *dst, long ldd)
{
    for (int i = 0; i < VL; i++)
        for (int j = 0; j < VL; j++)
            dst[j * ldd + i] = src[i * lds + j];
}
#endif

void transpose(const float *src, long lds, long rows, long cols, float *dst, long ldd)
{
    const long whole_rows = rows - rows % VL, whole_cols = cols - cols % VL;
    for (long i = 0; i < whole_rows; i += VL)
        for (long j = 0; j < whole_cols; j += VL)
            transpose_square(src + i * lds + j, lds, dst + j * ldd + i, ldd);
    for (long i = 0; i < rows; i++)
        for (long j = i < whole_rows ? whole_cols : 0; j < cols; j++)
            dst[j * ldd + i] = src[i * lds + j];
}

/* ---- one number at a time --------------------------------------------------------------------------------------- */

typedef int32_t ivec __attribute__((vector_size(4 * VL)));

INLINE vec chosen(ivec mask, vec yes, vec no) { return (vec)((mask & (ivec)yes) | (~mask & (ivec)no)); }

/* exp(-y) for y >= 0, cut at 80: powers of two times a polynomial on half of ln 2 to either side. */
INLINE vec exp_minus(vec y)
{
    const vec limit = (vec){0} + 80.0f;
    y = chosen(y < limit, y, limit);
    const ivec n = __builtin_convertvector(y * -1.44269504089f - 0.5f, ivec);
    const vec f = __builtin_convertvector(n, vec), r = (-y - f * 0.693359375f) + f * 2.12194440e-4f;
    vec p = r * 1.9875691500e-4f + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    p = p * r * r + r + 1.0f;
    return p * (vec)((n + 127) << 23);
}

/* The normal distribution function by the complementary error function, a polynomial in t = 1/(1 + p|x|) times
 * exp(-x^2/2) (Hastings 1955; to 1.5e-7): one exponential serves GELU and its derivative. */
INLINE vec gelu_vector(vec x, vec *d)
{
    const ivec negative = x < (vec){0};
    const vec e = exp_minus(x * x * 0.5f), t = 1.0f / (chosen(negative, -x, x) * 0.2316418882f + 1.0f);
    vec q = t * 0.5307027145f - 0.7265760135f;
    q = q * t + 0.7107068705f;
    q = q * t - 0.1422483680f;
    q = q * t + 0.1274147960f;
    q = q * t * e;
    const vec phi = chosen(negative, q, 1.0f - q);
    *d = phi + x * e * 0.3989422804f;
    return x * phi;
}

INLINE void put(float *c, vec x, long cols)
{
    if (cols >= VL) {
        st(c, x);
        return;
    }
    float part[VL];
    st(part, x);
    for (long i = 0; i < cols; i++)
        c[i] = part[i];
}

float gelu(const float *x, float *h, float *d, long n)
{
    vec sum = {0}, slope;
    long i = 0;
    for (; i + VL <= n; i += VL) {
        const vec out = gelu_vector(ld(x + i), &slope);
        st(h + i, out);
        st(d + i, slope);
        sum += out * out;
    }
    if (i < n) {
        float last[VL] = {0};
        memcpy(last, x + i, (size_t)(n - i) * sizeof(float));
        const vec out = gelu_vector(ld(last), &slope);
        put(h + i, out, n - i);
        put(d + i, slope, n - i);
        sum += out * out;
    }
    return vsum(sum);
}

void silu(const float *x, float *h, float *d, long n)
{
    for (long i = 0; i < n; i += VL) {
        float last[VL] = {0};
        const long cols = least(n - i, VL);
        memcpy(last, x + i, (size_t)cols * sizeof(float));
        const vec at = ld(last);
        const ivec negative = at < (vec){0};
        const vec e = exp_minus(chosen(negative, -at, at)), share = chosen(negative, e, (vec){0} + 1.0f) / (1.0f + e);
        put(h + i, at * share, cols);
        put(d + i, share * (1.0f + at * (1.0f - share)), cols);
    }
}

double squares(const float *x, long n)
{
    vec a = {0}, b = {0};
    long i = 0;
    for (; i + 2 * VL <= n; i += 2 * VL) {
        const vec u = ld(x + i), v = ld(x + i + VL);
        a += u * u;
        b += v * v;
    }
    double sum = (double)vsum(a) + (double)vsum(b);
    for (; i < n; i++)
        sum += (double)x[i] * (double)x[i];
    return sum;
}

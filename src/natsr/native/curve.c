#include "curve.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define FEW_ROWS 24 /* a thin product of more rows is multiplied out to be measured */

enum { BELOW_HEAD = 1, BELOW_LAST = 2 };

static void scale_upper(float *m, long n, long ld, float by)
{
    for (long i = 0; i < n; i++)
        for (long j = i; j < n; j++)
            m[i * ld + j] *= by;
}

/* G of the layers right below the head in closed form, above the diagonal: natsr.nets.tcn has the mathematics. Says
 * which ones: those of the last block's sum, and the one below its second convolution. */
int curve_known(cone *c, const float *w, const float *weights, double kappa, float **g)
{
    const layer *head = c->layer + c->layers - 1, *two = head - 2;
    conv *second = c->convs + 2 * c->blocks - 1;
    const long top = c->top, ld = padded(c->top), m = c->outputs;
    if (c->has_keep)
        return 0;
    int32_t *rows = evenly(m, ld), *examples = evenly(c->B, top);
    float *pulled = zeroed((size_t)(m * ld), sizeof(float)), *slopes = zeroed((size_t)(top * ld), sizeof(float));
    float *weighted = zeroed((size_t)(c->B * top), sizeof(float));
    int known = 0;
    if (rows && examples && pulled && slopes && weighted) {
        transpose(w + head->start, m, top, m, c->head_back, ld);
        float *mine = g[c->layers - 3];
        outer(c->head_back, rows, top, c->head_back, rows, top, m, 0, 1, mine, ld);
        scale_upper(mine, top, ld, (float)kappa);
        memcpy(g[c->layers - 2], mine, (size_t)(top * ld) * sizeof(float));
        known = BELOW_HEAD;
        if (second->src == 1) {
            mine = g[c->layers - 4];
            transpose(w + two->start, top, top, top, second->back, ld);
            product(c->head_back, rows, m, top, second->back, ld, top, FROM_ZERO, NULL, pulled, rows);
            outer(pulled, rows, top, pulled, rows, top, m, 0, 1, mine, ld);
            for (long b = 0; b < c->B; b++)
                for (long i = 0; i < top; i++)
                    weighted[b * top + i] = second->d[b * top + i] * weights[b] * (float)kappa;
            outer(second->d, examples, top, weighted, examples, top, c->B, 0, 1, slopes, ld);
            for (long i = 0; i < top; i++)
                for (long j = i; j < top; j++)
                    mine[i * ld + j] *= slopes[i * ld + j];
            known |= BELOW_LAST;
        }
    }
    free(rows), free(examples), free(pulled), free(slopes), free(weighted);
    return known;
}

static int is_known(const cone *c, int index, int known)
{
    return ((known & BELOW_HEAD) && index >= c->layers - 3) || ((known & BELOW_LAST) && index == c->layers - 4);
}

/* Pull probes (N, m) back and add their second moments, above the diagonal, to the G's that are not known. */
int curve_probe(cone *c, const float *w, const float *probes, const int32_t *owner, int32_t N, int known, int add,
                float **g)
{
    if (!cone_backward(c, w, probes, owner, N))
        return 0;
    for (int i = 0; i < c->layers - 1; i++) {
        const layer *l = c->layer + i;
        if (!is_known(c, i, known))
            outer(l->g, l->go, l->out, l->g, l->go, l->out, (long)N * l->places, add, 1, g[i], l->ldg);
    }
    return 1;
}

/* A of a layer, above the diagonal: its inputs and the bias' one, a piece of the rows at a time. */
static void input_moment(cone *c, const layer *l, const float *weights, float *a)
{
    const long in = l->in - 1, rows = (long)c->B * l->places, ld = l->lda;
    for (long r = 0; r < PIECE; r++)
        c->packed_to[r] = (int32_t)(r * ld);
    for (long start = 0; start < rows; start += PIECE) {
        const long count = least(PIECE, rows - start);
        for (long r = 0; r < count; r++) {
            const float *x = l->x + l->xo[start + r], weight = weights[(start + r) / l->places] / (float)l->places;
            float *to = c->packed + r * ld;
            for (long i = 0; i < in; i++)
                to[i] = weight * x[i];
            to[in] = weight;
        }
        outer(l->x, l->xo + start, in, c->packed, c->packed_to, l->in, count, start > 0, 1, a, ld);
        float corner = start ? a[in * ld + in] : 0.0f;
        for (long r = 0; r < count; r++)
            corner += c->packed[r * ld + in];
        a[in * ld + in] = corner;
    }
}

/* `share` of the way from an old factor to the new one, which is above the diagonal; whether all of it is finite. */
static int blended(const float *old, float *m, long n, long ld, float share)
{
    double sum = 0;
    for (long i = 0; i < n; i++) {
        float *row = m + i * ld;
        for (long j = i; old && j < n; j++)
            row[j] = old[i * ld + j] + share * (row[j] - old[i * ld + j]);
        sum += squares(row + i, n - i);
    }
    mirror(m, n, ld);
    return isfinite(sum) != 0;
}

/* The new factors: A's from the last forward pass, G's as they have been gathered, averaged with the old ones. */
int curve_blend(cone *c, const float *weights, double share, const float *const *old_a, const float *const *old_g,
                float **a, float **g)
{
    int ok = 1;
    for (int i = 0; i < c->layers; i++) {
        const layer *l = c->layer + i;
        input_moment(c, l, weights, a[i]);
        ok &= blended(old_a ? old_a[i] : NULL, a[i], l->in, l->lda, (float)share);
        if (i < c->layers - 1)
            ok &= blended(old_g ? old_g[i] : NULL, g[i], l->out, l->ldg, (float)share);
    }
    return ok;
}

static double mean_diagonal(const float *m, long n, long ld)
{
    double sum = 0;
    for (long i = 0; i < n; i++)
        sum += (double)m[i * ld + i];
    return sum / (double)n;
}

/* The factored rule: (A + pi root)^-1 and (G + root/pi)^-1, with pi balancing the factors' average eigenvalues. */
int curve_invert(cone *c, const float *const *a, const float *const *g, double head, double damping, float **ia,
                 float **ig, double *head_inverse)
{
    const double root = sqrt(damping);
    long widest = 0;
    for (int i = 0; i < c->layers; i++) {
        widest = c->layer[i].lda > widest ? c->layer[i].lda : widest;
        if (i < c->layers - 1)
            widest = c->layer[i].ldg > widest ? c->layer[i].ldg : widest;
    }
    float *panel = zeroed((size_t)(64 * widest), sizeof(float));
    int ok = panel != NULL;
    for (int i = 0; ok && i < c->layers; i++) {
        const layer *l = c->layer + i;
        const int last = i == c->layers - 1;
        const double mean = last ? head : mean_diagonal(g[i], l->out, l->ldg);
        const double ratio = mean_diagonal(a[i], l->in, l->lda) / mean;
        const double balance = ratio > 0 && ratio < INFINITY ? sqrt(ratio) : 1;
        ok = invert(a[i], l->in, l->lda, balance * root, ia[i], panel);
        if (last)
            *head_inverse = 1 / (head + root / balance);
        else
            ok = ok && invert(g[i], l->out, l->ldg, root / balance, ig[i], panel);
    }
    free(panel);
    return ok;
}

/* ---- the step --------------------------------------------------------------------------------------------------- */

static int is_thin(const cone *c, int index)
{
    const layer *l = c->layer + index;
    const double i = l->in, o = l->out, rows = (double)c->B * l->places;
    return index == c->layers - 1 ? rows < o : rows * (i * i + o * o) < i * o * (i + o);
}

static int reserve_solve(cone *c)
{
    if (c->B == c->thin_room)
        return 1;
    int64_t work = 0, end = 0;
    int ok = 1;
    free(c->delta), free(c->work);
    c->delta = c->work = NULL, c->thin_room = 0;
    for (int i = 0; i < c->layers; i++) {
        layer *l = c->layer + i;
        const size_t rows = (size_t)c->B * l->places;
        free(l->thin_x), free(l->thin_g), free(l->thin_xo), free(l->thin_go);
        l->thin = is_thin(c, i) ? rows <= FEW_ROWS ? 2 : 1 : 0;
        const size_t room = l->thin ? rows : 0;
        l->thin_x = zeroed(room * l->lda, sizeof(float)), l->thin_g = zeroed(room * l->ldg, sizeof(float));
        l->thin_xo = evenly((long)(l->thin ? room : (size_t)l->in), l->lda);
        l->thin_go = evenly((long)(l->thin ? room : (size_t)l->in), l->thin ? l->ldg : l->out);
        ok = ok && l->thin_x && l->thin_g && l->thin_xo && l->thin_go;
        const int64_t size = (int64_t)l->in * l->out;
        if (!l->thin && size > work)
            work = size;
        if (l->thin != 2)
            end = l->start + size;
    }
    c->delta = zeroed((size_t)end, sizeof(float));
    c->work = zeroed((size_t)(2 * (work + SLACK)), sizeof(float));
    ok = ok && c->delta && c->work;
    if (ok)
        c->thin_room = c->B;
    return ok;
}

/* The squared length of X'Y from its two Gram matrices. */
static double thin_squares(const layer *l, long rows)
{
    float one[FEW_ROWS * FEW_ROWS], two[FEW_ROWS * FEW_ROWS];
    int32_t to[FEW_ROWS] = {0};
    for (long r = 0; r < rows; r++)
        to[r] = (int32_t)(r * rows);
    dots(l->thin_x, l->thin_xo, rows, l->in, l->thin_x, l->lda, rows, one, to);
    dots(l->thin_g, l->thin_go, rows, l->out, l->thin_g, l->ldg, rows, two, to);
    double sum = 0;
    for (long i = 0; i < rows * rows; i++)
        sum += (double)one[i] * (double)two[i];
    return sum;
}

static void solve_thin(cone *c, const layer *l, const float *ia, const float *ig, double head_inverse)
{
    const long rows = (long)c->B * l->places, in = l->in - 1;
    product(l->x, l->xo, rows, in, ia, l->lda, l->in, FROM_BIAS, ia + in * l->lda, l->thin_x, l->thin_xo);
    if (l != c->layer + c->layers - 1) {
        product(l->g, l->go, rows, l->out, ig, l->ldg, l->out, FROM_ZERO, NULL, l->thin_g, l->thin_go);
        return;
    }
    for (long r = 0; r < rows; r++)
        for (long i = 0; i < l->out; i++)
            l->thin_g[r * l->ldg + i] = (float)head_inverse * l->g[l->go[r] + i];
}

static void solve_whole(cone *c, const layer *l, const float *ia, const float *ig, double head_inverse)
{
    float *grad = c->work, *half = c->work + ((int64_t)l->in * l->out + SLACK);
    gradient_rows(c, l, 0, l->in, grad);
    if (l != c->layer + c->layers - 1)
        product(grad, l->thin_go, l->in, l->out, ig, l->ldg, l->out, FROM_ZERO, NULL, half, l->thin_go);
    else
        for (long i = 0; i < (long)l->in * l->out; i++)
            half[i] = (float)head_inverse * grad[i];
    product(ia, l->thin_xo, l->in, l->in, half, l->out, l->out, FROM_ZERO, NULL, c->delta + l->start, l->thin_go);
}

/* The damped inverse applied to the gradient of the last backward pass, as thin factors where that is less work. Gives
 * its squared length; nothing else is changed. */
double curve_solve(cone *c, const float *const *ia, const float *const *ig, double head_inverse)
{
    if (!reserve_solve(c))
        return INFINITY;
    double sum = 0;
    for (int i = 0; i < c->layers; i++) {
        const layer *l = c->layer + i;
        const long rows = (long)c->B * l->places;
        if (l->thin)
            solve_thin(c, l, ia[i], ig[i], head_inverse);
        else
            solve_whole(c, l, ia[i], ig[i], head_inverse);
        if (l->thin == 1)
            outer(l->thin_x, l->thin_xo, l->in, l->thin_g, l->thin_go, l->out, rows, 0, 0, c->delta + l->start, l->out);
        sum += l->thin == 2 ? thin_squares(l, rows) : squares(c->delta + l->start, (long)l->in * l->out);
    }
    return sum;
}

/* Average what `curve_solve` found, times `scale`, into `smoothed`, and move the weights against that. */
void curve_take(cone *c, const finish *f, double scale, double average, float *smoothed, float *w, float *m, float *v)
{
    const float by = (float)scale, share = (float)average;
    for (int i = 0; i < c->layers; i++) {
        const layer *l = c->layer + i;
        const long step = rows_at_once(l);
        for (long r = 0; r < l->in; r += step) {
            const long rows = least(step, l->in - r), n = rows * l->out, at = l->start + r * l->out;
            const float *d = l->thin == 2 ? c->scratch : c->delta + at;
            float *s = smoothed + at;
            if (l->thin == 2)
                outer(l->thin_x + r, l->thin_xo, rows, l->thin_g, l->thin_go, l->out, (long)c->B * l->places, 0, 0,
                      c->scratch, l->out);
            for (long k = 0; k < n; k++)
                s[k] += share * (by * d[k] - s[k]);
            move_weights(f, w + at, m ? m + at : NULL, v ? v + at : NULL, s, n);
        }
    }
}

#include "step.h"

#include <math.h>

int natsr_abi(void) { return NATSR_ABI; }

static const double LARGEST_ERROR = 1e15; /* as in natsr.likelihoods */

INLINE double limited(double e) { return e > LARGEST_ERROR ? LARGEST_ERROR : e < -LARGEST_ERROR ? -LARGEST_ERROR : e; }

INLINE double score(const losses *s, double e)
{
    return s->student != 0 ? -(s->dof + 1) * e / (e * e + s->dof * s->variance) : -e / s->variance;
}

/* One example: the sum of its losses and of the scale's scores; its pull, not yet weighted. */
static double judge_row(const losses *s, const float *output, const float *target, int32_t m, float *pull, double *scale)
{
    double sum = 0, product = 1, moved = 0;
    int waiting = 0;
    for (int32_t i = 0; i < m; i++) {
        if (!isfinite(target[i])) {
            pull[i] = 0.0f;
            continue;
        }
        const double e = limited((double)(target[i] - output[i])), ee = e * e;
        pull[i] = (float)score(s, e);
        if (s->student != 0) {
            /* A product of a few arguments for one logarithm: each is below 1e35, so eight stay finite. */
            product *= 1 + ee / (s->dof * s->variance);
            if (++waiting == 8) {
                sum += log(product);
                product = 1, waiting = 0;
            }
            moved += (ee - s->tracked) / (ee / (s->dof * s->tracked) + 1);
        } else {
            sum += ee;
            moved += ee - s->tracked;
        }
    }
    *scale += moved;
    return s->student != 0 ? 0.5 * (s->dof + 1) * (sum + log(product)) : sum * 0.5 / s->variance;
}

static double known_in(const float *target, int32_t m)
{
    int32_t count = 0;
    for (int32_t i = 0; i < m; i++)
        count += isfinite(target[i]) != 0;
    return count;
}

/* Outputs (B, m) against targets: `pull` (B, m), the gradient of the reduced loss; `weights` (B,), the examples' shares;
 * `found`: the largest output, the loss, the mean score of the scale, known targets. The first `fresh` examples are
 * new, the others are replayed, and `stored` is what the network put out for those when they were new, or NULL. */
void step_judge(const losses *s, const float *output, const float *target, const float *stored, int32_t B,
                int32_t fresh, int32_t m, float *pull, float *weights, double *found)
{
    double farthest = 0, loss = 0, scale = 0, known[2] = {0, 0}, shares = 0;
    for (long i = 0; i < (long)B * m; i++) {
        const double size = fabs((double)output[i]);
        farthest = size <= farthest ? farthest : size == size ? size : INFINITY;
    }
    for (int32_t b = 0; b < B; b++) {
        const double count = known_in(target + (long)b * m, m);
        weights[b] = (float)count;
        known[b >= fresh] += count;
    }
    const double whole = B > fresh ? 1 + s->share + s->distil : 1;
    const double each[2] = {1 / whole / known[0], s->share / whole / (known[1] < 1 ? 1 : known[1])};
    for (int32_t b = 0; b < B; b++) {
        const float coefficient = (float)(each[b >= fresh] * s->factor);
        float *row = pull + (long)b * m;
        loss += each[b >= fresh] * judge_row(s, output + (long)b * m, target + (long)b * m, m, row, &scale);
        for (int32_t i = 0; i < m; i++)
            row[i] *= coefficient;
        weights[b] *= (float)each[b >= fresh];
        shares += weights[b];
    }
    for (int32_t b = 0; b < B; b++)
        weights[b] = (float)(weights[b] / shares);
    if (stored) {
        const double weight = s->factor * s->distil / whole / ((double)(B - fresh) * m);
        for (long i = (long)fresh * m, j = 0; i < (long)B * m; i++, j++)
            pull[i] += (float)(score(s, limited((double)(stored[j] - output[i]))) * weight);
    }
    found[0] = farthest, found[1] = loss, found[2] = scale / (known[0] + known[1]), found[3] = known[0] + known[1];
}

/* A bound on the squared length of the gradient, from its thin factors. */
double step_bound(const cone *c)
{
    double sum = 0;
    for (int i = 0; i < c->layers; i++) {
        const layer *l = c->layer + i;
        double grads = 0;
        if (l == c->layer || i >= c->layers - 1)
            grads = squares(l->g, (long)c->N * l->places * l->out);
        else {
            const conv *v = c->convs + (i == c->layers - 2 ? 2 * c->blocks - 1 : i - 1);
            grads = squares(v->g, (long)c->N * v->grad_rows * v->out);
        }
        sum += l->input_squares * grads;
    }
    return sum;
}

void move_weights(const finish *f, float *w, float *m, float *v, const float *direction, long n)
{
    const float rate = (float)f->rate;
    if (f->adam == 0) {
        for (long i = 0; i < n; i++)
            w[i] -= rate * direction[i];
        return;
    }
    const double one = 1 - pow(f->beta1, f->step), two = sqrt(1 - pow(f->beta2, f->step));
    const float keep = (float)(1 - f->rate * f->decay), length = (float)(f->rate / one), root = (float)(1 / two);
    const float b1 = (float)(1 - f->beta1), b2 = (float)f->beta2, c2 = (float)(1 - f->beta2), eps = (float)f->eps;
    for (long i = 0; i < n; i++) {
        const float g = direction[i], mean = m[i] + b1 * (g - m[i]), square = b2 * v[i] + c2 * g * g;
        m[i] = mean, v[i] = square;
        w[i] = keep * w[i] - length * mean / (sqrtf(square) * root + eps);
    }
}

/* The gradient of the last backward pass, moved along at once, a few rows of a layer at a time. */
void step_descend(cone *c, const finish *f, float *w, float *m, float *v)
{
    for (int i = 0; i < c->layers; i++) {
        const layer *l = c->layer + i;
        const long step = rows_at_once(l);
        for (long r = 0; r < l->in; r += step) {
            const long end = least(l->in, r + step), at = l->start + r * l->out;
            gradient_rows(c, l, r, end, c->scratch);
            move_weights(f, w + at, m ? m + at : NULL, v ? v + at : NULL, c->scratch, (end - r) * l->out);
        }
    }
}

void step_move(const finish *f, float *w, float *m, float *v, const float *direction, int64_t n)
{
    move_weights(f, w, m, v, direction, n);
}

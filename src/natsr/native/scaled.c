#include "scaled.h"

#include <stdlib.h>
#include <string.h>

/* Inputs whose rows are taken at once. */
static long inputs_at_once(const factored *d)
{
    const long few = AT_ONCE / 2 / d->out;
    return few < MR ? MR : few / MR * MR;
}

void scaled_free(scaled *s)
{
    if (!s)
        return;
    free(s->each), free(s->reach), free(s->raw), free(s->pairs), free(s->outputs), free(s);
}

scaled *scaled_new(const factored *list, int64_t count)
{
    scaled *s = calloc(1, sizeof *s);
    if (!s)
        return NULL;
    size_t rows = 0, pairs = 0, outputs = 0;
    for (long k = 0; k < count; k++) {
        const size_t piece = (size_t)inputs_at_once(list + k) * (size_t)list[k].out, taps = (size_t)list[k].taps;
        rows = taps * piece > rows ? taps * piece : rows;
        pairs = piece > pairs ? piece : pairs;
        outputs = (size_t)list[k].out > outputs ? (size_t)list[k].out : outputs;
    }
    s->count = count;
    s->each = calloc((size_t)count, sizeof(factored)), s->reach = calloc((size_t)count, sizeof(double));
    s->raw = zeroed(rows, sizeof(float)), s->pairs = zeroed(pairs, sizeof(float));
    s->outputs = zeroed(outputs, sizeof(float));
    if (!(s->each && s->reach && s->raw && s->pairs && s->outputs)) {
        scaled_free(s);
        return NULL;
    }
    memcpy(s->each, list, (size_t)count * sizeof(factored));
    return s;
}

/* The effective weights of a convolution; comes back with what its gradient can be longer by. */
static double scale(const factored *d, const layer *l, const float *w, float *effective)
{
    const long out = d->out, size = d->in * out;
    const float *pairs = w + d->factors, *outputs = pairs + size;
    vec pair_squares = {0}, weight_squares = {0};
    double pair_sum = 0, weight_sum = 0, output_sum = 0;
    for (long t = 0; t < d->taps; t++)
        for (long i = 0; i < d->in; i++) {
            const float *from = w + l->start + t * size + i * out, *by = pairs + i * out;
            float *to = effective + l->start + t * size + i * out;
            long o = 0;
            for (; o + VL <= out; o += VL) {
                const vec weight = ld(from + o), pair = ld(by + o);
                st(to + o, weight * (pair * (ld(outputs + o) + 1.0f)));
                pair_squares += pair * pair, weight_squares += weight * weight;
            }
            for (; o < out; o++) {
                to[o] = from[o] * (by[o] * (outputs[o] + 1.0f));
                pair_sum += (double)(by[o] * by[o]), weight_sum += (double)(from[o] * from[o]);
            }
        }
    for (long o = 0; o < out; o++)
        output_sum += (double)((outputs[o] + 1.0f) * (outputs[o] + 1.0f));
    pair_sum += (double)vsum(pair_squares), weight_sum += (double)vsum(weight_squares);
    return output_sum * (pair_sum + weight_sum) + pair_sum * weight_sum;
}

void scaled_settle(scaled *s, const passed *p, const float *w, float *effective)
{
    for (long i = 0, k = 0; i < p->layers; i++) {
        const layer *l = p->layer + i;
        if (k < s->count && s->each[k].layer == i) {
            s->reach[k] = scale(s->each + k, l, w, effective);
            k++;
        } else
            memcpy(effective + l->start, w + l->start, (size_t)l->in * (size_t)l->out * sizeof(float));
    }
}

double scaled_bound(const scaled *s, const passed *p)
{
    double sum = 0;
    for (long i = 0, k = 0; i < p->layers; i++) {
        const double whole = layer_bound(p->layer + i, p->examples);
        sum += k < s->count && s->each[k].layer == i ? whole * s->reach[k++] : whole;
    }
    return sum;
}

/* Gradients of one pair of rows: of the weights, in place in `g` (taps apart by `step`), of the pairs' factors, and what
 * they add to that of the outputs' factors. */
INLINE void pull_pairs(const factored *d, float *g, long step, const float *w, const float *pairs, const float *outputs,
                       float *by_pairs, float *by_outputs)
{
    const long out = d->out, size = d->in * out;
    long o = 0;
    for (; o + VL <= out; o += VL) {
        const vec pair = ld(pairs + o), f = ld(outputs + o) + 1.0f, both = pair * f;
        vec sum = {0};
        for (long t = 0; t < d->taps; t++) {
            const vec grad = ld(g + t * step + o);
            sum += grad * ld(w + t * size + o);
            st(g + t * step + o, grad * both);
        }
        st(by_pairs + o, sum * f);
        st(by_outputs + o, ld(by_outputs + o) + sum * pair);
    }
    for (; o < out; o++) {
        const float f = outputs[o] + 1.0f;
        float sum = 0;
        for (long t = 0; t < d->taps; t++) {
            sum += g[t * step + o] * w[t * size + o];
            g[t * step + o] *= pairs[o] * f;
        }
        by_pairs[o] = sum * f;
        by_outputs[o] += sum * pairs[o];
    }
}

static void take(scaled *s, const factored *d, const layer *l, long examples, const finish *f, float *w, float *m,
                 float *v)
{
    const long out = d->out, size = d->in * out, most = inputs_at_once(d);
    const int64_t outputs = d->factors + size;
    memset(s->outputs, 0, (size_t)out * sizeof(float));
    for (long i = 0; i < d->in; i += most) {
        const long count = least(most, d->in - i), step = count * out;
        const int64_t pairs = d->factors + i * out;
        for (long t = 0; t < d->taps; t++)
            layer_gradient(l, examples, t * d->in + i, t * d->in + i + count, s->raw + t * step);
        for (long k = 0; k < count; k++)
            pull_pairs(d, s->raw + k * out, step, w + l->start + (i + k) * out, w + pairs + k * out, w + outputs,
                       s->pairs + k * out, s->outputs);
        for (long t = 0; t < d->taps; t++) {
            const int64_t at = l->start + t * size + i * out;
            move_weights(f, w + at, m + at, v + at, s->raw + t * step, step);
        }
        move_weights(f, w + pairs, m + pairs, v + pairs, s->pairs, step);
    }
    move_weights(f, w + outputs, m + outputs, v + outputs, s->outputs, out);
}

void scaled_step(scaled *s, const passed *p, const finish *f, float *w, float *m, float *v, float *effective)
{
    for (long i = 0, k = 0; i < p->layers; i++) {
        const layer *l = p->layer + i;
        if (k == s->count || s->each[k].layer != i) {
            layer_take(l, p->examples, f, w, m, v, p->scratch, effective);
            continue;
        }
        take(s, s->each + k, l, p->examples, f, w, m, v);
        s->reach[k] = scale(s->each + k, l, w, effective);
        k++;
    }
}

#include "adapters.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define HIDDEN 64
#define COLUMNS 32
#define AT_A_TIME 96 /* rows of a controller's gradient that are made and taken at once */

static const float SLOW = 0.9f, FAST = 0.3f, APART = 0.75f; /* as in natsr.nets.adapters */

/* ---- making and freeing ----------------------------------------------------------------------------------------- */

void adapters_free(adapters *a)
{
    if (!a)
        return;
    for (long k = 0; a->each && k < a->count; k++) {
        adapter *d = a->each + k;
        free(d->chunk_at), free(d->given_at), free(d->active), free(d->slope), free(d->by_taps), free(d->by_bias);
        free(d->by_output), free(d->next_query), free(d->next_memory);
    }
    free(a->raw), free(a->turned), free(a->given), free(a->hidden), free(a->heads_back), free(a->sums), free(a->norms);
    free(a->hidden_at), free(a->each), free(a);
}

static int prepare(adapter *d, const remembered *at)
{
    d->at = *at;
    d->per = at->out / at->in, d->chunk = at->taps * at->out, d->given = 3 + 2 * d->per;
    d->ldg = (d->given + VL - 1) / VL * VL, d->size = at->in * d->given;
    d->own = 1;
    d->chunk_at = evenly(at->in, d->chunk), d->given_at = evenly(at->in, d->ldg);
    d->active = zeroed((size_t)(at->in * HIDDEN), sizeof(float));
    d->slope = zeroed((size_t)(at->in * HIDDEN), sizeof(float));
    d->by_taps = zeroed((size_t)(at->taps * at->in), sizeof(float));
    d->by_bias = zeroed((size_t)at->out, sizeof(float)), d->by_output = zeroed((size_t)at->out, sizeof(float));
    d->next_query = zeroed((size_t)d->size, sizeof(float));
    d->next_memory = zeroed((size_t)(d->size * COLUMNS), sizeof(float));
    return d->chunk_at && d->given_at && d->active && d->slope && d->by_taps && d->by_bias && d->by_output &&
           d->next_query && d->next_memory;
}

adapters *adapters_new(const remembered *list, int64_t count)
{
    adapters *a = calloc(1, sizeof *a);
    if (!a || !(a->each = calloc((size_t)count, sizeof(adapter)))) {
        adapters_free(a);
        return NULL;
    }
    a->count = count;
    size_t whole = AT_ONCE, given = 0, hidden = 0, heads = 0, sums = 0, inputs = 0;
    int ok = 1;
    for (long k = 0; ok && k < count; k++) {
        adapter *d = a->each + k;
        ok = prepare(d, list + k);
        const size_t in = (size_t)list[k].in, out = (size_t)list[k].out, taps = (size_t)list[k].taps;
#define ROOM(name, needed) name = (needed) > name ? (needed) : name
        ROOM(whole, (taps * in + 1) * out);
        ROOM(given, in * (size_t)d->ldg);
        ROOM(hidden, in * HIDDEN);
        ROOM(heads, (size_t)(d->given * (HIDDEN + 1)));
        ROOM(sums, taps * in + 3 * out);
        ROOM(inputs, in);
    }
    a->raw = zeroed(whole, sizeof(float)), a->turned = zeroed(whole, sizeof(float));
    a->given = zeroed(given, sizeof(float)), a->hidden = zeroed(hidden, sizeof(float));
    a->heads_back = zeroed(heads, sizeof(float)), a->sums = zeroed(sums, sizeof(float));
    a->norms = zeroed(sums, sizeof(float)), a->hidden_at = evenly((long)inputs, HIDDEN);
    if (!(ok && a->raw && a->turned && a->given && a->hidden && a->heads_back && a->sums && a->norms && a->hidden_at)) {
        adapters_free(a);
        return NULL;
    }
    return a;
}

/* ---- coefficients ----------------------------------------------------------------------------------------------- */

/* Which two columns of a memory a key asks for, and their attention. */
static void attend(const adapter *d, int best[2], float weight[2])
{
    float score[COLUMNS] = {0}, sum = 0;
    for (long s = 0; s < d->size; s++)
        for (int j = 0; j < COLUMNS; j++)
            score[j] += d->next_query[s] * d->at.memory[s * COLUMNS + j];
    best[0] = score[1] > score[0], best[1] = 1 - best[0];
    for (int j = 2; j < COLUMNS; j++)
        if (score[j] > score[best[0]])
            best[1] = best[0], best[0] = j;
        else if (score[j] > score[best[1]])
            best[1] = j;
    for (int j = 0; j < COLUMNS; j++)
        sum += expf((score[j] - score[best[0]]) * 2.0f); /* at temperature 0.5 */
    weight[0] = 1 / sum, weight[1] = expf((score[best[1]] - score[best[0]]) * 2.0f) / sum;
}

/* Blend what the memory says into the coefficients (in, ldg), and note the memory as it will be. */
static void recall(adapter *d, int attention, float *given)
{
    int best[2];
    float weight[2];
    attend(d, best, weight);
    const float by[2] = {attention ? weight[0] : (float)best[0], attention ? weight[1] : (float)best[1]};
    memcpy(d->next_memory, d->at.memory, (size_t)(d->size * COLUMNS) * sizeof(float));
    for (long s = 0; s < d->size; s++) {
        const float *row = d->at.memory + s * COLUMNS;
        const float read = row[best[0]] * by[0] + row[best[1]] * by[1];
        float *place = given + s / d->given * d->ldg + s % d->given;
        *place = *place * APART + (1 - APART) * read;
        for (int k = 0; k < 2; k++)
            d->next_memory[s * COLUMNS + best[k]] =
                APART * row[best[k]] + (1 - APART) * (attention ? d->next_query[s] : read) * weight[k];
    }
    const double norm = sqrt(squares(d->next_memory, d->size * COLUMNS));
    const float less = (float)(1 / (norm > 1 ? norm : 1));
    for (long s = 0; norm > 1 && s < d->size * COLUMNS; s++)
        d->next_memory[s] *= less;
}

/* Coefficients of the next pass, and what the pass will leave behind. */
static void calibrate(adapters *a, adapter *d, const float *w, int attention, int first)
{
    const remembered *at = &d->at;
    const float *controller = w + at->controller, *heads = w + at->heads;
    product(at->slow, d->chunk_at, at->in, d->chunk, controller, HIDDEN, HIDDEN, FROM_BIAS,
            controller + d->chunk * HIDDEN, a->hidden, a->hidden_at);
    silu(a->hidden, d->active, d->slope, at->in * HIDDEN);
    product(d->active, a->hidden_at, at->in, HIDDEN, heads, d->given, d->given, FROM_BIAS, heads + HIDDEN * d->given,
            a->given, d->given_at);
    for (long i = 0; i < at->in; i++)
        for (long g = 0; g < d->given; g++) {
            const long s = i * d->given + g;
            d->next_query[s] = first ? at->query[s] : FAST * at->query[s] + (1 - FAST) * a->given[i * d->ldg + g];
        }
    d->own = *at->apart ? APART : 1;
    if (*at->apart)
        recall(d, attention, a->given);
    for (long i = 0; i < at->in; i++) {
        const float *given = a->given + i * d->ldg;
        for (long t = 0; t < at->taps; t++)
            d->by_taps[t * at->in + i] = given[at->first + t];
        memcpy(d->by_bias + i * d->per, given + 3, (size_t)d->per * sizeof(float));
        memcpy(d->by_output + i * d->per, given + 3 + d->per, (size_t)d->per * sizeof(float));
    }
}

/* The effective weights of a layer, and how long its gradient can be. */
static void scale(adapter *d, const layer *l, const float *w, float *effective)
{
    const remembered *at = &d->at;
    const long rows = at->taps * at->in, out = at->out;
    const float *from = w + l->start;
    float *to = effective + l->start;
    const double weights = squares(from, (rows + 1) * out);
    for (long r = 0; r < rows; r++, from += out, to += out) {
        const float by = d->by_taps[r];
        for (long o = 0; o < out; o++)
            to[o] = from[o] * by * d->by_output[o];
    }
    for (long o = 0; o < out; o++)
        to[o] = from[o] * d->by_bias[o] * d->by_output[o];
    const double taps = squares(d->by_taps, rows) + squares(d->by_bias, out), outputs = squares(d->by_output, out);
    const double given = weights * (2 * outputs + taps), slow = squares(at->slow, out * rows) + (double)at->in;
    const double active = squares(d->active, at->in * HIDDEN) + (double)at->in;
    /* The slope of SiLU is below 1.1. */
    d->reach = taps * outputs + given * (active + 1.21 * squares(w + at->heads, HIDDEN * d->given) * slow);
}

static void settle(adapters *a, adapter *d, const layer *l, const float *w, int attention, int first, float *effective)
{
    calibrate(a, d, w, attention, first);
    scale(d, l, w, effective);
}

void adapters_settle(adapters *a, const cone *c, const float *w, int attention, int first, float *effective)
{
    adapter *d = a->each, *end = a->each + a->count;
    for (int i = 0; i < c->layers; i++) {
        const layer *l = c->layer + i;
        if (d < end && d->at.layer == i)
            settle(a, d++, l, w, attention, first, effective);
        else
            memcpy(effective + l->start, w + l->start, (size_t)l->in * (size_t)l->out * sizeof(float));
    }
}

/* ---- a step ----------------------------------------------------------------------------------------------------- */

double adapters_bound(const adapters *a, const cone *c)
{
    const adapter *d = a->each, *end = a->each + a->count;
    double sum = 0;
    for (int i = 0; i < c->layers; i++) {
        const double whole = layer_bound(c->layer + i, c->B);
        sum += d < end && d->at.layer == i ? whole * (d++)->reach : whole;
    }
    return sum;
}

/* One row of the gradient by effective weights, turned in place into the one by weights. Adds to the gradient of the
 * output's coefficients and to the sums of squares, and gives that of the row's own coefficient. */
INLINE float pull_row(float *g, const float *w, const float *by_output, float by, float *by_outputs, float *norms,
                      long out)
{
    vec own = {0};
    long o = 0;
    for (; o + VL <= out; o += VL) {
        const vec grad = ld(g + o), times = grad * ld(w + o), f = ld(by_output + o), raw = grad * f * by;
        own += times * f;
        st(by_outputs + o, ld(by_outputs + o) + times * by);
        st(norms + o, ld(norms + o) + raw * raw);
        st(g + o, raw);
    }
    float sum = vsum(own);
    for (; o < out; o++) {
        const float times = g[o] * w[o], raw = g[o] * by_output[o] * by;
        sum += times * by_output[o];
        by_outputs[o] += times * by;
        norms[o] += raw * raw;
        g[o] = raw;
    }
    return sum;
}

/* The layer's own weights: their gradient stays in `raw`, its norms in `norms`; that of coefficients goes to `given`. */
static void take_weights(adapters *a, const adapter *d, const layer *l, long examples, const finish *f, float *w,
                         float *m, float *v)
{
    const remembered *at = &d->at;
    const long rows = at->taps * at->in, out = at->out, step = rows_at_once(l);
    float *taps = a->sums, *biases = taps + rows, *outputs = biases + out;
    memset(a->sums, 0, (size_t)(rows + 2 * out) * sizeof(float));
    memset(a->norms, 0, (size_t)(at->taps * out) * sizeof(float));
    for (long r = 0; r < l->in; r += step) {
        const long end = least(l->in, r + step), place = l->start + r * out;
        float *g = a->raw + r * out;
        layer_gradient(l, examples, r, end, g);
        for (long k = r; k < least(end, rows); k++)
            taps[k] = pull_row(a->raw + k * out, w + l->start + k * out, d->by_output, d->by_taps[k], outputs,
                               a->norms + k / at->in * out, out);
        for (long o = 0; end == l->in && o < out; o++) {
            float *bias = a->raw + rows * out + o;
            const float times = *bias * w[l->start + rows * out + o];
            biases[o] = times * d->by_output[o];
            outputs[o] += times * d->by_bias[o];
            *bias *= d->by_output[o] * d->by_bias[o];
        }
        move_weights(f, w + place, m + place, v + place, g, (end - r) * out);
    }
    for (long i = 0; i < at->in; i++) {
        float *given = a->given + i * d->ldg;
        memset(given, 0, (size_t)d->ldg * sizeof(float));
        for (long t = 0; t < at->taps; t++)
            given[at->first + t] = taps[t * at->in + i];
        memcpy(given + 3, biases + i * d->per, (size_t)d->per * sizeof(float));
        memcpy(given + 3 + d->per, outputs + i * d->per, (size_t)d->per * sizeof(float));
        for (long g = 0; g < d->given; g++)
            given[g] *= (float)d->own;
    }
}

/* The adapter's weights, from the gradient of the coefficients in `given`. */
static void take_adapter(adapters *a, const adapter *d, const finish *f, float *w, float *m, float *v)
{
    const remembered *at = &d->at;
    const long in = at->in, count = in * HIDDEN;
    transpose(w + at->heads, d->given, HIDDEN, d->given, a->heads_back, HIDDEN);
    product(a->given, d->given_at, in, d->given, a->heads_back, HIDDEN, HIDDEN, FROM_ZERO, NULL, a->hidden,
            a->hidden_at);
    for (long i = 0; i < count; i++)
        a->hidden[i] *= d->slope[i];
    outer(d->active, a->hidden_at, HIDDEN, a->given, d->given_at, d->given, in, 0, 0, a->heads_back, d->given);
    column_sums(a->given, d->given_at, in, d->given, a->heads_back + HIDDEN * d->given);
    move_weights(f, w + at->heads, m + at->heads, v + at->heads, a->heads_back, (HIDDEN + 1) * d->given);
    for (long r = 0; r < d->chunk; r += AT_A_TIME) {
        const long rows = least(AT_A_TIME, d->chunk - r), place = at->controller + r * HIDDEN;
        outer(at->slow + r, d->chunk_at, rows, a->hidden, a->hidden_at, HIDDEN, in, 0, 0, a->turned, HIDDEN);
        move_weights(f, w + place, m + place, v + place, a->turned, rows * HIDDEN);
    }
    const long bias = at->controller + d->chunk * HIDDEN;
    column_sums(a->hidden, a->hidden_at, in, HIDDEN, a->turned);
    move_weights(f, w + bias, m + bias, v + bias, a->turned, HIDDEN);
}

/* Sums for the angle between the fast and the slow average. */
typedef struct {
    vec dots, fasts, slows;
    double dot, fast, slow;
} angle;

/* Take numbers of a gradient, made as short as `less` says, into both averages. */
INLINE void average(const float *g, float less, float *fast, float *slow, long n, angle *found)
{
    const float unit_fast = (1 - FAST) * less, unit_slow = (1 - SLOW) * less;
    long i = 0;
    for (; i + VL <= n; i += VL) {
        const vec unit = ld(g + i), old = ld(slow + i), now = ld(fast + i) * FAST + unit * unit_fast;
        found->dots += now * old, found->fasts += now * now, found->slows += old * old;
        st(fast + i, now);
        st(slow + i, old * SLOW + unit * unit_slow);
    }
    for (; i < n; i++) {
        const float old = slow[i], now = fast[i] * FAST + g[i] * unit_fast;
        found->dot += (double)(now * old), found->fast += (double)(now * now), found->slow += (double)(old * old);
        fast[i] = now;
        slow[i] = old * SLOW + g[i] * unit_slow;
    }
}

/* Take the layer's gradient, in `raw`, into its averages, and see whether they point apart. */
static void follow(adapters *a, adapter *d, int online)
{
    const remembered *at = &d->at;
    const long rows = at->taps * at->in, out = at->out;
    for (long i = 0; i < at->taps * out; i++) {
        const float norm = sqrtf(a->norms[i]);
        a->norms[i] = 1 / (norm > 1e-12f ? norm : 1e-12f);
    }
    transpose(a->raw, out, rows, out, a->turned, rows);
    angle found = {{0}, {0}, {0}, 0, 0, 0};
    for (long o = 0; o < out; o++)
        for (long t = 0; t < at->taps; t++) {
            const long i = o * rows + t * at->in;
            average(a->turned + i, a->norms[t * out + o], at->fast + i, at->slow + i, at->in, &found);
        }
    const double dot = found.dot + (double)vsum(found.dots), least_norm = 1e-6;
    const double one = sqrt(found.fast + (double)vsum(found.fasts)), other = sqrt(found.slow + (double)vsum(found.slows));
    const double size = (one > least_norm ? one : least_norm) * (other > least_norm ? other : least_norm);
    *at->apart = online && dot / size < -(double)APART;
}

int64_t adapters_step(adapters *a, const cone *c, const finish *f, int online, int attention, float *w, float *m,
                   float *v, float *effective)
{
    adapter *d = a->each, *end = a->each + a->count;
    int64_t asked = 0;
    for (int i = 0; i < c->layers; i++) {
        const layer *l = c->layer + i;
        if (d == end || d->at.layer != i) {
            layer_take(l, c->B, f, w, m, v, c->scratch, effective);
            continue;
        }
        take_weights(a, d, l, c->B, f, w, m, v);
        take_adapter(a, d, f, w, m, v);
        memcpy(d->at.query, d->next_query, (size_t)d->size * sizeof(float));
        if (d->own < 1) {
            memcpy(d->at.memory, d->next_memory, (size_t)(d->size * COLUMNS) * sizeof(float));
            asked++;
        }
        follow(a, d, online);
        settle(a, d++, l, w, attention, 0, effective);
    }
    return asked;
}

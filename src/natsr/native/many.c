#include "many.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define SANE_EVERY 100 /* as in natsr.forecasters.guards */

enum law { PAPER, BOX };

void many_sizes(int64_t *sizes)
{
    sizes[0] = sizeof(learner), sizes[1] = sizeof(turn), sizes[2] = sizeof(question), sizes[3] = sizeof(entry);
    sizes[4] = sizeof(frame);
}

/* ---- desks ------------------------------------------------------------------------------------------------------ */

static void free_room(desk *d)
{
    free(d->window), free(d->target), free(d->stored), free(d->output), free(d->pull), free(d->weights);
    d->window = d->target = d->stored = d->output = d->pull = d->weights = NULL;
    d->room = 0;
}

void desk_free(desk *d)
{
    if (d) {
        free_room(d);
        cone_free(d->c);
        free(d);
    }
}

desk *desk_new(const int32_t *sizes, const int32_t *convs)
{
    desk *d = calloc(1, sizeof *d);
    if (d && !(d->c = cone_new(sizes, convs))) {
        free(d);
        return NULL;
    }
    return d;
}

static int make_room(desk *d, int64_t B)
{
    if (B <= d->room)
        return 1;
    free_room(d);
    const size_t rows = (size_t)B, m = (size_t)d->c->outputs, each = (size_t)d->c->window * (size_t)d->c->inputs;
    d->window = zeroed(rows * each, sizeof(float)), d->weights = zeroed(rows, sizeof(float));
    d->target = zeroed(rows * m, sizeof(float)), d->stored = zeroed(rows * m, sizeof(float));
    d->output = zeroed(rows * m, sizeof(float)), d->pull = zeroed(rows * m, sizeof(float));
    if (!(d->window && d->target && d->stored && d->output && d->pull && d->weights)) {
        free_room(d);
        return 0;
    }
    d->room = B;
    return 1;
}

/* ---- reading and writing ---------------------------------------------------------------------------------------- */

INLINE float clamped(float x, float limit) { return x > limit ? limit : x < -limit ? -limit : x; } /* NaN stays */

/* The last value of a channel: what an anchored network's numbers are differences from. */
INLINE float anchored(const frame *f, const float *window, long inputs, long channel)
{
    return clamped(window[(f->reach - 1) * inputs + channel], (float)f->farthest);
}

static void read_window(const cone *c, const frame *f, const float *raw, float *to)
{
    const long inputs = c->inputs, size = (long)c->window * inputs;
    const float *from = raw + (f->reach - c->window) * inputs, limit = (float)f->limit;
    for (long i = 0; i < size; i++)
        to[i] = clamped(from[i], limit);
    for (long r = 0; f->anchors_input && r < c->window; r++)
        for (long k = 0; k < f->channels; k++)
            to[r * inputs + k] = clamped(from[r * inputs + k] - anchored(f, raw, inputs, k), limit);
}

/* Labels to learn and labels to keep; how many there are to learn. */
static long read_target(const cone *c, const frame *f, const turn *t, long e)
{
    const long m = c->outputs, horizon = m / f->channels;
    const float *raw = t->raw_target + e * m, *window = t->raw_window + e * f->reach * c->inputs;
    const uint8_t *news = t->news ? t->news + e * horizon : NULL;
    long known = 0, kept = 0;
    for (long h = 0, i = 0; h < horizon; h++)
        for (long k = 0; k < f->channels; k++, i++) {
            const float y = f->anchors_output ? raw[i] - anchored(f, window, c->inputs, k) : raw[i];
            const float taught = fabsf(y) <= (float)f->farthest ? y : NAN;
            const float target = f->only_news && news && !news[h] ? NAN : taught;
            t->taught[e * m + i] = taught, t->target[e * m + i] = target;
            known += !isnan(target), kept += !isnan(taught);
        }
    t->done[e] = kept && (!news || news[horizon - 1]);
    return known;
}

/* What was handed over, as networks read it; whoever has a label to learn from waits then. */
void many_read(const desk *d, const frame *f, turn *turns, int64_t count)
{
    const cone *c = d->c;
    for (turn *t = turns; t < turns + count; t++) {
        long known = 0;
        for (long e = 0; e < t->fresh; e++) {
            read_window(c, f, t->raw_window + e * f->reach * c->inputs, t->window + e * c->window * c->inputs);
            known += read_target(c, f, t, e);
        }
        t->verdict = known ? WAITING : IDLE;
        t->drawn = 0, t->rows = NULL;
    }
}

static void write_output(const cone *c, const frame *f, const float *window, float *output)
{
    const float farthest = (float)f->farthest;
    for (long i = 0, k = 0; i < c->outputs; i++, k = k + 1 == f->channels ? 0 : k + 1) {
        const float y = isnan(output[i]) ? 0.0f : clamped(output[i], farthest);
        output[i] = f->anchors_output ? y + anchored(f, window, c->inputs, k) : y;
    }
}

/* New and replayed examples, side by side. */
static void gather(desk *d, const learner *s, const turn *t)
{
    const long each = (long)d->c->window * d->c->inputs, m = d->c->outputs, fresh = (long)t->fresh;
    memcpy(d->window, t->window, (size_t)(fresh * each) * sizeof(float));
    memcpy(d->target, t->target, (size_t)(fresh * m) * sizeof(float));
    for (long k = 0; k < t->drawn; k++) {
        const long from = (long)t->chosen[k], to = fresh + k;
        memcpy(d->window + to * each, s->memory[0] + from * each, (size_t)each * sizeof(float));
        memcpy(d->target + to * m, s->memory[1] + from * m, (size_t)m * sizeof(float));
        if (s->loss.distil > 0)
            memcpy(d->stored + k * m, s->memory[2] + from * m, (size_t)m * sizeof(float));
    }
}

/* ---- one step --------------------------------------------------------------------------------------------------- */

static int all_finite(const float *x, long n)
{
    int ok = 1;
    for (long i = 0; i < n; i++)
        ok &= isfinite(x[i]) != 0;
    return ok;
}

/* A network gone astray goes back to sane weights, and forgets the averages that led away from them. */
static enum verdict astray(const desk *d, learner *s, int64_t B)
{
    const cone *c = d->c;
    const size_t size = (size_t)c->weights * sizeof(float);
    if (!all_finite(d->window, (long)B * c->window * c->inputs))
        return REFUSED; /* NaN in a window is not the network's fault */
    memcpy(s->w, s->sane, size);
    s->smooth = 0;
    if (s->move.adam != 0) {
        memset(s->m, 0, size);
        memset(s->v, 0, size);
        *s->taken = 0.0f;
    }
    return RESTORED;
}

/* The finish of this step, which counts as one more. */
static const finish *counted(learner *s)
{
    if (s->move.adam != 0)
        s->move.step = (double)(*s->taken += 1.0f);
    return &s->move;
}

/* Against the gradient, unless it is too long. */
static enum verdict descend(desk *d, learner *s, int64_t B)
{
    if (!cone_backward(d->c, s->w, d->pull, NULL, (int32_t)B))
        return NO_ROOM;
    if (!(step_bound(d->c) < s->largest * s->largest)) {
        float *flat = zeroed((size_t)d->c->weights, sizeof(float));
        if (!flat)
            return NO_ROOM;
        cone_gradient(d->c, flat);
        const double length = sqrt(squares(flat, (long)d->c->weights));
        free(flat);
        if (!(length < s->largest))
            return REFUSED;
    }
    step_descend(d->c, counted(s), s->w, s->m, s->v);
    return TAKEN;
}

/* ---- the natural step ------------------------------------------------------------------------------------------- */

/* When to estimate the curvature again, as natsr.precondition.WorstLosses has it; `after` gets its averages. */
static int is_due(const learner *s, double loss, double after[3])
{
    if (isnan(s->mean)) {
        after[0] = loss, after[1] = loss * loss, after[2] = 0;
        return 1;
    }
    const double deviation = loss - s->mean;
    const int due = deviation > s->worst * sqrt(s->spread) || s->since + 1 >= s->every;
    after[0] = s->mean + s->recent * deviation;
    after[1] = s->spread + s->recent * (deviation * deviation - s->spread);
    after[2] = due ? 0 : s->since + 1;
    return due;
}

static double damping(const learner *s)
{
    const double v = s->loss.variance;
    if (s->law == PAPER)
        return 0.9 * s->beta / (1 + v) + 0.1 * s->beta / v;
    return s->law == BOX ? 1 / (s->beta + v) : s->beta;
}

static double information(const losses *l)
{
    return l->student != 0 ? (l->dof + 1) / ((l->dof + 3) * l->variance) : 1 / l->variance;
}

static double theorem(const losses *l, double tau, double m)
{
    if (l->student == 0)
        return INFINITY;
    return 0.25 * sqrt((l->dof + 1) * (l->dof + 3) * m / (tau * l->dof)) * l->factor / m;
}

/* New factors, averaged with the old ones, in the place that is not in use. */
static int estimate(desk *d, learner *s, const turn *t)
{
    const matrices *old = s->known ? s->factors : NULL, *new = s->factors + 1;
    const int known = s->closed ? curve_known(d->c, s->w, d->weights, 1, new->g) : 0;
    if (!curve_probe(d->c, s->w, t->rows, t->owner, (int32_t)t->probes, known, 0, new->g))
        return 0;
    const double before = old ? (double)*old->head : 1;
    *new->head = (float)(before + s->blend * (1 - before));
    return curve_blend(d->c, d->weights, s->blend, old ? (const float *const *)old->a : NULL,
                       old ? (const float *const *)old->g : NULL, new->a, new->g);
}

static void exchange(matrices pair[2])
{
    const matrices kept = pair[0];
    pair[0] = pair[1], pair[1] = kept;
}

/* Inverses for this step: those in use, or new ones in the place that is not, which `inverted` tells. */
static int invert_again(desk *d, learner *s, int estimated, double *made, int *inverted)
{
    const double shift = damping(s) / information(&s->loss), reach = 1 + s->drift;
    const matrices *factors = s->factors + estimated, *spare = s->inverses + 1;
    double head;
    *made = estimated || !(s->made / reach <= shift && shift <= s->made * reach) ? shift : s->made;
    *inverted = estimated || s->made_for != *made;
    if (!*inverted)
        return 1;
    const int ok = curve_invert(d->c, (const float *const *)factors->a, (const float *const *)factors->g,
                                (double)*factors->head, *made, spare->a, spare->g, &head);
    *spare->head = (float)head;
    return ok;
}

/* As natsr.forecasters.curved has it. Where the curvature is to be estimated and there are no probes yet, nothing is
 * done but to ask for them. */
static enum verdict curve(desk *d, learner *s, const turn *t, double loss)
{
    double after[3], made = 0;
    int inverted = 0;
    const int due = is_due(s, loss, after), estimated = t->rows != NULL;
    if ((due || !s->known) && !estimated)
        return DUE;
    if (estimated && !estimate(d, s, t))
        return REFUSED;
    if (!invert_again(d, s, estimated, &made, &inverted))
        return REFUSED;
    if (!cone_backward(d->c, s->w, d->pull, NULL, (int32_t)(t->fresh + t->drawn)))
        return NO_ROOM;
    const matrices *inverses = s->inverses + inverted;
    const double kappa = information(&s->loss), tau = damping(s), bound = theorem(&s->loss, tau, d->c->outputs);
    const double solved = curve_solve(d->c, (const float *const *)inverses->a, (const float *const *)inverses->g,
                                      (double)*inverses->head);
    const double norm = solved >= 0 ? sqrt(solved) / kappa : NAN;
    if (!(norm < s->largest))
        return REFUSED;
    const double length = s->clip > 0 && norm > s->clip * bound ? s->clip * bound / norm : 1;
    if (!s->smooth)
        memset(s->smoothed, 0, (size_t)d->c->weights * sizeof(float));
    curve_take(d->c, counted(s), length / kappa, s->smooth ? s->average : 1, s->smoothed, s->w, s->m, s->v);
    if (estimated)
        exchange(s->factors);
    if (inverted)
        exchange(s->inverses);
    s->mean = after[0], s->spread = after[1], s->since = after[2];
    s->made = s->made_for = made, s->tau = tau, s->norm = norm, s->bound = bound;
    s->known = s->smooth = 1, s->refreshes += due;
    return TAKEN;
}

/* ---- turns ------------------------------------------------------------------------------------------------------ */

/* What a network gone astray put out must not become what its outputs are pulled to. */
static void spare_memory(const learner *s, const turn *t, long m)
{
    const float limit = s->loss.distil > 0 ? (float)s->farthest : INFINITY;
    for (long e = 0; e < t->fresh; e++)
        for (long i = 0; i < m; i++)
            t->done[e] &= fabsf(t->output[e * m + i]) < limit;
}

static enum verdict learn(desk *d, learner *s, turn *t)
{
    const int64_t B = t->fresh + t->drawn;
    const long m = d->c->outputs;
    double found[4];
    if (!make_room(d, B))
        return NO_ROOM;
    gather(d, s, t);
    if (!cone_forward(d->c, s->w, d->window, (int32_t)B, NULL, d->output))
        return NO_ROOM;
    step_judge(&s->loss, d->output, d->target, s->loss.distil > 0 && t->drawn ? d->stored : NULL, (int32_t)B,
               (int32_t)t->fresh, (int32_t)m, d->pull, d->weights, found);
    memcpy(t->output, d->output, (size_t)(t->fresh * m) * sizeof(float));
    spare_memory(s, t, m);
    memcpy(t->weights, d->weights, (size_t)B * sizeof(float));
    const double loss = found[1], score = found[2];
    double scale = s->loss.tracked;
    if (s->scale_rate != 0 && !isnan(score))
        scale = fmax(s->scale_floor, scale + s->scale_rate * score);
    const int sane = found[0] < s->farthest;
    if (!t->rows) { /* probes come with a second look at the same examples */
        s->steps++;
        if (sane && s->steps % SANE_EVERY == 0)
            memcpy(s->sane, s->w, (size_t)d->c->weights * sizeof(float));
    }
    if (!sane)
        return astray(d, s, B);
    if (!(isfinite(loss) && isfinite(scale)))
        return REFUSED;
    const enum verdict verdict = s->natural ? curve(d, s, t, loss) : descend(d, s, B);
    if (verdict == TAKEN)
        s->loss.variance = s->loss.tracked = scale, s->last = loss, s->moved = 1;
    return verdict;
}

/* What all workers go through: each takes the next one that waits. */
typedef struct {
    desk **desks;
    const frame *f;
    learner *all;
    turn *turns;
    question *asked;
    int64_t count, next;
} work;

static int taken(work *w, int64_t *i) { return (*i = __atomic_fetch_add(&w->next, 1, __ATOMIC_RELAXED)) < w->count; }

static void learn_some(void *given, int64_t worker)
{
    work *w = given;
    for (int64_t i; taken(w, &i);)
        if (w->turns[i].verdict == WAITING) {
            const enum verdict verdict = learn(w->desks[worker], w->all + i, w->turns + i);
            w->all[i].refused += verdict == REFUSED, w->all[i].restored += verdict == RESTORED;
            w->turns[i].verdict = verdict;
        }
}

/* Turns that wait, until there are none left. */
void many_learn(crew *c, desk **desks, int64_t workers, learner *all, turn *turns, int64_t count)
{
    work w = {.desks = desks, .all = all, .turns = turns, .count = count};
    crew_run(c, workers, learn_some, &w);
}

void many_remember(const desk *d, const learner *all, const turn *turns, const entry *entries, int64_t count)
{
    const size_t each = (size_t)d->c->window * (size_t)d->c->inputs, m = (size_t)d->c->outputs;
    for (const entry *e = entries; e < entries + count; e++) {
        float *const *memory = all[e->number].memory;
        const turn *t = turns + e->number;
        const size_t place = (size_t)e->place, index = (size_t)e->index;
        memcpy(memory[0] + place * each, t->window + index * each, each * sizeof(float));
        memcpy(memory[1] + place * m, t->taught + index * m, m * sizeof(float));
        if (memory[2])
            memcpy(memory[2] + place * m, t->output + index * m, m * sizeof(float));
    }
}

static void forecast_some(void *given, int64_t worker)
{
    work *w = given;
    desk *d = w->desks[worker];
    const cone *c = d->c;
    const frame *f = w->f;
    for (int64_t i; taken(w, &i);) {
        question *q = w->asked + i;
        if (!q->examples)
            continue;
        const int roomy = make_room(d, q->examples);
        for (long e = 0; roomy && e < q->examples; e++)
            read_window(c, f, q->raw_window + e * f->reach * c->inputs, d->window + e * c->window * c->inputs);
        if (!roomy || !cone_forward(d->c, w->all[i].w, d->window, (int32_t)q->examples, NULL, q->output))
            q->examples = -1;
        for (long e = 0; e < q->examples; e++)
            write_output(c, f, q->raw_window + e * f->reach * c->inputs, q->output + e * c->outputs);
    }
}

/* Forecasts of those who have a window; `examples` becomes -1 where there was no memory for them. */
void many_forecast(crew *c, desk **desks, int64_t workers, const frame *f, learner *all, question *asked, int64_t count)
{
    work w = {.desks = desks, .f = f, .all = all, .asked = asked, .count = count};
    crew_run(c, workers, forecast_some, &w);
}

#include "rules.h"

#include <math.h>
#include <string.h>

INLINE double larger(double a, double b) { return a > b ? a : b; }
INLINE double smaller(double a, double b) { return a < b ? a : b; }

/* What was forecast of the row that came: by each expert, by the mixtures, and after the guard; and the row, NaN where
 * there was no origin or it is missing. */
typedef struct {
    float *forecasts;            /* (E, H, C) */
    float *mixed;                /* (kept, H, C): the answer, the mixtures, and with a last word that of these */
    double *base, *mean, *truth; /* (H, C): the last value, the answer after the guard, what came */
    double *ready;               /* (H, C): the guard's */
} labelled;

static labelled collect(const blending *m, const double *row, int64_t newest)
{
    const int64_t E = m->experts, H = m->horizon, C = m->channels, kept = m->kept, each = H * C;
    const labelled l = {m->forecasts, m->answers, m->work, m->work + each, m->work + 2 * each, m->work + 6 * each};
    for (int64_t h = 0; h < H; h++) {
        const int64_t origin = ((newest - 1 - h) % m->slots + m->slots) % m->slots;
        const float *waiting = m->waiting + (origin * E * H + h) * C, *mixed = m->mixed + (origin * kept * H + h) * C;
        const double *guarded = m->guarded + (origin * H + h) * C;
        for (int64_t e = 0; e < E; e++)
            memcpy(l.forecasts + e * each + h * C, waiting + e * each, (size_t)C * sizeof(float));
        for (int64_t k = 0; k < kept; k++)
            memcpy(l.mixed + k * each + h * C, mixed + k * each, (size_t)C * sizeof(float));
        for (int64_t c = 0; c < C; c++) {
            l.base[h * C + c] = (double)waiting[c];
            l.mean[h * C + c] = guarded[c];
            l.ready[h * C + c] = m->ready[origin * C + c];
            l.truth[h * C + c] = h < newest && isfinite(row[c]) ? row[c] : NAN;
        }
    }
    return l;
}

/* ---- how far to go, and how far off ----------------------------------------------------------------------------- */

/* Changes from the last value, and the mixture's, held to what is usual; what is usual follows. */
static void moves(const blending *m, const labelled *l, double *restrict ahead, double *restrict gap)
{
    const int64_t N = m->horizon * m->channels;
    const double young = m->guard_young, wild = m->guard_wild, rate = m->guard_rate, largest = m->largest;
    const double *restrict truth = l->truth, *restrict base = l->base;
    const float *restrict mixed = l->mixed;
    double *restrict change = m->change, *restrict changes = m->changes;
    for (int64_t i = 0; i < N; i++) {
        const int known = truth[i] == truth[i];
        const double moved = known ? truth[i] - base[i] : 0.0, far = smaller(fabs(moved), largest);
        const double square = smaller(far * far, changes[i] < young ? INFINITY : wild * change[i]);
        const double count = changes[i] + (far > 0 ? 1.0 : 0.0), part = larger(rate, 1 / larger(count, 1));
        const int beyond = changes[i] >= young && far * far > m->bank_far * m->bank_far * change[i];
        const double counted = beyond ? m->guard_tamed * change[i] : square;
        const double usual = change[i] + (known ? part : 0.0) * (counted - change[i]);
        const double limit = sqrt(square) + sqrt(usual);
        changes[i] = count;
        change[i] = usual;
        ahead[i] = held(moved, limit);
        gap[i] = known ? held((double)mixed[i] - base[i], limit) : 0.0;
    }
}

/* The ready share of each column: how far off the mixture was of late beside the last value. */
static void be_ready(const blending *m, const double *ahead, const double *gap)
{
    const int64_t H = m->horizon, C = m->channels;
    double *recent = m->recent;
    for (int64_t c = 0; c < C; c++) {
        double last = 0, mixture = 0;
        for (int64_t h = 0; h < H; h++) {
            last += fabs(ahead[h * C + c]);
            mixture += fabs(ahead[h * C + c] - gap[h * C + c]);
        }
        recent[c] = recent[c] * m->guard_recent + last;
        recent[C + c] = recent[C + c] * m->guard_recent + mixture;
        const double worse = (recent[C + c] + m->guard_barely) / (recent[c] + m->guard_barely);
        const double share = (m->guard_most - worse) / (m->guard_most - 1);
        m->readiness[c] = share < 0 ? 0.0 : smaller(share, 1.0);
    }
}

/* The guard: the share of the way from the last value to the mixture that would have lost least. */
static void choose(const blending *m, const labelled *l)
{
    const int64_t N = m->horizon * m->channels;
    double *restrict ahead = m->work + 3 * N, *restrict gap = ahead + N, *restrict best = gap + N;
    double *restrict share = m->share;
    moves(m, l, ahead, gap);
    for (int64_t k = 0; k < m->choices; k++) {
        const double way = m->shares[k], fade = m->fade;
        double *loss = m->loss + k * N;
        const double *first = m->loss;
        for (int64_t i = 0; i < N; i++)
            loss[i] = loss[i] * fade + fabs(ahead[i] - way * gap[i]);
        for (int64_t i = 0; i < N; i++) {
            const double needed = loss[i] + way * (m->proof * first[i] + m->doubt * sqrt(m->change[i]));
            const int better = k == 0 || needed < best[i];
            best[i] = better ? needed : best[i];
            share[i] = better ? way : share[i];
        }
    }
    be_ready(m, ahead, gap);
    double *restrict loss = m->loss + m->choices * N;
    for (int64_t i = 0; i < N; i++) {
        loss[i] = loss[i] * m->fade + fabs(ahead[i] - l->ready[i] * gap[i]);
        const double needed = loss[i] + m->proof * m->loss[i] + m->doubt * sqrt(m->change[i]);
        share[i] = needed < best[i] ? m->readiness[i % m->channels] : share[i];
    }
}

/* How far off the forecast is, and how far the stream goes. */
static void measure(const blending *m, const past *p, const labelled *l)
{
    const int64_t N = m->horizon * m->channels;
    const double young = m->error_young, wild = m->error_wild, rate = m->error_rate, fade = m->reach_fade;
    const double largest = m->largest, *restrict truth = l->truth, *restrict base = l->base, *restrict mean = l->mean;
    double *restrict square = m->square, *restrict errors = m->errors, *restrict reach = m->reach;
    for (int64_t i = 0; i < N; i++) {
        const int known = truth[i] == truth[i];
        const double error = known ? held(truth[i] - mean[i], largest) : 0.0;
        const double fresh = smaller(error * error, errors[i] < young ? INFINITY : wild * square[i]);
        const double change = known ? fabs(held(truth[i] - base[i], largest)) : 0.0;
        const double count = errors[i] + (known ? 1.0 : 0.0), part = larger(rate, 1 / larger(count, 1));
        errors[i] = count;
        square[i] += (known ? part : 0.0) * (fresh - square[i]);
        const int64_t c = i % m->channels, h = i / m->channels;
        const double before = reach[i];
        reach[i] = fade * before;
        if (before == 0)
            reach[i] = change;
        else if (change > reach[i] && !is_wild(m, p, 0, c) && !is_wild(m, p, 1 + h, c))
            reach[i] = smaller(change, 2 * before + 1e-12);
        m->settled[i] = p->age[c] > 0 ? m->settled[i] : reach[i];
    }
}

/* The mean square of a channel's errors, of those of other steps where a step has none yet. */
static double variance_at(const blending *m, int64_t h, int64_t c)
{
    const int64_t C = m->channels;
    double most = m->square[h * C + c];
    for (int64_t i = 0; m->errors[h * C + c] == 0 && i < m->horizon; i++)
        most = larger(most, m->square[i * C + c]);
    return larger(most, m->error_least);
}

/* The row is the last label of the oldest of the forecasts that wait: natsr.experts.correct. */
static void complete(const blending *m, const past *p)
{
    const int64_t H = m->horizon, C = m->channels, N = H * C;
    if (p->seen <= H || H == 1) /* one row ahead there is never an example that is younger than usual */
        return;
    const double *guarded = m->guarded + (p->seen - 1 - H) % m->slots * N, *raw = p->raw + (p->end - H) * C;
    const uint8_t *known = p->known + (p->end - H) * C;
    const double fade = m->hint_fade, fresh = 1 - fade;
    double mean = 0;
    for (int64_t i = 0; i < N; i++)
        mean += m->hint_square[i] / (double)N;
    for (int64_t c = 0; c < 2 * C; c++)
        m->hint_loss[c] *= fade;
    for (int64_t h = 0; h < H; h++)
        for (int64_t c = 0; c < C; c++) {
            const int64_t i = h * C + c;
            const double limit = m->hint_wild * sqrt(variance_at(m, h, c)), before = m->hint_error[i];
            const double newest = known[i] ? held(held(raw[i] - guarded[i], m->largest), limit) : 0.0;
            const double slope = m->hint_cross[i] / (m->hint_square[i] + m->hint_ridge * mean + m->hint_least);
            m->hint_loss[c] += fabs(newest);
            m->hint_loss[C + c] += fabs(newest - slope * before);
            m->hint_cross[i] += fresh * (newest * before - m->hint_cross[i]);
            m->hint_square[i] += fresh * (before * before - m->hint_square[i]);
            m->hint_error[i] = newest;
        }
    *m->hint_count += 1;
}

/* ---- a row ------------------------------------------------------------------------------------------------------ */

/* The newest row is a label of each of the last H origins. */
void blend_learn(const blending *m, const past *p)
{
    const int64_t N = m->horizon * m->channels;
    const labelled l = collect(m, p->row, p->seen - 1);
    for (int64_t k = 0; k < m->layers; k++)
        learn_any(m, m->rules + k, l.forecasts, l.mixed + (k + 1) * N, l.truth);
    if (m->total < 0)
        learn_rule(m, m->rules + m->layers, l.mixed + N, l.mixed, l.truth);
    else {
        const int64_t all = (m->kept - 1) * N, lost = (1 + m->total) * N;
        learn_rule(m, m->rules + m->layers, l.mixed + N, l.mixed + all, l.truth);
        learn_total(m, m->rules + m->layers + 1, l.mixed + lost, all - lost, l.mixed, l.truth);
    }
    choose(m, &l);
    ledger_take(m, p, l.mixed, l.mean, l.truth);
    measure(m, p, &l);
    complete(m, p);
}

/* Nothing that is not a number, nothing far beyond what the stream has done of late. */
static void hold(const blending *m, const past *p)
{
    const int64_t E = m->experts, C = m->channels, N = m->horizon * C;
    const double *begin = p->begin;
    double *far = m->work, *low = far + N, *high = low + N;
    for (int64_t i = 0; i < N; i++) {
        far[i] = i < C ? m->reach[i] : larger(far[i - C], m->reach[i]);
        const double most = p->seen > m->slots ? m->far * far[i] + 1e-6 : INFINITY;
        low[i] = begin[i] - most;
        high[i] = begin[i] + most;
        m->now[i] = held(m->now[i], 1e30); /* the last value stays what it is, as far as it can be multiplied */
    }
    for (int64_t e = 1; e < E; e++)
        for (int64_t i = 0; i < N; i++) {
            const double given = m->now[e * N + i], x = given == given ? held(given, 1e30) : 0.0;
            m->now[e * N + i] = x < low[i] ? low[i] : x > high[i] ? high[i] : x;
        }
}

/* Exactly the one or the other where the share is 0 or 1, however wild the last value. */
INLINE double part_of_the_way(double last, double goal, double share)
{
    return share == 1 ? goal : (1 - share) * last + share * goal;
}

/* What the experts say, as it is mixed: at a jump that is taken to stay, not much further from there than the stream had
   gone before it. */
static const float *here(const blending *m, const past *p, const float *said)
{
    const int64_t E = m->experts, C = m->channels, N = m->horizon * C;
    double *settled = m->work, *low = settled + N, *high = low + N;
    if (p->seen <= m->slots || !memchr(p->stays, 1, (size_t)N))
        return said;
    for (int64_t i = 0; i < N; i++) {
        settled[i] = i < C ? m->settled[i] : larger(settled[i - C], m->settled[i]);
        const double most = (1 + m->doubted / larger((double)p->age[i % C], 1)) * settled[i] + 1e-6;
        const double far = p->stays[i] ? most : INFINITY;
        low[i] = p->begin[i] - far;
        high[i] = p->begin[i] + far;
    }
    for (int64_t e = 0; e < E; e++)
        for (int64_t i = 0; i < N; i++) {
            const double x = said[e * N + i];
            m->forecasts[e * N + i] = (float)(x < low[i] ? low[i] : x > high[i] ? high[i] : x);
        }
    return m->forecasts;
}

/* The experts' forecasts from the newest row: held, kept, mixed. */
void blend_forecast(const blending *m, const past *p)
{
    const int64_t E = m->experts, C = m->channels, N = m->horizon * C, slot = (p->seen - 1) % m->slots;
    const double *last = p->raw + (p->end - 1) * C;
    float *waiting = m->waiting + slot * E * N, *mixed = m->mixed + slot * m->kept * N;
    double *guarded = m->guarded + slot * N;
    hold(m, p);
    memcpy(m->ready + slot * C, m->readiness, (size_t)C * sizeof(double));
    for (int64_t i = 0; i < E * N; i++)
        waiting[i] = (float)m->now[i];
    blend_mix(m, here(m, p, waiting), mixed);
    for (int64_t i = 0; i < N; i++)
        guarded[i] = part_of_the_way(last[i % C], (double)mixed[i], m->share[i]);
    ledger_stake(m, p, guarded);
    for (int64_t i = 0; i < N; i++)
        guarded[i] = part_of_the_way(last[i % C], guarded[i], m->free[i % C]);
}

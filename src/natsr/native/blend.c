#include "experts.h"

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

/* ---- ML-Poly: natsr.aggregate has the mathematics --------------------------------------------------------------- */

enum pooling { ALONE, NEAR_STEPS, OVER_CHANNELS, OVER_ALL, OVER_STEPS };

static int64_t kept_by(const blending *m, const poly *rule)
{
    const int64_t H = m->horizon;
    return rule->pooling == OVER_ALL ? 1 : rule->pooling == OVER_CHANNELS ? H : H * m->channels;
}

/* What would have been gained by going to each expert, and the most of it, in size, over experts. */
static void gains(int64_t E, int64_t N, const float *forecasts, const float *mixture, const double *truth,
                  float *restrict gained, float *restrict largest, float *restrict sign)
{
    for (int64_t i = 0; i < N; i++) {
        const double d = (double)mixture[i] - truth[i];
        sign[i] = (float)((d > 0) - (d < 0));
        largest[i] = 0;
    }
    for (int64_t e = 0; e < E; e++)
        for (int64_t i = 0; i < N; i++) {
            const float g = (mixture[i] - forecasts[e * N + i]) * sign[i], far = fabsf(g);
            gained[e * N + i] = g;
            largest[i] = far > largest[i] ? far : largest[i];
        }
}

/* Regrets (H, C) of one expert as the weights see them. `wide` has room for the steps beyond both ends. */
static const float *pooled(const blending *m, const poly *rule, const float *units, const float *gained, float *wide,
                           float *to)
{
    const int64_t H = m->horizon, C = m->channels, N = H * C, near = m->near;
    if (rule->pooling == NEAR_STEPS && H > 1) {
        const float share = 1.0f / (float)(2 * near + 1);
        memcpy(wide + near * C, gained, (size_t)N * sizeof(float));
        for (int64_t k = 0; k < near; k++) {
            memcpy(wide + k * C, gained, (size_t)C * sizeof(float));
            memcpy(wide + N + (near + k) * C, gained + N - C, (size_t)C * sizeof(float));
        }
        for (int64_t i = 0; i < N; i++)
            to[i] = wide[i];
        for (int64_t k = 1; k <= 2 * near; k++)
            for (int64_t i = 0; i < N; i++)
                to[i] += wide[k * C + i];
        for (int64_t i = 0; i < N; i++)
            to[i] *= share;
        return to;
    }
    if (rule->pooling == OVER_CHANNELS || rule->pooling == OVER_ALL) {
        float all = 0;
        for (int64_t h = 0; h < H; h++) {
            float sum = 0;
            for (int64_t c = 0; c < C; c++)
                sum += gained[h * C + c] * units[h * C + c];
            to[h] = sum;
            all += sum;
        }
        to[0] = rule->pooling == OVER_ALL ? all : to[0];
        return to;
    }
    return gained;
}

/* What is usual of the largest gains follows them; they are held to it. `units` are for pooling over channels. */
static void usual(const blending *m, const poly *rule, const float *restrict mixture, float *restrict largest,
                  float *restrict units)
{
    const int64_t N = m->horizon * m->channels;
    const double young = m->mix_young, wild = m->mix_wild, rate = m->mix_rate, tiny = m->tiny, noise = m->noise;
    const double many = (double)(rule->pooling == OVER_CHANNELS ? m->channels : N);
    double *restrict count = rule->count, *restrict size = rule->size;
    for (int64_t i = 0; i < N; i++) {
        const double most = (double)largest[i], far = most > noise * fabs((double)mixture[i]) ? most : 0.0;
        const double square = smaller(smaller(far * far, 1e30), count[i] < young ? 1e30 : wild * size[i]);
        const double seen = count[i] + (square > 0 ? 1.0 : 0.0), part = larger(rate, 1 / larger(seen, 1));
        const double mean = size[i] + part * (square - size[i]);
        count[i] = seen;
        size[i] = mean;
        largest[i] = (float)sqrt(square);
        units[i] = (float)(1 / sqrt(mean + tiny) / many);
    }
}

static void learn_rule(const blending *m, const poly *rule, const float *forecasts, const float *mixture,
                       const double *truth)
{
    const int64_t E = rule->experts, N = m->horizon * m->channels, kept = kept_by(m, rule);
    float *gained = m->gained, *restrict largest = m->singles, *units = largest + N, *restrict total = units + N,
          *to = total + N, *wide = to + N;
    gains(E, N, forecasts, mixture, truth, gained, largest, total);
    usual(m, rule, mixture, largest, units);
    memset(total, 0, (size_t)N * sizeof(float));
    const float discount = (float)rule->discount;
    for (int64_t e = 0; e < E; e++) {
        float *restrict mine = gained + e * N, *restrict regret = rule->regret + e * kept;
        float *restrict square = rule->square + e * kept;
        for (int64_t i = 0; i < N; i++)
            mine[i] = mine[i] > largest[i] ? largest[i] : mine[i] < -largest[i] ? -largest[i] : mine[i];
        const float *seen = pooled(m, rule, units, mine, wide, to);
        for (int64_t i = 0; i < kept; i++) {
            const float g = seen[i], r = regret[i] * discount + g, s = square[i] * discount + g * g;
            regret[i] = r;
            square[i] = s;
            mine[i] = (r > 0 ? r : 0.0f) / (1.0f + s); /* its score, from here on */
            total[i] += mine[i];
        }
    }
    for (int64_t i = 0; i < kept; i++)
        units[i] = (double)total[i] > m->tiny ? 1.0f / total[i] : 0.0f;
    for (int64_t e = 0; e < E; e++) {
        float *weights = rule->weights + e * kept;
        for (int64_t i = 0; i < kept; i++)
            weights[i] = units[i] > 0 ? gained[e * N + i] * units[i] : weights[i];
    }
}

/* Weights by a power of the losses of late: natsr.mixtures.Power. */
static void learn_power(const blending *m, const poly *rule, const float *forecasts, const float *mixture,
                        const double *truth)
{
    const int64_t E = rule->experts, N = m->horizon * m->channels;
    float *restrict units = m->singles;
    int64_t known = 0;
    double mixed = 0, least = INFINITY;
    for (int64_t i = 0; i < N; i++) {
        units[i] = 0;
        if (truth[i] != truth[i])
            continue;
        const double wrong = fabs((double)mixture[i] - truth[i]);
        const double wild = rule->count[i] < m->mix_young ? 1e30 : m->mix_wild * rule->size[i];
        rule->count[i] += 1;
        rule->size[i] += larger(m->mix_rate, 1 / rule->count[i]) * (smaller(wrong * wrong, wild) - rule->size[i]);
        units[i] = (float)(1 / sqrt(rule->size[i] + m->tiny));
        mixed += (double)units[i] * wrong;
        known++;
    }
    if (known == 0)
        return;
    double *losses = m->work + 3 * N; /* one expert's at a time, its sum in the first place */
    double *restrict loss = rule->loss;
    const double share = 1 / (double)known;
    mixed *= share;
    float *restrict sums = m->gained;
    for (int64_t e = 0; e < E; e++) {
        const float *f = forecasts + e * N;
        for (int64_t i = 0; i < N; i++)
            losses[i] = units[i] > 0 ? (double)units[i] * fabs((double)f[i] - truth[i]) : 0.0;
        double apart[8] = {0}, sum = 0; /* so that no addition waits for the one before it */
        const int64_t whole_part = N / 8 * 8;
        for (int64_t i = 0; i < whole_part; i += 8)
            for (int64_t k = 0; k < 8; k++)
                apart[k] += losses[i + k];
        for (int64_t i = whole_part; i < N; i++)
            sum += losses[i];
        for (int64_t k = 0; k < 8; k++)
            sum += apart[k];
        sums[e] = (float)smaller(sum * share, 1e30);
        least = smaller(least, (double)sums[e]);
    }
    const double unit = larger(larger(rule->pace[0], least), m->tiny);
    double best = INFINITY, total = 0;
    for (int64_t e = 0; e < E; e++) {
        loss[e] = loss[e] * rule->discount + smaller((double)sums[e] / unit, m->power_far);
        best = smaller(best, loss[e]);
    }
    rule->pace[0] += (rule->pace[0] > 0 ? m->power_pace : 1.0) * (smaller(mixed, m->power_far * unit) - rule->pace[0]);
    for (int64_t e = 0; e < E; e++) {
        const double score = pow((best + m->power_barely) / (loss[e] + m->power_barely), rule->power);
        sums[e] = (float)score;
        total += score;
    }
    for (int64_t e = 0; e < E; e++)
        rule->weights[e] = (float)((double)sums[e] / total);
}

/* Weights by a power of all that was lost, column by column: natsr.mixtures.Total. The forecasts of one expert lie
 * `apart` numbers behind those of the one before. */
static void learn_total(const blending *m, const poly *rule, const float *forecasts, int64_t apart,
                        const float *mixture, const double *truth)
{
    const int64_t E = rule->experts, C = m->channels, N = m->horizon * C;
    double *restrict limit = m->work + 3 * N, *restrict least = limit + N, *restrict sums = least + C;
    float *restrict scores = m->gained; /* (E, C) */
    for (int64_t i = 0; i < N; i++) {
        const int known = truth[i] == truth[i];
        const double wrong = known ? fabs((double)mixture[i] - truth[i]) : 0.0;
        const double wild = rule->count[i] < m->mix_young ? 1e30 : m->total_beyond * m->total_beyond * rule->size[i];
        rule->count[i] += known;
        const double rate = known ? larger(m->mix_rate, 1 / larger(rule->count[i], 1)) : 0.0;
        rule->size[i] += rate * (smaller(wrong * wrong, wild) - rule->size[i]);
        limit[i] = known ? m->total_beyond * sqrt(rule->size[i]) : 0.0;
    }
    for (int64_t c = 0; c < C; c++) {
        least[c] = INFINITY;
        sums[c] = 0;
    }
    for (int64_t e = 0; e < E; e++) {
        const float *f = forecasts + e * apart;
        double *restrict loss = rule->loss + e * C;
        for (int64_t c = 0; c < C; c++)
            loss[c] *= rule->discount;
        for (int64_t h = 0; h < m->horizon; h++)
            for (int64_t c = 0; c < C; c++) {
                const int64_t i = h * C + c;
                loss[c] += limit[i] > 0 ? smaller(fabs((double)f[i] - truth[i]), limit[i]) : 0.0;
            }
        const double times = e == 0 ? rule->handicap : 1.0;
        for (int64_t c = 0; c < C; c++)
            least[c] = smaller(least[c], times * loss[c]);
    }
    for (int64_t e = 0; e < E; e++)
        for (int64_t c = 0; c < C; c++) {
            const double lost = (e == 0 ? rule->handicap : 1.0) * rule->loss[e * C + c];
            const double score = pow((least[c] + m->tiny) / (lost + m->tiny), rule->power);
            scores[e * C + c] = (float)score;
            sums[c] += score;
        }
    for (int64_t e = 0; e < E; e++)
        for (int64_t c = 0; c < C; c++)
            rule->weights[e * C + c] = (float)((double)scores[e * C + c] / sums[c]);
}

INLINE float power_of(float x, int64_t power)
{
    float found = 1;
    for (; power > 0; power >>= 1, x *= x)
        found = power & 1 ? found * x : found;
    return found;
}

/* Weights by a power of the losses, for each step and column, over the steps around it: natsr.mixtures.Local. */
static void learn_local(const blending *m, const poly *rule, const float *forecasts, const float *mixture,
                        const double *truth)
{
    const int64_t E = rule->experts, N = m->horizon * m->channels;
    float *scores = m->gained, *restrict limit = m->singles, *restrict came = limit + N, *restrict least = came + N;
    float *restrict sums = least + N, *to = sums + N, *wide = to + N;
    for (int64_t i = 0; i < N; i++) {
        const int known = truth[i] == truth[i];
        const double wrong = known ? fabs((double)mixture[i] - truth[i]) : 0.0;
        const double wild = rule->count[i] < m->mix_young ? 1e30 : m->total_beyond * m->total_beyond * rule->size[i];
        rule->count[i] += known;
        const double rate = known ? larger(m->mix_rate, 1 / larger(rule->count[i], 1)) : 0.0;
        rule->size[i] += rate * (smaller(wrong * wrong, wild) - rule->size[i]);
        limit[i] = known ? (float)(m->total_beyond * sqrt(rule->size[i])) : 0.0f;
        came[i] = known ? (float)truth[i] : 0.0f;
        least[i] = INFINITY;
        sums[i] = 0;
    }
    const float discount = (float)rule->discount, tiny = (float)m->tiny;
    for (int64_t e = 0; e < E; e++) {
        const float *restrict f = forecasts + e * N;
        float *restrict lost = rule->lost + e * N, *restrict mine = scores + e * N;
        for (int64_t i = 0; i < N; i++) {
            const float far = fabsf(f[i] - came[i]);
            lost[i] = lost[i] * discount + (far < limit[i] ? far : limit[i]);
        }
        const float *seen = pooled(m, rule, limit, lost, wide, to);
        for (int64_t i = 0; i < N; i++) {
            mine[i] = seen[i];
            least[i] = seen[i] < least[i] ? seen[i] : least[i];
        }
    }
    const int64_t power = (int64_t)rule->power;
    for (int64_t e = 0; e < E; e++) {
        float *restrict mine = scores + e * N;
        for (int64_t i = 0; i < N; i++) {
            mine[i] = power_of((least[i] + tiny) / (mine[i] + tiny), power);
            sums[i] += mine[i];
        }
    }
    for (int64_t e = 0; e < E; e++) {
        float *restrict weights = rule->weights + e * N;
        const float *restrict mine = scores + e * N;
        for (int64_t i = 0; i < N; i++)
            weights[i] = mine[i] / sums[i];
    }
}

static void learn(const blending *m, const poly *rule, const float *forecasts, const float *mixture, const double *truth)
{
    if (rule->power == 0)
        learn_rule(m, rule, forecasts, mixture, truth);
    else if (rule->pooling == OVER_STEPS)
        learn_total(m, rule, forecasts, m->horizon * m->channels, mixture, truth);
    else if (rule->pooling == NEAR_STEPS)
        learn_local(m, rule, forecasts, mixture, truth);
    else
        learn_power(m, rule, forecasts, mixture, truth);
}

/* (kept, H, C): the answer and the mixtures it is made of, of forecasts (E, H, C). */
void blend_mix(const blending *m, const float *forecasts, float *to)
{
    const int64_t E = m->experts, H = m->horizon, C = m->channels, N = H * C;
    const float *shares = m->rules[m->layers].weights;
    const int64_t kept = kept_by(m, m->rules + m->layers);
    memset(to, 0, (size_t)(m->kept * N) * sizeof(float));
    for (int64_t k = 0; k < m->layers; k++) {
        const poly *rule = m->rules + k;
        float *mixture = to + (k + 1) * N;
        for (int64_t e = 0; e < E; e++) {
            const float *f = forecasts + e * N;
            if (rule->pooling == ALONE || rule->pooling == NEAR_STEPS)
                for (int64_t i = 0; i < N; i++)
                    mixture[i] += rule->weights[e * N + i] * f[i];
            else if (rule->pooling == OVER_STEPS)
                for (int64_t i = 0; i < N; i++)
                    mixture[i] += rule->weights[e * C + i % C] * f[i];
            else
                for (int64_t h = 0; h < H; h++) {
                    const float weight = rule->weights[rule->pooling == OVER_CHANNELS ? e * H + h : e];
                    for (int64_t c = 0; c < C; c++)
                        mixture[h * C + c] += weight * f[h * C + c];
                }
        }
        for (int64_t i = 0; i < N; i++)
            to[i] += shares[k * kept + (kept == N ? i : kept == H ? i / C : 0)] * mixture[i];
    }
    if (m->total < 0)
        return;
    const float *word = m->rules[m->layers + 1].weights, *lost = to + (1 + m->total) * N;
    float *all = to + (m->kept - 1) * N;
    memcpy(all, to, (size_t)N * sizeof(float));
    for (int64_t i = 0; i < N; i++)
        to[i] = word[i % C] * lost[i] + word[C + i % C] * all[i];
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
        learn(m, m->rules + k, l.forecasts, l.mixed + (k + 1) * N, l.truth);
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
    blend_mix(m, waiting, mixed);
    for (int64_t i = 0; i < N; i++)
        guarded[i] = part_of_the_way(last[i % C], (double)mixed[i], m->share[i]);
    ledger_stake(m, p, guarded);
    for (int64_t i = 0; i < N; i++)
        guarded[i] = part_of_the_way(last[i % C], guarded[i], m->free[i % C]);
}

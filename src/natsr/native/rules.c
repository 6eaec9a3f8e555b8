#include "rules.h"

#include <math.h>
#include <string.h>

INLINE double larger(double a, double b) { return a > b ? a : b; }
INLINE double smaller(double a, double b) { return a < b ? a : b; }

/* natsr.aggregate and natsr.mixtures have the mathematics. */

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

void learn_rule(const blending *m, const poly *rule, const float *forecasts, const float *mixture,
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

/* How large an error counts as at most, 0 where nothing is known; what is usual of the mixture's follows. */
static double most_that_counts(const blending *m, const poly *rule, int64_t i, float mixture, double truth)
{
    if (truth != truth)
        return 0.0;
    const double wrong = fabs((double)mixture - truth), beyond = m->total_beyond;
    const double wild = rule->count[i] < m->mix_young ? 1e30 : beyond * beyond * rule->size[i];
    rule->count[i] += 1;
    const double rate = larger(m->mix_rate, 1 / larger(rule->count[i], 1));
    rule->size[i] += rate * (smaller(wrong * wrong, wild) - rule->size[i]);
    return beyond * sqrt(rule->size[i]);
}

/* Weights by a power of all that was lost, column by column: natsr.mixtures.Total. The forecasts of one expert lie
 * `apart` numbers behind those of the one before. */
void learn_total(const blending *m, const poly *rule, const float *forecasts, int64_t apart,
                        const float *mixture, const double *truth)
{
    const int64_t E = rule->experts, C = m->channels, N = m->horizon * C;
    double *restrict limit = m->work + 3 * N, *restrict least = limit + N, *restrict sums = least + C;
    float *restrict scores = m->gained; /* (E, C) */
    for (int64_t i = 0; i < N; i++) {
        limit[i] = most_that_counts(m, rule, i, mixture[i], truth[i]);
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
        limit[i] = (float)most_that_counts(m, rule, i, mixture[i], truth[i]);
        came[i] = truth[i] == truth[i] ? (float)truth[i] : 0.0f;
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

void learn_any(const blending *m, const poly *rule, const float *forecasts, const float *mixture, const double *truth)
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

#include "mixing.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Everything has a row for each example and variable. */
typedef struct {
    float *seen, *one, *two, *kept_one, *kept_two, *by_one, *by_two, *by_said;
    int32_t *seen_at, *hidden_at;
} desk;

INLINE float sigmoid(float x) { return 1.0f / (1.0f + expf(-x)); }

/* What the small network sees; comes back with how many targets are known. */
static long look(proposal *p, desk *k)
{
    const long H = p->horizon, C = p->channels;
    long known = 0;
    double loss = 0;
    memset(p->by_lasting, 0, (size_t)C * sizeof(float));
    for (long b = 0; b < p->examples; b++)
        for (long c = 0; c < C; c++) {
            const float share = sigmoid(p->lasting[c]);
            float *seen = k->seen + (b * C + c) * 3 * H, sum = 0;
            for (long h = 0; h < H; h++) {
                const long i = (b * H + h) * C + c;
                const float one = share * p->first[i], other = (1 - share) * p->second[i], mixed = one + other;
                const int is_known = isfinite(p->target[i]);
                const float e = is_known ? limited_error(p->target[i], mixed) : 0.0f;
                seen[h] = one, seen[H + h] = other, seen[2 * H + h] = is_known ? p->target[i] : mixed;
                sum += slope_of(e, (int)p->mae) * (p->first[i] - p->second[i]);
                loss += (double)loss_of(e, (int)p->mae);
                known += is_known;
            }
            p->by_lasting[c] += sum * (share * (1 - share));
        }
    for (long c = 0; c < C; c++)
        p->by_lasting[c] /= (float)known;
    p->loss = loss / (double)known;
    return known;
}

/* A hidden layer: tanh of what is kept of the sums. */
static void hidden(const proposal *p, const float *drawn, float *x, float *kept, long n)
{
    const float rate = (float)p->dropout, scale = 1.0f / (float)(1 - p->dropout);
    for (long i = 0; i < n; i++) {
        kept[i] = !drawn ? 1.0f : drawn[i] >= rate ? scale : 0.0f;
        x[i] = tanhf(x[i] * kept[i]);
    }
}

/* What the small network says about each variable, the gradient of the mixture's loss by it, and what comes next. */
static void say(proposal *p, desk *k, long known)
{
    const long H = p->horizon, C = p->channels, rows = p->examples * C;
    const float *one = p->weights, *two = one + (3 * H + 1) * DECIDING, *last = two + (DECIDING + 1) * DECIDING;
    product(k->seen, k->seen_at, rows, 3 * H, one, DECIDING, DECIDING, FROM_BIAS, one + 3 * H * DECIDING, k->one,
            k->hidden_at);
    hidden(p, p->drawn, k->one, k->kept_one, rows * DECIDING);
    product(k->one, k->hidden_at, rows, DECIDING, two, DECIDING, DECIDING, FROM_BIAS, two + DECIDING * DECIDING, k->two,
            k->hidden_at);
    hidden(p, p->drawn ? p->drawn + rows * DECIDING : NULL, k->two, k->kept_two, rows * DECIDING);
    for (long c = 0; c < C; c++) {
        double sum = 0;
        long telling = 0;
        for (long b = 0; b < p->examples; b++) {
            const float *x = k->two + (b * C + c) * DECIDING;
            float said = last[DECIDING], by = 0;
            for (int i = 0; i < DECIDING; i++)
                said += x[i] * last[i];
            const float quick = sigmoid(p->lasting[c] + said);
            int tells = 0;
            for (long h = 0; h < H; h++) {
                const long i = (b * H + h) * C + c;
                const float apart = p->first[i] - p->second[i];
                if (!isfinite(p->target[i]))
                    continue;
                tells = 1;
                by += slope_of(limited_error(p->target[i], p->second[i] + quick * apart), (int)p->mae) * apart;
            }
            k->by_said[b * C + c] = by * (quick * (1 - quick)) / (float)known;
            sum += tells ? (double)said : 0, telling += tells;
        }
        p->next[c] = telling ? (float)(sum / (double)telling) : p->passing[c];
    }
}

/* The small network's gradient. */
static void pull(proposal *p, desk *k)
{
    const long H = p->horizon, rows = p->examples * p->channels;
    const long second = (3 * H + 1) * DECIDING, third = second + (DECIDING + 1) * DECIDING;
    float *flat = p->by_weights, back[DECIDING * DECIDING + SLACK];
    memset(flat + third, 0, (DECIDING + 1) * sizeof(float));
    for (long r = 0; r < rows; r++) {
        const float *x = k->two + r * DECIDING, *kept = k->kept_two + r * DECIDING, g = k->by_said[r];
        for (int i = 0; i < DECIDING; i++) {
            flat[third + i] += g * x[i];
            k->by_two[r * DECIDING + i] = g * p->weights[third + i] * (1 - x[i] * x[i]) * kept[i];
        }
        flat[third + DECIDING] += g;
    }
    outer(k->one, k->hidden_at, DECIDING, k->by_two, k->hidden_at, DECIDING, rows, 0, 0, flat + second, DECIDING);
    column_sums(k->by_two, k->hidden_at, rows, DECIDING, flat + second + DECIDING * DECIDING);
    transpose(p->weights + second, DECIDING, DECIDING, DECIDING, back, DECIDING);
    product(k->by_two, k->hidden_at, rows, DECIDING, back, DECIDING, DECIDING, FROM_ZERO, NULL, k->by_one,
            k->hidden_at);
    for (long i = 0; i < rows * DECIDING; i++)
        k->by_one[i] *= (1 - k->one[i] * k->one[i]) * k->kept_one[i];
    outer(k->seen, k->seen_at, 3 * H, k->by_one, k->hidden_at, DECIDING, rows, 0, 0, flat, DECIDING);
    column_sums(k->by_one, k->hidden_at, rows, DECIDING, flat + 3 * H * DECIDING);
    p->squares = squares(flat, third + DECIDING + 1) + squares(p->by_lasting, p->channels) +
                 squares(p->next, p->channels);
}

/* 0 if there is no memory for it. */
int mixing_propose(proposal *p)
{
    const long rows = p->examples * p->channels;
    const size_t hidden_size = (size_t)rows * DECIDING;
    desk k = {.seen = zeroed((size_t)(rows * 3 * p->horizon), sizeof(float)),
              .one = zeroed(7 * hidden_size, sizeof(float)),
              .seen_at = evenly(rows, 3 * p->horizon),
              .hidden_at = evenly(rows, DECIDING)};
    const int ok = k.seen && k.one && k.seen_at && k.hidden_at;
    if (ok) {
        k.two = k.one + hidden_size, k.kept_one = k.two + hidden_size, k.kept_two = k.kept_one + hidden_size;
        k.by_one = k.kept_two + hidden_size, k.by_two = k.by_one + hidden_size, k.by_said = k.by_two + hidden_size;
        say(p, &k, look(p, &k));
        pull(p, &k);
    }
    free(k.seen), free(k.one), free(k.seen_at), free(k.hidden_at);
    return ok;
}

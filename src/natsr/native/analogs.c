#include "experts.h"

#include <math.h>

/* natsr.experts.analogs says what is done here, and why. */
enum { MOST_KEPT = 31, TILE = 512, SIDE = 8 };

INLINE double held(double x, double limit) { return x > limit ? limit : x < -limit ? -limit : x; }

/* The lags that are nearest, nearest first; of equals the latest. */
typedef struct {
    double far[MOST_KEPT];
    int64_t lag[MOST_KEPT], count;
} nearest;

INLINE void consider(nearest *n, int64_t most, int64_t lag, double far)
{
    if (n->count == most && !(far < n->far[most - 1]))
        return;
    int64_t i = n->count < most ? n->count++ : most - 1;
    for (; i > 0 && n->far[i - 1] > far; i--) {
        n->far[i] = n->far[i - 1];
        n->lag[i] = n->lag[i - 1];
    }
    n->far[i] = far;
    n->lag[i] = lag;
}

/* ---- a row has come: how far off is each lag? ------------------------------------------------------------------- */

/* `fade` what was, and add how far each of `count` rows, the oldest first, is from `now`; `per` numbers to a row. */
static void follow(double *restrict distance, const double *restrict rows, const double *restrict now, int64_t numbers,
                   int64_t per, double fade)
{
    for (int64_t first = 0; first < numbers; first += per) {
        const int64_t count = numbers - first < per ? numbers - first : per;
        for (int64_t i = 0; i < count; i++)
            distance[first + i] = fade * distance[first + i] + fabs(now[i] - rows[first + i]);
    }
}

/* The newest of `rows` again and again, so that it can be compared with many rows in one sweep; how many numbers. */
static int64_t tiled(const double *newest, int64_t channels, double *tile)
{
    const int64_t numbers = (channels < TILE ? TILE / channels : 1) * channels;
    for (int64_t i = 0; i < numbers; i++)
        tile[i] = newest[i % channels];
    return numbers;
}

void analogs_observe(const analogs *s, const past *p)
{
    const int64_t C = p->channels, N = s->lags;
    const double *newest = p->raw + (p->end - 1) * C;
    double *rows = s->work, *changes = rows + (N + 2) * C, *tile = changes + (N + 1) * C;
    for (int64_t i = 0; i < (N + 2) * C; i++)
        rows[i] = held(newest[i - (N + 1) * C], s->largest);
    for (int64_t i = 0; i < (N + 1) * C; i++)
        changes[i] = rows[i + C] - rows[i];
    for (int64_t k = 0; k < s->measures; k++) {
        const double *of = s->by_changes[k] ? changes : rows + C;
        const int64_t per = tiled(of + N * C, C, tile);
        follow(s->distance + k * N * C, of, tile, N * C, per, s->fade[k]);
    }
}

/* ---- what came after the rows that were like the last ones ------------------------------------------------------ */

/* Looks at lags from `low` to `high`: all, or those within `near` rows of a whole number of periods. */
static void look(nearest *found, const double *distance, int64_t stride, int64_t lags, int64_t low, int64_t high,
                 int64_t period, int64_t near, int64_t most)
{
    found->count = 0;
    if (period <= 2 * near + 1) {
        for (int64_t lag = low; lag <= high; lag++)
            consider(found, most, lag, distance[(lags - lag) * stride]);
        return;
    }
    for (int64_t whole = period; whole - near <= high; whole += period)
        for (int64_t lag = whole - near; lag <= whole + near; lag++)
            if (lag >= low && lag <= high)
                consider(found, most, lag, distance[(lags - lag) * stride]);
}

/* Sums over channels, each in units of its usual change; a channel that has never changed says nothing. */
static void together(const past *p, const double *distance, int64_t lags, double *sums)
{
    const int64_t C = p->channels;
    for (int64_t i = 0; i < lags; i++)
        sums[i] = 0;
    for (int64_t c = 0; c < C; c++) {
        const double unit = p->square[c] > 0 ? 1 / sqrt(p->square[c]) : 0.0;
        for (int64_t i = 0; i < lags; i++)
            sums[i] += unit * distance[i * C + c];
    }
}

/* Puts the numbers of `x` among `count` sorted ones; SIDE medians side by side, and no branch that could be guessed wrong. */
INLINE void put(double (*sorted)[SIDE], int64_t count, const double *x)
{
    for (int64_t i = 0; i < SIDE; i++)
        sorted[count][i] = x[i];
    for (int64_t place = count; place > 0; place--)
        for (int64_t i = 0; i < SIDE; i++) {
            const double low = sorted[place - 1][i], high = sorted[place][i];
            sorted[place - 1][i] = low < high ? low : high;
            sorted[place][i] = low < high ? high : low;
        }
}

/* The median over the lags that were found, for one channel; where the stream is now if there are none. */
static void median_after(const analogs *s, const past *p, const nearest *found, const double *moved, int64_t c,
                         double *out)
{
    const int64_t C = p->channels, count = found->count;
    const double *now = p->raw + (p->end - 1) * C + c;
    double sorted[MOST_KEPT][SIDE], x[SIDE] = {0};
    for (int64_t first = 0; first < s->horizon; first += SIDE) {
        const int64_t steps = s->horizon - first < SIDE ? s->horizon - first : SIDE;
        const double *begin = p->begin + first * C + c;
        for (int64_t i = 0; i < count; i++) {
            const double *then = now - found->lag[i] * C, *followed = then + (first + 1) * C, was = held(*then, s->largest);
            for (int64_t h = 0; h < steps; h++)
                x[h] = held(followed[h * C], s->largest) + moved[first + h] * (begin[h * C] - was);
            put(sorted, i, x);
        }
        for (int64_t h = 0; h < steps; h++) {
            const double upper = count ? sorted[count / 2][h] : begin[h * C];
            out[(first + h) * C + c] = count % 2 || count == 0 ? upper : 0.5 * (upper + sorted[count / 2 - 1][h]);
        }
    }
}

/* (kinds, H, C). */
void analogs_forecast(const analogs *s, const past *p, double *out)
{
    const int64_t C = p->channels, H = s->horizon, N = s->lags, high = p->seen - 1 < N ? p->seen - 1 : N;
    double *sums = s->work;
    for (int64_t k = 0; k < s->kinds; k++, out += H * C) {
        const double *distance = s->distance + s->measure[k] * N * C, *moved = s->moved + k * H;
        const int64_t period = *s->periods[k], near = s->near[k], most = s->count[k];
        nearest found;
        if (s->together[k]) {
            together(p, distance, N, sums);
            look(&found, sums, 1, N, H, high, period, near, most);
        }
        for (int64_t c = 0; c < C; c++) {
            if (!s->together[k])
                look(&found, distance + c, C, N, H, high, period, near, most);
            median_after(s, p, &found, moved, c, out);
        }
    }
}

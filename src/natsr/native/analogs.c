#include "experts.h"

#include <math.h>

/* natsr.experts.analogs says what is done here, and why. */
enum { MOST_KEPT = 31, TILE = 512, SIDE = 8 };

/* The lags that are nearest, nearest first; of equals the latest. */
typedef struct {
    double far[MOST_KEPT];
    int64_t lag[MOST_KEPT], count;
} nearest;

/* Room to work, for C channels: what a channel counts in units of, how far the last of its nearest is, the newest row
 * and change again and again; the rows and where forecasts begin, channel by channel; and the nearest. Analogs._address
 * makes it. */
typedef struct {
    double *units, *limit, *row, *change, *rows, *begin;
    nearest *found;
} room;

static room room_of(const analogs *s, int64_t C)
{
    const int64_t tile = C < TILE ? TILE : C;
    double *units = s->work, *row = units + 2 * C, *rows = row + 2 * tile, *begin = rows + (s->lags + 1) * C;
    return (room){units, units + C, row, row + tile, rows, begin, (nearest *)(begin + s->horizon * C)};
}

/* Puts a lag where it belongs, and says how far the last one is that is kept. */
static double consider(nearest *n, int64_t most, int64_t lag, double far)
{
    int64_t i = n->count < most ? n->count++ : most - 1;
    for (; i > 0 && n->far[i - 1] > far; i--) {
        n->far[i] = n->far[i - 1];
        n->lag[i] = n->lag[i - 1];
    }
    n->far[i] = far;
    n->lag[i] = lag;
    return n->count < most ? INFINITY : n->far[most - 1];
}

/* ---- a row has come: how far off is each lag? ------------------------------------------------------------------- */

void analogs_observe(const analogs *s, const past *p)
{
    const int64_t C = p->channels, N = s->lags, numbers = N * C, per = (C < TILE ? TILE / C : 1) * C;
    const double *newest = p->raw + (p->end - 1) * C, *rows = newest - numbers, largest = s->largest;
    const room r = room_of(s, C);
    double *restrict row = r.row, *restrict change = r.change;
    for (int64_t i = 0; i < per; i++) {
        row[i] = held(newest[i % C], largest);
        change[i] = row[i] - held(newest[i % C - C], largest);
    }
    for (int64_t k = 0; k < s->measures; k++) {
        double *restrict distance = s->distance + k * numbers;
        const double fade = s->fade[k];
        for (int64_t first = 0; first < numbers; first += per) {
            const int64_t count = numbers - first < per ? numbers - first : per;
            const double *restrict then = rows + first, *restrict before = then - C;
            double *restrict d = distance + first;
            if (s->by_changes[k])
                for (int64_t i = 0; i < count; i++)
                    d[i] = fade * d[i] + fabs(change[i] - (held(then[i], largest) - held(before[i], largest)));
            else
                for (int64_t i = 0; i < count; i++)
                    d[i] = fade * d[i] + fabs(row[i] - held(then[i], largest));
        }
    }
}

/* ---- what came after the rows that were like the last ones ------------------------------------------------------ */

/* One lag: for all channels together, or for each. */
INLINE void look_at(const room *r, const double *distance, int64_t C, int64_t lag, int64_t most, int together)
{
    if (together) {
        double sum = 0;
        for (int64_t c = 0; c < C; c++)
            sum += r->units[c] * distance[c];
        if (sum < r->limit[0])
            r->limit[0] = consider(r->found, most, lag, sum);
        return;
    }
    for (int64_t c = 0; c < C; c++)
        if (distance[c] < r->limit[c])
            r->limit[c] = consider(r->found + c, most, lag, distance[c]);
}

/* Looks at lags from `low` to `high`: all, or those within `near` rows of a whole number of periods. */
static void look(const analogs *s, const room *r, int64_t C, int64_t k, int64_t low, int64_t high)
{
    const int64_t period = *s->periods[k], near = s->near[k], most = s->count[k], N = s->lags;
    const int together = s->together[k] != 0;
    const double *distance = s->distance + s->measure[k] * N * C;
    for (int64_t c = 0; c < (together ? 1 : C); c++) {
        r->found[c].count = 0;
        r->limit[c] = INFINITY;
    }
    if (period <= 2 * near + 1) {
        for (int64_t lag = low; lag <= high; lag++)
            look_at(r, distance + (N - lag) * C, C, lag, most, together);
        return;
    }
    for (int64_t whole = period; whole - near <= high; whole += period)
        for (int64_t lag = whole - near; lag <= whole + near; lag++)
            if (lag >= low && lag <= high)
                look_at(r, distance + (N - lag) * C, C, lag, most, together);
}

/* The larger and the smaller of two, SIDE of them side by side, and no branch to be guessed wrong. */
typedef double some __attribute__((vector_size(SIDE * sizeof(double)), aligned(8)));
typedef int64_t bits __attribute__((vector_size(SIDE * sizeof(double)), aligned(8)));

INLINE some either(bits first, some a, some b) { return (some)((first & (bits)a) | (~first & (bits)b)); }

/* Puts the numbers of `x` among `count` sorted ones. */
INLINE void put(some *sorted, int64_t count, some x)
{
    for (int64_t place = count; place > 0; place--) {
        const some low = sorted[place - 1];
        const bits less = low < x;
        sorted[place] = either(less, x, low);
        x = either(less, low, x);
    }
    sorted[0] = x;
}

/* Everything that `median_after` reads, channel by channel: what followed a row lies side by side then. */
static void turn(const analogs *s, const past *p, const room *r)
{
    const int64_t C = p->channels, rows = s->lags + 1, H = s->horizon;
    const double *first = p->raw + (p->end - rows) * C;
    for (int64_t i = 0; i < rows; i++)
        for (int64_t c = 0; c < C; c++)
            r->rows[c * rows + i] = held(first[i * C + c], s->largest);
    for (int64_t h = 0; h < H; h++)
        for (int64_t c = 0; c < C; c++)
            r->begin[c * H + h] = p->begin[h * C + c];
}

/* The median over the lags that were found, for one channel; where the stream is now if there are none. */
static void median_after(const analogs *s, const room *r, const nearest *found, const double *moved, int64_t c,
                         int64_t C, double *out)
{
    const int64_t count = found->count, N = s->lags;
    const double *now = r->rows + c * (N + 1) + N;
    some sorted[MOST_KEPT];
    for (int64_t first = 0; first < s->horizon; first += SIDE) {
        const int64_t steps = s->horizon - first < SIDE ? s->horizon - first : SIDE;
        const double *begin = r->begin + c * s->horizon + first;
        for (int64_t i = 0; i < count; i++) {
            const double *then = now - found->lag[i], *followed = then + first + 1, was = *then;
            some x = {0};
            for (int64_t h = 0; h < steps; h++)
                x[h] = followed[h] + moved[first + h] * (begin[h] - was);
            put(sorted, i, x);
        }
        for (int64_t h = 0; h < steps; h++) {
            const double upper = count ? sorted[count / 2][h] : begin[h];
            out[(first + h) * C + c] = count % 2 || count == 0 ? upper : 0.5 * (upper + sorted[count / 2 - 1][h]);
        }
    }
}

/* (kinds, H, C). */
void analogs_forecast(const analogs *s, const past *p, double *out)
{
    const int64_t C = p->channels, H = s->horizon, high = p->seen - 1 < s->lags ? p->seen - 1 : s->lags;
    const room r = room_of(s, C);
    for (int64_t c = 0; c < C; c++) /* a channel that has never changed says nothing of the others */
        r.units[c] = p->square[c] > 0 ? 1 / sqrt(p->square[c]) : 0.0;
    turn(s, p, &r);
    for (int64_t k = 0; k < s->kinds; k++, out += H * C) {
        look(s, &r, C, k, H, high);
        for (int64_t c = 0; c < C; c++)
            median_after(s, &r, r.found + (s->together[k] ? 0 : c), s->moved + k * H, c, C, out);
    }
}

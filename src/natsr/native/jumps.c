#include "experts.h"

#include <math.h>

/* natsr.experts.jumps says what is done here, and why; the numbers are its own. */
static const int64_t AROUND = 31, FOR_GOOD = 72;
static const double NEARLY = 0.25, CENTRAL = 1.0 / 3, DRIFTING = 0.3, TAKEN_BACK = -0.3, HOPE = 0.5, SURE = 2.0;

INLINE double *even_at(const past *p, int64_t back, int64_t c) { return p->even + (p->end - back) * p->channels + c; }

/* The value that would stand in the middle of `count` if they were sorted: Hoare's selection, in place. */
double middle_of(double *x, int64_t count)
{
    int64_t low = 0, high = count - 1;
    const int64_t place = count / 2;
    while (low < high) {
        const double pivot = x[low + (high - low) / 2];
        int64_t i = low, j = high;
        while (i <= j) {
            while (x[i] < pivot)
                i++;
            while (x[j] > pivot)
                j--;
            if (i <= j) {
                const double kept = x[i];
                x[i++] = x[j];
                x[j--] = kept;
            }
        }
        if (place <= j)
            high = j;
        else if (place >= i)
            low = i;
        else
            break;
    }
    return x[place];
}

static double median(const past *p, int64_t c, int64_t rows)
{
    for (int64_t i = 0; i < rows; i++)
        p->sorted[i] = *even_at(p, 1 + i, c);
    return middle_of(p->sorted, rows);
}

static int drifts(const past *p, int64_t c) { return fabs(p->drift[c]) >= DRIFTING * sqrt(p->calm[c]); }

/* Whether a change beyond all that is usual leads back to where the stream is at home. */
static int comes_home(const past *p, int64_t c, double x, double before)
{
    const int64_t rows = p->seen < p->keep ? p->seen : p->keep;
    if (fabs(x - median(p, c, AROUND < rows ? AROUND : rows)) <= NEARLY * fabs(x - before))
        return 1;
    if (drifts(p, c))
        return 0;
    const double centre = median(p, c, rows);
    return fabs(x - centre) <= CENTRAL * fabs(before - centre);
}

static void leave(past *p, int64_t c, double x, double before)
{
    const int64_t rows = p->seen < p->keep ? p->seen : p->keep;
    p->jump[c] = x - before;
    p->age[c] = p->away[c] = 1;
    p->start[c] = p->low[c] = p->high[c] = before;
    for (int64_t i = 1; i <= rows; i++) {
        const double value = *even_at(p, i, c);
        p->low[c] = value < p->low[c] ? value : p->low[c];
        p->high[c] = value > p->high[c] ? value : p->high[c];
    }
}

static void remember(past *p, int64_t c, int64_t rows)
{
    p->lasted[p->ended[c] % p->memory * p->channels + c] = rows;
    p->ended[c]++;
}

/* The excursion is over. */
static void settle(past *p, int64_t c, int64_t lasted)
{
    remember(p, c, lasted);
    p->age[c] = p->away[c] = 0;
    p->jump[c] = 0;
}

/* The next value without jumps. */
static double without(past *p, int64_t c, double x, double limit)
{
    const double before = *even_at(p, 1, c), jump = p->jump[c], on = fabs(x - jump - before), back = fabs(x - before);
    if (p->age[c] == 0) {
        if (on <= limit || comes_home(p, c, x, before))
            return x;
        leave(p, c, x, before);
        return before;
    }
    if (back < on && back <= fmax(limit, NEARLY * fabs(jump))) {
        settle(p, c, p->age[c]);
        return x;
    }
    if (on > limit) {
        remember(p, c, p->age[c]);
        p->age[c] = 1;
        p->away[c]++;
        p->jump[c] = x - before;
        return before;
    }
    const double now = x - jump;
    const int64_t rows = p->away[c] < p->keep - 1 ? p->away[c] : p->keep - 1;
    if (fabs(x - p->start[c]) < NEARLY * fabs(jump) && (now < p->low[c] || now > p->high[c])) {
        for (int64_t i = 1; i <= rows; i++)
            *even_at(p, i, c) = p->start[c];
        settle(p, c, p->age[c]);
        return x;
    }
    if (++p->age[c] > FOR_GOOD) {
        settle(p, c, INT32_MAX);
        if (!drifts(p, c)) {
            p->offset[c] += jump;
            return now;
        }
        for (int64_t i = 1; i <= p->keep; i++)
            *even_at(p, i, c) += jump;
        p->shift[c] = jump;
        return x;
    }
    p->away[c]++;
    return now;
}

/* Take the next value; `most` is the largest change that is not beyond all that is usual, `rate` the newest's weight,
 * from `far` times `most` on a change is wild beyond all bounds and counts as `tame` times it. */
void jumps_follow(past *p, int64_t c, double x, int known, double most, double rate, double far, double tame)
{
    const double before = *even_at(p, 1, c), earlier = before - *even_at(p, 2, c);
    x -= p->offset[c];
    const double moved = known ? x - p->jump[c] - before : 0.0, change = held(moved, most);
    const double counted = fabs(moved) > far * most ? tame * change : change;
    p->shift[c] = 0;
    p->away[c] += !known && p->age[c] > 0;
    *even_at(p, 0, c) = known ? without(p, c, x, most) : before;
    p->calm[c] += rate * (counted * counted - p->calm[c]);
    p->cross[c] += rate * (counted * earlier - p->cross[c]);
    if (fabs(change) < most)
        p->drift[c] += rate * (change - p->drift[c]);
}

/* Where forecasts begin: with or without the jump, as those before it lasted longer or not, more often. */
void jumps_lift(past *p, int64_t c, double raw, double clean, double base)
{
    const int64_t C = p->channels, age = p->age[c], count = p->ended[c] < p->memory ? p->ended[c] : p->memory;
    const double first = p->cross[c] > TAKEN_BACK * p->calm[c] ? HOPE : -HOPE;
    for (int64_t h = 0; h < p->horizon; h++) {
        double stays = age < 2 ? first : h < age ? SURE : HOPE;
        for (int64_t k = 0; age > 0 && k < count; k++) {
            const int64_t rows = p->lasted[k * C + c];
            stays += rows < age ? 0.0 : rows < age + 1 + h ? -1.0 : 1.0;
        }
        p->stays[h * C + c] = stays >= 0 && age > 0;
        p->lift[h * C + c] = p->offset[c] + (stays >= 0 ? p->jump[c] : 0.0);
        p->begin[h * C + c] = age == 0 ? base : stays >= 0 ? raw : clean;
    }
}

#include "experts.h"

#include <math.h>
#include <string.h>

INLINE double larger(double a, double b) { return a > b ? a : b; }

/* ---- rows ------------------------------------------------------------------------------------------------------- */

static void first_row(past *p, const double *row, double largest)
{
    for (int64_t i = 0; i < p->end * p->channels; i++) {
        const double value = row[i % p->channels], first = isfinite(value) ? value : 0.0;
        p->raw[i] = first;
        p->clean[i] = p->even[i] = held(first, largest);
    }
}

static void to_the_front(past *p)
{
    const size_t half = (size_t)(p->keep * p->channels);
    memcpy(p->raw, p->raw + half, half * sizeof(double));
    memcpy(p->clean, p->clean + half, half * sizeof(double));
    memcpy(p->even, p->even + half, half * sizeof(double));
    memcpy(p->known, p->known + half, half);
    memcpy(p->swing, p->swing + half, half * sizeof(double));
    p->end = p->keep;
}

/* Where changes that are forecast begin: see natsr.experts.past. */
INLINE double base_of(const double *raw, double clean, double square, int known, double before, double wild, double largest)
{
    const double usual = sqrt(square), now = held(*raw, largest);
    return known && fabs(now - clean) > usual && fabs(now - held(before, largest)) <= wild * usual ? now : clean;
}

/* Take the next row: gaps filled from the row before, changes held to what is usual. */
void past_push(past *p, double wild, double young, double rate, double largest, double far, double tame, double lasting)
{
    const int64_t C = p->channels;
    const double *row = p->row;
    if (p->seen == 0)
        first_row(p, row, largest);
    else if (p->end == 2 * p->keep)
        to_the_front(p);
    double *raw = p->raw + p->end * C, *clean = p->clean + p->end * C, *swing = p->swing + p->end * C;
    for (int64_t c = 0; c < C; c++) {
        const int known = isfinite(row[c]) != 0, fresh = p->changes[c] < young;
        raw[c] = known ? row[c] : raw[c - C];
        p->known[p->end * C + c] = (uint8_t)known;
        const double now = held(raw[c], largest), limit = fresh ? INFINITY : wild * sqrt(p->square[c]);
        const double most = fresh ? INFINITY : wild * sqrt(p->calm[c]), change = held(now - clean[c - C], limit);
        p->changes[c] += change != 0 || p->changes[c] > 0;
        const double part = larger(rate, 1 / larger(p->changes[c], 1));
        const int stray = fabs(now - clean[c - C]) > far * limit;
        const double strays = stray ? p->strays[c] + 1 : p->strays[c]; /* also of a row that comes back */
        p->strays[c] = stray ? strays : 0;
        const double counted = strays > 0 && strays < lasting ? tame * change : change;
        p->square[c] += part * (counted * counted - p->square[c]);
        clean[c] = clean[c - C] + change;
        swing[c] = swing[c - C];
        jumps_follow(p, c, now, known, most, part, far, tame);
        jumps_lift(p, c, now, clean[c], base_of(raw + c, clean[c], p->square[c], known, raw[c - C], wild, largest));
    }
    p->end++, p->seen++;
}

/* ---- values and means of the past ------------------------------------------------------------------------------- */

/* (3, H, C): the value one period before, its mean over several, as many as are kept, the last value moved as then. */
void seasonal_forecast(const seasonal *s, const past *p, double *out)
{
    const int64_t C = p->channels, H = s->horizon, period = *s->period, each = H * C;
    const int64_t whole = p->keep / period, most = whole > 1 ? whole : 1, cycles = s->cycles < most ? s->cycles : most;
    const double *newest = p->raw + (p->end - 1) * C;
    for (int64_t h = 0; h < H; h++) {
        const int64_t place = h % period;
        const double *then = p->raw + (p->end - period + place) * C, fade = exp2(-(double)h / (double)period);
        const double *cycle = p->clean + (p->end - cycles * period + place) * C;
        for (int64_t c = 0; c < C; c++) {
            double sum = 0, *to = out + h * C + c;
            for (int64_t k = 0; k < cycles; k++)
                sum += cycle[k * period * C + c];
            to[0] = then[c];
            to[each] = sum / (double)cycles;
            to[2 * each] = then[c] + fade * (newest[c] - newest[c - period * C]);
        }
    }
}

void means_move(const means *s, const past *p)
{
    const int64_t C = p->channels;
    const double *row = p->clean + (p->end - 1) * C;
    const uint8_t *known = p->known + (p->end - 1) * C;
    for (int64_t c = 0; c < C; c++) {
        if (!known[c])
            continue;
        s->count[c] += 1;
        for (int64_t k = 0; k < s->kinds; k++) {
            double *mean = s->mean + k * C + c;
            *mean += larger(s->rates[k], 1 / larger(s->count[c], 1)) * (row[c] - *mean);
        }
    }
}

void means_forecast(const means *s, const past *p, double *out)
{
    const int64_t C = p->channels;
    for (int64_t k = 0; k < s->kinds; k++)
        for (int64_t h = 0; h < p->horizon; h++, out += C)
            memcpy(out, s->mean + k * C, (size_t)C * sizeof(double));
}

/* (kinds, H, C): the medians of the last rows, as many as there are. */
void medians_forecast(const medians *s, const past *p, double *out)
{
    const int64_t C = p->channels, each = p->horizon * C;
    for (int64_t k = 0; k < s->kinds; k++, out += each) {
        const int64_t count = s->rows[k] < p->seen ? s->rows[k] : p->seen;
        for (int64_t c = 0; c < C; c++) {
            for (int64_t i = 0; i < count; i++)
                p->sorted[i] = p->raw[(p->end - 1 - i) * C + c];
            out[c] = middle_of(p->sorted, count);
        }
        for (int64_t h = 1; h < p->horizon; h++)
            memcpy(out + h * C, out, (size_t)C * sizeof(double));
    }
}

/* ---- level, damped trend and season ----------------------------------------------------------------------------- */

/* Move everything by the score of the newest row. */
void smooth_move(const smooth *s, const past *p)
{
    const int64_t C = p->channels, S = s->kinds, period = s->current[0], phase = s->current[1];
    const double *row = (s->even ? p->even : p->clean) + (p->end - 1) * C;
    const uint8_t *known = p->known + (p->end - 1) * C;
    s->current[1] = (phase + 1) % period;
    for (int64_t c = 0; c < C; c++) {
        const int started = s->count[c] > 0;
        const double was = s->count[c] += known[c], seen = s->rows[phase * C + c] += known[c];
        const double least_rate = 1 / larger(was, 1), rate = known[c] ? larger(0.01, least_rate) : 0.0;
        for (int64_t k = 0; k < S; k++) {
            const int64_t i = k * C + c;
            double *season = s->season + (phase * S + k) * C + c;
            s->level[i] += s->even ? p->shift[c] : 0.0;
            const double slope = s->phi[k] * s->trend[i], before = started ? s->level[i] + slope : row[c] - *season;
            const double error = known[c] && started ? row[c] - before - *season : 0.0;
            const double score = error * (s->dof[k] + 1) / (s->dof[k] + error * error / s->variance[i]);
            const double alpha = larger(s->alpha[k], least_rate), gamma = larger(s->gamma[k], 0.5 / larger(seen, 1));
            s->variance[i] += rate * (larger(score * error, 1e-12) - s->variance[i]);
            s->level[i] = before + alpha * score;
            s->trend[i] = slope + alpha * s->beta[k] * score;
            if (period > 1)
                *season += gamma * (1 - alpha) * score;
        }
    }
}

void smooth_forecast(const smooth *s, const past *p, double *out)
{
    const int64_t C = p->channels, H = s->horizon, S = s->kinds, period = s->current[0];
    int64_t phase = s->current[1];
    for (int64_t h = 0; h < H; h++) {
        for (int64_t k = 0; k < S; k++) {
            const double *season = s->season + (phase * S + k) * C, sum = s->sums[k * H + h];
            double *to = out + (k * H + h) * C;
            for (int64_t c = 0; c < C; c++)
                to[c] = season[c] + s->level[k * C + c] + sum * s->trend[k * C + c] + (s->even ? p->lift[h * C + c] : 0.0);
        }
        phase = phase + 1 == period ? 0 : phase + 1;
    }
}

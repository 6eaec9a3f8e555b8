#include "experts.h"

#include <math.h>

/* natsr.experts.ledger says what is done here, and why. */

INLINE double apart(double a, double b, double most)
{
    const double far = fabs(a - b);
    return far < most ? far : most;
}

/* Whether a value, `back` rows before the newest, is wild beyond all bounds. */
int is_wild(const blending *m, const past *p, int64_t back, int64_t c)
{
    const int64_t at = (p->end - 1 - back) * p->channels + c;
    return fabs(p->raw[at] - p->clean[at]) > m->bank_far * sqrt(p->square[c]);
}

static int young(const blending *m, const past *p) { return (double)p->seen <= m->bank_young + (double)m->horizon; }

/* 1 for a column that stands still in the main, 0 for one that moves. */
static double stillness(const blending *m, int64_t c)
{
    const int64_t C = m->channels;
    const double count = m->moves[c], total = m->moves[C + c], roots = m->moves[2 * C + c];
    const double index = roots * roots / (total > 0 ? count * total : 1.0);
    const double still = (m->bank_moving - index) / (m->bank_moving - m->bank_still);
    return still < 0 ? 0 : still > 1 ? 1 : still;
}

/* What the nearest steps have brought, of late: the sum, and the squares after so many numbers. */
static void bring(const blending *m, double *brought, int64_t after, double newest)
{
    brought[0] = m->bank_memory * brought[0] + newest;
    brought[after] = m->bank_memory * m->bank_memory * brought[after] + newest * newest;
}

/* What each step of what was forecast of the newest row has brought. */
void ledger_take(const blending *m, const past *p, const float *mixed, const double *given, const double *truth)
{
    const int64_t H = m->horizon, C = m->channels;
    for (int64_t c = 0; c < C; c++) {
        const double change = apart(truth[c], p->raw[(p->end - 2) * C + c], m->largest);
        const int known = truth[c] == truth[c] && !is_wild(m, p, 0, c) && !is_wild(m, p, 1, c);
        m->moves[c] += known;
        m->moves[C + c] += known ? change : 0.0;
        m->moves[2 * C + c] += known ? sqrt(change) : 0.0;
    }
    double *gained = m->work + 3 * H * C, *near = gained + C, together = 0; /* with this row, (C), and in all */
    for (int64_t c = 0; c < C; c++)
        gained[c] = near[c] = 0;
    for (int64_t h = 0; h < H; h++) {
        const double *last = p->raw + (p->end - 2 - h) * C;
        for (int64_t c = 0; c < C; c++) {
            const int64_t i = h * C + c;
            if (truth[i] != truth[i] || is_wild(m, p, 0, c) || is_wild(m, p, 1 + h, c))
                continue;
            const double lost = apart(truth[i], last[c], m->largest);
            m->lost[c] += lost;
            if (fabs((double)mixed[i] - last[c]) <= m->bank_far * sqrt(p->square[c])) {
                const double more = lost - apart(truth[i], (double)mixed[i], m->largest);
                gained[c] += more;
                near[c] += h < m->nearest ? more : 0;
            }
            if ((double)(p->seen - 1 - h) > m->bank_young + (double)H) /* and its stake was not free */
                m->earned[c] += lost - apart(truth[i], given[i], m->largest);
        }
    }
    for (int64_t c = 0; c < C; c++) {
        m->gained_of[c] += gained[c];
        m->squares[c] += gained[c] * gained[c];
        const double usual = m->lost[c] / (double)p->seen;
        together += usual > 0 ? near[c] / usual : 0;
        bring(m, m->nears + c, C, near[c]);
    }
    bring(m, m->shared, 1, together);
}

/* 0 up to the first end, 1 from the second on. */
INLINE double ramp(double value, const double *ends)
{
    const double share = (value - ends[0]) / (ends[1] - ends[0]);
    return share < 0 ? 0 : share > 1 ? 1 : share;
}

/* How many standard deviations that is where rows come in runs. */
static double deviations(const blending *m, double gained, double squares, int64_t run)
{
    const double deviation = sqrt((double)run * squares);
    return gained / (deviation > m->bank_least ? deviation : m->bank_least);
}

/* How far it is no chance that so much would have been gained. */
static double sure(const blending *m, int64_t c, double shared, double runs)
{
    const double near = deviations(m, m->nears[c], m->nears[m->channels + c], m->nearest);
    const double alone = ramp(near, m->bank_sure), beside = shared * ramp(near, m->bank_beside);
    const double all = ramp(deviations(m, m->gained_of[c], m->squares[c], m->horizon), m->bank_long);
    const double far = ramp(runs, m->bank_runs) * all;
    const double most = alone > beside ? alone : beside;
    return most > far ? most : far;
}

/* What may be staked beside what is there. */
static double lent(const blending *m, int64_t c, double still, double shared, double runs)
{
    const double gained = m->gained_of[c] > 0 ? m->gained_of[c] : 0.0;
    const double clear = ramp(gained / (m->lost[c] > 0 ? m->lost[c] : 1.0), m->bank_clear);
    return sure(m, c, shared, runs) * ((1 - still) * clear * m->bank_trust + still * (double)(m->horizon - 1)) * gained;
}

/* What is out, column by column: the steps that have not come of each origin before the newest. */
static void staked(const blending *m, const past *p, double *restrict sums)
{
    const int64_t H = m->horizon, C = m->channels;
    const double largest = m->largest;
    for (int64_t c = 0; c < C; c++)
        sums[c] = 0;
    for (int64_t ago = 1; ago < H; ago++) {
        const double *given = m->guarded + ((p->seen - 1 - ago) % m->slots * H + ago) * C;
        const double *last = p->raw + (p->end - 1 - ago) * C;
        for (int64_t c = 0; c < C; c++)
            if (!is_wild(m, p, ago, c))
                for (int64_t h = ago; h < H; h++)
                    sums[c] += apart(given[(h - ago) * C + c], last[c], largest);
    }
}

/* How much of the way from the last value to where the guard would go, `guarded`, can be paid for. */
void ledger_stake(const blending *m, const past *p, const double *guarded)
{
    const int64_t H = m->horizon, C = m->channels;
    const double *last = p->raw + (p->end - 1) * C;
    double *out = m->work, *total = out + C;
    for (int64_t c = 0; c < C; c++) {
        const double far = m->bank_far * sqrt(p->square[c]), kept = m->bank_fade * m->peak[c];
        const int64_t counted = is_wild(m, p, 0, c) ? 0 : H;
        double tame = 0;
        total[c] = 0;
        for (int64_t h = 0; h < counted; h++) {
            const double away = apart(guarded[h * C + c], last[c], m->largest);
            total[c] += away;
            tame += away < far ? away : far;
        }
        m->peak[c] = tame > kept ? tame : kept;
        m->free[c] = 1;
    }
    if (young(m, p))
        return;
    staked(m, p, out);
    const double shared = ramp(deviations(m, m->shared[0], m->shared[1], m->nearest), m->bank_shared);
    const double runs = (double)p->seen / (double)H;
    for (int64_t c = 0; c < C; c++) {
        const double still = stillness(m, c), usual = m->lost[c] / (double)p->seen;
        const double own = m->bank_allowed * m->lost[c] + m->bank_start * usual + m->earned[c];
        const double bank = own + lent(m, c, still, shared, runs) - out[c];
        const double most = total[c] > m->peak[c] ? total[c] : m->peak[c];
        const double free = most <= bank ? 1.0 : bank > 0 ? bank / most : 0.0;
        m->free[c] = is_wild(m, p, 0, c) ? 1.0 : free;
    }
}

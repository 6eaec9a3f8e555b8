#include "experts.h"

#include <math.h>

/* natsr.experts.ledger says what is done here, and why. */

INLINE double apart(double a, double b, double most)
{
    const double far = fabs(a - b);
    return far < most ? far : most;
}

static int young(const blending *m, const past *p) { return (double)p->seen <= m->bank_young + (double)m->horizon; }

/* What each step of what was forecast of the newest row has brought. */
void ledger_take(const blending *m, const past *p, const float *mixed, const double *given, const double *truth)
{
    const int64_t H = m->horizon, C = m->channels;
    const int counts = !young(m, p);
    for (int64_t h = 0; h < H; h++) {
        const double *last = p->raw + (p->end - 2 - h) * C;
        for (int64_t c = 0; c < C; c++) {
            const int64_t i = h * C + c;
            if (truth[i] != truth[i])
                continue;
            const double lost = apart(truth[i], last[c], m->largest);
            m->lost[c] += lost;
            m->gained_of[c] += lost - apart(truth[i], (double)mixed[i], m->largest);
            m->earned[c] += counts ? lost - apart(truth[i], given[i], m->largest) : 0.0;
        }
    }
}

/* What is out: the steps that have not come of each origin before the newest. */
static double staked(const blending *m, const past *p, int64_t c)
{
    const int64_t H = m->horizon, C = m->channels;
    double sum = 0;
    for (int64_t ago = 1; ago < H; ago++) {
        const double *given = m->guarded + (p->seen - 1 - ago) % m->slots * H * C + c, last = p->raw[(p->end - 1 - ago) * C + c];
        for (int64_t h = ago; h < H; h++)
            sum += apart(given[h * C], last, m->largest);
    }
    return sum;
}

/* How much of the way from the last value to where the guard would go, `guarded`, can be paid for. */
void ledger_stake(const blending *m, const past *p, const double *guarded)
{
    const int64_t H = m->horizon, C = m->channels;
    const double *last = p->raw + (p->end - 1) * C;
    for (int64_t c = 0; c < C; c++) {
        double total = 0;
        for (int64_t h = 0; h < H; h++)
            total += apart(guarded[h * C + c], last[c], m->largest);
        const double kept = m->bank_fade * m->peak[c], most = m->peak[c] = total > kept ? total : kept;
        m->free[c] = 1;
        if (young(m, p) || most == 0)
            continue;
        const double paper = m->gained_of[c] > 0 ? m->bank_believed * m->gained_of[c] : 0.0;
        const double own = (m->bank_allowed + m->bank_start / (double)p->seen) * m->lost[c] + m->earned[c];
        const double bank = own + paper - staked(m, p, c);
        if (most > bank)
            m->free[c] = bank > 0 ? bank / most : 0.0;
    }
}

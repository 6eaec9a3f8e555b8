#include "experts.h"

#include <math.h>
#include <string.h>

/* ---- a row of all experts --------------------------------------------------------------------------------------- */

static void last_value(const past *p, double *out)
{
    const int64_t C = p->channels;
    for (int64_t h = 0; h < p->horizon; h++)
        memcpy(out + h * C, p->raw + (p->end - 1) * C, (size_t)C * sizeof(double));
}

/* Each learns from the newest row, and forecasts from it. */
void groups_run(const group *groups, int64_t count, const past *p)
{
    for (const group *g = groups; g < groups + count; g++)
        switch ((enum kind)g->kind) {
        case LAST_VALUE:
            last_value(p, g->out);
            break;
        case SEASONAL:
            seasonal_forecast(g->of, p, g->out);
            break;
        case MEANS:
            means_move(g->of, p);
            means_forecast(g->of, p, g->out);
            break;
        case MEDIANS:
            medians_forecast(g->of, p, g->out);
            break;
        case ANALOGS:
            analogs_observe(g->of, p);
            analogs_forecast(g->of, p, g->out);
            break;
        case SMOOTH:
            smooth_move(g->of, p);
            smooth_forecast(g->of, p, g->out);
            break;
        case LEAST_SQUARES:
            rls_observe(g->of, p);
            rls_forecast(g->of, p, g->out);
            break;
        }
}

/* ---- how far each channel swings: natsr.experts.swing says what is done here, and why; the numbers are its own --- */

static const int64_t SPAN = 24;
static const double BAND = 1.5, WILD = 3.0, ROWS = 1000, YOUNG = 7, FOLLOWED = 4, MOST = 10.0, STILL = 1e-3;

/* The mean distance of a channel's last rows from their median, and the mean change, each row held to a limit. */
static void found_in(const past *p, int64_t c, int64_t span, const double limit[2], double found[2])
{
    const int64_t C = p->channels;
    const double *rows = p->clean + (p->end - span) * C + c;
    for (int64_t i = 0; i < span; i++)
        p->sorted[i] = rows[i * C];
    const double middle = middle_of(p->sorted, span);
    found[0] = found[1] = 0;
    for (int64_t i = 0; i < span; i++) {
        found[0] += fmin(fabs(rows[i * C] - middle), limit[0]);
        found[1] += i ? fmin(fabs(rows[i * C] - rows[(i - 1) * C]), limit[1]) : 0.0;
    }
    found[0] /= (double)span;
    found[1] /= (double)(span - 1);
}

void swing_look(const swings *s, const past *p)
{
    const int64_t C = p->channels, season = *s->period, span = season * ((SPAN + season - 1) / season);
    if (season < 2 || p->seen < span)
        return;
    double *swing = p->swing + (p->end - 1) * C;
    const uint8_t *known = p->known + (p->end - 1) * C;
    for (int64_t c = 0; c < C; c++) {
        double *usual[2] = {s->usual + c, s->usual + C + c}, found[2];
        const double limit[2] = {*usual[0] > 0 ? WILD * *usual[0] : INFINITY, *usual[1] > 0 ? WILD * *usual[1] : INFINITY};
        found_in(p, c, span, limit, found);
        if (!known[c] || found[0] <= STILL || found[1] <= STILL)
            continue;
        for (int k = 0; k < 2; k++)
            *usual[k] = *usual[k] == 0 ? found[k] : *usual[k];
        const int more = found[0] > BAND * *usual[0] && found[1] > BAND * *usual[1];
        const int other = more || (*usual[0] > BAND * found[0] && *usual[1] > BAND * found[1]);
        const double followed = FOLLOWED * (double)span;
        const int stays = (s->since[c] > followed || s->unit[c] == 0) && (double)p->seen > YOUNG * (double)span;
        if (other && stays && swing[c] > 1 / MOST && swing[c] < MOST)
            s->unit[c] = *usual[0] / swing[c];
        s->since[c] = other ? 0 : s->since[c] + 1;
        for (int k = 0; k < 2; k++)
            *usual[k] += (found[k] - *usual[k]) / fmin(fmax(s->since[c] - (double)span, 1), ROWS);
        if (s->unit[c] > 0 && s->since[c] <= followed)
            swing[c] = fmin(fmax(*usual[0] / s->unit[c], 1 / MOST), MOST);
    }
}

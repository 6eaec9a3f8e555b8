#include "experts.h"

#include <math.h>
#include <string.h>

static const double WILD = 20.0, SIZE_RATE = 0.005, YOUNG = 20, TINY = 1e-30; /* as in natsr.experts.least_squares */
static const double LOOSER = 4.0;                                             /* as in natsr.experts.turn */
static const int64_t WINDOW = 60, HURRIED = 4, AGE = 40;

int64_t wave_count(const waves *x)
{
    int64_t count = 0;
    for (int64_t kind = 0; kind < x->kinds; kind++)
        count += 2 * x->harmonics[kind];
    return count;
}

/* Sines and cosines of the number of a row; zero where a period is too short for a harmonic. */
void waves_of(const waves *x, double row, double *to)
{
    for (int64_t kind = 0; kind < x->kinds; kind++) {
        const double length = (double)*x->periods[kind];
        const int64_t count = x->harmonics[kind];
        for (int64_t i = 0; i < count; i++) {
            const double number = (double)(i + 1), angle = 2 * M_PI / length * fmod(row * number, length);
            to[i] = 2 * number < length ? sin(angle) : 0.0;
            to[count + i] = 2 * number < length ? cos(angle) : 0.0;
        }
        to += 2 * count;
    }
}

/* What the waves of an origin are multiplied by; channels that share a regressor, by the mean. */
static double swing_of(const rls *s, const past *p, int64_t group, int64_t back)
{
    const double *swing = p->swing + (p->end - 1 - back) * p->channels;
    if (!s->shared)
        return swing[group];
    double sum = 0;
    for (int64_t c = 0; c < p->channels; c++)
        sum += swing[c];
    return sum / (double)p->channels;
}

static const double *rows_of(const rls *s, const past *p) { return s->even ? p->even : p->clean; }

/* The regressor of one group at the origin that lies `back` rows before the newest. */
static void regressor(const rls *s, const past *p, int64_t group, int64_t back, const double *waves, int64_t wide,
                      double *to)
{
    const columns *x = &s->x;
    const double *origin = rows_of(s, p) + (p->end - 1 - back) * p->channels, swing = wide > 0 ? swing_of(s, p, group, back) : 1;
    const int32_t *plus = x->plus + group * s->size, *minus = x->minus + group * s->size;
    for (int64_t i = 0; i < s->size; i++)
        to[i] = origin[plus[i]] - x->sign[i] * origin[minus[i]];
    to[x->one] = 1.0;
    for (int64_t i = 0; i < wide; i++)
        to[x->at + i] = swing * waves[i];
}

/* ---- a block of rows -------------------------------------------------------------------------------------------- */

typedef struct {
    double *half, *moved;                        /* (k, n), (k, m) */
    double *x, *turned, *inner, *beside, *waves; /* (k, n), (n, k), (k, k) */
    double *limit, *wild, *lift, *size, *seen, *label, *known; /* (m) each */
} parts;

static int64_t share(const rls *s, int64_t rows, double *work, parts *to)
{
    const int64_t n = whole(s->size), m = whole(s->heads * s->outputs), k = whole(rows), longest = n > k ? n : k;
    int64_t at = 0;
    double *p;
#define PART(name, count) p = work ? work + at : NULL, at += (count), to->name = p
    PART(half, rows * n), PART(moved, rows * m);
    PART(x, rows * n), PART(turned, n * k), PART(inner, rows * k), PART(beside, longest * DL);
    PART(waves, rows * whole(wave_count(&s->x.calendar)));
    PART(limit, m), PART(wild, m), PART(lift, m), PART(size, m), PART(seen, m), PART(label, m), PART(known, m);
#undef PART
    return at;
}

/* Numbers that the work needs for a block of so many rows. */
int64_t rls_room(const rls *s, int64_t rows)
{
    parts unused;
    return share(s, rows, NULL, &unused);
}

/* Labels of an origin as changes from its own value, and which are known. */
static void labels_of(const rls *s, const past *p, int64_t group, int64_t origin, double *label, double *known)
{
    const int64_t C = p->channels;
    for (int64_t i = 0, channel = s->shared ? 0 : group; i < s->outputs; channel++) {
        const double *rows = rows_of(s, p), base = rows[origin * C + channel];
        for (int64_t step = 1; step <= s->horizon; step++, i++) {
            label[i] = rows[(origin + step) * C + channel] - base;
            known[i] = p->known[(origin + step) * C + channel];
        }
    }
}

/* From the predictions of one origin errors, held to their usual size, zero where unknown. */
static void judge_row(int64_t outputs, const double *label, const double *known, const double *limit,
                      const double *wild, const double *lift, double *error, double *size, double *seen)
{
    for (int64_t i = 0; i < outputs; i++) {
        const double e = label[i] - error[i], far = fabs(e), held = e > limit[i] ? limit[i] : e < -limit[i] ? -limit[i] : e;
        size[i] += known[i] > 0 ? far > wild[i] ? wild[i] : far : 0.0;
        seen[i] += known[i];
        error[i] = known[i] > 0 ? lift[i] * held : 0.0;
    }
}

/* From predictions (k, m) errors; what is usual follows them. Regressors of origins without any known label become
 * zero. */
static void judge(const rls *s, const past *p, int64_t g, int64_t count, const parts *w, double *error)
{
    const int64_t m = s->heads * s->outputs, ldm = whole(m), ldn = whole(s->size);
    double *usual = s->error + g * m, *seen = s->errors + g * m;
    for (int64_t i = 0; i < m; i++) {
        const int young = seen[i] < YOUNG;
        w->limit[i] = young ? INFINITY : s->clip[i] * usual[i];
        w->wild[i] = young ? INFINITY : WILD * usual[i];
        w->lift[i] = young ? 1.0 : s->lift[i];
        w->size[i] = w->seen[i] = 0;
    }
    for (int64_t r = 0; r < count; r++) {
        labels_of(s, p, g, p->end - s->horizon - count + r, w->label, w->known);
        double any = 0;
        for (int64_t i = 0; i < s->outputs; i++)
            any += w->known[i];
        for (int64_t head = 0, at = 0; head < s->heads; head++, at += s->outputs)
            judge_row(s->outputs, w->label, w->known, w->limit + at, w->wild + at, w->lift + at, error + r * ldm + at,
                      w->size + at, w->seen + at);
        if (any == 0)
            memset(w->x + r * ldn, 0, (size_t)s->size * sizeof(double));
    }
    for (int64_t i = 0; i < m; i++) {
        const double fresh = w->size[i] > 0 || seen[i] > 0 ? w->seen[i] : 0.0;
        seen[i] += fresh;
        const double rate = fresh * fmax(SIZE_RATE, 1 / fmax(seen[i], 1));
        usual[i] += (rate > 1 ? 1 : rate) * (w->size[i] / fmax(fresh, 1) - usual[i]);
    }
}

/* Rows of the ridge, as observations of zero, after `count` others. Their regressors have one number each that is not
 * zero, so a product with one is a row or a column, and the covariance need not be gone through for it. */
static void add_ridge(const rls *s, int64_t g, int64_t count, int64_t first, int64_t due, const parts *w)
{
    const int64_t n = s->size, m = s->heads * s->outputs, ldn = whole(n), ldm = whole(m), ldk = whole(count + due);
    for (int64_t r = count; r < count + due; r++) {
        const int64_t place = (first + r - count) % n;
        const double *weights = s->weights + (g * n + place) * m, *covariance = s->covariance + (g * n + place) * n;
        for (int64_t i = 0; i < m; i++)
            w->moved[r * ldm + i] = -s->strength * weights[i];
        for (int64_t i = 0; i < n; i++)
            w->half[r * ldn + i] = s->strength * covariance[i];
        for (int64_t i = n; i < ldn; i++)
            w->half[r * ldn + i] = 0.0;
        for (int64_t i = 0; i <= r; i++) /* on and above the diagonal: no more is read of it */
            w->inner[i * ldk + r] = s->strength * w->half[i * ldn + place];
    }
}

/* How one group is to be moved: `half` and `moved`; 0 if that cannot be told. */
static int prepare(const rls *s, const past *p, int64_t g, int64_t count, int64_t first, int64_t due, parts *w)
{
    const int64_t n = s->size, m = s->heads * s->outputs, ldn = whole(n), ldm = whole(m), k = count + due, ldk = whole(k);
    const int64_t wide = wave_count(&s->x.calendar);
    double *half = w->half, *moved = w->moved;
    const double forget = pow(s->forgetting, (double)count);
    for (int64_t r = 0; r < count; r++)
        regressor(s, p, g, s->horizon + count - 1 - r, w->waves + r * wide, wide, w->x + r * ldn);
    multiply(w->x, ldn, count, n, s->weights + g * n * m, m, m, moved, ldm, w->beside);
    judge(s, p, g, count, w, moved);
    for (int64_t i = 0; i < n; i++)
        for (int64_t r = 0; r < count; r++)
            w->turned[i * ldk + r] = w->x[r * ldn + i];
    multiply(w->x, ldn, count, n, s->covariance + g * n * n, n, n, half, ldn, w->beside);
    multiply(half, ldn, count, n, w->turned, ldk, count, w->inner, ldk, w->beside);
    add_ridge(s, g, count, first, due, w);
    for (int64_t r = 0; r < k; r++)
        for (int64_t i = m; i < ldm; i++)
            moved[r * ldm + i] = 0.0;
    for (int64_t r = 0; r < k; r++)
        w->inner[r * ldk + r] += forget;
    if (!factor(w->inner, ldk, k))
        return 0;
    const double sum = solve(w->inner, ldk, k, half, ldn, n) + solve(w->inner, ldk, k, moved, ldm, m);
    return isfinite(sum);
}

/* Begin again from the ridge. */
static void restart(const rls *s, int64_t g)
{
    const int64_t n = s->size, m = s->heads * s->outputs;
    double *covariance = s->covariance + g * n * n, *weights = s->weights + g * n * m, sum = 0;
    for (int64_t i = 0; i < n * n; i++)
        covariance[i] = i % (n + 1) == 0 ? 1 / s->ridge : 0.0;
    for (int64_t i = 0; i < n * m; i++)
        sum += weights[i] - weights[i];
    if (sum != 0) { /* NaN, where one is not finite */
        memset(weights, 0, (size_t)(n * m) * sizeof(double));
        memset(s->rounded + g * n * m, 0, (size_t)(n * m) * sizeof(float));
    }
}

/* Take `count` origins in, the newest whose labels are all there, and give `due` coefficients their ridge back. Where
 * rounding has spoiled a covariance, or a value is beyond all bounds, a group begins again; how many did comes back. */
static int rls_take(const rls *s, const past *p, int64_t count, int64_t first, int64_t due)
{
    const int64_t n = s->size, m = s->heads * s->outputs, k = count + due, wide = wave_count(&s->x.calendar);
    const double forget = pow(s->forgetting, (double)count);
    parts w;
    int again = 0;
    share(s, k, s->work, &w);
    for (int64_t r = 0; r < count; r++)
        waves_of(&s->x.calendar, (double)(p->seen - s->horizon - count + r), w.waves + r * wide);
    for (int64_t g = 0; g < s->groups; g++) {
        if (!prepare(s, p, g, count, first, due, &w)) {
            restart(s, g);
            again++;
            continue;
        }
        gather(w.half, whole(n), n, w.moved, whole(m), m, k, s->weights + g * n * m, s->rounded + g * n * m);
        shrink(w.half, whole(n), n, k, forget, s->covariance + g * n * n);
    }
    return again;
}

/* Let the rows so far count a fraction; but no coefficient becomes freer than the ridge lets it be by itself. */
static void loosen(const rls *s)
{
    const int64_t n = s->size;
    double *root = s->work;
    for (int64_t g = 0; g < s->groups; g++) {
        double *covariance = s->covariance + g * n * n;
        for (int64_t i = 0; i < n; i++) {
            const double free = LOOSER / s->ridge / fmax(covariance[i * n + i], TINY);
            root[i] = sqrt(free < 1 ? 1 : free > LOOSER ? LOOSER : free);
        }
        for (int64_t i = 0; i < n; i++)
            for (int64_t j = 0; j < n; j++)
                covariance[i * n + j] *= root[i] * root[j];
    }
}

/* Count the example that the newest row completes; take a block of them in when it is full. The first are taken in as
 * they come. */
void rls_observe(const rls *s, const past *p)
{
    if (p->seen <= s->horizon)
        return;
    const int64_t turned = *p->turned, block = turned < 0 ? s->block : HURRIED, young = p->seen / AGE;
    if (turned == WINDOW + s->horizon)
        loosen(s);
    if (++s->counts[0] < (block < young ? block : young < 1 ? 1 : young))
        return;
    const int64_t count = s->counts[0] < p->keep / 2 ? s->counts[0] : p->keep / 2, first = s->counts[1];
    *s->due += (double)(s->size * count) * -log(s->forgetting) / M_LN2;
    const int64_t due = *s->due < (double)s->size ? (int64_t)*s->due : s->size;
    *s->due -= (double)due;
    s->counts[0] = 0;
    s->counts[1] = (first + due) % s->size;
    s->counts[2] += rls_take(s, p, count, first, due);
}

/* ---- forecasting ------------------------------------------------------------------------------------------------ */

#define ACROSS 6 /* vectors of a row that are summed at once */

INLINE void down(const int nv, const float *x, const float *w, long ldw, long n, float *to)
{
    vec acc[ACROSS] = {{0}};
    for (long i = 0; i < n; i++)
#pragma GCC unroll 8
        for (int j = 0; j < nv; j++)
            acc[j] += x[i] * ld(w + i * ldw + j * VL);
#pragma GCC unroll 8
    for (int j = 0; j < nv; j++)
        st(to + j * VL, acc[j]);
}

static void times(const float *x, const float *w, long n, long m, float *to)
{
    long j = 0;
    for (; j + ACROSS * VL <= m; j += ACROSS * VL)
        down(ACROSS, x, w + j, m, n, to + j);
    for (; j + VL <= m; j += VL)
        down(1, x, w + j, m, n, to + j);
    for (; j < m; j++) {
        float sum = 0;
        for (long i = 0; i < n; i++)
            sum += x[i] * w[i * m + j];
        to[j] = sum;
    }
}

/* Forecasts (heads, H, C) from the newest row. */
void rls_forecast(const rls *s, const past *p, double *out)
{
    const int64_t n = s->size, m = s->heads * s->outputs, H = s->horizon, C = p->channels, wide = wave_count(&s->x.calendar);
    const double *last = p->even + (p->end - 1) * C;
    double *x = s->work, *waves = x + whole(n);
    float *single = (float *)(waves + whole(wide)), *change = single + whole(n);
    waves_of(&s->x.calendar, (double)(p->seen - 1), waves);
    for (int64_t g = 0; g < s->groups; g++) {
        regressor(s, p, g, 0, waves, wide, x);
        for (int64_t i = 0; i < n; i++)
            single[i] = (float)x[i];
        times(single, s->rounded + g * n * m, n, m, change);
        for (int64_t i = 0; i < m; i++) {
            const int64_t head = i / s->outputs, channel = s->shared ? i % s->outputs / H : g;
            const int64_t at = i % H * C + channel;
            const double begin = s->even ? last[channel] + p->lift[at] : p->begin[at];
            out[head * H * C + at] = (double)change[i] + begin;
        }
    }
}

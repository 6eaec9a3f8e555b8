/* What `natsr.experts` hands over: addresses of its arrays, which stay what they are and where they are. */
#ifndef NATSR_EXPERTS_H
#define NATSR_EXPERTS_H

#include "cone.h"
#include "dense.h"

INLINE double held(double x, double limit) { return x > limit ? limit : x < -limit ? -limit : x; }

/* natsr.experts.past: the last rows, in buffers that are written along. */
typedef struct {
    double *raw, *clean; /* (2 keep, C) */
    uint8_t *known;
    double *swing;            /* (2 keep, C): what waves are multiplied by */
    double *square, *changes, *strays; /* (C) */
    const double *row;        /* (C): the newest, as it came */
    double *even;             /* (2 keep, C): natsr.experts.jumps has this and what follows */
    double *calm, *cross, *drift, *jump, *offset, *start, *low, *high; /* (C) */
    int64_t *age, *away, *ended, *lasted;                     /* (C), (C), (C), (memory, C) */
    double *lift, *begin, *shift, *sorted;                    /* (H, C), (H, C), (C), (keep) */
    uint8_t *stays;                                           /* (H, C) */
    const int64_t *turned;                                    /* rows since the stream turned, or -1 */
    int64_t channels, keep, end, seen, horizon, memory;
} past;

/* The calendar: sines and cosines of the number of a row. */
typedef struct {
    int64_t kinds;
    const int64_t *periods[4];
    int64_t harmonics[4];
} waves;

int64_t wave_count(const waves *x);
void waves_of(const waves *x, double row, double *to);

/* natsr.experts.layouts: column i of a regressor is clean[plus] - sign · clean[minus], counted from the origin's row. */
typedef struct {
    const int32_t *plus, *minus; /* (G, n) */
    const double *sign;          /* (n) */
    int64_t one, at;             /* where the one is, and where the waves begin */
    waves calendar;
} columns;

/* natsr.experts.least_squares. */
typedef struct {
    int64_t groups, size, heads, outputs, horizon, shared, even;
    int64_t block; /* rows that are taken in at once */
    double forgetting, ridge, strength;
    double *covariance, *weights;
    float *rounded;
    double *error, *errors;
    const double *clip, *lift;
    int64_t *counts; /* rows that wait, the next coefficient whose ridge is given back, fresh starts */
    double *due;     /* such coefficients */
    double *work;
    columns x;
} rls;

/* natsr.experts.smooth. */
typedef struct {
    int64_t kinds, horizon, even;
    int64_t *current;                                 /* the period, and the phase of the next row */
    const double *alpha, *gamma, *beta, *phi, *dof;   /* (S) */
    const double *sums;                               /* (S, H): the damped trend so far */
    double *level, *trend, *variance, *season, *rows; /* (S, C), three times; (longest, S, C); (longest, C) */
    double *count;                                    /* (C) */
} smooth;

/* natsr.experts.plain: one period, or several running means. */
typedef struct {
    int64_t horizon, cycles;
    const int64_t *period;
} seasonal;

typedef struct {
    int64_t kinds;
    const double *rates;  /* (S) */
    double *mean, *count; /* (S, C), (C) */
} means;

typedef struct {
    int64_t kinds;
    const int64_t *rows; /* (kinds) */
} medians;

/* natsr.experts.analogs. */
typedef struct {
    int64_t kinds, measures, horizon, lags;
    const int64_t *by_changes; /* (measures) */
    const double *fade;        /* (measures) */
    double *distance;          /* (measures, lags, C): the longest lag first */
    const int64_t *measure, *together, *near, *count; /* (kinds) */
    const int64_t *const *periods;                    /* (kinds): where each is */
    const double *moved;                              /* (kinds, H) */
    double *work;                                     /* `room` in analogs.c */
    double largest;
} analogs;

/* One of the above: what it is, where, and where its forecasts go. */
enum kind { LAST_VALUE, SEASONAL, MEANS, MEDIANS, ANALOGS, SMOOTH, LEAST_SQUARES }; /* KINDS in natsr.experts.native */
typedef struct {
    int64_t kind;
    const void *of;
    double *out; /* (its experts, H, C) */
} group;

/* natsr.experts.swing. */
typedef struct {
    const int64_t *period;
    double *usual, *since, *unit; /* (2, C), (C), (C) */
} swings;

/* natsr.aggregate.MLPoly in float32; with a power, natsr.mixtures.Power, Local for the steps that are near,
 * or Total for all of a column. */
typedef struct {
    int64_t experts, pooling; /* one of `enum pooling` in rules.c */
    float *regret, *square, *weights; /* (E, H, C), (E, H), (E) or (E, C) */
    float *lost;                      /* of Local: (E, H, C) */
    double *size, *count;             /* (H, C) */
    double *loss, *pace;              /* of Power: (E), (1); of Total: (E, C), none */
    double discount, power, handicap; /* of Total: of its first expert */
} poly;

/* natsr.experts.panel, with its guard and its mixtures. */
typedef struct {
    int64_t experts, horizon, channels, slots, layers, kept, total, choices, near, nearest;
    const poly *rules;               /* K, the one that mixes them and, with a total, who has the last word */
    double *now;                     /* (E, H, C) */
    float *waiting, *mixed;          /* (slots, E, H, C), (slots, kept, H, C) */
    double *guarded, *ready;         /* (slots, H, C), (slots, C) */
    double *square, *errors, *reach, *settled; /* (H, C) */
    double *loss, *share;            /* of the guard: (shares + 1, H, C), (H, C) */
    double *change, *changes;        /* of the guard, (H, C) */
    const double *shares;
    double *recent, *readiness; /* of the guard: (2, C), (C) */
    double *hint_error, *hint_cross, *hint_square, *hint_loss, *hint_count; /* of natsr.experts.correct: (H, C), three times, (2, C), (1) */
    double *lost, *earned, *gained_of, *squares; /* of natsr.experts.ledger: (C) each */
    double *nears, *shared, *peak, *moves, *free; /* and: (2, C), (2), (C), (3, C), (C) */
    float *forecasts, *answers, *gained, *singles; /* room: (E, H, C), (kept, H, C), (E, H, C), (6, H + 2 near, C) */
    double *work;                                  /* (7, H, C) */
    double tiny, noise, mix_wild, mix_rate, mix_young;
    double power_pace, power_far, power_barely, total_beyond;
    double fade, proof, doubt, guard_wild, guard_rate, guard_young, guard_recent, guard_most, guard_barely;
    double error_rate, error_wild, error_young, error_least, far, reach_fade, doubted, largest;
    double hint_fade, hint_wild, hint_ridge, hint_least;
    double bank_allowed, bank_start, bank_fade, bank_young, bank_still, bank_moving, bank_trust;
    double bank_clear[2], bank_sure[2], bank_shared[2], bank_beside[2], bank_long[2], bank_runs[2];
    double bank_far, bank_least, bank_memory, guard_tamed;
} blending;

int is_wild(const blending *m, const past *p, int64_t back, int64_t c);
void ledger_take(const blending *m, const past *p, const float *mixed, const double *given, const double *truth);
void ledger_stake(const blending *m, const past *p, const double *guarded);

/* natsr.experts.network. */
typedef struct {
    int64_t channels, horizon, window, reach, width, inputs, memory, batch;
    const int64_t *taps; /* (window,): how many rows before the newest each row of a window lies, falling to 0 */
    float *weights, *gradient, *first, *second; /* four matrices, one after the other; the first three with a bias */
    float *values;                              /* (memory, C) */
    uint8_t *known;
    float *work;
    double dof, limit, farthest, slow, fast;
    waves calendar;
} onestep;

EXPORT int64_t onestep_room(const onestep *n);
EXPORT int onestep_learn(const onestep *n, const past *p, const int64_t *labels, int64_t rows, double rate);
EXPORT void onestep_forecast(const onestep *n, const past *p, double *out);
double middle_of(double *x, int64_t count);
void jumps_follow(past *p, int64_t c, double x, int known, double most, double rate, double far, double tame);
void jumps_lift(past *p, int64_t c, double raw, double clean, double base);
EXPORT void past_push(past *p, double wild, double young, double rate, double largest, double far, double tame,
                      double lasting);
EXPORT void smooth_move(const smooth *s, const past *p);
EXPORT void smooth_forecast(const smooth *s, const past *p, double *out);
EXPORT void seasonal_forecast(const seasonal *s, const past *p, double *out);
EXPORT void means_move(const means *s, const past *p);
EXPORT void means_forecast(const means *s, const past *p, double *out);
EXPORT void analogs_observe(const analogs *s, const past *p);
EXPORT void analogs_forecast(const analogs *s, const past *p, double *out);
EXPORT void medians_forecast(const medians *s, const past *p, double *out);
EXPORT void groups_run(const group *groups, int64_t count, const past *p);
EXPORT void swing_look(const swings *s, const past *p);
EXPORT void blend_learn(const blending *m, const past *p);
EXPORT void blend_mix(const blending *m, const float *forecasts, float *to);
EXPORT void blend_forecast(const blending *m, const past *p);
EXPORT int64_t rls_room(const rls *s, int64_t rows);
EXPORT void rls_observe(const rls *s, const past *p);
EXPORT void rls_forecast(const rls *s, const past *p, double *out);

#endif

/* What `natsr.experts` hands over: addresses of its arrays, which stay what they are and where they are. */
#ifndef NATSR_EXPERTS_H
#define NATSR_EXPERTS_H

#include "cone.h"
#include "dense.h"

/* natsr.experts.past: the last rows, in buffers that are written along. */
typedef struct {
    double *raw, *clean; /* (2 keep, C) */
    uint8_t *known;
    double *square, *changes; /* (C) */
    int64_t channels, keep, end, seen;
} past;

/* natsr.experts.layouts: column i of a regressor is clean[plus] - sign · clean[minus], counted from the origin's row. */
typedef struct {
    const int32_t *plus, *minus; /* (G, n) */
    const double *sign;          /* (n) */
    int64_t one, waves;          /* where the one is, and where the waves begin */
    int64_t kinds;               /* of waves */
    const int64_t *periods[4];
    int64_t harmonics[4];
} columns;

/* natsr.experts.least_squares. */
typedef struct {
    int64_t groups, size, heads, outputs, horizon, shared;
    double forgetting, ridge, strength;
    double *covariance, *weights;
    float *rounded;
    double *error, *errors;
    const double *clip, *lift;
    double *work;
    columns x;
} rls;

EXPORT int64_t rls_room(const rls *s, int64_t rows);
EXPORT int rls_take(const rls *s, const past *p, int64_t count, int64_t first, int64_t due);
EXPORT void rls_forecast(const rls *s, const past *p, double *out);

#endif

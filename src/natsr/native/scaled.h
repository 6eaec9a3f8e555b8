/* Networks whose convolutions have a learned factor for each pair of channels and each output (natsr.nets.adapted). */
#ifndef NATSR_SCALED_H
#define NATSR_SCALED_H

#include "layers.h"

typedef struct {
    int64_t layer, taps, in, out; /* a convolution */
    int64_t factors;              /* where its own begin: (in, out) of pairs, then (out) of outputs */
} factored;

typedef struct {
    long count;
    factored *each;
    double *reach; /* no gradient is longer than that by effective weights times this */
    float *raw, *pairs, *outputs;
} scaled;

EXPORT scaled *scaled_new(const factored *list, int64_t count);
EXPORT void scaled_free(scaled *s);
EXPORT void scaled_settle(scaled *s, const passed *p, const float *w, float *effective);
EXPORT double scaled_bound(const scaled *s, const passed *p);
EXPORT void scaled_step(scaled *s, const passed *p, const finish *f, float *w, float *m, float *v, float *effective);

#endif

/* FSNet's adapters (natsr.nets.adapters says what they are): one pass over a layer's memory for a whole step.
 *
 * What the layers remember belongs to the caller; what follows from it and from the weights, the coefficients of the
 * next pass, is kept here and made again by `adapters_settle`, and by a step for what it has changed.
 */
#ifndef NATSR_ADAPTERS_H
#define NATSR_ADAPTERS_H

#include "layers.h"

typedef struct {
    int64_t layer, first, taps, in, out; /* of a convolution: its layer, live taps and channels */
    int64_t controller, heads;           /* where their weights begin */
    float *slow, *fast, *query, *memory; /* what it remembers, as natsr.nets.adapters.Averages has it */
    uint8_t *apart;
} remembered;

typedef struct {
    remembered at;
    long per, chunk, given, ldg, size; /* outputs for each input; sizes of a chunk and of what it gives; all of that */
    int32_t *chunk_at, *given_at;      /* offsets of chunks, and of what they give */
    float *active, *slope;             /* (in, 64): SiLU, and its derivative */
    float *by_taps, *by_bias, *by_output;
    float *next_query, *next_memory;
    double own;   /* the share of its own coefficients */
    double reach; /* no gradient of the layer and its adapter is longer than that of the effective weights times this */
} adapter;

typedef struct {
    long count;
    adapter *each;
    float *raw, *turned, *given, *hidden, *heads_back, *sums, *norms;
    int32_t *hidden_at;
} adapters;

EXPORT adapters *adapters_new(const remembered *list, int64_t count);
EXPORT void adapters_free(adapters *a);

/* The effective weights of a network, from its weights and what its layers remember. */
EXPORT void adapters_settle(adapters *a, const cone *c, const float *w, int attention, int first, float *effective);

/* No gradient by the weights is longer than the root of this, after a backward pass. */
EXPORT double adapters_bound(const adapters *a, const cone *c);

/* A step of AdamW against the gradient of the last backward pass; then averages, memories and effective weights. Comes
 * back with how many layers had asked their memory. */
EXPORT int64_t adapters_step(adapters *a, const cone *c, const finish *f, int online, int attention, float *w, float *m,
                             float *v, float *effective);

#endif

/* Many learners of one shape in one call: every worker takes the next one that waits, in buffers of its own.
 *
 * natsr.fleet.compiled fills these structures; natsr.native.many says the same about them to Python. All members take
 * eight bytes, so there is nothing between them.
 */
#ifndef NATSR_MANY_H
#define NATSR_MANY_H

#include "curve.h"

/* A and G of each layer, or their inverses, and the head's G. */
typedef struct {
    float **a, **g;
    float *head;
} matrices;

/* A learner: how it learns, and what it has become. */
typedef struct {
    losses loss; /* variance and tracked number are both the scale as it is now */
    finish move;
    double scale_rate, scale_floor, farthest, largest;
    double law, beta, average, drift, blend, clip, worst, recent, every; /* as in natsr.fleet.shape.Own */
    double last, mean, spread, since; /* the last loss, and the refresh rule's averages */
    double made, made_for, tau, norm, bound;
    int64_t natural, closed, known, smooth, moved; /* there are: a natural gradient, factors, an average, a step */
    int64_t steps, refused, refreshes, restored;
    float *w, *m, *v, *taken, *sane, *smoothed;
    float *memory[3]; /* windows, labels and, for those who distil, outputs */
    matrices factors[2], inverses[2]; /* in use, and not */
} learner;

enum verdict { TAKEN, REFUSED, RESTORED, DUE, NO_ROOM };

/* What one learner learns from at this moment, and what came of it. */
typedef struct {
    int64_t number, fresh, drawn, probes, verdict;
    const float *window, *target; /* new examples */
    const int64_t *chosen;        /* replayed ones: places in its memory */
    float *output, *weights;      /* what the network made of the new examples; the shares of all examples */
    const float *rows;            /* probes, once they have been asked for, and the examples that they belong to */
    const int32_t *owner;
} turn;

typedef struct {
    int64_t number, examples;
    const float *window;
    float *output;
} question;

typedef struct {
    int64_t number, place;
    const float *window, *target, *output;
} entry;

/* Where one worker works. */
typedef struct {
    cone *c;
    float *window, *target, *stored, *output, *pull, *weights;
    int64_t room;
} desk;

EXPORT void many_sizes(int64_t *sizes);
EXPORT desk *desk_new(const int32_t *sizes, const int32_t *convs);
EXPORT void desk_free(desk *d);
EXPORT void many_learn(desk *d, learner *all, turn *turns, int64_t count, int64_t *next);
EXPORT void many_forecast(desk *d, const learner *all, question *asked, int64_t count, int64_t *next);
EXPORT void many_remember(const desk *d, const learner *all, const entry *entries, int64_t count);

#endif

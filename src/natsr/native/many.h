/* Many learners of one shape in one call: every worker takes the next one that waits, in buffers of its own.
 *
 * natsr.fleet.compiled fills these structures; natsr.native.many says the same about them to Python. All members take
 * eight bytes, so there is nothing between them.
 */
#ifndef NATSR_MANY_H
#define NATSR_MANY_H

#include "crew.h"
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

/* A turn waits until it is taken; IDLE had no label to learn from, DUE asks for probes. */
enum verdict { IDLE, WAITING, TAKEN, REFUSED, RESTORED, DUE, NO_ROOM };

/* What one learner learns from at this moment, and what came of it. */
typedef struct {
    int64_t fresh, drawn, probes, verdict;
    const float *raw_window, *raw_target; /* new examples as they were handed over */
    const uint8_t *news;                  /* rows of their targets that became known just now, or NULL: all of them */
    const int64_t *chosen;                /* replayed examples: places in the memory */
    const float *rows;                    /* probes, once they have been asked for, and the examples they belong to */
    const int32_t *owner;
    float *window, *target, *taught; /* new examples as the network reads them; what is learned now, what is kept */
    float *output, *weights;         /* what the network made of them; the shares of all examples */
    uint8_t *done;                   /* which of them may enter the memory */
} turn;

typedef struct {
    int64_t examples;
    const float *raw_window;
    float *output;
} question;

typedef struct {
    int64_t number, index, place;
} entry;

/* Between the stream and the networks, as natsr.forecasters.frame has it. */
typedef struct {
    double limit, farthest;
    int64_t reach, channels;           /* rows of a window as it is handed over; values to forecast */
    int64_t anchors_input, anchors_output, only_news;
} frame;

/* Where one worker works. */
typedef struct {
    cone *c;
    float *window, *target, *stored, *output, *pull, *weights;
    int64_t room;
} desk;

EXPORT void many_sizes(int64_t *sizes);
EXPORT desk *desk_new(const int32_t *sizes, const int32_t *convs);
EXPORT void desk_free(desk *d);
EXPORT void many_read(const desk *d, const frame *f, turn *turns, int64_t count);
EXPORT void many_learn(crew *c, desk **desks, int64_t workers, learner *all, turn *turns, int64_t count);
EXPORT void many_remember(const desk *d, const learner *all, const turn *turns, const entry *entries, int64_t count);
EXPORT void many_forecast(crew *c, desk **desks, int64_t workers, const frame *f, learner *all, question *asked,
                          int64_t count);

#endif

/* OneNet's mixture of two forecasts: the step of natsr.forecasters.mixture, computed and not taken. */
#ifndef NATSR_MIXING_H
#define NATSR_MIXING_H

#include "layers.h"

#define DECIDING 32 /* width of the small network */

typedef struct {
    int64_t horizon, channels, examples, mae;
    double dropout;
    const float *first, *second, *target; /* (B, H, C), NaN where it is not known what came */
    const float *weights, *lasting, *passing;
    const float *drawn; /* (2, B·C, 32) between 0 and 1, where something is dropped */
    float *by_weights, *by_lasting, *next;
    double loss, squares; /* found: the mixture's loss; the sum of squares of all that is proposed */
} proposal;

EXPORT int mixing_propose(proposal *p);

#endif

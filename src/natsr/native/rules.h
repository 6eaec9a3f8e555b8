#ifndef NATSR_RULES_H
#define NATSR_RULES_H

#include "experts.h"

/* Ways to mix, for blend.c: learn what came (H, C) of what was forecast (E, H, C) and mixed. */
void learn_any(const blending *m, const poly *rule, const float *forecasts, const float *mixture, const double *truth);
void learn_rule(const blending *m, const poly *rule, const float *forecasts, const float *mixture, const double *truth);
void learn_total(const blending *m, const poly *rule, const float *forecasts, int64_t apart, const float *mixture,
                 const double *truth);

#endif

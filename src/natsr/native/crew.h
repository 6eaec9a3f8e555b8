/* Threads that wait for work, so that who has some need not make them. */
#ifndef NATSR_CREW_H
#define NATSR_CREW_H

#include "kernels.h"

typedef struct crew crew;

/* A share of the work; workers are numbered from 0, who calls. */
typedef void share(void *work, int64_t worker);

EXPORT crew *crew_new(int64_t helpers);
EXPORT void crew_free(crew *c);

/* Let up to so many workers at it, of whom the caller is one, and wait for those who began. A helper that wakes when all
   is done does not begin any more: `work` must leave nothing to a certain worker. */
void crew_run(crew *c, int64_t workers, share *do_share, void *work);

#endif

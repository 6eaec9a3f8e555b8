#include "crew.h"

#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

struct crew {
    pthread_mutex_t lock;
    pthread_cond_t called, gone; /* there is work; nobody is at it any more */
    share *do_share;
    void *work;
    int64_t wanted, joined, inside; /* helpers that may join, have joined, and have not left */
    int64_t helpers, ends;
    pid_t process;
    pthread_t threads[];
};

static void *helper(void *given)
{
    crew *c = given;
    pthread_mutex_lock(&c->lock);
    for (;;) {
        while (!c->ends && c->joined >= c->wanted)
            pthread_cond_wait(&c->called, &c->lock);
        if (c->ends)
            break;
        const int64_t number = ++c->joined;
        c->inside++;
        pthread_mutex_unlock(&c->lock);
        c->do_share(c->work, number);
        pthread_mutex_lock(&c->lock);
        if (!--c->inside)
            pthread_cond_signal(&c->gone);
    }
    pthread_mutex_unlock(&c->lock);
    return NULL;
}

void crew_free(crew *c)
{
    if (!c || c->process != getpid()) /* a process that was forked off has none of the threads */
        return;
    pthread_mutex_lock(&c->lock);
    c->ends = 1;
    pthread_cond_broadcast(&c->called);
    pthread_mutex_unlock(&c->lock);
    for (int64_t i = 0; i < c->helpers; i++)
        pthread_join(c->threads[i], NULL);
    pthread_mutex_destroy(&c->lock), pthread_cond_destroy(&c->called), pthread_cond_destroy(&c->gone);
    free(c);
}

/* As many helpers as can be had; NULL where there is no memory. */
crew *crew_new(int64_t helpers)
{
    crew *c = calloc(1, sizeof *c + (size_t)helpers * sizeof(pthread_t));
    if (!c)
        return NULL;
    c->process = getpid();
    pthread_mutex_init(&c->lock, NULL), pthread_cond_init(&c->called, NULL), pthread_cond_init(&c->gone, NULL);
    while (c->helpers < helpers && !pthread_create(c->threads + c->helpers, NULL, helper, c))
        c->helpers++;
    return c;
}

void crew_run(crew *c, int64_t workers, share *do_share, void *work)
{
    if (!c || workers < 2) {
        do_share(work, 0);
        return;
    }
    pthread_mutex_lock(&c->lock);
    c->do_share = do_share, c->work = work, c->joined = 0, c->wanted = workers - 1;
    pthread_cond_broadcast(&c->called);
    pthread_mutex_unlock(&c->lock);
    do_share(work, 0);
    pthread_mutex_lock(&c->lock);
    c->wanted = 0; /* too late to join */
    while (c->inside)
        pthread_cond_wait(&c->gone, &c->lock);
    pthread_mutex_unlock(&c->lock);
}

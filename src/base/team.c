// SPDX-License-Identifier: Apache-2.0
// Fork-join where work is claimed, not assigned: whoever is awake takes the next worker number, the caller too. A thread
// that the system has not scheduled (a busy machine, a shared host) claims nothing and holds up nobody. A decode step forks
// some 200 times; a pool in which every thread must answer every fork loses a scheduler's time slice at each when the
// machine is shared (figures: docs/decisions/004-thread-team.md).
//
// The ticket holds (fork number, workers, next worker) in one word, so that a claim cannot mix two forks. body and arg are
// read only after a claim, and the caller returns only when every claim is done: they cannot change under a reader.
#include "base/team.h"
#include "base/affinity.h"

#include <pthread.h>
#include <sched.h>

// Pauses before a thread sleeps: 0.19 ms on a Zen 5 (best of 20, 2026-11-30). Chosen to outlast the gaps between the forks
// of a step; not tuned.
enum { SPINS = 8192, FORK_SHIFT = 32, WORKERS_SHIFT = 16, FIELD_MASK = 0xffff, MAX_THREADS = 4096 };

struct rdi_team {
    _Alignas(64) _Atomic uint64_t ticket;
    _Alignas(64) _Atomic int32_t done; // bodies that helpers have finished in this fork
    _Alignas(64) _Atomic int32_t sleepers;
    _Atomic bool stop;
    rdi_par_body body;
    void *arg;
    int32_t helpers; // threads started
    pthread_t *thread;
    rdi_affinity *affinity; // may be NULL
    pthread_mutex_t lock;
    pthread_cond_t wake;
};

static inline void relax(void) {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

static bool has_work(rdi_team *team) {
    uint64_t ticket = atomic_load(&team->ticket);
    return (ticket & FIELD_MASK) < (ticket >> WORKERS_SHIFT & FIELD_MASK);
}

static bool claim(rdi_team *team, int32_t *worker, int32_t *workers) {
    uint64_t ticket = atomic_load(&team->ticket);
    do {
        *worker = (int32_t)(ticket & FIELD_MASK);
        *workers = (int32_t)(ticket >> WORKERS_SHIFT & FIELD_MASK);
        if (*worker >= *workers) return false;
    } while (!atomic_compare_exchange_weak(&team->ticket, &ticket, ticket + 1));
    return true;
}

static void sleep_until_work(rdi_team *team) {
    for (int spin = 0; spin < SPINS; spin++) {
        if (has_work(team) || atomic_load_explicit(&team->stop, memory_order_relaxed)) return;
        relax();
    }
    pthread_mutex_lock(&team->lock);
    atomic_fetch_add(&team->sleepers, 1); // before the last look: the caller looks the other way round
    while (!has_work(team) && !atomic_load(&team->stop)) pthread_cond_wait(&team->wake, &team->lock);
    atomic_fetch_sub(&team->sleepers, 1);
    pthread_mutex_unlock(&team->lock);
}

static void *help(void *state) {
    rdi_team *team = state;
    while (!atomic_load(&team->stop)) {
        int32_t worker, workers;
        while (claim(team, &worker, &workers)) {
            team->body(team->arg, worker, workers);
            atomic_fetch_add_explicit(&team->done, 1, memory_order_release);
        }
        sleep_until_work(team);
    }
    return NULL;
}

void rdi_team_run(rdi_team *team, int32_t workers, rdi_par_body body, void *arg) {
    rdi_affinity_step_aside(team->affinity);
    team->body = body;
    team->arg = arg;
    atomic_store_explicit(&team->done, 0, memory_order_relaxed);
    const uint64_t fork = (atomic_load(&team->ticket) >> FORK_SHIFT) + 1;
    atomic_store(&team->ticket,
                 fork << FORK_SHIFT | (uint64_t)workers << WORKERS_SHIFT | 1); // worker 0 is ours
    if (atomic_load(&team->sleepers) > 0) {
        pthread_mutex_lock(&team->lock);
        pthread_cond_broadcast(&team->wake);
        pthread_mutex_unlock(&team->lock);
    }
    int32_t ours = 0, worker = 0;
    do {
        body(arg, worker, workers);
        ours++;
    } while (claim(team, &worker, &workers));
    for (int spin = 0; atomic_load_explicit(&team->done, memory_order_acquire) < workers - ours; spin++) {
        if (spin < SPINS)
            relax();
        else
            sched_yield(); // a helper lost its core in the middle
    }
}

static rd_status start(rdi_team *team, int32_t helpers) {
    team->thread = rdi_alloc((size_t)helpers * sizeof *team->thread);
    if (!team->thread) return RD_E_NOMEM;
    team->affinity = rdi_affinity_create(helpers + 1);
    while (team->helpers < helpers) {
        if (pthread_create(&team->thread[team->helpers], NULL, help, team))
            return rdi_fail(RD_E_NOMEM, "could not start thread %d of %d", team->helpers + 1, helpers);
        rdi_affinity_pin(team->affinity, team->thread[team->helpers], team->helpers);
        team->helpers++;
    }
    return RD_OK;
}

rd_status rdi_team_create(int32_t threads, rdi_team **out) {
    if (threads < 2 || threads > MAX_THREADS)
        return rdi_fail(RD_E_INVALID, "threads=%d, needs 1 to %d", threads, MAX_THREADS);
    rdi_team *team = rdi_calloc(1, sizeof *team);
    if (!team) return RD_E_NOMEM;
    pthread_mutex_init(&team->lock, NULL);
    pthread_cond_init(&team->wake, NULL);
    rd_status status = start(team, threads - 1);
    if (status != RD_OK) {
        rdi_team_free(team);
        return status;
    }
    *out = team;
    return RD_OK;
}

void rdi_team_free(rdi_team *team) {
    if (!team) return;
    pthread_mutex_lock(&team->lock);
    atomic_store(&team->stop, true);
    pthread_cond_broadcast(&team->wake);
    pthread_mutex_unlock(&team->lock);
    for (int32_t i = 0; i < team->helpers; i++) pthread_join(team->thread[i], NULL);
    rdi_affinity_free(team->affinity);
    rdi_free(team->thread);
    pthread_cond_destroy(&team->wake);
    pthread_mutex_destroy(&team->lock);
    rdi_free(team);
}

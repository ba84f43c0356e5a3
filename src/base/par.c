// SPDX-License-Identifier: Apache-2.0
// Fork-join. Our own pool is pthreadpool; a lock makes runs of different threads take turns, because pthreadpool runs
// one command at a time and callers may share a context.
#define _GNU_SOURCE // CPU affinity
#include "base/par.h"

#include <pthread.h>
#include <pthreadpool.h>
#include <sched.h>

struct rdi_par {
    int32_t threads;
    rd_parallel_for_fn host;
    void *host_state;
    pthreadpool_t pool;
    cpu_set_t worker_cpus; // of our own pool; empty when nothing is pinned
    pthread_mutex_t lock;
};

static _Thread_local bool inside_body;

// The pool's threads spin between the kernels of a step. Two spinning threads on one CPU wait a scheduler slice for each
// other at every join, and the kernel may leave them there for seconds: seen on Linux 6.18 (2 cores) as 10 tok/s where
// separated threads give 300. So each worker is tied to a CPU of its own; the caller's thread keeps its affinity and is
// only moved off a worker's CPU when it is found there. A host's pool is the host's affair.
typedef struct pin_state {
    cpu_set_t allowed, taken;
    pthread_t caller;
    pthread_mutex_t lock;
    pthread_barrier_t all_here; // each task holds its thread, so that no thread steals another's and all are reached
} pin_state;

// The caller keeps the first allowed CPU free for itself; worker i of the pool gets the (i+1)-th.
static void pin_body(void *context, size_t task) {
    (void)task;
    pin_state *pin = context;
    pthread_barrier_wait(&pin->all_here);
    if (pthread_equal(pthread_self(), pin->caller)) return;
    pthread_mutex_lock(&pin->lock);
    int rank = CPU_COUNT(&pin->taken) + 1, cpu = 0;
    for (; cpu < CPU_SETSIZE; cpu++)
        if (CPU_ISSET(cpu, &pin->allowed) && rank-- == 0) break;
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(cpu, &one);
    CPU_SET(cpu, &pin->taken);
    (void)pthread_setaffinity_np(pthread_self(), sizeof one, &one); // a refusal costs speed, nothing else
    pthread_mutex_unlock(&pin->lock);
}

static void pin_workers(rdi_par *par) {
    pin_state pin = {.caller = pthread_self(), .lock = PTHREAD_MUTEX_INITIALIZER};
    if (sched_getaffinity(0, sizeof pin.allowed, &pin.allowed) || CPU_COUNT(&pin.allowed) < par->threads) return;
    if (pthread_barrier_init(&pin.all_here, NULL, (unsigned)par->threads)) return;
    pthreadpool_parallelize_1d(par->pool, pin_body, &pin, (size_t)par->threads, 0);
    pthread_barrier_destroy(&pin.all_here);
    par->worker_cpus = pin.taken;
}

static void leave_worker_cpu(const rdi_par *par) {
    int cpu = sched_getcpu();
    if (cpu < 0 || cpu >= CPU_SETSIZE || !CPU_ISSET(cpu, &par->worker_cpus)) return;
    cpu_set_t own, elsewhere;
    if (sched_getaffinity(0, sizeof own, &own)) return;
    CPU_AND(&elsewhere, &own, &par->worker_cpus);
    CPU_XOR(&elsewhere, &own, &elsewhere);
    if (!CPU_COUNT(&elsewhere) || sched_setaffinity(0, sizeof elsewhere, &elsewhere)) return;
    (void)sched_setaffinity(0, sizeof own, &own);
}

rd_status rdi_par_create(int32_t threads, rd_parallel_for_fn fn, void *state, rdi_par **out) {
    if (threads < 1) return rdi_fail(RD_E_INVALID, "threads=%d, needs >= 1", threads);
    rdi_par *par = rdi_calloc(1, sizeof *par);
    if (!par) return RD_E_NOMEM;
    par->threads = threads;
    par->host = fn;
    par->host_state = state;
    pthread_mutex_init(&par->lock, NULL);
    if (!fn && threads > 1) {
        par->pool = pthreadpool_create((size_t)threads);
        if (!par->pool) {
            rdi_par_free(par);
            return rdi_fail(RD_E_NOMEM, "could not start %d threads", threads);
        }
        pin_workers(par);
    }
    *out = par;
    return RD_OK;
}

void rdi_par_free(rdi_par *par) {
    if (!par) return;
    if (par->pool) pthreadpool_destroy(par->pool);
    pthread_mutex_destroy(&par->lock);
    rdi_free(par);
}

int32_t rdi_par_threads(const rdi_par *par) { return par ? par->threads : 1; }

typedef struct run_state {
    rdi_par_body body;
    void *arg;
    int32_t workers;
} run_state;

static void run_worker(run_state *run, size_t worker) {
    bool outer = inside_body;
    inside_body = true;
    run->body(run->arg, (int32_t)worker, run->workers);
    inside_body = outer;
}
static void pool_body(void *context, size_t worker) { run_worker(context, worker); }
static void host_body(void *context, int64_t worker) { run_worker(context, (size_t)worker); }

void rdi_par_run(rdi_par *par, int32_t max_workers, rdi_par_body body, void *arg) {
    int32_t workers = par ? par->threads : 1;
    if (max_workers < workers) workers = max_workers;
    if (workers <= 1 || inside_body) {
        run_state alone = {body, arg, 1};
        run_worker(&alone, 0);
        return;
    }
    run_state run = {body, arg, workers};
    if (par->host) {
        par->host(par->host_state, workers, host_body, &run);
        return;
    }
    pthread_mutex_lock(&par->lock);
    leave_worker_cpu(par);
    pthreadpool_parallelize_1d(par->pool, pool_body, &run, (size_t)workers, 0);
    pthread_mutex_unlock(&par->lock);
}

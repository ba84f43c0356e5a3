// SPDX-License-Identifier: Apache-2.0
// Fork-join over a team of threads or the host's parallel_for. A lock makes runs of different threads take turns: a team
// serves one caller at a time and callers may share a context.
#include "base/par.h"
#include "base/team.h"

#include <pthread.h>

struct rdi_par {
    int32_t threads;
    rd_parallel_for_fn host;
    void *host_state;
    rdi_team *team;
    pthread_mutex_t lock;
};

static _Thread_local bool inside_body;

rd_status rdi_par_create(int32_t threads, rd_parallel_for_fn fn, void *state, rdi_par **out) {
    if (threads < 1) return rdi_fail(RD_E_INVALID, "threads=%d, needs >= 1", threads);
    rdi_par *par = rdi_calloc(1, sizeof *par);
    if (!par) return RD_E_NOMEM;
    par->threads = threads;
    par->host = fn;
    par->host_state = state;
    pthread_mutex_init(&par->lock, NULL);
    rd_status status = !fn && threads > 1 ? rdi_team_create(threads, &par->team) : RD_OK;
    if (status != RD_OK) {
        rdi_par_free(par);
        return status;
    }
    *out = par;
    return RD_OK;
}

void rdi_par_free(rdi_par *par) {
    if (!par) return;
    rdi_team_free(par->team);
    pthread_mutex_destroy(&par->lock);
    rdi_free(par);
}

int32_t rdi_par_threads(const rdi_par *par) { return par ? par->threads : 1; }

typedef struct run_state {
    rdi_par_body body;
    void *arg;
    int32_t workers;
} run_state;

static void run_worker(run_state *run, int32_t worker) {
    bool outer = inside_body;
    inside_body = true;
    run->body(run->arg, worker, run->workers);
    inside_body = outer;
}
static void team_body(void *context, int32_t worker, int32_t workers) {
    (void)workers;
    run_worker(context, worker);
}
static void host_body(void *context, int64_t worker) { run_worker(context, (int32_t)worker); }

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
    rdi_team_run(par->team, workers, team_body, &run);
    pthread_mutex_unlock(&par->lock);
}

// SPDX-License-Identifier: Apache-2.0
// A team of threads: fork-join that never waits for a thread which has not started.
#ifndef RDI_TEAM_H
#define RDI_TEAM_H

#include "base/par.h"

typedef struct rdi_team rdi_team;

// threads >= 2, the caller included.
rd_status rdi_team_create(int32_t threads, rdi_team **out);
void rdi_team_free(rdi_team *team);
// body(arg, w, workers) once for every w; one caller at a time.
void rdi_team_run(rdi_team *team, int32_t workers, rdi_par_body body, void *arg);

#endif // RDI_TEAM_H

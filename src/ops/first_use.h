// SPDX-License-Identifier: Apache-2.0
// The check of a card's rows at first use: each runs a case or two against the reference on the host. No machine of this project
// has the card that a user has, so that a row that is wrong there must be found there, before it answers anything.
#ifndef RDI_FIRST_USE_H
#define RDI_FIRST_USE_H

#include "ops/ctx.h"

enum { RDI_FIRST_USE_SECONDS = 2 }; // for each row: its cases take a card microseconds

// Runs the rows of the context's table for its card that are not bad already. bad[i] is set for those that fail, each told
// through the log; a row whose op has no case is left as it is. An error is one of the machinery, or of the card: then the row
// that stopped it is bad too.
rd_status rdi_first_use_run(rd_ctx *ctx, bool *bad);
// The whole: the verdict of an earlier run with this build, card and driver, else a run that is then kept; rows that failed
// leave the context's table.
rd_status rdi_first_use_apply(rd_ctx *ctx);

#endif // RDI_FIRST_USE_H

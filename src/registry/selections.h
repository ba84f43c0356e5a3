// SPDX-License-Identifier: Apache-2.0
// The record of distinct questions, in first-asked order, and the report written from it. One lock, taken when a question
// is asked and when the record is read; running a plan takes none.
#ifndef RDI_SELECTIONS_H
#define RDI_SELECTIONS_H

#include "base/base.h"

#include <pthread.h>

typedef struct rdi_selection {
    rd_selection shown;
    char *identity; // op and the key-sorted question: what makes two questions one
    uint64_t hash;  // of identity
} rdi_selection;

typedef struct rdi_selections {
    pthread_mutex_t lock;
    rdi_selection **entries; // each its own allocation: the texts never move
    int32_t count, capacity;
} rdi_selections;

void rdi_selections_init(rdi_selections *selections);
void rdi_selections_free(rdi_selections *selections);
// Counts the question, or adds it. kernel NULL = none. The texts are copied.
rd_status rdi_selections_record(rdi_selections *selections, const char *op, const char *query,
                                const char *sorted, const char *kernel, const char *reason);
rd_status rdi_selections_at(rdi_selections *selections, int32_t index, rd_selection *out);
rd_status rdi_selections_report(rdi_selections *selections, int32_t kernels_built, char *text, size_t *bytes);

#endif // RDI_SELECTIONS_H

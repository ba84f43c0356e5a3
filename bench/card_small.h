// SPDX-License-Identifier: Apache-2.0
// The frame of the small-op timings (card_small.c) for the ops in card_small_heads.c.
#ifndef BENCH_CARD_SMALL_H
#define BENCH_CARD_SMALL_H

#include "card.h"

enum { MOST_PARTS = 6, LARGE_ROWS = 1024, BLOCK_TOKENS = 64 };

typedef struct part { // memory that calls write
    unsigned char *there, *saved;
    size_t bytes;
    bool state; // read as well: put back before a replay
} part;
typedef struct job {
    const char *name;
    int64_t m, k, calls, at; // at: of the op's interval key
    double bytes;            // that one call must move
    card_call run;
    void *state;
    rd_plan **plan; // the state's, filled in for each kind of edges
    part parts[MOST_PARTS];
    int part_count;
    double (*error)(void *state); // of the first call, as a share of its bound; or NULL
} job;

void small_part(job *j, void *there, size_t bytes, bool state);
// Checks and times the job with this kernel, over the kinds of edges that were asked for, and lets go of its parts.
void small_measure(job *j, const char *kernel, const rd_param *question, int32_t count);
int64_t small_calls(int64_t rows);
rd_tensor small_on_card(rd_tensor t);
rd_tensor small_matrix(void *data, rd_dtype dtype, int64_t m, int64_t k);
uint16_t *small_random(int64_t count, void **there); // bf16, 1/8 to 2 of either sign; the host's copy: free()

void small_heads(int64_t m, int64_t q_heads, int64_t kv_heads, int64_t dim,
                 int64_t rotary); // card_small_heads.c
void small_samples(int64_t rows);
// folder: what bench/rivals/flashinfer.sh made (card_flashinfer.c)
void small_flashinfer(const char *folder, int64_t m, int64_t k, bool dependent, bool plain);
void small_floor(bool dependent, bool plain); // card_floor.c

#endif // BENCH_CARD_SMALL_H

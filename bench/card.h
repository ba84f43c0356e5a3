// SPDX-License-Identifier: Apache-2.0
// What the programs that time kernels on a card share: one context and stream, memory, random operands, and the time of a
// graph of calls. Whatever fails ends the program with the library's text.
#ifndef BENCH_CARD_H
#define BENCH_CARD_H

#include "radiance.h"

#include <stdbool.h>

extern rd_ctx *card_ctx;
extern rd_stream card_stream;
extern char card_run[64];    // names this run in a CSV: when and of which build
extern bool card_simulated;  // sim:gfx1201: two copies, two calls, one replay, no ceiling
extern double card_read_gbs; // what a kernel that only reads reaches over 2 GiB, in this run

void card_open(const char *device); // and measures card_read_gbs
void card_close(void);
void card_need(rd_status status);
void card_fail(const char *text, ...); // ends the program

void *card_alloc(size_t bytes);
void card_free(void *pointer); // on the card; NULL is nothing
void *card_host(size_t bytes); // plain memory, zeroed: free()
void *card_put(const void *host, size_t bytes);
void card_get(void *host, const void *there, size_t bytes);
void card_set(void *there, int byte, size_t bytes);
// `bytes` of the card out of a pattern of the host, over and over.
void card_tile(void *there, size_t bytes, const void *pattern, size_t pattern_bytes);

enum { CARD_LIST = 32 };
// "1,16,8192": whole numbers from 1 on; returns how many.
int card_numbers(const char *text, int64_t to[CARD_LIST]);
// The value of option `at`, which must be there; one word of "a b c", or each of a list of them with commas between: whatever else ends
// the program, so that no misspelt option times something else.
const char *card_value(int argc, char **argv, int at);
const char *card_word(const char *name, const char *text, const char *words);
const char *card_words(const char *name, const char *text, const char *words);

uint32_t card_random(void);
void card_fill_bf16(uint16_t *to, int64_t count); // 1/8 to 2, either sign
double card_e4m3(uint8_t code);
double card_bf16(uint16_t code);
uint16_t card_to_bf16(double value);

// A call of `state`; plain edges come from the plan (card_plan).
typedef void (*card_call)(void *state, int64_t call);
// A plan of one kernel. in_turn: its launches wait for the end of what is before them ("plain" edges); else they start early
// and wait inside ("dependent").
rd_plan *card_plan(const char *kernel, const rd_param *question, int32_t count, int64_t at, bool in_turn);
// The row of the op that the library chooses for the question; NULL when none takes it.
const char *card_kernel(const char *op, const rd_param *question, int32_t count);

typedef struct card_time {
    double us, best_us; // of one call: median and best replay
} card_time;
// What the clocks have been through: decides long calls on a card that is bound by power.
typedef enum card_state { CARD_READY = 0, CARD_COLD, CARD_WARM } card_state;
const char *card_state_name(card_state state); // "ready" "cold" "warm"

rd_graph *card_record(card_call call, void *state, int64_t calls);
// READY: the median of 15 replays after three. COLD: of the first 20 ms after 80 ms of rest. WARM: of 20 ms after 200 ms of the
// same work.
card_time card_replay(rd_graph *graph, int64_t calls, card_state state);

#endif // BENCH_CARD_H

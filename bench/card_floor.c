// SPDX-License-Identifier: Apache-2.0
// What a kernel of a graph costs before it does anything: an empty one, and one in which every thread reads the word that the last kernel
// wrote, adds one and writes it on. PTX for the driver, so that no compiler is needed here.
#include "card_small.h"
#include "cuda.h"

#include <stdio.h>
#include <stdlib.h>

enum { BLOCKS = 132, THREADS = 128 };

static const char ptx[] =
    ".version 8.0\n.target sm_90\n.address_size 64\n"
    ".visible .entry empty() { griddepcontrol.launch_dependents; griddepcontrol.wait; ret; }\n"
    ".visible .entry chain(.param .u64 from, .param .u64 to) {\n"
    " .reg .u64 %a, %b, %o; .reg .u32 %i, %t, %n; .reg .f32 %v;\n"
    " griddepcontrol.launch_dependents;\n"
    " ld.param.u64 %a, [from]; ld.param.u64 %b, [to];\n"
    " mov.u32 %i, %ctaid.x; mov.u32 %n, %ntid.x; mov.u32 %t, %tid.x;\n"
    " mad.lo.u32 %i, %i, %n, %t; mul.wide.u32 %o, %i, 4; add.u64 %a, %a, %o; add.u64 %b, %b, %o;\n"
    " griddepcontrol.wait;\n"
    " ld.global.f32 %v, [%a]; add.f32 %v, %v, 0f3F800000; st.global.f32 [%b], %v; ret; }\n";

typedef struct floor_bench {
    cuda_driver cuda;
    void *function;
    unsigned char *words; // of calls: [132, 128] f32
    bool dependent;
} floor_bench;

static const size_t step = BLOCKS * THREADS * sizeof(float);

static void run_floor(void *state, int64_t call) {
    floor_bench *b = state;
    void *from = b->words + (size_t)call * step, *to = b->words + (size_t)(call + 1) * step,
         *args[] = {&from, &to};
    const int error = cuda_start(&b->cuda, b->function, BLOCKS, (const unsigned[2]){THREADS, 1}, 0, 1,
                                 b->dependent, args, card_stream);
    if (error) card_fail("card_small: cuLaunchKernelEx: %d", error);
}

static void measure(floor_bench *b, const char *name, bool reads) {
    const int64_t calls = small_calls(1);
    const size_t bytes = (size_t)(calls + 1) * step;
    float *words = card_host(bytes);
    bool same = true;
    card_set(b->words, 0, bytes);
    rd_graph *graph = card_record(run_floor, b, calls);
    const card_time time = card_replay(graph, calls, CARD_READY);
    rd_graph_free(graph);
    card_get(words, b->words, bytes);
    for (int64_t i = 0; i < (calls + 1) * BLOCKS * THREADS; i++)
        same = same && words[i] == (reads ? (float)(i / (BLOCKS * THREADS)) : 0);
    free(words);
    printf("%s,%s,%s,%d,%d,%s,%lld,%.3f,%.3f,0,0,,%s\n", card_run, name, name, BLOCKS, THREADS,
           b->dependent ? "dependent" : "plain", (long long)calls, time.us, time.best_us,
           same ? "same" : "DIFFERENT");
    if (!same) card_fail("card_small: %s is wrong here", name);
}

void small_floor(bool dependent, bool plain) {
    static const char *const names[] = {"empty", "chain"}, *const lines[] = {"floor empty", "floor chain"};
    char why[256];
    void *module = NULL;
    floor_bench b = {0};
    if (card_simulated || !cuda_open(&b.cuda, why, sizeof why)) {
        fprintf(stderr, "card_small: no floor: %s\n", card_simulated ? "a simulated card has no time" : why);
        return;
    }
    int error = b.cuda.cuModuleLoadData(&module, ptx);
    b.words = card_alloc((size_t)(small_calls(1) + 1) * step);
    for (int i = 0; i < 2; i++) {
        if (!error) error = b.cuda.cuModuleGetFunction(&b.function, module, names[i]);
        if (error) card_fail("card_small: the empty kernels: error %d", error);
        for (int kind = 0; kind < 2; kind++) {
            b.dependent = kind == 0;
            if (kind ? plain : dependent) measure(&b, lines[i], i == 1);
        }
    }
    card_free(b.words);
}

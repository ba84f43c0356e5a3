// SPDX-License-Identifier: Apache-2.0
// Decode steps on a card as graphs: one for each (sequences, bound of their lengths), recorded when such a step comes for the
// second time, so that a launch a kernel becomes a launch a step. What changes from step to step (ids, positions, slots,
// lengths, block tables) lies in page-locked host memory that the graph's own copies read.
#include "engine/engine.h"

enum { LEAST_KEYS = 256 };

// Lengths up to a power of two share a graph: grids are made for the bound, results do not depend on it.
int32_t rdi_step_keys(const rd_engine *engine) {
    int64_t bound = LEAST_KEYS;
    while (bound < engine->batch.keys) bound *= 2;
    return (int32_t)rdi_min(bound, engine->geometry.context_tokens);
}

static rd_status run_pass(rd_engine *engine) {
    RDI_TRY(rdi_forward(engine));
    return rdi_forward_head(engine, 0, engine->batch.rows, engine->scratch.logits);
}

static rdi_step_graph *find_graph(rd_engine *engine) {
    for (int32_t i = 0; i < engine->graph_count; i++)
        if (engine->graph[i].seqs == engine->batch.seqs && engine->graph[i].keys == engine->batch.keys)
            return &engine->graph[i];
    return NULL;
}

// Recording runs nothing; whatever fails in between, it must end.
rd_status rdi_pass_record(rd_engine *engine, rd_status (*run)(rd_engine *engine), rd_graph **out) {
    RDI_TRY(rd_graph_begin(engine->ctx, engine->memory.stream));
    rd_status status = run(engine);
    rd_status ended = rd_graph_end(engine->ctx, engine->memory.stream, out);
    if (status == RD_OK) return ended;
    if (ended == RD_OK) rd_graph_free(*out);
    *out = NULL;
    return status;
}

rd_status rdi_step_replay(rd_engine *engine) {
    engine->batch.first_out = 0;
    engine->batch.keys = rdi_step_keys(engine);
    rdi_step_graph *known = find_graph(engine);
    if (!known) {
        // The first of its kind runs as it is: many are asked for once.
        if (engine->graph_count < RDI_MAX_GRAPHS)
            engine->graph[engine->graph_count++] =
                (rdi_step_graph){.seqs = engine->batch.seqs, .keys = engine->batch.keys};
        return run_pass(engine);
    }
    if (!known->graph) RDI_TRY(rdi_pass_record(engine, run_pass, &known->graph));
    engine->replayed++;
    return rd_graph_launch(known->graph, engine->memory.stream);
}

void rdi_step_graphs_free(rd_engine *engine) {
    for (int32_t i = 0; i < engine->graph_count; i++) rd_graph_free(engine->graph[i].graph);
    engine->graph_count = 0;
}

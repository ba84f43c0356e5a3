// SPDX-License-Identifier: Apache-2.0
// One work-group: launch state of its waves, their turns, and the barrier. Turns follow the wave order, each to
// its next barrier, or with a schedule seed a random wave for a random number of instructions.
#include <immintrin.h>
#include <stdarg.h>
#include <stdlib.h>
#include "group.h"
#include "module.h"

enum { TURN = 1 << 16, POISON = 0xa5a5a5a5u };

static void *aligned(size_t bytes) {
    void *p = NULL;
    return posix_memalign(&p, 64, (bytes + 63) & ~(size_t)63) ? NULL : p;
}

gs_group *gs_group_create(gs_run *run, gs_stats *stats, gs_line_stats *lines) {
    gs_group *g = aligned(sizeof *g);
    if (!g) return NULL;
    memset(g, 0, sizeof *g);
    u32 words = run->lds_bytes / 4 + 1, n = run->waves_per_group;
    g->run = run, g->stats = stats, g->lines = lines, g->wave_count = n, g->lds_bytes = run->lds_bytes;
    g->waves = aligned(n * sizeof *g->waves);
    g->vgpr_store = aligned((size_t)n * GS_VGPRS * GS_LANES * 4);
    g->lds = aligned(words * 4 + 64); // wide stores of checked addresses stay inside
    g->shadow = aligned((words + 4) * sizeof *g->shadow);
    g->scratch_store = aligned((size_t)n * GS_LANES * (run->scratch_bytes + 4));
    if (!g->waves || !g->vgpr_store || !g->lds || !g->shadow || !g->scratch_store) {
        gs_group_free(g);
        return NULL;
    }
    return g;
}

void gs_group_free(gs_group *g) {
    if (!g) return;
    free(g->waves), free(g->vgpr_store), free(g->lds), free(g->scratch_store), free(g->shadow);
    free(g);
}

// Scalar registers at launch: user SGPRs in the order of the descriptor's enable bits; work-group id in ttmp9
// (x) and ttmp7 (y, z), wave number in ttmp8 bits 29..25.
static void scalar_state(gs_wave *w) {
    const gs_group *g = w->g;
    const gs_run *run = g->run;
    u32 properties = run->kernel->properties, at = 0;
    for (u32 i = 0; i < 128; i++) w->s[i] = i < SGPR_TTMP ? POISON : 0;
    u64 values[6] = {0, (u64)(uintptr_t)run->dispatch_packet, 0, (u64)(uintptr_t)run->kernarg, 0, 0};
    if (properties & 1) at += 4; // private segment buffer: not used by gfx12 code
    for (u32 bit = 1; bit <= 5; bit++)
        if (properties >> bit & 1)
            w->s[at] = (u32)values[bit], w->s[at + 1] = (u32)(values[bit] >> 32), at += 2;
    if (properties >> 6 & 1) w->s[at++] = run->scratch_bytes;
    w->s[SGPR_TTMP + 9] = g->id[0];
    w->s[SGPR_TTMP + 7] = g->id[1] | g->id[2] << 16;
    w->s[SGPR_TTMP + 8] = (w->index & 31) << 25;
    w->s[SGPR_EXEC] = w->launch_exec;
    w->s[SGPR_EXEC + 1] = 0;
    w->s[SGPR_VCC] = w->s[SGPR_VCC + 1] = 0;
    w->s[SGPR_M0] = 0;
    w->s[SGPR_NULL] = 0;
}

static void wave_start(gs_group *g, u32 index) {
    gs_wave *w = &g->waves[index];
    const gs_run *run = g->run;
    const u32 *block = run->block;
    memset(w, 0, sizeof *w);
    w->v = g->vgpr_store + (size_t)index * GS_VGPRS * GS_LANES;
    w->scratch = g->scratch_store + (size_t)index * GS_LANES * run->scratch_bytes;
    w->index = index, w->g = g, w->ops = run->kernel->module->ops, w->pc = run->kernel->entry;
    w->mode = run->kernel->rsrc1 >> 12 & 0xff; // FLOAT_MODE: rounding and denormals, same order as MODE
    for (u32 i = 0; i < run->vgprs * GS_LANES; i++) w->v[i] = POISON;
    u32 items = block[0] * block[1] * block[2], left = items - index * GS_LANES;
    w->launch_exec = left >= GS_LANES ? ~0u : (1u << left) - 1;
    for (u32 lane = 0; lane < GS_LANES; lane++) {
        u32 item = index * GS_LANES + lane;
        w->v[lane] = item % block[0] | item / block[0] % block[1] << 10 | item / block[0] / block[1] << 20;
    }
    w->written[0] = w->launch_exec;
    const gs_launch *l = run->launch;
    w->traced = l->trace && l->trace_group == g->linear && l->trace_wave == index;
    scalar_state(w);
}

void gs_group_start(gs_group *g, u32 linear) {
    const gs_run *run = g->run;
    g->linear = linear;
    g->uid = run->uid_base + linear;
    g->id[0] = linear % run->grid[0], g->id[1] = linear / run->grid[0] % run->grid[1],
    g->id[2] = linear / run->grid[0] / run->grid[1];
    g->alive = g->wave_count;
    g->signalled = g->phase = 0;
    g->lds_ticket = g->vm_ticket = 0;
    g->acquired = 0;
    g->random = (run->launch->schedule_seed + linear) * 0x9e3779b97f4a7c15ull | 1;
    g->near = (gs_range){0};
    u32 words = run->lds_bytes / 4 + 1;
    for (u32 i = 0; i < words; i++) memcpy(g->lds + 4 * i, &(u32){POISON}, 4);
    if (run->checked) memset(g->shadow, 0, words * sizeof *g->shadow);
    memset(g->barrier_lds, 0, sizeof g->barrier_lds), memset(g->barrier_vm, 0, sizeof g->barrier_vm);
    for (u32 i = 0; i < g->wave_count; i++) wave_start(g, i);
    g->stats->groups++;
    g->stats->waves += g->wave_count;
}

gs_stop gs_fault(gs_wave *w, const gs_op *op, gs_check check, int lane, u64 address, const char *format,
                 ...) {
    gs_run *run = w->g->run;
    pthread_mutex_lock(&run->lock);
    if (!__atomic_load_n(&run->stop, __ATOMIC_RELAXED)) {
        gs_error *e = run->error;
        va_list args;
        va_start(args, format);
        memset(e, 0, sizeof *e);
        e->status = GS_E_CHECK;
        e->check = check;
        vsnprintf(e->message, sizeof e->message, format, args);
        va_end(args);
        snprintf(e->kernel, sizeof e->kernel, "%s", run->kernel->info.name);
        memcpy(e->group, w->g->id, sizeof e->group);
        e->wave = w->index, e->lane = lane, e->address = address, e->pc = op->va;
        snprintf(e->line, sizeof e->line, "%s", op->text);
        run->status = GS_E_CHECK;
        __atomic_store_n(&run->stop, 1, __ATOMIC_RELAXED);
    }
    pthread_mutex_unlock(&run->lock);
    return GS_STOP_FAULT;
}

gs_stop gs_barrier_arrive(gs_wave *w, const gs_op *op) {
    gs_group *g = w->g;
    gs_race_signal(w);
    w->barrier_target = g->phase + 1;
    if (++g->signalled < g->alive) return GS_RUN;
    if (g->alive < g->wave_count && g->run->check[GS_CHECK_BARRIER])
        return gs_fault(w, op, GS_CHECK_BARRIER, -1, 0,
                        "barrier completes with %u of %u waves; the others have ended", g->alive,
                        g->wave_count);
    gs_race_complete(g);
    g->signalled = 0;
    g->phase++;
    return GS_RUN;
}

static void trace_line(const gs_wave *w, const gs_op *op) {
    char text[512];
    int n = snprintf(text, sizeof text, "%8llu %08llx %-60s exec %08x scc %u vcc %08x",
                     (unsigned long long)w->steps, (unsigned long long)op->va, op->text, w->s[SGPR_EXEC],
                     w->scc, w->s[SGPR_VCC]);
    const gs_opnd *d = &op->dst;
    if (d->kind == OPND_VGPR && n > 0 && n < 400)
        snprintf(text + n, sizeof text - (size_t)n, "  v%u = %08x %08x .. %08x", d->reg,
                 w->v[d->reg * GS_LANES], w->v[d->reg * GS_LANES + 1], w->v[d->reg * GS_LANES + 31]);
    else if (d->kind == OPND_SGPR && n > 0 && n < 400)
        snprintf(text + n, sizeof text - (size_t)n, "  s%u = %08x", d->reg, w->s[d->reg]);
    w->g->run->launch->trace(w->g->run->launch->trace_context, text);
}

static inline __attribute__((always_inline)) gs_stop run_wave(gs_wave *w, u64 budget, const bool checked,
                                                              const bool watched) {
    const gs_op *ops = w->ops;
    gs_line_stats *lines = w->g->lines;
    gs_stop stop = GS_STOP_YIELD;
    u64 left = budget;
    while (left) {
        const gs_op *op = &ops[w->pc];
        left--;
        if (checked && (stop = gs_check_op(w, op))) break;
        w->pc++;
        if (watched && lines) lines[op->index].hits++;
        stop = op->exec(w, op);
        if (stop == GS_STOP_BARRIER) { // will be tried again, and counts then
            left++;
            if (watched && lines) lines[op->index].hits--;
            break;
        }
        if (watched && w->traced) w->steps += budget - left, budget = left, trace_line(w, op);
        if (stop) break;
        stop = GS_STOP_YIELD;
    }
    w->steps += budget - left;
    return stop;
}

static gs_stop turn(gs_wave *w, u64 budget) {
    const gs_run *run = w->g->run;
    if (budget > run->max_steps - w->steps) budget = run->max_steps - w->steps;
    if (!budget)
        return gs_fault(w, &w->ops[w->pc], GS_CHECK_HANG, -1, 0,
                        "wave has executed %llu instructions without an end", (unsigned long long)w->steps);
    gs_mode_apply(w);
    bool watched = w->g->lines || w->traced;
    if (run->checked) return watched ? run_wave(w, budget, true, true) : run_wave(w, budget, true, false);
    return watched ? run_wave(w, budget, false, true) : run_wave(w, budget, false, false);
}

static u64 next_random(gs_group *g) { // xorshift
    g->random ^= g->random << 13, g->random ^= g->random >> 7, g->random ^= g->random << 17;
    return g->random * 0x2545f4914f6cdd1dull >> 16;
}

static bool blocked(const gs_wave *w) {
    return w->barrier_target > w->g->phase && strcmp(w->ops[w->pc].row->name, "s_barrier_wait") == 0;
}

static gs_stop wave_turn(gs_group *g, u32 index, bool *ran, bool *only_slept, u64 *spent) {
    gs_wave *w = &g->waves[index];
    if (w->ended || blocked(w)) return GS_RUN;
    u64 before = w->steps, limit = g->run->launch->schedule_seed ? 1 + next_random(g) % 97 : TURN;
    gs_stop stop = turn(w, limit);
    *ran = true;
    *spent += w->steps - before;
    if (stop != GS_STOP_YIELD || w->steps - before >= limit) *only_slept = false;
    if (stop == GS_STOP_END) {
        g->alive--;
        if (g->alive && g->signalled == g->alive) // the rest was waiting for this wave
            return gs_fault(&g->waves[index], &w->ops[w->pc - 1], GS_CHECK_BARRIER, -1, 0,
                            "wave ends while the %u others wait at a barrier", g->alive);
    }
    return stop == GS_STOP_FAULT ? stop : GS_RUN;
}

static gs_progress run_turns(gs_group *g, u64 budget) {
    u64 spent = 0;
    while (g->alive) {
        bool ran = false, only_slept = true;
        u32 first = g->run->launch->schedule_seed ? (u32)(next_random(g) % g->wave_count) : 0;
        for (u32 k = 0; k < g->wave_count; k++)
            if (wave_turn(g, (first + k) % g->wave_count, &ran, &only_slept, &spent)) return GROUP_FAULT;
        if (!ran && g->alive) {
            for (u32 i = 0; i < g->wave_count; i++)
                if (!g->waves[i].ended) {
                    gs_fault(&g->waves[i], &g->waves[i].ops[g->waves[i].pc], GS_CHECK_HANG, -1, 0,
                             "all %u live waves wait at a barrier that cannot complete", g->alive);
                    return GROUP_FAULT;
                }
        }
        if (__atomic_load_n(&g->run->stop, __ATOMIC_RELAXED)) return GROUP_FAULT;
        if (g->alive && only_slept) return GROUP_IDLE;
        if (g->alive && spent >= budget) return GROUP_BUSY;
    }
    return GROUP_DONE;
}

gs_progress gs_group_run(gs_group *g, u64 budget) {
    u32 csr = _mm_getcsr();
    gs_progress progress = run_turns(g, budget);
    if (progress == GROUP_DONE)
        for (u32 i = 0; i < g->wave_count; i++) g->stats->instructions += g->waves[i].steps;
    _mm_setcsr(csr);
    return progress;
}

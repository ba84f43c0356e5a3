// SPDX-License-Identifier: Apache-2.0
// Counters of memory traffic: bytes asked, 128-byte lines touched, LDS bank cycles.
#include "sim.h"

// Model: 32 banks of 4 bytes. A wide access goes in passes of 32 dwords (16 lanes of 8 bytes, 8 of 16); a pass
// takes as many cycles as the busiest bank has distinct dwords. (Reproduces the 8-way conflict that was measured
// on 64-byte rows read with b64.)
static u32 pass_cycles(const u32 *address, u32 exec, u32 first, u32 lanes, u32 words) {
    u32 dwords[32][32], count[32] = {0}, most = 0;
    for (u32 lane = first; lane < first + lanes; lane++) {
        if (!(exec >> lane & 1)) continue;
        for (u32 k = 0; k < words; k++) {
            u32 d = (address[lane] >> 2) + k, bank = d & 31, i = 0;
            while (i < count[bank] && dwords[bank][i] != d) i++;
            if (i == count[bank] && i < 32) dwords[bank][count[bank]++] = d;
        }
    }
    for (u32 b = 0; b < 32; b++) most = count[b] > most ? count[b] : most;
    return most;
}

void gs_stats_lds(gs_wave *w, const gs_op *op, const u32 *address, u32 exec, u32 bytes) {
    u32 words = bytes < 4 ? 1 : bytes / 4, lanes = words >= 3 ? 8 : words == 2 ? 16 : 32, cycles = 0, least = 0;
    for (u32 first = 0; first < GS_LANES; first += lanes) {
        u32 c = pass_cycles(address, exec, first, lanes, words);
        cycles += c;
        least += c > 0;
    }
    gs_stats *s = w->g->stats;
    s->lds_bytes += (u64)__builtin_popcount(exec) * bytes;
    s->lds_cycles += cycles;
    s->lds_conflict_cycles += cycles - least;
    if (w->g->lines) w->g->lines[op->index].lds_conflict_cycles += cycles - least;
}

void gs_stats_global(gs_wave *w, const gs_op *op, const u64 *address, u32 exec, u32 bytes, bool write) {
    u64 line[2 * GS_LANES];
    u32 count = 0;
    for (u32 m = exec; m; m &= m - 1) {
        u64 a = address[__builtin_ctz(m)];
        for (u64 at = a >> 7; at <= (a + bytes - 1) >> 7; at++) {
            u32 i = count;
            while (i && line[i - 1] != at) i--;
            if (!i) line[count++] = at;
        }
    }
    gs_stats *s = w->g->stats;
    u64 asked = (u64)__builtin_popcount(exec) * bytes;
    if (op->cls == GS_CLASS_SMEM) s->smem_bytes += asked;
    else if (write) s->store_bytes += asked, s->store_lines += count;
    else s->load_bytes += asked, s->load_lines += count;
    if (w->g->lines) w->g->lines[op->index].lines_touched += count;
}

// SPDX-License-Identifier: Apache-2.0
// Checks on accesses of LDS: bounds, alignment, bytes never written, races; and what barriers order, in LDS and in
// global memory.
//
// Every access of a group takes a ticket. An access is ordered before another wave's when it was complete (its wait
// counter said so) at an s_barrier_signal whose barrier the other wave has passed. Each dword of shadow remembers
// the last write and the last reads with ticket, wave and byte mask.
#include <immintrin.h>
#include "race.h"

#define TICKET(e)    ((e) >> 10)
#define TICKET_LIMIT (1u << 22)

static bool lds_ordered(const gs_wave *w, u32 e, u32 mask, bool atomic) {
    return !e || WAVE(e) == w->index || TICKET(e) <= w->lds_visible[WAVE(e)] || !(MASK(e) & mask) ||
           (atomic && e & ATOMIC_BIT);
}

static gs_stop lds_race(gs_wave *w, const gs_op *op, int lane, u32 address, u32 e, const char *mine,
                        const char *theirs) {
    return gs_fault(w, op, GS_CHECK_RACE_LDS, lane, address,
                    "LDS byte %u is %s here and was %s by wave %u with no barrier between (or before that "
                    "access had completed)",
                    address, mine, theirs, WAVE(e));
}

// Tickets ran out: forget everything once, rather than compare wrapped numbers.
static void lds_restart(gs_group *g) {
    u32 words = (g->lds_bytes + 3) / 4;
    for (u32 i = 0; i < words; i++) g->shadow[i].write = g->shadow[i].read = g->shadow[i].other = 0;
    g->lds_ticket = 1;
    for (u32 i = 0; i < g->wave_count; i++) {
        gs_wave *v = &g->waves[i];
        memset(v->lds_visible, 0, sizeof v->lds_visible);
        for (u32 k = 0; k < 64; k++) v->lds_ticket[k] = 1;
        v->lds_safe = 0;
        g->barrier_lds[i] = g->barrier_lds_next[i] = 0;
    }
    g->barrier_lds_safe = 0;
}

static void lds_note_read(const gs_wave *w, gs_lds_word *s, u32 mine) {
    if (WAVE(s->read) != w->index)
        s->other = s->read;
    else if (TICKET(s->read) == TICKET(mine))
        mine |= s->read & 15 << 5;
    s->read = mine;
}

static void lds_note_write(const gs_wave *w, gs_lds_word *s, u32 mine) {
    if (WAVE(s->write) == w->index && TICKET(s->write) > w->lds_safe)
        mine |= s->write & 15 << 5; // own neighbours of the same phase
    s->write = mine;
}

static gs_stop lds_word(gs_wave *w, const gs_op *op, int lane, u32 base, u32 address, u32 mask,
                        gs_access access) {
    gs_lds_word *s = &w->g->shadow[address >> 2];
    u32 e = s->write, mine = w->g->lds_ticket << 10 | mask << 5 | w->index;
    bool atomic = access == ACCESS_ATOMIC;
    const char *verb = access == ACCESS_READ ? "read" : "written";
    bool ordered = lds_ordered(w, e, mask, atomic);
    if (!ordered && access == ACCESS_WRITE)
        ordered = same_value(w, lane, address - base, (u32)__builtin_popcount(mask), w->g->lds + address);
    if (!ordered) return lds_race(w, op, lane, address, e, verb, "written");
    if (access == ACCESS_READ) {
        lds_note_read(w, s, mine);
        return GS_RUN;
    }
    if (!lds_ordered(w, s->read, mask, false)) return lds_race(w, op, lane, address, s->read, verb, "read");
    if (!lds_ordered(w, s->other, mask, false)) return lds_race(w, op, lane, address, s->other, verb, "read");
    lds_note_write(w, s, mine | (atomic ? ATOMIC_BIT : 0));
    return GS_RUN;
}

// Entries below are ordered or were never made.
static inline u32 lds_limit(const gs_wave *w) {
    u32 limit = w->lds_safe << 10;
    return limit ? limit : 1;
}

static inline __m256i entry_pair(const gs_lds_word *s, u32 words) { // one dword's entry twice, or two
    return words == 1 ? _mm256_broadcastsi128_si256(_mm_load_si128((const __m128i *)s))
                      : _mm256_loadu_si256((const __m256i *)s);
}

// Whole aligned dwords (1, 2 or 4 a lane). True when each is this wave's own or ordered by a barrier, and written
// before it is read; then the access is recorded. False: nothing was, look closer.
static inline __attribute__((always_inline)) bool
lds_quick(gs_wave *w, const u32 *address, u32 exec, const u32 words, const gs_access access, bool init) {
    enum { WRITE_FIELDS = 0x11, RACE_FIELDS = 0x77, INIT_BYTES = 0xf000f000 }; // of two entries in a register
    const gs_lds_word *shadow = w->g->shadow;
    const __m256i self = _mm256_set1_epi32((int)w->index), wave = _mm256_set1_epi32(31),
                  zero = _mm256_setzero_si256(), limit = _mm256_set1_epi32((int)lds_limit(w)),
                  mine = _mm256_set1_epi32((int)(w->g->lds_ticket << 10 | 15 << 5 | w->index));
    __m256i late = zero, foreign = zero, have = _mm256_set1_epi32(15);
    for (u32 m = exec; m; m &= m - 1) {
        const gs_lds_word *s = shadow + (address[__builtin_ctz(m)] >> 2);
        for (u32 k = 0; k < words; k += 2) {
            __m256i x = entry_pair(s + k, words), other = _mm256_and_si256(_mm256_xor_si256(x, self), wave);
            __m256i unsafe = _mm256_cmpeq_epi32(_mm256_max_epu32(x, limit), x);
            late = _mm256_or_si256(late, _mm256_andnot_si256(_mm256_cmpeq_epi32(other, zero), unsafe));
            foreign = _mm256_or_si256(foreign, other);
            have = _mm256_and_si256(have, x);
        }
    }
    bool write = access == ACCESS_WRITE;
    // Of a read only the last write matters, of a write all three.
    late = write ? _mm256_blend_epi32(zero, late, RACE_FIELDS) : _mm256_blend_epi32(zero, late, WRITE_FIELDS);
    if (!_mm256_testz_si256(late, late)) return false;
    u32 written = (u32)_mm256_movemask_epi8(_mm256_cmpeq_epi32(have, _mm256_set1_epi32(15)));
    if (!write && init && ~written & (u32)INIT_BYTES) return false;
    bool others = !write && !_mm256_testz_si256(foreign, _mm256_set_epi32(0, 0, 31, 0, 0, 0, 31, 0));
    for (u32 m = exec; m; m &= m - 1) {
        gs_lds_word *s = w->g->shadow + (address[__builtin_ctz(m)] >> 2);
        for (u32 k = 0; k < words; k++) {
            if (write) {
                s[k].write = (u32)_mm256_cvtsi256_si32(mine), s[k].init = 15;
                continue;
            }
            if (others && (s[k].read ^ w->index) & 31) s[k].other = s[k].read;
            s[k].read = (u32)_mm256_cvtsi256_si32(mine);
        }
    }
    return true;
}

// The same for a byte or a half a lane.
static bool lds_quick_part(gs_wave *w, const u32 *address, u32 exec, u32 bytes, gs_access access, bool init) {
    u32 limit = lds_limit(w), self = w->index, ticket = w->g->lds_ticket << 10;
    for (u32 m = exec; m; m &= m - 1) {
        u32 at = address[__builtin_ctz(m)], mask = byte_mask(at, bytes);
        const gs_lds_word *s = &w->g->shadow[at >> 2];
        if (s->write >= limit && WAVE(s->write) != self) return false;
        if (access == ACCESS_READ) {
            if (init && ~s->init & mask) return false;
        } else if ((s->read >= limit && WAVE(s->read) != self) ||
                   (s->other >= limit && WAVE(s->other) != self))
            return false;
    }
    for (u32 m = exec; m; m &= m - 1) {
        u32 at = address[__builtin_ctz(m)], mask = byte_mask(at, bytes);
        gs_lds_word *s = &w->g->shadow[at >> 2];
        if (access == ACCESS_READ)
            lds_note_read(w, s, ticket | mask << 5 | self);
        else {
            lds_note_write(w, s, ticket | mask << 5 | self);
            s->init |= mask;
        }
    }
    return true;
}

static gs_stop lds_races(gs_wave *w, const gs_op *op, const u32 *address, u32 exec, u32 bytes,
                         gs_access access) {
    if (w->g->lds_ticket >= TICKET_LIMIT) lds_restart(w->g);
    for (u32 m = exec; m; m &= m - 1) {
        int lane = __builtin_ctz(m);
        for (u32 at = address[lane], end = at + bytes; at < end; at = (at | 3) + 1)
            if (lds_word(w, op, lane, address[lane], at, byte_mask(at, end - at), access))
                return GS_STOP_FAULT;
    }
    return GS_RUN;
}

static gs_stop lds_init(gs_wave *w, const gs_op *op, const u32 *address, u32 exec, u32 bytes,
                        gs_access access) {
    gs_lds_word *shadow = w->g->shadow;
    bool check = access != ACCESS_WRITE && w->g->run->check[GS_CHECK_UNINIT_LDS];
    for (u32 m = exec; m; m &= m - 1) {
        int lane = __builtin_ctz(m);
        for (u32 at = address[lane], end = at + bytes; at < end; at = (at | 3) + 1) {
            u32 mask = byte_mask(at, end - at);
            if (check && ~shadow[at >> 2].init & mask)
                return gs_fault(w, op, GS_CHECK_UNINIT_LDS, lane, at,
                                "LDS bytes at %u are read but were never written", at);
            if (access == ACCESS_WRITE) shadow[at >> 2].init |= mask;
        }
    }
    return GS_RUN;
}

static u32 alignment(u32 bytes) {
    return bytes == 12 ? 4 : bytes;
}

static gs_stop lds_bad_address(gs_wave *w, const gs_op *op, const u32 *address, u32 exec, u32 bytes) {
    u32 limit = w->g->lds_bytes;
    for (u32 m = exec; m; m &= m - 1) {
        int lane = __builtin_ctz(m);
        if (address[lane] > limit || bytes > limit - address[lane])
            return gs_fault(w, op, GS_CHECK_LDS_BOUNDS, lane, address[lane],
                            "LDS access of %u bytes at %u, the group has %u bytes", bytes, address[lane],
                            limit);
    }
    for (u32 m = exec; m; m &= m - 1) {
        int lane = __builtin_ctz(m);
        if (address[lane] & (alignment(bytes) - 1))
            return gs_fault(w, op, GS_CHECK_MISALIGNED, lane, address[lane],
                            "LDS access of %u bytes at %u, needs a multiple of %u", bytes, address[lane],
                            alignment(bytes));
    }
    return GS_RUN;
}

static bool lds_quick_any(gs_wave *w, const u32 *address, u32 exec, u32 bytes, u32 low, gs_access access,
                          bool init) {
    if (bytes < 4) return !(low & (bytes - 1)) && lds_quick_part(w, address, exec, bytes, access, init);
    if (low & 3) return false;
    if (access == ACCESS_READ)
        return bytes == 4    ? lds_quick(w, address, exec, 1, ACCESS_READ, init)
               : bytes == 8  ? lds_quick(w, address, exec, 2, ACCESS_READ, init)
               : bytes == 16 ? lds_quick(w, address, exec, 4, ACCESS_READ, init)
                             : false;
    return bytes == 4    ? lds_quick(w, address, exec, 1, ACCESS_WRITE, init)
           : bytes == 8  ? lds_quick(w, address, exec, 2, ACCESS_WRITE, init)
           : bytes == 16 ? lds_quick(w, address, exec, 4, ACCESS_WRITE, init)
                         : false;
}

gs_stop gs_lds_access(gs_wave *w, const gs_op *op, const u32 *address, u32 exec, u32 bytes,
                      gs_access access) {
    const gs_run *run = w->g->run;
    u32 limit = w->g->lds_bytes, top = 0, low = 0;
    for (int i = 0; i < GS_LANES; i++) {
        u32 on = address[i] & -(exec >> i & 1);
        top = on > top ? on : top;
        low |= on;
    }
    if (top > limit || bytes > limit - top ||
        (low & (alignment(bytes) - 1) && run->check[GS_CHECK_MISALIGNED]))
        return lds_bad_address(w, op, address, exec, bytes);
    if (run->want_stats) gs_stats_lds(w, op, address, exec, bytes);
    if (!run->checked) return GS_RUN;
    bool init = run->check[GS_CHECK_UNINIT_LDS], races = run->check[GS_CHECK_RACE_LDS];
    if (races && access != ACCESS_ATOMIC && w->g->lds_ticket < TICKET_LIMIT &&
        lds_quick_any(w, address, exec, bytes, low, access, init))
        return GS_RUN;
    if (init && lds_init(w, op, address, exec, bytes, access)) return GS_STOP_FAULT;
    return races ? lds_races(w, op, address, exec, bytes, access) : GS_RUN;
}

// ---- barriers ---------------------------------------------------------------------------------------------
static u32 completed(const gs_wave *w, gs_counter counter, const u32 *tickets, u32 now) {
    u32 done = w->done[counter];
    return w->issued[counter] == done ? now : tickets[(done + 1) & 63] - 1;
}

void gs_race_signal(gs_wave *w) {
    gs_group *g = w->g;
    g->barrier_lds_next[w->index] = completed(w, GS_CNT_DS, w->lds_ticket, g->lds_ticket);
    u32 loads = completed(w, GS_CNT_LOAD, w->ld_ticket, g->vm_ticket),
        stores = completed(w, GS_CNT_STORE, w->st_ticket, g->vm_ticket);
    g->barrier_vm_next[w->index] = loads < stores ? loads : stores;
}

// Everything before the barrier is ordered for everybody, except what a wave issued and had not completed when
// it signalled: tickets below the result need no look at who took them.
static u32 safe_below(const gs_group *g, const u32 *ordered, u32 now, bool lds) {
    u32 safe = now + 1;
    for (u32 i = 0; i < g->wave_count; i++) {
        const gs_wave *v = &g->waves[i];
        u32 loads = v->ld_ticket[v->issued[GS_CNT_LOAD] & 63],
            stores = v->st_ticket[v->issued[GS_CNT_STORE] & 63];
        u32 last = lds ? v->lds_ticket[v->issued[GS_CNT_DS] & 63] : loads > stores ? loads : stores;
        if (!v->ended && last > ordered[i] && ordered[i] + 1 < safe) safe = ordered[i] + 1;
    }
    return safe;
}

void gs_race_complete(gs_group *g) {
    memcpy(g->barrier_lds, g->barrier_lds_next, sizeof g->barrier_lds);
    memcpy(g->barrier_vm, g->barrier_vm_next, sizeof g->barrier_vm);
    g->barrier_lds_safe = safe_below(g, g->barrier_lds, g->lds_ticket, true);
    g->barrier_vm_safe = safe_below(g, g->barrier_vm, g->vm_ticket, false);
}

void gs_race_join(gs_wave *w) {
    gs_group *g = w->g;
    memcpy(w->lds_visible, g->barrier_lds, sizeof w->lds_visible);
    memcpy(w->vm_visible, g->barrier_vm, sizeof w->vm_visible);
    w->lds_safe = g->barrier_lds_safe;
    w->vm_safe = g->barrier_vm_safe;
}

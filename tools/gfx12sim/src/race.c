// SPDX-License-Identifier: Apache-2.0
// Checks on memory accesses: bounds, alignment, bytes never written (LDS), and races.
//
// Races. Every access of a group takes a ticket. An access is ordered before another wave's when it was complete
// (its wait counter said so) at an s_barrier_signal whose barrier the other wave has passed. Each dword of shadow
// remembers the last write and the last reads with ticket, wave and byte mask. Between groups only atomics order:
// a group that executed one has released, a group that executed one later has acquired. That is lenient (any
// atomic counts, whatever its address), so no flag protocol is reported, and some races between groups are not.
#include <immintrin.h>
#include "mem.h"
#include "sim.h"

#define TICKET(e)    ((e) >> 10)
#define ATOMIC_BIT   (1u << 9)
#define MASK(e)      ((e) >> 5 & 15)
#define WAVE(e)      ((e) & 31)
#define TICKET_LIMIT (1u << 22)

static u32 byte_mask(u32 address, u32 bytes) { return bytes >= 4 ? 15 : ((1u << bytes) - 1) << (address & 3); }

// Two waves that store the same value to the same byte do no harm, and compilers that replicate data do it.
static bool same_value(const gs_wave *w, int lane, u32 offset, u32 bytes, const u8 *memory) {
    for (u32 i = 0; i < bytes; i++) {
        u32 at = offset + i + (w->store_high ? 2 : 0);
        if ((u8)(w->store[at / 4 * GS_LANES + (u32)lane] >> 8 * (at & 3)) != memory[i]) return false;
    }
    return true;
}

static bool lds_ordered(const gs_wave *w, u32 e, u32 mask, bool atomic) {
    return !e || WAVE(e) == w->index || TICKET(e) <= w->lds_visible[WAVE(e)] || !(MASK(e) & mask) ||
           (atomic && e & ATOMIC_BIT);
}

static gs_stop lds_race(gs_wave *w, const gs_op *op, int lane, u32 address, u32 e, const char *mine, const char *theirs) {
    return gs_fault(w, op, GS_CHECK_RACE_LDS, lane, address, "LDS byte %u is %s here and was %s by wave %u with no barrier between (or before that access had completed)",
                    address, mine, theirs, WAVE(e));
}

// Tickets ran out: forget everything once, rather than compare wrapped numbers.
static void lds_restart(gs_group *g) {
    u32 words = (g->lds_bytes + 3) / 4;
    memset(g->shadow.write, 0, words * sizeof(u32));
    memset(g->shadow.read, 0, words * sizeof(u32));
    memset(g->shadow.read_other, 0, words * sizeof(u32));
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

static gs_stop lds_word(gs_wave *w, const gs_op *op, int lane, u32 base, u32 address, u32 mask, gs_access access) {
    gs_lds_shadow *s = &w->g->shadow;
    u32 word = address >> 2, e = s->write[word], mine = w->g->lds_ticket << 10 | mask << 5 | w->index;
    bool atomic = access == ACCESS_ATOMIC;
    const char *verb = access == ACCESS_READ ? "read" : "written";
    bool ordered = lds_ordered(w, e, mask, atomic);
    if (!ordered && access == ACCESS_WRITE)
        ordered = same_value(w, lane, address - base, (u32)__builtin_popcount(mask), w->g->lds + address);
    if (!ordered) return lds_race(w, op, lane, address, e, verb, "written");
    if (access == ACCESS_READ) {
        u32 r = s->read[word];
        if (WAVE(r) != w->index) s->read_other[word] = r;
        else if (TICKET(r) == w->g->lds_ticket) mine |= r & 15 << 5;
        s->read[word] = mine;
        return GS_RUN;
    }
    if (!lds_ordered(w, s->read[word], mask, false)) return lds_race(w, op, lane, address, s->read[word], verb, "read");
    if (!lds_ordered(w, s->read_other[word], mask, false)) return lds_race(w, op, lane, address, s->read_other[word], verb, "read");
    if (WAVE(e) == w->index && TICKET(e) > w->lds_safe) mine |= e & 15 << 5; // own neighbours of the same phase
    s->write[word] = mine | (atomic ? ATOMIC_BIT : 0);
    return GS_RUN;
}

static inline __m128i take(const u32 *p, u32 words) {
    return words == 4 ? _mm_loadu_si128((const __m128i *)p) : words == 2 ? _mm_loadl_epi64((const __m128i *)p) : _mm_cvtsi32_si128((int)*p);
}
static inline void give(u32 *p, __m128i v, u32 words) {
    if (words == 4) _mm_storeu_si128((__m128i *)p, v);
    else if (words == 2) _mm_storel_epi64((__m128i *)p, v);
    else *p = (u32)_mm_cvtsi128_si32(v);
}
static inline u32 highest(__m128i v) {
    v = _mm_max_epu32(v, _mm_shuffle_epi32(v, 0x4e));
    return (u32)_mm_cvtsi128_si32(_mm_max_epu32(v, _mm_shuffle_epi32(v, 0xb1)));
}

// Whole aligned dwords (1, 2 or 4 a lane): true when nothing needs a closer look; records the access on the way.
static inline __attribute__((always_inline)) bool lds_quick(gs_wave *w, const u32 *address, u32 exec, const u32 words, gs_access access, bool init) {
    gs_lds_shadow *s = &w->g->shadow;
    u32 limit = w->lds_safe << 10, missing = 0, written = words == 4 ? 0x0f0f0f0f : words == 2 ? 0x0f0f : 0x0f, have = 0;
    __m128i worst = _mm_setzero_si128(), foreign = worst, self = _mm_set1_epi32((int)w->index), wave = _mm_set1_epi32(31);
    __m128i mine = _mm_set1_epi32((int)(w->g->lds_ticket << 10 | 15 << 5 | w->index));
    for (u32 m = exec; m; m &= m - 1) {
        u32 at = address[__builtin_ctz(m)] >> 2;
        __m128i r = take(s->read + at, words);
        worst = _mm_max_epu32(worst, take(s->write + at, words));
        if (access == ACCESS_WRITE) worst = _mm_max_epu32(worst, _mm_max_epu32(r, take(s->read_other + at, words)));
        else {
            foreign = _mm_or_si128(foreign, _mm_xor_si128(r, self));
            memcpy(&have, s->init + at, words);
            missing |= have ^ written;
        }
    }
    if (highest(worst) >= limit || (init && missing)) return false;
    bool others = highest(_mm_and_si128(foreign, wave)) != 0;
    for (u32 m = exec; m; m &= m - 1) {
        u32 at = address[__builtin_ctz(m)] >> 2;
        if (access == ACCESS_WRITE) {
            give(s->write + at, mine, words);
            memcpy(s->init + at, &written, words);
            continue;
        }
        if (others) {
            __m128i r = take(s->read + at, words), o = take(s->read_other + at, words);
            __m128i own = _mm_cmpeq_epi32(_mm_and_si128(_mm_xor_si128(r, self), wave), _mm_setzero_si128());
            give(s->read_other + at, _mm_blendv_epi8(r, o, own), words);
        }
        give(s->read + at, mine, words);
    }
    return true;
}

static gs_stop lds_races(gs_wave *w, const gs_op *op, const u32 *address, u32 exec, u32 bytes, gs_access access) {
    if (w->g->lds_ticket >= TICKET_LIMIT) lds_restart(w->g);
    for (u32 m = exec; m; m &= m - 1) {
        int lane = __builtin_ctz(m);
        for (u32 at = address[lane], end = at + bytes; at < end; at = (at | 3) + 1)
            if (lds_word(w, op, lane, address[lane], at, byte_mask(at, end - at), access)) return GS_STOP_FAULT;
    }
    return GS_RUN;
}

static gs_stop lds_init(gs_wave *w, const gs_op *op, const u32 *address, u32 exec, u32 bytes, gs_access access) {
    u8 *init = w->g->shadow.init;
    bool check = access != ACCESS_WRITE && w->g->run->check[GS_CHECK_UNINIT_LDS];
    for (u32 m = exec; m; m &= m - 1) {
        int lane = __builtin_ctz(m);
        for (u32 at = address[lane], end = at + bytes; at < end; at = (at | 3) + 1) {
            u32 mask = byte_mask(at, end - at);
            if (check && (init[at >> 2] & mask) != mask)
                return gs_fault(w, op, GS_CHECK_UNINIT_LDS, lane, at, "LDS bytes at %u are read but were never written", at);
            if (access == ACCESS_WRITE) init[at >> 2] |= (u8)mask;
        }
    }
    return GS_RUN;
}

static gs_stop lds_bad_address(gs_wave *w, const gs_op *op, const u32 *address, u32 exec, u32 bytes) {
    u32 limit = w->g->lds_bytes;
    for (u32 m = exec; m; m &= m - 1) {
        int lane = __builtin_ctz(m);
        if (address[lane] > limit || bytes > limit - address[lane])
            return gs_fault(w, op, GS_CHECK_LDS_BOUNDS, lane, address[lane], "LDS access of %u bytes at %u, the group has %u bytes", bytes, address[lane], limit);
    }
    for (u32 m = exec; m; m &= m - 1) {
        int lane = __builtin_ctz(m);
        if (address[lane] & (bytes - 1) & 15)
            return gs_fault(w, op, GS_CHECK_MISALIGNED, lane, address[lane], "LDS access of %u bytes at %u, needs a multiple of %u", bytes, address[lane], bytes);
    }
    return GS_RUN;
}

gs_stop gs_lds_access(gs_wave *w, const gs_op *op, const u32 *address, u32 exec, u32 bytes, gs_access access) {
    const gs_run *run = w->g->run;
    u32 limit = w->g->lds_bytes, top = 0, low = 0;
    for (int i = 0; i < GS_LANES; i++) {
        u32 on = address[i] & -(exec >> i & 1);
        top = on > top ? on : top;
        low |= on;
    }
    if (top > limit || bytes > limit - top || (low & (bytes - 1) & 15 && bytes != 12 && run->check[GS_CHECK_MISALIGNED]))
        return lds_bad_address(w, op, address, exec, bytes);
    if (run->want_stats) gs_stats_lds(w, op, address, exec, bytes);
    if (!run->checked) return GS_RUN;
    bool init = run->check[GS_CHECK_UNINIT_LDS], races = run->check[GS_CHECK_RACE_LDS];
    if (races && access != ACCESS_ATOMIC && w->g->lds_ticket < TICKET_LIMIT && !(low & 3)) {
        if (bytes == 4 && lds_quick(w, address, exec, 1, access, init)) return GS_RUN;
        if (bytes == 8 && lds_quick(w, address, exec, 2, access, init)) return GS_RUN;
        if (bytes == 16 && lds_quick(w, address, exec, 4, access, init)) return GS_RUN;
    }
    if (init && lds_init(w, op, address, exec, bytes, access)) return GS_STOP_FAULT;
    return races ? lds_races(w, op, address, exec, bytes, access) : GS_RUN;
}

// ---- global memory ----------------------------------------------------------------------------------------
// Stamp: group uid << 36 | shared << 35 | ticket << 10 | atomic << 9 | mask << 5 | wave.
#define SHARED_BIT  (1ull << 35)
#define UID(e)      ((u32)((e) >> 36))
#define VTICKET(e)  ((u32)((e) >> 10) & 0x1ffffff)
#define VM_LIMIT    (1u << 25)

static bool global_ordered(const gs_wave *w, u64 e, u32 mask, bool atomic) {
    const gs_run *run = w->g->run;
    u32 uid = UID(e);
    if (uid - run->uid_base >= run->group_count) return true; // an earlier or another launch
    if (!(MASK(e) & mask) || (atomic && e & ATOMIC_BIT)) return true;
    if (uid == w->g->uid) return WAVE(e) == w->index || VTICKET(e) <= w->vm_visible[WAVE(e)];
    u64 released = __atomic_load_n(&run->released[uid - run->uid_base], __ATOMIC_RELAXED);
    return released && released <= w->g->acquired;
}

static gs_stop global_race(gs_wave *w, const gs_op *op, int lane, u64 address, u64 e, const char *mine, const char *theirs) {
    u32 other = UID(e) - w->g->run->uid_base;
    return gs_fault(w, op, GS_CHECK_RACE_GLOBAL, lane, address, "0x%llx is %s here and was %s by wave %u of group %u with no %s between",
                    (unsigned long long)address, mine, theirs, (u32)WAVE(e), other, UID(e) == w->g->uid ? "barrier (or before that access had completed)" : "atomic");
}

static gs_stop global_word(gs_wave *w, const gs_op *op, int lane, u64 *shadow, u64 base, u64 address, u32 mask, gs_access access) {
    u64 e = __atomic_load_n(&shadow[0], __ATOMIC_RELAXED), r = __atomic_load_n(&shadow[1], __ATOMIC_RELAXED);
    u64 mine = (u64)w->g->uid << 36 | (u64)w->g->vm_ticket << 10 | mask << 5 | w->index;
    bool atomic = access == ACCESS_ATOMIC;
    const char *verb = access == ACCESS_READ ? "read" : "written";
    bool ordered = global_ordered(w, e, mask, atomic);
    if (!ordered && access == ACCESS_WRITE)
        ordered = same_value(w, lane, (u32)(address - base), (u32)__builtin_popcount(mask), (const u8 *)(uintptr_t)address);
    if (!ordered) return global_race(w, op, lane, address, e, verb, "written");
    bool live = UID(r) - w->g->run->uid_base < w->g->run->group_count;
    if (access == ACCESS_READ) {
        if (live && UID(r) == w->g->uid) mine |= r & (SHARED_BIT | (WAVE(r) == w->index ? 15 << 5 : 0));
        else if (live && !global_ordered(w, r, 15, false)) mine |= SHARED_BIT;
        __atomic_store_n(&shadow[1], mine, __ATOMIC_RELAXED);
        return GS_RUN;
    }
    bool others = live && r & SHARED_BIT && UID(r) == w->g->uid && MASK(r) & mask && !w->g->acquired;
    if (others || !global_ordered(w, r, mask, false)) return global_race(w, op, lane, address, r, verb, others ? "also read by another group, last" : "read");
    if (UID(e) == w->g->uid && WAVE(e) == w->index) mine |= e & 15 << 5;
    __atomic_store_n(&shadow[0], mine | (atomic ? ATOMIC_BIT : 0), __ATOMIC_RELAXED);
    return GS_RUN;
}

// Reads and writes of whole dwords whose stamps are stale or this wave's own; false: look closer. The stamps of
// finished launches are outside [uid_base, uid_base + count). While nobody has released, another group's read is
// simply shared.
static inline bool global_quick(gs_wave *w, u64 *shadow, u32 words, gs_access access) {
    const gs_run *run = w->g->run;
    u32 base = run->uid_base, count = run->group_count;
    u64 mine = (u64)w->g->uid << 36 | (u64)w->g->vm_ticket << 10 | 15 << 5 | w->index, key = ~0ull << 36 | 31;
    bool nobody = __atomic_load_n(&run->clock, __ATOMIC_RELAXED) == 1;
    for (u32 k = 0; k < words; k++, shadow += 2) {
        u64 e = __atomic_load_n(&shadow[0], __ATOMIC_RELAXED), r = __atomic_load_n(&shadow[1], __ATOMIC_RELAXED);
        bool write_ok = UID(e) - base >= count || !((e ^ mine) & key) || (UID(e) == w->g->uid && VTICKET(e) < w->vm_safe), read_stale = UID(r) - base >= count, read_own = !((r ^ mine) & key) || (UID(r) == w->g->uid && VTICKET(r) < w->vm_safe);
        if (!write_ok) return false;
        if (access == ACCESS_READ) {
            u64 shared = read_stale ? 0 : read_own ? r & SHARED_BIT : SHARED_BIT;
            if (shared && !read_own && (UID(r) == w->g->uid || !nobody)) return false;
            __atomic_store_n(&shadow[1], mine | shared, __ATOMIC_RELAXED);
        } else {
            if (!read_stale && (!read_own || r & SHARED_BIT)) return false;
            __atomic_store_n(&shadow[0], mine, __ATOMIC_RELAXED);
        }
    }
    return true;
}

static const gs_range *range_find(gs_group *g, u64 address) {
    if (address >= g->near.lo && address < g->near.hi) return &g->near;
    const gs_range *r = gs_snapshot_find(&g->run->memory, address);
    if (r) g->near = *r;
    return r ? &g->near : NULL;
}

static gs_stop outside(gs_wave *w, const gs_op *op, int lane, u64 address, u32 bytes) {
    const gs_range *r = gs_snapshot_find(&w->g->run->memory, address), *before = NULL;
    for (size_t i = 0; i < w->g->run->memory.count; i++)
        if (w->g->run->memory.ranges[i].hi <= address) before = &w->g->run->memory.ranges[i];
    if (r) return gs_fault(w, op, GS_CHECK_OUT_OF_BOUNDS, lane, address, "access of %u bytes at 0x%llx runs %llu bytes past the end of the allocation 0x%llx..0x%llx", bytes, (unsigned long long)address, (unsigned long long)(address + bytes - r->hi), (unsigned long long)r->lo, (unsigned long long)r->hi);
    if (before && address - before->hi < 1 << 20) return gs_fault(w, op, GS_CHECK_OUT_OF_BOUNDS, lane, address, "access of %u bytes at 0x%llx, %llu bytes past the end of the allocation 0x%llx..0x%llx", bytes, (unsigned long long)address, (unsigned long long)(address - before->hi), (unsigned long long)before->lo, (unsigned long long)before->hi);
    return gs_fault(w, op, GS_CHECK_OUT_OF_BOUNDS, lane, address, "access of %u bytes at 0x%llx, which no allocation holds", bytes, (unsigned long long)address);
}

gs_stop gs_global_access(gs_wave *w, const gs_op *op, const u64 *address, u32 exec, u32 bytes, gs_access access) {
    gs_group *g = w->g;
    const gs_run *run = g->run;
    u32 align = bytes < 4 ? bytes : 4, unaligned = 0;
    u64 lo = ~0ull, hi = 0;
    if (!exec) return GS_RUN;
    for (u32 m = exec; m; m &= m - 1) {
        u64 a = address[__builtin_ctz(m)];
        lo = a < lo ? a : lo;
        hi = a > hi ? a : hi;
        unaligned |= a & (align - 1) ? m & -m : 0;
    }
    const gs_range *near = range_find(g, lo);
    if (!near || hi > near->hi || bytes > near->hi - hi)
        for (u32 m = exec; m; m &= m - 1) {
            int lane = __builtin_ctz(m);
            const gs_range *r = range_find(g, address[lane]);
            if (!r || bytes > r->hi - address[lane]) return outside(w, op, lane, address[lane], bytes);
        }
    if (unaligned && run->check[GS_CHECK_MISALIGNED]) {
        int lane = __builtin_ctz(unaligned);
        return gs_fault(w, op, GS_CHECK_MISALIGNED, lane, address[lane], "access of %u bytes at 0x%llx, needs a multiple of %u", bytes, (unsigned long long)address[lane], align);
    }
    if (run->want_stats) gs_stats_global(w, op, address, exec, bytes, access != ACCESS_READ);
    if (!run->check[GS_CHECK_RACE_GLOBAL] || g->vm_ticket >= VM_LIMIT) return GS_RUN;
    for (u32 m = exec; m; m &= m - 1) {
        int lane = __builtin_ctz(m);
        const gs_range *r = range_find(g, address[lane]);
        u64 *shadow = r->shadow + 2 * ((address[lane] >> 2) - (r->lo >> 2));
        if (access != ACCESS_ATOMIC && !((address[lane] | bytes) & 3) && global_quick(w, shadow, bytes / 4, access)) continue;
        for (u64 at = address[lane], end = at + bytes; at < end; at = (at | 3) + 1, shadow += 2)
            if (global_word(w, op, lane, shadow, address[lane], at, byte_mask((u32)at, (u32)(end - at)), access)) return GS_STOP_FAULT;
    }
    return GS_RUN;
}

void gs_race_release(gs_wave *w) {
    gs_run *run = w->g->run;
    u64 *released = &run->released[w->g->linear];
    if (run->check[GS_CHECK_RACE_GLOBAL] && !__atomic_load_n(released, __ATOMIC_RELAXED))
        __atomic_store_n(released, __atomic_add_fetch(&run->clock, 1, __ATOMIC_RELAXED), __ATOMIC_RELAXED);
}

void gs_race_acquire(gs_wave *w) {
    if (w->g->run->check[GS_CHECK_RACE_GLOBAL]) w->g->acquired = __atomic_add_fetch(&w->g->run->clock, 1, __ATOMIC_RELAXED);
}

// ---- barriers ---------------------------------------------------------------------------------------------
static u32 completed(const gs_wave *w, gs_counter counter, const u32 *tickets, u32 now) {
    u32 done = w->done[counter];
    return w->issued[counter] == done ? now : tickets[(done + 1) & 63] - 1;
}

void gs_race_signal(gs_wave *w) {
    gs_group *g = w->g;
    g->barrier_lds_next[w->index] = completed(w, GS_CNT_DS, w->lds_ticket, g->lds_ticket);
    u32 loads = completed(w, GS_CNT_LOAD, w->ld_ticket, g->vm_ticket), stores = completed(w, GS_CNT_STORE, w->st_ticket, g->vm_ticket);
    g->barrier_vm_next[w->index] = loads < stores ? loads : stores;
}

// Everything before the barrier is ordered for everybody, except what a wave issued and had not completed when
// it signalled: tickets below the result need no look at who took them.
static u32 safe_below(const gs_group *g, const u32 *ordered, u32 now, bool lds) {
    u32 safe = now + 1;
    for (u32 i = 0; i < g->wave_count; i++) {
        const gs_wave *v = &g->waves[i];
        u32 loads = v->ld_ticket[v->issued[GS_CNT_LOAD] & 63], stores = v->st_ticket[v->issued[GS_CNT_STORE] & 63];
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

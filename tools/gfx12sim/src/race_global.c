// SPDX-License-Identifier: Apache-2.0
// Checks on accesses of global memory: bounds, alignment, races within a group and between groups.
//
// Between groups only atomics order: a group that executed one has released, a group that executed one later has
// acquired. That is lenient (any atomic counts, whatever its address), so no flag protocol is reported, and some
// races between groups are not. Within a group see race_lds.c, whose rules hold here too.
#include "mem.h"
#include "race.h"

// Stamp: group uid << 38 | shared << 34 | ticket << 10 | atomic << 9 | mask << 5 | wave. shared, in a read's stamp: the
// bytes that another group has read as well.
#define UID_BIT    38
#define SHARED(e)  ((e) >> 34 & 15)
#define SHARE(m)   ((u64)(m) << 34)
#define UID(e)     ((u32)((e) >> UID_BIT))
#define VTICKET(e) ((u32)((e) >> 10) & 0xffffff)
#define VM_LIMIT   (1u << 24)

static bool global_ordered(const gs_wave *w, u64 e, u32 mask, bool atomic) {
    const gs_run *run = w->g->run;
    u32 uid = UID(e);
    if (uid - run->uid_base >= run->group_count) return true; // an earlier or another launch
    if (!(MASK(e) & mask) || (atomic && e & ATOMIC_BIT)) return true;
    if (uid == w->g->uid) return WAVE(e) == w->index || VTICKET(e) <= w->vm_visible[WAVE(e)];
    u64 released = __atomic_load_n(&run->released[uid - run->uid_base], __ATOMIC_RELAXED);
    return released && released <= w->g->acquired;
}

static gs_stop global_race(gs_wave *w, const gs_op *op, int lane, u64 address, u64 e, const char *mine,
                           const char *theirs) {
    u32 other = UID(e) - w->g->run->uid_base;
    return gs_fault(w, op, GS_CHECK_RACE_GLOBAL, lane, address,
                    "0x%llx is %s here and was %s by wave %u of group %u with no %s between",
                    (unsigned long long)address, mine, theirs, (u32)WAVE(e), other,
                    UID(e) == w->g->uid ? "barrier (or before that access had completed)" : "atomic");
}

static gs_stop global_word(gs_wave *w, const gs_op *op, int lane, u64 *shadow, u64 base, u64 address,
                           u32 mask, gs_access access) {
    u64 e = __atomic_load_n(&shadow[0], __ATOMIC_RELAXED), r = __atomic_load_n(&shadow[1], __ATOMIC_RELAXED);
    u64 mine = (u64)w->g->uid << UID_BIT | (u64)w->g->vm_ticket << 10 | mask << 5 | w->index;
    bool atomic = access == ACCESS_ATOMIC;
    const char *verb = access == ACCESS_READ ? "read" : "written";
    bool ordered = global_ordered(w, e, mask, atomic);
    if (!ordered && access == ACCESS_WRITE)
        ordered = same_value(w, lane, (u32)(address - base), (u32)__builtin_popcount(mask),
                             (const u8 *)(uintptr_t)address);
    if (!ordered) return global_race(w, op, lane, address, e, verb, "written");
    bool live = UID(r) - w->g->run->uid_base < w->g->run->group_count;
    if (access == ACCESS_READ) {
        if (live && UID(r) == w->g->uid)
            mine |= r & (SHARE(15) | (WAVE(r) == w->index ? 15 << 5 : 0));
        else if (live && !global_ordered(w, r, 15, false))
            mine |=
                SHARE(MASK(r) | (SHARED(r) & ~mask)); // of what is shared already this group may be the other
        __atomic_store_n(&shadow[1], mine, __ATOMIC_RELAXED);
        return GS_RUN;
    }
    bool others = live && SHARED(r) & mask && UID(r) == w->g->uid && !w->g->acquired;
    if (others || !global_ordered(w, r, mask, false))
        return global_race(w, op, lane, address, r, verb,
                           others ? "also read by another group, last" : "read");
    if (UID(e) == w->g->uid && WAVE(e) == w->index) mine |= e & 15 << 5;
    __atomic_store_n(&shadow[0], mine | (atomic ? ATOMIC_BIT : 0), __ATOMIC_RELAXED);
    return GS_RUN;
}

// Sixteen aligned bytes that a lane (or neighbouring lanes) touched as a whole share one pair of stamps: a quarter of
// the memory traffic. A stamp without a mask says that the granule was split and its dwords have stamps of their own;
// as soon as its group's launch is over it says nothing, like every stamp.
typedef struct quick {
    u64 mine;
    u32 base, count, uid, safe, wave;
    bool nobody; // has released: another group's read is simply shared
} quick;

static inline quick quick_start(const gs_wave *w) {
    const gs_run *run = w->g->run;
    return (quick){(u64)w->g->uid << UID_BIT | (u64)w->g->vm_ticket << 10 | 15 << 5 | w->index,
                   run->uid_base,
                   run->group_count,
                   w->g->uid,
                   w->vm_safe,
                   w->index,
                   __atomic_load_n(&run->clock, __ATOMIC_RELAXED) == 1};
}

// Records the access when the stamps are stale, this wave's own or ordered by a barrier; false: look closer.
static inline bool quick_word(const quick *q, u64 *shadow, gs_access access) {
    u64 e = __atomic_load_n(&shadow[0], __ATOMIC_ACQUIRE), r = __atomic_load_n(&shadow[1], __ATOMIC_RELAXED);
    bool stale = UID(e) - q->base >= q->count, read_stale = UID(r) - q->base >= q->count;
    if (!stale && (!MASK(e) || UID(e) != q->uid || (WAVE(e) != q->wave && VTICKET(e) >= q->safe)))
        return false;
    if (access == ACCESS_READ) {
        u64 shared = read_stale ? 0 : UID(r) == q->uid ? r & SHARE(15) : SHARE(MASK(r));
        if (!read_stale && UID(r) != q->uid && !q->nobody) return false;
        __atomic_store_n(&shadow[1], q->mine | shared, __ATOMIC_RELAXED);
    } else {
        if (!read_stale && (SHARED(r) || UID(r) != q->uid || (WAVE(r) != q->wave && VTICKET(r) >= q->safe)))
            return false;
        __atomic_store_n(&shadow[0], q->mine, __ATOMIC_RELAXED);
    }
    return true;
}

// The dword stamps of a granule, filled from the granule's own when it was whole until now.
static u64 *split(const gs_wave *w, const gs_range *range, u64 address) {
    u64 index = (address >> 4) - (range->lo >> 4), *coarse = range->coarse + 2 * index,
        *fine = range->fine + 8 * index;
    u64 e = __atomic_load_n(&coarse[0], __ATOMIC_ACQUIRE), r = __atomic_load_n(&coarse[1], __ATOMIC_RELAXED);
    const gs_run *run = w->g->run;
    bool live = UID(e) - run->uid_base < run->group_count;
    if (live && !MASK(e)) return fine;
    if (!live) e = 0;
    if (UID(r) - run->uid_base >= run->group_count) r = 0;
    for (u32 k = 0; k < 4; k++) {
        __atomic_store_n(&fine[2 * k], e, __ATOMIC_RELAXED);
        __atomic_store_n(&fine[2 * k + 1], r, __ATOMIC_RELAXED);
    }
    __atomic_store_n(&coarse[0], (u64)w->g->uid << UID_BIT, __ATOMIC_RELEASE);
    return fine;
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
    if (r)
        return gs_fault(
            w, op, GS_CHECK_OUT_OF_BOUNDS, lane, address,
            "access of %u bytes at 0x%llx runs %llu bytes past the end of the allocation 0x%llx..0x%llx",
            bytes, (unsigned long long)address, (unsigned long long)(address + bytes - r->hi),
            (unsigned long long)r->lo, (unsigned long long)r->hi);
    if (before && address - before->hi < 1 << 20)
        return gs_fault(
            w, op, GS_CHECK_OUT_OF_BOUNDS, lane, address,
            "access of %u bytes at 0x%llx, %llu bytes past the end of the allocation 0x%llx..0x%llx", bytes,
            (unsigned long long)address, (unsigned long long)(address - before->hi),
            (unsigned long long)before->lo, (unsigned long long)before->hi);
    return gs_fault(w, op, GS_CHECK_OUT_OF_BOUNDS, lane, address,
                    "access of %u bytes at 0x%llx, which no allocation holds", bytes,
                    (unsigned long long)address);
}

// Lanes side by side cover their bytes without a gap, from a granule's start to a granule's end.
static bool adjacent(const u64 *address, u32 exec, u32 bytes) {
    u64 first = address[0], off = 0;
    if (exec != ~0u || first & 15 || bytes == 16) return false;
    for (u32 i = 0; i < GS_LANES; i++) off |= address[i] ^ (first + (u64)i * bytes);
    return !off;
}

// Granules of [lo, hi); what it records before it gives up is recorded again, which changes nothing.
static bool quick_run(const quick *q, const gs_range *range, u64 lo, u64 hi, gs_access access) {
    u64 *coarse = range->coarse + 2 * ((lo >> 4) - (range->lo >> 4));
    for (u64 at = lo; at < hi; at += 16, coarse += 2)
        if (!quick_word(q, coarse, access)) return false;
    return true;
}

static gs_stop global_lane(gs_wave *w, const gs_op *op, int lane, const gs_range *range, const quick *q,
                           u64 address, u32 bytes, gs_access access) {
    for (u64 at = address, end = at + bytes; at < end; at = (at | 3) + 1) {
        u64 *shadow = split(w, range, at) + 2 * (at >> 2 & 3);
        u32 mask = byte_mask((u32)at, (u32)(end - at));
        if (mask == 15 && access != ACCESS_ATOMIC && quick_word(q, shadow, access)) continue;
        if (global_word(w, op, lane, shadow, address, at, mask, access)) return GS_STOP_FAULT;
    }
    return GS_RUN;
}

gs_stop gs_global_access(gs_wave *w, const gs_op *op, const u64 *address, u32 exec, u32 bytes,
                         gs_access access) {
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
        return gs_fault(w, op, GS_CHECK_MISALIGNED, lane, address[lane],
                        "access of %u bytes at 0x%llx, needs a multiple of %u", bytes,
                        (unsigned long long)address[lane], align);
    }
    if (run->want_stats) gs_stats_global(w, op, address, exec, bytes, access != ACCESS_READ);
    if (!run->check[GS_CHECK_RACE_GLOBAL] || g->vm_ticket >= VM_LIMIT) return GS_RUN;
    quick q = quick_start(w);
    if (near && lo >= near->lo && hi <= near->hi - bytes && adjacent(address, exec, bytes) &&
        access != ACCESS_ATOMIC && quick_run(&q, near, lo, hi + bytes, access))
        return GS_RUN;
    for (u32 m = exec; m; m &= m - 1) {
        int lane = __builtin_ctz(m);
        const gs_range *r = range_find(g, address[lane]);
        if (access != ACCESS_ATOMIC && bytes == 16 && !(address[lane] & 15) &&
            quick_word(&q, r->coarse + 2 * ((address[lane] >> 4) - (r->lo >> 4)), access))
            continue;
        if (global_lane(w, op, lane, r, &q, address[lane], bytes, access)) return GS_STOP_FAULT;
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
    if (w->g->run->check[GS_CHECK_RACE_GLOBAL])
        w->g->acquired = __atomic_add_fetch(&w->g->run->clock, 1, __ATOMIC_RELAXED);
}

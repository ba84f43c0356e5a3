// SPDX-License-Identifier: Apache-2.0
// Inside the simulator: wave, work-group, decoded instruction, instruction table. Everything that executes
// one wave-instruction sees these structures; users of the simulator see gfx12sim.h only.
#ifndef GFX12SIM_SIM_H
#define GFX12SIM_SIM_H

#include <pthread.h>
#include <string.h>
#include "gfx12sim.h"

typedef uint8_t u8;
typedef uint16_t u16;
typedef uint32_t u32;
typedef uint64_t u64;
typedef int32_t i32;
typedef int64_t i64;
typedef float f32a __attribute__((may_alias)); // lanes hold bits; arithmetic reads them as these
typedef int32_t i32a __attribute__((may_alias));

static inline bool gs_in(const char *set, int letter) {
    return letter && strchr(set, letter);
}

#define GS_LANES         32
#define GS_MAX_SRC       5
#define GS_MAX_WAVES     32 // 1024 work-items
#define GS_CODE_PAD      8
#define GS_LDS_MAX_BYTES 65536
#define GS_VGPRS         256

// Scalar register numbers as the encoding has them (RDNA4 ISA guide, operand table).
enum { SGPR_VCC = 106, SGPR_TTMP = 108, SGPR_NULL = 124, SGPR_M0 = 125, SGPR_EXEC = 126 };

// Apertures of flat addresses: the high dword. Neither is a canonical x86 address, so no host pointer collides.
#define GS_APERTURE_SHARED_HI  0x00010000u
#define GS_APERTURE_PRIVATE_HI 0x00020000u

typedef struct gs_wave gs_wave;
typedef struct gs_group gs_group;
typedef struct gs_op gs_op;
typedef struct gs_row gs_row;

typedef enum gs_stop { GS_RUN, GS_STOP_END, GS_STOP_BARRIER, GS_STOP_YIELD, GS_STOP_FAULT } gs_stop;
typedef gs_stop gs_exec_fn(gs_wave *w, const gs_op *op);
// One VALU operation over 32 lanes. d and the sources are [dword][32]; the result is a lane mask for compares
// and carries and is ignored elsewhere. d may be a source: every loop reads lane i before it writes lane i.
typedef u32 gs_lane_fn(u32 *d, const u32 *a, const u32 *b, const u32 *c, gs_wave *w, const gs_op *op);
typedef u64 gs_scalar_fn(gs_wave *w, const gs_op *op, u64 a, u64 b);

typedef enum gs_opnd_kind {
    OPND_NONE,
    OPND_VGPR,
    OPND_SGPR, // includes vcc, ttmp, m0, null, exec
    OPND_CONST,
    OPND_SCC,
    OPND_OFF, // "off": no register
} gs_opnd_kind;

typedef struct gs_opnd {
    u8 kind, dwords, type; // type: the letter of the row's signature
    bool neg, abs, hi;     // hi: the operand is the high half (".h", or op_sel)
    u16 reg;
    u64 value;        // OPND_CONST
    const u32 *lanes; // OPND_CONST: value broadcast as [2][32]
} gs_opnd;

typedef struct gs_dpp {
    signed char from[GS_LANES]; // source lane; -1: outside the row
    u32 write_mask;             // row_mask and bank_mask
    bool bound_ctrl, fetch_inactive;
} gs_dpp;

typedef enum gs_scope { SCOPE_CU, SCOPE_SE, SCOPE_DEV, SCOPE_SYS } gs_scope;

// A decoded instruction.
struct gs_op {
    gs_exec_fn *exec;
    gs_lane_fn *lane;
    const gs_row *row;
    gs_opnd dst, sdst, src[GS_MAX_SRC];
    u8 nsrc, ndst, bytes, cls;
    bool clamp, plain; // plain: VALU without modifiers, DPP, 16-bit halves or packing
    u8 omod;           // 0 none, 1 *2, 2 *4, 3 /2
    u8 op_sel, op_sel_hi, neg_lo, neg_hi;
    u8 scope, byte_sel, index_key;
    bool atomic_return, offen, idxen, dst_hi, bound;
    i32 offset, offset1; // memory offset, or simm16, or branch distance
    u32 target;          // op index of a branch
    const gs_dpp *dpp;
    const gs_op *pair;       // second half of a VOPD
    u32 index;               // position in the module
    u32 raw;                 // first encoding dword
    u64 sread[2], swrite[2]; // scalar registers used, for the wait and hazard checks
    struct {
        u16 reg;
        u8 count, half;
    } vread[GS_MAX_SRC + 1], vwrite[2];
    u8 vread_count, vwrite_count;
    u64 va;
    const char *text;
};

typedef enum gs_row_flag {
    ROW_PROPAGATE = 1 << 0,          // a move: undefined lanes pass through instead of being reported
    ROW_EXEC_FULL = 1 << 1,          // needs EXEC all ones (WMMA, transposing loads)
    ROW_NO_EXEC = 1 << 2,            // ignores EXEC (readlane, writelane)
    ROW_READS_VCC = 1 << 3,          // implicit
    ROW_WRITES_VCC = 1 << 4,         // implicit
    ROW_LDS_RETURN = 1 << 5,         // destination returns through dscnt
    ROW_VM_RETURN = 1 << 6,          // through loadcnt
    ROW_F32_DENORM = 1 << 7,         // honours the f32 denormal mode
    ROW_F16_DENORM = 1 << 8,         // honours the f16/f64 denormal mode
    ROW_MERGE_DST = 1 << 9,          // keeps part of the destination (d16)
    ROW_DOUBLE_ROUND = 1 << 10,      // computes in the f16/f64 rounding mode
    ROW_MODIFIES_VGPR_SRC = 1 << 11, // v_swap
    ROW_VALU = 1 << 12,
    ROW_SALU = 1 << 13,
    ROW_PARTIAL_READ = 1 << 14, // reads only chosen lanes of its VGPR source; checked by the handler
    ROW_WIDE_ADDEND =
        1 << 15, // an undefined high half of the 64-bit addend only makes the result's undefined
} gs_row_flag;

// One row per mnemonic. Signature: destinations '=' sources, one letter each, in the order of the text:
//   u f  32-bit integer / float      U F  64-bit        w h  16-bit integer / float
//   q p  packed pairs of those       I    64-bit signed x    f32 or f16 by op_sel_hi (fma_mix)
//   m    lane mask in an SGPR        s S  scalar 32 / 64   t T scalar float 32 / half
//   r    any register or off         i    immediate or special text
//   +    the destination is also the last source (fmac)
struct gs_row {
    const char *name;
    const char *sig;
    gs_exec_fn *exec;
    gs_lane_fn *lane;
    gs_scalar_fn *scalar;
    u8 cls;
    u16 bytes; // memory: bytes per lane and access
    u16 flags;
    u32 arg; // handler's own
};

struct gs_wave {
    u32 *v;     // [vgprs][32]
    u32 s[128]; // scalar registers by encoding number; s[124] stays 0
    u32 scc, mode;
    u32 pc; // index of the next op
    u32 index;
    u32 launch_exec, barrier_target; // barrier_target: phase that the last s_barrier_signal waits for, 0 none
    gs_group *g;
    const gs_op *ops;
    bool ended, moded, traced; // moded: mode differs from the default in rounding or denormals
    bool clock_read;           // an instruction that reads the clock has begun
    u64 steps;
    // Wait counters: a sequence number per issue; all up to done are complete (they return in order).
    u32 issued[GS_CNT_COUNT], done[GS_CNT_COUNT];
    u64 smem_pending[2];     // scalar registers with a load in flight
    u32 pend_load[GS_VGPRS]; // sequence number of the load that will write the register
    u32 pend_ds[GS_VGPRS];
    u32 written[GS_VGPRS];             // lanes ever written
    u32 pending_ops[GS_CNT_COUNT][64]; // op index by sequence number & 63, for the stall attribution
    // s_wait_alu hazard state: pairs ever read by a VALU, and values not yet committed.
    u64 hz_tracked, hz_salu[2], hz_valu[2];
    bool hz_vcc_salu, hz_vcc_valu;
    // Races: tickets of the group's memory operations. visible: of each wave, the last ticket ordered before us.
    u32 lds_visible[GS_MAX_WAVES], vm_visible[GS_MAX_WAVES];
    u32 lds_safe, vm_safe;                            // every ticket below is ordered, whoever took it
    u32 lds_ticket[64], st_ticket[64], ld_ticket[64]; // ticket of outstanding operation, by sequence & 63
    const u32 *store; // data of the store that is being checked, [dword][lane]
    bool store_high;  // ... its upper halves
    u8 *scratch;      // [dword][lane]
};

typedef struct gs_range {
    u64 lo, hi;
    // The race check's shadow, null until a checked launch needs it. Two words each, last write and last read: of
    // 16 aligned bytes that were touched as a whole, or of a dword where the coarse words say so.
    u64 *coarse, *fine;
    struct gs_block *block;
} gs_range;

typedef struct gs_snapshot { // the allocations as one launch sees them
    const gs_range *ranges;
    size_t count;
} gs_snapshot;

typedef struct gs_run { // one launch
    const gs_launch *launch;
    const gs_kernel *kernel;
    gs_mem *mem;
    u32 waves_per_group, group_count, lds_bytes, scratch_bytes, vgprs;
    u32 grid[3], block[3];
    u8 *kernarg;
    u8 *dispatch_packet;
    gs_snapshot memory;
    u32 uid_base; // unique id of group 0, for the global shadow
    u64 max_steps;
    bool check[GS_CHECK_COUNT];
    bool checked; // any register, hazard or race check
    bool want_stats;
    u32 next_group; // atomic
    u32 stop;       // atomic: a worker failed
    u64 clock;      // atomic: releases and acquires between groups
    u64 *released;  // per group: clock of its first release, 0 none (atomic)
    pthread_mutex_t lock;
    gs_error *error;
    gs_status status;
} gs_run;

// Race check's shadow of one LDS dword, 16 bytes: last write, last read, last read of another wave than that one
// (ticket << 10 | atomic << 9 | byte mask << 5 | wave), and the mask of bytes ever written.
typedef struct gs_lds_word {
    u32 write, read, other, init;
} gs_lds_word;

// An fp8 or bf8 operand that a WMMA has widened to float, by its raw bits: unrolled tiles use a fragment several times.
typedef struct gs_wmma_cache {
    u32 raw[2 * GS_LANES];
    float tile[16][16] __attribute__((aligned(64)));
    u32 form; // 0: empty
} gs_wmma_cache;

struct gs_group {
    gs_wmma_cache wmma[2]; // A and B
    gs_run *run;
    gs_stats *stats;      // this worker's own
    gs_line_stats *lines; // this worker's own, or null
    u32 id[3], linear, uid;
    gs_wave *waves;
    u32 wave_count, alive, signalled, phase; // phase: barriers completed so far
    u8 *lds;
    u32 lds_bytes;
    gs_lds_word *shadow;
    u32 lds_ticket, vm_ticket;
    u64 acquired; // clock of the last acquire, 0 none
    u64 random;
    u32 *vgpr_store;
    u8 *scratch_store;
    u32 barrier_lds[GS_MAX_WAVES], barrier_vm[GS_MAX_WAVES];
    u32 barrier_lds_next[GS_MAX_WAVES], barrier_vm_next[GS_MAX_WAVES], barrier_lds_safe, barrier_vm_safe;
    gs_range near; // last allocation hit
};

// ---- registers ------------------------------------------------------------------------------------------
static inline u32 gs_exec(const gs_wave *w) {
    return w->s[SGPR_EXEC];
}
static inline u32 *gs_vgpr(gs_wave *w, u32 reg) {
    return w->v + (size_t)reg * GS_LANES;
}
static inline u64 gs_scalar64(const gs_wave *w, u32 reg) {
    return w->s[reg] | (u64)w->s[reg + 1] << 32;
}
static inline void gs_scalar_set(gs_wave *w, u32 reg, u32 value) {
    if (reg != SGPR_NULL) w->s[reg] = value;
}
// A scalar source: register, constant or SCC. 64 bits when the operand has two dwords.
static inline u64 gs_scalar_get(const gs_wave *w, const gs_opnd *o) {
    if (o->kind == OPND_CONST) return o->value;
    if (o->kind == OPND_SCC) return w->scc;
    if (o->reg == SGPR_NULL) return 0;
    return o->dwords == 2 ? gs_scalar64(w, o->reg) : w->s[o->reg];
}

// ---- faults ---------------------------------------------------------------------------------------------
// Records the first error of the launch; returns GS_STOP_FAULT so that a handler can `return gs_fault(...)`.
gs_stop gs_fault(gs_wave *w, const gs_op *op, gs_check check, int lane, u64 address, const char *format, ...)
    __attribute__((format(printf, 6, 7)));
gs_status gs_error_set(gs_error *error, gs_status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

// ---- parts compiled once per vector instruction set --------------------------------------------------------
#ifdef GS_ISA
#define GS_JOIN_(a, b) a##_##b
#define GS_JOIN(a, b)  GS_JOIN_(a, b)
#define GS_SYM(name)   GS_JOIN(name, GS_ISA)
#define gs_valu_exec   GS_SYM(gs_valu_exec)
#define gs_valu_cmp    GS_SYM(gs_valu_cmp)
#define gs_valu_cmpx   GS_SYM(gs_valu_cmpx)
#define gs_valu_vopd   GS_SYM(gs_valu_vopd)
#define gs_fetch       GS_SYM(gs_fetch)
#define gs_blend       GS_SYM(gs_blend)
// One lane's source operand as the register file or a constant pool holds it, or broadcast into tmp[64].
const u32 *gs_fetch(gs_wave *w, const gs_opnd *o, u32 *tmp);
void gs_blend(u32 *d, const u32 *out, u32 exec, u32 dwords);
#endif

// ---- drivers shared by the tables (valu.c, salu.c, check.c, race_lds.c, race_global.c, mem.c) -----------------------------------
gs_exec_fn gs_valu_exec, gs_valu_cmp, gs_valu_cmpx, gs_valu_vopd, gs_salu_exec;
void gs_mode_apply(gs_wave *w);
gs_stop gs_check_op(gs_wave *w, const gs_op *op);
void gs_issue(gs_wave *w, const gs_op *op, gs_counter counter);
void gs_pend_vgpr(gs_wave *w, const gs_op *op, gs_counter counter);

typedef enum gs_access { ACCESS_READ, ACCESS_WRITE, ACCESS_ATOMIC } gs_access;
// Bounds, alignment, initialisation and races of one access per lane of exec.
gs_stop gs_lds_access(gs_wave *w, const gs_op *op, const u32 *address, u32 exec, u32 bytes, gs_access access);
gs_stop gs_global_access(gs_wave *w, const gs_op *op, const u64 *address, u32 exec, u32 bytes,
                         gs_access access);
void gs_race_release(gs_wave *w);
void gs_race_acquire(gs_wave *w);
void gs_race_signal(gs_wave *w);    // at s_barrier_signal, before the barrier may complete
void gs_race_complete(gs_group *g); // all have signalled
void gs_race_join(gs_wave *w);      // at the end of s_barrier_wait
void gs_stats_lds(gs_wave *w, const gs_op *op, const u32 *address, u32 exec, u32 bytes);
void gs_stats_global(gs_wave *w, const gs_op *op, const u64 *address, u32 exec, u32 bytes, bool write);

// ---- table ----------------------------------------------------------------------------------------------
const gs_row *gs_row_find(const char *mnemonic, size_t length);
extern bool gs_use_avx512;

#define GS_ROW_LISTS_ISA(X)                                                                                  \
    X(int) X(int16) X(f32) X(f16) X(f64) X(cvt) X(cmp) X(lane) X(dot) X(wmma) X(vmem) X(lds)
#define GS_ROW_LISTS_COMMON(X) X(salu) X(sfloat) X(smem) X(atomic) X(flow)

#endif

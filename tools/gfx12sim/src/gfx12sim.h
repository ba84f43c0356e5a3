// SPDX-License-Identifier: Apache-2.0
// The simulator's own interface: device memory, code objects, kernels, launches, errors and statistics.
// The HIP face, the command and the tests use this header and nothing below it.
//
// Threads: a gs_mem and a loaded gs_module may be used by any number of threads at once; each call of
// gs_launch_run owns its state, so launches of several devices may run side by side (and may spin on each
// other's flags). Nothing here prints or exits: a failure fills the caller's gs_error and returns its status.
#ifndef GFX12SIM_H
#define GFX12SIM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum gs_status {
    GS_OK = 0,
    GS_E_INVALID = 1,     // the caller broke a contract (null, zero size, bad geometry)
    GS_E_FORMAT = 2,      // the code object is not one, or is damaged
    GS_E_UNSUPPORTED = 3, // legal, but not simulated (another ISA, an unknown instruction)
    GS_E_NOMEM = 4,
    GS_E_NOTFOUND = 5, // no such kernel, symbol or allocation
    GS_E_CHECK = 6,    // the kernel broke a rule; gs_error.check says which
} gs_status;

// What the running kernel did wrong. Bit n of gs_launch.checks switches check n; the first four are always on,
// because without them the simulator itself would be unsafe.
typedef enum gs_check {
    GS_CHECK_NONE = 0,
    GS_CHECK_OUT_OF_BOUNDS, // global, scratch or scalar access outside every allocation
    GS_CHECK_LDS_BOUNDS,    // beyond the group's LDS allocation
    GS_CHECK_UNKNOWN,       // an instruction or an operand form without semantics here
    GS_CHECK_HANG,          // step limit reached, or every live wave waits for ever
    GS_CHECK_MISALIGNED,    // a wide access below its natural alignment
    GS_CHECK_UNINIT_VGPR,   // a VGPR lane read before any write
    GS_CHECK_UNINIT_LDS,    // an LDS byte read before any write
    GS_CHECK_RACE_LDS,      // two waves, one byte, at least one write, no barrier that orders them
    GS_CHECK_RACE_GLOBAL,   // the same in global memory (across groups: no atomic that orders them)
    GS_CHECK_WAIT,          // a register used while a load into it is still in flight
    GS_CHECK_HAZARD,        // an SGPR read that needs an s_wait_alu first
    GS_CHECK_EXEC,          // EXEC not all ones where the instruction needs it
    GS_CHECK_BARRIER,       // lanes or waves missing at a barrier
    GS_CHECK_COUNT
} gs_check;

#define GS_CHECKS_ALL  0xffffffffu
#define GS_CHECKS_NONE 0u

typedef struct gs_error {
    gs_status status;
    gs_check check;    // GS_CHECK_NONE unless status is GS_E_CHECK
    char message[512]; // one line without newline: what, value seen, what is needed
    char kernel[128];  // the rest is filled for GS_E_CHECK only
    uint32_t group[3]; // work-group id
    uint32_t wave;     // wave in group
    int32_t lane;      // -1: the whole wave
    uint64_t address;  // memory address (LDS: byte offset); 0 when none is involved
    uint64_t pc;       // code-object virtual address, as llvm-objdump prints it
    char line[192];    // disassembly of the instruction at pc
} gs_error;

const char *gs_status_name(gs_status status);
const char *gs_check_name(gs_check check); // "race_lds"; also the spelling of the command line
// Writes "<check>: <message>\n  kernel .. group .. wave .. lane .. address ..\n  pc: line\n" into text.
size_t gs_error_format(const gs_error *error, char *text, size_t text_bytes);

// ---- Device memory --------------------------------------------------------------------------------------
// A device address IS the host address of the bytes, so copies are memcpy; only registered ranges may be
// touched by kernels. One gs_mem may serve several devices (peer access is then implied).
typedef struct gs_mem gs_mem;

gs_status gs_mem_create(gs_mem **out);
void gs_mem_destroy(gs_mem *mem); // frees what gs_mem_alloc gave, forgets what gs_mem_map registered
// 256-byte aligned, zeroed by the host's mmap or not at all; the byte after the end belongs to no allocation.
gs_status gs_mem_alloc(gs_mem *mem, size_t bytes, void **out);
gs_status gs_mem_free(gs_mem *mem, void *base);
// Registers bytes that the caller owns (pinned host memory, an IPC mapping). Fails if it overlaps another.
gs_status gs_mem_map(gs_mem *mem, void *base, size_t bytes);
gs_status gs_mem_unmap(gs_mem *mem, void *base);
// The allocation that contains address, or GS_E_NOTFOUND.
gs_status gs_mem_find(gs_mem *mem, const void *address, void **base, size_t *bytes);
size_t gs_mem_used_bytes(gs_mem *mem);

// ---- Code objects ---------------------------------------------------------------------------------------
typedef struct gs_module gs_module;
typedef struct gs_kernel gs_kernel;

typedef enum gs_arg_kind {
    GS_ARG_BY_VALUE,
    GS_ARG_GLOBAL_BUFFER,
    GS_ARG_DYNAMIC_SHARED, // `local T *` parameter: the launcher writes an LDS byte offset
    GS_ARG_HIDDEN,         // filled by gs_launch_run
    GS_ARG_OTHER           // image, sampler, pipe, queue: refused when a launch needs them
} gs_arg_kind;

typedef struct gs_arg {
    const char *name;       // may be ""
    const char *value_kind; // the metadata's own word, e.g. "hidden_block_count_x"
    gs_arg_kind kind;
    uint32_t offset_bytes, size_bytes, pointee_align;
} gs_arg;

typedef struct gs_kernel_info {
    const char *name;
    uint32_t kernarg_bytes, kernarg_align;
    uint32_t lds_bytes;     // static LDS
    uint32_t scratch_bytes; // private segment per lane
    uint32_t vgprs, sgprs, vgpr_spills, sgpr_spills;
    uint32_t max_block_items;   // .max_flat_workgroup_size
    uint32_t required_block[3]; // zeros when free
    bool dynamic_stack;         // .uses_dynamic_stack: scratch_bytes is then only a floor
    const gs_arg *args;
    size_t arg_count;          // hidden ones included
    size_t explicit_arg_count; // the first so many belong to the source
    uint64_t code_va, code_bytes;
} gs_kernel_info;

// image may be a bare ELF or a clang offload bundle that holds a gfx1201 entry. Copied; error may be null.
gs_status gs_module_load(gs_mem *mem, const void *image, size_t image_bytes, gs_module **out,
                         gs_error *error);
void gs_module_free(gs_module *module);
size_t gs_module_kernel_count(const gs_module *module);
const gs_kernel *gs_module_kernel_at(const gs_module *module, size_t index);
const gs_kernel *gs_module_kernel(const gs_module *module, const char *name); // null: none
// A variable of the module (hipModuleGetGlobal).
gs_status gs_module_symbol(const gs_module *module, const char *name, void **address, size_t *bytes);
const gs_kernel_info *gs_kernel_describe(const gs_kernel *kernel);

// Decoded instructions of the whole module, in address order (disasm, stats, trace, coverage).
typedef struct gs_line {
    uint64_t va;
    const char *text;     // as LLVM prints it, without leading blank
    const char *mnemonic; // row of the instruction table, "" if the simulator has none
    const char *symbol;   // function that begins here, else null
} gs_line;
size_t gs_module_line_count(const gs_module *module);
gs_line gs_module_line(const gs_module *module, size_t index);

// ---- Statistics -----------------------------------------------------------------------------------------
typedef enum gs_class {
    GS_CLASS_SALU,
    GS_CLASS_SMEM,
    GS_CLASS_VALU,
    GS_CLASS_TRANS, // exp, rcp, sqrt ...: quarter rate
    GS_CLASS_WMMA,
    GS_CLASS_VMEM_LOAD,
    GS_CLASS_VMEM_STORE,
    GS_CLASS_ATOMIC,
    GS_CLASS_SCRATCH,
    GS_CLASS_LDS,
    GS_CLASS_BRANCH,
    GS_CLASS_WAIT, // s_wait_*cnt
    GS_CLASS_BARRIER,
    GS_CLASS_HINT, // s_nop, s_delay_alu, s_wait_alu, s_clause ...: no effect on state
    GS_CLASS_COUNT
} gs_class;

typedef enum gs_counter { GS_CNT_LOAD, GS_CNT_STORE, GS_CNT_DS, GS_CNT_KM, GS_CNT_COUNT } gs_counter;

typedef struct gs_stats {
    uint64_t launches, groups, waves;
    uint64_t instructions; // wave-instructions; a VOPD pair counts once
    uint64_t by_class[GS_CLASS_COUNT];
    uint64_t wmma_macs;                           // multiply-adds of all WMMA and SWMMAC
    uint64_t load_bytes, store_bytes, smem_bytes; // asked by active lanes
    uint64_t load_lines, store_lines;             // distinct 128-byte lines per instruction, summed
    uint64_t atomic_lanes;
    uint64_t lds_bytes;
    uint64_t lds_cycles,
        lds_conflict_cycles; // model: 32 banks of 4 bytes; conflict = beyond the least possible
    uint64_t scratch_bytes;
    uint64_t waits[GS_CNT_COUNT];          // executed s_wait of that counter
    uint64_t blocking_waits[GS_CNT_COUNT]; // ... that found more in flight than they allow
    uint64_t barriers;
    double seconds; // host time inside gs_launch_run
} gs_stats;

const char *gs_class_name(gs_class c);
const char *gs_counter_name(gs_counter c); // "loadcnt" ...

// Per instruction of the module: index as in gs_module_line. The caller zeroes; launches add.
typedef struct gs_line_stats {
    uint64_t hits;
    uint64_t blocking; // waits: times it found too much in flight. loads: times a wait blocked on this line
    uint64_t lds_conflict_cycles;
    uint64_t lines_touched;
} gs_line_stats;

// ---- Launch ---------------------------------------------------------------------------------------------
typedef void gs_trace_fn(void *context, const char *text); // one line per executed instruction, no newline

typedef struct gs_launch {
    const gs_kernel *kernel;
    uint32_t grid[3];  // work-groups
    uint32_t block[3]; // work-items per group
    uint32_t dynamic_lds_bytes;
    const void *kernarg; // explicit arguments laid out as gs_kernel_info.args says; hidden ones are filled in
    size_t kernarg_bytes;

    uint32_t checks;         // GS_CHECKS_ALL by default (gs_launch_init)
    uint64_t schedule_seed;  // 0: waves in order, each to its next barrier; else another legal interleaving
    uint32_t threads;        // 0: as many as the host has
    uint64_t max_wave_steps; // per wave; 0: 1e9
    gs_stats *stats;         // may be null; launches add to it
    gs_line_stats *lines;    // may be null; gs_module_line_count entries
    gs_trace_fn *trace;      // may be null; only the wave below is traced
    void *trace_context;
    uint32_t trace_group; // linear work-group index
    uint32_t trace_wave;
} gs_launch;

void gs_launch_init(gs_launch *launch, const gs_kernel *kernel);
// Runs to the end. error may be null. Memory written before an error stays written.
gs_status gs_launch_run(gs_mem *mem, const gs_launch *launch, gs_error *error);
// Builds the explicit part of kernarg from one pointer per explicit argument (hipModuleLaunchKernel's
// kernelParams). kernarg needs gs_kernel_info.kernarg_bytes bytes.
gs_status gs_kernarg_pack(const gs_kernel *kernel, void *const *params, void *kernarg, gs_error *error);

// ---- Coverage -------------------------------------------------------------------------------------------
size_t gs_row_count(void);
const char *gs_row_mnemonic(size_t index); // sorted
gs_class gs_row_class(size_t index);
// What a test of the instruction can look at.
typedef enum gs_effect {
    GS_EFFECT_RESULT,  // a register, memory or the program counter
    GS_EFFECT_ORDER,   // waits and barriers: what may follow
    GS_EFFECT_NONE,    // a hint, or a counter that no simulated instruction uses
    GS_EFFECT_REFUSED, // a fault, always
} gs_effect;
gs_effect gs_row_effect(size_t index);

#ifdef __cplusplus
}
#endif
#endif

// SPDX-License-Identifier: Apache-2.0
// Kernels for the tests of the HIP face: one right, several wrong on purpose.
typedef unsigned int uint32;

static uint32 item(void) { return __builtin_amdgcn_workgroup_id_x() * 64 + __builtin_amdgcn_workitem_id_x(); }

__attribute__((reqd_work_group_size(64, 1, 1))) kernel void vector_add(global const int *a, global const int *b,
                                                                        global int *c, int n) {
    uint32 i = item();
    if (i < (uint32)n) c[i] = a[i] + b[i];
}

__attribute__((reqd_work_group_size(64, 1, 1))) kernel void scale_add(global int *x, int scale, int add, int n) {
    uint32 i = item();
    if (i < (uint32)n) x[i] = x[i] * scale + add;
}

// Writes one element beyond n: outside when the allocation has exactly n.
__attribute__((reqd_work_group_size(64, 1, 1))) kernel void overrun(global int *x, int n) {
    if (item() == 0) x[n] = 1;
}

__attribute__((reqd_work_group_size(64, 1, 1))) kernel void never_ends(global volatile int *x) {
    while (x[0] == 0) {}
}

__attribute__((reqd_work_group_size(64, 1, 1))) kernel void wants_lds(global int *x, local int *scratch) {
    uint32 i = __builtin_amdgcn_workitem_id_x();
    scratch[i] = x[i];
    __builtin_amdgcn_fence(__ATOMIC_RELEASE, "workgroup", "local");
    __builtin_amdgcn_s_barrier();
    __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "workgroup", "local");
    x[i] = scratch[63 - i];
}

// Both waves store to one place: the same value, which compilers that replicate data do, or each its own.
__attribute__((reqd_work_group_size(64, 1, 1))) kernel void store_same(global int *x, local int *scratch) {
    x[0] = 7;
    scratch[0] = 7;
}

__attribute__((reqd_work_group_size(64, 1, 1))) kernel void store_own(global int *x) {
    x[0] = (int)__builtin_amdgcn_workitem_id_x() / 32;
}

__attribute__((reqd_work_group_size(64, 1, 1))) kernel void store_own_lds(global int *x, local int *scratch) {
    scratch[0] = (int)__builtin_amdgcn_workitem_id_x() / 32;
    x[__builtin_amdgcn_workitem_id_x()] = 1;
}

// A 64-bit multiply-add whose addend has no defined high half: the low half of the result is good, the high is not.
#define WIDE_ADD(half)                                                                                         \
    uint32 r;                                                                                                  \
    __asm__ volatile("v_mov_b32 v40, 5\n v_mad_co_u64_u32 v[42:43], null, %1, %1, v[40:41]\n v_add_nc_u32 %0, 1, " half \
                     : "=v"(r) : "v"(__builtin_amdgcn_workitem_id_x()) : "v40", "v41", "v42", "v43");            \
    x[__builtin_amdgcn_workitem_id_x()] = (int)r
__attribute__((reqd_work_group_size(64, 1, 1))) kernel void wide_low(global int *x) { WIDE_ADD("v42"); }
__attribute__((reqd_work_group_size(64, 1, 1))) kernel void wide_high(global int *x) { WIDE_ADD("v43"); }

// Raises its own flag and waits for the other device's, in either's memory.
__attribute__((reqd_work_group_size(64, 1, 1))) kernel void meet(global atomic_int *mine, global atomic_int *other,
                                                                  global int *seen) {
    if (__builtin_amdgcn_workitem_id_x() != 0) return;
    __opencl_atomic_store(mine, 1, __ATOMIC_RELEASE, __OPENCL_MEMORY_SCOPE_ALL_SVM_DEVICES);
    while (__opencl_atomic_load(other, __ATOMIC_ACQUIRE, __OPENCL_MEMORY_SCOPE_ALL_SVM_DEVICES) != 1) {}
    seen[0] = 1;
}

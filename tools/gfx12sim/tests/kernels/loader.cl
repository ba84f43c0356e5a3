// SPDX-License-Identifier: Apache-2.0
// What a loader has to get right beside plain code: pointers in data (relocations), constants, calls, hidden
// arguments, the dispatch packet. Compiled as code object v5 and v6.
global int counter = 7;
__attribute__((visibility("default"))) global int exported = 100; // its address is an R_AMDGPU_ABS64
constant int table[4] = {10, 20, 30, 40};
global int *global where = &counter; // R_AMDGPU_RELATIVE64
global int *global other = &exported;

__attribute__((noinline)) static int called(int x) { return table[x & 3] + *where + *other; }

// out[0..3]: table through a call, + both variables; then one is raised, so that the host can read it.
__attribute__((reqd_work_group_size(32, 1, 1))) kernel void relocated(global int *out) {
    int i = __builtin_amdgcn_workitem_id_x();
    if (i < 4) out[i] = called(i);
    if (i == 0) *other = 101;
}

// Offsets of the implicit arguments: LLVM's AMDGPU usage guide, code object v5.
kernel void hidden(global int *out) {
    constant char *p = (constant char *)__builtin_amdgcn_implicitarg_ptr();
    constant char *packet = (constant char *)__builtin_amdgcn_dispatch_ptr();
    if (__builtin_amdgcn_workitem_id_x() | __builtin_amdgcn_workgroup_id_x() | __builtin_amdgcn_workgroup_id_y()) return;
    for (int i = 0; i < 3; i++) {
        out[i] = *(constant int *)(p + 4 * i);               // block counts
        out[3 + i] = *(constant ushort *)(p + 12 + 2 * i);   // group sizes
        out[6 + i] = *(constant ushort *)(p + 18 + 2 * i);   // remainders
        out[9 + i] = (int)*(constant long *)(p + 40 + 8 * i); // global offsets
        out[12 + i] = *(constant ushort *)(packet + 4 + 2 * i);
        out[15 + i] = *(constant int *)(packet + 12 + 4 * i);
    }
    out[18] = *(constant ushort *)(p + 64); // dimensions
}

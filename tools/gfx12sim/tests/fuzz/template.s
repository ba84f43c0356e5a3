// SPDX-License-Identifier: Apache-2.0
// The frame around fuzzed machine code: registers point at real memory, so that guesses reach the handlers.
.amdgcn_target "amdgcn-amd-amdhsa--gfx1201"
.amdhsa_code_object_version 5
.text
.p2align 8
.globl body
.type body,@function
body:
  s_load_b128 s[4:7], s[0:1], 0x0
  v_lshlrev_b32 v1, 2, v0
  v_lshlrev_b32 v2, 4, v0
  v_mov_b32 v3, 1.0
  s_wait_kmcnt 0x0
  s_mov_b32 s36, s6
  s_and_b32 s37, s7, 0xffff
  s_mov_b32 s38, 0x1000
  s_mov_b32 s39, 0x30000000
  v_add_co_u32 v4, vcc_lo, s4, v1
  v_add_co_ci_u32 v5, null, s5, 0, vcc_lo
  .rept 256
  s_nop 0x1234
  .endr
  s_endpgm
.Lend:
.size body,.Lend-body
.rodata
.p2align 6
.amdhsa_kernel body
  .amdhsa_user_sgpr_kernarg_segment_ptr 1
  .amdhsa_kernarg_size 16
  .amdhsa_group_segment_fixed_size 1024
  .amdhsa_private_segment_fixed_size 64
  .amdhsa_system_vgpr_workitem_id 2
  .amdhsa_next_free_vgpr 256
  .amdhsa_next_free_sgpr 100
  .amdhsa_wavefront_size32 1
  .amdhsa_float_denorm_mode_32 3
.end_amdhsa_kernel
.amdgpu_metadata
---
amdhsa.version: [1, 2]
amdhsa.kernels:
  - .name: body
    .symbol: body.kd
    .kernarg_segment_size: 16
    .kernarg_segment_align: 8
    .group_segment_fixed_size: 1024
    .private_segment_fixed_size: 64
    .wavefront_size: 32
    .sgpr_count: 100
    .vgpr_count: 256
    .max_flat_workgroup_size: 1024
    .args:
      - {.offset: 0, .size: 8, .value_kind: global_buffer, .address_space: global}
      - {.offset: 8, .size: 8, .value_kind: global_buffer, .address_space: global}
...
.end_amdgpu_metadata

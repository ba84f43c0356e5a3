rdk_t:
	global_load_b32 v2, v1, s[0:1]
	s_endpgm
; codeLenInByte = 80
; Occupancy: 16
__clang_ocl_kern_imp_rdk_t:
	flat_load_b32 v6, v[0:1]
; codeLenInByte = 144
	.amdgpu_metadata
---
amdhsa.kernels:
  - .args:
      - .offset:         0
        .size:           24
    .group_segment_fixed_size: 65552
    .kernarg_segment_size: 24
    .name:           rdk_t
    .private_segment_fixed_size: 0
    .sgpr_count:     6
    .sgpr_spill_count: 0
    .uses_dynamic_stack: false
    .vgpr_count:     3
    .vgpr_spill_count: 0

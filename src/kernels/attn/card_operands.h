// SPDX-License-Identifier: Apache-2.0
// What every card's attention kernels take as it stands in the call: fields of the same names in each by-value struct.
#ifndef RDI_KERNELS_ATTN_CARD_OPERANDS_H
#define RDI_KERNELS_ATTN_CARD_OPERANDS_H

// Initialisers of a kernel's struct from `a`, an rdi_attn_args.
// clang-format off
#define RDI_ATTN_OPERANDS(a)                                                                                           \
    .q = RDK_ADDR((a)->q), .out = RDK_ADDR((a)->out), .sinks = RDK_ADDR((a)->sinks),                                   \
    .k_scale = RDK_ADDR((a)->k_scale), .v_scale = RDK_ADDR((a)->v_scale),                                              \
    .block_table = RDK_ADDR((a)->block_table), .kv_lens = RDK_ADDR((a)->kv_lens), .q_starts = RDK_ADDR((a)->q_starts), \
    .q_stride_token = (a)->q_stride_token, .q_stride_head = (a)->q_stride_head,                                        \
    .out_stride_token = (a)->out_stride_token, .out_stride_head = (a)->out_stride_head,                                \
    .block_table_stride = (a)->block_table_stride
// clang-format on

#endif // RDI_KERNELS_ATTN_CARD_OPERANDS_H

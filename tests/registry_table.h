// SPDX-License-Identifier: Apache-2.0
// A table of rows whose every answer is known, for tests of the registry and of plans.
#ifndef TEST_REGISTRY_TABLE_H
#define TEST_REGISTRY_TABLE_H

#include "ops/ctx.h"
#include "ops/plan.h"

static int launches;
static void run_nothing(const void *args, void *ws, rdi_par *par) {
    (void)args, (void)ws, (void)par;
    launches++;
}

static const rd_constraint m8[] = {RD_C_LE("m", 8, "one tile of 8 rows"),
                                   RD_C_MULTIPLE("k", 128, "scale block")};
static const rd_constraint any_m[] = {RD_C_ONE_OF("a_dtype", "fp8_e4m3", "codes"),
                                      RD_C_MULTIPLE("k", 128, "scale block")};
static const rd_constraint all[] = {RD_C_ONE_OF("a_dtype", "fp8_e4m3", "codes")};
static const rd_constraint rows64[] = {RD_C_EQ("gqa", 6, "six heads a wave"),
                                       RD_C_LE("rows", 64, "four waves of 16")};
static const rd_constraint attn_all[] = {RD_C_GE("head_dim", 1, "any")};

#define ROW(name_, op_, backend_, word_, isa_, ref_, list_)                                                  \
    {                                                                                                        \
        {name_, op_, word_, RDI_ISA_TEXT(isa_), "test", "test", ref_, (int32_t)RDI_COUNT(list_), list_},     \
            RDI_BACKEND_##backend_, isa_, run_nothing, NULL, NULL, NULL                                      \
    }
static const rdi_row rows[] = {
    ROW("gemm_fp8block_m8_cpu_avx512", "gemm_fp8block", CPU, "cpu", RDI_ISA_AVX512, 0, m8),
    ROW("gemm_fp8block_any_cpu_avx2", "gemm_fp8block", CPU, "cpu", RDI_ISA_AVX2, 0, any_m),
    ROW("gemm_fp8block_any_cpu_ref", "gemm_fp8block", CPU, "cpu", 0, 1, all),
    ROW("gemm_fp8block_m64_amd_gfx1201", "gemm_fp8block", AMD, "amd", RDI_ISA_GFX1201, 0, any_m),
    ROW("gemm_fp8block_m8_splitk_amd_gfx1201", "gemm_fp8block", AMD, "amd", RDI_ISA_GFX1201, 0, m8),
    ROW("gemm_fp8block_preshuffle_amd_gfx1201", "gemm_fp8block", AMD, "amd", RDI_ISA_GFX1201, 0, all),
    ROW("attn_decode_amd_gfx1201", "attn_decode", AMD, "amd", RDI_ISA_GFX1201, 0, rows64),
    ROW("attn_decode_any_cpu_ref", "attn_decode", CPU, "cpu", 0, 1, attn_all),
};
static const rdi_table table = {rows, (int32_t)RDI_COUNT(rows), false};

static rd_ctx *open_ctx(const char *device) {
    rd_ctx *ctx = NULL;
    rd_ctx_options options = {.struct_size = sizeof options, .device = device};
    assert_int_equal(rd_ctx_create(&options, &ctx), RD_OK);
    ctx->table = table;
    return ctx;
}

#define GEMM_KEYS RD_INT("n", 7168), RD_INT("k", 2048), RD_WORD("a_dtype", "fp8")

#endif // TEST_REGISTRY_TABLE_H

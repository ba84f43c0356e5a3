// SPDX-License-Identifier: Apache-2.0
// One block-FP8 GEMM through the installed library: ask, explain, plan, run.
//   cc gemm.c $(pkg-config --cflags --libs radiance) -o gemm && ./gemm
#include <radiance.h>

#include <stdio.h>
#include <stdlib.h>

enum { M = 3, N = 256, K = 384 };

static int failed(const char *what) {
    fprintf(stderr, "%s: %s\n", what, rd_error_text());
    return 1;
}

int main(void) {
    rd_ctx *ctx = NULL;
    if (rd_ctx_create(NULL, &ctx)) return failed("context");

    const rd_param question[] = {RD_INT("n", N),           RD_INT("k", K),
                                 RD_WORD("a_dtype", "bf16"), RD_WORD("w_scale_dtype", "fp32"),
                                 RD_WORD("c_dtype", "fp32"), RD_WORD("layout", "row")};
    const int keys = sizeof question / sizeof *question;
    rd_plan *plan = NULL;
    if (rd_plan_create(ctx, "gemm_fp8block_w8a16", question, keys, 1, M, &plan)) return failed("plan");
    printf("kernel for %d rows: %s\n", M, rd_plan_kernel(plan, M)->name);

    static uint16_t a[M * K];              // bf16
    static uint8_t w[N * K];               // e4m3
    static float scale[(N / 128) * (K / 128)], c[M * N];
    for (int i = 0; i < M * K; i++) a[i] = 0x3f80; // 1.0
    for (int i = 0; i < N * K; i++) w[i] = 0x38;   // 1.0
    for (int i = 0; i < (N / 128) * (K / 128); i++) scale[i] = 0.5f;

    rd_gemm_args args = {.struct_size = sizeof args,
                         .a = rd_tensor_2d(a, RD_DTYPE_BF16, M, K),
                         .w = rd_tensor_2d(w, RD_DTYPE_E4M3, N, K),
                         .w_scale = rd_tensor_2d(scale, RD_DTYPE_F32, N / 128, K / 128),
                         .c = rd_tensor_2d(c, RD_DTYPE_F32, M, N)};
    size_t bytes = 0;
    if (rd_gemm_run(plan, &args, NULL, &bytes, NULL)) return failed("workspace");
    void *ws = aligned_alloc(64, (bytes + 63) / 64 * 64 + 64);
    if (!ws || rd_gemm_run(plan, &args, ws, &bytes, NULL)) return failed("run");
    printf("c[0][0] = %g (expected %g)\n", c[0], 0.5 * K);

    free(ws);
    rd_plan_free(plan);
    rd_ctx_free(ctx);
    return c[0] == 0.5f * K ? 0 : 1;
}

// SPDX-License-Identifier: Apache-2.0
// C[m][n] = sum_k A[m][k] * B[n][k], e4m3 in, float out: a 64x64 tile per group of four waves, staged through LDS
// with rows padded by 8 bytes. M, N multiples of 64, K of 64. The bench's and the schedule test's kernel.
typedef int v2i __attribute__((ext_vector_type(2)));
typedef int v4i __attribute__((ext_vector_type(4)));
typedef float v8f __attribute__((ext_vector_type(8)));
#define PITCH 72

#ifdef MISSING_BARRIER
#define BARRIER_BEFORE_STORE
#else
#define BARRIER_BEFORE_STORE                                                                                   \
    __builtin_amdgcn_fence(__ATOMIC_RELEASE, "workgroup", "local");                                            \
    __builtin_amdgcn_s_barrier();
#endif

kernel __attribute__((reqd_work_group_size(128, 1, 1))) void gemm_fp8(global const char *a, global const char *b, global float *c, int n, int k) {
    local char tile_a[64 * PITCH] __attribute__((aligned(16)));
    local char tile_b[64 * PITCH] __attribute__((aligned(16)));
    int t = __builtin_amdgcn_workitem_id_x(), lane = t & 31, wave = t >> 5;
    int row = t >> 1, part = (t & 1) * 32;
    global const char *pa = a + (size_t)(__builtin_amdgcn_workgroup_id_y() * 64 + row) * k + part;
    global const char *pb = b + (size_t)(__builtin_amdgcn_workgroup_id_x() * 64 + row) * k + part;
    v8f acc[4] = {0, 0, 0, 0};
    for (int k0 = 0; k0 < k; k0 += 64) {
        v4i a0 = *(global const v4i *)(pa + k0), a1 = *(global const v4i *)(pa + k0 + 16);
        v4i b0 = *(global const v4i *)(pb + k0), b1 = *(global const v4i *)(pb + k0 + 16);
        BARRIER_BEFORE_STORE
        local v2i *sa = (local v2i *)(tile_a + row * PITCH + part), *sb = (local v2i *)(tile_b + row * PITCH + part);
        sa[0] = a0.xy, sa[1] = a0.zw, sa[2] = a1.xy, sa[3] = a1.zw;
        sb[0] = b0.xy, sb[1] = b0.zw, sb[2] = b1.xy, sb[3] = b1.zw;
        __builtin_amdgcn_fence(__ATOMIC_RELEASE, "workgroup", "local");
        __builtin_amdgcn_s_barrier();
        for (int s = 0; s < 4; s++) {
            int at = s * 16 + (lane >> 4) * 8;
            v2i fa = *(local v2i *)(tile_a + (wave * 16 + (lane & 15)) * PITCH + at);
            for (int j = 0; j < 4; j++) {
                v2i fb = *(local v2i *)(tile_b + (j * 16 + (lane & 15)) * PITCH + at);
                acc[j] = __builtin_amdgcn_wmma_f32_16x16x16_fp8_fp8_w32_gfx12(fa, fb, acc[j]);
            }
        }
    }
    global float *out = c + (size_t)(__builtin_amdgcn_workgroup_id_y() * 64 + wave * 16 + (lane >> 4) * 8) * n + __builtin_amdgcn_workgroup_id_x() * 64 + (lane & 15);
    for (int j = 0; j < 4; j++)
        for (int i = 0; i < 8; i++) out[i * n + j * 16] = acc[j][i];
}

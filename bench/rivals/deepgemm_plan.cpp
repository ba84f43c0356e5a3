// SPDX-License-Identifier: Apache-2.0
// Asks DeepGEMM's own host code, at build time and without a card, which kernel it takes for an [m, k] x [n, k]^T product with
// 1x128 and 128x128 scales on Hopper, and writes that kernel's source and a line for bench/deepgemm.c. deepgemm.sh builds and runs it.
//
//   deepgemm_plan FOLDER SMS m n k [m n k ...] >> FOLDER/kernels.txt
#include <csrc/jit_kernels/impls/sm90_fp8_gemm_1d2d.hpp>

#include <cstdio>
#include <cstdlib>

using namespace deep_gemm;

static void plan(const char *folder, int sms, int m, int n, int k) {
    const GemmDesc desc = {.gemm_type = GemmType::Normal,
                           .kernel_type = KernelType::Kernel1D2D,
                           .m = m,
                           .n = n,
                           .k = k,
                           .num_groups = 1,
                           .a_dtype = torch::kFloat8_e4m3fn,
                           .b_dtype = torch::kFloat8_e4m3fn,
                           .cd_dtype = torch::kBFloat16,
                           .major_a = cute::UMMA::Major::K,
                           .major_b = cute::UMMA::Major::K,
                           .with_accumulation = false,
                           .num_sms = sms,
                           .tc_util = 100,
                           .compiled_dims = "nk"}; // the default of fp8_gemm_nt
    const GemmConfig c = get_best_config<SM90ArchSpec>(desc);
    const std::optional<std::string> epilogue;
    const SM90FP8Gemm1D2DRuntime::Args args = {
        .gemm_desc = desc,
        .gemm_config = c,
        .launch_args = LaunchArgs(c.launch_config.num_sms, c.launch_config.num_threads,
                                  c.pipeline_config.smem_size, c.layout.get_cluster_size()),
        .epilogue_type = epilogue,
        .major_sfb = cute::UMMA::Major::K};
    const std::string code = SM90FP8Gemm1D2DRuntime::generate_impl(args);
    const size_t name = std::hash<std::string>{}(code);
    char path[512];
    std::snprintf(path, sizeof path, "%s/%016zx.cu", folder, name);
    std::FILE *file = std::fopen(path, "w");
    if (!file || std::fputs(code.c_str(), file) < 0 || std::fclose(file)) std::exit(1);
    const auto &s = c.storage_config;
    std::printf("%d %d %d %016zx %d %d %d %d %d %d %d %d %d %d %d %d %d\n", m, n, k, name,
                c.launch_config.num_sms, c.launch_config.num_threads, c.pipeline_config.smem_size,
                c.layout.get_cluster_size(), c.layout.block_m, c.layout.block_k, s.load_block_m, s.load_block_n,
                s.store_block_m, s.store_block_n, s.swizzle_a_mode, s.swizzle_b_mode, s.swizzle_cd_mode);
}

int main(int argc, char **argv) {
    for (int i = 3; i + 2 < argc; i += 3)
        plan(argv[1], std::atoi(argv[2]), std::atoi(argv[i]), std::atoi(argv[i + 1]), std::atoi(argv[i + 2]));
}

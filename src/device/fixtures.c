// SPDX-License-Identifier: Apache-2.0
// Canned devices: every choice for a chip can be asked and asserted on any machine. Kernels cannot run on them.
//
// Sources. r9700-gfx1201: AMD's data sheet of the Radeon AI PRO R9700 (64 CUs, 32 GB at 640 GB/s, 64 MiB Infinity Cache)
// and public micro-benchmarks of it (L2 8 MiB, 32 KiB L0 a CU, 64 KiB LDS a work-group, 604 GB/s read).
// h200-sm90a: NVIDIA's data sheet (132 SMs, 141 GB); read rate 4380 GB/s measured on one H200, 2026-11-30, with a graph of
// rotating weights beyond the caches; 60 MB of L2 as its driver says; 227 KiB is the most shared memory of one block (CUDA
// programming guide, compute capability 9.0). h100-pcie-sm90a: NVIDIA's data sheet (114 SMs, 80 GB, 2000 GB/s peak). Rates of both:
// 1980 and 1755 MHz at most, memory of 3201 MHz and 6144 bits and of 1593 MHz and 5120 bits. x86-avx512: two cores of an AMD
// EPYC (Zen 5), 69 GB/s read with two threads, measured 2026-11-30 with `radiance devices`. x86-avx2: AMD's data sheet of the Ryzen 7 5800X, two
// channels of DDR4-3200 (51.2 GB/s peak).
#include "device/device.h"

enum { KIB = 1024, MIB = 1024 * 1024 };
#define GIB ((int64_t)1024 * MIB)
#define AVX512_ALL                                                                                           \
    (RDI_ISA_AVX2 | RDI_ISA_AVX512 | RDI_ISA_AVX512VBMI | RDI_ISA_AVX512BF16 | RDI_ISA_AVX512VNNI)

#define FIXTURE(name_, backend_word_, arch_, isa_text_, model_, units_)                                      \
    .struct_size = sizeof(rd_device_info), .name = name_, .backend = backend_word_, .arch = arch_,           \
    .isa = isa_text_, .model = model_, .is_fixture = 1, .compute_units = units_, .performance_cores = units_

static const rd_device fixtures[] = {
    {.backend = RDI_BACKEND_AMD,
     .isa = RDI_ISA_GFX1201,
     .info = {FIXTURE("r9700-gfx1201", "amd", "gfx1201", "gfx1201", "AMD Radeon AI PRO R9700", 64),
              .l1_bytes = 32 * KIB, .l2_bytes = 8 * MIB, .l3_bytes = 64 * MIB, .lds_bytes = 64 * KIB,
              .memory_bytes = 32 * GIB, .read_gbs = 604}},
    {.backend = RDI_BACKEND_NVIDIA,
     .isa = RDI_ISA_SM90A,
     .info = {FIXTURE("h200-sm90a", "nvidia", "sm_90a", "sm_90a", "NVIDIA H200", 132), .l1_bytes = 256 * KIB,
              .l2_bytes = 60 * MIB, .lds_bytes = 227 * KIB, .memory_bytes = 141000000000, .read_gbs = 4380},
     .rates = {1980, 4917}},
    {.backend = RDI_BACKEND_NVIDIA,
     .isa = RDI_ISA_SM90A,
     .info = {FIXTURE("h100-pcie-sm90a", "nvidia", "sm_90a", "sm_90a", "NVIDIA H100 PCIe", 114),
              .l1_bytes = 256 * KIB, .l2_bytes = 50 * MIB, .lds_bytes = 227 * KIB,
              .memory_bytes = 80000000000, .read_gbs = 2000},
     .rates = {1755, 2039}},
    {.backend = RDI_BACKEND_CPU,
     .isa = AVX512_ALL,
     .info = {FIXTURE("x86-avx512", "cpu", "x86-64", RDI_ISA_TEXT(AVX512_ALL), "AMD EPYC (Zen 5), 2 cores",
                      2),
              .l1_bytes = 48 * KIB, .l2_bytes = 1 * MIB, .l3_bytes = 32 * MIB, .memory_bytes = 24 * GIB,
              .read_gbs = 69}},
    {.backend = RDI_BACKEND_CPU,
     .isa = RDI_ISA_AVX2,
     .info = {FIXTURE("x86-avx2", "cpu", "x86-64", RDI_ISA_TEXT(RDI_ISA_AVX2), "AMD Ryzen 7 5800X", 8),
              .l1_bytes = 32 * KIB, .l2_bytes = 512 * KIB, .l3_bytes = 32 * MIB, .memory_bytes = 32 * GIB,
              .read_gbs = 51.2}},
};

const rd_device *rdi_fixture_at(int32_t index) {
    return index >= 0 && (size_t)index < RDI_COUNT(fixtures) ? &fixtures[index] : NULL;
}

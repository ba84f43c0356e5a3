// SPDX-License-Identifier: Apache-2.0
// What the argument structs of all sm_90a kernels share, host and device alike.
#ifndef RDK_SM90A_TYPES_H
#define RDK_SM90A_TYPES_H

#include "base/gpu_args.h"

// Element types chosen at run time.
enum { RDK_F32 = 0, RDK_BF16 = 1, RDK_F16 = 2, RDK_E4M3 = 3 };

#if defined(__CUDACC__)
#define RDK_ALIGN64     __align__(64) // tensor maps
#define RDK_HOST_DEVICE static constexpr __host__ __device__ __forceinline__
#else
#define RDK_ALIGN64     _Alignas(64)
#define RDK_HOST_DEVICE static inline
#include "radiance.h"
static inline int32_t rdk_type_code(rd_dtype dtype) {
    switch (dtype) {
    case RD_DTYPE_BF16:
        return RDK_BF16;
    case RD_DTYPE_F16:
        return RDK_F16;
    case RD_DTYPE_E4M3:
        return RDK_E4M3;
    default:
        return RDK_F32;
    }
}
#endif

#endif // RDK_SM90A_TYPES_H

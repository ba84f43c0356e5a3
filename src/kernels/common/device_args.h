// SPDX-License-Identifier: Apache-2.0
// What the by-value argument structs of GPU kernels are written with, so that one header serves device code and the host's
// geometry functions: fixed-width integers, floats and pointers, which on the host are plain 64-bit numbers.
#ifndef RDI_DEVICE_ARGS_H
#define RDI_DEVICE_ARGS_H

#if defined(__OPENCL_VERSION__)
#define RDK_PTR(type_) global type_ *
#elif defined(__CUDACC__)
#include <stdint.h>
#define RDK_PTR(type_) type_ *
#define RDK_ALIGN64    __align__(64)
#else
#include <stdint.h>
#define RDK_PTR(type_) uint64_t
#define RDK_ALIGN64    _Alignas(64)
#endif

#endif // RDI_DEVICE_ARGS_H

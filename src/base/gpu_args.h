// SPDX-License-Identifier: Apache-2.0
// What the by-value structs of GPU kernels are written with: one header for OpenCL C, CUDA C and the host, so that the two
// sides of a launch cannot disagree. Such a struct holds fixed-width integers, floats and RDK_PTR pointers (64 bits
// everywhere), widest members first.
#ifndef RDI_GPU_ARGS_H
#define RDI_GPU_ARGS_H

#if defined(__OPENCL_C_VERSION__)
#pragma OPENCL EXTENSION cl_khr_fp16 : enable
typedef char int8_t;
typedef uchar uint8_t;
typedef short int16_t;
typedef ushort uint16_t;
typedef int int32_t;
typedef uint uint32_t;
typedef long int64_t;
typedef ulong uint64_t;
#define RDK_PTR(type_) global type_ *
#elif defined(__CUDACC__)
#include <stdint.h>
#define RDK_PTR(type_) type_ *
#else
#include <stdint.h>
#define RDK_PTR(type_)  uint64_t
#define RDK_ADDR(data_) ((uint64_t)(uintptr_t)(data_))
#endif

#endif // RDI_GPU_ARGS_H

// SPDX-License-Identifier: Apache-2.0
// The part of torch's stable C shim that the binding uses, declared by hand and resolved at run time, so that neither the
// build nor the library needs torch. Prototypes: torch/csrc/inductor/aoti_torch/c/shim.h and torch/csrc/stable/c/shim.h of
// torch 2.13; every name exists since 2.10.
#ifndef RDT_TORCH_SHIM_H
#define RDT_TORCH_SHIM_H

#include <stdbool.h>
#include <stdint.h>

typedef void *rdt_tensor;  // AtenTensorHandle
typedef void *rdt_library; // TorchLibraryHandle
typedef void (*rdt_boxed)(uint64_t *stack, uint64_t inputs, uint64_t outputs);
typedef void (*rdt_range)(int64_t begin, int64_t end, void *state);

// RDT_SHIM(name, return type, parameters): results are 0 on success where the type is int32_t and not a code.
#define RDT_SHIM_LIST                                                                                        \
    RDT_SHIM(aoti_torch_library_init_fragment, int32_t,                                                      \
             (const char *space, const char *file, uint32_t line, rdt_library *out))                         \
    RDT_SHIM(aoti_torch_library_init_impl, int32_t,                                                          \
             (const char *space, const char *key, const char *file, uint32_t line, rdt_library *out))        \
    RDT_SHIM(aoti_torch_library_def, int32_t, (rdt_library library, const char *schema))                     \
    RDT_SHIM(aoti_torch_library_impl, int32_t, (rdt_library library, const char *name, rdt_boxed kernel))    \
    RDT_SHIM(aoti_torch_check, void,                                                                         \
             (bool condition, const char *function, const char *file, uint32_t line, const char *text))      \
    RDT_SHIM(aoti_torch_delete_tensor_object, int32_t, (rdt_tensor tensor))                                  \
    RDT_SHIM(aoti_torch_get_data_ptr, int32_t, (rdt_tensor tensor, void **out))                              \
    RDT_SHIM(aoti_torch_get_dim, int32_t, (rdt_tensor tensor, int64_t * out))                                \
    RDT_SHIM(aoti_torch_get_sizes, int32_t, (rdt_tensor tensor, int64_t * *out))                             \
    RDT_SHIM(aoti_torch_get_strides, int32_t, (rdt_tensor tensor, int64_t * *out))                           \
    RDT_SHIM(aoti_torch_get_dtype, int32_t, (rdt_tensor tensor, int32_t * out))                              \
    RDT_SHIM(aoti_torch_get_device_type, int32_t, (rdt_tensor tensor, int32_t * out))                        \
    RDT_SHIM(aoti_torch_get_device_index, int32_t, (rdt_tensor tensor, int32_t * out))                       \
    RDT_SHIM(aoti_torch_empty_strided, int32_t,                                                              \
             (int64_t rank, const int64_t *sizes, const int64_t *strides, int32_t dtype,                     \
              int32_t device_type, int32_t device_index, rdt_tensor *out))                                   \
    RDT_SHIM(aoti_torch_dtype_float32, int32_t, (void))                                                      \
    RDT_SHIM(aoti_torch_dtype_bfloat16, int32_t, (void))                                                     \
    RDT_SHIM(aoti_torch_dtype_float16, int32_t, (void))                                                      \
    RDT_SHIM(aoti_torch_dtype_float8_e4m3fn, int32_t, (void))                                                \
    RDT_SHIM(aoti_torch_dtype_uint8, int32_t, (void))                                                        \
    RDT_SHIM(aoti_torch_dtype_int32, int32_t, (void))                                                        \
    RDT_SHIM(aoti_torch_dtype_int64, int32_t, (void))                                                        \
    RDT_SHIM(aoti_torch_device_type_cpu, int32_t, (void))                                                    \
    RDT_SHIM(torch_parallel_for, int32_t,                                                                    \
             (int64_t begin, int64_t end, int64_t grain, rdt_range body, void *state))                       \
    RDT_SHIM(torch_get_num_threads, int32_t, (uint32_t * out))

typedef struct rdt_shim {
#define RDT_SHIM(name_, type_, parameters_) type_(*name_) parameters_;
    RDT_SHIM_LIST
#undef RDT_SHIM
    // Absent from a build of torch without that part: NULL.
    int32_t (*aoti_torch_get_current_cuda_stream)(int32_t device_index, void **out);
    int32_t (*aoti_torch_dtype_float8_e8m0fnu)(void);
} rdt_shim;

extern rdt_shim rdt_torch;
// Resolves the shim in the loaded libraries of that folder. False when a name is missing: *missing then says which.
bool rdt_shim_bind(const char *folder, const char **missing);

#endif // RDT_TORCH_SHIM_H

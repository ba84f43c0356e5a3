// SPDX-License-Identifier: Apache-2.0
// Prototypes of every exported function; included by hip_abi.h. HIP_F(name, arguments) declares one, so that a
// program which loads the library by path can turn the same list into a table of pointers.
#ifndef HIP_F
#define HIP_F(name, ...) HIP_API hipError_t name(__VA_ARGS__);
#define HIP_F_LOCAL
#endif

// Devices
HIP_F(hipInit, unsigned flags)
HIP_F(hipDriverGetVersion, int *version)
HIP_F(hipRuntimeGetVersion, int *version)
HIP_F(hipGetDeviceCount, int *count)
HIP_F(hipSetDevice, int device)
HIP_F(hipGetDevice, int *device)
HIP_F(hipDeviceGet, hipDevice_t *device, int ordinal)
HIP_F(hipDeviceGetName, char *name, int bytes, hipDevice_t device)
HIP_F(hipDeviceGetUuid, hipUUID *uuid, hipDevice_t device)
HIP_F(hipDeviceGetPCIBusId, char *text, int bytes, int device)
HIP_F(hipDeviceTotalMem, size_t *bytes, hipDevice_t device)
HIP_F(hipDeviceComputeCapability, int *major, int *minor, hipDevice_t device)
HIP_F(hipDeviceGetAttribute, int *value, int attribute, int device)
HIP_F(hipGetDeviceProperties, hipDeviceProp_tR0000 *properties, int device)
HIP_F(hipGetDevicePropertiesR0000, hipDeviceProp_tR0000 *properties, int device)
HIP_F(hipGetDevicePropertiesR0600, hipDeviceProp_tR0600 *properties, int device)
HIP_F(hipDeviceSynchronize, void)
HIP_F(hipDeviceReset, void)
HIP_F(hipDeviceCanAccessPeer, int *can, int device, int peer)
HIP_F(hipDeviceEnablePeerAccess, int peer, unsigned flags)
HIP_F(hipDeviceDisablePeerAccess, int peer)
HIP_F(hipSetDeviceFlags, unsigned flags)
HIP_F(hipGetLastError, void)
HIP_F(hipPeekAtLastError, void)
HIP_F(hipDrvGetErrorName, hipError_t error, const char **text)
HIP_F(hipDrvGetErrorString, hipError_t error, const char **text)
HIP_F(hipGetProcAddress, const char *symbol, void **function, int version, uint64_t flags, int *status)

// Memory
HIP_F(hipMalloc, void **out, size_t bytes)
HIP_F(hipExtMallocWithFlags, void **out, size_t bytes, unsigned flags)
HIP_F(hipMallocAsync, void **out, size_t bytes, hipStream_t stream)
HIP_F(hipMallocManaged, void **out, size_t bytes, unsigned flags)
HIP_F(hipFree, void *pointer)
HIP_F(hipFreeAsync, void *pointer, hipStream_t stream)
HIP_F(hipHostMalloc, void **out, size_t bytes, unsigned flags)
HIP_F(hipHostFree, void *pointer)
HIP_F(hipHostRegister, void *pointer, size_t bytes, unsigned flags)
HIP_F(hipHostUnregister, void *pointer)
HIP_F(hipHostGetDevicePointer, void **out, void *pointer, unsigned flags)
HIP_F(hipMemGetInfo, size_t *free_bytes, size_t *total_bytes)
HIP_F(hipMemGetAddressRange, hipDeviceptr_t *base, size_t *bytes, hipDeviceptr_t pointer)
HIP_F(hipPointerGetAttributes, hipPointerAttribute_t *attributes, const void *pointer)
HIP_F(hipPointerGetAttribute, void *data, hipPointer_attribute attribute, hipDeviceptr_t pointer)
HIP_F(hipIpcGetMemHandle, hipIpcMemHandle_t *handle, void *pointer)
HIP_F(hipIpcOpenMemHandle, void **out, hipIpcMemHandle_t handle, unsigned flags)
HIP_F(hipIpcCloseMemHandle, void *pointer)

// Copies and fills
HIP_F(hipMemcpy, void *dst, const void *src, size_t bytes, hipMemcpyKind kind)
HIP_F(hipMemcpyAsync, void *dst, const void *src, size_t bytes, hipMemcpyKind kind, hipStream_t stream)
HIP_F(hipMemcpyWithStream, void *dst, const void *src, size_t bytes, hipMemcpyKind kind, hipStream_t stream)
HIP_F(hipMemcpyHtoD, hipDeviceptr_t dst, const void *src, size_t bytes)
HIP_F(hipMemcpyDtoH, void *dst, hipDeviceptr_t src, size_t bytes)
HIP_F(hipMemcpyDtoD, hipDeviceptr_t dst, hipDeviceptr_t src, size_t bytes)
HIP_F(hipMemcpyHtoDAsync, hipDeviceptr_t dst, const void *src, size_t bytes, hipStream_t stream)
HIP_F(hipMemcpyDtoHAsync, void *dst, hipDeviceptr_t src, size_t bytes, hipStream_t stream)
HIP_F(hipMemcpyDtoDAsync, hipDeviceptr_t dst, hipDeviceptr_t src, size_t bytes, hipStream_t stream)
HIP_F(hipMemcpyPeer, void *dst, int dst_device, const void *src, int src_device, size_t bytes)
HIP_F(hipMemcpyPeerAsync, void *dst, int dst_device, const void *src, int src_device, size_t bytes,
      hipStream_t stream)
HIP_F(hipMemcpy2D, void *dst, size_t dst_pitch, const void *src, size_t src_pitch, size_t width,
      size_t height, hipMemcpyKind kind)
HIP_F(hipMemcpy2DAsync, void *dst, size_t dst_pitch, const void *src, size_t src_pitch, size_t width,
      size_t height, hipMemcpyKind kind, hipStream_t stream)
HIP_F(hipMemset, void *dst, int value, size_t bytes)
HIP_F(hipMemsetAsync, void *dst, int value, size_t bytes, hipStream_t stream)
HIP_F(hipMemsetD8, hipDeviceptr_t dst, unsigned char value, size_t count)
HIP_F(hipMemsetD8Async, hipDeviceptr_t dst, unsigned char value, size_t count, hipStream_t stream)
HIP_F(hipMemsetD16, hipDeviceptr_t dst, unsigned short value, size_t count)
HIP_F(hipMemsetD16Async, hipDeviceptr_t dst, unsigned short value, size_t count, hipStream_t stream)
HIP_F(hipMemsetD32, hipDeviceptr_t dst, int value, size_t count)
HIP_F(hipMemsetD32Async, hipDeviceptr_t dst, int value, size_t count, hipStream_t stream)

// Streams and events
HIP_F(hipStreamCreate, hipStream_t *out)
HIP_F(hipStreamCreateWithFlags, hipStream_t *out, unsigned flags)
HIP_F(hipStreamCreateWithPriority, hipStream_t *out, unsigned flags, int priority)
HIP_F(hipDeviceGetStreamPriorityRange, int *least, int *greatest)
HIP_F(hipStreamDestroy, hipStream_t stream)
HIP_F(hipStreamSynchronize, hipStream_t stream)
HIP_F(hipStreamQuery, hipStream_t stream)
HIP_F(hipStreamWaitEvent, hipStream_t stream, hipEvent_t event, unsigned flags)
HIP_F(hipStreamGetFlags, hipStream_t stream, unsigned *flags)
HIP_F(hipStreamGetDevice, hipStream_t stream, hipDevice_t *device)
HIP_F(hipStreamAddCallback, hipStream_t stream, hipStreamCallback_t callback, void *user_data, unsigned flags)
HIP_F(hipLaunchHostFunc, hipStream_t stream, hipHostFn_t function, void *user_data)
HIP_F(hipEventCreate, hipEvent_t *out)
HIP_F(hipEventCreateWithFlags, hipEvent_t *out, unsigned flags)
HIP_F(hipEventDestroy, hipEvent_t event)
HIP_F(hipEventRecord, hipEvent_t event, hipStream_t stream)
HIP_F(hipEventSynchronize, hipEvent_t event)
HIP_F(hipEventQuery, hipEvent_t event)
HIP_F(hipEventElapsedTime, float *milliseconds, hipEvent_t start, hipEvent_t stop)

// Code
HIP_F(hipModuleLoad, hipModule_t *out, const char *path)
HIP_F(hipModuleLoadData, hipModule_t *out, const void *image)
HIP_F(hipModuleLoadDataEx, hipModule_t *out, const void *image, unsigned count, int *options, void **values)
HIP_F(hipModuleUnload, hipModule_t module)
HIP_F(hipModuleGetFunction, hipFunction_t *out, hipModule_t module, const char *name)
HIP_F(hipModuleGetGlobal, hipDeviceptr_t *out, size_t *bytes, hipModule_t module, const char *name)
HIP_F(hipFuncGetAttribute, int *value, hipFunction_attribute attribute, hipFunction_t function)
HIP_F(hipFuncSetAttribute, const void *function, int attribute, int value)
HIP_F(hipModuleLaunchKernel, hipFunction_t function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
      unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared_bytes, hipStream_t stream,
      void **params, void **extra)

// Graphs
HIP_F(hipStreamBeginCapture, hipStream_t stream, hipStreamCaptureMode mode)
HIP_F(hipStreamEndCapture, hipStream_t stream, hipGraph_t *out)
HIP_F(hipStreamIsCapturing, hipStream_t stream, hipStreamCaptureStatus *status)
HIP_F(hipStreamGetCaptureInfo, hipStream_t stream, hipStreamCaptureStatus *status, unsigned long long *id)
HIP_F(hipThreadExchangeStreamCaptureMode, hipStreamCaptureMode *mode)
HIP_F(hipGraphGetNodes, hipGraph_t graph, hipGraphNode_t *nodes, size_t *count)
HIP_F(hipGraphNodeGetType, hipGraphNode_t node, hipGraphNodeType *type)
HIP_F(hipGraphDestroy, hipGraph_t graph)
HIP_F(hipGraphInstantiate, hipGraphExec_t *out, hipGraph_t graph, hipGraphNode_t *error_node, char *log,
      size_t log_bytes)
HIP_F(hipGraphInstantiateWithFlags, hipGraphExec_t *out, hipGraph_t graph, unsigned long long flags)
HIP_F(hipGraphLaunch, hipGraphExec_t exec, hipStream_t stream)
HIP_F(hipGraphExecDestroy, hipGraphExec_t exec)

#ifdef HIP_F_LOCAL
HIP_API const char *hipGetErrorName(hipError_t error);
HIP_API const char *hipGetErrorString(hipError_t error);
#undef HIP_F_LOCAL
#endif
#undef HIP_F

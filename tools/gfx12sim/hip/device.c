// SPDX-License-Identifier: Apache-2.0
// Devices as a program sees them: properties, attributes, peers, reset.
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>
#include "rt.h"

// One simulated R9700. Sources: 32 multiprocessors (WGPs), 2920 MHz, 256-bit memory, 8 MiB L2 as ROCm and the
// card's data sheet report them; 64 KiB LDS a work-group and 128 KiB a WGP, 16 waves on each of 4 SIMDs, 1536
// VGPRs of 32 lanes per SIMD (RDNA4 ISA guide and LLVM's AMDGPU usage guide, gfx1201).
enum {
    MULTIPROCESSORS = 32,
    WARP = 32,
    CLOCK_KHZ = 2920000,
    MEMORY_CLOCK_KHZ = 1258000, // 20.1 Gb/s GDDR6: 640 GB/s over 256 bits
    MEMORY_BITS = 256,
    L2_BYTES = 8 << 20,
    LDS_PER_WGP_BYTES = 128 << 10,
    ITEMS_PER_WGP = 4 * 16 * WARP,
    VGPRS_PER_WGP = 4 * 1536 * WARP,
    WALL_CLOCK_KHZ = 100000,
    VERSION = 70125424, // HIP 7.1, whose headers the interface follows
    TEXTURE_ALIGN = 256,
    // Bits of hipDeviceArch_t: integer and float atomics, 64-bit atomics, doubles, vote, ballot, shuffle, fence, 3D.
    ARCH_BITS = 0x7f | 1 << 7 | 1 << 8 | 1 << 9 | 1 << 10 | 1 << 12 | 1 << 15,
};
static const char device_name[] = "AMD Radeon AI PRO R9700 (gfx12sim)", arch_name[] = "gfx1201";

static bool valid(int device) {
    return device >= 0 && device < rt.device_count;
}

HIP_API hipError_t hipInit(unsigned flags) {
    RT_BEGIN(rt_enter);
    return rt_done(flags ? hipErrorInvalidValue : hipSuccess);
}

HIP_API hipError_t hipDriverGetVersion(int *version) {
    if (!version) return rt_done(hipErrorInvalidValue);
    *version = VERSION;
    return rt_done(hipSuccess);
}

HIP_API hipError_t hipRuntimeGetVersion(int *version) {
    return hipDriverGetVersion(version);
}

HIP_API hipError_t hipGetDeviceCount(int *count) {
    if (!count) return rt_done(hipErrorInvalidValue);
    *count = 0;
    RT_BEGIN(rt_enter);
    *count = rt.device_count;
    return rt_done(hipSuccess);
}

HIP_API hipError_t hipSetDevice(int device) {
    RT_BEGIN(rt_enter);
    if (!valid(device)) return rt_done(hipErrorInvalidDevice);
    rt_current_set(device);
    return rt_done(hipSuccess);
}

HIP_API hipError_t hipGetDevice(int *device) {
    RT_BEGIN(rt_enter);
    if (!device) return rt_done(hipErrorInvalidValue);
    *device = rt_current_ordinal();
    return rt_done(hipSuccess);
}

HIP_API hipError_t hipDeviceGet(hipDevice_t *device, int ordinal) {
    RT_BEGIN(rt_enter);
    if (!device) return rt_done(hipErrorInvalidValue);
    if (!valid(ordinal)) return rt_done(hipErrorInvalidDevice);
    *device = ordinal;
    return rt_done(hipSuccess);
}

HIP_API hipError_t hipDeviceGetName(char *name, int bytes, hipDevice_t device) {
    RT_BEGIN(rt_enter);
    if (!name || bytes <= 0) return rt_done(hipErrorInvalidValue);
    if (!valid(device)) return rt_done(hipErrorInvalidDevice);
    snprintf(name, (size_t)bytes, "%s", device_name);
    return rt_done(hipSuccess);
}

static void uuid_of(int device, hipUUID *uuid) {
    memset(uuid, 0, sizeof *uuid);
    memcpy(uuid->bytes, "gfx12sim", 8);
    uuid->bytes[15] = (char)device;
}

HIP_API hipError_t hipDeviceGetUuid(hipUUID *uuid, hipDevice_t device) {
    RT_BEGIN(rt_enter);
    if (!uuid) return rt_done(hipErrorInvalidValue);
    if (!valid(device)) return rt_done(hipErrorInvalidDevice);
    uuid_of(device, uuid);
    return rt_done(hipSuccess);
}

HIP_API hipError_t hipDeviceGetPCIBusId(char *text, int bytes, int device) {
    RT_BEGIN(rt_enter);
    if (!text || bytes < 13) return rt_done(hipErrorInvalidValue);
    if (!valid(device)) return rt_done(hipErrorInvalidDevice);
    snprintf(text, (size_t)bytes, "0000:%02x:00.0", device + 1);
    return rt_done(hipSuccess);
}

HIP_API hipError_t hipDeviceTotalMem(size_t *bytes, hipDevice_t device) {
    RT_BEGIN(rt_enter);
    if (!bytes) return rt_done(hipErrorInvalidValue);
    if (!valid(device)) return rt_done(hipErrorInvalidDevice);
    *bytes = rt.devices[device].total_bytes;
    return rt_done(hipSuccess);
}

HIP_API hipError_t hipDeviceComputeCapability(int *major, int *minor, hipDevice_t device) {
    RT_BEGIN(rt_enter);
    if (!major || !minor) return rt_done(hipErrorInvalidValue);
    if (!valid(device)) return rt_done(hipErrorInvalidDevice);
    *major = 12;
    *minor = 0;
    return rt_done(hipSuccess);
}

// Numbers of hipDeviceAttribute_t. What is not listed answers 0 when the number is one of ROCm's, else an error.
static const struct {
    int number, value;
} attributes[] = {
    {2, 2},
    {3, 1},
    {4, 1},
    {5, CLOCK_KHZ},
    {8, 1},
    {13, 1},
    {19, L2_BYTES},
    {22, 12},
    {24, 1},
    {25, 32},
    {26, RT_BLOCK_ITEMS},
    {27, RT_BLOCK_ITEMS},
    {28, RT_BLOCK_ITEMS},
    {29, INT32_MAX},
    {30, 65535},
    {31, 65535},
    {55, RT_BLOCK_ITEMS},
    {56, RT_BLOCK_ITEMS},
    {57, ITEMS_PER_WGP},
    {58, INT32_MAX},
    {59, MEMORY_BITS},
    {60, MEMORY_CLOCK_KHZ},
    {61, 0},
    {63, MULTIPROCESSORS},
    {68, 0},
    {71, VGPRS_PER_WGP},
    {72, VGPRS_PER_WGP},
    {74, RT_LDS_BYTES},
    {75, RT_LDS_BYTES},
    {76, LDS_PER_WGP_BYTES},
    {80, TEXTURE_ALIGN},
    {82, TEXTURE_ALIGN},
    {83, INT32_MAX},
    {85, 1},
    {87, WARP},
    {90, 1},
    {10000, WALL_CLOCK_KHZ},
    {10002, LDS_PER_WGP_BYTES},
    {10011, 1},
    {10015, MULTIPROCESSORS},
    {10016, 1},
    {10017, WALL_CLOCK_KHZ},
    {10018, 1},
    {10019, 256},
};
enum {
    ATTRIBUTE_PCI_BUS = 67,
    ATTRIBUTE_GLOBAL_BYTES = 84,
    LAST_COMMON = 91,
    FIRST_AMD = 10000,
    LAST_AMD = 10020
};

HIP_API hipError_t hipDeviceGetAttribute(int *value, int attribute, int device) {
    RT_BEGIN(rt_enter);
    if (!value) return rt_done(hipErrorInvalidValue);
    if (!valid(device)) return rt_done(hipErrorInvalidDevice);
    if (attribute < 0 || (attribute > LAST_COMMON && attribute < FIRST_AMD) || attribute > LAST_AMD)
        return rt_done(hipErrorInvalidValue);
    *value = 0;
    if (attribute == ATTRIBUTE_PCI_BUS) *value = device + 1;
    if (attribute == ATTRIBUTE_GLOBAL_BYTES) // an int: saturates
        *value = rt.devices[device].total_bytes > INT32_MAX ? INT32_MAX : (int)rt.devices[device].total_bytes;
    for (size_t i = 0; i < sizeof attributes / sizeof *attributes; i++)
        if (attributes[i].number == attribute) *value = attributes[i].value;
    return rt_done(hipSuccess);
}

HIP_API hipError_t hipGetDevicePropertiesR0600(hipDeviceProp_tR0600 *p, int device) {
    RT_BEGIN(rt_enter);
    if (!p) return rt_done(hipErrorInvalidValue);
    if (!valid(device)) return rt_done(hipErrorInvalidDevice);
    *p = (hipDeviceProp_tR0600){.totalGlobalMem = rt.devices[device].total_bytes,
                                .sharedMemPerBlock = RT_LDS_BYTES,
                                .regsPerBlock = VGPRS_PER_WGP,
                                .warpSize = WARP,
                                .memPitch = INT32_MAX,
                                .maxThreadsPerBlock = RT_BLOCK_ITEMS,
                                .maxThreadsDim = {RT_BLOCK_ITEMS, RT_BLOCK_ITEMS, RT_BLOCK_ITEMS},
                                .maxGridSize = {INT32_MAX, 65535, 65535},
                                .clockRate = CLOCK_KHZ,
                                .totalConstMem = INT32_MAX,
                                .major = 12,
                                .textureAlignment = TEXTURE_ALIGN,
                                .texturePitchAlignment = TEXTURE_ALIGN,
                                .deviceOverlap = 1,
                                .multiProcessorCount = MULTIPROCESSORS,
                                .canMapHostMemory = 1,
                                .concurrentKernels = 1,
                                .pciBusID = device + 1,
                                .asyncEngineCount = 2,
                                .unifiedAddressing = 1,
                                .memoryClockRate = MEMORY_CLOCK_KHZ,
                                .memoryBusWidth = MEMORY_BITS,
                                .l2CacheSize = L2_BYTES,
                                .maxThreadsPerMultiProcessor = ITEMS_PER_WGP,
                                .sharedMemPerMultiprocessor = LDS_PER_WGP_BYTES,
                                .regsPerMultiprocessor = VGPRS_PER_WGP,
                                .managedMemory = 1,
                                .canUseHostPointerForRegisteredMem = 1,
                                .sharedMemPerBlockOptin = RT_LDS_BYTES,
                                .maxBlocksPerMultiProcessor = 32,
                                .hostRegisterSupported = 1,
                                .maxSharedMemoryPerMultiProcessor = LDS_PER_WGP_BYTES,
                                .clockInstructionRate = WALL_CLOCK_KHZ,
                                .arch = ARCH_BITS,
                                .isLargeBar = 1};
    uuid_of(device, &p->uuid);
    memcpy(p->name, device_name, sizeof device_name);
    memcpy(p->gcnArchName, arch_name, sizeof arch_name);
    return rt_done(hipSuccess);
}

HIP_API hipError_t hipGetDevicePropertiesR0000(hipDeviceProp_tR0000 *p, int device) {
    RT_BEGIN(rt_enter);
    if (!p) return rt_done(hipErrorInvalidValue);
    if (!valid(device)) return rt_done(hipErrorInvalidDevice);
    *p = (hipDeviceProp_tR0000){.totalGlobalMem = rt.devices[device].total_bytes,
                                .sharedMemPerBlock = RT_LDS_BYTES,
                                .regsPerBlock = VGPRS_PER_WGP,
                                .warpSize = WARP,
                                .maxThreadsPerBlock = RT_BLOCK_ITEMS,
                                .maxThreadsDim = {RT_BLOCK_ITEMS, RT_BLOCK_ITEMS, RT_BLOCK_ITEMS},
                                .maxGridSize = {INT32_MAX, 65535, 65535},
                                .clockRate = CLOCK_KHZ,
                                .memoryClockRate = MEMORY_CLOCK_KHZ,
                                .memoryBusWidth = MEMORY_BITS,
                                .totalConstMem = INT32_MAX,
                                .major = 12,
                                .multiProcessorCount = MULTIPROCESSORS,
                                .l2CacheSize = L2_BYTES,
                                .maxThreadsPerMultiProcessor = ITEMS_PER_WGP,
                                .clockInstructionRate = WALL_CLOCK_KHZ,
                                .arch = ARCH_BITS,
                                .concurrentKernels = 1,
                                .pciBusID = device + 1,
                                .maxSharedMemoryPerMultiProcessor = LDS_PER_WGP_BYTES,
                                .canMapHostMemory = 1,
                                .memPitch = INT32_MAX,
                                .textureAlignment = TEXTURE_ALIGN,
                                .texturePitchAlignment = TEXTURE_ALIGN,
                                .isLargeBar = 1,
                                .managedMemory = 1};
    memcpy(p->name, device_name, sizeof device_name);
    memcpy(p->gcnArchName, arch_name, sizeof arch_name);
    return rt_done(hipSuccess);
}

// The unversioned symbol is what programs built before ROCm 6 bind to.
HIP_API hipError_t hipGetDeviceProperties(hipDeviceProp_tR0000 *p, int device) {
    return hipGetDevicePropertiesR0000(p, device);
}

HIP_API hipError_t hipSetDeviceFlags(unsigned flags) {
    enum { SCHEDULE = 7, MAP_HOST = 8, RESIZE_LOCAL = 16 };
    RT_BEGIN(rt_enter);
    return rt_done(flags & ~(unsigned)(SCHEDULE | MAP_HOST | RESIZE_LOCAL) ? hipErrorInvalidValue
                                                                           : hipSuccess);
}

HIP_API hipError_t hipDeviceSynchronize(void) {
    RT_BEGIN(rt_enter);
    rt_lock();
    hipError_t error = rt_capture_forbids();
    if (!error) error = rt_device_drain(rt_current());
    rt_unlock();
    return rt_done(error);
}

// Frees what the device's allocations hold and forgets its fault. A lost device stays lost.
HIP_API hipError_t hipDeviceReset(void) {
    RT_BEGIN(rt_enter);
    rt_device *d = rt_current();
    rt_lock();
    hipError_t error = rt_capture_forbids();
    if (error) {
        rt_unlock();
        return rt_done(error);
    }
    for (int i = 0; i < rt.device_count; i++) rt_device_drain(&rt.devices[i]); // peers may use its memory
    for (size_t i = 0; i < rt.alloc_count;) {
        bool mine = rt.allocs[i].device == d && !rt.allocs[i].freeing;
        if (mine) rt_alloc_free(&rt.allocs[i]);
        i = mine ? 0 : i + 1; // the table may have changed while the lock was away
    }
    rt_module_drop_all(d);
    d->fault = hipSuccess;
    d->fault_text[0] = 0;
    error = d->lost ? hipErrorLaunchFailure : hipSuccess;
    rt_unlock();
    return rt_done(error);
}

HIP_API hipError_t hipDeviceCanAccessPeer(int *can, int device, int peer) {
    RT_BEGIN(rt_enter);
    if (!can) return rt_done(hipErrorInvalidValue);
    if (!valid(device) || !valid(peer)) return rt_done(hipErrorInvalidDevice);
    *can = device != peer;
    return rt_done(hipSuccess);
}

static hipError_t set_peer(int peer, bool on) {
    rt_device *d = rt_current();
    if (!valid(peer) || peer == d->ordinal) return hipErrorInvalidDevice;
    uint32_t bit = UINT32_C(1) << peer;
    if (on == ((d->peers & bit) != 0))
        return on ? hipErrorPeerAccessAlreadyEnabled : hipErrorPeerAccessNotEnabled;
    while (d->running) pthread_cond_wait(&rt.changed, &rt.lock);
    hipError_t error = hipSuccess;
    for (size_t i = 0; i < rt.alloc_count && !error; i++) {
        const rt_alloc *a = &rt.allocs[i];
        if ((a->kind != RT_DEVICE && a->kind != RT_IPC) || a->device->ordinal != peer) continue;
        gs_status status = on ? gs_mem_map(d->mem, a->base, a->bytes) : gs_mem_unmap(d->mem, a->base);
        if (status) error = hipErrorOutOfMemory;
    }
    if (!error) d->peers ^= bit;
    return error;
}

HIP_API hipError_t hipDeviceEnablePeerAccess(int peer, unsigned flags) {
    RT_BEGIN(rt_enter_device);
    if (flags) return rt_done(hipErrorInvalidValue);
    rt_lock();
    hipError_t error = set_peer(peer, true);
    rt_unlock();
    return rt_done(error);
}

HIP_API hipError_t hipDeviceDisablePeerAccess(int peer) {
    RT_BEGIN(rt_enter_device);
    rt_lock();
    hipError_t error = set_peer(peer, false);
    rt_unlock();
    return rt_done(error);
}

HIP_API hipError_t hipGetProcAddress(const char *symbol, void **function, int version, uint64_t flags,
                                     int *status) {
    enum { FOUND, NOT_FOUND, PROPERTIES_CHANGED_IN = 600 };
    (void)flags;
    if (!symbol || !function || strncmp(symbol, "hip", 3) != 0) return rt_done(hipErrorInvalidValue);
    Dl_info self;
    void *handle =
        dladdr((void *)(uintptr_t)&hipInit, &self) ? dlopen(self.dli_fname, RTLD_NOW | RTLD_NOLOAD) : NULL;
    if (version >= PROPERTIES_CHANGED_IN && strcmp(symbol, "hipGetDeviceProperties") == 0)
        symbol = "hipGetDevicePropertiesR0600";
    *function = handle ? dlsym(handle, symbol) : NULL;
    if (handle) dlclose(handle);
    if (status) *status = *function ? FOUND : NOT_FOUND;
    return rt_done(*function ? hipSuccess : hipErrorNotFound);
}

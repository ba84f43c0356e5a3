// SPDX-License-Identifier: Apache-2.0
// A HIP runtime that answers as FAKE_HIP says, for what no simulator shows: "none" (no device), "old_driver", "gfx1100" (a
// card of another architecture) or "broken" (an error that is none of these). Nothing else works.
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

static int is(const char *word) {
    const char *mode = getenv("FAKE_HIP");
    return mode && !strcmp(mode, word);
}

int hipInit(unsigned flags) {
    (void)flags;
    return is("old_driver") ? 35 : is("broken") ? 999 : 0;
}
int hipGetDeviceCount(int *count) {
    *count = is("gfx1100");
    return is("none") ? 100 : 0;
}
int hipRuntimeGetVersion(int *version) {
    *version = 70200000;
    return 0;
}
int hipDriverGetVersion(int *version) {
    *version = 60300000;
    return 0;
}
const char *hipGetErrorName(int error) {
    return error == 35 ? "hipErrorInsufficientDriver" : error == 100 ? "hipErrorNoDevice" : "hipErrorUnknown";
}
const char *hipGetErrorString(int error) {
    return error == 999 ? "unknown error" : "";
}
// The public header's layout: name at 0, memory at 288, processors at 388, architecture at 1160.
int hipGetDevicePropertiesR0600(char *properties, int device) {
    size_t bytes = (size_t)20 << 30;
    int processors = 48;
    (void)device;
    memset(properties, 0, 1472);
    strcpy(properties, "AMD Radeon RX 7900 XT");
    memcpy(properties + 288, &bytes, sizeof bytes);
    memcpy(properties + 388, &processors, sizeof processors);
    strcpy(properties + 1160, "gfx1100");
    return 0;
}
int hipSetDevice(int device) {
    return device ? 101 : 0;
}

#define FAILS(name_)                                                                                         \
    int name_(void) {                                                                                        \
        return 999;                                                                                          \
    }
FAILS(hipGetLastError)
FAILS(hipDeviceEnablePeerAccess)
FAILS(hipMalloc)
FAILS(hipFree)
FAILS(hipHostMalloc)
FAILS(hipHostFree)
FAILS(hipMemGetInfo)
FAILS(hipMemcpyAsync)
FAILS(hipMemcpyPeerAsync)
FAILS(hipMemsetAsync)
FAILS(hipStreamCreateWithFlags)
FAILS(hipStreamDestroy)
FAILS(hipStreamSynchronize)
FAILS(hipStreamQuery)
FAILS(hipStreamWaitEvent)
FAILS(hipEventCreate)
FAILS(hipEventDestroy)
FAILS(hipEventRecord)
FAILS(hipEventSynchronize)
FAILS(hipEventElapsedTime)
FAILS(hipModuleLoadData)
FAILS(hipModuleUnload)
FAILS(hipModuleGetFunction)
FAILS(hipModuleLaunchKernel)
FAILS(hipStreamBeginCapture)
FAILS(hipStreamEndCapture)
FAILS(hipGraphInstantiateWithFlags)
FAILS(hipGraphLaunch)
FAILS(hipGraphExecDestroy)
FAILS(hipGraphDestroy)

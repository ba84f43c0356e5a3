// SPDX-License-Identifier: Apache-2.0
// The HIP face when things go wrong: faults of kernels, full memory, lost devices, broken captures, hostile
// arguments. Nothing may crash, and the error must be the right one.
#include "hip_test.h"

enum { N = 256 };

static bool text_has(int device, const char *word) {
    char text[1024];
    hip.fault_text(device, text, sizeof text);
    if (strstr(text, word)) return true;
    fprintf(stderr, "no \"%s\" in: %s\n", word, text);
    return false;
}

static void fault(void) {
    hipFunction_t overrun = kernel_of("overrun"), scale = kernel_of("scale_add");
    int *x, *other, n = N;
    hipStream_t s;
    OK(hip.hipStreamCreate(&s));
    OK(hip.hipMalloc((void **)&x, N * sizeof(int)));
    OK(hip.hipMalloc((void **)&other, N * sizeof(int))); // the neighbour must not swallow the write
    REQUIRE(hip.fault_text(0, NULL, 0) == 0);
    void *params[] = {&x, &n};
    OK(hip.hipModuleLaunchKernel(overrun, 1, 1, 1, 64, 1, 1, 0, s, params, NULL)); // found out later
    EXPECT(hipErrorIllegalAddress, hip.hipStreamSynchronize(s));
    REQUIRE(text_has(0, "out_of_bounds") && text_has(0, "overrun") && text_has(0, "global_store"));
    // It stays until a reset, for every stream of the device.
    EXPECT(hipErrorIllegalAddress, launch_scale(scale, NULL, x, 1, 0, N));
    EXPECT(hipErrorIllegalAddress, hip.hipMalloc((void **)&other, 4));
    EXPECT(hipErrorIllegalAddress, hip.hipDeviceSynchronize());
    EXPECT(hipErrorIllegalAddress, hip.hipPeekAtLastError());
    EXPECT(hipErrorIllegalAddress, hip.hipGetLastError());
    EXPECT(hipSuccess, hip.hipGetLastError());
    OK(hip.hipDeviceReset());
    REQUIRE(hip.fault_text(0, NULL, 0) == 0);
    EXPECT(hipErrorInvalidValue, hip.hipFree(x)); // the reset freed it
    EXPECT(hipErrorInvalidHandle, launch_scale(scale, NULL, x, 1, 0, N));
    scale = kernel_of("scale_add");
    OK(hip.hipMalloc((void **)&x, N * sizeof(int)));
    OK(hip.hipMemset(x, 0, N * sizeof(int)));
    OK(launch_scale(scale, NULL, x, 1, 5, N));
    OK(hip.hipDeviceSynchronize());
}
CASE(fault, "GFX12SIM_MEMORY=1G")

static void hang(void) {
    hipFunction_t never = kernel_of("never_ends");
    int *x;
    OK(hip.hipMalloc((void **)&x, 4));
    OK(hip.hipMemset(x, 0, 4));
    void *params[] = {&x};
    OK(hip.hipModuleLaunchKernel(never, 1, 1, 1, 64, 1, 1, 0, NULL, params, NULL));
    EXPECT(hipErrorLaunchTimeOut, hip.hipDeviceSynchronize());
    REQUIRE(text_has(0, "hang") && text_has(0, "never_ends"));
}
CASE(hang, "GFX12SIM_MEMORY=1G", "GFX12SIM_MAX_STEPS=10000")

static void memory_limit(void) {
    size_t free_bytes, total, megabyte = 1 << 20;
    char *p[3], *q;
    OK(hip.hipMemGetInfo(&free_bytes, &total));
    REQUIRE(total == 16 * megabyte && free_bytes == total);
    EXPECT(hipErrorOutOfMemory, hip.hipMalloc((void **)&q, 17 * megabyte));
    EXPECT(hipErrorOutOfMemory, hip.hipMalloc((void **)&q, SIZE_MAX));
    for (int i = 0; i < 3; i++) OK(hip.hipMalloc((void **)&p[i], 5 * megabyte));
    EXPECT(hipErrorOutOfMemory, hip.hipMalloc((void **)&q, 2 * megabyte));
    OK(hip.hipMemset(p[1], 0x55, 5 * megabyte));
    OK(hip.hipFree(p[1]));
    EXPECT(hipErrorInvalidValue, hip.hipFree(p[1]));
    EXPECT(hipErrorInvalidValue, hip.hipFree(p[0] + 16));
    EXPECT(hipErrorInvalidValue, hip.hipMemset(p[1], 0, 1));                // gone
    EXPECT(hipErrorInvalidValue, hip.hipMemset(p[0] + 1, 0, 5 * megabyte)); // one beyond its end
    OK(hip.hipMalloc((void **)&q, 4 * megabyte));
    char byte = 1;
    OK(hip.hipMemcpy(&byte, q, 1, hipMemcpyDeviceToHost));
    REQUIRE(byte == 0); // new memory, not the old 0x55
    OK(hip.hipMemGetInfo(&free_bytes, &total));
    REQUIRE(free_bytes == 2 * megabyte);
    OK(hip.hipFreeAsync(q, NULL));
    EXPECT(hipErrorInvalidValue, hip.hipFreeAsync(q, NULL));
    EXPECT(hipErrorInvalidValue, hip.hipFree(q));
    OK(hip.hipDeviceSynchronize());
    OK(hip.hipMemGetInfo(&free_bytes, &total));
    REQUIRE(free_bytes == 6 * megabyte);
    OK(hip.hipMalloc((void **)&q, 0));
    REQUIRE(q == NULL);
    OK(hip.hipFree(NULL));
    void *base;
    OK(hip.hipMemGetAddressRange(&base, &total, p[2] + 77));
    REQUIRE(base == p[2] && total == 5 * megabyte);
    hipPointerAttribute_t attributes;
    OK(hip.hipPointerGetAttributes(&attributes, p[2]));
    REQUIRE(attributes.type == hipMemoryTypeDevice && attributes.device == 0);
    OK(hip.hipPointerGetAttributes(&attributes, &attributes));
    REQUIRE(attributes.type == hipMemoryTypeUnregistered);
}
CASE(memory_limit, "GFX12SIM_MEMORY=16M")

static void host_memory(void) {
    int *buffer, *same, *pinned;
    REQUIRE(posix_memalign((void **)&buffer, 4096, 8192) == 0);
    OK(hip.hipHostRegister(buffer, 8192, 0));
    EXPECT(hipErrorHostMemoryAlreadyRegistered, hip.hipHostRegister(buffer + 64, 64, 0));
    OK(hip.hipHostGetDevicePointer((void **)&same, buffer, 0));
    for (int i = 0; i < N; i++) buffer[i] = i;
    OK(launch_scale(kernel_of("scale_add"), NULL, same, 2, 0, N)); // kernels reach it
    OK(hip.hipDeviceSynchronize());
    for (int i = 0; i < N; i++) REQUIRE(buffer[i] == 2 * i);
    OK(hip.hipHostUnregister(buffer));
    EXPECT(hipErrorHostMemoryNotRegistered, hip.hipHostUnregister(buffer));
    free(buffer);
    OK(hip.hipHostMalloc((void **)&pinned, 4096, 0));
    EXPECT(hipErrorInvalidValue, hip.hipFree(pinned));
    EXPECT(hipErrorInvalidValue, hip.hipMemcpy(pinned + 1, pinned, 4096, hipMemcpyDefault));
    OK(hip.hipHostFree(pinned));
    EXPECT(hipErrorInvalidValue, hip.hipHostFree(pinned));
}
CASE(host_memory, "GFX12SIM_MEMORY=16M")

static void lost_device(void) {
    hipFunction_t scale = kernel_of("scale_add");
    int *x, host[N];
    hipEvent_t event;
    OK(hip.hipEventCreate(&event));
    OK(hip.hipMalloc((void **)&x, sizeof host));
    OK(hip.hipMemset(x, 0, sizeof host));
    for (int i = 0; i < 3; i++) OK(launch_scale(scale, NULL, x, 1, 1, N));
    OK(hip.hipDeviceSynchronize());
    OK(launch_scale(scale, NULL, x, 1, 1, N)); // accepted; the device goes while it runs
    EXPECT(hipErrorLaunchFailure, hip.hipDeviceSynchronize());
    EXPECT(hipErrorLaunchFailure, hip.hipMemcpy(host, x, sizeof host, hipMemcpyDeviceToHost));
    EXPECT(hipErrorLaunchFailure, launch_scale(scale, NULL, x, 1, 1, N));
    EXPECT(hipErrorLaunchFailure, hip.hipMalloc((void **)&x, 4));
    EXPECT(hipErrorLaunchFailure, hip.hipEventRecord(event, NULL));
    EXPECT(hipErrorLaunchFailure, hip.hipDeviceReset()); // does not bring it back
    EXPECT(hipErrorLaunchFailure, hip.hipDeviceSynchronize());
    OK(hip.hipEventDestroy(event));
}
CASE(lost_device, "GFX12SIM_MEMORY=1G", "GFX12SIM_LOSE_AFTER=3")

static void capture_errors(void) {
    hipStream_t a, b;
    hipEvent_t event;
    hipGraph_t graph;
    int *x, *y;
    OK(hip.hipStreamCreate(&a));
    OK(hip.hipStreamCreateWithFlags(&b, hipStreamNonBlocking));
    OK(hip.hipEventCreate(&event));
    OK(hip.hipMalloc((void **)&x, 64));
    EXPECT(hipErrorStreamCaptureUnsupported, hip.hipStreamBeginCapture(NULL, hipStreamCaptureModeGlobal));
    EXPECT(hipErrorIllegalState, hip.hipStreamEndCapture(a, &graph));

    OK(hip.hipStreamBeginCapture(a, hipStreamCaptureModeGlobal));
    EXPECT(hipErrorIllegalState, hip.hipStreamBeginCapture(a, hipStreamCaptureModeGlobal));
    EXPECT(hipErrorStreamCaptureUnsupported, hip.hipMalloc((void **)&y, 64));
    hipStreamCaptureMode relaxed = hipStreamCaptureModeRelaxed;
    OK(hip.hipThreadExchangeStreamCaptureMode(&relaxed));
    OK(hip.hipMalloc((void **)&y, 64));
    OK(hip.hipThreadExchangeStreamCaptureMode(&relaxed));
    OK(hip.hipMemsetAsync(x, 1, 64, a));
    EXPECT(hipErrorStreamCaptureUnsupported, hip.hipStreamSynchronize(a)); // spoils it
    EXPECT(hipErrorStreamCaptureInvalidated, hip.hipMemsetAsync(x, 1, 64, a));
    EXPECT(hipErrorStreamCaptureInvalidated, hip.hipStreamEndCapture(a, &graph));
    REQUIRE(graph == NULL);

    OK(hip.hipStreamBeginCapture(a, hipStreamCaptureModeGlobal));
    EXPECT(hipErrorStreamCaptureImplicit, hip.hipMemsetAsync(x, 1, 64, NULL)); // a would have to wait for it
    EXPECT(hipErrorStreamCaptureInvalidated, hip.hipStreamEndCapture(a, &graph));

    OK(hip.hipStreamBeginCapture(
        b, hipStreamCaptureModeGlobal)); // non-blocking: the null stream is not involved
    OK(hip.hipMemsetAsync(x, 1, 64, NULL));
    OK(hip.hipMemsetAsync(x, 2, 64, b));
    OK(hip.hipEventRecord(event, b));
    OK(hip.hipStreamWaitEvent(a, event, 0));
    EXPECT(hipErrorStreamCaptureUnmatched, hip.hipStreamEndCapture(a, &graph));
    OK(hip.hipMemsetAsync(x, 3, 64, a)); // never joined
    EXPECT(hipErrorStreamCaptureUnjoined, hip.hipStreamEndCapture(b, &graph));

    OK(hip.hipEventRecord(event, a));
    OK(hip.hipStreamBeginCapture(b, hipStreamCaptureModeThreadLocal));
    EXPECT(hipErrorStreamCaptureIsolation, hip.hipStreamWaitEvent(b, event, 0));
    EXPECT(hipErrorStreamCaptureInvalidated, hip.hipStreamEndCapture(b, &graph));

    OK(hip.hipStreamBeginCapture(b, hipStreamCaptureModeRelaxed));
    EXPECT(hipErrorStreamCaptureUnsupported, hip.hipStreamDestroy(b));
    EXPECT(hipErrorStreamCaptureInvalidated, hip.hipStreamEndCapture(b, &graph));
    hipStreamCaptureStatus status;
    OK(hip.hipStreamIsCapturing(b, &status));
    REQUIRE(status == hipStreamCaptureStatusNone);
    OK(hip.hipStreamBeginCapture(b, hipStreamCaptureModeRelaxed)); // an empty graph is a graph
    OK(hip.hipStreamEndCapture(b, &graph));
    hipGraphExec_t exec;
    OK(hip.hipGraphInstantiateWithFlags(&exec, graph, 0));
    OK(hip.hipGraphLaunch(exec, b));
    OK(hip.hipStreamSynchronize(b));
    OK(hip.hipGraphExecDestroy(exec));
    OK(hip.hipGraphDestroy(graph));
    EXPECT(hipErrorInvalidValue, hip.hipGraphDestroy(graph));
    OK(hip.hipEventDestroy(event));
}
CASE(capture_errors, "GFX12SIM_MEMORY=1G")

static void launch_errors(void) {
    hipFunction_t scale = kernel_of("scale_add");
    int *x;
    OK(hip.hipMalloc((void **)&x, 4 * N));
    int one = 1, n = N;
    void *params[] = {&x, &one, &one, &n};
#define LAUNCH(gx, bx, by, lds, params, extra)                                                               \
    hip.hipModuleLaunchKernel(scale, gx, 1, 1, bx, by, 1, lds, NULL, params, extra)
    EXPECT(hipErrorInvalidConfiguration, LAUNCH(0, 64, 1, 0, params, NULL));
    EXPECT(hipErrorInvalidConfiguration, LAUNCH(1, 0, 1, 0, params, NULL));
    EXPECT(hipErrorInvalidConfiguration, LAUNCH(1, 1025, 1, 0, params, NULL));
    EXPECT(hipErrorInvalidConfiguration, LAUNCH(1, 32, 1, 0, params, NULL)); // the kernel asks for 64
    EXPECT(hipErrorInvalidConfiguration, LAUNCH(1, 64, 2, 0, params, NULL));
    EXPECT(hipErrorInvalidValue, LAUNCH(0x80000000u, 64, 1, 0, params, NULL));
    EXPECT(hipErrorLaunchOutOfResources, LAUNCH(1, 64, 1, 65537, params, NULL));
    EXPECT(hipErrorInvalidValue, LAUNCH(1, 64, 1, 0, NULL, NULL));
    size_t bytes = 4;
    void *short_block[] = {(void *)1, params, (void *)2, &bytes, (void *)3};
    EXPECT(hipErrorInvalidValue, LAUNCH(1, 64, 1, 0, NULL, short_block));
    EXPECT(hipErrorInvalidValue, LAUNCH(1, 64, 1, 0, params, short_block));
    void *odd[] = {(void *)7, params, (void *)3};
    EXPECT(hipErrorInvalidValue, LAUNCH(1, 64, 1, 0, NULL, odd));
    void *endless[] = {(void *)2, &bytes, (void *)2, &bytes, (void *)2, &bytes, (void *)2, &bytes, (void *)3};
    EXPECT(hipErrorInvalidValue, LAUNCH(1, 64, 1, 0, NULL, endless));
    EXPECT(hipErrorInvalidHandle, launch_scale((hipFunction_t)&n, NULL, x, 1, 1, N));
    EXPECT(hipErrorInvalidHandle, launch_scale(scale, (hipStream_t)&n, x, 1, 1, N));
    OK(LAUNCH(1, 64, 1, 0, params, NULL));
    OK(hip.hipDeviceSynchronize());
}
CASE(launch_errors, "GFX12SIM_MEMORY=1G")

static void bad_images(void) {
    hipModule_t module;
    hipFunction_t f;
    FILE *file = fopen(HIP_KERNELS, "rb");
    REQUIRE(file);
    static unsigned char image[65536];
    size_t bytes = fread(image, 1, sizeof image, file);
    fclose(file);
    REQUIRE(bytes > 1000 && bytes < sizeof image);
    OK(hip.hipModuleLoadDataEx(&module, image, 0, NULL, NULL));
    EXPECT(hipErrorNotFound, hip.hipModuleGetFunction(&f, module, "nothing"));
    EXPECT(hipErrorNotFound, hip.hipModuleGetGlobal((void **)&f, &bytes, module, "nothing"));
    OK(hip.hipModuleUnload(module));
    EXPECT(hipErrorInvalidHandle, hip.hipModuleUnload(module));
    EXPECT(hipErrorFileNotFound, hip.hipModuleLoad(&module, "/no/such/file"));
    EXPECT(hipErrorInvalidImage, hip.hipModuleLoadData(&module, "short"));
    EXPECT(hipErrorInvalidImage, hip.hipModuleLoadData(&module, (void *)64)); // unreadable
    unsigned char changed[64];
    // Each byte of the ELF header in turn: an error or a module, never a crash.
    for (size_t i = 0; i < sizeof changed; i++) {
        unsigned char keep = image[i];
        for (int pattern = 0; pattern < 3; pattern++) {
            image[i] = (unsigned char)(pattern == 0 ? 0 : pattern == 1 ? 0xff : keep ^ 0x10);
            if (hip.hipModuleLoadData(&module, image) == hipSuccess) OK(hip.hipModuleUnload(module));
        }
        image[i] = keep;
    }
    image[40] = image[41] = 0xff; // section headers beyond the readable
    image[42] = image[43] = 0x3f;
    hipError_t error = hip.hipModuleLoadData(&module, image);
    REQUIRE(error == hipErrorInvalidImage);
}
CASE(bad_images, "GFX12SIM_MEMORY=1G")

static void hostile_arguments(void) {
    int value, junk[64] = {0};
    hipStream_t stream = (hipStream_t)junk;
    EXPECT(hipErrorInvalidValue, hip.hipInit(1));
    EXPECT(hipErrorInvalidValue, hip.hipGetDeviceCount(NULL));
    EXPECT(hipErrorInvalidDevice, hip.hipSetDevice(1));
    EXPECT(hipErrorInvalidDevice, hip.hipSetDevice(-1));
    EXPECT(hipErrorInvalidDevice, hip.hipDeviceGet(&value, 99));
    EXPECT(hipErrorInvalidValue, hip.hipGetDevicePropertiesR0600(NULL, 0));
    EXPECT(hipErrorInvalidValue, hip.hipMalloc(NULL, 4));
    EXPECT(hipErrorInvalidValue, hip.hipFree(junk));
    EXPECT(hipErrorInvalidValue, hip.hipMemcpy(NULL, junk, 4, hipMemcpyDefault));
    EXPECT(hipErrorInvalidValue, hip.hipMemcpy(junk, (void *)-8, 64, hipMemcpyDefault));
    EXPECT(hipErrorInvalidValue, hip.hipMemcpy(junk, junk + 1, 4, hipMemcpyDeviceToHost)); // no device memory
    EXPECT(hipErrorInvalidMemcpyDirection, hip.hipMemcpy(junk, junk + 1, 4, (hipMemcpyKind)9));
    OK(hip.hipMemcpy(junk, junk + 1, 4, hipMemcpyHostToHost));
    OK(hip.hipMemcpy(NULL, NULL, 0, hipMemcpyDefault));
    EXPECT(hipErrorInvalidPitchValue, hip.hipMemcpy2D(junk, 4, junk, 8, 8, 2, hipMemcpyDefault));
    EXPECT(hipErrorInvalidValue, hip.hipMemcpy2D(junk, SIZE_MAX, junk, 8, 8, SIZE_MAX, hipMemcpyDefault));
    EXPECT(hipErrorInvalidValue, hip.hipMemset(junk, 0, 4));
    EXPECT(hipErrorInvalidValue, hip.hipMemsetD32((char *)junk + 1, 0, 1));
    EXPECT(hipErrorInvalidValue, hip.hipMemsetD32(junk, 0, SIZE_MAX));
    EXPECT(hipErrorInvalidHandle, hip.hipStreamSynchronize(stream));
    EXPECT(hipErrorInvalidHandle, hip.hipStreamDestroy(stream));
    EXPECT(hipErrorInvalidHandle, hip.hipStreamDestroy(NULL));
    EXPECT(hipErrorInvalidHandle, hip.hipEventRecord((hipEvent_t)junk, NULL));
    EXPECT(hipErrorInvalidHandle, hip.hipEventDestroy(NULL));
    EXPECT(hipErrorInvalidHandle, hip.hipModuleUnload((hipModule_t)junk));
    EXPECT(hipErrorInvalidValue, hip.hipGraphLaunch((hipGraphExec_t)junk, NULL));
    EXPECT(hipErrorInvalidValue, hip.hipStreamCreateWithFlags(&stream, 77));
    EXPECT(hipErrorInvalidValue, hip.hipEventCreateWithFlags((hipEvent_t *)&stream, 0x100));
    EXPECT(hipErrorInvalidValue, hip.hipHostRegister(junk, SIZE_MAX, 0));
    EXPECT(hipErrorInvalidValue, hip.hipIpcGetMemHandle(NULL, junk));
    hipIpcMemHandle_t handle = {{0}};
    void *p;
    EXPECT(hipErrorInvalidValue, hip.hipIpcOpenMemHandle(&p, handle, hipIpcMemLazyEnablePeerAccess));
    EXPECT(hipErrorInvalidDevice, hip.hipDeviceEnablePeerAccess(0, 0));
    REQUIRE(strcmp(hip.hipGetErrorName(hipErrorOutOfMemory), "hipErrorOutOfMemory") == 0);
    REQUIRE(strcmp(hip.hipGetErrorName((hipError_t)12345), "hipErrorUnknown") == 0);
    pid_t pid = fork(); // the child of a process that has started HIP has no runtime
    if (!pid) _exit(hip.hipDeviceSynchronize() == hipErrorNotInitialized ? 0 : 1);
    int status = 0;
    waitpid(pid, &status, 0);
    REQUIRE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}
CASE(hostile_arguments, "GFX12SIM_MEMORY=1G")

static void bad_setting(void) {
    EXPECT(hipErrorNotInitialized, hip.hipInit(0));
}
static void test_bad_settings(void **state) {
    (void)state;
    static const char *const settings[] = {"GFX12SIM_MEMORY=12Q",   "GFX12SIM_MEMORY=4K",
                                           "GFX12SIM_DEVICES=17",   "GFX12SIM_CHECKS=race_lds,-wait",
                                           "GFX12SIM_CHECKS=races", "GFX12SIM_LOSE_AFTER=0:",
                                           "GFX12SIM_MAX_STEPS=0",  "GFX12SIM_SEED=x"};
    for (size_t i = 0; i < sizeof settings / sizeof *settings; i++)
        run_case(bad_setting, (const char *const[]){settings[i], NULL});
}

static void no_device(void) {
    int count = -1;
    EXPECT(hipErrorNoDevice, hip.hipGetDeviceCount(&count));
    REQUIRE(count == 0);
}
CASE(no_device, "GFX12SIM_DEVICES=0")

// The fault above does not stop a kernel whose check is off; the always-on checks stay on.
static void checks_chosen(void) {
    hipFunction_t overrun = kernel_of("overrun");
    int *x, n = N;
    OK(hip.hipMalloc((void **)&x, N * sizeof(int)));
    void *params[] = {&x, &n};
    OK(hip.hipModuleLaunchKernel(overrun, 1, 1, 1, 64, 1, 1, 0, NULL, params, NULL));
    EXPECT(hipErrorIllegalAddress, hip.hipDeviceSynchronize());
}
CASE(checks_chosen, "GFX12SIM_MEMORY=1G", "GFX12SIM_CHECKS=-race_global,-hazard", "GFX12SIM_REPORT=0")

static hipError_t run_one(const char *name, int *x, unsigned lds_bytes) {
    void *none = NULL;
    void *params[] = {&x, &none};
    OK(hip.hipModuleLaunchKernel(kernel_of(name), 1, 1, 1, 64, 1, 1, lds_bytes, NULL, params, NULL));
    return hip.hipDeviceSynchronize();
}

static void checks_of_real_code(void) {
    static const struct {
        const char *kernel, *check; // null: passes
        unsigned lds_bytes;
    } cases[] = {{"store_same", NULL, 256},
                 {"store_own", "race_global", 0},
                 {"store_own_lds", "race_lds", 256},
                 {"wide_low", NULL, 0},
                 {"wide_high", "uninit_vgpr", 0}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        int *x;
        OK(hip.hipMalloc((void **)&x, 256));
        EXPECT(cases[i].check ? hipErrorLaunchFailure : hipSuccess,
               run_one(cases[i].kernel, x, cases[i].lds_bytes));
        if (cases[i].check) REQUIRE(text_has(0, cases[i].check) && text_has(0, cases[i].kernel));
        OK(hip.hipDeviceReset());
    }
}
CASE(checks_of_real_code, "GFX12SIM_MEMORY=1G")

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_fault),
        cmocka_unit_test(test_hang),
        cmocka_unit_test(test_memory_limit),
        cmocka_unit_test(test_host_memory),
        cmocka_unit_test(test_lost_device),
        cmocka_unit_test(test_capture_errors),
        cmocka_unit_test(test_launch_errors),
        cmocka_unit_test(test_bad_images),
        cmocka_unit_test(test_hostile_arguments),
        cmocka_unit_test(test_bad_settings),
        cmocka_unit_test(test_no_device),
        cmocka_unit_test(test_checks_chosen),
        cmocka_unit_test(test_checks_of_real_code),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

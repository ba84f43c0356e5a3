// SPDX-License-Identifier: Apache-2.0
// The HIP face does what HIP promises: properties, memory, order of streams, events, graphs, several devices,
// handles between processes.
#include <pthread.h>
#include <stdatomic.h>
#include <sched.h>
#include "hip_test.h"

enum { N = 1000 };

static void properties(void) {
    int value = 0, major = 0, minor = 0;
    OK(hip.hipInit(0));
    OK(hip.hipGetDeviceCount(&value));
    REQUIRE(value == 2);
    static hipDeviceProp_tR0600 p6;
    static hipDeviceProp_tR0000 p0, q0;
    OK(hip.hipGetDevicePropertiesR0600(&p6, 1));
    OK(hip.hipGetDevicePropertiesR0000(&p0, 1));
    OK(hip.hipGetDeviceProperties(&q0, 1));
    // Offsets as the public HIP 7.1 headers give them, not by the names of our own declaration.
    const char *raw6 = (const char *)&p6, *raw0 = (const char *)&p0;
    int word;
    REQUIRE(strcmp(raw6 + 1160, "gfx1201") == 0 && strcmp(raw0 + 396, "gfx1201") == 0);
    memcpy(&word, raw6 + 308, 4);
    REQUIRE(word == 32); // warpSize
    memcpy(&word, raw0 + 276, 4);
    REQUIRE(word == 32);
    memcpy(&word, raw6 + 388, 4);
    REQUIRE(word == 32); // multiProcessorCount
    memcpy(&word, raw0 + 336, 4);
    REQUIRE(word == 32);
    size_t bytes;
    memcpy(&bytes, raw6 + 288, 8);
    REQUIRE(bytes == 64 << 20); // totalGlobalMem
    memcpy(&bytes, raw0 + 256, 8);
    REQUIRE(bytes == 64 << 20);
    memcpy(&bytes, raw6 + 296, 8);
    REQUIRE(bytes == 65536); // sharedMemPerBlock
    REQUIRE(memcmp(&p0, &q0, sizeof p0) == 0);
    OK(hip.hipDeviceGetAttribute(&value, 87, 0)); // warp size
    REQUIRE(value == 32);
    OK(hip.hipDeviceGetAttribute(&value, 63, 0)); // multiprocessors
    REQUIRE(value == 32);
    OK(hip.hipDeviceGetAttribute(&value, 74, 0)); // LDS of a block
    REQUIRE(value == 65536);
    EXPECT(hipErrorInvalidValue, hip.hipDeviceGetAttribute(&value, 5000, 0));
    OK(hip.hipDeviceComputeCapability(&major, &minor, 0));
    REQUIRE(major == 12 && minor == 0);
    OK(hip.hipRuntimeGetVersion(&value));
    REQUIRE(value / 10000000 == 7);
    void *found = NULL, *expected = NULL;
    memcpy(&expected, &hip.hipGetDevicePropertiesR0600, sizeof expected);
    OK(hip.hipGetProcAddress("hipGetDeviceProperties", &found, 700, 0, &value));
    REQUIRE(found == expected && value == 0);
    memcpy(&expected, &hip.hipGetDeviceProperties, sizeof expected);
    OK(hip.hipGetProcAddress("hipGetDeviceProperties", &found, 500, 0, &value));
    REQUIRE(found == expected);
    EXPECT(hipErrorNotFound, hip.hipGetProcAddress("hipNoSuchThing", &found, 700, 0, &value));
    REQUIRE(value == 1);
}
CASE(properties, "GFX12SIM_DEVICES=2", "GFX12SIM_MEMORY=64M")

static void vector_add(void) {
    hipFunction_t add = kernel_of("vector_add");
    int host[N], *a, *b, *c, n = N;
    for (int i = 0; i < N; i++) host[i] = 7 * i - 3000;
    OK(hip.hipMalloc((void **)&a, sizeof host));
    OK(hip.hipMalloc((void **)&b, sizeof host));
    OK(hip.hipMalloc((void **)&c, sizeof host));
    OK(hip.hipMemcpy(a, host, sizeof host, hipMemcpyHostToDevice));
    OK(hip.hipMemcpyDtoD(b, a, sizeof host));
    OK(hip.hipMemset(c, 0xff, sizeof host));
    void *params[] = {&a, &b, &c, &n};
    OK(hip.hipModuleLaunchKernel(add, (N + 63) / 64, 1, 1, 64, 1, 1, 0, NULL, params, NULL));
    OK(hip.hipMemcpy(host, c, sizeof host, hipMemcpyDeviceToHost));
    for (int i = 0; i < N; i++) REQUIRE(host[i] == 2 * (7 * i - 3000));

    // The same arguments as one block; c receives a + c.
    struct {
        const int *a, *b;
        int *c, n;
    } block = {a, c, c, N};
    size_t bytes = 28;
    void *extra[] = {(void *)1, &block, (void *)2, &bytes, (void *)3};
    OK(hip.hipModuleLaunchKernel(add, (N + 63) / 64, 1, 1, 64, 1, 1, 0, NULL, NULL, extra));
    OK(hip.hipDeviceSynchronize());
    OK(hip.hipMemcpyDtoH(host, c, sizeof host));
    for (int i = 0; i < N; i++) REQUIRE(host[i] == 3 * (7 * i - 3000));

    hipFunction_t lds = kernel_of("wants_lds");
    void *local_bytes = NULL;
    void *lds_params[] = {&a, &local_bytes};
    OK(hip.hipModuleLaunchKernel(lds, 1, 1, 1, 64, 1, 1, 256, NULL, lds_params, NULL));
    OK(hip.hipMemcpy(host, a, sizeof host, hipMemcpyDeviceToHost));
    for (int i = 0; i < 64; i++) REQUIRE(host[i] == 7 * (63 - i) - 3000);

    int value;
    OK(hip.hipFuncGetAttribute(&value, HIP_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, add));
    REQUIRE(value == 64);
    OK(hip.hipFuncGetAttribute(&value, HIP_FUNC_ATTRIBUTE_NUM_REGS, add));
    REQUIRE(value > 0 && value <= 256);
    OK(hip.hipFree(a));
    OK(hip.hipFree(b));
    OK(hip.hipFree(c));
}
CASE(vector_add, "GFX12SIM_MEMORY=1G")

// A host function that holds its stream until the test lets it go.
static atomic_int gate, entered;
static void wait_at_gate(void *unused) {
    (void)unused;
    atomic_store(&entered, 1);
    while (!atomic_load(&gate)) sched_yield();
}

static void close_gate(hipStream_t s) {
    atomic_store(&gate, 0);
    atomic_store(&entered, 0);
    OK(hip.hipLaunchHostFunc(s, wait_at_gate, NULL));
    while (!atomic_load(&entered)) sched_yield();
}

static void stream_order(void) {
    hipFunction_t scale = kernel_of("scale_add");
    hipStream_t blocking, free_running;
    OK(hip.hipStreamCreate(&blocking));
    OK(hip.hipStreamCreateWithFlags(&free_running, hipStreamNonBlocking));
    int *pinned, *x;
    OK(hip.hipHostMalloc((void **)&pinned, 2 * N * sizeof(int), 0));
    OK(hip.hipMallocAsync((void **)&x, N * sizeof(int), blocking));
    for (int i = 0; i < N; i++) pinned[i] = i;
    // Twenty dependent steps in one stream, none waited for: x = 3x + 1, ten times, each by way of the host.
    OK(hip.hipMemcpyAsync(x, pinned, N * sizeof(int), hipMemcpyHostToDevice, blocking));
    for (int step = 0; step < 10; step++) {
        OK(launch_scale(scale, blocking, x, 3, 1, N));
        OK(hip.hipMemcpyAsync(pinned + N, x, N * sizeof(int), hipMemcpyDeviceToHost, blocking));
        OK(hip.hipMemcpyAsync(x, pinned + N, N * sizeof(int), hipMemcpyHostToDevice, blocking));
    }
    OK(hip.hipStreamSynchronize(blocking));
    for (int i = 0; i < N; i++) REQUIRE(pinned[N + i] == 59049 * i + 29524); // 3^10 i + (3^10 - 1) / 2

    // Null stream: waits for the blocking stream, not for the other.
    int zero[N];
    close_gate(blocking);
    OK(hip.hipMemsetD32Async(x, 5, N, NULL));
    EXPECT(hipErrorNotReady, hip.hipStreamQuery(NULL));
    EXPECT(hipErrorNotReady, hip.hipStreamQuery(blocking));
    OK(hip.hipStreamQuery(free_running));
    OK(hip.hipMemsetD32Async(x, 7, N, blocking)); // after the null stream's 5
    atomic_store(&gate, 1);
    OK(hip.hipStreamSynchronize(blocking));
    OK(hip.hipMemcpy(zero, x, sizeof zero, hipMemcpyDeviceToHost));
    for (int i = 0; i < N; i++) REQUIRE(zero[i] == 7);
    close_gate(free_running);
    OK(hip.hipMemset(x, 0, N * sizeof(int))); // returns although free_running stands still
    OK(hip.hipMemcpy(zero, x, sizeof zero, hipMemcpyDeviceToHost));
    REQUIRE(zero[N - 1] == 0);
    EXPECT(hipErrorNotReady, hip.hipStreamQuery(free_running));
    atomic_store(&gate, 1);
    OK(hip.hipDeviceSynchronize());

    // A pageable source may be overwritten as soon as the call returns, even while its stream stands still.
    close_gate(free_running);
    for (int i = 0; i < N; i++) zero[i] = i;
    OK(hip.hipMemcpyAsync(x, zero, sizeof zero, hipMemcpyHostToDevice, free_running));
    memset(zero, 0, sizeof zero);
    atomic_store(&gate, 1);
    OK(hip.hipMemcpyAsync(zero, x, sizeof zero, hipMemcpyDeviceToHost, free_running)); // complete on return
    for (int i = 0; i < N; i++) REQUIRE(zero[i] == i);

    // Rows of 10 out of rows of 16.
    OK(hip.hipMemcpy2D(pinned, 40, x, 64, 40, 20, hipMemcpyDeviceToHost));
    for (int row = 0; row < 20; row++) REQUIRE(pinned[10 * row + 9] == 16 * row + 9);
    OK(hip.hipFreeAsync(x, free_running));
    OK(hip.hipStreamDestroy(free_running));
    OK(hip.hipStreamDestroy(blocking));
    OK(hip.hipHostFree(pinned));
}
CASE(stream_order, "GFX12SIM_MEMORY=1G")

static void events(void) {
    hipStream_t a, b;
    hipEvent_t start, stop, plain;
    int *x, seen[4];
    float ms = -1;
    OK(hip.hipStreamCreateWithFlags(&a, hipStreamNonBlocking));
    OK(hip.hipStreamCreateWithFlags(&b, hipStreamNonBlocking));
    OK(hip.hipEventCreate(&start));
    OK(hip.hipEventCreate(&stop));
    OK(hip.hipEventCreateWithFlags(&plain, hipEventDisableTiming));
    OK(hip.hipMalloc((void **)&x, sizeof seen));
    OK(hip.hipEventQuery(start)); // never recorded: nothing to wait for
    EXPECT(hipErrorInvalidHandle, hip.hipEventElapsedTime(&ms, start, stop));
    OK(hip.hipEventRecord(start, a));
    close_gate(a);
    OK(hip.hipMemsetD32Async(x, 11, 4, a));
    OK(hip.hipEventRecord(stop, a));
    OK(hip.hipStreamWaitEvent(b, stop, 0));
    OK(hip.hipMemsetD32Async(x, 12, 2, b)); // must come after a's 11
    EXPECT(hipErrorNotReady, hip.hipEventQuery(stop));
    EXPECT(hipErrorNotReady, hip.hipStreamQuery(b));
    EXPECT(hipErrorNotReady, hip.hipEventElapsedTime(&ms, start, stop));
    atomic_store(&gate, 1);
    OK(hip.hipEventSynchronize(stop));
    OK(hip.hipStreamSynchronize(b));
    OK(hip.hipMemcpy(seen, x, sizeof seen, hipMemcpyDeviceToHost));
    REQUIRE(seen[0] == 12 && seen[1] == 12 && seen[2] == 11 && seen[3] == 11);
    OK(hip.hipEventElapsedTime(&ms, start, stop));
    REQUIRE(ms >= 0);
    OK(hip.hipEventRecord(plain, a));
    OK(hip.hipEventSynchronize(plain));
    EXPECT(hipErrorInvalidHandle, hip.hipEventElapsedTime(&ms, start, plain));
    close_gate(a);
    OK(hip.hipEventRecord(stop, a));
    OK(hip.hipStreamWaitEvent(b, stop, 0));
    OK(hip.hipEventDestroy(stop)); // while both streams still have it before them
    atomic_store(&gate, 1);
    OK(hip.hipDeviceSynchronize());
    EXPECT(hipErrorInvalidHandle, hip.hipEventQuery(stop));
    OK(hip.hipEventDestroy(start));
    OK(hip.hipEventDestroy(plain));
    OK(hip.hipStreamDestroy(a));
    OK(hip.hipStreamDestroy(b));
}
CASE(events, "GFX12SIM_MEMORY=1G")

static void graph_replay(void) {
    hipFunction_t scale = kernel_of("scale_add");
    hipStream_t main_lane, side_lane;
    hipEvent_t fork_point, join_point;
    int *x, *y, *z, host[N];
    OK(hip.hipStreamCreateWithFlags(&main_lane, hipStreamNonBlocking));
    OK(hip.hipStreamCreateWithFlags(&side_lane, hipStreamNonBlocking));
    OK(hip.hipEventCreateWithFlags(&fork_point, hipEventDisableTiming));
    OK(hip.hipEventCreateWithFlags(&join_point, hipEventDisableTiming));
    OK(hip.hipMalloc((void **)&x, sizeof host));
    OK(hip.hipMalloc((void **)&y, sizeof host));
    OK(hip.hipMalloc((void **)&z, sizeof host));
    OK(hip.hipMemsetD32(x, 1, N));
    hipStreamCaptureStatus status;
    OK(hip.hipStreamBeginCapture(main_lane, hipStreamCaptureModeGlobal));
    OK(hip.hipStreamIsCapturing(main_lane, &status));
    REQUIRE(status == hipStreamCaptureStatusActive);
    OK(launch_scale(scale, main_lane, x, 2, 1, N));
    OK(hip.hipEventRecord(fork_point, main_lane));
    OK(hip.hipStreamWaitEvent(side_lane, fork_point, 0));
    OK(hip.hipMemcpyAsync(y, x, sizeof host, hipMemcpyDeviceToDevice, side_lane));
    OK(launch_scale(scale, side_lane, y, 10, 0, N));
    OK(hip.hipEventRecord(join_point, side_lane));
    OK(hip.hipMemsetD32Async(z, 4, N, main_lane));
    OK(hip.hipStreamWaitEvent(main_lane, join_point, 0));
    OK(hip.hipMemcpyAsync(z, y, sizeof host / 2, hipMemcpyDeviceToDevice, main_lane));
    EXPECT(hipErrorCapturedEvent, hip.hipEventQuery(join_point));
    hipGraph_t graph;
    hipGraphExec_t exec;
    OK(hip.hipStreamEndCapture(main_lane, &graph));
    OK(hip.hipMemcpy(host, x, sizeof host, hipMemcpyDeviceToHost));
    REQUIRE(host[0] == 1); // capturing ran nothing
    size_t count = 0;
    OK(hip.hipGraphGetNodes(graph, NULL, &count));
    REQUIRE(count == 5);
    hipGraphNode_t nodes[5];
    static const hipGraphNodeType types[5] = {hipGraphNodeTypeKernel, hipGraphNodeTypeMemcpy,
                                              hipGraphNodeTypeKernel, hipGraphNodeTypeMemset,
                                              hipGraphNodeTypeMemcpy};
    OK(hip.hipGraphGetNodes(graph, nodes, &count));
    for (int i = 0; i < 5; i++) {
        hipGraphNodeType type;
        OK(hip.hipGraphNodeGetType(nodes[i], &type));
        REQUIRE(type == types[i]);
    }
    OK(hip.hipGraphInstantiate(&exec, graph, NULL, NULL, 0));
    OK(hip.hipGraphDestroy(graph)); // the executable graph does not need it
    for (int i = 0; i < 8; i++) OK(hip.hipGraphLaunch(exec, i & 1 ? main_lane : side_lane));
    OK(hip.hipDeviceSynchronize());
    OK(hip.hipMemcpy(host, z, sizeof host, hipMemcpyDeviceToHost));
    // x = 2x + 1 from 1, eight times: 2^9 - 1. Half of z is ten times that, the rest the 4.
    for (int i = 0; i < N; i++) REQUIRE(host[i] == (i < N / 2 ? 5110 : 4));
    OK(hip.hipGraphExecDestroy(exec));
    EXPECT(hipErrorInvalidValue, hip.hipGraphLaunch(exec, main_lane));
    OK(hip.hipEventDestroy(fork_point));
    OK(hip.hipEventDestroy(join_point));
    OK(hip.hipStreamDestroy(main_lane));
    OK(hip.hipStreamDestroy(side_lane));
}
CASE(graph_replay, "GFX12SIM_MEMORY=1G")

static void two_devices(void) {
    int host[N], *x[2], can = 0;
    hipFunction_t scale[2];
    for (int d = 0; d < 2; d++) {
        OK(hip.hipSetDevice(d));
        OK(hip.hipMalloc((void **)&x[d], sizeof host));
        OK(hip.hipMemsetD32(x[d], d + 1, N));
        scale[d] = kernel_of("scale_add");
    }
    OK(hip.hipMemcpyPeer(x[1], 1, x[0], 0, sizeof host / 2)); // needs no peer access
    EXPECT(hipErrorInvalidValue, hip.hipMemcpyPeer(x[1], 0, x[0], 0, 4));
    EXPECT(hipErrorInvalidHandle, launch_scale(scale[0], NULL, x[1], 1, 0, N)); // other device's code
    OK(hip.hipDeviceCanAccessPeer(&can, 0, 1));
    REQUIRE(can);
    OK(hip.hipSetDevice(0));
    OK(hip.hipDeviceEnablePeerAccess(1, 0));
    EXPECT(hipErrorPeerAccessAlreadyEnabled, hip.hipDeviceEnablePeerAccess(1, 0));
    OK(launch_scale(scale[0], NULL, x[1], 10, 3, N)); // device 0 writes memory of device 1
    OK(hip.hipDeviceSynchronize());
    OK(hip.hipMemcpy(host, x[1], sizeof host, hipMemcpyDefault));
    for (int i = 0; i < N; i++) REQUIRE(host[i] == (i < N / 2 ? 13 : 23));
    OK(hip.hipDeviceDisablePeerAccess(1));
    EXPECT(hipErrorPeerAccessNotEnabled, hip.hipDeviceDisablePeerAccess(1));
    OK(launch_scale(scale[0], NULL, x[1], 1, 0, N));
    EXPECT(hipErrorIllegalAddress, hip.hipDeviceSynchronize());
    OK(hip.hipSetDevice(1)); // the other device goes on
    OK(launch_scale(scale[1], NULL, x[1], 1, 1, N));
    OK(hip.hipMemcpy(host, x[1], sizeof host, hipMemcpyDefault));
    REQUIRE(host[0] == 14);
}
CASE(two_devices, "GFX12SIM_DEVICES=2", "GFX12SIM_MEMORY=1G")

// Kernels of two devices wait for each other, as an all-reduce does: both must run at once.
static void devices_meet(void) {
    int *flag[2], *seen[2], host = 0;
    hipFunction_t meet[2];
    hipStream_t streams[2];
    for (int d = 0; d < 2; d++) {
        OK(hip.hipSetDevice(d));
        OK(hip.hipDeviceEnablePeerAccess(1 - d, 0));
        OK(hip.hipStreamCreate(&streams[d]));
        OK(hip.hipMalloc((void **)&flag[d], 256));
        OK(hip.hipMalloc((void **)&seen[d], 256));
        OK(hip.hipMemset(flag[d], 0, 256));
        meet[d] = kernel_of("meet");
    }
    for (int d = 0; d < 2; d++) {
        OK(hip.hipSetDevice(d));
        void *params[] = {&flag[d], &flag[1 - d], &seen[d]};
        OK(hip.hipModuleLaunchKernel(meet[d], 1, 1, 1, 64, 1, 1, 0, streams[d], params, NULL));
    }
    for (int d = 0; d < 2; d++) {
        OK(hip.hipStreamSynchronize(streams[d]));
        OK(hip.hipMemcpy(&host, seen[d], 4, hipMemcpyDeviceToHost));
        REQUIRE(host == 1);
    }
}
CASE(devices_meet, "GFX12SIM_DEVICES=2", "GFX12SIM_MEMORY=1G")

// Two processes, neither the other's runtime: the exporter writes 6s, the importer's kernel makes them 61.
static void ipc(void) {
    int to_child[2], to_parent[2];
    REQUIRE(pipe(to_child) == 0 && pipe(to_parent) == 0);
    pid_t child = fork(); // before either has started HIP
    hipIpcMemHandle_t handle;
    char done = 0;
    int *x = NULL, *again = NULL, host[N];
    if (!child) {
        REQUIRE(read(to_child[0], &handle, sizeof handle) == sizeof handle);
        OK(hip.hipIpcOpenMemHandle((void **)&x, handle, hipIpcMemLazyEnablePeerAccess));
        OK(hip.hipIpcOpenMemHandle((void **)&again, handle, hipIpcMemLazyEnablePeerAccess));
        REQUIRE(x == again);
        OK(launch_scale(kernel_of("scale_add"), NULL, x, 10, 1, N));
        OK(hip.hipDeviceSynchronize());
        OK(hip.hipIpcCloseMemHandle(x));
        OK(hip.hipIpcCloseMemHandle(x));
        EXPECT(hipErrorInvalidValue, hip.hipIpcCloseMemHandle(x));
        handle.reserved[40] ^= 1;
        EXPECT(hipErrorInvalidValue,
               hip.hipIpcOpenMemHandle((void **)&x, handle, hipIpcMemLazyEnablePeerAccess));
        REQUIRE(write(to_parent[1], &done, 1) == 1);
        exit(0);
    }
    int *before;
    OK(hip.hipMalloc((void **)&before, 5000)); // so that the handle has an offset
    OK(hip.hipMalloc((void **)&x, sizeof host));
    OK(hip.hipMemsetD32(x, 6, N));
    EXPECT(hipErrorInvalidValue, hip.hipIpcGetMemHandle(&handle, x + 1));
    OK(hip.hipIpcGetMemHandle(&handle, x));
    EXPECT(hipErrorInvalidContext,
           hip.hipIpcOpenMemHandle((void **)&again, handle, hipIpcMemLazyEnablePeerAccess));
    REQUIRE(write(to_child[1], &handle, sizeof handle) == sizeof handle);
    close(to_parent[1]); // a child that fails ends the read
    REQUIRE(read(to_parent[0], &done, 1) == 1);
    OK(hip.hipMemcpy(host, x, sizeof host, hipMemcpyDeviceToHost));
    for (int i = 0; i < N; i++) REQUIRE(host[i] == 61);
    int status = 0;
    waitpid(child, &status, 0);
    REQUIRE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}
CASE(ipc, "GFX12SIM_MEMORY=1G")

static void *one_thread(void *context) {
    hipFunction_t scale = context;
    hipStream_t own;
    int *x, host[N];
    OK(hip.hipStreamCreate(&own));
    OK(hip.hipMalloc((void **)&x, sizeof host));
    for (int round = 0; round < 5; round++) {
        hipStream_t s = round & 1 ? hipStreamPerThread : own;
        OK(hip.hipMemsetD32Async(x, round, N, s));
        OK(launch_scale(scale, s, x, 100, 1, N));
        OK(hip.hipMemcpyAsync(host, x, sizeof host, hipMemcpyDeviceToHost, s));
        OK(hip.hipStreamSynchronize(s));
        for (int i = 0; i < N; i++) REQUIRE(host[i] == 100 * round + 1);
    }
    OK(hip.hipFree(x));
    OK(hip.hipStreamDestroy(own));
    return NULL;
}

static void threads(void) {
    hipFunction_t scale = kernel_of("scale_add");
    pthread_t ids[4];
    for (int i = 0; i < 4; i++) REQUIRE(pthread_create(&ids[i], NULL, one_thread, scale) == 0);
    for (int i = 0; i < 4; i++) pthread_join(ids[i], NULL);
}
CASE(threads, "GFX12SIM_MEMORY=1G")

static void counters(void) {
    hipFunction_t scale = kernel_of("scale_add");
    int *x;
    OK(hip.hipMalloc((void **)&x, N * sizeof(int)));
    OK(hip.hipMemset(x, 0, N * sizeof(int)));
    OK(launch_scale(scale, NULL, x, 1, 1, N)); // before the reset: not counted
    OK(hip.hipDeviceSynchronize());
    hip.counters_reset(0);
    OK(launch_scale(scale, NULL, x, 1, 1, N));
    OK(launch_scale(scale, NULL, x, 1, 1, N));
    OK(hip.hipDeviceSynchronize());
    REQUIRE(hip.counter(0, "launches") == 2);
    REQUIRE(hip.counter(0, "groups") == 32 && hip.counter(0, "waves") == 64);
    REQUIRE(hip.counter(0, "load_bytes") == 2 * 4 * N && hip.counter(0, "store_bytes") == 2 * 4 * N);
    REQUIRE(hip.counter(0, "no such counter") == -1 && hip.counter(7, "launches") == -1);
}
CASE(counters, "GFX12SIM_MEMORY=1G")

// exit() while a stream stands still must not wait for it.
static void exit_while_busy(void) {
    hipStream_t s;
    OK(hip.hipStreamCreate(&s));
    close_gate(s);
}
CASE(exit_while_busy, "GFX12SIM_MEMORY=1G")

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_properties),   cmocka_unit_test(test_vector_add),
        cmocka_unit_test(test_stream_order), cmocka_unit_test(test_events),
        cmocka_unit_test(test_graph_replay), cmocka_unit_test(test_two_devices),
        cmocka_unit_test(test_ipc),          cmocka_unit_test(test_threads),
        cmocka_unit_test(test_counters),     cmocka_unit_test(test_exit_while_busy),
        cmocka_unit_test(test_devices_meet),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

// SPDX-License-Identifier: Apache-2.0
// The few Hopper instructions that CUDA C has no word for: mbarriers, the bulk tensor copy engine, dependent launch, relaxed
// loads and stores at device scope. PTX ISA 8.0 and later; wgmma has its own header.
#ifndef RDK_SM90A_PTX_CUH
#define RDK_SM90A_PTX_CUH

#include <stdint.h>

// Where shared memory is addressed by 32-bit words.
__device__ __forceinline__ uint32_t smem_address(const void *pointer) {
    return (uint32_t)__cvta_generic_to_shared(pointer);
}

// A value that the compiler keeps in its register: it would make addresses anew in every turn of a loop.
__device__ __forceinline__ uint32_t kept(uint32_t value) {
    asm volatile("" : "+r"(value));
    return value;
}
template <typename T> __device__ __forceinline__ T *kept(T *pointer) {
    asm volatile("" : "+l"(pointer));
    return pointer;
}
// Loads by such an address, in the order of the code.
__device__ __forceinline__ float shared_f32(uint32_t at) {
    float v;
    asm volatile("ld.shared.f32 %0, [%1];" : "=f"(v) : "r"(at) : "memory");
    return v;
}
__device__ __forceinline__ float2 shared_f32x2(uint32_t at) {
    float2 v;
    asm volatile("ld.shared.v2.f32 {%0, %1}, [%2];" : "=f"(v.x), "=f"(v.y) : "r"(at) : "memory");
    return v;
}
__device__ __forceinline__ float4 shared_f32x4(uint32_t at) {
    float4 v;
    asm volatile("ld.shared.v4.f32 {%0, %1, %2, %3}, [%4];" : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w) : "r"(at) : "memory");
    return v;
}

// ---- mbarriers --------------------------------------------------------------------------------------------------------
__device__ __forceinline__ void barrier_init(uint64_t *barrier, uint32_t arrivals) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(smem_address(barrier)), "r"(arrivals) : "memory");
}
// Makes initialised barriers visible to the copy engine.
__device__ __forceinline__ void barrier_init_fence() {
    asm volatile("fence.mbarrier_init.release.cluster;\n\tfence.proxy.async.shared::cta;" ::: "memory");
}
__device__ __forceinline__ void barrier_arrive(uint32_t barrier) {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}
__device__ __forceinline__ void barrier_arrive(uint64_t *barrier) {
    barrier_arrive(smem_address(barrier));
}
__device__ __forceinline__ void barrier_expect(uint64_t *barrier, uint32_t bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(smem_address(barrier)), "r"(bytes)
                 : "memory");
}
__device__ __forceinline__ void barrier_wait(uint32_t barrier, uint32_t parity) {
    asm volatile("{\n\t.reg .pred done;\n\t"
                 "again: mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n\t"
                 "@!done bra again;\n\t}" ::"r"(barrier),
                 "r"(parity)
                 : "memory");
}
__device__ __forceinline__ void barrier_wait(uint64_t *barrier, uint32_t parity) {
    barrier_wait(smem_address(barrier), parity);
}
// Whether it has, now.
__device__ __forceinline__ bool barrier_passed(uint32_t barrier, uint32_t parity) {
    uint32_t done;
    asm volatile("{\n\t.reg .pred done;\n\tmbarrier.test_wait.parity.shared::cta.b64 done, [%1], %2;\n\t"
                 "selp.u32 %0, 1, 0, done;\n\t}"
                 : "=r"(done)
                 : "r"(barrier), "r"(parity)
                 : "memory");
    return done != 0;
}
__device__ __forceinline__ bool barrier_passed(uint64_t *barrier, uint32_t parity) {
    return barrier_passed(smem_address(barrier), parity);
}

// ---- clusters ---------------------------------------------------------------------------------------------------------
__device__ __forceinline__ uint32_t cluster_rank() {
    uint32_t rank;
    asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
    return rank;
}
__device__ __forceinline__ void cluster_arrive() {
    asm volatile("barrier.cluster.arrive.release;" ::: "memory");
}
// Where nothing but initialised barriers, behind their own fence, is to be seen by the others.
__device__ __forceinline__ void cluster_arrive_relaxed() {
    asm volatile("barrier.cluster.arrive.relaxed;" ::: "memory");
}
__device__ __forceinline__ void cluster_wait() {
    asm volatile("barrier.cluster.wait.acquire;" ::: "memory");
}
__device__ __forceinline__ void cluster_sync() {
    cluster_arrive();
    cluster_wait();
}
// Where a place in this block's shared memory stands in that of block `rank` of the cluster.
__device__ __forceinline__ uint32_t cluster_address(const void *place, uint32_t rank) {
    uint32_t address;
    asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(address) : "r"(smem_address(place)), "r"(rank));
    return address;
}
// A word to such a place; its bytes count on a barrier of the same block.
__device__ __forceinline__ void send_f32(uint32_t cluster_address, float value, uint32_t barrier) {
    asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.f32 [%0], %1, [%2];" ::"r"(cluster_address), "f"(value),
                 "r"(barrier)
                 : "memory");
}
__device__ __forceinline__ void send_u32(uint32_t cluster_address, uint32_t value, uint32_t barrier) {
    asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.u32 [%0], %1, [%2];" ::"r"(cluster_address), "r"(value),
                 "r"(barrier)
                 : "memory");
}
__device__ __forceinline__ void send_u64(uint32_t cluster_address, uint64_t value, uint32_t barrier) {
    asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.u64 [%0], %1, [%2];" ::"r"(cluster_address), "l"(value),
                 "r"(barrier)
                 : "memory");
}
__device__ __forceinline__ void barrier_arrive_at(uint32_t cluster_address) {
    asm volatile("mbarrier.arrive.shared::cluster.b64 _, [%0];" ::"r"(cluster_address) : "memory");
}

// ---- copies -------------------------------------------------------------------------------------------------------------
// One box of a 2-d tensor map into shared memory; x counts along the row. The barrier's transaction count takes the whole box
// even where it sticks out of the tensor, and what sticks out reads as zero.
__device__ __forceinline__ void copy_box(void *to, const void *map, uint64_t *barrier, int32_t x, int32_t y) {
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4}], [%2];" ::"r"(
                     smem_address(to)),
                 "l"(map), "r"(smem_address(barrier)), "r"(x), "r"(y)
                 : "memory");
}
// The same box into the same place of every block of the cluster whose bit is set, and onto each one's own barrier.
__device__ __forceinline__ void copy_box_cluster(void *to, const void *map, uint64_t *barrier, int32_t x, int32_t y,
                                                 uint16_t blocks) {
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster "
                 "[%0], [%1, {%3, %4}], [%2], %5;" ::"r"(smem_address(to)),
                 "l"(map), "r"(smem_address(barrier)), "r"(x), "r"(y), "h"(blocks)
                 : "memory");
}
// The same for data read once: the line leaves the second-level cache first.
__device__ __forceinline__ uint64_t policy_evict_first() {
    uint64_t policy;
    asm volatile("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
    return policy;
}
__device__ __forceinline__ void copy_box_once(void *to, const void *map, uint64_t *barrier, int32_t x, int32_t y,
                                              uint64_t policy) {
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint "
                 "[%0], [%1, {%3, %4}], [%2], %5;" ::"r"(smem_address(to)),
                 "l"(map), "r"(smem_address(barrier)), "r"(x), "r"(y), "l"(policy)
                 : "memory");
}
__device__ __forceinline__ void copy_box_cluster_once(void *to, const void *map, uint64_t *barrier, int32_t x, int32_t y,
                                                      uint16_t blocks, uint64_t policy) {
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster.L2::cache_hint "
                 "[%0], [%1, {%3, %4}], [%2], %5, %6;" ::"r"(smem_address(to)),
                 "l"(map), "r"(smem_address(barrier)), "r"(x), "r"(y), "h"(blocks), "l"(policy)
                 : "memory");
}
// Bytes as they lie: multiples of 16, from and to addresses that are.
__device__ __forceinline__ void copy_bytes(void *to, const void *from, uint32_t bytes, uint64_t *barrier) {
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(smem_address(to)),
                 "l"(from), "r"(bytes), "r"(smem_address(barrier))
                 : "memory");
}
__device__ __forceinline__ void prefetch_box(const void *map, int32_t x, int32_t y) {
    asm volatile("cp.async.bulk.prefetch.tensor.2d.L2.global [%0, {%1, %2}];" ::"l"(map), "r"(x), "r"(y) : "memory");
}
__device__ __forceinline__ void prefetch_map(const void *map) {
    asm volatile("prefetch.tensormap [%0];" ::"l"(map) : "memory");
}
// Sixteen bytes past the first-level cache, of which the first `bytes` are read and the others zero. Ordinary accesses, unlike the
// copies above: see fence_async.
__device__ __forceinline__ void copy_part(void *to, const void *from, int32_t bytes) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(smem_address(to)), "l"(from), "r"(bytes) : "memory");
}
__device__ __forceinline__ void copy_vector(void *to, const void *from, bool valid) {
    copy_part(to, from, valid ? 16 : 0);
}
// This thread's copies since the last such call are one group; then all but its LEFT youngest groups are there.
__device__ __forceinline__ void copies_commit() {
    asm volatile("cp.async.commit_group;" ::: "memory");
}
template <int LEFT> __device__ __forceinline__ void copies_wait() {
    asm volatile("cp.async.wait_group %0;" ::"n"(LEFT) : "memory");
}
// Ordinary stores to shared memory before this are seen by the copy engine and the tensor cores after it.
__device__ __forceinline__ void fence_async() {
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

// The multiprocessor's clock.
__device__ __forceinline__ uint32_t clock_now() {
    uint32_t now;
    asm volatile("mov.u32 %0, %%clock;" : "=r"(now)::"memory");
    return now;
}

// ---- dependent launch ---------------------------------------------------------------------------------------------------
// The next kernel of the stream may start its preamble as soon as every block has said so.
__device__ __forceinline__ void launch_dependents() {
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
}
// Waits until the kernels before are complete and their writes are visible. Every block calls it before it ends, so that the end
// of a kernel implies the end of all before it.
__device__ __forceinline__ void wait_dependencies() {
    asm volatile("griddepcontrol.wait;" ::: "memory");
}

// Data of the kernels before is read past the first-level cache: this block may have started, and its neighbours on the
// multiprocessor may have filled that cache, before the data was written.
__device__ __forceinline__ float load_fresh(const float *from) {
    float v;
    asm volatile("ld.relaxed.gpu.global.f32 %0, [%1];" : "=f"(v) : "l"(from) : "memory");
    return v;
}

// ---- words between blocks ------------------------------------------------------------------------------------------------
__device__ __forceinline__ uint4 load_relaxed(const uint4 *from) {
    uint4 v;
    asm volatile("ld.relaxed.gpu.global.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                 : "l"(from)
                 : "memory");
    return v;
}
__device__ __forceinline__ uint32_t load_relaxed(const uint32_t *from) {
    uint32_t v;
    asm volatile("ld.relaxed.gpu.global.u32 %0, [%1];" : "=r"(v) : "l"(from) : "memory");
    return v;
}
__device__ __forceinline__ void store_relaxed(uint4 *to, uint4 v) {
    asm volatile("st.relaxed.gpu.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(to), "r"(v.x), "r"(v.y), "r"(v.z), "r"(v.w)
                 : "memory");
}
// 16 bytes that arrive together.
__device__ __forceinline__ uint4 load_word(const uint4 *from) {
    uint64_t low, high;
    asm volatile("{\n\t.reg .b128 word;\n\tld.relaxed.gpu.global.b128 word, [%2];\n\tmov.b128 {%0, %1}, word;\n\t}"
                 : "=l"(low), "=l"(high)
                 : "l"(from)
                 : "memory");
    return make_uint4((uint32_t)low, (uint32_t)(low >> 32), (uint32_t)high, (uint32_t)(high >> 32));
}
__device__ __forceinline__ void store_word(uint4 *to, uint4 v) {
    asm volatile("{\n\t.reg .b128 word;\n\tmov.b128 word, {%1, %2};\n\tst.relaxed.gpu.global.b128 [%0], word;\n\t}" ::"l"(to),
                 "l"(v.x | (uint64_t)v.y << 32), "l"(v.z | (uint64_t)v.w << 32)
                 : "memory");
}
// A flag behind other writes: what this thread wrote or saw written before, whoever sees the flag sees too.
__device__ __forceinline__ void store_release(uint32_t *to, uint32_t v) {
    asm volatile("fence.acq_rel.gpu;\n\tst.relaxed.gpu.global.u32 [%0], %1;" ::"l"(to), "r"(v) : "memory");
}
__device__ __forceinline__ uint32_t load_acquire(const uint32_t *from) {
    uint32_t v;
    asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(v) : "l"(from) : "memory");
    return v;
}
__device__ __forceinline__ void store_relaxed(uint32_t *to, uint32_t v) {
    asm volatile("st.relaxed.gpu.global.u32 [%0], %1;" ::"l"(to), "r"(v) : "memory");
}
// Between ordinary accesses before it and those of the copy engine after it.
__device__ __forceinline__ void fence_async_global() {
    asm volatile("fence.proxy.async.global;" ::: "memory");
}

// ---- named barriers of a block, 1 to 15 ------------------------------------------------------------------------------------
__device__ __forceinline__ void named_sync(int id, int threads) {
    asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

template <int COUNT> __device__ __forceinline__ void registers_give() {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(COUNT));
}
template <int COUNT> __device__ __forceinline__ void registers_take() {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(COUNT));
}

#endif // RDK_SM90A_PTX_CUH

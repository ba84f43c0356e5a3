#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""torch_context.py LIBRADIANCE: our calls in a process that torch owns: in its context, on its stream, on its memory, between its
kernels, inside its graphs and from a thread of its own, against torch's arithmetic in double. Skips by name without torch or a card."""

import ctypes as c
import sys
import threading

try:
    import torch
except ImportError:
    sys.exit(print("skipped: this python3 has no torch"))
if not torch.cuda.is_available():
    sys.exit(print("skipped: torch sees no card"))
if torch.cuda.get_device_capability() != (9, 0):
    sys.exit(print(f"skipped: {torch.cuda.get_device_name()} is no card of sm_90a"))


class Tensor(c.Structure):
    _fields_ = [("data", c.c_void_p), ("dtype", c.c_int), ("rank", c.c_int32), ("device", c.c_int32), ("reserved", c.c_int32),
                ("shape", c.c_int64 * 5), ("stride", c.c_int64 * 5)]


class Param(c.Structure):
    _fields_ = [("key", c.c_char_p), ("kind", c.c_int), ("i", c.c_int64), ("word", c.c_char_p)]


class CtxOptions(c.Structure):
    _fields_ = [("struct_size", c.c_uint32), ("device", c.c_char_p), ("threads", c.c_int32), ("parallel_for", c.c_void_p),
                ("parallel_for_state", c.c_void_p), ("log", c.c_void_p), ("log_state", c.c_void_p), ("trust_card", c.c_int32)]


class NormArgs(c.Structure):
    _fields_ = [("struct_size", c.c_uint32), *((name, Tensor) for name in ("x", "residual", "weight", "y")),
                ("eps", c.c_float), ("unit_offset", c.c_int32)]


class GemmArgs(c.Structure):
    _fields_ = [("struct_size", c.c_uint32), *((name, Tensor) for name in ("a", "a_scale", "w", "w_scale", "bias", "c"))]


lib = c.CDLL(sys.argv[1])
lib.rd_error_text.restype = c.c_char_p
cuda = c.CDLL("libcuda.so.1")
DTYPES = {torch.float32: (1, b"fp32"), torch.bfloat16: (2, b"bf16"), torch.float8_e4m3fn: (4, b"fp8_e4m3")}


def must(status):
    if status:
        raise RuntimeError(f"status {status}: {lib.rd_error_text().decode()}")


def current_context():
    context = c.c_void_p()
    assert cuda.cuCtxGetCurrent(c.byref(context)) == 0
    return context.value


def tensor(t):
    out = Tensor(t.data_ptr(), DTYPES[t.dtype][0], t.dim(), 1 + t.device.index)
    for axis in range(t.dim()):
        out.shape[axis], out.stride[axis] = t.shape[axis], t.stride(axis)
    return out


def plan_of(ctx, op, lo, hi, **question):
    params = (Param * len(question))(*(Param(key.encode(), 0, value, None) if isinstance(value, int) else
                                       Param(key.encode(), 1, 0, value) for key, value in question.items()))
    plan = c.c_void_p()
    must(lib.rd_plan_create(ctx, op, params, len(question), c.c_int64(lo), c.c_int64(hi), c.byref(plan)))
    return plan


def rmsnorm(plan, x, weight, y, stream):
    args = NormArgs(struct_size=c.sizeof(NormArgs), x=tensor(x), weight=tensor(weight), y=tensor(y), eps=1e-6)
    must(lib.rd_rmsnorm_run(plan, c.byref(args), c.c_void_p(stream.cuda_stream)))


def gemm(plan, a, a_scale, w, w_scale, out, workspace, stream):
    args = GemmArgs(struct_size=c.sizeof(GemmArgs), a=tensor(a), a_scale=tensor(a_scale), w=tensor(w), w_scale=tensor(w_scale),
                    c=tensor(out))
    size = c.c_size_t()
    must(lib.rd_gemm_run(plan, c.byref(args), None, c.byref(size), None))
    if not workspace:
        workspace.append(torch.zeros(size.value + 64, dtype=torch.uint8, device="cuda"))
    size.value = workspace[0].numel()
    must(lib.rd_gemm_run(plan, c.byref(args), c.c_void_p(workspace[0].data_ptr()), c.byref(size), c.c_void_p(stream.cuda_stream)))


def near(got, want, what):
    error = ((got.double() - want).abs().mean() / want.abs().mean()).item()
    assert error < 5e-3, f"{what}: mean error {error:.3g} of the mean"  # a bf16 store rounds by 2e-3 at most
    return error


M, N, K = 7, 1536, 2048


class Case:
    """A norm and a GEMM whose inputs a torch kernel makes on the stream just before, and whose output one reads just after."""

    def __init__(self, ctx, seed):
        g = torch.Generator(device="cuda").manual_seed(seed)
        self.x = torch.empty(M, K, dtype=torch.bfloat16, device="cuda")
        self.weight = torch.rand(K, device="cuda", generator=g) + 0.5
        self.y = torch.empty(M, K, dtype=torch.bfloat16, device="cuda")
        self.w = torch.randn(N, K, device="cuda", generator=g).to(torch.float8_e4m3fn)
        self.w_scale = torch.rand((N + 127) // 128, K // 128, device="cuda", generator=g) * 0.01 + 1e-3
        self.a_scale = torch.rand(M, K // 128, device="cuda", generator=g) + 0.5
        self.a = torch.empty(M, K, dtype=torch.float8_e4m3fn, device="cuda")
        self.c = torch.empty(M, N, dtype=torch.bfloat16, device="cuda")
        self.twice, self.workspace = torch.empty(M, N, device="cuda"), []
        self.norm_plan = plan_of(ctx, b"rmsnorm", 1, 16, k=K, x_dtype=b"bf16", y_dtype=b"bf16", weight_dtype=b"fp32", residual=0)
        self.gemm_plan = plan_of(ctx, b"gemm_fp8block", 1, 16, n=N, k=K, a_dtype=b"fp8_e4m3", c_dtype=b"bf16", layout=b"row",
                                 w_scale_dtype=b"fp32", bias=0, order=b"step")

    def run(self, source, stream):
        with torch.cuda.stream(stream):
            self.x.copy_(source)
            rmsnorm(self.norm_plan, self.x, self.weight, self.y, stream)
            self.a.copy_(self.y)
            gemm(self.gemm_plan, self.a, self.a_scale, self.w, self.w_scale, self.c, self.workspace, stream)
            torch.mul(self.c, 2, out=self.twice)

    def check(self, source, what):
        x = source.to(torch.bfloat16).double()
        near(self.y, x / (x.square().mean(1, keepdim=True) + 1e-6).sqrt() * self.weight.double(), f"{what}, rmsnorm")
        a = self.a.double() * self.a_scale.double().repeat_interleave(128, 1)
        w = self.w.double() * self.w_scale.double().repeat_interleave(128, 0)[:N].repeat_interleave(128, 1)
        near(self.twice, 2 * (a @ w.T), f"{what}, GEMM")

    def free(self):
        lib.rd_plan_free(self.norm_plan), lib.rd_plan_free(self.gemm_plan)


def open_ctx():
    ctx = c.c_void_p()
    options = CtxOptions(struct_size=c.sizeof(CtxOptions), device=b"gpu:%d" % torch.cuda.current_device(), threads=1)
    must(lib.rd_ctx_create(c.byref(options), c.byref(ctx)))
    return ctx


def on_streams(ctx):
    case = Case(ctx, 1)
    for i in range(20):
        stream = torch.cuda.Stream() if i % 2 else torch.cuda.default_stream()
        source = torch.randn(M, K, device="cuda")
        torch.cuda.synchronize()
        with torch.cuda.stream(stream):
            torch.cuda._sleep(2_000_000)  # cycles: what is issued behind it is waiting when our call is made
        case.run(source, stream)
        stream.synchronize()
        case.check(source, f"stream {i}")
    case.free()


def in_a_graph(ctx):
    case, stream, source = Case(ctx, 2), torch.cuda.Stream(), torch.randn(M, K, device="cuda")
    torch.cuda.synchronize()
    case.run(source, stream)  # the workspace
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream):
        case.run(source, stream)
    for i in range(20):
        source.normal_()
        graph.replay()
        torch.cuda.synchronize()
        case.check(source, f"replay {i}")
    case.free()


def in_a_thread(ctx, failures):
    try:  # no context is current on a new thread until torch is used there
        case, stream = Case(ctx, 3), torch.cuda.Stream()
        source = torch.randn(M, K, device="cuda")
        torch.cuda.synchronize()
        for _ in range(20):
            case.run(source, stream)
        stream.synchronize()
        case.check(source, "thread")
        case.free()
    except Exception as error:  # noqa: BLE001: told by the main thread
        failures.append(error)


def main():
    before = torch.ones(8, device="cuda")
    theirs = current_context()
    assert theirs, "torch made no context"
    ctx = open_ctx()
    assert current_context() == theirs, "rd_ctx_create left another context current"
    on_streams(ctx)
    in_a_graph(ctx)
    failures = []
    thread = threading.Thread(target=in_a_thread, args=(ctx, failures))
    thread.start()
    on_streams(ctx)
    thread.join()
    assert not failures, failures[0]
    assert current_context() == theirs, "our calls left another context current"
    lib.rd_ctx_free(ctx)
    assert current_context() == theirs, "rd_ctx_free left another context current"
    assert (before + 1).sum().item() == 16, "torch's memory is not what it was"
    print(f"torch {torch.__version__}: 40 runs on its streams, 20 replays of its graph, 20 runs from a thread: as torch computes them")


main()

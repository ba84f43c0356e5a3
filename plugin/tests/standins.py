# SPDX-License-Identifier: Apache-2.0
"""Small stand-ins of torch and of the vLLM modules that the plugin touches, for contract tests that need neither. Names and
signatures are those of vLLM 0.32 and 0.33; tensors are real memory, so that libradiance computes on them."""

import ctypes
import enum
import os
import sys
import types


class DType:
    def __init__(self, name, itemsize):
        self.name, self.itemsize = name, itemsize

    def __repr__(self):
        return f"torch.{self.name}"


DTYPES = {name: DType(name, size) for name, size in (
    ("float32", 4), ("bfloat16", 2), ("float16", 2), ("float8_e4m3fn", 1), ("float8_e5m2", 1), ("float8_e8m0fnu", 1),
    ("int32", 4), ("int64", 8), ("uint8", 1))}


class Device:
    def __init__(self, type_, index=None):
        self.type, self.index = type_, index


HOST = Device("cpu")


class Tensor:
    """Strided memory with the few methods that the plugin calls."""

    def __init__(self, shape, dtype, stride=None, memory=None, offset=0, device=HOST):
        self.shape, self.dtype, self.device = tuple(shape), dtype, device
        dense = []
        for size in reversed(self.shape):
            dense.insert(0, dense[0] * self.shape[len(self.shape) - len(dense)] if dense else 1)
        self._stride = tuple(stride) if stride else tuple(dense)
        self._offset = offset
        if memory is None:
            need = 1 + sum((s - 1) * t for s, t in zip(self.shape, self._stride)) if self.numel() else 1
            memory = ctypes.create_string_buffer(need * dtype.itemsize + 64)
        self.memory = memory

    def numel(self):
        count = 1
        for size in self.shape:
            count *= size
        return count

    def dim(self):
        return len(self.shape)

    def stride(self):
        return self._stride

    def data_ptr(self):
        address = ctypes.addressof(self.memory)
        return (address + 63) // 64 * 64 + self._offset * self.dtype.itemsize

    def is_contiguous(self):
        return Tensor(self.shape, self.dtype, memory=self.memory)._stride == self._stride

    def _like(self, **changes):
        made = object.__new__(type(self))
        made.__dict__.update(self.__dict__)
        made.__dict__.update(changes)
        return made

    def detach(self):
        return self

    cpu = detach

    def to(self, where):
        return self if where.type == "cpu" else CardTensor.from_host(self, where)

    def contiguous(self):
        return self if self.is_contiguous() else self.clone()

    def clone(self):
        made = Tensor(self.shape, self.dtype)
        rows, columns = self.shape
        size = self.dtype.itemsize
        for row in range(rows):
            ctypes.memmove(made.data_ptr() + row * columns * size, self.data_ptr() + row * self._stride[0] * size,
                           columns * size)
        return made

    def reshape(self, *shape):
        if -1 in shape:
            known = 1
            for size in shape:
                known *= size if size != -1 else 1
            shape = tuple(self.numel() // known if size == -1 else size for size in shape)
        return Tensor(shape, self.dtype, memory=self.memory, offset=self._offset, device=self.device)

    view = reshape

    def new_empty(self, shape):
        return Tensor(shape, self.dtype)

    def __getitem__(self, rows):
        first, last, _ = rows.indices(self.shape[0])
        return self._like(shape=(last - first, *self.shape[1:]), _offset=self._offset + first * self._stride[0])

    def transpose(self, first, second):
        shape, stride = list(self.shape), list(self._stride)
        shape[first], shape[second] = shape[second], shape[first]
        stride[first], stride[second] = stride[second], stride[first]
        return self._like(shape=tuple(shape), _stride=tuple(stride))

    def split(self, size, axis):
        assert axis == -1
        shape = (*self.shape[:-1], size)
        return [self._like(shape=shape, _offset=self._offset + at) for at in range(0, self.shape[-1], size)]

    def copy_(self, other):
        assert self.shape == other.shape, (self.shape, other.shape)
        size = self.dtype.itemsize
        for row in range(self.shape[0]):
            ctypes.memmove(self.data_ptr() + row * self._stride[0] * size,
                           other.data_ptr() + row * other._stride[0] * size, self.shape[1] * size)

    @property
    def data(self):
        return self

    def bytes(self):
        return ctypes.string_at(self.data_ptr(), self.numel() * self.dtype.itemsize)

    def fill(self, raw):
        ctypes.memmove(self.data_ptr(), raw, len(raw))
        return self


class CardTensor(Tensor):
    """Memory of a card, reached through libradiance's own calls alone; kept until the process ends."""

    def __init__(self, shape, dtype, device, stride=None):
        super().__init__(shape, dtype, stride=stride, memory=b"", device=device)
        self.address = ctypes.c_void_p()
        self.library.check(self.library.core.rd_memory_alloc(self.context(), ctypes.c_size_t(self.span()), ctypes.byref(self.address)))

    def span(self):
        """Bytes from the first element to the last."""
        count = 1 + sum((s - 1) * t for s, t in zip(self.shape, self._stride)) if self.numel() else 1
        return count * self.dtype.itemsize

    @property
    def library(self):
        return sys.modules["vllm_radiance.library"].library()

    def context(self):
        return self.library.context(1 + self.device.index)

    def data_ptr(self):
        return self.address.value + self._offset * self.dtype.itemsize

    def _copy(self, to, source, direction):
        self.library.check(self.library.core.rd_memory_copy(self.context(), ctypes.c_void_p(to), ctypes.c_void_p(source),
                                                            ctypes.c_size_t(self.span()), direction, None))
        self.library.check(self.library.core.rd_stream_sync(self.context(), None))

    @classmethod
    def from_host(cls, host, device):
        made = cls(host.shape, host.dtype, device, host._stride)
        made._copy(made.data_ptr(), host.data_ptr(), 0)
        return made

    def cpu(self):
        host = Tensor(self.shape, self.dtype, stride=self._stride)
        self._copy(host.data_ptr(), self.data_ptr(), 1)
        return host

    def to(self, where):
        return self.cpu() if where.type == "cpu" else self

    def reshape(self, *shape):
        made = self._like()
        made.shape = Tensor.reshape(Tensor(self.shape, self.dtype), *shape).shape
        made._stride = Tensor(made.shape, self.dtype)._stride
        return made

    view = reshape

    def bytes(self):
        return self.cpu().bytes()


class Ops:
    """torch.ops.radiance: what the plugin registered."""

    def __init__(self):
        self.kernels, self.fakes, self.schemas = {}, {}, []

    def __getattr__(self, name):
        return self.kernels[name]


def make_torch():
    torch = types.ModuleType("torch")
    torch.__file__ = os.path.join(os.path.dirname(__file__), "no_torch_here", "__init__.py")
    torch.__dict__.update(DTYPES)
    ops = Ops()
    torch.ops = types.SimpleNamespace(radiance=ops)
    torch.version = types.SimpleNamespace(cuda=None, hip=None)
    torch.Tensor = Tensor

    def empty(*shape, dtype=DTYPES["float32"], device=HOST):
        shape = shape[0] if isinstance(shape[0], (tuple, list)) else shape
        return Tensor(shape, dtype) if device.type == "cpu" else CardTensor(shape, dtype, device)

    torch.empty = empty
    torch.cuda = types.SimpleNamespace(current_device=lambda: 0, current_stream=lambda: types.SimpleNamespace(cuda_stream=None))
    torch.get_default_dtype = lambda: DTYPES["bfloat16"]

    def cat(parts, dim):
        rows, size = parts[0].shape[0], parts[0].dtype.itemsize
        made = Tensor((rows, sum(p.shape[1] for p in parts)), parts[0].dtype)
        for row in range(rows):
            at = made.data_ptr() + row * made.shape[1] * size
            for part in parts:
                ctypes.memmove(at, part.data_ptr() + row * part.shape[1] * size, part.shape[1] * size)
                at += part.shape[1] * size
        return made

    torch.cat = cat

    class Library:
        def __init__(self, namespace, kind):
            assert (namespace, kind) == ("radiance", "FRAGMENT")

        def define(self, schema):
            ops.schemas.append(schema)

        def impl(self, name, kernel, key):
            ops.kernels[name] = kernel

    def register_fake(name, kernel):
        ops.fakes[name] = kernel

    torch.library = types.SimpleNamespace(Library=Library, register_fake=register_fake)
    torch.nn = types.SimpleNamespace(Parameter=lambda data, requires_grad=True: data)
    return torch


class PlatformEnum(enum.Enum):
    CUDA, ROCM, CPU = "cuda", "rocm", "cpu"


class Platform:
    def __init__(self, kind, device=None):
        self._enum = PlatformEnum[kind.upper()]
        if device:
            self.radiance_device = device

    def is_cpu(self):
        return self._enum is PlatformEnum.CPU

    def is_rocm(self):
        return self._enum is PlatformEnum.ROCM

    def is_cuda(self):
        return self._enum is PlatformEnum.CUDA


class Stock:
    """A kernel of vLLM's own list, which refuses."""

    @classmethod
    def is_supported(cls, compute_capability=None):
        return False, "Stock requires AMX"

    @classmethod
    def can_implement(cls, config):
        return True, None


class Quantiser:
    """QuantFP8: called, it takes the way that a compiler would fuse; forward_cuda is the device's kernel."""

    def __init__(self):
        self.calls = []

    def __call__(self, x):
        self.calls.append("plain")
        return x, "scales"

    def forward_cuda(self, x):
        self.calls.append("device")
        return x, "scales"


class Fp8BlockScaledMMLinearKernel:
    apply_input_quant = True

    def __init__(self, config):
        self.config, self.quant_fp8 = config, Quantiser()

    @classmethod
    def is_supported(cls, compute_capability=None):
        raise NotImplementedError

    @classmethod
    def can_implement(cls, config):
        raise NotImplementedError

    def process_weights_after_loading(self, layer):
        layer.processed = True

    def apply_weights(self, layer, x, bias=None, **named):
        scale = layer.weight_scale if layer.weight_scale_inv is None else layer.weight_scale_inv
        codes, scales = self.quant_fp8(x)
        out = self.apply_block_scaled_mm(A=codes, B=layer.weight, As=scales, Bs=scale)
        return out if bias is None else out + bias


class StockCuda(Fp8BlockScaledMMLinearKernel):
    """A kernel of vLLM's own list for CUDA, which takes every layer."""

    @classmethod
    def is_supported(cls, compute_capability=None):
        return True, None

    @classmethod
    def can_implement(cls, config):
        return True, None

    def apply_block_scaled_mm(self, A, B, As, Bs):
        return ("stock", A, B, Bs)


def register_linear_kernel_0_32(kernel_class, platform, kernel_type="mp"):
    raise ValueError(f"Unrecognized kernel type: {kernel_type}")


def register_linear_kernel_0_33(kernel_class, platform, kernel_type="mp"):
    assert kernel_type == "fp8_block"
    sys.modules["vllm.model_executor.kernels.linear"]._POSSIBLE_FP8_BLOCK_KERNELS.setdefault(platform, []).append(kernel_class)


def linear_module(minor):
    def choose_scaled_mm_linear_kernel(config, possible_kernels, *, quantization):
        reasons = []
        for kernel in possible_kernels.get(sys.modules["vllm.platforms"].current_platform._enum, []):
            if kernel.__name__ in os.environ.get("VLLM_DISABLED_KERNELS", "").split(","):
                reasons.append(f"{kernel.__name__} is disabled by environment variable")
                continue
            for ok, why in (kernel.is_supported(), kernel.can_implement(config)):
                if not ok:
                    reasons.append(f"{kernel.__name__} {why}")
                    break
            else:
                return kernel
        raise ValueError("Failed to find a kernel that can implement the ScaledMM linear layer. Reasons: \n" + "\n".join(reasons))

    def init_fp8_linear_kernel(config):
        module = sys.modules["vllm.model_executor.kernels.linear"]
        return choose_scaled_mm_linear_kernel(config, module._POSSIBLE_FP8_BLOCK_KERNELS, quantization="fp8_block_w8a8")(config)

    return dict(
        _POSSIBLE_FP8_BLOCK_KERNELS={PlatformEnum.CPU: [Stock], PlatformEnum.ROCM: [Stock]},
        Fp8BlockScaledMMLinearKernel=Fp8BlockScaledMMLinearKernel,
        init_fp8_linear_kernel=init_fp8_linear_kernel,
        choose_scaled_mm_linear_kernel=choose_scaled_mm_linear_kernel,
        register_linear_kernel=register_linear_kernel_0_33 if minor == "0.33" else register_linear_kernel_0_32)


class Worker:
    def __init__(self, rank):
        self.rank = rank

    def compile_or_warm_up_model(self):
        return "warm"


class TritonAttentionImpl:
    def __init__(self, num_heads, head_size, scale, num_kv_heads, *rest, **named):
        self.num_heads, self.head_size, self.scale, self.num_kv_heads = num_heads, head_size, scale, num_kv_heads
        self.supports_quant_query_input = True

    def forward(self, *arguments):
        return "triton"


class Scheduler:
    def __init__(self, table):
        self.dynamic_sd_lookup = table


class Parameter(Tensor):
    """vLLM's parameters keep how they are loaded."""

    def __init__(self, data, weight_loader=None, **named):
        self.__dict__.update(data.__dict__)
        self.weight_loader = weight_loader


class Fp8LinearMethod:
    def __init__(self, quant_config):
        self.block_quant, self.weight_block_size = True, [128, 128]

    def create_weights(self, layer, input_size_per_partition, output_partition_sizes, input_size, output_size,
                       params_dtype, **named):
        layer.stock = "created"

    def process_weights_after_loading(self, layer):
        layer.stock = "processed"

    def apply(self, layer, x, bias=None):
        return "stock"


class Fp8Config:
    def get_quant_method(self, layer, prefix):
        method = Fp8LinearMethod(self)
        method.marlin_input_dtype = None
        return method


def quant_modules():
    registered = {}

    def register_quantization_config(name):
        return lambda cls: registered.setdefault(name, cls)

    loaders = ["Fp8LinearMethod"]
    return {
        "vllm.model_executor.layers.quantization": dict(register_quantization_config=register_quantization_config,
                                                        registered=registered),
        "vllm.model_executor.layers.quantization.fp8": dict(Fp8Config=Fp8Config, Fp8LinearMethod=Fp8LinearMethod),
        "vllm.model_executor.layers.linear": dict(
            LinearBase=object, WEIGHT_LOADER_V2_SUPPORTED=loaders,
            register_weight_loader_v2_supported_method=lambda cls: loaders.append(cls.__name__)),
        "vllm.model_executor.parameter": dict(BlockQuantScaleParameter=type("BlockQuantScaleParameter", (Parameter,), {}),
                                              ModelWeightParameter=Parameter),
    }


def vllm_modules(kind, minor, device):
    class AttentionBackendEnum(enum.Enum):
        CPU_ATTN = "stock"
        CUSTOM = ""

    backends = {}
    modules = {
        "vllm": dict(__version__=f"{minor}.0"),
        "vllm.envs": {},
        "vllm.platforms": dict(current_platform=Platform(kind, device)),
        "vllm.model_executor.kernels": {},
        "vllm.model_executor.kernels.linear": linear_module(minor),
        "vllm.model_executor.utils": dict(replace_parameter=lambda layer, name, value: setattr(layer, name, value)),
        "vllm.v1.worker.cpu_worker": dict(CPUWorker=type("CPUWorker", (Worker,), dict(
            compile_or_warm_up_model=lambda self: "warm"))),
        "vllm.v1.core.sched.scheduler": dict(Scheduler=type("Scheduler", (Scheduler,), {})),
        "vllm.v1.attention.backends.registry": dict(
            AttentionBackendEnum=AttentionBackendEnum, backends=backends,
            register_backend=lambda member, path: backends.__setitem__(member.name, path)),
        "vllm.v1.attention.backend": dict(AttentionType=types.SimpleNamespace(DECODER="decoder", ENCODER="encoder")),
        "vllm.v1.attention.backends.triton_attn": dict(
            TritonAttentionBackend=type("TritonAttentionBackend", (), {}), TritonAttentionImpl=TritonAttentionImpl),
        "vllm.model_executor.layers.attention.mm_encoder_attention": dict(
            MMEncoderAttention=type("MMEncoderAttention", (), dict(register_oot=classmethod(lambda cls, op: op)))),
        "vllm.model_executor.layers.logits_processor": dict(
            LogitsProcessor=type("LogitsProcessor", (), dict(get_top_tokens=lambda self, head, hidden: None))),
        "vllm.distributed.device_communicators.cuda_communicator": dict(CudaCommunicator=object),
        **quant_modules(),
    }
    return modules


def install(kind="cpu", minor="0.32", device=None):
    """Fresh stand-ins and a fresh plugin in sys.modules; the torch stand-in."""
    for name in [n for n in sys.modules if n.split(".")[0] in ("torch", "vllm", "vllm_radiance", "aiter")]:
        del sys.modules[name]
    sys.modules["torch"] = torch = make_torch()
    for name, content in vllm_modules(kind, minor, device).items():
        parts = name.split(".")
        for depth in range(1, len(parts) + 1):
            path = ".".join(parts[:depth])
            if path not in sys.modules:
                sys.modules[path] = types.ModuleType(path)
                sys.modules[path].__path__ = []
                if depth > 1:
                    setattr(sys.modules[".".join(parts[: depth - 1])], parts[depth - 1], sys.modules[path])
        sys.modules[name].__dict__.update(content)
    return torch

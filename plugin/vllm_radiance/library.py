# SPDX-License-Identifier: Apache-2.0
"""libradiance through ctypes: what Python asks of it. Decisions (which kernel, which geometry) are made there, never here."""

import ctypes
import functools
import pathlib

from . import __version__, gates

ABI = 1
_c = ctypes


class RadianceError(RuntimeError):
    """A status of the library that is not RD_OK, with the library's own text."""


class Param(_c.Structure):
    _fields_ = [("key", _c.c_char_p), ("kind", _c.c_int), ("i", _c.c_int64), ("word", _c.c_char_p)]


class KernelInfo(_c.Structure):
    _fields_ = [
        *((name, _c.c_char_p) for name in ("name", "op", "backend", "isa", "computes", "order")),
        ("is_reference", _c.c_int32),
        ("constraint_count", _c.c_int32),
        ("constraints", _c.c_void_p),
    ]


class Verdict(_c.Structure):
    _fields_ = [
        ("kernel", _c.POINTER(KernelInfo)),
        ("ok", _c.c_int32),
        ("chosen", _c.c_int32),
        ("reason", _c.c_char * 160),
    ]


class PolicyInfo(_c.Structure):
    _fields_ = [
        ("name", _c.c_char_p),
        ("computes", _c.c_char_p),
        ("input_count", _c.c_int32),
        ("output_count", _c.c_int32),
        ("inputs", _c.POINTER(_c.c_char_p)),
        ("outputs", _c.POINTER(_c.c_char_p)),
    ]


class Tensor(_c.Structure):
    _fields_ = [
        ("data", _c.c_void_p),
        ("dtype", _c.c_int),
        ("rank", _c.c_int32),
        ("device", _c.c_int32),
        ("reserved", _c.c_int32),
        ("shape", _c.c_int64 * 5),
        ("stride", _c.c_int64 * 5),
    ]


DTYPES = {"fp32": 1, "bf16": 2, "fp16": 3, "fp8_e4m3": 4, "fp8_e5m2": 5, "e8m0": 6, "i32": 7, "i64": 8, "u8": 9}
LAYOUTS = ("row", "shuffle16", "panel16")  # the order of the binding's `layout` argument


def tensor(address, dtype, shape, stride=None, device=0):
    """An rd_tensor; strides in elements, row-major when not given; device 0 is the host, 1 + index a card."""
    t = Tensor(data=address, dtype=DTYPES[dtype], rank=len(shape), device=device)
    step = 1
    for axis in reversed(range(len(shape))):
        t.shape[axis] = shape[axis]
        t.stride[axis] = stride[axis] if stride else step
        step *= shape[axis]
    return t


def _params(values):
    array = (Param * len(values))()
    for slot, (key, value) in zip(array, values.items()):
        slot.key = key.encode()
        if isinstance(value, str):
            slot.kind, slot.word = 1, value.encode()
        else:
            slot.i = int(value)
    return array


class Answer:
    """One verdict of explain."""

    def __init__(self, verdict):
        info = verdict.kernel.contents
        self.kernel = info.name.decode()
        self.reference = bool(info.is_reference)
        self.ok, self.chosen = bool(verdict.ok), bool(verdict.chosen)
        self.reason = verdict.reason.decode()


class Library:
    def __init__(self, folder):
        folder = pathlib.Path(folder)
        self.folder = folder
        self.core = self._load(folder / "libradiance.so")
        self.binding = self._load(folder / "libradiance_torch.so")
        for name in ("rd_version", "rd_build_id", "rd_error_text"):
            getattr(self.core, name).restype = _c.c_char_p
        self.core.rd_abi_version.restype = _c.c_uint32
        self.version, self.build_id = self.core.rd_version().decode(), self.core.rd_build_id().decode()
        if self.version != __version__ or self.core.rd_abi_version() != ABI:
            raise RadianceError(
                f"{folder / 'libradiance.so'} is version {self.version} (ABI {self.core.rd_abi_version()}), "
                f"the package needs {__version__} (ABI {ABI})"
            )
        self.core.rd_op_find.restype = _c.c_void_p
        self.core.rd_device_close.argtypes = [_c.c_void_p]
        self.core.rd_policy_find.restype = _c.POINTER(PolicyInfo)
        self.binding.rdt_register.restype = _c.c_char_p
        self.binding.rdt_schema_at.restype = _c.c_char_p
        self.core.rd_ctx_free.argtypes = [_c.c_void_p]
        self._devices, self._host_checked = {}, False

    @staticmethod
    def _load(path):
        if not path.exists():
            raise RadianceError(f"{path} is missing")
        try:
            return _c.CDLL(str(path))
        except OSError as error:
            raise RadianceError(f"{path} cannot be loaded: {error}") from None

    def check(self, status):
        if status:
            raise RadianceError(self.core.rd_error_text().decode() or f"status {status}")

    def device(self, name):
        """An rd_device for questions, kept. Opening one of the CPU or a fixture touches no driver."""
        if name not in self._devices:
            handle = _c.c_void_p()
            self.check(self.core.rd_device_open(name.encode(), _c.byref(handle)))
            self._devices[name] = handle
        return self._devices[name]

    def check_host(self):
        """RadianceError when a context of the host cannot be made (RADIANCE_THREADS or RADIANCE_ISA of a bad value, say)."""
        if not self._host_checked:
            handle = _c.c_void_p()
            self.check(self.core.rd_ctx_create(None, _c.byref(handle)))
            self.core.rd_ctx_free(handle)
            self._host_checked = True

    def has_op(self, op):
        return bool(self.core.rd_op_find(op.encode()))

    def explain(self, device, op, **question):
        params, count = _params(question), _c.c_int32(0)
        ask = self.core.rd_kernel_explain
        self.check(ask(self.device(device), op.encode(), params, len(params), None, _c.byref(count)))
        verdicts = (Verdict * max(count.value, 1))()
        self.check(ask(self.device(device), op.encode(), params, len(params), verdicts, _c.byref(count)))
        return [Answer(v) for v in verdicts[: count.value]]

    def policy(self, rule, device=None, **question):
        """(outputs as a dict of text, the clause that fired); "" means: keeps what the caller had."""
        info = self.core.rd_policy_find(rule.encode())
        if not info:
            raise RadianceError(f"rule {rule} is not in this build")
        outputs = ((_c.c_char * 64) * info.contents.output_count)()
        fired, params = (_c.c_char * 128)(), _params(question)
        handle = self.device(device) if device else None
        self.check(self.core.rd_policy_eval(handle, rule.encode(), params, len(params), outputs, fired))
        names = [info.contents.outputs[i].decode() for i in range(info.contents.output_count)]
        return {n: o.value.decode() for n, o in zip(names, outputs)}, fired.value.decode()

    def ready(self, device, op, most, **question):
        """Makes the plan that calls on that device will use, over 1..most; RadianceError with the reasons when there is none."""
        params = _params(question)
        self.check(self.binding.rdt_plan_ready(device, op.encode(), params, len(params), _c.c_int64(most)))

    def context(self, device):
        handle = _c.c_void_p()
        self.check(self.binding.rdt_context(device, _c.byref(handle)))
        return handle

    def used_devices(self):
        return [device for device in range(17) if self.binding.rdt_context_made(device)]

    def weight_pack(self, weight, layout, allocate):
        """weight: an rd_tensor; allocate(bytes) gives the address that the packed bytes go to."""
        packed = Tensor()
        pack = self.core.rd_weight_pack
        self.check(pack(self.context(0), _c.byref(weight), layout.encode(), _c.byref(packed)))
        shape = (packed.shape[0], packed.shape[1])
        packed.data = allocate(shape)
        self.check(pack(self.context(0), _c.byref(weight), layout.encode(), _c.byref(packed)))
        return shape

    def report(self, device=0):
        size = _c.c_size_t(0)
        self.check(self.core.rd_report_text(self.context(device), None, _c.byref(size)))
        text = _c.create_string_buffer(max(size.value, 1))
        self.check(self.core.rd_report_text(self.context(device), text, _c.byref(size)))
        return text.value.decode()


@functools.cache
def library():
    folder = gates.text("RADIANCE_LIBRARY")
    return Library(folder or pathlib.Path(__file__).parent / "lib")

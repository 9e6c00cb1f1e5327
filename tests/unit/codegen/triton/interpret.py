"""Running Triton text on CPU tensors in Triton's interpreter.

The interpreter lacks libdevice and inline assembly, truncates where it should round to bfloat16, multiplies matrices of its bits, takes the smaller of a NaN and a number to
be NaN, and folds with a Python call an element: `_mend` puts numpy in these places. What it cannot show: races between threads of
a program, and instructions that differ from numpy's.
"""

from __future__ import annotations

import importlib
import importlib.util
import linecache
import os
import sys
import types
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

import numpy as np
import torch

from lampwork.ir.program import DeviceKernel
from lampwork.ir.size import evaluate
from tests.unit.codegen.triton.accesses import watched


def available() -> str:
    """Why Triton's interpreter cannot run here; empty if it can."""
    if importlib.util.find_spec("triton") is None or importlib.util.find_spec("triton.language") is None:
        return "triton is not installed"
    return ""


def launch(
    kernel: DeviceKernel,
    tensors: list[torch.Tensor],
    sizes: dict[str, int] | None = None,
    behind: Iterable[torch.Tensor] = (),
) -> None:
    """Runs all programs of the grid. `tensors`: the memory behind each pointer, in order; `behind`: memory whose
    addresses lie in them. Raises `AssertionError` for accesses that are out of bounds or race."""
    sizes = sizes or {}
    grid = tuple(evaluate(extent, sizes) for extent in kernel.grid)
    if 0 in grid:
        return
    _mend()
    with np.errstate(all="ignore"), interpreting(), watched() as accesses:
        function = _function(kernel.source, kernel.name)
        function[grid](*tensors, *sizes.values(), **dict(kernel.constants))
    accesses.check([*tensors, *behind])


@contextmanager
def interpreting() -> Iterator[None]:
    """Triton as it is when TRITON_INTERPRET=1 from the start; before and after it can compile, in this process too."""
    import triton.language as tl

    before = os.environ.get("TRITON_INTERPRET")
    os.environ["TRITON_INTERPRET"] = "1"
    functions = _standard_functions()
    # The interpreter patches these, and after a call of a function inside of a kernel it leaves them so.
    patched = [
        (place, dict(vars(place)))
        for place in (tl, tl.core, tl.math, tl.tensor, tl.dtype, tl.core.tensor_descriptor_base)
    ]
    try:
        for module, name, _, interpreted in functions:
            setattr(module, name, interpreted)
        yield
    finally:
        for place, saved in patched:
            now = dict(vars(place))
            for name in now.keys() - saved.keys():
                delattr(place, name)
            for name, value in saved.items():
                if now.get(name) is not value:
                    setattr(place, name, value)
        for module, name, compiled, _ in functions:
            setattr(module, name, compiled)
        if before is None:
            del os.environ["TRITON_INTERPRET"]
        else:
            os.environ["TRITON_INTERPRET"] = before


@cache
def _standard_functions() -> list[tuple[Any, str, Any, Any]]:
    """Triton's library in its own language (`tl.sum`): (module, name, as it compiles, as the interpreter calls it)."""
    import triton.language as tl
    from triton.runtime.interpreter import InterpretedFunction
    from triton.runtime.jit import JITFunction

    interpreted: dict[int, Any] = {}
    found = []
    for module in (tl, tl.standard):
        for name, value in vars(module).items():
            if isinstance(value, JITFunction):
                twin = interpreted.setdefault(id(value), InterpretedFunction(value.fn))
                found.append((module, name, value, twin))
    return found


@cache
def _function(source: str, name: str) -> Any:
    """The function of a module made of `source`; its text must be found by `inspect`."""
    file = f"<{name} {abs(hash(source))}>"
    linecache.cache[file] = (len(source), None, source.splitlines(keepends=True), file)
    module = types.ModuleType(f"generated_{name}_{abs(hash(source))}")
    module.__file__ = file
    sys.modules[module.__name__] = module
    exec(compile(source, file, "exec"), module.__dict__)
    if "libdevice" in module.__dict__:
        module.__dict__["libdevice"] = _libdevice()
    if "two_to_the" in module.__dict__:
        module.__dict__["two_to_the"] = _libdevice().two_to_the
    return module.__dict__[name]


# -- What the interpreter lacks ---------------------------------------------------------------------------------------

_UNARY = {
    "exp": np.exp, "exp2": np.exp2, "expm1": np.expm1, "log": np.log, "log2": np.log2, "log10": np.log10,
    "log1p": np.log1p, "sin": np.sin, "cos": np.cos, "tan": np.tan, "asin": np.arcsin, "acos": np.arccos,
    "atan": np.arctan, "sinh": np.sinh, "cosh": np.cosh, "tanh": np.tanh, "asinh": np.arcsinh, "acosh": np.arccosh,
    "atanh": np.arctanh, "trunc": np.trunc, "rint": np.rint, "rsqrt": lambda a: 1 / np.sqrt(a),
    "two_to_the": lambda a: np.where(np.exp2(a) < 2.0**-126, np.float32(0), np.exp2(a)),
    "erf": lambda a: torch.from_numpy(np.array(a)).erf().numpy(),
    "erfc": lambda a: torch.from_numpy(np.array(a)).erfc().numpy(),
    "lgamma": lambda a: torch.from_numpy(np.array(a)).lgamma().numpy(),
}  # fmt: skip
_BINARY = {
    "atan2": np.arctan2,
    "hypot": np.hypot,
    "copysign": np.copysign,
    "nextafter": np.nextafter,
    "fmod": np.fmod,
    "pow": np.power,
}
_TERNARY = {"fma": lambda a, b, c: (a.astype(np.longdouble) * b + c).astype(a.dtype)}  # fmt: skip


@cache
def _libdevice() -> Any:
    import triton.language as tl
    from triton.runtime.interpreter import TensorHandle

    def lift(function: Any) -> Any:
        def call(*args: Any) -> Any:
            values = [arg.handle.data for arg in args]
            assert all(type(arg) is tl.tensor and arg.dtype.scalar in (tl.float32, tl.float64) for arg in args)
            result = np.asarray(function(*values)).astype(values[0].dtype)
            scalar = args[0].dtype.scalar
            shape = list(result.shape)
            kind = tl.block_type(scalar, shape) if any(arg.type.is_block() for arg in args) else scalar
            return tl.tensor(TensorHandle(result, scalar), kind)

        return call

    def truncate(wanted: str) -> Any:
        def call(arg: Any) -> Any:
            target = getattr(tl, wanted)
            result = np.asarray(arg.handle.data).astype(wanted)
            return tl.tensor(TensorHandle(result, target), tl.block_type(target, list(result.shape)) if arg.type.is_block() else target)  # fmt: skip

        return call

    truncations = {
        f"{source}2{name}_rz": truncate(wanted)
        for source in ("float", "double")
        for name, wanted in (("int", "int32"), ("ll", "int64"), ("ull", "uint64"))
    }
    return types.SimpleNamespace(
        **{name: lift(function) for name, function in {**_UNARY, **_BINARY, **_TERNARY}.items()}, **truncations
    )


@cache
def _mend() -> None:
    import triton.language as tl

    interpreter = importlib.import_module("triton.runtime.interpreter")
    handle = interpreter.TensorHandle
    original = interpreter.InterpreterBuilder.cast_impl

    def cast_impl(self: Any, src: Any, dst_type: Any) -> Any:
        if src.dtype.scalar == tl.float32 and dst_type.scalar == tl.bfloat16:
            rounded = torch.from_numpy(np.array(src.data)).to(torch.bfloat16).view(torch.uint16).numpy()
            return handle(rounded, dst_type.scalar)
        if src.dtype.scalar == tl.bfloat16 and dst_type.scalar == tl.float32:
            return handle(torch.from_numpy(np.array(src.data)).view(torch.bfloat16).float().numpy(), dst_type.scalar)
        return original(self, src, dst_type)

    def generic_reduce(self: Any, input: Any) -> Any:
        """Halves are folded with each other: the function takes whole arrays."""
        axis = self.axis
        parts = [value.handle.data for value in input]
        while parts[0].shape[axis] > 1:
            half = parts[0].shape[axis] // 2
            left = [self.to_tensor(np.take(part, range(half), axis), value.dtype) for part, value in zip(parts, input)]
            right = [
                self.to_tensor(np.take(part, range(half, 2 * half), axis), value.dtype)
                for part, value in zip(parts, input)
            ]
            folded = self.combine_fn.fn(*left, *right)
            folded = folded if isinstance(folded, tuple) else (folded,)
            parts = [value.handle.data for value in folded]
        if not self.keep_dims:
            parts = [np.take(part, 0, axis) for part in parts]
        return [self.to_tensor(part, value.dtype) for part, value in zip(parts, input)]

    def get_bf16(self: Any, value: float) -> Any:
        rounded = torch.tensor([value], dtype=torch.bfloat16).view(torch.uint16).numpy()
        return handle(rounded, tl.bfloat16)

    def create_dot(self: Any, a: Any, b: Any, d: Any, *options: Any) -> Any:
        left, right = (cast_impl(self, each, tl.float32).data if each.dtype == tl.bfloat16 else each.data
                       for each in (a, b))  # fmt: skip
        return handle(np.matmul(left, right, dtype=d.data.dtype) + d.data, d.dtype.scalar)

    def create_splat(self: Any, ret_ty: Any, arg: Any) -> Any:
        # The handle of a comparison has its operands' type: its values are bool all the same.
        return handle(np.full(ret_ty.shape, arg.data.reshape(-1)[0], arg.data.dtype), arg.dtype.scalar)

    semantic = interpreter.TritonSemantic
    checked, broadcast = semantic.binary_op_sanitize_overflow_impl, semantic.broadcast_impl_value

    def check_overflow(self: Any, lhs: Any, rhs: Any, operator: Any) -> None:
        """Eight operations, a quarter of all time here, for an assertion that only `debug` would make."""
        if isinstance(self.builder, interpreter.InterpreterBuilder) and not self.builder.options.debug:
            return
        checked(self, lhs, rhs, operator)

    def broadcast_impl_value(self: Any, lhs: Any, rhs: Any) -> Any:
        """Most operands have one shape already."""
        left, right = lhs.type, rhs.type
        if left is right or (left.is_block() and right.is_block() and left.shape.values == right.shape.values):
            return lhs, rhs
        return broadcast(self, lhs, rhs)

    def device_call(self: Any, *args: Any, **kwargs: Any) -> Any:
        """Triton's library is looked through once a kernel, and not at each call of a function in it."""
        languages = [each for each in self.fn.__globals__.values() if each is tl or each is tl.core]
        if any(tl.core.is_builtin(each.load) for each in languages):
            interpreter._patch_lang(self.fn)
        try:
            return self.rewrite()(*args, **kwargs)
        except Exception as error:
            raise interpreter.InterpreterError(repr(error)) from error

    patch_tensor = interpreter._patch_lang_tensor

    def patch_lang_tensor(tensor: Any, scope: Any) -> None:
        patch_tensor(tensor, scope)
        # Bounds of a `range` are arrays of one element, which recent numpy does not take for numbers.
        scope.set_attr(tensor, "__index__", lambda self: int(self.handle.data.reshape(-1)[0]))

    semantic.binary_op_sanitize_overflow_impl = check_overflow
    semantic.broadcast_impl_value = broadcast_impl_value
    interpreter._patch_lang_tensor = patch_lang_tensor
    interpreter.InterpretedFunction.__call__ = device_call
    interpreter.InterpreterBuilder.create_maxnumf = lambda self, lhs, rhs: self.binary_op(lhs, rhs, np.fmax)
    interpreter.InterpreterBuilder.create_minnumf = lambda self, lhs, rhs: self.binary_op(lhs, rhs, np.fmin)
    interpreter.InterpreterBuilder.create_splat = create_splat
    interpreter.InterpreterBuilder.create_dot = create_dot
    interpreter.InterpreterBuilder.get_bf16 = get_bf16
    interpreter.InterpreterBuilder.cast_impl = cast_impl
    for name in ("create_fp_ext", "create_fp_trunc", "create_si_to_fp", "create_ui_to_fp", "create_fp_to_si",
                 "create_fp_to_ui"):  # fmt: skip
        setattr(interpreter.InterpreterBuilder, name, lambda self, src, dst_type: self.cast_impl(src, dst_type))
    interpreter.ReduceOps.generic_reduce = generic_reduce

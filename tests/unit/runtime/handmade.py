"""Artifacts made by hand, so that the runtime is tested without any compiler stage."""

from __future__ import annotations

import ctypes

import torch

from lampwork.codegen.host import host_source
from lampwork.ir.artifact import Artifact
from lampwork.ir.guard import ArgumentCount, Equals, Guard, TensorIs
from lampwork.ir.loops import Buffer
from lampwork.ir.program import Extern, FromBuffer, NativeCode, Placement, Program, TensorRef
from lampwork.ir.region import Return
from lampwork.ir.source import Argument, Root, State
from lampwork.ir.template import TensorValue

#: `cuLaunchKernel`.
LAUNCH_KERNEL = ctypes.CFUNCTYPE(
    ctypes.c_int,
    ctypes.c_void_p,
    *[ctypes.c_uint] * 7,
    ctypes.c_void_p,
    ctypes.POINTER(ctypes.c_void_p),
    ctypes.c_void_p,
)

NO_CODE = NativeCode(b"", (), (), (), ())


def tensor_guard(tensor: torch.Tensor) -> TensorIs:
    kind = type(tensor)
    return TensorIs(
        f"{kind.__module__}.{kind.__qualname__}", str(tensor.dtype)[6:], tuple(tensor.shape), tuple(tensor.stride()),
        str(tensor.device), tensor.requires_grad,
    )  # fmt: skip


def whole(buffer: Buffer) -> TensorRef:
    return TensorRef(buffer.name, buffer.dtype, buffer.shape, buffer.strides)


def artifact(program: Program, guards=(), inputs=(), objects=(), effects=(), outcome=None, **fields) -> Artifact:
    outcome = outcome or Return(TensorValue(0))
    return Artifact(
        "handmade", tuple(guards), tuple(inputs), tuple(objects), tuple(effects), outcome, program, NO_CODE,
        host_source(program, NO_CODE), **fields,
    )  # fmt: skip


def relu_plus_one(size: int = 8) -> Artifact:
    """`relu(x) + 1` for a float32 vector: one operator into the workspace, one into the result."""
    x, middle, out = (Buffer(name, "float32", (size,), (1,)) for name in ("x", "middle", "out"))
    program = Program(
        kernels=(),
        buffers={"x": x, "middle": middle, "out": out},
        placements={"x": Placement("input", 0), "middle": Placement("workspace", 0, 64), "out": Placement("result", 0)},
        steps=(
            Extern("aten::relu", (whole(x),), (), ("middle",), "aten::relu.out"),
            Extern("aten::add.Tensor", (whole(middle), 1.0), (), ("out",), "aten::add.Scalar_out"),
        ),
        inputs=("x",),
        results=(FromBuffer(whole(out)),),
        result_storages=("out",),
        workspace_bytes=64 + 4 * size,
    )
    guards = (
        Guard(Root(), ArgumentCount(1, ())),
        Guard(Argument(0), tensor_guard(torch.zeros(size))),
        Guard(State("modes"), Equals(0)),
    )
    return artifact(program, guards, (Argument(0),))

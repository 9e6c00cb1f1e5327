"""Kernel printer, verifier and interpreter."""

from __future__ import annotations

import math

import pytest

from lampwork.ir.kernel_interpret import KernelFault, cast, run_kernel, wrap
from lampwork.ir.kernel_print import expr_text, kernel_text
from lampwork.ir.kernel_verify import verify_kernel, verify_program
from lampwork.ir.loops import (
    Accumulate,
    Accumulator,
    Axis,
    Buffer,
    Compute,
    Constant,
    If,
    Index,
    Kernel,
    Let,
    Load,
    Local,
    Loop,
    Parameter,
    Scratch,
    Store,
)
from lampwork.ir.program import FromBuffer, Launch, Placement, Program, TensorRef
from lampwork.ir.size import Symbol, substitute
from lampwork.ir.verify import VerifyError

F = "float32"


def symbol(name, extent):
    return Symbol(name, 0, extent - 1)


def row_sum(rows=2, columns=3, kind="vector"):
    i, j = symbol("i0", rows), symbol("i1", columns)
    return Kernel(
        "k",
        (Parameter("b0", F, "read", rows * columns), Parameter("b1", F, "write", rows)),
        (
            Loop(
                Axis("i0", rows),
                (
                    Accumulator("a0", "sum", F),
                    Loop(Axis("i1", columns), (Accumulate("a0", Load("b0", (columns * i + j,), F)),), kind),
                    Store("b1", (i,), Local("a0", F)),
                ),
                "parallel",
                7,
            ),
        ),
    )


def test_text_of_a_row_sum():
    assert kernel_text(row_sum()) == (
        "kernel k(b0: f32[6] read, b1: f32[2] write)\n"
        "  parallel i0 in 2 grain 7\n"
        "    accumulator a0: f32 sum\n"
        "    vector i1 in 3\n"
        "      a0 <- b0[3*i0 + i1]\n"
        "    b1[i0] = a0\n"
    )


def test_text_tells_apart_what_differs():
    assert expr_text(Constant(0.0, F)) != expr_text(Constant(-0.0, F))
    assert expr_text(Constant(1, "int64")) != expr_text(Constant(True, "bool"))
    masked = Load("b0", (0,), F, mask=Local("t0", "bool"), other=1.0)
    assert expr_text(masked) == "b0[0 if t0 else 1.0]"


def test_interpreter_sums_rows():
    out = [0.0, 0.0]
    run_kernel(row_sum(), [[1.0, 2.0, 3.0, 4.0, 5.0, 6.0], out])
    assert out == [6.0, 15.0]


def test_interpreter_restarts_accumulators_and_keeps_scratch():
    i, j = symbol("i0", 2), symbol("i1", 2)
    body = (
        Scratch("r0", F, 2),
        Loop(
            Axis("i0", 2),
            (
                Accumulator("a0", "max", F),
                Loop(Axis("i1", 2), (Accumulate("a0", Load("b0", (2 * i + j,), F)),)),
                Store("r0", (i,), Local("a0", F)),
            ),
        ),
        Store("b1", (0,), Compute("add", (Load("r0", (0,), F), Load("r0", (1,), F)), F)),
    )
    kernel = Kernel("k", (Parameter("b0", F, "read", 4), Parameter("b1", F, "write", 1)), body)
    verify_kernel(kernel)
    out = [0.0]
    run_kernel(kernel, [[3.0, 1.0, -5.0, -7.0], out])
    assert out == [-2.0]


@pytest.mark.parametrize(
    "op, values, expected",
    [
        ("argmax", [1.0, 3.0, 3.0], 1),
        ("argmin", [1.0, -3.0, -3.0], 1),
        ("argmax", [1.0, math.nan, 3.0, math.nan], 1),
        ("argmin", [math.inf, math.inf], 0),
        ("argmax", [-math.inf], 0),
    ],
)
def test_argmax_takes_the_first_and_nan_wins(op, values, expected):
    i = symbol("i0", len(values))
    for order in (i, len(values) - 1 - i):  # whatever the order of the loop
        body = (
            Accumulator("a0", op, F),
            Loop(Axis("i0", len(values)), (Accumulate("a0", Load("b0", (order,), F), order),)),
            Store("b1", (0,), Local("a0", "int64")),
        )
        kernel = Kernel("k", (Parameter("b0", F, "read", len(values)), Parameter("b1", "int64", "write", 1)), body)
        out = [-1]
        run_kernel(kernel, [values, out])
        assert out == [expected]


def test_masked_load_reads_nothing():
    load = Load(
        "b0", (symbol("i0", 3) - 1,), F, mask=Compute("gt", (Index(symbol("i0", 3)), Index(0)), "bool"), other=9.0
    )
    body = (Loop(Axis("i0", 3), (Store("b1", (symbol("i0", 3),), load),)),)
    out = [0.0] * 3
    run_kernel(Kernel("k", (Parameter("b0", F, "read", 2), Parameter("b1", F, "write", 3)), body), [[1.0, 2.0], out])
    assert out == [9.0, 1.0, 2.0]


def test_interpreter_faults_outside_a_buffer():
    body = (Store("b0", (3,), Constant(1.0, F)),)
    with pytest.raises(KernelFault, match=r"b0\[3\]"):
        run_kernel(Kernel("k", (Parameter("b0", F, "write", 3),), body), [[0.0] * 3])


@pytest.mark.parametrize(
    "value, dtype, expected",
    [
        (300, "int8", 44),
        (-1, "uint8", 255),
        (1e40, "float32", math.inf),
        (1 + 2**-9, "bfloat16", 1.0),
        (1 + 3 * 2**-9, "bfloat16", 1 + 2**-7),
        (70000.0, "float16", math.inf),
        (2, "bool", True),
    ],
)
def test_values_are_rounded_to_their_type(value, dtype, expected):
    assert wrap(value, dtype) == expected


def test_cast_truncates_floats():
    assert cast(-2.7, "int32") == -2
    assert [cast(1e12 + 85.0, each) for each in ("int8", "int16", "uint8", "int32")] == [0, 0, 85, -(1 << 31)]
    assert cast(math.nan, "int8") == cast(-math.inf, "uint16") == 0
    assert cast(0.3, "bool") is True


# The verifier: one broken kernel for each invariant ------------------------------------------------------------------

I0 = symbol("i0", 4)
B0 = Parameter("b0", F, "readwrite", 4)
ONE = Constant(1.0, F)


def loop(*body, kind="serial", extent=4, name="i0", grain=1):
    return Loop(Axis(name, extent), body, kind, grain)


BROKEN = {
    "invariant 1": Kernel("k", (Parameter("x", F, "read", 4),), ()),
    "invariant 2: t0 is not": Kernel("k", (B0,), (Store("b0", (0,), Local("t0", F)),)),
    "invariant 2: t0 is defined": Kernel("k", (B0,), (Let("t0", ONE), loop(Let("t0", ONE)))),
    "invariant 3: unknown": Kernel("k", (B0,), (Store("b0", (I0,), ONE),)),
    "invariant 3: b0 has": Kernel("k", (B0,), (loop(Store("b0", (I0, 0), ONE)),)),
    "invariant 4: write to read": Kernel("k", (Parameter("b0", F, "read", 4),), (Store("b0", (0,), ONE),)),
    "invariant 4: float32 stored": Kernel("k", (Parameter("b0", "float64", "write", 4),), (Store("b0", (0,), ONE),)),
    "invariant 4: load of write": Kernel(
        "k", (Parameter("b0", F, "write", 4),), (Store("b0", (0,), Load("b0", (1,), F)),)
    ),
    "invariant 4: add": Kernel("k", (Parameter("b0", F, "write", 4),), (Store("b0", (0,), ONE, "add"),)),
    "invariant 5: add": Kernel("k", (B0,), (Store("b0", (0,), Compute("add", (ONE, Constant(1, "int64")), F)),)),
    "invariant 5: sqrt": Kernel("k", (B0,), (Let("t0", Compute("sqrt", (Constant(1, "int64"),), "int64")),)),
    "invariant 5: condition": Kernel("k", (B0,), (If(ONE, ()),)),
    "invariant 6": Kernel("k", (B0,), (loop(loop(Store("b0", (I0,), ONE), kind="parallel", name="i1")),)),
    "invariant 7: vector": Kernel("k", (B0,), (loop(loop(kind="vector", name="i1"), kind="vector"),)),
    "invariant 7: unroll": Kernel("k", (B0,), (loop(kind="unroll", extent=Symbol("s0", 1, 9)),), ("s0",)),
    "invariant 8: a0 is not": Kernel("k", (B0,), (Accumulate("a0", ONE),)),
    "invariant 8: position": Kernel("k", (B0,), (Accumulator("a0", "sum", F), Accumulate("a0", ONE, 0))),
    "invariant 9": Kernel("k", (B0,), (Accumulator("a0", "sum", F), loop(Accumulate("a0", ONE), kind="parallel"))),
    "invariant 10": Kernel("k", (B0,), (loop(Store("b0", (I0 + 1,), ONE)),)),
}


@pytest.mark.parametrize("message", BROKEN)
def test_verifier_refuses(message):
    with pytest.raises(VerifyError, match=message):
        verify_kernel(BROKEN[message])


@pytest.mark.parametrize("kind", ["serial", "vector", "unroll"])
def test_verifier_accepts(kind):
    verify_kernel(row_sum(kind=kind))


def program(**changes) -> Program:
    buffers = {
        "x": Buffer("x", F, (2, 3), (3, 1), "input"),
        "m": Buffer("m", F, (2,), (1,)),
        "y": Buffer("y", F, (2,), (1,)),
    }
    fields = dict(
        kernels=(row_sum(),),
        buffers=buffers,
        placements={"x": Placement("input"), "m": Placement("workspace"), "y": Placement("result")},
        steps=(Launch(0, ("x", "m")), Launch(0, ("x", "y"))),
        inputs=("x",),
        results=(FromBuffer(TensorRef("y", F, (2,), (1,))),),
        result_storages=("y",),
        workspace_bytes=64,
    )
    return Program(**{**fields, **changes})


def test_verifier_accepts_a_program():
    verify_program(program())


@pytest.mark.parametrize(
    "message, changes",
    [
        ("invariant 11", {"steps": (Launch(0, ("x",)),)}),
        ("invariant 11", {"steps": (Launch(1, ("x", "y")),)}),
        ("invariant 11: m has", {"steps": (Launch(0, ("m", "y")),)}),
        ("invariant 12: a buffer", {"kernels": (row_sum(1, 1),), "buffers": {"x": Buffer("x", F, (1,), (1,), "input")},
                                    "placements": {"x": Placement("input")}, "steps": (Launch(0, ("x", "x")),)}),
        ("invariant 13: y has no", {"placements": {"x": Placement("input"), "m": Placement("workspace")}}),
        ("invariant 13: m at", {"workspace_bytes": 0}),
        ("invariant 13: result y lies", {"placements": {"x": Placement("input"), "m": Placement("workspace"),
                                                       "y": Placement("workspace", 0, 64)}, "workspace_bytes": 128}),
        ("invariant 14: result y", {"steps": (Launch(0, ("x", "m")),)}),
    ],
)  # fmt: skip
def test_verifier_refuses_programs(message, changes):
    with pytest.raises(VerifyError, match=message):
        verify_program(program(**changes))


def _loaded(index, numel, extent, indirect=(), mask=None):
    load = Load("b0", (index,), "float32", indirect, mask)
    loop = Loop(Axis("i0", extent), (Store("b1", (Symbol("i0", 0),), load),))
    return Kernel(
        "k", (Parameter("b0", "float32", "read", numel), Parameter("b1", "float32", "write", extent)), (loop,), ("s0",)
    )


def _program_of(kernel):
    x, y = (substitute(parameter.numel, {"s0": Symbol("n", 2)}) for parameter in kernel.parameters)
    shape = {"x": x, "y": y}
    buffers = {name: Buffer(name, "float32", (numel,), (1,), "input") for name, numel in shape.items()}
    places = {"x": Placement("input", 0), "y": Placement("input", 1)}
    launch = Launch(0, ("x", "y"), (Symbol("n", 0),))
    return Program((kernel,), buffers, places, (launch,), ("x", "y"), (), sizes=("n",))


def test_offsets_of_unknown_sizes_are_proved_or_refused():
    s, i, x = Symbol("s0", 2), Symbol("i0"), Symbol("x0", 0, 3)
    number = Load("b0", (i,), "float32")
    row = Compute("cast", (number,), "int64")
    clamped = Compute("minimum", (Compute("maximum", (row, Constant(0, "int64")), "int64"), Index(s + -1)), "int64")
    near = Compute("lt", (Index(i), Index(s + -1)), "bool")
    inside = (
        _loaded(i, s, s),
        _loaded(i + 1, s, s + -1),
        _loaded(i + 1, s, s + 1, mask=near),
        _loaded(x, s, s, (("x0", clamped),)),
    )
    for kernel in inside:
        verify_program(_program_of(kernel))
    far = Compute("le", (Index(i), Index(s + -1)), "bool")
    outside = (
        _loaded(i + 1, s, s),
        _loaded(i * 2, s, s),
        _loaded(x, s, s, (("x0", row),)),
        _loaded(i + 1, s, s, mask=far),
    )
    for kernel in outside:
        with pytest.raises(VerifyError, match="invariant 10"):
            verify_program(_program_of(kernel))


def test_offsets_are_proved_by_what_guards_say():
    program = _program_of(_loaded(Symbol("i0"), Symbol("s0", 2), 3))
    verify_program(program, [Symbol("n", 2) + -3])
    with pytest.raises(VerifyError, match="invariant 10"):
        verify_program(program)

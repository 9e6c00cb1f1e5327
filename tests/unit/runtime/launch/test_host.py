"""Host programs of ATen calls alone: views, places, checks, the commit point."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from lampwork.codegen.generate import generate
from lampwork.codegen.host import host_source
from lampwork.codegen.target import make_target
from lampwork.config import Settings
from lampwork.errors import CompileError
from lampwork.ir.loops import Axis, Buffer, Compute, Kernel, Load, Loop, Parameter, Store
from lampwork.ir.program import (
    Check,
    Extern,
    FromBuffer,
    FromInput,
    Launch,
    Placement,
    Program,
    TensorRef,
    TorchConstant,
    ViewOfInput,
)
from lampwork.ir.size import Symbol, add, mul
from lampwork.runtime.launch.host import Host, Rerun, restride
from tests.unit.runtime.handmade import NO_CODE, artifact, whole


def buffer(name, *shape, dtype="float32", strides=None):
    if strides is None:
        strides, step = [], 1
        for size in reversed(shape):
            strides.insert(0, step)
            step = mul(step, size) if not isinstance(step, int) or not isinstance(size, int) else step * size
    return Buffer(name, dtype, tuple(shape), tuple(strides))


def run(program, *inputs, weights=frozenset(), **fields):
    return bound(program, weights, **fields).call(inputs)


def bound(program, weights=frozenset(), **fields):
    made = artifact(program, **fields)
    made = type(made)(**{**vars(made), "host_source": host_source(program, NO_CODE, weights)})
    return Host(made)


X, Y, OUT = buffer("x", 2, 3), buffer("y", 3, 2), buffer("out", 2, 2)
INPUT = {"x": Placement("input", 0)}


def program(buffers, places, steps, results, inputs=("x",), **fields):
    return Program(
        kernels=(), buffers={each.name: each for each in buffers}, placements=places, steps=tuple(steps), inputs=inputs,
        results=tuple(results), **fields,
    )  # fmt: skip


def test_a_strided_view_of_an_input():
    """x @ x.t() from one input, seen in two ways."""
    transposed = TensorRef("x", "float32", (3, 2), (1, 3))
    steps = [Extern("aten::mm", (whole(X), transposed), (), ("out",), "aten::mm.out")]
    made = program(
        (X, OUT), {**INPUT, "out": Placement("result", 0)}, steps, [FromBuffer(whole(OUT))], result_storages=("out",)
    )
    x = torch.randn(2, 3)
    torch.testing.assert_close(run(made, x)[0], x @ x.t())
    offset = torch.randn(10)[1:7].view(2, 3)
    torch.testing.assert_close(run(made, offset)[0], offset @ offset.t())


def test_weights_are_looked_up_once_per_generation():
    transposed = TensorRef("x", "float32", (3, 2), (1, 3))
    steps = [Extern("aten::mm", (whole(X), transposed), (), ("out",), "aten::mm.out")]
    made = program(
        (X, OUT), {**INPUT, "out": Placement("result", 0)}, steps, [FromBuffer(whole(OUT))], result_storages=("out",)
    )
    host = bound(made, frozenset({0}))
    first, second = torch.nn.Parameter(torch.randn(2, 3)), torch.nn.Parameter(torch.randn(2, 3))
    one, two = object(), object()
    with torch.inference_mode():
        host.call([first], one)
    torch.testing.assert_close(host.call([first], one)[0], (first @ first.t()).detach())
    torch.testing.assert_close(host.call([second], two)[0], (second @ second.t()).detach())
    torch.testing.assert_close(host.call([first], None)[0], (first @ first.t()).detach())


def test_results_that_share_memory_or_are_inputs():
    steps = [Extern("aten::neg", (whole(X),), (), ("out",), "aten::neg.out")]
    out = buffer("out", 2, 3)
    results = [
        FromBuffer(whole(out)), FromBuffer(TensorRef("out", "float32", (3,), (1,), 3)), FromInput(0),
        ViewOfInput(0, "float32", (3, 2), (1, 3)), ViewOfInput(0, "int32", (2,), (3,), 1),
    ]  # fmt: skip
    made = program((X, out), {**INPUT, "out": Placement("result", 0)}, steps, results, result_storages=("out",))
    x = torch.randn(2, 3)
    negated, row, same, transposed, bits = run(made, x)
    assert torch.equal(negated, -x) and torch.equal(row, -x[1]) and same is x
    row.zero_()
    assert (negated[1] == 0).all()
    assert torch.equal(transposed, x.t()) and transposed.data_ptr() == x.data_ptr()
    assert torch.equal(bits, x.view(torch.int32)[:, 1])


def test_operators_that_allocate():
    """topk returns two tensors; one is read by a later operator, one is a result. `None`: nobody reads it."""
    values, indices, out = buffer("values", 2, 2), buffer("indices", 2, 2, dtype="int64"), buffer("out", 2, 2)
    places = {**INPUT, "values": Placement("extern"), "indices": Placement("extern"), "out": Placement("result", 0)}
    steps = [
        Extern("aten::topk", (whole(X), 2), (), ("values", "indices")),
        Extern("aten::exp", (whole(values),), (), ("out",), "aten::exp.out"),
        Extern("aten::topk", (whole(X), 1), (), (None, None)),
    ]
    made = program(
        (X, values, indices, out), places, steps, [FromBuffer(whole(out)), FromBuffer(whole(indices))],
        result_storages=("out",), free_after={1: ("values",)},
    )  # fmt: skip
    x = torch.randn(2, 3)
    expected = x.topk(2)
    found = run(made, x)
    assert torch.equal(found[0], expected.values.exp()) and torch.equal(found[1], expected.indices)


def test_strides_other_than_planned_are_copied():
    planned = buffer("planned", 3, 2, strides=(1, 3))
    steps = [Extern("aten::clone", (TensorRef("x", "float32", (3, 2), (2, 1)),), (), ("planned",))]
    made = program((X, planned), {**INPUT, "planned": Placement("extern")}, steps, [FromBuffer(whole(planned))])
    x = torch.randn(2, 3)
    found = run(made, x)[0]
    assert found.stride() == (1, 3) and torch.equal(found, x.view(3, 2))


def test_constants_and_keyword_arguments():
    made_of = buffer("table", 3)
    out = buffer("out", 3, dtype="float64")
    steps = [
        Extern("aten::to.dtype", (whole(made_of), TorchConstant("dtype", "float64")), (), ("out",)),
    ]
    made = program(
        (made_of, out), {"table": Placement("constant", 0), "out": Placement("extern")}, steps, [FromBuffer(whole(out))],
        inputs=(), constants={"table": ("float32", (3,), torch.tensor([1.0, 2.0, 3.0]).numpy().tobytes())},
    )  # fmt: skip
    assert torch.equal(run(made)[0], torch.tensor([1.0, 2.0, 3.0], dtype=torch.float64))


def test_sizes_come_from_inputs():
    x = Buffer("x", "float32", (Symbol("n"), 3), (3, 1))
    out = Buffer("out", "float32", (Symbol("n"), 3), (3, 1))
    steps = [Extern("aten::neg", (whole(x),), (), ("out",), "aten::neg.out")]
    made = program((x, out), {**INPUT, "out": Placement("result", 0)}, steps, [FromBuffer(whole(out))],
                   result_storages=("out",), sizes=("n",))  # fmt: skip
    host = bound(made)
    for size in (1, 5, 0, 2):
        value = torch.randn(size, 3)
        assert torch.equal(host.call([value])[0], -value)


def failing(*, after_write):
    """x.neg_(), then a check of `flag`; the other order when not `after_write`."""
    flag = buffer("flag", dtype="bool")
    write = Extern("aten::neg_", (whole(X),), (), (None,), None, ("x",))
    check = Check("flag", "the flag is set")
    steps = [write, check] if after_write else [check, write]
    return program((X, flag), {**INPUT, "flag": Placement("input", 1)}, steps, [FromInput(0)], inputs=("x", "flag"),
                   written_inputs=(0,))  # fmt: skip


def test_a_failure_before_the_commit_point_may_run_again():
    x = torch.ones(2, 3)
    with pytest.raises(Rerun) as caught:
        run(failing(after_write=False), x, torch.tensor(True))
    assert isinstance(caught.value.__cause__, IndexError) and (x == 1).all()


def test_a_failure_past_it_is_raised():
    x = torch.ones(2, 3)
    with pytest.raises(IndexError, match="the flag is set"):
        run(failing(after_write=True), x, torch.tensor(True))
    assert (x == -1).all()


def test_written_inputs_get_a_new_version():
    x = torch.ones(2, 3)
    version = x._version
    run(failing(after_write=False), x, torch.tensor(False))
    assert x._version > version and (x == -1).all()
    with torch.inference_mode():
        inference = torch.ones(2, 3)
        run(failing(after_write=False), inference, torch.tensor(False))
    assert (inference == -1).all()


def test_what_was_drawn_before_a_check_is_put_back():
    out = buffer("out", 2, 3)
    flag = buffer("flag", dtype="bool")
    steps = [Extern("aten::rand_like", (whole(X),), (), ("out",), draws=True), Check("flag", "stop", "RuntimeError")]
    places = {**INPUT, "flag": Placement("input", 1), "out": Placement("extern")}
    made = program((X, flag, out), places, steps, [FromBuffer(whole(out))], inputs=("x", "flag"))
    torch.manual_seed(3)
    expected = torch.rand(2, 3)
    torch.manual_seed(3)
    assert torch.equal(run(made, torch.ones(2, 3), torch.tensor(False))[0], expected)
    state = torch.get_rng_state()
    with pytest.raises(Rerun) as caught:
        run(made, torch.ones(2, 3), torch.tensor(True))
    assert str(caught.value.__cause__) == "stop" and torch.equal(torch.get_rng_state(), state)


def test_parameters_in_grad_mode():
    """What was recorded is below autograd: in-place results of parameters raise nothing and require nothing."""
    steps = [Extern("aten::mm", (whole(X), TensorRef("x", "float32", (3, 2), (1, 3))), (), ("out",), "aten::mm.out")]
    made = program(
        (X, OUT), {**INPUT, "out": Placement("result", 0)}, steps, [FromBuffer(whole(OUT))], result_storages=("out",)
    )
    x = torch.nn.Parameter(torch.randn(2, 3))
    with torch.enable_grad(), torch.autocast("cpu", dtype=torch.bfloat16):
        found = run(made, x)[0]
    assert not found.requires_grad and found.dtype is torch.float32


def test_a_buffer_without_a_place():
    steps = [Extern("aten::neg", (whole(Y),), (), ("out",), "aten::neg.out")]
    with pytest.raises(CompileError, match="buffer y has no place"):
        host_source(program((X, Y, OUT), {**INPUT, "out": Placement("result", 0)}, steps, []), NO_CODE)


def test_strides_over_nothing_need_no_copy():
    returned = torch.arange(6.0).as_strided((1, 2, 3), (1, 3, 1))
    seen = restride(returned, (1, 2, 3), (6, 3, 1), torch.float32)
    assert seen.stride() == (6, 3, 1)
    assert seen.data_ptr() == returned.data_ptr()
    copied = restride(returned, (1, 2, 3), (6, 1, 2), torch.float32)
    assert copied.stride() == (6, 1, 2)
    assert torch.equal(copied, returned)
    assert copied.data_ptr() != returned.data_ptr()
    with pytest.raises(RuntimeError, match="planned"):
        restride(returned, (2, 3), (3, 1), torch.float32)


def neg_into(source, target):
    return Extern("aten::neg", (source,), (), (target.name,), "aten::neg.out")


@pytest.mark.parametrize("kind", ["input", "extern", "result", "workspace", "constant"])
def test_any_view_of_any_memory(kind):
    """An operator sees of a buffer what its strides and its offset say, wherever the buffer lies."""
    x, square, values = buffer("x", 3, 3), buffer("square", 3, 3), torch.arange(9.0).view(3, 3)
    given = kind in ("input", "constant")
    make = {"extern": Extern("aten::neg", (whole(x),), (), ("square",))}.get(kind, neg_into(whole(x), square))
    fields = {
        "workspace": {"workspace_bytes": 128},
        "result": {"result_storages": ("square",)},
        "constant": {"constants": {"square": ("float32", (3, 3), values.numpy().tobytes())}},
        "input": {"inputs": ("square",)},
    }
    places = {**INPUT, "square": Placement(kind, 0, 64 * (kind == "workspace")), "out": Placement("extern")}
    for view in (
        TensorRef("square", "float32", (3, 3), (1, 3)),
        TensorRef("square", "float32", (2, 2), (3, 1), 4),
        TensorRef("square", "float32", (2, 3), (3, 1), 3),
        TensorRef("square", "int32", (3, 3), (3, 1)),
    ):
        out = Buffer("out", view.dtype, view.shape, (view.shape[1], 1))
        read = Extern("aten::neg", (view,), (), ("out",))
        made = program(
            (x, square, out),
            places,
            [read] if given else [make, read],
            [FromBuffer(whole(out))],
            **fields.get(kind, {}),
        )
        contents = values if given else -values
        expected = contents.view(getattr(torch, view.dtype)).as_strided(view.shape, view.strides, view.offset)
        assert torch.equal(run(made, values)[0], -expected), view


@pytest.mark.parametrize("kind", ["workspace", "constant"])
def test_what_the_caller_keeps_is_not_planned_memory(kind):
    """A result changes neither with the next call, nor what that returns."""
    kept = buffer("kept", 3)
    x = buffer("x", 3)
    place = Placement("workspace", -1, 64) if kind == "workspace" else Placement("constant", 0)
    made = program(
        (x, kept), {**INPUT, "kept": place}, [neg_into(whole(x), kept)] if kind == "workspace" else [],
        [FromBuffer(whole(kept))], workspace_bytes=128 * (kind == "workspace"),
        constants={"kept": ("float32", (3,), (-torch.ones(3)).numpy().tobytes())} if kind == "constant" else {},
    )  # fmt: skip
    host = bound(made)
    (first,) = host.call([torch.ones(3)])
    (second,) = host.call([torch.full((3,), 1.0 if kind == "constant" else 5.0)])
    assert (first == -1).all()
    first.zero_()
    assert (second == (-1 if kind == "constant" else -5)).all() and (host.call([torch.ones(3)])[0] == -1).all()


def test_results_of_one_memory_are_objects_of_their_own():
    out = buffer("out", 2, 3)
    places = {**INPUT, "out": Placement("result", 0)}
    results = [FromBuffer(whole(out)), FromBuffer(whole(out))]
    one, other = run(
        program((X, out), places, [neg_into(whole(X), out)], results, result_storages=("out",)), torch.ones(2, 3)
    )
    assert one is not other and one.data_ptr() == other.data_ptr()
    one.resize_(3)
    assert other.shape == (2, 3)


def test_conjugated_results():
    x, out = buffer("x", 2, dtype="complex64"), buffer("out", 2, dtype="complex64")
    results = [
        FromBuffer(whole(out), True),
        ViewOfInput(0, "complex64", (2,), (1,), conjugate=True),
        FromBuffer(whole(out)),
    ]
    made = program(
        (x, out), {**INPUT, "out": Placement("result", 0)}, [neg_into(whole(x), out)], results, result_storages=("out",)
    )
    value = torch.tensor([1 + 2j, 3 - 4j])
    fresh, view, plain = run(made, value)
    assert fresh.is_conj() and torch.equal(fresh, (-value).conj()) and torch.equal(plain, -value)
    assert view.is_conj() and torch.equal(view, value.conj()) and view.data_ptr() == value.data_ptr()


def test_sizes_come_from_multiples_and_sums_of_them():
    n = Symbol("n")
    for size, factor, more in ((mul(n, 2), 2, 0), (add(n, 1), 1, 1), (add(mul(n, 3), -2), 3, -2)):
        x, out = Buffer("x", "float32", (size,), (1,)), Buffer("out", "float32", (n,), (1,))
        made = program((x, out), {**INPUT, "out": Placement("result", 0)}, [neg_into(TensorRef("x", "float32", (n,), (1,)), out)],
                       [FromBuffer(whole(out))], result_storages=("out",), sizes=("n",))  # fmt: skip
        host = bound(made)
        for count in (1, 5, 2):
            value = torch.randn(factor * count + more)
            assert torch.equal(host.call([value])[0], -value[:count])


def test_kernels_that_write_to_the_callers_memory_are_past_the_commit_point():
    """What fails behind them may not run again: x would be negated twice."""
    i = Symbol("i0", 0, 5)
    value = Compute("neg", (Load("x", (i,), "float32"),), "float32")
    kernel = Kernel(
        "negate", (Parameter("x", "float32", "readwrite", 6),), (Loop(Axis("i0", 6), (Store("x", (i,), value),)),)
    )
    flag = buffer("flag", dtype="bool")
    made = program(
        (X, flag), {**INPUT, "flag": Placement("input", 1)}, [Launch(0, ("x",), ()), Check("flag", "the flag is set")],
        [FromInput(0)], inputs=("x", "flag"), written_inputs=(0,),
    )  # fmt: skip
    made = replace(made, kernels=(kernel,))
    native = generate(made, Settings(), make_target("sse4", 1))
    host = Host(replace(artifact(made), native=native, host_source=host_source(made, native)))
    x = torch.ones(2, 3)
    host.call([x, torch.tensor(False)])
    assert (x == -1).all()
    with pytest.raises(IndexError, match="the flag is set"):
        host.call([x, torch.tensor(True)])
    assert (x == 1).all()

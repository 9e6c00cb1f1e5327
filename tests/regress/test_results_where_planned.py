"""What ATen and hooks give is where, and as, it was planned; views of planned memory stay inside."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

import lampwork
from lampwork.errors import CompileError
from lampwork.ir.loops import Buffer
from lampwork.ir.program import Extern, FromBuffer, Placement, Program, TensorRef
from lampwork.runtime.launch import out_arguments as given_memory
from lampwork.runtime.launch.host import Host, Rerun, view
from lampwork.runtime.launch.memory import SLACK_BYTES, new_workspace, planned
from lampwork.runtime.launch.out_arguments import ResultMoved
from tests.unit.runtime.handmade import artifact, whole

LOSSES = [F.mse_loss, F.smooth_l1_loss, F.huber_loss, F.soft_margin_loss, F.binary_cross_entropy]


@pytest.mark.parametrize("size", [4, 100])
@pytest.mark.parametrize("loss", LOSSES)
def test_losses_that_resize_their_result(loss, size):
    """`mse_loss(out=)` makes its result as large as its operands on the way: beside it lies other memory."""

    def program(x, other):
        target = (x > 0.5) if loss is not F.binary_cross_entropy else x.detach().round().double()
        made = other.mm(other)
        return made + 1, loss(x, target) * 2, made * 2

    x, other = torch.rand(size, size), torch.rand(3, 3)
    if loss is F.binary_cross_entropy:
        x = x.double()
    compiled = lampwork.compile(program, options={"cache": False})
    for _ in range(2):
        for mine, theirs in zip(compiled(x, other), program(x, other)):
            torch.testing.assert_close(mine, theirs)


def planned_as(rows: int, kind: str = "workspace", before: tuple = (), **fields):
    """`(x.neg() @ x) * 2`, whose product of 2 by 2 numbers is planned as `rows` by 2."""
    x, middle = Buffer("x", "float32", (2, 2), (2, 1)), Buffer("middle", "float32", (2, 2), (2, 1))
    product, out = Buffer("product", "float32", (rows, 2), (2, 1)), Buffer("out", "float32", (rows, 2), (2, 1))
    places = {
        "x": Placement("input", 0), "middle": Placement("workspace", 0, 0), "out": Placement("result", 0),
        "product": Placement(kind, 0, 64),
    }  # fmt: skip
    steps = (
        *before,
        Extern("aten::neg", (whole(x),), (), ("middle",), "aten::neg.out"),
        Extern("aten::mm", (whole(middle), whole(x)), (), ("product",), "aten::mm.out"),
        Extern("aten::add.Tensor", (whole(product), whole(product)), (), ("out",), "aten::add.out"),
    )
    buffers = {each.name: each for each in (x, middle, product, out)}
    program = Program((), buffers, places, steps, ("x",), (FromBuffer(whole(out)),), ("out",), 512, **fields)
    return Host(artifact(program))


@pytest.mark.filterwarnings("ignore:An output with one or more elements was resized")
@pytest.mark.parametrize("rows", [0, 1, 3, 40])
def test_a_shape_that_was_planned_wrong(rows):
    """ATen makes what it is given larger or smaller: before anything is written, so the call may run eagerly."""
    host = planned_as(rows)
    for _ in range(2):  # memory that was moved is not used again
        with pytest.raises(Rerun) as caught:
            host.call([torch.ones(2, 2)])
        assert "aten::mm.out moved" in str(caught.value.__cause__)
        with pytest.raises(LookupError):
            host.pool.pop()


@pytest.mark.filterwarnings("ignore:An output with one or more elements was resized")
def test_a_shape_that_was_planned_wrong_with_something_written():
    x = Buffer("x", "float32", (2, 2), (2, 1))
    write = Extern("aten::neg_", (whole(x),), (), (None,), None, ("x",))
    with pytest.raises(ResultMoved, match="aten::mm.out moved"):
        planned_as(3, before=(write,), written_inputs=(0,)).call([torch.ones(2, 2)])


def test_calls_are_compared_until_they_were_seen_with_these_sizes(monkeypatch):
    compared = []
    monkeypatch.setattr(given_memory, "unmoved", lambda name, *rest: compared.append(name))
    compiled = lampwork.compile(lambda x, y: (x @ y).relu() @ y, dynamic=True, options={"cache": False})
    y = torch.randn(6, 6)
    for rows in (3, 3, 4, 4, 3):
        x = torch.randn(rows, 6)
        torch.testing.assert_close(compiled(x, y), (x @ y).relu() @ y)
    assert lampwork.stats(compiled)["entries"] == 1
    assert len(compared) == (10 if lampwork.config.environment.poison else 6)


def test_views_of_planned_memory_stay_inside():
    memory = new_workspace(128)
    place = memory.data_ptr()
    assert planned(memory, torch.float32, (2, 3), (3, 1), 64, 64, 88).data_ptr() == place + 64
    for shape, offset in (((2, 4), 64), ((2, 3), 60), ((2, 3), 68), ((1000, 3), 64)):
        with pytest.raises(RuntimeError, match="reaches out of its memory"):
            planned(memory, torch.float32, shape, (3, 1), offset, 64, 88)
    with pytest.raises(RuntimeError, match="reaches out of its memory"):
        planned(memory, torch.float32, (1000,), (1,), 0)
    assert memory.data_ptr() == place and memory.numel() == 128 + SLACK_BYTES


def test_a_view_of_planned_memory_that_reaches_out_is_no_program():
    x = Buffer("x", "float32", (2, 2), (2, 1))
    for offset in (-1, 1):
        out = TensorRef("middle", "float32", (2, 2), (2, 1), offset)
        step = Extern("aten::add_.Tensor", (out, whole(x)), (), (None,), None, ("middle",))
        with pytest.raises(CompileError, match="reaches out of buffer middle"):
            planned_as(2, before=(step,))


@pytest.mark.parametrize("size", [(4, 2), (2, 3)])
def test_inputs_seen_as_complex_numbers_stay_inside_of_their_memory(size):
    x = torch.randn(2, 4)
    assert torch.equal(view(x, torch.complex64, (2, 2), (2, 1), 0), torch.view_as_complex(x.view(2, 2, 2)))
    assert torch.equal(view(x[1], torch.complex64, (1,), (1,), 1), torch.view_as_complex(x[1, 2:].view(1, 2)))
    assert torch.equal(view(x, torch.complex128, (2,), (1,), 0), x.view(torch.complex128).view(2))
    with pytest.raises(RuntimeError, match="out of bounds"):
        view(x, torch.complex64, size, (size[1], 1), 0)


@pytest.mark.parametrize("change", [lambda x: x[:2], lambda x: x.reshape(-1), lambda x: x.to("meta")])
def test_hooks_that_hand_back_other_tensors(change):
    """A kernel that expects 8 by 8 numbers reads no fewer."""

    def program(x):
        return (x.sin() * x.exp()).sum()

    compiled = lampwork.compile(program, options={"cache": False})
    x = torch.randn(8, 8, requires_grad=True)
    with torch.autograd.graph.saved_tensors_hooks(lambda tensor: tensor, change):
        result = compiled(x)
    with pytest.raises(RuntimeError, match="a hook on saved tensors was given"):
        result.backward()
    for same in (lambda tensor: tensor.t().contiguous().t(), lambda tensor: tensor.double()):
        with torch.autograd.graph.saved_tensors_hooks(lambda tensor: tensor, same):
            result = compiled(x)
        (mine,) = torch.autograd.grad(result, x)
        torch.testing.assert_close(mine, torch.autograd.grad(program(x), x)[0])

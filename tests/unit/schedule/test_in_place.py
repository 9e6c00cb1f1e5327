"""Results that take the memory of what they are made from: where that is right, and where it would not be."""

from __future__ import annotations

import copy

import pytest
import torch

import lampwork
from lampwork.ir.loops import Axis, Compute, Constant, If, Kernel, Let, Load, Local, Loop, Parameter, Store
from lampwork.ir.size import Min, Symbol
from lampwork.schedule.in_place import _accesses, _one_to_one, _same_places


def program_of(function, *args):
    """The program compiled for the call, whose result must be eager's."""
    compiled = lampwork.compile(function, options={"cache": False})
    with torch.no_grad():
        torch.testing.assert_close(compiled(*args), function(*args), rtol=1e-3, atol=1e-3)
        torch.testing.assert_close(compiled(*args), function(*args), rtol=1e-3, atol=1e-3)
    (entry,) = compiled.__lampwork__.entries
    return entry.artifact.program


def in_place(program):
    return sum(parameter.access == "readwrite" for kernel in program.kernels for parameter in kernel.parameters)


def large(*shape, seed=0):
    return torch.randn(*(shape or (512, 512)), generator=torch.Generator().manual_seed(seed)) / 4


def test_a_product_and_what_is_made_of_it():
    program = program_of(lambda x, y: torch.cos(x @ y) * 2, large(), large(seed=1))
    assert in_place(program) == 1
    assert program.workspace_bytes == 0 and len(program.buffers) == 3  # two of them the caller's


def test_a_chain_of_products():
    def function(x, y):
        for _ in range(4):
            x = torch.cos(x @ y)
        return x

    program = program_of(function, large(), large(seed=1))
    assert in_place(program) == len(program.kernels) == 1


def test_a_chain_that_begins_with_what_a_call_makes_in_another_layout():
    """Each launch of one kernel writes over the result of the one before, which is the call's by then."""

    def function(image, kernel, y):
        x = torch.nn.functional.conv2d(image, kernel).permute(0, 2, 3, 1).flatten(0, 2)
        for _ in range(4):
            x = x + torch.tanh(x @ y)
        return x

    image = large(1, 64, 64, 64).contiguous(memory_format=torch.channels_last)
    program = program_of(function, image, large(64, 64, 1, 1, seed=1) / 2, large(64, 64, seed=2) / 2)
    assert in_place(program) == len(program.kernels) == 1


def test_what_is_read_again_stays():
    def function(x, y):
        a = x @ y
        b = torch.tanh(a)
        return b @ a

    assert in_place(program_of(function, large(), large(seed=1))) == 0


def test_what_is_returned_as_well_stays():
    def function(x, y):
        a = x @ y
        return a, torch.tanh(a)

    assert in_place(program_of(function, large(), large(seed=1))) == 0


def test_what_the_caller_has_stays():
    assert in_place(program_of(lambda x: torch.tanh(x), large())) == 0


@pytest.mark.parametrize(
    "function",
    [
        lambda x, y: torch.tanh(x @ y).t().contiguous(),
        lambda x, y: torch.tanh((x @ y).roll(1, 0)),
        lambda x, y: torch.tanh((x @ y).flip(1)),
        lambda x, y: torch.tanh((x @ y)[::2]),
        lambda x, y: (x @ y).softmax(-1),
        lambda x, y: (x @ y).cumsum(0) + (x @ y).amax(),
        lambda x, y: torch.tanh(x @ y)[:, :, None].expand(512, 512, 2).contiguous(),
        lambda x, y: (x @ y).half(),
        lambda x, y: torch.nn.functional.pad(x @ y, (0, 0, 1, 0))[:512],
    ],
)
def test_what_other_elements_are_made_of(function):
    program_of(function, large(), large(seed=1))


def test_two_of_one():
    def function(x, y):
        a = x @ y
        return torch.tanh(a), torch.exp(a)

    assert in_place(program_of(function, large(), large(seed=1))) == 1


def test_a_result_in_another_layout_than_the_call_makes():
    def function(x, y):
        return torch.tanh((x @ y).view(256, 1024)) + 1

    program = program_of(function, large(), large(seed=1))
    assert in_place(program) == 1 and program.workspace_bytes == 0


def test_what_an_operator_returned_that_may_be_somebody_elses():
    kept = large()

    @torch.library.custom_op("lampwork_tests::lends", mutates_args=())
    def lends(x: torch.Tensor) -> torch.Tensor:
        return kept

    lends.register_fake(lambda x: torch.empty_like(x))
    before = kept.clone()
    assert in_place(program_of(lambda x: torch.tanh(lends(x)), large(seed=1))) == 0
    assert torch.equal(kept, before)


def clipped_step(model, optimizer):
    def step(x):
        optimizer.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 0.1)
        optimizer.step()
        return loss.detach()

    return step


def test_gradients_are_clipped_where_they_are():
    torch.manual_seed(0)
    model = torch.nn.Sequential(*[torch.nn.Linear(256, 256) for _ in range(10)])
    models = [model, copy.deepcopy(model)]
    steps = [clipped_step(each, torch.optim.AdamW(each.parameters(), fused=True)) for each in models]
    steps[1] = lampwork.compile(steps[1], options={"cache": False})
    for seed in range(4):
        for step in steps:
            step(large(16, 256, seed=seed))
    for eager, compiled in zip(models[0].parameters(), models[1].parameters()):
        torch.testing.assert_close(compiled, eager)
        torch.testing.assert_close(compiled.grad, eager.grad)
    program = steps[1].__lampwork__.entries[0].artifact.program
    assert program.workspace_bytes < 1 << 20  # 2.5 MiB of gradients are results, and nowhere else


# What kernels say of it ----------------------------------------------------------------------------------------------

I0, I1 = Symbol("i0", 0, 7), Symbol("i1", 0, 15)


def kernel(*body):
    parameters = (Parameter("b0", "float32", "read", 128), Parameter("b1", "float32", "write", 128))
    return Kernel("", parameters, body)


def loops(*body, inner=16):
    return Loop(Axis("i0", 8), (Loop(Axis("i1", inner), body, "vector"),), "parallel")


def same(*body):
    found = _accesses(kernel(*body))
    return _same_places(found["b0"], found["b1"])


def load(index):
    return Load("b0", (index,), "float32")


PLACE = 16 * I0 + I1


def test_kernels_that_may():
    assert same(loops(Store("b1", (PLACE,), load(PLACE))))
    let = Let("t0", Compute("exp", (load(PLACE),), "float32"))
    assert same(loops(let, Store("b1", (PLACE,), Compute("add", (load(PLACE), Local("t0", "float32")), "float32"))))


def test_kernels_that_may_not():
    store = Store("b1", (PLACE,), Local("t0", "float32"))
    value = Let("t0", load(PLACE))
    late = Let("t1", load(PLACE))
    assert not same(loops(value, store, late))  # reads what it has written
    assert not same(loops(Let("t0", load(PLACE + 1)), store))
    assert not same(loops(Let("t0", load(I0 + 8 * I1)), store))
    assert not same(loops(value, If(Constant(True, "bool"), (store,))))
    assert not same(loops(Let("t1", load(PLACE))), loops(value, store))
    assert not same(loops(value, store, Store("b1", (PLACE,), Local("t0", "float32"))))
    add = Store("b1", (PLACE,), Local("t0", "float32"), "add")
    assert not same(loops(value, add))


def test_places_that_iterations_share():
    nested = (Loop(Axis("i0", 8), ()), Loop(Axis("i1", 16), ()))
    assert _one_to_one(16 * I0 + I1, nested)
    assert _one_to_one(I0 + 8 * I1, nested)
    assert not _one_to_one(I1, nested)
    assert not _one_to_one(8 * I0 + I1, nested)
    assert not _one_to_one(PLACE + Symbol("s0", 0, 4), nested)
    short = (nested[0], Loop(Axis("i1", Min(16, 128 - 16 * I0)), ()))
    assert _one_to_one(16 * I0 + I1, short)
    unknown = (Loop(Axis("i0", Symbol("s0", 1, 1 << 40)), ()), nested[1])
    assert _one_to_one(16 * I0 + I1, unknown) and not _one_to_one(I0 + 8 * I1, unknown)

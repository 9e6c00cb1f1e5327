"""Families of small programs that a pass could get wrong: writes through every view, inputs that overlap, calls that differ in
little, results in one memory. The prepared graph gives what eager gives: values, strides, and who shares memory.
"""

from __future__ import annotations

import itertools
import random

import pytest
import torch

from lampwork.capture.record.recorder import record
from lampwork.config import Settings
from lampwork.debug.interpret.graphs import run_functional
from lampwork.graph.prepare import prepare


def sharing(tensors):
    """Which tensors lie in one storage, and how far apart they begin."""
    facts = []
    for left, right in itertools.combinations(tensors, 2):
        same = left.untyped_storage().data_ptr() == right.untyped_storage().data_ptr()
        facts.append(right.data_ptr() - left.data_ptr() if same else None)
    return facts


def check(program, make):
    """`make` gives the inputs afresh."""
    with torch.no_grad():
        functional = prepare(record(program, make()), Settings())
        inputs, eager_inputs = make(), make()
        expected = program(*eager_inputs)
    expected = expected if isinstance(expected, tuple) else (expected,)
    found = run_functional(functional, inputs)
    for got, want in zip([*found, *inputs], [*expected, *eager_inputs], strict=True):
        torch.testing.assert_close(got, want, rtol=0, atol=0, equal_nan=True, check_stride=True)
    assert sharing([*found, *inputs]) == sharing([*expected, *eager_inputs])


# Copies of a part ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("copied", [
    lambda x: x[2:].clone(), lambda x: (x * 2)[2:].clone(), lambda x: x.exp()[1:].to(torch.float32, copy=True),
])  # fmt: skip
@pytest.mark.parametrize("counting", [
    lambda y: y.as_strided((2, 2), (1, 2), 0) + 1,
    lambda y: torch.as_strided_scatter(y, torch.ones(2), (2,), (1,), 0),
    lambda y: (y.as_strided((2,), (1,), 0).add_(5), y * 1)[1],
    lambda y: torch.view_as_complex(y[:6].view(3, 2)) * 1,
    lambda y: y[:6].view(torch.float64) * 1,
])  # fmt: skip
def test_a_copy_begins_where_its_memory_does(copied, counting):
    """Views of it count from there, and not from the beginning of what it is a copy of."""
    check(lambda x: counting(copied(x)), lambda: (torch.arange(8.0),))


# Writes through views ------------------------------------------------------------------------------------------------

#: Views of a tensor of shape (2, 3, 4); no two extents are equal, and no permutation but the named ones is its own inverse.
VIEWS = {
    "view": lambda x: x.view(6, 4),
    "view in parts": lambda x: x.view(2, 3, 2, 2),
    "permute": lambda x: x.permute(1, 2, 0),
    "permute back": lambda x: x.permute(2, 0, 1),
    "permute from the end": lambda x: x.permute(-1, 0, -2),
    "transpose": lambda x: x.transpose(0, 2),
    "movedim": lambda x: x.movedim(0, 2),
    "select": lambda x: x.select(1, 2),
    "slice": lambda x: x[:, 1:, ::2],
    "narrow": lambda x: x.narrow(2, 1, 2),
    "unsqueeze": lambda x: x.unsqueeze(1),
    "squeeze": lambda x: x[:, :1].squeeze(1),
    "diagonal": lambda x: x.diagonal(1, 1, 2),
    "unfold": lambda x: x.unfold(2, 2, 2),
    "split": lambda x: x.split([1, 3], 2)[1],
    "chunk": lambda x: x.chunk(2, 1)[1],
    "unbind": lambda x: x.unbind(2)[3],
    "as_strided": lambda x: x.as_strided((2, 3), (1, 5), 3),
    "flatten": lambda x: x.flatten(1),
    "alias": lambda x: x.detach(),
    "view as integers": lambda x: x.view(torch.int32),
    "real parts": lambda x: x.view(2, 3, 2, 2).permute(1, 0, 2, 3),
}
WRITES = {
    "mul_": lambda v, x: v.mul_(2),
    "add_": lambda v, x: v.add_(v.clone()),
    "copy_": lambda v, x: v.copy_(torch.arange(v.numel()).view(v.shape).to(v.dtype)),
    "fill_": lambda v, x: v.fill_(7),
    "out": lambda v, x: torch.add(v.clone(), 1, out=v),
    "item": lambda v, x: v.__setitem__(slice(1), 5),
    "foreach": lambda v, x: torch._foreach_add_([v], 3),
}


@pytest.mark.parametrize("view", VIEWS)
def test_writes_through_a_view(view):
    """Of an input, and of a tensor that the program made; read through the view, beside it, and behind another view."""
    take = VIEWS[view]
    for write in WRITES.values():

        def program(x):
            own = x * 1
            for each in (x, own):
                before = take(each)
                write(before, each)
                each.view(-1)[5:9].mul_(3)
                write(take(each), each)
            return x + 1, own, take(own) * 1, take(x).sum(0)

        check(program, lambda: (torch.arange(24.0).view(2, 3, 4) / 4,))


@pytest.mark.parametrize(("outer", "inner"), [(a, b) for a in list(VIEWS)[2:6] for b in ("permute", "slice", "select")])
def test_writes_through_a_view_of_a_view(outer, inner):
    def program(x):
        y = x.clone()
        for each in (x, y):
            VIEWS[inner](VIEWS[outer](each)).mul_(2)
        return y, x.sum(2)

    check(program, lambda: (torch.arange(60.0).view(3, 4, 5)[:, :, :],))


# Inputs that overlap ----------------------------------------------------------------------------------------------------

#: Writes to `y`, which overlaps `x`; `z` is memory of its own.
WRITES_TO_INPUTS = {
    "method": lambda x, y, z: y.mul_(2),
    "copy_": lambda x, y, z: y.copy_(z),
    "out": lambda x, y, z: torch.mul(z, 2, out=y),
    "out of two": lambda x, y, z: torch.frexp(z, out=(y, torch.empty(6, dtype=torch.int32))),
    "item": lambda x, y, z: y.__setitem__(slice(0, 3), 9),
    "through a view": lambda x, y, z: y[::2].neg_(),
    "foreach": lambda x, y, z: torch._foreach_mul_([z, y], 2),
    "foreach with a list": lambda x, y, z: torch._foreach_copy_([y], [z]),
    "addcmul": lambda x, y, z: y.addcmul_(z, z, value=2),
    "keyword": lambda x, y, z: torch.sin(input=z, out=y),
    "index_put_": lambda x, y, z: y.index_put_((torch.tensor([1, 4]),), torch.tensor(3.0)),
    "set by a mask": lambda x, y, z: y.masked_fill_(z > 0, 8),
}
OVERLAPS = {
    "shifted": lambda base: (base[:6], base[2:8], base[20:26] * 1),
    "the same": lambda base: (base[:6], base[:6], base[20:26] * 1),
    "every other": lambda base: (base[:12:2], base[2:14:2], base[20:26] * 1),
    "one beside another in a third": lambda base: (base[:12], base[2:8], base[9:15]),
    "one behind another in the first": lambda base: (base[:12], base[8:14], base[1:7]),
    "apart": lambda base: (base[:6], base[6:12], base[20:26]),
}


@pytest.mark.parametrize("overlap", OVERLAPS)
@pytest.mark.parametrize("write", WRITES_TO_INPUTS)
def test_writes_to_inputs_that_overlap(write, overlap):
    def program(x, y, z):
        before = x * 2
        WRITES_TO_INPUTS[write](x, y, z)
        return before, x + 1, y - z

    check(program, lambda: OVERLAPS[overlap](torch.arange(30.0)))


# Writes of other types ---------------------------------------------------------------------------------------------------

#: What is written is computed in a wider type than the memory's, which rounds it.
ROUNDED = {
    "wider floats": (torch.float16, lambda y, z: y.mul_(z)),
    "wider integers": (torch.int8, lambda y, z: y.mul_((z * 50).long())),
    "a slice": (torch.float16, lambda y, z: y[1:].add_(z[1:])),
    "copy_": (torch.int8, lambda y, z: y.copy_(z)),
    "copy_ to true and false": (torch.bool, lambda y, z: y.copy_(z)),
    "item": (torch.int8, lambda y, z: y.__setitem__(0, 2.7)),
    "items": (torch.bfloat16, lambda y, z: y.__setitem__(slice(1, 3), z[1:3])),
    "out": (torch.float16, lambda y, z: torch.exp(z, out=y)),
    "and": (torch.int8, lambda y, z: y.logical_and_(z)),
    "comparison": (torch.float16, lambda y, z: y.gt_(z)),
    "foreach": (torch.float16, lambda y, z: torch._foreach_mul_([y], [z])),
}


@pytest.mark.parametrize("name", ROUNDED)
@pytest.mark.parametrize("memory", ["fresh", "an input", "a diagonal", "every other", "shared by two inputs"])
def test_what_is_written_has_the_type_of_the_memory(name, memory):
    dtype, write = ROUNDED[name]

    def program(x, y, z):
        if memory not in ("an input", "shared by two inputs"):
            x = x.clone()
            y = {"fresh": x, "a diagonal": x.view(4, 4).diagonal(), "every other": x.as_strided((4,), (2,), 1)}[memory]
        write(y[:4], z)
        return x + 1, y + y, y.sum()

    def make():
        base = torch.arange(16).to(dtype)
        y = {"an input": base.clone(), "shared by two inputs": base[3:9]}.get(memory, base.clone())
        return base, y, torch.tensor([1.2345678, -0.3, 1000.7, 0.1])

    check(program, make)


@pytest.mark.parametrize("start", [0, 3])
@pytest.mark.parametrize("steps", [(1, 1), (6, 2), (2, 6)])
def test_writes_through_strides_of_a_part_of_a_storage(steps, start):
    """`as_strided` counts from the beginning of the storage."""

    def program(x):
        y = x.clone()
        for each, offset in ((x, start + 2), (y, 1)):
            each.as_strided((2, 3) if steps[0] > 1 else (2, 1), steps, offset).mul_(2)
        return y, x + 1

    check(program, lambda: (torch.arange(30.0)[start : start + 24],))


# Calls that differ in little -----------------------------------------------------------------------------------------------

M = torch.tensor([[True, False, True], [False, False, True]])
X = torch.tensor([[1.0, -2.0, 0.0], [3.5, -0.0, 2.0]])
#: Pairs of calls, which must stay two.
PAIRS = {
    "1 and True": (lambda m, x: m + 1, lambda m, x: m + True),
    "1 and 1.0": (lambda m, x: m * 1, lambda m, x: m * 1.0),
    "0.0 and -0.0": (lambda m, x: x / 0.0, lambda m, x: x / -0.0),
    "0 and False": (lambda m, x: torch.where(m, m, 0), lambda m, x: torch.where(m, m, False)),
    "numbers in lists": (lambda m, x: x.new_full([2], 1), lambda m, x: x.new_full([2], 1, dtype=torch.int64)),
    "full": (lambda m, x: torch.full((2, 3), 1), lambda m, x: torch.full((2, 3), True)),
    "a dimension": (lambda m, x: x.sum(0, keepdim=True), lambda m, x: x.sum(1, keepdim=True)),
    "a keyword": (lambda m, x: torch.sum(x, 1, keepdim=True), lambda m, x: torch.sum(x, 1, keepdim=True, dtype=torch.int32)),
    "alpha": (lambda m, x: torch.add(x, x, alpha=2), lambda m, x: torch.add(x, x, alpha=3)),
    "alpha of another type": (lambda m, x: torch.add(m, m, alpha=1), lambda m, x: torch.add(m, m, alpha=True)),
    "rounding": (
        lambda m, x: torch.div(x, 2, rounding_mode="floor"), lambda m, x: torch.div(x, 2, rounding_mode="trunc"),
    ),
    "order of arguments": (lambda m, x: x - x.exp(), lambda m, x: x.exp() - x),
    "types": (lambda m, x: x.to(torch.int32), lambda m, x: x.to(torch.int64)),
    "none": (lambda m, x: x.clamp(None, 1), lambda m, x: x.clamp(1, None)),
    "correction": (lambda m, x: x.var(1, correction=0), lambda m, x: x.var(1, correction=1)),
    "nan": (lambda m, x: x.nan_to_num(1.0) / x, lambda m, x: x.nan_to_num(2.0) / x),
}  # fmt: skip


@pytest.mark.parametrize("pair", PAIRS)
def test_calls_that_differ_in_little(pair):
    first, second = PAIRS[pair]
    for one, other in ((first, second), (second, first)):

        def program(m, x):
            left, right = one(m, x), other(m, x)
            again = one(m, x)
            return left.sum() + 0, right.sum() + 0, right.float() * 3, left.float() - 1, again.to(left.dtype).double()

        check(program, lambda: (M.clone(), X.clone()))


# Views that are nothing, results in one memory ---------------------------------------------------------------------------------

RESULTS = {
    "copy of a result": lambda x, y: ((s := x + y), s.clone()),
    "copy first": lambda x, y: ((s := x + y).clone(), s),
    "twice": lambda x, y: ((s := x + y), s),
    "copy and its copy": lambda x, y: ((s := (x + y).clone()), s.clone(), s.clone().clone()),
    "a view of a result": lambda x, y: ((s := x + y), s[1:], s.t()),
    "a copied view of a result": lambda x, y: ((s := x + y), s.view(6).clone(), s.t().clone()),
    "equal work": lambda x, y: (x + y, x + y),
    "equal work in views": lambda x, y: ((x + y).t(), (x + y).view(6)),
    "a cast that is none": lambda x, y: ((s := x * y), s.to(torch.float32, copy=True), s.to(torch.float32)),
    "contiguous": lambda x, y: ((s := x * y), s.contiguous(), s.t().contiguous()),
    "all of a result": lambda x, y: ((s := x * 2), s[:], s.view(2, 3)),
    "written in another type": lambda x, y: ((s := x.half()).mul_(y), s + 1, x.int().add_(y > 3), x.double().copy_(y)),
    "copy of an input": lambda x, y: (x.clone(), x, y.t().clone(), x.view(6)),
    "input that was written": lambda x, y: (x.add_(1), x.clone(), x * 1, y.copy_(x)),
    "literals": lambda x, y: ((c := torch.tensor([1.0, 2.0])), c.clone(), torch.tensor([1.0, 2.0]), x + c.sum()),
    "constants": lambda x, y: (torch.zeros(2), torch.zeros(2), x * 0),
    "elsewhere in the storage": lambda x, y: (x.as_strided((2, 3), (3, 1), 3) + 1, x.as_strided((2, 3), (3, 1)) * 2),
    "elsewhere, of a copy": lambda x, y: ((s := x[1:].clone()).as_strided((2,), (1,), 1) + 1, s * 1),
    "elsewhere, of a cast": lambda x, y: (x[1].to(torch.float32, copy=True).as_strided((2,), (1,), 0) + 1,),
    "a transposed square": lambda x, y: (s := (x @ y.t()), s.t() * 1, s.t().t(), s.permute(0, 1) + 1, s.transpose(0, 0) + 1),
    "an expanded row": lambda x, y: (x[0].expand(3, 3).t() + 1, x[:, :1].expand(2, 2).permute(1, 0) * 1),
    "reshapes of gaps": lambda x, y: (
        y.unsqueeze(0).squeeze(0) * 1, x[:, ::2].unsqueeze(1).squeeze(1), x.t().unsqueeze(0).reshape(1, 3, 2) + 1,
        x[:, 1:].view(2, 2, 1).view(2, 1, 2), y[:, :1].unsqueeze(0).squeeze(0).squeeze(1),
    ),
}  # fmt: skip


@pytest.mark.parametrize("results", RESULTS)
def test_results(results):
    def make():
        base = torch.arange(18.0) / 3
        return base[2:8].view(2, 3), base[9:15].view(3, 2).t()

    check(RESULTS[results], make)


@pytest.mark.parametrize("part", range(4))
def test_chains_of_views(part):
    """Views by shape after one another, of tensors that are dense, permuted or have gaps, with dimensions of size 1."""
    for seed in range(part, 120, 4):
        chooser = random.Random(seed)
        shape = [chooser.choice([1, 1, 2, 3, 4]) for _ in range(chooser.randint(2, 4))]
        order = chooser.sample(range(len(shape)), len(shape))
        gaps = chooser.choice([1, 1, 2])

        def make():
            whole = torch.arange(float(torch.Size(shape).numel() * gaps ** len(shape))).view([n * gaps for n in shape])
            return (whole[tuple([slice(0, None, gaps)] * len(shape))].permute(order),)

        check(lambda x: (y := chain(x if seed % 3 else x + 1, seed), y * 1), make)


def chain(y, seed):
    """Some views of `y`; those that are none of its memory are left out."""
    chooser = random.Random(seed)
    for _ in range(chooser.randint(2, 5)):
        kind = chooser.choice(["unsqueeze", "squeeze", "view", "flatten", "reshape", "permute"])
        if kind == "unsqueeze":
            y = y.unsqueeze(chooser.randint(0, y.dim()))
        elif kind == "squeeze":
            y = y.squeeze(chooser.randint(0, max(y.dim() - 1, 0)))
        elif kind == "flatten":
            y = y.flatten()
        elif kind == "permute":
            y = y.permute(chooser.sample(range(y.dim()), y.dim()))
        elif y.dim():
            place = chooser.randrange(y.dim())
            factor = chooser.choice([each for each in (1, 2, 3, 4) if y.shape[place] % each == 0])
            new = [*y.shape[:place], factor, y.shape[place] // factor, *y.shape[place + 1 :]]
            try:
                y = y.view(new) if kind == "view" else y.reshape(new)
            except RuntimeError:
                pass
    return y

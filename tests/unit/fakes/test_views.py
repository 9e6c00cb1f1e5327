"""Each rule of a view operator, on every small argument, against the kernel: sizes, strides, offset, and what it refuses."""

from __future__ import annotations

import itertools

import pytest
import torch

from lampwork.fakes.views import RULES, Layout

aten = torch.ops.aten


def bases() -> list[torch.Tensor]:
    plain = [torch.zeros(shape) for shape in [(), (0,), (1,), (4,), (2, 3), (3, 1), (2, 0), (2, 3, 4), (1, 4, 1)]]
    moved = [
        torch.zeros(4, 6)[1:3, 1::2],
        torch.zeros(3, 2).t(),
        torch.zeros(3, 1).expand(3, 4),
        torch.zeros(2, 3, 4).permute(2, 0, 1),
        torch.zeros(12)[3:7],
        torch.zeros(()).expand(2, 3),
        torch.zeros(4, 6, dtype=torch.complex64)[1:3, 1::2],
        torch.zeros(3, 2),
        torch.zeros(5, 4, 2)[1:, ::2],
        torch.zeros(3, 3)[:, :2],
        torch.zeros(9)[1:].view(4, 2),
        torch.zeros(2, 3, dtype=torch.bfloat16).mT,
    ]
    return plain + moved


DIMS = range(-4, 4)
SIZES = [
    (),
    *itertools.product((-2, -1, 0, 1, 2, 3, 6), repeat=1),
    *itertools.product((-2, -1, 0, 1, 2, 3, 6), repeat=2),
]
SIZES += [(2, 3, 4), (4, -1, 2), (-1, 2, 3), (1, 2, 3), (-1, -1, -1), (2, 2, 3, 2)]

ARGUMENTS = {
    aten.alias.default: [()],
    aten.detach.default: [()],
    aten.lift_fresh.default: [()],
    aten.view.default: [(size,) for size in SIZES],
    aten._unsafe_view.default: [(size,) for size in SIZES],
    aten.expand.default: [(size,) for size in SIZES],
    aten.permute.default: [(dims,) for rank in range(4) for dims in itertools.product((-2, -1, 0, 1, 2), repeat=rank)],
    aten.transpose.int: [*itertools.product(DIMS, DIMS)],
    aten.t.default: [()],
    aten.unsqueeze.default: [(dim,) for dim in DIMS],
    aten.squeeze.default: [()],
    aten.squeeze.dim: [(dim,) for dim in DIMS],
    aten.squeeze.dims: [(dims,) for rank in range(3) for dims in itertools.product((-2, -1, 0, 1, 2), repeat=rank)],
    aten.slice.Tensor: [
        *itertools.product((0, -1, 1, 3), (None, -9, -1, 0, 1, 9), (None, -9, -1, 0, 2, 9), (-1, 0, 1, 2))
    ],
    aten.select.int: [*itertools.product((0, -1, 1, 3), range(-4, 5))],
    aten.split.Tensor: [*itertools.product((-1, 0, 1, 2, 3, 9), (0, -1, 1, 3))],
    aten.split_with_sizes.default: [
        *itertools.product([(), (0,), (1,), (4,), (2, 1), (1, 1), (-1, 3), (3, -1), (5, -1), (4, 0)], (0, -1, 1, 3))
    ],
    aten.unbind.int: [(dim,) for dim in DIMS],
    aten.diagonal.default: [*itertools.product((-5, -1, 0, 1, 5), (0, 1, -1, 3), (0, 1, -2, 3))],
    aten.unfold.default: [*itertools.product((0, -1, 1, 3), (-1, 0, 1, 2, 9), (-1, 0, 1, 2))],
    aten.as_strided.default: [
        *itertools.product(
            [(), (0,), (2,), (2, 1), (-1,), (2, 2, 2)], [(), (0,), (1,), (2, 1), (-1,), (1, 1, 1)], (None, -1, 0, 2)
        )
    ],
    aten._reshape_alias.default: [*itertools.product([(), (2,), (2, 3)], [(), (1,), (3, 1)])],
    aten.view_as_real.default: [()],
    aten.view_as_complex.default: [()],
}


def of_kernel(op, *args):
    """What the kernel makes, or the type of what it raises. None for what no rule answers for: views that leave their
    storage, and those of a negative size, which `expand` makes where another size is 0."""
    try:
        made = op(*args)
    except (RuntimeError, IndexError, ValueError) as error:
        return None if "out of bounds for storage" in str(error) else type(error)
    views = made if isinstance(made, list) else [made]
    if any(size < 0 for each in views for size in each.shape):
        return None
    return [(tuple(each.shape), each.stride(), each.storage_offset()) for each in views]


def of_rule(op, *args):
    """What the rule makes, or the type of what it raises. None for what it leaves to the kernel."""
    try:
        made = RULES[op](*args)
    except (RuntimeError, IndexError, ValueError) as error:
        return type(error)
    if made is None:
        return None
    return [
        (tuple(each.shape), tuple(each.strides), each.offset) for each in ([made] if isinstance(made, Layout) else made)
    ]


@pytest.mark.parametrize("op", sorted(RULES, key=str), ids=str)
def test_a_rule_is_its_kernel(op):
    compared, wrong = 0, []
    for base in bases():
        for args in ARGUMENTS[op]:
            found, expected = of_rule(op, base, *args), of_kernel(op, base, *args)
            if found is None or expected is None:
                continue
            compared += 1
            if found != expected:
                wrong.append(f"{op}({tuple(base.shape)} {base.stride()}, {args}): {found}, the kernel {expected}")
    assert not wrong, f"{len(wrong)} of {compared}:\n" + "\n".join(wrong[:20])
    assert compared


def test_every_rule_is_tried():
    assert ARGUMENTS.keys() == RULES.keys()

"""`python -m tests.ops.layouts`: strides of results where no kernel is asked, as for large tensors, against eager's.

    python -m tests.ops.layouts                every operator, operands laid out in reverse and with channels last
    python -m tests.ops.layouts --dynamic      with sizes that vary
    python -m tests.ops.layouts nn.functional.pad conv

Small calls are made to learn what a kernel returns (`lampwork/fakes/kernels.py`), so ordinary samples see no mistake of
a shape rule or of a meta kernel in a layout. Here such calls are not made. Exit status 1 where strides differ in a
dimension of more than one element.
"""

from __future__ import annotations

import itertools
import sys
from typing import Any

from tests.ops.unasked import arguments as command_line
from tests.ops.unasked import compiled, operators
from tests.ops.unasked import samples as samples_of

SAMPLES = 12


def turned(value: Any, order_of: Any) -> Any:
    """The same numbers, each tensor of two dimensions or more in memory of that order of dimensions."""
    import torch

    if isinstance(value, torch.Tensor):
        if value.layout != torch.strided or value.dim() < 2 or not value.numel():
            return value
        order = order_of(value.dim())
        return value.detach().permute(order).contiguous().permute([order.index(dim) for dim in range(value.dim())])
    if type(value) in (list, tuple):
        return type(value)(turned(each, order_of) for each in value)
    return value


ORDERS = {
    "in reverse": lambda dims: tuple(reversed(range(dims))),
    "channels last": lambda dims: (0, *range(2, dims), 1) if dims > 2 else (1, 0),
}


def layouts(value: Any) -> list[tuple[tuple[int, ...], tuple[int, ...]]]:
    """Sizes, and strides of dimensions of more than one element, of every tensor in a result."""
    import torch

    if isinstance(value, torch.Tensor):
        if value.layout != torch.strided or not value.numel():
            return []
        strides = [step if size > 1 else 0 for size, step in zip(value.shape, value.stride())]
        return [(tuple(value.shape), tuple(strides))]
    return [found for each in value for found in layouts(each)] if isinstance(value, (tuple, list)) else []


def differences(op: Any, dynamic: bool) -> tuple[int, str]:
    """How many calls were compared, and the first that differs, in words."""
    import torch

    calls = 0
    function = op.get_op()
    for sample, (how, order_of) in itertools.product(samples_of(op, SAMPLES), ORDERS.items()):
        arguments = turned((sample.input, *sample.args), order_of)
        named = {name: turned(value, order_of) for name, value in sample.kwargs.items()}
        try:
            torch.manual_seed(1)
            expected = layouts(function(*arguments, **named))
        except Exception:
            continue
        torch.manual_seed(1)
        found = layouts(compiled(function, named, dynamic)(*arguments))
        calls += 1
        if found != expected:
            return calls, f"{how}: {found} instead of {expected}"
    return calls, ""


def main() -> int:
    options = command_line("tests.ops.layouts", __doc__.splitlines()[0], "sizes vary")
    chosen = operators(options.names)

    from rich.progress import track

    from lampwork.fakes import kernels

    kernels.LARGEST = -1
    calls = wrong = failed = 0
    for op in track(chosen, "layouts", disable=not sys.stderr.isatty()):
        label = f"{op.name} {op.variant_test_name}".strip()
        try:
            made, difference = differences(op, options.dynamic)
        except Exception as error:
            failed += 1
            print(f"{label}: {type(error).__name__}: {str(error).splitlines()[0][:160]}", flush=True)
            continue
        calls += made
        if difference:
            wrong += 1
            print(f"{label}: {difference}", flush=True)
    print(f"{len(chosen)} operators, {calls} calls: {wrong} operators with other strides, {failed} failed")
    return 1 if wrong or failed else 0


if __name__ == "__main__":
    sys.exit(main())

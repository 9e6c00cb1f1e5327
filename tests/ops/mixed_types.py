"""`python -m tests.ops.mixed_types`: types and sizes of results, and errors, where one operand has another type.

    python -m tests.ops.mixed_types              every operator, as for large tensors: no kernel is asked
    python -m tests.ops.mixed_types --dynamic    with sizes that vary
    python -m tests.ops.mixed_types addr loss

Small calls are made to learn what a kernel returns (`lampwork/fakes/kernels.py`), so ordinary samples see no mistake of
a shape rule or of a meta kernel. Exit status 1 where types or sizes of results differ from eager's. Where eager raises
and we do not, that is counted: types that a kernel lacks are known to kernels alone.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable, Iterator
from typing import Any

from tests.ops.unasked import arguments as command_line
from tests.ops.unasked import compiled, operators
from tests.ops.unasked import samples as samples_of

SAMPLES = 6
TYPES = ("float16", "float64", "int64", "bool", "complex64")


def places(value: Any, path: tuple = ()) -> Iterator[tuple]:
    """Where tensors lie in nested arguments."""
    import torch

    if isinstance(value, torch.Tensor):
        yield path
    elif isinstance(value, (list, tuple, dict)):
        for key, each in value.items() if isinstance(value, dict) else enumerate(value):
            yield from places(each, (*path, key))


def replaced(value: Any, path: tuple, change: Callable) -> Any:
    """The same arguments with the tensor at `path` changed."""
    if not path:
        return change(value)
    inner = lambda key, each: replaced(each, path[1:], change) if key == path[0] else each
    if isinstance(value, dict):
        return {key: inner(key, each) for key, each in value.items()}
    return type(value)(inner(key, each) for key, each in enumerate(value))


def outline(function: Callable, arguments: tuple, named: dict) -> Any:
    """Types and sizes of the results, or the type of the exception."""
    import torch

    def of(value: Any) -> list:
        if isinstance(value, torch.Tensor):
            return [(str(value.dtype), tuple(value.shape))]
        return [found for each in value for found in of(each)] if isinstance(value, (tuple, list)) else [type(value)]

    torch.manual_seed(1)
    try:
        return of(function(*arguments, **named))
    except Exception as error:
        return type(error)


def compare(op: Any, dynamic: bool) -> tuple[int, int, list[str]]:
    """How many calls were compared, how many lost eager's exception, and those with other results, in words."""
    import torch

    function, calls, lost, others = op.get_op(), 0, 0, []
    for sample in samples_of(op, SAMPLES):
        whole = ((sample.input, *sample.args), dict(sample.kwargs))
        for path, name in itertools.product(list(places(whole)), TYPES):
            try:
                arguments, named = replaced(whole, path, lambda each: each.detach().to(getattr(torch, name)))
            except Exception:
                continue
            expected = outline(function, arguments, named)
            found = outline(compiled(function, named, dynamic), arguments, {})
            calls += 1
            if type(expected) is type and type(found) is list:
                lost += 1
            elif type(expected) is list and found != expected:
                others.append(f"operand {path} as {name}: {found} instead of {expected}")
    return calls, lost, others


def main() -> int:
    options = command_line(
        "tests.ops.mixed_types", __doc__.splitlines()[0], "sizes vary; small kernels are asked as usual"
    )
    chosen = operators(options.names)

    from rich.progress import track

    from lampwork.fakes import kernels

    if not options.dynamic:
        kernels.LARGEST = -1
    calls = lost = wrong = 0
    for op in track(chosen, "types", disable=not sys.stderr.isatty()):
        made, without, others = compare(op, options.dynamic)
        calls, lost, wrong = calls + made, lost + without, wrong + bool(others)
        for each in others[:1]:
            print(f"{op.name} {op.variant_test_name}".strip() + f": {each}", flush=True)
    print(
        f"{len(chosen)} operators, {calls} calls: {wrong} operators with other results; {lost} calls lost an exception"
    )
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())

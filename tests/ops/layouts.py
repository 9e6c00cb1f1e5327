"""`python -m tests.ops.layouts`: strides of results where kernels are asked on small operands alone, as for large
tensors, against eager's.

    python -m tests.ops.layouts                every operator, each sample with operands laid out by chance
    python -m tests.ops.layouts --dynamic      with sizes that vary
    python -m tests.ops.layouts nn.functional.pad conv

Small calls are made to learn what a kernel returns (`lampwork/fakes/kernels.py`), so ordinary samples see no mistake of
a shape rule or of a meta kernel in a layout. Here such calls are not made. Some dimensions are cut to one element, and
each operand lies in memory in an order of its own, with gaps or without. Exit status 1 where strides differ in a
dimension of more than one element; others, which reach no element, are told.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Callable
from typing import Any

from tests.ops.unasked import arguments as command_line
from tests.ops.unasked import compiled, operators
from tests.ops.unasked import samples as samples_of

SAMPLES, KEPT, TRIALS = 24, 5, 24
#: They trust that statistics are as long as there are channels: with other operands eager writes outside of memory.
LEFT_OUT = ("native_batch_norm", "_native_batch_norm_legit", "_batch_norm_with_update")
#: Dimensions that are cut to one element.
CUT: tuple[tuple[int, ...], ...] = ((), (), (0,), (1,), (-1,), (-2,), (0, 1), (0, -1), (1, 2), (0, 2))


def in_tensors(change: Callable, value: Any) -> Any:
    """Nested arguments with each dense tensor of some elements changed."""
    import torch

    if isinstance(value, torch.Tensor):
        return change(value.detach()) if value.layout == torch.strided and value.numel() else value
    return type(value)(in_tensors(change, each) for each in value) if type(value) in (list, tuple) else value


def shortened(dims: tuple[int, ...]) -> Callable:
    def change(x: Any) -> Any:
        for dim in dims:
            if -x.dim() <= dim < x.dim():
                x = x.narrow(dim, 0, 1)
        return x

    return change


def laid_out(choose: random.Random) -> Callable:
    """Puts a tensor in memory in some order of its dimensions, at times with gaps, and other strides where they say
    nothing."""
    import torch

    def change(x: Any) -> Any:
        if not x.dim() or choose.random() < 0.35:
            return x
        order = list(range(x.dim()))
        if choose.random() < 0.85:
            choose.shuffle(order)
        found = x.permute(order).contiguous()
        if choose.random() < 0.3:
            dim = choose.randrange(x.dim())
            found = torch.cat([found, found], dim).narrow(dim, 0, found.shape[dim])
        found = found.permute([order.index(dim) for dim in range(x.dim())])
        if choose.random() < 0.3:
            step = choose.choice((1, 7, 100))
            strides = [step if size == 1 else each for size, each in zip(found.shape, found.stride())]
            found = found.as_strided(found.shape, strides)
        return found

    return change


def layouts(value: Any) -> list[tuple[tuple[int, ...], tuple[int, ...]]]:
    """Sizes and strides of every tensor in a result that has elements."""
    import torch

    if isinstance(value, torch.Tensor):
        dense = value.layout == torch.strided and value.numel()
        return [(tuple(value.shape), tuple(value.stride()))] if dense else []
    return [found for each in value for found in layouts(each)] if isinstance(value, (tuple, list)) else []


def reaching(found: list[tuple[tuple[int, ...], tuple[int, ...]]]) -> list[list[int]]:
    """Strides of dimensions of more than one element."""
    return [[step for size, step in zip(sizes, strides) if size > 1] for sizes, strides in found]


def differences(op: Any, dynamic: bool) -> tuple[int, str, bool]:
    """How many calls were compared, the first that differs, in words, and whether any reaches other elements."""
    import torch

    calls, words, function = 0, "", op.get_op()
    # Those of most dimensions say most.
    samples = sorted(samples_of(op, SAMPLES), key=lambda each: -getattr(each.input, "ndim", 0))[:KEPT]
    for trial in range(TRIALS if samples else 0):
        choose = random.Random(f"{op.name} {trial}")
        sample = samples[trial % len(samples)]
        shorter, laid = shortened(choose.choice(CUT)), laid_out(choose)
        change = lambda value: in_tensors(laid, in_tensors(shorter, value))
        named = {name: change(value) for name, value in sample.kwargs.items()}
        if "reduction" in named and choose.random() < 0.7:
            named["reduction"] = "none"
        arguments = change((sample.input, *sample.args))
        try:
            torch.manual_seed(1)
            expected = layouts(function(*arguments, **named))
        except Exception:
            continue
        torch.manual_seed(1)
        found = layouts(compiled(function, named, dynamic)(*arguments))
        calls += 1
        if found != expected and not words:
            words = f"{layouts(arguments)}: {found} instead of {expected}"
        if reaching(found) != reaching(expected):
            return calls, f"{layouts(arguments)}: {found} instead of {expected}", True
    return calls, words, False


def main() -> int:
    options = command_line("tests.ops.layouts", __doc__.splitlines()[0], "sizes vary")
    chosen = [op for op in operators(options.names) if op.name not in LEFT_OUT]

    from rich.progress import track

    from lampwork.fakes import kernels

    kernels.LARGEST = -1
    calls = wrong = of_one = failed = 0
    for op in track(chosen, "layouts", disable=not sys.stderr.isatty()):
        label = f"{op.name} {op.variant_test_name}".strip()
        try:
            made, difference, reaches = differences(op, options.dynamic)
        except Exception as error:
            failed += 1
            print(f"{label}: {type(error).__name__}: {str(error).splitlines()[0][:160]}", flush=True)
            continue
        calls += made
        if difference:
            wrong, of_one = wrong + reaches, of_one + (not reaches)
            print(f"{label}: {difference}", flush=True)
    print(
        f"{len(chosen)} operators, {calls} calls: {wrong} operators with other strides, {of_one} where a dimension has "
        f"one element, {failed} failed"
    )
    return 1 if wrong or failed else 0


if __name__ == "__main__":
    sys.exit(main())

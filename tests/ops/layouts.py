"""`python -m tests.ops.layouts`: strides of results where no kernel is asked, as for large tensors, against eager's.

    python -m tests.ops.layouts                every operator, operands laid out in reverse and with channels last
    python -m tests.ops.layouts --dynamic      with sizes that vary
    python -m tests.ops.layouts nn.functional.pad conv

Small calls are made to learn what a kernel returns (`lampwork/fakes/kernels.py`), so ordinary samples see no mistake of
a shape rule or of a meta kernel in a layout. Here such calls are not made. Exit status 1 where strides differ in a
dimension of more than one element.
"""

from __future__ import annotations

import argparse
import itertools
import os
import sys
import warnings
from typing import Any

#: Results that eager itself leaves to chance, or makes in ways that hang on the library at hand.
LEFT_OUT = ("empty", "jiterator", "sparse", "svd", "eig", "qr", "lobpcg", "pca", "_refs")
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

    import lampwork

    dtype = torch.float32 if torch.float32 in op.dtypes else torch.int64
    if dtype not in op.dtypes:
        return 0, ""
    torch.manual_seed(0)
    calls = 0
    function = op.get_op()
    try:
        samples = list(itertools.islice(op.sample_inputs("cpu", dtype), SAMPLES))
    except Exception:
        return 0, ""
    for sample, (how, order_of) in itertools.product(samples, ORDERS.items()):
        arguments = turned((sample.input, *sample.args), order_of)
        named = {name: turned(value, order_of) for name, value in sample.kwargs.items()}
        try:
            torch.manual_seed(1)
            expected = layouts(function(*arguments, **named))
        except Exception:
            continue
        torch.manual_seed(1)
        compiled = lampwork.compile(
            lambda *values, named=named: function(*values, **named),
            options={"cache": False},
            dynamic=True if dynamic else None,
        )
        found = layouts(compiled(*arguments))
        lampwork.reset()
        calls += 1
        if found != expected:
            return calls, f"{how}: {found} instead of {expected}"
    return calls, ""


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.ops.layouts", description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", help="operators whose names contain one of these; all by default")
    parser.add_argument("--dynamic", action="store_true", help="sizes vary")
    options = parser.parse_args()
    os.environ.update(LAMPWORK_STRICT="1", LAMPWORK_CACHE="0")
    warnings.simplefilter("ignore")

    from rich.progress import track

    from lampwork.fakes import kernels
    from tests.ops.check import leave_seeding_to_the_check

    from torch.testing._internal.common_methods_invocations import op_db  # isort: skip

    leave_seeding_to_the_check()
    kernels.LARGEST = -1
    chosen = [op for op in op_db if not any(word in op.name for word in LEFT_OUT)]
    if options.names:
        chosen = [op for op in chosen if any(name in op.name for name in options.names)]
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

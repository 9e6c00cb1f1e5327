"""What the sweeps of shape rules share (`layouts.py`, `mixed_types.py`): operators, their samples, compiled calls."""

from __future__ import annotations

import argparse
import itertools
import os
import warnings
from collections.abc import Callable
from typing import Any

#: Results that eager itself leaves to chance, or makes in ways that hang on the library at hand.
LEFT_OUT = ("empty", "jiterator", "sparse", "svd", "eig", "qr", "lobpcg", "pca", "_refs")


def arguments(module: str, description: str, dynamic: str) -> argparse.Namespace:
    """The command line of a sweep: names of operators, and whether sizes vary, which `dynamic` describes."""
    parser = argparse.ArgumentParser(prog=f"python -m {module}", description=description)
    parser.add_argument("names", nargs="*", help="operators whose names contain one of these; all by default")
    parser.add_argument("--dynamic", action="store_true", help=dynamic)
    return parser.parse_args()


def operators(names: list[str]) -> list[Any]:
    """PyTorch's operator samples by those names. From then on failures of the compiler raise, and nothing is stored."""
    os.environ.update(LAMPWORK_STRICT="1", LAMPWORK_CACHE="0")
    warnings.simplefilter("ignore")

    from tests.ops.check import leave_seeding_to_the_check

    from torch.testing._internal.common_methods_invocations import op_db  # isort: skip

    leave_seeding_to_the_check()
    chosen = [op for op in op_db if not any(word in op.name for word in LEFT_OUT)]
    return [op for op in chosen if any(name in op.name for name in names)] if names else chosen


def samples(op: Any, count: int) -> list[Any]:
    """At most `count` samples of float32, else of int64; none where PyTorch cannot make them."""
    import torch

    dtype = torch.float32 if torch.float32 in op.dtypes else torch.int64
    torch.manual_seed(0)
    try:
        return list(itertools.islice(op.sample_inputs("cpu", dtype), count)) if dtype in op.dtypes else []
    except Exception:
        return []


def compiled(function: Callable, named: dict[str, Any], dynamic: bool) -> Callable:
    """`function` compiled anew, with these arguments by name."""
    import lampwork

    lampwork.reset()
    return lampwork.compile(
        lambda *values: function(*values, **named), options={"cache": False}, dynamic=True if dynamic else None
    )

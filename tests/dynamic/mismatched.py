"""Calls of every operator with one size of one tensor changed, on what was compiled for other sizes: eager's outcome, result
or exception, is ours.

    python -m tests.dynamic.mismatched                    every operator
    python -m tests.dynamic.mismatched select_scatter     those whose name holds a word
    python -m tests.dynamic.mismatched --samples 8        more of PyTorch's own samples of each

A shape rule that checks less than eager's kernel does lets a compiled program read outside of a tensor, or lose an exception.
So each sample is compiled with symbols for its sizes and called; then each dimension of each tensor in it is one longer,
1 and 0, alone. Inputs lie among numbers that show in every result. Calls that PyTorch's authors say are errors
(`OpInfo.error_inputs`) are compiled as they are. Each operator runs in a process of its own. Reported besides: how many
loads and stores were neither proved nor refuted.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from typing import Any

if __name__ == "__main__":  # not where tests import it: theirs are set, and stay for those that follow
    os.environ.setdefault("LAMPWORK_STRICT", "1")
    os.environ.setdefault("LAMPWORK_VERIFY", "1")
    os.environ.setdefault("LAMPWORK_POISON", "1")
    os.environ.setdefault("LAMPWORK_CACHE", "0")

import torch

import lampwork
import tests.ops  # noqa: F401  before the samples: stands in for a package that they import
from lampwork.ir.offsets import TALLY
from tests.dynamic.test_operators import OPERATORS, leaves, mapped

from torch.testing._internal.common_methods_invocations import op_db  # isort: skip

#: Elements on either side of every input.
MARGIN = 64
#: Seconds for one operator.
LIMIT = 600
OPTIONS = {"cache": False, "recompile_limit": 256}


def among_others(tensor: torch.Tensor) -> torch.Tensor:
    """`tensor`, of the same strides, in the middle of memory that holds other numbers."""
    tensor = tensor.detach()
    if tensor.layout is not torch.strided or tensor.is_quantized:
        return tensor.clone()
    for dim, stride in enumerate(tensor.stride()):
        if not stride and tensor.shape[dim] > 1:
            return among_others(tensor.narrow(dim, 0, 1)).expand(tensor.shape)
    span = 1 + sum((size - 1) * step for size, step in zip(tensor.shape, tensor.stride())) if tensor.numel() else 0
    if tensor.dtype is torch.bool:
        memory = torch.ones(span + 2 * MARGIN, dtype=torch.bool)
    else:
        other = float("nan") if tensor.is_floating_point() or tensor.is_complex() else 77
        memory = torch.full((span + 2 * MARGIN,), other, dtype=tensor.dtype)
    placed = memory.as_strided(tensor.shape, tensor.stride(), MARGIN)
    try:
        return placed.copy_(tensor)
    except RuntimeError:  # elements overlap
        return tensor


def resized(tensor: torch.Tensor, dim: int, size: int) -> torch.Tensor:
    """`tensor` with `size` elements in one dimension: its own, repeated."""
    have = tensor.shape[dim]
    if size <= have or not have:
        return tensor.narrow(dim, 0, min(size, have)).clone()
    return tensor.index_select(dim, torch.arange(size) % have)


def changed(call: Any) -> Iterator[tuple[str, Any]]:
    """What was changed, and the call with that."""
    tensors = list(leaves(call))
    for place, tensor in enumerate(tensors):
        for dim, size in enumerate(tensor.shape):
            for other in dict.fromkeys((size + 1, 1, 0)):
                if other == size or (not size and other):
                    continue
                numbers = iter(range(len(tensors)))

                def change(each: torch.Tensor, other=other, dim=dim, place=place, numbers=numbers) -> torch.Tensor:
                    return resized(each, dim, other) if next(numbers) == place else each

                yield f"tensor {place} of {list(tensor.shape)}: dimension {dim} is {other}", mapped(call, change)


def outcome(function: Callable, call: Any) -> Any:
    """The result, or the exception."""
    args, kwargs = mapped(call, among_others)
    torch.manual_seed(0)
    try:
        return function(*args, **kwargs)
    except Exception as error:
        return error


def difference(expected: Any, actual: Any) -> str | None:
    """What is wrong with `actual`; None: nothing."""
    if isinstance(expected, Exception) or isinstance(actual, Exception):
        if isinstance(expected, Exception) and type(actual) is type(expected):
            return None
        if isinstance(actual, lampwork.errors.LampworkError):
            return f"a failure inside: {type(actual).__name__}: {actual}"[:600]
        if isinstance(expected, Exception) and isinstance(actual, Exception):
            return f"{type(actual).__name__}, not {type(expected).__name__}: {actual} | {expected}"[:400]
        if isinstance(actual, Exception):
            return f"an exception added: {type(actual).__name__}: {actual}"[:400]
        return f"an exception lost: {type(expected).__name__}: {expected}"[:400]
    try:
        torch.testing.assert_close(actual, expected, equal_nan=True, rtol=1e-4, atol=1e-5)
    except (AssertionError, RuntimeError, TypeError, ValueError) as error:
        return "another result: " + " ".join(str(error).split())[:300]
    for one, other in zip(leaves(actual), leaves(expected)):
        if one.layout is torch.strided and one.numel() > 1 and one.stride() != other.stride():
            return f"strides of {tuple(one.shape)} are {one.stride()}, not {other.stride()}"
    return None


def is_plain(call: Any) -> bool:
    """Whether it holds strided tensors, and no other."""
    tensors = list(leaves(call))
    return bool(tensors) and all(
        type(each) in (torch.Tensor, torch.nn.Parameter) and each.layout is torch.strided for each in tensors
    )


def key_of(call: Any) -> Any:
    """What makes samples alike here: numbers of dimensions and which sizes are 0 or 1."""
    shapes = tuple(tuple(min(size, 2) for size in each.shape) for each in leaves(call))
    return shapes, tuple(sorted(call[1])), len(call[0])


def failures(op: Any, samples: int, changes: int | None = None) -> Iterator[tuple[str, str]]:
    """What is wrong with one operator: each call with the difference."""
    forms = [("", op.op)]
    if op.inplace_variant is not None:
        forms.append(("in place, ", op.inplace_variant))
    seen: set[Any] = set()
    calls = []
    for sample in op.sample_inputs("cpu", torch.float32):
        call = mapped(((sample.input, *sample.args), sample.kwargs), torch.detach)
        if not is_plain(call) or key_of(call) in seen:
            continue
        seen.add(key_of(call))
        calls.append(call)
        if len(calls) == samples:
            break
    for form, target in forms:

        def program(*args, **kwargs):
            return target(*args, **kwargs)

        for number, call in enumerate(calls):
            if isinstance(outcome(program, call), Exception):
                continue
            compiled = lampwork.compile(program, dynamic=True, options=OPTIONS)
            for count, (what, other) in enumerate([("itself", call), *changed(call)]):
                if changes is not None and count > changes:
                    break
                wrong = difference(outcome(program, other), outcome(compiled, other))
                if wrong is not None:
                    yield f"{form}sample {number}, {what}", wrong


def wrong_errors(op: Any) -> Iterator[tuple[str, str]]:
    """What is wrong with calls of one operator that are errors."""
    if op.error_inputs_func is None:
        return
    for number, error in enumerate(op.error_inputs("cpu")):
        sample = error.sample_input
        call = ((sample.input, *sample.args), sample.kwargs)
        if not is_plain(call):
            continue

        def program(*args, **kwargs):
            return op.op(*args, **kwargs)

        expected = outcome(program, call)
        for dynamic in (False, True):
            compiled = lampwork.compile(program, dynamic=dynamic, options=OPTIONS)
            wrong = difference(expected, outcome(compiled, call))
            if wrong is not None:
                yield f"error {number}, dynamic={dynamic}", wrong


def report(op: Any, samples: int, sender: Any) -> None:
    """Sends each thing that is wrong, then what became of the offsets."""
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    with torch.no_grad():
        for check in (lambda: failures(op, samples), lambda: wrong_errors(op)):
            for what in check():
                sender.send(what)
    sender.send((TALLY.proved, [f"{name}: {access.text}" for name, access, _ in TALLY.open]))


def alone(op: Any, samples: int) -> tuple[list[tuple[str, str]], int, list[str]]:
    """What `report` says of one operator, in a process of its own: a crash is one more thing that is wrong."""
    receiver, sender = multiprocessing.Pipe(False)
    child = multiprocessing.get_context("fork").Process(target=report, args=(op, samples, sender))
    child.start()
    sender.close()
    found: list[tuple[str, str]] = []
    end = time.monotonic() + LIMIT
    last: Any = None
    try:
        while last is None:
            if not receiver.poll(max(end - time.monotonic(), 0)):
                found.append(("the operator", f"took longer than {LIMIT} s"))
                break
            what = receiver.recv()
            if isinstance(what[0], int):
                last = what
            else:
                found.append(what)
    except EOFError:
        child.join()
        found.append(("the operator", f"ended the process: {child.exitcode}"))
    child.kill()
    child.join()
    return found, *(last or (0, []))


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.dynamic.mismatched", description=__doc__)
    parser.add_argument("words", nargs="*", help="parts of names of operators")
    parser.add_argument("--samples", type=int, default=3, help="of each operator")
    options = parser.parse_args()
    chosen = [op for op in (OPERATORS if not options.words else op_db) if not options.words
              or any(word in op.name for word in options.words)]  # fmt: skip
    wrong = proved = 0
    still_open: list[str] = []
    for op in chosen:
        found, count, texts = alone(op, options.samples)
        proved += count
        still_open += texts
        wrong += len(found)
        name = f"{op.name}{'.' + op.variant_test_name if op.variant_test_name else ''}"
        for what, why in found:
            print(f"{name}: {what}: {why}", flush=True)
        for text in texts:
            print(f"{name}: neither proved nor refuted: {text}", flush=True)
    total = proved + len(still_open)
    print(f"{len(chosen)} operators, {wrong} calls are not as eager's; {len(still_open)} of {total} loads and stores are neither "
          "proved nor refuted", flush=True)  # fmt: skip
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())

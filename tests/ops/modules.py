"""Every module of `torch.nn` on PyTorch's own samples (`module_db`), compiled and eager: results, gradients and buffers.

    python -m tests.ops.modules                      every module, float32
    python -m tests.ops.modules LSTM RNN             those whose name holds a word
    python -m tests.ops.modules --dtype bfloat16

Each sample is two steps, forward and backward, in training mode, and in evaluation where the two differ. Judged as operators
are: by `lampwork.verdict.verify`, against float64. Exit status 1 where something differs.
"""

from __future__ import annotations

import argparse
import copy
import os
import sys
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

if __name__ == "__main__":
    os.environ.setdefault("LAMPWORK_STRICT", "1")
    os.environ.setdefault("LAMPWORK_VERIFY", "1")
    os.environ.setdefault("LAMPWORK_POISON", "1")

import torch
from torch.utils import _pytree as pytree

import lampwork
import tests.ops  # noqa: F401  before the samples: stands in for a package that they import
from lampwork.verdict.verify import compare
from tests.ops.check import Outcome

from torch.testing._internal.common_modules import module_db  # isort: skip

STEPS = 2


@dataclass(frozen=True)
class Sample:
    """`module`, in the mode it is to be called in, and what it is called with."""

    label: str
    module: torch.nn.Module
    args: tuple
    kwargs: dict


def samples(info: Any, dtype: torch.dtype, limit: int | None = None) -> Iterator[Sample]:
    """PyTorch's samples of a module, `limit` of each mode; those that say themselves which types they have keep them."""
    if dtype not in info.dtypes:
        return
    for training in (True, False) if info.train_and_eval_differ else (True,):
        torch.manual_seed(7)
        found = info.module_inputs_func(info, device="cpu", dtype=dtype, requires_grad=True, training=training)
        for index, sample in enumerate(found):
            if limit is not None and index >= limit:
                break
            if sample.forward_input is None:
                continue
            constructor, call = sample.constructor_input, sample.forward_input
            module = info.module_cls(*constructor.args, **constructor.kwargs).to(dtype).train(training)
            yield Sample(f"{index} {'training' if training else 'evaluated'}", module, call.args, call.kwargs)


def check(sample: Sample) -> Outcome:
    """How the sample ran, and whether it did what eager does. `kind` is one of "raises", "native", "fallback", "failed"."""
    expected, eager_error = _outcome(sample, lambda module: module)
    compiled: list[Any] = []

    def compile_module(module: torch.nn.Module) -> Callable:
        compiled.append(lampwork.compile(module, options={"cache": False}))
        return compiled[0]

    ours, our_error = _outcome(sample, compile_module)
    if type(our_error) is not type(eager_error):
        return Outcome("failed", f"raised {our_error!r}, eager {eager_error!r}"[:300])
    if eager_error is not None:
        return Outcome("raises")
    wide = Sample(sample.label, *_converted((sample.module, sample.args, sample.kwargs), torch.float64))
    reference, _ = _outcome(wide, lambda module: module)
    verdict = compare(ours, expected, reference)
    if not verdict.accepted:
        return Outcome("failed", "; ".join(verdict.reasons)[:400])
    stats = lampwork.stats(compiled[0])
    for key in ("fallbacks", "breaks"):
        if stats[key]:
            return Outcome("fallback", f"{key}: {stats[key][0]}"[:300])
    return Outcome("native")


def _outcome(sample: Sample, made: Callable[[torch.nn.Module], Callable]) -> tuple[Any, Exception | None]:
    """What the steps leave behind: results, gradients of arguments and parameters, buffers; or the exception."""
    module = copy.deepcopy(sample.module)
    args, kwargs = pytree.tree_map_only(torch.Tensor, _leaf, (sample.args, sample.kwargs))
    call = made(module)
    results = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            for _ in range(STEPS):
                torch.manual_seed(3)
                result = call(*args, **kwargs)
                tensors = [each for each in pytree.tree_leaves(result) if isinstance(each, torch.Tensor)]
                trained = [each for each in tensors if each.requires_grad]
                if trained:
                    torch.autograd.backward(trained, [_tangent(each) for each in trained])
                results.append([each.detach() for each in tensors])
        except Exception as error:
            return None, error
    arguments = [each.grad for each in pytree.tree_leaves((args, kwargs)) if isinstance(each, torch.Tensor)]
    parameters = {name: each.grad for name, each in module.named_parameters()}
    return {"results": results, "arguments": arguments, "parameters": parameters, **dict(module.named_buffers())}, None


def _leaf(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.detach().clone().requires_grad_(tensor.requires_grad)


def _tangent(tensor: torch.Tensor) -> torch.Tensor:
    """Other numbers for each element, so that a gradient in the wrong place shows."""
    return torch.linspace(0.5, 1.5, tensor.numel(), dtype=torch.float64).view(tensor.shape).to(tensor.dtype)


def _converted(value: Any, dtype: torch.dtype) -> Any:
    module, args, kwargs = value
    wide = lambda each: each.detach().to(dtype).requires_grad_(each.requires_grad) if each.is_floating_point() else each
    return copy.deepcopy(module).to(dtype), *pytree.tree_map_only(torch.Tensor, wide, (args, kwargs))


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.ops.modules", description="Modules of torch.nn against eager."
    )
    parser.add_argument("names", nargs="*", help="words of which a module's name holds one; all by default")
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--limit", type=int, help="samples of each mode")
    options = parser.parse_args()
    found: Counter[str] = Counter()
    for info in module_db:
        if options.names and not any(word in info.name for word in options.names):
            continue
        for sample in samples(info, getattr(torch, options.dtype), options.limit):
            outcome = check(sample)
            found[outcome.kind] += 1
            if outcome.kind in ("fallback", "failed"):
                print(f"{info.name} {sample.label}: {outcome.kind}: {outcome.detail}", flush=True)
    print(f"{found.total()} samples: " + ", ".join(f"{count} {kind}" for kind, count in found.most_common()))
    return 1 if found["failed"] else 0


if __name__ == "__main__":
    sys.exit(main())

"""Which operators keep the memory of tensors given by `out=`: found by calling them on PyTorch's samples.

    python -m tests.ops.out_memory [samples of each operator]     the table for lampwork/_torch/out_memory.py

Each call of a pure operator, with its arguments as they are, with other element types and with other strides, is made
again into given memory, three times: into a storage that ends with the result, into one that goes on, and into one with
the strides in reverse order. The result must have stayed where it was, with its shape and strides, nothing else may be
written, and the values must be those of the operator without `out=`.
"""

from __future__ import annotations

import itertools
import sys
import warnings
from collections import Counter, defaultdict
from typing import Any
from unittest.mock import patch

import torch
from torch.testing._internal import common_utils
from torch.testing._internal.common_methods_invocations import op_db
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten, tree_map, tree_unflatten

from lampwork import _torch
from lampwork._torch.schemas import out_overload
from tests.ops.check import spread

SAMPLED = (torch.float32, torch.bfloat16, torch.int64, torch.bool, torch.float64, torch.complex64)
MIXED = (torch.bool, torch.float32, torch.float64, torch.int64, torch.float16, torch.bfloat16, torch.complex64)
#: Bytes before the result, and after it.
MARGIN = 1024
#: What is in memory before the call: NaN for floating types.
FILL = 255


def given_memory(result: torch.Tensor, layout: str) -> tuple[torch.Tensor, torch.Tensor, int]:
    """(storage as bytes, the tensor to write to, bytes that it spans)."""
    strides = list(result.stride())
    if layout == "reversed":
        step = 1
        for axis, size in enumerate(result.shape):
            strides[axis] = step
            step *= max(size, 1)
    span = 1 + sum((size - 1) * stride for size, stride in zip(result.shape, strides)) if result.numel() else 0
    span *= result.element_size()
    memory = torch.full((MARGIN + span + MARGIN * (layout != "tight"),), FILL, dtype=torch.uint8, device=result.device)
    offset = MARGIN // result.element_size()
    made = torch.empty(0, dtype=result.dtype, device=result.device)
    return memory, made.set_(memory.untyped_storage(), offset, result.shape, strides), span


def fault(name: str, args: tuple, kwargs: dict, results: list[torch.Tensor], layout: str) -> str:
    """What is wrong with `name` called on given memory; empty where nothing is."""
    given = [given_memory(result, layout) for result in results]
    before = [
        (memory.untyped_storage().nbytes(), out.data_ptr(), out.shape, out.stride(), out.dtype)
        for memory, out, _ in given
    ]
    outs = dict(zip(_torch.out_arguments(name), (out for _, out, _ in given), strict=True))
    try:
        _torch.direct_call(name)(*args, **kwargs, **outs)
    except Exception as error:
        return f"raises {str(error).splitlines()[0][:80]}"
    for (memory, out, span), was, result in zip(given, before, results):
        now = (memory.untyped_storage().nbytes(), out.data_ptr(), out.shape, out.stride(), out.dtype)
        if now != was:
            return f"another place, shape or storage: {now} instead of {was}"
        beside = torch.cat([memory[:MARGIN], memory[MARGIN + span :]])
        if beside.min() != FILL:
            return "memory beside the result was written"
        if out.is_conj() or out.is_neg():
            return "conjugated or negated lazily"
        if not agree(out, result):
            return "other values"
    return ""


def agree(out: torch.Tensor, result: torch.Tensor) -> bool:
    if torch.equal(out, result):
        return True
    if out.dtype in (torch.bfloat16, torch.float16, torch.float32, torch.complex64):
        rtol, atol = {torch.bfloat16: (2e-2, 1e-2), torch.float16: (2e-3, 1e-3)}.get(out.dtype, (2e-3, 2e-4))
        wide = torch.complex128 if out.is_complex() else torch.float64
        return torch.allclose(out.to(wide), result.to(wide), rtol=rtol, atol=atol, equal_nan=True)
    return torch.allclose(out, result, rtol=1e-9, equal_nan=True)


class Probe(TorchDispatchMode):
    """Tries each pure operator that is called, in all forms. `faults[operator]` counts what came of it."""

    def __init__(self, device: str = "cpu", variants: int = 1 << 30) -> None:
        super().__init__()
        self.key = device.partition(":")[0].upper()
        self.faults: dict[str, Counter[str]] = defaultdict(Counter)
        self.examples: dict[tuple[str, str], str] = {}
        self.variants = variants
        self.seen: set[tuple] = set()

    def __torch_dispatch__(self, op: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        kwargs = kwargs or {}
        if op.namespace == "aten" and not op._schema.is_mutable and torch.Tag.nondeterministic_seeded not in op.tags:
            name = out_overload(op, self.key)
            leaves = [leaf for leaf in tree_flatten((args, kwargs))[0] if isinstance(leaf, torch.Tensor)]
            if name is not None and all(leaf.layout == torch.strided for leaf in leaves):
                self.probe(op, name, args, kwargs)
        return op(*args, **kwargs)

    def probe(self, op: Any, name: str, args: tuple, kwargs: dict) -> None:
        flat, spec = tree_flatten((args, kwargs))
        every = list(forms(flat))
        for form in every[:: max(1, len(every) // self.variants)]:
            key = (op, *map(described, form))
            if key in self.seen or sum(self.faults[str(op)].values()) >= 12 * self.variants:
                continue
            self.seen.add(key)
            leaves = [leaf.detach() if isinstance(leaf, torch.Tensor) else leaf for leaf in form]
            args, kwargs = tree_unflatten(leaves, spec)
            try:
                result = op(*args, **kwargs)
            except Exception:
                continue
            results = [result] if isinstance(result, torch.Tensor) else list(result)
            if not all(isinstance(each, torch.Tensor) for each in results):
                continue
            results = [each.clone() for each in tree_map(lambda each: each.resolve_conj().resolve_neg(), results)]
            for layout in ("as returned", "tight", "reversed"):
                found = fault(name, args, kwargs, results, layout)
                self.faults[str(op)][found.partition(":")[0]] += 1
                if found:
                    self.examples.setdefault((str(op), found.partition(":")[0]), f"{layout}, {found}, {key}")


def forms(flat: list[Any]) -> Any:
    """The arguments, then with each tensor of another type, or with other strides."""
    yield flat
    for place, leaf in enumerate(flat):
        if not isinstance(leaf, torch.Tensor):
            continue
        others = [
            leaf.to(dtype) for dtype in MIXED if dtype != leaf.dtype and (dtype.is_complex or not leaf.is_complex())
        ]
        if leaf.dim() > 1:
            others.append(leaf.transpose(0, 1).contiguous().transpose(0, 1))
        if leaf.dim():
            others.append(torch.stack([leaf, leaf], dim=-1)[..., 0])
        for other in others:
            yield [*flat[:place], other, *flat[place + 1 :]]


def described(leaf: Any) -> Any:
    return (leaf.dtype, tuple(leaf.shape), leaf.stride()) if isinstance(leaf, torch.Tensor) else str(leaf)


def probe_samples(
    limit: int, device: str = "cpu", variants: int = 1 << 30, names: frozenset[str] | None = None
) -> Probe:
    """What operators do with given memory, by up to about `limit` samples of each of PyTorch's, with derivatives.

    `variants`: about so many forms of each call, of all types and strides that are mixed in. `names`: of these samples.
    """
    probe = Probe(device, variants)
    for op in op_db if names is None else [op for op in op_db if op.name in names]:
        for dtype in SAMPLED if names is None else SAMPLED[::2]:
            if dtype not in op.supported_dtypes(device):
                continue
            for grad in (False, True) if dtype is torch.float32 and op.supports_autograd else (False,):
                torch.manual_seed(3)
                with patch.object(common_utils, "set_rng_seed", lambda *_: None):  # 5 ms for each sample
                    found = op.sample_inputs(device, dtype, requires_grad=grad)
                    samples = list(itertools.islice(found, 10 * limit))
                for sample in spread(samples, limit):
                    run(op, sample, grad, probe)
    return probe


def run(op: Any, sample: Any, grad: bool, probe: Probe) -> None:
    try:
        with probe:
            result = op(sample.input, *sample.args, **sample.kwargs)
            leaves = [leaf for leaf in tree_flatten(result)[0] if isinstance(leaf, torch.Tensor) and leaf.requires_grad]
            if grad and leaves:
                sum(leaf.abs().sum() for leaf in leaves).backward()  # type: ignore[union-attr]
    except Exception:  # what eager refuses, or has no derivative, is no operator's fault
        return


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    found = probe_samples(int(sys.argv[1]) if len(sys.argv) > 1 else 4, sys.argv[2] if len(sys.argv) > 2 else "cpu")
    good = sorted(name for name, faults in found.faults.items() if set(faults) == {""})
    print("\n".join(name.removeprefix("aten.").removesuffix(".default") for name in good))
    for name in sorted(set(found.faults) - set(good)):
        print("#", name, dict(found.faults[name]), file=sys.stderr)
        for (which, _), example in found.examples.items():
            if which == name:
                print("#    ", example[:400], file=sys.stderr)

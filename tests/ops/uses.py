"""`python -m tests.ops.uses`: gradients of every operator in the ways that programs take them, beside eager's.

    python -m tests.ops.uses             two samples of each operator, in each way
    python -m tests.ops.uses norm pool

Ordinary samples ask for all gradients of all results, once (`gradients.py`). Here they are differentiated again, asked
for twice, for one result or one leaf at a time, with tangents of other strides, changed by hooks, added to what is
there, and asked for after a leaf was written. Exit status 1 where values differ, or whether there are any, or an
exception was added. Counted are passes that eager refuses and we do not (eager looks at contents in between), and those
that we refuse by the documented error (`docs/diagnostics/double-backward.md`).
"""

from __future__ import annotations

import argparse
import itertools
import sys
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.utils._pytree import tree_leaves, tree_map

from tests.ops.unasked import operators

SAMPLES = 2
#: Operators that draw: they are not run again.
DRAWING = ("rand", "multinomial", "bernoulli", "dropout", "normal", "fractional_max_pool", "rrelu", "lowrank")
#: What differs, and is known to. Eager's formula takes an undefined tangent for none at all; the gradient of eigenvectors
#: is defined for a whole loss alone, not for parts of it; a leaf stands for what is computed from it in no time, which
#: eager saves: written before the backward pass, it is refused.
KNOWN = {
    "one_at_a_time": {"native_group_norm", "linalg.slogdet", "slogdet"},
    "double": {"linalg.eig"},
    "written": {"trapz", "trapezoid", "cumulative_trapezoid", "special.ndtr", "masked.var", "masked.std",
                "masked.logaddexp"},
}  # fmt: skip

Results = list[torch.Tensor]
Leaves = Sequence[torch.Tensor]


def loss(results: Results) -> torch.Tensor:
    """A number that every element of the results counts in, and not by a constant."""
    found = [((each.abs() ** 2) if each.is_complex() else each * each * 0.5 + each).sum() for each in results]
    return sum(found[1:], found[0])


def double(results: Results, leaves: Leaves) -> list[Any]:
    first = torch.autograd.grad(loss(results), leaves, create_graph=True, allow_unused=True)
    again = [each for each in first if each is not None and each.requires_grad]
    return [*first, *(torch.autograd.grad(loss(again), leaves, allow_unused=True) if again else ())]


def twice(results: Results, leaves: Leaves) -> list[Any]:
    whole = loss(results)
    whole.backward(retain_graph=True)
    whole.backward()
    return [each.grad for each in leaves]


def hooked(results: Results, leaves: Leaves) -> list[Any]:
    seen: list[list[torch.Tensor]] = [[] for _ in results]

    def doubling(gradients: list[torch.Tensor]) -> Callable:
        return lambda gradient: (gradients.append(gradient.detach().clone()), gradient * 2)[1]

    for each, gradients in zip(results, seen):
        each.register_hook(doubling(gradients))
        each.retain_grad()
    loss(results).backward()
    return [*(each.grad for each in leaves), *(each.grad for each in results), *itertools.chain.from_iterable(seen)]


def expanded(results: Results, leaves: Leaves) -> list[Any]:
    tangents = []
    for number, each in enumerate(results):
        one = torch.ones((), dtype=each.dtype)
        turned = torch.ones(each.shape[::-1], dtype=each.dtype).permute(*reversed(range(each.dim())))
        tangents.append(turned if number % 2 else one.expand(each.shape))
    return list(torch.autograd.grad(results, leaves, tangents, allow_unused=True))


def one_at_a_time(results: Results, leaves: Leaves) -> list[Any]:
    found: list[Any] = []
    for each in results:
        found += torch.autograd.grad(loss([each]), leaves, retain_graph=True, allow_unused=True)
    for leaf in leaves:
        found += torch.autograd.grad(loss(results), [leaf], retain_graph=True, allow_unused=True)
    return found


def added(results: Results, leaves: Leaves) -> list[Any]:
    for leaf in leaves:
        leaf.grad = torch.ones(leaf.shape[::-1], dtype=leaf.dtype).permute(*reversed(range(leaf.dim())))
    loss(results).backward()
    return [each.grad for each in leaves]


def written(results: Results, leaves: Leaves) -> list[Any]:
    with torch.no_grad():
        leaves[-1].mul_(2)
    return list(torch.autograd.grad(loss(results), leaves, allow_unused=True))


LOST, REFUSED = "lost", "refused"
USES: dict[str, Callable[[Results, Leaves], list[Any]]] = {
    each.__name__: each for each in (double, twice, hooked, expanded, one_at_a_time, added, written)
}


def _fresh(value: Any) -> Any:
    if not isinstance(value, torch.Tensor) or value.layout != torch.strided:
        return value
    return value.detach().clone().requires_grad_(value.requires_grad)


def outcome(function: Callable, sample: Any, use: Callable) -> Any:
    """The gradients, or the exception."""
    args, kwargs = tree_map(_fresh, ((sample.input, *sample.args), dict(sample.kwargs)))
    leaves = [each for each in tree_leaves((args, kwargs)) if isinstance(each, torch.Tensor) and each.requires_grad]
    torch.manual_seed(0)
    try:
        made = tree_leaves(function(*args, **kwargs))
        results = [each for each in made if isinstance(each, torch.Tensor) and each.requires_grad]
        return use(results, leaves) if results and leaves else []
    except Exception as error:
        return error


def difference(found: Any, expected: Any) -> str | None:
    """In words; None where they agree. `LOST`: eager alone raises; `REFUSED`: we do, by the documented error."""
    if isinstance(found, Exception) or isinstance(expected, Exception):
        if isinstance(found, Exception) and isinstance(expected, Exception):
            return None
        if isinstance(found, Exception):
            return REFUSED if "[double-backward]" in str(found) else f"raises {type(found).__name__}: {found}"
        return LOST
    if len(found) != len(expected):
        return f"{len(found)} gradients instead of {len(expected)}"
    for place, (mine, theirs) in enumerate(zip(found, expected)):
        if (mine is None) != (theirs is None):
            return f"gradient {place} is {'missing' if mine is None else 'there'}"
        if mine is None:
            continue
        try:
            torch.testing.assert_close(mine, theirs, rtol=1e-6, atol=1e-7, equal_nan=True)
        except AssertionError as error:
            return f"gradient {place}: {' '.join(str(error).split())}"
    return None


def compare(op: Any) -> list[str]:
    """Of each pass that was compared: "", `LOST`, `REFUSED`, or how it differs."""
    import lampwork

    torch.manual_seed(0)
    try:
        every = list(itertools.islice(op.sample_inputs("cpu", torch.float64, requires_grad=True), 12))
    except Exception:
        return []
    found = []
    for sample in every[:: max(1, len(every) // SAMPLES)][:SAMPLES]:
        for name, use in USES.items():
            if (name == "double" and not op.supports_gradgrad) or op.name in KNOWN.get(name, ()):
                continue
            lampwork.reset()
            compiled = lampwork.compile(lambda *args, **kwargs: op.op(*args, **kwargs), options={"cache": False})
            differs = difference(outcome(compiled, sample, use), outcome(op.op, sample, use))
            found.append(f"{name}: {differs}" if differs not in (None, LOST, REFUSED) else differs or "")
    return found


def chosen(names: list[str]) -> list[Any]:
    """Operators by those names that have derivatives, in double precision, and draw nothing."""
    return [
        op
        for op in operators(names)
        if op.supports_autograd and torch.float64 in op.dtypes and not any(each in op.name for each in DRAWING)
    ]


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.ops.uses", description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", help="operators whose names contain one of these; all by default")
    ops = chosen(parser.parse_args().names)

    from rich.progress import track

    passes: list[str] = []
    wrong = 0
    for op in track(ops, "gradients", disable=not sys.stderr.isatty()):
        found = compare(op)
        passes += found
        others = [each for each in found if each not in ("", LOST, REFUSED)]
        wrong += bool(others)
        for each in others[:2]:
            print(f"{op.name} {op.variant_test_name}".strip() + f": {each[:300]}", flush=True)
    print(
        f"{len(ops)} operators, {len(passes)} passes: {wrong} operators differ; {passes.count(LOST)} passes lost an "
        f"exception, {passes.count(REFUSED)} are refused"
    )
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())

"""Shape rules of operators that run graphs: what the graphs return."""

from __future__ import annotations

from typing import Any

from lampwork.fakes.shapes import Spec, contiguous, rule
from lampwork.ir.body import Body


def _spec(fake: Any) -> Spec:
    return Spec(tuple(fake.size()), tuple(fake.stride()), fake.dtype, fake.device)


@rule("lampwork::cond")
def cond(pred: object, inputs: object, yes: Body, no: Body) -> list[Spec]:
    """Both branches return the same."""
    return [_spec(each) for each in yes.results]


@rule("lampwork::while_loop")
def while_loop(carried: Any, inputs: object, test: Body, body: Body) -> list[Spec]:
    return [_spec(each) for each in body.results]


@rule("lampwork::scan")
def scan(carried: Any, rows: Any, inputs: object, body: Body) -> list[Spec]:
    results, length = body.results, rows[0].size(0)
    stacked = []
    for each in results[len(carried) :]:
        shape = (length, *each.size())
        stacked.append(Spec(shape, contiguous(shape), each.dtype, each.device))
    return [*map(_spec, results[: len(carried)]), *stacked]

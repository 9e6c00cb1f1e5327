"""Operators whose arguments are graphs (`ir/body.py`), and PyTorch's functions that they stand for.

A program runs compiled bodies (`runtime/launch/control_flow.py`). Called as they are, these operators run the graphs
operator by operator: what they mean.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch._ops import OpOverload

from lampwork._torch.fx import getitem
from lampwork.ir.body import body_named

COND = "cond(Tensor pred, Tensor[] inputs, str yes, str no) -> Tensor[]"
WHILE = "while_loop(Tensor[] carried, Tensor[] inputs, str test, str body) -> Tensor[]"
WHILE_ROWS = WHILE.replace("while_loop", "while_rows")
SCAN = "scan(Tensor[] carried, Tensor[] rows, Tensor[] inputs, str body) -> Tensor[]"

#: What runs a body: its results, of its inputs.
Run = Callable[[str, list[Any]], Sequence[Any]]

#: PyTorch's functions that call operators which take functions, by module and name.
_PUBLIC = frozenset({
    ("torch._higher_order_ops.cond", "cond"), ("torch._higher_order_ops.while_loop", "while_loop"),
    ("torch._higher_order_ops.scan", "scan"), ("torch._higher_order_ops.map", "map"),
    ("torch._higher_order_ops.associative_scan", "associative_scan"),
})  # fmt: skip


def is_control_flow(function: Any) -> bool:
    """Whether `function` is `torch.cond` or a relative of it."""
    return (function.__globals__.get("__name__"), function.__qualname__) in _PUBLIC


def run_cond(run: Run, pred: Any, inputs: list[Any], yes: str, no: str) -> Sequence[Any]:
    """What the branch returns that `pred`, of one element, chooses."""
    return run(yes if pred.item() else no, inputs)


def run_while_loop(run: Run, carried: list[Any], inputs: list[Any], test: str, body: str) -> Sequence[Any]:
    """What `carried` becomes while the test holds."""
    found: Sequence[Any] | None = None
    while run(test, [*(carried if found is None else found), *inputs])[0].item():
        found = run(body, [*(carried if found is None else found), *inputs])
    return [each.clone() for each in carried] if found is None else found


def run_while_rows(run: Run, carried: list[Any], inputs: list[Any], test: str, body: str) -> Sequence[Any]:
    """The same, and what was carried into each turn, as rows."""
    found: Sequence[Any] = carried
    before = []
    while run(test, [*found, *inputs])[0].item():
        before.append(found)
        found = run(body, [*found, *inputs])
    if not before:
        return [*(each.clone() for each in carried), *(each.new_empty((0, *each.shape)) for each in carried)]
    return [*found, *(torch.stack(each) for each in zip(*before, strict=True))]


def run_scan(run: Run, carried: list[Any], rows: list[Any], inputs: list[Any], body: str) -> Sequence[Any]:
    """What `carried` becomes over the rows of tensors, one of each tensor at a time; then what else the body returned
    each time, as rows of tensors."""
    if not len(rows[0]):
        made = run(body, [*carried, *(each.new_zeros(each.shape[1:]) for each in rows), *inputs])
        nothing = [each.new_empty((0, *each.shape)) for each in made[len(carried) :]]
        return [*(each.clone() for each in carried), *nothing]
    found: Sequence[Any] = carried
    others: list[Sequence[Any]] = []
    for row in zip(*[each.unbind(0) for each in rows], strict=True):
        made = run(body, [*found, *row, *inputs])
        found = made[: len(carried)]
        others.append(made[len(carried) :])
    return [*found, *(torch.stack(each) for each in zip(*others, strict=True))]


#: How each operator runs, by name.
RUN_CONTROL_FLOW: dict[str, Callable[..., Sequence[Any]]] = {
    "cond": run_cond,
    "while_loop": run_while_loop,
    "while_rows": run_while_rows,
    "scan": run_scan,
}


def run_graph(digest: str, inputs: Sequence[Any]) -> list[Any]:
    """The results of a body that is still there, operator by operator."""
    from lampwork._torch.fx import tensor_constant

    values: dict[Any, Any] = {}
    given = iter(inputs)

    def value(argument: Any) -> Any:
        if isinstance(argument, torch.fx.Node):
            return values[argument]
        if isinstance(argument, (list, tuple)):
            return [value(each) for each in argument]
        return argument

    for node in body_named(digest).graph.nodes:
        if node.op == "placeholder":
            values[node] = next(given)
        elif node.op == "output":
            return [values[each] for each in node.args[0]]
        elif node.target is getitem:
            values[node] = values[node.args[0]][node.args[1]]
        elif node.target is tensor_constant:
            values[node] = tensor_constant(*node.args)
        else:
            values[node] = node.target(
                *map(value, node.args), **{key: value(each) for key, each in node.kwargs.items()}
            )
    raise AssertionError("a body has an output")


@functools.cache
def control_flow_operators() -> dict[str, OpOverload]:
    """Our operators, by name."""
    from lampwork._torch.library import overload

    return {name: overload(f"lampwork::{name}") for name in RUN_CONTROL_FLOW}

"""`torch.cond` and its relatives as Python means them: their functions are called, turn by turn.

Eager has Dynamo compile such a call, and its operators know nothing of modes that are not PyTorch's own. Whoever
watches what eager computes (`EagerMode`) has the functions called instead: every operator in them is seen, and
differentiated as eager's are.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Any

import torch
import torch._higher_order_ops.utils as utils
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten, tree_leaves, tree_unflatten


class EagerMode(TorchDispatchMode):
    """A mode that sees the operators of branches and loops, too."""

    def __init__(self) -> None:
        super().__init__()
        self._entered: list[AbstractContextManager[None]] = []

    def __enter__(self) -> Any:
        self._entered.append(functions_in_python())
        self._entered[-1].__enter__()
        return super().__enter__()

    def __exit__(self, *raised: Any) -> None:
        super().__exit__(*raised)
        self._entered.pop().__exit__(*raised)


@contextmanager
def functions_in_python() -> Iterator[None]:
    """In this thread, operators that take functions call these, and nobody has Dynamo compile such a call."""
    with ExitStack() as stack:
        if hasattr(utils, "_hop_compile_and_call"):
            plainly = lambda fn, args, kwargs=None: fn(*args, **(kwargs or {}))
            stack.enter_context(_replaced(utils, "_hop_compile_and_call", plainly))
        else:  # before 2.13 each of the public functions has its own call of `torch.compile`
            stack.enter_context(torch.compiler.set_stance("force_eager"))
        for name, run in _IN_PYTHON.items():
            operator = getattr(torch.ops.higher_order, name, None)
            if operator is not None:
                method = lambda self, *args, run=run, **kwargs: run(*args, **kwargs)
                stack.enter_context(_replaced(type(operator), "__call__", method))
        yield


@contextmanager
def _replaced(holder: Any, name: str, function: Callable[..., Any]) -> Iterator[None]:
    """Calls of `holder.name` are calls of `function` in this thread."""
    original, thread = getattr(holder, name), threading.get_ident()

    def call(*args: Any, **kwargs: Any) -> Any:
        return (function if threading.get_ident() == thread else original)(*args, **kwargs)

    setattr(holder, name, call)
    try:
        yield
    finally:
        setattr(holder, name, original)


# What each operator means --------------------------------------------------------------------------------------------


def _cond(pred: Any, true_fn: Any, false_fn: Any, operands: Any = ()) -> Any:
    return _one_history((true_fn if pred else false_fn)(*operands), operands)


def _while_loop(cond_fn: Any, body_fn: Any, carried: Any, inputs: Any = (), **options: Any) -> Any:
    found = None
    while cond_fn(*(carried if found is None else tree_leaves(found)), *inputs):
        found = body_fn(*(carried if found is None else tree_leaves(found)), *inputs)
    if found is None:
        found = _nested(body_fn, [each.clone() if isinstance(each, torch.Tensor) else each for each in carried])
    return _one_history(found, (carried, inputs))


def _nested(body: Any, flat: Sequence[Any]) -> Any:
    """What a loop carries, nested as its caller has it: `torch.while_loop` gives the operator leaves."""
    code = getattr(body, "__code__", None)
    if code is None or "in_spec" not in code.co_freevars:
        return tuple(flat)
    carried, _ = tree_unflatten(list(flat), body.__closure__[code.co_freevars.index("in_spec")].cell_contents)
    return carried


def _while_loop_stack_output(cond_fn: Any, body_fn: Any, carried: Any, inputs: Any = (), **options: Any) -> Any:
    state, rows = list(carried), []
    while cond_fn(*state, *inputs):
        state = tree_leaves(body_fn(*state, *inputs))
        rows.append(state)
    if not rows:
        return tuple(each.new_empty((0, *each.shape)) for each in carried)
    return _one_history(tuple(_stacked(each) for each in zip(*rows)), (carried, inputs))


def _stacked(values: Sequence[Any]) -> torch.Tensor:
    return torch.stack([each if isinstance(each, torch.Tensor) else torch.tensor(each) for each in values])


def _scan(combine_fn: Any, init: Any, xs: Any, inputs: Any = (), **options: Any) -> Any:
    state, rows, count, tree = list(init), [], len(init), None
    for row in zip(*[each.unbind(0) for each in xs]):
        made, tree = tree_flatten(combine_fn(*state, *row, *inputs))
        state = made[:count]
        rows.append(made[count:])
    if tree is None:
        raise ValueError("a scan over no rows")
    found = [*state, *(torch.stack(each) for each in zip(*rows))]
    nested = "spec_init" in getattr(combine_fn, "keywords", ())  # from the public function: not a list of leaves
    return _one_history(tree_unflatten(found, tree) if nested else found, (init, xs, inputs))


def _map(f: Any, xs: Any, inputs: Any = (), **options: Any) -> Any:
    made = [tree_flatten(f(*row, *inputs)) for row in zip(*[each.unbind(0) for each in xs])]
    columns = zip(*[leaves for leaves, _ in made])
    found = [torch.stack(each) if isinstance(each[0], torch.Tensor) else each[0] for each in columns]
    return _one_history(tree_unflatten(found, made[0][1]), (xs, inputs))


#: By the operator's name.
_IN_PYTHON: dict[str, Callable[..., Any]] = {
    "cond": _cond, "while_loop": _while_loop, "while_loop_stack_output": _while_loop_stack_output, "scan": _scan,
    "map_impl": _map,
}  # fmt: skip


def _one_history(results: Any, inputs: Any) -> Any:
    """The results, all of which require grad where one of the inputs does: an operator has one history, whichever
    functions it has called."""
    given = [each for each in tree_leaves(inputs) if isinstance(each, torch.Tensor) and each.requires_grad]
    if not given or not torch.is_grad_enabled():
        return results
    leaves, tree = tree_flatten(results)
    without = [place for place, each in enumerate(leaves) if _has_no_history(each)]
    if without:
        found = _Depends.apply(len(without), *(leaves[place] for place in without), *given)
        for place, each in zip(without, found):
            leaves[place] = each
    return tree_unflatten(leaves, tree)


def _has_no_history(value: Any) -> bool:
    if not isinstance(value, torch.Tensor) or value.requires_grad:
        return False
    return value.is_floating_point() or value.is_complex()


class _Depends(torch.autograd.Function):
    """Copies of the first tensors, as if they were made of the others; these get zeros."""

    @staticmethod
    def forward(ctx: Any, count: int, *tensors: torch.Tensor) -> Any:
        ctx.save_for_backward(*tensors[count:])
        ctx.count = count
        return tuple(each.clone() for each in tensors[:count])

    @staticmethod
    def backward(ctx: Any, *tangents: Any) -> Any:
        return (None,) * (1 + ctx.count) + tuple(map(torch.zeros_like, ctx.saved_tensors))

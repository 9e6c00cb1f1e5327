"""`torch.cond`, `while_loop`, `scan` and `map` of a program that is captured.

    cond        one branch where the predicate is a number; else both branches are interpreted, each into a graph
    scan, map   what happens in a turn is interpreted once; few turns are recorded one after the other, more are a loop
    while_loop  turns are recorded one after the other as long as the test is known; else it is a loop

Eager has Dynamo compile such a call, and refuses functions that change something, return what they are given, or
something of another shape each time. Whatever is not such a graph here is left to eager: the call runs natively between
two regions, with its results and errors (`control-flow`).
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch.utils._pytree import tree_flatten, tree_leaves, tree_unflatten

from lampwork import _torch
from lampwork.capture.flow import ALL
from lampwork.capture.flow.bodies import Part, Refused, recorded, replayed
from lampwork.capture.flow.changes import State
from lampwork.capture.flow.nodes import cond, cut, one_history, row_of, run, same_layout, scan, while_loop
from lampwork.capture.machine import World
from lampwork.capture.outside.overlay import Break, LeftToEager
from lampwork.capture.record.fake import Fake
from lampwork.capture.values.family import HANDS_ON
from lampwork.config import environment
from lampwork.errors import GraphBreak
from lampwork.fakes.shapes import surely_same
from lampwork.ir.body import Body

#: A loop of known length that is no more operators than this is recorded turn by turn; longer ones are a node.
UNROLLED_OPERATORS = 128
#: So many turns of a `while_loop` are looked at, to see whether their number is known.
UNROLLED_TURNS = 32
#: Loops that carry integers are recorded turn by turn, up to so many.
_MOST_TURNS = 256

_REMEDY = "Let the functions compute new tensors from those that they are given, and change nothing."


def call_public(world: Any, function: Any, args: tuple, kwargs: dict[str, Any]) -> Any:
    """A call of `torch.cond` or a relative: interpreted, unless it was left to eager.

    The graph breaks at it, never inside: the operators that such functions call differentiate nothing that their
    functions read from closures.
    """
    for kind in (_kind(world), ALL):
        if kind in world.natively:
            name = function.__qualname__
            raise Break("control-flow", f"{name} is called, and is left to eager: {world.natively[kind]}", _REMEDY)
    pred = args[0] if args else kwargs.get("pred")
    if function.__qualname__ == "cond" and isinstance(pred, (bool, int, float)):
        return HANDS_ON  # the call of a branch, in which the graph may break like elsewhere
    return world.machine.complete(World.call(world, function, args, kwargs))


def call(world: Any, name: str, args: tuple, kwargs: dict[str, Any]) -> Any:
    """What the operator returns that such a function calls; it is one of `OPERATORS`. Raises `LeftToEager`."""
    kind = _kind(world)
    try:
        if _torch.active_transforms() or world.process.dual_levels:
            raise Refused("a function transform is active")
        operator = OPERATORS[name]
        try:
            inspect.signature(operator).bind(world, *args, **kwargs)
        except TypeError as error:
            raise Refused(f"it takes other arguments: {error}") from error
        return operator(world, *args, **kwargs)
    except LeftToEager:
        raise
    except (Break, GraphBreak) as stop:
        reason = stop.diagnostic.reason if isinstance(stop, GraphBreak) else stop.reason
        raise LeftToEager(kind, reason, "control-flow") from stop
    except Exception as error:
        if environment.strict:
            raise Break("capture-failed", f"{type(error).__name__}: {error}") from error
        raise LeftToEager(kind, f"{type(error).__name__}: {error}", "control-flow") from error


def _kind(world: Any) -> str:
    """What calls on the program's present line are called where they are left to eager."""
    where = world.location()
    return f"{ALL} at {where.file}:{where.line}"


def _interpreted(world: Any, function: Any, args: Sequence[Any]) -> Any:
    """What a function of the program's returns. Raises `Refused` where it raises something."""
    try:
        return world.machine.call(function, tuple(args))
    except Exception as error:
        if isinstance(error, (Break, GraphBreak)):
            raise
        raise Refused(f"it raises {type(error).__name__}: {error}") from error


# Branches -----------------------------------------------------------------------------------------------------------


def _cond(world: Any, pred: Any, true_fn: Any, false_fn: Any, operands: Any = ()) -> Any:
    if type(operands) is list:  # from outside: its elements are loaded
        operands = world.loader.settle(operands)
    if isinstance(pred, (bool, int, float)):
        return world.call(true_fn if pred else false_fn, tuple(operands), {})
    if type(pred) is not Fake or pred.numel() != 1:
        raise Refused("its predicate is no tensor of one element")
    if type(operands) not in (tuple, list):
        raise Refused("its operands are no tuple")
    _require_tensors(_interpreted(world, tree_leaves, (operands,)))
    parts, trees = [], []
    for branch in (true_fn, false_fn):
        with _part(world, (branch, *operands)) as part:
            leaves, tree = _tensors_in(_interpreted(world, branch, operands))
            part.returns(leaves)
        parts.append(part)
        trees.append(tree)
    if trees[0] != trees[1]:
        raise Refused("its branches return values that are nested otherwise")
    inputs, bodies = _cut(parts)
    results = [bodies[0].results, bodies[1].results]
    if not all(map(same_layout, *results)):
        raise Refused("its branches return tensors of several shapes, strides or types")
    if any(yes.storage_offset() != no.storage_offset() for yes, no in zip(*results, strict=True)):
        raise Refused("its branches return parts of tensors at several places")
    world.flows += 1
    return tree_unflatten(cond(world.recorder, pred, inputs, *bodies), trees[0])


# Loops over rows ----------------------------------------------------------------------------------------------------


def _scan(world: Any, combine_fn: Any, init: Any, xs: Any, additional_inputs: Any = ()) -> Any:
    carried, rows, inputs = list(init), list(xs), tuple(additional_inputs)
    _require_tensors((*carried, *rows, *inputs))
    with _part(world, (combine_fn, *inputs)) as part:
        given = [*map(part.parameter, carried), *(part.parameter(row_of(each)) for each in rows)]
        made = _interpreted(world, combine_fn, (*given, *inputs))
        if type(made) not in (tuple, list) or len(made) != 2:
            raise Refused("its function does not return what is carried on and what is stacked")
        (state, nested), (others, tree) = map(_tensors_in, made)
        part.returns([*state, *others])
    values, (body,) = _cut([part])
    if len(state) != len(carried):  # however they are nested: the function is given them as at first
        raise Refused("what is carried are more or fewer tensors than at first")
    if not all(map(same_layout, carried, body.results)):
        raise Refused("what is carried changes its shape, strides or type from turn to turn")
    found = _turns(world, carried, rows, values, body)
    return tree_unflatten(found[: len(carried)], nested), tree_unflatten(found[len(carried) :], tree)


def _map(world: Any, f: Any, xs: Any, pos_args: Any = ()) -> Any:
    rows, args = list(xs), tuple(pos_args)
    _require_tensors(rows)
    with _part(world, (f, *args)) as part:
        given = [part.parameter(row_of(each)) for each in rows]
        leaves, tree = _tensors_in(_interpreted(world, f, (*given, *args)))
        part.returns(leaves)
    values, (body,) = _cut([part])
    return tree_unflatten(_turns(world, [], rows, values, body), tree)


def _turns(world: Any, carried: list, rows: list, inputs: list, body: Body) -> list[Any]:
    """What is carried in the end, and what else each turn returns as rows."""
    length = rows[0].size(0) if rows else 0
    if not length or not all(surely_same(each.size()[:1], (length,)) for each in rows):
        raise Refused("its tensors have several lengths, or none")
    recorder = world.recorder
    world.flows += 1
    if type(length) is torch.SymInt or length * body.operators > UNROLLED_OPERATORS:
        return scan(recorder, carried, rows, inputs, body)
    others: list[Sequence[Any]] = []
    state = carried
    for row in zip(*[each.unbind(0) for each in rows], strict=True):
        made = replayed(recorder, body, [*state, *row, *inputs], lambda name, args: run(recorder, name, args))
        others.append(made[len(carried) :])
        state = made[: len(carried)]
    found = [*state, *(torch.stack(each) for each in zip(*others, strict=True))]
    return one_history(recorder, found, (*carried, *rows, *inputs))


# Loops while something holds ----------------------------------------------------------------------------------------


def _while_loop(
    world: Any, cond_fn: Any, body_fn: Any, carried_inputs: Any, additional_inputs: Any = (), **options: Any
) -> Any:
    carried, inputs = tuple(carried_inputs), tuple(additional_inputs)
    if options:
        raise Refused("it is told what it writes")
    if any(isinstance(each, (float, complex, str)) or each is None for each in carried):
        raise Refused("it carries something else than tensors and integers")
    if not all(type(each) is Fake for each in (*carried, *inputs)):
        return _with_integers(world, cond_fn, body_fn, carried, inputs)
    parts, tree = [], None
    for function in (cond_fn, body_fn):
        with _part(world, (function, *inputs)) as part:
            made = _interpreted(world, function, (*map(part.parameter, carried), *inputs))
            if function is cond_fn and type(made) is not Fake:
                raise Refused("its test is not one bool")
            leaves, tree = _tensors_in(made)
            part.returns(leaves)
        parts.append(part)
    values, (asked, turn) = _cut(parts)
    (truth,) = asked.results
    if truth.dtype is not torch.bool or truth.dim():
        raise Refused("its test is not one bool")
    if len(turn.results) != len(carried) or not all(map(same_layout, carried, turn.results)):
        raise Refused("what is carried changes its shape, strides or type from turn to turn")
    world.flows += 1
    found = _known_turns(world.recorder, carried, values, asked, turn)
    if found is None:
        found = while_loop(world.recorder, list(carried), values, asked, turn)
    return tree_unflatten(found, tree)


def _known_turns(recorder: Any, carried: tuple, inputs: list, asked: Body, turn: Body) -> list[Any] | None:
    """What is carried in the end, recorded turn by turn, if the test is known each time; else None."""
    part, state = Part(recorder), list(carried)
    last = recorder.graph._root._prev
    for number in range(UNROLLED_TURNS + 1):
        (truth,) = replayed(recorder, asked, [*state, *inputs], lambda name, args: run(recorder, name, args))
        known = _known(recorder, truth)
        if known is False:
            found = state if number else [each.clone() for each in state]
            return one_history(recorder, found, (*carried, *inputs))
        if known is None or number * turn.operators > UNROLLED_OPERATORS:
            break
        state = replayed(recorder, turn, [*state, *inputs], lambda name, args: run(recorder, name, args))
    part.take(last)
    part.discard()
    return None


def _known(recorder: Any, truth: Any) -> bool | None:
    """What a tensor of one bool holds, if that depends on constants alone."""
    found = recorder.constants.exact_value(recorder.node_of(truth))
    if found is None:
        return None
    with recorder._paused():
        return bool(found.item())


def _with_integers(world: Any, test: Any, body: Any, carried: tuple, inputs: tuple) -> Any:
    """A loop that carries integers, which decide how often it runs."""
    values: Sequence[Any] = carried
    state, tree = State(world, (test, body, *inputs)), None
    for _ in range(_MOST_TURNS):
        with recorded(world.recorder):
            truth = _interpreted(world, test, (*values, *inputs))
        if type(truth) is Fake:
            truth = _known(world.recorder, truth)
        if type(truth) is not bool:
            raise Refused("it carries integers, and contents of tensors decide how often it runs")
        if not truth:
            break
        values, tree, _ = _turn_with_integers(world, body, carried, values, inputs)
    else:
        raise Refused(f"it carries integers, and runs more than {_MOST_TURNS} times")
    if tree is None:  # what a turn returns says how that is nested
        *_, tree, part = _turn_with_integers(world, body, carried, values, inputs)
        part.discard()
        values = [each.clone() if type(each) is Fake else each for each in carried]
    state.require_same()
    return tree_unflatten(_with_one_history(world.recorder, values, (*carried, *inputs)), tree)


def _turn_with_integers(world: Any, body: Any, carried: tuple, values: Sequence[Any], inputs: tuple) -> tuple:
    """What a turn returns, how that is nested, and what was recorded for it."""
    with recorded(world.recorder) as part:
        made, tree = tree_flatten(_interpreted(world, body, (*values, *inputs)))
        part.returns([each for each in made if type(each) is Fake])
    if len(made) != len(carried) or not all(map(_same_kind, carried, made)):
        raise Refused("what is carried changes its shape, strides or type from turn to turn")
    return made, tree, part


def _with_one_history(recorder: Any, values: Sequence[Any], given: Sequence[Any]) -> list[Any]:
    tensors = one_history(recorder, *([each for each in some if type(each) is Fake] for some in (values, given)))
    rest = iter(tensors)
    return [next(rest) if type(each) is Fake else each for each in values]


def _same_kind(before: Any, after: Any) -> bool:
    if type(before) is Fake:
        return type(after) is Fake and same_layout(before, after)
    return type(before) is type(after)


# What they share ----------------------------------------------------------------------------------------------------


@contextmanager
def _part(world: Any, roots: Sequence[Any]) -> Iterator[Part]:
    """A part that a function of the program's makes. `roots`: what it may change, if it changes anything."""
    state = State(world, roots)
    with world.backed_numbers.forgotten(), recorded(world.recorder) as part:
        yield part
    state.require_same()
    if any("gradient" in node.meta and node.meta["grad_enabled"] for node in part.nodes):
        raise Refused("it takes gradients that are differentiated again")


def _cut(parts: Sequence[Part]) -> tuple[list[Any], list[Body]]:
    outside, bodies = cut(parts)
    return [node.meta["val"] for node in outside], bodies


def _tensors_in(value: Any) -> tuple[list[Any], Any]:
    """The tensors in a value that is nothing else, and how they are nested."""
    leaves, tree = tree_flatten(value)
    _require_tensors(leaves)
    return leaves, tree


def _require_tensors(values: Sequence[Any]) -> None:
    if not all(type(each) is Fake for each in values):
        raise Refused("it takes or returns something else than plain tensors")


#: What is done with each operator that takes functions, by name. Their arguments are called as PyTorch's, which may be
#: given by keyword.
OPERATORS: dict[str, Callable[..., Any]] = {
    "cond": _cond, "scan": _scan, "map_impl": _map, "while_loop": _while_loop,
}  # fmt: skip

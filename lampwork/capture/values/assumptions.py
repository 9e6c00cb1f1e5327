"""Branches on the contents of tensors of which one side only raises, warns, or is for numbers that are not finite, or
for matrices that an operator could not take: the other side is assumed.

    if not (ids < size).all():             %all = all(lt(%ids, 97))
        raise ValueError("...")       ->   %_ = _assert_async(%all, "... model.py:12")
    y = table[ids]                         %y = index(%table, [%ids])

    assert ids.max().item() < size     ->   %_ = _assert_async(lt(%max, 97), "... model.py:14")

The assertion is checked when the program runs, before it writes anything that the caller can see: a functional graph
copies what it has for inputs to them at its end, also where the program wrote to them before the branch. Where it
fails, the call runs eagerly and raises the program's own error, or takes the other side after all. Random numbers drawn
by then are taken back, so that eager draws them again.
"""

from __future__ import annotations

import math
from typing import Any

import torch

from lampwork import _torch
from lampwork.capture.bytecode.decode import OP
from lampwork.capture.machine import Answer, InPython
from lampwork.capture.record.fake import Fake
from lampwork.fakes.operators import operator
from lampwork.ir.program import UNUSUAL_SIDE

aten = torch.ops.aten
_RAISE, _JUMP, _GLOBAL = OP["RAISE_VARARGS"], OP["JUMP"], OP["LOAD_GLOBAL"]
#: A side that goes on to any of these does not only raise.
_ENDS = frozenset(
    number for name, number in OP.items() if "JUMP" in name or name.startswith(("RETURN", "FOR_", "YIELD"))
)
#: How far a raise is looked for: messages are long at times.
_LONGEST = 200
_ATTRIBUTES, _CONSTANT = frozenset({OP["LOAD_ATTR"], OP["LOAD_METHOD"], OP["LOAD_GLOBAL"]}), OP["LOAD_CONST"]
#: How far the call of a warning is looked for.
_NEAR = 4


def assumed_branch(world: Any, frame: Any, value: Fake, if_true: int, if_false: int) -> bool | None:
    """The truth of `value` that keeps the frame from raising, or that it has where numbers are finite, asserted in the
    graph; None where both sides go on, and for all one knows may be taken in turns."""
    if value.constant is not None or value.numel() != 1:
        return None
    one = one_raises(frame.code, if_true, if_false)
    truth = _only_raises(frame.code, if_false) if one else _where_finite(value.node)
    if truth is None and not one and _zero_where_finite(value.node, None):
        truth = False
    usual = None
    if truth is None and world.recorder.contents.allowed:
        usual = truth = _where_it_succeeds(value.node)
        if truth is None:
            usual = truth = _without_warning(frame.code, if_true, if_false)
    if truth is None:
        return None
    assume(world, value, truth, _CHECK if usual is None else UNUSUAL_SIDE)
    return truth


#: Operators of linear algebra with the place of the result that says of each matrix whether it could be done: 0 if so.
_STATUS = {
    aten.linalg_cholesky_ex.default: 1, aten.linalg_inv_ex.default: 1, aten.linalg_lu_factor_ex.default: 2,
    aten.linalg_ldl_factor_ex.default: 2, aten._linalg_solve_ex.default: 3,
}  # fmt: skip


def _where_it_succeeds(node: Any) -> bool | None:
    """What a test of such a status comes to where all could be done; None for tests of something else.

    L, info = torch.linalg.cholesky_ex(a)
    if not info.any():
        return L
    """
    if type(node) is not torch.fx.Node or node.op != "call_function":
        return None
    if node.target is _torch.getitem:
        parent, place = node.args
        return False if _STATUS.get(parent.target) == place else None
    if node.target in (aten.gt.Scalar, aten.ne.Scalar, aten.eq.Scalar) and node.args[1] == 0:
        known = _where_it_succeeds(node.args[0])
        return known if known is None or node.target is not aten.eq.Scalar else not known
    if node.target in _PASS_ON or node.target in (aten.any.default, aten.all.default):
        return _where_it_succeeds(node.args[0])
    if node.target in (aten.logical_not.default, aten.bitwise_not.default):
        known = _where_it_succeeds(node.args[0])
        return None if known is None else not known
    return None


def _without_warning(code: Any, if_true: int, if_false: int) -> bool | None:
    """The truth for which a branch goes past a warning, where one of its sides begins with one."""
    warns = _begins_with_warning(code, if_true)
    return None if warns is _begins_with_warning(code, if_false) else not warns


def _begins_with_warning(code: Any, start: int) -> bool:
    """Whether the first name of another module that instructions from `start` on load is that of `warnings.warn`."""
    for operation, target in code.instructions[start : start + _NEAR]:
        if operation in _ENDS:
            return False
        if operation == _GLOBAL:
            return bool(target == "warnings")
    return False


#: Operators that pass a number on.
_PASS_ON = frozenset({
    aten.detach.default, aten.alias.default, aten._to_copy.default, aten.clone.default, aten.view.default,
})  # fmt: skip


def _zero_where_finite(node: Any, before: Any) -> bool:
    """Whether a number is zero where numbers that were tested are finite: what `torch.amp.GradScaler` keeps of whether
    it found others, `where(all_are_finite, 0.0, 1.0)` in a tensor of its own. `before`: the node that reads it."""
    if type(node) is not torch.fx.Node or node.op != "call_function":
        return False
    written = _last_write(node, before)
    if written is not None:
        return written.target is aten.copy_.default and _zero_where_finite(written.args[1], written)
    if node.target in _PASS_ON or (node.target is aten.add.Tensor and node.args[1] == 0.0):
        return _zero_where_finite(node.args[0], node)
    if node.target is aten.full.default:
        return node.args[1] == 0.0
    return (
        node.target is aten.where.self
        and _where_finite(node.args[0]) is True
        and _zero_where_finite(node.args[1], node)
    )


def _last_write(node: torch.fx.Node, before: torch.fx.Node | None) -> torch.fx.Node | None:
    """The last operator between `node` and `before` (None: the end) that wrote to the memory of `node`."""
    key, found, current = _torch.storage_key(node.meta["val"]), None, node.next
    while current.op != "root" and current is not before:
        if current.op == "call_function" and _torch.is_operator(current.target) and current.target._schema.is_mutable:
            if any(_torch.storage_key(each.meta["val"]) == key for each in current.all_input_nodes):
                found = current
        current = current.next
    return found


def _where_finite(node: Any) -> bool | None:
    """What a test of a graph comes to where the numbers that it looks at are finite; None for tests of something else.

    `torch.isfinite(x)` is recorded as `(x == x) * (abs(x) != inf)`.
    """
    if type(node) is not torch.fx.Node or node.target not in _TESTS:
        return None
    first = node.args[0]
    kind = _TESTS[node.target]
    if kind == "all alike":
        found = {_where_finite(each) for each in first}
        return found.pop() if len(found) == 1 else None
    if kind == "not finite":
        return False
    if kind == "same":
        return True if first is node.args[1] else None
    if kind == "infinite":
        is_size = type(first) is torch.fx.Node and first.target is aten.abs.default
        return True if is_size and node.args[1] == math.inf else None
    known = _where_finite(first)
    if kind == "both":
        return known if known is _where_finite(node.args[1]) else None
    return known if known is None or kind == "as it is" else not known


#: How a test follows from what it is made of.
_TESTS = {
    aten.isnan.default: "not finite", aten.isinf.default: "not finite",
    aten.eq.Tensor: "same", aten.ne.Scalar: "infinite", aten.mul.Tensor: "both", aten.logical_or.default: "both",
    aten.logical_and.default: "both", aten.bitwise_or.Tensor: "both", aten.bitwise_and.Tensor: "both",
    aten.any.default: "as it is", aten.all.default: "as it is",
    aten.stack.default: "all alike", aten.logical_not.default: "negated", aten.bitwise_not.default: "negated",
}  # fmt: skip


def one_raises(code: Any, if_true: int, if_false: int) -> bool:
    """Whether one side of a branch only raises, and the other goes on."""
    return _only_raises(code, if_true) is not _only_raises(code, if_false)


def _asserts_nothing(code: Any, position: int) -> bool:
    """Whether `torch._assert(False, ...)` begins there, which raises."""
    operation, name = code.instructions[position]
    following = code.instructions[position + 1 : position + 2]
    return operation in _ATTRIBUTES and name == "_assert" and following == [(_CONSTANT, False)]


def _only_raises(code: Any, start: int) -> bool:
    """Whether the instructions from `start` on end in `raise`, with no branch before it."""
    position = start
    for _ in range(_LONGEST):
        if position >= len(code.instructions):
            return False
        operation, target = code.instructions[position]
        if operation == _RAISE or _asserts_nothing(code, position):
            return True
        if operation == _JUMP and target > position:
            position = target
        elif operation in _ENDS:
            return False
        else:
            position += 1
    return False


def may_rerun(recorder: Any) -> bool:
    """Whether the call can run eagerly after the whole graph has run: it has written no input and drawn no numbers."""
    if any(_torch.storage_key(fake) in recorder.written for fake in recorder.inputs if isinstance(fake, Fake)):
        return False
    return not any(_torch.is_operator(node.target) and draws(node) for node in recorder.graph.nodes)


def draws(node: torch.fx.Node) -> bool:
    """Whether an operator's call advances a random number generator. Attention does so for its dropout alone."""
    op = operator(node.target)
    if not op.is_random:
        return False
    if "dropout_p" not in op.positional:
        return True
    position = op.positional.index("dropout_p")
    given = node.args[position] if position < len(node.args) else node.kwargs.get("dropout_p", 0.0)
    return given != 0.0


_CHECK = "a check of the program on the contents of a tensor failed"


def assume(world: Any, value: torch.Tensor, expected: bool, message: str = _CHECK) -> None:
    """Records that the one element of `value` is true, or is not."""
    place = world.location()
    where = f" at {place.file}:{place.line}" if place.file else ""
    holds = value if expected and value.dtype is torch.bool else value != 0 if expected else torch.logical_not(value)
    _torch.assert_async(holds, message + where)


_NO_MESSAGE = (
    "Expected cond to be True, but got False. (Could this error message be improved? If so, please report an "
    "enhancement request to PyTorch.)"
)


def _check_with(error_type: Any, cond: Any, message: Any = None) -> None:
    """`torch._check` and its kin, without importing PyTorch's symbolic shapes."""
    if isinstance(cond, torch.Tensor):
        raise TypeError(
            "cond must be a bool, but got a Tensor. For tensor conditions, use torch._check_tensor_all() to assert "
            "that all elements are true."
        )
    if not isinstance(cond, (bool, torch.SymBool)):
        raise TypeError(f"cond must be a bool, but got {type(cond)}")
    if not cond:
        raise _failure(error_type, message)


def _check_tensor_all_with(error_type: Any, cond: Any, message: Any = None) -> None:
    if not isinstance(cond, torch.Tensor):
        raise TypeError(f"cond must be a tensor, but got {type(cond)}")
    if cond.dtype != torch.bool:
        raise TypeError(f"cond tensor must have dtype torch.bool, but got {cond.dtype}")
    if not cond.all():
        raise _failure(error_type, message)


def _failure(error_type: Any, message: Any) -> Exception:
    if message is not None and not callable(message):
        return TypeError("message must be a callable")
    return error_type(_NO_MESSAGE if message is None else str(message()))


#: By these functions programs say what they expect of a tensor's contents: branches that raise.
NATIVES: dict[Any, Answer] = {
    _torch.check_with: InPython(_check_with),
    _torch.check_tensor_all_with: InPython(_check_tensor_all_with),
}

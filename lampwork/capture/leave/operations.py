"""The operation of an instruction, as a call that can run natively: what a break hands to the runtime.

    operation = operation_of(frame)     # the frame stands right before the instruction
    operation.callable(*operation.args, **operation.kwargs) is what the instruction does first

Then its result is pushed, or dropped, or takes the operand's place and the instruction runs again (`bool(x)` before a
jump).
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable
from dataclasses import field
from typing import Any

from lampwork.capture.bytecode.decode import OP, OPERATIONS
from lampwork.capture.machine import NULL, Frame
from lampwork.ir import operations as native
from lampwork.ir.record import record


@record(frozen=False)
class Operation:
    """`pops` operands come off the stack; then `keeps` go on it, then what is delivered.

    `delivery`: "push" the result; "drop" it; "spread" it, a pair; "iterate": push it, or jump to `target` if it is
    `EXHAUSTED`; "jump": to `target` with the operand kept if it is `EXHAUSTED`, else drop the operand.
    `again`: then the same instruction runs, else the next one.
    """

    callable: Any
    args: tuple
    pops: int
    delivery: str = "push"
    kwargs: dict[str, Any] = field(default_factory=dict)
    again: bool = False
    keeps: tuple[Any, ...] = ()
    target: int = -1


Describe = Callable[[Frame, Any], "Operation | None"]
_TABLE: dict[str, Describe] = {}


def operation_of(frame: Frame) -> Operation | None:
    """The operation of the instruction that `frame` is about to execute; None for one that has none."""
    number, argument = frame.code.instructions[frame.index]
    describe = _TABLE.get(OPERATIONS[number])
    return None if describe is None else describe(frame, argument)


def _operation(*names: str) -> Callable[[Describe], Describe]:
    def register(describe: Describe) -> Describe:
        for name in names:
            _TABLE[name] = describe
        return describe

    return register


# Calls --------------------------------------------------------------------------------------------------------------


def _callee(first: Any, second: Any, args: list[Any]) -> tuple[Any, tuple]:
    """Up to 3.12 the stack holds (null, callable) or (method, self), from 3.13 on (callable, null or self)."""
    if first is NULL:
        return second, tuple(args)
    return first, tuple(args) if second is NULL else (second, *args)


@_operation("CALL")
def _call(frame: Frame, argument: int) -> Operation:
    stack = frame.stack
    split = len(stack) - argument
    function, args = _callee(stack[split - 2], stack[split - 1], stack[split:])
    return Operation(function, args, argument + 2)


@_operation("CALL_KW")
def _call_kw(frame: Frame, argument: int) -> Operation:
    stack = frame.stack
    names = stack[-1]
    split = len(stack) - 1 - argument
    values = stack[split:-1]
    plain = argument - len(names)
    function, args = _callee(stack[split - 2], stack[split - 1], values[:plain])
    return Operation(function, args, argument + 3, kwargs=dict(zip(names, values[plain:])))


@_operation("CALL_FUNCTION_EX")
def _call_function_ex(frame: Frame, argument: bool) -> Operation | None:
    stack = frame.stack
    kwargs = stack[-1] if argument else {}
    function, second, values = stack[-4:-1] if argument else stack[-3:]
    if type(values) is not tuple or type(kwargs) is not dict or not all(type(name) is str for name in kwargs):
        return None
    if function is NULL:
        function, second = second, NULL
    if second is not NULL and second is not function:
        values = (second, *values)
    return Operation(function, values, 3 + argument, kwargs=dict(kwargs))


# Attributes, items, operators ---------------------------------------------------------------------------------------


@_operation("LOAD_ATTR")
def _load_attr(frame: Frame, argument: str) -> Operation:
    return Operation(getattr, (frame.stack[-1], argument), 1)


@_operation("LOAD_METHOD")
def _load_method(frame: Frame, argument: str) -> Operation:
    return Operation(getattr, (frame.stack[-1], argument), 1, keeps=(NULL,))


@_operation("STORE_ATTR")
def _store_attr(frame: Frame, argument: str) -> Operation:
    return Operation(setattr, (frame.stack[-1], argument, frame.stack[-2]), 2, "drop")


@_operation("DELETE_ATTR")
def _delete_attr(frame: Frame, argument: str) -> Operation:
    return Operation(delattr, (frame.stack[-1], argument), 1, "drop")


@_operation("BINARY_SUBSCR")
def _get_item(frame: Frame, argument: Any) -> Operation:
    return Operation(operator.getitem, tuple(frame.stack[-2:]), 2)


@_operation("STORE_SUBSCR")
def _set_item(frame: Frame, argument: Any) -> Operation:
    value, container, key = frame.stack[-3:]
    return Operation(operator.setitem, (container, key, value), 3, "drop")


@_operation("DELETE_SUBSCR")
def _delete_item(frame: Frame, argument: Any) -> Operation:
    return Operation(operator.delitem, tuple(frame.stack[-2:]), 2, "drop")


@_operation("BINARY_OP", "INPLACE_OP", "COMPARE_OP")
def _binary(frame: Frame, argument: Any) -> Operation:
    return Operation(argument, tuple(frame.stack[-2:]), 2)


@_operation("UNARY_OP")
def _unary(frame: Frame, argument: Any) -> Operation:
    return Operation(argument, (frame.stack[-1],), 1)


@_operation("CONTAINS_OP")
def _contains(frame: Frame, argument: int) -> Operation:
    item, container = frame.stack[-2:]
    return Operation(native.not_contains if argument else operator.contains, (container, item), 2)


@_operation("IS_OP")
def _is(frame: Frame, argument: int) -> Operation | None:
    operands = tuple(frame.stack[-2:])
    if not any(each is True or each is False for each in operands):
        return None  # what is handed over as an equal number or text need not be the same object
    return Operation(operator.is_not if argument else operator.is_, operands, 2)


@_operation("UNARY_NOT", "TO_BOOL", "POP_JUMP_IF_TRUE", "POP_JUMP_IF_FALSE")
def _truth(frame: Frame, argument: Any) -> Operation:
    return Operation(bool, (frame.stack[-1],), 1, again=True)


@_operation("JUMP_IF_TRUE_OR_POP")
def _jump_if_true(frame: Frame, argument: int) -> Operation:
    return Operation(native.exhausted_if_true, (frame.stack[-1],), 0, "jump", target=argument)


@_operation("JUMP_IF_FALSE_OR_POP")
def _jump_if_false(frame: Frame, argument: int) -> Operation:
    return Operation(native.exhausted_if_false, (frame.stack[-1],), 0, "jump", target=argument)


@_operation("GET_LEN")
def _length(frame: Frame, argument: Any) -> Operation:
    return Operation(len, (frame.stack[-1],), 0)


# Iteration, unpacking, text -----------------------------------------------------------------------------------------


@_operation("GET_ITER")
def _get_iter(frame: Frame, argument: Any) -> Operation:
    return Operation(iter, (frame.stack[-1],), 1)


@_operation("FOR_ITER")
def _for_iter(frame: Frame, argument: int) -> Operation:
    return Operation(native.advance, (frame.stack[-1],), 0, "iterate", target=argument)


@_operation("UNPACK_SEQUENCE")
def _unpack(frame: Frame, argument: int) -> Operation:
    return Operation(native.unpacked, (frame.stack[-1], argument), 1, again=True)


@_operation("UNPACK_EX")
def _unpack_ex(frame: Frame, argument: Any) -> Operation:
    return Operation(tuple, (frame.stack[-1],), 1, again=True)


@_operation("LIST_EXTEND")
def _list_extend(frame: Frame, argument: int) -> Operation:
    return Operation(list.extend, (frame.stack[-1 - argument], frame.stack[-1]), 1, "drop")


@_operation("SET_UPDATE")
def _set_update(frame: Frame, argument: int) -> Operation:
    return Operation(set.update, (frame.stack[-1 - argument], frame.stack[-1]), 1, "drop")


@_operation("DICT_UPDATE")
def _dict_update(frame: Frame, argument: int) -> Operation:
    return Operation(dict.update, (frame.stack[-1 - argument], frame.stack[-1]), 1, "drop")


@_operation("FORMAT_VALUE")
def _format_value(frame: Frame, argument: tuple[int, bool]) -> Operation:
    conversion, has_spec = argument
    value = frame.stack[-2] if has_spec else frame.stack[-1]
    return Operation(native.formatted, (value, conversion, frame.stack[-1] if has_spec else ""), 1 + has_spec)


@_operation("CONVERT_VALUE")
def _convert_value(frame: Frame, argument: int) -> Operation:
    return Operation(native.converted, (frame.stack[-1], argument), 1)


@_operation("BUILD_INTERPOLATION")
def _build_interpolation(frame: Frame, argument: tuple[int, bool]) -> Operation:
    conversion, has_spec = argument
    value, text, spec = frame.stack[-3:] if has_spec else (*frame.stack[-2:], "")
    return Operation(native.interpolated, (value, text, conversion, spec), 2 + has_spec)


@_operation("BUILD_TEMPLATE")
def _build_template(frame: Frame, argument: Any) -> Operation:
    return Operation(native.template_string, tuple(frame.stack[-2:]), 2)


# Contexts, imports --------------------------------------------------------------------------------------------------


@_operation("BEFORE_WITH")
def _before_with(frame: Frame, argument: Any) -> Operation:
    return Operation(native.enter_with, (frame.stack[-1],), 1, "spread", keeps=(NULL,) if argument else ())


@_operation("WITH_EXCEPT_START")
def _with_except_start(frame: Frame, argument: Any) -> Operation:
    error = frame.stack[-1]
    return Operation(native.leave_with, (frame.stack[-4], error), 0)


@_operation("IMPORT_NAME")
def _import_name(frame: Frame, argument: str) -> Operation | None:
    if frame.function is None:
        return None
    level, names = frame.stack[-2:]
    return Operation(native.import_from_frame, (frame.function, argument, names, level), 2)


# ---------------------------------------------------------------------------------------------------------------------

#: Instructions that can enter a function, break, or change anything but the stack and the locals of their frame.
STEPS: frozenset[str] = frozenset(_TABLE) | {
    "SEND", "LOAD_SUPER_ATTR", "STORE_DEREF", "DELETE_DEREF",
    "LOAD_DEREF", "LOAD_GLOBAL", "STORE_GLOBAL", "DELETE_GLOBAL", "DICT_MERGE", "LIST_APPEND", "SET_ADD", "MAP_ADD",
    "IMPORT_FROM", "IMPORT_STAR", "CHECK_EXC_MATCH", "CHECK_EG_MATCH", "RAISE_VARARGS", "MATCH_MAPPING",
    "MATCH_SEQUENCE", "MATCH_KEYS", "MATCH_CLASS", "YIELD_VALUE", "RETURN_GENERATOR", "GET_YIELD_FROM_ITER",
    "BUILD_SET", "BUILD_MAP", "BUILD_CONST_KEY_MAP", "BUILD_STRING", "BUILD_SLICE", "BUILD_TUPLE", "BUILD_LIST",
    "LIST_TO_TUPLE", "MAKE_FUNCTION", "SET_FUNCTION_ATTRIBUTE", "POP_JUMP_IF_NONE", "POP_JUMP_IF_NOT_NONE",
    "INTRINSIC_1", "INTRINSIC_2", "LOAD_NAME", "STORE_NAME", "DELETE_NAME", "LOAD_FROM_DICT_OR_DEREF",
    "LOAD_FROM_DICT_OR_GLOBALS", "PUSH_EXC_INFO", "POP_EXCEPT", "RERAISE", "PREP_RERAISE_STAR", "PRINT_EXPR",
    "SETUP_ANNOTATIONS",
}  # fmt: skip


def operands_of(operation: int, argument: Any) -> int:
    """How many entries from the top of the stack an instruction may look at."""
    return _counts(OPERATIONS[operation], argument if type(argument) in (int, bool, tuple) else None)


@functools.cache
def _counts(name: str, argument: Any) -> int:
    if name in ("CALL", "BUILD_CONST_KEY_MAP"):
        return argument + 2
    if name == "CALL_KW":
        return argument + 3
    if name == "CALL_FUNCTION_EX":
        return 3 + argument
    if name in ("BUILD_TUPLE", "BUILD_LIST", "BUILD_SET", "BUILD_STRING", "BUILD_SLICE"):
        return argument
    if name == "BUILD_MAP":
        return 2 * argument
    if name in ("LIST_APPEND", "SET_ADD", "LIST_EXTEND", "SET_UPDATE", "DICT_UPDATE"):
        return argument + 1
    if name == "MAP_ADD":
        return argument + 2
    if name == "DICT_MERGE":
        return argument + 4
    if name in ("LOAD_GLOBAL", "LOAD_DEREF", "DELETE_DEREF", "DELETE_GLOBAL", "RETURN_GENERATOR"):
        return 0
    if name in ("STORE_SUBSCR", "LOAD_SUPER_ATTR", "MATCH_CLASS", "BUILD_INTERPOLATION"):
        return 3
    if name == "MAKE_FUNCTION":
        return 1 + bin(argument or 0).count("1")
    if name == "WITH_EXCEPT_START":
        return 4
    if name in _ONE:
        return 1
    return 2


_ONE = frozenset({
    "LOAD_ATTR", "LOAD_METHOD", "DELETE_ATTR", "UNARY_OP", "UNARY_NOT", "TO_BOOL", "POP_JUMP_IF_TRUE",
    "POP_JUMP_IF_FALSE", "POP_JUMP_IF_NONE", "POP_JUMP_IF_NOT_NONE", "JUMP_IF_TRUE_OR_POP", "JUMP_IF_FALSE_OR_POP",
    "GET_LEN", "GET_ITER", "FOR_ITER", "UNPACK_SEQUENCE", "UNPACK_EX", "CONVERT_VALUE", "BEFORE_WITH", "STORE_GLOBAL",
    "STORE_DEREF", "PUSH_EXC_INFO", "POP_EXCEPT", "RERAISE", "LIST_TO_TUPLE", "IMPORT_FROM", "INTRINSIC_1",
    "YIELD_VALUE", "MATCH_MAPPING", "MATCH_SEQUENCE",
})  # fmt: skip

STEP_NUMBERS: frozenset[int] = frozenset(OP[name] for name in STEPS)

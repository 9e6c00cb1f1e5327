"""Numbers that a program takes out of tensors and only passes on: `losses.append(loss.item())`.

Such a number is known once the graph has run. Until then it can be stored, returned, written into text, computed with,
and meet tensors in arithmetic. It is a tensor of one element in the graph, or what a function of Python makes of such
numbers behind it (`math.sqrt(loss.item())`), or both. Whatever else looks at it (a branch, an index, a function in C)
breaks the graph, and finds the number where the program goes on.

Functions that fail for some numbers (division, roots) are assumed to succeed: all of them are evaluated after the
graph, before anything that the caller can see is written; where one fails, the call runs eagerly (`assumed`).
"""

from __future__ import annotations

import operator
from typing import Any

import torch

from lampwork import _torch
from lampwork.capture.record.fake import Fake
from lampwork.capture.values.assumptions import may_rerun
from lampwork.capture.values.counters import is_nonzero
from lampwork.capture.values.family import HANDS_ON
from lampwork.capture.values.host_results import HostResult
from lampwork.capture.values.scalar import (
    WHAT_IS_DONE,
    Late,
    Scalar,
    element,
    function_of,
    give,
    given,
    is_backed,
    is_unbacked,
    kind_of,
    operand,
)
from lampwork.fakes.fake import DataDependent
from lampwork.fakes.symbolic import by_contents, size_of
from lampwork.ir import operations
from lampwork.ir.number import Apply, Constant, NumberExpr, applied
from lampwork.ir.number_operations import ARITHMETIC, KINDS, OPERATIONS, operation_of
from lampwork.ir.size import bounds

#: A list made by `tolist` is one graph result for each element.
_LONGEST_LIST = 64
_EXACT_INTEGER = 1 << 53
#: Of the largest float32, as a double.
_LARGEST_SAFE_POWER = 7
#: Arithmetic that operators of the graph compute as Python does.
PLAIN = frozenset({each.function for each in OPERATIONS.values() if each.in_graph.startswith("operator.")})
#: Arithmetic that makes sizes of sizes.
_OF_SIZES = frozenset({"add", "mul"})
_DIVISIONS = frozenset({operator.truediv, operator.floordiv, operator.mod})
#: Kernels of these round a number beside a half type to that type; others compute with it in single precision.
_ROUNDS_NUMBERS = frozenset({operator.add, operator.sub})
_HALVES = frozenset({torch.float16, torch.bfloat16})


def item(recorder: Any, tensor: Any) -> Any:
    """`tensor.item()`: the number where the program made the tensor of numbers, else one that no call has.

    Raises `DataDependent` for complex numbers and for tensors inside a function transform.
    """
    if type(tensor) is not Fake or tensor.device.type == "meta":
        raise DataDependent("Tensor.item")
    known = _known(recorder, tensor)
    if known is not None:
        with recorder._paused():
            return known.item()
    batch = recorder.contents.batch_in(tensor)
    if batch is not None:
        return batch
    kind: type
    if tensor.is_floating_point():
        dtype, kind = torch.float64, float
    elif tensor.dtype is torch.bool:
        dtype, kind = torch.bool, bool
    elif tensor.is_complex() or tensor.dtype is torch.uint64:
        raise DataDependent("Tensor.item")
    else:
        dtype, kind = torch.int64, int
    with torch.no_grad():
        number = element(tensor.detach().reshape(()).to(dtype, copy=True), kind)
    number.narrow = kind is float and tensor.dtype is not torch.float64
    return number


def _known(recorder: Any, tensor: Fake) -> torch.Tensor | None:
    """What `tensor` holds in every call, where it is made of the program's numbers: `torch.arange(2, 4).tolist()`."""
    if _torch.storage_key(tensor) in recorder.written:
        return None
    if tensor.constant is not None:
        return tensor.constant
    return recorder.constants.exact_value(recorder.node_of(tensor)) if tensor.numel() <= _LONGEST_LIST else None


def items(recorder: Any, tensor: Any) -> Any:
    """`tensor.tolist()`."""
    if (
        type(tensor) is not Fake
        or tensor.device.type == "meta"
        or any(recorder.contents.number_of(size) is None for size in tensor.shape)
    ):
        raise DataDependent("Tensor.tolist")
    known = _known(recorder, tensor)
    if known is not None:
        with recorder._paused():
            return known.tolist()
    if tensor.numel() > _LONGEST_LIST:
        raise DataDependent("Tensor.tolist")
    return [items(recorder, each) for each in tensor.detach().unbind(0)] if tensor.dim() else item(recorder, tensor)


def counted(value: Any) -> Any:
    """A number of elements that contents decide, as a number out of a tensor; anything else unchanged."""
    if not by_contents(value):
        return value
    with torch.no_grad():
        return element(torch.scalar_tensor(value, dtype=torch.int64), int)


def host_number(result: HostResult, kind: type) -> Scalar:
    """The number that a host call gives."""
    return element(result, kind)


def is_early(value: Any) -> bool:
    """Whether a number is there before the graph runs."""
    if type(value) is Scalar:
        return type(given(value.expression)) is HostResult
    return type(value) in (int, float, bool, type(None)) or (type(value) is torch.SymInt and not by_contents(value))


def _is_early(number: NumberExpr) -> bool:
    by = given(number)
    return type(by) is HostResult or type(number) is Constant or (type(by) is torch.SymInt and not by_contents(by))


# Arithmetic -----------------------------------------------------------------------------------------------------------


def computed(world: Any, number: NumberExpr, kind: type, may_fail: bool = False, nonnegative: bool = False) -> Scalar:
    """The number that Python computes when the graph has run; of what the host gives by then, before it.

    Raises `DataDependent` if it may fail where something has been written that the caller can see.
    """
    if any(type(given(each)) is HostResult for each in number.parts) and all(map(_is_early, number.parts)):
        if given(number) is None:
            give(number, world.host_calls.make(function_of(number), number.parts, changes=False))
    elif may_fail:
        if not may_rerun(world.recorder):
            raise DataDependent(WHAT_IS_DONE)
        world.backed_numbers.assumed.setdefault(number, world.machine.steps)
    return Scalar(number, kind, nonnegative=nonnegative)


def compute(world: Any, op: Any, left: Any, right: Any) -> Any:
    """`op(left, right)` of numbers one of which is not known: in the graph, where that computes the same, or by
    Python."""
    kinds = kind_of(left), kind_of(right)
    if op not in ARITHMETIC or None in kinds:
        raise DataDependent(WHAT_IS_DONE)
    real = float in kinds
    if op is operator.mod and type(right) is int and right == 1 and not real:
        return 0
    if op in _DIVISIONS and is_unbacked(right) and not right.nonzero:
        if not may_rerun(world.recorder):  # it could fail where it is too late
            right.nonzero = is_nonzero(world, given(right.expression))
    in_graph = op in PLAIN and real and (op is not operator.truediv or _is_nonzero(right))
    nonnegative = op in (operator.add, operator.mul) and _is_nonnegative(left) and _is_nonnegative(right)
    if in_graph and _has_tensor(left) and _has_tensor(right):
        with torch.no_grad():
            return element(op(_as_float(left), _as_float(right)), float, nonnegative=nonnegative)
    kind = float if real or op is operator.truediv else int
    may_fail = op not in (operator.add, operator.sub, operator.mul)
    if op in (operator.mod, operator.floordiv) and not real and type(right) is int and right != 0:
        may_fail = False
    if op is operator.pow:
        if type(right) is float and kinds[0] is float:
            return _power(world, left, right)
        if type(right) not in (int, bool) or right < 0 or right > 1 << 10:
            raise DataDependent(WHAT_IS_DONE)
        narrow = is_unbacked(left) and left.narrow and right <= _LARGEST_SAFE_POWER
        may_fail, nonnegative = real and not narrow, right % 2 == 0
    elif real and int in kinds and not all(map(_fits_float, (left, right))):
        may_fail = True
    elif may_fail and _is_nonzero(right) and kind is float and op is operator.truediv:
        may_fail = not all(map(_fits_float, (left, right)))
    row = operation_of(op)
    assert row is not None
    return computed(world, applied(row.name, operand(left), operand(right)), kind, may_fail, nonnegative)


def _power(world: Any, base: Scalar, exponent: float) -> Scalar:
    """`base ** exponent` of floats, which is complex where the base is negative: then the call runs eagerly."""
    is_real = 0.0 <= exponent <= 1.0 and _is_nonnegative(base)
    number = applied("pow" if is_real else "real_power", operand(base), operand(exponent))
    return computed(world, number, float, may_fail=not is_real, nonnegative=is_real)


def _has_tensor(value: Any) -> bool:
    """Whether the graph can compute with the number in double precision, exactly as Python does."""
    if type(value) is Scalar:
        return type(given(value.expression)) is Fake
    return type(value) is float or (type(value) in (int, bool) and abs(value) < _EXACT_INTEGER)


def _fits_float(value: Any) -> bool:
    """Whether converting the number to floating point cannot fail."""
    if type(value) is Scalar:
        return value.kind is not int or type(given(value.expression)) is Fake
    return type(value) is not int or abs(value) < 1 << 1000


def _is_nonzero(value: Any) -> bool:
    if type(value) is Scalar:
        return value.nonzero
    if type(value) is torch.SymInt:
        return bool(value != 0)  # guarded
    return type(value) in (int, float, bool) and value != 0


def _is_nonnegative(value: Any) -> bool:
    if type(value) is Scalar:
        return value.nonnegative
    return type(value) in (int, float, bool) and value >= 0


def _as_float(value: Any) -> Any:
    return tensor_of(value).to(torch.float64) if type(value) is Scalar else float(value)


# Numbers and tensors --------------------------------------------------------------------------------------------------


def _in_graph(function: Any) -> Any:
    """The operator on tensors of double precision that computes what `function` of Python does, to the last bits; None
    where there is none."""
    row = operation_of(function)
    if row is None or not row.in_graph:
        return None
    module, _, name = row.in_graph.partition(".")
    return getattr(operator if module == "operator" else torch, name)


def tensor_of(number: Scalar, beside: Fake | None = None) -> Fake:
    """The number as a tensor of one element in the graph: one of the host's on the device of `beside`. Raises
    `DataDependent` if no operator computes it."""
    by = given(number.expression)
    if type(by) is HostResult:
        return by.tensor(number.kind) if beside is None else by.tensor(number.kind, beside.device)
    return _tensor_of(number.expression)


def _tensor_of(number: NumberExpr) -> Fake:
    by = given(number)
    if type(by) is torch.SymInt:
        made: Any = torch.scalar_tensor(by, dtype=torch.int64)
        return made
    if type(by) is HostResult:
        return by.tensor(KINDS[number.kind or "float"])
    if type(by) is not Fake:
        compute = _in_graph(function_of(number))
        if compute is None or not _is_real(number):
            raise DataDependent(WHAT_IS_DONE)
        with torch.no_grad():
            by = give(number, compute(*map(_real_operand, number.parts)))
    return by


def _real_operand(number: NumberExpr) -> Any:
    return float(number.value) if type(number) is Constant else _tensor_of(number).to(torch.float64)


def _is_real(number: NumberExpr) -> bool:
    """Whether it is a float; powers are where a part is."""
    return number.kind == "float" or (number.kind is None and any(map(_is_real, number.parts)))


def as_size(recorder: Any, number: Any, signed: bool = False) -> Any:
    """An integer as a size that contents decide: one that a tensor holds, or that the host gives, and sums, products
    and remainders of such integers and of sizes. `signed`: differences, too, which may be negative. An integer that is
    computed otherwise stays as it is."""
    if not is_unbacked(number) or number.kind is not int:
        return number
    found = _size_of(recorder, number.expression, signed)
    return number if found is None else found


def as_sizes(recorder: Any, values: Any) -> tuple[Any, ...]:
    """What a `torch.Size` is made of: it holds integers and sizes, and no number that stands for itself."""
    made = tuple([as_size(recorder, each.take() if is_backed(each) else each) for each in values])
    if any(type(each) is Scalar and each.kind is int for each in made):
        raise DataDependent("torch.Size of a number taken out of a tensor")
    return made


def _size_of(recorder: Any, number: NumberExpr, signed: bool) -> Any:
    if type(number) is Constant:
        return number.value
    if isinstance(number, Apply):
        name, divisor = number.operation, number.args[-1]
        divides = name in ("mod", "floordiv") and type(divisor) is Constant and _is_positive(divisor.value)
        if divides or name in _OF_SIZES or (signed and name == "sub"):
            parts = [_size_of(recorder, each, signed) for each in number.args]
            if all(_is_size(each, signed) for each in parts):
                return OPERATIONS[name].function(*parts)
    by = given(number)
    if type(by) is HostResult:
        by = by.tensor(int)
    if type(by) is torch.SymInt:
        return by
    return recorder.contents.of_number(by) if type(by) is Fake else None


def _is_positive(value: Any) -> bool:
    return type(value) is int and value > 0


def _is_size(value: Any, signed: bool) -> bool:
    return type(value) in (int, torch.SymInt) and (signed or bounds(size_of(value))[0] >= 0)


def as_element(recorder: Any, number: Scalar, tensor: Fake) -> Fake:
    """The number as what `tensor` gets to hold where it is stored."""
    is_exact = tensor.dtype in (torch.int64, torch.float32, torch.float64)
    if given(number.expression) is None and number.kind is int and is_exact:
        size = as_size(recorder, number)
        if type(size) in (int, torch.SymInt):
            return torch.scalar_tensor(size, dtype=torch.int64, device=tensor.device).to(tensor.dtype)
    return beside(number, tensor)


def decision_of(number: Scalar) -> Fake | None:
    """What a comparison of numbers, or a test of one, comes to, as a tensor in the graph; None if that might not be
    exactly what Python comes to."""
    expression = number.expression
    function, parts = function_of(expression), expression.parts
    tensors = [each.value if type(each) is Constant else given(each) for each in parts]
    kinds = {"float" if _is_real(each) else each.kind for each in parts}
    if Fake not in map(type, tensors) or any(type(each) not in _IN_DECISIONS for each in tensors):
        return None
    if kinds == {"float", "int"} and all(_is_real(part) or _fits_double(each) for part, each in zip(parts, tensors)):
        kinds = {"float"}
    if kinds != {"float"} and (kinds != {"int"} or any(type(each) is int and abs(each) >= 1 << 62 for each in tensors)):
        return None
    compute = function if not isinstance(expression, Apply) else _in_graph(function) if number.kind is bool else None
    if compute is None:
        return None
    with torch.no_grad():
        return compute(*tensors)


def _fits_double(value: Any) -> bool:
    return type(value) is int and abs(value) <= 1 << 53


_IN_DECISIONS = frozenset({Fake, torch.SymInt, int, float, bool})


def compute_with_tensor(plain: Any, left: Any, right: Any) -> Any:
    if plain is None:
        raise DataDependent(WHAT_IS_DONE)
    tensor, number = (left, right) if type(left) is Fake else (right, left)
    if not is_unbacked(number):
        raise DataDependent(WHAT_IS_DONE)
    if number.is_either:
        chosen = chosen_beside(number, tensor)
        return plain(tensor, chosen) if tensor is left else plain(chosen, tensor)
    if tensor.dtype in _HALVES and number.kind is not bool:  # which compute with numbers in single precision
        with torch.no_grad():
            exact = tensor_of(number, tensor)
            wide = (exact.to(tensor.dtype) if plain in _ROUNDS_NUMBERS else exact).to(torch.float32)
        if plain is operator.truediv and tensor is right:
            return (right.reciprocal().float() * wide).to(tensor.dtype)
        operands = (tensor.float(), wide) if tensor is left else (wide, tensor.float())
        return plain(*operands).to(tensor.dtype)
    if number.kind is float and not tensor.is_floating_point() and not tensor.is_complex():
        _ = plain(tensor, 1.5) if tensor is left else plain(1.5, tensor)  # what eager refuses beside a float
        tensor = tensor.to(torch.get_default_dtype())
        left, right = (tensor, number) if number is right else (number, tensor)
    if tensor is left:
        return plain(left, beside(right, left))
    if plain is operator.truediv:  # as Tensor.__rtruediv__ computes it
        return right.reciprocal() * beside(left, right)
    return plain(beside(left, right), right)


def compute_in_place(method: Any, tensor: Any, number: Any) -> Any:
    """`tensor.add_(number)` and the like."""
    if type(tensor) is not Fake or not is_unbacked(number):
        raise DataDependent(WHAT_IS_DONE)
    return method(tensor, beside(number, tensor))


def beside(number: Any, tensor: Any) -> Any:
    """The number as what it becomes next to `tensor` in an operator: a tensor of one element of the same type.

    Half types compute with the number in single precision, and integers become floating-point next to a float: those
    break.
    """
    exact = tensor.dtype in (torch.float32, torch.float64) or (tensor.dtype is torch.int64 and number.kind is int)
    if number.kind is bool or not exact:
        raise DataDependent(WHAT_IS_DONE)
    with torch.no_grad():
        return tensor_of(number, tensor).to(tensor.dtype)


# Functions of numbers -------------------------------------------------------------------------------------------------


def extreme(world: Any, largest: bool, args: tuple) -> Any:
    """`max(*args)` or `min(*args)` where a number or a tensor that is not known is among them, or in a list."""
    if len(args) == 2 and Fake in map(type, args):
        return _extreme_or_tensor(world, largest, *args)
    values = args[0] if len(args) == 1 and type(args[0]) in (list, tuple) else args
    if not any(is_unbacked(each) for each in values):
        return HANDS_ON
    values = world.families.scalar.beside_unbacked(values)
    kinds = set(map(kind_of, values))
    kind = kinds.pop()
    if kinds or kind is None:
        raise DataDependent(WHAT_IS_DONE)
    if len(values) == 1:
        return values[0]
    if kind is float and all(map(_has_tensor, values)):
        return _extreme_in_graph(largest, values)
    return computed(world, applied("max" if largest else "min", *map(operand, values)), kind)


def _extreme_in_graph(largest: bool, values: Any) -> Scalar:
    """As Python compares: the first stays unless a later one is beyond it. No NaN is, and nothing is beyond a NaN."""
    with torch.no_grad():
        found, *rest = map(_as_tensor, values)
        for each in rest:
            found = torch.where(each > found if largest else each < found, each, found)
    bounded = largest and any(type(each) is float and each > 0 for each in values)
    return element(found, float, nonzero=bounded or all(map(_is_nonzero, values)))


def _extreme_or_tensor(world: Any, largest: bool, first: Any, second: Any) -> Any:
    """`max(1, mask.sum())`: the number or the tensor, whichever it is."""
    tensor, number = (first, second) if type(first) is Fake else (second, first)
    if type(number) not in (int, float) or tensor.dim() or tensor.requires_grad or tensor.constant is not None:
        return HANDS_ON
    if tensor.dtype is torch.bool or tensor.is_complex() or torch.result_type(tensor, number) != tensor.dtype:
        return HANDS_ON
    beyond = second > first if largest else second < first  # as Python asks
    if world.families.tensor.decided(beyond) is not None:
        return HANDS_ON
    takes_tensor = beyond if second is tensor else torch.logical_not(beyond)
    condition = element(takes_tensor.detach(), bool)
    return element(Late(operations.chosen, (condition, tensor, number)), None)


def chosen_beside(value: Scalar, tensor: Any) -> Any:
    """What is either a number or a tensor, as a tensor for arithmetic with another one."""
    condition, choice, number = given(value.expression).args
    if torch.result_type(tensor, choice) != torch.result_type(tensor, number) or choice.device != tensor.device:
        raise DataDependent("what is done with a number that may be a tensor")
    return torch.where(tensor_of(condition), choice, number)


def _as_tensor(value: Any) -> Any:
    found = _as_float(value)
    return found if type(found) is Fake else torch.tensor(found, dtype=torch.float64)


def total(world: Any, values: Any) -> Any:
    """`sum(values)` where numbers that are not known are among them, by Python's own rules, which differ between
    versions."""
    if type(values) not in (list, tuple):
        return HANDS_ON
    values = list(world.touch(values))
    kinds = set(map(kind_of, values))
    if None in kinds or not any(is_unbacked(each) for each in values):
        return HANDS_ON
    return computed(world, applied("total", *map(operand, values)), float if float in kinds else int)


def check_assumed(world: Any) -> int:
    """The step of the first computation that may fail where that would be noticed too late; 0 if there is none."""
    assumed = world.backed_numbers.assumed
    return next(iter(assumed.values())) if assumed and not may_rerun(world.recorder) else 0

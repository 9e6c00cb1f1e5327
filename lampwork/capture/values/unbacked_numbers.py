"""Numbers that a program takes out of tensors and only passes on: `losses.append(loss.item())`.

Such a number is known once the graph has run. Until then it can be stored, returned, written into text, computed with,
and meet tensors in arithmetic. It is a tensor of one element in the graph, or what a function of Python makes of such
numbers behind it (`math.sqrt(loss.item())`), or both. Whatever else looks at it (a branch, an index, a function in C)
breaks the graph, and finds the number where the program goes on.

Functions that fail for some numbers (division, roots) are assumed to succeed: all of them are evaluated after the
graph, before anything that the caller can see is written; where one fails, the call runs eagerly (`assumed`).
"""

from __future__ import annotations

import math
import operator
from typing import TYPE_CHECKING, Any

import torch

from lampwork import _torch
from lampwork.capture.machine.operators import IN_PLACE
from lampwork.capture.outside.overlay import Break
from lampwork.capture.outside.plain import is_plain
from lampwork.capture.record.fake import Fake
from lampwork.capture.values.assumptions import may_assume, may_rerun, one_raises
from lampwork.capture.values.counters import is_nonzero
from lampwork.capture.values.family import HANDS_ON, StandInFamily
from lampwork.capture.values.host_results import HostResult
from lampwork.capture.values.unknown_text import formatted, unknown_text
from lampwork.fakes.fake import DataDependent
from lampwork.fakes.symbolic import by_contents, size_of
from lampwork.ir import operations
from lampwork.ir.number_operations import ARITHMETIC, FUNCTIONS_OF_ONE, KINDS, OPERATIONS, RELATION_OF, operation_of
from lampwork.ir.size import bounds

if TYPE_CHECKING:
    from lampwork.capture.machine import Frame
    from lampwork.capture.world import TorchWorld

#: A list made by `tolist` is one graph result for each element.
_LONGEST_LIST = 64
_EXACT_INTEGER = 1 << 53
#: Of the largest float32, as a double.
_LARGEST_SAFE_POWER = 7
_PLAIN = frozenset({each.function for each in OPERATIONS.values() if each.in_graph.startswith("operator.")})
#: Arithmetic that makes sizes of sizes.
_OF_SIZES = frozenset({operator.add, operator.mul})
_DIVISIONS = frozenset({operator.truediv, operator.floordiv, operator.mod})
#: Kernels of these round a number beside a half type to that type; others compute with it in single precision.
_ROUNDS_NUMBERS = frozenset({operator.add, operator.sub})
_HALVES = frozenset({torch.float16, torch.bfloat16})
_WHAT_IS_DONE = "what is done with a number taken out of a tensor"


class UnbackedNumber:
    """What `tensor.item()` gives, or what is computed of it.

    `tensor`: a stand-in of one element, float64, int64 or bool, which nothing writes; None for a number that is
    computed after the graph. `kind`: the class that the number has for the program; asking for it breaks the graph
    where the value may be a tensor as well (`is_either`). `made`: (function, arguments,
    whether it may fail), for a number computed after the graph. `nonzero`: it is not zero, whatever it is.
    `nonnegative`: it is not below zero. `narrow`: it came out of float32 or less, so powers of it do not overflow.
    `host`: the call of the host that gives it before the graph runs, None where no such call does.
    """

    __slots__ = ("tensor", "_kind", "made", "nonzero", "nonnegative", "narrow", "host")

    def __init__(
        self, tensor: Fake | None, kind: type | None, made: tuple[Any, tuple, bool] | None = None, nonzero: bool = False
    ) -> None:
        self.tensor, self._kind, self.made, self.nonzero = tensor, kind, made, nonzero
        self.nonnegative = self.narrow = False
        self.host: HostResult | None = None

    @property
    def kind(self) -> type:
        if self._kind is None:
            raise DataDependent("what is done with a number that may be a tensor")
        return self._kind

    @property
    def is_either(self) -> bool:
        """`max(1, count)` of a number and a tensor is the one or the other: good for arithmetic with tensors only."""
        return self._kind is None


def _refuse(self: Any, *args: Any) -> Any:
    raise DataDependent(_WHAT_IS_DONE)


for _name in (
    "bool", "int", "float", "index", "complex", "eq", "ne", "lt", "le", "gt", "ge", "hash", "str", "repr", "format",
    "round", "trunc", "floor", "ceil", "abs", "neg", "pos", "invert", "divmod", "rdivmod", "copy", "deepcopy",
    *[f"{prefix}{name}" for prefix in ("", "r", "i") for name in
      ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "and", "or", "xor", "lshift", "rshift")],
):  # fmt: skip
    setattr(UnbackedNumber, f"__{_name}__", _refuse)


def item(recorder: Any, tensor: Any) -> Any:
    """`tensor.item()`: the number where the program made the tensor of one, else an `UnbackedNumber`.

    Raises `DataDependent` for complex numbers and for tensors inside a function transform.
    """
    if type(tensor) is not Fake:
        raise DataDependent("Tensor.item")
    if tensor.constant is not None and _torch.storage_key(tensor) not in recorder.written:
        with recorder._paused():
            return tensor.constant.item()
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
        number = UnbackedNumber(tensor.detach().reshape(()).to(dtype, copy=True), kind)
    number.narrow = kind is float and tensor.dtype is not torch.float64
    return number


def items(recorder: Any, tensor: Any) -> Any:
    """`tensor.tolist()`."""
    if type(tensor) is not Fake or any(recorder.contents.number_of(size) is None for size in tensor.shape):
        raise DataDependent("Tensor.tolist")
    if tensor.constant is not None and _torch.storage_key(tensor) not in recorder.written:
        with recorder._paused():
            return tensor.constant.tolist()
    if tensor.numel() > _LONGEST_LIST:
        raise DataDependent("Tensor.tolist")
    return [items(recorder, each) for each in tensor.detach().unbind(0)] if tensor.dim() else item(recorder, tensor)


def kind_of(value: Any) -> type | None:
    """The class that a number has for the program; None for what is no number."""
    kind = type(value)
    if kind is UnbackedNumber:
        return value.kind
    if kind is torch.SymInt:
        return int
    return kind if kind in (int, float, bool) else None


def counted(value: Any) -> Any:
    """A number of elements that contents decide, as a number out of a tensor; anything else unchanged."""
    if not by_contents(value):
        return value
    with torch.no_grad():
        return UnbackedNumber(torch.scalar_tensor(value, dtype=torch.int64), int)


class UnbackedNumberFamily(StandInFamily):
    """Numbers out of tensors."""

    stand_ins = frozenset({UnbackedNumber})

    def __init__(self, world: TorchWorld) -> None:
        super().__init__(world)
        #: Numbers whose computation may fail, with the step that computes each.
        self.assumed: list[tuple[UnbackedNumber, int]] = []

    def kind(self, value: Any) -> type:
        return value.kind

    def on_host(self, function: Any, args: tuple, kind: type, may_fail: bool = False) -> UnbackedNumber:
        """The number that `function`, which has no effect, makes of `args` when the graph has run.

        Raises `DataDependent` if it may fail where something has been written that the caller can see. What is made of
        numbers that the host gives is computed before the graph runs.
        """
        if any(type(each) is UnbackedNumber and each.host is not None for each in args) and all(map(is_early, args)):
            return host_number(self.world.host_calls.make(function, args, changes=False), kind)
        made = UnbackedNumber(None, kind, (function, args, may_fail))
        if may_fail:
            if not may_rerun(self.world.recorder):
                raise DataDependent(_WHAT_IS_DONE)
            self.assumed.append((made, self.world.machine.steps))
        return made

    # -- operators

    def binary(self, op: Any, left: Any, right: Any) -> Any:
        if type(left) is Fake or type(right) is Fake:
            return compute_with_tensor(op if op in _PLAIN else None, left, right)
        if op is operator.truediv:
            left, right = counted(left), counted(right)
        return self._compute(op, left, right)

    def inplace(self, op: Any, left: Any, right: Any) -> Any:
        plain = IN_PLACE[op]
        if type(left) is Fake and plain in _PLAIN:
            return op(left, _chosen_beside(right, left) if right.is_either else beside(right, left))
        return self.binary(plain, left, right)

    def unary(self, op: Any, value: Any) -> Any:
        if op not in (operator.neg, operator.pos, operator.invert) or (op is operator.invert and value.kind is float):
            raise DataDependent(_WHAT_IS_DONE)
        if op is operator.neg and value.kind is float and value.tensor is not None:
            with torch.no_grad():
                return UnbackedNumber(-value.tensor, float, nonzero=value.nonzero)
        return self.on_host(op, (value,), float if value.kind is float else int)

    def compare(self, op: Any, left: Any, right: Any) -> Any:
        if type(left) is Fake:
            return op(left, beside(right, left))
        if type(right) is Fake:
            return op(beside(left, right), right)
        if op in RELATION_OF and kind_of(left) is not None and kind_of(right) is not None:
            return self.on_host(op, (left, right), bool)
        if op in (operator.eq, operator.ne) and (_equals_no_number(left) or _equals_no_number(right)):
            return op is operator.ne
        raise DataDependent("the comparison of a number taken out of a tensor")

    def truth(self, value: Any) -> bool:
        if value.host is not None:
            raise Break(
                "data-dependent",
                "a branch on a number that is drawn or read anew on each call: both ways may be taken",
                "Draw it outside of the compiled function, or choose with torch.where.",
            )
        raise DataDependent("a branch on a number taken out of a tensor")

    def branch(self, frame: Frame, value: Any, if_true: int, if_false: int) -> bool:
        """As of the tensor that decides it, where one side does nothing but raise."""
        tensor = value.tensor
        if tensor is None and may_assume(self.world.recorder) and one_raises(frame.code, if_true, if_false):
            tensor = decision_of(value)
        return self.truth(value) if tensor is None else self.world.branch(frame, tensor, if_true, if_false)

    def load_attr(self, value: Any, name: str) -> Any:
        if name == "__class__":
            return value.kind
        raise DataDependent(f"the attribute {name} of a number taken out of a tensor")

    # -- conversions

    def text(self, value: Any, function: Any) -> Any:
        return unknown_text(function, value)

    def format(self, value: Any, spec: Any) -> Any:
        return formatted(value, spec, value.kind(1))

    def convert(self, value: Any, function: Any, args: tuple, kwargs: dict[str, Any]) -> Any:
        if function is round:
            return self._rounded(value, [*args, *kwargs.values()], kwargs.keys())
        if args or kwargs:
            return HANDS_ON
        if function is bool:
            return self._as_bool(value)
        if function is int or function is float:
            return self._as_number(function, value)
        row = operation_of(function) if function in FUNCTIONS_OF_ONE else None
        kind = None if row is None else row.kind(value.kind.__name__)
        if row is None or kind is None:
            return HANDS_ON
        fails = row.raises != "never" and not (function is math.sqrt and value.nonnegative)
        found = self.on_host(function, (value,), KINDS[kind], fails)
        found.nonnegative = function in (abs, math.fabs, math.sqrt, math.exp)
        return found

    def _rounded(self, value: Any, given: list, names: Any) -> UnbackedNumber:
        if len(given) > 1 or names - {"ndigits"} or not all(each is None or type(each) is int for each in given):
            raise DataDependent(_WHAT_IS_DONE)
        digits = given[0] if given else None
        kind = float if digits is not None and value.kind is float else int
        return self.on_host(round, (value, digits), kind, value.kind is float)

    def _as_bool(self, value: Any) -> UnbackedNumber:
        """A number, unless a branch is what asks."""
        if value.tensor is None:
            return value if value.kind is bool else self.on_host(operator.truth, (value,), bool)
        with torch.no_grad():
            truth: Any = value.tensor if value.kind is bool else value.tensor != 0
            return UnbackedNumber(truth, bool)

    def _as_number(self, kind: type, value: Any) -> UnbackedNumber:
        if value.kind is kind:
            return value
        if kind is int and value.kind is float:  # it may be no number, or infinite
            return self.on_host(int, (value,), int, may_fail=True)
        if value.tensor is None:
            return self.on_host(kind, (value,), kind, may_fail=kind is float)
        with torch.no_grad():
            return UnbackedNumber(value.tensor.to(torch.float64 if kind is float else torch.int64), kind)

    # -- arithmetic

    def _compute(self, op: Any, left: Any, right: Any) -> Any:
        kinds = kind_of(left), kind_of(right)
        if op not in ARITHMETIC or None in kinds:
            raise DataDependent(_WHAT_IS_DONE)
        real = float in kinds
        if op in _DIVISIONS and type(right) is UnbackedNumber and not right.nonzero:
            if not may_rerun(self.world.recorder):  # it could fail where it is too late
                right.nonzero = is_nonzero(self.world, right.tensor)
        in_graph = op in _PLAIN and real and (op is not operator.truediv or _is_nonzero(right))
        nonnegative = op in (operator.add, operator.mul) and _is_nonnegative(left) and _is_nonnegative(right)
        if in_graph and _has_tensor(left) and _has_tensor(right):
            with torch.no_grad():
                number = UnbackedNumber(op(_as_float(left), _as_float(right)), float)
            number.nonnegative = nonnegative
            return number
        kind = float if real or op is operator.truediv else int
        may_fail = op not in (operator.add, operator.sub, operator.mul)
        if op in (operator.mod, operator.floordiv) and not real and type(right) is int and right != 0:
            may_fail = False
        if op is operator.pow:
            if type(right) is float and kinds[0] is float:
                return self._power(left, right)
            if type(right) not in (int, bool) or right < 0 or right > 1 << 10:
                raise DataDependent(_WHAT_IS_DONE)
            narrow = type(left) is UnbackedNumber and left.narrow and right <= _LARGEST_SAFE_POWER
            may_fail, nonnegative = real and not narrow, right % 2 == 0
        elif real and int in kinds and not all(map(_fits_float, (left, right))):
            may_fail = True
        elif may_fail and _is_nonzero(right) and kind is float and op is operator.truediv:
            may_fail = not all(map(_fits_float, (left, right)))
        number = self.on_host(op, (left, right), kind, may_fail)
        number.nonnegative = nonnegative
        return number

    def _power(self, base: Any, exponent: float) -> UnbackedNumber:
        """`base ** exponent` of floats, which is complex where the base is negative: then the call runs eagerly."""
        if 0.0 <= exponent <= 1.0 and _is_nonnegative(base):
            number = self.on_host(operator.pow, (base, exponent), float)
            number.nonnegative = True
            return number
        return self.on_host(operations.real_power, (base, exponent), float, may_fail=True)


def host_number(result: HostResult, kind: type) -> UnbackedNumber:
    """The number that a host call gives."""
    number = UnbackedNumber(None, kind)
    number.host = result
    return number


def is_early(value: Any) -> bool:
    """Whether a number is there before the graph runs."""
    if type(value) is UnbackedNumber:
        return value.host is not None
    return type(value) in (int, float, bool, type(None)) or (type(value) is torch.SymInt and not by_contents(value))


def _equals_no_number(value: Any) -> bool:
    """Whether it is None, a text or other plain data; other objects may say what they like."""
    return not isinstance(value, (int, float, complex, UnbackedNumber)) and is_plain(value)


def _has_tensor(value: Any) -> bool:
    """Whether the graph can compute with the number in double precision, exactly as Python does."""
    if type(value) is UnbackedNumber:
        return value.tensor is not None
    return type(value) is float or (type(value) in (int, bool) and abs(value) < _EXACT_INTEGER)


def _fits_float(value: Any) -> bool:
    """Whether converting the number to floating point cannot fail."""
    if type(value) is UnbackedNumber:
        return value.kind is not int or value.tensor is not None
    return type(value) is not int or abs(value) < 1 << 1000


def _is_nonzero(value: Any) -> bool:
    if type(value) is UnbackedNumber:
        return value.nonzero
    if type(value) is torch.SymInt:
        return bool(value != 0)  # guarded
    return type(value) in (int, float, bool) and value != 0


def _is_nonnegative(value: Any) -> bool:
    if type(value) is UnbackedNumber:
        return value.nonnegative
    return type(value) in (int, float, bool) and value >= 0


def _as_float(value: Any) -> Any:
    return tensor_of(value).to(torch.float64) if type(value) is UnbackedNumber else float(value)


# Numbers and tensors --------------------------------------------------------------------------------------------------


def _in_graph(function: Any) -> Any:
    """The operator on tensors of double precision that computes what `function` of Python does, to the last bits; None
    where there is none."""
    row = operation_of(function)
    if row is None or not row.in_graph:
        return None
    module, _, name = row.in_graph.partition(".")
    return getattr(operator if module == "operator" else torch, name)


def tensor_of(number: UnbackedNumber, beside: Fake | None = None) -> Fake:
    """The number as a tensor of one element in the graph: one of the host's on the device of `beside`. Raises
    `DataDependent` if no operator computes it."""
    if number.host is not None:
        return number.host.tensor(number.kind) if beside is None else number.host.tensor(number.kind, beside.device)
    if number.tensor is None:
        assert number.made is not None
        function, args, _ = number.made
        compute = _in_graph(function)
        if compute is None or number.kind is not float:
            raise DataDependent(_WHAT_IS_DONE)
        with torch.no_grad():
            number.tensor = compute(*map(_as_float, args))
    assert number.tensor is not None
    return number.tensor


def as_size(recorder: Any, number: Any, signed: bool = False) -> Any:
    """An integer as a size that contents decide: one that a tensor holds, or that the host gives, and sums, products
    and remainders of such integers and of sizes. `signed`: differences, too, which may be negative. An integer that is
    computed otherwise stays as it is."""
    if type(number) is not UnbackedNumber:
        return number
    if number.kind is not int:
        return number
    function, args = number.host.made_of() if number.host is not None else (number.made or (None, ()))[:2]
    divides = function in (operator.mod, operator.floordiv) and type(args[1]) is int and args[1] > 0
    if divides or function in _OF_SIZES or (signed and function is operator.sub):
        parts = [as_size(recorder, each, signed) for each in args]
        if all(_is_size(each, signed) for each in parts):
            return function(*parts)  # type: ignore[misc]
    tensor = number.tensor if number.host is None else number.host.tensor(int)
    return number if tensor is None else recorder.contents.of_number(tensor)


def _is_size(value: Any, signed: bool) -> bool:
    return type(value) in (int, torch.SymInt) and (signed or bounds(size_of(value))[0] >= 0)


def as_element(recorder: Any, number: UnbackedNumber, tensor: Fake) -> Fake:
    """The number as what `tensor` gets to hold where it is stored."""
    is_exact = tensor.dtype in (torch.int64, torch.float32, torch.float64)
    if number.host is None and number.tensor is None and number.kind is int and is_exact:
        size = as_size(recorder, number)
        if type(size) in (int, torch.SymInt):
            return torch.scalar_tensor(size, dtype=torch.int64, device=tensor.device).to(tensor.dtype)
    return beside(number, tensor)


def decision_of(number: UnbackedNumber) -> Fake | None:
    """What a comparison of numbers, or a test of one, comes to, as a tensor in the graph; None if that might not be
    exactly what Python comes to."""
    function, args, _ = number.made or (None, (), False)
    tensors = [each.tensor if type(each) is UnbackedNumber else each for each in args]
    kinds = {kind_of(each) for each in args}
    if not any(type(each) is Fake for each in tensors) or any(each is None for each in tensors):
        return None
    if kinds != {float} and (kinds != {int} or any(type(each) is int and abs(each) >= 1 << 62 for each in tensors)):
        return None
    compute = function if function in RELATION_OF else _in_graph(function) if number.kind is bool else None
    if compute is None:
        return None
    with torch.no_grad():
        return compute(*tensors)


def compute_with_tensor(plain: Any, left: Any, right: Any) -> Any:
    if plain is None:
        raise DataDependent(_WHAT_IS_DONE)
    tensor, number = (left, right) if type(left) is Fake else (right, left)
    if type(number) is not UnbackedNumber:
        raise DataDependent(_WHAT_IS_DONE)
    if number.is_either:
        chosen = _chosen_beside(number, tensor)
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
        tensor = tensor.to(torch.get_default_dtype())
        left, right = (tensor, number) if number is right else (number, tensor)
    if tensor is left:
        return plain(left, beside(right, left))
    if plain is operator.truediv:  # as Tensor.__rtruediv__ computes it
        return right.reciprocal() * beside(left, right)
    return plain(beside(left, right), right)


def compute_in_place(method: Any, tensor: Any, number: Any) -> Any:
    """`tensor.add_(number)` and the like."""
    if type(tensor) is not Fake or type(number) is not UnbackedNumber:
        raise DataDependent(_WHAT_IS_DONE)
    return method(tensor, beside(number, tensor))


def beside(number: Any, tensor: Any) -> Any:
    """The number as what it becomes next to `tensor` in an operator: a tensor of one element of the same type.

    Half types compute with the number in single precision, and integers become floating-point next to a float: those
    break.
    """
    exact = tensor.dtype in (torch.float32, torch.float64) or (tensor.dtype is torch.int64 and number.kind is int)
    if number.kind is bool or not exact:
        raise DataDependent(_WHAT_IS_DONE)
    with torch.no_grad():
        return tensor_of(number, tensor).to(tensor.dtype)


# Functions of numbers -------------------------------------------------------------------------------------------------


def extreme(world: Any, largest: bool, args: tuple) -> Any:
    """`max(*args)` or `min(*args)` where a number or a tensor that is not known is among them, or in a list."""
    if len(args) == 2 and Fake in map(type, args):
        return _extreme_or_tensor(world, largest, *args)
    values = args[0] if len(args) == 1 and type(args[0]) in (list, tuple) else args
    if not any(type(each) is UnbackedNumber for each in values):
        return HANDS_ON
    values = world.families.backed.beside_unknown(values)
    kinds = set(map(kind_of, values))
    if len(kinds) != 1 or None in kinds:
        raise DataDependent(_WHAT_IS_DONE)
    if len(values) == 1:
        return values[0]
    if kinds == {float} and all(map(_has_tensor, values)):
        return _extreme_in_graph(largest, values)
    return world.families.unbacked.on_host(max if largest else min, tuple(values), kinds.pop())


def _extreme_in_graph(largest: bool, values: Any) -> UnbackedNumber:
    """As Python compares: the first stays unless a later one is beyond it. No NaN is, and nothing is beyond a NaN."""
    with torch.no_grad():
        found, *rest = map(_as_tensor, values)
        for each in rest:
            found = torch.where(each > found if largest else each < found, each, found)
    bounded = largest and any(type(each) is float and each > 0 for each in values)
    return UnbackedNumber(found, float, nonzero=bounded or all(map(_is_nonzero, values)))


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
    condition = UnbackedNumber(takes_tensor.detach(), bool)
    return UnbackedNumber(None, None, (operations.chosen, (condition, tensor, number), False))


def _chosen_beside(value: UnbackedNumber, tensor: Any) -> Any:
    """What is either a number or a tensor, as a tensor for arithmetic with another one."""
    assert value.made is not None
    condition, choice, number = value.made[1]
    if torch.result_type(tensor, choice) != torch.result_type(tensor, number) or choice.device != tensor.device:
        raise DataDependent("what is done with a number that may be a tensor")
    return torch.where(condition.tensor, choice, number)


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
    if None in kinds or not any(type(each) is UnbackedNumber for each in values):
        return HANDS_ON
    return world.families.unbacked.on_host(operations.total, tuple(values), float if float in kinds else int)


def check_assumed(world: Any) -> int:
    """The step of the first computation that may fail where that would be noticed too late; 0 if there is none."""
    assumed = world.families.unbacked.assumed
    if assumed and not may_rerun(world.recorder):
        return assumed[0][1]
    return 0

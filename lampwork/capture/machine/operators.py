"""Operators, truth, comparison, items and formatting: the data model's dispatch to special methods.

Values of built-in types go straight to the `operator` module.  Where a special method is written in Python, the
order in which CPython tries operands is followed here and the method is interpreted.
"""

from __future__ import annotations

import operator
import types
from types import FunctionType
from typing import Any

from .attributes import NATIVE_KINDS, find_in_class
from .private import keep_builtins
from .values import UNBOUND, Part, is_a

keep_builtins(globals())

# Exact types whose special methods are all in C and which hold no Python-level behaviour of their own.
BUILTIN = frozenset(
    (
        int, float, complex, bool, str, bytes, bytearray, list, tuple, dict, set, frozenset, range, slice, type(None),
        type(...), type(NotImplemented), types.FunctionType, types.BuiltinFunctionType, types.CodeType,
        types.MappingProxyType, type({}.keys()), type({}.values()), type({}.items()), types.ModuleType, memoryview,
    )
)  # fmt: skip

_NAMES = {
    operator.add: ("add", "+"), operator.sub: ("sub", "-"), operator.mul: ("mul", "*"),
    operator.matmul: ("matmul", "@"), operator.truediv: ("truediv", "/"), operator.floordiv: ("floordiv", "//"),
    operator.mod: ("mod", "%"), operator.pow: ("pow", "** or pow()"), operator.lshift: ("lshift", "<<"),
    operator.rshift: ("rshift", ">>"), operator.and_: ("and", "&"), operator.or_: ("or", "|"),
    operator.xor: ("xor", "^"),
}  # fmt: skip
#: In-place function of `operator` -> the plain one.
IN_PLACE = {
    operator.iadd: operator.add, operator.isub: operator.sub, operator.imul: operator.mul,
    operator.imatmul: operator.matmul, operator.itruediv: operator.truediv,
    operator.ifloordiv: operator.floordiv, operator.imod: operator.mod, operator.ipow: operator.pow,
    operator.ilshift: operator.lshift, operator.irshift: operator.rshift, operator.iand: operator.and_,
    operator.ior: operator.or_, operator.ixor: operator.xor,
}  # fmt: skip
_UNARY = {operator.neg: "__neg__", operator.pos: "__pos__", operator.invert: "__invert__"}
COMPARISON_METHODS = {
    operator.lt: ("__lt__", "__gt__", "<"), operator.le: ("__le__", "__ge__", "<="),
    operator.eq: ("__eq__", "__eq__", "=="), operator.ne: ("__ne__", "__ne__", "!="),
    operator.gt: ("__gt__", "__lt__", ">"), operator.ge: ("__ge__", "__le__", ">="),
}  # fmt: skip
#: What the right operand is asked for.
REFLECTED = {
    **{op: f"__r{name}__" for op, (name, _) in _NAMES.items()},
    **{op: names[1] for op, names in COMPARISON_METHODS.items()},
}
# These implement + and * as sequences only, which CPython tries after both operands' numeric methods.
_SEQUENCES = (list, tuple, str, bytes, bytearray)
# Whether the second class is derived from the first, never asking what is registered with it.
_derives = type.__subclasscheck__


class Operators(Part):
    machine: Any

    def _python(self, cls: type, name: str) -> bool:
        found, attribute = self.class_lookup(cls, name)
        return found and type(attribute) not in NATIVE_KINDS

    # -- arithmetic

    def binary_op(self, op: Any, left: Any, right: Any) -> Any:
        """`op(left, right)`; op is a function of the `operator` module."""
        left_type, right_type = type(left), type(right)
        if left_type in BUILTIN and right_type in BUILTIN:
            return op(left, right)
        name, symbol = _NAMES[op]
        if not self._python(left_type, f"__{name}__") and not self._python(right_type, f"__r{name}__"):
            return self.native_operator(op, left, right)
        result = self.try_binary(name, left, right)
        if result is NotImplemented:
            hint = ""
            raise TypeError(
                f"unsupported operand type(s) for {symbol}: '{left_type.__name__}' and '{right_type.__name__}'{hint}"
            )
        return result

    def native_operator(self, op: Any, left: Any, right: Any) -> Any:
        """`op(left, right)` where no method for it is written in Python; others of the operands' may be."""
        return op(left, right)

    def try_binary(self, name: str, left: Any, right: Any) -> Any:
        left_type, right_type = type(left), type(right)
        method, reflected = f"__{name}__", f"__r{name}__"
        _, first = found_first = self.class_lookup(left_type, method)
        second: Any = UNBOUND
        if left_type is not right_type:
            found, attribute = self.class_lookup(right_type, reflected)
            if found:
                second = attribute
        if not found_first[0]:
            first = UNBOUND
        sequence = (
            first is not UNBOUND
            and type(first) in NATIVE_KINDS
            and first.__objclass__ in _SEQUENCES
            and name in ("add", "mul")
        )
        right_first = sequence or (
            second is not UNBOUND
            and _derives(left_type, right_type)
            and self.class_lookup(left_type, reflected) != (True, second)
        )
        if right_first and second is not UNBOUND:
            result = self.call_special(right, second, left)
            if result is not NotImplemented:
                return result
            second = UNBOUND
        if first is not UNBOUND:
            result = self.call_special(left, first, right)
            if result is not NotImplemented:
                return result
        if second is not UNBOUND:
            return self.call_special(right, second, left)
        return NotImplemented

    def inplace_op(self, op: Any, left: Any, right: Any) -> Any:
        """`left op= right`, whose value is to be stored back; op is an in-place function of `operator`."""
        left_type, right_type = type(left), type(right)
        if left_type in BUILTIN and right_type in BUILTIN:
            return op(left, right)
        name, symbol = _NAMES[IN_PLACE[op]]
        found, attribute = self.class_lookup(left_type, f"__i{name}__")
        inplace_is_python = found and type(attribute) not in NATIVE_KINDS
        if (
            not inplace_is_python
            and not self._python(left_type, f"__{name}__")
            and not self._python(right_type, f"__r{name}__")
        ):
            return self.native_operator(op, left, right)
        if found and not (not inplace_is_python and attribute.__objclass__ in _SEQUENCES):
            result = self.call_special(left, attribute, right)
            if result is not NotImplemented:
                return result
        elif found:
            # A sequence's own += comes after the numeric methods.
            second = self.special(right, f"__r{name}__")
            if second is not UNBOUND:
                result = self.call_special(right, second, left)
                if result is not NotImplemented:
                    return result
            return attribute(left, right)
        result = self.try_binary(name, left, right)
        if result is NotImplemented:
            symbol = "**=" if name == "pow" else symbol + "="
            raise TypeError(
                f"unsupported operand type(s) for {symbol}: '{left_type.__name__}' and '{right_type.__name__}'"
            )
        return result

    def unary_op(self, op: Any, value: Any) -> Any:
        if type(value) not in BUILTIN:
            method = self.python_special(value, _UNARY[op])
            if method is not UNBOUND:
                return self.call_attribute(method, value, ())
        return op(value)

    # -- comparison

    def compare_op(self, op: Any, left: Any, right: Any) -> Any:
        """`op(left, right)` for the six comparisons."""
        left_type, right_type = type(left), type(right)
        if left_type in BUILTIN and right_type in BUILTIN:
            return op(left, right)
        method, reflected, symbol = COMPARISON_METHODS[op]
        if not (
            self._python(left_type, method)
            or self._python(right_type, reflected)
            or (method == "__ne__" and (self._python(left_type, "__eq__") or self._python(right_type, "__eq__")))
        ):
            return self.native_operator(op, left, right)
        checked = False
        if left_type is not right_type and _derives(left_type, right_type):
            checked = True
            result = self.try_compare(reflected, right, left)
            if result is not NotImplemented:
                return result
        result = self.try_compare(method, left, right)
        if result is not NotImplemented:
            return result
        if not checked:
            result = self.try_compare(reflected, right, left)
            if result is not NotImplemented:
                return result
        if op is operator.eq:
            return left is right
        if op is operator.ne:
            return left is not right
        raise TypeError(
            f"'{symbol}' not supported between instances of '{left_type.__name__}' and '{right_type.__name__}'"
        )

    def try_compare(self, method: str, value: Any, other: Any) -> Any:
        attribute = self.special(value, method)
        if attribute is UNBOUND:
            return NotImplemented
        if attribute is object.__ne__:
            # object.__ne__ inverts the class's own __eq__.
            result = self.try_compare("__eq__", value, other)
            return result if result is NotImplemented else not self.truth(result)
        if type(attribute) is not FunctionType and type(attribute) not in NATIVE_KINDS:
            # CPython takes any failure to bind the method for its absence.
            try:
                bound = self.machine.complete(self.descriptor_get(attribute, value, type(value)))
            except Exception:
                return NotImplemented
            return self.machine.call(bound, (other,))
        return self.call_special(value, attribute, other)

    def is_(self, left: Any, right: Any) -> bool:
        return left is right

    def contains(self, item: Any, container: Any) -> bool:
        """`item in container`."""
        if type(container) in BUILTIN:
            return item in container
        method = self.special(container, "__contains__")
        if method is None:
            raise TypeError(f"'{type(container).__name__}' object is not a container")
        if method is not UNBOUND:
            if type(method) in NATIVE_KINDS:
                return item in container
            return self.truth(self.call_special(container, method, item))
        if self.special(container, "__iter__") is UNBOUND and self.special(container, "__getitem__") is UNBOUND:
            return item in container  # CPython words the error
        iterator = self.get_iter(container)
        while True:
            found, value = self.iter_next(iterator)
            if not found:
                return False
            if value is item or self.truth(self.machine.complete(self.compare_op(operator.eq, value, item))):
                return True

    def branch(self, frame: Any, value: Any, if_true: int, if_false: int) -> bool:
        """`bool(value)` where the frame goes on at one instruction or the other by it."""
        return self.truth(value)

    def truth(self, value: Any) -> bool:
        """`bool(value)`."""
        if type(value) in BUILTIN:
            return bool(value)
        method = self.special(value, "__bool__")
        if method is not UNBOUND and method is not None:
            if type(method) in NATIVE_KINDS:
                return bool(value)
            result = self.call_special(value, method)
            if result is not True and result is not False:
                raise TypeError(f"__bool__ should return bool, returned {type(result).__name__}")
            return result
        if method is UNBOUND and self.python_special(value, "__len__") is not UNBOUND:
            return self.length(value) != 0
        return bool(value)

    def length(self, value: Any) -> int:
        """`len(value)`."""
        if type(value) not in BUILTIN:
            method = self.python_special(value, "__len__")
            if method is not UNBOUND and method is not None:
                return checked_length(self.call_special(value, method))
        return len(value)

    # -- items

    def get_item(self, container: Any, key: Any) -> Any:
        """`container[key]`."""
        cls = type(container)
        if cls in BUILTIN:
            return container[key]
        found, method = self.class_lookup(cls, "__getitem__")
        if found and type(method) not in NATIVE_KINDS and method is not None:
            return self.call_attribute(method, container, (key,))
        if is_a(container, dict) and self._python(cls, "__missing__"):
            value = dict.get(container, key, UNBOUND)
            if value is UNBOUND:
                missing = self.special(container, "__missing__")
                return self.call_attribute(missing, container, (key,))
            return value
        if not found and is_a(container, type):
            in_class, method = self.class_lookup(container, "__class_getitem__")
            if in_class and type(method) not in NATIVE_KINDS:
                return self.call(self.attribute(container, "__class_getitem__"), (key,), {})
        return container[key]

    def set_item(self, container: Any, key: Any, value: Any) -> None:
        """`container[key] = value`."""
        if type(container) not in BUILTIN:
            method = self.python_special(container, "__setitem__")
            if method is not UNBOUND and method is not None:
                self.call_special(container, method, key, value)
                return
        container[key] = value

    def del_item(self, container: Any, key: Any) -> None:
        """`del container[key]`."""
        if type(container) not in BUILTIN:
            method = self.python_special(container, "__delitem__")
            if method is not UNBOUND and method is not None:
                self.call_special(container, method, key)
                return
        del container[key]

    def mapping_lookup(self, mapping: Any, key: Any) -> Any:
        """`mapping[key]` of a namespace, UNBOUND if it raises KeyError."""
        if type(mapping) is dict:
            return mapping.get(key, UNBOUND)
        try:
            return self.machine.complete(self.get_item(mapping, key))
        except KeyError:
            return UNBOUND

    # -- text

    def convert_value(self, value: Any, conversion: int) -> Any:
        """An f-string's `!s` (1), `!r` (2) or `!a` (3)."""
        function = {1: str, 2: repr, 3: ascii}[conversion]
        return self.machine.call(function, (value,))

    def format_value(self, value: Any, conversion: int, spec: Any) -> str:
        """An f-string's `{value!conversion:spec}`; conversion 0 is none."""
        if conversion:
            value = self.convert_value(value, conversion)
        if type(value) is str and not spec:
            return value
        return self.machine.call(format, (value, spec))

    def build_string(self, parts: list[str]) -> str:
        return "".join(parts)

    def build_interpolation(self, value: Any, text: str, conversion: int, spec: str) -> Any:
        """A `{value!conversion:spec}` of a template string, whose source is `text`; conversion 0 is none."""
        from string.templatelib import Interpolation  # type: ignore[import-not-found, unused-ignore]

        args = (value, text, (None, "s", "r", "a")[conversion], spec)
        return self.call_native(Interpolation, args, {})

    def build_template(self, strings: tuple[str, ...], interpolations: tuple[Any, ...]) -> Any:
        """A template string of the interpolations and of the strings around them."""
        from string.templatelib import Template  # type: ignore[import-not-found, unused-ignore]

        parts = [strings[0]]
        for interpolation, string in zip(interpolations, strings[1:]):
            parts += (interpolation, string)
        return self.call_native(Template, tuple(parts), {})


def checked_length(result: Any) -> int:
    """The result of a `__len__` written in Python, with the checks of CPython's len."""
    if type(result) is not int:
        result = operator.index(result)
    if result < 0:
        raise ValueError("__len__() should return >= 0")
    if result > 2**63 - 1:
        raise OverflowError("cannot fit 'int' into an index-sized integer")
    return result


__all__ = ["Operators", "BUILTIN", "IN_PLACE", "checked_length", "find_in_class"]

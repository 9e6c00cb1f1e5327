"""`World`: what every operation on values means.  This base class gives plain Python semantics.

The machine implements control flow and asks its world for everything else.  A method's answer goes where the
instruction's result goes; `call`, `load_attr`, `load_super_attr`, `get_item`, `binary_op`, `inplace_op`, `unary_op`,
`compare_op` and `import_name` may answer an `Enter` instead of a value, and then a frame for that Python function is
pushed and its result used.  `machine.complete(answer)` turns such an answer into the value with a nested run;
`machine.call(f, args, kwargs)` is the short form for calls.  Raise any exception and it is raised in the program;
raise an `Interruption` to stop.

    names       load_global(frame, name), store_global, delete_global, load_name, store_name, delete_name,
                load_cell(cell) -> value or UNBOUND, store_cell(cell, value), delete_cell(cell), mapping_lookup(m, k)
    attributes  load_attr(obj, name), store_attr(obj, name, value), delete_attr(obj, name),
                load_super_attr(function, cls, instance, name, two_arguments); primitives: class_lookup(cls, name),
                super_lookup(start, after, name), instance_lookup(obj, name) -> (found, value),
                instance_store(obj, name, value), instance_delete(obj, name), type_store, type_delete
    items       get_item(container, key), set_item(container, key, value), del_item(container, key)
    operators   binary_op(op, a, b), inplace_op(op, a, b), unary_op(op, a), compare_op(op, a, b) with op from the
                `operator` module; contains(item, container), is_(a, b), truth(v), length(v)
    iteration   get_iter(v), iter_next(iterator) -> (found, value), send(receiver, value) -> (running, value),
                unpack_sequence(v, n), unpack_ex(v, before, after), native_iterable(v)
    building    build_list(values), build_set(values), build_map(keys, values), build_slice(parts),
                build_string(parts), list_extend, set_update, set_add, map_add, dict_update(target, mapping),
                dict_merge(target, mapping, function), convert_value(v, conversion), format_value(v, conversion, spec),
                build_interpolation(v, text, conversion, spec), build_template(strings, interpolations)
    calls       call(function, args, kwargs), call_native(function, args, kwargs), should_interpret(function),
                function_parts(function), instantiate(cls, args, kwargs), call_new(new, cls, args, kwargs),
                make_function(...), set_function_attribute(function, flag, value), load_build_class(frame)
    the rest    import_name(frame, name, names, level), import_from(module, name), import_star(frame, module),
                enter_with(manager) -> (bound enter, bound exit), exception_matches(error, pattern),
                match_mapping, match_sequence, match_keys, match_class, print_expression(v)
"""

from __future__ import annotations

import builtins
import sys
from types import CellType, CodeType, FunctionType
from typing import Any

from ..bytecode.decode import VERSION
from . import native_iteration, native_namespaces, native_operators  # noqa: F401  (they add answers to `natives`)
from .attributes import Attributes
from .calls import Calls
from .classes import BuildClass
from .exceptions import exception_matches
from .frames import Frame
from .intrinsics import set_annotate
from .iteration import Iteration
from .natives import CLASS_INTRINSICS, NATIVE_FUNCTIONS, Natives
from .operators import Operators
from .patterns import Patterns
from .private import keep_builtins
from .values import UNBOUND

keep_builtins(globals())

#: The answers that plain Python semantics need.
PYTHON = Natives({})


class World(Attributes, Operators, Calls, Iteration, Patterns):
    """Plain Python semantics.  `machine` is set by the machine that is given this world."""

    machine: Any

    def __init__(self, natives: Natives | None = None) -> None:
        natives = natives or PYTHON
        self.intrinsics, self.substitutes, self.intrinsic_names = natives.intrinsics, natives.substitutes, natives.names
        self.class_intrinsics, self.native_functions = CLASS_INTRINSICS, NATIVE_FUNCTIONS

    # -- names

    def load_global(self, frame: Frame, name: str) -> Any:
        namespace = frame.globals
        if type(namespace) is dict:
            value = namespace.get(name, UNBOUND)
        else:
            value = self.mapping_lookup(namespace, name)
        if value is UNBOUND:
            value = frame.builtins.get(name, UNBOUND)
            if value is UNBOUND:
                raise NameError(f"name '{name}' is not defined", name=name)
        return value

    def store_global(self, frame: Frame, name: str, value: Any) -> None:
        frame.globals[name] = value

    def delete_global(self, frame: Frame, name: str) -> None:
        if name not in frame.globals:
            raise NameError(f"name '{name}' is not defined", name=name)
        del frame.globals[name]

    def load_name(self, frame: Frame, name: str) -> Any:
        value = self.mapping_lookup(frame.names, name)
        return self.load_global(frame, name) if value is UNBOUND else value

    def store_name(self, frame: Frame, name: str, value: Any) -> None:
        self.set_item(frame.names, name, value)

    def delete_name(self, frame: Frame, name: str) -> None:
        missing = False
        try:
            self.del_item(frame.names, name)
        except KeyError:
            missing = True
        if missing:
            raise NameError(f"name '{name}' is not defined", name=name)

    def load_cell(self, cell: CellType) -> Any:
        try:
            return cell.cell_contents
        except ValueError:
            return UNBOUND

    def store_cell(self, cell: CellType, value: Any) -> None:
        cell.cell_contents = value

    def delete_cell(self, cell: CellType) -> None:
        del cell.cell_contents

    # -- functions and classes

    def make_function(
        self, frame: Frame, raw: CodeType, defaults: Any, keyword_defaults: Any, annotations: Any, closure: Any
    ) -> FunctionType:
        function = FunctionType(raw, frame.globals, raw.co_name, defaults, closure or _closure_placeholder(raw))
        function.__qualname__ = raw.co_qualname
        if keyword_defaults is not None:
            function.__kwdefaults__ = keyword_defaults
        if annotations is not None:
            function.__annotations__ = _annotations(annotations)
        return function

    def set_function_attribute(self, function: FunctionType, flag: int, value: Any) -> FunctionType:
        """From 3.13 on, what MAKE_FUNCTION took as flags before is set one at a time."""
        if flag == 1:
            function.__defaults__ = value
        elif flag == 2:
            function.__kwdefaults__ = value
        elif flag == 4:
            function.__annotations__ = _annotations(value)
        elif flag == 16:
            return set_annotate()(value, function)
        else:
            made = FunctionType(
                function.__code__, function.__globals__, function.__name__, function.__defaults__, value
            )
            made.__qualname__ = function.__qualname__
            made.__kwdefaults__ = function.__kwdefaults__
            # Annotations that are deferred must not be asked for. 3.14 sets them after the closure.
            if VERSION < (3, 14) and function.__annotations__:
                made.__annotations__ = function.__annotations__
            return made
        return function

    def load_build_class(self, frame: Frame) -> Any:
        found = frame.builtins.get("__build_class__", UNBOUND)
        if found is UNBOUND:
            raise NameError("__build_class__ not found")
        return found

    # -- with and except

    def enter_with(self, manager: Any) -> tuple[Any, Any]:
        """The bound `__enter__` and `__exit__`, found on the type."""
        enter = self.special(manager, "__enter__")
        leave = self.special(manager, "__exit__")
        if enter is UNBOUND or leave is UNBOUND:
            with manager:  # refuses it, in CPython's own words
                raise AssertionError(f"a {type(manager).__name__} is a context manager in CPython only")
        complete = self.machine.complete
        cls = type(manager)
        if VERSION >= (3, 14):
            last = complete(self.descriptor_get(leave, manager, cls))
            return complete(self.descriptor_get(enter, manager, cls)), last
        bound = complete(self.descriptor_get(enter, manager, cls))
        return bound, complete(self.descriptor_get(leave, manager, cls))

    def exception_matches(self, error: BaseException, pattern: Any) -> bool:
        self.note_bases(type(error))
        return exception_matches(error, pattern)

    def note_depth(self) -> None:
        """The program's frames are many: the interpreter's limit decides whether the next one is too much."""

    def note_handling(self) -> None:
        """An error is caught, or what is handled is asked for: what the caller of the program handles shows in it."""

    def note_signature(self, function: FunctionType) -> None:
        """An error says that `function` has no default values that the call would need, and its name."""

    def note_bases(self, cls: Any, asked: Any = None) -> None:
        """An answer depends on the bases of `cls`: on whether `asked` is one of them, if it is given."""

    # -- imports

    def import_name(self, frame: Frame, name: str, names: Any, level: int) -> Any:
        function = frame.builtins.get("__import__", UNBOUND)
        if function is UNBOUND:
            raise ImportError("__import__ not found")
        local_names = frame.names if frame.names is not None else None
        if function is builtins.__import__:
            return function(name, frame.globals, local_names, names, level)
        return self.call(function, (name, frame.globals, local_names, names, level), {})

    def import_from(self, module: Any, name: str) -> Any:
        value = self.attribute_or(module, name, UNBOUND)
        if value is not UNBOUND:
            return value
        package = getattr(module, "__name__", UNBOUND)
        if isinstance(package, str):
            value = sys.modules.get(f"{package}.{name}", UNBOUND)
            if value is not UNBOUND:
                return value
        return _native_import_from(module, name)

    def import_star(self, frame: Frame, module: Any) -> None:
        namespace: dict[str, Any] = {}
        names = self.attribute_or(module, "__all__", UNBOUND)
        chosen = dir(module) if names is UNBOUND else names
        if names is UNBOUND:
            chosen = [name for name in getattr(module, "__dict__", {}) if not name.startswith("_")]
        for name in chosen:
            namespace[name] = self.attribute(module, name)
        for name, value in namespace.items():
            self.store_name(frame, name, value)

    def print_expression(self, value: Any) -> None:
        self.machine.call(sys.displayhook, (value,))


def _closure_placeholder(raw: CodeType) -> Any:
    # On 3.13 the closure comes with SET_FUNCTION_ATTRIBUTE, but a function cannot be made without one.
    return tuple(CellType() for _ in raw.co_freevars) or None


def _annotations(flat: Any) -> dict[str, Any]:
    if isinstance(flat, tuple):
        return dict(zip(flat[::2], flat[1::2]))
    return flat


def _native_import_from(module: Any, name: str) -> Any:
    """Lets CPython word the ImportError: executes its IMPORT_FROM on the module."""
    import dis

    body = [
        (dis.opmap["RESUME"], 0), (dis.opmap["LOAD_FAST"], 0), (dis.opmap["IMPORT_FROM"], 0),
        (dis.opmap["RETURN_VALUE"], 0),
    ]  # fmt: skip
    raw = (lambda module: module).__code__.replace(
        co_code=bytes(byte for pair in body for byte in pair), co_names=(name,), co_stacksize=4
    )
    return FunctionType(raw, {})(module)


__all__ = ["World", "BuildClass"]

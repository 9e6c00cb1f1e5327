"""What can be done to a place: each change is made in both worlds alike and taken back.

A change has a name, by which findings are classed (`stale.py`), and `apply(root)`, which returns what takes it back.
Values are replaced by near ones: an equal value of another class, the same object as somewhere else, an equal one.
"""

from __future__ import annotations

import abc
import collections
import copy
import types
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy
import torch
from torch.utils.hooks import RemovableHandle

from tests.mutation.places import Path, Root, names_in, places, plain_function, value_at

Undo = Callable[[], None]


@dataclass(frozen=True)
class Change:
    """`kind`: its class. `where`: the path, for people. `apply`: makes it in one world."""

    kind: str
    where: str
    apply: Callable[[Root], Undo]

    def __str__(self) -> str:
        return f"{self.kind} @ {self.where}"


class Inapplicable(Exception):
    """The place cannot be changed so."""


# Slots: a value is replaced where it is held --------------------------------------------------------------------------


def replace_at(root: Root, path: Path, value: Any) -> Undo:
    """Puts `value` where the path ends."""
    holder = value_at(root, path[:-1]) if len(path) > 1 else root
    step = path[-1]
    match step:
        case ("arg", index):
            old = root.arguments[index]
            root.arguments[index] = value
            return lambda: root.arguments.__setitem__(index, old)
        case ("global", name):
            names = plain_function(holder).__globals__  # type: ignore[union-attr]
            old = names[name]
            names[name] = value
            return lambda: names.__setitem__(name, old)
        case ("attribute", name):
            held = vars(holder)
            old = held[name]
            held[name] = value
            return lambda: held.__setitem__(name, old)
        case ("item", key):
            if isinstance(holder, tuple):
                made = list(holder)
                made[key] = value
                inner = tuple.__new__(type(holder), made)
                return replace_at(root, path[:-1], inner)
            old = holder[key]
            holder[key] = value
            return lambda: holder.__setitem__(key, old)
        case ("cell", index):
            cell = plain_function(holder).__closure__[index]  # type: ignore[union-attr,index]
            old = cell.cell_contents
            cell.cell_contents = value
            return lambda: setattr(cell, "cell_contents", old)
        case ("default", index):
            function = plain_function(holder)
            assert function is not None and function.__defaults__ is not None
            defaults = function.__defaults__
            function.__defaults__ = (*defaults[:index], value, *defaults[index + 1 :])
            return lambda: setattr(function, "__defaults__", defaults)
        case ("kwdefault", name):
            table = plain_function(holder).__kwdefaults__  # type: ignore[union-attr]
            old = table[name]
            table[name] = value
            return lambda: table.__setitem__(name, old)
        case ("member", name):
            old = vars(holder)[name]
            setattr(holder, name, value)
            return lambda: setattr(holder, name, old)
    raise Inapplicable(step)


def delete_at(root: Root, path: Path) -> Undo:
    holder = value_at(root, path[:-1]) if len(path) > 1 else root
    match path[-1]:
        case ("attribute", name):
            held: Any = vars(holder)
            return _without(held, name)
        case ("item", key) if isinstance(holder, dict):
            return _without(holder, key)
        case ("item", key) if isinstance(holder, list):
            kept = list(holder)
            del holder[key]
            return lambda: holder.__setitem__(slice(None), kept)
        case ("global", name):
            return _without(plain_function(holder).__globals__, name)  # type: ignore[union-attr]
        case ("member", name):
            old = vars(holder)[name]
            delattr(holder, name)
            return lambda: setattr(holder, name, old)
    raise Inapplicable


def _without(table: Any, key: Any) -> Undo:
    kept = list(table.items())
    del table[key]

    def undo() -> None:
        table.clear()
        table.update(kept)  # in the order they had

    return undo


class _Int(int):
    pass


class _Str(str):
    pass


class _List(list):
    pass


class _Dict(dict):
    pass


class _Float(float):
    pass


class _Tensor(torch.Tensor):
    pass


def near(value: Any) -> Iterator[tuple[str, Callable[[Any], Any]]]:
    """(name, function of the value to a near one)."""
    kind = type(value)
    if kind is bool:
        yield "bool negated", lambda v: not v
        yield "bool to int", int
        yield "bool to float", float
        yield "bool to numpy", numpy.bool_
    elif kind is int:
        if value in (0, 1):
            yield "int to bool", bool
        yield "int to float", float
        yield "int to numpy", numpy.int64
        yield "int to subclass", _Int
        yield "int plus 1", lambda v: v + 1
        yield "int negated", lambda v: -v
        yield "int to None", lambda v: None
        yield "int to tensor", torch.tensor
        yield "int to str", str
    elif kind is float:
        if value == value and abs(value) < 1e9 and value == int(value):
            yield "float to int", int
        yield "float to numpy", numpy.float64
        yield "float to subclass", _Float
        yield "float plus 1", lambda v: v + 1.0
        yield "float negated", lambda v: -v
        yield "float to nan", lambda v: float("nan")
    elif kind is str:
        yield "str changed", lambda v: v + "x"
        yield "str to subclass", _Str
        yield "str to other object", lambda v: "".join(list(v))
    elif value is None:
        yield "None to int", lambda v: 0
        yield "None to tensor", lambda v: torch.ones(4)
        yield "None to list", lambda v: []
    elif kind is list:
        yield "list to equal list", list
        yield "list to tuple", tuple
        yield "list to subclass", _List
    elif kind is dict:
        yield "dict to subclass", _Dict
        yield "dict to OrderedDict", collections.OrderedDict
        yield "dict to defaultdict", lambda v: collections.defaultdict(int, v)
        yield "dict reordered", lambda v: dict(reversed(list(v.items())))
    elif kind is tuple:
        yield "tuple to list", list
        yield "tuple longer", lambda v: (*v, 1)
    elif isinstance(value, torch.Tensor) and kind in (torch.Tensor, torch.nn.Parameter):
        yield from _near_tensors(value)
    elif isinstance(value, types.FunctionType):
        yield "function to lambda", _altered
    elif isinstance(value, type):
        yield "class to subclass", lambda v: type(v)(v.__name__, (v,), {"__module__": v.__module__})
    elif isinstance(value, (set, frozenset)):
        yield "set longer", lambda v: kind([*v, 12345])
    if not isinstance(value, (type, types.FunctionType, type(None))):
        yield "value to None", lambda v: None


def _near_tensors(value: torch.Tensor) -> Iterator[tuple[str, Callable[[Any], Any]]]:
    yield "tensor to clone", lambda v: v.detach().clone().requires_grad_(v.requires_grad)
    yield "tensor to other dtype", lambda v: v.detach().to(torch.float64 if v.dtype != torch.float64 else torch.float32)
    yield "tensor requires_grad", _grad_flipped
    yield "tensor to subclass", lambda v: v.detach().clone().as_subclass(_Tensor)
    yield "tensor to Parameter", lambda v: torch.nn.Parameter(v.detach().clone(), requires_grad=False)
    yield "tensor to view", lambda v: v.detach().clone().view(v.shape)
    yield (
        "tensor with offset",
        lambda v: torch.cat([v.detach().reshape(-1)[:1], v.detach().reshape(-1)])[1:].view(v.shape),
    )
    yield "tensor to inference", _inference
    if value.dim():
        yield "tensor to longer", lambda v: torch.cat([v.detach(), v.detach()])
        yield "tensor to shorter", lambda v: v.detach()[:1].clone()
        yield "tensor to none left", lambda v: v.detach()[:0].clone()
        yield "tensor to more dims", lambda v: v.detach().clone()[None]
        yield "tensor to strided", lambda v: v.detach().repeat_interleave(2, -1)[..., ::2]
        yield "tensor to expanded", lambda v: v.detach()[:1].expand(v.shape)
    if value.dim() > 1:
        yield "tensor to transposed strides", lambda v: v.detach().transpose(0, 1).contiguous().transpose(0, 1)
    yield "tensor to conj", lambda v: v.detach().to(torch.complex64).conj()


def _grad_flipped(value: torch.Tensor) -> torch.Tensor:
    if not value.is_floating_point():
        raise Inapplicable
    return value.detach().clone().requires_grad_(not value.requires_grad)


def _inference(value: torch.Tensor) -> torch.Tensor:
    with torch.inference_mode():
        return value.detach().clone()


def _altered(function: Callable) -> Callable:
    """A function whose tensors and numbers are other ones."""

    def altered(*args: Any, **kwargs: Any) -> Any:
        result = function(*args, **kwargs)
        if isinstance(result, bool):
            return not result
        return result + 1 if isinstance(result, (int, float, torch.Tensor)) else result

    altered.__name__ = getattr(function, "__name__", "altered")
    altered.__qualname__ = getattr(function, "__qualname__", "altered")
    return altered


# Every change of one call ---------------------------------------------------------------------------------------------


def changes(root: Root) -> Iterator[Change]:
    """Every change of something that the call can reach."""
    found = list(places(root))
    names = _names_used(found)
    for path, value in found:
        where = _shown(path)
        if path[-1][0] not in ("function", "class", "base", "owner"):
            for name, make in near(value):
                yield Change(name, where, _replaced(path, make))
            if path[-1][0] in ("attribute", "item", "global", "member"):
                yield Change(f"{path[-1][0]} deleted", where, lambda root, path=path: delete_at(root, path))
        for kind, apply in _inner(path, value, names):
            yield Change(kind, where, apply)
    yield from _relations(found)


def _names_used(found: list[tuple[Path, Any]]) -> list[str]:
    names: set[str] = set()
    for _, value in found:
        function = plain_function(value.fget if isinstance(value, property) else value)
        if function is not None:
            names |= names_in(function.__code__)
            names |= {each for each in function.__code__.co_consts if isinstance(each, str) and each.isidentifier()}
    return sorted(names)


def _replaced(path: Path, make: Callable[[Any], Any]) -> Callable[[Root], Undo]:
    return lambda root: replace_at(root, path, make(value_at(root, path)))


def _shown(path: Path) -> str:
    return ".".join("".join(map(str, step[:1])) + "".join(f"[{each!r}]" for each in step[1:]) for step in path)


def _at(path: Path, change: Callable[[Any], Undo]) -> Callable[[Root], Undo]:
    return lambda root: change(value_at(root, path))


def _inner(path: Path, value: Any, names: list[str]) -> Iterator[tuple[str, Callable[[Root], Undo]]]:
    """What can be done to the object itself."""
    function = plain_function(value)
    if function is not None:
        yield "function code replaced", _at(path, _code_replaced)
        if function.__defaults__:
            yield "defaults removed", _at(path, lambda f: _set(plain_function(f), "__defaults__", None))
        elif function.__code__.co_argcount:
            yield "defaults added", _at(path, lambda f: _set(plain_function(f), "__defaults__", (1,)))
        if function.__kwdefaults__ is None and function.__code__.co_kwonlyargcount:
            names = function.__code__.co_varnames[function.__code__.co_argcount :][
                : function.__code__.co_kwonlyargcount
            ]
            yield (
                "kwdefaults added",
                _at(path, lambda f: _set(plain_function(f), "__kwdefaults__", dict.fromkeys(names, 1))),
            )
        for name in ("__name__", "__qualname__", "__doc__", "__module__"):
            yield f"function {name} changed", _at(path, lambda f, n=name: _set(plain_function(f), n, "changed"))
        yield "function moved", _at(path, _moved)
        return
    if isinstance(value, type):
        if path[-1][0] != "base" or "__main__" not in value.__module__:
            yield from _of_class(path, value, names)
        return
    if isinstance(value, list):
        yield "list appended", _at(path, lambda v: _contents(v, lambda: v.append(copy.copy(v[0]) if v else 1)))
        yield "list reversed", _at(path, lambda v: _contents(v, v.reverse))
    if isinstance(value, dict):
        yield "dict extended", _at(path, lambda v: _contents(v, lambda: v.update(zzz=1)))
        for name in names[:40]:
            if name not in value:
                yield "dict key added", _at(path, lambda v, name=name: _contents(v, lambda: v.update({name: 1})))
        if len(value) > 1:
            yield "dict order rotated", _at(path, lambda v: _contents(v, lambda: _rotate(v)))
        yield "dict order", _at(path, lambda v: _contents(v, lambda: _reorder(v)))
    if isinstance(value, torch.nn.Module):
        yield "module train flipped", _at(path, _train_flipped)
        yield "module hook", _at(path, lambda m: _hooked(m.register_forward_hook, _hook))
        yield "module pre-hook", _at(path, lambda m: _hooked(m.register_forward_pre_hook, _pre_hook))
        yield "module forward overridden", _at(path, lambda m: _put(vars(m), "forward", _altered(m.forward)))
    held = getattr(value, "__dict__", None)
    if isinstance(held, dict) and not isinstance(value, torch.Tensor):
        for name in names:
            if name not in held and _in_class(value, name) is not None:
                yield "instance shadows class", _at(path, lambda v, name=name: _put(vars(v), name, _shadow(v, name)))
            elif name not in held:
                yield "attribute added", _at(path, lambda v, name=name: _put(vars(v), name, 1))
        yield "__class__ to subclass", _at(path, lambda v: _reclassed(v, {}))
        for name in names:
            if isinstance(_in_class(value, name), types.FunctionType):
                yield (
                    "__class__ overriding",
                    _at(path, lambda v, name=name: _reclassed(v, {name: _altered(getattr(type(v), name))})),
                )
        for name, method in _SPECIAL.items():
            if name not in ("__getattribute__",):
                yield f"__class__ with {name}", _at(path, lambda v, name=name, m=method: _reclassed(v, {name: m}))


_SPECIAL: dict[str, Callable] = {
    "__getattr__": lambda self, name: 7 if not name.startswith("__") else _missing(name),
    "__bool__": lambda self: False,
    "__len__": lambda self: 0,
    "__eq__": lambda self, other: True,
    "__hash__": lambda self: 7,
    "__call__": lambda self, *args, **kwargs: 7,
    "__contains__": lambda self, item: True,
    "__iter__": lambda self: iter(()),
    "__add__": lambda self, other: 7,
    "__radd__": lambda self, other: 7,
    "__repr__": lambda self: "changed",
    "__setattr__": lambda self, name, value: object.__setattr__(self, name, value),
}


_META: dict[str, Callable] = {
    "__instancecheck__": lambda cls, value: False,
    "__subclasscheck__": lambda cls, other: False,
    "__call__": lambda cls, *args, **kwargs: 7,
    "__eq__": lambda cls, other: True,
    "__len__": lambda cls: 5,
    "__bool__": lambda cls: False,
    "__getattr__": lambda cls, name: 7 if not name.startswith("__") else _missing(name),
    "__contains__": lambda cls, item: True,
}


#: What the interpreter asks of a class when another one is made or matched.
_HOOKS: dict[str, Any] = {
    "__init_subclass__": classmethod(lambda cls, **options: setattr(cls, "changed", 1)),
    "__set_name__": lambda self, owner, name: setattr(owner, "changed", 1),
    "__match_args__": ("changed",),
}


def _registered(cls: Any) -> Undo:
    """Every class of the program's module is one of `cls` from now on; `ABCMeta` cannot take it back."""
    names = plain_function(cls.__init__) or plain_function(vars(cls).get("area"))
    for each in list((names.__globals__ if names is not None else {}).values()):
        if isinstance(each, type) and each.__module__ == cls.__module__ and not issubclass(each, cls):
            cls.register(each)
    return _not_undone


def _not_undone() -> None:
    raise Inapplicable


def _in_class(value: Any, name: str) -> Any:
    """What the classes of `value` define by that name, looked up without running anything."""
    return next((vars(base)[name] for base in type(value).__mro__ if name in vars(base)), None)


def _missing(name: str) -> Any:
    raise AttributeError(name)


def _of_class(path: Path, cls: type, names: list[str]) -> Iterator[tuple[str, Callable[[Root], Undo]]]:
    if not cls.__module__.startswith("tests."):
        return
    for name in names:
        found = next((vars(base)[name] for base in cls.__mro__ if name in vars(base)), None)
        if isinstance(found, types.FunctionType):
            yield "class method replaced", _at(path, lambda c, name=name: _member(c, name, _altered(getattr(c, name))))
        elif isinstance(found, property):
            yield "property replaced", _at(path, lambda c, name=name: _member(c, name, property(lambda self: 7)))
        elif found is None:
            yield "class attribute added", _at(path, lambda c, name=name: _member(c, name, 1))
            yield "property added", _at(path, lambda c, name=name: _member(c, name, property(lambda self: 7)))
        elif isinstance(found, (int, float)):
            yield "class value changed", _at(path, lambda c, name=name, f=found: _member(c, name, f + 1))
    for name, method in _SPECIAL.items():
        yield f"class gets {name}", _at(path, lambda c, name=name, m=method: _member(c, name, m))
    if cls.__bases__ != (object,) or True:
        for name in names:
            if any(name in vars(base) for base in cls.__mro__[1:-1]) and name not in vars(cls):
                yield "bases extended", _at(path, lambda c, name=name: _mixed_in(c, name))
    yield "class qualname changed", _at(path, lambda c: _set(c, "__qualname__", c.__qualname__ + "x"))
    if issubclass(cls, tuple) and hasattr(cls, "_fields"):
        yield "fields changed", _at(path, lambda c: _set(c, "_fields", c._fields[::-1]))
    yield "class renamed", _at(path, lambda c: _set(c, "__name__", c.__name__ + "x"))
    yield "class annotations changed", _at(path, lambda c: _member(c, "__annotations__", {"changed": int}))
    yield "class module changed", _at(path, lambda c: _set(c, "__module__", c.__module__ + "x"))
    for name in ("__init_subclass__", "__set_name__", "__match_args__"):
        yield f"class gets {name}", _at(path, lambda c, n=name: _member(c, n, _HOOKS[n]))
    yield "class doc changed", _at(path, lambda c: _set(c, "__doc__", "changed"))
    meta = type(cls)
    if meta is not type and meta.__module__ == cls.__module__:
        for name, method in _META.items():
            yield f"metaclass gets {name}", _at(path, lambda c, name=name, m=method: _member(type(c), name, m))
        for name in names:
            if isinstance(vars(meta).get(name), types.FunctionType):
                yield (
                    "metaclass method replaced",
                    _at(path, lambda c, name=name: _member(type(c), name, _altered(vars(type(c))[name]))),
                )
            elif not hasattr(cls, name):
                yield "metaclass attribute added", _at(path, lambda c, name=name: _member(type(c), name, 1))
    if meta is abc.ABCMeta:
        yield "class registered", _at(path, _registered)


def _relations(found: list[tuple[Path, Any]]) -> Iterator[Change]:
    """Two places hold one object, or equal ones."""
    held = [(path, value) for path, value in found if path[-1][0] in ("arg", "attribute", "item", "global", "cell")]
    held = [each for each in held if not isinstance(each[1], (types.FunctionType, type, types.BuiltinFunctionType))]
    for index, (path, value) in enumerate(held):
        if not _is_atom(value) and not isinstance(value, torch.Tensor):  # which another place may hold, too
            copied = lambda r, p=path: replace_at(r, p, copy.copy(value_at(r, p)))
            yield Change("made another object", _shown(path), copied)
        for other, beside in held[:index]:
            if type(beside) is not type(value) or path[: len(other)] == other or other[: len(path)] == path:
                continue
            where = f"{_shown(path)} = {_shown(other)}"
            yield Change("made one object", where, lambda r, p=path, o=other: replace_at(r, p, value_at(r, o)))
            if not isinstance(value, torch.Tensor):
                yield Change(
                    "made equal", where, lambda r, p=path, o=other: replace_at(r, p, copy.deepcopy(value_at(r, o)))
                )
            elif value.shape == beside.shape:
                yield Change("made overlapping", where, lambda r, p=path, o=other: _overlapping(r, p, o))


def _is_atom(value: Any) -> bool:
    return isinstance(value, (int, float, complex, str, bytes, type(None)))


def _overlapping(root: Root, path: Path, other: Path) -> Undo:
    return replace_at(root, path, value_at(root, other).detach()[...])


# How -----------------------------------------------------------------------------------------------------------------


_ABSENT = object()


def _set(owner: Any, name: str, value: Any) -> Undo:
    old = getattr(owner, name)
    setattr(owner, name, value)
    return lambda: setattr(owner, name, old)


def _put(table: dict, name: str, value: Any) -> Undo:
    old = table.get(name, _ABSENT)
    table[name] = value

    def undo() -> None:
        if old is _ABSENT:
            del table[name]
        else:
            table[name] = old

    return undo


def _member(cls: type, name: str, value: Any) -> Undo:
    old = vars(cls).get(name, _ABSENT)
    setattr(cls, name, value)
    return lambda: delattr(cls, name) if old is _ABSENT else setattr(cls, name, old)


def _moved(function: Any) -> Undo:
    """The function stands at another line of another file."""
    plain = plain_function(function)
    assert plain is not None
    old = plain.__code__
    plain.__code__ = old.replace(co_firstlineno=old.co_firstlineno + 1)
    return lambda: setattr(plain, "__code__", old)


def _shadow(value: Any, name: str) -> Any:
    found = getattr(value, name)
    return _altered(found) if callable(found) else 7


def _contents(value: Any, change: Callable[[], Any]) -> Undo:
    kept = list(value.items()) if isinstance(value, dict) else list(value)

    def undo() -> None:
        value.clear()
        (value.update if isinstance(value, dict) else value.extend)(kept)

    change()
    return undo


def _reorder(table: dict) -> None:
    kept = list(table.items())[::-1]
    table.clear()
    table.update(kept)


def _rotate(table: dict) -> None:
    """The first key comes last."""
    key = next(iter(table))
    table[key] = table.pop(key)


def _train_flipped(module: torch.nn.Module) -> Undo:
    flags = [(each, each.training) for each in module.modules()]
    module.train(not module.training)

    def undo() -> None:
        for each, flag in flags:
            each.training = flag

    return undo


def _hook(module: Any, args: Any, result: Any) -> Any:
    return result + 1 if isinstance(result, torch.Tensor) else result


def _hooked(register: Callable, hook: Callable) -> Undo:
    RemovableHandle.next_id = 1000  # both worlds number it alike
    return register(hook).remove


def _pre_hook(module: Any, args: Any) -> Any:
    return tuple(each + 1 if isinstance(each, torch.Tensor) and each.is_floating_point() else each for each in args)


def _code_replaced(function: Any) -> Undo:
    """The function's constants change: numbers grow by one."""
    plain = plain_function(function)
    assert plain is not None
    old = plain.__code__
    consts = tuple(each + 1 if type(each) in (int, float) else each for each in old.co_consts)
    if consts == old.co_consts:
        raise Inapplicable
    plain.__code__ = old.replace(co_consts=consts)
    return lambda: setattr(plain, "__code__", old)


def _reclassed(value: Any, body: dict) -> Undo:
    old = type(value)
    made = type(old)(old.__name__, (old,), {"__module__": old.__module__, "__qualname__": old.__qualname__, **body})
    if type(value) is not made:
        object.__setattr__(value, "__class__", made)
    return lambda: object.__setattr__(value, "__class__", old)


def _mixed_in(cls: type, name: str) -> Undo:
    old = cls.__bases__
    mixin = type("Mixin", (), {name: _altered(getattr(cls, name))})
    cls.__bases__ = (mixin, *old)
    return lambda: setattr(cls, "__bases__", old)

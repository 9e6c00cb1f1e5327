"""Functions of torch that objects overload without being tensors: classes with a `__torch_function__`.

    torch.add(Meters(x), 1)     ->      Meters.__torch_function__(torch.add, (Meters,), (Meters(x), 1))

Who is asked and what it is given is for PyTorch to say: the function is called with stand-ins in place of the objects,
which note what they are given. What the class does with that is interpreted. Objects of several classes, of which one
may decline for another, are left to eager.
"""

from __future__ import annotations

from typing import Any

from lampwork.capture.outside.overlay import Break
from lampwork.capture.record.fake import TENSOR_KINDS

_NAME = "__torch_function__"


class _StandIn:
    """What PyTorch gets in place of `original`."""

    seen: list[tuple] = []

    def __init__(self, original: Any) -> None:
        self.original = original

    @classmethod
    def __torch_function__(cls, *given: Any) -> None:
        cls.seen.append(given)


def overloaded(world: Any, function: Any, args: tuple, kwargs: dict[str, Any]) -> Any:
    """What the class of an argument makes of the call; NotImplemented where no class that is known overloads it."""
    found = [each for each in _leaves((*args, *kwargs.values())) if _overloads(world, each)]
    kinds = {type(each) for each in found}
    if len(kinds) != 1:
        return NotImplemented
    (kind,) = kinds
    given = _given(world, function, args, kwargs, kind)
    if given is None:
        return NotImplemented
    bound = world.descriptor_get(world.class_lookup(kind, _NAME)[1], found[0], kind)
    result = world.machine.call(bound, given)
    if result is NotImplemented:
        raise Break("tensor-argument", f"{kind.__qualname__}.{_NAME} declines")
    return result


def _overloads(world: Any, value: Any) -> bool:
    """Whether an object overloads functions, by a class method in Python."""
    kind = type(value)
    if kind in TENSOR_KINDS or id(value) in world.loader.opaque or world.data.is_data(value):
        return False
    method = world.class_lookup(kind, _NAME)[1]
    return type(method) is classmethod and not world.instance_lookup(value, _NAME)[0]


def _given(world: Any, function: Any, args: tuple, kwargs: dict[str, Any], kind: type) -> tuple | None:
    """What PyTorch hands to the `__torch_function__` of the class `kind`; None where it asks nobody."""

    class StandIn(_StandIn):
        seen: list[tuple] = []

    made: dict[int, StandIn] = {}

    def replaced(value: Any) -> Any:
        if type(value) is kind:
            return made.setdefault(id(value), StandIn(value))
        if type(value) in (list, tuple):
            return type(value)(map(replaced, value))
        return value

    own, named = replaced(args), {name: replaced(each) for name, each in kwargs.items()}
    rest = [each for each in _leaves((*own, *named.values())) if type(each) is not StandIn]
    if not all(map(world.data.is_data, rest)):
        return None
    try:
        function(*own, **named) if named else function(*own)  # which PyTorch tells apart
    except (TypeError, ValueError):
        return None
    if len(StandIn.seen) != 1 or StandIn.seen[0][1] != (StandIn,):
        return None

    def restored(value: Any) -> Any:
        if type(value) is StandIn:
            return value.original
        if type(value) in (list, tuple):
            return type(value)(map(restored, value))
        return {name: restored(each) for name, each in value.items()} if type(value) is dict else value

    called, _, *others = StandIn.seen[0]
    return (called, (kind,), *map(restored, others))


def _leaves(values: Any) -> list[Any]:
    """The values, and those in lists and tuples among them."""
    return [part for each in values for part in (_leaves(each) if type(each) in (list, tuple) else [each])]

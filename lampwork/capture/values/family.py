"""`Family`: what operations mean for one kind of value. `dispatch.py` says which family is asked.

An operation on one value is its family's alone. One on two values is asked of the families of both, best rank first,
until one does not hand on; what remains means what it means in Python (`machine/world.py`). A family that converts an
operand asks the world again, from the start: `self.world.binary_op(op, number(left), right)`.
"""

from __future__ import annotations

import types
from typing import TYPE_CHECKING, Any, Final

from lampwork.capture.machine import MachineGenerator, World
from lampwork.capture.machine.values import Marker

if TYPE_CHECKING:
    from lampwork.capture.machine import Frame
    from lampwork.capture.world import TorchWorld

#: The answer of a family that knows nothing of two operands: the next one is asked.
HANDS_ON: Final = Marker("HANDS_ON")


class Family:
    """Operations as Python has them. Each family says where it differs."""

    def __init__(self, world: TorchWorld) -> None:
        self.world = world

    def has(self, cls: type) -> bool:
        """Whether the values of a class belong to the family."""
        return False

    def kind(self, value: Any) -> type:
        """The class that the program sees."""
        return types.GeneratorType if type(value) is MachineGenerator else type(value)

    def example(self, value: Any) -> Any:
        """A value of that class: what native code refuses of it, it refuses of `value`, in the same words."""
        return value

    # -- of two values, one of which belongs to the family: the answer, or HANDS_ON

    def binary(self, op: Any, left: Any, right: Any) -> Any:
        """`op(left, right)`."""
        return HANDS_ON

    def inplace(self, op: Any, left: Any, right: Any) -> Any:
        """`left op= right`."""
        return HANDS_ON

    def compare(self, op: Any, left: Any, right: Any) -> Any:
        """`op(left, right)` for the six comparisons."""
        return HANDS_ON

    def contains(self, item: Any, container: Any) -> Any:
        """`item in container`."""
        return HANDS_ON

    # -- of one value: the answer, or HANDS_ON for what Python's own functions do

    def text(self, value: Any, function: Any) -> Any:
        """`str(value)` or `repr(value)`, as `function` says."""
        return HANDS_ON

    def format(self, value: Any, spec: Any) -> Any:
        """`format(value, spec)`."""
        return HANDS_ON

    def convert(self, value: Any, function: Any, args: tuple, kwargs: dict[str, Any]) -> Any:
        """`function(value, *args, **kwargs)` for `bool`, `int`, `float`, `abs`, `round` and functions of `math`."""
        return HANDS_ON

    # -- of a native function that is given such values, or containers with them

    def native(self, function: Any, args: tuple, kwargs: dict[str, Any]) -> tuple[Any, Any, tuple, dict[str, Any]]:
        """`function(*args, **kwargs)`, or HANDS_ON; and the function and arguments to go on with then."""
        return HANDS_ON, function, args, kwargs

    # -- of one value: the answer

    def unary(self, op: Any, value: Any) -> Any:
        return World.unary_op(self.world, op, value)

    def truth(self, value: Any) -> bool:
        return World.truth(self.world, value)

    def branch(self, frame: Frame, value: Any, if_true: int, if_false: int) -> bool:
        """`bool(value)` where the frame goes on at one instruction or the other by it."""
        return self.world.truth(value)

    def length(self, value: Any) -> int:
        return World.length(self.world, value)

    def get_item(self, container: Any, key: Any) -> Any:
        return World.get_item(self.world, container, self.world.native_key(container, key))

    def set_item(self, container: Any, key: Any, value: Any) -> None:
        World.set_item(self.world, container, self.world.native_key(container, key, value), value)

    def del_item(self, container: Any, key: Any) -> None:
        World.del_item(self.world, container, self.world.native_key(container, key))

    def iterate(self, value: Any) -> Any:
        """`iter(value)`."""
        return World.get_iter(self.world, value)

    def iterable(self, value: Any) -> Any:
        """What native code may iterate in the place of `value`, without running the program's Python code."""
        return World.native_iterable(self.world, value)

    def unpacked(self, value: Any) -> Any:
        """What `a, b = value` takes apart in the place of `value`."""
        return value

    def load_attr(self, value: Any, name: str) -> Any:
        return self.world.families.plain.load_attr(value, name)

    def store_attr(self, value: Any, name: str, item: Any) -> None:
        World.store_attr(self.world, value, name, item)

    def delete_attr(self, value: Any, name: str) -> None:
        World.delete_attr(self.world, value, name)

    # -- attributes of the value's own, whatever its class has

    def instance_lookup(self, obj: Any, name: str) -> tuple[bool, Any]:
        """(found, value) of what the value itself has under a name."""
        return self.world.families.plain.instance_lookup(obj, name)

    def instance_store(self, obj: Any, name: str, value: Any) -> None:
        self.world.families.plain.instance_store(obj, name, value)

    def instance_delete(self, obj: Any, name: str) -> None:
        self.world.families.plain.instance_delete(obj, name)


class StandInFamily(Family):
    """Stand-ins for numbers, arrays and texts. What their family knows nothing of, their class refuses."""

    #: The classes of the stand-ins.
    stand_ins: frozenset[type]

    def has(self, cls: type) -> bool:
        return cls in self.stand_ins

    def example(self, value: Any) -> Any:
        return self.kind(value)(1) if type(value) in self.stand_ins else value

    def contains(self, item: Any, container: Any) -> Any:
        return World.contains(self.world, item, self.example(container)) if self.has(type(container)) else HANDS_ON

    def length(self, value: Any) -> int:
        return World.length(self.world, self.example(value))

    def get_item(self, container: Any, key: Any) -> Any:
        return super().get_item(self.example(container), key)

    def set_item(self, container: Any, key: Any, value: Any) -> None:
        super().set_item(self.example(container), key, value)

    def del_item(self, container: Any, key: Any) -> None:
        super().del_item(self.example(container), key)

    def iterate(self, value: Any) -> Any:
        return World.get_iter(self.world, self.example(value))

    def iterable(self, value: Any) -> Any:
        return World.native_iterable(self.world, self.example(value))

    def unpacked(self, value: Any) -> Any:
        return self.example(value)

    def store_attr(self, value: Any, name: str, item: Any) -> None:
        World.store_attr(self.world, self.example(value), name, item)

    def delete_attr(self, value: Any, name: str) -> None:
        World.delete_attr(self.world, self.example(value), name)


__all__ = ["HANDS_ON", "Family", "StandInFamily"]

"""Objects from outside of which only the class is known: what depends on more breaks the graph.

They are told by their identity (`Loader.opaque`), whatever their class; iterators among them are followed where how far
they are is known (`outside/iterators.py`).
"""

from __future__ import annotations

import operator
from typing import Any, NoReturn

from lampwork.capture.machine import World
from lampwork.capture.machine.iteration import InterpretedIterator
from lampwork.capture.outside.iterators import FOLLOWED
from lampwork.capture.outside.overlay import Break
from lampwork.capture.values.family import HANDS_ON, Family


class OpaqueFamily(Family):
    """Asked before all others, and of operations on two values only where these do not say themselves."""

    def refuse(self, value: Any) -> NoReturn:
        kind = type(value)
        raise Break("opaque-value", f"a {kind.__module__}.{kind.__qualname__} from outside the program is used",
                    "Pass plain data, tensors or objects of Python classes.")  # fmt: skip

    def _refuse_either(self, left: Any, right: Any) -> NoReturn:
        self.refuse(left if id(left) in self.world.loader.opaque else right)

    def binary(self, op: Any, left: Any, right: Any) -> Any:
        self._refuse_either(left, right)

    def inplace(self, op: Any, left: Any, right: Any) -> Any:
        self._refuse_either(left, right)

    def compare(self, op: Any, left: Any, right: Any) -> Any:
        known = self.world.loader.has_identity_hash
        if op in (operator.eq, operator.ne) and known(left) and known(right):
            same = self.world.is_(left, right)
            return same if op is operator.eq else not same
        self._refuse_either(left, right)

    def contains(self, item: Any, container: Any) -> Any:
        if id(container) in self.world.loader.opaque:
            self.refuse(container)
        return HANDS_ON

    def unary(self, op: Any, value: Any) -> Any:
        self.refuse(value)

    def truth(self, value: Any) -> bool:
        """True of every object of a class that does not say; the class is guarded."""
        if hasattr(type(value), "__bool__") or hasattr(type(value), "__len__"):
            self.refuse(value)
        return World.truth(self.world, value)

    def length(self, value: Any) -> int:
        self.refuse(value)

    def get_item(self, container: Any, key: Any) -> Any:
        self.refuse(container)

    def set_item(self, container: Any, key: Any, value: Any) -> None:
        self.refuse(container)

    def del_item(self, container: Any, key: Any) -> None:
        self.refuse(container)

    # -- iterators

    def follows(self, value: Any) -> bool:
        """Whether it is an iterator whose next elements are known."""
        known = id(value) in self.world.loader.opaque and type(value) in FOLLOWED
        return known and self.world.walks.follows(value)

    def iterate(self, value: Any) -> Any:
        return value if self.follows(value) else self.refuse(value)

    def advance(self, iterator: Any) -> tuple[bool, Any]:
        return self.world.walks.advance_in(self.world, iterator) if self.follows(iterator) else self.refuse(iterator)

    def iterable(self, value: Any) -> Any:
        return InterpretedIterator(self.world, value) if self.follows(value) else self.refuse(value)

    def unpacked(self, value: Any) -> Any:
        return value if self.follows(value) else self.refuse(value)

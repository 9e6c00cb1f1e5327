"""The few values that the machine adds to Python's own: two markers and the request to enter a function."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any


class Part:
    """Base of the classes that together make up `World`: what they use of each other."""

    if TYPE_CHECKING:
        machine: Any
        intrinsic_names: set[str]
        class_intrinsics: dict[Any, Any]

        def class_lookup(self, cls: type, name: str) -> tuple[bool, Any]: ...
        def descriptor_get(self, attribute: Any, obj: Any, cls: type) -> Any: ...
        def call_attribute(self, attribute: Any, obj: Any, args: tuple[Any, ...]) -> Any: ...
        def attribute(self, obj: Any, name: str) -> Any: ...
        def attribute_or(self, obj: Any, name: str, default: Any) -> Any: ...
        def special(self, obj: Any, name: str) -> Any: ...
        def python_special(self, obj: Any, name: str) -> Any: ...
        def call_special(self, obj: Any, attribute: Any, *args: Any) -> Any: ...
        def call(self, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any: ...
        def call_native(self, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any: ...
        def call_descriptor(self, descriptor: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any: ...
        def get_iter(self, value: Any) -> Any: ...
        def iter_next(self, iterator: Any) -> tuple[bool, Any]: ...
        def collect(self, values: Any, asks: bool = False) -> list[Any]: ...
        def get_item(self, container: Any, key: Any) -> Any: ...


class Marker:
    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name

    def __repr__(self) -> str:
        return f"<{self.name}>"


NULL = Marker("NULL")  # CPython's null on the value stack: "no self" beside a callable
UNBOUND = Marker("UNBOUND")  # a local variable without a value; "no value" in results of lookups


class Enter:
    """A world's answer that means: run this Python function (or resume this generator) in a frame of its own.

    The result is delivered where the world's answer would have gone: on the stack of the calling frame.
    `constructed`, if it is not UNBOUND, is delivered in place of the function's result, which must then be None
    (the function is an `__init__`).  With `generator`, `args` is `(value_sent,)`.
    """

    __slots__ = ("function", "args", "kwargs", "constructed", "generator")

    def __init__(
        self,
        function: Any,
        args: tuple[Any, ...],
        kwargs: dict[str, Any] | None = None,
        constructed: Any = UNBOUND,
        generator: Any = None,
    ) -> None:
        self.function = function
        self.args = args
        self.kwargs = kwargs
        self.constructed = constructed
        self.generator = generator

    def __repr__(self) -> str:
        return f"Enter({self.function or self.generator!r}, {self.args!r}, {self.kwargs!r})"


def Value(value: Any) -> Any:
    """The value itself: a world's operation answers a plain value or an `Enter`."""
    return value


def is_a(value: Any, cls: Any) -> bool:
    """Whether the value's type derives from cls.  Unlike isinstance, never asks the value for its `__class__`,
    which a program may compute."""
    return issubclass(type(value), cls)

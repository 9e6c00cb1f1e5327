"""Answers about the world before the call, each with the guard that makes it true.

What capture asks of an object from outside, beyond what loading it says, is asked here: the object itself
(`Origin.raw`) is read in this folder alone: `tests/unit/test_house.py` checks it.
"""

from __future__ import annotations

from types import FunctionType
from typing import TYPE_CHECKING, Any

from lampwork.capture.outside.overlay import MISSING, Deferred, Origin
from lampwork.ir.source import Source

if TYPE_CHECKING:
    from lampwork.capture.outside.load import Loader


def globals_source(loader: Loader, names: dict[str, Any]) -> Source | None:
    """Where a namespace of no module is found: it is that of a function from outside. None: of none that was met."""
    for origin in loader.by_value.values():
        if type(origin.raw) is FunctionType and origin.raw.__globals__ is names:
            return loader.sources.attribute(origin.source, "__globals__")
    return None


def history(loader: Loader, tensor: Origin) -> tuple[Any, Source]:
    """The node that a tensor from outside is a result of, and where it is found. The caller guards its identity."""
    return tensor.raw.grad_fn, loader.sources.attribute(tensor.source, "grad_fn")


def attribute(loader: Loader, origin: Origin, name: str) -> Any:
    """`raw.name` of an attribute that C keeps, loaded. May raise AttributeError."""
    return loader.load(getattr(origin.raw, name), loader.sources.attribute(origin.source, name))


def slot(loader: Loader, origin: Origin, descriptor: Any) -> Any:
    """What a descriptor in C gives of an object, loaded. May raise AttributeError."""
    raw = descriptor.__get__(origin.raw, type(origin.raw))
    return loader.load(raw, loader.sources.attribute(origin.source, descriptor.__name__))


def instance_attribute(loader: Loader, origin: Origin, name: str) -> Any:
    """The entry of the instance dict of an object without an overlay, loaded; MISSING, guarded, if there is none."""
    source = loader.sources.instance_dict(origin.source)
    raw = origin.raw.__dict__.get(name, MISSING)
    if raw is MISSING:
        loader.guards.has_key(source, name, False)
        return MISSING
    return loader.load(raw, loader.sources.item(source, name))


def count_of_attributes(loader: Loader, origin: Origin) -> int:
    """How many attributes are in the instance dict."""
    count = len(origin.raw.__dict__)
    loader.guards.length_is(loader.sources.instance_dict(origin.source), count)
    return count


# Tensors --------------------------------------------------------------------------------------------------------------


def has_one_element(tensor: Origin) -> bool:
    """Whether a tensor has one element. Its sizes are guarded since it was loaded."""
    return tensor.raw.numel() == 1


def is_whole(tensor: Origin) -> bool:
    """Whether a tensor has one element, and is all of its memory. What overlaps is guarded for all tensors together."""
    return has_one_element(tensor) and tensor.raw.untyped_storage().nbytes() == tensor.raw.element_size()


def element(recorder: Any, tensor: Origin) -> Any:
    """The number in a tensor of one element, as a plain number. The caller asks `Loader.numbers` for the number at the
    tensor's source, which guards what is computed of it."""
    with recorder._paused():
        return tensor.raw.item()


def is_view(loader: Loader, tensor: Origin) -> bool:
    """Whether a tensor is a view of another."""
    base = tensor.raw._base
    loader.guards.type_is(loader.sources.attribute(tensor.source, "_base"), type(base))
    return base is not None


# Which object it is ---------------------------------------------------------------------------------------------------


def is_itself(origin: Origin) -> bool:
    """Whether the program holds the very object, and no copy of it."""
    return origin.value is origin.raw


def is_let_go(origin: Origin, resumed_with: tuple, held: list[Any]) -> bool:
    """Whether suspended frames held an object when they went on, and nothing of `held`, what they hold now, is it."""
    if not any(origin.raw is each for each in resumed_with):
        return False
    return not any(each is origin.value or (type(each) is Deferred and each.raw is origin.raw) for each in held)

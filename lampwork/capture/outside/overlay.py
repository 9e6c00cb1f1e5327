"""ContainerOverlays: private copies of the program's containers and instance dicts, with contents loaded when they are
read.

The program under capture works on the copies; the real objects stay untouched, so that another thread never sees a fake
tensor and a break leaves nothing to undo. A copy of a container from outside holds raw elements until somebody looks:

    dict    `DictOverlay.pending` is the set of keys whose values are still raw
    list    raw elements are wrapped in `Pending`, so that they may move about

A overlay knows what was there (`raw`, never changed) and what is there now (`copy`): effects are the difference.
"""

from __future__ import annotations

import collections
from collections.abc import Iterable
from typing import Any

from lampwork.capture.machine.errors import Interruption
from lampwork.errors import Diagnostic
from lampwork.ir.source import Source


class Break(Interruption):
    """Capture stops here: the program does something that is not put in a graph."""

    def __init__(self, id: str, reason: str, remedy: str = "") -> None:
        super().__init__(id, reason, remedy)
        self.id, self.reason, self.remedy = id, reason, remedy
        self.diagnostic: Diagnostic | None = None

    def __str__(self) -> str:
        return f"{self.reason} [{self.id}]"


class LeftToEager(Break):
    """Capture starts again, with what the program does of this kind left to eager."""

    def __init__(self, kind: str, reason: str, id: str = "backward-effect") -> None:
        super().__init__(id, reason)
        self.kind = kind


class Missing:
    def __repr__(self) -> str:
        return "<missing>"


#: Nothing there (no attribute, no key).
MISSING = Missing()


class Pending:
    """The raw element that was at `index` of a list from outside, not looked at yet."""

    __slots__ = ("raw", "index")

    def __init__(self, raw: Any, index: int) -> None:
        self.raw = raw
        self.index = index

    def __repr__(self) -> str:
        return f"<pending element {self.index}>"


class Deferred:
    """A live value of a continuation that the program has not looked at: loaded, and guarded, when it does."""

    __slots__ = ("raw", "source")

    def __init__(self, raw: Any, source: Source) -> None:
        self.raw = raw
        self.source = source

    def __repr__(self) -> str:
        return f"<deferred {type(self.raw).__name__}>"


class Origin:
    """Where a value from outside came from. `value` is what the program holds in place of `raw` (often itself)."""

    __slots__ = ("value", "raw", "source")

    def __init__(self, value: Any, raw: Any, source: Source) -> None:
        self.value = value
        self.raw = raw
        self.source = source


def entries(container: dict) -> Iterable[tuple[Any, Any]]:
    """The items of a dict in its order, by the methods of the class in C: a class derived from it may have others."""
    base: Any = collections.OrderedDict if isinstance(container, collections.OrderedDict) else dict
    return base.items(container)


class DictOverlay:
    """A dict from outside, or the instance dict of an object from outside (`owner`)."""

    __slots__ = (
        "copy",
        "raw",
        "source",
        "pending",
        "unseen",
        "written",
        "deleted",
        "changed",
        "whole",
        "owner",
        "absent",
        "base",
        "held",
    )

    def __init__(self, copy: dict, raw: Any, source: Source, owner: Any = None) -> None:
        self.copy = copy
        self.raw = raw
        self.source = source
        #: What the dict held when it was shadowed; `raw` itself may be changed by another thread.
        self.base: dict = dict(entries(raw))
        #: By key, what the program held for it when it was read, where that is not the object itself: a number that
        #: varies, a copy of a container.
        self.held: dict = {}
        self.pending: set = set(self.base)
        #: Keys written before their values were looked at: no guard says that a later call finds the same there.
        self.unseen: set = set()
        #: Keys written since they were last deleted: the order in which a dict that had none of them would have them.
        self.written: dict[Any, None] = {}
        #: Keys that were there and were deleted; some may be there again.
        self.deleted: set = set()
        self.changed = False
        self.whole = False
        self.owner = owner
        self.absent: set = set()

    def before(self, key: Any) -> Any:
        """What the program found at `key`: to write what a number that varies was in this call is a write."""
        return self.held.get(key, self.base[key])


class KeysOverlay:
    """`keys()` of a dict from outside of which nothing was looked at but single keys (`key in table.keys()`)."""

    __slots__ = ("view", "of")

    def __init__(self, view: Any, of: DictOverlay) -> None:
        self.view = view
        self.of = of


class ListOverlay:
    """A list or deque from outside. `state`: "raw" (elements pending), "appended" (only appended to, nothing looked at
    since), "settled" (length and all elements guarded; `copy` is an ordinary container)."""

    __slots__ = ("copy", "raw", "source", "base_class", "base", "held", "state", "appended", "changed")

    def __init__(self, copy: Any, raw: Any, source: Source) -> None:
        self.copy = copy
        self.raw = raw
        self.source = source
        self.base_class: Any = list if isinstance(raw, list) else type(raw)
        self.base = list(self.base_class.__iter__(raw))
        #: As `DictOverlay.held`, by index.
        self.held: dict[int, Any] = {}
        self.state = "raw"
        self.appended = 0
        self.changed = False

    def before(self, index: int) -> Any:
        """As `DictOverlay.before`."""
        return self.held.get(index, self.base[index])


class SetOverlay:
    """A set from outside; looked at as a whole."""

    __slots__ = ("copy", "raw", "source", "base", "order", "settled")

    def __init__(self, copy: set, raw: set, source: Source) -> None:
        self.copy = copy
        self.raw = raw
        self.source = source
        #: What the set held, and in which order it gives that.
        self.order = tuple(raw)
        self.base = set(self.order)
        self.settled = False


class CellOverlay:
    """A closure cell from outside, found at `source`, its contents at `contents`; as a closure variable, it is cell
    `index` of the function at `function`. `value` is MISSING while empty; `loaded` says whether it was read or written;
    `written` whether the program stored into it."""

    __slots__ = ("cell", "source", "contents", "function", "index", "value", "loaded", "written", "initial")

    def __init__(
        self, cell: Any, source: Source, contents: Source, function: Source | None = None, index: int = -1
    ) -> None:
        self.cell = cell
        self.source = source
        self.contents = contents
        self.function = function
        self.index = index
        self.value: Any = MISSING
        self.initial: Any = MISSING
        self.loaded = False
        self.written = False


class SlotOverlay:
    """C-level attributes of one object from outside (slots): values read and written, by name."""

    __slots__ = ("owner", "values", "initial", "written")

    def __init__(self, owner: Any) -> None:
        self.owner = owner
        self.values: dict[str, Any] = {}
        self.initial: dict[str, Any] = {}
        #: In the order of the last writes: a gradient has the type of the tensor's data at that time.
        self.written: dict[str, None] = {}

    def write(self, name: str, value: Any) -> None:
        self.values[name] = value
        self.written.pop(name, None)
        self.written[name] = None


class IdentityNumber(int):
    """What `id(x)` or `hash("text")` gives: good as a key, for comparison with another, and to compute others from.
    It is another number in the next process, so anything else breaks the graph.

    `subject`: the object whose `id` it is, as a tuple of one; empty for other numbers.
    """

    subject: tuple = ()

    def _refuse(self, *args: Any) -> Any:
        raise Break("identity-number", "a number that differs from process to process (id, hash) is looked at")

    __truediv__ = __rtruediv__ = __lt__ = __le__ = __gt__ = __ge__ = __index__ = __bool__ = __float__ = _refuse
    __str__ = __repr__ = __format__ = __round__ = __abs__ = __divmod__ = __rdivmod__ = __rpow__ = __pow__ = _refuse
    __floordiv__ = __rfloordiv__ = __int__ = _refuse
    __hash__ = int.__hash__

    def __eq__(self, other: object) -> bool:
        if type(other) in (int, bool):
            self._refuse()
        return int.__eq__(self, other)  # type: ignore[arg-type]

    def __ne__(self, other: object) -> bool:
        return not self == other


def _closed(name: str) -> Any:
    operation = getattr(int, name)

    def compute(self: Any, other: Any) -> Any:
        result = operation(self, other)
        return result if result is NotImplemented else IdentityNumber(result)

    return compute


for _name in ("add", "sub", "mul", "mod", "and", "or", "xor", "lshift", "rshift"):
    setattr(IdentityNumber, f"__{_name}__", _closed(f"__{_name}__"))
    setattr(IdentityNumber, f"__r{_name}__", _closed(f"__r{_name}__"))


class HookNumber(IdentityNumber):
    """The number by which a hook that the program registers is known: torch counts on from the last one, on every call.

    `position`: which of the call's hooks it is, from 0.
    """

    position = 0

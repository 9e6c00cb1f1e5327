"""Equal modules share what is compiled: the blocks of a model that are compiled one by one need one compile.

    for block in model.layers: block.compile()      one capture; the other blocks find its artifact, as from a file

`Known` is what this process knows of one piece of code under some settings: what its compiled functions have made or
read from disk. Modules of one class have one in common, so have the continuations of their calls. Whether an artifact
serves a call its guards say, as for stored ones: each function makes entries of its own.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Iterator
from types import MethodType
from typing import TYPE_CHECKING, Any

import torch

from lampwork import _torch
from lampwork.config import Settings, cache_scope
from lampwork.ir.artifact import Artifact
from lampwork.ir.continuation import SuspendedFrames
from lampwork.ir.guard import Guard
from lampwork.ir.region import RunEagerly
from lampwork.runtime.guards.failures import first_failure, in_words

if TYPE_CHECKING:
    from lampwork.runtime.cache.entries import StoredEntries

#: Artifacts that modules of one class keep for one another; the oldest go first.
MOST = 64

_shared: weakref.WeakValueDictionary[tuple, Known] = weakref.WeakValueDictionary()


class Known:
    """Artifacts for one piece of code, newest first; and what is on disk for it, None until somebody has looked."""

    def __init__(self, key: tuple[object, ...] | None = None) -> None:
        self.is_shared = key is not None
        #: The class and the code, which keep their ids for as long as others may ask for what has them.
        self._of = key
        self.lock = threading.RLock()
        #: With what their operators of other libraries were when they were made.
        self._artifacts: tuple[tuple[Artifact, tuple], ...] = ()
        self.on_disk: StoredEntries | None = None
        #: For artifacts by id, the guard that a call failed last: the next one is likely to fail it, too.
        self._failed: dict[int, tuple[Artifact, Guard]] = {}

    def why_missed(self, artifact: Artifact, function: Callable, args: tuple, kwargs: dict) -> str:
        """A guard of the artifact that does not hold for this call, in words; empty when all hold."""
        known, guard = self._failed.get(id(artifact), (None, None))
        failed = None
        if guard is not None and known is artifact:
            failed = first_failure((guard,), function, args, kwargs)
        failed = failed or first_failure(artifact.guards, function, args, kwargs)
        if failed is None:
            return ""
        self._failed[id(artifact)] = artifact, failed[0]
        return in_words(*failed)

    def add(self, artifact: Artifact) -> None:
        """From now on the others find it, too; not where it is of use to one function alone."""
        if self.is_shared and artifact.portable and not artifact.initial_states:
            if isinstance(artifact.outcome, RunEagerly):
                return
            with self.lock:
                self._artifacts = ((artifact, in_force(artifact)), *self._artifacts)[:MOST]
                kept = {id(each) for each, _ in self._artifacts}
                self._failed = {key: value for key, value in dict(self._failed).items() if key in kept}

    def artifacts(self) -> Iterator[Artifact]:
        """Those whose operators are what they were: a library, or the cell of a notebook, may register another
        derivative."""
        for artifact, operators in self._artifacts:
            if not operators or operators == in_force(artifact):
                yield artifact

    def forget(self) -> None:
        with self.lock:
            self._artifacts, self.on_disk, self._failed = (), None, {}


def forget_all() -> None:
    """No module finds what has been made for another one so far."""
    for known in list(_shared.values()):
        known.forget()


def in_force(artifact: Artifact) -> tuple:
    """What the operators of other libraries are now that `artifact` calls; empty where it calls none."""
    if not artifact.operators:
        return ()
    from lampwork.runtime.cache.operators import declaration

    return tuple((declaration(name), _torch.derivative_in_python(name)) for name in artifact.operators)


def known_of(function: Callable, settings: Settings) -> Known:
    """What functions of the same code have in common; for functions that are no modules, one of their own."""
    key = _key(function, settings)
    if key is None:
        return Known()
    place = (*map(id, key[:_BY_ID]), *key[_BY_ID:])
    found = _shared.get(place)
    return found if found is not None else _shared.setdefault(place, Known(key))


def _key(function: Callable, settings: Settings) -> tuple | None:
    """The class and the code. None for what is no module: functions of one code are mostly made with other closures."""
    root: Any = function
    resumption = method = None
    if isinstance(root, SuspendedFrames):
        root, resumption = root.root, root.resumption
    if isinstance(root, MethodType):
        method, root = root.__func__, root.__self__
    if not isinstance(root, torch.nn.Module):
        return None
    forward = getattr(type(root), "forward", None)
    code = getattr(forward, "__code__", forward)
    return type(root), code, method, resumption, repr(settings), cache_scope()


#: Parts of a key, its first ones, that are known by their ids: a class or function may say that it cannot be hashed.
_BY_ID = 3

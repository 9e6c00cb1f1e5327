"""The on-disk cache of whole entries: a new process finds them, checks their guards and runs, with no compiler stage.

    CACHE_DIR/v1/KEY/DIGEST.entry        one artifact each

KEY is a digest of what was compiled (class or function by name and code), the settings, and the versions of Lampwork,
PyTorch, Python and the machine's instruction set. A file is a header line with a checksum, then a pickle. Files are
written under another name and moved into place, so readers never see half of one. An unreadable, corrupt or
unwritable cache is a warning, never an error: the program runs without it.

Pickles run code when they are read: the cache directory must be writable by its owner alone, like the directory of
Python's own byte code. Directories that others may write to are refused.
"""

from __future__ import annotations

import hashlib
import importlib
import io
import marshal
import os
import pickle
import stat
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import CodeType, FunctionType, MethodType
from typing import Any

from lampwork.config import Settings, environment
from lampwork.errors import LampworkWarning
from lampwork.ir.artifact import Artifact
from lampwork.ir.continuation import Resumption, SuspendedFrames
from lampwork.ir.guard import ClassLookup, FunctionIs
from lampwork.ir.program import Extern, Launch, storages_of_results
from lampwork.ir.reference import code_digest
from lampwork.ir.region import RunEagerly
from lampwork.runtime.versions import versions

#: Total size of the cache; the least recently used entries go first.
LIMIT_BYTES = 4 << 30
#: Entries read for one compiled function.
ENTRIES_READ = 16

_HEADER = b"lampwork entry 1 "
_warned: set[str] = set()

Note = Callable[[str], None]


def key_of(function: Any, settings: Settings) -> str | None:
    """The cache key of a compiled callable; None for one that no other process could recognise."""
    named = _named_code(function)
    if named is None:
        return None
    parts = [*named, repr(settings), *(f"{name}={value}" for name, value in sorted(versions().items()))]
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:32]


def _named_code(function: Any) -> tuple[str, ...] | None:
    if isinstance(function, MethodType):
        owner = type(function.__self__)
        inner = _named_code(function.__func__)
        return None if inner is None else ("method", owner.__module__, owner.__qualname__, *inner)
    if isinstance(function, FunctionType):
        return ("function", function.__module__ or "", function.__qualname__, code_digest(function.__code__))
    if isinstance(function, SuspendedFrames):
        root = _named_code(function.root)
        return None if root is None else ("continuation", *root, *_resumption_parts(function.resumption))
    cls = type(function)
    call = getattr(cls, "forward", None) or vars(cls).get("__call__")
    if not isinstance(call, FunctionType):
        return None
    return ("object", cls.__module__, cls.__qualname__, code_digest(call.__code__))


def _resumption_parts(resumption: Resumption) -> Iterator[str]:
    yield repr((resumption.delivered, resumption.raised, resumption.dropped, resumption.handled))
    for frame in resumption.frames:
        yield code_digest(frame.code)
        yield repr((frame.index, frame.slots, frame.stack, frame.constructed))


def candidates(function: Any, settings: Settings, note: Note) -> Iterator[Artifact]:
    """Stored artifacts that may serve `function`, newest first. Their guards have yet to be checked."""
    key = key_of(function, settings)
    if key is None:
        note("not used: the callable has no Python code that names it")
        return
    folder = _root() / key
    try:
        files = sorted(folder.glob("*.entry"), key=lambda path: path.stat().st_mtime, reverse=True)
    except OSError as error:
        _warn("read", f"the cache {folder} cannot be read ({error}).")
        return
    if not files:
        note("miss: nothing stored for this code, these settings and versions")
        return
    if not _owned(folder):
        return
    for path in files[:ENTRIES_READ]:
        artifact = _read(path)
        if artifact is None:
            continue
        missing = _missing_module(artifact)
        if missing:
            note(f"miss: {missing}")
            continue
        yield artifact


def store(function: Any, settings: Settings, artifact: Artifact, note: Note) -> Path | None:
    """Write `artifact` for other processes; None (and a note that says why) where it cannot be."""
    key = key_of(function, settings)
    if key is None or not _portable(artifact, note):
        return None
    try:
        data = _dump(_slim(artifact))
    except Exception as error:
        note(f"not stored: {type(error).__name__}: {error}")
        return None
    folder = _root() / key
    name = hashlib.sha256(data).hexdigest()
    path = folder / f"{name[:32]}.entry"
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        if not _owned(folder):
            return None
        handle, temporary = tempfile.mkstemp(dir=folder, prefix=".writing-")
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(_HEADER + name.encode() + b"\n" + data)
            os.replace(temporary, path)
        except BaseException:
            os.unlink(temporary)
            raise
        _trim(_root(), path)
    except OSError as error:
        _warn("write", f"the cache {folder} cannot be written ({error}).")
        return None
    return path


def _slim(artifact: Artifact) -> Artifact:
    """`artifact` without what only compiler stages and printers read: kernels, buffers, text of machine code.

    Buffers that are not on the program's device stay, and so do the operators' arguments where there are any: whether
    the program can be a CUDA graph depends on them.
    """
    nothing: Any = None  # kernels are counted where the artifact is used, and not looked at
    elsewhere = {name: buffer for name, buffer in artifact.program.buffers.items() if buffer.device}
    program = replace(
        artifact.program,
        kernels=(nothing,) * len(artifact.program.kernels),
        steps=tuple(_slim_step(step, bool(elsewhere)) for step in artifact.program.steps),
        buffers=elsewhere,
        placements={},
        refused=(),
        stored_storages=storages_of_results(artifact.program) if artifact.program.device != "cpu" else None,
    )
    kernels = tuple(
        replace(kernel, source="", signature=(), constants=(), grid=()) for kernel in artifact.native.kernels
    )
    native = replace(artifact.native, source="", kernels=kernels)
    backward = artifact.backward
    if backward is not None and backward.artifact is not None:
        backward = replace(backward, artifact=_slim(backward.artifact))
    return replace(artifact, program=program, native=native, backward=backward, report={})


def _slim_step(step: Any, keep_arguments: bool) -> Any:
    if isinstance(step, Launch):
        return Launch(step.kernel, ())
    return Extern(step.op, ()) if isinstance(step, Extern) and not keep_arguments else step


def _portable(artifact: Artifact, note: Note) -> bool:
    if isinstance(artifact.outcome, RunEagerly):
        note("not stored: the call runs eagerly")
        return False
    if not artifact.portable:
        note("not stored: the entry names objects that other processes cannot find")
        return False
    for guard in artifact.guards:
        if isinstance(guard.test, FunctionIs):
            continue  # its digest decides, not its name
        for ref in (getattr(guard.test, "ref", None), getattr(guard.test, "found", None)):
            by_code = isinstance(guard.test, ClassLookup) and ref is not None and ref.kind == "function" and ref.digest
            if ref is not None and not ref.portable and not by_code:
                note(f"not stored: {ref.module}.{ref.qualname} cannot be found by name in another process")
                return False
    return True


# Files ------------------------------------------------------------------------------------------------------------


def _root() -> Path:
    return Path(environment.cache_dir) / "v1"


def _read(path: Path) -> Artifact | None:
    try:
        data = path.read_bytes()
    except OSError as error:
        _warn("read", f"the cache file {path} cannot be read ({error}).")
        return None
    header, _, body = data.partition(b"\n")
    if not header.startswith(_HEADER) or hashlib.sha256(body).hexdigest().encode() != header[len(_HEADER) :]:
        _warn("corrupt", f"the cache file {path} is corrupt and was {_discarded(path)}.")
        return None
    try:
        artifact = pickle.loads(body)
    except Exception as error:  # a class moved or changed since it was written
        why = f"cannot be loaded ({type(error).__name__}: {error})"
        _warn("corrupt", f"the cache file {path} {why} and was {_discarded(path)}.")
        return None
    if not isinstance(artifact, Artifact) or dict(artifact.versions) != versions():
        return None
    try:
        os.utime(path)  # the trimmer removes what was not used for longest
    except OSError:
        pass
    return artifact


def _discarded(path: Path) -> str:
    """What became of a file that is no use, in words: later processes would only warn of it again."""
    try:
        path.unlink()
    except OSError:
        return "not used"
    return "removed"


def _missing_module(artifact: Artifact) -> str:
    """The first module whose functions were interpreted and that this process does not have; empty when all are there.

    Their code is not compared here: every function the program reached was read through a source, and the guard on
    that read holds its digest. A name is no substitute, since decorators copy it to wrappers.
    """
    for module in {name.partition(":")[0] for name in artifact.code_digests}:
        if module in sys.modules:
            continue
        if module.partition(".")[0] not in sys.modules:
            return f"module {module} is not loaded"
        try:  # a part of a loaded package that is imported on first use
            importlib.import_module(module)
        except Exception as error:
            return f"module {module} cannot be imported ({error})"
    return ""


def _owned(folder: Path) -> bool:
    """The directory belongs to this user and nobody else may write to it."""
    try:
        status = folder.stat()
    except OSError as error:
        _warn("read", f"the cache {folder} cannot be read ({error}).")
        return False
    if hasattr(os, "getuid") and (status.st_uid != os.getuid() or status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)):
        _warn("owner", f"the cache {folder} belongs to another user or others may write to it; it is not used.")
        return False
    return True


def _trim(root: Path, keep: Path) -> None:
    """Remove the least recently used entries until the cache is within its bound."""
    files = []
    for path in root.glob("*/*.entry"):
        try:
            status = path.stat()
        except OSError:
            continue
        files.append((status.st_mtime, status.st_size, path))
    total = sum(size for _, size, _ in files)
    for _, size, path in sorted(files):
        if total <= LIMIT_BYTES:
            return
        if path != keep:
            path.unlink(missing_ok=True)
            total -= size


def _warn(kind: str, text: str) -> None:
    """One warning per kind and process, with the remedy."""
    if kind not in _warned:
        _warned.add(kind)
        point = f"oint LAMPWORK_CACHE_DIR (now {environment.cache_dir}) at a directory of your own"
        change = f"Run `lampwork cache clear`, or p{point}" if kind in ("read", "corrupt") else f"P{point}"
        remedy = f"{change}; LAMPWORK_CACHE=0 does without."
        warnings.warn(f"lampwork: {text} {remedy}", LampworkWarning, stacklevel=3)


class _Pickler(pickle.Pickler):
    """Pickles code objects as well (functions made in a region carry theirs)."""

    def reducer_override(self, value: Any) -> Any:
        if isinstance(value, CodeType):
            return marshal.loads, (marshal.dumps(value),)
        return NotImplemented


def _dump(artifact: Artifact) -> bytes:
    buffer = io.BytesIO()
    _Pickler(buffer, protocol=pickle.HIGHEST_PROTOCOL).dump(artifact)
    return buffer.getvalue()

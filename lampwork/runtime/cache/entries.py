"""The on-disk cache of whole entries: a new process finds them, checks their guards and runs, with no compiler stage.

    CACHE_DIR/v1/KEY/DIGEST.entry        one artifact each (see `layout.py`)

KEY is a digest of what was compiled (class or function by name and code), the settings, and the versions of Lampwork,
PyTorch, Python and the machine's instruction set. A file is a header line with a checksum, then data in the format of
`codec.py`: of a closed list of types, each value verified as it is read. Files are written under another name and moved
into place, so readers never see half of one. The guards come first in a file: of many entries for one KEY the newest
are loaded, and of the others those whose guards hold for a call. An unreadable, corrupt or unwritable cache is a
warning, never an error: the program runs without it.

A file also holds machine code, the Python text of the host function, and the byte code of functions that the program
makes. These are code by nature, so only files are read that nobody but this user can have written: see
`lampwork/files.py`.
"""

from __future__ import annotations

import hashlib
import importlib
import os
import stat
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import fields, replace
from pathlib import Path
from types import FunctionType, MethodType, NoneType
from typing import Any

import torch

from lampwork import _torch
from lampwork.backends import backend_of
from lampwork.config import Settings, cache_dir, cache_url
from lampwork.errors import LampworkWarning
from lampwork.files import (
    ABANDONED_SECONDS,
    WRITING,
    UnfitFile,
    UnsafeFile,
    folder_in,
    plain_files,
    read_file,
    remove,
    safe_folder,
    touch,
    write_file,
)
from lampwork.ir.artifact import Artifact
from lampwork.ir.continuation import Resumption, SuspendedFrames
from lampwork.ir.guard import Guard
from lampwork.ir.program import Extern, Launch, storages_of_results
from lampwork.ir.reference import code_digest
from lampwork.ir.region import RunEagerly
from lampwork.runtime.cache import layout, libraries, operators, schema
from lampwork.runtime.cache.codec import Decoder, Malformed, NotStorable, encode
from lampwork.runtime.cache.layout import HEADER_BYTES, LIMIT_ENTRY_BYTES
from lampwork.runtime.cache.patches import patches
from lampwork.runtime.cache.versions import versions

#: Total size of the cache; the least recently used entries go first.
LIMIT_BYTES = 4 << 30
#: Entries that are loaded for one compiled function whether they fit a call or not; others must fit.
ENTRIES_READ = 16

_SUFFIX = layout.SUFFIX
_header = layout.header
_warned: set[str] = set()
#: Bytes that this process has stored since it last looked at the size of the whole cache; None: it never has.
_unaccounted: int | None = None

Note = Callable[[str], None]
#: Is told what happened to an entry, in one word of `CACHE_COUNTS`.
Count = Callable[[str], None]


def key_of(function: Callable, settings: Settings) -> str | None:
    """The cache key of a compiled callable; None for one that no other process could recognise."""
    facts = facts_of(function, settings)
    return None if facts is None else key_of_facts(facts)


def key_of_facts(facts: Mapping[str, str]) -> str:
    """The cache key that stands for all of `facts`."""
    return hashlib.sha256("\n".join(f"{name}={value}" for name, value in facts.items()).encode()).hexdigest()[:32]


def facts_of(function: Callable, settings: Settings) -> dict[str, str] | None:
    """What the cache key of a compiled callable is made of, by name; None for one that no other process could
    recognise, and where a pass of the user's has no digest. Where a key is not found, the fact that differs from a
    stored one is told (`misses.py`)."""
    named = named_code(function)
    if named is None or settings.without_digest:
        return None
    names, codes = named
    facts = {"callable": " ".join(names), "code": " ".join(codes)}
    for each in fields(settings):
        if each.name != "options":
            facts[each.name] = repr(getattr(settings, each.name))
    for each in fields(settings.options):
        facts[f"option {each.name}"] = repr(getattr(settings.options, each.name))
    facts.update(patches())
    facts.update(sorted(versions().items()))
    if settings.options.exact:  # eager's kernels for other instruction sets round otherwise
        facts["kernels"] = torch.backends.cpu.get_cpu_capability()
    return facts


def named_code(function: Callable) -> tuple[tuple[str, ...], tuple[str, ...]] | None:
    """What kind of callable it is, with its class or function by name; and the digests of its code. None for one that
    no other process could recognise."""
    if isinstance(function, MethodType):
        owner = type(function.__self__)
        inner = named_code(function.__func__)
        return None if inner is None else (("method", owner.__module__, owner.__qualname__, *inner[0]), inner[1])
    if isinstance(function, FunctionType):
        return ("function", function.__module__ or "", function.__qualname__), (code_digest(function.__code__),)
    if isinstance(function, SuspendedFrames):
        root = named_code(function.root)
        if root is None:
            return None
        place = tuple(_place(function.resumption))
        return ("continuation", *root[0], *place), (
            *root[1],
            *(code_digest(f.code) for f in function.resumption.frames),
        )
    cls = type(function)
    call = getattr(cls, "forward", None) or vars(cls).get("__call__")
    if not isinstance(call, FunctionType):
        return None
    return ("object", cls.__module__, cls.__qualname__), (code_digest(call.__code__),)


def _place(resumption: Resumption) -> Iterator[str]:
    yield repr((resumption.delivered, resumption.raised, resumption.dropped, resumption.handled))
    for frame in resumption.frames:
        yield repr((frame.index, frame.slots, frame.stack, frame.constructed))


def candidates(function: Callable, settings: Settings, note: Note) -> Iterator[Artifact]:
    """The newest stored artifacts that may serve `function`. Their guards have yet to be checked."""
    return StoredEntries(function, settings, note).newest()


def is_anything_stored(function: Callable, settings: Settings) -> bool:
    """Whether there is an entry for this code, these settings and versions. It may serve no call of this process."""
    key = key_of(function, settings)
    if key is None:
        return False
    try:
        with safe_folder(_root() / key) as folder:
            return any(name.endswith(_SUFFIX) for name, _ in plain_files(folder))
    except OSError:
        return False


class StoredEntries:
    """What is stored for one compiled function: the newest entries, which are loaded whatever they are for, and any
    number of others, of which those are loaded whose guards hold."""

    def __init__(self, function: Callable, settings: Settings, note: Note) -> None:
        self.note = note
        self.unknown_pass = settings.without_digest
        self.facts = facts_of(function, settings)
        self.key = None if self.facts is None else key_of_facts(self.facts)
        #: Files that this process has looked at, or will.
        self.seen: set[str] = set()
        #: Older entries that were not loaded, newest first, and the guards of those that were looked at.
        self.others: list[str] = []
        self.guards: dict[str, tuple[Guard, ...]] = {}

    def newest(self) -> Iterator[Artifact]:
        """Up to `ENTRIES_READ` artifacts, newest first."""
        if self.key is None:
            unknown = self.unknown_pass
            why = f"the pass {unknown} has no digest" if unknown else "the callable has no Python code that names it"
            self.note(f"not used: {why}")
            return
        path = _root() / self.key
        try:
            with safe_folder(path) as folder:
                files = [(status.st_mtime_ns, name) for name, status in plain_files(folder) if name.endswith(_SUFFIX)]
                if not files:
                    raise FileNotFoundError
                names = [name for _, name in sorted(files, reverse=True)]
                self.seen.update(names)
                self.others = names[ENTRIES_READ:]
                for name in names[:ENTRIES_READ]:
                    artifact = _artifact(folder, path / name, self.note)
                    if artifact is not None:
                        yield artifact
        except FileNotFoundError:
            self.note(f"miss: nothing stored for this code, these settings and versions{self._nearest()}")
        except OSError as error:
            _refused(path, error, "read")

    def _nearest(self) -> str:
        """The fact of the key that differs from what is stored for this callable; empty where nothing is."""
        from lampwork.runtime.cache import misses

        assert self.facts is not None
        why = misses.why_missed(_root().parent, self.facts)
        return f"; {why}" if why else ""

    def added(self) -> Iterator[Artifact]:
        """Artifacts that came into the folder since it was last looked at, newest first."""
        if self.key is None:
            return
        path = _root() / self.key
        try:
            with safe_folder(path) as folder:
                files = [(status.st_mtime_ns, name) for name, status in plain_files(folder) if name.endswith(_SUFFIX)]
                new = [name for _, name in sorted(files, reverse=True) if name not in self.seen]
                self.seen.update(new)
                self.others += new[ENTRIES_READ:]
                for name in new[:ENTRIES_READ]:
                    artifact = _artifact(folder, path / name, self.note)
                    if artifact is not None:
                        yield artifact
        except FileNotFoundError:
            pass
        except OSError as error:
            _refused(path, error, "read")

    def fetched(self, count: Count, again: bool = False) -> Iterator[Artifact]:
        """Artifacts that the shared place has beyond those of the local folder, where they are kept from then on. It is
        asked once for each key and process; `again`: once more."""
        if self.key is None or self.facts is None or not cache_url():
            return
        from lampwork.runtime.cache import shared

        if shared.fetch(self.key, self.facts, _root(), self.note, count, again):
            yield from self.added()

    def fitting(self, holds: Callable[[Sequence[Guard]], bool]) -> Iterator[Artifact]:
        """Of the others those whose guards hold, each given once."""
        if self.key is None or not self.others:
            return
        path = _root() / self.key
        try:
            with safe_folder(path) as folder:
                for name in tuple(self.others):
                    guards = self.guards.get(name)
                    if guards is None:
                        head = _open(folder, path / name, lambda text: None)
                        if head is None:
                            self.others.remove(name)
                            continue
                        guards = self.guards[name] = head[1]
                    if holds(guards):
                        self.others.remove(name)
                        artifact = _artifact(folder, path / name, self.note)
                        if artifact is not None:
                            yield artifact
        except OSError as error:
            _refused(path, error, "read")


def store(
    function: Callable, settings: Settings, artifact: Artifact, note: Note, count: Count = lambda what: None
) -> Path | None:
    """Write `artifact` for other processes; None (and a note that says why) where it cannot be."""
    facts = facts_of(function, settings)
    if settings.without_digest:
        note(f"not stored: the pass {settings.without_digest} has no digest")
    data = entry_bytes(artifact, note) if facts is not None else None
    if facts is None or data is None:
        return None
    key = key_of_facts(facts)
    checksum = hashlib.sha256(data).hexdigest()
    from lampwork.runtime.cache import misses

    path = _root() / key / layout.entry_name(checksum)
    is_there = False
    try:
        with safe_folder(path.parent, create=True) as folder:
            size = write_file(folder, path.name, (_header(checksum), data))
    except OSError as error:
        _refused(path.parent, error, "written")
    else:
        is_there = True
        misses.write_facts(_root().parent, key, facts)
        _account(size, path)
        count("stored")
    if cache_url():
        from lampwork.runtime.cache import shared

        shared.send(key, facts, layout.entry_name(checksum), _header(checksum) + data, note, count)
    return path if is_there else None


def entry_bytes(artifact: Artifact, note: Note) -> bytes | None:
    """`artifact` as data of two roots: (versions, digests of functions, guards), and all of it, without what only
    compiler stages read. None (and a note that says why) where another process could not use it."""
    if not _portable(artifact, note):
        return None
    try:
        slim = _slim(artifact)
        data = encode((slim.versions, slim.code_digests, slim.guards), slim)
    except (NotStorable, RecursionError) as error:
        note(f"not stored: {type(error).__name__}: {error}")
        return None
    if len(data) > LIMIT_ENTRY_BYTES:
        note(f"not stored: the entry takes {len(data)} bytes")
        return None
    return data


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
        stored_storages=storages_of_results(artifact.program) if backend_of(artifact.program.device).streams else None,
    )
    kernels = tuple(
        replace(kernel, source="", signature=(), constants=(), grid=()) for kernel in artifact.native.kernels
    )
    native = replace(artifact.native, source="", kernels=kernels)
    backward = artifact.backward
    if backward is not None and backward.artifact is not None:
        backward = replace(backward, artifact=_slim(backward.artifact))
    if backward is not None and not isinstance(backward.replay, (bytes, NoneType)):
        backward = replace(backward, replay=encode(backward.replay))
    if backward is not None and not isinstance(backward.eager, (bytes, NoneType)):
        backward = replace(backward, eager=encode(backward.eager))
    # Functions that were made from text may name a module that never was.
    digests = {name: digest for name, digest in artifact.code_digests.items() if name.partition(":")[0] in sys.modules}
    bodies = {name: replace(each, artifact=_slim(each.artifact)) for name, each in artifact.bodies.items()}
    return replace(
        artifact, program=program, native=native, backward=backward, code_digests=digests, bodies=bodies, report={}
    )


def _slim_step(step: object, keep_arguments: bool) -> Any:
    if isinstance(step, Launch):
        return Launch(step.kernel, ())
    if isinstance(step, Extern) and not keep_arguments:
        return step if step.op == _torch.LAUNCH and step.args[-1:] != ((),) else Extern(step.op, ())
    return step


def _portable(artifact: Artifact, note: Note) -> bool:
    if isinstance(artifact.outcome, RunEagerly):
        note("not stored: the call runs eagerly")
        return False
    if not artifact.portable:
        note("not stored: the entry names objects that other processes cannot find")
        return False
    for name, declared in artifact.operators.items():
        if not declared:
            what = f"the derivative of {name} is written in Python"
            if name.startswith("{"):
                what = f"{operators.described(name)} cannot be found by name in another process"
            note(f"not stored: {what}")
            return False
    if not all(artifact.libraries.values()):
        note("not stored: it ran a function marked allow_in_graph or assume_constant, and what that calls may change")
        return False
    for guard in artifact.guards:
        for ref in guard.test.references():
            if not ref.portable and not (ref.digest and ref.kind in guard.test.by_digest):
                note(f"not stored: {ref.module}.{ref.qualname} cannot be found by name in another process")
                return False
    return True


# Files ------------------------------------------------------------------------------------------------------------


def _root() -> Path:
    return Path(cache_dir()) / layout.ENTRIES


def _artifact(folder: int, path: Path, note: Note) -> Artifact | None:
    """The artifact in the file `path`, which lies in `folder`."""
    opened = _open(folder, path, note)
    artifact = None if opened is None else _next(opened[0], folder, path, note)
    if artifact is None:
        return None
    if type(artifact) is not Artifact:
        _warn("corrupt", f"the cache file {path} holds no entry and was {_discarded(folder, path)}.")
        return None
    other = operators.changed(artifact.operators)
    if other:
        note(f"miss: {operators.described(other)} is declared otherwise")
        return None
    other = libraries.changed(artifact.libraries)
    if other:
        note(f"miss: the library {other} has changed")
        return None
    touch(folder, path.name)
    return artifact


def _open(folder: int, path: Path, note: Note) -> tuple[Decoder, tuple[Guard, ...]] | None:
    """What reads the file `path` in `folder`, and the guards of the entry, which come first in it."""
    try:
        data = read_file(folder, path.name, LIMIT_ENTRY_BYTES + HEADER_BYTES)
    except FileNotFoundError:  # removed meanwhile
        return None
    except UnfitFile as error:
        _warn("corrupt", f"the cache file {path} was {_discarded(folder, path)}: {error.strerror}.")
        return None
    except OSError as error:
        _refused(path, error, "read")
        return None
    header, _, body = data.partition(b"\n")
    if layout.is_of_another_release(header):
        return None
    if header + b"\n" != _header(hashlib.sha256(body).hexdigest()):
        _warn("corrupt", f"the cache file {path} is corrupt and was {_discarded(folder, path)}.")
        return None
    try:
        decoder = Decoder(body)
    except Malformed as error:
        _malformed(folder, path, error)
        return None
    head = _next(decoder, folder, path, note)
    if head is None:
        return None
    if not is_head(head):
        _malformed(folder, path, Malformed("it does not begin as an entry"))
        return None
    made_for, code_digests, guards = head
    if made_for != versions():
        return None
    missing = missing_module(code_digests)
    if missing:
        note(f"miss: {missing}")
        return None
    return decoder, guards


is_head = schema.row(
    schema.table(schema.STR, schema.STR), schema.table(schema.STR, schema.STR), schema.many(schema.of(Guard))
)


def _next(decoder: Decoder, folder: int, path: Path, note: Note) -> Any:
    """The next root of the file; None where there is none."""
    try:
        return decoder.next()
    except Malformed as error:
        _malformed(folder, path, error)
    except LookupError as error:
        note(f"miss: {error}")
    return None


def _malformed(folder: int, path: Path, error: Malformed) -> None:
    _warn("corrupt", f"the cache file {path} cannot be loaded ({error}) and was {_discarded(folder, path)}.")


def _discarded(folder: int, path: Path) -> str:
    """What became of a file that is no use, in words: later processes would only warn of it again."""
    return "removed" if remove(folder, path.name) else "not used"


def missing_module(code_digests: Mapping[str, str]) -> str:
    """The first module whose functions were interpreted and that this process does not have; empty when all are there.

    Their code is not compared here: every function the program reached was read through a source, and the guard on
    that read holds its digest. A name is no substitute, since decorators copy it to wrappers.
    """
    for module in {name.partition(":")[0] for name in code_digests}:
        if module in sys.modules:
            continue
        if module.partition(".")[0] not in sys.modules:
            return f"module {module} is not loaded"
        try:  # a part of a loaded package that is imported on first use
            importlib.import_module(module)
        except Exception as error:
            return f"module {module} cannot be imported ({error})"
    return ""


def _account(size: int, stored: Path) -> None:
    """Keep the cache within its bound: now and then, since it takes a look at every file."""
    global _unaccounted
    _unaccounted = None if _unaccounted is None else _unaccounted + size
    if _unaccounted is None or _unaccounted > LIMIT_BYTES >> 6:
        _unaccounted = 0
        try:
            with safe_folder(_root()) as root:
                _trim(root, stored)
        except OSError:
            pass


def _trim(root: int, keep: Path) -> None:
    """Remove the least recently used entries until the cache is within its bound, and what killed processes left."""
    files = []
    for key in os.listdir(root):
        try:
            with folder_in(root, key) as folder:
                for name, status in plain_files(folder):
                    if name.startswith(WRITING) and status.st_mtime + ABANDONED_SECONDS < time.time():
                        remove(folder, name)
                    elif name.endswith(_SUFFIX) and stat.S_ISREG(status.st_mode):
                        files.append((status.st_mtime_ns, status.st_size, key, name))
        except OSError:
            continue
    total = sum(size for _, size, _, _ in files)
    for _, size, key, name in sorted(files):
        if total <= LIMIT_BYTES:
            return
        if (key, name) != (keep.parent.name, keep.name):
            try:
                with folder_in(root, key) as folder:
                    remove(folder, name)
            except OSError:
                continue
            total -= size


def _refused(path: Path, error: OSError, what: str) -> None:
    """The folder or file `path` cannot be read or written."""
    if isinstance(error, UnsafeFile):
        _warn("owner", f"the cache {path} is not used: {error.strerror} ({error.filename}).")
    else:
        # What keeps a folder from being read keeps it from being written: that is one warning.
        _warn(what if path.suffix == _SUFFIX else "folder", f"the cache {path} cannot be {what} ({error}).")


def _warn(kind: str, text: str) -> None:
    """One warning per kind and process, with the remedy."""
    if kind not in _warned:
        _warned.add(kind)
        point = f"oint LAMPWORK_CACHE_DIR (now {cache_dir()}) at a directory of your own"
        change = f"Run `lampwork cache clear`, or p{point}" if kind in ("read", "corrupt") else f"P{point}"
        remedy = f"{change}; LAMPWORK_CACHE=0 does without."
        warnings.warn(f"lampwork: {text} {remedy}", LampworkWarning, stacklevel=3)

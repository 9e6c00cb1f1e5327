"""What a record of a process's compiles consists of, and its file: a line of JSON for each event, the run itself first.

    {"event": "run", "command": [...], "folder", "variables", "versions", "machine", "time"}
    {"event": "compiled", "function", "digest", "settings", "graph", "kernels", "refused", "seconds", ...}
    {"event": "loaded", ...}         an entry of the on-disk cache serves
    {"event": "recompiled" | "fell back", "function", "reason", "line", "remedy"}

The file is written as events happen, so that it holds them if the process dies.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from lampwork import forks
from lampwork.config import row_of
from lampwork.debug.facts import graph, location
from lampwork.debug.fusion import refusals
from lampwork.errors import Diagnostic
from lampwork.ir.artifact import Artifact
from lampwork.runtime.function import CompiledFunction, line_of

Event = dict[str, Any]


class RecordFile:
    """Appends events to the record of this process. A forked child has a file of its own."""

    def __init__(self, folder: str) -> None:
        self._folder = Path(folder)
        self._lock = threading.Lock()
        self._path: Path | None = None
        forks.in_child(self._in_child)

    def _in_child(self) -> None:
        self._path, self._lock = None, threading.Lock()

    def add(self, event: Event) -> None:
        """Raises OSError where the file cannot be written; the caller goes on without."""
        with self._lock:
            if self._path is None:
                self._folder.mkdir(parents=True, exist_ok=True)
                name = time.strftime(f"%Y%m%d-%H%M%S-{os.getpid()}.jsonl")
                self._path = self._folder / name
                self._write(this_run())
            self._write(event)

    def _write(self, event: Event) -> None:
        assert self._path is not None
        with open(self._path, "a") as file:
            file.write(json.dumps(event, default=str) + "\n")


def this_run() -> Event:
    """The process: what was run, where, under which settings and versions."""
    from lampwork.config import VARIABLES
    from lampwork.runtime.cache.places import without_secrets
    from lampwork.runtime.cache.versions import versions

    variables = {name: os.environ[name] for name in VARIABLES if name in os.environ and name != "LAMPWORK_RECORD"}
    if "LAMPWORK_CACHE_URL" in variables:
        variables["LAMPWORK_CACHE_URL"] = without_secrets(variables["LAMPWORK_CACHE_URL"])
    return {
        "event": "run",
        "command": list(sys.orig_argv),
        "folder": os.getcwd(),
        "variables": variables,
        "versions": dict(versions()),
        "machine": {"host": platform.node(), "system": platform.platform(), "processors": os.cpu_count()},
        "time": time.strftime("%Y-%m-%d %H:%M:%S"),
    }


def compiled_event(compiled: CompiledFunction, artifact: Artifact, seconds: float) -> Event:
    """One compile: what decided it, what it decided, what it cost."""
    return {
        "event": "compiled",
        "function": _named(compiled),
        "settings": row_of(compiled.settings),
        **_program(artifact),
        "seconds": {"all": seconds, **artifact.compile_seconds},
    }


def loaded_event(compiled: CompiledFunction, artifact: Artifact) -> Event:
    """An entry from the on-disk cache; that holds no kernels and no decisions any more, only what came of them."""
    return {
        "event": "loaded",
        "function": _named(compiled),
        "settings": row_of(compiled.settings),
        "digest": digest(artifact),
        "graph": _graph(artifact),
    }


def noted_event(what: str, compiled: CompiledFunction, why: Diagnostic) -> Event:
    return {
        "event": what,
        "function": _named(compiled),
        "id": why.id,
        "reason": why.reason,
        "line": _place(location(why.location)),
        "remedy": why.remedy,
    }


def _program(artifact: Artifact) -> Event:
    found: Event = {"digest": digest(artifact), "graph": _graph(artifact), "kernels": [], "refused": []}
    for program in artifact.programs:
        found["kernels"] += [each.name for each in program.kernels]
        found["refused"] += [
            {"id": each.id, "between": f"{each.producer.op} and {each.consumer.op}", "reason": each.reason,
             "bytes": each.bytes, "times": count}
            for each, count in refusals(program)
        ]  # fmt: skip
    found["tiles"] = {
        kernel.name: {"warps": kernel.num_warps, "stages": kernel.num_stages, **dict(kernel.constants)}
        for kernel in artifact.native.kernels
    }
    found["specialised"] = [each.reason for each in artifact.specialised]
    return found


def _graph(artifact: Artifact) -> Event:
    facts = graph(artifact)
    facts.pop("compile_ms")
    return facts


def digest(artifact: Artifact) -> str:
    """Of all that the programs compute and how: kernels by the digests in their names, and the host functions."""
    parts = []
    part: Artifact | None = artifact
    while part is not None:
        parts += [part.host_source, *part.native.kernel_names]
        part = part.backward.artifact if part.backward is not None else None
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]


def _named(compiled: CompiledFunction) -> str:
    """The function's name, and where it begins: lambdas share their name."""
    where = line_of(compiled.function)
    return f"{compiled.name} ({os.path.basename(where.file)}:{where.line})" if where.file else compiled.name


def _place(where: Mapping[str, Any]) -> str:
    return f"{where['file']}:{where['line']}" if where["file"] else ""


# Reading --------------------------------------------------------------------------------------------------------------


def read(path: Path) -> list[Event]:
    """The events of a record; of a folder, those of its newest one. Raises ValueError for what is none."""
    if path.is_dir():
        files = sorted(path.glob("*.jsonl"), key=lambda each: each.stat().st_mtime)
        if not files:
            raise ValueError(f"{path}: no records are in it; set LAMPWORK_RECORD={path} and run your program")
        path = files[-1]
    events = list(_lines(path))
    if not events or events[0].get("event") != "run":
        raise ValueError(f"{path}: not a record that LAMPWORK_RECORD makes")
    return events


def _lines(path: Path) -> Iterator[Event]:
    for number, line in enumerate(path.read_text().splitlines(), 1):
        try:
            event = json.loads(line)
        except ValueError:
            continue  # the process died while it wrote
        if not isinstance(event, dict):
            raise ValueError(f"{path}:{number}: not a record that LAMPWORK_RECORD makes")
        yield event

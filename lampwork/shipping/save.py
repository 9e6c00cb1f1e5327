"""`lampwork.save`: every entry of a compiled callable, of the places where its calls go on, and of compiled submodules.

    manifest["parts"]   [{"name": "", or that of the submodule, "callable", "code", "patches", "settings", "entries",
                          "continuations"}, ...]
    sections            one for each entry and each place where calls go on, in the format of `runtime/cache/codec.py`

The weights themselves are no part of the file: their signatures are.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import torch

from lampwork.config import Settings, row_of
from lampwork.errors import ArtifactError, LampworkError, LampworkWarning
from lampwork.ir.artifact import Artifact
from lampwork.runtime.cache.codec import Decoder, Malformed, NotStorable, encode
from lampwork.runtime.cache.entries import entry_bytes, named_code, patches
from lampwork.runtime.entry import Entry
from lampwork.runtime.function import CompiledFunction
from lampwork.runtime.wrappers import compiled_of, is_wrapper
from lampwork.shipping import container
from lampwork.shipping.facts import facts
from lampwork.shipping.weights import signatures
from lampwork.shipping.words import serves

KIND = "entries"
_DONE = {"save": "saved", "package": "packaged"}


def save_compiled(compiled: Callable, path: str, key: bytes | None) -> int:
    """Writes the file, and returns its size. Raises `ArtifactError` where there is nothing to save, or nothing that
    another process could use; warns of entries that cannot be in a file."""
    writer = _Writer()
    parts = [writer.part(name, found) for name, found in parts_of(compiled)]
    if not writer.artifacts:
        raise ArtifactError(nothing_to("save", compiled, writer.refused))
    if writer.refused:
        text = f"{path} lacks {len(writer.refused)} of the entries: {'; '.join(dict.fromkeys(writer.refused))}"
        warnings.warn(f"lampwork: {text}. Those calls are compiled again. See docs/shipping.md.", LampworkWarning, 3)
    manifest = {
        "kind": KIND,
        "made_for": facts(writer.artifacts, byte_code=True),
        "parts": parts,
        "weights": signatures(original_of(compiled)),
    }
    return container.write(path, manifest, writer.sections, key)


def original_of(compiled: Callable) -> Callable:
    """What was compiled; a module that was not, but whose parts were, is that itself."""
    return compiled_of(compiled).function if is_wrapper(compiled) else compiled


def parts_of(compiled: Callable) -> list[tuple[str, CompiledFunction]]:
    """The compiled callable under "", and compiled submodules by their names. Raises TypeError where there is none."""
    found = []
    if not isinstance(compiled, torch.nn.Module):
        return [("", compiled_of(compiled))]
    for name, module in compiled.named_modules():
        if is_wrapper(module):
            found.append((name, compiled_of(module)))
    return found or [("", compiled_of(compiled))]


def nothing_to(what: str, compiled: Callable, refused: list[str]) -> str:
    """Why there is nothing to save or package, and what to do about it."""
    name = getattr(compiled, "__qualname__", type(compiled).__qualname__)
    if not refused:
        return (
            f"{name} has no compiled entries, so there is nothing to {what}. Call it first, as it is to be called "
            "where the file is used."
        )
    return f"no entry of {name} can be {_DONE[what]}: {'; '.join(dict.fromkeys(refused))}."


def why_unusable(data: bytes, make: Callable[[Artifact], Entry]) -> str:
    """Why no entry can be made of these bytes, as another process would make it; empty where one can. What an entry
    names, such as a class that a function made, may be found in this process by nothing but its address."""
    try:
        decoder = Decoder(data)
        decoder.next()
        make(decoder.next()).release()
    except (LookupError, Malformed, LampworkError) as error:
        return str(error)
    return ""


def settings_row(settings: Settings) -> dict[str, Any]:
    """The settings as JSON. Mode "auto" finds out what is fastest by running eagerly; elsewhere its entries are those
    of the default mode."""
    row = row_of(settings)
    return row | {"mode": "default" if settings.mode == "auto" else settings.mode}


class _Writer:
    """What a file will hold, as it is gathered."""

    def __init__(self) -> None:
        self.sections: list[tuple[str, container.Pieces]] = []
        self.artifacts: list[Artifact] = []
        self.refused: list[str] = []

    def part(self, name: str, compiled: CompiledFunction) -> dict[str, Any]:
        if compiled.is_foreign:
            raise ArtifactError(
                f"{compiled.name} was compiled by another back end, whose code is not ours to save. Compile it with "
                'backend="lampwork".'
            )
        unknown = compiled.settings.without_digest
        if unknown:
            raise ArtifactError(
                f"{compiled.name} was compiled with the pass {unknown}, which has no digest by which another process "
                "could recognise it. Give it one: see docs/passes.md."
            )
        named = named_code(compiled.function)
        if named is None:
            raise ArtifactError(f"{compiled.name} has no Python code by which another process could recognise it.")
        names, codes = named
        continuations = []
        if compiled.shipped is not None:  # places that no call of this process has come to
            for resumption in compiled.shipped.continuations:
                compiled.continuation(resumption)
        for resumption, continued in list(compiled.continuations.items()):
            entries = self.entries(continued)
            if entries:
                try:
                    data = encode(resumption)
                except (NotStorable, RecursionError) as error:
                    self.refused.append(str(error))
                    continue
                continuations.append({"section": self.section("place", data), "entries": entries})
        return {
            "name": name,
            "callable": list(names),
            "code": list(codes),
            "patches": sorted(" ".join(each) for each in patches()),
            "settings": settings_row(compiled.settings),
            "entries": self.entries(compiled),
            "continuations": continuations,
        }

    def entries(self, compiled: CompiledFunction) -> list[dict[str, str]]:
        rows = []
        for artifact in kept_artifacts(compiled):
            data = entry_bytes(artifact, lambda text: self.refused.append(text.removeprefix("not stored: ")))
            why = "" if data is None else why_unusable(data, compiled.entry_of)
            if why:
                self.refused.append(why)
            elif data is not None:
                self.artifacts.append(artifact)
                rows.append({"section": self.section("entry", data), "serves": serves(artifact.guards)})
        return rows

    def section(self, kind: str, data: bytes) -> str:
        name = f"{kind} {len(self.sections)}"
        self.sections.append((name, (data,)))
        return name


def kept_artifacts(compiled: CompiledFunction) -> list[Artifact]:
    """Of entries in memory, the most recently used first, and of those of a loaded file that wait for a call."""
    found = [entry.artifact for entry in compiled.entries]
    if compiled.shipped is not None:
        known = set(map(id, found))
        found += [each for each in compiled.shipped.artifacts if id(each) not in known]
    return found

"""`lampwork.package`: entries without their program, with its weights, in one file that runs by itself.

manifest   name, mode, passes; other settings are of no use; "weights": a row each; "entries": what each serves
sections   "weights" (safetensors), and one for each entry, in the format of `runtime/cache/codec.py`
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import asdict

import torch

from lampwork.errors import ArtifactError, LampworkError, LampworkWarning
from lampwork.ir.artifact import Artifact
from lampwork.runtime.cache.entries import entry_bytes
from lampwork.runtime.entry import Entry
from lampwork.runtime.wrappers import compiled_of
from lampwork.shipping import container, safetensors
from lampwork.shipping.container import File
from lampwork.shipping.detach import NotPackable, detached
from lampwork.shipping.facts import facts
from lampwork.shipping.packed import Package, never
from lampwork.shipping.save import kept_artifacts, nothing_to, settings_row, why_unusable
from lampwork.shipping.weights import Unfit, Weights, restored, rows_of, tensors_of
from lampwork.shipping.words import serves

KIND = "package"
_WEIGHTS = "weights"


def package_compiled(compiled: Callable, path: str, weights: bool, key: bytes | None) -> int:
    """Writes the file, and returns its size. Raises `ArtifactError` where no entry can be without its program; warns of
    those that cannot."""
    found = compiled_of(compiled)
    if found.is_foreign:
        raise ArtifactError(f"{found.name} was compiled by another back end, whose code is not ours to package.")
    gathered = Weights(frozenset() if weights else _names_of_state(found.function))
    refused: list[str] = []
    kept, sections = [], []
    for artifact in kept_artifacts(found):
        try:
            alone = detached(artifact, found.function, gathered, Package)
        except NotPackable as reason:
            refused.append(f"{serves(artifact.guards)}: {reason}")
            continue
        data = entry_bytes(alone, lambda text: refused.append(text.removeprefix("not stored: ")))
        why = "" if data is None else why_unusable(data, lambda each: Entry(each, never))
        if why:
            refused.append(why)
        elif data is not None:
            kept.append(alone)
            sections.append((f"entry {len(kept)}", data))
    if not kept:
        raise ArtifactError(nothing_to("package", compiled, refused))
    try:
        rows, stored = gathered.packed()
        pieces = safetensors.pieces(stored)
    except (Unfit, TypeError) as reason:
        raise ArtifactError(f"{found.name} cannot be packaged: {reason}.") from None
    if refused:
        text = f"{path} lacks {len(refused)} of the entries: {'; '.join(dict.fromkeys(refused))}"
        warnings.warn(f"lampwork: {text}. It refuses those calls. See docs/shipping.md.", LampworkWarning, 3)
    manifest = {
        "kind": KIND,
        "name": found.name,
        "made_for": facts(kept, byte_code=False),
        "mode": settings_row(found.settings)["mode"],
        "passes": found.settings.options.passes.rows(),
        "weights": [asdict(row) for row in rows],
        "entries": [{"section": name, "serves": serves(each.guards)} for (name, _), each in zip(sections, kept)],
    }
    every = [*((name, (data,)) for name, data in sections), (_WEIGHTS, pieces)]
    return container.write(path, manifest, every, key)


def _names_of_state(function: object) -> frozenset[str]:
    return frozenset(function.state_dict()) if isinstance(function, torch.nn.Module) else frozenset()


def unpacked(file: File, artifact_of: Callable[[File, str, bool], Artifact], weights: object) -> Package:
    """The package in a file whose header was verified and compared with this process. `weights`: what the user gives.

    Raises `ArtifactError` where it cannot be used, and ValueError where it is not of the form that is written here.
    """
    manifest = file.manifest
    rows = rows_of(manifest["weights"])
    lacking = [row.name for row in rows if row.given]
    if lacking and weights is None:
        raise file.error(
            f"is without its weights ({', '.join(lacking[:5])}{', ...' * (len(lacking) > 5)})",
            f"Write lampwork.load({file.path!r}, weights=...) with a state_dict or the path of a safetensors file.",
        )
    if weights is not None and not lacking:
        raise file.error("has its weights, and others were given", "Leave weights=... out.")
    given = tensors_of(weights) if weights is not None else {}
    artifacts = [artifact_of(file, str(each["section"]), False) for each in manifest["entries"]]
    if not artifacts:
        raise ValueError("it has no entries")
    stream = file.stream(_WEIGHTS)
    stored = safetensors.read(stream)
    stream.finish()
    held = restored(rows, stored, given)
    name, mode = manifest["name"], manifest["mode"]
    if not isinstance(name, str) or not isinstance(mode, str):
        raise ValueError("it has no name")
    try:
        return Package(name, file.path, held, artifacts, mode)
    except (LookupError, LampworkError) as error:
        raise file.error(f"does not fit this process: {error}", "Make the file again here.") from None

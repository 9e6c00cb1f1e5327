"""`lampwork.load`: a file beside its model, or a package by itself. What does not fit here is refused before any use.

Nothing of a file is used before its checksum, and its signature where a key is given, say that it is as it was written;
nothing of it runs before versions, processor, devices, code and weights were compared.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NoReturn

import torch

from lampwork.config import Settings, make_settings
from lampwork.errors import ArtifactError, LampworkError, OptionError, PassError
from lampwork.ir.artifact import Artifact
from lampwork.ir.continuation import Resumption
from lampwork.ir.guard import ArgumentCount
from lampwork.ir.passes import STAGES, Passes, UserPass
from lampwork.ir.record import record
from lampwork.ir.region import Continue
from lampwork.ir.source import is_static
from lampwork.runtime.cache import libraries, operators
from lampwork.runtime.cache.codec import Decoder, Malformed
from lampwork.runtime.cache.entries import is_head, missing_module, named_code, patches
from lampwork.runtime.shipped import Shipped
from lampwork.runtime.wrappers import compiled_of, is_wrapper
from lampwork.shipping import package, save, words
from lampwork.shipping.container import File
from lampwork.shipping.facts import differences
from lampwork.shipping.weights import other_signatures

#: (callable, settings) -> its compiled counterpart.
Compile = Callable[[Callable, Settings], Any]
_MOST_TOLD = 5
_MAKE_AGAIN = "Make the file again here, or use it where it was made for."


def load_file(
    path: str,
    model: Callable | None,
    key: bytes | None,
    strict: bool,
    weights: object,
    compile: Compile,
    passes: Passes | None = None,
) -> Any:
    """What is in the file: a compiled `model`, or a package. Raises `ArtifactError` for whatever keeps it from being
    used; `compile` makes compiled counterparts. `passes`: the user's, for calls that the file has nothing for."""
    try:
        with File(path, key) as file:
            try:
                return _loaded(file, model, strict, weights, compile, passes)
            except (LampworkError, OSError):
                raise
            except Exception as error:  # what is not of the form that we write may fail in any way
                raise file.error(f"cannot be read: {error or type(error).__name__}", "Make the file again.") from error
    except OSError as error:
        raise ArtifactError(
            f"{path} cannot be read: {error.strerror or error}. Give the path of a readable file."
        ) from error


def _loaded(
    file: File, model: Callable | None, strict: bool, weights: object, compile: Compile, passes: Passes | None
) -> Any:
    manifest = file.manifest
    if not isinstance(manifest, dict) or manifest.get("kind") not in (save.KIND, package.KIND):
        raise ValueError("it does not say what it is")
    other = differences(manifest.get("made_for"))
    if other:
        raise file.error(f"cannot be used here: {'; '.join(other)}", _MAKE_AGAIN)
    if manifest["kind"] == package.KIND:
        if model is not None:
            raise file.error("is a package, which runs without the model", f"Write lampwork.load({file.path!r}).")
        if passes is not None:
            raise OptionError("passes are of what is compiled, and a package compiles nothing: leave passes=... out")
        return package.unpacked(file, artifact_of, weights)
    if model is None:
        raise file.error(
            "holds compiled code of a model, not the model",
            f"Write lampwork.load({file.path!r}, model), or make a file with lampwork.package.",
        )
    if weights is not None:
        raise OptionError("weights are those of the model; leave weights=... out, which is of packages")
    return _with_model(file, manifest, model, strict, compile, passes)


def artifact_of(file: File, section: str, modules: bool) -> Artifact:
    """The artifact in a section. `modules`: those of the program that it names are here, or it is no use.

    Raises `ArtifactError` where it cannot be used here.
    """
    try:
        decoder = Decoder(file.read(section))
        head, artifact = decoder.next(), decoder.next()
    except Malformed as error:
        raise file.error(f"has an entry that cannot be read ({error})", "Make the file again.") from None
    except LookupError as error:
        raise file.error(f"does not fit this process: {error}", _MAKE_AGAIN) from None
    if not is_head(head) or type(artifact) is not Artifact:
        raise file.error("has an entry that is none", "Make the file again.")
    missing = missing_module(artifact.code_digests) if modules else ""
    if missing:
        raise file.error(f"does not fit this process: {missing}", "Import what the model needs before loading.")
    other = operators.changed(artifact.operators)
    if other:
        raise file.error(f"calls {operators.described(other)}, which is declared otherwise here", _MAKE_AGAIN)
    other = libraries.changed(artifact.libraries)
    if other:
        raise file.error(f"was made with another {other}", _MAKE_AGAIN)
    return artifact


# A file beside its model ---------------------------------------------------------------------------------------------


def _with_model(
    file: File, manifest: dict[str, Any], model: Callable, strict: bool, compile: Compile, passes: Passes | None
) -> Any:
    original = save.original_of(model)
    rows = manifest["parts"]
    if not isinstance(rows, list) or not rows:
        raise ValueError("it has no parts")
    targets = [_target(file, row, original) for row in rows]
    other = other_signatures(manifest.get("weights"), original)
    if other:
        more = f"; and {len(other) - _MOST_TOLD} more" if len(other) > _MOST_TOLD else ""
        told = "; ".join(other[:_MOST_TOLD])
        raise file.error(
            f"was made for other weights: {told}{more}", "Load it with a model like the one it was made of."
        )
    prepared = [_Part(file, row, target, strict, passes) for row, target in zip(rows, targets)]
    made = model
    for part in sorted(prepared, key=lambda each: -each.name.count(".") - bool(each.name)):  # the innermost first
        made_part = part.compiled(compile)
        if part.name:
            assert isinstance(original, torch.nn.Module)
            owner, _, attribute = part.name.rpartition(".")
            setattr(original.get_submodule(owner), attribute, made_part)
        else:
            made = made_part
    return made


def _target(file: File, row: dict[str, Any], model: Callable) -> Callable:
    """What a part of the file is for: the model or a submodule. Raises `ArtifactError` where its code is another."""
    name = row["name"]
    target: Any = model
    if name:
        try:
            target = target.get_submodule(name)
        except AttributeError:
            raise file.error(f"has code for the submodule {name}, which the model lacks", _MAKE_AGAIN) from None
        target = compiled_of(target).function if is_wrapper(target) else target
    names, codes = named_code(target) or ((), ())
    before = tuple(map(str, row["callable"]))
    where = f"the submodule {name}" if name else "the model"
    if before != names:
        raise file.error(
            f"was made for {where} {_named(before)}, and this is {_named(names) or type(target).__qualname__}",
            "Load it with the model that it was made of.",
        )
    if tuple(map(str, row["code"])) != codes:
        raise file.error(f"was made for another code of {_named(names)}, which has changed since", _MAKE_AGAIN)
    other = set(map(str, row["patches"])).symmetric_difference(" ".join(each) for each in patches())
    if other:
        replaced = sorted({each.removeprefix("patched ").partition(" ")[0] for each in other})
        raise file.error(f"was made where {', '.join(replaced)} was replaced otherwise than here", _MAKE_AGAIN)
    return target


def _named(names: Sequence[str]) -> str:
    """The names that `named_code` gave, in words: `object transformers.BertModel`."""
    return f"{names[0]} {'.'.join(names[1:])}" if names else ""


class _Part:
    """What a file has for one callable."""

    def __init__(
        self, file: File, row: dict[str, Any], function: Callable, strict: bool, passes: Passes | None
    ) -> None:
        self.file, self.function, self.strict = file, function, strict
        self.name: str = row["name"]
        options = row["settings"]
        plain = {name: value for name, value in options["options"].items() if name != "passes"}
        made = make_settings(options["fullgraph"], options["dynamic"], options["mode"], plain)
        known = _passes(file, options["options"].get("passes", []), passes)
        self.settings = replace(made, options=replace(made.options, passes=known))
        self.artifacts = self._artifacts(row["entries"])
        self.continuations: dict[Resumption, tuple[Artifact, ...]] = {}
        for each in row["continuations"]:
            self.continuations[self._place(each["section"])] = self._artifacts(each["entries"])
        breaks = next((each.outcome for each in self.artifacts if isinstance(each.outcome, Continue)), None)
        if strict and breaks is not None:
            raise file.error(
                f"cannot be loaded with strict=True: calls break ({breaks.reason.reason}), and may go on where it has "
                "nothing",
                "Leave strict=True out.",
            )

    def _artifacts(self, rows: Sequence[Mapping[str, str]]) -> tuple[Artifact, ...]:
        return tuple([artifact_of(self.file, each["section"], modules=True) for each in rows])

    def _place(self, section: str) -> Resumption:
        try:
            found = Decoder(self.file.read(section)).next()
        except (Malformed, LookupError) as error:
            raise self.file.error(f"has a place that cannot be read ({error})", "Make the file again.") from None
        if type(found) is not Resumption:
            raise ValueError("it has a place that is none")
        return found

    def compiled(self, compile: Compile) -> Any:
        """The compiled counterpart, whose stored entries wait for its first call.

        Raises `ArtifactError` where an entry cannot be here; or, if nothing but the file is to serve calls, where none
        fits the model as it is.
        """
        made = compile(self.function, self.settings)
        shipped = Shipped(self.file.path, self.artifacts, self.continuations, self.strict, _words)
        compiled = compiled_of(made)
        try:
            compiled.ship(shipped)
            for resumption in self.continuations:
                compiled.continuation(resumption)
        except (LookupError, LampworkError) as error:
            raise self.file.error(f"does not fit this process: {error}", _MAKE_AGAIN) from None
        if self.strict and self.artifacts:
            reasons = [_static_difference(each, self.function) for each in self.artifacts]
            if all(reasons):
                raise self.file.error(
                    f"does not fit the model as it is: {reasons[0]}",
                    "Use the model that it was made of, in the state that it was in.",
                )
        return made


def _passes(file: File, rows: Sequence[Sequence[str]], given: Passes | None) -> Passes:
    """The passes that the file was made with: those `given`, or what raises where one of them is to run."""
    if given is not None:
        made_with, here = ([(stage, digest) for stage, _, digest in each] for each in (rows, given.rows()))
        if made_with != here:
            words = ["; ".join(" ".join(map(str, row)) for row in each) or "none" for each in (rows, given.rows())]
            raise file.error(
                f"was made with other passes ({words[0]}) than are given here ({words[1]})",
                "Give the passes that it was made with, or make the file again.",
            )
        return given
    found: dict[str, tuple[UserPass, ...]] = {}
    for stage, name, digest in rows:
        if stage not in STAGES or not all(isinstance(each, str) for each in (name, digest)):
            raise ValueError("it has a pass of no stage")
        found[stage] = (*found.get(stage, ()), UserPass(_Absent(file.path, stage, name), name, digest))
    return Passes(**found)


@record(frozen=False)
class _Absent:
    """In place of a pass whose code a file does not have."""

    file: str
    stage: str
    name: str

    def __call__(self, graph: object) -> NoReturn:
        raise PassError(
            f"a call needs compiling, for which {self.file} has no program, and the pass {self.name} (stage "
            f"{self.stage!r}) that it was made with is not here. Write lampwork.load(..., passes={{...}}) with it."
        )


def _static_difference(artifact: Artifact, function: Callable) -> str:
    """The first guard that looks at nothing of a call and does not hold, in words."""
    static = [
        guard
        for guard in artifact.guards
        if not isinstance(guard.test, ArgumentCount) and all(map(is_static, (guard.source, *guard.test.reads())))
    ]
    return words.first_difference(static, function)


def _words(artifacts: tuple[Artifact, ...], function: Callable, args: tuple, kwargs: dict) -> tuple[str, str]:
    every = [artifact.guards for artifact in artifacts]
    return words.listed(list(map(words.serves, every))), words.nearest(every, function, args, kwargs)

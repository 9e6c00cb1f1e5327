"""What a file was made for, and in what this process differs: versions, processor, devices.

Machine code and the layouts that PyTorch's kernels give depend on these. A file that was made for others is refused, in
words that name each difference; nothing is tried out.
"""

from __future__ import annotations

import functools
import hashlib
import os
import platform
import sys
from collections.abc import Iterable, Mapping
from typing import Any

import torch

from lampwork import __version__
from lampwork.config import ISA_LEVELS, environment
from lampwork.ir.artifact import FORMAT, Artifact
from lampwork.ir.program import Extern, device_index
from lampwork.ir.target import machine_features
from lampwork.runtime.cache import schema
from lampwork.runtime.cache.versions import cpu_features

#: Folders of Lampwork whose code decides what a stored entry means. `ir` is first: it defines the entries.
_MEANING = ("ir", "_torch", "backends", "runtime", "shipping")

#: Facts that must be the same, with the words for them. `python` is of files that hold byte code of a program.
_SAME = {
    "lampwork": "Lampwork {}",
    "entries": "entries of format {}",
    "schema": "entries with fields {}",
    "sources": "a working copy of Lampwork with sources {}",
    "torch": "PyTorch {}",
    "implementation": "Python {}",
    "python": "Python {}",
    "machine": "processors of type {}",
    "kernels": "PyTorch's kernels for {} (ATEN_CPU_CAPABILITY)",
    "onednn": "oneDNN held to {} (ONEDNN_MAX_CPU_ISA)",
    "max_isa": "machine code of at most {} (LAMPWORK_MAX_ISA)",
    "poison": "LAMPWORK_POISON {}",
}

#: What oneDNN computes with where the processor has it, unless it is held to less.
_ONEDNN = frozenset("avx512_vnni avx512_bf16 avx512_fp16 amx_tile amx_bf16 amx_int8".split())


def facts(artifacts: Iterable[Artifact], byte_code: bool) -> dict[str, Any]:
    """What files with these artifacts are made for. `byte_code`: they hold byte code, or guards on such."""
    artifacts = tuple(artifacts)
    programs = [program for each in artifacts for program in each.programs]
    natives = [part.native for each in artifacts for part in each.parts]
    devices = {program.device for program in programs if program.device != "cpu"}
    here = _here(byte_code)
    needed = {feature for native in natives for feature in native.features}
    vendor = any(
        isinstance(step, Extern) and step.op.startswith("mkldnn::") for each in programs for step in each.steps
    )
    if vendor and here["onednn"] == "NOTHING":
        needed |= _ONEDNN.intersection(cpu_features().split())
    return {
        **here,
        "features": sorted(needed),
        "devices": {name: architecture(name) for name in sorted(devices)},
    }


def _here(byte_code: bool) -> dict[str, str]:
    found = {
        "lampwork": __version__,
        "entries": str(FORMAT),
        "schema": schema.digest(),
        "sources": _sources(),
        "torch": str(torch.__version__),
        "implementation": str(sys.implementation.cache_tag),
        "machine": platform.machine(),
        "kernels": torch.backends.cpu.get_cpu_capability(),
        "onednn": (os.environ.get("ONEDNN_MAX_CPU_ISA") or os.environ.get("DNNL_MAX_CPU_ISA") or "nothing").upper(),
        "max_isa": environment.max_isa,
        "poison": "on" if environment.poison else "off",
    }
    return found | ({"python": platform.python_version()} if byte_code else {})


def architecture(device: str) -> str:
    """The architecture of a GPU by its device name: "sm_90" for "cuda:0"; empty where this process has none."""
    index = device_index(device)
    if not torch.cuda.is_available() or index >= torch.cuda.device_count():
        return ""
    major, minor = torch.cuda.get_device_capability(index)
    return f"sm_{major}{minor}"


def differences(made_for: object) -> list[str]:
    """In what this process differs from what a file was made for, each in words that stand alone; empty where it may be
    used. Raises ValueError where `made_for`, which comes from a file, is not of the form that `facts` gives."""
    if not isinstance(made_for, dict):
        raise ValueError("it does not say what it was made for")
    here = _here("python" in made_for)
    found = []
    for name, words in _SAME.items():
        if name not in here and name not in made_for:
            continue
        value = _text(made_for, name)
        if value != here[name] and not (name == "max_isa" and _is_less(value, here[name])):
            now = words.format(here[name] or "(none)")
            found.append(f"it was made for {words.format(value or '(none)')}, and here is {now}")
    features, devices = made_for.get("features"), made_for.get("devices")
    if not isinstance(features, list) or not isinstance(devices, dict):
        raise ValueError("it does not name the features and devices that it needs")
    lacking = sorted({str(each) for each in features}.difference(machine_features(), cpu_features().split()))
    if lacking:
        found.append(f"it needs {', '.join(lacking)}, which this processor lacks")
    for device in devices:
        found += _device_difference(str(device), _text(devices, device))
    return found


def _is_less(level: str, most: str) -> bool:
    """Whether machine code of this level may be used where it is held to `most`."""
    return level in ISA_LEVELS[: ISA_LEVELS.index(most)]


def _device_difference(device: str, needed: str) -> list[str]:
    number = device.removeprefix("cuda:")
    if not device.startswith("cuda:") or not number.isdecimal() or len(number) > 6:
        raise ValueError(f"it names a device {device:.40}")
    there = architecture(device)
    if not there:
        return [f"it needs the device {device} of architecture {needed}, and this process has none"]
    return [] if there == needed else [f"it was made for {device} of architecture {needed}, here it is {there}"]


def _text(values: Mapping[str, object], name: str) -> str:
    value = values.get(name)
    if not isinstance(value, str):
        raise ValueError(f"it does not say what {name} it was made for")
    return value


@functools.cache
def _sources() -> str:
    """A digest of the code that gives entries their meaning, in a working copy, where it changes under one version;
    empty for an installed Lampwork. (The cache looks at times of files, too; files travel to other machines.)"""
    package = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    if not os.path.exists(os.path.join(os.path.dirname(package), ".git")):
        return ""
    digest = hashlib.sha256()
    for part in _MEANING:
        for folder, folders, names in os.walk(os.path.join(package, part)):
            folders.sort()
            for name in sorted(names):
                if name.endswith(".py"):
                    path = os.path.join(folder, name)
                    digest.update(path[len(package) :].encode())
                    with open(path, "rb") as file:
                        digest.update(file.read())
    return digest.hexdigest()[:16]

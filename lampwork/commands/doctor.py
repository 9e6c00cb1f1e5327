"""`lampwork doctor`: whether this machine can compile well, and what to change where it cannot."""

from __future__ import annotations

import argparse
import importlib
import importlib.metadata
import os
import platform
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from rich.console import Console
from rich.table import Table

from lampwork import _torch
from lampwork.config import VARIABLES, environment
from lampwork.ir.record import record

TORCH_TESTED = ((2, 11), (2, 15))
PYTHON_TESTED = ((3, 11), (3, 14))
GPUS_TESTED = ((9, 0),)


@record
class Finding:
    """One check: `level` is ok, note (slower or unusual) or problem (will not work); `remedy` what to do about it."""

    subject: str
    level: str
    found: str
    remedy: str = ""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """`lampwork doctor` takes no arguments."""


def run(arguments: argparse.Namespace) -> int:
    """Print every finding; 1 if one of them is a problem."""
    findings = examine()
    table = Table(show_header=False, box=None, padding=(0, 1))
    colours = {"ok": "green", "note": "yellow", "problem": "red"}
    for finding in findings:
        told = finding.found + (f"\n[bold]{finding.remedy}[/bold]" if finding.remedy else "")
        table.add_row(f"[{colours[finding.level]}]{finding.level}[/]", finding.subject, told)
    Console().print(table)
    return 1 if any(finding.level == "problem" for finding in findings) else 0


def examine() -> list[Finding]:
    """All findings, in the order of what depends on what. A check that itself fails is a problem, not an exception."""
    checks: list[Callable[[], list[Finding]]] = [
        check_python,
        check_torch,
        check_gpu,
        check_llvm,
        check_cpu,
        check_threads,
        check_environment,
        check_cache,
        check_shared_cache,
        check_compile,
    ]
    findings: list[Finding] = []
    for check in checks:
        try:
            findings += check()
        except Exception as error:
            subject = check.__name__.removeprefix("check_")
            findings.append(Finding(subject, "problem", f"{type(error).__name__}: {error}"))
    return findings


def check_python() -> list[Finding]:
    found = f"{platform.python_implementation()} {platform.python_version()}"
    low, high = PYTHON_TESTED
    right = platform.python_implementation() == "CPython" and low <= sys.version_info[:2] <= high
    remedy = "" if right else "use CPython 3.11, 3.12, 3.13 or 3.14: bytecode differs in every other release"
    return [Finding("Python", "ok" if right else "problem", found, remedy)]


def check_torch() -> list[Finding]:
    import torch

    release = tuple(int(part) for part in torch.__version__.split("+")[0].split(".")[:2])
    low, high = TORCH_TESTED
    findings = []
    if release < low:
        findings.append(Finding("PyTorch", "problem", torch.__version__, "install PyTorch 2.11 to 2.15"))
    elif release > high:
        findings.append(Finding("PyTorch", "note", torch.__version__, "not tested with this release; 2.11 to 2.15 are"))
    else:
        findings.append(Finding("PyTorch", "ok", torch.__version__))
    if missing := _torch.missing_names():
        told = f"lacks {', '.join(missing)}"
        findings.append(Finding("PyTorch", "note", told, "what needs them runs eagerly; another release may have them"))
    return findings


def check_gpu() -> list[Finding]:
    """Nothing where PyTorch finds no GPU: one is not needed."""
    import torch

    if not torch.cuda.is_available():
        return []
    found = []
    for index in range(torch.cuda.device_count()):
        major, minor = torch.cuda.get_device_capability(index)
        told = f"{torch.cuda.get_device_name(index)}, sm_{major}{minor}, CUDA {torch.version.cuda}"
        tested = (major, minor) in GPUS_TESTED
        remedy = "" if tested else "not tested with this GPU; sm_90 is"
        found.append(Finding(f"GPU {index}", "ok" if tested else "note", told, remedy))
    try:
        found.append(Finding("Triton", "ok", importlib.metadata.version("triton")))
    except importlib.metadata.PackageNotFoundError:
        found.append(Finding("Triton", "problem", "not installed", "pip install triton: GPU kernels need it"))
    return found


def check_llvm() -> list[Finding]:
    try:
        binding = importlib.import_module("llvmlite.binding")
    except ImportError as error:
        return [Finding("LLVM", "problem", str(error), "pip install llvmlite")]
    version = ".".join(str(part) for part in binding.llvm_version_info)
    return [Finding("LLVM", "ok", f"llvmlite {importlib.metadata.version('llvmlite')}, LLVM {version}")]


def check_cpu() -> list[Finding]:
    import torch

    machine = platform.machine()
    capability = torch.backends.cpu.get_cpu_capability()
    if machine not in ("x86_64", "AMD64"):
        return [Finding("CPU", "problem", machine, "code is generated for x86-64 only: programs run eagerly here")]
    level = "ok" if capability.startswith("AVX") else "note"
    return [Finding("CPU", level, f"{machine}, {capability}", "" if level == "ok" else "no AVX2: vectors are narrow")]


def check_threads() -> list[Finding]:
    import torch

    threads = torch.get_num_threads()
    available = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    if threads > available:
        remedy = f"more threads than the {available} CPUs of this process: set OMP_NUM_THREADS={available}"
        return [Finding("threads", "note", str(threads), remedy)]
    return [Finding("threads", "ok", f"{threads} of {available} CPUs")]


def check_environment() -> list[Finding]:
    """Nothing where every variable that begins like ours is one of ours."""
    unknown = sorted(name for name in os.environ if name.startswith("LAMPWORK_") and name not in VARIABLES)
    if not unknown:
        return []
    return [Finding("environment", "note", f"not read: {', '.join(unknown)}", f"there are {', '.join(VARIABLES)}")]


def check_cache() -> list[Finding]:
    folder = Path(environment.cache_dir)
    if not environment.cache:
        return [Finding("cache", "note", "switched off by LAMPWORK_CACHE=0", "unset it: every process compiles anew")]
    existing = next((parent for parent in (folder, *folder.parents) if _exists(parent)), Path("/"))
    try:
        with tempfile.TemporaryFile(dir=existing):
            pass
    except OSError as error:
        remedy = "point LAMPWORK_CACHE_DIR at a folder that this user may write"
        return [Finding("cache", "problem", f"{folder}: {error.strerror}", remedy)]
    free_mib = os.statvfs(existing).f_bavail * os.statvfs(existing).f_frsize / 2**20
    if free_mib < 100:
        return [Finding("cache", "note", f"{folder}: {free_mib:.0f} MiB free", "make room, or move LAMPWORK_CACHE_DIR")]
    return [Finding("cache", "ok", str(folder))]


def check_shared_cache() -> list[Finding]:
    """Nothing where there is none."""
    if not environment.cache_url:
        return []
    from lampwork.runtime.cache import shared
    from lampwork.runtime.cache.places import without_secrets

    where, why = without_secrets(environment.cache_url), shared.check()
    if not why:
        return [Finding("shared cache", "ok", where)]
    return [Finding("shared cache", "problem", where, why)]


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except OSError:
        return False


def check_compile() -> list[Finding]:
    """Compile and run a small function on each kind of device, and look whether it really was compiled."""
    import torch

    return [_compiled_on(device) for device in ("cpu", *(["cuda"] if torch.cuda.is_available() else []))]


def _compiled_on(device: str) -> Finding:
    import torch

    lampwork = importlib.import_module("lampwork")
    subject = "a small function" if device == "cpu" else "a small function on the GPU"
    compiled = lampwork.compile(lambda x: torch.relu(x) * 2 + 1, options={"cache": False})
    x = torch.linspace(-1, 1, 64, device=device)
    with torch.no_grad():
        right = torch.equal(compiled(x), torch.relu(x) * 2 + 1)
    stats = lampwork.stats(compiled)
    if not right:
        return Finding(subject, "problem", "computed wrong values", "please report this")
    if stats["fallbacks"]:
        record = stats["fallbacks"][0]
        return Finding(subject, "problem", f"ran eagerly: {record}", f"see {record.diagnostic.page}")
    return Finding(subject, "ok", f"compiled, {sum(stats['compile_seconds'].values()) * 1e3:.0f} ms")

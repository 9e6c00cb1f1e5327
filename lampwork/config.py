"""Every option in one typed object; the environment is read once, at import."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, fields, replace
from typing import Any

from lampwork.errors import LampworkWarning, OptionError
from lampwork.ir.passes import Passes, passes_of
from lampwork.ir.record import record

#: What of the environment is read. `lampwork doctor` tells of others that begin like these.
VARIABLES = (
    "LAMPWORK_STRICT", "LAMPWORK_VERIFY", "LAMPWORK_CACHE_DIR", "LAMPWORK_CACHE", "LAMPWORK_COMPILE_WORKERS",
    "LAMPWORK_POISON", "LAMPWORK_MAX_ISA", "LAMPWORK_DEBUG", "LAMPWORK_STOP_AT", "LAMPWORK_RECORD",
    "LAMPWORK_CACHE_URL", "LAMPWORK_CACHE_KEY_FILE", "LAMPWORK_CACHE_TRUST", "LAMPWORK_CACHE_TIMEOUT",
    "LAMPWORK_CACHE_WAIT",
)  # fmt: skip

#: Seconds that one look into the shared cache, or one entry for it, may take; and that ranks wait for one of them that
#: compiles. Collective calls of PyTorch give up after ten minutes.
CACHE_TIMEOUT, RANKS_WAIT = 10.0, 120.0

#: Levels of instruction sets that kernels are generated for, the smallest first.
ISA_LEVELS = ("sse4", "avx2", "avx512")

#: How much `LAMPWORK_DEBUG` prints (see docs/debugging.md).
DEBUG_LEVELS = range(6)

#: Where `LAMPWORK_STOP_AT` ends a compile: what that stage made is interpreted.
STOPS = ("graph", "functional", "lowered", "scheduled")

MODES = ("default", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs", "auto")

#: Whose rounding results have: the compiler's, or eager's bit by bit.
NUMERICS = ("default", "eager")


@record
class Environment:
    """Process-wide switches from environment variables."""

    strict: bool  # LAMPWORK_STRICT=1: a failure inside the compiler raises
    verify: bool  # LAMPWORK_VERIFY=1: check the IR after every stage
    cache_dir: str  # LAMPWORK_CACHE_DIR
    cache: bool  # LAMPWORK_CACHE=0 disables the on-disk cache
    poison: bool = (
        False  # LAMPWORK_POISON=1: planned memory is NaN where nothing is in it (see runtime/launch/poison.py)
    )
    compile_workers: int = 1  # LAMPWORK_COMPILE_WORKERS: processes that compile GPU kernels; 0: threads of this one
    debug: int = 0  # LAMPWORK_DEBUG=1..5: what is compiled is told on stderr, each level more
    stop_at: str = ""  # LAMPWORK_STOP_AT=STAGE: programs are interpreted from there
    record: str = ""  # LAMPWORK_RECORD=FOLDER: what is compiled is written down there
    max_isa: str = ISA_LEVELS[-1]  # LAMPWORK_MAX_ISA: the largest level that kernels for the CPU are generated for
    cache_url: str = ""  # LAMPWORK_CACHE_URL: a folder, or what fsspec takes, that machines share as a second cache
    cache_key_file: str = ""  # LAMPWORK_CACHE_KEY_FILE: the key with which shared entries are signed
    cache_trust: bool = False  # LAMPWORK_CACHE_TRUST=1: shared entries are taken whoever wrote them
    cache_timeout: float = CACHE_TIMEOUT  # LAMPWORK_CACHE_TIMEOUT: seconds that the shared cache may take
    cache_wait: float = 0.0  # LAMPWORK_CACHE_WAIT: seconds to wait for a process that compiles the same; 0: none


def _read_environment() -> Environment:
    default_cache = os.path.join(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "lampwork")
    cache_dir = os.environ.get("LAMPWORK_CACHE_DIR") or default_cache
    return Environment(
        strict=_switch("LAMPWORK_STRICT", False),
        verify=_switch("LAMPWORK_VERIFY", False),
        # Absolute, since the program may go to another folder; `~` is a shell's, and variables are set elsewhere, too.
        cache_dir=os.path.abspath(os.path.expanduser(cache_dir)),
        cache=_switch("LAMPWORK_CACHE", True),
        poison=_switch("LAMPWORK_POISON", False),
        compile_workers=_workers(),
        max_isa=_max_isa(),
        debug=_debug(),
        stop_at=_stop_at(),
        record=_folder("LAMPWORK_RECORD"),
        cache_url=_url("LAMPWORK_CACHE_URL"),
        cache_key_file=_folder("LAMPWORK_CACHE_KEY_FILE"),
        cache_trust=_switch("LAMPWORK_CACHE_TRUST", False),
        cache_timeout=_seconds("LAMPWORK_CACHE_TIMEOUT", CACHE_TIMEOUT),
        cache_wait=_seconds("LAMPWORK_CACHE_WAIT", RANKS_WAIT if _is_one_of_several() else 0.0),
    )


def _switch(name: str, default: bool) -> bool:
    text = os.environ.get(name, "").strip().lower()
    if text in ("1", "true", "yes", "on"):
        return True
    if text in ("0", "false", "no", "off"):
        return False
    if text:
        _not_used(name, "set it to 1 or 0")
    return default


def _folder(name: str) -> str:
    """Absolute, as `cache_dir`; empty where none is named."""
    text = os.environ.get(name, "").strip()
    return os.path.abspath(os.path.expanduser(text)) if text else ""


def _url(name: str) -> str:
    """As it is where it names a protocol; else a folder."""
    text = os.environ.get(name, "").strip()
    return text if "://" in text else _folder(name)


def _seconds(name: str, default: float) -> float:
    text = os.environ.get(name, "").strip()
    if not text:
        return default
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if 0 <= seconds < float("inf"):
        return seconds
    _not_used(name, "set it to a number of seconds")
    return default


def _is_one_of_several() -> bool:
    """Whether a launcher such as torchrun says that other processes run the same program."""
    ranked = os.environ.get("RANK") or os.environ.get("LOCAL_RANK")
    return bool(ranked) and (os.environ.get("WORLD_SIZE") or "1").strip() not in ("0", "1")


def _workers() -> int:
    text = os.environ.get("LAMPWORK_COMPILE_WORKERS", "").strip()
    if text.isdecimal():
        return int(text)
    if text:
        _not_used("LAMPWORK_COMPILE_WORKERS", "set it to a number of processes")
    return min(12, len(os.sched_getaffinity(0)))


def _max_isa() -> str:
    text = os.environ.get("LAMPWORK_MAX_ISA", "").strip().lower()
    if text and text not in ISA_LEVELS:
        _not_used("LAMPWORK_MAX_ISA", f"set it to one of {', '.join(ISA_LEVELS)}")
    return text if text in ISA_LEVELS else ISA_LEVELS[-1]


def _debug() -> int:
    text = os.environ.get("LAMPWORK_DEBUG", "").strip()
    if text.isdecimal() and int(text) in DEBUG_LEVELS:
        return int(text)
    if text:
        _not_used("LAMPWORK_DEBUG", f"set it to a level from {DEBUG_LEVELS[1]} to {DEBUG_LEVELS[-1]}, or to 0")
    return 0


def _stop_at() -> str:
    text = os.environ.get("LAMPWORK_STOP_AT", "").strip().lower()
    if text and text not in STOPS:
        _not_used("LAMPWORK_STOP_AT", f"set it to one of {', '.join(STOPS)}")
    return text if text in STOPS else ""


def _not_used(name: str, remedy: str) -> None:
    warnings.warn(f"lampwork: {name}={os.environ[name]!r} is not used: {remedy}", LampworkWarning, stacklevel=2)


environment = _read_environment()

#: Those of `use_cache_dir`, with an object that stands for the block.
_cache_dirs: list[tuple[str, object]] = []


def cache_dir() -> str:
    """The folder of the on-disk cache: `LAMPWORK_CACHE_DIR`, or the innermost `use_cache_dir`."""
    return _cache_dirs[-1][0] if _cache_dirs else environment.cache_dir


def cache_scope() -> object:
    """What stands for the innermost `use_cache_dir`; None outside. What is compiled within one is shared in memory
    within it alone, as in a process of its own."""
    return _cache_dirs[-1][1] if _cache_dirs else None


def cache_url() -> str:
    """The shared cache behind it: `LAMPWORK_CACHE_URL`; none within `use_cache_dir`, where compiles are cold."""
    return "" if _cache_dirs else environment.cache_url


@contextmanager
def use_cache_dir(folder: str) -> Iterator[None]:
    """The whole process has its on-disk cache in `folder` meanwhile, and no shared one: a compile there is cold as on a
    new machine, and a start in the same folder, within another such block, is warm as in a new process."""
    entered = (folder, object())
    _cache_dirs.append(entered)
    try:
        yield
    finally:
        _cache_dirs.remove(entered)


@record
class Options:
    """What `lampwork.compile(..., options={...})` accepts.

    freeze            weights are constant: packed weights, folded batch norm (see docs)
    recompile_limit   entries per compiled function before calls run eagerly with a warning
    cache             use the on-disk cache
    memory_budget     what the backward pass may keep of the forward: 1.0 what is fastest, less is computed again
    numerics          "eager": results, gradients and what is written are eager's bit by bit (see docs/design/exact.md)
    passes            functions of your own over graphs and programs, by stage (see docs/passes.md)
    """

    freeze: bool = False
    recompile_limit: int = 64
    cache: bool = True
    memory_budget: float = 1.0
    numerics: str = "default"
    passes: Passes = Passes()

    @property
    def exact(self) -> bool:
        """Whether numbers are to be eager's bit by bit."""
        return self.numerics == "eager"


@record
class Settings:
    """The settings of one `lampwork.compile` call; part of every cache key.

    `regions`: those of submodules whose names match a pattern, None for eager; the first pattern counts (`regions.py`).
    """

    fullgraph: bool = False
    dynamic: bool | None = None
    mode: str = "default"
    options: Options = Options()
    regions: tuple[tuple[str, Settings | None], ...] = ()

    @property
    def without_digest(self) -> str:
        """The name of the first pass that has none, of these settings or a region's; empty where all have."""
        parts = [self, *(own for _, own in self.regions if own is not None)]
        return next(filter(None, (each.options.passes.without_digest for each in parts)), "")


def make_settings(
    fullgraph: bool = False,
    dynamic: bool | None = None,
    mode: str | None = None,
    options: Mapping[str, object] | None = None,
    regions: Mapping[str, object] | str | None = None,
) -> Settings:
    """Checked settings. Raises `OptionError` naming the valid choices for an unknown mode, option or a wrong type."""
    if not isinstance(fullgraph, bool):
        raise OptionError(f"fullgraph must be True or False, not {fullgraph!r}")
    if not (dynamic is None or isinstance(dynamic, bool)):
        raise OptionError(f"dynamic must be None, True or False, not {dynamic!r}")
    if mode is not None and mode not in MODES:
        raise OptionError(f"unknown mode {mode!r}; choose one of {', '.join(MODES)}")
    if options is not None and not isinstance(options, Mapping):
        raise OptionError(f"options must be a dict such as {{'freeze': True}}, not {options!r}")
    known = {field.name: field for field in fields(Options)}
    values: dict[str, Any] = {}
    for name, value in (options or {}).items():
        if name not in known:
            raise OptionError(f"unknown option {name!r}; known options: {', '.join(known)}")
        if name == "passes":
            values[name] = _passes(value)
            continue
        expected = type(known[name].default)
        if expected is float and type(value) is int:
            value = float(value)
        if type(value) is not expected:
            raise OptionError(f"option {name!r} must be of type {expected.__name__}, not {value!r}")
        values[name] = value
    if values.get("recompile_limit", 1) < 1:
        raise OptionError(f"option 'recompile_limit' must be 1 or more, not {values['recompile_limit']!r}")
    if not 0 <= values.get("memory_budget", 1.0) <= 1:
        raise OptionError(f"option 'memory_budget' must be from 0 to 1, not {values['memory_budget']!r}")
    _check_numerics(values.get("numerics", "default"), values.get("freeze", False))
    own = Settings(fullgraph, dynamic, mode or "default", replace(Options(), **values))
    parts = _regions(regions, own) if regions is not None else ()
    if parts and fullgraph:
        raise OptionError("fullgraph asks for one graph, and regions=... divides it: leave one of the two out")
    if parts and mode == "auto":
        raise OptionError("mode 'auto' chooses settings by itself: leave it or regions=... out")
    return replace(own, regions=parts)


#: In the place of a pattern: the blocks that the model repeats, which `regions="blocks"` asks for.
BLOCKS = "<blocks>"


def _regions(regions: object, own: Settings) -> tuple[tuple[str, Settings | None], ...]:
    """`own`: the settings around them, which the blocks that the model repeats have, too."""
    if regions == "blocks":
        return ((BLOCKS, own),)
    if not isinstance(regions, Mapping) or not all(isinstance(pattern, str) for pattern in regions):
        what = "'blocks', or a dict such as {'layers.*': {'mode': ...}}"
        raise OptionError(f"regions must be {what}, not {regions!r}")
    return tuple((pattern, _region(pattern, value)) for pattern, value in regions.items())


def _region(pattern: str, value: object) -> Settings | None:
    if value == "eager":
        return None
    known = ("fullgraph", "dynamic", "mode", "options")
    if not isinstance(value, Mapping) or not set(value) <= set(known):
        raise OptionError(f"region {pattern!r} must be 'eager' or a dict of {', '.join(known)}, not {value!r}")
    return make_settings(**value)


def _passes(value: object) -> Passes:
    try:
        return passes_of(value)
    except ValueError as error:
        raise OptionError(f"option 'passes' {error}") from None


def row_of(settings: Settings) -> dict[str, Any]:
    """The settings as plain data, with what passes are called in place of their code."""
    plain = replace(settings, options=replace(settings.options, passes=Passes()))
    row = asdict(plain)
    row["options"]["passes"] = settings.options.passes.rows()
    return row


def _check_numerics(numerics: str, freeze: bool) -> None:
    if numerics not in NUMERICS:
        raise OptionError(f"option 'numerics' must be one of {', '.join(map(repr, NUMERICS))}, not {numerics!r}")
    if numerics == "eager" and freeze:
        remedy = "leave one of the two options out"
        raise OptionError(f"option 'freeze' changes how results are rounded, and 'numerics' is 'eager': {remedy}")

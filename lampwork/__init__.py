"""Lampwork: a just-in-time compiler for PyTorch programs.

    import lampwork
    fast = lampwork.compile(model)

Names are loaded when they are first used, so that `import lampwork` costs next to nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lampwork import collector as collector  # which notes what is frozen before anything is compiled

if TYPE_CHECKING:
    from lampwork.api import (
        allow_in_graph,
        assess,
        assume_constant,
        compile,
        disable,
        explain,
        load,
        mark_dynamic,
        mark_static,
        package,
        profile,
        reset,
        save,
        set_stance,
        stats,
        verify,
        warmup,
        watch,
    )
    from lampwork.errors import (
        ArtifactError,
        CompileError,
        Diagnostic,
        DynamicSizeError,
        GraphBreak,
        LampworkError,
        LampworkWarning,
        NotServedError,
        OptionError,
        PassError,
        RecompileError,
    )
    from lampwork.passes import GraphPass, Pattern, digest

__version__ = "0.1.0"

_API = (
    "allow_in_graph", "assess", "assume_constant", "compile", "disable", "explain", "load", "mark_dynamic",
    "mark_static", "package", "profile", "reset", "save", "set_stance", "stats", "verify", "warmup", "watch",
)  # fmt: skip
#: What only programs with passes of their own load.
_PASSES = ("GraphPass", "Pattern", "digest")
_ERRORS = (
    "ArtifactError", "CompileError", "Diagnostic", "DynamicSizeError", "GraphBreak", "LampworkError", "LampworkWarning",
    "NotServedError", "OptionError", "PassError", "RecompileError",
)  # fmt: skip

__all__ = [
    "ArtifactError", "CompileError", "Diagnostic", "DynamicSizeError", "GraphBreak", "GraphPass", "LampworkError",
    "LampworkWarning", "NotServedError", "OptionError", "PassError", "Pattern", "RecompileError", "__version__",
    "allow_in_graph", "assess", "assume_constant", "compile", "digest", "disable", "explain", "load", "mark_dynamic",
    "mark_static", "package", "profile", "reset", "save", "set_stance", "stats", "verify", "warmup", "watch",
]  # fmt: skip


if not TYPE_CHECKING:  # to a checker a name that is not there is an error

    def __getattr__(name: str) -> Any:
        if name in _API:
            with collector.paused():  # nothing that is loaded is garbage: a full collection only costs time
                import lampwork.api as home
        elif name in _ERRORS:
            import lampwork.errors as home
        elif name in _PASSES:
            import lampwork.passes as home
        else:
            raise AttributeError(f"module 'lampwork' has no attribute {name!r}")
        value = getattr(home, name)
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return sorted(__all__)

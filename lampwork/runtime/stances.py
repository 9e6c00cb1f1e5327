"""What calls do that no entry serves yet, and whether calls are served at all: for a part of a program, or all of it.

    lampwork.set_stance("fail_on_recompile")            from here on, in all threads
    with lampwork.set_stance("force_eager"): ...        for as long as the block runs
    @lampwork.set_stance("eager_on_recompile")          for as long as the function runs

Names and meaning are those of `torch.compiler.set_stance`, which is followed too: where the program has set one there
and none here. The PyTorch page: https://pytorch.org/docs/stable/generated/torch.compiler.set_stance.html
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from types import TracebackType
from typing import ParamSpec, TypeVar

from lampwork._torch import peer_stance
from lampwork.errors import Diagnostic, OptionError

P = ParamSpec("P")
R = TypeVar("R")

#: By name, what it means.
STANCES = {
    "default": "calls that no entry serves are compiled",
    "force_eager": "every call runs eagerly",
    "eager_on_recompile": "calls that no entry serves run eagerly, and are not compiled",
    "fail_on_recompile": "calls that no entry serves raise `RecompileError`",
    "eager_then_compile": "the first call of each function runs eagerly, later ones are compiled",
}
#: Stances of the peer's that mean for us what another does.
_ALIKE = {"aot_eager_then_compile": "eager_then_compile"}

_own = "default"
#: Whether a stance is set here.
is_set = False


def in_force() -> str:
    """The stance of this process: ours, else that of `torch.compile`."""
    if _own != "default":
        return _own
    stance = peer_stance()
    return _ALIKE.get(stance, stance)


def is_eager() -> bool:
    """Whether every call runs eagerly. Asked in each call where it can be so: `is_set`, or the peer is loaded."""
    return (peer_stance() if _own == "default" else _own) == "force_eager"


def not_compiled(stance: str) -> Diagnostic:
    """Why a call runs eagerly under `stance`."""
    return Diagnostic("stance", f"the stance is {stance!r}", remedy="lampwork.set_stance('default') compiles.")


class set_stance:
    """Sets what calls of compiled functions do that no entry serves yet, in all threads of the process.

    default               they are compiled
    force_eager           every call runs eagerly
    eager_on_recompile    they run eagerly, and are not compiled
    fail_on_recompile     they raise `RecompileError`
    eager_then_compile    the first call of each function runs eagerly, later ones are compiled

    As a context manager or decorator it ends with the block or function; as a plain call it stays. Raises OptionError
    for a name that is none of the stances.
    """

    def __init__(self, stance: str = "default") -> None:
        stance = _ALIKE.get(stance, stance)
        if stance not in STANCES:
            raise OptionError(f"stance {stance!r} is unknown: choose one of {', '.join(STANCES)}")
        self.stance = stance
        self.before = _set(stance)

    def __enter__(self) -> None:
        _set(self.stance)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        _set(self.before)

    def __call__(self, function: Callable[P, R]) -> Callable[P, R]:
        """`function`, which runs under the stance; until it is called the stance is what it was."""
        _set(self.before)
        stance = self.stance

        @wraps(function)
        def under(*args: P.args, **kwargs: P.kwargs) -> R:
            with set_stance(stance):
                return function(*args, **kwargs)

        return under


def _set(stance: str) -> str:
    global _own, is_set
    before, _own = _own, stance
    is_set = stance != "default"
    return before

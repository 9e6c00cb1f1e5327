"""Life beside `torch._dynamo`: keeping it unloaded, its marks on functions and modules, its guards and back ends."""

from __future__ import annotations

import importlib
import sys
import types
from collections.abc import Callable
from typing import Any

from lampwork._torch.peer import ALLOWED_IN_GRAPH
from lampwork._torch.private import is_missing, private

_prepared_modules: set[str] = set()


def keep_dynamo_unloaded() -> None:
    """Make the Python meta kernels callable without importing `torch._dynamo` (0.3 to 1.3 s).

    PyTorch wraps them in `torch._disable_dynamo`, whose wrapper looks for a cached `__dynamo_disable` on the function
    and else imports Dynamo. The cache entry put here calls the function directly while Dynamo is not loaded and fetches
    Dynamo's own wrapper once it is, so nothing changes for a program that uses `torch.compile`.
    """
    if "torch._dynamo" in sys.modules:
        return
    for module_name in ("torch._refs", "torch._refs.nn.functional", "torch._refs.special", "torch._refs.linalg",
                        "torch._refs.fft", "torch._meta_registrations", "torch._decomp.decompositions",
                        "torch._decomp.decompositions_for_jvp", "torch._prims_common.wrappers"):  # fmt: skip
        module = sys.modules.get(module_name)
        if module is None or module_name in _prepared_modules:
            continue
        _prepared_modules.add(module_name)
        for value in list(vars(module).values()):
            _defer_inside(value)


def _defer_inside(value: object) -> None:
    """`_defer` for each function that `value` wraps, however many wrappers deep."""
    pending, seen = [value], set()
    while pending:
        function = pending.pop()
        if not isinstance(function, types.FunctionType) or id(function) in seen:
            continue
        seen.add(id(function))
        captured = dict(zip(function.__code__.co_freevars, function.__closure__ or ()))
        inner = captured["fn"].cell_contents if "fn" in captured else None
        if function.__code__.co_filename.endswith("_compile.py") and inner is not None:
            if not hasattr(inner, "__dynamo_disable"):
                _defer(inner)
        pending += [inner, getattr(function, "__wrapped__", None)]


def _defer(function: Any) -> None:
    def direct(*args: Any, **kwargs: Any) -> Any:
        dynamo = sys.modules.get("torch._dynamo")
        if dynamo is None or not hasattr(dynamo, "disable"):
            return function(*args, **kwargs)
        disabled = dynamo.disable(function, True, wrapping=False)
        function.__dynamo_disable = disabled
        return disabled(*args, **kwargs)

    function.__dynamo_disable = direct


def without_disabling(function: types.FunctionType) -> str:
    """For a function that torch itself keeps from Dynamo: the attribute that holds the function behind; else "".

    `torch._disable_dynamo` wraps functions of torch's own, and Dynamo, once imported, replaces some by its `disable`.
    Both are about Dynamo; what users disable is disabled for us too.
    """
    if function.__code__ is _DISABLING_CODE:
        return "__wrapped__"
    behind = function.__dict__.get("_torchdynamo_orig_callable")
    if behind is not None and str(getattr(behind, "__module__", "")).startswith("torch."):
        return "_torchdynamo_orig_callable"
    return ""


_disabling = private("_disable_dynamo")
_DISABLING_CODE = None if is_missing(_disabling) else _disabling(lambda: None).__code__


def allowed_in_graph(function: Callable) -> bool:
    """Whether `lampwork.allow_in_graph` or `torch.compiler.allow_in_graph` was applied to `function`.

    The latter keeps identities in a module of Dynamo's, which is looked at only where something has imported it already
    (`torch._dynamo.trace_rules._allowed_callable_ids`).
    """
    if function.__dict__.get(ALLOWED_IN_GRAPH):
        return True
    rules = sys.modules.get("torch._dynamo.trace_rules")
    allowed = getattr(rules, "_allowed_callable_ids", None)
    return id(function) in (getattr(allowed, "function_ids", None) or ())


def substitute_for(function: Any) -> types.FunctionType | None:
    """The function whose attribute `SUBSTITUTE` is what `torch.compiler.substitute_in_graph` put in place of
    `function`; None where there is none. Only what has imported Dynamo can have said so."""
    module = sys.modules.get("torch._dynamo.variables.functions")
    handlers = getattr(getattr(module, "PolyfilledFunctionVariable", None), "_get_polyfill_handlers", None)
    found = handlers().get(function) if handlers is not None else None
    return found if type(found) is types.FunctionType and SUBSTITUTE in found.__dict__ else None


SUBSTITUTE = "__torch_dynamo_polyfill__"


def generation_tag() -> Any:
    """The function by which `torch._dynamo`, once it compiled something, notes every module made; None before that.

    Dynamo replaces `nn.Module.__init__` with one that calls it. The note is Dynamo's own; no program sees it.
    """
    guard = sys.modules.get("torch._dynamo.mutation_guard")
    return None if guard is None else guard.GenerationTracker.tag.__func__


def backend_names() -> list[str]:
    """The back ends that `torch.compile` knows. Loads Dynamo, whose registry is where they are."""
    return importlib.import_module("torch._dynamo").list_backends(None)


def backend(name: str) -> Callable[..., Any]:
    """The back end that `torch.compile` knows by `name`, one of `backend_names()`."""
    return importlib.import_module("torch._dynamo.backends.registry").lookup_backend(name)


def peer_guard_check(call: Callable[[], object]) -> Callable[[], bool] | None:
    """A function that checks the guards which `torch.compile` made for the eager function that `call` runs, once each.

    None if it holds no passing entry for any frame of `call`. The frames' variables are those of an eager call, as a
    dictionary, which is close to what its frame hook checks. Leans on `torch._dynamo`'s table of code objects and cache
    entries; loads it only if it is loaded already.
    """
    convert_frame = sys.modules.get("torch._dynamo.convert_frame")
    eval_frame = sys.modules.get("torch._dynamo.eval_frame")
    if convert_frame is None or eval_frame is None:
        return None
    compiled = {code for code in (ref() for ref in convert_frame.input_codes.seen) if code is not None}
    frames: dict[types.CodeType, dict[str, object]] = {}

    def note(frame: types.FrameType, event: str, argument: object) -> None:
        if event == "call" and frame.f_code in compiled and frame.f_code not in frames:
            frames[frame.f_code] = dict(frame.f_locals)

    previous = sys.getprofile()
    sys.setprofile(note)
    try:
        call()
    finally:
        sys.setprofile(previous)
    checks: list[tuple[Callable[[dict[str, object]], bool], dict[str, object]]] = []
    for code, variables in frames.items():
        for entry in eval_frame._debug_get_cache_entry_list(code):
            if entry.guard_manager.check(variables):
                checks.append((entry.guard_manager.root.check, variables))
                break
    if not checks:
        return None
    if len(checks) == 1:
        ((check, variables),) = checks
        return lambda: check(variables)
    return lambda: all([check(variables) for check, variables in checks])  # noqa: C419 a failure must not skip the rest

"""Reproducers: a script, and the inputs beside it, that runs into the same failure of the compiler again."""

from __future__ import annotations

import hashlib
import inspect
import io
import pickle
import textwrap
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from lampwork.config import Settings, environment
from lampwork.errors import page_of
from lampwork.runtime.cache.versions import versions

#: Inputs and modules larger than this are described, not saved.
LIMIT_BYTES = 256 << 20


def write_reproducer(function: Callable, args: tuple, kwargs: dict, settings: Settings, error: BaseException) -> str:
    """The path of a script that compiles the same call again under LAMPWORK_STRICT=1; empty if it cannot be written."""
    try:
        text, data = _script(function, args, kwargs, settings, error)
        name = hashlib.sha256(text.encode()).hexdigest()[:12]
        folder = Path(environment.cache_dir) / "reproducers"
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        path = folder / f"repro_{name}.py"
        if data is not None:
            (folder / f"repro_{name}.pt").write_bytes(data)
            text = text.replace("@DATA@", f"repro_{name}.pt")
        path.write_text(text)
        return str(path)
    except Exception:  # a reproducer is a courtesy: it must not hide the failure it is about
        return ""


def _script(
    function: Callable, args: tuple, kwargs: dict, settings: Settings, error: BaseException
) -> tuple[str, bytes | None]:
    trace = "".join(traceback.format_exception(error))
    head = [
        f'"""Reproduces a failure inside Lampwork\'s compiler (see {page_of("compiler-failed")}).',
        "",
        *(f"{name}: {value}" for name, value in versions().items()),
        "",
        textwrap.indent(trace, "    ").replace("\\", "\\\\").replace('"""', "'''"),
        '"""',
        "",
        "import os",
        "",
        'os.environ["LAMPWORK_STRICT"] = "1"  # before lampwork is imported',
        'os.environ["LAMPWORK_CACHE"] = "0"',
        "",
        "import torch",
        "",
        "import lampwork",
        "",
    ]
    options = {name: getattr(settings.options, name) for name in ("freeze", "recompile_limit", "numerics")}
    compile_line = (
        f"lampwork.compile(function, fullgraph={settings.fullgraph}, dynamic={settings.dynamic}, "
        f"mode={settings.mode!r}, options={options!r})"
    )
    grad = f"torch.set_grad_enabled({torch.is_grad_enabled()})"
    data = _pickled((function, args, kwargs))
    if data is not None:
        body = [
            'saved = os.path.join(os.path.dirname(os.path.abspath(__file__)), "@DATA@")',
            "function, args, kwargs = torch.load(saved, weights_only=False)",
        ]
    else:
        body = [*_source(function), _arguments(args, kwargs)]
    inference = torch.is_inference_mode_enabled()
    run = f"compiled = {compile_line}"
    call = ["print(compiled(*args, **kwargs))"]
    if inference:
        call = ["with torch.inference_mode():", "    " + call[0]]
    return "\n".join([*head, *body, grad, run, *call]) + "\n", data


def _pickled(value: Any) -> bytes | None:
    function = value[0]
    if getattr(function, "__module__", "") == "__main__" or type(function).__module__ == "__main__":
        return None  # names of __main__ mean something else in the script
    buffer = io.BytesIO()
    try:
        torch.save(value, buffer, pickle_module=pickle)
    except Exception:
        return None
    data = buffer.getvalue()
    return data if len(data) <= LIMIT_BYTES else None


def _source(function: Callable) -> list[str]:
    target = type(function) if isinstance(function, torch.nn.Module) else function
    try:
        text = textwrap.dedent(inspect.getsource(target))
    except (OSError, TypeError):
        where = f"{getattr(target, '__module__', '?')}.{getattr(target, '__qualname__', target)}"
        return [f"# The source of {where} was not found; import it here.", f"function = ...  # {where}"]
    name = getattr(target, "__name__", "function")
    lines = [*text.splitlines(), ""]
    if isinstance(function, torch.nn.Module):
        lines.append(f"function = {name}()  # with the arguments your program gives it")
    elif name == "<lambda>":
        lines = [f"# {line}" for line in lines] + ["function = ...  # the lambda above"]
    else:
        lines.append(f"function = {name}")
    code = getattr(function, "__code__", None)
    if code is not None and code.co_freevars:
        lines.insert(0, f"# Closure variables to define: {', '.join(code.co_freevars)}")
    return lines


def _arguments(args: tuple, kwargs: dict) -> str:
    named = ", ".join(f"{name!r}: {_value(value)}" for name, value in kwargs.items())
    positional = "".join(_value(value) + ", " for value in args)
    return f"torch.manual_seed(0)\nargs = ({positional})\nkwargs = {{{named}}}"


def _value(value: object) -> str:
    if isinstance(value, torch.Tensor):
        shape, strides, dtype = tuple(value.shape), tuple(value.stride()), value.dtype
        if dtype.is_floating_point or dtype.is_complex:
            made = f"torch.randn({shape}, dtype={dtype})"
        elif dtype is torch.bool:
            made = f"torch.rand({shape}) > 0.5"
        else:
            made = f"torch.randint(0, 8, {shape}, dtype={dtype})"
        if strides != tuple(torch.empty(shape, device="meta").stride()):
            made = f"torch.empty_strided({shape}, {strides}, dtype={dtype}).copy_({made})"
        return made + (".requires_grad_()" if value.requires_grad else "")
    if isinstance(value, (list, tuple)) and type(value) in (list, tuple):
        inner = ", ".join(_value(item) for item in value)
        return f"[{inner}]" if type(value) is list else f"({inner}{',' if len(value) == 1 else ''})"
    if type(value) is dict:
        return "{" + ", ".join(f"{key!r}: {_value(item)}" for key, item in value.items()) + "}"
    return repr(value)

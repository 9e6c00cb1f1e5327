"""A process of its own for each architecture, forked from one that has imported PyTorch and transformers.

Half of the time would go there.
"""

from __future__ import annotations

import importlib
import multiprocessing
import traceback
import warnings
from collections.abc import Callable
from typing import Any


def run_apart(check: Callable[..., dict[str, Any]], name: str, *, timeout: float, **options: Any) -> dict[str, Any]:
    """`check(name, **options)` in a forked process. A crash, an exception and a timeout (seconds) are results too."""
    importlib.import_module("transformers")
    context = multiprocessing.get_context("fork")
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=_work, args=(sender, check, name, options))
    process.start()
    sender.close()
    try:
        if not receiver.poll(timeout):
            return {"status": "timeout", "reasons": [f"no result in {timeout:.0f} s"]}
        return receiver.recv()
    except EOFError:
        process.join()
        return {"status": "crash", "reasons": [f"exit status {process.exitcode}"]}
    finally:
        process.kill()
        process.join()


def _work(sender: Any, check: Callable[..., dict[str, Any]], name: str, options: dict[str, Any]) -> None:
    warnings.simplefilter("ignore")
    try:
        result = check(name, **options)
    except Exception as error:
        told_error = f"{type(error).__name__}: {str(error).strip()[:400]}"
        result = {"status": "error", "reasons": [told_error], "traceback": traceback.format_exc(limit=-6)}
    sender.send(result)

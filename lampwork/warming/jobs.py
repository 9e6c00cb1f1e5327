"""Processes that warm up at once: each imports what is compiled by its name, takes some of the calls, and answers.

The request goes through the standard input of the process, as a pickle that this process wrote; the answer comes as
JSON through its standard output, which the program's own prints do not reach.
"""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from lampwork.config import cache_dir, cache_url
from lampwork.warming.named import Call
from lampwork.warming.report import WarmCall

#: The last words of a process that failed, at most.
TOLD = 500


def spread(
    target: str, calls: Sequence[Call], jobs: int, run: bool, options: Mapping[str, Any]
) -> list[WarmCall | str]:
    """What became of each call, in `jobs` processes; a text where the process said nothing, which says why.

    They have this process's grad mode, number of threads, default type, search path and cache folder; what else the
    program sets, the module that `target` names has to set when it is imported.
    """
    state = {
        "target": target,
        "run": run,
        "options": dict(options),
        "path": list(sys.path),
        "grad": torch.is_grad_enabled(),
        "inference": torch.is_inference_mode_enabled(),
        "threads": torch.get_num_threads(),
        "dtype": torch.get_default_dtype(),
    }
    found: list[WarmCall | str] = [""] * len(calls)
    threads = []
    for job in range(jobs):
        mine = range(job, len(calls), jobs)
        try:
            request = pickle.dumps({**state, "calls": [calls[index] for index in mine]})
        except Exception as error:  # a lock, a generator, a function without a name
            for index in mine:
                found[index] = (
                    f"compiled in this process: the arguments cannot be sent ({type(error).__name__}: {error})"
                )
            continue
        threads.append(threading.Thread(target=_ask, args=(request, mine, found)))
        threads[-1].start()
    for thread in threads:
        thread.join()
    return found


def _ask(request: bytes, mine: Sequence[int], found: list[WarmCall | str]) -> None:
    environment = {**os.environ, "LAMPWORK_CACHE_DIR": cache_dir(), "LAMPWORK_CACHE_URL": cache_url()}
    command = [sys.executable, "-c", "from lampwork.warming.jobs import work; work()"]
    here = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, (here, environment.get("PYTHONPATH"))))
    said = ""
    try:
        done = subprocess.run(command, input=request, capture_output=True, env=environment)
        said = done.stderr.decode(errors="replace").strip()[-TOLD:]
        answers = [WarmCall(**each) for each in json.loads(done.stdout)]
        for index, answer in zip(mine, answers, strict=True):
            found[index] = answer
    except (OSError, ValueError, TypeError) as error:  # it did not start, or ended before it answered
        for index in mine:
            found[index] = f"compiled in this process, as another one failed: {said or error}"


def work() -> None:
    """What a process does that `spread` has started."""
    answer = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what the program prints
    request = pickle.load(sys.stdin.buffer)
    sys.path[:] = request["path"]

    import lampwork
    from lampwork.warming import named
    from lampwork.warming.warm import compiled_with, warm_call

    torch.set_num_threads(request["threads"])
    torch.set_default_dtype(request["dtype"])
    with torch.inference_mode(request["inference"]), torch.set_grad_enabled(request["grad"]):
        function, _ = named.found(request["target"])
        compiled = compiled_with(function, lampwork.compile, request["options"])
        done = [warm_call(compiled, call, request["run"]) for call in request["calls"]]
    with answer:
        json.dump([each.to_dict() for each in done], answer)

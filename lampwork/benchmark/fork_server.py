"""Starts fresh processes that have torch loaded already: `python -P fork_server.py [CLASS OF TRANSFORMERS...]`.

Importing torch and transformers takes 5 to 10 s of a process that then measures a compile of 1 s. This process imports
them once, touches neither a GPU nor a compiler, and forks for every order that comes as a line of JSON on stdin:

    {"script": PATH, "argument": TEXT, "environment": {...}, "log": PATH}

It answers {"pid": N} at once and {"status": N} when that process has ended: its exit status, or minus a signal. The
child is the leader of a process group of its own, so that whoever gave the order may end all that it started.

A process that has opened the GPU cannot fork children that use it. Should an import have done that, children are plain
new processes, which import everything again: slower, not wrong.
"""

from __future__ import annotations

import gc
import json
import os
import runpy
import subprocess
import sys
import tempfile
import traceback


def main(classes: list[str]) -> None:
    import torch  # noqa: F401

    if classes:
        import transformers

        for name in classes:
            getattr(transformers, name)
    gc.collect()
    gc.freeze()  # no CUDA graph is frozen here: `lampwork.collector` counts on it when children import it
    forks = not has_opened_gpu()
    answer({"forks": forks})
    for line in sys.stdin:
        order = json.loads(line)
        if forks:
            pid = os.fork()
            if pid == 0:
                run(order)
        else:
            pid = start(order)
        answer({"pid": pid})
        _, status = os.waitpid(pid, 0)
        answer({"status": os.waitstatus_to_exitcode(status)})


def has_opened_gpu() -> bool:
    """Whether this process has initialised CUDA's driver: it then holds its device of unified memory open."""
    folder = "/proc/self/fd"
    for descriptor in os.listdir(folder) if os.path.isdir(folder) else ():
        try:
            if "nvidia-uvm" in os.readlink(f"{folder}/{descriptor}"):
                return True
        except OSError:
            pass
    return False


def start(order: dict) -> int:
    """A child that imports everything itself."""
    with open(order["log"], "a") as log:
        process = subprocess.Popen(
            [sys.executable, "-P", order["script"], order["argument"]],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env=order["environment"],
            start_new_session=True,
        )
    return process.pid


def answer(value: dict) -> None:
    sys.stdout.write(json.dumps(value) + "\n")
    sys.stdout.flush()


def run(order: dict) -> None:
    """The child: its own group, log and environment; then the script. Never returns."""
    status = 1
    try:
        os.setsid()
        log = os.open(order["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        null = os.open(os.devnull, os.O_RDONLY)
        for old, new in ((null, 0), (log, 1), (log, 2)):
            os.dup2(old, new)
        os.environ.clear()
        os.environ.update(order["environment"])
        tempfile.tempdir = None
        sys.argv = [order["script"], order["argument"]]
        runpy.run_path(order["script"], run_name="__main__")
        status = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


if __name__ == "__main__":
    main(sys.argv[1:])

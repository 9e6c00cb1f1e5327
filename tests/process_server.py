"""Forks Python processes that have torch loaded already, for `tests/processes.py`: `python process_server.py SOCKET`.

Importing torch takes 2 s of each new process. This process imports it once, and nothing of lampwork. For each message on
the socket, which brings the child's three standard files and a socket of its own, it reads an order there:

    {"arguments": [...], "environment": {...}, "folder": PATH}

and forks. It answers the number of the child, then its status, 8 bytes each. The child is a zombie, whose number is nobody
else's, until the other side has closed its socket.

The child goes on as the interpreter's own start does, and ends as a program ends: with the interpreter's report of what was
raised, functions that run at exit, and the end of modules.
"""

from __future__ import annotations

import gc
import json
import linecache
import multiprocessing.process
import os
import runpy
import signal
import socket
import struct
import sys
import types
from importlib.machinery import BuiltinImporter, SourceFileLoader

NUMBER = struct.Struct("q")


def serve(control: socket.socket) -> dict | None:
    """Answers orders until the other side is gone; then None. In each child: its order. A byte says that it may be asked."""
    while True:
        control.send(b"1")
        message, files, _, _ = socket.recv_fds(control, 1, 4)
        if not message:
            return None
        *standard, own = files
        connection = socket.socket(fileno=own)
        with connection, connection.makefile("r") as stream:
            order = json.loads(stream.readline())
            child = os.fork()
            if not child:
                break
            for each in standard:
                os.close(each)
            try:
                connection.sendall(NUMBER.pack(child))
                ended = os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT)
                status = ended.si_status if ended.si_code == os.CLD_EXITED else -ended.si_status
                connection.sendall(NUMBER.pack(status))
                stream.readline()
            except ConnectionError:
                pass  # nobody waits for it any more
            os.waitpid(child, 0)
    control.close()
    for number, each in enumerate(standard):
        os.dup2(each, number)
        os.close(each)
    return order


def _ignore(numbers: set[int]) -> None:
    """Ignores the signals that who asks ignores by now, as a new process of theirs would, and no others."""
    by_python = {signal.SIGPIPE, signal.SIGXFSZ}
    for each in signal.valid_signals():
        if each in numbers:
            if signal.getsignal(each) is not signal.SIG_IGN:
                signal.signal(each, signal.SIG_IGN)
        elif signal.getsignal(each) is signal.SIG_IGN and each not in by_python:
            signal.signal(each, signal.default_int_handler if each == signal.SIGINT else signal.SIG_DFL)


def become(order: dict, base: list[str]) -> None:
    """Makes of the process what a new one is before its program begins. `base`: `sys.path` without what was added."""
    os.environ.clear()
    _ignore({*order["ignored"]})
    os.environ.update(order["environment"])
    # A module that is written anew within a second, and is as long, would be read as the first run has compiled it.
    sys.dont_write_bytecode = True
    os.chdir(order["folder"])
    multiprocessing.process.ORIGINAL_DIR = os.getcwd()
    sys.modules["torch"].default_generator.seed()  # `random` does so by itself
    if "numpy.random" in sys.modules:
        sys.modules["numpy.random"].seed()
    sys.orig_argv[:] = [sys.executable, *order["arguments"]]
    added = os.environ.get("PYTHONPATH")
    sys.path[:] = dict.fromkeys([*map(os.path.abspath, added.split(os.pathsep) if added else []), *base])


def execute(arguments: list[str]) -> None:
    """Runs `-c TEXT ...`, `-m MODULE ...` or `SCRIPT ...` as the module `__main__`."""
    module = sys.modules["__main__"] = types.ModuleType("__main__")
    module.__builtins__ = __builtins__
    module.__annotations__ = {}
    if arguments[0] == "-m":
        module.__loader__ = BuiltinImporter
        sys.argv = ["-m", *arguments[2:]]
        sys.path.insert(0, os.getcwd())
        runpy._run_module_as_main(arguments[1])
        return
    if arguments[0] == "-c":
        module.__loader__ = BuiltinImporter
        sys.argv = ["-c", *arguments[2:]]
        sys.path.insert(0, "")
        text, name = arguments[1], "<string>"
        if sys.version_info >= (3, 13):  # there, tracebacks show lines of this text
            linecache.cache[name] = (len(text), None, text.splitlines(keepends=True), name)
    else:
        sys.argv = arguments
        sys.path.insert(0, os.path.dirname(os.path.realpath(arguments[0])))
        name = module.__file__ = os.path.abspath(arguments[0])
        module.__loader__ = SourceFileLoader("__main__", name)
        if sys.version_info < (3, 15):
            module.__cached__ = None
        with open(name, "rb") as file:
            text = file.read()
    exec(compile(text, name, "exec", dont_inherit=True), vars(module))


def told_as_its_own(raised: BaseException) -> None:
    """The interpreter will report `raised` without the frames of this file."""
    hook, trace = sys.excepthook, raised.__traceback__
    while trace is not None and trace.tb_frame.f_code.co_filename == __file__:
        trace = trace.tb_next

    def report(kind, value, _):
        value.__traceback__ = trace
        hook(kind, value, trace)

    sys.excepthook = report


def started() -> tuple[socket.socket, list[str]]:
    """The socket, and `sys.path` as it is without a program; torch is loaded, and no thread runs that a fork would lose."""
    del sys.path[0]  # this file's folder
    base = list(sys.path)
    sys.path[:0] = filter(None, sys.argv[2].split(os.pathsep))
    import torch

    sys.path[:] = base
    # OpenBLAS ends its threads before a fork, and starts them again where they are needed. Nobody else has any.
    if not (child := os.fork()):
        os._exit(0)
    os.waitpid(child, 0)
    tasks = "/proc/self/task"
    assert not os.path.isdir(tasks) or len(os.listdir(tasks)) == 1, "threads do not survive a fork"
    assert not torch.cuda.is_initialized(), "CUDA does not survive a fork"
    # Children need not go through all that torch has made: twice at their end alone. No CUDA graph is frozen here:
    # `lampwork.collector` counts on it.
    gc.collect()
    gc.freeze()
    return socket.socket(fileno=int(sys.argv[1])), base


if __name__ == "__main__":
    control, base = started()
    order = serve(control)
    if order is not None:
        try:
            become(order, base)
            execute(order["arguments"])
        except BaseException as raised:
            told_as_its_own(raised)
            raise

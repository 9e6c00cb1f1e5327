"""`run_python`: `subprocess.run` of a Python program, in a process that has torch loaded already where that is possible."""

from __future__ import annotations

import atexit
import itertools
import json
import locale
import os
import selectors
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterable, Mapping
from pathlib import Path

from tests.process_server import NUMBER

_SERVER = Path(__file__).with_name("process_server.py")

#: Variables that nothing reads before a program begins (beginnings of names, and names): they may be other ones than the
#: server's.
_READ_LATER = ("LAMPWORK_", "PYTEST_", "TRANSFORMERS_", "HF_")
_NAMES_READ_LATER = {
    "PYTHONPATH",
    "PATH",
    "RANK",
    "LOCAL_RANK",
    "WORLD_SIZE",
    "TRITON_INTERPRET",
    "PYTHONDONTWRITEBYTECODE",
}

#: How many take turns.
_SERVERS = 2


def run_python(
    arguments: Iterable[object],
    *,
    env: Mapping[str, str] | None = None,
    cwd: object = None,
    timeout: float | None = None,
    check: bool = False,
) -> subprocess.CompletedProcess[str]:
    """What `subprocess.run([sys.executable, *arguments], capture_output=True, text=True, ...)` returns or raises.

    The process is a fork of one that has imported torch, and nothing of lampwork: 2 s less. What torch has made is frozen
    there (`gc.freeze`). Two of these take turns, and hash texts in two ways: what is stored by one run is read with other
    hashes by the next. No byte code of modules is written: runs may follow within a second, which is all that its date tells.

    It is a new process where the fork would differ: with options other than `-c` and `-m`, and with other values of
    variables that Python, torch or their libraries read when they are loaded. A test of such a start itself asks
    `subprocess`."""
    arguments = [os.fspath(each) if isinstance(each, os.PathLike) else str(each) for each in arguments]
    environment = dict(os.environ if env is None else env)
    folder = os.getcwd() if cwd is None else os.fspath(cwd)
    if not can_fork(arguments, environment, folder):
        return subprocess.run(
            [sys.executable, *arguments],
            env=environment, cwd=folder, timeout=timeout, check=check, capture_output=True, text=True,
        )  # fmt: skip
    done = _next_server().run(arguments, environment, folder, timeout)
    if check:
        done.check_returncode()
    return done


def plain_environment(**variables: str) -> dict[str, str]:
    """This process's variables without those of lampwork, and with these."""
    return {**{name: value for name, value in os.environ.items() if not name.startswith("LAMPWORK_")}, **variables}


def can_fork(arguments: list[str], environment: Mapping[str, str], folder: str) -> bool:
    """Whether a fork does what a new process would do."""
    if not hasattr(os, "waitid") or not hasattr(socket, "recv_fds"):
        return False
    if not os.path.isdir(folder):
        return False
    if arguments[0] in ("-c", "-m"):
        known = len(arguments) > 1
    else:
        known = arguments[0].endswith(".py") and os.path.isfile(os.path.join(folder, arguments[0]))
    return known and _read_at_start(environment) == _read_at_start(os.environ)


def _read_at_start(environment: Mapping[str, str]) -> dict[str, str]:
    return {
        name: value
        for name, value in environment.items()
        if not name.startswith(_READ_LATER) and name not in _NAMES_READ_LATER
    }


class Server:
    """A process that forks others."""

    def __init__(self) -> None:
        self.owner, self.environment = os.getpid(), _read_at_start(os.environ)
        self.lock = threading.Lock()
        self.control, theirs = socket.socketpair()
        environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        environment["PYTHONDONTWRITEBYTECODE"] = "1"  # as its children, whose `sys.flags` are those that it began with
        command = [sys.executable, str(_SERVER), str(theirs.fileno()), os.environ.get("PYTHONPATH", "")]
        with theirs:
            # Pipes, as its children have: Python makes its buffers by what it finds.
            self.process = subprocess.Popen(
                command, env=environment, pass_fds=[theirs.fileno()], stdout=subprocess.PIPE, stderr=subprocess.PIPE
            )
        if self.control.recv(1) != b"1":
            raise RuntimeError(f"no server of processes: {self.process.communicate()[1].decode()}")
        atexit.register(self.end)

    @property
    def is_ours(self) -> bool:
        """Not the server of the process that this one is a fork of, and not of another environment."""
        return self.owner == os.getpid() and self.environment == _read_at_start(os.environ)

    def end(self) -> None:
        self.control.close()
        if self.owner == os.getpid():
            self.process.communicate()

    def run(
        self, arguments: list[str], environment: dict, folder: str, timeout: float | None
    ) -> subprocess.CompletedProcess:
        until = None if timeout is None else time.monotonic() + timeout
        with self.lock:
            child = _Child(self.control, arguments, environment, folder)
            try:
                complete = child.read(until)
            except BaseException:
                child.kill()
                raise
            finally:
                child.close()
                self.control.recv(1)  # it has no children now
        if not complete:
            raise subprocess.TimeoutExpired(child.command, timeout, child.raw("out"), child.raw("err"))
        return subprocess.CompletedProcess(child.command, child.status, child.text("out"), child.text("err"))


class _Child:
    """A child that was asked for."""

    def __init__(self, control: socket.socket, arguments: list[str], environment: dict, folder: str) -> None:
        self.command = [sys.executable, *arguments]
        self.socket, theirs = socket.socketpair()
        (self.out, out), (self.err, err) = os.pipe(), os.pipe()
        self.found: dict[str, list[bytes]] = {"out": [], "err": []}
        try:
            socket.send_fds(control, [b"1"], [0, out, err, theirs.fileno()])
        finally:
            theirs.close()
            os.close(out)
            os.close(err)
        ignored = [int(each) for each in signal.valid_signals() if signal.getsignal(each) is signal.SIG_IGN]
        order = {"arguments": arguments, "environment": environment, "folder": folder, "ignored": ignored}
        self.socket.sendall(json.dumps(order).encode() + b"\n")
        self.number = self._received()

    def _received(self) -> int:
        received = self.socket.recv(NUMBER.size, socket.MSG_WAITALL)
        if len(received) != NUMBER.size:
            raise RuntimeError("the server of processes is gone")
        return NUMBER.unpack(received)[0]

    def read(self, until: float | None) -> bool:
        """Whether the child ended in time, and nobody writes any more. If not, it was killed."""
        with selectors.DefaultSelector() as selector:
            selector.register(self.out, selectors.EVENT_READ, "out")
            selector.register(self.err, selectors.EVENT_READ, "err")
            selector.register(self.socket, selectors.EVENT_READ, "status")
            while selector.get_map():
                left = None if until is None else until - time.monotonic()
                if left is not None and left < 0:
                    self.kill()
                    return False
                for key, _ in selector.select(left):
                    if key.data == "status":
                        selector.unregister(key.fileobj)
                    elif data := os.read(key.fd, 1 << 15):
                        self.found[key.data].append(data)
                    else:
                        selector.unregister(key.fileobj)
        self.status = self._received()
        return True

    def kill(self) -> None:
        os.kill(self.number, signal.SIGKILL)  # it is there, if only as a zombie: we have not answered yet

    def close(self) -> None:
        """The server goes on where the child has ended."""
        os.close(self.out)
        os.close(self.err)
        self.socket.close()

    def raw(self, name: str) -> bytes | None:
        return b"".join(self.found[name]) or None

    def text(self, name: str) -> str:
        written = b"".join(self.found[name]).decode(locale.getencoding())
        return written.replace("\r\n", "\n").replace("\r", "\n")


_servers: dict[int, Server] = {}
_turns = itertools.count()


def _next_server() -> Server:
    turn = next(_turns) % _SERVERS
    if turn not in _servers or not _servers[turn].is_ours:
        _servers[turn] = Server()
    return _servers[turn]

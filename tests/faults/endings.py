"""How a process ends: while threads call and compile, in `atexit`, by an error, with output that nobody reads."""

from __future__ import annotations

import signal
import subprocess
import sys

from tests.faults.cases import case

_START = """
import atexit, os, sys, threading, time
import torch
from tests.faults.support import check, compiled, make
"""


#: What PyTorch ends a process with whose daemon threads call operators while the interpreter is shut down: eager programs
#: end so, too (25 of 25 runs of three threads that add small tensors).
_EAGERS_END = "terminate called without an active exception\nFatal Python error: Aborted\n"


def _ends(text: str, status: int = 0, quiet: bool = True, or_as_eager: bool = False) -> None:
    """A process with this program ends in time, with that status and nothing on its standard error."""
    done = subprocess.run([sys.executable, "-c", _START + text], capture_output=True, text=True, timeout=60)
    if or_as_eager and done.returncode == -signal.SIGABRT and done.stderr.startswith(_EAGERS_END):
        assert "lampwork" not in done.stderr, done.stderr[-3000:]
        return
    assert done.returncode == status, (done.returncode, done.stderr[-3000:])
    if quiet:
        assert not done.stderr.strip(), done.stderr[-3000:]


@case(seconds=120)
def while_daemon_threads_compile(seed: int) -> None:
    """Daemon threads call and compile when the interpreter is shut down."""
    _ends(
        """
shared = compiled(make(0))
def run(first):
    number = first * 1000
    while True:
        shared(torch.ones(3, 3), [])
        compiled(make(number))(torch.ones(3, 3), [])
        number += 1
for first in range(3):
    threading.Thread(target=run, args=(first,), daemon=True).start()
time.sleep(1.2)
""",
        or_as_eager=True,
    )


@case(seconds=120, quick=True)
def at_exit(seed: int) -> None:
    """Functions that run at exit compile and call; objects that die last call, too."""
    _ends("""
made = compiled(make(0))
x = torch.ones(3, 3)
made(x, [])
atexit.register(lambda: check(compiled(make(1)), make(1)))
atexit.register(lambda: check(made, make(0)))
class Last:
    def __init__(self): self.made, self.x = made, x
    def __del__(self): self.made(self.x, [])
last = Last()
""")


@case(seconds=120)
def by_an_error_and_by_exit(seed: int) -> None:
    """`sys.exit` and errors out of a compiled function end the process as eager does."""
    _ends(
        """
def leaves(x):
    y = x + 1
    sys.exit(5)
compiled(leaves)(torch.ones(2))
""",
        status=5,
    )
    _ends(
        """
def raises(x):
    y = x + 1
    raise ValueError("mine")
compiled(raises)(torch.ones(2))
""",
        status=1,
        quiet=False,
    )
    _ends(
        """
def leaves(x):
    os._exit(7)
compiled(leaves)(torch.ones(2))
""",
        status=7,
    )


@case(seconds=120)
def interrupted_at_exit(seed: int) -> None:
    """Ctrl-C and SIGTERM while the main thread compiles end the process as they end a process that does not."""
    import signal

    for number, expected in ((signal.SIGINT, -signal.SIGINT), (signal.SIGTERM, -signal.SIGTERM)):
        _ends(
            f"""
def end():
    time.sleep(0.15)
    os.kill(os.getpid(), {int(number)})
compiled(make(0))(torch.ones(2, 2), [])
threading.Thread(target=end, daemon=True).start()
for number in range(100000):
    compiled(make(number))(torch.ones(2, 2), [])
""",
            status=expected,
            quiet=False,
        )

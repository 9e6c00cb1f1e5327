"""`run_python` does what `subprocess.run` of a new process does."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from tests.processes import can_fork, run_python

#: What a program sees of its process. Modules that the server needs are loaded in a fork, too: what torch brings, it has.
FACTS = """
import sys, os
import json, signal, threading, multiprocessing.process, warnings, gc
main = sys.modules["__main__"]
facts = {
    "argv": sys.argv, "orig_argv": sys.orig_argv, "path": sys.path, "cwd": os.getcwd(), "flags": list(sys.flags),
    "environment": dict(os.environ), "main": {
        name: value if isinstance(value, (str, int, type(None))) else type(value).__name__
        for name, value in vars(main).items()
        if name.startswith("__")
    }, "same": vars(main) is globals(), "name": __name__, "options": [sys.warnoptions, dict(sys._xoptions)],
    "signals": {number: str(signal.getsignal(number)) for number in sorted(signal.valid_signals())},
    "masked": sorted(signal.pthread_sigmask(signal.SIG_BLOCK, [])),
    "files": sorted(os.listdir("/proc/self/fd"))[:3], "number of files": len(os.listdir("/proc/self/fd")),
    "tasks": len(os.listdir("/proc/self/task")), "threads": len(threading.enumerate()),
    "buffers": [(each.encoding, each.errors, each.line_buffering, each.write_through, each.seekable(), each.isatty())
                for each in (sys.stdin, sys.stdout, sys.stderr)],
    "read": sys.stdin.read(), "group": os.getpgrp(), "session": os.getsid(0), "umask": os.umask(0o22),
    "thresholds": gc.get_threshold(), "collects": gc.isenabled(),
    "bytecode": sys.dont_write_bytecode, "origin": multiprocessing.process.ORIGINAL_DIR,
    "hooks": [sys.excepthook is sys.__excepthook__, sys.unraisablehook is sys.__unraisablehook__],
    "lampwork": [name for name in sys.modules if name.startswith("lampwork")],
}
if "torch" in sys.argv:
    import torch
    facts |= {
        "torch threads": torch.get_num_threads(), "between": torch.get_num_interop_threads(),
        "grad": torch.is_grad_enabled(),
        "filters": [str(each) for each in warnings.filters],
    }
print(json.dumps(facts))
"""


def new_process(arguments, **options):
    return subprocess.run([sys.executable, *map(str, arguments)], capture_output=True, text=True, **options)


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "inner").mkdir()
    (tmp_path / "inner" / "program.py").write_text(FACTS)
    (tmp_path / "inner" / "__init__.py").write_text("")
    (tmp_path / "linked.py").symlink_to(tmp_path / "inner" / "program.py")
    return tmp_path


@pytest.mark.parametrize(
    "arguments",
    [
        ["-c", FACTS, "torch", "-c"],
        ["inner/program.py", "two", "3"],
        ["linked.py"],
        ["-m", "inner.program", "four"],
    ],
    ids=["text", "script", "link", "module"],
)
def test_a_program_sees_the_same(arguments, folder):
    environment = {
        **os.environ, "LAMPWORK_OF_THIS_TEST": "1", "PYTHONPATH": os.pathsep.join(["inner", str(folder), sys.path[-1]]),
        "PYTHONDONTWRITEBYTECODE": "1",
    }  # fmt: skip
    environment.pop("LAMPWORK_STRICT", None)
    assert can_fork(arguments, environment, str(folder))
    forked = run_python(arguments, env=environment, cwd=folder)
    new = new_process(arguments, env=environment, cwd=folder)
    assert (forked.returncode, forked.stderr) == (new.returncode, new.stderr) == (0, "")
    assert forked.args == new.args
    found, expected = json.loads(forked.stdout), json.loads(new.stdout)
    for name in expected:
        assert found[name] == expected[name], name


END = """
import atexit, os, sys, threading, time
class Last:
    def __init__(self, write=os.write): self.write = write
    def __del__(self): self.write(1, b"died\\n")
last = Last()
atexit.register(lambda: (print("at exit", __name__, sys.modules["__main__"].__dict__ is globals()), sys.stdout.flush()))
def late():
    time.sleep(0.2)
    print("thread", flush=True)
threading.Thread(target=late).start()
print("written, and not flushed")
print("of errors", file=sys.stderr)
def fails():
    {how}
fails()
"""


@pytest.mark.parametrize(
    "how",
    [
        "pass",
        "raise ValueError('mine')",
        "raise SystemExit",
        "sys.exit(5)",
        "sys.exit('text')",
        "os._exit(7)",
        "raise KeyboardInterrupt",
        "os.kill(os.getpid(), 9)",
        "os.kill(os.getpid(), 15)",
        "os.abort()",
        "sys.excepthook = lambda kind, value, trace: print(kind, trace.tb_lineno); raise ValueError",
        "exec('1 +')",
        "raise ValueError from TypeError('cause')",
    ],
)
@pytest.mark.parametrize("kind", ["text", "script", "module"])
def test_a_program_ends_the_same_way(how, kind, tmp_path):
    text = END.format(how=how)
    (tmp_path / "program.py").write_text(text)
    arguments = {"text": ["-c", text], "script": [tmp_path / "program.py"], "module": ["-m", "program"]}[kind]
    forked, new = run_python(arguments, cwd=tmp_path), new_process(arguments, cwd=tmp_path)
    assert (forked.returncode, forked.stdout) == (new.returncode, new.stdout)
    assert forked.stderr == new.stderr


def test_a_program_that_is_none(tmp_path):
    for arguments in (
        ["-c", "1 +"],
        ["-m", "lampwork_has_no_such"],
        ["nowhere.py"],
        ["-c"],
        ["-W", "error", "-c", "1"],
    ):
        forked, new = run_python(arguments, cwd=tmp_path), new_process(arguments, cwd=tmp_path)
        assert (forked.returncode, forked.stdout) == (new.returncode, new.stdout)
        assert forked.stderr == new.stderr
    with pytest.raises(FileNotFoundError):
        run_python(["-c", "1"], cwd=tmp_path / "nowhere")


def test_a_status_that_is_checked():
    with pytest.raises(subprocess.CalledProcessError) as raised:
        run_python(["-c", "import sys; print('told'); sys.exit(3)"], check=True)
    assert (raised.value.returncode, raised.value.stdout, raised.value.stderr) == (3, "told\n", "")


def test_out_of_time():
    """The process is killed, and told of as others; the next program has the server to itself."""
    program = "import os, time; print(os.getpid(), flush=True); time.sleep(100)"
    for started in (run_python, new_process):
        with pytest.raises(subprocess.TimeoutExpired) as raised:
            started(["-c", program], timeout=2)
        assert raised.value.timeout == 2 and raised.value.stderr is None
        with pytest.raises(ProcessLookupError):
            os.kill(int(raised.value.output), 0)
    assert [run_python(["-c", "print(1)"]).stdout for _ in range(2)] == ["1\n"] * 2


def test_much_is_written():
    text = "import sys\nfor n in range(20000): print('x' * 99, n); print('y' * 99, n, file=sys.stderr)"
    forked, new = run_python(["-c", text]), new_process(["-c", text])
    assert len(forked.stdout) > 1 << 20 and (forked.stdout, forked.stderr) == (new.stdout, new.stderr)


def test_what_outlives_the_program_is_waited_for():
    """Who has inherited its output may still write, as with `subprocess.run`."""
    text = "import os, time\nif not os.fork(): time.sleep(0.5); print('late')"
    assert run_python(["-c", text]).stdout == "late\n"


def test_two_runs_hash_texts_in_two_ways():
    if os.environ.get("PYTHONHASHSEED", "random") != "random":
        pytest.skip("hashes of texts are fixed")
    first, second, third = (run_python(["-c", "print(hash('text'))"]).stdout for _ in range(3))
    assert first == third != second


def test_each_run_draws_other_numbers():
    for asks in ("import torch; print(torch.rand(3))", "import torch, random; print(random.random())",
                 "import numpy; print(numpy.random.rand())"):  # fmt: skip
        assert len({run_python(["-c", asks]).stdout for _ in range(3)}) == 3


def test_runs_share_nothing():
    """What one run leaves in modules, settings and its environment is not in another."""
    changes = (
        "import os, sys, torch; torch.set_num_threads(3); torch.mine = sys.mine = 1; os.environ['LAMPWORK_MINE'] = '1'"
    )
    asks = "import os, sys, torch; print(hasattr(torch, 'mine'), hasattr(sys, 'mine'), os.environ.get('LAMPWORK_MINE'))"
    for _ in range(2):
        assert not run_python(["-c", changes]).returncode
    assert {run_python(["-c", asks]).stdout for _ in range(2)} == {"False False None\n"}


def test_what_is_read_at_the_start_needs_a_new_process():
    """Of other values of these, a fork would know nothing."""
    for name, value in (("PYTHONHASHSEED", "7"), ("OMP_NUM_THREADS", "3"), ("TORCH_LOGS", "x"), ("LC_ALL", "POSIX")):
        assert not can_fork(["-c", ""], {**os.environ, name: value}, "/")
    assert not can_fork(["-c", ""], {}, "/") and can_fork(["-c", ""], os.environ, "/")
    program = "import os; print(hash('text'), os.environ['OMP_NUM_THREADS'])"
    environment = {**os.environ, "PYTHONHASHSEED": "7", "OMP_NUM_THREADS": "3"}
    assert run_python(["-c", program], env=environment).stdout == new_process(["-c", program], env=environment).stdout


def test_a_fork_of_this_process_asks_a_server_of_its_own():
    told, tells = os.pipe()
    child = os.fork()
    if not child:
        os.write(tells, run_python(["-c", "print('from there')"]).stdout.encode())
        os._exit(0)
    os.waitpid(child, 0)
    assert os.read(told, 100) == b"from there\n"
    os.close(told)
    os.close(tells)
    assert run_python(["-c", "print('from here')"]).stdout == "from here\n"

"""Processes that start at once: one compiles, the others load; and nothing that happens to one holds up another."""

from __future__ import annotations

import dataclasses
import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
import torch

import lampwork
from lampwork import signals
from lampwork.config import environment, use_cache_dir
from lampwork.runtime.cache import ranks, shared

ROOT = Path(lampwork.__file__).parents[1]
KEY = "0" * 32


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.setattr(ranks, "environment", dataclasses.replace(environment, cache_wait=5.0))
    monkeypatch.setattr(ranks, "_gave_up", False)
    with use_cache_dir(str(tmp_path)):
        yield tmp_path
    assert not ranks._open and not getattr(ranks._thread, "has_turn", False)


def wait_seconds(monkeypatch, seconds):
    monkeypatch.setattr(ranks, "environment", dataclasses.replace(ranks.environment, cache_wait=seconds))


class Asked:
    """What a turn told."""

    def __init__(self):
        self.notes, self.counts = [], []

    def turn(self, key=KEY, args=()):
        return ranks.turn(key, args, {}, self.notes.append, self.counts.append)


def lock_name(args=()):
    return f"{KEY}-{ranks.kind_of_call(args, {})}.lock"


#: Holds the lock as `ranks.py` does, in a process that begins at once.
HOLDER = """
import fcntl, os, sys
descriptor = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT, 0o600)
fcntl.flock(descriptor, fcntl.LOCK_EX)
print("has it", flush=True)
os.pwrite(descriptor, sys.stdin.readline().strip().encode(), 0)
fcntl.flock(descriptor, fcntl.LOCK_UN)
"""


@pytest.fixture
def holder(folder):
    """Another process that holds the lock; a word through its standard input ends its turn."""
    (folder / "locks").mkdir(mode=0o700)
    command = [sys.executable, "-c", HOLDER, str(folder / "locks" / lock_name())]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "has it\n"
    yield process
    process.kill()
    process.communicate()


def is_free(folder, name):
    lock = ranks._local(name)
    try:
        return lock.take()
    finally:
        lock.close()


def after(seconds, act):
    threading.Timer(seconds, act).start()


def tell(process, line):
    process.stdin.write(line)
    process.stdin.flush()


def test_a_free_turn_takes_no_time_and_leaves_nothing(folder):
    asked = Asked()
    with asked.turn() as turn:
        assert not turn.has_waited and len(os.listdir(folder / "locks")) == 1
    assert asked.notes == asked.counts == [] and os.listdir(folder / "locks") == []


@pytest.mark.parametrize(("word", "told"), [("stored\n", "which stored it"), ("none\n", "which could not store it")])
def test_the_word_of_who_compiled(holder, word, told):
    asked = Asked()
    after(0.2, lambda: tell(holder, word))
    with asked.turn() as turn:
        assert turn.has_waited
    assert asked.counts == ["waited"] and told in asked.notes[0]


def test_a_holder_that_is_killed_is_followed_at_once(holder, folder):
    asked = Asked()
    after(0.2, lambda: holder.send_signal(signal.SIGKILL))
    start = time.monotonic()
    with asked.turn() as turn:
        assert turn.has_waited and time.monotonic() - start < 3
        assert not is_free(folder, lock_name())  # it is this process's now
    assert "ended before it had compiled" in asked.notes[0]


def test_a_holder_that_hangs_is_waited_for_once(holder, monkeypatch):
    wait_seconds(monkeypatch, 0.3)
    asked = Asked()
    holder.send_signal(signal.SIGSTOP)
    try:
        start = time.monotonic()
        with asked.turn() as turn:
            assert turn.has_waited and 0.2 < time.monotonic() - start < 2
        start = time.monotonic()
        with asked.turn() as turn:
            assert not turn.has_waited and time.monotonic() - start < 0.1
    finally:
        holder.send_signal(signal.SIGCONT)
    assert "nobody is waited for from now on" in asked.notes[0] and len(asked.notes) == 1


def test_a_clock_that_jumps_changes_nothing(holder, monkeypatch):
    jumps = iter(range(0, 10**9, 10**5))
    monkeypatch.setattr(time, "time", lambda: next(jumps))
    asked = Asked()
    after(0.3, lambda: tell(holder, "stored\n"))
    with asked.turn() as turn:
        assert turn.has_waited
    assert "which stored it" in asked.notes[0]


def test_other_calls_and_keys_do_not_wait(holder):
    asked = Asked()
    for turn in (asked.turn("1" * 32), asked.turn(args=(torch.ones(3),))):
        with turn as made:
            assert not made.has_waited


def test_a_forked_child_neither_holds_nor_ends_the_turn_of_its_parent(folder):
    asked = Asked()
    out, inlet = os.pipe()
    with asked.turn():
        child = os.fork()
        if not child:
            status = 1
            try:
                made = Asked()
                os.read(out, 1)  # its parent's turn has ended
                start = time.monotonic()
                with made.turn() as turn:
                    status = 2 * (turn.has_waited or time.monotonic() - start > 1)
            finally:
                os._exit(status)
        assert not is_free(folder, lock_name())
    os.write(inlet, b"x")
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_a_turn_within_a_turn_waits_for_nobody(holder):
    asked = Asked()
    with asked.turn("1" * 32), asked.turn() as inner:
        assert not inner.has_waited


def test_ctrl_c_ends_the_wait(holder):
    asked = Asked()
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # background jobs of a shell ignore it
    try:
        after(0.2, lambda: os.kill(os.getpid(), signal.SIGINT))
        start = time.monotonic()
        with pytest.raises(signals.HandlerRaised) as caught, signals.deferred(), asked.turn():
            pass
    finally:
        signal.signal(signal.SIGINT, before)
    assert isinstance(caught.value.error, KeyboardInterrupt) and time.monotonic() - start < 3


@pytest.mark.parametrize("kind", ["file", "pipe", "writable"])
def test_without_locks_everybody_compiles(folder, kind):
    if kind == "file":
        (folder / "locks").write_text("no folder")
    elif kind == "pipe":
        (folder / "locks").mkdir()
        os.mkfifo(folder / "locks" / lock_name())
    else:
        folder.chmod(0o777)
    asked = Asked()
    with asked.turn() as turn:
        assert not turn.has_waited
    assert asked.notes[0].startswith("others are not waited for")


def test_what_a_killed_process_left_in_the_file_is_no_word(folder):
    """It was killed after it had written it."""
    (folder / "locks").mkdir(mode=0o700)
    path = folder / "locks" / lock_name()
    path.write_bytes(ranks.STORED)
    path.chmod(0o600)
    with Asked().turn() as turn:
        assert not turn.has_waited and path.read_bytes() == b""


def test_machines_that_share_a_folder_wait_for_each_other(folder, monkeypatch, tmp_path):
    wait_seconds(monkeypatch, 0.2)
    for module in (ranks, shared):
        monkeypatch.setattr(module, "cache_url", lambda: str(tmp_path / "place"))
    monkeypatch.setattr(shared, "_given_up", set())
    other = ranks._shared(lock_name())
    assert other.take()
    asked = Asked()
    with asked.turn() as turn:
        assert turn.has_waited
    other.let_go(True)
    assert asked.counts == ["waited"] and os.listdir(tmp_path / "place" / "locks") == []


def test_what_tells_calls_apart():
    x = torch.ones(3, 4)
    kinds = [
        (), (x,), (x.T,), (x.double(),), (torch.ones(3, 4, requires_grad=True),), (1,), (1.0,), (True,), (10**5000,), ("a",),
        ([x],), ((x,),), ({"a": x},), (None,), (object(),), (x.to_sparse(),),
    ]  # fmt: skip
    digests = [ranks.kind_of_call(args, {}) for args in kinds]
    assert len({*digests}) == len(digests)
    assert digests == [ranks.kind_of_call(args, {}) for args in kinds]
    with torch.no_grad():
        assert ranks.kind_of_call((x,), {}) != digests[1]


STARTED = """
import json, sys, torch, lampwork
model = torch.nn.Sequential(torch.nn.Linear(16, 16), torch.nn.GELU(), torch.nn.Linear(16, 4)).eval()
compiled = lampwork.compile(model)
print("ready", flush=True)
sys.stdin.readline()
with torch.no_grad():
    compiled(torch.ones(2, 16))
stats = lampwork.stats(compiled)
print(json.dumps([stats["captures"], stats["cache_hits"], stats["cache"]["waited"]]))
"""


@pytest.mark.parametrize(("count", "shared_place"), [(4, False), (2, True)])
def test_of_processes_that_start_at_once_one_compiles_and_the_others_load(tmp_path, count, shared_place):
    processes = []
    for rank in range(count):
        settings = {
            **os.environ, "RANK": str(rank), "WORLD_SIZE": str(count), "OMP_NUM_THREADS": "1", "LAMPWORK_VERIFY": "0",
            "LAMPWORK_CACHE_DIR": str(tmp_path / (f"own{rank}" if shared_place else "cache")),
            "LAMPWORK_CACHE_URL": str(tmp_path / "place") if shared_place else "", "LAMPWORK_CACHE_TRUST": "1",
        }  # fmt: skip
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        processes.append(subprocess.Popen([sys.executable, "-c", STARTED], env=settings, cwd=ROOT, **pipes))
    for each in processes:
        assert each.stdout.readline() == "ready\n"
    for each in processes:
        tell(each, "\n")
    found = sorted(json.loads(each.communicate()[0]) for each in processes)
    assert [each[:2] for each in found] == [[0, 1]] * (count - 1) + [[1, 0]]
    assert found[-1][2] == 0 and sum(each[2] for each in found) >= 1

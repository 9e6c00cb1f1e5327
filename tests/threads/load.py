"""Threads that call compiled functions with shapes from a free list, each result compared with eager.

    report = run(seconds=5)
    report.problems       what went wrong, in words; empty if nothing did

Four functions: a module, one that changes its own arguments, one compiled anew for each shape, one with a break.
"""

from __future__ import annotations

import faulthandler
import random
import sys
import threading
import time
import traceback
import warnings
from collections import Counter, deque
from dataclasses import dataclass, field

import torch

import lampwork

THREADS = 8
ROWS = (1, 2, 3, 5, 8, 13)
WIDTH = 16
#: A thread that finishes no call for so long is stuck.
STUCK_SECONDS = 90


class Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first = torch.nn.Linear(WIDTH, 32)
        self.norm = torch.nn.LayerNorm(32)
        self.second = torch.nn.Linear(32, WIDTH)

    def forward(self, x):
        return x + self.second(torch.nn.functional.gelu(self.norm(self.first(x))))


def changes_its_arguments(x, seen):
    x.mul_(2).add_(1)
    seen.append(x.sum())
    seen.append(x.shape[0])
    return x.softmax(-1)


def one_graph_a_shape(x):
    return (x.exp() * x.shape[0]).cumsum(0).relu()


def breaks(x):
    y = x.sin() + 1
    if y.sum().item() > 1e9:
        return y
    return (y * 2).cos()


@dataclass
class Report:
    problems: list[str] = field(default_factory=list)
    calls: Counter = field(default_factory=Counter)
    compiled: dict = field(default_factory=dict)


class Load:
    """One run. `resets`: now and then `lampwork.reset()` is called meanwhile."""

    def __init__(self, resets: bool = False, options: dict | None = None, seed: int = 0) -> None:
        options = {"cache": False, "recompile_limit": 32, **(options or {})}
        torch.manual_seed(seed)
        module = Block().eval()
        self.functions = {
            "module": (module, lampwork.compile(module, options=options)),
            "arguments": (changes_its_arguments, lampwork.compile(changes_its_arguments, options=options)),
            "shapes": (one_graph_a_shape, lampwork.compile(one_graph_a_shape, dynamic=False, options=options)),
            "break": (breaks, lampwork.compile(breaks, options=options)),
        }
        self.free = deque(ROWS * 2)  # a shape is one thread's until it is put back
        self.report = Report(compiled={name: compiled for name, (_, compiled) in self.functions.items()})
        self.resets, self.seed = resets, seed
        self.progress = [time.monotonic()] * THREADS
        self.stop = threading.Event()

    def run(self, seconds: float) -> Report:
        threads = [threading.Thread(target=self._work, args=(number,), daemon=True) for number in range(THREADS)]
        with warnings.catch_warnings():
            warnings.simplefilter("error", lampwork.LampworkWarning)
            state = process_state()
            for thread in threads:
                thread.start()
            end = time.monotonic() + seconds
            while time.monotonic() < end and not self.report.problems:
                time.sleep(0.02)
                self._compare_state(state)
                self._look_for_stuck_threads()
                if self.resets and random.random() < 0.02:
                    lampwork.reset()
            self.stop.set()
            for thread in threads:
                thread.join(STUCK_SECONDS)
                if thread.is_alive():
                    faulthandler.dump_traceback(all_threads=True)
                    self.report.problems.append("a thread does not end")
        return self.report

    def _work(self, number: int) -> None:
        choose = random.Random(f"{self.seed} {number}")
        try:
            with torch.inference_mode() if number % 4 == 3 else torch.no_grad():
                while not self.stop.is_set() and not self.report.problems:
                    self._call(choose)
                    self.progress[number] = time.monotonic()
        except BaseException:
            self.report.problems.append(f"thread {number}: {traceback.format_exc()}")

    def _call(self, choose: random.Random) -> None:
        name = choose.choice(list(self.functions))
        rows = self.free.popleft()
        try:
            x = torch.rand(rows, WIDTH, generator=torch.Generator().manual_seed(choose.randrange(1 << 30)))
            eager, compiled = self.functions[name]
            modes = torch.is_grad_enabled(), torch.is_inference_mode_enabled(), torch.is_autocast_enabled("cpu")
            expected = outcome(eager, x.clone(), name)
            found = outcome(compiled, x.clone(), name)
            if modes != (torch.is_grad_enabled(), torch.is_inference_mode_enabled(), torch.is_autocast_enabled("cpu")):
                self.report.problems.append(f"{name} left other modes than {modes}")
            difference = differs(expected, found)
            if difference:
                self.report.problems.append(f"{name} of {rows} rows: {difference}")
            self.report.calls[name] += 1
        finally:
            self.free.append(rows)

    def _compare_state(self, before: dict) -> None:
        for key, value in process_state().items():
            if before[key] != value:
                self.report.problems.append(f"{key} was {before[key]}, another thread sees {value}")

    def _look_for_stuck_threads(self) -> None:
        slowest = min(self.progress)
        if time.monotonic() - slowest > STUCK_SECONDS:
            faulthandler.dump_traceback(all_threads=True)
            self.report.problems.append(f"a thread has finished no call for {STUCK_SECONDS} s")
            self.stop.set()


def process_state() -> dict:
    """What every thread of the process shares, as one of them sees it."""
    import gc

    return {
        "garbage collection": gc.isenabled(),
        "default dtype": torch.get_default_dtype(),
        "threads": torch.get_num_threads(),
        "deterministic algorithms": torch.are_deterministic_algorithms_enabled(),
        "matmul precision": torch.get_float32_matmul_precision(),
        "recursion limit": sys.getrecursionlimit(),
        "switch interval": sys.getswitchinterval(),
        "warnings' filters": len(warnings.filters),
        "warnings' printer": warnings.showwarning,
        "standard output": sys.stdout,
        "import hooks": len(sys.meta_path),
        "grad mode of this thread": torch.is_grad_enabled(),
        "random state": torch.get_rng_state().sum().item(),
    }


def outcome(function, x, name):
    if name == "arguments":
        seen: list = []
        return [function(x, seen), x, seen]
    return [function(x), x]


def differs(expected, found) -> str:
    if isinstance(expected, torch.Tensor):
        if expected.shape != found.shape or expected.dtype != found.dtype:
            return f"{tuple(expected.shape)} {expected.dtype} became {tuple(found.shape)} {found.dtype}"
        if not torch.allclose(expected, found, rtol=1e-4, atol=1e-5):
            return f"values differ by {(expected - found).abs().max().item():.3g}"
        return ""
    if isinstance(expected, list):
        if len(expected) != len(found):
            return f"{len(expected)} values became {len(found)}"
        return next((text for text in map(differs, expected, found) if text), "")
    return "" if expected == found else f"{expected!r} became {found!r}"


def lost_entries(report: Report) -> list[str]:
    """What the counters and the entries left over say against each other. For runs without resets."""
    problems = []
    for name, compiled in report.compiled.items():
        own = compiled.__lampwork__
        found = lampwork.stats(compiled)
        if found["calls"] != report.calls[name]:
            problems.append(f"{name}: {report.calls[name]} calls were made, {found['calls']} counted")
        if found["entries"] != found["captures"]:
            problems.append(f"{name}: {found['captures']} captures, {found['entries']} entries left")
        if len(set(own.serves)) != len(own.serves) or set(own.serves) != set(own._entries):
            problems.append(f"{name}: entries and their order disagree")
        recompiles = sum(record.count for record in found["recompiles"])
        firsts = sum(bool(part.entries) for part in (own, *own.continuations.values()))
        if recompiles != found["entries"] - firsts:
            problems.append(f"{name}: {found['entries']} entries, {recompiles} recompiles recorded")
        if found["fallbacks"] and name != "break":
            problems.append(f"{name} ran eagerly: {found['fallbacks'][0]}")
        counted = sum(record.count for record in found["breaks"])
        if name == "break" and counted != report.calls[name]:
            problems.append(f"{name}: {report.calls[name]} calls, {counted} breaks counted")
    return problems

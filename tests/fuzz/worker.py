"""Processes that check programs: a crash or a program that never ends is a finding, and the next process goes on."""

from __future__ import annotations

import multiprocessing
import os
import signal
import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection, wait
from typing import Any

import torch

from tests.fuzz.check import COMPILERS, DeviceLost, Finding, check, is_lost
from tests.fuzz.generate import Options, generate
from tests.fuzz.judge import BROKEN, CRASH, STUCK, told
from tests.fuzz.overflow import RuleFailed
from tests.fuzz.program import Program
from tests.fuzz.reduce import reduce
from tests.fuzz.report import sendable

#: A program that takes longer has no answer.
PATIENCE = 60.0
#: Programs that one process checks before another takes its place.
LIFE = 1500


@dataclass(frozen=True)
class Job:
    options: Options
    compiler: str
    device: str
    reduce_seconds: float
    threads: int = 1


@dataclass(frozen=True)
class Result:
    """What became of one seed."""

    seed: int
    finding: Finding | None
    program: Program | None = None
    fallbacks: tuple[str, ...] = ()
    broke: bool = False
    raised: bool = False
    left_out: bool = False


def _work(job: Job, seeds: list[int], connection: Connection) -> None:
    torch.set_num_threads(job.threads)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    compiler = COMPILERS[job.compiler]()
    for seed in seeds:
        connection.send(("began", seed))
        program = None
        try:
            program = generate(seed, job.options)
            result = _result(job, seed, program, compiler, connection)
            connection.send(("done", result))
            if result.finding is not None and is_lost(result.finding.detail):
                break
        except DeviceLost:
            connection.send(("done", Result(seed, None, left_out=True)))
            break
        except (Exception, RuleFailed) as error:  # in the fuzzer's own code: other seeds go on
            at = traceback.extract_tb(error.__traceback__)[-1]
            where = f"{os.path.basename(at.filename)}:{at.lineno}"
            sent = sendable(program) if program is not None else None
            connection.send(("done", Result(seed, Finding(BROKEN, where, told(error), 0), sent)))
            if is_lost(error):
                break
    connection.send(("over",))


def _result(job: Job, seed: int, program: Program, compiler: Any, connection: Connection) -> Result:
    """What becomes of one seed. A finding is sent before it is reduced, which may end the process."""
    report = check(program, compiler, job.device)
    finding = report.finding
    if finding is not None and not is_lost(finding.detail):
        connection.send(("found", seed, finding))
        kept = replace(program, calls=program.calls[: finding.call + 1])

        def fails(candidate: Program) -> bool:
            found = check(candidate, compiler, job.device).finding
            return found is not None and found.kind == finding.kind

        if fails(kept):
            program = reduce(kept, fails, job.reduce_seconds)
            again = check(program, compiler, job.device).finding
            finding = again or finding
    sent = sendable(program) if finding is not None else None
    return Result(seed, finding, sent, report.fallbacks, bool(report.breaks), bool(report.raised), report.left_out)


def _context(job: Job) -> Any:
    """How processes start: a fork has everything loaded, but may not use a GPU that this process has looked at."""
    return multiprocessing.get_context("fork" if job.device == "cpu" else "spawn")


class _Process:
    def __init__(self, job: Job, seeds: list[int]) -> None:
        context = _context(job)
        self.connection, theirs = context.Pipe()
        self.process = context.Process(target=_work, args=(job, seeds, theirs), daemon=True)
        self.process.start()
        theirs.close()
        self.left = list(seeds)
        self.since = time.monotonic()
        self.found: Finding | None = None

    def end(self) -> None:
        self.process.kill()
        self.process.join(10)  # a GPU's driver may hold it


def run(job: Job, seeds: Iterator[int], processes: int, until: float) -> Iterator[Result]:
    """Results of seeds as they come, until that time (of `time.monotonic`) or the seeds' end."""
    running: list[_Process] = []

    def start() -> None:
        share = [seed for _, seed in zip(range(LIFE), seeds)]
        if share and time.monotonic() < until:
            running.append(_Process(job, share))

    for _ in range(processes):
        start()
    try:
        while running:
            ready = wait([each.connection for each in running], timeout=1.0)
            for each in list(running):
                ended: Any = None
                if each.connection in ready:
                    try:
                        message = each.connection.recv()
                    except (EOFError, ConnectionResetError):
                        message = ("crashed",)
                    if message[0] == "began":
                        each.since, each.found = time.monotonic(), None
                        if time.monotonic() > until:
                            each.left = []
                            ended = ()
                    elif message[0] == "found":
                        each.found = message[2]
                        each.since = time.monotonic() + job.reduce_seconds
                    elif message[0] == "done":
                        each.left = [seed for seed in each.left if seed != message[1].seed]
                        yield message[1]
                    elif message[0] == "over":
                        ended = ()
                    else:
                        each.process.join(5)
                        ended = (CRASH, f"exit status {each.process.exitcode}")
                elif time.monotonic() - each.since > PATIENCE:
                    ended = (STUCK, f"no answer in {PATIENCE:.0f} s")
                if ended is not None:
                    each.end()
                    running.remove(each)
                    if ended and each.left:
                        seed = each.left.pop(0)
                        began = time.monotonic()
                        of_eager = _fate(_check_eager, seed, job) if each.found is None else ""
                        for other in running:  # whose messages were not read meanwhile
                            other.since += time.monotonic() - began
                        if of_eager == ended[0]:
                            yield Result(seed, None, left_out=True)  # eager itself crashes, or never ends
                        else:
                            # A crash while a finding is reduced: the finding stands as it was generated.
                            finding = each.found or Finding(ended[0], "process", ended[1], 0)
                            yield Result(seed, finding, _reduced_outside(seed, job, finding))
                    if each.left and time.monotonic() < until:
                        running.append(_Process(job, each.left))
                    else:
                        start()
    finally:
        for each in running:
            each.end()


def _reduced_outside(seed: int, job: Job, finding: Finding) -> Program | None:
    """Reduced with a process for each candidate. To generate and to reduce programs runs them eagerly, which may crash:
    that is a process of its own, too; what it found until then stands."""
    receiver, sender = _context(job).Pipe(duplex=False)
    process = _context(job).Process(target=_send_reduced, args=(sender, seed, job, finding.kind == CRASH))
    process.start()
    sender.close()
    found, until = None, time.monotonic() + 4 * job.reduce_seconds + 2 * PATIENCE
    try:
        while receiver.poll(max(0.0, until - time.monotonic())):
            found = receiver.recv()
    except EOFError:
        pass
    process.kill()
    process.join()
    return found


def _send_reduced(sender: Connection, seed: int, job: Job, is_crash: bool) -> None:
    """Sends the program, and each smaller one that crashes like it."""
    program = generate(seed, job.options)
    sender.send(sendable(program))

    def fails(candidate: Program) -> bool:
        found = dies(candidate, job)
        if found:
            sender.send(sendable(candidate))
        return found

    if is_crash:
        reduce(program, fails, 4 * job.reduce_seconds)


def dies(program: Program, job: Job) -> bool:
    """Whether a process that checks the program ends by a signal."""
    return _fate(_check_quietly, program, job) == CRASH


def _fate(target: Callable, what: Any, job: Job) -> str:
    """What becomes of a process that runs `target`: CRASH if it ends by a signal, STUCK if it does not end, else ""."""
    process = _context(job).Process(target=target, args=(what, job), daemon=True)
    process.start()
    process.join(PATIENCE)
    if process.exitcode is None:
        process.kill()
        process.join()
        return STUCK
    return CRASH if process.exitcode < 0 else ""


def _check_quietly(program: Program, job: Job) -> None:
    torch.set_num_threads(job.threads)
    try:
        check(program, COMPILERS[job.compiler](), job.device)
    except Exception:
        pass


def _check_eager(seed: int, job: Job) -> None:
    _check_quietly(generate(seed, job.options), replace(job, compiler="eager"))


__all__ = ["Callable", "Job", "Result", "run"]

"""What a process was given: closed streams, no file descriptors, tracing and profiling tools, other processes."""

from __future__ import annotations

import os
import resource
import sys
import threading

import torch

from tests.faults.cases import case
from tests.faults.support import check, check_clean, compiled, counted_warnings, make


@case(seconds=60)
def closed_streams(seed: int) -> None:
    """Standard output and error are closed, as in a daemon, or None."""
    output, error = os.dup(1), os.dup(2)
    for how in ("closed", "none"):
        if how == "closed":
            os.close(1)
            os.close(2)
        else:
            sys.stdout = sys.stderr = None  # type: ignore[assignment]
        try:
            check(compiled(make(1), stored=True), make(1))
            check(compiled(make(2)), make(2))
        finally:
            os.dup2(output, 1)
            os.dup2(error, 2)
            sys.stdout, sys.stderr = sys.__stdout__, sys.__stderr__


@case(seconds=90, quick=True)
def no_file_descriptors(seed: int) -> None:
    """All file descriptors are in use, before the first compile and after."""
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    torch.testing.assert_close(torch.ones(1), torch.ones(1))  # imports what it needs
    for turn in range(2):
        made = compiled(make(turn), stored=True)
        resource.setrlimit(resource.RLIMIT_NOFILE, (64, limits[1]))
        taken = []
        try:
            while True:
                taken.append(os.open("/dev/null", os.O_RDONLY))
        except OSError:
            pass
        try:
            with counted_warnings(2):  # the cache's, the compiler's
                check(made, make(turn))
                check(made, make(turn))
        finally:
            for each in taken:
                os.close(each)
            resource.setrlimit(resource.RLIMIT_NOFILE, limits)
        check(compiled(make(turn + 2), stored=True), make(turn + 2))
    check_clean()


@case(seconds=90, quick=True)
def traced_and_profiled(seed: int) -> None:
    """A tracer and a profiler written in Python, as debuggers and coverage set them, see no difference in results."""
    counts = {"traced": 0, "profiled": 0}

    def trace(frame, event, argument):
        counts["traced"] += 1
        return trace

    def profile(frame, event, argument):
        counts["profiled"] += 1

    for install, tool, read in ((sys.settrace, trace, sys.gettrace), (sys.setprofile, profile, sys.getprofile)):
        made = compiled(make(1))
        install(tool)
        try:
            check(made, make(1))
            check(made, make(1))
            x = torch.randn(3, 3, requires_grad=True)
            made(x, []).sum().backward()
            assert read() is tool
        finally:
            install(None)
        check(made, make(1))
    assert all(counts.values())
    check_clean()


@case(seconds=120)
def profiled_by_torch(seed: int) -> None:
    """The first profile of a process with stacks, in several threads."""
    from torch.profiler import ProfilerActivity, profile

    for turn in range(2):
        with profile(activities=[ProfilerActivity.CPU], with_stack=True, record_shapes=True) as taken:
            threads = [
                threading.Thread(target=lambda n=n: check(compiled(make(n)), make(n)))
                for n in range(turn * 3, turn * 3 + 3)
            ]
            for thread in threads:
                thread.start()
            check(compiled(make(9 + turn), stored=True), make(9 + turn))
            for thread in threads:
                thread.join()
        assert all(event.name.isprintable() for event in taken.events())
    check_clean()


def _rank(rank: int, port: int) -> None:
    import torch.distributed as dist
    import torch.distributed.nn as through

    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    dist.init_process_group("gloo", rank=rank, world_size=2)
    weight = torch.full((4,), 2.0, requires_grad=True)

    def written(x, notes):
        y = x * 2
        dist.all_reduce(y)
        return y + dist.get_rank()

    def gradients(x, notes):
        return torch.autograd.grad(through.all_reduce((x * weight).sin()).sum(), weight)[0]

    def imports(x, notes):
        import torch.distributed.nn

        return x + torch.distributed.get_world_size()

    for function in (written, gradients, imports):
        made = compiled(function)
        for _ in range(2):
            check(made, function, torch.arange(4.0) + rank)
    dist.destroy_process_group()


@case(seconds=150)
def two_processes_that_talk(seed: int) -> None:
    """Collectives of `torch.distributed`, with gradients, between two processes."""
    import socket

    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port = found.getsockname()[1]
    torch.multiprocessing.spawn(_rank, (port,), nprocs=2)

"""The shortest run that shows whether programs on a GPU work, and what their calls cost the host.

    python -m tests.gpu.smoke            about a minute; exit status 1 if a check failed

Checks come first, each on its own; figures after them. Compiling is checked in processes of their own: cold, and again
from what the first one stored.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import traceback

os.environ.setdefault("LAMPWORK_STRICT", "1")
import torch

import lampwork

PLAIN = "max-autotune-no-cudagraphs"


def compiled(function, mode=PLAIN):
    return lampwork.compile(function, mode=mode, options={"cache": False})


def add_mul(x):
    return x.add(1).mul(2)


def rows(x, y):
    z = torch.softmax(x * 2 + y, -1)
    return torch.nn.functional.layer_norm(z, (z.shape[-1],)), z.sum(0), z.amax()


def product(x, y):
    return torch.relu(torch.relu(x) @ y + 1)


def write(x, y):
    x.mul_(2)
    y.add_(x)
    return x.sum()


def block(x, first, second):
    for _ in range(4):
        z = torch.nn.functional.layer_norm(x, (x.shape[-1],))
        x = x + torch.nn.functional.gelu(z @ first) @ second
    return torch.softmax(x, -1)


def agree(function, *args, **tolerance):
    ours, copies = compiled(function), [each.clone() for each in args]
    with torch.no_grad():
        for _ in range(2):
            torch.testing.assert_close(ours(*args), function(*copies), **tolerance)
            torch.testing.assert_close(args, tuple(copies), **tolerance)
    stats = lampwork.stats(ours)
    assert stats["native_kernels"] and not list(stats["fallbacks"]), stats
    return ours


def check_pointwise():
    for shape in ((8,), (1000,), (3, 1025), (4096, 4096)):
        for dtype in (torch.float32, torch.float16, torch.bfloat16, torch.float64, torch.int64):
            agree(add_mul, torch.ones(shape, device="cuda").to(dtype))


def check_rows():
    for shape in ((64, 128), (7, 300), (33, 5000), (2, 100_000)):
        agree(rows, torch.randn(shape, device="cuda"), torch.randn(shape, device="cuda"), rtol=1e-4, atol=1e-4)


def check_products():
    agree(product, torch.randn(64, 32, device="cuda"), torch.randn(32, 48, device="cuda"), rtol=1e-4, atol=1e-4)


def check_writes():
    agree(write, torch.randn(64, 33, device="cuda"), torch.randn(64, 33, device="cuda"), rtol=1e-4, atol=1e-4)


def check_alignment():
    store, other = torch.randn(4099, device="cuda"), torch.randn(4099, device="cuda")
    ours, write_ours = compiled(add_mul), compiled(write)
    with torch.no_grad():
        for offset in (0, 1, 2, 3, 4, 0):
            torch.testing.assert_close(ours(store[offset : offset + 4095]), add_mul(store[offset : offset + 4095]))
            mine, theirs = store.clone(), store.clone()
            mine_too, theirs_too = other.clone(), other.clone()
            total = write_ours(mine[offset : offset + 4095], mine_too[1:4096])
            expected = write(theirs[offset : offset + 4095], theirs_too[1:4096])  # a sum in another order
            torch.testing.assert_close(total, expected, rtol=1e-4, atol=1e-4)
            torch.testing.assert_close((mine, mine_too), (theirs, theirs_too))
    assert not list(lampwork.stats(ours)["fallbacks"])


def check_threads():
    """A call is the first thing that a thread does with the device."""
    x, ours, found = torch.randn(1 << 20, device="cuda"), compiled(add_mul), []
    with torch.no_grad():
        ours(x)

    def call():
        with torch.no_grad():
            found.append(ours(x))

    threads = [threading.Thread(target=call) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 8
    for each in found:
        torch.testing.assert_close(each, add_mul(x))


def check_streams():
    x, y = torch.randn(2048, 2048, device="cuda"), torch.randn(2048, 2048, device="cuda")
    ours, streams, found = compiled(product), [torch.cuda.Stream() for _ in range(3)], []
    with torch.no_grad():
        ours(x, y)
        torch.cuda.synchronize()
        for turn in range(9):
            with torch.cuda.stream(streams[turn % 3]):
                torch.cuda._sleep(5_000_000)
                found.append((turn, ours(x + turn, y)))
        torch.cuda.synchronize()
        for turn, each in found:
            torch.testing.assert_close(each, product(x + turn, y), rtol=1e-3, atol=1e-2)


def check_memory_error():
    def grow(x):
        return torch.relu(x.reshape(-1, 1) * x.reshape(1, -1)) + 1

    ours = compiled(grow)
    with torch.no_grad():
        for size in (8, 400_000, 16):
            x = torch.ones(size, device="cuda")
            try:
                assert ours(x).shape == (size, size) and size < 1000
            except torch.cuda.OutOfMemoryError:
                assert size > 1000
    assert torch.cuda.memory_allocated() < 1 << 30


def check_graphs():
    x, y = torch.randn(256, 256, device="cuda"), torch.randn(256, 256, device="cuda")
    ours = compiled(product, "reduce-overhead")
    with torch.no_grad():
        for _ in range(6):
            x = torch.randn(256, 256, device="cuda")
            torch.testing.assert_close(ours(x, y), product(x, y), rtol=1e-3, atol=1e-3)


def check_warm_start():
    """A second process runs what the first one stored, without any compiler."""
    with tempfile.TemporaryDirectory() as folder:
        environment = {**os.environ, "LAMPWORK_CACHE_DIR": folder}
        for turn in ("cold", "warm"):
            command = [sys.executable, "-m", "tests.gpu.smoke", turn]
            ended = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)
            print(ended.stdout.rstrip(), ended.stderr[-2000:])
            assert ended.returncode == 0


def start(turn):
    """In a process of its own: the first call, timed."""
    args = (
        torch.randn(128, 256, device="cuda"),
        torch.randn(256, 512, device="cuda"),
        torch.randn(512, 256, device="cuda"),
    )
    torch.relu(args[0]).sum().item()
    args[0] @ args[1]
    torch.cuda.synchronize()
    with torch.no_grad():
        before = time.perf_counter()
        ours = lampwork.compile(block)
        result = ours(*args)
        torch.cuda.synchronize()
        seconds = time.perf_counter() - before
        torch.testing.assert_close(result, block(*args), rtol=1e-3, atol=1e-3)
    stages = {name: round(each, 3) for name, each in lampwork.stats(ours)["compile_seconds"].items()}
    print(f"{turn} start {seconds:.3f} s, kernels {lampwork.stats(ours)['native_kernels']}, stages {stages}")
    loaded = [name for name in ("triton", "llvmlite", "lampwork.capture", "lampwork.pipeline") if name in sys.modules]
    if turn == "warm":
        assert not loaded, loaded
        assert lampwork.stats(ours)["cache_hits"] == 1


def microseconds(call, calls, rounds=7):
    """Host time of one call: no wait for the device in between."""
    times = []
    for _ in range(rounds):
        torch.cuda.synchronize()
        before = time.perf_counter()
        for _ in range(calls):
            call()
        times.append((time.perf_counter() - before) / calls * 1e6)
    torch.cuda.synchronize()
    return statistics.median(times)


def several(*tensors):
    return [each * 2 + 1 for each in tensors]


def figures():
    with torch.no_grad():
        for count in (1, 5, 20):
            tensors = [torch.randn(64 + 16 * i, 33, device="cuda") for i in range(count)]
            ours = compiled(several)
            ours(*tensors)
            kernels = lampwork.stats(ours)["launches"] if "launches" in lampwork.stats(ours) else "?"
            eager = microseconds(lambda: several(*tensors), 300 // count)
            mine = microseconds(lambda: ours(*tensors), 900 // count)
            print(f"{count} results: host {mine:.1f} us a call ({kernels} launches), eager {eager:.1f} us")
        x, y = torch.randn(64, 64, device="cuda"), torch.randn(64, 64, device="cuda")
        ours = compiled(product)
        ours(x, y)
        print(f"product: host {microseconds(lambda: ours(x, y), 200):.1f} us, eager "
              f"{microseconds(lambda: product(x, y), 200):.1f} us")  # fmt: skip
        for megabytes in (16, 256):
            x = torch.randn(megabytes << 18, device="cuda")
            ours = compiled(add_mul)
            for name, call in (("aligned", lambda: ours(x)), ("copied", lambda: ours(x[1:-3]))):
                call()
                begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
                begin.record()
                for _ in range(20):
                    call()
                end.record()
                end.synchronize()
                ms = begin.elapsed_time(end) / 20
                print(f"{megabytes} MiB pointwise, {name}: {ms:.3f} ms, {2 * x.nbytes / ms / 1e6:.0f} GB/s")
    compile_figures()


def compile_figures():
    """Milliseconds for kernels that were never compiled before, on processes just started and then on warm ones."""
    import dataclasses

    from lampwork.codegen.triton import compile as compiling
    from lampwork.codegen.triton import pool
    from tests.unit.codegen.triton.test_compile import KERNEL, TEXT

    compiling.environment = dataclasses.replace(compiling.environment, cache=False)
    major, minor = torch.cuda.get_device_capability()
    number = iter(range(10**6))

    def batch(count):
        texts = [TEXT.replace("3.0", f"{next(number)}.5") for _ in range(count)]
        return [dataclasses.replace(KERNEL, source=text, arch=f"sm_{major}{minor}") for text in texts]

    pool.stop()
    for what, count in (("cold processes", 24), ("warm processes", 24), ("warm processes", 1), ("warm processes", 100)):
        before = time.perf_counter()
        compiling.compile_kernels(batch(count))
        print(f"{what}: {count} kernels {(time.perf_counter() - before) * 1e3:.0f} ms")
    pool.stop()
    compiling.environment = dataclasses.replace(compiling.environment, compile_workers=0)
    for what, count in (("first in this process", 1), ("threads", 24)):
        before = time.perf_counter()
        compiling.compile_kernels(batch(count))
        print(f"{what}: {count} kernels {(time.perf_counter() - before) * 1e3:.0f} ms")


def main():
    print(torch.__version__, torch.cuda.get_device_name(), f"{os.cpu_count()} cores", flush=True)
    failed = 0
    checks = [(name, each) for name, each in globals().items() if name.startswith("check_")]
    for name, each in [*checks, ("figures", figures)]:
        before = time.perf_counter()
        try:
            each()
            verdict = "ok"
        except Exception:
            failed += 1
            traceback.print_exc()
            verdict = "FAILED"
        sys.stderr.flush()
        print(f"{name}: {verdict}, {time.perf_counter() - before:.2f} s", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    if len(sys.argv) > 1:
        start(sys.argv[1])
        sys.exit(0)
    sys.exit(main())

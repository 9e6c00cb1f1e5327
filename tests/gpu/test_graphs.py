"""CUDA graphs are safe: nothing that a caller can do with outputs, inputs and weights shows that they are there.

Every test makes more calls than a graph needs to be captured and replayed, and compares with eager at its end.
"""

from __future__ import annotations

import gc
import threading

import pytest
import torch

import lampwork
from tests.gpu.support import Block, assert_close, assert_compiled, compiled_of, in_double

CALLS = 8


@pytest.fixture
def block(device):
    return Block().to(device).eval()


def rows(device, count=CALLS, width=64):
    generator = torch.Generator().manual_seed(3)
    return [torch.randn(16, width, generator=generator).to(device) for _ in range(count)]


def test_outputs_kept_over_many_calls(block, device):
    compiled = compiled_of(block, "reduce-overhead")
    inputs = rows(device, 40)
    with torch.no_grad():
        kept = [compiled(x) for x in inputs]
        copies = [output.clone() for output in kept]
        for _ in range(3):
            compiled(inputs[0])
        assert all(torch.equal(output, copy) for output, copy in zip(kept, copies))
        for x, output in zip(inputs, kept):
            assert_close(output, block(x), in_double(block, x))
    assert_compiled(compiled)


def test_some_outputs_kept_and_some_dropped(block, device):
    """Memory of dropped outputs is used again; that of kept ones never."""
    compiled = compiled_of(block, "reduce-overhead")
    inputs = rows(device, 30)
    kept = {}
    with torch.no_grad():
        for number, x in enumerate(inputs):
            output = compiled(x)
            if number % 3 == 0:
                kept[number] = (output, output.clone())
            if number % 9 == 8:
                kept.pop(number - 8)
        for number, (output, copy) in kept.items():
            assert torch.equal(output, copy), number
            assert_close(output, block(inputs[number]), in_double(block, inputs[number]))


def test_a_view_keeps_its_output(block, device):
    compiled = compiled_of(block, "reduce-overhead")
    inputs = rows(device)
    with torch.no_grad():
        views = [compiled(x)[3:5].t() for x in inputs]
        gc.collect()
        for x, view in zip(inputs, views):
            assert_close(view, block(x)[3:5].t(), in_double(block, x)[3:5].t())


def test_outputs_fed_back_as_inputs(block, device):
    compiled = compiled_of(block, "reduce-overhead")
    x = rows(device, 1)[0] / 8
    with torch.no_grad():
        ours = eager = x
        for _ in range(CALLS):
            ours, eager = compiled(ours), block(eager)
        double = x.double()
        module = Block().to(device).double()
        module.load_state_dict(block.state_dict())
        for _ in range(CALLS):
            double = module(double)
    assert_close(ours, eager, double)
    assert_compiled(compiled)


def test_the_same_output_written_by_the_caller(block, device):
    """An output belongs to its caller, who may write to it; the next call does not see it."""
    compiled = compiled_of(block, "reduce-overhead")
    x = rows(device, 1)[0]
    with torch.no_grad():
        expected = block(x)
        for _ in range(CALLS):
            output = compiled(x)
            assert_close(output, expected, in_double(block, x))
            output.fill_(float("nan"))


def test_inputs_at_changing_and_unchanged_addresses(block, device):
    compiled = compiled_of(block, "reduce-overhead")
    fixed, others = rows(device, 1)[0], rows(device)
    with torch.no_grad():
        for x in others:
            fixed.copy_(x)
            assert_close(compiled(fixed), block(x), in_double(block, x))
            assert_close(compiled(x.clone()), block(x), in_double(block, x))


@pytest.mark.parametrize("how", ["in place", "replaced", "loaded", "buffer"])
def test_changed_weights_are_seen(block, device, how):
    compiled = compiled_of(block, "reduce-overhead")
    x = rows(device, 1)[0]
    with torch.no_grad():
        for step in range(CALLS):
            assert_close(compiled(x), block(x), in_double(block, x))
            if how == "in place":
                block.inner.weight.mul_(0.9)
            elif how == "replaced":
                block.inner.weight = torch.nn.Parameter(block.inner.weight * 0.9)
            elif how == "loaded":
                block.load_state_dict({name: value * 0.9 for name, value in block.state_dict().items()})
            else:
                block.shift = block.shift + 0.5


def test_two_compiled_modules_interleaved(device):
    """Entries may share a memory pool; an output of one that is held is never given to the other."""
    first, second = Block().to(device).eval(), Block().to(device).eval()
    ours = [compiled_of(module, "reduce-overhead") for module in (first, second)]
    inputs = rows(device, 20)
    kept = []
    with torch.no_grad():
        for x in inputs:
            held = ours[0](x)
            both = ours[1](held)
            kept.append((held, both))
        for x, (held, both) in zip(inputs, kept):
            middle = first(x)
            assert_close(held, middle, in_double(first, x))
            assert_close(both, second(middle), in_double(second, in_double(first, x).float()))
    for compiled, captures in zip(ours, (1, 0)):  # equal modules share what was captured
        assert_compiled(compiled, captures)


def test_two_shapes_in_turn(block, device):
    compiled = compiled_of(block, "reduce-overhead")
    shapes = [torch.randn(rows, 64, device=device) for rows in (16, 5)]
    kept = []
    with torch.no_grad():
        for _ in range(CALLS):
            kept.append([compiled(x) for x in shapes])
        for outputs in kept:
            for x, output in zip(shapes, outputs):
                assert_close(output, block(x), in_double(block, x))


def test_two_streams(cuda, device):
    """Two modules each on a stream of its own, and one module on both streams in turn."""
    module = Block(256).to(device).eval()
    compiled = compiled_of(module, "reduce-overhead")
    streams = [torch.cuda.Stream(), torch.cuda.Stream()]
    inputs = [torch.randn(512, 256, device=device) for _ in range(12)]
    torch.cuda.synchronize()
    kept = []
    with torch.no_grad():
        for number, x in enumerate(inputs):
            with torch.cuda.stream(streams[number % 2]):
                kept.append(compiled(x))
        torch.cuda.synchronize()
        for x, output in zip(inputs, kept):
            assert_close(output, module(x), in_double(module, x))


@pytest.mark.parametrize("mode", ["default", "reduce-overhead"])
def test_two_threads(device, mode):
    module = Block().to(device).eval()
    compiled = compiled_of(module, mode)
    inputs = rows(device, 24)
    outputs: dict[int, torch.Tensor] = {}
    errors: list[BaseException] = []

    def work(part):
        try:
            with torch.no_grad():
                for number in range(part, len(inputs), 2):
                    outputs[number] = compiled(inputs[number])
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(part,)) for part in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert not errors, errors
    with torch.no_grad():
        for number, x in enumerate(inputs):
            assert_close(outputs[number], module(x), in_double(module, x))


def test_what_a_graph_cannot_hold_still_runs(device):
    """A CPU operator in the middle, and a value read back: compiled or eager, never wrong."""

    def program(x):
        y = torch.sin(x) + 1
        scale = y.sum().cpu() * 0.5
        return y * scale.to(x.device)

    compiled = compiled_of(program, "reduce-overhead")
    with torch.no_grad():
        for x in rows(device):
            assert_close(compiled(x), program(x), in_double(program, x))


def test_dropout_draws_anew_in_every_call(device):
    """A replayed graph must not repeat its random numbers."""

    def program(x):
        return torch.nn.functional.dropout(x * 2, 0.5, training=True)

    compiled = compiled_of(program, "reduce-overhead")
    x = torch.ones(64, 64, device=device)
    with torch.no_grad():
        outputs = [compiled(x) for _ in range(CALLS)]
    for number, output in enumerate(outputs):
        assert set(output.unique().tolist()) == {0.0, 4.0}
        assert 0.4 < float((output == 0).float().mean()) < 0.6
        assert not any(torch.equal(output, other) for other in outputs[:number])


def test_reset_gives_memory_back(cuda, device):
    torch.cuda.synchronize()
    gc.collect()
    torch.cuda.empty_cache()
    before = torch.cuda.memory_reserved()
    module = Block(512).to(device).eval()
    compiled = compiled_of(module, "reduce-overhead")
    x = torch.randn(65536, 512, device=device)
    with torch.no_grad():
        for _ in range(CALLS):
            compiled(x)
    del compiled, module, x
    lampwork.reset()
    gc.collect()
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    assert torch.cuda.memory_reserved() - before <= 128 * 2**20  # the libraries' workspaces stay


@pytest.mark.parametrize("threads", [False, True])
def test_a_librarys_workspace_is_taken_away(threads, cuda, device):
    """PyTorch's own CUDA graphs clear the map of cuBLAS's workspaces. A graph that was captured with one goes on to
    write there: nobody else has got the memory. So it is where another thread kept ours from clearing the map."""
    stop = threading.Event()
    other = threading.Thread(target=lambda: [sum(range(1000)) for _ in iter(stop.is_set, True)])
    if threads:
        other.start()
    try:
        x, weight = (torch.randn(*shape, device=device) for shape in ((64, 16384), (16384, 64)))  # sums cut in parts
        compiled = compiled_of(lambda x, weight: torch.relu(x @ weight), "reduce-overhead")
        with torch.no_grad():
            for _ in range(CALLS):
                compiled(x, weight)
            (graphs,) = lampwork.stats(compiled)["cuda_graphs"]
            assert graphs["refused"] is None and graphs["captures"] > 0
            torch._C._cuda_clearCublasWorkspaces()
            others = [torch.full((2 << 20,), 7.0, device=device) for _ in range(40)]
            for _ in range(CALLS):
                result = compiled(x, weight)
            assert all(bool((each == 7).all()) for each in others)
            assert_close(result, torch.relu(x @ weight), torch.relu(x.double() @ weight.double()))
    finally:
        stop.set()
    if threads:
        other.join()


def test_graphs_of_the_programs_own_keep_their_workspaces(cuda, device):
    """A graph that was not captured here may have any workspace that ATen knows of: then the map stays as it is."""
    x, weight = (torch.randn(*shape, device=device) for shape in ((64, 16384), (16384, 64)))
    stream, result = torch.cuda.Stream(), torch.empty(64, 64, device=device)
    with torch.cuda.stream(stream):
        torch.mm(x, weight, out=result)
    torch.cuda.synchronize()
    theirs = torch.cuda.CUDAGraph()
    with torch.cuda.graph(theirs, stream=stream):
        torch.mm(x, weight, out=result)
    compiled = compiled_of(lambda x: torch.relu(x @ x.t()), "reduce-overhead")
    with torch.no_grad():
        for _ in range(CALLS):
            compiled(x)
    assert lampwork.stats(compiled)["cuda_graphs"][0]["captures"] > 0
    with torch.cuda.stream(stream):  # where their workspace came from
        others = [torch.full((2 << 20,), 7.0, device=device) for _ in range(40)]
        theirs.replay()
    torch.cuda.synchronize()
    assert all(bool((each == 7).all()) for each in others)
    assert_close(result, x @ weight, x.double() @ weight.double())


def test_graphs_after_all_others_are_gone(cuda, device):
    """The last graph takes its pool with it; the next ones have another, and what was handed out stays."""
    x, kept = rows(device, 1)[0], []
    for _ in range(3):
        module = Block().to(device).eval()
        compiled = compiled_of(module, "reduce-overhead")
        with torch.no_grad():
            outputs = [compiled(x) for _ in range(CALLS)]
            expected = module(x)
            assert_close(outputs[-1], expected, in_double(module, x))
        (graphs,) = lampwork.stats(compiled)["cuda_graphs"]
        assert graphs["refused"] is None and graphs["captures"] > 0
        kept.append((outputs[-1], outputs[-1].clone()))
        del compiled, module, outputs
        lampwork.reset()
        gc.collect()
    assert all(torch.equal(output, copy) for output, copy in kept)


def test_captures_share_what_they_use_in_passing(cuda, device):
    """ATen's own buffers, too: of many modules that run by turns, all but the first need next to no memory of their
    own, and each result stays what it was."""

    def module():
        layers = [torch.nn.Conv2d(16, 16, 3, padding=1) for _ in range(4)]
        return torch.nn.Sequential(*layers, torch.nn.AdaptiveAvgPool2d(1)).to(device).eval()

    gc.collect()
    torch.cuda.empty_cache()
    x = torch.randn(32, 16, 128, 128, device=device)
    modules, taken, kept = [], [], []
    for _ in range(3):
        modules.append(module())
        compiled = compiled_of(modules[-1], "reduce-overhead")
        with torch.no_grad():
            results = [compiled(x) for _ in range(CALLS)]
        kept += [(result, result.clone()) for result in results]
        (graphs,) = lampwork.stats(compiled)["cuda_graphs"]
        assert graphs["refused"] is None and graphs["captures"] == 3
        segments = [each for each in torch.cuda.memory_snapshot() if tuple(each["segment_pool_id"]) != (0, 0)]
        taken.append(sum(each["total_size"] for each in segments))
        modules[-1] = (modules[-1], compiled)
    assert taken[2] - taken[0] <= x.nbytes, taken
    for result, copy in kept:
        assert torch.equal(result, copy)
    with torch.no_grad():
        for eager, compiled in modules:
            torch.testing.assert_close(compiled(x), eager(x), rtol=1e-2, atol=1e-3)


def test_what_an_earlier_capture_uses_in_passing_is_no_later_ones_result(device):
    """A program with a large workspace and a small result is captured first; results of one that is captured later are
    held while the first is replayed."""
    tall = torch.randn(4096, 64, device=device)
    inputs = rows(device, CALLS, 1024)

    def passing(x):
        y = x
        for _ in range(4):
            y = torch.softmax(y @ y.t() / 64, -1) @ y
        return y.sum()

    def results(x):
        return [x + number for number in range(64)]

    first, second = compiled_of(passing, "reduce-overhead"), compiled_of(results, "reduce-overhead")
    with torch.no_grad():
        for _ in range(4):
            first(tall)
        for x in inputs:
            held = second(x)
            first(tall)
            for number, each in enumerate(held):
                assert torch.equal(each, x + number)

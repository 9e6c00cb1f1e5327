"""Several GPUs in one process: each program runs on the device of its tensors, whichever is the current one."""

from __future__ import annotations

import copy
import threading

import pytest
import torch
from torch.nn import functional

import lampwork
from tests.gpu.support import Block, assert_close, assert_compiled, compiled_of, in_double

MODES = pytest.mark.parametrize("mode", ["default", "reduce-overhead"])


@pytest.fixture(autouse=True)
def two(cuda):
    if torch.cuda.device_count() < 2:
        pytest.skip("needs two GPUs")
    torch.cuda.set_device(0)
    yield
    assert torch.cuda.current_device() == 0, "a call left another device current"


@MODES
def test_one_module_on_each_device_in_turn(mode):
    """Equal modules share code, not memory: results of both, kept over all calls, stay what they were."""
    modules = [Block(64).to(f"cuda:{index}").eval() for index in range(2)]
    compiled = [compiled_of(module, mode) for module in modules]
    kept = []
    with torch.no_grad():
        for step in range(6):
            for module, ours in zip(modules, compiled):
                device = next(module.parameters()).device
                x = torch.randn(8, 64, device=device) + step
                result = ours(x)
                assert result.device == device
                kept.append((result, module(x), in_double(module, x)))
    for result, expected, reference in kept:
        assert_close(result, expected, reference)
    for ours in compiled:
        assert_compiled(ours)


@MODES
def test_a_function_with_tensors_of_either_device(mode):
    """One function, an entry for each device."""

    def program(x):
        return functional.gelu(x * 2 + 1).softmax(-1)

    compiled = compiled_of(program, mode)
    with torch.no_grad():
        for _ in range(5):
            for index in (1, 0):
                x = torch.randn(32, 128, device=f"cuda:{index}")
                assert_close(compiled(x), program(x), in_double(program, x))
    assert lampwork.stats(compiled)["captures"] == 2


@MODES
@pytest.mark.parametrize("current", [0, 1])
def test_a_device_without_a_number_is_the_current_one(mode, current):
    """`device="cuda"` means what it means in eager at each call, also of an entry compiled under another device."""

    def program(x):
        return torch.arange(x.shape[0], device="cuda", dtype=x.dtype) + 1

    compiled = compiled_of(program, mode)
    for each in (current, 1 - current, current, 1 - current):
        with torch.cuda.device(each):
            found = compiled(torch.ones(5))
        assert found.device.index == each and found.tolist() == [1.0, 2.0, 3.0, 4.0, 5.0]


@MODES
def test_a_module_that_moves(mode):
    module = Block(64).to("cuda:0").eval()
    compiled = compiled_of(module, mode)
    with torch.no_grad():
        for index in (0, 1, 0, 1):
            module.to(f"cuda:{index}")
            for _ in range(3):
                x = torch.randn(8, 64, device=f"cuda:{index}")
                assert_close(compiled(x), module(x), in_double(module, x))
    assert list(lampwork.stats(compiled)["fallbacks"]) == []


@MODES
def test_streams_of_the_other_device(mode):
    """The stream that is current on the tensors' device counts, not that of the current device."""

    def program(x):
        return functional.gelu(x * 2 + 1) - x

    compiled = compiled_of(program, mode)
    stream = torch.cuda.Stream(device=1)
    x = torch.randn(1024, 1024, device="cuda:1")
    with torch.no_grad():
        for _ in range(4):
            compiled(x)
        torch.cuda.synchronize(1)
        with torch.cuda.device(1), torch.cuda.stream(stream):
            torch.cuda._sleep(20_000_000)
            later = x * 3
            with torch.cuda.device(0):
                found = compiled(later)
        stream.synchronize()
        assert_close(found, program(x * 3), in_double(lambda each: program(each * 3), x))


@MODES
def test_draws_are_of_the_tensors_device(mode):
    """Dropout on one device leaves the other's generator alone and advances its own."""
    compiled = compiled_of(lambda x: functional.dropout(x, 0.5), mode)
    x = torch.ones(256, 256, device="cuda:1")
    compiled(x)
    before = [torch.cuda.get_rng_state(index) for index in range(2)]
    first, second = compiled(x), compiled(x)
    assert torch.equal(torch.cuda.get_rng_state(0), before[0])
    assert not torch.equal(torch.cuda.get_rng_state(1), before[1])
    assert not torch.equal(first, second)
    torch.cuda.set_rng_state(before[1], 1)
    assert torch.equal(compiled(x), first)


@MODES
@pytest.mark.parametrize("road", ["module", "step"])
def test_training_on_the_other_device(mode, road):
    module = Block(64).to("cuda:1")
    theirs = copy.deepcopy(module)
    x = torch.randn(16, 64, device="cuda:1")

    def train(model, wrap_model, wrap_step):
        optimizer, called = torch.optim.AdamW(model.parameters(), lr=1e-2, fused=True), wrap_model(model)

        def step(x):
            optimizer.zero_grad()
            loss = called(x).square().mean()
            loss.backward()
            optimizer.step()
            return loss.detach()

        run = wrap_step(step)
        return [run(x) for _ in range(6)]

    def ours(program):
        return compiled_of(program, mode)

    def eager(program):
        return program

    found = train(module, *((ours, eager) if road == "module" else (eager, ours)))
    expected = train(theirs, eager, eager)
    for mine, other in zip(found, expected):
        assert mine.device.index == 1
        torch.testing.assert_close(mine, other, rtol=1e-3, atol=1e-5)
    for mine, other in zip(module.parameters(), theirs.parameters()):
        torch.testing.assert_close(mine, other, rtol=1e-2, atol=1e-3)


@MODES
def test_a_thread_for_each_device(mode):
    modules = [Block(64).to(f"cuda:{index}").eval() for index in range(2)]
    compiled = [compiled_of(module, mode) for module in modules]
    wrong = []

    def serve(index):
        torch.cuda.set_device(index)
        try:
            with torch.no_grad():
                for _ in range(20):
                    x = torch.randn(8, 64, device="cuda")
                    assert_close(compiled[index](x), modules[index](x), in_double(modules[index], x))
        except Exception as error:  # told by the test, not by the thread
            wrong.append(error)

    threads = [threading.Thread(target=serve, args=(index,)) for index in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong, wrong


@MODES
def test_tensors_of_two_devices_in_one_call(mode):
    """A model over two devices, one part on each: every call runs eagerly, and says why."""
    first, second = torch.nn.Linear(64, 128).to("cuda:0"), torch.nn.Linear(128, 32).to("cuda:1")

    def program(x):
        hidden = functional.gelu(first(x)).to("cuda:1")
        return second(hidden).softmax(-1)

    compiled = lampwork.compile(program, mode=mode)
    with torch.no_grad():
        for _ in range(4):
            x = torch.randn(16, 64, device="cuda:0")
            found, expected = compiled(x), program(x)
            assert found.device.index == 1
            torch.testing.assert_close(found, expected, rtol=1e-3, atol=1e-4)
    stats = lampwork.stats(compiled)
    for counted in (stats["breaks"], stats["fallbacks"]):
        assert [(each.diagnostic.id, each.count) for each in counted] == [("several-devices", 4)]
    assert stats["captures"] == 1 and not stats["launches"]

"""Mode "auto": what calls return and do, whatever runs them; that they never wait for a compile; and what is kept."""

from __future__ import annotations

import contextvars
import threading
import time
import warnings
from types import SimpleNamespace

import pytest
import torch
from torch import nn

import lampwork
from lampwork.errors import GraphBreak, LampworkWarning
from lampwork.runtime.auto import background, function
from lampwork.runtime.function import CompiledFunction
from lampwork.runtime.wrappers import compiled_of


@pytest.fixture
def held(monkeypatch):
    """Jobs wait in a list until the test runs them."""
    jobs = []
    monkeypatch.setattr(background, "submit", jobs.append)
    return jobs


def run_all(jobs):
    """In another thread, as jobs are run; what they raise is raised."""
    failed = []

    def work():
        while jobs:
            try:
                jobs.pop(0)()
            except BaseException as error:
                failed.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    for error in failed:
        raise error


def until_decided(call, compiled, seconds=120.0):
    """Calls until every class of calls has a decision."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        call()
        choices = lampwork.stats(compiled)["choices"]
        if choices and all(each.way is not None for each in choices):
            return choices
    raise AssertionError(f"no decision after {seconds} s: {lampwork.stats(compiled)}")


def scaled(x):
    return (x * 2).relu() + 1


def test_calls_run_eagerly_until_an_entry_is_there(held):
    compiled = lampwork.compile(scaled, mode="auto")
    x = torch.randn(4)
    for _ in range(3):
        assert torch.equal(compiled(x), scaled(x))
    assert lampwork.stats(compiled)["captures"] == 0 and len(held) == 1, "asked for once"
    run_all(held)
    assert lampwork.stats(compiled)["captures"] == 1
    (choice,) = until_decided(lambda: compiled(x), compiled)
    assert choice.way in ("eager", "default") and dict(choice.seconds).keys() == {"eager", "default"}


def test_each_call_is_made_once():
    count = torch.zeros(())
    log = []

    def program(x):
        count.add_(1)
        log.append(x.shape[0])
        return x + count

    compiled = lampwork.compile(program, mode="auto")
    calls = 0

    def call():
        nonlocal calls
        calls += 1
        result = compiled(torch.zeros(3))
        assert result.tolist() == [calls] * 3 and float(count) == calls and len(log) == calls

    until_decided(call, compiled)
    for _ in range(50):
        call()


def test_the_faster_way_stays(held, monkeypatch):
    monkeypatch.setattr(function, "Clock", Scripted)
    Scripted.times = {"eager": 2.0, "default": 1.0}
    compiled = lampwork.compile(scaled, mode="auto")
    x = torch.randn(4)
    compiled(x)
    run_all(held)
    (choice,) = until_decided(lambda: compiled(x), compiled)
    assert choice.way == "default" and choice.seconds == (("eager", 2.0), ("default", 1.0))
    counted = compiled_of(compiled).counters.calls
    compiled(x)
    assert compiled_of(compiled).counters.calls == counted + 1
    assert torch.equal(compiled(x), scaled(x))


class Scripted:
    """A clock by which ways take what the test says."""

    times: dict[str, float] = {}

    def __init__(self, on_gpu):
        pass

    def start(self):
        pass

    def settle(self):
        pass

    def stop(self, told):
        call = told.__self__
        told(self.times[getattr(call, "way", None) or call._way])

    until_next = stop


def test_a_way_that_becomes_slow_is_tried_again(held, monkeypatch):
    monkeypatch.setattr(function, "Clock", Scripted)
    monkeypatch.setattr(function, "TIMED_EVERY", 4)
    Scripted.times = {"eager": 2.0, "default": 1.0}
    compiled = lampwork.compile(scaled, mode="auto")
    x = torch.randn(4)
    compiled(x)
    run_all(held)
    (choice,) = until_decided(lambda: compiled(x), compiled)
    assert choice.way == "default" and choice.trials == 1
    Scripted.times = {"eager": 2.0, "default": 5.0}
    for _ in range(4 * 8 + 200):
        compiled(x)
    (choice,) = lampwork.stats(compiled)["choices"]
    assert choice.trials == 2 and choice.way == "eager"


def test_where_eager_stays_calls_are_not_looked_at(held, monkeypatch):
    monkeypatch.setattr(function, "Clock", Scripted)
    Scripted.times = {"eager": 1.0, "default": 2.5}
    compiled = lampwork.compile(scaled, mode="auto")
    x = torch.randn(4)
    compiled(x)
    run_all(held)
    until_decided(lambda: compiled(x), compiled)
    compiled(x)
    before = compiled_of(compiled).counters.calls
    looked = []
    monkeypatch.setattr(function.AutoFunction, "_way", lambda *call: looked.append(call))
    for _ in range(function.UNLOOKED - 1):
        assert torch.equal(compiled(x), scaled(x))
    assert not looked and compiled_of(compiled).counters.calls == before + function.UNLOOKED - 1


def test_other_sizes_are_another_class(held, monkeypatch):
    monkeypatch.setattr(function, "Clock", Scripted)
    Scripted.times = {"eager": 2.0, "default": 1.0}
    compiled = lampwork.compile(scaled, mode="auto", dynamic=False)
    for size in (4, 5):
        x = torch.randn(size)
        for _ in range(100):
            assert torch.equal(compiled(x), scaled(x))
            run_all(held)
    assert [each.way for each in lampwork.stats(compiled)["choices"]] == ["default", "default"]
    assert lampwork.stats(compiled)["entries"] == 2


def test_what_follows_a_break(held):
    def program(x):
        y = (x * 2).relu()
        order = y.numpy().argsort()
        return y[torch.from_numpy(order.copy())] + 1

    compiled = lampwork.compile(program, mode="auto")
    x = torch.randn(64)
    for _ in range(20):
        assert torch.equal(compiled(x), program(x))
        run_all(held)
    until_decided(lambda: compiled(x), compiled)
    assert lampwork.stats(compiled)["continuations"] >= 1


def test_iterators_are_compiled_first():
    def program(items):
        total = torch.zeros(())
        for each in items:
            total = total + each
        return total

    compiled = lampwork.compile(program, mode="auto")
    for _ in range(30):
        assert float(compiled(each for each in [torch.ones(()), torch.ones(())])) == 2.0
    assert lampwork.stats(compiled)["captures"] >= 1


def test_iterators_that_can_be_copied_wait(held):
    def program(pairs, numbers):
        total = torch.zeros(())
        for place, (one, other) in pairs:
            total = total + one * other * place + next(numbers)
        return total, next(numbers)

    compiled = lampwork.compile(program, mode="auto", options={"cache": False})

    def call():
        ones, others = [torch.ones(()), torch.full((), 2.0)], (torch.full((), 3.0), torch.full((), 4.0))
        pairs, numbers = enumerate(zip(ones, others), 1), iter(range(5, 9))
        total, number = compiled(pairs, numbers)
        assert float(total) == 3.0 + 16.0 + 5 + 6 and number == 7
        assert next(numbers) == 8 and not list(pairs), "used by the call"

    for _ in range(3):
        call()
    assert lampwork.stats(compiled)["captures"] == 0 and len(held) == 1
    run_all(held)
    assert lampwork.stats(compiled)["captures"] == 1
    until_decided(call, compiled)


def test_what_follows_a_break_in_a_loop_waits(held):
    def program(x):
        for _ in range(3):
            if float(x.sum()) > 0:
                x = x - 1
            x = x * 2
        return x

    compiled = lampwork.compile(program, mode="auto", options={"cache": False})
    captured = []
    for number in range(40):
        before = lampwork.stats(compiled)["captures"]
        x = torch.full((4,), float(number % 2))
        assert torch.equal(compiled(x), program(x))
        captured.append(lampwork.stats(compiled)["captures"] - before)
        run_all(held)
    assert not any(captured), "in a call"
    assert lampwork.stats(compiled)["continuations"] >= 1


def test_lists_that_a_call_changes(held):
    def program(items, x):
        items.append(x.sum())
        return sum(items)

    compiled = lampwork.compile(program, mode="auto")
    for _ in range(10):
        items = [torch.ones(())]
        result = compiled(items, torch.ones(3))
        assert float(result) == 4.0 and len(items) == 2
        run_all(held)
    assert lampwork.stats(compiled)["entries"] == 1, "captured as the call found its arguments"


def test_containers_that_hold_themselves_and_share_parts(held):
    def program(items, again):
        same = items[0] is items and items[1] is again
        again.append(3)
        return items[2] * len(again), same

    compiled = lampwork.compile(program, mode="auto")
    for _ in range(12):
        again = [1, 2]
        items = [None, again, torch.ones(2)]
        items[0] = items
        result, same = compiled(items, again)
        assert result.tolist() == [3.0, 3.0] and same and again == [1, 2, 3]
        run_all(held)
    assert lampwork.stats(compiled)["entries"] == 1


def test_a_module_and_its_training():
    torch.manual_seed(0)
    models = [nn.Sequential(nn.Linear(8, 8), nn.GELU(), nn.Linear(8, 2)) for _ in range(2)]
    models[1].load_state_dict(models[0].state_dict())
    compiled = lampwork.compile(models[0], mode="auto")
    optimizers = [torch.optim.AdamW(each.parameters(), lr=0.01) for each in models]

    def step():
        x = torch.randn(4, 8)
        for run, optimizer in zip((compiled, models[1]), optimizers):
            optimizer.zero_grad()
            run(x).square().mean().backward()
            optimizer.step()
        for ours, eager in zip(models[0].parameters(), models[1].parameters()):
            torch.testing.assert_close(ours, eager, rtol=1e-3, atol=1e-3)

    until_decided(step, compiled)


def test_an_optimizer_in_the_call():
    model = nn.Linear(4, 4)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1)

    def step(x):
        optimizer.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        return loss.detach()

    compiled = lampwork.compile(step, mode="auto")
    calls = 0

    def call():
        nonlocal calls
        calls += 1
        compiled(torch.randn(3, 4))
        assert {int(state["step"]) for state in optimizer.state.values()} == {calls}

    until_decided(call, compiled)


def test_the_state_of_the_calling_thread_is_captured(held):
    compiled = lampwork.compile(scaled, mode="auto")
    x = torch.randn(4, requires_grad=True)
    with torch.no_grad():
        compiled(x)
        run_all(held)
        assert not compiled(x).requires_grad
    with torch.autocast("cpu", dtype=torch.bfloat16):
        linear = lampwork.compile(nn.functional.linear, mode="auto")
        linear(torch.randn(2, 4), torch.randn(3, 4))
        run_all(held)
        assert compiled_of(linear)._held((torch.randn(2, 4), torch.randn(3, 4)), {}) is not None
    assert compiled_of(linear)._held((torch.randn(2, 4), torch.randn(3, 4)), {}) is None


def test_breaks_are_raised_where_there_may_be_none(held):
    def program(x):
        return x[torch.from_numpy(x.numpy().argsort().copy())]

    compiled = lampwork.compile(program, mode="auto", fullgraph=True)
    x = torch.ones(3)
    assert torch.equal(compiled(x), program(x))
    run_all(held)
    with pytest.raises(GraphBreak):
        compiled(x)


def test_what_cannot_be_compiled_is_given_up(held, monkeypatch):
    def failing(*args, **kwargs):
        raise ValueError("a defect of the compiler")

    monkeypatch.setattr(CompiledFunction, "_new_entry", failing)
    monkeypatch.setattr("lampwork.runtime.function.environment", lampwork.config.environment)
    compiled = lampwork.compile(scaled, mode="auto")
    x = torch.ones(3)
    with pytest.warns(LampworkWarning, match="a defect of the compiler"):
        object.__setattr__(lampwork.config.environment, "strict", False)
        try:
            for _ in range(10):
                assert torch.equal(compiled(x), scaled(x))
                run_all(held)
        finally:
            object.__setattr__(lampwork.config.environment, "strict", True)
    assert not held and lampwork.stats(compiled)["fallbacks"]


def test_reset(held):
    compiled = lampwork.compile(scaled, mode="auto")
    x = torch.ones(3)
    compiled(x)
    run_all(held)
    compiled(x)
    compiled_of(compiled).reset()
    assert lampwork.stats(compiled)["choices"] == () and lampwork.stats(compiled)["entries"] == 0
    assert torch.equal(compiled(x), scaled(x)) and len(held) == 1


def test_many_threads():
    compiled = lampwork.compile(scaled, mode="auto")
    failed = []

    def work(seed):
        generator = torch.Generator().manual_seed(seed)
        for _ in range(300):
            x = torch.randn(16, generator=generator)
            if not torch.equal(compiled(x), scaled(x)):
                failed.append(x)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert not failed


def test_context_variables_of_the_caller_are_captured_and_stay_its_own(held):
    scale = contextvars.ContextVar("scale", default=1)

    def program(x):
        return x * scale.get()

    compiled = lampwork.compile(program, mode="auto")
    x = torch.randn(4)
    token = scale.set(3)
    compiled(x)
    scale.reset(token)
    seen = []
    held.append(lambda: seen.append(scale.get()))
    run_all(held)
    assert seen == [1], "the thread that compiles is as it was"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for value in (3, 1, 3):
            scale.set(value)
            assert torch.equal(compiled(x), program(x))
            run_all(held)


def test_a_function_that_calls_itself(held):
    def countdown(x, left):
        return x if left == 0 else compiled(x + 1, left - 1)

    compiled = lampwork.compile(countdown, mode="auto")
    for _ in range(40):
        assert float(compiled(torch.zeros(()), 3)) == 3.0
        run_all(held)


def test_a_trial_is_held_again_when_its_cost_has_come_back():
    found = function._Class(SimpleNamespace(serve=None), ("default",))
    trial = found.trial
    while trial.decision is None:
        call = trial.next()
        call.took({"eager": 50.0, "default": 1.0}[call.way])
    assert found.conclude() == "default"
    assert found.left == round(trial.spent / function.SHARE_OF_TIME) > 10 * function.AGAIN
    found.left -= 7
    left = found.left
    assert found.conclude() == "default" and found.left == left, "once for each trial"
    level = function._Class(SimpleNamespace(serve=None), ("default",))
    while level.trial.decision is None:
        call = level.trial.next()
        call.took({"eager": 1.0, "default": 1.1}[call.way] * 1e-3)
    assert level.conclude() == "eager" and level.left >= function.AGAIN


def ragged(lengths, width=64):
    """A program that changes with each call what it reads: it takes its batches from a list in turn."""
    model = nn.Sequential(*[each for _ in range(6) for each in (nn.Linear(width, width), nn.GELU())]).eval()
    batches = [torch.randn(length, width) for length in lengths]
    calls = 0

    def step():
        nonlocal calls
        calls += 1
        with torch.no_grad():
            return model(batches[calls % len(batches)])

    return step, lambda: model(batches[calls % len(batches)])


def test_what_changes_with_each_call_is_captured_in_one_piece():
    step, expected = ragged((8, 8, 8, 5))
    compiled = lampwork.compile(step, mode="auto", options={"cache": False})
    end = time.monotonic() + 180
    while time.monotonic() < end:
        compiled()
        ways = [each.way for each in lampwork.stats(compiled)["choices"]]
        if sum(way is not None for way in ways) >= 4:
            break
    assert sum(way is not None for way in ways) >= 4, f"each remainder is a class: {lampwork.stats(compiled)}"
    for _ in range(100):
        result = compiled()
        assert torch.allclose(result, expected())


def test_a_class_that_comes_no_more_makes_room_for_others(held, monkeypatch):
    monkeypatch.setattr(function, "Clock", Scripted)
    monkeypatch.setattr(function, "IDLE", 20)
    Scripted.times = {"eager": 2.0, "default": 1.0}
    compiled = lampwork.compile(scaled, mode="auto", dynamic=False, options={"recompile_limit": 2})
    once, known, other = torch.randn(3), torch.randn(4), torch.randn(5)
    compiled(once)
    run_all(held)
    compiled(once)  # its trial begins, and never ends
    for _ in range(150):
        compiled(known), compiled(other)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", LampworkWarning)
            run_all(held)
    assert [each.way for each in lampwork.stats(compiled)["choices"]] == ["default", "default"]
    assert len(compiled_of(compiled).entries) == 2


def test_calls_that_nothing_serves_hold_up_no_trial(held, monkeypatch):
    monkeypatch.setattr(function, "Clock", Scripted)
    Scripted.times = {"eager": 2.0, "default": 1.0}
    compiled = lampwork.compile(scaled, mode="auto", dynamic=False, options={"recompile_limit": 1})
    known, other = torch.randn(4), torch.randn(5)
    compiled(known)
    run_all(held)
    for _ in range(60):
        compiled(known), compiled(other)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", LampworkWarning)
            run_all(held)
    (choice,) = lampwork.stats(compiled)["choices"]
    assert choice.way == "default"
    assert compiled_of(compiled)._others_unlooked > 0, "the others cost eager's time"
    assert torch.equal(compiled(known), scaled(known)) and torch.equal(compiled(other), scaled(other))

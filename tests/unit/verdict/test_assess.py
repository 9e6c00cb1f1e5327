"""`lampwork.assess` on small programs: what is tried, what is left as it was. Times are not looked at."""

from __future__ import annotations

import mmap
import subprocess
import sys

import pytest
import torch

import lampwork
from lampwork import config
from lampwork.verdict import assess as assess_module
from lampwork.verdict import search
from lampwork.verdict.candidate import Allowed, Way, candidates, repeated_blocks
from lampwork.verdict.program import Outcome, Program
from lampwork.verdict.starting import Starting


class Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = torch.nn.LayerNorm(8)
        self.linear = torch.nn.Linear(8, 8)

    def forward(self, x):
        return x + self.linear(self.norm(x)).relu()


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.h = torch.nn.ModuleList(Block() for _ in range(3))
        self.norm = torch.nn.BatchNorm1d(8)

    def forward(self, x):
        for block in self.h:
            x = block(x)
        return self.norm(x)


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    """Loading a compiler is not measured, and rounds are few."""
    monkeypatch.setattr(assess_module, "starting", lambda device: Starting(0.0, 0.0))
    monkeypatch.setattr(search, "load", lambda device: {})
    monkeypatch.setattr(search, "rounds", lambda names, seconds, least, most: [list(names)] * 4)
    monkeypatch.setattr(search.Search, "_why_not", lambda self, candidate: "")


def state(model):
    return {name: value.clone() for name, value in model.state_dict().items()}


def same(first, second):
    return first.keys() == second.keys() and all(torch.equal(first[name], second[name]) for name in first)


def test_a_model_in_inference():
    model = Net().eval()
    before = state(model)
    with torch.no_grad():
        verdict = lampwork.assess(model, torch.randn(4, 8), calls=1000)
    names = [each.candidate.name for each in verdict.found.tried]
    assert names == ["whole: default", "whole: freeze", "h.*: default", "h.*: freeze"]
    for each in verdict.found.tried:
        assert not each.failure and each.compared.accepted and len(each.measured.rounds) == 4
    assert verdict.task == "infer" and same(before, state(model))
    assert all("forward" not in vars(each) for each in model.modules())
    assert "What was tried" in str(verdict)


def test_a_model_that_is_trained():
    model = Net().train()
    before = state(model)
    verdict = lampwork.assess(model, torch.randn(4, 8))
    assert verdict.task == "train"
    assert [each.candidate.name for each in verdict.found.tried] == ["whole: default", "h.*: default"]
    assert all(each.compared.accepted for each in verdict.found.tried)
    assert same(before, state(model)) and all(each.grad is None for each in model.parameters())


def test_a_training_step():
    model = Net().train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    x = torch.randn(4, 8)
    before = state(model)
    numbers = torch.get_rng_state()

    def step(x):
        optimizer.zero_grad()
        loss = model(torch.nn.functional.dropout(x)).square().mean()
        loss.backward()
        optimizer.step()
        return loss.detach()

    verdict = lampwork.assess(step, x)
    assert verdict.task == "train" and verdict.found.tried[0].candidate.name == "whole: default"
    assert all(not each.failure for each in verdict.found.tried), [each.failure for each in verdict.found.tried]
    assert same(before, state(model)) and not optimizer.state
    assert torch.equal(numbers, torch.get_rng_state())


def test_wrong_numbers_are_out_of_question(monkeypatch):
    wrong = Way.compile

    def compile(self, function):
        made = wrong(self, function)
        return made if self.eager else lambda *args: made(*args) + 1e-2

    monkeypatch.setattr(Way, "compile", compile)
    with torch.no_grad():
        verdict = lampwork.assess(Net().eval(), torch.randn(4, 8))
    assert all("other numbers than eager" in each.failure for each in verdict.found.tried)
    assert not verdict.pays and verdict.sentence.startswith("Don't compile: nothing could be used")


def test_what_fails_is_told_and_undone(monkeypatch):
    def compile(self, function):
        if self.eager:
            return function
        raise RuntimeError("it is not to be")

    monkeypatch.setattr(Way, "compile", compile)
    model = Net().eval()
    with torch.no_grad():
        verdict = lampwork.assess(model, torch.randn(4, 8))
    assert {each.failure for each in verdict.found.tried} == {"RuntimeError: it is not to be"}
    assert all("forward" not in vars(each) for each in model.modules())


def test_an_error_of_the_program_is_the_users():
    def program(x):
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        lampwork.assess(program, torch.ones(2))


def test_invalid_arguments():
    for arguments in ({"calls": 0}, {"calls": 2.5}, {"restarts": -1}, {"seconds": 0}, {"price": -1.0}):
        with pytest.raises(lampwork.OptionError):
            lampwork.assess(torch.relu, torch.ones(2), **arguments)
    with pytest.raises(TypeError, match="class"):
        lampwork.assess(Net, torch.ones(2))


def test_the_repeated_blocks_are_those_of_most_parameters():
    model = torch.nn.Module()
    model.small = torch.nn.ModuleList(Block() for _ in range(2))
    model.large = torch.nn.Sequential(*(Block() for _ in range(5)))
    model.mixed = torch.nn.ModuleList([Block(), torch.nn.Linear(800, 800)])
    found = repeated_blocks(model)
    assert found.path == "large.*" and len(found.modules) == 5


def test_candidates_by_task_and_device():
    def names(task, device, allowed=Allowed()):
        return [each.way.name for each in candidates(None, task, device, allowed)]

    assert names("infer", "cpu") == ["default", "freeze"]
    assert names("train", "cpu") == ["default"]
    assert names("train", "cuda") == ["default", "reduce-overhead", "max-autotune"]
    assert names("infer", "cpu", Allowed((torch.bfloat16,), True, False)) == [
        "default", "eager, bfloat16", "bfloat16", "torch.compile",
    ]  # fmt: skip


@pytest.mark.slow
def test_loading_a_compiler_is_measured_in_fresh_processes():
    done = subprocess.run(
        [sys.executable, "-c", "from lampwork.verdict.starting import starting; print(starting('cpu'))"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert "Starting(cold=" in done.stdout


def test_a_busy_machine_is_told_of(monkeypatch):
    monkeypatch.setattr(assess_module.os, "getloadavg", lambda: (0.5, 0, 0))
    assert assess_module.busy() == ()
    monkeypatch.setattr(assess_module.os, "getloadavg", lambda: (1000.0, 0, 0))
    assert "busy: 1000 programs" in assess_module.busy()[0]


def test_a_reference_decides_where_eager_itself_is_not_exact():
    reference = Outcome({"x": torch.linspace(1, 2, 100, dtype=torch.float64)}, {})
    noise = torch.randn(100, generator=torch.Generator().manual_seed(0)) * 1e-3

    def outcome(by):
        return Outcome({"x": reference.left["x"].float() + by}, {})

    assert not outcome(0).compare(outcome(noise)).accepted  # off by more than float32 may be
    assert outcome(0).compare(outcome(noise), reference).accepted
    assert outcome(noise.flip(0)).compare(outcome(noise), reference).accepted
    assert not outcome(4 * noise.flip(0)).compare(outcome(noise), reference).accepted
    other = Outcome({"x": reference.left["x"] * 2}, {})  # of other random numbers: it says nothing
    assert not outcome(noise.flip(0)).compare(outcome(noise), other).accepted


def test_updates_are_judged():
    torch.manual_seed(0)
    model, x = Net().train(), torch.randn(4, 8)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1)

    def step(x, skipped=(), turned=()):
        optimizer.zero_grad()
        model(x).mul(torch.linspace(1, 2, 32).reshape(4, 8)).square().sum().backward()
        for name, each in model.named_parameters():
            each.grad = None if name in skipped else -each.grad if name in turned else each.grad
        optimizer.step()
        optimizer.zero_grad()

    program = Program(step, (x,))
    program.observe()
    eager, disturbed = program.outcome(step), program.outcome(step, torch.finfo(torch.float32).eps)
    ours = [program.outcome(lambda x, name=name: step(x, [name])) for name in ("norm.weight", "norm.bias")]
    assert not any(each.compare(eager, None, disturbed).accepted for each in ours), "an update is missing"
    ours = program.outcome(lambda x: step(x, turned=["norm.bias"]))
    assert not ours.compare(eager, None, disturbed).accepted, "an update goes the other way"


def test_updates_that_are_rounding_are_not_judged():
    model, x = Net().train(), torch.randn(4, 8)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1)

    def step(x, turned=False):
        optimizer.zero_grad()
        model(x).sum().mul(1e-3).backward()  # batch norm: the sum is that of the biases, whatever came before
        for each in model.h.parameters() if turned else ():
            each.grad.neg_()
        optimizer.step()
        optimizer.zero_grad()

    program = Program(step, (x,))
    program.observe()
    eager, disturbed = program.outcome(step), program.outcome(step, torch.finfo(torch.float32).eps)
    assert program.outcome(lambda x: step(x, True)).compare(eager, None, disturbed).accepted


def test_the_reference_of_a_module_is_in_float64():
    program = Program(Net().train(), (torch.randn(4, 8),))
    program.observe()
    found = program.reference().left
    assert {value.dtype for name, value in found.items() if "gradient" in str(name)} == {torch.float64}
    assert next(program.module.parameters()).dtype == torch.float32


def test_a_program_that_goes_through_its_batches():
    model = Net().eval()
    batches = [torch.randn(size, 8) for size in (4, 4, 4, 2)]
    place = 0

    def step():
        nonlocal place
        place += 1
        return model(batches[place % 4]), float(batches[place % 4].sum())

    with torch.no_grad():
        verdict = lampwork.assess(step, calls=100, seconds=2)
    assert place == 0, "as it was"
    assert verdict.found.tried and not any(each.failure for each in verdict.found.tried), verdict.found.tried
    assert all(each.compared.accepted for each in verdict.found.tried)


def test_numbers_of_a_program_that_does_not_repeat_are_not_compared():
    batches = iter([torch.randn(4, 8) for _ in range(5000)])
    model = Net().eval()

    def step():
        return model(next(batches))

    with torch.no_grad():
        verdict = lampwork.assess(step, calls=100, seconds=1)
    assert not any(each.failure for each in verdict.found.tried), verdict.found.tried
    assert all(each.why_not_compared == "eager's own differ from call to call" for each in verdict.found.tried)
    assert "verified" not in verdict.sentence


def test_random_numbers_that_are_drawn_otherwise(monkeypatch):
    """As GPUs do: a compiled call begins with other random numbers than eager's."""
    model = torch.nn.Sequential(Block(), torch.nn.Dropout(0.3)).train()
    x = torch.randn(16, 8)
    run = Program.run

    def shifted(program, function):
        if function is not program.function:
            torch.rand(17)
        return run(program, function)

    monkeypatch.setattr(Program, "run", shifted)
    with torch.no_grad():
        verdict = lampwork.assess(lambda: model(x), calls=100, seconds=1)
    tried = verdict.found.tried
    assert tried and not any(each.failure for each in tried), tried
    assert any(each.compared.spread for each in tried) and all(each.compared.accepted for each in tried)


def test_memory_that_each_call_takes_anew_is_spoken_of():
    found = search.Found(search.Tried(search.EAGER, fresh_mib=24.0), [], [], 1.0)
    (note,) = assess_module.fresh_memory(found)
    assert "24 MiB" in note and "GLIBC_TUNABLES=" in note
    assert assess_module.fresh_memory(search.Found(search.Tried(search.EAGER), [], [], 1.0)) == ()
    before = search.page_faults()
    with mmap.mmap(-1, 64 << 20) as memory:  # the heap may have as much that was touched before
        memory[::4096] = b"x" * len(memory[::4096])
    assert search.page_faults() > before


def test_what_only_the_first_compile_pays_counts_for_all_candidates(monkeypatch):
    model = Net().eval()
    x = torch.randn(4, 8)
    costs = iter([10.0, 1.0, 1.0, *[2.0] * 50])  # cold, with a filled cache, cold again; then of the others
    start = search.Search._start

    def started(this, arm):
        times = start(this, arm)
        return times if arm.candidate.way.eager else [next(costs), *[0.0] * (len(times) - 1)]

    monkeypatch.setattr(search.Search, "_start", started)
    with torch.no_grad():
        verdict = lampwork.assess(model, x, calls=100, seconds=1)
    first, *others = sorted(verdict.found.tried, key=lambda each: each.candidate.name != "whole: default")
    assert first.start == 10.0 and others and all(each.start == 2.0 + 9.0 for each in others)


def test_a_compiler_is_loaded_whatever_the_cache_holds(monkeypatch):
    """A process that finds the small programs in its cache loads none, and the first candidate would pay for it."""
    folders = []
    monkeypatch.setattr(search, "load", lambda device: folders.append(config.cache_dir()))
    model, x = Net().eval(), torch.randn(4, 8)
    with torch.no_grad():
        lampwork.assess(model, x, calls=100, seconds=1)
    assert len(folders) == 1 and folders[0] != config.cache_dir()

"""Loops of the user's, assessed while they run: each step is done once, and everything is as it was afterwards."""

from __future__ import annotations

import json
import os
import textwrap
from pathlib import Path

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

import lampwork
from lampwork.verdict import watch as watch_module
from lampwork.verdict.once import Compared
from lampwork.verdict.starting import Starting
from lampwork.verdict.watch import loaded_ahead
from tests.processes import run_python

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr(watch_module, "starting", lambda device: Starting(0.0, 0.0))


def network():
    torch.manual_seed(3)
    return torch.nn.Sequential(
        torch.nn.Linear(6, 6), torch.nn.BatchNorm1d(6), torch.nn.Dropout(0.2), torch.nn.Linear(6, 1)
    )


def train(loader, model):
    torch.manual_seed(4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    seen = []
    for (x,) in loader:
        seen.append(x)
        optimizer.zero_grad()
        loss = torch.nn.functional.mse_loss(model(x), x.sum(1, keepdim=True))
        loss.backward()
        optimizer.step()
    return seen, loss


def data(count=40):
    return [(each,) for each in torch.randn(count, 4, 6, generator=torch.Generator().manual_seed(5))]


def test_a_loop_trains_as_it_does_alone():
    alone, watched = network(), network()
    items = data()
    loader = lampwork.watch(items, calls=100_000, steps=30, progress=False)
    seen, loss = train(loader, watched)
    expected, expected_loss = train(items, alone)
    assert len(seen) == len(expected) == 40 and all(one is other for one, other in zip(seen, expected))
    torch.testing.assert_close(loss, expected_loss)
    for one, other in zip(watched.state_dict().values(), alone.state_dict().values()):
        torch.testing.assert_close(one, other)
    verdict = loader.verdict
    assert verdict.task == "train" and verdict.unit == "step" and verdict.variables == ("watched",)
    assert [each.candidate.name for each in verdict.found.tried] == ["whole: default"]
    assert verdict.found.tried[0].compared.accepted and not verdict.found.tried[0].failure
    assert len(verdict.found.eager.measured.rounds) == len(verdict.found.tried[0].measured.rounds) >= 3
    assert set(verdict.shares) >= {"forward", "optimizer", "backward and the rest"}
    assert all("forward" not in vars(each) for each in watched.modules())


def test_no_hook_is_left():
    from torch.nn.modules import module as torch_module
    from torch.optim import optimizer as torch_optimizer

    def hooks():
        return [
            len(each) for each in (
                torch_module._global_forward_hooks, torch_module._global_forward_pre_hooks,
                torch_optimizer._global_optimizer_pre_hooks, torch_optimizer._global_optimizer_post_hooks,
            )
        ]  # fmt: skip

    before = hooks()
    train(lampwork.watch(data(24), steps=22, progress=False), network())
    assert hooks() == before
    for _ in lampwork.watch(data(24), steps=22, progress=False):
        assert hooks() != before
        break
    assert hooks() == before


def test_a_loop_that_is_left_early_has_an_answer():
    loader, model = lampwork.watch(data(), steps=40, progress=False), network()
    for number, (x,) in enumerate(loader):
        model(x)
        if number == 12:
            break
    assert not loader.verdict.pays and "ended too early" in str(loader.verdict)


def test_a_loop_that_ends_early_says_so():
    loader = lampwork.watch(data(8), steps=40, progress=False)
    train(loader, network())
    assert not loader.verdict.pays
    assert any("ended too early" in why for _, why in loader.verdict.found.left_out)


def test_a_loop_that_calls_no_module():
    loader = lampwork.watch(data(30), steps=20, progress=False)
    for (x,) in loader:
        x.sum()
    assert "no module was called" in loader.verdict.sentence


def test_an_exception_of_the_loop_leaves_everything_as_it_was():
    model = network()
    with pytest.raises(KeyError):
        for number, (x,) in enumerate(lampwork.watch(data(), steps=30, progress=False)):
            model(x)
            if number == 9:
                raise KeyError
    assert all("forward" not in vars(each) for each in model.modules())


def test_a_second_epoch_is_the_loader_itself():
    loader = lampwork.watch(data(25), steps=22, progress=False)
    model = network()
    train(loader, model)
    first = loader.verdict
    assert len(train(loader, model)[0]) == 25 and loader.verdict is first
    assert len(loader) == 25


def test_wrong_outputs_end_a_candidate(monkeypatch):
    from lampwork.verdict.candidate import Way

    monkeypatch.setattr(Way, "compile", lambda self, function: lambda x: function(x) * 1.01)
    loader = lampwork.watch(data(), steps=30, progress=False)
    train(loader, network())
    assert "other numbers than eager" in loader.verdict.found.tried[0].failure and not loader.verdict.pays


def test_what_cannot_be_called_twice_is_not_compared():
    class Holder:
        pass

    compared = Compared()
    module = torch.nn.Identity()
    forward = compared.beside(module, lambda x, cache: x, lambda x, cache: x + 1)
    assert forward(torch.ones(1), Holder()) == 2
    assert compared.result is None and "objects" in compared.why_not
    compared = Compared()
    forward = compared.beside(module, lambda x, cache: x, lambda x, cache: x + 1)
    assert forward(torch.ones(1), {"keys": [torch.ones(1), None, 3]}) == 2
    assert not compared.result.accepted


def test_what_workers_load_ahead():
    data = TensorDataset(torch.ones(8))
    assert loaded_ahead(DataLoader(data)) == 0 and loaded_ahead([1]) == 0
    assert loaded_ahead(DataLoader(data, num_workers=2, prefetch_factor=3)) == 6


def test_invalid_arguments():
    for arguments in ({"calls": 0}, {"steps": 3}):
        with pytest.raises(lampwork.OptionError):
            lampwork.watch([], **arguments)


TRAINING = """
    import sys
    import torch
    from torch.utils.data import DataLoader, TensorDataset

    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = torch.nn.Linear(4, 4)

        def forward(self, x):
            return self.linear(x).relu()

    net = Net()
    optimizer = torch.optim.AdamW(net.parameters())
    assert sys.argv[1:] == ["--epochs", "3"] and __name__ == "__main__"
    try:
        for epoch in range(int(sys.argv[2])):
            for (x,) in DataLoader(TensorDataset(torch.randn(400, 4)), batch_size=8):
                optimizer.zero_grad()
                net(x).sum().backward()
                optimizer.step()
    except Exception:
        raise SystemExit("the end of the trial is no exception of the script's")
    finally:
        open("left", "w").close()
"""

SERVING = """
    import torch

    net = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Sequential(torch.nn.ReLU(), torch.nn.Linear(4, 2))).eval()
    with torch.no_grad():
        for number in range(70):
            net(torch.randn(8, 4))
"""


def command(tmp_path, *arguments, status=0):
    code = (
        "import sys; from lampwork.verdict import script; from lampwork.verdict.starting import Starting\n"
        "script.starting = lambda device: Starting(0.0, 0.0)\n"
        "from lampwork.cli import main; sys.exit(main(sys.argv[1:]))"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])}
    done = run_python(["-c", code, "verdict", *arguments], cwd=tmp_path, env=environment)
    assert done.returncode == status, done.stderr
    return done.stdout if status == 0 else done.stderr


def test_a_script_is_run_as_it_is(tmp_path):
    (tmp_path / "train.py").write_text(textwrap.dedent(TRAINING))
    told = command(tmp_path, "train.py", "--steps", "40", "--calls", "1000", "--", "--epochs", "3")
    assert (tmp_path / "left").exists()
    assert "whole: default" in told and "optimizer" in told and "waiting for data" in told
    (tmp_path / "serve.py").write_text(textwrap.dedent(SERVING))
    told = command(tmp_path, "serve.py", "--steps", "60", "--json", "-")
    read = json.loads(told)
    assert read["unit"] == "step" and read["task"] == "infer"
    assert [each["name"] for each in read["tried"]] == ["whole: default", "whole: freeze"]
    assert all(each["accepted"] and not each["breaks"] and not each["fallbacks"] for each in read["tried"])
    assert len(read["eager"]["rounds_seconds"]) >= 3


def test_an_error_of_a_script_is_told_with_its_lines(tmp_path):
    (tmp_path / "wrong.py").write_text("import torch\ndef main():\n    raise ValueError('mine')\nmain()\n")
    assert "line 3, in main" in command(tmp_path, "wrong.py", status=1)


def test_scripts_that_cannot_be_assessed(tmp_path):
    (tmp_path / "nothing.py").write_text("print('hello')")
    assert "made no step" in command(tmp_path, "nothing.py", status=2)
    assert "no such file" in command(tmp_path, "missing.py", status=2)
    assert "takes arguments" in command(tmp_path, "mlp", "--size", "tiny", "--", "more", status=2)


def test_two_models_of_a_loop_are_both_compiled():
    first, second = network(), network()
    loader = lampwork.watch(data(), steps=30, progress=False)
    for (x,) in loader:
        first(x), second(x), second(x)
    assert set(loader.verdict.variables) == {"first", "second"}
    assert len(loader.verdict.found.tried[0].candidate.region.modules) == 2


def test_a_peer_that_raises_does_not_end_the_loop(monkeypatch):
    from lampwork.verdict.candidate import Way

    def compile(self, function):
        def broken(x):
            raise RuntimeError("it cannot\nat all")

        return broken if self.peer else function

    monkeypatch.setattr(Way, "compile", compile)
    loader = lampwork.watch(data(60), steps=50, peer=True, progress=False)
    seen, _ = train(loader, network())
    assert len(seen) == 60
    failures = {each.candidate.name: each.failure for each in loader.verdict.found.tried}
    assert failures["whole: torch.compile"] == "RuntimeError: it cannot"

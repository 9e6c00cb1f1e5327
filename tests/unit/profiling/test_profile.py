"""`lampwork.profile` of small programs: what is counted, what is left as it was, and what is told. Times are not looked at."""

from __future__ import annotations

import json

import pytest
import torch
from torch import nn

import lampwork
from lampwork import cli
from lampwork.profiling import advice
from lampwork.profiling.operators import Recording


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr(advice, "ROUNDS", 1)


def recorded(call):
    with Recording(on_gpu=False) as recording:
        call()
    return recording.operators


def test_operators_and_what_they_move():
    x, y = torch.randn(8, 16), torch.randn(16, 4)
    view, product, sine = recorded(lambda: (x.t(), x @ y, x.sin()))
    assert view.is_view and view.moved_bytes == 0
    assert product.name == "mm" and product.flops == 2 * 8 * 16 * 4
    assert product.moved_bytes == 4 * (8 * 16 + 16 * 4 + 8 * 4)
    assert sine.moved_bytes == 2 * 4 * 8 * 16 and sine.flops == 0
    assert product.location.file == __file__ and product.location.line > 0


def test_what_is_stretched_moves_once():
    x = torch.randn(1, 16).expand(64, 16)
    (sine,) = recorded(x.sin)
    assert sine.moved_bytes == 4 * (16 + 64 * 16)


def test_a_backward_pass_is_recorded():
    x = torch.randn(4, 4, requires_grad=True)
    names = [each.name for each in recorded(lambda: (x @ x).sum().backward())]
    assert names.count("mm") == 3


def test_branches_and_loops():
    """Operators of the functions that are called, at their lines; no others."""
    x = torch.ones(4, 4)
    flow = lambda: torch.while_loop(
        lambda n, x: n < 3,
        lambda n, x: (n + 1, torch.cond(x.sum() > 0, lambda x: x.sin(), lambda x: x.cos(), (x,))),
        (torch.tensor(0), x),
    )
    flow()
    operators = recorded(flow)
    names = [each.name for each in operators]
    assert names.count("sin") == 3 and names.count("lt") == 4 and "cos" not in names
    assert {each.location.file for each in operators} == {__file__}


def test_a_module_in_a_branch():
    model = nn.ModuleList([nn.Linear(4, 4), nn.Linear(4, 4)])
    profile = lampwork.profile(lambda x: torch.cond(x.sum() > 0, model[0], model[1], (x,)), torch.ones(2, 4))
    assert profile.parts.operators >= 3


def test_a_call():
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(4 * 36, 5)).eval()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    x = torch.randn(2, 3, 8, 8)
    profile = lampwork.profile(model, x)
    assert profile.task == "infer" and profile.parts.operators > 4
    assert sum(profile.parts.seconds.values()) == pytest.approx(profile.parts.call)
    assert 0 < profile.parts.bound <= profile.parts.call
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())
    assert "Where the time goes" in str(profile) and "convolution" in str(profile)
    assert json.loads(json.dumps(profile.to_dict()))["operators"] == profile.parts.operators
    assert "<svg" in profile.html() and "</html>" in profile.html()


def test_training_leaves_everything_as_it_was():
    model = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Dropout())
    before = {name: value.clone() for name, value in model.state_dict().items()}
    x = torch.randn(8, 4)
    numbers = torch.get_rng_state()
    profile = lampwork.profile(model, x)
    assert profile.task == "train"
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())
    assert all(each.grad is None for each in model.parameters()) and torch.equal(numbers, torch.get_rng_state())


def test_what_raises_is_raised():
    with pytest.raises(RuntimeError, match="shapes cannot be multiplied"):
        lampwork.profile(lambda x: x @ x, torch.randn(2, 3))
    with pytest.raises(TypeError, match="a function or a module"):
        lampwork.profile(3)


SCRIPT = """
import sys, time, torch
from torch.utils.data import DataLoader, Dataset
class Slow(Dataset):
    def __len__(self): return 400
    def __getitem__(self, index):
        time.sleep(0.004)
        return torch.randn(8)
model = torch.nn.Linear(8, 8)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for batch in DataLoader(Slow(), batch_size=4):
    optimizer.zero_grad()
    model(batch).square().mean().backward()
    optimizer.step()
open(sys.argv[1], "w").write("all of it ran")
"""


def test_a_script(tmp_path, capsys):
    script, left = tmp_path / "train.py", tmp_path / "left"
    script.write_text(SCRIPT)
    page = tmp_path / "page.html"
    assert cli.main(["profile", str(script), "--steps", "5", "--html", str(page), "--", str(left)]) == 0
    told = capsys.readouterr().out
    assert "A step takes" in told and "waits for data" in told and "num_workers" in told
    assert not left.exists(), "it is left after its steps"
    assert "<svg" in page.read_text()


def test_messages(tmp_path, capsys):
    assert cli.main(["profile", str(tmp_path / "none.py")]) == 2
    assert "no such file" in capsys.readouterr().err
    empty = tmp_path / "empty.py"
    empty.write_text("pass")
    assert cli.main(["profile", str(empty)]) == 2
    assert "made 0 steps" in capsys.readouterr().err
    assert cli.main(["profile", "mlp", "--size", "tiny", "--json", str(tmp_path / "no" / "x.json")]) == 2
    assert "does not exist" in capsys.readouterr().err
    assert cli.main(["profile", "mlp", "--size", "tiny"]) == 0
    assert "A call takes" in capsys.readouterr().out


def test_what_a_program_does_not_take_is_told():
    class Fixed(nn.Module):
        def forward(self, x):
            assert x.shape[0] == 2, "two rows alone"
            return x * 2

    profile = lampwork.profile(Fixed().eval(), torch.randn(2, 3))
    assert "Batches twice as large could not be tried: AssertionError: two rows alone" in profile.notes
    assert "two rows alone" in str(profile)


def test_steps_that_are_tried_are_taken_back():
    model = nn.Linear(4, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    before = model.weight.detach().clone()

    def step(x):
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()

    lampwork.profile(step, torch.randn(3, 4))
    assert torch.equal(before, model.weight)

"""What eager does not raise reaches nobody, whatever has been written by the time a program fails."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

import lampwork
from lampwork import _torch
from lampwork.config import environment


@torch.library.custom_op("lampwork_tests::two_rows", mutates_args=())
def two_rows(x: torch.Tensor) -> torch.Tensor:
    return x[:2].clone()


@two_rows.register_fake
def _(x: torch.Tensor) -> torch.Tensor:
    return x.new_empty(1, *x.shape[1:])  # wrong, as fakes of users are now and then


def _draws(state, x):
    return F.dropout(x, 0.5) + two_rows(x).sum()


def _writes(state, x):
    state.mul_(2)
    state.t()[1:].add_(1)
    noise = torch.rand(3)
    return two_rows(torch.cumsum(x + state.sum(), 0)).sum() + noise


def _writes_overlapping(state, x):
    state[0].add_(x[0])
    state.view(-1)[1:].mul_(3)
    return two_rows(torch.cumsum(x + state.sum(), 0))


@pytest.mark.parametrize("program", [_draws, _writes, _writes_overlapping])
def test_a_result_that_does_not_fit_its_plan(program, monkeypatch):
    monkeypatch.setitem(vars(environment), "strict", False)  # as users run it
    compiled = lampwork.compile(program, options={"cache": False})
    states = []
    for function in (program, compiled):
        torch.manual_seed(0)
        state, x = torch.ones(3, 4), torch.arange(12.0).view(3, 4)
        results = [function(state, x) for _ in range(3)]
        states.append((state, *results, torch.get_rng_state()))
    for ours, theirs in zip(*states):
        torch.testing.assert_close(ours, theirs)
    assert [each.diagnostic.id for each in lampwork.stats(compiled)["fallbacks"]] == ["run-failed"]


def test_a_backward_pass_that_fails_is_eagers(monkeypatch):
    monkeypatch.setitem(vars(environment), "strict", False)
    plain = _torch.direct_call

    def failing(name):
        return (lambda *args: 1 // 0) if name.startswith("aten::convolution_backward") else plain(name)

    monkeypatch.setattr(_torch, "direct_call", failing)
    results = []
    for compile in (lambda model: model, lambda model: lampwork.compile(model, options={"cache": False})):
        torch.manual_seed(0)
        model = torch.nn.Sequential(torch.nn.Conv1d(2, 3, 3), torch.nn.Tanh(), torch.nn.Conv1d(3, 2, 3))
        run = compile(model)
        x = torch.linspace(0, 1, 32).view(2, 2, 8).requires_grad_()
        run(x).square().sum().backward()
        results.append([x.grad, *(each.grad for each in model.parameters())])
    for ours, theirs in zip(*results):
        torch.testing.assert_close(ours, theirs)
    assert [each.diagnostic.id for each in lampwork.stats(run)["fallbacks"]] == ["run-failed"]


class _Normed(torch.nn.Module):
    """Writes statistics and draws numbers: what it did cannot be done again."""

    def __init__(self):
        super().__init__()
        self.inner = torch.nn.Conv1d(2, 3, 3)
        self.norm = torch.nn.BatchNorm1d(3)
        self.outer = torch.nn.Conv1d(3, 2, 3)

    def forward(self, x):
        return self.outer(F.dropout(self.norm(self.inner(x)), 0.3))


@torch.compiler.disable
def _between():
    pass


class _Breaking(torch.nn.Module):
    """Its second region gets an activation that nobody else keeps."""

    def __init__(self):
        super().__init__()
        self.inner, self.outer = torch.nn.Conv1d(2, 3, 3), torch.nn.Conv1d(3, 2, 3)

    def forward(self, x):
        x = self.inner(x)
        _between()
        return self.outer(x + 1)


class _Written(torch.nn.Module):
    """What it read is written before the backward pass, as eager allows where no derivative needs it."""

    def __init__(self):
        super().__init__()
        self.inner = torch.nn.Conv1d(2, 3, 3)
        self.state = torch.nn.Buffer(torch.zeros(3, 1))

    def forward(self, x):
        made = self.inner(x) + self.state
        self.state.add_(1)
        return made


@pytest.mark.parametrize("made", [_Normed, _Breaking, _Written])
@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize("stored", [False, True])
def test_a_backward_pass_that_fails_once_it_has_freed_what_it_read(made, dynamic, stored, monkeypatch, tmp_path):
    monkeypatch.setitem(vars(environment), "strict", False)
    monkeypatch.setitem(vars(environment), "cache_dir", str(tmp_path))
    plain = _torch.direct_call

    def failing(name):
        return (lambda *args: 1 // 0) if name.startswith("aten::convolution_backward") else plain(name)

    def trained(compile):
        torch.manual_seed(0)
        model = made()
        run, found = compile(model), []
        for rows in (2, 3):
            x = torch.linspace(0, 1, 16 * rows).view(rows, 2, 8).requires_grad_()
            torch.manual_seed(rows)
            run(x).square().sum().backward()
            found.append(x.grad)
        return run, [*found, *(each.grad for each in model.parameters()), *model.buffers()]

    def compile(model):
        return lampwork.compile(model, dynamic=dynamic, options={"cache": stored})

    _, expected = trained(lambda model: model)
    if stored:
        trained(compile)
        lampwork.reset()
    monkeypatch.setattr(_torch, "direct_call", failing)
    run, found = trained(compile)
    for ours, theirs in zip(found, expected, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-4)
        assert ours.stride() == theirs.stride()
    assert "run-failed" in [each.diagnostic.id for each in lampwork.stats(run)["fallbacks"]]
    assert not stored or lampwork.stats(run)["cache_hits"]


def test_gradients_whose_strides_are_not_found_out(monkeypatch):
    from lampwork.runtime.autograd.gradient_layouts import GradientLayouts

    monkeypatch.setitem(vars(environment), "strict", False)
    monkeypatch.setattr(GradientLayouts, "plan", lambda *args: 1 // 0)
    program = lampwork.compile(lambda x: x.sin().t() * 2, options={"cache": False})
    x = torch.ones(2, 3, requires_grad=True)
    program(x).sum().backward()
    torch.testing.assert_close(x.grad, 2 * torch.ones(2, 3).cos())
    assert [each.diagnostic.id for each in lampwork.stats(program)["fallbacks"]] == ["run-failed"]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("options", [{}, {"bias": False}, {"bidirectional": True, "num_layers": 2}], ids=str)
def test_an_lstm_is_trained(options, dtype):
    """oneDNN's layer saves a workspace whose size only it knows, and only where grad mode is on."""

    def made():
        torch.manual_seed(0)
        model = torch.nn.LSTM(6, 8, dtype=dtype, **options)
        return model, torch.optim.SGD(model.parameters(), 0.05)

    def step(model, optimizer, x, forward=None):
        loss = (forward or model)(x)[0].float().square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach()

    found = []
    for road in ("eager", "module", "step"):
        model, optimizer = made()
        compiled = lampwork.compile(model, options={"cache": False}) if road == "module" else None
        run = lampwork.compile(step, options={"cache": False}) if road == "step" else step
        losses = [run(model, optimizer, torch.ones(5, 3, 6, dtype=dtype) / (k + 1), compiled) for k in range(3)]
        found.append([*losses, *(each.detach() for each in model.parameters())])
        counted = lampwork.stats(run if road == "step" else compiled) if road != "eager" else None
        assert counted is None or not counted["fallbacks"] and not counted["breaks"]
    for road in found[1:]:
        for ours, theirs in zip(road, found[0]):
            torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5 if dtype == torch.float32 else 1e-2)

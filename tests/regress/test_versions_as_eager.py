"""How often autograd has seen a tensor written (`x._version`) is what it is after the eager call: it rises once for each
operator that writes, not at all for writes through `.data`, and a tensor that the program makes has eager's, too."""

from __future__ import annotations

import copy

import pytest
import torch
import torch.nn.functional as F

import lampwork
from lampwork.config import Settings
from lampwork.pipeline import compile_call
from lampwork.runtime.cache import entries


def versions(value):
    if isinstance(value, torch.Tensor):
        return value._version
    if isinstance(value, torch.nn.Module):
        return [versions(each) for each in (*value.parameters(), *value.buffers())]
    return [versions(each) for each in value] if isinstance(value, (list, tuple)) else value


def agree(function, *args, calls=3, **options):
    """Results, arguments and the versions of both are eager's, call after call on the same tensors."""
    theirs = copy.deepcopy(args)
    compiled = lampwork.compile(function, **options)
    ours = copy.deepcopy(theirs)  # both are copies, which begin alike
    for _ in range(calls):
        expected, found = function(*theirs), compiled(*ours)
        assert versions(found) == versions(expected)
        assert versions(list(ours)) == versions(list(theirs))
        torch.testing.assert_close(found, expected)
    return compiled


def ones(*shape, **options):
    return torch.ones(*shape or (3,), **options)


def writes_twice(x):
    x.add_(1)
    x[0] = 2
    return x * 1


def writes_what_it_makes(x):
    y = x * 1
    y.add_(1)
    y[0] = 2
    y.mul_(2)
    return y


def reads_the_version(x):
    x.add_(1)
    x[0] = 2
    return x._version


def reads_the_version_of_what_it_makes(x):
    y = x * 1
    y.add_(1)
    y[0] = 2
    y.mul_(2)
    return y, y._version


def writes_in_between(x):
    x.add_(1)
    before = x._version
    x.add_(1)
    return before, x._version


def views_of_what_it_makes(x):
    y = x.clone()
    part = y[1:]
    part.mul_(2)
    return y, part, y.detach(), y.data


def data_and_the_tensor(x):
    x.data.mul_(2)
    x.detach().mul_(2)
    return x * 1


def data_leaves(x):
    data = x.data
    return data, data.mul_(2)


def data_of_what_it_makes(x):
    y = x * 2
    z = y.data
    z.mul_(2)
    return y, z, y.detach()


def changes_its_shape(x):
    y = x.view(1, -1) * 1
    y.t_()
    y.unsqueeze_(0)
    return y


def writes_nothing_new(x):
    x.add_(0)
    x.copy_(x)
    return x * 2


def many_alike(*tensors):
    for each in tensors:
        each.mul_(2).add_(1)
    return tensors[0] * 2


def lists(x, y):
    torch._foreach_add_([x, y], 1)
    torch._foreach_mul_([x, y], [2.0, 3.0])
    torch._foreach_addcmul_([x], [y], [y])
    torch._foreach_sqrt_([x])
    return x * 1


PROGRAMS = [
    writes_twice, writes_what_it_makes, reads_the_version, reads_the_version_of_what_it_makes, writes_in_between,
    views_of_what_it_makes, data_and_the_tensor, data_leaves, data_of_what_it_makes, changes_its_shape,
    writes_nothing_new,
]  # fmt: skip


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda each: each.__name__)
@pytest.mark.parametrize("dynamic", [None, True])
def test_plain_tensors(program, dynamic):
    agree(program, ones(), dynamic=dynamic)


@pytest.mark.parametrize("program", [many_alike, lists], ids=lambda each: each.__name__)
def test_several_tensors(program):
    agree(program, ones(), ones())


def test_results_into_given_memory():
    agree(lambda x, y: torch.add(x, y, out=y), ones(), ones())


def test_views_that_come_from_outside():
    def both(x, part):
        x.add_(1)
        part.mul_(2)
        return x + 0

    theirs, ours = ones(), ones()
    both(theirs, theirs[1:])
    lampwork.compile(both)(ours, ours[1:])
    assert ours._version == theirs._version == 2
    both(theirs, theirs.data[1:])
    lampwork.compile(both)(ours, ours.data[1:])
    assert ours._version == theirs._version == 3


def test_differentiated_results():
    def made(x, w):
        y = x * w
        y.add_(1)
        y.relu_()
        return y

    def written(x, w):
        x.mul_(w)
        x.add_(w)
        return x.sum()

    weight = ones(requires_grad=True)
    for program in (made, written):
        agree(program, ones(), weight, calls=1)
    agree(data_of_what_it_makes, weight, calls=1)
    agree(lambda w: (w.data, w.detach(), w * 2), weight)
    # What is saved for the backward pass is saved with its version.
    result = lampwork.compile(lambda w: (w * 2).add_(1).exp_())(weight)
    assert result._version == 2
    result.sum().backward()
    result = lampwork.compile(lambda w: (w * 2).add_(1).exp_())(weight)
    result.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        result.sum().backward()


def test_clipping_between_forward_and_backward():
    grads = []
    for call in (lambda each: each, lampwork.compile):
        weight = ones(requires_grad=True)
        loss = (weight**2).sum()
        call(lambda p: p.data.clamp_(-0.1, 0.1))(weight)
        loss.backward()
        grads.append(weight.grad)
    torch.testing.assert_close(grads[1], grads[0])


def test_target_networks():
    def follow(online, target):
        for source, each in zip(online.parameters(), target.parameters()):
            each.data.mul_(0.5)
            each.data.copy_(each.data + 0.5 * source.data)

    agree(follow, torch.nn.Linear(3, 3), torch.nn.Linear(3, 3))


def test_running_statistics():
    agree(lambda m, x: m(x), torch.nn.BatchNorm1d(2), torch.rand(4, 2))
    model = torch.nn.BatchNorm1d(2)
    compiled = lampwork.compile(lambda m, x: m(x))
    x = torch.rand(4, 2)
    model.eval()
    before = compiled(model, x)
    model.train()
    (before + compiled(model, x)).pow(2).sum().backward()


def test_inference_mode_keeps_no_versions():
    with torch.inference_mode():
        result = lampwork.compile(writes_what_it_makes)(ones())
        assert result.is_inference()


@pytest.mark.parametrize("kind", [torch.optim.SGD, torch.optim.Adam, torch.optim.AdamW])
@pytest.mark.parametrize("options", [{}, {"foreach": True}, {"fused": True}], ids=str)
def test_optimizers(kind, options):
    def trained(compile):
        torch.manual_seed(0)
        model = torch.nn.Linear(3, 3)
        optimizer = kind(model.parameters(), lr=0.1, **options)

        def step(x):
            F.relu(model(x)).sum().backward()
            optimizer.step()
            optimizer.zero_grad()

        call = compile(step)
        for _ in range(3):
            call(ones(2, 3))
        state = [versions(list(each.values())) for each in optimizer.state.values()]
        return versions(list(model.parameters())), state

    assert trained(lampwork.compile) == trained(lambda each: each)


def test_a_stored_program_has_its_versions(tmp_path, monkeypatch):
    monkeypatch.setattr(entries, "_root", lambda: tmp_path)
    for program in (writes_twice, data_of_what_it_makes):
        artifact = compile_call(program, (ones(requires_grad=program is data_of_what_it_makes),), {}, Settings())
        entries.store(program, Settings(), artifact, print)
        (again,) = entries.candidates(program, Settings(), print)
        for name in ("raised", "versions", "separate"):
            assert getattr(again.program, name) == getattr(artifact.program, name)

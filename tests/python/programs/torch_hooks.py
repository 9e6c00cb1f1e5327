"""Hooks on modules: registered before the call, inside it, removed, and those that change what passes."""

from __future__ import annotations

import torch
from torch import nn

from tests.python.harness import program
from tests.python.tensors import frozen, values


def _x():
    return values(2, 4)


def _net():
    return nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 4))


def _with(register):
    def make():
        model = _net()
        register(model)
        return model

    return lambda: (_x(), frozen(make))


@program(together=_with(lambda model: model[0].register_forward_hook(lambda module, args, output: output * 2)))
def forward_hook_replaces_output(x, model):
    return model(x)


@program(together=_with(lambda model: model[0].register_forward_hook(lambda module, args, output: None)))
def forward_hook_returns_nothing(x, model):
    return model(x)


@program(together=_with(lambda model: model[2].register_forward_pre_hook(lambda module, args: (args[0] + 1,))))
def pre_hook_replaces_arguments(x, model):
    return model(x)


@program(together=_with(lambda model: model[2].register_forward_pre_hook(lambda module, args: args[0] - 1)))
def pre_hook_returns_one_value(x, model):
    return model(x)


class Scaled(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 4)

    def forward(self, x, *, scale=1.0):
        return self.layer(x) * scale


def _scaled(register):
    def make():
        model = Scaled()
        register(model)
        return model

    return lambda: (_x(), frozen(make))


def _double_scale(module, args, kwargs):
    return args, {**kwargs, "scale": kwargs["scale"] * 2}


def _add_scale(module, args, kwargs, output):
    return output + kwargs["scale"]


@program(together=_scaled(lambda model: model.register_forward_pre_hook(_double_scale, with_kwargs=True)))
def pre_hook_with_kwargs(x, model):
    return model(x, scale=3.0)


@program(together=_scaled(lambda model: model.register_forward_hook(_add_scale, with_kwargs=True)))
def forward_hook_with_kwargs(x, model):
    return model(x, scale=3.0)


class Recorder:
    def __init__(self):
        self.seen = []

    def __call__(self, module, args, output):
        self.seen.append(output)


def _recorded():
    model, recorder = frozen(_net), Recorder()
    for layer in model:
        layer.register_forward_hook(recorder)
    return _x(), model, recorder


@program(together=_recorded)
def hooks_collect_activations(x, model, recorder):
    result = model(x)
    return result, [each.mean() for each in recorder.seen]


@program(together=lambda: (_x(), frozen(_net)))
def hook_added_and_removed_inside(x, model):
    kept = []
    handle = model[0].register_forward_hook(lambda module, args, output: kept.append(output.sum()))
    first = model(x)
    handle.remove()
    second = model(x)
    return first, second, kept


@program(together=lambda: (_x(), frozen(_net)))
def hook_as_context_manager(x, model):
    kept = []
    with model[1].register_forward_hook(lambda module, args, output: kept.append(args[0])):
        model(x)
    model(x)
    return kept


def _two_hooks(model):
    model[0].register_forward_hook(lambda module, args, output: output + 1)
    model[0].register_forward_hook(lambda module, args, output: output * 10, prepend=True)


@program(together=_with(_two_hooks))
def hooks_in_order(x, model):
    return model(x)


class Clamp:
    def __init__(self, limit):
        self.limit = limit

    def hook(self, module, args, output):
        return output.clamp(-self.limit, self.limit)


@program(together=_with(lambda model: model[0].register_forward_hook(Clamp(0.5).hook)))
def hook_is_a_bound_method(x, model):
    return model(x)


@program(
    together=_with(lambda model: model[0].register_full_backward_hook(lambda module, before, after: None)), grad=True
)
def full_backward_hook_in_inference(x, model):
    with torch.no_grad():
        return model(x)


@program(together=_with(lambda model: model[0].register_full_backward_pre_hook(lambda module, after: None)), grad=True)
def full_backward_pre_hook_in_inference(x, model):
    with torch.no_grad():
        return model(x)


def _raise(module, args):
    raise ValueError(f"input of {tuple(args[0].shape)} refused")


@program(together=_with(lambda model: model[2].register_forward_pre_hook(_raise)))
def hook_raises(x, model):
    try:
        return model(x)
    except ValueError as error:
        return x, str(error)


@program(
    together=_with(
        lambda model: model[0].register_forward_hook(lambda module, args, output: output + 1, always_call=True)
    )
)
def hook_called_always(x, model):
    return model(x)


@program(
    together=_with(
        lambda model: (
            setattr(model[0], "calls", 0)
            or model[0].register_forward_hook(lambda module, args, output: setattr(module, "calls", module.calls + 1))
        )
    )
)
def hook_counts_on_the_module(x, model):
    model(x)
    return model(x), model[0].calls


@program(together=lambda: (_x(), frozen(_net)))
def hook_left_registered(x, model):
    handle = model[0].register_forward_hook(lambda module, args, output: output + 1)
    return model(x), handle


@program(together=lambda: (_x(), frozen(_net)))
def hooks_kept_and_removed(x, model):
    handles = [layer.register_forward_pre_hook(lambda module, args: args[0] * 2) for layer in model]
    first = model(x)
    handles.pop().remove()
    return first, model(x), len(handles), [layer._forward_pre_hooks for layer in model]

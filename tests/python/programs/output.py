"""What a program tells the outside: printing, logging, warnings."""

from __future__ import annotations

import logging
import sys
import warnings

import torch

from tests.python.harness import program

log = logging.getLogger("model")
STEPS = []


def vector():
    return torch.arange(4.0)


@program(vector)
def prints_a_constant(x):
    print("running")
    return x + 1


@program(vector)
def prints_between(x):
    y = x * 2
    print("shape", tuple(y.shape), sep=": ", end=";\n")
    z = y + 1
    print(f"{z.dim()} dims", file=sys.stderr)
    return z


@program(vector)
def prints_a_tensor(x):
    y = x * 2
    print(y)
    return y + 1


@program(vector)
def prints_in_a_loop(x):
    for i in range(3):
        x = x + i
        print("step", i)
    return x


@program(vector)
def writes_to_stdout(x):
    sys.stdout.write("written\n")
    return x * 2


@program(vector)
def logs_what_is_off(x):
    log.debug("value %s", x)
    log.info("shape %s", x.shape)
    return x + 1, log.isEnabledFor(logging.INFO)


@program(vector)
def logs_a_warning(x):
    log.warning("shape is %s", tuple(x.shape))
    return x + 1


@program(vector)
def warns(x):
    warnings.warn("deprecated", DeprecationWarning, stacklevel=2)
    warnings.warn("plain")
    return x * 2


@program(vector)
def warns_and_catches(x):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        warnings.warn("ignored")
    return x * 2


@program(vector)
def warning_as_error(x):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        try:
            warnings.warn("raised", UserWarning)
        except UserWarning as error:
            return x, str(error)


@program(vector)
def effects_and_prints_in_order(x):
    STEPS.append("before")
    print(len(STEPS))
    STEPS.append(x * 2)
    print(len(STEPS))
    return x


@program(vector)
def prints_then_raises(x):
    STEPS.append(x)
    print("about to fail")
    raise ValueError("failed")


@program(vector, lambda: [])
def prints_report_of_a_loop(x, history):
    total = 0.0
    for step in range(3):
        x = x * 0.5
        loss = x.sum()
        history.append(loss.item())
        total += loss.item()
        print(f"step {step:02d}: loss={loss:.4f} total={total:8.3f} {history}")
    return x


@program(vector)
def prints_what_is_changed_later(x):
    y = x * 2
    print("before", y, [y, {"y": y.sum()}])
    y.add_(1)
    x.zero_()
    print("after", y, x, sep="\n")
    return y


class Tee:
    def __init__(self):
        self.parts = []

    def write(self, text):
        self.parts.append((text, len(STEPS)))

    def flush(self):
        self.parts.append("flushed")


@program(vector, Tee)
def prints_to_a_stream_of_its_own(x, tee):
    print("a", x.shape, file=tee, flush=True)
    STEPS.append(x)
    print("b", file=tee)
    return x + 1


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = torch.nn.Parameter(torch.tensor([2.0]), requires_grad=False)
        self.inner = torch.nn.Linear(2, 3)

    def forward(self, x):
        print(self.scale, type(self).__name__, x.dtype, x.device, end=" | ")
        return x * self.scale


@program(vector, Model)
def prints_modules_and_parameters(x, model):
    print(model)
    return model(x)


@program(vector)
def logs_numbers(x):
    log.warning("mean %.3f, max %s, rows %d", x.mean().item(), x.max(), len(x))
    log.error("state: %s", {"step": 1, "x": (x.shape, [1, 2])})
    STEPS.append("logged")
    return x * 2


@program(vector)
def logs_among_effects(x):
    STEPS.append("first")
    log.warning("%d steps", len(STEPS))
    STEPS.append("second")
    return x + 1


@program(vector)
def warns_in_a_helper(x):
    def check(value):
        if value.dim() == 1:
            warnings.warn(f"{value.dim()} dimension only", stacklevel=2)
        return value

    return check(x) * 2, check(x) + 1


@program(vector)
def records_its_own_warnings(x):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        warnings.warn("first")
        warnings.warn("second", DeprecationWarning)
    return x, [(str(each.message), each.category) for each in caught]


@program(vector)
def prints_then_refuses_contents(x):
    print("checking", x.min())
    if (x < 1).all():
        raise ValueError(f"too small: {x.max().item()}")
    return x.log1p()


@program(vector)
def message_with_contents_raised(x):
    y = x.sum()
    raise ValueError(f"sum is {y.item():.1f} of {x}")

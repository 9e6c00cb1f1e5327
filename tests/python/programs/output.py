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

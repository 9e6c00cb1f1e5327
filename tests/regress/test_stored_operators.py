"""Stored entries were served after an operator of another library had been declared otherwise."""

from __future__ import annotations

import pytest

from tests.python.warm import run_cold_and_warm
from tests.sampled import one_of

PROGRAM = """
import torch, lampwork

{library}

def program(x):
    y = x * 2
    z = {call}
    return y + z

compiled = lampwork.compile(program)
x = torch.arange(4.0, requires_grad={grad})
answer = compiled(x)
print([round(each, 4) for each in answer.tolist()])
if answer.requires_grad:
    answer.sum().backward()
    print([round(each, 4) for each in x.grad.tolist()])
else:
    print()
print(lampwork.stats(compiled)["cache_hits"], len(lampwork.stats(compiled)["fallbacks"]))
"""

READS = """
@torch.library.custom_op("given::scaled", mutates_args=())
def scaled(x: torch.Tensor) -> torch.Tensor:
    return x * 3

@scaled.register_fake
def shape(x):
    return torch.empty_like(x)
"""
WRITES = """
@torch.library.custom_op("given::scaled", mutates_args=("x",))
def scaled(x: torch.Tensor) -> torch.Tensor:
    x.mul_(5)
    return x * 3

@scaled.register_fake
def shape(x):
    return torch.empty_like(x)
"""
SHORT = READS.replace("return x * 3", "return x[:1] * 3").replace("torch.empty_like(x)", "x.new_empty(1)")
DERIVATIVE = """
scaled.register_autograd(lambda context, gradient: gradient * {by})
"""


def both(folder, library, edited=None, call="torch.ops.given.scaled(y)", grad=False):
    runs = [PROGRAM.format(library=each, call=call, grad=grad) for each in (library, edited or library)]
    return run_cold_and_warm(folder, *runs)


def test_an_operator_named_by_its_namespace_is_stored(tmp_path):
    cold, warm = both(tmp_path, "", call="torch.ops.aten.relu.default(torch.ops.aten.neg(y))")
    assert cold[0] == warm[0]
    assert (cold[2], warm[2]) == ("0 0", "1 0")


@pytest.mark.parametrize("call", one_of(2, ["torch.ops.given.scaled(y)", "scaled(y)"]))
def test_an_operator_that_did_not_change_is_served(tmp_path, call):
    cold, warm = both(tmp_path, READS, call=call)
    assert cold[0] == warm[0] == "[0.0, 8.0, 16.0, 24.0]"
    assert warm[2] == "1 0"


def test_other_written_arguments(tmp_path):
    cold, warm = both(tmp_path, READS, WRITES)
    assert cold[0] == "[0.0, 8.0, 16.0, 24.0]"
    assert warm[0] == "[0.0, 40.0, 80.0, 120.0]"
    assert warm[2] == "0 0"


def test_arguments_that_are_no_longer_written(tmp_path):
    cold, warm = both(tmp_path, WRITES, READS)
    assert (cold[0], warm[0]) == ("[0.0, 40.0, 80.0, 120.0]", "[0.0, 8.0, 16.0, 24.0]")
    assert warm[2] == "0 0"


def test_an_operator_that_writes_is_served(tmp_path):
    cold, warm = both(tmp_path, WRITES)
    assert cold[0] == warm[0] == "[0.0, 40.0, 80.0, 120.0]"
    assert warm[2] == "1 0"


def test_another_shape_rule(tmp_path):
    cold, warm = both(tmp_path, SHORT, READS)
    assert cold[0] == "[0.0, 2.0, 4.0, 6.0]"
    assert warm[0] == "[0.0, 8.0, 16.0, 24.0]"


def test_another_derivative(tmp_path):
    cold, warm = both(tmp_path, *(READS + DERIVATIVE.format(by=by) for by in (3, 7)), grad=True)
    assert cold[0] == warm[0]
    assert (cold[1], warm[1]) == ("[8.0, 8.0, 8.0, 8.0]", "[16.0, 16.0, 16.0, 16.0]")


COMPOSITE = """
library = torch.library.Library("given", "DEF")
library.define("scaled(Tensor x) -> Tensor")
library.impl("scaled", lambda x: x * {by}, "CompositeImplicitAutograd")
"""


@pytest.mark.parametrize("call", one_of(2, ["torch.ops.given.scaled(y)", "torch.ops.given.scaled.default(y)"]))
def test_another_composite(tmp_path, call):
    """What it is made of is in the graph, and itself is not."""
    cold, warm = both(tmp_path, *(COMPOSITE.format(by=by) for by in (3, 7)), call=call)
    assert (cold[0], warm[0]) == ("[0.0, 8.0, 16.0, 24.0]", "[0.0, 16.0, 32.0, 48.0]")

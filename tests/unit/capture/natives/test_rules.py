"""Which rule a call follows: rows of tables, the first that applies."""

import operator

import pytest
import torch

import lampwork
from lampwork.capture.natives import perform, rules
from lampwork.capture.outside.overlay import Break
from lampwork.capture.record.recorder import Recorder
from lampwork.capture.world import TorchWorld


@pytest.fixture
def world():
    return TorchWorld(Recorder(sizes_by_contents=False))


def plain(x):
    return x


async def coroutine():
    pass


@torch.compiler.disable
def disabled(x):
    return x


@torch.compiler.allow_in_graph
def allowed(x):
    return x


def test_functions_in_python(world):
    assert world.rules.of(plain) is None
    assert world.rules.of(torch.nn.functional.relu) is rules._call_on_fakes
    assert world.rules.of(lampwork.compile(plain)) is rules._call_compiled
    assert world.rules.of(torch.is_grad_enabled) is world.rules.of(len) is None  # they are in C
    assert world.rules.runs_on_fakes(allowed) and world.rules.runs_on_fakes(torch.nn.functional.relu)
    assert not world.rules.runs_on_fakes(plain)


def test_what_is_refused_says_why(world):
    assert world.rules.breaks_always(disabled) and not world.rules.breaks_always(coroutine)
    with pytest.raises(Break, match="coroutine makes a coroutine"):
        world.call(coroutine, (), {})
    with pytest.raises(Break, match="disabled is marked as not to be compiled"):
        world.call(disabled, (1,), {})


def test_a_function_with_an_answer_follows_no_rule(world):
    assert torch.nn.functional.one_hot in world.intrinsics
    assert world.rules.of(torch.nn.functional.one_hot) is None


def test_other_callables(world):
    assert world.rules.of(torch.nn.Linear(1, 1)) is rules._call_module
    assert world.rules.of(torch.ops.aten.relu.default) is perform.call_tensor_function
    assert world.rules.of(dict[str, int]) is rules._call_alias


def test_functions_in_c(world):
    assert world.rules.of_native(torch.is_grad_enabled) is perform.read_state
    assert world.rules.of_native(operator.itemgetter(0)) is perform.call_getter
    with pytest.raises(Break, match="native function"):
        world.rules.of_native(torch._C._jit_clear_class_registry)


def test_a_native_call_asks_the_families_of_what_it_is_given(world):
    families = world.families
    assert families.given(len, ([1, "a", {"b": 2.0}],), {}) == []
    assert [type(each) for each in families.given(max, (1, [torch.SymInt.__new__(torch.SymInt)]), {})] == [
        type(families.size)
    ]

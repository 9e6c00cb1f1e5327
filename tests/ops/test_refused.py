"""What eager refuses, compiled code refuses with the same words: PyTorch's own samples of wrong arguments, and samples
with one number replaced (a dimension, an offset, a size), with sizes that are fixed and with symbols for them.

A shape rule that lets wrong arguments through makes kernels that read past the end of a tensor.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pytest
import torch
from torch.testing._internal.common_methods_invocations import op_db
from torch.testing._internal.opinfo.core import SampleInput

import lampwork

INFOS = {f"{info.name} {info.variant_test_name}".strip(): info for info in op_db if info.error_inputs_func}
#: Run every time: the operators whose rules have let something through.
QUICK = (
    "masked_fill", "native_layer_norm", "nn.functional.softshrink", "nn.functional.gelu", "roll", "gather", "scatter",
    "scatter_add", "take", "aminmax", "nn.functional.huber_loss", "complex", "index_add", "index_copy",
)  # fmt: skip
#: Tensors of 65 dimensions; ranges without an end, of which Python says it in its own words.
LEFT = {"amax", "amin", "arange"}


def outcome(function: Callable, sample: Any) -> tuple[str, str]:
    torch.manual_seed(0)
    try:
        function(sample.input, *sample.args, **sample.kwargs)
    except Exception as error:
        return type(error).__name__, str(error)
    return "", ""


def refused_alike(name: str, dynamic: bool) -> None:
    function = INFOS[name].op
    program = lambda *args, **kwargs: function(*args, **kwargs)
    for error in INFOS[name].error_inputs("cpu"):
        expected = outcome(program, error.sample_input)
        if expected[0]:
            compiled = lampwork.compile(program, dynamic=dynamic, options={"cache": False})
            assert outcome(compiled, error.sample_input) == expected


SIZES = pytest.mark.parametrize("dynamic", [False, True], ids=["fixed", "symbolic"])


@SIZES
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", [name for name in QUICK if name in INFOS])
def test_refused(name, dynamic):
    refused_alike(name, dynamic)


@SIZES
@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", [name for name in INFOS if name not in (*QUICK, *LEFT)])
def test_refused_by_others(name, dynamic):
    refused_alike(name, dynamic)


#: Whose words tell of the shape that a call within ATen has, of the bytes of a storage, or of addresses.
WORDS_FROM_WITHIN = {
    "nn.functional.max_pool1d", "as_strided_scatter", "as_strided", "as_strided_copy", "unflatten", "normal number_mean",
}  # fmt: skip


def caught_alike(name: str, function: Callable, samples: Iterable[Any]) -> None:
    """Nobody reads the result, and the program catches what eager raises."""

    def program(sample: Any, x: torch.Tensor) -> tuple:
        return outcome(function, sample), x * 2

    x = torch.ones(3)
    for sample in samples:
        expected, _ = program(sample, x)
        if expected[0]:
            for dynamic in (None, True):
                found, _ = lampwork.compile(program, dynamic=dynamic, options={"cache": False})(sample, x)
                assert found == expected or name in WORDS_FROM_WITHIN and found[0] == expected[0], sample


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", INFOS)
def test_caught(name):
    caught_alike(name, INFOS[name].op, [error.sample_input for error in INFOS[name].error_inputs("cpu")])


#: Numbers that are wrong for most arguments.
OTHERS = (-9, -3, -1, 0, 1, 3, 7)
#: Operators with samples in float32, but those that only ask for memory.
NUMBERED = {
    f"{info.name} {info.variant_test_name}".strip(): info
    for info in op_db
    if torch.float32 in info.dtypes and not info.name.startswith(("empty", "new_empty"))
}
#: Run every time: the operators whose rules have let such a number through, or refused one that is right.
QUICK_NUMBERS = ("as_strided_scatter", "index_fill", "index_select", "linalg.vector_norm", "repeat_interleave")
#: Words of an internal check in place of those of eager, which says what is negative.
OTHER_WORDS = {"normal number_mean"}


def with_other_numbers(sample: Any) -> Iterator[Any]:
    """The sample with one integer of its arguments, alone or in a list, replaced by another."""
    for key, value in [*enumerate(sample.args), *sample.kwargs.items()]:
        for other in _others(value):
            args, kwargs = list(sample.args), dict(sample.kwargs)
            if isinstance(key, int):
                args[key] = other
            else:
                kwargs[key] = other
            yield SampleInput(sample.input, args=tuple(args), kwargs=kwargs)


def _others(value: Any) -> Iterator[Any]:
    if type(value) is int:
        yield from (each for each in OTHERS if each != value)
    elif type(value) in (list, tuple) and all(type(each) is int for each in value):
        for place in range(len(value)):
            for other in _others(value[place]):
                yield type(value)((*value[:place], other, *value[place + 1 :]))


def numbers_refused_alike(name: str, dynamic: bool) -> None:
    function = NUMBERED[name].op
    program = lambda *args, **kwargs: function(*args, **kwargs)
    for sample in itertools.islice(NUMBERED[name].sample_inputs("cpu", torch.float32), 0, 12, 4):
        for changed in with_other_numbers(sample):
            expected = outcome(program, changed)
            if expected[0]:
                found = outcome(lampwork.compile(program, dynamic=dynamic, options={"cache": False}), changed)
                assert found == expected or name in OTHER_WORDS and found[0] == expected[0], changed


@SIZES
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", QUICK_NUMBERS)
def test_other_numbers(name, dynamic):
    numbers_refused_alike(name, dynamic)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", NUMBERED)
def test_other_numbers_caught(name):
    samples = itertools.islice(NUMBERED[name].sample_inputs("cpu", torch.float32), 0, 12, 4)
    caught_alike(name, NUMBERED[name].op, itertools.chain.from_iterable(map(with_other_numbers, samples)))


@SIZES
@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", [name for name in NUMBERED if name not in QUICK_NUMBERS])
def test_other_numbers_of_others(name, dynamic):
    numbers_refused_alike(name, dynamic)

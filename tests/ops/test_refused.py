"""What eager refuses, compiled code refuses with the same words: PyTorch's own samples of wrong arguments.

A shape rule that lets wrong arguments through makes kernels that read past the end of a tensor.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.testing._internal.common_methods_invocations import op_db

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


def refused_alike(name: str) -> None:
    function = INFOS[name].op
    program = lambda *args, **kwargs: function(*args, **kwargs)
    for error in INFOS[name].error_inputs("cpu"):
        expected = outcome(program, error.sample_input)
        if expected[0]:
            compiled = lampwork.compile(program, options={"cache": False})
            assert outcome(compiled, error.sample_input) == expected


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", [name for name in QUICK if name in INFOS])
def test_refused(name):
    refused_alike(name)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", [name for name in INFOS if name not in (*QUICK, *LEFT)])
def test_refused_by_others(name):
    refused_alike(name)

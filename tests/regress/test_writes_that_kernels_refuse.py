"""What eager refuses to compute in place, for want of a kernel or of a type that holds it, is refused in capture."""

from __future__ import annotations

import pytest
import torch

import lampwork

ALONE = ("trunc_", "sign_", "relu_", "rad2deg_", "lgamma_", "logit_", "round_")
BESIDE = ("remainder_", "lt_", "nextafter_", "xlogy_", "heaviside_", "atan2_", "fmod_", "copysign_", "hypot_")


def refused(program, *made):
    """Whether eager raises; the compiled program does the same, twice."""
    arguments = lambda: [torch.ones(2, 2, dtype=each) if isinstance(each, torch.dtype) else each for each in made]
    compiled = lampwork.compile(program)
    try:
        expected = program(*arguments())
    except Exception as error:
        for _ in range(2):
            with pytest.raises(type(error)) as raised:
                compiled(*arguments())
            assert str(raised.value).splitlines()[0] == str(error).splitlines()[0]
        return True
    for _ in range(2):
        ours = compiled(*arguments())
        torch.testing.assert_close(ours, expected)
    return False


@pytest.mark.parametrize("name", ALONE)
def test_alone(name):
    assert refused(lambda x: getattr(x, name)(), torch.complex64)


@pytest.mark.parametrize("name", BESIDE)
def test_beside_another(name):
    program = lambda x, y: getattr(x, name)(y)
    types = (torch.float32, torch.float16, torch.complex64)
    answers = [refused(program, x, y) for x in types for y in (*types, torch.int64)]
    assert any(answers) and not all(answers)

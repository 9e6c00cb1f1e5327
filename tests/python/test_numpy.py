"""numpy in compiled programs: values, types, memory and warnings are numpy's."""

from __future__ import annotations

import math
import warnings

import numpy as np
import pytest
import torch

import lampwork


def array():
    return np.arange(6.0).reshape(2, 3)


def whole():
    return np.arange(4)


def tensor():
    return torch.arange(6.0).reshape(2, 3)


def read_only():
    made = array()
    made.flags.writeable = False
    return made


def _writes_rows(x):
    a = x.numpy()
    b = a[0]
    b += 1
    a[1] = b
    a[:, 1] *= 3
    return x, a, b


def _writes_by_mask(x):
    a = x.numpy()
    a[a > 2] = 0
    return x


#: (program, argument, whether it is captured without a break)
PROGRAMS = [
    (lambda a: [1, 2, 3][np.argmax(a[0])], array, False),
    (lambda a: np.array([a[0, 0], 1.0]), array, False),
    (lambda a: {a[0, 0]: 1}, array, False),
    (lambda a: np.eye(3)[np.argmax(a, axis=1)], array, False),
    (lambda a: (abs(a), math.sqrt(a[1, 1]), round(float(a[0, 1]), 2), abs(a[0, 0])), array, True),
    (lambda a: max(a[0, 0], a[0, 1]), array, False),
    (lambda a: a[0] > 1 if (a > 1).any() else a, array, False),
    (lambda a: (a @ a.T, a.dot(a.T), np.dot(a[0], a[1])), array, True),
    (lambda a: (a * 2, a.sum(), a + np.int64(2), a % 3, a // 2, a.max(), a / 2, a.mean()), whole, True),
    (lambda a: (a.astype(np.float32) / 3, a.astype(int)), array, True),
    (lambda a: (a.flatten(), a.ravel(), a.T.ravel(), a.T.flatten(), a.T.reshape(-1)), array, True),
    (lambda a: (isinstance(a, np.ndarray), type(a), type(a[0, 0]), a.shape == (2, 3), len(a)), array, True),
    (lambda a: ([row.sum() for row in a], a.tolist(), a[1, 1].item(), a[..., None, 1:]), array, True),
    (lambda a: torch.from_numpy(a.copy()) + 1, read_only, False),
    (lambda a: torch.from_numpy(a[:, ::2]) + 1, array, True),
    (lambda a: (torch.tensor(a, dtype=torch.float32), torch.tensor(a.mean())), array, True),
    (lambda x: x.requires_grad_().numpy(), tensor, False),
    (lambda x: x.bfloat16().numpy(), tensor, False),
    (lambda x: x.numpy()[5], tensor, False),
    (lambda x: x.numpy() + np.ones(4), tensor, False),
    (lambda x: x[np.array([1, 0])], tensor, True),
    (_writes_rows, tensor, True),
    (_writes_by_mask, tensor, False),
]


@pytest.mark.parametrize("number", range(len(PROGRAMS)))
def test_program(number):
    program, make, whole = PROGRAMS[number]
    fast = lampwork.compile(program, options={"cache": False})
    outcomes = []
    for function in (program, fast, fast):
        argument = make()
        try:
            result = function(argument)
        except Exception as error:
            result = repr(error)
        outcomes.append((repr(result), repr(argument)))
    assert outcomes[0] == outcomes[1] == outcomes[2]
    stats = lampwork.stats(fast)
    assert bool(stats["breaks"] or stats["fallbacks"]) is not whole, (stats["breaks"], stats["fallbacks"])


@pytest.mark.parametrize(
    "program", [lambda a: 1 / a, lambda a: np.log(a), lambda a: a / (a - a), lambda a: np.exp(a * 1e3)]
)
def test_what_numpy_warns_of_it_warns_of(program):
    fast = lampwork.compile(program, options={"cache": False})

    def outcome(function):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            result = function(array())
        return repr(result), [str(each.message) for each in caught if each.category is RuntimeWarning]

    assert outcome(program) == outcome(fast) and outcome(program)[1]


def test_an_array_is_written_through_a_tensor_over_it():
    def program(a):
        torch.from_numpy(a).add_(1)
        return a

    a = array()
    compiled = lampwork.compile(program, options={"cache": False})
    assert compiled(a) is a and compiled(a) is a
    assert np.array_equal(a, array() + 2)
    assert not lampwork.stats(compiled)["breaks"]


def test_arrays_of_other_shapes_and_types_are_compiled_anew():
    fast = lampwork.compile(lambda a: torch.from_numpy(a) * 2, options={"cache": False})
    for a in (array(), array()[:1], array().astype(np.float32), whole(), array()[:, ::2], array()):
        found = fast(a)
        assert np.array_equal(found.numpy(), a * 2) and found.numpy().dtype == a.dtype
    frozen = read_only()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert np.array_equal(fast(frozen).numpy(), frozen * 2)

"""Tests for a machine with an NVIDIA GPU; `make test-gpu` runs them with the operator samples.

LAMPWORK_GPU_TESTS=cpu runs those that make sense there on the CPU, to try the tests themselves.
"""

from __future__ import annotations

import os

import pytest
import torch

import lampwork

PRETEND = os.environ.get("LAMPWORK_GPU_TESTS") == "cpu"


def pytest_collection_modifyitems(items):
    if PRETEND or torch.cuda.is_available():
        return
    for item in items:
        if "tests/gpu/" in item.path.as_posix():
            item.add_marker(pytest.mark.skip(reason="no NVIDIA GPU"))


@pytest.fixture
def device():
    """The device of the test's tensors."""
    return "cpu" if PRETEND else "cuda"


@pytest.fixture
def cuda():
    """For tests that mean nothing on a CPU."""
    if PRETEND:
        pytest.skip("needs a GPU")


@pytest.fixture(autouse=True)
def fresh():
    """Each test compiles anew and draws the same numbers."""
    lampwork.reset()
    torch.manual_seed(5)
    yield
    if not PRETEND:
        torch.cuda.synchronize()  # an error of this test is told here, not in the next one

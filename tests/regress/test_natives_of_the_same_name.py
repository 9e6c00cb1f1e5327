"""Native functions that a Python function of the same name calls: `torch.cdist` calls one that `torch` has no name for.
A break at such a call made it of the name by which it is called, of None."""

from __future__ import annotations

import pytest
import torch

from lampwork.ir.reference import find, reference

NAMES = ("cdist", "stft", "norm", "meshgrid", "split")


@pytest.mark.parametrize("name", NAMES)
def test_their_names_lead_to_them(name):
    native = getattr(torch._VF, name)
    ref = reference(native)
    assert ref.portable and find(ref.module, ref.qualname) is native

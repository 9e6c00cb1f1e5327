"""Where autograd metadata keeps the gradient function was looked up in an object that was gone: another offset was found
with PyTorch 2.11, and a history went unseen."""

from __future__ import annotations

import torch

from lampwork import _torch
from lampwork.runtime.guards.memory_words import word


def test_the_gradient_function_is_found():
    layout = _torch.tensor_layout()
    if layout is None:  # no snapshots are taken then
        return
    leaf = torch.ones(3, requires_grad=True)
    for result in (leaf * 2, leaf.exp()):
        function = result.grad_fn
        assert word(word(result._cdata + layout.autograd) + layout.grad_fn) == word(id(function) + 16) != 0
    assert word(word(leaf._cdata + layout.autograd) + layout.grad_fn) == 0

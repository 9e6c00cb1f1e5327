"""A view of an input that requires grad, returned detached by a call that begins without grad and ends with it."""

import torch

import lampwork


def test_detached_where_grad_mode_changes():
    def program(x):
        torch.set_grad_enabled(True)
        return x.detach()

    compiled = lampwork.compile(program)
    before = torch.is_grad_enabled()
    try:
        for x in (torch.ones(3, requires_grad=True), torch.ones(3, requires_grad=True) * 2):
            with torch.no_grad():
                result = compiled(x)
            assert not result.requires_grad
    finally:
        torch.set_grad_enabled(before)

"""Setting `torch.backends.cuda.matmul.allow_tf32` raised after `torch.backends.disable_global_flags()`, and reading it
raised in a program that uses the newer interface."""

import pytest

from tests.processes import run_python

OLDER = """
torch.backends.cuda.matmul.allow_tf32 = True
read = lambda: (torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32)
exact = (False, False)
"""
NEWER = """
torch.backends.cuda.matmul.fp32_precision = "tf32"
read = lambda: (torch.backends.cuda.matmul.fp32_precision, torch.backends.cudnn.conv.fp32_precision)
exact = ("ieee", "ieee")
"""
SCRIPT = """
import torch
from lampwork import _torch
{}
torch.backends.disable_global_flags()
before = read()
try:
    with _torch.exact_products():
        assert read() == exact, read()
        raise KeyError
except KeyError:
    pass
assert read() == before != exact, read()
"""


@pytest.mark.parametrize("interface", [OLDER, NEWER], ids=["older", "newer"])
def test_set_for_a_block(interface):
    done = run_python(["-c", SCRIPT.format(interface)])
    assert done.returncode == 0, done.stderr

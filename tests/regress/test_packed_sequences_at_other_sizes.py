"""A recurrent layer of a packed sequence, called at a second length, ended the process: it read what has no memory."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.processes import plain_environment, run_python

ROOT = Path(__file__).parents[2]
PROGRAM = """
import torch, lampwork
from torch import nn
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence

layer = LAYER

def lengths(x, lengths):
    packed = pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
    return pad_packed_sequence(layer(packed)[0], batch_first=True)[0] * 2

def sizes(x, sizes):
    return layer(PackedSequence(x, sizes))[0].data * 2

for program in (lengths, sizes):
    compiled = lampwork.compile(program, options={"cache": False})
    for grad in (False, True):
        with torch.set_grad_enabled(grad):
            for i in range(4):
                args = torch.rand(3, 12, 8), torch.tensor([12 - i % 3, 4 + i, 7])
                if program is sizes:
                    args = torch.rand(2 * (3 + i), 8), torch.full((3 + i,), 2)
                torch.testing.assert_close(compiled(*args), program(*args))
print("done")
"""


@pytest.mark.parametrize(
    "layer", ["nn.LSTM(8, 8)", "nn.GRU(8, 8)", "nn.RNN(8, 8)", "nn.RNN(8, 8, nonlinearity='relu')"]
)
def test_as_eager(layer):
    done = run_python(
        ["-c", PROGRAM.replace("LAYER", layer)],
        cwd=ROOT,
        env=plain_environment(LAMPWORK_STRICT="1", PATH="", PYTHONPATH=str(ROOT)),
    )
    assert done.stdout.strip() == "done", (done.returncode, done.stderr[-800:])

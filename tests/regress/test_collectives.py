"""`torch.distributed` in a captured program: its functions with gradients refused, as they were told they are compiled."""

from tests.processes import run_python

COLLECTIVES = """
import torch
import torch.distributed as dist
import torch.distributed.nn as through
import lampwork

dist.init_process_group("gloo", init_method="tcp://127.0.0.1:0", rank=0, world_size=1)
weight = torch.full((4,), 2.0, requires_grad=True)

def written(x):
    y = x * 2
    dist.all_reduce(y)
    return y + 1

def gradients(x):
    return torch.autograd.grad(through.all_reduce((x * weight).sin()).sum(), weight)[0]

def imports(x):
    import torch.distributed.nn
    return x + 1

x = torch.arange(4.0)
for function, breaks in ((written, 1), (gradients, 2), (imports, 0)):
    made = lampwork.compile(function, options={"cache": False})
    for _ in range(3):
        torch.testing.assert_close(made(x), function(x))
    found = lampwork.stats(made)
    assert len(found["breaks"]) == breaks and not found["fallbacks"], found
dist.destroy_process_group()
"""


def test_collectives():
    done = run_python(["-c", COLLECTIVES])
    assert done.returncode == 0, done.stderr[-2000:]

"""`torch.profiler` with stacks around a first call: names of code that a compile ran and let go of were garbage."""

import subprocess
import sys

from tests.processes import run_python

PROFILED = """
import sys
import torch
from torch.profiler import ProfilerActivity, profile
import lampwork

made = lampwork.compile(lambda x: (x.sin() + 1).relu(), options={"cache": False})
x = torch.randn(8, requires_grad=True)
for _ in range(2):
    with profile(activities=[ProfilerActivity.CPU], with_stack=True) as taken:
        made(x).sum().backward()
        made(x)
    names = [event.name for event in taken.events()]
    assert len(names) > 20, names
    assert all(name.isprintable() for name in names), [name for name in names if not name.isprintable()]
assert sys.gettrace() is None
"""


def test_the_first_profile_of_a_process():
    done = subprocess.run([sys.executable, "-c", PROFILED], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]


KEPT = """
import gc, sys, weakref
import torch
import lampwork
from lampwork import _torch

_torch.are_stacks_profiled = lambda: True
made = lampwork.compile(lambda x: (x.sin() + 1).relu(), options={"cache": False})
x = torch.randn(8, requires_grad=True)
called, freed = {}, []

def note(frame, event, argument):
    code = frame.f_code
    if event == "call" and id(code) not in called:
        called[id(code)] = weakref.ref(code, lambda _, name=code.co_name: freed.append(name))

sys.setprofile(note)
made(x).sum().backward()
sys.setprofile(None)
gc.collect()
assert len(called) > 1000 and not freed, freed
"""


def test_code_that_equals_other_code_is_kept():
    done = run_python(["-c", KEPT])
    assert done.returncode == 0, done.stderr[-2000:]

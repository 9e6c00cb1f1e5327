"""Markers that code carries for compilers, breaks that leave no trace, and what stays out of a graph."""

from __future__ import annotations

import contextlib
import operator
import sys

import pytest
import torch

import lampwork
from lampwork.errors import GraphBreak
from tests.capture_support import capture_call, run_region


@torch.compiler.disable
def _disabled(x):
    return x + 1


@torch.compiler.assume_constant_result
def _constant():
    return len(sys.modules) * 0 + 3


@torch.compiler.allow_in_graph
def _allowed(x, y):
    return torch.sin(x) + y


def test_disabled_functions_break():
    with pytest.raises(GraphBreak) as stop:
        capture_call(lambda x: _disabled(x) * 2, torch.ones(2))
    assert stop.value.diagnostic.id == "disabled"
    assert stop.value.diagnostic.location.file == __file__


def test_constant_results():
    x = torch.ones(2)
    program = lambda x: x * _constant()
    assert torch.equal(run_region(capture_call(program, x), program, (x,)), x * 3)


def test_allow_in_graph():
    x = torch.ones(2)
    program = lambda x: _allowed(x, 2)
    assert torch.equal(run_region(capture_call(program, x), program, (x,)), torch.sin(x) + 2)


def test_compiled_functions_inside_are_looked_through():
    inner = lampwork.compile(lambda x: x * 3)
    module = lampwork.compile(torch.nn.Linear(2, 2))
    x = torch.ones(2)

    def program(x):
        return module(inner(x))

    with torch.no_grad():
        region = capture_call(program, x)
        assert torch.allclose(run_region(region, program, (x,)), program(x))
    assert len(region.inputs) == 3


def test_is_compiling():
    x = torch.ones(2)
    program = lambda x: x * 2 if torch.compiler.is_compiling() else x
    assert torch.equal(run_region(capture_call(program, x), program, (x,)), x * 2)


class _Leaky:
    def __init__(self):
        self.count = 0
        self.values = [torch.ones(2)]


def _break_in_contexts(x, holder):
    holder.count += 1
    holder.values.append(x)
    x.add_(1)
    with torch.no_grad(), torch.inference_mode(), torch.autocast("cpu", dtype=torch.bfloat16):
        torch.set_default_dtype(torch.float64)
        sys._getframe()


@pytest.mark.parametrize(
    "program",
    [
        _break_in_contexts,
        lambda x, h: x if x.sum() > 0 else h,
        lambda x, h: len(f"{x.sum().item():.1f}"),
        lambda x, h: range(x.sum()),
        lambda x, h: open("/dev/null"),
        lambda x, h: x * id(h),
        lambda x, h: (x, str(id(h))),
        lambda x, h: x.numpy(force=True),
        lambda x, h: [][5],
    ],
)
def test_breaks_leave_no_trace(program):
    x, holder = torch.ones(2), _Leaky()
    before = (
        torch.get_default_dtype(),
        torch.is_grad_enabled(),
        torch.is_inference_mode_enabled(),
        torch.is_autocast_enabled("cpu"),
    )
    with pytest.raises(GraphBreak) as stop:
        capture_call(program, x, holder)
    assert stop.value.guards
    assert stop.value.diagnostic.location.file == __file__
    after = (
        torch.get_default_dtype(),
        torch.is_grad_enabled(),
        torch.is_inference_mode_enabled(),
        torch.is_autocast_enabled("cpu"),
    )
    assert before == after
    assert holder.count == 0 and len(holder.values) == 1 and torch.equal(x, torch.ones(2))
    # Nothing of the recording is left in this thread.
    assert type(torch.ones(2) + 1) is torch.Tensor


def test_unknown_natives_are_named():
    import sys

    with pytest.raises(GraphBreak, match="getswitchinterval"):
        capture_call(lambda x: x * sys.getswitchinterval(), torch.ones(2))


def test_state_left_changed_becomes_an_effect():
    def program(x):
        torch.set_grad_enabled(False)
        return x + 1

    x = torch.ones(2)
    region = capture_call(program, x)
    assert torch.is_grad_enabled()
    with contextlib.ExitStack() as stack:
        stack.callback(torch.set_grad_enabled, True)
        run_region(region, program, (x,))
        assert not torch.is_grad_enabled()


def is_for_gradients(node):
    """Behind the program, or read by nothing but what is."""
    if node.op == "placeholder":
        return node.name.startswith("tangent")
    behind = [user.meta.get("backward") for user in node.users if user.op != "output"]
    kept = node.target in (operator.getitem, torch.ops.aten.detach.default)
    return bool(node.meta.get("backward") or (kept and behind and all(behind)))


def test_same_graph_in_every_mode():
    module = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.LayerNorm(4), torch.nn.ReLU())
    x = torch.ones(2, 4)
    graphs = []
    for mode in (torch.no_grad, torch.inference_mode, torch.enable_grad):
        with mode():
            region = capture_call(module, x)
        graphs.append([str(node.target) for node in region.graph.nodes if not is_for_gradients(node)])
        assert region.requires_grad_outputs is (mode is torch.enable_grad)
    assert graphs[0] == graphs[1] == graphs[2]


def test_no_compiler_of_the_framework_is_imported():
    import subprocess

    program = (
        "import sys, torch\n"
        "from lampwork.capture.capture import capture\n"
        "from lampwork.config import Settings\n"
        "m = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.LayerNorm(4), torch.nn.Dropout()).eval()\n"
        "with torch.no_grad():\n"
        "    capture(m, (torch.ones(2, 4),), {}, Settings())\n"
        "print([name for name in ('torch._dynamo', 'torch._inductor', 'sympy') if name in sys.modules])\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120)
    assert done.stdout.strip() == "[]", done.stdout + done.stderr

"""What the backward pass of a compiled region occupies: saved tensors until their last use, layers one at a time."""

from __future__ import annotations

import math
import re

import pytest
import torch

import lampwork
from lampwork._torch import vendor_supports_bfloat16
from lampwork.capture.capture import capture
from lampwork.codegen.host import host_source
from lampwork.codegen.launch_sequences import launch_sequences
from lampwork.config import Settings, make_settings
from lampwork.graph import padding
from lampwork.graph import prepare as prepare_module
from lampwork.graph.prepare import prepare
from lampwork.graph.recompute import Costs, plan_for
from lampwork.ir.program import NativeCode
from lampwork.ir.target import Target
from lampwork.lower import lower
from lampwork.pipeline import compile_call
from lampwork.schedule import schedule
from lampwork.schedule.plan import OWN_MEMORY_BYTES
from tests.cuda_stand_in import cuda_stand_in

GPU = Target("sm_90", 16, 132, 227 << 10, 50 << 20, 50 << 20, device="cuda")
WIDTH, ROWS, LAYERS = 64, 512, 8


def network():
    torch.manual_seed(0)
    layers = [torch.nn.Sequential(torch.nn.Linear(WIDTH, WIDTH), torch.nn.GELU("tanh")) for _ in range(LAYERS)]
    return torch.nn.Sequential(*layers)


def compiled_network(**options):
    module = network()
    return module, lampwork.compile(module, options={"cache": False, **options})


def backward_artifact(compiled):
    (entry,) = compiled.__lampwork__.entries
    return entry.artifact.backward.artifact


def test_layers_that_are_computed_again_take_turns():
    _, compiled = compiled_network()
    compiled(torch.randn(ROWS, WIDTH)).sum().backward()
    program = backward_artifact(compiled).program
    assert program.workspace_bytes <= 4 * (4 * ROWS * WIDTH), program.workspace_bytes  # of 8 layers


def test_saved_tensors_are_given_back_while_the_backward_pass_runs():
    _, compiled = compiled_network()
    result = compiled(torch.randn(ROWS, WIDTH))
    result.sum().backward()
    source = backward_artifact(compiled).host_source
    assert "values.clear()" in source
    deleted = [place for place, line in enumerate(source.splitlines()) if line.strip().startswith("del x")]
    assert len(deleted) >= LAYERS and len(set(deleted)) == len(deleted)


def test_a_graph_is_walked_once():
    _, compiled = compiled_network()
    result = compiled(torch.randn(ROWS, WIDTH))
    result.sum().backward()
    with pytest.raises(RuntimeError, match="second time"):
        result.sum().backward()


def test_a_retained_graph_is_walked_again():
    module, compiled = compiled_network()
    x = torch.randn(ROWS, WIDTH)
    loss = compiled(x).square().sum()
    loss.backward(retain_graph=True)
    first = [parameter.grad.clone() for parameter in module.parameters()]
    loss.backward()
    for parameter, once in zip(module.parameters(), first):
        torch.testing.assert_close(parameter.grad, 2 * once)


def activation(x):
    gate = 0.5 + 0.2 * x
    return x * gate * (1.0 + gate * gate)


class Wide(torch.nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.layers = torch.nn.ModuleList(torch.nn.Linear(WIDTH, WIDTH) for _ in range(LAYERS))

    def forward(self, x):
        for layer in self.layers:
            x = activation(layer(x))
        return x


def test_a_whole_step_computes_again_when_it_needs_to_and_keeps_nothing_of_that():
    """Each layer keeps what its product and its activation read, not what is in between."""
    module, expected = Wide(), Wide()
    optimizers = [torch.optim.SGD(each.parameters(), lr=0.1) for each in (module, expected)]

    def step(model, optimizer, x):
        optimizer.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        return loss.detach()

    compiled = lampwork.compile(step, options={"cache": False})
    for _ in range(3):
        x = torch.randn(ROWS, WIDTH)
        torch.testing.assert_close(compiled(module, optimizers[0], x), step(expected, optimizers[1], x))
    torch.testing.assert_close(list(module.parameters()), list(expected.parameters()))
    for entry in compiled.__lampwork__.entries:
        (program,) = entry.programs
        assert program.workspace_bytes < (2 * LAYERS + 4) * 4 * ROWS * WIDTH, program.workspace_bytes


def test_large_buffers_of_a_gpu_have_memory_of_their_own():
    """Nothing but small buffers is planned into the workspace, which stays allocated between calls."""
    module, x = Wide(), torch.randn(ROWS * 32, WIDTH)
    with cuda_stand_in(), torch.no_grad():
        region = capture(module, (x,), {}, Settings())
        program = schedule(lower(prepare(region, Settings()), Settings()), Settings(), GPU)
    assert program.workspace_bytes < OWN_MEMORY_BYTES
    large = [name for name, place in program.placements.items() if place.kind == "extern"]
    freed = [name for names in program.free_after.values() for name in names]
    assert len(large) >= LAYERS and set(large) <= {*freed, program.results[0].view.buffer}


def test_large_buffers_lie_apart_in_the_workspace_of_a_capture():
    """Those that live at once; together they take little more than what is alive at the worst time."""
    module, x = Wide(), torch.randn(ROWS * 32, WIDTH)
    with cuda_stand_in(), torch.no_grad():
        region = capture(module, (x,), {}, Settings())
        program = schedule(lower(prepare(region, Settings()), Settings()), Settings(), GPU)
        runs = (0,) * len(launch_sequences(program))
        source = host_source(program, NativeCode(b"", runs, tuple(program.buffers), (), (), device="cuda:0"))
    captured = int(re.search(r"CAPTURED_BYTES = (\d+)", source)[1])
    alive: dict[str, tuple[int, int]] = {}
    made, most = 0, 0
    for line in source.splitlines():
        found = re.match(r" *(e\d+) = passing\((\d+), \(([\d, ]+)\)", line)
        if found:
            start = int(found[2])
            end = start + 4 * math.prod(int(each) for each in found[3].split(",") if each.strip())
            assert program.workspace_bytes <= start and end <= captured
            assert all(end <= other or start >= stop for other, stop in alive.values()), (line, alive)
            alive[found[1]] = (start, end)
            made, most = made + 1, max(most, sum(stop - begin for begin, stop in alive.values()))
        elif line.strip().startswith("del e"):
            alive.pop(line.split()[1], None)
    assert made >= LAYERS - 1 and captured <= 1.5 * most  # the last layer makes the result


def test_what_a_host_function_allocates_at_most_is_in_its_text():
    """Counted from its lines: a graph's pool is made in one block of that size, and results have memory elsewhere."""
    module, x = Wide(), torch.randn(ROWS * 32, WIDTH)
    with cuda_stand_in(), torch.no_grad():
        region = capture(lambda x: (module(x), torch.cat((x, x)) + 1), (x,), {}, Settings())
        program = schedule(lower(prepare(region, Settings()), Settings()), Settings(), GPU)
        runs = (0,) * len(launch_sequences(program))
        source = host_source(program, NativeCode(b"", runs, tuple(program.buffers), (), (), device="cuda:0"))
    alive, most, most_with_results = {}, 0, 0
    for line in map(str.strip, source.splitlines()):
        made = re.match(r"([er]\d+) = (?:passing\(\d+, |empty\()\(([\d, ]+)\)", line) or re.search(
            r"(e\d+)\.shape == \(([\d, ]+)\)", line
        )
        if made:
            alive[made[1]] = 4 * math.prod(int(each) for each in made[2].split(",") if each.strip())
        elif line.startswith("del e"):
            del alive[line.split()[1]]
        most = max(most, sum(size for name, size in alive.items() if name.startswith("e")))
        most_with_results = max(most_with_results, sum(alive.values()))
    assert 0 < most < most_with_results
    assert f"ALLOCATED_BYTES = {(most, most_with_results)}" in source


class Odd(torch.nn.Module):
    """A loss, and what it is computed from: rows of an odd width."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.head = torch.nn.Linear(16, 13, bias=False, dtype=torch.bfloat16)

    def forward(self, x, labels):
        logits = self.head(x)
        return torch.nn.functional.cross_entropy(logits.float().view(-1, 13), labels), logits


@pytest.fixture
def as_on_a_gpu(monkeypatch):
    """Joint graphs are made wider and taken apart as those of programs for a GPU."""
    passes = prepare_module._joint_passes
    monkeypatch.setattr(
        prepare_module, "_joint_passes", lambda settings, device, *more: passes(settings, "cuda:0", *more)
    )
    monkeypatch.setattr(padding, "_gains", lambda width, products, copied: width % 8 != 0)


@pytest.mark.parametrize("tangent", [False, True])
def test_a_product_made_wider_is_kept_as_it_is(as_on_a_gpu, tangent):
    module, expected = Odd(), Odd()
    compiled = lampwork.compile(module, options={"cache": False})
    x, labels = torch.randn(4, 8, 16, dtype=torch.bfloat16), torch.arange(32) % 13
    for _ in range(2):
        for function in (compiled, expected):
            loss, logits = function(x, labels)
            (loss + logits.float().square().sum() if tangent else loss).backward()
    torch.testing.assert_close(module.head.weight.grad, expected.head.weight.grad, rtol=2e-2, atol=2e-2)
    (entry,) = compiled.__lampwork__.entries
    program, link = entry.artifact.program, entry.artifact.backward
    kept = [program.results[index].view.buffer for index in link.saved_results]
    wide = [name for name in kept if tuple(program.buffers[name].shape) == (32, 16)]
    # Where the product wrote it: memory of its own, or, of a product without bfloat16 instructions, given memory.
    kinds = [program.placements[name].kind for name in wide]
    assert kinds == ["extern" if vendor_supports_bfloat16() else "result"]
    assert not any(tuple(program.buffers[name].shape) == (32, 13) for name in kept)


class Pair(torch.nn.Module):
    """A loss beside the large tensor that it is computed from."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.head = torch.nn.Linear(WIDTH, 64)

    def forward(self, x):
        logits = self.head(x).tanh()
        return (logits.square() + logits).mean(), logits


def test_nothing_is_made_of_tangents_that_are_missing():
    """The backward program asks whether there is one, and reads none of its memory where there is not."""
    module, expected = Pair(), Pair()
    compiled = lampwork.compile(module, options={"cache": False})
    x = torch.randn(ROWS, WIDTH)
    uses = [
        lambda loss, logits: loss,
        lambda loss, logits: logits.square().sum(),
        lambda loss, logits: loss + logits.exp().mean(),
        lambda loss, logits: loss,
    ]
    for use in uses:
        for each in (module, expected):
            each.zero_grad()
        use(*compiled(x)).backward()
        use(*expected(x)).backward()
        torch.testing.assert_close(module.head.weight.grad, expected.head.weight.grad)
        torch.testing.assert_close(module.head.bias.grad, expected.head.bias.grad)
    (entry,) = compiled.__lampwork__.entries
    assert entry.artifact.backward.optional == (1,)
    (loss, _), (again, _) = compiled(x), expected(x)
    first = torch.autograd.grad(loss, module.head.weight, create_graph=True)[0]
    other = torch.autograd.grad(again, expected.head.weight, create_graph=True)[0]
    torch.testing.assert_close(
        torch.autograd.grad(first.square().sum(), module.head.weight),
        torch.autograd.grad(other.square().sum(), expected.head.weight),
    )


def test_a_missing_tangent_that_an_operator_reads_is_zeros():
    """The gradient of a product is what ATen multiplies: it is made."""

    class Two(torch.nn.Module):
        def __init__(self):
            super().__init__()
            torch.manual_seed(0)
            self.first, self.second = torch.nn.Linear(WIDTH, WIDTH), torch.nn.Linear(WIDTH, WIDTH)

        def forward(self, x):
            return self.first(x), self.second(x).square().mean()

    module, expected = Two(), Two()
    compiled = lampwork.compile(module, options={"cache": False})
    x = torch.randn(ROWS, WIDTH)
    for index in (1, 0):
        compiled(x)[index].sum().backward()
        expected(x)[index].sum().backward()
    for mine, theirs in zip(module.parameters(), expected.parameters()):
        torch.testing.assert_close(mine.grad, theirs.grad)
    (entry,) = compiled.__lampwork__.entries
    assert entry.artifact.backward.optional == ()


def test_a_gpu_computes_a_tanh_again_where_a_cpu_keeps_it():
    class Gate(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = torch.nn.Linear(WIDTH, WIDTH), torch.nn.Linear(WIDTH, WIDTH)

        def forward(self, x):
            x = self.first(x)
            return self.second(0.5 * x * (1.0 + torch.tanh(x)))

    found = {}
    compile_call(Gate(), (torch.randn(ROWS, WIDTH),), {}, make_settings(), found.__setitem__)
    kept = {}
    for device in ("cpu", "cuda:0"):
        plan = plan_for(Costs(found["partition"], device), 0.0)
        kept[device] = {str(node.target) for node in plan.saved if node.op == "call_function"}
    assert "aten.tanh.default" in kept["cpu"] and "aten.tanh.default" not in kept["cuda:0"]

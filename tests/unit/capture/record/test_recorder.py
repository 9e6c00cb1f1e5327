"""The recorder: what lands in the graph, what is refused, and that modes do not matter."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from lampwork.capture.record.fake import (
    DataDependent,
    Fake,
    FakeStorage,
    Unsupported,
    make_fake,
    make_fakes,
    shares_storage,
)
from lampwork.capture.record.recorder import Recorder, record
from lampwork.debug.interpret.graphs import run_recorded
from lampwork.ir.loops import Location

aten = torch.ops.aten


def targets(region):
    return [node.target for node in region.graph.nodes if node.op == "call_function"]


# Fakes -----------------------------------------------------------------------------------------------------------------


def test_fake_has_the_metadata_of_its_tensor():
    tensor = torch.randn(4, 6, dtype=torch.float64)[1:, ::2]
    fake = make_fake(tensor)
    assert (fake.shape, fake.stride(), fake.dtype, fake.device) == (
        tensor.shape,
        tensor.stride(),
        tensor.dtype,
        tensor.device,
    )
    assert fake.storage_offset() == tensor.storage_offset()


def test_fake_parameter():
    fake = make_fake(torch.nn.Parameter(torch.ones(2)))
    assert isinstance(fake, torch.nn.Parameter) and fake.requires_grad and fake.is_leaf
    assert fake.real_class is torch.nn.Parameter
    assert not isinstance(make_fake(torch.ones(2)), torch.nn.Parameter)
    assert isinstance(make_fake(torch.nn.Buffer(torch.ones(2))), torch.nn.Buffer)


def test_fake_of_a_result_is_no_leaf():
    fake = make_fake(torch.nn.Parameter(torch.ones(2)) * 2)
    assert fake.requires_grad and not fake.is_leaf


def test_views_share_a_fake_storage():
    base = torch.zeros(4, 4)
    one, two, other = make_fakes([base, base[2], torch.zeros(4)])
    assert shares_storage(one, two) and not shares_storage(one, other)
    assert two.storage_offset() == 8
    assert FakeStorage(64, torch.device("cpu")).untyped.nbytes() == 64


@pytest.mark.parametrize("read", [lambda t: t.numpy(), lambda t: t.tolist(), lambda t: t + 1, lambda t: t.view(-1)])
def test_fakes_hold_no_data_and_do_not_compute_outside(read):
    with pytest.raises(RuntimeError):
        read(make_fake(torch.ones(2)))


@pytest.mark.parametrize(
    "tensor",
    [
        torch.ones(2).to_sparse(),
        torch.view_as_complex(torch.ones(2, 2)).conj(),
        torch.ones(1).as_subclass(type("T", (torch.Tensor,), {})),
    ],
)
def test_foreign_kinds_of_tensor_are_refused(tensor):
    with pytest.raises(Unsupported):
        make_fake(tensor)


# Recording ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "program",
    [
        lambda x: F.linear(x, x, x[:, 0]),
        lambda x: F.layer_norm(torch.matmul(x, x.t()).reshape(-1), (4,)),
        lambda x: F.scaled_dot_product_attention(x[None, None], x[None, None], x[None, None]),
        lambda x: F.batch_norm(x, torch.zeros(3), torch.ones(3), training=True),
        lambda x: x.detach().clone().detach_().add_(1),
        lambda x: F.dropout(torch.einsum("ij,kj->ik", x, x), training=True),
        lambda x: torch.tensor([1.0, 2.0, 3.0]) + x.softmax(-1).to(torch.bfloat16),
    ],
)
def test_every_mode_gives_one_graph(program):
    texts = []
    for mode in (torch.no_grad, torch.inference_mode, torch.enable_grad):
        with mode():
            texts.append(str(record(program, [torch.ones(2, 3)]).graph))
    assert texts[0] == texts[1] == texts[2]


def test_grad_mode_with_parameters_gives_the_same_graph():
    parameter = torch.nn.Parameter(torch.ones(2, 3))
    with torch.enable_grad():
        region = record(lambda x: F.gelu(F.linear(x, x)).exp(), [parameter])
    with torch.no_grad():
        plain = record(lambda x: F.gelu(F.linear(x, x)).exp(), [parameter])
    assert region.requires_grad_outputs and not plain.requires_grad_outputs
    assert str(region.graph) == str(plain.graph)


def test_composite_operators_never_land():
    with torch.inference_mode():
        region = record(lambda x: F.layer_norm(F.linear(x, x), (2,)), [torch.ones(2, 3)])
    assert targets(region)[:3] == [aten.t.default, aten.mm.default, aten.native_layer_norm.default]


def test_autocast_is_recorded_as_casts():
    with torch.no_grad(), torch.autocast("cpu", dtype=torch.bfloat16):
        region = record(lambda x: (x @ x, x @ x), [torch.ones(2, 2)])
    assert targets(region).count(aten._to_copy.default) == 4  # no cache: one for each operand
    assert [value.meta["val"].dtype for value in list(region.graph.nodes)[-1].args[0]] == [torch.bfloat16] * 2


def test_nodes_know_value_line_and_grad_mode():
    recorder = Recorder(lambda: Location("model.py", 7, "layer.0"))
    x = recorder.input(torch.ones(2, requires_grad=True))
    with recorder.recording():
        y = x + 1
        with torch.no_grad():
            z = y * 2
    graph = recorder.finish([z])
    add, mul = [node for node in graph.nodes if node.op == "call_function"]
    assert add.meta["val"] is y and add.meta["location"].line == 7
    assert add.meta["grad_enabled"] and not mul.meta["grad_enabled"]


def test_placeholders_come_first_even_when_met_late():
    recorder, met_late = Recorder(), torch.ones(2)
    x = recorder.input(torch.ones(2))
    with recorder.recording():
        y = x + 1
        late = recorder.input(met_late)
        z = y * late
    graph = recorder.finish([z])
    assert [node.op for node in graph.nodes] == [
        "placeholder",
        "placeholder",
        "call_function",
        "call_function",
        "output",
    ]


def test_inputs_that_share_a_storage():
    base = torch.zeros(4)
    recorder = Recorder()
    one, two = recorder.input(base[:2]), recorder.input(base[1:])
    assert shares_storage(one, two)


def test_literals_are_fresh_on_every_run():
    region = record(lambda x: torch.tensor([1.0, 2.0]).add_(x), [torch.ones(2)])
    for _ in range(2):
        assert run_recorded(region.graph, [torch.ones(2)])[0].tolist() == [2.0, 3.0]


def test_literals_know_their_value_until_written():
    def known(x):
        return x + torch.tensor(3).item()

    def written(x):
        value = torch.tensor(3)
        value.add_(1)
        return x + value.item()

    assert len(targets(record(known, [torch.ones(2)]))) >= 1
    with pytest.raises(DataDependent):
        record(written, [torch.ones(2)])


def test_metadata_changes_in_place_become_views():
    region = record(lambda x: x.clone().t_().unsqueeze_(0), [torch.ones(2, 3)])
    assert aten.t.default in targets(region) and aten.unsqueeze.default in targets(region)
    (result,) = run_recorded(region.graph, [torch.ones(2, 3)])
    assert result.shape == (1, 3, 2)


@pytest.mark.parametrize(
    "program,kind",
    [
        (lambda x: x.item(), DataDependent),
        (lambda x: x if x.sum() > 0 else -x, DataDependent),
        (lambda x: range(len(x.nonzero())), DataDependent),
        (lambda x: int(x[x > 0].numel()), DataDependent),
        (lambda x: x.t_(), Unsupported),
        (lambda x: x.clone().resize_(7), Unsupported),
        (lambda x: x.clone().set_(x), Unsupported),
        (lambda x: x.expand(2, 1).add_(1), Unsupported),
        (lambda x: torch.rand(2, generator=torch.Generator()), Unsupported),
        (lambda x: torch.add(x, x, out=torch.empty(2)), Unsupported),
        (lambda x: x + FOREIGN, Unsupported),
        (lambda x: torch.tensor(list(range(1 << 18))) + x, Unsupported),
    ],
)
def test_what_a_graph_cannot_say_is_refused(program, kind):
    with torch.no_grad(), pytest.raises(kind) as caught:
        record(program, [torch.ones(1)])
    assert caught.value.diagnostic.id


FOREIGN = torch.ones(1)


@pytest.mark.parametrize(
    "program",
    [
        lambda x: x + torch.ones(7),
        lambda x: x.add_(torch.ones(3, 3)),
        lambda x: x @ torch.ones(7, 2),
        lambda x: x.to(torch.int64).add_(x),
        lambda x: x.view(7),
        lambda x: x.sum(5),
        lambda x: torch.cat([x, torch.ones(2, 2, 2)]),
        lambda x: F.layer_norm(x, (5,)),
        lambda x: x[9],
    ],
)
def test_errors_are_those_of_eager(program):
    with torch.no_grad():
        with pytest.raises(Exception) as eager:
            program(torch.ones(2, 3))
        with pytest.raises(type(eager.value)) as ours:
            record(program, [torch.ones(2, 3)])
    if not isinstance(ours.value, Unsupported):
        assert str(ours.value).split("\n")[0][:40] == str(eager.value).split("\n")[0][:40]


def test_a_fake_of_another_recording_is_refused():
    first, second = Recorder(), Recorder()
    fake = first.input(torch.ones(2))
    with second.recording(), pytest.raises(Unsupported):
        fake + 1


def test_recording_restores_what_it_changes():
    before = torch.is_autocast_cache_enabled()
    recorder = Recorder()
    with pytest.raises(ZeroDivisionError), recorder.recording():
        1 / 0
    assert torch.is_autocast_cache_enabled() == before
    assert not isinstance(torch.ones(2) + 1, Fake)


def test_batch_norm_statistics_are_seen_as_written():
    with torch.no_grad():
        region = record(
            lambda x, m, v: F.batch_norm(x, m, v, training=True), [torch.ones(2, 3, 2), torch.zeros(3), torch.ones(3)]
        )
    assert aten._native_batch_norm_legit.default in targets(region)


def test_recording_is_free_of_slow_imports():
    import subprocess
    import sys

    program = """
import sys, torch, torch.nn.functional as F
from lampwork.capture.record.recorder import record
from lampwork.graph.prepare import prepare
from lampwork.config import Settings
with torch.no_grad():
    prepare(record(lambda x, w: F.softmax(F.gelu(F.linear(F.layer_norm(x, (8,)), w)), -1).matmul(w).view(-1), [torch.ones(4, 8), torch.ones(8, 8)]), Settings())
print([name for name in ("sympy", "torch._dynamo", "torch._inductor") if name in sys.modules])
"""
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert result.stdout.strip() == "[]", result.stdout + result.stderr

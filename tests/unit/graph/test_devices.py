"""Programs on a CUDA device, without one: what the graph stage and lowering make of devices."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F

from lampwork.capture.capture import capture
from lampwork.capture.record.recorder import record
from lampwork.config import make_settings
from lampwork.debug.interpret.graphs import run_functional
from lampwork.errors import GraphBreak
from lampwork.graph.freeze import fold_batch_norms
from lampwork.graph.functionalize import functionalize
from lampwork.graph.prepare import prepare
from lampwork.ir.guard import Equals
from lampwork.ir.loops import LoopNest
from lampwork.ir.program import Extern, Lowered
from lampwork.ir.source import State
from lampwork.ir.verify import verify_lowered
from lampwork.lower import lower
from tests.cuda_stand_in import cuda_stand_in

CUDA = torch.device("cuda", 0)
SETTINGS = make_settings()


def lowered(function: Any, *args: Any, on_cpu: tuple = (), elsewhere: dict | None = None) -> Lowered:
    with torch.no_grad(), cuda_stand_in(on_cpu, elsewhere):
        region = capture(function, args, {}, SETTINGS)
        result = lower(prepare(region, SETTINGS), SETTINGS)
    verify_lowered(result)
    return result


def externs(program: Lowered) -> list[str]:
    return [item.op for item in program.items if isinstance(item, Extern)]


X = torch.randn(4, 8)


def test_a_program_is_where_its_tensors_are():
    program = lowered(lambda x: F.gelu(x @ x.t()) + 1, X)
    assert program.device == "cuda:0"
    assert externs(program) == ["aten::mm.default"]
    assert not any(buffer.device for buffer in program.buffers.values())
    with torch.no_grad():
        region = capture(lambda x: x + 1, (X,), {}, SETTINGS)
    assert lower(prepare(region, SETTINGS), SETTINGS).device == "cpu"


@pytest.mark.parametrize("function", [
    lambda x: x * torch.tensor(2.0),
    lambda x: x * torch.tensor([1.0, 2.0] * 4).to(x.device) + torch.arange(8, device=x.device),
    lambda x: x + torch.arange(8).to(x.device).float().mul(0.5),
    lambda x: x + torch.tensor([1.0] * 8, device=x.device),
    lambda x: torch.where(x > 0, x, torch.tensor(0.0)),
    lambda x: x[torch.tensor([0, 2])],
    lambda x: x.masked_fill(torch.ones(4, 8).tril().bool().to(x.device), torch.tensor(-1.0)),
    lambda x: torch.cat([x, torch.zeros(1, 8, device=x.device)]),
])  # fmt: skip
def test_constants_are_made_on_the_device(function):
    program = lowered(function, X)
    assert not any(buffer.device for buffer in program.buffers.values())
    assert not externs(program)


def test_a_scalar_on_the_cpu_is_copied_once():
    scalar = torch.tensor(2.5)
    program = lowered(lambda x, s: (x * s + 1, x - s), X, scalar, on_cpu=(scalar,))
    assert externs(program) == ["aten::_to_copy.default"]
    assert [buffer.device for buffer in program.buffers.values() if buffer.device] == ["cpu"]


def test_what_stays_on_the_cpu_goes_through_aten():
    other = torch.randn(4, 8)
    program = lowered(lambda x, y: (x + 1, (y * 2).view(2, 16).sum(1), x.cpu().exp()), X, other, on_cpu=(other,))
    assert sorted(externs(program)) == [
        "aten::_to_copy.default", "aten::exp.default", "aten::mul.Tensor", "aten::sum.dim_IntList"
    ]  # fmt: skip
    assert all(item.out_variant is None for item in program.items if isinstance(item, Extern))
    nests = [item for item in program.items if isinstance(item, LoopNest)]
    assert len(nests) == 1


def test_writes_to_tensors_elsewhere():
    other = torch.randn(4, 8)

    def function(x, y):
        y.add_(1)
        x.mul_(2)
        return x.sum()

    program = lowered(function, X, other, on_cpu=(other,))
    assert "aten::copy_.default" in externs(program)


def test_inputs_moved_to_the_device():
    other = torch.randn(4, 8)
    program = lowered(lambda x, y: x + y.to("cuda:0"), X, other, on_cpu=(other,))
    assert externs(program) == ["aten::_to_copy.default"]


def test_several_devices_break():
    other = torch.randn(4, 8)
    with pytest.raises(GraphBreak, match=r"cuda:0 and cuda:1.*several-devices"):
        lowered(lambda x, y: (x + 1, y + 1), X, other, elsewhere={id(other): "cuda:1"})


@pytest.mark.parametrize("mask", [torch.ones(4, 8).bool(), torch.ones(1).bool(), torch.tensor(True)])
def test_what_is_sized_by_contents_on_another_device_breaks(mask):
    """Eager refuses: a graph would select with the places of the mask, which may lie on a CPU."""
    with pytest.raises(GraphBreak, match="given tensors on"):
        lowered(lambda x, mask: torch.masked_select(x, mask), X, mask, on_cpu=(mask,))
    with pytest.raises(GraphBreak, match="given tensors on"):
        lowered(lambda x, mask: torch.masked_select(x, mask), X, mask, on_cpu=(X,))


def test_the_current_device_is_guarded_and_named():
    with torch.no_grad(), cuda_stand_in():
        region = capture(lambda x: x + torch.zeros(8, device="cuda"), (X,), {}, SETTINGS)
    (zeros,) = [node for node in region.graph.nodes if node.target is torch.ops.aten.zeros.default]
    assert zeros.kwargs["device"] == CUDA
    (guard,) = [guard for guard in region.guards if guard.source == State("cuda")]
    assert isinstance(guard.test, Equals)
    with torch.no_grad():
        region = capture(lambda x: x + 1, (X,), {}, SETTINGS)
    assert not [guard for guard in region.guards if guard.source == State("cuda")]


def test_what_names_onednn_stays_out():
    linear = torch.nn.Sequential(torch.nn.Linear(64, 512), torch.nn.GELU(), torch.nn.Conv1d(128, 64, 1)).eval()
    frozen = make_settings(options={"freeze": True})
    with torch.no_grad(), cuda_stand_in():
        graph = prepare(capture(linear, (torch.randn(128, 64),), {}, frozen), frozen).graph
    targets = {str(node.target) for node in graph.nodes if node.op == "call_function"}
    assert not [target for target in targets if "mkldnn" in target]
    assert "aten.convolution.default" in targets


def test_cudnn_batch_norm_is_the_ordinary_one():
    channels = [torch.rand(4) for _ in range(4)]

    def function(training):
        def call(x, weight, bias, mean, variance):
            return torch.ops.aten.cudnn_batch_norm(x, weight, bias, mean, variance, training, 0.1, 1e-5)[0]

        with torch.no_grad(), cuda_stand_in():
            region = record(call, [torch.randn(2, 4, 6, 6), *channels])
            return region, prepare(region, SETTINGS)

    region, functional = function(False)
    assert externs(lower(functional, SETTINGS)) == []
    region, functional = function(True)
    assert len(functional.writes) == 2  # the running statistics


def test_batch_norms_fold_without_packing():
    module = torch.nn.Sequential(
        torch.nn.Conv2d(4, 6, 3, bias=False), torch.nn.BatchNorm2d(6), torch.nn.ReLU(), torch.nn.Conv2d(6, 6, 1),
        torch.nn.BatchNorm2d(6),
    ).eval()  # fmt: skip
    for norm in (module[1], module[4]):
        norm.running_mean.uniform_(-1, 1)
        norm.running_var.uniform_(0.5, 2)
    x = torch.randn(2, 4, 8, 8)
    inputs = [each.detach() for each in (*module.parameters(), *module.buffers()) if each.is_floating_point()]
    names = [name for name, each in (*module.named_parameters(), *module.named_buffers()) if each.is_floating_point()]

    def call(x, *values):
        return torch.func.functional_call(module, dict(zip(names, values)), (x,))

    for layout in (torch.contiguous_format, torch.channels_last):
        image = x.to(memory_format=layout)
        with torch.no_grad():
            functional = fold_batch_norms(functionalize(record(call, [image, *inputs])))
            functional.graph.lint()
            assert [recipe[0] for recipe in functional.derived].count("fold_batch_norm_weight") == 2
            (result,) = run_functional(functional, [image, *inputs])
            expected = module(image)
        torch.testing.assert_close(result, expected, rtol=1e-5, atol=1e-5)
        assert result.stride() == expected.stride()


def test_stores_in_any_order_where_that_does_not_show():
    index = torch.tensor([0, 1, 1])

    def function(x, i):
        return x.index_add(0, i, x[:3])

    assert "aten::index_add.default" not in externs(lowered(function, X, index))
    assert "aten::index_add.default" in externs(lowered(function, X.half(), index))
    torch.use_deterministic_algorithms(True)
    try:
        assert "aten::index_add.default" in externs(lowered(function, X, index))
    finally:
        torch.use_deterministic_algorithms(False)


def test_programs_on_several_devices_run_eagerly():
    from lampwork import pipeline

    other = torch.randn(4, 8)
    with torch.no_grad(), cuda_stand_in(elsewhere={id(other): "cuda:1"}):
        region = capture(lambda x, y: (x + 1, y + 1), (X, other), {}, SETTINGS)
        artifact = pipeline.compile_region(region, SETTINGS, lambda stage, value: None)
        assert artifact.outcome.id == "several-devices" and artifact.outcome.remedy
        with pytest.raises(GraphBreak):
            pipeline.compile_region(region, make_settings(fullgraph=True), lambda stage, value: None)


def test_dropout_is_drawn_in_kernels():
    """The draw is in the program, ATen's operator is not; an own generator, and other random numbers, stay ATen's."""
    layer = torch.nn.TransformerEncoderLayer(8, 2, 16, dropout=0.1).train()
    names = externs(lowered(lambda x: layer.linear2(layer.dropout(F.relu(layer.linear1(x)))) + layer.dropout1(x), X))
    assert names.count("lampwork::draw_key.default") == 1
    assert not any("dropout" in name for name in names)
    assert "lampwork_drawing::bernoulli_.float" in externs(lowered(lambda x: F.dropout2d(x[None], 0.5), X))


def test_a_seed_set_between_dropouts_keeps_its_place():
    def seeded(x):
        y = F.dropout(x, 0.5)
        torch.manual_seed(3)
        return F.dropout(y, 0.5)

    names = [name.removesuffix(".default") for name in externs(lowered(seeded, X))]
    assert names == ["lampwork::draw_key", "lampwork::manual_seed", "lampwork::draw_key"]

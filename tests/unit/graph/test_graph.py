"""Graph passes: same answers as eager, and what they promise beyond that."""

from __future__ import annotations

import copy

import pytest
import torch
import torch.nn.functional as F

from lampwork import _torch
from lampwork._torch import vendor_supports_bfloat16
from lampwork.capture.record.recorder import record
from lampwork.config import make_settings
from lampwork.debug.interpret.graphs import prepacked, run_functional
from lampwork.errors import CompileError
from lampwork.graph import products
from lampwork.graph.functionalize import functionalize
from lampwork.graph.prepare import prepare
from lampwork.graph.simplify import pure, remove_dead, share_repeated_work
from lampwork.ir.region import AliasOfInput, FromGraph
from lampwork.runtime.launch.prepacked import derive

aten = torch.ops.aten


def prepared(fn, *inputs, freeze=False):
    with torch.no_grad():
        return prepare(record(fn, inputs), make_settings(options={"freeze": freeze}))


def targets(functional):
    return [node.target for node in functional.graph.nodes if node.op == "call_function"]


def check(fn, *inputs, freeze=False, tolerance=0.0):
    functional = prepared(fn, *inputs, freeze=freeze)
    expected_inputs, actual_inputs = copy.deepcopy(inputs), copy.deepcopy(inputs)
    with torch.no_grad():
        expected = fn(*expected_inputs)
    actual = run_functional(functional, actual_inputs)
    expected = expected if isinstance(expected, (tuple, list)) else (expected,)
    for got, want in zip((*actual, *actual_inputs), (*expected, *expected_inputs), strict=True):
        torch.testing.assert_close(got, want, rtol=tolerance, atol=tolerance, check_stride=True)
    return functional


# Functionalisation ---------------------------------------------------------------------------------------------------


def test_batch_norm_in_training_updates_its_statistics():
    def step(x, mean, var):
        return F.batch_norm(x, mean, var, training=True)

    functional = check(step, torch.randn(4, 3, 2, 2), torch.zeros(3), torch.ones(3))
    assert [index for index, _ in functional.writes] == [1, 2]


def test_statistics_of_an_inference_batch_norm_stay():
    functional = check(lambda x, m, v: F.batch_norm(x, m, v), torch.randn(4, 3, 2, 2), torch.zeros(3), torch.ones(3))
    assert functional.writes == ()


def test_results_that_are_inputs_and_views_of_them():
    functional = check(lambda x: (x, x[1], x.t(), x + 1), torch.randn(3, 4))
    assert functional.results == (
        AliasOfInput(0), AliasOfInput(0, ((4,), (1,), 4)), AliasOfInput(0, ((4, 3), (1, 4), 0)), FromGraph(0),
    )  # fmt: skip


def test_results_that_share_memory_share_an_output():
    functional = check(lambda x: (y := x + 1, y[0], y.view(-1)), torch.randn(3, 4))
    assert [result.index for result in functional.results] == [0, 0, 0]


def test_foreach_and_out_variants():
    def program(x, y):
        torch.add(x, y, out=y)
        return y * 2

    assert [index for index, _ in check(program, torch.randn(3), torch.randn(3)).writes] == [1]


def test_dtype_of_an_inplace_result_is_that_of_the_target():
    check(lambda x, y: x.mul_(y), torch.randn(3, dtype=torch.float16), torch.randn(3))
    check(lambda x: x.eq_(1), torch.tensor([1.0, 2.0]))


def test_random_numbers_are_drawn_in_order_even_when_dropped():
    def program(x):
        torch.rand(3)
        return F.dropout(x, 0.5, training=True) + torch.rand(8)

    functional = prepared(program, torch.ones(8))
    torch.manual_seed(0)
    expected = program(torch.ones(8))
    torch.manual_seed(0)
    (actual,) = run_functional(functional, [torch.ones(8)])
    assert torch.equal(actual, expected)


def test_random_numbers_drawn_into_gaps_are_eagers():
    program = lambda x: x[:, ::2].normal_() * 1
    functional = prepared(program, torch.ones(8, 8))
    torch.manual_seed(0)
    expected = program(torch.ones(8, 8))
    torch.manual_seed(0)
    (actual,) = run_functional(functional, [torch.ones(8, 8)])
    assert torch.equal(actual, expected)


def test_writes_that_cannot_be_told_apart_are_refused():
    base = torch.zeros(8)
    for one, other in [
        (base.view(torch.uint8), base.view(torch.bool)),  # a byte may be neither
        (base[1:], base.view(torch.complex64)[1:]),  # an element begins in the middle of another
    ]:
        with pytest.raises(CompileError, match="element types"):
            prepared(lambda x, y: (x.add_(1), y * 1)[1], one, other)


def test_inputs_of_other_types_are_parts_of_one_row():
    program = lambda x, y: (x.add_(1), y + 1)[1]
    base, expected = torch.zeros(8), torch.zeros(8)
    functional = prepared(program, base, base.view(torch.int32))
    assert len(functional.overlapping) == 1
    (actual,) = run_functional(functional, [base, base.view(torch.int32)])
    assert torch.equal(actual, program(expected, expected.view(torch.int32)))


def test_location_of_a_failure_is_the_users():
    with pytest.raises(CompileError) as caught:
        prepared(lambda x: x.view(torch.int32).as_strided((2, 2), (2, 1)).add_(1), torch.ones(4, 2).t())
    assert caught.value.stage == "functionalize" and "as_strided" in caught.value.operator


# Simplification --------------------------------------------------------------------------------------------------------


def test_random_operators_are_never_shared():
    functional = prepared(lambda x: torch.rand(3) + torch.rand(3) + x, torch.ones(3))
    assert targets(functional).count(aten.rand.default) == 2


def test_shared_work_tells_numbers_apart():
    """1, 1.0 and True are equal in Python, 0.0 and -0.0 too."""

    def program(x):
        return x * 1, x * 1.0, x / 0.0, x / -0.0, torch.full((2,), 1), torch.full((2,), 1.0), torch.full((2,), True)

    check(program, torch.tensor([1, 2]))


def test_dead_work_goes_and_lists_of_results_stay_whole():
    functional = prepared(lambda x: (x.exp(), x.max(0)[0])[1], torch.randn(3, 4))
    assert targets(functional).count(aten.exp.default) == 0


def test_every_pass_leaves_a_pure_graph():
    with torch.no_grad():
        functional = functionalize(record(lambda x: x.add_(1).view(-1).exp(), [torch.ones(2, 2)]))
    pure(remove_dead(share_repeated_work(pure(functional))))


# Vendor products ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def products_always(monkeypatch):
    monkeypatch.setattr(products, "_is_amd", lambda: True)


@pytest.mark.parametrize(
    "activation", [F.gelu, F.silu, torch.tanh, torch.sigmoid, lambda y: F.gelu(y, approximate="tanh")]
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_activation_is_fused(activation, dtype, products_always):
    x, w, b = (
        torch.randn(2, 64, 256, dtype=dtype),
        torch.randn(512, 256, dtype=dtype) / 16,
        torch.randn(512, dtype=dtype),
    )
    functional = check(
        lambda x, w, b: activation(F.linear(x, w, b)), x, w, b, tolerance=1e-4 if dtype == torch.float32 else 5e-2
    )
    if dtype == torch.bfloat16 and not vendor_supports_bfloat16():
        assert torch.ops.mkldnn._linear_pointwise.default not in targets(functional)
        return
    assert targets(functional).count(torch.ops.mkldnn._linear_pointwise.default) == 1
    assert all(
        str(target).split(".")[1] in ("view", "_linear_pointwise", "_unsafe_view") for target in targets(functional)
    )


def test_activation_is_not_fused_where_the_product_is_read_elsewhere(products_always):
    def program(x, w):
        y = F.linear(x, w)
        return F.relu(y), y

    functional = check(program, torch.randn(64, 512), torch.randn(512, 512), tolerance=1e-3)
    assert aten.relu.default in targets(functional)


def test_small_and_scaled_products_stay():
    assert torch.ops.mkldnn._linear_pointwise.default not in targets(
        check(F.linear, torch.randn(2, 4), torch.randn(4, 4))
    )
    functional = check(lambda b, x, w: torch.addmm(b, x, w, alpha=2), *(torch.randn(256, 256) for _ in range(3)))
    assert aten.addmm.default in targets(functional)


def test_gradients_of_weights_stay(products_always):
    """Their left factor is by columns, and `mm` writes what may be large into planned memory."""
    functional = check(lambda dy, x: dy.t() @ x, torch.randn(64, 512), torch.randn(64, 512), tolerance=1e-3)
    assert aten.mm.default in targets(functional)


def test_weight_of_either_orientation(products_always):
    check(
        lambda b, x, w: torch.addmm(b, x, w),
        torch.randn(512),
        torch.randn(64, 512),
        torch.randn(512, 512),
        tolerance=1e-3,
    )


# freeze ------------------------------------------------------------------------------------------------------------------


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.norm = torch.nn.Conv2d(3, 8, 3, padding=1), torch.nn.BatchNorm2d(8)
        self.second = torch.nn.Conv2d(8, 8, 1, bias=False)
        self.norm2 = torch.nn.BatchNorm2d(8, affine=False)
        self.head = torch.nn.Linear(8 * 64, 1024)

    def forward(self, x):
        y = F.relu(self.norm(self.first(x)))
        z = F.relu(self.norm2(self.second(y)) + y)
        return self.head(F.max_pool2d(z, 2).flatten(1)), z, y.permute(0, 2, 3, 1)


def module_call():
    torch.manual_seed(0)
    net = Net().eval()
    for norm in (net.norm, net.norm2):
        norm.running_mean.normal_()
        norm.running_var.uniform_(0.5, 2)
    state = {**dict(net.named_parameters()), **dict(net.named_buffers())}

    def call(x, *values):
        return torch.func.functional_call(net, dict(zip(state, values)), (x,))

    return call, [torch.randn(4, 3, 16, 16), *(value.detach() for value in state.values())]


def test_frozen_module_equals_eager_in_values_and_strides():
    call, inputs = module_call()
    functional = check(call, *inputs, freeze=True, tolerance=1e-4)
    names = [name for name, _, _ in functional.derived]
    assert sorted(names) == ["fold_batch_norm_bias"] * 2 + ["fold_batch_norm_weight"] * 2 + ["pack_linear_weight"]
    assert aten.native_batch_norm.default not in targets(functional)
    assert torch.ops.mkldnn._convolution_pointwise.binary in targets(functional)


def test_written_weights_are_not_frozen():
    def program(x, w):
        y = F.linear(x, w)
        w.add_(1)
        return y

    assert not prepared(program, torch.randn(64, 512), torch.randn(512, 512), freeze=True).derived


def test_computed_weights_are_not_frozen():
    assert not prepared(
        lambda x, w: F.linear(x, w * 2), torch.randn(64, 512), torch.randn(512, 512), freeze=True
    ).derived


def test_packed_parameter_that_requires_grad():
    weight = torch.nn.Parameter(torch.randn(256, 512))
    packed = derive(("pack_linear_weight", (0,), (64, False)), [weight])
    assert not packed.requires_grad


# Convolutions --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("space", [(6, 5), (7,), (2, 3, 4), (1, 1)])
@pytest.mark.parametrize("biased", [True, False])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_convolution_without_neighbours_is_a_product(space, biased, dtype):
    convolution = (F.conv1d, F.conv2d, F.conv3d)[len(space) - 1]
    x, w = torch.randn(1, 4, *space, dtype=dtype), torch.randn(8, 4, *[1] * len(space), dtype=dtype)
    b = [torch.randn(8, dtype=dtype)] if biased else []
    functional = check(lambda x, w, *b: convolution(x, w, *b).relu(), x, w, *b, tolerance=1e-5)
    assert aten.mm.default in targets(functional)
    assert aten.convolution.default not in targets(functional)


@pytest.mark.parametrize(
    ("x", "options"),
    [
        (torch.randn(2, 4, 6, 6), {}),
        (torch.randn(1, 4, 6, 6), {"stride": 2}),
        (torch.randn(1, 4, 6, 6), {"padding": 1}),
        (torch.randn(1, 8, 6, 6), {"groups": 2}),
        (torch.randn(1, 4, 6, 6).contiguous(memory_format=torch.channels_last), {}),
        (torch.randn(1, 4, 6, 6).transpose(2, 3), {}),
        (torch.randn(1, 4, 6, 6, dtype=torch.bfloat16), {}),
    ],
)
def test_other_convolutions_stay(x, options):
    w, b = torch.randn(8, 4, 1, 1, dtype=x.dtype), torch.randn(8, dtype=x.dtype)
    functional = check(lambda x, w, b: F.conv2d(x, w, b, **options), x, w, b, tolerance=1e-5)
    assert aten.convolution.default in targets(functional)


def test_large_convolution_stays():
    x, w = torch.randn(1, 128, 32, 32), torch.randn(128, 128, 1, 1)
    assert aten.convolution.default in targets(check(F.conv2d, x, w, tolerance=1e-3))


def test_bias_is_added_behind_the_plain_algorithm():
    x, w, b = torch.randn(1, 8, 8, 8), torch.randn(8, 8, 3, 3), torch.randn(8)
    functional = check(lambda x, w, b: F.conv2d(x, w, b, padding=1).relu(), x, w, b, tolerance=1e-5)
    (call,) = [node for node in functional.graph.nodes if node.target is aten.convolution.default]
    plain = _torch.convolution_writes_bias_first(x, w, [1, 1], [1, 1], [1, 1], False, [0, 0], 1)
    assert (call.args[2] is None) == plain


def test_transposed_convolution_keeps_its_bias():
    x, w, b = torch.randn(1, 4, 6, 6), torch.randn(4, 8, 1, 1), torch.randn(8)
    functional = check(lambda x, w, b: F.conv_transpose2d(x, w, b), x, w, b, tolerance=1e-5)
    assert aten.mm.default not in targets(functional)


def test_derived_inputs_where_an_operand_is_not_there():
    """The graph's interpreter took the last input in its place."""
    mean, variance, other = torch.randn(3), torch.rand(3) + 1, torch.randn(5)
    (bias,) = prepacked([("fold_batch_norm_bias", (0, 1, -1, -1, -1), (1e-5,))], [mean, variance, other])
    torch.testing.assert_close(bias, -mean / (variance + 1e-5).sqrt())

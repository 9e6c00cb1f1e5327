"""Values made of inputs once and kept: when they are made, packed and made anew."""

from __future__ import annotations

import threading

import pytest
import torch
import torch.nn.functional as F

import lampwork
from lampwork._torch import vendor_supports_bfloat16
from lampwork.runtime.launch import prepacked as module
from lampwork.runtime.launch.prepacked import DerivedInputs

LINEAR = ("pack_linear_weight", (1,), (64, False))


def is_packed(value: torch.Tensor) -> bool:
    return value.layout is torch._mkldnn


def test_replaced_parameters_and_memory_are_noticed():
    weight, other = torch.randn(256, 512), torch.randn(256, 512)
    derived = DerivedInputs([LINEAR])
    for tensor in (weight, other):
        (unpacked,) = derived.values([None, tensor])
        assert unpacked.data_ptr() == tensor.data_ptr()
        (packed,) = derived.values([None, tensor])
        assert is_packed(packed) and torch.equal(packed.to_dense(), tensor)
        assert derived.values([None, tensor])[0] is packed
    other.data = torch.randn(256, 512)
    for _ in range(3):
        (value,) = derived.values([None, other])
        assert torch.equal(value.to_dense() if is_packed(value) else value, other)
    derived.refresh()
    assert derived.values([None, other])[0] is not value


@pytest.mark.parametrize("is_transposed", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, *([torch.bfloat16] if vendor_supports_bfloat16() else [])])
def test_an_unpacked_weight_gives_what_the_packed_one_gives(is_transposed, dtype):
    weight = torch.randn(256, 512, dtype=dtype)
    stored = weight.t().contiguous() if is_transposed else weight
    derived = DerivedInputs([("pack_linear_weight", (0,), (64, is_transposed))])
    x = torch.randn(64, 512, dtype=dtype)
    results = []
    for _ in range(2):
        (value,) = derived.values([stored])
        results.append(torch.ops.mkldnn._linear_pointwise(x, value, None, "none", [], ""))
    assert is_packed(value)
    torch.testing.assert_close(results[0], results[1])
    torch.testing.assert_close(results[0], F.linear(x, weight), rtol=1e-2, atol=1e-1)


def test_packing_is_spread_over_calls(monkeypatch):
    weights = [torch.randn(64, 64) for _ in range(5)] + [torch.randn(256, 256)]
    recipes = [("pack_linear_weight", (index,), (8, False)) for index in range(6)]
    monkeypatch.setattr(module, "BYTES_PACKED_PER_CALL", 2 * weights[0].nbytes)
    derived = DerivedInputs(recipes)
    counts = []
    for _ in range(6):
        values = derived.values(weights)
        counts.append(sum(map(is_packed, values)))
        assert derived.is_final(values) == (counts[-1] == 6)
    assert counts == [0, 2, 4, 5, 6, 6]  # one that is larger than the share of a call is packed alone
    assert derived.values(weights) is values
    assert not derived.is_final(tuple(values[:5]))


def test_what_the_operator_does_not_take_is_packed_at_once():
    strided = torch.randn(256, 1024)[:, ::2]
    (value,) = DerivedInputs([LINEAR]).values([None, strided])
    assert is_packed(value) and torch.equal(value.to_dense(), strided)
    (value,) = DerivedInputs([("pack_linear_weight", (0,), (1, False))]).values([torch.randn(256, 512)])
    assert is_packed(value)


def test_a_call_does_not_wait_for_the_packing_of_another(monkeypatch):
    started, go_on = threading.Event(), threading.Event()
    pack = module.RECIPES["pack_linear_weight"]

    def slow(*arguments):
        started.set()
        assert go_on.wait(10)
        return pack(*arguments)

    monkeypatch.setitem(module.RECIPES, "pack_linear_weight", slow)
    weight, other = torch.randn(256, 512), torch.randn(256, 512)
    derived = DerivedInputs([LINEAR])
    derived.values([None, weight])
    late = []
    thread = threading.Thread(target=lambda: late.append(derived.values([None, weight])))
    thread.start()
    assert started.wait(10)
    assert not is_packed(derived.values([None, weight])[0])
    (changed,) = derived.values([None, other])  # while the packing of what it replaces goes on
    assert changed.data_ptr() == other.data_ptr()
    go_on.set()
    thread.join(10)
    assert torch.equal(late[0][0].to_dense(), weight)
    for _ in range(2):
        (value,) = derived.values([None, other])
    assert torch.equal(value.to_dense(), other)


def test_compiled_calls_pack_from_the_second_on(monkeypatch):
    packed = []
    pack = module.RECIPES["pack_linear_weight"]
    monkeypatch.setitem(module.RECIPES, "pack_linear_weight", lambda *a: packed.append(a) or pack(*a))
    model = torch.nn.Sequential(torch.nn.Linear(256, 512), torch.nn.ReLU(), torch.nn.Linear(512, 256)).eval()
    fast = lampwork.compile(model, options={"freeze": True}, fullgraph=True)
    x = torch.randn(128, 256)
    with torch.no_grad():
        counts = []
        for _ in range(4):
            torch.testing.assert_close(fast(x), model(x), rtol=1e-4, atol=1e-5)
            counts.append(len(packed))
        assert counts == [0, 2, 2, 2]
        model[0].weight.data = torch.randn(512, 256)
        for _ in range(3):
            torch.testing.assert_close(fast(x), model(x), rtol=1e-4, atol=1e-3)
        assert len(packed) == 4
    assert lampwork.stats(fast)["captures"] == 1 and lampwork.stats(fast)["fallbacks"] == ()

"""What generated programs found at sizes that vary, and at sizes 0 and 1."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

import lampwork
from tests.dynamic.support import check, compare, relations


def test_a_guard_that_divides_by_a_size_misses_where_that_is_zero():
    def program(x):
        return x.reshape(-1, x.shape[1]).chunk(2, 0)[-1]

    check(program, [(torch.ones(5, 1, 6),), (torch.ones(9, 1, 0),), (torch.ones(0, 1, 6),)], captures=3)


def test_statistics_of_nothing_through_a_reshape():
    def program(x):
        return F.group_norm(x.double().reshape(1, x.shape[1], -1), 1, eps=1e-2)

    check(program, [(torch.ones(0, 9, 3),)])


def test_an_empty_argument_is_written_before_something_else_comes_out_empty():
    def program(x):
        x.add_(1)
        return F.layer_norm(x, (x.shape[-1],))

    check(program, [(torch.ones(9, 0),)])


def test_a_reshape_that_has_to_copy_an_expanded_tensor():
    def program(x, z):
        half = z.chunk(2, 0)[-1]
        tall = half.unsqueeze(0).expand(x.shape[0], *half.shape)
        return F.avg_pool2d(tall.reshape(1, -1, tall.shape[-2], tall.shape[-1]), 2, 1)

    check(program, [(torch.ones(n), torch.randn(m, 12)[:, :6]) for n, m in ((5, 6), (3, 9), (2, 4))], captures=2)


def test_strides_with_sums_in_them_leave_no_guards():
    def program(x):
        return F.pad(x, (3, 3), mode="reflect") * 2

    compiled = lampwork.compile(program, dynamic=True, options={"cache": False})
    for shape in ((2, 5, 20), (3, 4, 50)):
        x = torch.randn(shape)
        torch.testing.assert_close(compiled(x), program(x))
    assert lampwork.stats(compiled)["captures"] == 1
    assert not any("+" in text or "*" in text for text in relations(compiled)[0] if not text.startswith("x"))


@pytest.mark.filterwarnings("ignore")
def test_reflected_frames_are_proven_to_stay_inside():
    def program(x):
        return torch.view_as_real(torch.stft(x, 10, return_complex=True))

    check(program, [(torch.randn(3, 100),), (torch.randn(3, 64),)], captures=2)


def test_products_first_seen_with_few_rows_are_chosen_for_many(monkeypatch):
    if not torch.backends.mkldnn.is_available():
        pytest.skip("no vendor library")
    monkeypatch.setattr("lampwork.graph.products._is_amd", lambda: True)
    layer = torch.nn.Linear(512, 1024).eval()
    compiled = lampwork.compile(layer, dynamic=True, options={"cache": False})
    with torch.no_grad():
        for rows in (3, 200):
            x = torch.randn(rows, 512)
            torch.testing.assert_close(compiled(x), layer(x), rtol=1e-4, atol=1e-4)
    stats = lampwork.stats(compiled)
    assert stats["captures"] == 1 and "mkldnn::_linear_pointwise.default" in stats["extern_calls"]


def test_a_division_by_a_product_is_written_as_such():
    def program(x, n, m):
        return x.reshape(n, -1, m) + 1, x.view(n, -1, m)

    check(program, [(torch.randn(25, 5), 5, 5), (torch.randn(24, 6), 4, 3), (torch.randn(7, 6), 2, 3)], captures=1)


def test_an_operator_that_refuses_is_asked_for_its_error_with_symbolic_sizes():
    def program(x, y):
        try:
            return torch.cat([x > 0, y]) * 2
        except RuntimeError:
            return x + 1

    check(program, [(torch.randn(n, n + 1), torch.randn(n + 1, n)) for n in (3, 5)], captures=2)


def test_native_shape_code_that_knows_no_symbols_gets_numbers():
    def program(x, y):
        return torch.where(x > 0, x, y)

    check(program, [(torch.randn(n, 4), torch.randn((), dtype=torch.float64)) for n in (3, 5)], captures=2)


def test_a_size_that_depends_on_contents_in_floating_point_arithmetic():
    def program(x):
        count = x.nonzero().shape[0]
        return x * (count * 0.5), x / (count / 2 + 1), x * (1.0 if count > 2.5 else 2.0)

    compiled = lampwork.compile(program, options={"cache": False})
    for length in (3, 5, 4):
        x = torch.arange(float(length))
        compare(compiled(x), program(x))


@pytest.mark.parametrize("name", ["weight", "pos_weight"])
def test_weights_of_classes_are_as_many_as_these(name):
    """Loads of weights were not proved to be inside: nothing said that both sizes are the same."""
    program = lambda x, w: F.binary_cross_entropy_with_logits(x, x.sigmoid(), **{name: w})
    compiled = lampwork.compile(program, dynamic=True, options={"cache": False})
    for classes, weights in [(5, 5), (3, 3), (6, 1), (7, 7)]:
        x, w = torch.randn(4, classes), torch.rand(weights)
        torch.testing.assert_close(compiled(x, w), program(x, w))
    assert not lampwork.stats(compiled)["fallbacks"]
    with pytest.raises(RuntimeError):
        compiled(torch.randn(4, 5), torch.rand(3))

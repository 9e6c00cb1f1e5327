"""Operators whose shapes were asked of PyTorch's rules, which take numbers only, and functions that ask for them on their
way: all sizes were fixed, and each new size was compiled. So they were where nothing proved that windows of an image, or
its reflection, lie inside of it."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

import lampwork

aten = torch.ops.aten


def windows(x):
    """As a transformer of shifted windows cuts images."""
    x = torch.roll(x.permute(0, 2, 3, 1), (-3, -3), (1, 2))
    return x.reshape(x.shape[0], 2, 4, 2, 4, 3).permute(0, 1, 3, 2, 4, 5).reshape(-1, 16, 3).sin()


def turned(x):
    return torch.view_as_real(
        torch.view_as_complex(x.unflatten(-1, (-1, 2))) * torch.polar(x.new_ones(2), x.new_ones(2))
    )


def spectrum(x):
    return torch.stft(x, 16, 4, 12, torch.hann_window(12), return_complex=True).abs()


def pooled(x):
    """What a convolution leaves of an image has a sum for its rows, and windows at its edges are cut off."""
    x = F.conv2d(x, torch.full((4, 4, 3, 3), 0.1), stride=2).relu()
    return F.max_pool2d(F.max_pool2d(x, 3, 2, ceil_mode=True).sin(), 3, 2, padding=1)


def standardised(x):
    return (x - x.mean(1, keepdim=True)) / (x.std(1, keepdim=True) + 1e-5) + x.var()


def places(x):
    """Coordinates of pixels, and positions counted by floats."""
    rows = torch.linspace(-1, 1, x.shape[2])[:, None] + torch.linspace(0, 1, steps=x.shape[3], dtype=x.dtype)
    ranks = torch.arange(x.shape[2], -x.shape[2], -1.0, dtype=torch.int64).float()
    return x * rows + ranks.sin().sum() + torch.arange(0.0, x.shape[3], 2.0).cos().sum()


def pooled_whole(x):
    """Windows as large as what they are in, as classifiers of texts and images have them."""
    rows = x.flatten(2)
    longest = F.max_pool1d(rows, rows.shape[2]) + F.avg_pool1d(rows, kernel_size=rows.shape[2])
    return longest.squeeze(2) + (F.avg_pool2d(x, x.size()[2:]) * F.max_pool2d(x, x.shape[2:]))[:, :, 0, 0]


IMAGE = lambda b, n: (torch.randn(b, 4, n, n + 1),)
SIGNAL = lambda b, n: (torch.randn(b, 4, n),)
#: A function, and its arguments for two sizes. Most are differentiated, too.
PROGRAMS = {
    "prelu": (lambda x: F.prelu(x, torch.full((4,), 0.1)), IMAGE),
    "unfold": (lambda x: F.unfold(x, 3, padding=1, stride=2), IMAGE),
    "fold": (lambda x: F.fold(F.unfold(x, 3, padding=1), x.shape[2:], 3, padding=1), IMAGE),
    "max_pool1d": (lambda x: F.max_pool1d(x, 2, padding=1), SIGNAL),
    "MaxPool1d": (torch.nn.MaxPool1d(3, 2, ceil_mode=True), SIGNAL),
    "scaled by a fraction": (lambda x: F.interpolate(x, scale_factor=1.5), IMAGE),
    "halved": (lambda x: F.interpolate(x, scale_factor=0.5, mode="bilinear"), IMAGE),
    "nearest": (lambda x: F.interpolate(x, scale_factor=2), SIGNAL),
    "linear": (lambda x: F.interpolate(x, scale_factor=2, mode="linear"), SIGNAL),
    "trilinear": (
        lambda x: F.interpolate(x, scale_factor=2, mode="trilinear"),
        lambda b, n: (torch.randn(b, 2, n, 5, 4),),
    ),
    "antialiased": (lambda x: F.interpolate(x, size=(5, 5), mode="bilinear", antialias=True), IMAGE),
    "grid_sample": (
        lambda x, grid: F.grid_sample(x, grid, align_corners=False),
        lambda b, n: (*IMAGE(b, n), torch.rand(b, n + 2, 3, 2) * 2 - 1),
    ),
    "stft": (spectrum, lambda b, n: (torch.randn(b, n * 16),)),
    "complex": (lambda x, y: torch.complex(x, y).abs(), lambda b, n: (torch.randn(b, n), torch.randn(b, n))),
    "rotary": (turned, lambda b, n: (torch.randn(b, n, 4),)),
    "addr": (torch.addr, lambda b, n: (torch.randn(b, n), torch.randn(b), torch.randn(n))),
    "trace": (torch.trace, lambda b, n: (torch.randn(n, n),)),
    "diag": (torch.diag, lambda b, n: (torch.randn(n, n),)),
    "cov": (torch.cov, lambda b, n: (torch.randn(b, n),)),
    "corrcoef": (torch.corrcoef, lambda b, n: (torch.randn(b, n),)),
    "renorm": (lambda x: torch.renorm(x, 2, 0, 1.0), lambda b, n: (torch.randn(b, n),)),
    "margins": (F.multi_margin_loss, lambda b, n: (torch.randn(b, 5), torch.randint(5, (b,)))),
    "many margins": (F.multilabel_margin_loss, lambda b, n: (torch.randn(b, n), torch.randint(n, (b, n)))),
    "glu": (F.glu, lambda b, n: (torch.randn(b, 2 * n),)),
    "reflected": (lambda x: F.pad(x, (2, 1, 1, 2), mode="reflect"), IMAGE),
    "pooled whole": (pooled_whole, IMAGE),
    "places": (places, IMAGE),
    "pooled": (pooled, lambda b, n: (torch.randn(b, 4, 4 * n, 3 * n),)),
    "standardised": (standardised, lambda b, n: (torch.randn(b, n),)),
    "windows": (windows, lambda b, n: (torch.randn(b, 3, 8, 8),)),
}  # fmt: skip
#: Their derivatives ask for numbers still.
FIXED_BY_GRADIENTS = {"trace", "pooled whole"}


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("differentiated", [False, True])
def test_two_entries_serve_all(name, differentiated):
    function, arguments = PROGRAMS[name]
    compiled = lampwork.compile(function, options={"cache": False})
    for sizes in ((5, 6), (7, 9), (4, 11), (9, 8)):
        torch.manual_seed(sum(sizes))
        expected, found = [], []
        given = arguments(*sizes)
        for called, values in ((function, expected), (compiled, found)):
            args = [each.clone().requires_grad_(differentiated and each.is_floating_point()) for each in given]
            result = called(*args)
            values.append(result.detach())
            if differentiated:
                (result * torch.linspace(0.5, 1, result.numel()).view(result.shape)).sum().backward()
                values += [each.grad for each in args if each.grad is not None]
        torch.testing.assert_close(found, expected)
        assert [each.stride() for each in found] == [each.stride() for each in expected]
    stats = lampwork.stats(compiled)
    assert not stats["breaks"] and not stats["fallbacks"]
    if not (differentiated and name in FIXED_BY_GRADIENTS):
        assert stats["captures"] == 2, stats["specialised"]


def test_native_code_divides_by_zero():
    """The derivative of a variance divides by how many elements there are, less a number."""
    function = lambda x: x.var(1, correction=5)
    for dynamic in (None, True):
        compiled = lampwork.compile(function, dynamic=dynamic, options={"cache": False})
        for columns in (5, 6, 9, 5, 4, 1, 12):
            gradients = []
            for called in (function, compiled):
                x = torch.linspace(-1, 1, 3 * columns).view(3, columns).requires_grad_()
                called(x).sum().backward()
                gradients.append(x.grad)
            torch.testing.assert_close(*gradients, equal_nan=True)
        assert not lampwork.stats(compiled)["fallbacks"]


def test_what_eager_saves_is_saved():
    """`kron` saves views with versions of their own, a pool what it is given."""
    programs = {
        torch.kron: (torch.tensor([1.0, 2.0, 3.0]), torch.tensor([0.5, 0.25])),
        lambda x: F.max_pool2d(x, x.shape[2:]) + F.avg_pool2d(x, x.shape[2:]): (torch.rand(2, 3, 4, 5),),
    }
    for function, given in programs.items():
        outcomes = []
        for called in (function, lampwork.compile(function, dynamic=True, options={"cache": False})):
            args = [each.clone().requires_grad_() for each in given]
            written = args[0] * 1
            result = called(written, *args[1:])
            with torch.no_grad():
                written.mul_(2)
            try:
                result.sum().backward()
                outcomes.append([each.grad.tolist() for each in args])
            except RuntimeError as error:
                outcomes.append("modified by an inplace operation" in str(error))
        assert outcomes[0] == outcomes[1]


@pytest.mark.parametrize("pool", [F.max_pool1d, F.avg_pool1d])
def test_a_pool_over_as_much_as_contents_leave(pool):
    """Nothing, too: eager raises then."""

    def program(x, kept):
        picked = x[kept][None, None]
        return pool(picked, picked.shape[2])

    compiled = lampwork.compile(program, options={"cache": False})
    for count in (5, 3, 0, 1, 4):
        outcomes = []
        for function in (program, compiled):
            try:
                outcomes.append(function(torch.arange(6.0), torch.arange(6) < count).tolist())
            except RuntimeError as error:
                outcomes.append(str(error))
        assert outcomes[0] == outcomes[1]


def test_derivatives_that_take_numbers_only_are_compiled_for_each_size():
    """The region was not differentiated at all, for the symbols in it."""

    def moved(x, maps):
        return F.grid_sample(x, F.affine_grid(maps, x.shape, align_corners=False), align_corners=False)

    compiled = lampwork.compile(moved, options={"cache": False})
    for batch in (5, 7, 6):
        x, maps = torch.randn(batch, 4, 6, 6), torch.randn(batch, 2, 3)
        gradients = []
        for function in (moved, compiled):
            given = maps.clone().requires_grad_()
            function(x, given).sum().backward()
            gradients.append(given.grad)
        torch.testing.assert_close(*gradients)
    assert not lampwork.stats(compiled)["fallbacks"]


def test_what_trips_over_symbols_is_called_with_numbers():
    """`istft` counts elements in native code: the graph broke there."""
    window = torch.hann_window(16)

    def back(x):
        return torch.istft(torch.stft(x, 16, 4, window=window, return_complex=True) * 0.5, 16, 4, window=window)

    compiled = lampwork.compile(back, options={"cache": False})
    for size in (96, 144, 112):
        x = torch.randn(3, size)
        torch.testing.assert_close(compiled(x), back(x))
    assert not lampwork.stats(compiled)["breaks"]


def test_gradients_of_leaves_that_overlap_are_not_averaged():
    """What was called with numbers saw an `as_strided` of the leaf, whose derivative is the mean of what shares memory."""
    window = torch.hann_window(8)

    def program(x):
        return torch.istft(x, 8, 2, window=window)

    compiled = lampwork.compile(program, dynamic=True)
    for batch in (2, 3):
        leaves = []
        for function in (program, compiled):
            values = torch.randn(5, 9, dtype=torch.complex64, generator=torch.Generator().manual_seed(0))
            leaf = values.as_strided((batch, 5, 9), (0, 9, 1)).requires_grad_()
            result = function(leaf)
            result.backward(torch.randn(result.shape, generator=torch.Generator().manual_seed(batch)))
            leaves.append(leaf)
        torch.testing.assert_close(leaves[1].grad, leaves[0].grad)
    assert not lampwork.stats(compiled)["breaks"]

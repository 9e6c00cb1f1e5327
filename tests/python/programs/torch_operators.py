"""Operators of many families, called the way users call them."""

from __future__ import annotations

import torch
import torch.nn.functional as F

from tests.python.harness import program
from tests.python.tensors import integers, values


def _x():
    return values(3, 4)


@program(together=lambda: (values(2, 3, 4), values(2, 4, 5)))
def einsum(x, y):
    return torch.einsum("bij,bjk->bik", x, y), torch.einsum("bij->bj", x), torch.einsum("bij,bij->", x, x)


@program(together=lambda: (values(2, 3, 4), values(4, 3, 5)))
def tensordot_and_products(x, y):
    return (
        torch.tensordot(x, y, dims=([2, 1], [0, 1])),
        torch.matmul(x, y[:, 0].unsqueeze(0)),
        torch.outer(x[0, 0], y[0, 0]),
    )


@program(together=lambda: (values(3, 3), values(3)))
def linear_algebra(x, b):
    a = x @ x.T + torch.eye(3)
    return torch.linalg.solve(a, b), torch.linalg.inv(a), torch.linalg.det(a), torch.linalg.norm(x), torch.trace(x)


@program(together=lambda: (values(3, 3),))
def decompositions(x):
    a = x @ x.T + torch.eye(3)
    return torch.linalg.cholesky(a), torch.linalg.eigvalsh(a), torch.linalg.svdvals(x)


@program(together=lambda: (values(4, dtype=torch.complex64),))
def complex_arithmetic(x):
    return x * 1j, x.abs(), x.angle(), torch.polar(x.abs(), x.angle()), x.conj() * x, torch.complex(x.real, x.imag)


@program(together=lambda: (values(2, 8),))
def fourier_transforms(x):
    spectrum = torch.fft.rfft(x)
    return torch.fft.irfft(spectrum, n=8), spectrum.abs(), torch.fft.fftshift(x)


@program(together=lambda: (values(2, 5, 4),))
def rotary_embedding(x):
    angles = torch.outer(torch.arange(5.0), torch.tensor([1.0, 0.1]))
    rotation = torch.polar(torch.ones_like(angles), angles)
    pairs = torch.view_as_complex(x.reshape(2, 5, 2, 2))
    return torch.view_as_real(pairs * rotation).flatten(2)


@program(together=lambda: (_x(),))
def reductions(x):
    return x.sum(), x.mean(1), x.var(0, unbiased=False), x.std(), x.amax((0, 1)), x.prod(1), x.logsumexp(1), x.norm(p=1)


@program(together=lambda: (_x(),))
def reductions_with_indices(x):
    values, where = x.max(dim=1)
    found = x.min(0)
    return values, where, found.values, found.indices, torch.aminmax(x), x.median(), torch.cummax(x, 0).values


@program(together=lambda: (_x(),))
def scans_and_differences(x):
    return x.cumsum(1), x.cumprod(0), torch.diff(x), x.logcumsumexp(0), torch.gradient(x[0])[0]


@program(together=lambda: (_x(), integers(3, high=4)))
def losses(x, target):
    return (
        F.cross_entropy(x, target),
        F.nll_loss(x.log_softmax(1), target),
        F.mse_loss(x, x + 1),
        F.smooth_l1_loss(x, -x),
    )


@program(together=lambda: (_x(),))
def activations(x):
    return [f(x) for f in (F.gelu, F.silu, F.elu, F.leaky_relu, F.softplus, F.hardswish, F.mish, torch.sigmoid, F.glu)]


@program(together=lambda: (_x(),))
def normalizations(x):
    return F.layer_norm(x, (4,)), F.normalize(x, dim=1), F.rms_norm(x, (4,)), x / x.norm(dim=-1, keepdim=True)


@program(together=lambda: (values(1, 2, 6, 6),))
def images(x):
    return F.interpolate(x, scale_factor=2, mode="bilinear"), F.avg_pool2d(x, 2), F.pad(x, (1, 1, 0, 2)), F.unfold(x, 3)


@program(together=lambda: (values(1, 4, 6, 6), values(8, 4, 3, 3)))
def convolutions(x, weight):
    return F.conv2d(x, weight, stride=2, padding=1), F.conv_transpose2d(
        x, weight.transpose(0, 1)[:4].transpose(0, 1)[:4]
    )


@program(together=lambda: (values(1, 4, 4, 4),))
def pixel_shuffle_and_grids(x):
    grid = F.affine_grid(torch.eye(2, 3).unsqueeze(0), [1, 4, 4, 4], align_corners=False)
    return F.pixel_shuffle(x, 2), F.grid_sample(x, grid, align_corners=False)


@program(together=lambda: (_x(), values(3, 4, seed=1)))
def comparisons_and_logic(x, y):
    return (
        (x > y) & (x < 1),
        (x == y) | ~(y > 0),
        torch.logical_xor(x > 0, y > 0),
        torch.isclose(x, y),
        x.sign().eq(1).all(),
    )


@program(together=lambda: (integers(3, 4, high=100),))
def bits(x):
    return x & 7, x | 1, x ^ 3, ~x, x << 2, x >> 1, torch.bitwise_and(x, x + 1)


@program(together=lambda: (_x(),))
def rounding(x):
    return (
        x.round(),
        x.floor(),
        x.ceil(),
        x.trunc(),
        x.frac(),
        torch.round(x, decimals=1),
        torch.div(x, 2, rounding_mode="floor"),
    )


@program(together=lambda: (_x(), values(3, 4, seed=1)))
def fused_arithmetic(x, y):
    return (
        torch.addcmul(x, x, y, value=0.5),
        torch.addcdiv(x, y, y.abs() + 1),
        torch.lerp(x, y, 0.3),
        torch.addmm(x[:, :3], x, y.T),
    )


@program(together=lambda: (_x(),))
def nan_handling(x):
    y = torch.where(x > 1, float("nan"), x)
    return torch.nan_to_num(y, 0.0), y.nansum(), torch.isnan(y), y.nanmean()


@program(together=lambda: (values(5, 4), values(6, 4, seed=1)))
def distances(x, y):
    return torch.cdist(x, y), F.cosine_similarity(x, y[:5]), F.pairwise_distance(x, y[:5])


@program(together=lambda: (values(2, 6), integers(2, 6, high=3)))
def histogram_and_search(x, y):
    edges = torch.linspace(-2, 2, 5)
    return (
        torch.searchsorted(edges, x),
        torch.bucketize(x, edges),
        torch.histc(x, bins=4, min=-2, max=2),
        (y == 1).sum(),
    )


@program(together=lambda: (_x(),))
def operators_called_directly(x):
    return torch.ops.aten.add.Tensor(x, x), torch.ops.aten.relu(x), torch._C._nn.gelu(x)

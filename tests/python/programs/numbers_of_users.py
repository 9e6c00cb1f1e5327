"""Types and numbers: promotion, complex and half types, numpy, default types and devices, numbers that change, sparse."""

from __future__ import annotations

import contextlib
import math
import warnings

import numpy as np
import torch
import torch.nn.functional as F

from tests.python.harness import program
from tests.python.tensors import integers, values

with warnings.catch_warnings():  # which PyTorch gives once in a process
    warnings.simplefilter("ignore")
    torch.sparse_coo_tensor(torch.zeros(1, 1, dtype=torch.long), torch.ones(1), (1,))

TYPES = [
    lambda: (values(3),), lambda: (values(3).double(),), lambda: (values(3).half(),), lambda: (values(3).bfloat16(),),
    lambda: (integers(3),), lambda: (integers(3) > 4,), lambda: (integers(3).to(torch.uint8),),
]  # fmt: skip
ROWS = [lambda: (values(2, 3),), lambda: (values(4, 3, seed=1),), lambda: (values(2, 3, seed=2).double(),)]
CHANGING = [
    lambda: (values(3), 1),
    lambda: (values(3), 2.5),
    lambda: (values(3), True),
    lambda: (values(3), -3),
    lambda: (values(3), 0.0),
]


@program(calls=TYPES)
def promoted_with_scalars(x):
    return x * 2, x + 1.5, x * True, 2**x if x.dtype != torch.bool else None, x / 2, x == 1, torch.where(x > 0, x, 0.5)


@program(calls=TYPES)
def reductions_of_types(x):
    return x.sum(), x.float().mean(), x.cumsum(0), x.max(), x.any(), x.count_nonzero(), torch.result_type(x, 1.0)


@program(calls=TYPES)
def integer_and_floor(x):
    if x.dtype is torch.bool:
        return ~x, x & True, x ^ x, x.int()
    return x // 2, x % 3, torch.floor_divide(x, 2), torch.remainder(x, 2), -x if x.dtype != torch.uint8 else x + 250


@program(calls=TYPES)
def mixed_operands(x):
    zero_dim = torch.tensor(2.5)
    whole = torch.tensor([1, 2, 3])
    return (
        x + zero_dim,
        x * whole,
        torch.cat([x, whole]),
        torch.stack([x.float(), whole.float()]),
        torch.add(whole, x, alpha=2),
    )


@program(calls=CHANGING)
def numbers_of_changing_kind(x, n):
    return x * n, x + n, torch.full((2,), n), torch.tensor(n), torch.tensor([n, n]), x.clamp(max=n), n * 2


@program(calls=CHANGING)
def branches_on_numbers(x, n):
    if not n:
        return "zero", x
    if n < 0:
        return x.abs() ** 2 * n
    if isinstance(n, bool):
        return ~(x > 0)
    return x.pow(n), math.sqrt(n), round(n / 3, 2), divmod(n, 2), f"{n:.2f}"


@program(
    calls=[
        lambda: (values(3), 1e-3),
        lambda: (values(3), 1e-2),
        lambda: (values(3), float("inf")),
        lambda: (values(3), float("nan")),
    ]
)
def special_numbers(x, eps):
    return (
        x / (x.abs() + eps),
        math.isnan(eps),
        math.isinf(eps),
        eps if eps < 1 else -eps,
        x.nan_to_num(nan=eps),
        max(eps, 0.5),
    )


@program(
    calls=[
        lambda: (values(3), np.float32(2)),
        lambda: (values(3), np.int64(3)),
        lambda: (values(3), np.float64(0.5)),
        lambda: (values(3), np.bool_(True)),
    ]
)
def numbers_of_numpy(x, n):
    return x * n, x + n, type(n).__name__, float(n) * 2, n.dtype.kind


@program(
    calls=[
        lambda: (np.arange(6.0).reshape(2, 3),),
        lambda: (np.ones((3, 3), np.float32),),
        lambda: (np.arange(4).reshape(2, 2),),
    ]
)
def arrays_become_tensors(a):
    t = torch.from_numpy(a)
    u = torch.as_tensor(a, dtype=torch.float64)
    v = torch.tensor(a)
    t += 1
    return t, u, v, a.shape, t.numpy() is not a


@program(calls=ROWS)
def there_and_back_with_numpy(x):
    a = x.numpy()
    b = np.concatenate([a, a[::-1]]).mean(axis=0)
    return torch.from_numpy(b), np.argsort(a, axis=1), a.dtype.name, x + torch.tensor(b.max())


@program(calls=ROWS)
def complex_numbers(x):
    z = torch.complex(x, x.flip(0))
    w = z * 1j + 2
    return (
        z.abs(),
        w.conj(),
        w.real,
        w.imag.neg(),
        z.angle(),
        (z @ z.mH).real,
        torch.view_as_real(w.conj().resolve_conj()),
        z == w,
    )


@program(calls=ROWS)
def complex_written(x):
    z = torch.zeros(x.shape, dtype=torch.complex64)
    z.real.copy_(x)
    z.imag[:] = 1
    z *= 2 - 1j
    return z, z.sum(), z.conj().mean(), torch.polar(x.float().abs(), x.float())


@program(calls=ROWS)
def spectra(x):
    f = torch.fft.rfft(x, dim=-1)
    f[..., 0] = 0
    power = f.abs().square()
    return (
        torch.fft.irfft(f, n=x.shape[-1]),
        power / power.sum(-1, keepdim=True),
        torch.fft.fftshift(torch.fft.fft2(x)),
        torch.fft.fftfreq(3),
    )


@program(calls=[lambda: (values(8), 4, 2), lambda: (values(16), 8, 4), lambda: (values(8), 4, 1)])
def frames_of_a_signal(x, size, hop):
    frames = x.unfold(-1, size, hop) * torch.hann_window(size)
    mel = torch.fft.rfft(frames).abs().pow(2).clamp_min(1e-10).log10()
    spec = torch.stft(x, size, hop, window=torch.hann_window(size), return_complex=True, center=True)
    return mel, spec.abs(), frames.shape


@contextlib.contextmanager
def default_type(kind):
    before = torch.get_default_dtype()
    torch.set_default_dtype(kind)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


@program(
    calls=[lambda: (values(2), torch.float64), lambda: (values(2), torch.float32), lambda: (values(2), torch.bfloat16)]
)
def default_types_change(x, kind):
    with default_type(kind):
        made = torch.ones(2), torch.tensor([1.5]), torch.arange(2.0), torch.arange(3) / 2
    return [m.dtype for m in made], made[3] + x, torch.get_default_dtype()


@program(calls=[lambda: (values(2), "cpu"), lambda: (values(2), "meta"), lambda: (values(2), "cpu")])
def default_devices_change(x, device):
    with torch.device(device):
        y = torch.zeros(2)
    return y.device.type, x + 1 if y.is_meta else x + y, torch.ones(2, device=device).shape


@program(calls=[lambda: (values(3, 3), 0.5), lambda: (values(3, 3), 0.0), lambda: (values(4, 4), 1.0)])
def sparse_from_dense(x, threshold):
    kept = torch.where(x.abs() > threshold, x, 0.0).to_sparse()
    return torch.sparse.mm(kept, x), kept.to_dense(), kept.coalesce().values()


@program(calls=[lambda: (values(3), [0, 2, 1]), lambda: (values(2), [1, 1]), lambda: (values(4), [3, 0, 0, 3])])
def sparse_from_indices(v, places):
    m = torch.sparse_coo_tensor(torch.tensor([places, list(range(len(places)))]), v, (4, 4))
    return m.to_dense(), (m @ torch.ones(4, 1)).squeeze()


@program(calls=ROWS)
def half_types_compared(x):
    h, b = x.half(), x.bfloat16()
    return h + b, h * 3.3, b.sum(), (h @ h.T).dtype, torch.finfo(h.dtype).max, b.to(torch.float32) - x, h.softmax(-1)


@program(
    calls=[lambda: (integers(4, high=100),), lambda: (integers(3, high=300, seed=1),), lambda: (integers(5, high=2),)]
)
def small_integers_wrap(x):
    small = x.to(torch.uint8)
    signed = x.to(torch.int8)
    return (
        small + 200,
        signed * 2,
        small.sum(),
        (signed >> 1),
        small.float().div(255).mul(2).sub(1),
        small.bitwise_not(),
    )


@program(calls=[lambda: (values(4), 4), lambda: (values(4), 8), lambda: (values(6), 2)])
def quantised_by_hand(x, bits):
    low, high = -(2 ** (bits - 1)), 2 ** (bits - 1) - 1
    scale = x.abs().max() / high
    q = torch.clamp(torch.round(x / scale), low, high).to(torch.int8)
    return q, q.float() * scale, (q.float() * scale - x).abs().max()


@program(calls=[lambda: (integers(8, high=16),), lambda: (integers(4, high=16, seed=1),)])
def nibbles_packed(x):
    x = x.to(torch.uint8)
    packed = (x[0::2] << 4) | x[1::2]
    return packed, torch.stack([packed >> 4, packed & 0xF], -1).flatten(), packed.dtype


@program(calls=ROWS)
def comparisons_with_tolerance(x):
    y = x + 1e-7
    return torch.isclose(x, y), (x - y).abs().max() < 1e-3, torch.allclose(x, y), torch.equal(x, x), x.eq(y).all()


@program(calls=ROWS)
def numbers_taken_out(x):
    top = x.max().item()
    rows = x.tolist()
    total = sum(sum(row) for row in rows)
    return x / top, total / x.numel(), [max(row) for row in rows], float(x[0, 0]), int(x.argmax())


@program(
    calls=[lambda: (values(3), values(3, seed=1)), lambda: (values(2, 2), values(2, 2)), lambda: (values(0), values(0))]
)
def nothing_reduced(a, b):
    try:
        return torch.stack([a, b]).amax(), (a * b).mean(), torch.cat([a, b]).prod()
    except (RuntimeError, IndexError) as error:
        return type(error).__name__, str(error)


@program(
    calls=[
        lambda: (values(2, 3, 4), "bij,bkj->bik"),
        lambda: (values(2, 3, 4), "bij,bij->b"),
        lambda: (values(3, 3, 3), "iij,jkk->ik"),
        lambda: (values(2, 3, 4), "...j,...j"),
    ]
)
def einsum_of_many(x, equation):
    return torch.einsum(equation, x, x)


@program(calls=ROWS)
def solved_and_decomposed(x):
    a = x @ x.T + 2 * torch.eye(len(x), dtype=x.dtype)
    chol = torch.linalg.cholesky(a)
    b = x.sum(1, keepdim=True)
    return (
        torch.cholesky_solve(b, chol),
        torch.linalg.solve(a, b),
        torch.linalg.slogdet(a),
        torch.linalg.norm(a, 2),
        torch.trace(a),
    )


@program(calls=[lambda: (values(3), 0), lambda: (values(3), 1), lambda: (values(3), 2)])
def table_of_functions(x, which):
    functions = (torch.sin, F.silu, lambda v: v.clamp(0))
    return functions[which](x), functions[which - 1](x)


@program(
    calls=[
        lambda: (values(4), (2, 2)),
        lambda: (values(4), (-1,)),
        lambda: (values(4), (1, -1, 1)),
        lambda: (values(4), (3, 2)),
    ]
)
def reshaped_to_a_tuple(x, shape):
    return x.reshape(shape) + 1, x.new_zeros(tuple(abs(s) for s in shape)), torch.Size(shape).numel()


@program(
    calls=[
        lambda: (values(4, 4), None, None),
        lambda: (values(4, 4), 1, None),
        lambda: (values(4, 4), 0, torch.float64),
        lambda: (values(4, 4), (0, 1), None),
    ]
)
def optional_dimensions(x, dim, dtype):
    total = x.sum() if dim is None else x.sum(dim, dtype=dtype)
    return (
        total,
        x.mean(dim) if dim is not None else x.mean(),
        x.norm(dim=dim),
        torch.logsumexp(x, dim if dim is not None else (0, 1)),
    )


@program(calls=[lambda: (values(5), 3, 1), lambda: (values(9), 5, 2), lambda: (values(5), 3, 2)])
def convolved_with_a_made_kernel(x, size, stride):
    kernel = torch.exp(-0.5 * (torch.arange(size) - size // 2).float() ** 2)
    kernel = (kernel / kernel.sum())[None, None]
    return F.conv1d(x[None, None], kernel, stride=stride, padding=size // 2)[0, 0], F.avg_pool1d(
        x[None], size, stride, ceil_mode=True
    )


@program(calls=ROWS)
def random_numbers_of_every_kind(x):
    g = torch.Generator().manual_seed(7)
    fixed = torch.randn(2, generator=g)
    return (
        torch.rand_like(x),
        fixed,
        torch.randint(0, 5, x.shape),
        torch.bernoulli(x.sigmoid()),
        torch.randperm(len(x)),
        torch.normal(x, 1.0),
    )

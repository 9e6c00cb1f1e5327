"""In-place writes through views, indices and masks, aliases of arguments and results, scatter and gather, layouts."""

from __future__ import annotations

import torch
import torch.nn.functional as F

from tests.python.harness import program
from tests.python.tensors import integers, values

SQUARES = [lambda: (values(3, 4),), lambda: (values(5, 4, seed=1),), lambda: (values(3, 4, seed=2).double(),)]
OTHERS = [
    lambda: (values(3, 4),), lambda: (values(4, 3).t(),), lambda: (values(6, 4)[::2],), lambda: (values(1, 4).expand(3, 4).clone(),),
]  # fmt: skip


@program(calls=OTHERS)
def rows_written_through_a_loop(x):
    for i, row in enumerate(x):
        row.mul_(i + 1)
        row[-1] = 0
    return x.sum(), x


@program(calls=OTHERS)
def views_of_views_written(x):
    a = x[1:]
    b = a.t()
    c = b[::2]
    c += 10
    a[0].neg_()
    return b, x.diagonal().add_(1), c


@program(calls=OTHERS)
def read_before_and_after_a_write(x):
    before = x * 2
    view = x[:, :2]
    kept = view.clone()
    view.zero_()
    return before - x, kept, view


@program(calls=OTHERS)
def columns_swapped(x):
    x[:, [0, 2]] = x[:, [2, 0]]
    x[0], x[1] = x[1].clone(), x[0].clone()
    return x


@program(calls=SQUARES)
def rows_swapped_without_a_copy(x):
    x[0], x[1] = x[1], x[0]
    return x


@program(calls=SQUARES)
def shifted_in_place(x):
    x[1:] += x[:-1].clone()
    x[:, 1:].copy_(x[:, :-1].clone())
    return x.cumsum(0)


@program(calls=SQUARES)
def results_that_alias(x):
    y = x + 1
    halves = y.chunk(2, dim=1)
    return y, halves, y.view(-1), halves[0].T, x[0], x.detach()


@program(calls=[lambda: (values(3, 4), 1), lambda: (values(3, 4), 2), lambda: (values(3, 4), -1)])
def alias_or_copy(x, n):
    if n > 1:
        return x.contiguous(), x.reshape(4, 3), x.to(torch.float32)
    return x.t().contiguous(), x.t().reshape(-1), x.to(torch.float64)


@program(calls=SQUARES)
def flattened_may_copy(x):
    a = x.flatten()
    b = x.t().flatten()
    a[0] = 100.0
    b[1] = -100.0
    return x, a, b, x.ravel().data_ptr() == x.data_ptr()


@program(together=lambda: (lambda base: (base, base[1:], base.view(-1)))(values(4, 3)))
def three_views_of_one(x, y, z):
    y.add_(1)
    z[0] = 5
    return x * 2, y, z


@program(calls=[
    lambda: (lambda b: (b[:3], b[1:4]))(values(5)), lambda: (values(3), values(3, seed=1)), lambda: (lambda b: (b, b))(values(3)),
])  # fmt: skip
def overlapping_arguments(a, b):
    a.mul_(2)
    return a + b, b.sub_(1)


@program(calls=SQUARES)
def masks_written(x):
    mask = x > 0
    x[mask] = -x[mask] * 0.5
    x[~mask] += 1
    x[:, 0][mask[:, 0]] = 9
    return x, mask.sum(), x[mask].shape


@program(calls=SQUARES)
def mask_of_rows_filled(x):
    rows = x.sum(1) > 0
    y = x.clone()
    y[rows] = torch.arange(4, dtype=x.dtype)
    y[rows, 1] = -1
    return y, torch.where(rows[:, None], x, y)


@program(calls=SQUARES)
def advanced_and_basic_mixed(x):
    i = torch.tensor([0, 2])
    j = torch.tensor([[1], [3]])
    cube = x[None, :, None].expand(2, -1, 2, -1).clone()
    cube[:, i, 0, j] = 7
    return x[i, ..., None], x[j, i], cube[:, i, :, 1:3], cube[..., [0, 0, 1]], x[i.tolist()], x[None, i, 1]


@program(calls=SQUARES)
def accumulated_by_index(x):
    i = torch.tensor([0, 1, 0, 2])
    total = torch.zeros_like(x)
    total.index_add_(0, i[: len(x)], x[: len(i)], alpha=2)
    total.index_put_((i,), x[0], accumulate=True)
    return total, total.index_fill(1, torch.tensor([3]), -1), total.index_copy(0, torch.tensor([1]), x[:1])


@program(calls=SQUARES)
def reduced_by_scatter(x):
    i = torch.tensor([[0, 1, 1, 0]]).expand(len(x), 4)
    out = {}
    for how in ("sum", "mean", "amax", "amin", "prod"):
        out[how] = torch.ones(len(x), 2, dtype=x.dtype).scatter_reduce_(1, i, x, how, include_self=how != "mean")
    return out


@program(calls=SQUARES)
def sorted_and_put_back(x):
    ordered, places = x.sort(1, descending=True, stable=True)
    back = torch.empty_like(x).scatter_(1, places, ordered)
    ranks = places.argsort(1)
    return back.equal(x) if False else back - x, ranks, torch.take_along_dim(x, ranks, 1)


@program(
    calls=[
        lambda: (integers(6, high=4),),
        lambda: (integers(9, high=4, seed=1),),
        lambda: (integers(6, high=2, seed=2),),
    ]
)
def unique_with_counts(x):
    found, inverse, counts = torch.unique(x, return_inverse=True, return_counts=True)
    return found, inverse, counts, found[inverse]


@program(calls=SQUARES)
def strided_windows(x):
    windows = x.contiguous().as_strided((len(x) - 1, 2, 4), (4, 4, 1))
    y = windows.sum(1)
    hole = x.new_zeros(len(x), 8)
    hole[:, ::2] = x
    return y, hole, windows.stride(), hole[:, 1::2].is_contiguous()


@program(calls=SQUARES)
def filled_by_a_function(x):
    x.apply_(lambda v: 2 * v + 1)
    return x


@program(calls=SQUARES)
def out_given_by_name(x):
    out = torch.empty(0, dtype=x.dtype)
    torch.matmul(x, x.T, out=out)
    total = torch.empty(len(x), dtype=x.dtype)
    torch.sum(x, 1, out=total)
    pair = (torch.empty(4, dtype=x.dtype), torch.empty(4, dtype=torch.long))
    torch.max(x, 0, out=pair)
    return out, total, pair


@program(calls=SQUARES)
def put_together_from_parts(x):
    y = torch.zeros(2 * len(x), 4, dtype=x.dtype)
    y[0::2], y[1::2] = x, -x
    y[-1, :].fill_(3)
    y[..., -1] *= 2
    y[len(x) // 2 :][:, 1] = torch.linspace(0, 1, len(y) - len(x) // 2, dtype=x.dtype)
    return y


@program(
    calls=[lambda: (values(2, 3), 0), lambda: (values(2, 3), 1), lambda: (values(2, 3), -1), lambda: (values(2, 3), 2)]
)
def written_along_a_dimension(x, dim):
    index = [slice(None)] * x.ndim
    index[dim] = 0
    x[tuple(index)] = x.sum(dim)[: x[tuple(index)].shape[0]]
    return x.select(dim, -1), x.narrow(dim, 0, 1)


@program(calls=SQUARES)
def layouts_kept(x):
    image = x.reshape(1, len(x), 2, 2).to(memory_format=torch.channels_last)
    return (
        image * 2,
        image.flip(1),
        torch.empty_like(image).copy_(image),
        image.permute(0, 2, 3, 1).contiguous(),
        image.sum(1, keepdim=True),
    )


@program(calls=SQUARES, grad=True)
def written_view_of_a_differentiable(x):
    w = torch.ones(4, dtype=x.dtype, requires_grad=True)
    y = x * w
    y[:, 1] = y[:, 0] * 2
    y[0].mul_(3)
    z = y.clone()
    z[y.detach() > 0] = 0.5
    (z.sum() + y[-1].pow(2).sum()).backward()
    return y.detach(), w.grad


@program(calls=SQUARES, grad=True)
def writes_refused(x):
    w = torch.ones(4, dtype=x.dtype, requires_grad=True)
    errors = []
    for attempt in (lambda: w.add_(1), lambda: w[0].fill_(2), lambda: w.view(2, 2).t_().zero_()):
        try:
            attempt()
        except RuntimeError as error:
            errors.append(str(error))
    return errors, (w * x).sum()


@program(calls=SQUARES)
def repeated_and_expanded(x):
    wide = x[:1].expand(3, 4)
    try:
        wide.add_(1)
    except RuntimeError as error:
        message = str(error)
    return (
        message,
        x.repeat(2, 1, 1).shape,
        x.repeat_interleave(torch.tensor([1, 0, 2]), dim=0) if len(x) == 3 else None,
        x.tile(2),
    )


class Buffer:
    def __init__(self):
        self.data = torch.zeros(4, 4)
        self.view = self.data[1:3]

    def write(self, row):
        self.view[0] = row
        self.data[2] += 1
        return self.view


BUFFER = Buffer()


@program(calls=SQUARES)
def view_kept_by_an_object(x):
    return BUFFER.write(x[0]).sum(), BUFFER.data, BUFFER.view


@program(
    calls=[
        lambda: ([values(2), values(2, seed=1)],),
        lambda: ([values(2)],),
        lambda: ((lambda t: [t, t, t])(values(2)),),
    ]
)
def list_of_tensors_written(tensors):
    for tensor in tensors:
        tensor += 1
    tensors[0] = tensors[-1] * 2
    tensors += [tensors[0][:1]]
    return tensors[-1], len(tensors)


@program(
    calls=[
        lambda: ({"a": values(2), "b": values(2, seed=1)},),
        lambda: ({"b": values(2)},),
        lambda: ({"a": values(3), "c": values(1)},),
    ]
)
def dict_of_tensors_written(table):
    for name in list(table):
        table[name].mul_(2)
        table[name + name] = table.pop(name) if name == "a" else table[name] + 1
    return table


@program(calls=SQUARES)
def bits_reinterpreted(x):
    bits = x.float().view(torch.int32)
    sign = (bits >> 31) & 1
    flipped = (bits ^ (1 << 31)).view(torch.float32)
    halves = x.float().contiguous().view(torch.int16)
    return sign, flipped, halves[..., ::2], x.half().view(torch.uint8).shape


@program(calls=SQUARES)
def padded_and_rolled(x):
    padded = F.pad(x, (1, 2), value=-1.0)
    padded[:, 0] = padded[:, -3]
    return (
        padded,
        torch.roll(padded, (1, -1), (0, 1)),
        F.pad(x[None], (1, 1), mode="reflect"),
        F.pad(x[None], (2, 0), mode="circular"),
    )


@program(calls=SQUARES)
def triangles_written(x):
    square = x[:3, :3].clone()
    square.triu_(1)
    square += square.mT.clone()
    i, j = torch.triu_indices(3, 3, 1)
    square[i, j] = -1
    square.diagonal().copy_(torch.arange(3))
    return square, square[i, j], torch.block_diag(square, x[:1])

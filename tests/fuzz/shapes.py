"""Views, copies, joins and indexing, as statements of generated programs."""

from __future__ import annotations

from tests.fuzz.builder import EXACT, ROUNDS, VIEW, Builder, Skip


def view(b: Builder) -> tuple:
    x = b.ranked(1)
    value = b.value(x)
    d, e, n = b.dim(x), b.dim(x), value.shape[0]
    order = list(range(value.dim()))
    b.choose.shuffle(order)
    last = b.size(x, value.dim() - 1)
    first = b.size(x, 0)
    some = b.one(0, 1, 2, -1)
    if value.is_complex() and b.chance(0.35):
        return b.one(
            f"{x}.conj()", f"{x}.mH", f"{x}.conj()[..., 1:]", f"{x}.conj().transpose({d}, {e})", f"{x}.real", f"{x}.imag",
            f"{x}.conj().imag", f"{x}.resolve_conj()", f"torch.view_as_real({x}.resolve_conj())",
        ), VIEW  # fmt: skip
    return b.one(
        f"{x}.transpose({d}, {e})", f"{x}.permute({', '.join(map(str, order))})", f"{x}.movedim({d}, {e})",
        f"torch.swapaxes({x}, {d}, {e})", f"{x}.mT", f"{x}.T" if value.dim() == 2 else f"{x}.mT", f"{x}.unsqueeze({d})",
        f"{x}[None]", f"{x}[..., None]", f"{x}.squeeze()", f"{x}.squeeze({d})", f"{x}.flatten()", f"{x}.flatten({some}, -1)",
        f"{x}.reshape(-1)", f"{x}.reshape({first}, -1)", f"{x}.reshape(-1, {last})", f"{x}.view(-1)", f"{x}.view({x}.shape)",
        f"{x}.view(1, *{x}.shape)", f"{x}.select({d}, {some})", f"{x}[{some}]", f"{x}[..., {some}]", f"{x}.ravel()",
        f"{x}.narrow({d}, {b.one(0, 1)}, {b.one(1, 2, 0)})", f"{x}[1:]", f"{x}[:-1]", f"{x}[::2]", f"{x}[..., ::2]",
        f"{x}[..., 1:]", f"{x}[:, 1:]", f"{x}[:, None]", f"{x}[-2:]", f"{x}[1::3]", f"{x}[..., :2]", f"{x}[2:1]",
        f"{x}.diagonal({b.one(0, 1, -1)})", f"{x}.expand(2, *{x}.shape)", f"{x}.unsqueeze(1).expand(-1, 3, *{x}.shape[1:])",
        f"{x}.expand_as({b.like(x)})", f"torch.broadcast_to({x}, (2, *{x}.shape))", f"{x}.detach()", f"{x}.view_as({x})",
        f"{x}.unfold({d}, 2, {b.one(1, 2)})", f"{x}.as_strided((2, 2), ({b.one(1, 2, 0)}, 1), {x}.storage_offset())",
        f"{x}.reshape({b.one(2, 3, 4)}, -1)", f"{x}.unflatten(0, (1, -1))", f"{x}.unflatten(-1, (-1, {b.one(1, 2)}))",
        f"{x}.chunk(2, {d})[{b.one(0, -1)}]", f"{x}.split(2, {d})[{b.one(0, -1)}]", f"{x}.unbind({d})[{b.one(0, -1)}]",
        f"torch.tensor_split({x}, 3, {d})[{b.one(0, 1, 2)}]", f"torch.atleast_2d({x})", f"torch.atleast_3d({x})",
        f"{x}.view({first}, -1)", f"{x}.contiguous()", f"{x}.data", f"{x}.adjoint()", f"{x}[{max(n // 2, 0)}:]",
        f"{x}.reshape({x}.shape[::-1])", f"{x}.swapdims({d}, {e})", f"torch.squeeze({x}, ({d},))", f"{x}.positive()",
    ), VIEW  # fmt: skip


def view_of_number(b: Builder) -> tuple:
    x = b.any(lambda x: x.dim() == 0)
    return b.one(f"{x}.view(1)", f"{x}[None]", f"{x}.expand(3)", f"{x}.reshape(1, 1)", f"{x}.unsqueeze(0)"), VIEW


def view_as_type(b: Builder) -> tuple:
    x = b.any(lambda x: not x.requires_grad)
    return b.one(
        f"{x}.view(torch.{b.one('int32', 'float32', 'uint8', 'int16', 'int64', 'float16', 'bool')})", f"torch.view_as_real({x})",
        f"{x}.real", f"{x}.imag",
    ), VIEW  # fmt: skip


def pieces(b: Builder) -> tuple:
    x = b.ranked(1)
    d = b.dim(x)
    size = b.value(x).shape[d]
    if size == 2:
        return b.one(f"{x}.unbind({d})", f"{x}.chunk(2, {d})"), VIEW, "", 2
    if size < 3:
        raise Skip
    return (
        b.one(f"{x}.chunk(2, {d})", f"torch.split({x}, [1, {size - 1}], {d})", f"{x}.tensor_split(2, {d})"),
        VIEW,
        "",
        2,
    )


def copied(b: Builder) -> tuple:
    x = b.ranked(1)
    d = b.dim(x)
    return b.one(
        f"{x}.clone()", f"{x}.contiguous()", f"{x}.clone(memory_format=torch.contiguous_format)", f"torch.flip({x}, ({d},))",
        f"{x}.flip({b.dims(x)})", f"torch.roll({x}, {b.one(1, 2, -1)}, {d})", f"torch.roll({x}, {b.one(1, -2)})",
        f"torch.fliplr({x})", f"torch.rot90({x})", f"{x}.repeat({', '.join('2' if b.chance(0.4) else '1' for _ in range(b.value(x).dim() + b.below(2)))})",
        f"torch.tile({x}, (2,))", f"{x}.repeat_interleave({b.one(2, 3, 0)}, {d})", f"torch.tril({x}, {b.one(0, 1, -1)})",
        f"torch.triu({x}, {b.one(0, 1, -1)})", f"torch.diag_embed({x})", f"torch.diag({x})" if b.value(x).dim() < 3 else f"{x}.clone()",
        f"torch.vander({x})" if b.value(x).dim() == 1 else f"{x}.clone()", f"torch.block_diag({x}, {x})",
        f"{x}.contiguous(memory_format=torch.channels_last)" if b.value(x).dim() == 4 else f"{x}.clone()", f"{x}.mT.contiguous()",
        f"torch.pixel_shuffle({x}, 1)", f"torch.channel_shuffle({x}, 1)", f"torch.diagflat({x})", f"{x}.trace()",
    ), EXACT  # fmt: skip


def joined(b: Builder) -> tuple:
    x = b.ranked(1)
    y = b.one(b.like(x), b.same(x), x)
    d = b.dim(x)
    return b.one(
        f"torch.cat([{x}, {y}], {d})", f"torch.cat([{x}, {y}, {x}], {d})", f"torch.stack([{x}, {y}], {d})",
        f"torch.stack(({x}, {y}), -1)", f"torch.hstack([{x}, {y}])", f"torch.vstack([{x}, {y}])", f"torch.dstack([{x}, {y}])",
        f"torch.cat([{x}[1:], {y}], 0)", f"torch.cat([{x}, {y}[..., :1]], -1)", f"torch.column_stack([{x}, {y}])",
    ), EXACT  # fmt: skip


def padded(b: Builder) -> tuple:
    x = b.ranked(1, 5)
    rank = b.value(x).dim()
    if b.chance(0.5):
        count = b.one(*range(1, min(rank, 3) + 1))
        amounts = ", ".join(str(b.one(0, 1, 2, -1, 3)) for _ in range(2 * count))
        return f"F.pad({x}, ({amounts}), value={b.number()})", EXACT
    count = max(rank - 2, 1)
    amounts = ", ".join(str(b.one(0, 1, 1, 2)) for _ in range(2 * count))
    return f"F.pad({x}, ({amounts}), mode='{b.one('reflect', 'replicate', 'circular')}')", EXACT


def indexed(b: Builder) -> tuple:
    x = b.ranked(1)
    value = b.value(x)
    d = b.below(value.dim())
    size = value.shape[d]
    if b.vary and b.chance(0.7):
        raise Skip  # the text would hold a size
    shape = list(value.shape)
    if b.chance(0.5):
        shape[d] = b.one(1, 2, 3, 5)
    flat = b.index(size, (b.one(1, 2, 3, 4),))
    colons = ":, " * d
    kind = b.below(9)
    if kind == 0:
        return f"torch.gather({x}, {d}, {b.index(size, shape)})", EXACT
    if kind == 1:
        return f"torch.take_along_dim({x}, {b.index(size, shape)}, {d})", EXACT
    if kind == 2:
        return f"torch.take({x}, {b.index(value.numel(), (2, 3))})", EXACT
    if kind == 3:
        return f"F.embedding({flat}, {x})" if value.dim() == 2 and d == 0 else f"{x}[{colons}{flat}]", EXACT
    if kind == 4 and value.dim() > 1 and value.shape[0]:
        other = b.index(value.shape[0], (2, 1))
        return f"{x}[{other}, {b.index(value.shape[1], (3,))}]", EXACT
    if kind == 5 and value.dim() > 2:
        return f"{x}[{b.index(value.shape[0], (3,))}, :, {b.index(value.shape[2], (3,))}]", EXACT
    return b.one(
        f"{x}.index_select({d}, {flat})", f"{x}[{colons}{flat}]", f"{x}[{colons}[0, -1]]", f"{x}[{colons}{flat}, ..., None]",
        f"torch.index_select({x}, {d}, {flat})", f"{x}[{colons}{flat} - {size}]",
    ), EXACT  # fmt: skip


def picked(b: Builder) -> tuple:
    """How many elements come out depends on the contents."""
    x = b.ranked(1)
    return b.one(f"{x}[{x} > 0]", f"torch.nonzero({x})", f"torch.masked_select({x}, {b.like(x)} > 0)", f"torch.unique({x})",
                 f"torch.bincount({x} % 5)" if not b.value(x).is_floating_point() else f"{x}[{x} < 0].sum()"), EXACT  # fmt: skip


def scattered(b: Builder) -> tuple:
    x = b.ranked(1)
    value = b.value(x)
    d = b.below(value.dim())
    size = value.shape[d]
    if b.vary:
        raise Skip
    shape = list(value.shape)
    shape[d] = b.one(1, 2, 3)
    kind = b.below(9)
    at = b.index(size, shape)
    source = b.new(shape, b.type_of(x))
    reduce = b.one("sum", "amax", "amin", "prod", "mean")
    if kind == 0:
        return f"{x}.scatter({d}, {b.index(size, shape)}[..., :1], {b.number()})", EXACT
    if kind == 1:
        return f"{x}.scatter_add({d}, {at}, {source})", ROUNDS
    if kind == 2:
        return f"{x}.scatter_reduce({d}, {at}, {source}, '{reduce}', include_self={b.flag()})", ROUNDS
    flat = b.index(size, (shape[d],))
    if kind == 3:
        return f"{x}.index_add({d}, {flat}, {source}, alpha={b.one(1, 2, -1)})", ROUNDS
    if kind == 4:
        order = f"torch.arange({shape[d]})" if shape[d] <= size else flat
        return f"{x}.index_copy({d}, {order}, {source})", EXACT
    if kind == 5:
        return f"{x}.index_fill({d}, {flat}, {b.number(1, 2, 0.5)})", EXACT
    if kind == 6:
        return f"{x}.index_put(({b.index(value.shape[0], (shape[d],))},), {b.number(1, 2)} * {x}.new_ones(()), accumulate=True)", ROUNDS  # fmt: skip
    if kind == 7:
        return f"torch.select_scatter({x}, {b.like(x)}.select({d}, 0), {d}, {b.one(0, -1)})", EXACT
    return b.one(
        f"torch.slice_scatter({x}, {source}, {d}, {b.one(0, 1)}, {b.one(shape[d], shape[d] + 1)})",
        f"{x}.masked_scatter({b.like(x)} > 0, {b.same(x)})", f"torch.diagonal_scatter({x}, {x}.diagonal() * 2)",
        f"{x}.index_reduce({d}, {flat}, {source}, '{b.one('prod', 'amax', 'amin', 'mean')}')",
    ), ROUNDS  # fmt: skip


def scattered_in_place(b: Builder) -> tuple:
    x = b.ranked(1)
    value = b.value(x)
    d = b.below(value.dim())
    if b.vary:
        raise Skip
    shape = list(value.shape)
    shape[d] = b.one(1, 2)
    at, flat = b.index(value.shape[d], shape), b.index(value.shape[d], (shape[d],))
    source = b.new(shape, b.type_of(x))
    return b.one(
        f"{x}.scatter_add_({d}, {at}, {source})", f"{x}.index_add_({d}, {flat}, {source})", f"{x}.index_fill_({d}, {flat}, 2)",
        f"{x}.index_put_(({b.index(value.shape[0], (2,))},), {x}.new_ones(()), accumulate=True)",
        f"{x}.scatter_reduce_({d}, {at}, {source}, '{b.one('sum', 'amax', 'prod')}')",
    ), ROUNDS, x  # fmt: skip


def with_indices(b: Builder) -> tuple:
    x = b.whole()
    n = b.one(3, 5, 8)
    return b.one(
        f"F.one_hot({x}.long() % {n}, {n})", f"F.one_hot({x}.long() % {n})",
        f"torch.bucketize({b.any()}, torch.tensor([-1.0, 0.0, 0.5, 2.0]), right={b.flag()})",
        f"torch.searchsorted(torch.tensor([-1.0, 0.0, 0.5, 2.0]), {b.float()})", f"torch.isin({x}, torch.tensor([0, 1, 3]))",
    ), EXACT  # fmt: skip


def grids(b: Builder) -> tuple:
    x, y = b.ranked(1, 1), b.ranked(1, 1)
    return f"torch.meshgrid({x}, {y}, indexing='{b.one('ij', 'xy')}')", VIEW, "", 2


OPERATORS = {
    view: 22, view_of_number: 2, view_as_type: 1, pieces: 3, copied: 6, joined: 5, padded: 3, indexed: 5, picked: 1,
    scattered: 3, with_indices: 1, grids: 1,
}  # fmt: skip
WRITES = {scattered_in_place: 2}

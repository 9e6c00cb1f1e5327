"""Reductions, sorting, products, normalizations, pooling, convolutions and losses, as statements of generated programs."""

from __future__ import annotations

from tests.fuzz.builder import EXACT, ROUNDS, Builder, Skip


def reduction(b: Builder) -> tuple:
    x = b.any()
    rank = b.value(x).dim()
    d = b.one("", b.dim(x), b.dim(x), b.dims(x)) if rank else b.one("", "", b.dim(x))
    at = f", {d}{b.keep()}" if d != "" else ""
    name = b.one(*"sum sum mean mean prod amax amin any all nansum nanmean count_nonzero".split())
    if name == "count_nonzero":
        return f"torch.count_nonzero({x}{f', {d}' if d != '' else ''})", EXACT
    if name == "prod" and isinstance(d, str):
        at = ""
    if name in ("any", "all", "amax", "amin"):
        return b.one(f"torch.{name}({x}{at})", f"{x}.{name}({at[2:]})"), EXACT
    dtype = f", dtype={b.float_type()}" if b.chance(0.2) else ""
    return b.one(f"torch.{name}({x}{at}{dtype})", f"{x}.{name}({(at + dtype)[2:]})"), ROUNDS


def statistic(b: Builder) -> tuple:
    x = b.float()
    d, k = b.dim(x), b.keep()
    return b.one(
        f"{x}.std()", f"{x}.var({d}{k})", f"torch.std({x}, {d}, correction={b.one(0, 1, 2)}{k})", f"torch.var({x}, unbiased=False)",
        f"torch.logsumexp({x}, {d}{k})", f"torch.norm({x})", f"torch.linalg.vector_norm({x}, {b.one(1, 2, 3, 'inf', 0, '-inf', 0.5)}, {d}{k})",
        f"{x}.norm({b.one(1, 2, 'inf')}, {d})", f"torch.quantile({x}.float(), {b.one(0.5, 0.3)}, {d})", f"torch.dist({x}, {b.like(x)})",
        f"torch.trapezoid({x})", f"torch.renorm({x}, 2, 0, 1.5)", f"torch.cov({x})", f"torch.std({x}, {d}, False)",
        f"torch.var({x}, {b.one(d, '()')}, correction={b.one(0, 1, 0.5)})",
    ), ROUNDS  # fmt: skip


def pair_statistic(b: Builder) -> tuple:
    x = b.float()
    d, k = b.dim(x), b.keep()
    return b.one(f"torch.std_mean({x}, {d}{k})", f"torch.var_mean({x}, {d}, correction=0{k})", f"torch.aminmax({x}, dim={d}{k})",
                 f"torch.frexp({x})"), ROUNDS, "", 2  # fmt: skip


def extremum(b: Builder) -> tuple:
    x = b.any()
    d, k = b.dim(x), b.keep()
    name = b.one("max", "min", "median", "cummax", "cummin", "sort", "nanmedian", "kthvalue", "mode", "topk")
    if name in ("cummax", "cummin"):
        return f"torch.{name}({x}, {d})", EXACT, "", 2
    if name == "sort":
        return (
            f"torch.sort({x}, {d}, descending={b.flag()}, stable=True)"
            if b.chance(0.5)
            else f"torch.sort({x}, dim={d}, stable=True)",
            EXACT,
            "",
            2,
        )
    if name == "kthvalue":
        return f"torch.kthvalue({x}, 1, {d}{k})[0]", EXACT
    if name == "topk":
        return f"torch.topk({x}, {b.one(1, 2)}, {d}, largest={b.flag()})[0]", EXACT
    if name in ("median", "nanmedian", "mode"):
        return f"torch.{name}({x}, {d}{k})[0]", EXACT
    return b.one(f"torch.{name}({x}, {d}{k})", f"{x}.{name}({d}{k})"), EXACT, "", 2


def place_of_extremum(b: Builder) -> tuple:
    x = b.any()
    d, k = b.dim(x), b.keep()
    return b.one(
        f"{x}.argmax({d}{k})", f"{x}.argmin({d}{k})", f"torch.argmax({x})", f"{x}.max()", f"{x}.min()", f"torch.argmin({x})",
        f"torch.argsort({x}, {d}, stable=True)", f"torch.median({x})", f"torch.equal({x}, {b.like(x)})", f"{x}.max().item()",
        f"torch.allclose({x}, {x})",
    ), EXACT  # fmt: skip


def running(b: Builder) -> tuple:
    x = b.any()
    d = b.dim(x)
    dtype = f", dtype={b.float_type()}" if b.chance(0.2) else ""
    return b.one(
        f"{x}.cumsum({d}{dtype})", f"torch.cumprod({x}, {d})", f"torch.logcumsumexp({x}, {d})", f"torch.diff({x}, dim={d})",
        f"torch.cumsum({x}, {d})", f"torch.cumulative_trapezoid({x})",
    ), ROUNDS  # fmt: skip


def softmax(b: Builder) -> tuple:
    x = b.any()
    d = b.dim(x)
    dtype = f", dtype={b.float_type()}" if b.chance(0.3) else ""
    return b.one(
        f"F.softmax({x}, {d}{dtype})", f"F.log_softmax({x}, {d}{dtype})", f"{x}.softmax({d})", f"F.softmin({x}, {d})",
        f"F.normalize({x}, dim={d})", f"F.glu({x}, {d})", f"F.normalize({x}, p={b.one(1, 3)}, dim={d}, eps=1e-3)",
    ), ROUNDS  # fmt: skip


def product(b: Builder) -> tuple:
    x = b.ranked(1, 4)
    value = b.value(x)
    n, dtype = value.shape[-1], b.type_of(x)
    m = b.one(1, 2, 3, 5, 8)
    kind = b.below(12)
    if kind == 0:
        return f"{x} @ {x}.mT", ROUNDS
    if kind == 1:
        bias = f", {b.new((m,), dtype)}" if b.chance(0.6) else ""
        return f"F.linear({x}, {b.new((m, n), dtype)}{bias})", ROUNDS
    if kind == 2:
        return f"torch.einsum('...i,...j->ij', {x}, {x})", ROUNDS
    if kind == 3 and value.dim() == 2:
        return f"torch.addmm({b.new(b.one((m,), (1, m), (value.shape[0], m)), dtype)}, {x}, {b.new((n, m), dtype)}, beta={b.one(1, 0.5, 0, 2)}, alpha={b.one(1, 2)})", ROUNDS  # fmt: skip
    if kind == 4 and value.dim() == 3:
        return f"torch.{b.one('bmm', 'matmul')}({x}, {b.new((value.shape[0], n, m), dtype)})", ROUNDS
    if kind == 5 and value.dim() == 3:
        return f"torch.baddbmm({b.new((1, 1, m), dtype)}, {x}, {b.new((value.shape[0], n, m), dtype)})", ROUNDS
    if kind == 6 and value.dim() == 1:
        return b.one(
            f"torch.outer({x}, {b.new((m,), dtype)})", f"torch.dot({x}, {b.same(x)})", f"torch.inner({x}, {b.same(x)})"
        ), ROUNDS
    if kind == 7 and value.dim() == 2:
        return b.one(
            f"torch.mv({x}, {b.new((n,), dtype)})",
            f"{x}.addmv({b.new((n,), dtype)}, {x}.mT[0])" if 0 else f"{x} @ {b.new((n,), dtype)}",
        ), ROUNDS
    if kind == 8:
        return f"torch.tensordot({x}, {b.new((n, m), dtype)}, 1)", ROUNDS
    if kind == 9 and value.dim() >= 2:
        return f"F.scaled_dot_product_attention({x}, {x}, {x}, is_causal={b.flag()})", ROUNDS
    if kind == 10:
        return f"torch.kron({x}, {b.new((2,), dtype)})", ROUNDS
    return f"{x} @ {b.new((n, m), dtype)}", ROUNDS


def normalization(b: Builder) -> tuple:
    x = b.float(1, 5)
    value, dtype = b.value(x), b.type_of(x)
    n = value.shape[-1]
    kind = b.below(6)
    if kind == 0:
        affine = f", {b.new((n,), dtype)}, {b.new((n,), dtype)}" if b.chance(0.5) else ""
        return f"F.layer_norm({x}, ({b.size(x, value.dim() - 1)},){affine}, eps={b.one(1e-5, 1e-2)})".replace(
            ", eps", ", eps"
        ), ROUNDS
    if kind == 1:
        return f"F.rms_norm({x}, ({b.size(x, value.dim() - 1)},))", ROUNDS
    if value.dim() < 2:
        raise Skip
    channels = value.shape[1]
    if kind == 2:
        return f"F.group_norm({x}, {b.one(1, channels)})", ROUNDS
    if kind == 3:
        affine = f", weight={b.new((channels,), dtype)}, bias={b.new((channels,), dtype)}" if b.chance(0.5) else ""
        if b.chance(0.5):
            return f"F.batch_norm({x}, None, None, training=True{affine})", ROUNDS
        return f"F.batch_norm({x}, {b.new((channels,), dtype)}, {b.new((channels,), dtype, 'unit')}{affine})", ROUNDS
    if kind == 4:
        return f"F.instance_norm({x})", ROUNDS
    return f"F.local_response_norm({x}, 2)", ROUNDS


def images(b: Builder, rank: int) -> str:
    """An image of `rank` spatial dimensions, with batch and channels."""
    found = b.tensors(lambda x: x.dim() == rank + 2 and x.is_floating_point())
    if found and b.chance(0.8):
        return b.choose.choice(found)
    shape = [b.one(1, 2), b.one(1, 2, 3, 4), *(b.one(4, 5, 6, 7, 9) for _ in range(rank))]
    return b.new(
        shape,
        b.one(*(each for each in b.dtypes if "float" in each))
        if any("float" in each for each in b.dtypes)
        else "float32",
    )


def pooling(b: Builder) -> tuple:
    rank = b.one(1, 2, 2, 2, 3)
    x = images(b, rank)
    k, s, p, o = b.one(1, 2, 3), b.one(1, 2, 3), b.one(0, 0, 1), b.one(1, 2, 3)
    return b.one(
        f"F.max_pool{rank}d({x}, {k}, {s}, {min(p, k // 2)}, ceil_mode={b.flag()})",
        f"F.max_pool{rank}d({x}, 2, {s}, dilation={b.one(1, 2)})",
        f"F.avg_pool{rank}d({x}, {k}, {s}, {min(p, k // 2)}, ceil_mode={b.flag()}, count_include_pad={b.flag()})",
        f"F.adaptive_avg_pool{rank}d({x}, {o})", f"F.adaptive_max_pool{rank}d({x}, {o})", f"F.lp_pool{rank}d({x}, 2, {k})" if rank < 3 else f"F.avg_pool3d({x}, 2)",
    ), ROUNDS  # fmt: skip


def convolution(b: Builder) -> tuple:
    rank = b.one(1, 2, 2, 3)
    x = images(b, rank)
    value, dtype = b.value(x), b.type_of(x)
    channels = value.shape[1]
    groups = b.one(1, 1, max(channels, 1))
    out, k = groups * b.one(1, 2), b.one(1, 2, 3)
    if b.chance(0.25):
        weight = b.new((channels, max(out // groups, 1), *([k] * rank)), dtype)
        return (
            f"F.conv_transpose{rank}d({x}, {weight}, stride={b.one(1, 2)}, padding={b.one(0, 1)}, groups={groups})",
            ROUNDS,
        )
    weight = b.new((out, channels // groups, *([k] * rank)), dtype)
    bias = b.new((out,), dtype) if b.chance(0.5) else "None"
    return f"F.conv{rank}d({x}, {weight}, {bias}, stride={b.one(1, 1, 2)}, padding={b.one(0, 1, k // 2)}, dilation={b.one(1, 1, 2)}, groups={groups})", ROUNDS  # fmt: skip


def resampling(b: Builder) -> tuple:
    x = images(b, b.one(1, 2, 2))
    rank = b.value(x).dim() - 2
    mode = b.one("nearest", "nearest-exact", "area", *(["linear"] if rank == 1 else ["bilinear", "bicubic"]))
    corners = f", align_corners={b.flag()}" if "linear" in mode or mode == "bicubic" else ""
    return b.one(
        f"F.interpolate({x}, scale_factor={b.one(2, 0.5, 1.5)}, mode='{mode}'{corners})",
        f"F.interpolate({x}, size={b.one(3, 5, 7)}, mode='{mode}'{corners})",
        f"F.unfold({x}, {b.one(2, 3)}, padding={b.one(0, 1)}, stride={b.one(1, 2)})" if rank == 2 else f"F.upsample({x}, scale_factor=2)",
        f"F.pixel_unshuffle({x}, 2)" if rank == 2 else f"F.interpolate({x}, scale_factor=2)",
        f"F.grid_sample({x}, {b.new((b.value(x).shape[0], 3, 2, 2), b.type_of(x))}, align_corners={b.flag()}, padding_mode='{b.one('zeros', 'border', 'reflection')}')" if rank == 2 else f"F.interpolate({x}, scale_factor=3)",
    ), ROUNDS  # fmt: skip


def loss(b: Builder) -> tuple:
    x = b.float()
    y = b.same(x) if b.chance(0.7) else b.like(x)
    how = b.one("", ", reduction='sum'", ", reduction='none'", ", reduction='mean'")
    value = b.value(x)
    if b.chance(0.3) and value.dim() in (2, 3, 4) and value.shape[1]:
        shape = (value.shape[0], *value.shape[2:])
        target = b.index(value.shape[1], shape)
        extra = b.one("", f", ignore_index={b.one(0, 1, -100)}", ", label_smoothing=0.1")
        return b.one(f"F.cross_entropy({x}, {target}{extra}{how})", f"F.nll_loss({x}, {target}{how})"), ROUNDS
    name = b.one(
        *"mse_loss l1_loss smooth_l1_loss huber_loss binary_cross_entropy_with_logits soft_margin_loss kl_div poisson_nll_loss".split()
    )
    if b.chance(0.2):
        return b.one(
            f"F.cosine_similarity({x}, {y}, {b.dim(x)})", f"F.pairwise_distance({x}, {y})", f"F.hinge_embedding_loss({x}, {y}{how})",
            f"F.binary_cross_entropy({x}.sigmoid(), {y}.sigmoid(){how})", f"F.gaussian_nll_loss({x}, {y}, {y} ** 2{how})",
            f"F.triplet_margin_loss({x}, {y}, {b.same(x)})", f"torch.cdist({x}, {y})" if value.dim() > 1 else f"F.mse_loss({x}, {y})",
        ), ROUNDS  # fmt: skip
    return f"F.{name}({x}, {y}{how})", ROUNDS


def transform(b: Builder) -> tuple:
    x = b.ranked(1)
    return b.one(f"torch.fft.fft({x})", f"torch.fft.rfft({x})", f"torch.fft.ifft({x}).real", f"torch.fft.rfft2({x})" if b.value(x).dim() > 1 else f"torch.fft.rfft({x}, 4)"), ROUNDS  # fmt: skip


OPERATORS = {
    reduction: 9, statistic: 4, pair_statistic: 1, extremum: 3, place_of_extremum: 2, running: 2, softmax: 4, product: 5,
    normalization: 4, pooling: 3, convolution: 2, resampling: 2, loss: 3, transform: 0.3,
}  # fmt: skip

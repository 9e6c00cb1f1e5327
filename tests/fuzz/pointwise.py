"""Elementwise operators, casts, factories and writes in place, as statements of generated programs."""

from __future__ import annotations

from tests.fuzz.builder import EXACT, ROUNDS, Builder, Skip

ROUNDING = """exp exp2 expm1 log log2 log10 log1p sqrt rsqrt sin cos tan asin acos atan sinh cosh tanh asinh acosh
atanh erf erfc erfinv lgamma digamma sigmoid reciprocal square deg2rad rad2deg sinc logit i0 mvlgamma(2) frac""".split()
KEEPING = """abs neg floor ceil round trunc sign sgn signbit relu nan_to_num isnan isinf isfinite isposinf isneginf
logical_not positive isreal angle real conj conj_physical""".split()
FUNCTIONAL = """silu gelu mish softplus softsign hardswish hardsigmoid elu selu celu logsigmoid tanhshrink relu6 hardtanh
leaky_relu hardshrink softshrink relu sigmoid tanh""".split()
SPECIAL = """entr ndtr ndtri log_ndtr i0e i1 i1e erfcx expit xlog1py zeta bessel_j0 bessel_j1 psi gammaln""".split()
IN_PLACE = """exp log sqrt sin cos tanh sigmoid abs neg floor ceil round trunc relu reciprocal square erf expm1 rsqrt
sign nan_to_num zero log1p atan frac""".split()
BINARY = """add sub mul div true_divide floor_divide remainder fmod pow atan2 hypot logaddexp logaddexp2 xlogy ldexp
float_power rsub nextafter special.xlog1py""".split()
KEEPING_BINARY = """maximum minimum fmax fmin copysign eq ne lt le gt ge logical_and logical_or logical_xor bitwise_and
bitwise_or bitwise_xor bitwise_left_shift bitwise_right_shift gcd lcm heaviside isclose""".split()
SYMBOLS = "+ - * / // % **".split()
KEEPING_SYMBOLS = "== != < <= > >= & | ^ << >>".split()
BINARY_IN_PLACE = "add_ sub_ mul_ div_ remainder_ fmod_ pow_ copy_ eq_ lt_ logical_and_ atan2_ copysign_ bitwise_or_ floor_divide_".split()  # fmt: skip
AUGMENTED = "+= -= *= /= //= %= **=".split()


def unary(b: Builder) -> tuple:
    x, name = b.any(), b.one(*ROUNDING)
    if "(" in name:
        return f"torch.{name[:-1].replace('(', f'({x}, ')})", ROUNDS
    return b.one(f"torch.{name}({x})", f"{x}.{name}()"), ROUNDS


def unary_keeping(b: Builder) -> tuple:
    x, name = b.any(), b.one(*KEEPING)
    if name == "nan_to_num" and b.chance(0.5):
        return f"torch.nan_to_num({x}, nan={b.number()}, posinf=9.0)", EXACT
    if name == "round" and b.chance(0.3):
        return f"torch.round({x}, decimals={b.one(1, 2, -1, 0)})", ROUNDS
    if name in ("real", "conj", "positive", "isreal", "conj_physical", "angle"):
        return f"torch.{name}({x})", EXACT if name != "angle" else ROUNDS
    return b.one(f"torch.{name}({x})", f"{x}.{name}()"), EXACT


def functional(b: Builder) -> tuple:
    x, name = b.any(), b.one(*FUNCTIONAL)
    text = f"F.{name}({x})"
    if b.chance(0.5):
        a, c = b.one(0.5, 1.0, 2, 0.1, -0.5), b.one(20, 1.0, 3)
        text = {
            "gelu": f"F.gelu({x}, approximate='tanh')", "softplus": f"F.softplus({x}, {a}, {c})", "elu": f"F.elu({x}, {a})",
            "celu": f"F.celu({x}, {c})", "hardtanh": f"F.hardtanh({x}, {min(a, 0.1)}, {c})",
            "leaky_relu": f"F.leaky_relu({x}, {a})", "hardshrink": f"F.hardshrink({x}, {a})",
            "softshrink": f"F.softshrink({x}, {abs(a)})",
        }.get(name, text)  # fmt: skip
    return text, ROUNDS


def special(b: Builder) -> tuple:
    name = b.one(*SPECIAL)
    if name in ("xlog1py", "zeta"):
        return f"torch.special.{name}({(x := b.any())}, {b.like(x)})", ROUNDS
    return f"torch.special.{name}({b.any()})", ROUNDS


def binary(b: Builder) -> tuple:
    x, name = b.any(), b.one(*BINARY)
    y = b.number() if b.chance(0.3) else b.like(x)
    if name in ("add", "sub", "rsub") and b.chance(0.3):
        return f"torch.{name}({x}, {y}, alpha={b.one(2, -1, 3, 0.5)})", ROUNDS
    if name == "div" and b.chance(0.5):
        mode = b.one("'floor'", "'trunc'", "None")
        return f"torch.div({x}, {y}, rounding_mode={mode})", ROUNDS
    if name == "pow" and b.chance(0.4):
        return b.one(
            f"torch.pow({b.one(2, 0.5, 10, -1)}, {x})", f"{x} ** {b.one(2, 3, 0.5, -1, 0, 1, -0.5, 4, 2.5)}"
        ), ROUNDS
    if name == "pow" and b.chance(0.3):
        return f"{b.one(2, 0.5, 3)} ** {x}", ROUNDS
    return f"torch.{name}({x}, {y})", ROUNDS


def binary_keeping(b: Builder) -> tuple:
    x, name = b.any(), b.one(*KEEPING_BINARY)
    y = b.like(x)
    if name in ("eq", "ne", "lt", "le", "gt", "ge") and b.chance(0.3):
        y = b.number()
    if "shift" in name:
        y = b.one("1", "2", "3")
    return f"torch.{name}({x}, {y})", EXACT


def symbol(b: Builder) -> tuple:
    x = b.any()
    y = b.number() if b.chance(0.35) else b.like(x)
    if b.chance(0.3):
        x, y = y, x
    if b.chance(0.3):
        operator = b.one(*KEEPING_SYMBOLS)
        return f"{x} {operator} {b.one(1, 2) if '<<' in operator or '>>' in operator else y}", EXACT
    return f"{x} {b.one(*SYMBOLS)} {y}", ROUNDS


def negated(b: Builder) -> tuple:
    return f"{b.one('-', '~', 'abs')}({b.any()})", EXACT


def ternary(b: Builder) -> tuple:
    x = b.any()
    y, z = b.like(x), b.like(x)
    return b.one(
        (f"torch.addcmul({x}, {y}, {z}, value={b.one(2, 0.5, -1)})", ROUNDS),
        (f"torch.addcdiv({x}, {y}, {z}, value={b.one(2, 0.5, -1)})", ROUNDS),
        (f"torch.lerp({x}, {y}, {b.one(z, 0.25, 0.75, 0.0, 1.0)})", ROUNDS),
    )


def clamp(b: Builder) -> tuple:
    x = b.any()
    if b.chance(0.3):
        return f"torch.clamp({x}, {b.like(x)}, {b.like(x)})", EXACT
    low, high = b.number(-1, 0, 0.5, "None"), b.number(1, 2.5, 0, "None")
    return b.one(
        f"torch.clamp({x}, {low}, {high})", f"{x}.clamp(min={low})", f"{x}.clamp_max({b.one(1, 0.5, 'inf')})",
        f"torch.clip({x}, {low}, {high})", f"F.threshold({x}, {b.one(0.5, 0, 1)}, {b.one(-1.0, 7, 0.5)})",
    ), EXACT  # fmt: skip


def where(b: Builder) -> tuple:
    x = b.any()
    mask = b.one(f"{b.like(x)} > {b.one(0, 0.5, b.like(x))}", f"{x}.isnan()", f"{x} != 0", f"({b.like(x)}).bool()")
    y = b.number() if b.chance(0.3) else b.like(x)
    return b.one(
        f"torch.where({mask}, {x}, {y})", f"torch.where({mask}, {y}, {x})", f"{x}.masked_fill({mask}, {b.number()})",
        f"torch.where({mask}, {b.number()}, {b.number()})",
    ), EXACT  # fmt: skip


def cast(b: Builder) -> tuple:
    x, dtype = b.any(), b.dtype()
    return b.one(f"{x}.to({dtype})", f"{x}.type({dtype})", f"{x}.to({dtype}, copy=True)", f"{x}.to({b.any()})"), ROUNDS


def factory(b: Builder) -> tuple:
    x, dtype = b.ranked(1), b.dtype()
    d = b.below(b.value(x).dim())
    n = b.size(x, d)
    a = b.number(0, 1, 2, 0.5, -1)
    return b.one(
        f"torch.zeros({n}, dtype={dtype})", f"torch.ones({n}, {b.one(1, 2, 3)}, dtype={dtype})", f"torch.full(({n},), {a})",
        f"torch.full({x}.shape, {a}, dtype={dtype})", f"torch.arange({n})", f"torch.arange({n}, dtype={b.float_type()})",
        f"torch.arange({b.one(0, 1, -2, 0.5)}, {b.one(5, 6.5, 7)}, {b.one(1, 2, 0.5, 0.1)})",
        f"torch.linspace({b.one(0, -1, 0.1)}, {b.one(1, 5, 0.7)}, {n})", f"torch.eye({n}, {b.one(2, 3, n)}, dtype={dtype})",
        f"torch.zeros_like({x})", f"torch.ones_like({x}, dtype={dtype})", f"torch.full_like({x}, {a})",
        f"{x}.new_zeros({n}, 2)", f"{x}.new_full(({n},), {a})", f"{x}.new_ones({x}.shape)", f"torch.tensor([{a}, 2.5, -1])",
        f"torch.tensor({a}, dtype={dtype})", f"torch.scalar_tensor({a})", f"{x}.new_tensor([1, 2, 3])",
        f"torch.logspace(0, 1, {n})", f"torch.full_like({x}, {a}, dtype={dtype})", f"torch.tril_indices(3, {b.one(2, 3, 4)})",
        f"torch.hann_window({n})", f"torch.as_tensor({x}.shape)",
    ), ROUNDS  # fmt: skip


def draw(b: Builder) -> tuple:
    x = b.ranked(1)
    return b.one(
        f"torch.rand_like({x}, dtype=torch.float32)", f"torch.randn({x}.shape)", f"torch.randint(0, 5, {x}.shape)",
        f"F.dropout({x}, 0.4)", f"torch.bernoulli(torch.full({x}.shape, 0.3))", f"torch.rand({x}.shape[0], 2)",
        f"torch.randperm({x}.shape[0])", f"torch.randn_like({x}, dtype=torch.float64)", f"torch.empty({x}.shape).uniform_(-1, 2)",
        f"F.alpha_dropout({x}, 0.3, training=True)", f"torch.zeros({x}.shape).normal_(1, 2)",
    ), EXACT  # fmt: skip


# Writes. They return the variable written to as a third element. ------------------------------------------------------


def written(b: Builder) -> str:
    return b.any()


def unary_write(b: Builder) -> tuple:
    x = written(b)
    return b.one(
        f"{x}.{b.one(*IN_PLACE)}_()", f"{x}.clamp_({b.one(-1, 0, 0.5)}, {b.one(1, 2)})", f"{x}.fill_({b.number()})",
        f"F.{b.one('relu', 'hardtanh', 'elu', 'leaky_relu', 'silu', 'hardswish')}({x}, inplace=True)",
        f"torch.{b.one('sin', 'exp', 'abs', 'sigmoid', 'tanh', 'sqrt')}({b.same(x)}, out={x})",
    ), ROUNDS, x  # fmt: skip


def binary_write(b: Builder) -> tuple:
    x = written(b)
    y = b.number() if b.chance(0.3) else b.like(x)
    if b.chance(0.3):
        return f"{x} {b.one(*AUGMENTED)} {y}", ROUNDS, x
    if b.chance(0.25):
        z = b.like(x)
        return b.one(
            f"torch.{b.one('add', 'mul', 'sub', 'maximum', 'div', 'gt', 'atan2')}({y}, {z}, out={x})",
            f"{x}.addcmul_({y}, {z}, value={b.one(0.5, 2)})", f"{x}.lerp_({z}, {b.one(0.25, 0.5)})",
            f"torch.where({z} > 0, {z}, {y}, out={x})", f"{x}.masked_fill_({z} > 0, {b.number()})",
            f"torch.clamp({z}, -1, 1, out={x})",
        ), ROUNDS, x  # fmt: skip
    return f"{x}.{b.one(*BINARY_IN_PLACE)}({y})", ROUNDS, x


def element_write(b: Builder) -> tuple:
    x = b.ranked(1)
    rank, n = b.value(x).dim(), b.value(x).shape[0]
    place = b.one(
        "0", "-1", "1:", ":-1", "::2", "..., 0", "..., -1", "...", ":", "1:3", f"{x} > 0", "None", "..., 1:", "..., ::2",
        ":, 0", ":, 1:", "0, ...", f"torch.tensor([0, {b.one(0, max(n - 1, 0))}])", ":2, ..., :2",
    )  # fmt: skip
    y = b.one(b.number(), b.like(x), f"{b.like(x)}[{place}]" if rank else "1")
    return f"{x}[{place}] = {y}", EXACT, x


def metadata_write(b: Builder) -> tuple:
    made = [name for name in b.tensors(lambda x: x.dim() > 0) if name.startswith("v")]
    if not made:
        raise Skip
    x = b.choose.choice(made)
    return f"{x}.{b.one('unsqueeze_(0)', 'squeeze_()', 't_()', 'transpose_(0, -1)', 'squeeze_(0)')}", EXACT, x


OPERATORS = {
    unary: 6, unary_keeping: 4, functional: 3, special: 1, binary: 7, binary_keeping: 4, symbol: 8, negated: 1, ternary: 2,
    clamp: 2, where: 4, cast: 4, factory: 3, draw: 1,
}  # fmt: skip
WRITES = {unary_write: 3, binary_write: 5, element_write: 4, metadata_write: 1}

"""Shape rules of elementwise operators: broadcast, promote, and lay the result out as TensorIterator does."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

from lampwork import _torch
from lampwork.fakes.shapes import (
    COMPLEX_OF,
    RULES,
    Spec,
    Unknown,
    as_float,
    broadcast,
    contiguous,
    is_contiguous,
    iterated,
    iterated_of,
    materialize,
    operator_name,
    preserved,
    promoted,
    real_dtype,
    rule,
    same_sizes,
    surely_same,
    wrap_dim,
)
from lampwork.fakes.strides import Scalar, at_least_for_all, equal_for_all, known_same

Number = (bool, int, float, complex)


def elementwise(operands: Sequence[object], dtype: torch.dtype, common: torch.dtype | None = None) -> Spec:
    """The result of an elementwise operator on `operands` (tensors and numbers).

    A number takes part in the layout as a 0-d tensor does (`x + 1` of a transposed `x`); operators whose kernels take
    it as a parameter (`clamp`) pass tensors only. `common`: the type operands are cast to, where it is not `dtype`.
    """
    tensors = [each for each in operands if isinstance(each, torch.Tensor)]
    first = tensors[0]
    shape: tuple[int, ...] = first.size()
    if len(tensors) > 1:
        plain = _plain_layout(tensors)
        if plain is not None:
            return Spec(*plain, dtype)
    all_same = known_same([tensor.size() for tensor in tensors])
    if all_same is None:  # a size is 1 beside one that may be
        shape = broadcast([tensor.size() for tensor in tensors])
        layouts = [iterated(tensors, shape, same, common or dtype) for same in (False, True)]
        if all(map(equal_for_all, *layouts)):
            return Spec(shape, layouts[0], dtype)
        shape = first.size()
        all_same = all(surely_same(other.size(), shape) for other in tensors[1:])
    if all_same:
        shape = tuple(shape)
        if shape and len(tensors) != len(operands):
            all_same = False
        strides = first.stride()
        if len(tensors) == 1 and is_contiguous(shape, strides):
            some = all(at_least_for_all(size, 1) for size in shape)  # layouts of nothing are others
            if some and all(map(equal_for_all, strides, contiguous(shape))):
                return Spec(shape, strides, dtype)
    else:
        shape = broadcast([tensor.size() for tensor in tensors])
    return Spec(shape, iterated(tensors, shape, all_same, common or dtype), dtype)


def _plain_layout(tensors: Sequence[torch.Tensor]) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
    """Sizes and strides of the result where they are plain to see: beside tensors of no dimensions, those that are
    contiguous and of one shape with no size of 1. None for everything else."""
    shape: tuple[int, ...] = ()
    strides: tuple[int, ...] = ()
    for tensor in tensors:
        size = tuple(tensor.size())
        if not size:
            continue
        if not shape:
            if not all(type(each) is int and each > 1 for each in size):
                return None
            shape, strides = size, tensor.stride()
            if not is_contiguous(shape, strides):
                return None
        elif len(size) != len(shape) or not all(type(each) is int for each in size):
            return None
        elif size != shape or tensor.stride() != strides:
            return None
    return (shape, strides) if shape else None


def _each(names: str, make: Callable[[str], Callable]) -> None:
    for name in names.split():
        rule(name)(make(name))


# One tensor ---------------------------------------------------------------------------------------


def same_dtype(x: torch.Tensor, *args: object, **kwargs: object) -> Spec:
    return elementwise((x,), x.dtype)


def float_dtype(x: torch.Tensor, *args: object, **kwargs: object) -> Spec:
    return elementwise((x,), as_float(x.dtype))


def bool_dtype(x: torch.Tensor, *args: object, **kwargs: object) -> Spec:
    return elementwise((x,), torch.bool, x.dtype)


def layout_kept(x: torch.Tensor, *args: object, **kwargs: object) -> Spec:
    return Spec(tuple(x.size()), preserved(x), x.dtype)


def _without(kinds: str, function: Callable) -> Callable:
    """The rule, except for dtypes where eager raises an error or does something else.

    `kinds`: those dtypes, "b" bool, "i" int, "c" complex.
    """

    def checked(x: torch.Tensor, *args: object, **kwargs: object) -> Spec:
        if _kind(x.dtype) in kinds:
            raise Unknown
        return function(x, *args, **kwargs)

    return checked


def _only(kinds: str, function: Callable) -> Callable:
    """The rule, where eager has no kernel for other kinds of dtypes."""

    def checked(x: torch.Tensor, *args: object, **kwargs: object) -> Spec:
        _refuse_but(kinds, x.dtype)
        return function(x, *args, **kwargs)

    return checked


def _kind(dtype: torch.dtype) -> str:
    if dtype.is_complex:
        return "c"
    if dtype.is_floating_point:
        return "f"
    return "b" if dtype is torch.bool else "i"


def _refuse_but(kinds: str, dtype: torch.dtype) -> None:
    """Raises eager's error for a dtype of another kind, which none of its kernels takes."""
    if _kind(dtype) not in kinds:
        raise NotImplementedError(f"not implemented for '{_torch.scalar_type_name(dtype)}'")


_each(
    "acos acosh asin asinh atan atanh cos cosh erf erfc erfinv exp exp2 expm1 i0 lgamma digamma log log10 log1p log2 "
    "logit reciprocal rsqrt sigmoid sin sinc sinh sqrt tan tanh special_ndtri special_entr special_erfcx special_i0e "
    "special_i1 special_i1e special_log_ndtr special_bessel_j0 special_bessel_j1 special_bessel_y0 special_bessel_y1 "
    "special_airy_ai special_spherical_bessel_j0 special_modified_bessel_i0 special_modified_bessel_i1 "
    "special_modified_bessel_k0 special_modified_bessel_k1 special_scaled_modified_bessel_k0 "
    "special_scaled_modified_bessel_k1",
    lambda name: float_dtype,
)
# Eager writes the product to a tensor that it has made like the operand.
_each("deg2rad rad2deg", lambda name: lambda x: Spec(tuple(x.size()), preserved(x), as_float(x.dtype)))


@rule("angle")
def angle(x: torch.Tensor) -> Spec:
    if not x.dtype.is_complex:
        return float_dtype(x)
    shape = tuple(x.size())  # written to a tensor that is made before there are sizes
    return Spec(shape, contiguous(shape), x.dtype.to_real())


@rule("polygamma")
def polygamma(n: int, x: torch.Tensor) -> Spec:
    return _without("c", float_dtype)(x)


_each("ceil floor round trunc round.decimals", lambda name: _without("bc", same_dtype))
_each("neg", lambda name: _without("b", same_dtype))
_each("sign relu", lambda name: _without("c", same_dtype))
_each("sgn", lambda name: same_dtype)
_each("frac", lambda name: _only("f", same_dtype))
_each("bitwise_not", lambda name: _only("bi", same_dtype))
_each(
    "gelu silu mish hardswish hardsigmoid elu leaky_relu celu softplus softshrink hardshrink",
    lambda name: _without("bic", same_dtype),
)
_each("threshold", lambda name: _without("bc", same_dtype))
_plain = {name: RULES[operator_name(name)] for name in ("gelu", "softshrink")}


@rule("gelu")
def gelu(x: torch.Tensor, *, approximate: str = "none") -> Spec:
    if approximate not in ("none", "tanh"):
        raise RuntimeError("approximate argument must be either none or tanh.")
    return _plain["gelu"](x)


@rule("softshrink")
def softshrink(x: torch.Tensor, lambd: float = 0.5) -> Spec:
    if not 0 <= lambd <= torch.finfo(x.dtype).max:
        raise RuntimeError(f"lambda must be in range, but found {lambd}")
    return _plain["softshrink"](x)


_each("isnan isneginf isposinf logical_not signbit", lambda name: bool_dtype)


@rule("isinf")
def isinf(x: torch.Tensor) -> Spec:
    if _kind(x.dtype) in "fc":
        return bool_dtype(x)
    return Spec(tuple(x.size()), preserved(x), torch.bool)  # eager fills a tensor


_each("nan_to_num", lambda name: layout_kept)


@rule("hardtanh")
def hardtanh(x: torch.Tensor, min_val: Scalar = -1, max_val: Scalar = 1) -> Spec:
    if x.dtype in (torch.bool, torch.uint8) or x.dtype.is_complex:
        raise Unknown
    return layout_kept(x)


@rule("abs")
def absolute(x: torch.Tensor) -> Spec:
    if x.dtype.is_complex:
        return Spec(tuple(x.size()), preserved(x), real_dtype(x.dtype))
    return elementwise((x,), x.dtype)


@rule("log_sigmoid_forward")
def log_sigmoid(x: torch.Tensor) -> tuple[Spec, Spec]:
    """Eager's kernel for the CPU writes contiguous tensors: the result, and what its derivative reads, which is nothing
    on a GPU."""
    if not x.dtype.is_floating_point:
        raise Unknown
    if x.is_cuda:
        return elementwise((x,), x.dtype), Spec((0,), (1,), x.dtype)
    if not x.is_cpu:
        raise Unknown
    spec = Spec(tuple(x.size()), contiguous(x.size()), x.dtype)
    return spec, spec


@rule("frexp.Tensor")
def frexp(x: torch.Tensor) -> tuple[Spec, Spec]:
    """Both are made like the operand."""
    if not x.dtype.is_floating_point:
        raise Unknown
    shape, strides = tuple(x.size()), preserved(x)
    return Spec(shape, strides, x.dtype), Spec(shape, strides, torch.int32)


@rule("isin.Tensor_Tensor", "isin.Tensor_Scalar", "isin.Scalar_Tensor")
def isin(elements: torch.Tensor | Scalar, test_elements: torch.Tensor | Scalar, *, assume_unique: bool = False,
         invert: bool = False) -> Spec:  # fmt: skip
    if not isinstance(elements, torch.Tensor):
        return Spec((), (), torch.bool)
    return Spec(tuple(elements.size()), contiguous(elements.size()), torch.bool)


@rule("fake_quantize_per_tensor_affine_cachemask", "_fake_quantize_per_tensor_affine_cachemask_tensor_qparams",
      "fake_quantize_per_channel_affine_cachemask")  # fmt: skip
def fake_quantize(
    x: torch.Tensor, scale: float | torch.Tensor, zero_point: int | torch.Tensor, *limits: object
) -> tuple[Spec, Spec]:
    """The rounded tensor, and where it was not cut off. Eager looks at scales and zero points when it runs."""
    if x.dtype is not torch.float32:
        raise Unknown
    shape, strides = tuple(x.size()), preserved(x)
    return Spec(shape, strides, x.dtype), Spec(shape, strides, torch.bool)


@rule("eq.Scalar", "ne.Scalar", "lt.Scalar", "le.Scalar", "gt.Scalar", "ge.Scalar")
def compare_number(x: torch.Tensor, other: Scalar) -> Spec:
    return elementwise((x, other), torch.bool)


@rule("eq.Tensor", "ne.Tensor", "lt.Tensor", "le.Tensor", "gt.Tensor", "ge.Tensor", "logical_and", "logical_or",
      "logical_xor")  # fmt: skip
def compare(x: torch.Tensor, other: torch.Tensor) -> Spec:
    return elementwise((x, other), torch.bool, promoted((x, other)))


# Two tensors, or a tensor and a number ------------------------------------------------------------


@rule("add.Tensor")
def add(x: torch.Tensor, y: torch.Tensor, *, alpha: Scalar = 1) -> Spec:
    dtype = promoted((x, y))
    if type(alpha) is not int and not dtype.is_floating_point:
        raise Unknown
    return elementwise((x, y), dtype)


@rule("sub.Tensor")
def subtract(x: torch.Tensor, y: torch.Tensor, *, alpha: Scalar = 1) -> Spec:
    refuse_booleans(x, y)
    return add(x, y, alpha=alpha)


@rule("rsub.Tensor")
def subtract_from(x: torch.Tensor, y: torch.Tensor, *, alpha: Scalar = 1) -> Spec:
    """Eager's kernel is that of `y - x`, whose first operand decides on the layout first."""
    refuse_booleans(x, y)
    return binary_number(y, x, alpha)


@rule("sub.Scalar", "rsub.Scalar")
def subtract_number(x: torch.Tensor, y: Scalar, alpha: Scalar = 1) -> Spec:
    refuse_booleans(x, y)
    return binary_number(x, y, alpha)


def refuse_booleans(*operands: object) -> None:
    """Raises RuntimeError for what cannot be subtracted."""
    if any(type(each) is bool or isinstance(each, torch.Tensor) and each.dtype is torch.bool for each in operands):
        raise RuntimeError("Subtraction, the `-` operator, with a bool tensor is not supported.")


@rule("mul.Tensor", "remainder.Tensor", "remainder.Scalar_Tensor", "fmod.Tensor", "floor_divide", "maximum",
      "minimum", "fmax", "fmin", "pow.Tensor_Tensor", "gcd", "lcm")  # fmt: skip
def binary(x: torch.Tensor | Scalar, y: torch.Tensor) -> Spec:
    return elementwise((x, y), promoted((x, y)))


@rule("bitwise_and.Tensor", "bitwise_or.Tensor", "bitwise_xor.Tensor")
def bitwise(x: torch.Tensor, y: torch.Tensor) -> Spec:
    dtype = promoted((x, y))
    _refuse_but("bi", dtype)
    return elementwise((x, y), dtype)


@rule(*(f"bitwise_{name}.{types}" for name in ("and", "or", "xor") for types in ("Scalar", "Scalar_Tensor")))
def bitwise_number(x: torch.Tensor, y: torch.Tensor) -> Spec:
    _refuse_but("bi", promoted((x, y)))
    return binary_number(x, y)


@rule(*(f"{name}.{types}" for name in ("bitwise_left_shift", "bitwise_right_shift")
        for types in ("Tensor", "Tensor_Scalar", "Scalar_Tensor")),
      "__lshift__.Tensor", "__lshift__.Scalar", "__rshift__.Tensor", "__rshift__.Scalar")  # fmt: skip
def shift(x: torch.Tensor, y: torch.Tensor | Scalar) -> Spec:
    dtype = promoted((x, y))
    _refuse_but("i", dtype)
    return elementwise((x, y), dtype)


@rule("hypot", "nextafter", "igamma", "igammac")
def binary_of_floats(x: torch.Tensor, y: torch.Tensor) -> Spec:
    dtype = promoted((x, y))
    _refuse_but("f", dtype)
    return elementwise((x, y), dtype)


@rule("logaddexp", "logaddexp2")
def sum_of_exponentials(x: torch.Tensor, y: torch.Tensor) -> Spec:
    dtype = promoted((x, y))
    _refuse_but("fc", dtype)
    return elementwise((x, y), dtype)


@rule("complex", "polar")
def complex_of_two(x: torch.Tensor, y: torch.Tensor) -> Spec:
    if x.dtype != y.dtype or real_dtype(COMPLEX_OF.get(x.dtype, x.dtype)) != x.dtype:
        raise Unknown
    return elementwise((x, y), COMPLEX_OF[x.dtype], x.dtype)


@rule("_prelu_kernel")
def prelu(x: torch.Tensor, weight: torch.Tensor) -> Spec:
    if x.dtype != weight.dtype:
        raise Unknown
    return layout_kept(x)


@rule("heaviside")
def heaviside(x: torch.Tensor, values: torch.Tensor) -> Spec:
    if x.dtype != values.dtype or x.dtype.is_complex:
        raise RuntimeError("heaviside is not implemented for tensors of different, or complex, dtypes")
    return elementwise((x, values), x.dtype)


@rule("mul.Scalar", "add.Scalar", "remainder.Scalar", "fmod.Scalar")
def binary_number(x: torch.Tensor, y: torch.Tensor | Scalar, alpha: Scalar = 1) -> Spec:
    dtype = promoted((x, y))
    if dtype is torch.bool:
        raise Unknown
    return elementwise((x, y), dtype)


@rule("pow.Scalar")
def power_of_number(x: Scalar, y: torch.Tensor) -> Spec:
    shape = tuple(y.size())
    return Spec(shape, contiguous(shape), promoted((x, y)))


@rule("pow.Tensor_Scalar")
def power(x: torch.Tensor, exponent: Scalar) -> Spec:
    dtype = promoted((x, exponent))
    if dtype is torch.complex32:
        raise Unknown  # kernels refuse most powers of it, but not the first
    if not dtype.is_floating_point and not isinstance(exponent, complex) and not dtype.is_complex and exponent < 0:
        raise RuntimeError("Integers to negative integer powers are not allowed.")
    return elementwise((x,), dtype)


@rule("div.Tensor", "atan2", "xlogy.Tensor", "xlogy.Scalar_Self", "xlogy.Scalar_Other", "special_xlog1py",
      "special_xlog1py.self_scalar", "special_xlog1py.other_scalar", "copysign.Tensor", "copysign.Scalar",
      "div.Scalar")  # fmt: skip
def divide(x: torch.Tensor | Scalar, y: torch.Tensor | Scalar) -> Spec:
    return elementwise((x, y), as_float(promoted((x, y))))


@rule("ldexp.Tensor")
def ldexp(x: torch.Tensor, y: torch.Tensor) -> Spec:
    """A product with a power of two. Of a float by a whole number the kernel for CPUs writes to a tensor made like `x`,
    which it resizes, and lays out as a product of both, where `y` is larger."""
    dtype = promoted((x, y))
    if dtype.is_complex:
        raise Unknown
    if x.is_cpu and x.dtype.is_floating_point and _kind(y.dtype) == "i":
        shape = tuple(broadcast([x.size(), y.size()]))
        return Spec(shape, preserved(x), dtype) if same_sizes(shape, x.size()) else elementwise((x, y), dtype)
    if x.dtype in (torch.float16, torch.bfloat16, torch.float64):  # the base is a tensor, so that the power is as exact
        power = binary(materialize(Spec((), (), x.dtype), (x,), {}), y)
    else:
        power = power_of_number(2.0, y)
    return binary(x, materialize(power, (x,), {}))


_POLYNOMIALS = (
    "chebyshev_polynomial_t chebyshev_polynomial_u chebyshev_polynomial_v chebyshev_polynomial_w "
    "shifted_chebyshev_polynomial_t shifted_chebyshev_polynomial_u shifted_chebyshev_polynomial_v "
    "shifted_chebyshev_polynomial_w hermite_polynomial_h hermite_polynomial_he laguerre_polynomial_l "
    "legendre_polynomial_p"
)
_each(
    " ".join(f"special_{name}{types}" for name in _POLYNOMIALS.split() for types in ("", ".x_scalar", ".n_scalar"))
    + " special_zeta special_zeta.self_scalar special_zeta.other_scalar",
    lambda name: divide,
)


@rule("div.Tensor_mode", "div.Scalar_mode")
def divide_rounding(x: torch.Tensor, y: torch.Tensor | Scalar, *, rounding_mode: str | None = None) -> Spec:
    dtype = promoted((x, y))
    return elementwise((x, y), as_float(dtype) if rounding_mode is None else dtype)


@rule("where.self")
def where(condition: torch.Tensor, x: torch.Tensor, y: torch.Tensor) -> Spec:
    dtype = promoted((x, y))
    shape = broadcast([condition.size(), x.size(), y.size()])
    same = same_sizes(condition.size(), x.size()) and same_sizes(x.size(), y.size())
    cast = ((condition, torch.bool), (x, dtype), (y, dtype))
    strides = [each.stride() if each.dtype == wanted else preserved(each) for each, wanted in cast]
    return Spec(shape, iterated_of([each.size() for each, _ in cast], strides, shape, same), dtype)


@rule("clamp", "clamp_min", "clamp_max")
def clamp(x: torch.Tensor, *limits: object, **named: object) -> Spec:
    numbers = [each for each in (*limits, *named.values()) if each is not None]
    _refuse_no_limits(numbers)
    dtype = promoted((x, *numbers))
    if dtype.is_complex or dtype is torch.bool:
        raise Unknown
    return elementwise((x,), dtype)


@rule("clamp.Tensor", "clamp_min.Tensor", "clamp_max.Tensor")
def clamp_tensors(x: torch.Tensor, *limits: object, **named: object) -> Spec:
    tensors = [x, *(each for each in (*limits, *named.values()) if each is not None)]
    _refuse_no_limits(tensors[1:])
    return elementwise(tensors, promoted(tensors))


def _refuse_no_limits(limits: list[object]) -> None:
    if not limits:
        raise RuntimeError("torch.clamp: At least one of 'min' or 'max' must not be None")


@rule("addcmul")
def add_product(x: torch.Tensor, a: torch.Tensor, b: torch.Tensor, *, value: Scalar = 1) -> Spec:
    dtype = promoted((x, a, b))
    _refuse_but("fic", dtype)
    if not dtype.is_floating_point and type(value) not in (bool, int):
        raise Unknown
    return elementwise((x, a, b), dtype)


@rule("addcdiv")
def add_quotient(x: torch.Tensor, a: torch.Tensor, b: torch.Tensor, *, value: Scalar = 1) -> Spec:
    dtype = promoted((x, a, b))
    if not dtype.is_floating_point:
        raise Unknown
    return elementwise((x, a, b), dtype)


@rule("lerp.Scalar", "lerp.Tensor")
def lerp(x: torch.Tensor, end: torch.Tensor, weight: Scalar | torch.Tensor) -> Spec:
    tensors = [each for each in (x, end, weight) if isinstance(each, torch.Tensor)]
    _refuse_but("fc", x.dtype)
    if any(each.dtype != x.dtype for each in tensors):
        raise RuntimeError(f"expected dtype {x.dtype} for `end` and `weight`")
    return elementwise(tensors, x.dtype)


@rule("masked_fill.Scalar", "masked_fill.Tensor")
def masked_fill(x: torch.Tensor, mask: torch.Tensor, value: Scalar | torch.Tensor) -> Spec:
    # A contiguous copy of the broadcast `x`, filled in place.
    if isinstance(value, complex) and not x.dtype.is_complex:
        raise RuntimeError("value cannot be converted to a real type without overflow")
    if isinstance(value, torch.Tensor) and value.dim():
        raise RuntimeError(f"masked_fill only supports a 0-dimensional value tensor, but got {value.dim()} dimensions")
    shape = broadcast([x.size(), mask.size()])
    return Spec(shape, contiguous(shape), x.dtype)


@rule("glu")
def glu(x: torch.Tensor, dim: int = -1) -> Spec:
    dim = wrap_dim(dim, x.dim())
    shape = list(x.size())
    if shape[dim] % 2:
        raise Unknown
    shape[dim] //= 2
    strides = list(x.stride())
    if is_contiguous(x.size(), strides):
        return Spec(tuple(shape), contiguous(shape), x.dtype)
    raise Unknown

"""Operators whose generated kernels give eager's bits, by back end: what `numerics="eager"` lets kernels compute.

    >>> from lampwork.backends import backend_of
    >>> single = frozenset({"float32"})
    >>> is_exact(CPU, "aten::mul.Tensor", Call(single, single))
    True
    >>> is_exact(CPU, "aten::exp.default", Call(single, single))    # eager's is the vendor's function
    False

The table says what is known, and everything else is called as eager calls it: a missing row costs speed and never a
bit. An operator is a row if every kernel of eager's for it (vectors, their tails, strided memory) computes the same
function of each element, and that function is one of IEEE-754's, rounded to the operator's type after each operator; or
moves elements. So these are no rows: sums and products of floats (their order), functions that no instruction computes
(`exp`; float32 `sqrt` on a CPU, which MKL rounds otherwise), formulas whose vectors and tails differ, and random
operators.

`tests/numerics/test_exact.py` tries each row on all values of the half types and on many of the others.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from lampwork.ir.dtype import FLOATING, INTEGRAL, NATIVE
from lampwork.ir.record import field, record
from lampwork.ir.size import SizeExpr

Types = frozenset[str]


@record
class Call:
    """A call of an operator: the types of the tensors that it takes and gives, and its arguments. What of these is no
    number is whatever a stage has in its place."""

    operands: Types
    results: Types
    args: Sequence[object] = ()
    kwargs: Mapping[str, object] = field(default_factory=dict)

    @property
    def types(self) -> Types:
        return self.operands | self.results

    def argument(self, place: int, name: str, default: object = None) -> object:
        return self.args[place] if len(self.args) > place else self.kwargs.get(name, default)


#: Whether a row holds for a call.
Condition = Callable[[Call], bool]

HALVES: Types = frozenset({"float16", "bfloat16"})
SINGLE_AND_DOUBLE: Types = frozenset({"float32", "float64"})
BOOL: Types = frozenset({"bool"})
WHOLE: Types = INTEGRAL | BOOL


@record
class Exact:
    """`types`: of operands and results for which the operator is exact. `contracted`: only where eager's kernels round
    the sum of a product once. `condition`: on the arguments."""

    types: Types
    contracted: bool = False
    condition: Condition | None = None


#: By operator, the rows of which one has to hold.
Table = Mapping[str, tuple[Exact, ...]]


def is_exact(table: Table, operator: str, call: Call, contracts: bool = False) -> bool:
    """Whether a kernel of ours computes a call of `operator` ("aten::add.Tensor") with eager's bits. `contracts`:
    whether eager's kernels round the sum of a product once."""
    types = call.types
    return any(
        types <= row.types and (contracts or not row.contracted) and (row.condition is None or row.condition(call))
        for row in table.get(operator, ())
    )


# Conditions ----------------------------------------


def _alike(call: Call) -> bool:
    """Not integers beside half types, sizes that vary among them: eager's conversions of those round twice."""
    if not call.types & HALVES:
        return True
    return not (call.types & INTEGRAL or any(isinstance(each, SizeExpr) for each in call.args))


def _plain_sum(call: Call) -> bool:
    """`a + b` and `a - b`; multiples of `b` are not."""
    alpha = call.argument(2, "alpha", 1)
    return isinstance(alpha, (int, float)) and alpha == 1 and _alike(call)


def _scaled_sum(call: Call) -> bool:
    """`a + alpha * b` of a number that is known."""
    return type(call.argument(2, "alpha", 1)) in (int, float)


def _scaled_alike(call: Call) -> bool:
    return _scaled_sum(call) and _alike(call)


def _divides(call: Call) -> bool:
    """Not by a size that varies: eager multiplies by the inverse of a number, which is known then only."""
    return _alike(call) and not isinstance(call.argument(1, "other"), SizeExpr)


def _by_tanh(call: Call) -> bool:
    return call.argument(1, "approximate", "none") == "tanh"


def _of_one_type(call: Call) -> bool:
    return len(call.types) == 1


def _product_alone(call: Call) -> bool:
    """Of `addcmul` with a value the kernels for GPUs round another product first."""
    value = call.argument(3, "value", 1)
    return _of_one_type(call) and isinstance(value, (int, float)) and value == 1


def _small_power(call: Call) -> bool:
    """Powers that are the number, its square, its inverse or its cube, which kernels of half types round once more."""
    exponent = call.argument(1, "exponent")
    powers = (1, 2, 3, -1) if call.types <= SINGLE_AND_DOUBLE else (1, 2, -1)
    return type(exponent) in (int, float) and exponent in powers


def _numbers_for_limits(call: Call) -> bool:
    limits = call.argument(1, "min"), call.argument(2, "max")
    return all(each is None or type(each) in (int, float) for each in limits)


def _without_decimals(call: Call) -> bool:
    return len(call.args) < 2 and not call.kwargs


def _converts(call: Call) -> bool:
    """Conversions with one result: those of floats to integers have none for numbers that do not fit, and those of
    integers to half types round twice."""
    if call.results <= BOOL or call.operands <= call.results:
        return True
    if call.results <= HALVES:
        return call.operands <= FLOATING | BOOL
    return call.results <= SINGLE_AND_DOUBLE or call.operands <= WHOLE


def _chooses(call: Call) -> bool:
    """By a condition among tensors that are converted as above."""
    return _converts(Call(call.operands - BOOL, call.results))


# Rows ----------------------------------------


def _rows(names: str, types: Types, contracted: bool = False, condition: Condition | None = None) -> Table:
    """A row for each of `names`, in the namespace aten and of the default overload unless they say so."""
    rows = (Exact(types, contracted, condition),)
    found = {}
    for name in names.split():
        name = name if "::" in name else f"aten::{name}"
        found[name if "." in name else f"{name}.default"] = rows
    return found


def _joined(*tables: Table) -> Table:
    found: dict[str, tuple[Exact, ...]] = {}
    for table in tables:
        for name, rows in table.items():
            found[name] = (*found.get(name, ()), *rows)
    return found


#: Elements are moved, chosen or made of a number. On every device, for every type that kernels have.
_MOVES = _joined(
    _rows(
        """
        contiguous lift_fresh_copy stack slice_backward select_backward slice_scatter select_scatter diagonal_scatter
        diagonal_backward as_strided_scatter expand_copy permute_copy select_copy.int slice_copy.Tensor
        split_copy.Tensor split_with_sizes_copy squeeze_copy squeeze_copy.dim squeeze_copy.dims t_copy
        transpose_copy.int unbind_copy.int unsqueeze_copy view_copy alias_copy detach_copy diagonal_copy as_strided_copy
        narrow_copy unfold_copy repeat flip roll rot90 tril triu embedding index_select gather index.Tensor take
        empty.memory_format empty_like empty_permuted empty_strided new_empty new_empty_strided zeros zeros_like
        new_zeros ones ones_like new_ones full full_like new_full fill.Scalar zero eye eye.m pixel_shuffle
        pixel_unshuffle channel_shuffle native_channel_shuffle constant_pad_nd positive lampwork::if_given
        lampwork::promised
        """,
        NATIVE,
    ),
    _rows("clone copy _to_copy cat scalar_tensor fill.Tensor", NATIVE, condition=_converts),
    _rows("where.self where.ScalarOther where.ScalarSelf where.Scalar masked_fill.Scalar masked_fill.Tensor", NATIVE,
          condition=_chooses),
    _rows("arange arange.start arange.start_step", WHOLE),
)  # fmt: skip

#: What IEEE-754 leaves no choice in, and operators on whole numbers and single bits.
_IEEE = _joined(
    _rows(
        "eq.Tensor eq.Scalar ne.Tensor ne.Scalar lt.Tensor lt.Scalar le.Tensor le.Scalar gt.Tensor gt.Scalar ge.Tensor "
        "ge.Scalar",
        NATIVE, condition=_alike,
    ),
    _rows("logical_not logical_and logical_or logical_xor isnan isinf isfinite isposinf isneginf", NATIVE),
    _rows("bitwise_and.Tensor bitwise_and.Scalar bitwise_or.Tensor bitwise_or.Scalar bitwise_xor.Tensor "
          "bitwise_xor.Scalar bitwise_not any any.dim any.dims all all.dim all.dims", WHOLE),
    _rows("add.Tensor add.Scalar sub.Tensor sub.Scalar rsub.Tensor rsub.Scalar", NATIVE, condition=_plain_sum),
    _rows("mul.Tensor mul.Scalar", NATIVE, condition=_alike),
    _rows("neg abs", NATIVE - BOOL),
    _rows("relu threshold_backward", FLOATING),
    _rows("floor ceil trunc", FLOATING),
    _rows("round", FLOATING, condition=_without_decimals),
)  # fmt: skip

#: Rows that `tests/numerics/test_exact.py` has found to hold on CPUs, with PyTorch 2.13 and AVX2.
CPU: Table = _joined(
    _MOVES,
    _IEEE,
    _rows("signbit", NATIVE),
    _rows("add.Tensor add.Scalar sub.Tensor sub.Scalar", SINGLE_AND_DOUBLE, contracted=True, condition=_scaled_sum),
    _rows("div.Tensor div.Scalar true_divide.Tensor", FLOATING | BOOL, condition=_alike),
    _rows("reciprocal sgn sign minimum maximum copysign.Tensor copysign.Scalar heaviside nan_to_num", FLOATING),
    _rows("clamp clamp_min clamp_max", FLOATING, condition=_numbers_for_limits),
    _rows("hardtanh hardswish hardsigmoid threshold leaky_relu leaky_relu_backward", FLOATING),
    _rows("square deg2rad rad2deg frac", FLOATING),
    _rows("rsqrt", SINGLE_AND_DOUBLE),
    _rows("pow.Tensor_Scalar", FLOATING, condition=_small_power),
    _rows("addcdiv", FLOATING, condition=_of_one_type),
    _rows("addcmul lerp.Scalar lerp.Tensor", FLOATING, contracted=True, condition=_of_one_type),
)  # fmt: skip

#: Rows that `python -m tests.numerics.candidates --device cuda` has found to hold on a GPU, with PyTorch 2.11 on an
#: H100; `tests/gpu/test_exact.py` tries them again, those of one operand on every float32. Left out are the types that
#: its table showed to differ. Functions such as `exp` are CUDA's own (libdevice) on both sides; a sum of a product is
#: rounded once, in the place where nvcc contracts it (`lower/gpu_formulas.py`).
CUDA: Table = _joined(
    _MOVES,
    _IEEE,
    _rows("signbit", NATIVE - {"float16"}),
    _rows("copysign.Tensor", FLOATING - {"float16"}),
    _rows("add.Tensor add.Scalar sub.Tensor sub.Scalar", FLOATING, contracted=True, condition=_scaled_alike),
    _rows("div.Tensor div.Scalar true_divide.Tensor", FLOATING, condition=_divides),
    _rows(
        """
        reciprocal sqrt rsqrt exp exp2 expm1 log log2 log10 log1p sin cos tan sinh cosh tanh sigmoid silu softplus elu
        mish softplus_backward hardtanh_backward hardswish_backward hardsigmoid_backward
        """,
        FLOATING,
    ),
    _rows("sgn sign minimum maximum copysign.Scalar heaviside nan_to_num", FLOATING),
    _rows("clamp clamp_min clamp_max", FLOATING, condition=_numbers_for_limits),
    _rows("hardtanh leaky_relu leaky_relu_backward", FLOATING),
    _rows("hardswish hardsigmoid", FLOATING - {"float64"}),
    _rows("threshold sigmoid_backward", SINGLE_AND_DOUBLE),
    _rows("square deg2rad rad2deg frac", FLOATING),
    _rows("pow.Tensor_Scalar", FLOATING, condition=_small_power),
    _rows("addcdiv lerp.Scalar silu_backward", FLOATING, contracted=True, condition=_of_one_type),
    _rows("addcmul", FLOATING, contracted=True, condition=_product_alone),
    _rows("tanh_backward", SINGLE_AND_DOUBLE, contracted=True),
    _rows("gelu", FLOATING, contracted=True, condition=_by_tanh),
)

"""`Backend`: all that differs by the device that a program runs on. Stages and the runtime ask it, never for a device.

A back end is one instance, under the device's type in `lampwork.backends.BACKENDS`: facts that stages read, and its own
code, by name, so that nothing is loaded before it is needed.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any, Literal

from lampwork.backends.exact import Table
from lampwork.ir.record import field, record


@record
class Numerics:
    """What ATen's kernels on the device do where IEEE-754 and the order of terms leave a choice: ours do the same.

    accumulates_in_double   float32 sums, products and variances, and steps of ranges, are in double precision
    steps_round_once        start + step * position is one rounding
    single_terms_stay       a sum over one element is that element, -0 too; derivatives of norms likewise
    norms_sum_inputs        derivatives of layer and group norms come from sums of gradient * input: NaN, for most
                            elements, where a gradient is infinite
    reserves_deviation      batch norms save the inverse deviation for their derivative, and reserve nothing
    rounds_before_mean      what a mean adds up is rounded to the type that is asked for first
    folds_in_order          of zeros of both signs a maximum gives the first
    keeps_rest_of_means     the rounding error of a mean is kept as a second number, and subtracted from elements, too
    sums_keep_range         sums of a row do not leave the range of its type where their mean does not
    running_means           variances come from a running mean: an infinity makes it NaN from there on
    copies_unresampled      an interpolation to the same size copies, whatever the scale; else without a scale alone
    nests_images            which interpolations of images are nested: all, or large ones, but for many channels that
                            lie innermost
    centers_doubles_once    float64's places between elements that are interpolated are rounded once, as float32's are
    logit_edges             the derivative of logit is infinite at 0 and 1, by the sign of the gradient
    limits_select           a limit is taken where a comparison says so; else by minimum and maximum, which carry NaN
    rounds_half_quotients   quotients of half types are rounded before they are cut off
    roots_of_half           powers 0.5 and -0.5 of float16 are roots
    shrinks_by_product      what softshrink cuts off is a product with 0, which keeps its sign
    scales_products         `addcmul` and `addcdiv` scale a product or quotient; else its first operand
    lerps_subtract          `lerp` past the middle takes a product from the end; else vectors add one (-0 ends at 0)
    elu_curves_at_zero      elu of 0 is computed as that of negative numbers, so a negative `alpha` makes it -0
    rounds_sixths           hardsigmoid and hardswish multiply by a sixth, rounded to float32; else they divide by 6
    checks_targets          targets of binary cross entropy are checked to be between 0 and 1
    layer_norm_vector       float32 rows of whole vectors of so many elements are normalised without a constant term, by
                            which no result is -0; 0: there is one in all rows
    shifts_once             batch norms scale and shift once a channel: 0 stands for a bias of -0
    rows_by_layout          batch norms go by rows where the layout says so; else always
    rounds_numbers          numbers beside tensors of half types are rounded as elements are; else taken as they are
    """

    accumulates_in_double: bool
    steps_round_once: bool
    single_terms_stay: bool
    norms_sum_inputs: bool
    reserves_deviation: bool
    rounds_before_mean: bool
    folds_in_order: bool
    keeps_rest_of_means: bool
    sums_keep_range: bool
    running_means: bool
    copies_unresampled: bool
    nests_images: Literal["large", "all"]
    centers_doubles_once: bool
    logit_edges: bool
    limits_select: bool
    rounds_half_quotients: bool
    roots_of_half: bool
    shrinks_by_product: bool
    scales_products: bool
    lerps_subtract: bool
    elu_curves_at_zero: bool
    rounds_sixths: bool
    checks_targets: bool
    layer_norm_vector: int
    shifts_once: bool
    rows_by_layout: bool
    rounds_numbers: bool


@record
class Kernels:
    """What kernels can do, and what pays.

    independent_threads   threads of a kernel hand nothing on but results of reductions, in no order: values that are
                          needed again are computed again, and loops are tiles. Else loops nest and share memory
    asserts               a kernel checks conditions where it uses a value; else the host looks at a flag
    draws                 random numbers are drawn in kernels; else by ATen
    stores_in_order       stores to computed places happen in the order of the program
    converts_float8       float8 types are converted
    scattered_loads       loads from scattered places are as good as others; else ATen pools where channels are not
                          innermost, and where they are its kernels for them are faster
    merges_products       products of one factor share a kernel
    keeps_layout          what is read along rows of memory is not stored across them
    tables                kernels over many tensors find their rows in a table in the device's memory
    """

    independent_threads: bool
    asserts: bool
    draws: bool
    stores_in_order: bool
    converts_float8: bool
    scattered_loads: bool
    merges_products: bool
    keeps_layout: bool
    tables: bool


@record
class Costs:
    """What decides which values are kept for a backward pass, and which are computed again.

    flops_per_byte  arithmetic that takes as long as moving a byte: float32 products on CPUs with AVX-512 (some 100
                    GFLOP/s to 15 GB/s a core), half precision on GPUs
    cheapness       how many times cheaper arithmetic on an element is than the tables of `graph/recompute.py` say: an
                    estimate. A GPU has some 20 operations for each byte that its memory moves, a CPU with AVX-512 four
    fuses_sums      reductions fuse with what reads them
    """

    flops_per_byte: int
    cheapness: int
    fuses_sums: bool


Named = str | Callable[..., Any]


@record
class Backend:
    """The back end for tensors on devices of the type `device`.

    `is_host`: the device is the CPU, whose memory the host program reads and writes. `streams`: launches are queued in
    streams, host code gives them one, and memory that passes is made when steps need it. `library`: the vendor's
    operators that graph passes choose. `own_memory`: large buffers are allocated one by one; else all are planned.
    `exact`: the operators whose kernels give eager's bits (`exact.py`).

    Its code, as "module:name" or functions:
    target    (device) -> the `Target` that programs are compiled for. Raises `CompileError` where there is none
    generate  (program, settings, target, tuner) -> `NativeCode`
    tuner     (target, device index) -> what measures kernels for max-autotune; None: nothing is tuned
    launch    a module, or an object with its functions (`runtime/launch/cpu.py` has them all, and does least): `load`
              machine code, give `leases` of memory for calls, `host_names` that host text needs, run a host function
              `on_device`, `settle` memory that any stream reads, the device's `generator_states`, `graphs` of launches
    """

    device: str
    is_host: bool
    streams: bool
    library: Literal["oneDNN", "cuDNN"]
    own_memory: bool
    numerics: Numerics
    kernels: Kernels
    costs: Costs
    target: Named
    generate: Named
    launch: object
    tuner: Named | None = None
    exact: Table = field(default_factory=dict)

    def target_of(self, device: str) -> Any:
        return named(self.target)(device)

    @property
    def launching(self) -> Any:
        """The module that `launch` names."""
        return importlib.import_module(self.launch) if isinstance(self.launch, str) else self.launch


def named(what: Named) -> Callable[..., Any]:
    """The function that "module:name" stands for."""
    if not isinstance(what, str):
        return what
    module, _, name = what.partition(":")
    return getattr(importlib.import_module(module), name)

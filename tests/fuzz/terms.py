"""Which terms operators add up or multiply, and what becomes of results where these leave the range of their type.

No order of additions is promised, nor a scale of the terms. B is the greatest number:

    sum([B, B, -B])                     infinite from left to right, B from right to left
    [B, B] @ [1, -1] + [B, B] @ [-1, 1] NaN, 0 or infinite
    avg_pool2d([[B, 0], [B, -inf]])     -inf, or NaN where B + B is added up first
    prod([2 ** 100, 2 ** -100, ...])    infinite, zero or a number, by which factors meet first
    layer_norm([1e30] * 12)             NaN where a row is shorter than a vector, else 0
    std([3e38, -3e38, 0])               NaN by a running mean, inf by a sum
    log(mean([B, 1, 2, -B]))            the logarithm of a sum of some of the small terms, or of nothing
    batch_norm([1, 3], weight=B)        infinite where 2 * B is computed first
    fmod(1e27, 1.5)                     any number up to 1.5 and none: a unit of 1e27 is larger
    [1e-39] + [0] on a GPU              0 where it is added in memory, to single numbers
    [0, 0] @ [-1, -1] + -0              -0 from the bias on, 0 where the products are added to 0 first
    amax([0, -0]) on a GPU              the zero that some thread meets first

A rule takes a call of an operator of ATen and tells where its results are open, and what may be there (`Open`). Sums are added up by the operator itself, in double precision: of the positive terms alone, and of the
negative ones. Numbers of double precision are made smaller first. Where sums of both stay in range, or where all orders
give the same infinity, nothing is open. Terms that are infinite or NaN are so in every order: they open nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

aten = torch.ops.aten

#: What float64 is multiplied by where terms are added up.
_SMALLER = 2.0**-64
#: The same where they are factors, of two.
_ROOT = 2.0**-520


@dataclass(frozen=True)
class Open:
    """Where the elements of a result are open: they may be inf (`rises`), -inf (`falls`), NaN (`is_lost`) or zero
    (`vanishes`), and, where any of these or `differs`, what they are in `others`; or a zero of either sign
    (`any_zero`). All are broadcast to the result."""

    others: tuple[torch.Tensor, ...] = ()
    rises: Any = False
    falls: Any = False
    is_lost: Any = False
    vanishes: Any = False
    differs: Any = False
    any_zero: Any = False


class Call:
    """One call of an operator: its arguments by name, and the operator on other ones. `noise`: what is random of the
    run."""

    def __init__(self, operator: Any, arguments: dict[str, Any], dtype: torch.dtype, noise: Any) -> None:
        self.operator, self.arguments, self.dtype, self.noise = operator, arguments, dtype, noise
        self.sum_dtype = torch.float32 if dtype.itemsize < 4 else dtype
        #: A little less than the greatest number: terms are disturbed.
        self.limit = torch.finfo(self.sum_dtype).max * (1 - 2.0**-18)
        self.eps = torch.finfo(self.sum_dtype).eps

    def __getitem__(self, name: str) -> Any:
        return self.arguments.get(name)

    def scale(self, of_double: float) -> float:
        return of_double if self.sum_dtype == torch.float64 else 1.0

    def wide(self, name: str) -> torch.Tensor:
        return self.arguments[name].detach().double()

    def on(self, operator: Any = None, /, **others: Any) -> Any:
        """What the operator gives in double precision, with other arguments in the place of some."""
        arguments = {name: _widened(each) for name, each in {**self.arguments, **others}.items()}
        return (operator or self.operator)(**arguments)


def _widened(value: Any) -> Any:
    if isinstance(value, torch.Tensor) and value.is_floating_point():
        return value.detach().double()
    if isinstance(value, torch.dtype) and value.is_floating_point:
        return torch.float64
    return [_widened(each) for each in value] if isinstance(value, (list, tuple)) else value


#: What is open of a call: of its results by number, of arguments that it writes to by name.
Found = dict[int | str, Open]
Rule = Callable[[Call], Found]


def _finite(x: torch.Tensor) -> torch.Tensor:
    return x.nan_to_num(0.0, 0.0, 0.0)


def _first(result: Any) -> torch.Tensor:
    return result[0] if isinstance(result, (tuple, list)) else result


def _sum_is_open(
    above: Any, below: Any, infinite: tuple[torch.Tensor, torch.Tensor], limit: float, definition: Any, unit: Any
) -> Open:
    """Of the sum of the positive terms, and of the magnitudes of the negative ones; where terms are inf, and -inf. What
    of such terms cancels leaves their rounding: `unit` times the sum of their magnitudes, of the result."""
    rises, falls = above > limit, below > limit
    lost = (above + below) * unit
    risen, fallen = infinite
    never = risen | fallen
    is_lost = (rises | risen) & (falls | fallen) & (rises | falls)
    return Open((definition, definition + lost, definition - lost), rises & ~never, falls & ~never, is_lost)


def _signs(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Positive elements, and magnitudes of negative ones; zero elsewhere."""
    return x.clamp(min=0), (-x).clamp(min=0)


def _infinities(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """1 where elements are inf, and where they are -inf."""
    return (x == torch.inf).double(), (x == -torch.inf).double()


def _remains(
    call: Call, terms: dict[str, torch.Tensor], total: Callable[[dict[str, torch.Tensor]], torch.Tensor],
    reach: Callable[[dict[str, torch.Tensor]], torch.Tensor],
) -> tuple[torch.Tensor, torch.Tensor] | None:  # fmt: skip
    """What sums are whose large terms cancel, with some of the small ones, which vanish beside the large: each in another
    order. And where that is so. `total` adds up, `reach` the magnitudes."""
    largest = max((float(each.abs().max()) for each in terms.values() if each.numel()), default=0.0)
    sizes = {name: each.abs() for name, each in terms.items()}
    edge = largest * call.eps
    if not any(bool(((each > 0) & (each < edge)).any()) for each in sizes.values()):
        return None
    large = {name: torch.where(sizes[name] < edge, 0.0, each) for name, each in terms.items()}
    kept = {name: (each < edge) & (call.noise.choice(2, each) > 0) for name, each in sizes.items()}
    small = {name: torch.where(kept[name], each, 0.0) for name, each in terms.items()}
    total_of_large, size = total(large), reach(large)
    return total_of_large + total(small), (total_of_large.abs() <= 8 * call.eps * size) & (size > 0)


def _with_remains(opened: Open, remains: Any, whole: torch.Tensor, never: Any, scale: Any) -> Open:
    """`opened`, and what `_remains` found, but for sums with terms that are not finite."""
    if remains is None:
        return opened
    value, is_open = remains
    is_open = is_open & ~never
    return replace(
        opened, others=(*opened.others, torch.where(is_open, value / scale, whole)), differs=opened.differs | is_open
    )


# Sums ----------------------------------------


def _sum_of(*names: str, total: Callable = lambda call, given: _first(call.on(**given)),
            divisor: Callable = lambda call, sums: 1) -> Rule:  # fmt: skip
    """A rule for results that are sums of elements of these arguments, divided by something."""

    def rule(call: Call) -> Found:
        scale = call.scale(_SMALLER)
        terms = {name: call.wide(name) * scale for name in names if isinstance(call[name], torch.Tensor)}
        finite = {name: _finite(each) for name, each in terms.items()}
        limit = call.limit * scale
        magnitudes = lambda given: total(call, {name: each.abs() for name, each in given.items()})
        remains = _remains(call, finite, lambda given: total(call, given), magnitudes)
        if remains is None and sum(float(each.abs().sum()) for each in finite.values()) <= limit:
            return {}
        both = lambda parts, of: (
            total(call, {name: parts(each)[place] for name, each in of.items()}) for place in (0, 1)
        )
        above, below = both(_signs, finite)
        risen, fallen = both(_infinities, terms)
        count = divisor(call, above)
        sums = total(call, terms)
        whole = (sums / count / scale).to(call.sum_dtype)
        opened = _sum_is_open(above, below, (risen > 0, fallen > 0), limit, whole, call.eps / scale / abs(count))
        never = (risen > 0) | (fallen > 0) | sums.isnan()
        return {0: _with_remains(opened, remains, whole, never, count * scale)}

    return rule


def _mean(call: Call) -> Found:
    total = lambda call, given: call.on(aten.sum, **given)
    return _sum_of("self", total=total, divisor=lambda call, sums: call["self"].numel() // max(sums.numel(), 1))(call)


def _pool(call: Call) -> Found:
    def divisor(call: Call, sums: torch.Tensor) -> Any:
        ones = torch.ones_like(call["self"], dtype=torch.float64)
        return call.on(self=ones, divisor_override=1) / call.on(self=ones)

    return _sum_of("self", total=lambda call, given: call.on(**given, divisor_override=1), divisor=divisor)(call)


def _adaptive_pool(call: Call) -> Found:
    """Windows overlap, and differ in size."""
    x, sizes = call["self"], torch.ones((), dtype=torch.float64, device=call["self"].device)
    for here, there in zip(x.shape[-len(call["output_size"]) :], call["output_size"]):
        size = [-(-(place + 1) * here // there) - place * here // there for place in range(there)]
        sizes = sizes[..., None] * torch.tensor(size, dtype=torch.float64, device=x.device)
    return _sum_of("self", total=lambda call, given: call.on(**given) * sizes, divisor=lambda call, sums: sizes)(call)


def _interpolated(call: Call) -> Found:
    """Sums with weights of both signs, which the operator tells of images with a single one."""
    x = call.wide("self") * (scale := call.scale(_SMALLER))
    finite, limit = _finite(x), call.limit * scale
    spatial = x.shape[2:]
    elements = math.prod(spatial)
    if float(finite.abs().sum()) * 8 <= limit or elements > 1024:
        return {}
    basis = torch.eye(elements, dtype=torch.float64, device=x.device).view(elements, 1, *spatial)
    weights = call.on(self=basis)
    shape = (*x.shape[:2], *weights.shape[2:])
    ups, downs = _signs(weights.flatten(1))
    both = lambda parts: (parts[0] @ ups + parts[1] @ downs, parts[0] @ downs + parts[1] @ ups)
    above, below = (each.view(shape) for each in both(_signs(finite.flatten(2))))
    risen, fallen = ((each > 0).view(shape) for each in both(_infinities(x.flatten(2))))
    return {0: _sum_is_open(above, below, (risen, fallen), limit, call.on(self=x) / scale, call.eps / scale)}


def _where_added(call: Call) -> Found:
    """`index_put`, `scatter_reduce`: sums if they are told to add."""
    if call["accumulate"]:
        return _sum_of("self", "values")(call)
    return _sum_of("self", "src")(call) if call["reduce"] in ("sum", "add") else {}


def _loses_small_numbers(x: torch.Tensor) -> bool:
    """Whether what is added to a number in memory leaves none below the smallest normal one: so do GPUs add float32."""
    return x.is_cuda and x.dtype == torch.float32


def _added_in_memory(rule: Rule, *names: str) -> Rule:
    """As `rule`, for operators that may add elements of these arguments to single numbers in memory."""

    def cut(x: torch.Tensor) -> torch.Tensor:
        is_small = x.abs() < torch.finfo(torch.float32).smallest_normal
        return torch.where(is_small, torch.zeros_like(x).copysign(x), x)

    def in_memory(call: Call) -> Found:
        given = dict(call.arguments)
        found = rule(call)
        call.arguments = given
        if not _loses_small_numbers(call[names[0]]) or call["accumulate"] is False:
            return found
        plain, other = call.on(), cut(call.on(**{name: cut(call.wide(name)) for name in names}))
        opened = found.get(0, Open((plain,)))
        differs = opened.differs | ((plain != other) & (plain.abs() < 1e-30))
        return {**found, 0: replace(opened, others=(*opened.others, other), differs=differs)}

    return in_memory


def _index_add(call: Call) -> Found:
    call.arguments["source"] = call.wide("source") * call.arguments.pop("alpha", 1)
    return _sum_of("self", "source")(call)


def _loss(call: Call) -> Found:
    """Losses that are added up."""
    if not call["reduction"]:
        return {}
    terms = _first(call.on(reduction=0))
    scaled = _finite(terms) * _SMALLER
    limit = call.limit * _SMALLER
    if float(scaled.abs().sum()) <= limit:
        return {}
    found = _first(call.on())
    total = _first(call.on(reduction=2))
    found = torch.where(total.to(call.sum_dtype).isfinite(), found, total)
    above, below = (each.sum() for each in _signs(scaled))
    risen, fallen = (each.bool().any() for each in _infinities(terms))
    unit = call.eps / _SMALLER * float(abs(found / total)) if bool(total.isfinite()) and bool(total) else 0.0
    return {0: _sum_is_open(above, below, (risen, fallen), limit, found, unit)}


# Sums of products ----------------------------------------


def _products(
    x_name: str, y_name: str, product: Callable[..., torch.Tensor], added: str = "", shape: Any = None
) -> Rule:
    """A rule for sums of products of elements of two arguments, and of elements of a third one."""

    def rule(call: Call) -> Found:
        scale = call.scale(_ROOT)
        limit = call.limit * scale * scale
        alpha, beta = (1 if call[name] is None else float(call[name]) for name in ("alpha", "beta"))
        x, y = (call.wide(name) * scale for name in (x_name, y_name))
        other = call.wide(added) * (beta * scale * scale) if added and call[added] is not None and beta else None
        small = 0.0 if other is None else float(_finite(other).abs().sum())
        a, b = _finite(x), _finite(y)
        of = lambda x, y: product(call, x, y)
        if other is not None and shape is not None:
            other = other.view(shape(call))
        any_zero = _are_minus_zeros(of, x, y if alpha >= 0 else -y, other)
        terms = {"x": a} if other is None else {"x": a, "other": _finite(other)}
        plus = lambda given: given.get("other", 0.0)
        remains = _remains(
            call, terms, lambda given: of(given["x"], b) * alpha + plus(given),
            lambda given: of(given["x"].abs(), b.abs()) * abs(alpha) + abs(plus(given)),
        )  # fmt: skip
        is_small = max(1.0, abs(alpha)) * float(a.abs().sum()) * float(b.abs().sum()) + small <= limit
        if is_small and remains is None:
            return {} if any_zero is None else {0: Open(any_zero=any_zero)}
        both = lambda x, y: (of(x[0], y[0]) + of(x[1], y[1]), of(x[0], y[1]) + of(x[1], y[0]))
        above, below = both(_signs(a), _signs(b))
        with_x = both(_infinities(x), _signs(b.sign()))
        with_y = both(_signs(x.sign().nan_to_num()), _infinities(y))
        risen, fallen = (one + other > 0 for one, other in zip(with_x, with_y))
        whole = of(x, y)
        if alpha < 0:
            above, below, risen, fallen = below, above, fallen, risen
        larger = max(1.0, abs(alpha))
        above, below, whole = above * larger, below * larger, whole * alpha
        if other is not None:
            ups, downs = _signs(_finite(other))
            above, below, whole = above + ups, below + downs, whole + other
            risen, fallen = risen | (other == torch.inf), fallen | (other == -torch.inf)
        definition = whole / scale / scale
        opened = _sum_is_open(above, below, (risen, fallen), limit, definition, call.eps / scale / scale)
        opened = _with_remains(opened, remains, definition, risen | fallen | whole.isnan(), scale * scale)
        return {0: opened if any_zero is None else replace(opened, any_zero=any_zero)}

    return rule


def _are_minus_zeros(
    of: Callable[..., torch.Tensor], x: torch.Tensor, y: torch.Tensor, other: torch.Tensor | None
) -> torch.Tensor | None:
    """Where all products that are added up are -0, or there are none, and the third term is -0: -0 if they are added to
    each other, and 0 if they are added to a zero, with which libraries begin or not."""
    no_zeros = not bool((x == 0).any()) and not bool((y == 0).any())
    if no_zeros if other is None else not bool(((other == 0) & other.signbit()).any()):
        return None
    count = lambda one, another: of(one.double(), another.double())
    minus = count(x.signbit(), ~y.signbit()) + count(~x.signbit(), y.signbit())
    others = count(x < 0, y > 0) + count(x > 0, y < 0)
    every = count(torch.ones_like(x), torch.ones_like(y))
    found = minus - others == every
    return found & (every > 0) if other is None else found & (other == 0) & other.signbit()


def _summed(product: Any) -> Callable:
    return lambda call, x, y: product(x, y)


def _convolved(call: Call, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return call.on(input=x, weight=y, bias=None)


def _elementwise(terms: Callable[[Call], Sequence[torch.Tensor]]) -> Rule:
    """A rule for sums of few terms, which are given in double precision, elementwise: each as large as its factors are
    on the way. Products of float64 are left."""

    def rule(call: Call) -> Found:
        if call.sum_dtype == torch.float64:
            return {}
        given = terms(call)
        device = next((each.device for each in given if each.device.type != "cpu"), torch.device("cpu"))
        found = torch.stack(torch.broadcast_tensors(*(each.to(device) for each in given)))
        if not bool((_finite(found).abs().sum(0) > call.limit).any()):
            return {}
        above, below = (each.sum(0) for each in _signs(_finite(found)))
        risen, fallen = (each.sum(0) > 0 for each in _infinities(found))
        return {0: _sum_is_open(above, below, (risen, fallen), call.limit, call.on(), call.eps)}

    return rule


def _number(call: Call, name: str) -> Any:
    value = call[name]
    return value.detach().double() if isinstance(value, torch.Tensor) else torch.tensor(1.0 if value is None else value)


def _at_most(whole: torch.Tensor, *parts: torch.Tensor) -> torch.Tensor:
    """`whole`, as large as the largest of the parts that it is made by."""
    largest = whole.abs()
    for each in parts:
        largest = torch.fmax(largest, each.abs())
    return torch.where(whole.isfinite(), largest.copysign(whole), whole)


def _times_alpha(call: Call) -> Sequence[torch.Tensor]:
    sign = -1 if call.operator is aten.sub else 1
    return _number(call, "self"), sign * _number(call, "alpha") * _number(call, "other")


def _addcmul(call: Call) -> Sequence[torch.Tensor]:
    x, y, value = call.wide("tensor1"), call.wide("tensor2"), _number(call, "value")
    return call.wide("self"), _at_most(value * x * y, value * x, x * y)


def _addcdiv(call: Call) -> Sequence[torch.Tensor]:
    x, y, value = call.wide("tensor1"), call.wide("tensor2"), _number(call, "value")
    return call.wide("self"), _at_most(value * x / y, value * x, x / y)


def _lerp(call: Call) -> Sequence[torch.Tensor]:
    """From either end: start + weight * (end - start), end - (1 - weight) * (end - start)."""
    start, end, weight = call.wide("self"), call.wide("end"), _number(call, "weight")
    reach = end - start
    return start, end, _at_most(weight * reach, reach), -_at_most((1 - weight) * reach, reach)


# Products ----------------------------------------


def _product(call: Call) -> Found:
    """Of all elements, of a dimension, or of all elements so far."""
    x, dim = call.wide("self"), call["dim"]
    over = call.operator is aten.cumprod
    add = (lambda each: each.cumsum(dim)) if over else lambda each: each.sum(dim, bool(call["keepdim"]))
    is_factor = x.isfinite() & (x != 0)
    powers = torch.where(is_factor, x.abs(), 1.0).log2()
    info = torch.finfo(call.sum_dtype)
    grows = add(powers.clamp(min=0)) > math.log2(info.max) - 0.001
    # The least that a partial product may be, in halves of the least number that there is.
    shrunk = add((-powers).clamp(min=0)) + math.log2(info.smallest_normal) + math.log2(info.eps) - 1
    is_rounded = shrunk > math.log2(info.eps) + 4
    shrinks = shrunk > -0.001
    if not bool((grows | is_rounded).any()):
        return {}
    zero, infinite = add((x == 0).double()) > 0, add(x.isinf().double()) > 0
    whole = call.on() if not over or call.sum_dtype != torch.float64 else None
    if not over:
        mantissa, exponent = torch.frexp(x)
        factor, power = call.on(self=mantissa), add(exponent.double()).clamp(-4000, 4000).int()
        whole = torch.ldexp(torch.ldexp(factor, power // 2), power - power // 2)
    odd = add(x.signbit().double()).remainder(2) > 0
    rises, falls = grows & ~odd & ~zero, grows & odd & ~zero
    is_lost = grows & (shrinks | zero) | shrinks & infinite
    error = torch.exp2(shrunk.clamp(max=0.0)) * is_rounded
    others = () if whole is None else (whole, whole * (1 - error), whole * (1 + error))
    return {0: Open(others, rises, falls, is_lost, shrinks & ~infinite, differs=is_rounded & ~zero & ~infinite)}


def _remainder(call: Call) -> Found:
    """Of a number a unit of which, or a few, are larger than the divisor: it may be anything in range, and nothing."""
    x, y = _number(call, "self").double(), _number(call, "other").double()
    eps = torch.finfo(call.dtype).eps
    is_open = (4 * eps * x.abs() >= y.abs()) & x.isfinite() & y.isfinite() & (y != 0)
    if not bool(is_open.any()):
        return {}
    zero = torch.zeros_like(is_open, dtype=torch.float64).copysign(x)
    most = y.abs() * (1 - eps)
    return {0: Open((zero, most.copysign(x if call.operator is aten.fmod else y)), differs=is_open)}


# Squares and norms ----------------------------------------


def _sides(x: torch.Tensor, limit: float, over: Callable[[torch.Tensor, str], torch.Tensor]) -> tuple[Any, ...]:
    """Where the mean of elements may be inf, and -inf: as a sum, or as a running mean, whose steps are as far as two
    elements are from each other; and where a deviation from it may be infinite. `over` adds up, and takes extremes."""
    above, below = (over(each, "sum") > limit for each in _signs(x))
    crosses = over(x, "amax") - over(x, "amin") > limit
    return above | crosses, below | crosses, crosses


def _spread(call: Call) -> Found:
    """`var`, `std`, and the mean beside them."""
    scale = call.scale(_ROOT)
    x = call.wide("self") * scale
    if not x.numel():
        return {}
    dims = call["dim"] or list(range(x.dim()))
    over = lambda each, how: getattr(each, how)(dims, bool(call["keepdim"]))
    rises, falls, crosses = _sides(_finite(x), call.limit * scale, over)
    reach = over(_finite(x), "amax") - over(_finite(x), "amin")
    is_open = (reach * reach * (x.numel() // reach.numel()) > call.limit * scale * scale) | rises | falls
    if not bool(is_open.any()):
        return {}
    found = call.on(self=x)
    first, *mean = found if isinstance(found, tuple) else (found,)
    for _ in range(1 if "std" in call.operator.__name__ else 2):
        first = first / scale
    is_lost = crosses | rises & falls
    rounding = over(_finite(x).abs(), "sum") * (call.eps / scale * reach.numel() / x.numel())
    return dict(enumerate([Open((first,), is_open, False, is_lost),
                           *(Open((each / scale, each / scale + rounding, each / scale - rounding), rises, falls, is_lost)
                             for each in mean)]))  # fmt: skip


def _weighted(call: Call, x: torch.Tensor, over: Callable[[torch.Tensor, str], torch.Tensor], name: str) -> Found:
    """Where the weight is multiplied by a deviation from the mean, or by the inverse of the standard one, and that leaves
    the range, or the terms do that are subtracted then; the product of all three does not."""
    if call["weight"] is None:
        return {}
    by_channel = "layer" not in call.operator.__name__
    shaped = lambda value: value.view(-1, *[1] * (x.dim() - 2)) if by_channel else value
    weight = shaped(call.wide("weight"))
    count = over(torch.ones_like(x), "sum")
    mean = over(x, "sum") / count
    away = x - mean
    eps = call["epsilon"] if call["eps"] is None else call["eps"]
    inverse = (over(away.square(), "sum") / count + eps).rsqrt()
    scaled = weight.abs() * inverse
    is_lost = torch.maximum(scaled, scaled * torch.maximum(x.abs(), mean.abs())) > call.limit
    whole = weight * (away * inverse)
    whole = whole if call["bias"] is None else whole + shaped(call.wide("bias"))
    is_open = (is_lost | ((weight * away).abs() > call.limit)) & (whole.abs() <= torch.finfo(call.sum_dtype).max)
    if not bool(is_open.any()):
        return {}
    above = weight * away > 0
    return {0: Open((whole,), is_open & above, is_open & ~above, is_open & is_lost, differs=is_open)}


def _normalised(rows: Callable[[Call, torch.Tensor, str], torch.Tensor], by_sums: bool, name: str = "input") -> Rule:
    """A rule for rows that are normalised by their mean and variance; `rows` adds up elements of each, or takes their
    extreme. `by_sums`: some kernel takes the mean as a sum; else all take a running mean, whose partial ones no order
    makes larger than elements are."""

    def rule(call: Call) -> Found:
        scale = call.scale(_ROOT)
        x = call.wide(name) * scale
        if call["training"] is False or not x.numel():
            return {}
        over = lambda each, how: rows(call, each, how)
        is_open = over(_finite(x).square(), "sum") > call.limit * scale * scale
        if not bool(is_open.any()):
            return _weighted(call, call.wide(name), over, name)
        rises, falls, crosses = _sides(_finite(x), call.limit * scale, over)
        running = {each: call[each].clone() for each in ("running_mean", "running_var") if call[each] is not None}
        whole = _first(call.on(**{name: x}, **running))
        # What is left of a row whose variance is infinite, whatever is added to that: nothing, or NaN where a deviation
        # from the mean is, too.
        added = {each: 1.0 for each in ("eps", "epsilon") if call[each] is not None}
        of_zeros = _first(call.on(**{name: torch.zeros_like(x)}, **added, **running))
        found: Found = {0: Open((whole, of_zeros), is_lost=rises | falls if by_sums else crosses, differs=is_open)}
        for each in running:
            up, down = rises.view(-1), falls.view(-1)
            is_up, is_down = (is_open.view(-1) | up | down, False) if each == "running_var" else (up, down)
            found[each] = Open((), is_up, is_down, up & down)
        return found

    return rule


def _of_layer(call: Call, x: torch.Tensor, how: str) -> torch.Tensor:
    return getattr(x, how)(list(range(-len(call["normalized_shape"]), 0)), True)


def _of_channel(call: Call, x: torch.Tensor, how: str) -> torch.Tensor:
    return getattr(x, how)([0, *range(2, x.dim())], True)


def _of_group(call: Call, x: torch.Tensor, how: str) -> torch.Tensor:
    rows = x.reshape(call["N"], call["group"], -1)
    return getattr(rows, how)(-1, True).expand_as(rows).reshape(x.shape)


def _norm(call: Call) -> Found:
    order = call["ord"] if "ord" in call.arguments else 2 if call["p"] is None else call["p"]
    if not isinstance(order, (int, float)) or not math.isfinite(order) or order == 0:
        return {}
    scale = call.scale(_ROOT if order == 2 else _SMALLER)
    x = call.wide("self") * scale
    if abs(order) not in (1, 2) and call.sum_dtype == torch.float64:
        return {}
    dims = call["dim"] if call["dim"] is not None else list(range(x.dim()))
    total = lambda powers: powers.sum(dims, bool(call["keepdim"]))
    of_powers = lambda x: total(torch.where(x.isfinite() & (x != 0), x.abs().pow(order), 0.0))
    large = of_powers(x) > call.limit * scale**order
    # What is left of powers that are smaller than the least normal number, and of their sum.
    rounded = of_powers(call.wide("self").to(call.sum_dtype)).double()
    is_small = (total((_finite(x) != 0).double()) > 0) & (
        rounded < torch.finfo(call.sum_dtype).smallest_normal * 2.0**24
    )
    if not bool((large | is_small).any()):
        return {}
    whole = torch.where(is_small, call.on(self=call.wide("self") / scale) * scale, call.on(self=x) / scale)
    vanishes = is_small & (rounded == 0)
    rises, vanishes = (large, vanishes) if order > 0 else (vanishes, large)
    return {0: Open((whole, rounded ** (1 / order)), rises, False, False, vanishes, differs=is_small)}


def _distances(call: Call) -> Found:
    order = float(call["p"])
    if not math.isfinite(order) or order == 0 or call.sum_dtype == torch.float64:
        return {}
    if call["x1"] is None:
        magnitudes = call.on(aten._pdist_forward, self=_finite(call.wide("self")).abs())
        return {0: Open((call.on(),), 2 * magnitudes > call.limit ** (1 / order))}
    one, other = (_finite(call.wide(name)).abs() for name in ("x1", "x2"))
    large = call.on(x1=one, x2=-other, compute_mode=2) > call.limit ** (1 / order)
    # As the root of a difference of products, which is NaN, or less than zero.
    is_product = large & (order == 2)
    return {0: Open((call.on(compute_mode=2),), large, False, is_product, is_product)}


def _folds_in_no_order(x: torch.Tensor) -> bool:
    """Whether threads fold parts of a row as they come: those of a GPU do."""
    return x.is_cuda


def _extreme(call: Call) -> Found:
    """Of zeros of both signs in a row, an extreme without a place may be either."""
    x = call["self"]
    dims = call["dim"]
    with_places = call.operator in (aten.max, aten.min) and "dim" in call.arguments  # the first of equal elements
    if with_places or "other" in call.arguments or not _folds_in_no_order(x):
        return {}
    dims = list(range(x.dim())) if dims is None or dims == [] else dims
    has = lambda zeros: zeros.double().amax(dims, bool(call["keepdim"])) > 0
    zeros = x == 0
    both = has(zeros & x.signbit()) & has(zeros & ~x.signbit())
    if not bool(both.any()):
        return {}
    return {place: Open(any_zero=both) for place in range(2 if call.operator is aten.aminmax else 1)}


def _power(call: Call) -> Found:
    """Kernels for the CPU round an exponent to float32 in vectors, and not in what is left of them."""
    exponent = call["exponent"]
    if call.dtype != torch.float32 or type(exponent) is not float or not math.isfinite(exponent):
        return {}
    rounded = float(torch.tensor(exponent))
    return {} if rounded == exponent else {0: Open((call.on(exponent=rounded),), differs=True)}


_MATRICES = _summed(torch.matmul)
_UPSAMPLES = ("linear1d", "bilinear2d", "trilinear3d", "_bilinear2d_aa")
_SIGNED_UPSAMPLES = ("bicubic2d", "_bicubic2d_aa")
_LOSSES = ("mse_loss", "smooth_l1_loss", "huber_loss", "nll_loss_forward", "nll_loss2d_forward", "soft_margin_loss",
           "multi_margin_loss", "multilabel_margin_loss_forward", "binary_cross_entropy")  # fmt: skip
_BATCH_NORMS = ("native_batch_norm", "_native_batch_norm_legit", "_native_batch_norm_legit_no_training",
                "cudnn_batch_norm", "_batch_norm_with_update", "miopen_batch_norm")  # fmt: skip

#: By the name of the operator of ATen; one in place has the same.
RULES: dict[str, Rule] = {
    **dict.fromkeys(("sum", "nansum", "cumsum", "trace", "col2im"), _sum_of("self")),
    "mean": _mean,
    **dict.fromkeys(("avg_pool2d", "avg_pool3d"), _pool),
    **dict.fromkeys(("_adaptive_avg_pool2d", "_adaptive_avg_pool3d"), _adaptive_pool),
    **{f"upsample_{name}".replace("upsample__", "_upsample_"): _sum_of("self") for name in _UPSAMPLES},
    **{f"upsample_{name}".replace("upsample__", "_upsample_"): _interpolated for name in _SIGNED_UPSAMPLES},
    "scatter_add": _added_in_memory(_sum_of("self", "src"), "self", "src"),
    "index_add": _added_in_memory(_index_add, "self", "source"),
    **dict.fromkeys(("index_put", "_index_put_impl"), _added_in_memory(_where_added, "self", "values")),
    **dict.fromkeys(("scatter_reduce", "scatter"), _where_added),
    "embedding_dense_backward": _added_in_memory(lambda call: {}, "grad_output"),
    **dict.fromkeys(("fmod", "remainder"), _remainder),
    **dict.fromkeys(_LOSSES, _loss),
    **dict.fromkeys(("mm", "bmm"), _products("self", "mat2", _MATRICES)),
    "mv": _products("self", "vec", _MATRICES),
    "dot": _products("self", "tensor", _MATRICES),
    "vdot": _products("self", "other", _MATRICES),
    "addmm": _products("mat1", "mat2", _MATRICES, "self"),
    "addmv": _products("mat", "vec", _MATRICES, "self"),
    "baddbmm": _products("batch1", "batch2", _MATRICES, "self"),
    "addbmm": _products("batch1", "batch2", _summed(lambda x, y: (x @ y).sum(0)), "self"),
    "addr": _products("vec1", "vec2", _summed(torch.outer), "self"),
    "convolution": _products(
        "input", "weight", _convolved, "bias", lambda call: (-1, *[1] * (call["weight"].dim() - 2))
    ),
    **dict.fromkeys(
        ("add", "sub"), lambda call: {} if call["alpha"] in (None, 1) else _elementwise(_times_alpha)(call)
    ),
    "addcmul": _elementwise(_addcmul),
    "addcdiv": _elementwise(_addcdiv),
    "lerp": _elementwise(_lerp),
    "pow": _power,
    **dict.fromkeys(("prod", "cumprod"), _product),
    **dict.fromkeys(("var", "std", "var_mean", "std_mean"), _spread),
    "native_layer_norm": _normalised(_of_layer, by_sums=False),
    **dict.fromkeys(("amax", "amin", "max", "min", "aminmax"), _extreme),
    "native_group_norm": _normalised(_of_group, by_sums=True),
    **dict.fromkeys(_BATCH_NORMS, _normalised(_of_channel, by_sums=True)),
    **dict.fromkeys(("linalg_vector_norm", "norm"), _norm),
    **dict.fromkeys(("_cdist_forward", "_pdist_forward"), _distances),
}

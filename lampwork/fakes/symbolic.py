"""Sizes that are not known while a program is captured: what stands behind the `torch.SymInt` that the program holds.

    sizes = SymbolicSizes()
    s0 = sizes.symbol(source, "shape", 0, hint=7)       a torch.SymInt; str(s0) == "s0"
    s0 * 2 + 1                                          2*s0 + 1: arithmetic stays symbolic
    if s0 > 4: ...                                      True for the size seen; the guard `s0 > 4` is noted
    range(s0)                                           needs the number: the guard `s0 == 7` is noted

`torch.SymInt` takes any object with the interface of PyTorch's own node. Ours wraps an expression of `ir.size`, which
costs microseconds where PyTorch's, over sympy, costs milliseconds and 0.3 s for the import.

A question whose answer the bounds of the symbols prove leaves no guard. Any other is answered for the sizes seen and
noted as a guard in its simplest form: one symbol against a number narrows the symbol's bounds, an equality makes one of
its symbols an expression of the others (`resolve`), everything else is kept as it is. So an expression made before an
equality was known and one made after it resolve to the same.

A size that the contents of a tensor decide (`mask.nonzero()`) is a symbol without a source. What is asked of it and
does not follow from its bounds is no guard but an assumption, which the program checks as soon as it knows the size; it
can do so as long as it has done nothing that the caller can see (`from_contents`). Nobody gets its number.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

from lampwork.errors import CompileError, Diagnostic
from lampwork.fakes.fake import DataDependent
from lampwork.fakes.nodes import OPPOSITE, SizeNode
from lampwork.fakes.solving import KnownSizes, Noted
from lampwork.ir.guard import Guard, NumberRelation
from lampwork.ir.location import Location
from lampwork.ir.number import Leaf, NumberExpr, compared, constant, integer, leaf
from lampwork.ir.number_operations import RELATIONS
from lampwork.ir.program import Assumed
from lampwork.ir.size import (
    INFINITY,
    Mod,
    Product,
    Size,
    Sum,
    Symbol,
    add,
    bounds,
    evaluate,
    mul,
    substitute,
    symbols,
)
from lampwork.ir.solutions import always
from lampwork.ir.source import Source

#: 0 and 1 mean something else than other numbers (nothing to do, broadcasting): a symbol for a number or a stride is
#: never one of them, one for a size never 0.
SMALLEST_SIZE = 2
#: What a size of 1 is taken for while a program is captured that shall serve others, too. Little else has this size.
SUPPOSED_SIZE = 7
#: A symbol counts as at least this where something is decided for all its values, for the sake of speed alone.
_LARGE = 64
#: Of the integers that programs compute with.
_LARGEST = (1 << 63) - 1
#: What sizes that contents decide are taken for where only speed depends on them.
_USUAL_COUNT = 64


class SymbolicSizes(KnownSizes):
    """The symbols of one capture and the guards on them. Not shared between threads.

    `location_hook()` says which line of the user's program is running.
    """

    def __init__(self, location_hook: Callable[[], Location] | None = None) -> None:
        super().__init__(location_hook)
        self.sources: dict[str, Leaf] = {}
        self.marked: set[str] = set()
        #: Symbols for sizes that are 1 in the call at hand, and more as far as the program has seen.
        self.supposed: dict[str, tuple[Source, str, int]] = {}
        #: Tuples with symbols whose numbers were asked for, by id: each, and the tuple of numbers that stands for it.
        self.settled: dict[int, tuple[tuple, tuple]] = {}
        self._reasons: dict[str, tuple[str, Location]] = {}
        self._required: dict[tuple, NumberExpr] = {}
        self._known: dict[tuple, bool] = {}
        self._notes = True
        #: Makes the node of a floating-point number of a size, where it may vary; else sizes are fixed for that.
        self.floats: Callable[[SizeNode], Any] | None = None
        #: Sizes that contents decide, with what they are not above.
        self._limits: list[tuple[Size, Size]] = []

    def __bool__(self) -> bool:
        return bool(self.hints or self._required)

    # Symbols ----------------------------------------------------------------------------------------------------------

    def symbol(
        self, source: Source, kind: str, axis: int, hint: int, lower: int = SMALLEST_SIZE, upper: int = INFINITY,
        marked: bool = False,
    ) -> torch.SymInt:  # fmt: skip
        """The integer found at `source`: `kind` "shape" or "stride" of dimension `axis`, or the "value" itself.

        `marked`: the user said that it varies, so that specialising it is an error.
        """
        name = f"s{len(self.sources)}"
        if marked:
            self.marked.add(name)
        self.sources[name] = leaf(source, kind, axis)
        return self._sym_int(self._new(name, hint, lower, upper))

    def place_of(self, value: torch.SymInt) -> Source | None:
        """Where an integer from outside lies; None for one that is computed, and for sizes of tensors."""
        size = size_of(value)
        found = self.sources.get(size.name) if type(size) is Symbol else None
        return found.source if found is not None and found.read == "value" else None

    def supposed_symbol(self, source: Source, axis: int) -> torch.SymInt:
        """The symbol for a size of 1, under which the program is seen as of a larger one. See `wrongly_supposed`."""
        self.supposed[f"s{len(self.sources)}"] = (source, "shape", axis)
        return self.symbol(source, "shape", axis, SUPPOSED_SIZE, 1)

    def wrongly_supposed(self) -> frozenset[tuple[Source, str, int]]:
        """Sizes that have to be 1 for the guards to hold for the call at hand: those that the program asked about, or
        all if something else does not hold."""
        if not self.supposed:
            return frozenset()
        asked = [place for name, place in self.supposed.items() if self._bounds[name][0] > 1]
        if asked:
            return frozenset(asked)
        actual = {**self.hints, **dict.fromkeys(self.supposed, 1)}
        holds = not self._made and all(
            low <= actual[name] <= high for name, (low, high) in self._bounds.items()
        ) and all(
            RELATIONS[each.relation](*(_evaluated(side, actual) for side in (each.left, each.right)))
            for each in self._noted.values()
        )  # fmt: skip
        return frozenset() if holds else frozenset(self.supposed.values())

    def from_contents(self, lower: int = 0, upper: int = INFINITY, usual: int = _USUAL_COUNT) -> torch.SymInt:
        """A size that the contents of some tensor decide. `usual`: what it is taken for where a guess must do."""
        name = f"u{len(self.contents)}"
        self.contents[name] = None
        return self._sym_int(self._new(name, min(max(lower, usual), upper), lower, upper))

    @property
    def of_the_call(self) -> bool:
        """Whether a symbol stands for something that the caller passes."""
        return bool(self.sources or self._required)

    def require(self, source: Source, kind: str, axis: int, value: Size, divisor: int = 0) -> None:
        """The guard that the integer found there, which has no symbol, is `value`, or leaves that of `divisor`."""
        key = (source, kind, axis, divisor)
        if key not in self._required:
            own = Symbol(f"x{len(self._required)}", -INFINITY)
            found = integer(Mod(own, divisor) if divisor else own, {own.name: leaf(source, kind, axis)})
            self._required[key] = compared("==", found, self._expression(value))

    def _sym_int(self, value: Size) -> Any:
        return torch.SymInt(SizeNode(self, value))

    def wrap(self, value: Size) -> Any:
        """`value` as the program holds it: an int, or a `torch.SymInt`."""
        return value if isinstance(value, int) else self._sym_int(value)

    def large_hint(self, value: Size) -> int:
        """What `value` may be in a call with much work: the sizes seen first are often small."""
        value = self.resolve(value)
        if isinstance(value, int):
            return value
        large = {name: max(self.hints[name], min(_LARGE, self._bounds[name][1])) for name in symbols(value)}
        return evaluate(value, large)

    # Questions --------------------------------------------------------------------------------------------------------

    def known(self, left: Size, relation: str, right: Size, resolved: bool = False) -> bool | None:
        """Whether the relation holds for all sizes that pass the guards; None: it depends on them."""
        difference = add(left, mul(right, -1)) if resolved else self._difference(left, right)
        if isinstance(difference, int):
            return RELATIONS[relation](difference, 0)
        low, high = bounds(difference)
        answer: bool | None
        if relation == "==" or relation == "!=":
            answer = None if low <= 0 <= high and _may_be_zero(difference) else relation == "!="
        elif relation == "<" or relation == ">=":
            answer = True if high < 0 else False if low >= 0 else None
            answer = answer if relation == "<" or answer is None else not answer
        else:
            answer = True if high <= 0 else False if low > 0 else None
            answer = answer if relation == "<=" or answer is None else not answer
        if answer is None and self._limits:
            answer = self._by_limits(difference, relation)
        return always(difference, relation) if answer is None else answer

    def _by_limits(self, difference: Size, relation: str) -> bool | None:
        """`difference` beside 0, by what `at_most` noted."""
        for size, most in self._limits:
            room = self._difference(most, size)
            if relation in ("<", ">=") and difference == room:
                return relation == ">="
            if relation in ("<=", ">") and difference == mul(room, -1):
                return relation == "<="
        return None

    def holds(self, left: Size, relation: str, right: Size) -> bool:
        """Whether the relation holds for the sizes seen. A guard says so, unless it is known."""
        key = (left, relation, right)
        found = self._known.get(key)
        if found is not None:
            return found
        answer = self.known(left, relation, right)
        if answer is None:
            if not self._notes:
                raise DataDependent("a question about other sizes")
            if self.contents and self.by_contents(add(left, mul(right, -1))):
                answer = self._assumption(left, relation, right)
            else:
                answer = RELATIONS[relation](self.hint(left), self.hint(right))
            self._note(left, relation if answer else OPPOSITE[relation], right)
        self._show_equal(left, right)
        self._known[key] = answer
        return answer

    def expect(self, left: Size, relation: str, right: Size, else_: str = "an index that is out of range") -> None:
        """Assumes the relation of sizes that contents decide, whatever they are taken for elsewhere.

        Raises `DataDependent` where the program could not check it, or it never holds: then there is what `else_` says.
        """
        answer = self.known(left, relation, right)
        if answer is None and self._in_this_call(left, relation, right) is not False:
            self._note(left, relation, right)
            self._known[left, relation, right] = True
        elif not answer:
            raise DataDependent(else_)

    def at_most(self, size: Size, most: Size) -> None:
        """Assumes that a size which contents decide is not above `most`, and answers questions by that."""
        if self.known(size, "<=", most) is not True:
            self.expect(size, "<=", most)
            self._limits.append((size, most))

    def fits(self, value: Size) -> bool:
        """Whether an integer made of others has 64 bits, which sizes of memory have; guarded, as bounds end before."""
        if isinstance(value, (int, Symbol)) or not any(
            name in self.sources and self.sources[name].read == "value" for name in symbols(value)
        ):
            return True
        low, high = bounds(self.resolve(value))
        if -INFINITY < low and high < INFINITY:
            return True
        if not -_LARGEST <= self.hint(value) <= _LARGEST:
            return False
        self._required["fits", value] = compared("<=", constant(-_LARGEST), self.expression(value), constant(_LARGEST))
        return True

    def _show_equal(self, left: Size, right: Size) -> None:
        """Where the two are equal by all that is known, expressions show it from here on: what is asked is answered as
        of equal sizes, and later stages compare expressions."""
        difference = self._difference(left, right)
        if not isinstance(difference, int) and self.known(difference, "==", 0, resolved=True):
            self._learn_equal(difference)

    def _assumption(self, left: Size, relation: str, right: Size) -> bool:
        """What is assumed of sizes that contents decide: that operands fit, and that there is something to do."""
        answer = self._in_this_call(left, relation, right)
        if answer is not None:
            return answer
        if relation not in ("==", "!="):
            for rest in self._not_negative:  # what is left of a total when parts are taken from it
                more = self.known(add(left, rest), relation, right)
                less = self.known(add(left, mul(rest, -1)), relation, right)
                upwards = relation in (">", ">=")  # what holds for less holds for `left`, then
                if (less if upwards else more) is True:
                    return True
                if (more if upwards else less) is False:
                    return False
            return RELATIONS[relation](self.hint(left), self.hint(right))
        small = any(isinstance(each, int) and 0 <= each <= 1 for each in (left, right))
        if 1 in (left, right) and bounds(self.resolve(right if left == 1 else left)) == (0, 1):
            small = False  # one, or nothing to do
        return (relation == "==") is not small

    def _in_this_call(self, left: Size, relation: str, right: Size) -> bool | None:
        """Whether the relation holds in the call at hand, whatever contents decide; None: they do. An assumption that
        does not hold there would be a guard that the call fails."""
        difference = self._difference(left, right)
        given = {name: self.hints[name] for name in symbols(difference) if not self.by_contents(self._symbols[name])}
        return self.known(substitute(difference, given), relation, 0, resolved=True)

    def holds_in_layout(self, left: Size, relation: str, right: Size) -> bool:
        """`holds`, for a question whose answer decides nothing but a layout. A size that contents decide counts as more
        than 1 there: layouts for less differ only in strides that step over nothing."""
        answer = self.known(left, relation, right)
        if answer is None and self.contents:
            difference = add(left, mul(right, -1))
            if self.by_contents(difference):
                large = {name: Symbol(name, 2) for name in symbols(self.resolve(difference)) if name in self.contents}
                answer = self.known(substitute(self.resolve(difference), large), relation, 0, resolved=True)
                if answer is None and isinstance(right, int) and 0 <= right <= 1:  # what is left over of others
                    answer = self.known(Symbol("size", 2), relation, right, resolved=True)
                if answer is None and relation in ("==", "!="):
                    answer = relation == "!="
                    if self._notes:
                        self._note(left, "!=", right)
        return self.holds(left, relation, right) if answer is None else answer

    def specialise(self, value: Size, reason: str) -> int:
        """The number that `value` is, guarded. What asked for it is remembered where that costs a symbol.

        Raises `DataDependent` for what contents decide.
        """
        if self.by_contents(value):
            raise DataDependent("the number of elements")
        number = self.hint(value)
        value = self.resolve(value)
        if isinstance(value, int):
            return value
        if not self._notes:
            raise DataDependent("a size as a number")
        for name in sorted(symbols(value)):
            self._reasons.setdefault(name, (reason, self.location()))
        self._note(value, "==", number)
        return number

    @contextmanager
    def nothing_noted(self) -> Iterator[None]:
        """Inside, a question is answered by what is known, and as `holds_in_layout` does. Any other raises
        `DataDependent`: neither a guard nor an assumption is made."""
        before, self._notes = self._notes, False
        try:
            yield
        finally:
            self._notes = before

    def left(self, name: str) -> Size:
        """The symbol of that name, or what replaced it, with the bounds known by now."""
        return self.resolve(self._symbols[name])

    def unsettled(self) -> list[Noted]:
        """Equalities that are guarded, and that expressions do not show: the two sides are not one expression."""
        equalities = [each for each in self._noted.values() if each.relation == "=="]
        return [each for each in equalities if self._difference(each.left, each.right) != 0]

    def facts(self) -> tuple[Size, ...]:
        """Expressions that are not negative in any call that passes the guards, beside what bounds of symbols say."""
        found: list[Size] = []
        for noted in self._noted.values():
            less = self._difference(noted.left, noted.right)
            if noted.relation in ("<", "<="):
                less = mul(less, -1)
            if noted.relation == "!=":
                found.append(add(mul(less, less), -1))
            elif noted.relation != "==":
                found.append(add(less, -1) if noted.relation in ("<", ">") else less)
        for name in self._replaced:
            low, high = self._bounds[name]
            value = self.resolve(self._symbols[name])
            found.append(add(value, -low))
            if high < INFINITY:
                found.append(add(mul(value, -1), high))
        for part, value in self._parts.items():
            more = add(part, mul(self.resolve(value), -1))
            found += [add(self.resolve(value), -bounds(part)[0]), more, mul(more, -1)]
        return tuple(dict.fromkeys([each for each in found if not isinstance(each, int) and bounds(each)[0] < 0]))

    def settle(self) -> None:
        """Makes every guarded equality part of all expressions: what is not solved for a symbol is specialised.

        To be called when all questions were asked, before a stage takes sizes for what `resolve` says.
        """
        for _ in range(len(self._noted)):
            found = self.unsettled()
            if not found:
                return
            for noted in found:  # what was learnt since may make it simpler
                self._learn_equal(self._difference(noted.left, noted.right))
            remain = self.unsettled()
            if len(remain) < len(found):
                continue
            for noted in remain:
                difference = self._difference(noted.left, noted.right)
                for name in sorted(symbols(difference)):
                    if not self.by_contents(self._symbols[name]):
                        self.specialise(self._symbols[name], "an equality that is guarded is not solved for a size")

    # What became of the symbols ---------------------------------------------------------------------------------------

    def specialised(self) -> list[Diagnostic]:
        """The integers that were symbols and turned out to be needed as numbers, each with the line that needs it."""
        return [self._specialised(name) for name in self.sources if isinstance(self.resolve(self._symbols[name]), int)]

    def specialised_marks(self) -> list[Diagnostic]:
        """Those among them that the user marked as dynamic."""
        return [
            self._specialised(name)
            for name in sorted(self.marked)
            if isinstance(self.resolve(self._symbols[name]), int)
        ]

    def _specialised(self, name: str) -> Diagnostic:
        reason, location = self._reasons.get(name, ("the program asks whether it is", Location()))
        equal: tuple[Size, Size] = (Symbol(name), self.hints[name])
        if name not in self._reasons:
            for noted in self._noted.values():
                if noted.relation == "==" and name in symbols(add(noted.left, mul(noted.right, -1))):
                    location, equal = noted.location, (noted.left, noted.right)
                    break
        what = self.sources[name].words()
        guard = " == ".join(self._text(each, lambda symbol: what if symbol == name else symbol) for each in equal)
        return Diagnostic(
            "size-specialised", f"{what} is fixed at {self.hints[name]}: {reason} (guard: {guard})", location
        )

    # What the entry gets ----------------------------------------------------------------------------------------------

    def guards(self) -> tuple[Guard, ...]:
        """Every guard on sizes, bounds included, on the integers that a call has."""
        return tuple(
            Guard(holds.leaves[0].source, NumberRelation(holds), location) for holds, location in self._relations()
        )

    def _relations(self) -> list[tuple[NumberExpr, Location]]:
        found: list[tuple[NumberExpr, Location]] = []  # bounds first: they keep divisors below from being zero
        nowhere = Location()
        for name, source in self.sources.items():
            if name in self._implied:
                continue
            low, high = self._bounds[name]
            if low > -INFINITY or high < INFINITY:
                found.append((_between(low, source, high), self._narrowed.get(name, nowhere)))
        for name in self._made:
            made = self._with_sources(self._symbols[name])
            low, high = self._bounds[name]
            if (low, high) != self._declared[name] and name not in self.contents:
                found.append((_between(low, self._expression(made), high), nowhere))
        found += [(self._relation(each), each.location) for each in self._noted.values() if not self._assumes(each)]
        found += [(each, nowhere) for each in self._required.values()]
        for name in self.sources if self.contents else ():
            # Of sizes that contents decide the program checks what it assumes in symbols that it has. That there are
            # such for this size is for the guards to say.
            known = self.resolve(self._symbols[name])
            if any(each in self._made for each in symbols(known)) and not self.by_contents(known):
                relation = Noted(self._symbols[name], "==", known, nowhere)
                found.append((self._relation(relation), nowhere))
        return found

    def _assumes(self, noted: Noted) -> bool:
        """Whether what was noted is an assumption about a size that contents decide."""
        return bool(self.contents) and any(
            name in self.contents for name in symbols(add(noted.left, mul(noted.right, -1)))
        )

    def assumed(self) -> tuple[Assumed, ...]:
        """What the program has to check of the sizes that contents decide."""
        found = []
        for noted in self._noted.values():
            if self._assumes(noted):
                left, right = (self._settled(self._with_sources(each)) for each in (noted.left, noted.right))
                names = symbols(add(left, mul(right, -1)))
                text = f"{_bare(left)} {noted.relation} {_bare(right)}"
                found.append(Assumed(text, tuple(sorted(names)), noted.location))
        for name in self.contents:
            low, high = self._bounds[name]
            if (low, high) != self._declared[name]:
                made = self._settled(self._with_sources(self._symbols[name]))
                text = f"{low} <= {_bare(made)}" + (f" <= {high}" if high < INFINITY else "")
                found.append(Assumed(text, tuple(sorted(symbols(made))), self._narrowed.get(name, Location())))
        return tuple(found)

    def _settled(self, value: Size) -> Size:
        """`value` with what is known of sizes that inputs have: the program has no others. What contents decide stays
        itself, which is to be checked."""
        known = {name: self.resolve(self._symbols[name]) for name in symbols(value) if name not in self.contents}
        return substitute(value, {name: each for name, each in known.items() if not self.by_contents(each)})

    def expression(self, value: Size) -> NumberExpr:
        """`value` as an expression over integers that a call has. Raises `DataDependent` for what contents decide."""
        if self.by_contents(value):
            raise DataDependent("the number of elements")
        return self._expression(value)

    def _expression(self, value: Size) -> NumberExpr:
        return integer(self._with_sources(value), self.sources)

    def _relation(self, noted: Noted) -> NumberExpr:
        return compared(noted.relation, self._expression(noted.left), self._expression(noted.right))

    def _with_sources(self, value: Size) -> Size:
        while not isinstance(value, int) and any(name in self._made for name in symbols(value)):
            value = substitute(value, {name: self._made[name] for name in symbols(value) if name in self._made})
        return value

    def _text(self, value: Size, name: Callable[[str], str] = str) -> str:
        """`value` in symbols that a call, or some contents, have: those made for multiples are written out. `name`:
        what is written for a symbol."""
        return _bare(self._with_sources(value), name)


def _bare(value: Size, name: Callable[[str], str] = str) -> str:
    return str(value) if isinstance(value, int) else value.bare_text(name)


def _between(low: int, value: NumberExpr, high: int) -> NumberExpr:
    """`low <= value <= high`, with the bounds that there are."""
    lower = (constant(low),) if low > -INFINITY else ()
    upper = (constant(high),) if high < INFINITY else ()
    return compared("<=", *lower, value, *upper)


def _evaluated(value: Size, numbers: dict[str, int]) -> int:
    return value if isinstance(value, int) else evaluate(value, numbers)


def _may_be_zero(value: Size) -> bool:
    """False where `k*x + c` cannot be zero because `k` does not divide `c`."""
    if isinstance(value, Sum) and value.constant:
        divisor = 0
        for k, _ in value.terms:
            divisor = _gcd(divisor, abs(k))
        return value.constant % divisor == 0
    if isinstance(value, Product):  # factors without zero have a product without zero
        return any(low <= 0 <= high for low, high in map(bounds, value.factors))
    if isinstance(value, Sum) and len(value.terms) == 1:
        return _may_be_zero(value.terms[0][1])
    low, high = bounds(value)
    return low <= 0 <= high


def _gcd(left: int, right: int) -> int:
    while right:
        left, right = right, left % right
    return left


# Sizes as stages see them -------------------------------------------------------------------------------------------


def is_symbolic(value: object) -> bool:
    """Whether `value` is an integer that is not known yet."""
    return isinstance(value, torch.SymInt)


def size_of(value: Any) -> Size:
    """An int or `torch.SymInt` as a size of loop IR, in the symbols that are left.

    Raises `CompileError` for a symbol of PyTorch's own.
    """
    if not isinstance(value, torch.SymInt):
        return value
    if type(value.node) is not SizeNode:
        raise CompileError("lower", f"a tensor of symbolic size {value}, which no capture of ours made")
    return value.node.resolved


def by_contents(value: object) -> bool:
    """Whether the contents of a tensor decide a size."""
    return type(value) is torch.SymInt and value.node.sizes.by_contents(value.node.value)


def are_sizes(values: Iterable[Any]) -> bool:
    """Whether no number is negative. Of those that contents decide it is assumed; `DataDependent` where the program
    could not check it."""
    for each in values:
        if by_contents(each):
            each.node.sizes.expect(each.node.value, ">=", 0, "a negative size")
        elif each < 0:
            return False
    return True


def may_be_zero(value: object) -> bool:
    """Whether a size is zero in the call at hand, which is guarded, or for some contents: no assumption is made."""
    return bounds(size_of(value))[0] <= 0 if by_contents(value) else value == 0


def found_symbol(value: object) -> str | None:
    """The name of the symbol that a size was when it was found in some contents, whatever it is by now."""
    if type(value) is not torch.SymInt:
        return None
    size = value.node.value
    return size.name if isinstance(size, Symbol) and size.name in value.node.sizes.contents else None


def sizes_of(values: Any) -> tuple[Size, ...]:
    return tuple([value if type(value) is int else size_of(value) for value in values])


def hint_of(value: Any) -> int:
    """What an int or `torch.SymInt` was in the call that was captured."""
    return value.node.hint if isinstance(value, torch.SymInt) else value


def large_hint_of(value: Any) -> int:
    """What an int or `torch.SymInt` may be in a call with work that matters: for decisions that hold for all sizes."""
    return value.node.sizes.large_hint(value.node.value) if isinstance(value, torch.SymInt) else value

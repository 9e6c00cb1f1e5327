"""Per-call guards: what version snapshots leave to each call.

    check = per_call_check(guards, reads, snapshots)
    check(function, passed, {})  -> the values at `check.reads` | None when some guard does not hold

These are guards and values that change while everything around them stays. A training step finds its parameters, groups
and states where they were, and snapshots hold for them; but gradients are other tensors in each step, and a schedule
writes a learning rate. The text of this check begins at values that stay,
which are its constants, and so has a line or two for each thing that changes. Gradients have one for all of them:

    grads = [each.grad for each in c0]
    found = (*grads, )
    places = look(found)                                what their guards ask for, natively (see `native_tensors.py`)
    if places is None or not disjoint(places): return None
    ...
    return (*grads, v3, )

`passed`: place and extent of each of the call's own tensors that must overlap none of them.
"""

from __future__ import annotations

import weakref
from array import array
from collections.abc import Callable, Sequence

import torch

from lampwork.ir.guard import Distinct, Guard, NumberRelation, StorageGroups, TensorIs
from lampwork.ir.number import Compare, Leaf
from lampwork.ir.source import Attribute, Source
from lampwork.runtime.guards import native_tensors
from lampwork.runtime.guards.check_writer import Check, CheckWriter
from lampwork.runtime.guards.failures import evaluate
from lampwork.runtime.guards.interpreter import tensor_extent_bytes
from lampwork.runtime.guards.kept import has_own_life
from lampwork.runtime.guards.overlap import merged_ranges
from lampwork.runtime.guards.rules import rule_of
from lampwork.runtime.guards.version_snapshots import VersionSnapshots

#: Fewer gradients are loaded one by one.
FEWEST_GRADIENTS = 4


class PerCallCheck:
    """See `per_call_check`. `reads`: the sources of what it returns, in that order. `disjoint`: ids of the sources of
    tensors whose memory is compared natively, and so with what is passed."""

    def __init__(self, check: Check, reads: Sequence[Source], disjoint: frozenset[int]) -> None:
        self.call, self.reads, self.disjoint = check, tuple(reads), disjoint


def per_call_check(guards: Sequence[Guard], reads: Sequence[Source], snapshots: VersionSnapshots) -> PerCallCheck:
    """The check of those `guards` that `snapshots` leave, and of `reads`. Raises `LookupError` as `compile_check`."""
    left = {id(guard) for guard in snapshots.left}
    writer = _Writer([], ())
    for source, value in snapshots.known():
        writer.stable[id(source)] = value
    writer.typed = {id(guard.source) for guard in guards if rule_of(guard.test).tells_type and id(guard) not in left}
    parts = _Parts(guards, snapshots)
    writer.guards = parts.written
    writer.find_types()
    ordered = writer.tensors(parts, reads)
    writer.reads = ordered
    return PerCallCheck(writer.function(), ordered, frozenset(parts.disjoint))


class _Parts:
    """The guards left, divided into what is compared natively and what is `written` as text."""

    def __init__(self, guards: Sequence[Guard], snapshots: VersionSnapshots) -> None:
        self._snapshots = snapshots
        self._tests = {id(guard.source): guard.test for guard in guards if isinstance(guard.test, TensorIs)}
        #: Tensors compared natively; memory that they must not overlap; numbers that must be equal.
        self.tensors: list[tuple[Source, TensorIs]] = []
        self.ranges: list[tuple[int, int]] = []
        self.disjoint: set[int] = set()
        self.numbers: list[tuple[Guard, native_tensors.SameNumbers]] = []
        self.written: list[Guard] = []
        native = native_tensors.supported()
        for guard in snapshots.left:
            if native and isinstance(guard.test, TensorIs) and native_tensors.can_look_at(guard.test):
                self.tensors.append((guard.source, guard.test))
        self._natively = {id(source) for source, _ in self.tensors}
        for guard in sorted(snapshots.left, key=lambda each: isinstance(each.test, Distinct)):
            if id(guard.source) in self._natively and isinstance(guard.test, TensorIs):
                continue
            if native and self._takes(guard):
                continue
            self.written.append(guard)

    def _takes(self, guard: Guard) -> bool:
        """Whether the guard is part of what is compared natively from now on."""
        match guard.test:
            case StorageGroups(sources, groups):
                return self._storage(sources, groups)
            case Distinct(others):
                return self._distinct((guard.source, *others))
            case NumberRelation():
                return self._equal_numbers(guard, guard.test)
        return False

    def _is_stable(self, source: Source) -> bool:
        return id(source) in self._snapshots.values

    def _storage(self, sources: Sequence[Source], groups: Sequence[Sequence[tuple[int, int]]]) -> bool:
        """Those that stay lie as they did; the others must overlap neither them nor each other."""
        if self.disjoint:
            return False
        per_call = [index for index, source in enumerate(sources) if not self._is_stable(source)]
        grouped = {index for group in groups for index, _ in group}
        ranges = []
        for index, source in enumerate(sources):
            test = self._tests.get(id(source))
            if self._is_stable(source):
                if not self._snapshots.add_read(source):
                    return False
                value = self._snapshots.values[id(source)]
                if not isinstance(value, torch.Tensor):  # another thread put it there since
                    return False
                ranges.append((value.data_ptr(), tensor_extent_bytes(value)))
            elif index in grouped or test is None:
                return False
            elif id(source) not in self._natively and 0 not in test.shape:
                return False
        self.ranges, self.disjoint = ranges, {id(sources[index]) for index in per_call} & self._natively
        self._with_memory = {id(source) for source in sources}
        return True

    def _distinct(self, sources: Sequence[Source]) -> bool:
        """Tensors that do not overlap are different objects; what stays is different as it was."""
        for source in sources:
            if self._is_stable(source):
                value = self._snapshots.values[id(source)]
                if issubclass(type(value), torch.Tensor) and value.numel() and id(source) not in self._with_memory:
                    return False
            elif id(source) not in self.disjoint:
                return False
        return True

    _with_memory: set[int] = set()

    def _equal_numbers(self, guard: Guard, test: NumberRelation) -> bool:
        """Counters of one value, `f5 == e0 == e1`, in tensors that stay."""
        equality = test.holds
        if not isinstance(equality, Compare) or equality.relation != "==" or len(equality.numbers) < FEWEST_GRADIENTS:
            return False
        counters = [each for each in equality.numbers if isinstance(each, Leaf) and each.read == "item"]
        sources = [each.source for each in counters if self._is_stable(each.source)]
        if len(sources) < len(equality.numbers):
            return False
        if not all(self._snapshots.add_read(source) for source in sources):
            return False
        try:
            self.numbers.append(
                (guard, native_tensors.SameNumbers([self._snapshots.values[id(each)] for each in sources]))
            )
        except ValueError:
            return False
        return True


class _Writer(CheckWriter):
    """Writes the check. `stable`: values by the id of their source; `typed`: sources with tests of types that hold."""

    batched = False  # `tensors` does it

    def __post_init__(self) -> None:
        super().__post_init__()
        self.stable: dict[int, object] = {}
        self.typed: set[int] = set()

    def load(self, source: Source) -> str:
        if id(source) not in self.names and id(source) in self.stable:
            value = self.stable[id(source)]
            is_held = not has_own_life(value)
            name = self.constant(value if is_held else weakref.ref(value))
            if not is_held:
                self.lines.append(f"own{len(self.lines)} = {name}()")
                name = f"own{len(self.lines) - 1}"
                self.refuse(f"{name} is None")
            self.names[id(source)] = name
            self.keep.append(source)
            if id(source) in self.typed:
                self.known_types[id(source)] = type(value)
        return super().load(source)

    def tensors(self, parts: _Parts, reads: Sequence[Source]) -> list[Source]:
        """Writes what is compared natively; `reads` in the order in which they are returned with the least work."""
        grads = [each for each, _ in parts.tensors if isinstance(each, Attribute) and self._is_gradient(each)]
        if len(grads) >= FEWEST_GRADIENTS:
            bases = tuple([self.stable[id(source.base)] for source in grads])
            self.lines.append(f"grads = [each.grad for each in {self.constant(bases)}]")
            for number, gradient in enumerate(grads):
                self.names[id(gradient)] = f"grads[{number}]"
        else:
            grads = []
        in_loop = {id(source) for source in grads}
        tests = {id(source): test for source, test in parts.tensors}
        ordered = [*grads, *(source for source, _ in parts.tensors if id(source) not in in_loop)]
        if ordered:
            names = ["*grads"] * bool(grads) + [self.load(source) for source in ordered[len(grads) :]]
            placed = [id(source) in parts.disjoint for source in ordered]
            look = native_tensors.NativeTensorGuard([tests[id(source)] for source in ordered], placed)
            self.lines.append(f"found = ({', '.join(names)}, )")
            self.lines.append(f"places = {self.constant(look)}(found)")
            self.refuse("places is None")
            if parts.disjoint:
                ranges = merged_ranges(parts.ranges)
                flat = array("Q", [len(ranges), *(word for each in ranges for word in each)])
                self.refuse(f"not {self.constant(look)}.disjoint(places, {self.constant(flat)})")
            self.lines.append(f"for place, extent in args: {_REFUSE.format(look=self.constant(look))}")
            for source, test in parts.tensors:
                self.known_types[id(source)] = (
                    torch.nn.Parameter if test.tensor_type.endswith("Parameter") else torch.Tensor
                )
        for guard, same in parts.numbers:
            self.refuse(f"not {self.constant(same)}() and not {self.constant(_Exactly(guard))}(function)")
        wanted = {id(source) for source in reads}
        if in_loop <= wanted:
            self._all_grads = bool(grads)
            return [*grads, *(source for source in reads if id(source) not in in_loop)]
        return list(reads)

    _all_grads = False

    def values(self) -> str:
        if not self._all_grads:
            return super().values()
        others = [source for source in self.reads if not self.names.get(id(source), "").startswith("grads[")]
        return "*grads, " + "".join(f"{self.load(source)}, " for source in others)

    def _is_gradient(self, source: Attribute) -> bool:
        return (
            source.name == "grad"
            and id(source.base) in self.typed
            and type(self.stable.get(id(source.base))) in (torch.Tensor, torch.nn.Parameter)
        )


#: What the loop over the call's own tensors does.
_REFUSE = "\n            if {look}.touch(places, place, extent): return None"


class _Exactly:
    """One guard, evaluated as its definition says."""

    def __init__(self, guard: Guard) -> None:
        self._guard = guard

    def __call__(self, function: Callable) -> bool:
        return evaluate([self._guard], (), function, (), {}) is not None

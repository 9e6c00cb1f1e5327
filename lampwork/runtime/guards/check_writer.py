"""Writes the text of one check: shared loads, constants, types that are known. Rules write their lines with it."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from math import copysign, isnan
from types import FunctionType
from typing import Any, ClassVar

from lampwork.config import environment
from lampwork.ir.guard import ArgumentCount, Guard, LengthIs, TensorIs
from lampwork.ir.number import Leaf, NumberExpr, text
from lampwork.ir.number_operations import NAMES
from lampwork.ir.record import record
from lampwork.ir.source import Argument, Keyword, Source, State, root_of
from lampwork.runtime.generated import run_text
from lampwork.runtime.guards import interpreter
from lampwork.runtime.guards.interpreter import READ_ERRORS
from lampwork.runtime.guards.rules import rule_of, step_of
from lampwork.runtime.guards.tensor_batch import TensorBatch

Check = Callable[[Any, tuple, dict], "tuple | None"]


def order_of(guard: Guard) -> int:
    """Cheapest and likeliest to fail first; the sort is stable, so paths keep the order in which they were read."""
    order = rule_of(guard.test).order
    if order is not None:
        return order
    if isinstance(guard.source, State):
        # A mode of the program's sees each attribute of a tensor that is read under it.
        return -1 if guard.source.name == "modes" else 2
    return 1 if isinstance(root_of(guard.source), (Argument, Keyword)) else 3


@record(frozen=False)
class CheckWriter:
    """Writes the text of one check. `preloaded`: variable names of sources that the caller has already read (by id)."""

    guards: Sequence[Guard]
    reads: Sequence[Source]
    signature: str = "function, args, kwargs"
    preloaded: dict[int, str] = field(default_factory=dict)
    #: Whether many tensors of the call are compared by one native function.
    batched: ClassVar[bool] = True

    def __post_init__(self) -> None:
        self.lines: list[str] = []
        self.names: dict[int, str] = dict(self.preloaded)
        self._constants: dict[str, object] = {}
        self._constant_names: dict[object, str] = {}
        self.keep: list[object] = []
        self._on_load: dict[int, Guard] = {}
        self.known_types: dict[int, type] = {}
        self._done: set[int] = set()
        self._extents: dict[int, int | None] = {}
        self.find_types()
        self._number_names: dict[tuple, str] = {}
        self._key_tuples: dict[int, str] = {}
        self._written = ""
        self.batch: TensorBatch | None = None

    def find_types(self) -> None:
        """Looks for what `guards` say of types: these are tested as soon as a value is loaded."""
        for guard in self.guards:
            if rule_of(guard.test).on_load:
                self._on_load.setdefault(id(guard.source), guard)
            if isinstance(guard.test, TensorIs):
                self._extents[id(guard.source)] = interpreter.extent_bytes(guard.test)

    # The function ----------------------------------------------------------------------------------------------------

    def text(self) -> str:
        if not self._written:
            guards = sorted(self.guards, key=order_of)
            if self.batched and not self.preloaded:
                self._compare_together(guards)
            for guard in guards:
                self.guard(guard)
            self.lines.append(f"return ({self.values()})")
            body = "\n".join("        " + line for line in self.lines)
            self._written = (
                f"def check({self.signature}):\n    try:\n{body}\n    except READ_ERRORS:\n        return None\n"
            )
        return self._written

    def values(self) -> str:
        """The items of the tuple that the check returns."""
        names = [self.load(source) for source in self.reads]
        if self.batch is not None:
            names = self.batch.joined(names)
        return "".join(f"{name}, " for name in names)

    def _compare_together(self, guards: Sequence[Guard]) -> None:
        """Writes one native comparison for the tensors of the call, where there are many of them."""
        batch = TensorBatch.of(guards)
        if batch is None:
            return
        for guard in guards:
            if isinstance(guard.test, ArgumentCount):
                self.guard(guard)
        parts: list[str] = []
        for base, members in batch.runs():
            if base is not None and self._is_all_of(base, len(members)):
                parts.append(f"*{self.load(base)}")
            else:
                parts += [step_of(guard.source).text(self, guard.source) for guard in members]
        self.lines.append(f"found = ({', '.join(parts)}, )")
        look = self.constant(batch.look)
        self.lines.append(f"places = {look}(found)")
        self.refuse("places is None")
        for position, guard in enumerate(batch.guards):
            self.names[id(guard.source)] = f"found[{position}]"
            self.known_types[id(guard.source)] = batch.type_of(guard)
            self.keep.append(guard.source)
            self._done.add(id(guard))
        self.batch = batch

    def _is_all_of(self, base: Source, count: int) -> bool:
        """Whether the list or tuple at `base` has `count` items and is a builtin one; its guards are written then."""
        if self.type_of(base) not in (list, tuple):
            return False
        for guard in self.guards:
            if guard.source is base and isinstance(guard.test, LengthIs) and guard.test.length == count:
                self.guard(guard)
                return True
        return False

    def namespace(self) -> dict[str, Any]:
        self.text()
        return {
            "READ_ERRORS": READ_ERRORS, "sys": sys, "reading": interpreter, "copysign": copysign, "isnan": isnan,
            "FunctionType": FunctionType, "class_lookup": interpreter.class_lookup,
            "same_value": interpreter.same_value,
            **self._constants,
        }  # fmt: skip

    def function(self) -> Check:
        namespace = self.namespace()
        if environment.verify:
            from lampwork.ir.text import verify_text

            verify_text(self.text(), namespace)
        run_text(self.text(), "<lampwork guards>", namespace)
        return namespace.pop("check")  # no cycle: what the check holds goes with it

    # Pieces ----------------------------------------------------------------------------------------------------------

    def constant(self, value: Any) -> str:
        """The name of a constant of the namespace, one per object."""
        name = self._constant_names.get(id(value))
        if name is None:
            name = self._constant_names[id(value)] = f"c{len(self._constant_names)}"
            self._constants[name] = value
            self.keep.append(value)
        return name

    def require(self, condition: str) -> None:
        """The check fails unless `condition` holds."""
        self.lines.append(f"if not ({condition}): return None")

    def refuse(self, condition: str) -> None:
        """The check fails if `condition` holds."""
        self.lines.append(f"if {condition}: return None")

    def load(self, source: Source) -> str:
        """The local variable that holds the value at `source`."""
        name = self.names.get(id(source))
        if name is None:
            expression = step_of(source).text(self, source)
            name = self.names[id(source)] = f"v{len(self.names)}"
            self.lines.append(f"{name} = {expression}")
            self.keep.append(source)
            guard = self._on_load.get(id(source))
            if guard is not None and id(guard) not in self._done:
                self.guard(guard)
        return name

    def type_of(self, source: Source) -> type | None:
        """The type of the value at `source` where a guard has tested it."""
        self.load(source)
        return self.known_types.get(id(source))

    def learn_type(self, source: Source, kind: type) -> None:
        """From here on the value at `source` is known to be of type `kind`."""
        self.known_types[id(source)] = kind

    def extent_bytes(self, source: Source) -> int | None:
        """Bytes of the tensor at `source` from its first element to its last; None where they are not known."""
        return self._extents.get(id(source))

    def add_names(self, names: Mapping[str, object]) -> None:
        """Makes `names` available to the text."""
        self._constants.update(names)

    def literal(self, value: object) -> str:
        """Text that evaluates to `value`: spelled out for plain data, a namespace constant else."""
        if value is None or type(value) in (bool, int, str, bytes):
            return repr(value)
        return self.constant(value)

    def number(self, number: NumberExpr) -> str:
        """The text of the expression, over local variables for the numbers of the call."""
        self.add_names(NAMES)
        return text(number, self._number)

    def _number(self, leaf: Leaf) -> str:
        key = (id(leaf.source), leaf.read, leaf.axis)
        local = self._number_names.get(key)
        if local is None:
            local = self._number_names[key] = f"n{len(self._number_names)}"
            self.lines.append(f"{local} = {leaf.text(self.load(leaf.source))}")
        return local

    def keys(self, source: Source) -> str:
        """The tuple of keys of the container at `source`; once for all of them: an optimizer's state has one for each
        parameter."""
        value = self.load(source)
        keys = self._key_tuples.get(id(source))
        if keys is None:
            keys = self._key_tuples[id(source)] = f"q{len(self._key_tuples)}"
            self.lines.append(f"{keys} = reading.keys_of({value})")
        return keys

    def guard(self, guard: Guard) -> None:
        """Writes the test of one guard, once."""
        if id(guard) in self._done:
            return
        rule = rule_of(guard.test)
        if rule.on_load:
            self._on_load[id(guard.source)] = guard
            self._done.add(id(guard))  # loading the source must not come back here
        rule.emit(self, guard.test, guard.source)
        self._done.add(id(guard))

"""An entry without the program that it was compiled from: what a package holds.

    in:   an artifact whose sources lead into a model, its classes and libraries
    out:  an artifact whose sources lead to arguments, to process state, and to weights by name

Guards on the program are checked once more, now, and dropped: a package is the program as it was when it was packed.
Guards on the call stay and decide. Plain data of the program that a result holds becomes a constant. What cannot be
without the program is refused with a reason:

    results     functions, classes and objects of the program; objects of library classes become plain ones
    effects     anything written to the program that is not there already
    breaks      the rest of the call is the program's own code
    gradients   backward passes belong to a program that trains
    arguments   guards on objects of library classes, which a process without the library cannot make
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import fields, is_dataclass, replace
from enum import Enum
from typing import Any

import torch

from lampwork.ir import template as t
from lampwork.ir.artifact import Artifact
from lampwork.ir.guard import (
    ArgumentCount,
    Distinct,
    FunctionIs,
    Guard,
    NumberRelation,
    ObjectRef,
    SameObject,
    StorageGroups,
    TensorIs,
    TypeIs,
    held_number,
)
from lampwork.ir.number import Leaf, NumberExpr, compared, leaf
from lampwork.ir.reference import reference, resolve
from lampwork.ir.region import Continue, Return, RunEagerly
from lampwork.ir.source import (
    Argument,
    Computed,
    HostInput,
    InstanceDict,
    Item,
    Keyword,
    Named,
    Numbers,
    PythonModule,
    Root,
    Source,
    State,
    describe,
    root_of,
)
from lampwork.runtime.cache import schema
from lampwork.runtime.cache.operators import described
from lampwork.runtime.guards.interpreter import READ_ERRORS, Scope, read
from lampwork.runtime.guards.plain_data import same_value
from lampwork.shipping.results import Attributes, Output
from lampwork.shipping.weights import Unfit, Weights
from lampwork.shipping.words import first_difference

#: Packages of Python that every process with Lampwork has.
_EVERYWHERE = frozenset({*sys.stdlib_module_names, "torch", "numpy", "lampwork"} - {"__main__"})
#: Where a package keeps its weights: `package.__dict__["_weights"][name]`.
_WEIGHTS = Item(InstanceDict(Root()), "_weights")


class NotPackable(Exception):
    """An entry cannot be without its program. The text is the reason."""


def is_everywhere(module: str) -> bool:
    """Whether every process with Lampwork has the module of this name."""
    return module.partition(".")[0] in _EVERYWHERE


def detached(artifact: Artifact, function: Callable, weights: Weights, holder: type) -> Artifact:
    """`artifact` without `function`. `weights` is told of the tensors of the program that it needs; they are found in
    an instance of `holder` from then on. Raises `NotPackable`."""
    return _Detaching(artifact, function, weights, holder).done()


class _Detaching:
    def __init__(self, artifact: Artifact, function: Callable, weights: Weights, holder: type) -> None:
        self.artifact, self.function, self.weights, self.holder = artifact, function, weights, holder
        self.scope = Scope(function, (), {})
        self._from_call: dict[int, bool] = {}
        self._bound: dict[int, Source] = {}
        self._by_name: dict[str, Source] = {}
        self._used: set[int] = set()

    def done(self) -> Artifact:
        artifact = self.artifact
        self._judge()
        inputs = tuple([self.input(source) for source in artifact.inputs])
        for index in artifact.program.written_inputs:
            if not self.is_from_call(artifact.inputs[index]):
                raise NotPackable(
                    f"each call changes {describe(artifact.inputs[index])}: such as batch norm in training does; "
                    "call model.eval() before compiling"
                )
        outcome = artifact.outcome
        assert isinstance(outcome, Return)
        outcome = Return(self.template(outcome.value))
        effects = tuple(self.effects())
        host_calls = tuple(
            replace(
                call, function=self.callable_(call.function), args=self.each(call.args), kwargs=self.named(call.kwargs)
            )
            for call in artifact.host_calls
        )
        objects = self.objects()
        return replace(
            artifact,
            guards=tuple(self.guards()),
            inputs=inputs,
            objects=objects,
            effects=effects,
            outcome=outcome,
            host_calls=host_calls,
            code_digests={},
            libraries={},
            specialised=(),
            varied=frozenset(),
            report={},
        )

    def _judge(self) -> None:
        """Raises for kinds of entries that no package holds, and for one whose program has changed since."""
        artifact = self.artifact
        outcome = artifact.outcome
        if isinstance(outcome, Continue):
            reason = outcome.reason
            where = f" at {reason.location.file}:{reason.location.line}" if reason.location.file else ""
            raise NotPackable(f"the graph breaks{where}: {reason.reason}")
        if isinstance(outcome, RunEagerly):
            raise NotPackable(f"the call runs eagerly: {outcome.reason}")
        if not isinstance(outcome, Return):
            raise NotPackable("the call raises an exception")
        if artifact.backward is not None or artifact.initial_states:
            raise NotPackable("it takes gradients: make the calls under torch.no_grad() or torch.inference_mode()")
        if artifact.operators:
            raise NotPackable(f"it calls {described(next(iter(artifact.operators)))}")
        if artifact.locks:
            raise NotPackable(f"the call takes the lock {describe(artifact.locks[0])}")
        own = [guard for guard in artifact.guards if not self._is_on_call(guard)]
        why = first_difference(own, self.function)
        if why:
            raise NotPackable(f"the program has changed since it was compiled: {why}")

    # Sources -------------------------------------------------------------------------------------------------------

    def is_from_call(self, source: Source) -> bool:
        """Whether arguments, or the state of the process, decide what is there."""
        known = self._from_call.get(id(source))
        if known is None:
            if isinstance(source, (Argument, Keyword, State, HostInput)):
                known = True
            else:
                base = source.parent()
                known = (base is not None and self.is_from_call(base)) or any(map(self.is_from_call, source.keys()))
            self._from_call[id(source)] = known
        return known

    def _is_on_call(self, guard: Guard) -> bool:
        every = (guard.source, *guard.test.reads())
        return isinstance(guard.test, ArgumentCount) or any(map(self.is_from_call, every))

    def call_source(self, source: Source) -> Source:
        """A source that the call decides. Raises where its path goes through the program, too."""
        pending = [source]
        while pending:
            step = pending.pop()
            if isinstance(step, Root):
                raise NotPackable(f"what {describe(source)} is depends on the model and on the call")
            if isinstance(step, (PythonModule, Named)):
                module = step.name if isinstance(step, PythonModule) else step.module
                if not is_everywhere(module):
                    raise NotPackable(f"{describe(source)} is read through {module}")
            base = step.parent()
            pending += [*step.keys(), *([] if base is None else [base])]
        return source

    def value(self, source: Source) -> Any:
        """What is there in the program."""
        try:
            return read(source, self.scope)
        except READ_ERRORS as error:
            raise NotPackable(f"{describe(source)} cannot be read any more ({type(error).__name__})") from None

    def weight(self, source: Source) -> Source:
        """Where a package has the tensor at `source`, which the program decides."""
        found = self._bound.get(id(source))
        if found is None:
            tensor = self.value(source)
            if not isinstance(tensor, torch.Tensor):
                raise NotPackable(f"the program computes with {describe(source)}, which is no tensor")
            try:
                name = self.weights.name(tensor, source)
            except Unfit as reason:
                raise NotPackable(str(reason)) from None
            found = self._by_name.setdefault(name, Item(_WEIGHTS, name))
            self._bound[id(source)] = found
        return found

    def input(self, source: Source) -> Source:
        if isinstance(source, HostInput):
            return source
        if isinstance(source, (Numbers, Computed)):
            for number in source.numbers if isinstance(source, Numbers) else (source.number,):
                self.number(number)
            return source
        return self.call_source(source) if self.is_from_call(source) else self.weight(source)

    def number(self, number: NumberExpr) -> None:
        for each in number.leaves:
            if not self.is_from_call(each.source):
                raise NotPackable(
                    f"it computes with a number that it reads of the program in each call: {each.words()}"
                )
            self.call_source(each.source)

    # Guards --------------------------------------------------------------------------------------------------------

    def guards(self) -> Iterator[Guard]:
        """Those on the call, those on the weights that are needed, and that these are where they should be."""
        yield Guard(Root(), TypeIs(reference(self.holder)))
        yield Guard(_WEIGHTS, TypeIs(reference(dict)))
        tested: set[str] = set()
        for guard in self.artifact.guards:
            test = guard.test
            if isinstance(test, ArgumentCount):
                yield guard
            elif isinstance(test, Distinct):
                kept = list(dict.fromkeys(self.present((guard.source, *test.others))))
                if len(kept) > 1:
                    yield replace(guard, source=kept[0], test=Distinct(tuple(kept[1:])))
            elif isinstance(test, StorageGroups):
                yield from self.storage_groups(guard, test)
            elif not self._is_on_call(guard):
                if isinstance(test, NumberRelation) and any(each.read == "item" for each in test.holds.leaves):
                    if (held := held_number(test)) is not None:
                        yield self.setting(test, held)
                        continue
                    raise NotPackable(f"which way the program goes depends on what a weight holds: {test.words()}")
                bound = self._bound.get(id(guard.source))
                if bound is not None and isinstance(test, TensorIs) and bound.key not in tested:  # type: ignore[attr-defined]
                    tested.add(bound.key)  # type: ignore[attr-defined]
                    yield replace(guard, source=bound)
            elif isinstance(test, SameObject):
                left, right = (self.present((each,)) for each in (guard.source, test.other))
                if not left or not right:
                    raise NotPackable(f"an argument is an object of the program: {test.words(describe(guard.source))}")
                yield replace(guard, source=left[0], test=SameObject(right[0]))
            else:
                yield self.on_call(guard)

    def setting(self, test: NumberRelation, held: Leaf) -> Guard:
        """That a number which the program takes for granted is in the package's tensor, too."""
        place = self.weight(held.source)
        number = leaf(place, held.read, held.axis, held.of)
        return Guard(place, NumberRelation(compared("==", number, *test.holds.parts[1:])))

    def present(self, sources: Iterable[Source]) -> list[Source]:
        """Those of `sources` that a package has: of the call, and weights."""
        found = []
        for source in sources:
            if self.is_from_call(source):
                found.append(self.call_source(source))
            elif id(source) in self._bound:
                found.append(self._bound[id(source)])
        return found

    def storage_groups(self, guard: Guard, test: StorageGroups) -> Iterator[Guard]:
        kept: dict[int, Source] = {}
        seen: set[Source] = set()
        for index, source in enumerate(test.sources):
            for each in self.present((source,)):
                if each not in seen:
                    seen.add(each)
                    kept[index] = each
        if len(kept) < 2:
            return
        numbers = {index: position for position, index in enumerate(kept)}
        groups = []
        for group in test.groups:
            members = [(index, offset) for index, offset in group if index in kept]
            if len(members) > 1:
                first = members[0][1]
                groups.append(tuple((numbers[index], offset - first) for index, offset in members))
        sources = tuple(kept.values())
        yield replace(guard, source=sources[0], test=StorageGroups(sources, tuple(groups)))

    def on_call(self, guard: Guard) -> Guard:
        test = guard.test
        if isinstance(test, NumberRelation):
            self.number(test.holds)
            return guard
        self.call_source(guard.source)
        for ref in test.references():
            if not ref.portable or not is_everywhere(ref.module):
                raise NotPackable(f"{test.words(describe(guard.source))}, which a process without {ref.module} lacks")
        if isinstance(test, FunctionIs) and not is_everywhere(test.ref.module):
            raise NotPackable(f"{test.words(describe(guard.source))}, which a process without {test.ref.module} lacks")
        if isinstance(test, TensorIs) and not is_everywhere(test.tensor_type):
            raise NotPackable(test.words(describe(guard.source)))
        for each in fields(test):  # type: ignore[arg-type]
            self.data(getattr(test, each.name), describe(guard.source))
        return guard

    def data(self, value: object, where: str) -> None:
        """Raises where plain data has a member of an enumeration that only the program's libraries have."""
        if isinstance(value, Enum) and not is_everywhere(type(value).__module__):
            raise NotPackable(f"{where} is {value!r} of {type(value).__module__}")
        if isinstance(value, (tuple, frozenset)):
            for each in value:
                self.data(each, where)

    # Values that leave ---------------------------------------------------------------------------------------------

    def each(self, templates: Sequence[t.Template]) -> tuple:
        return tuple([self.template(each) for each in templates])

    def named(self, rows: Sequence[tuple[str, t.Template]]) -> tuple:
        return tuple([(name, self.template(value)) for name, value in rows])

    def pairs(self, rows: Sequence[tuple[t.Template, t.Template]]) -> tuple:
        return tuple([(self.template(key), self.template(value)) for key, value in rows])

    def callable_(self, ref: ObjectRef) -> ObjectRef:
        if not ref.portable or not is_everywhere(ref.module):
            raise NotPackable(f"the call runs {ref.module}.{ref.qualname}")
        return ref

    def template(self, template: Any) -> Any:
        """`template` without the program; the objects that it names are wanted."""
        match template:
            case t.ConstantValue(value):
                self.data(value, "a value in the result")
            case t.ObjectValue(ref):
                if not ref.portable or not is_everywhere(ref.module):
                    raise NotPackable(f"the result holds {ref.module}.{ref.qualname}")
            case t.SourceValue(source):
                return self.found(source)
            case t.TensorValue(_, cls) if cls is not None and not is_everywhere(cls.module):
                raise NotPackable(f"a result is of the class {cls.module}.{cls.qualname}")
            case t.NumberValue(number):
                self.number(number)
            case t.NewValue(index):
                self._used.add(index)
        return template

    def found(self, source: Source) -> Any:
        """The value at `source`: as it is there now, if the program decides."""
        if self.is_from_call(source):
            return t.SourceValue(self.call_source(source))
        if id(source) in self._bound:
            return t.SourceValue(self._bound[id(source)])
        value = self.value(source)
        if isinstance(value, torch.Tensor):
            return t.SourceValue(self.weight(source))
        if not schema.is_data(value):
            if isinstance(root_of(source), (Named, PythonModule)):
                return t.SourceValue(self.call_source(source))  # such as the generator of the module `random`
            raise NotPackable(f"the result holds {describe(source)} of the program, a {type(value).__qualname__}")
        self.data(value, describe(source))
        return t.ConstantValue(value)

    def objects(self) -> tuple[t.NewThing, ...]:
        """The objects that are wanted; the others make room for nothing."""
        made: dict[int, t.NewThing] = {}
        while pending := self._used.difference(made):
            for index in sorted(pending):
                made[index] = self.object_(self.artifact.objects[index])
        return tuple([made.get(index, t.NewTuple(())) for index in range(len(self.artifact.objects))])

    def object_(self, thing: t.NewThing) -> t.NewThing:
        match thing:
            case t.NewTuple(items, cls):
                known = cls is None or (cls.portable and is_everywhere(cls.module))
                return t.NewTuple(self.each(items), cls if known else None)
            case t.NewList(items):
                return t.NewList(self.each(items))
            case t.NewSet(items, frozen):
                return t.NewSet(self.each(items), frozen)
            case t.NewDeque(items, maxlen):
                return t.NewDeque(self.each(items), maxlen)
            case t.NewDict(pairs):
                return t.NewDict(self.pairs(pairs))
            case t.NewSlice(start, stop, step):
                return t.NewSlice(self.template(start), self.template(stop), self.template(step))
            case t.NewObject():
                return self.instance(thing)
            case t.NewCall(callable_, args, kwargs):
                return t.NewCall(self.callable_(callable_), self.each(args), self.named(kwargs))
        raise NotPackable("the result holds a function or method that the program made")

    def instance(self, thing: t.NewObject) -> t.NewObject:
        """An object; of a class of ours where its own is not everywhere."""
        cls = thing.cls
        attributes, slots = self.named(thing.attributes), self.named(thing.slots)
        pairs = None if thing.pairs is None else self.pairs(thing.pairs)
        if cls.portable and is_everywhere(cls.module):
            items = None if thing.items is None else self.each(thing.items)
            value = None if thing.value is None else self.template(thing.value)
            return t.NewObject(cls, attributes, slots, items, pairs, value)
        if thing.items is not None or thing.value is not None:
            raise NotPackable(
                f"the result holds a {cls.qualname}, which is a list, tuple, number or text of its own class"
            )
        plain = reference(Attributes if pairs is None else Output)
        return t.NewObject(plain, (*attributes, *slots), (), None, pairs, None)

    # Effects -------------------------------------------------------------------------------------------------------

    def effects(self) -> Iterator[t.Effect]:
        """Those on arguments. What is there already need not be written to the program, and nothing else may be."""
        for effect in self.artifact.effects:
            match effect:
                case t.Evaluate(items):
                    yield t.Evaluate(self.each(items))
                case t.Call(function, args):
                    yield t.Call(self.callable_(function), self.each(args))
                case t.SetState(name, value):
                    if not self._is_state(name, value):
                        raise NotPackable(f"the call changes the state of the process: {name.replace('_', ' ')}")
                case t.SetCell():
                    raise NotPackable("the call changes a variable of an enclosing function")
                case _ if self._is_on_argument(effect.target):
                    yield self.on_argument(effect)
                case _ if not self._is_there_already(effect):
                    raise NotPackable(f"the call changes {self._target(effect)}")

    def _is_on_argument(self, target: t.Template) -> bool:
        return not isinstance(target, t.SourceValue) or self.is_from_call(target.source)

    def on_argument(self, effect: Any) -> Any:
        values: dict[str, Any] = {}
        for each in fields(effect):
            value = getattr(effect, each.name)
            if isinstance(value, tuple):
                values[each.name] = self.pairs(value) if each.name == "pairs" else self.each(value)
            elif is_dataclass(value):
                values[each.name] = self.template(value)
        return replace(effect, **values)

    def _is_state(self, name: str, value: t.Template) -> bool:
        """Whether the process is in that state before the call, as a guard says."""
        if not isinstance(value, t.ConstantValue):
            return False
        for guard in self.artifact.guards:
            if isinstance(guard.source, State) and guard.source.name == name:
                return same_value(getattr(guard.test, "value", None), value.value)
        return False

    def _is_there_already(self, effect: t.Effect) -> bool:
        """Whether what would be written to the program is there: the calls before this one wrote it."""
        match effect:
            case t.SetAttribute(t.SourceValue(target), name, value) | t.CallSetAttribute(
                t.SourceValue(target), name, value
            ):
                place: Source = Item(InstanceDict(target), name)
            case t.SetItem(t.SourceValue(target), t.ConstantValue(key), value):
                place = Item(target, key)
            case _:
                return False
        try:
            present = read(place, self.scope)
            match value:
                case t.ConstantValue(constant):
                    return type(present) is type(constant) and same_value(present, constant)
                case t.ObjectValue(ref):
                    return present is resolve(ref)
                case t.SourceValue(source):
                    return not self.is_from_call(source) and present is read(source, self.scope)
        except (*READ_ERRORS, RuntimeError):
            pass
        return False

    def _target(self, effect: Any) -> str:
        target = effect.target
        where = describe(target.source) if isinstance(target, t.SourceValue) else "an object of the program"
        name = getattr(effect, "name", "")
        return f"{where}.{name}" if name else where

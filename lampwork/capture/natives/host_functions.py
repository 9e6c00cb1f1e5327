"""Functions of the host that give something anew on each call, and generators that stand elsewhere afterwards.

    random.random(), generator.gauss(0, 1), random.shuffle(order)       numbers: `values/host_results.py`
    np.random.randn(3, 4), np.random.default_rng(0)                     arrays, generators
    time.perf_counter(), time.sleep(0.1)                                clocks

What a method of a generator gives (a float, an array of such sizes) is told by a generator of the same class that
nobody else has: it is called with the same arguments while capturing. One stands for each that the program makes.
A clock that is read before anything is computed is read before the graph runs, and after the graph from then on:
what lies between two clocks in the program lies between them in the call.
"""

from __future__ import annotations

import functools
import operator
import os
import random
import threading
import time
import types
from collections.abc import Callable, Sequence
from typing import Any

import numpy

from lampwork.capture.bytecode.decode import decode
from lampwork.capture.machine import Answer
from lampwork.capture.machine.values import Enter
from lampwork.capture.outside.overlay import Break
from lampwork.capture.values.host_results import HostResult
from lampwork.capture.values.scalar import Late, Scalar, element, is_unbacked, kind_of
from lampwork.capture.values.sizes import settled
from lampwork.capture.values.unbacked_numbers import host_number, is_early
from lampwork.capture.values.unknown_array import UnknownArray, can_follow
from lampwork.capture.values.unknown_text import unknown_text
from lampwork.ir.operations import call_method, shuffled

_FLOATS = (
    "random uniform triangular gauss normalvariate lognormvariate expovariate vonmisesvariate gammavariate betavariate "
    "paretovariate weibullvariate"
)
_INTEGERS = "getrandbits randint randrange binomialvariate _randbelow_with_getrandbits"
#: Clocks, and the class of what they give.
_CLOCKS: dict[Any, type] = {
    **dict.fromkeys((time.time, time.perf_counter, time.monotonic, time.process_time, time.thread_time), float),
    **dict.fromkeys(
        (time.time_ns, time.perf_counter_ns, time.monotonic_ns, time.process_time_ns, time.thread_time_ns), int
    ),
}
#: Methods of numpy's generators that change an argument, or hand out the generator's parts.
_NUMPY_LEFT_OUT = frozenset({"shuffle", "permuted", "spawn", "get_state", "set_state", "bytes"})
_LEGACY = numpy.random.RandomState
_LONGEST_LIST = 64


# What calls take ------------------------------------------------------------------------------------------------------


def _known_early(world: Any, value: Any) -> bool:
    """Whether an argument is there before the graph runs."""
    if is_early(value):
        return True
    return not is_unbacked(value) and world.data.is_plain_data(value) and not isinstance(value, list)


def _owner(world: Any, generator: Any) -> Any:
    """The generator as an argument of a host call."""
    if world.loader.origin(generator) is None and id(generator) not in world.loader.host_objects:
        raise Break("unknown-native", f"a {type(generator).__qualname__} of unknown origin is drawn from")
    return generator


def _refused(name: str) -> Break:
    return Break("native-argument", f"{name} is called with what is not known before the program's graph has run",
                 "Give it numbers that no tensor decides.")  # fmt: skip


def _call(world: Any, generator: Any, name: str, args: tuple, kwargs: dict[str, Any]) -> HostResult:
    """`generator.name(*args, **kwargs)` by the host."""
    args = tuple([_as_tuple(world, each) for each in args])
    if not all(_known_early(world, each) for each in (*args, *kwargs.values())):
        raise _refused(f"{type(generator).__qualname__}.{name}")
    return world.host_calls.make(call_method, (_owner(world, generator), name, *args), kwargs)


def _as_tuple(world: Any, value: Any) -> Any:
    """A list as the constant that it is."""
    if type(value) is list:
        world.touch(value)
        return tuple(value)
    return value


def _generator_made(make: Any, world: Any, *args: Any, **kwargs: Any) -> Any:
    """A generator of the program's own: one that nobody draws from stands for it."""
    if not all(_known_early(world, each) for each in (*args, *kwargs.values())):
        raise _refused(make.__qualname__)
    stand_in = make(0)
    world.loader.host_objects[id(stand_in)] = (stand_in, world.host_calls.make(make, args, kwargs, changes=False))
    return stand_in


# random ---------------------------------------------------------------------------------------------------------------


def _is_plain_random(generator: Any) -> bool:
    """Whether methods of `random.Random` draw as they do there: nothing that they call is the user's."""
    return type(generator) is random.Random


def _method_of_random(name: str, kind: type | None) -> Callable:
    method = getattr(random.Random, name)

    def answer(world: Any, generator: Any, *args: Any, **kwargs: Any) -> Any:
        if not _is_plain_random(generator):
            if type(method) is types.FunctionType:
                return Enter(method, (generator, *args), kwargs)
            raise Break("unknown-native", f"a {type(generator).__qualname__} is drawn from")
        result = _call(world, generator, name, args, kwargs)
        return None if kind is None else host_number(result, kind)

    return answer


def _of_python(method: Any, answer: Callable) -> Callable:
    """`answer(world, generator, *args, **kwargs)`, or where it gives NotImplemented, Python's own code."""

    def answered(world: Any, generator: Any, *args: Any, **kwargs: Any) -> Any:
        found = answer(world, generator, *args, **kwargs) if _is_plain_random(generator) else NotImplemented
        return Enter(method, (generator, *args), kwargs) if found is NotImplemented else found

    return answered


def _plain(world: Any, values: Any) -> Sequence[Any] | None:
    """The numbers, or texts, in a sequence that are of one class, as a constant; None for anything else."""
    if type(values) is str and values:
        return values
    if type(values) not in (list, tuple, range):
        return None
    world.touch(values)
    kinds = {int} if type(values) is range and len(values) else {type(each) for each in values}
    if len(kinds) != 1 or not kinds <= {int, float, str} or len(values) > 1 << 16:
        return None
    return values if type(values) is range else tuple(values)


def _item_of(world: Any, whole: Any, index: Any, kind: type) -> Any:
    """The number or text at `index` of what a host call gives, or of a constant."""
    if kind is str:
        return unknown_text(operator.getitem, whole, index)
    return host_number(world.host_calls.make(operator.getitem, (whole, index), changes=False), kind)


def _decided(name: str) -> Break:
    return Break("data-dependent", f"Random.{name} decides which of the objects the program goes on with",
                 "Draw outside of the compiled function, or choose among numbers.")  # fmt: skip


def _choice(world: Any, generator: Any, seq: Any) -> Any:
    values = _plain(world, seq)
    if values is None:
        raise _decided("choice")
    index = host_number(_call(world, generator, "_randbelow", (len(values),), {}), int)
    return _item_of(world, values, index, type(values[0]))


def _choices(
    world: Any, generator: Any, population: Any, weights: Any = None, *, cum_weights: Any = None, k: Any = 1
) -> Any:
    values = _plain(world, population)
    if values is None or type(k) is not int or not 0 <= k <= _LONGEST_LIST:
        raise _decided("choices")
    told = {"weights": _as_tuple(world, weights), "cum_weights": _as_tuple(world, cum_weights), "k": k}
    whole = _call(world, generator, "choices", (values,), told)
    return [_item_of(world, whole, index, type(values[0])) for index in range(k)]


def _sample(world: Any, generator: Any, population: Any, k: Any, *, counts: Any = None) -> Any:
    values = _plain(world, population)
    if values is None or counts is not None or type(k) is not int or not 0 <= k <= min(_LONGEST_LIST, len(values)):
        raise _decided("sample")
    whole = _call(world, generator, "sample", (values, k), {})
    return [_item_of(world, whole, index, type(values[0])) for index in range(k)]


def _is_early(value: Any) -> bool:
    """Whether a number or a text is there before the graph runs."""
    return is_early(value) or type(value) is str


def _shuffle(world: Any, generator: Any, x: Any) -> Any:
    if type(x) is not list:
        raise _decided("shuffle")
    world.touch(x)
    kinds = {kind_of(each) or type(each) for each in x if not is_unbacked(each) or is_early(each)}
    if len(kinds) != 1 or not kinds <= {int, float, str} or len(x) > _LONGEST_LIST or not all(map(_is_early, x)):
        raise _decided("shuffle")
    (kind,) = kinds
    whole = world.host_calls.make(shuffled, (_owner(world, generator), *x))
    order = [_item_of(world, whole, index, kind) for index in range(len(x))]
    world.machine.complete(world.set_item(x, slice(None), order))
    return None


def _get_state(world: Any, generator: Any) -> Any:
    """The state of a generator: something that may be kept and handed back, and that nobody looks into."""
    return _state_of(world, random.Random(0).getstate(), _call(world, generator, "getstate", (), {}))


def _state_of(world: Any, stand_in: Any, found: HostResult) -> Any:
    world.loader.opaque.add(id(stand_in))
    world.loader.host_objects[id(stand_in)] = stand_in, found
    return stand_in


def _set_state(world: Any, generator: Any, state: Any, name: str = "setstate") -> None:
    _, found = world.loader.host_objects.get(id(state), (None, None))
    if found is None or id(state) not in world.loader.opaque:
        raise Break("native-argument", "the state of a generator is set to what the program got from outside, or made")
    world.host_calls.make(call_method, (_owner(world, generator), name, found))


# numpy ----------------------------------------------------------------------------------------------------------------

_STAND_INS: dict[type, Callable[[], Any]] = {
    numpy.random.RandomState: lambda: numpy.random.RandomState(0),
    numpy.random.Generator: lambda: numpy.random.default_rng(0),
}


def _method_of_numpy(name: str) -> Callable:
    def answer(world: Any, generator: Any, *args: Any, **kwargs: Any) -> Any:
        make = _STAND_INS.get(type(generator))
        if make is None:
            raise Break("unknown-native", f"a {type(generator).__qualname__} is drawn from")
        args, kwargs = settled(args), settled(kwargs)
        args = tuple([_as_tuple(world, each) for each in args])
        kwargs = {key: _as_tuple(world, each) for key, each in kwargs.items()}
        if not all(map(world.data.is_plain_data, (*args, *kwargs.values()))):
            raise _refused(f"{type(generator).__qualname__}.{name}")
        with world.recorder._paused():
            example = getattr(make(), name)(*args, **kwargs)  # where it raises, the call itself does, in eager's place
        kind = type(example)
        if example is not None and kind not in (int, float, bool) and not can_follow(numpy.asarray(example)):
            raise Break("unknown-native", f"{type(generator).__qualname__}.{name} gives a {kind.__qualname__}")
        result = _call(world, generator, name, args, kwargs)
        if example is None:
            return None
        if kind in (int, float, bool):
            return host_number(result, kind)
        return UnknownArray(world.host_calls.array_input(result, numpy.asarray(example)), kind is not numpy.ndarray)

    return answer


def _get_state_of_numpy(world: Any, generator: Any, legacy: Any = True) -> Any:
    if type(generator) is not _LEGACY or type(legacy) is not bool:
        raise Break("unknown-native", f"the state of a {type(generator).__qualname__} is asked for")
    fresh = _LEGACY(0)
    stand_in = fresh.get_state(legacy=True) if legacy else fresh.get_state(legacy=False)
    return _state_of(world, stand_in, _call(world, generator, "get_state", (), {"legacy": legacy}))


def _set_state_of_numpy(world: Any, generator: Any, state: Any) -> None:
    if type(generator) is not _LEGACY:
        raise Break("unknown-native", f"the state of a {type(generator).__qualname__} is set")
    _set_state(world, generator, state, "set_state")


def _seed_numpy(seed: Any = None) -> None:
    """`numpy.random.seed`, which is written in C, for the generator that numpy starts with."""
    numpy.random.mtrand._rand.seed(seed)


# Code of lampwork is left to CPython. This is the program's.
_code = decode(_seed_numpy.__code__)
_code.hidden, _code.is_native = True, False


# Clocks ---------------------------------------------------------------------------------------------------------------


def _has_computed(world: Any) -> bool:
    """Whether the program has computed anything yet that the graph holds."""
    last = next(reversed(world.recorder.graph.nodes), None)
    return last is not None and last.op == "call_function"


def _clock(clock: Any, kind: type) -> Callable:
    def answer(world: Any) -> Scalar:
        if not _has_computed(world):
            return host_number(world.host_calls.make(clock, (), changes=False), kind)
        return _after(world, clock, (), kind)

    return answer


def _identity(function: Any) -> Callable:
    return lambda world: host_number(world.host_calls.make(function, (), changes=False), int)


def _sleep(world: Any, seconds: Any) -> None:
    if _has_computed(world) or not _known_early(world, seconds):
        _after(world, time.sleep, (seconds,), type(None))
    else:
        world.host_calls.make(time.sleep, (seconds,))


def _after(world: Any, function: Any, args: tuple, kind: type) -> Scalar:
    """What `function` gives when the graph has run, in the order of such calls."""
    number = element(Late(function, args), kind)
    world.host_calls.late.append(number)
    return number


_KINDS: tuple[tuple[type | None, str], ...] = ((float, _FLOATS), (int, _INTEGERS), (None, "seed"))
_MAKERS: tuple[Any, ...] = (random.Random, numpy.random.RandomState, numpy.random.default_rng)
NATIVES: dict[Any, Answer] = {
    **{
        getattr(random.Random, name): _method_of_random(name, kind)
        for kind, names in _KINDS
        for name in names.split()
        if hasattr(random.Random, name)
    },
    random.Random.choice: _of_python(random.Random.choice, _choice),
    random.Random.choices: _of_python(random.Random.choices, _choices),
    random.Random.sample: _of_python(random.Random.sample, _sample),
    random.Random.shuffle: _of_python(random.Random.shuffle, _shuffle),
    random.Random.getstate: _of_python(random.Random.getstate, _get_state),
    random.Random.setstate: _of_python(random.Random.setstate, _set_state),
    **{clock: _clock(clock, given) for clock, given in _CLOCKS.items()},
    time.sleep: _sleep,
    # Of who calls, never of who captures.
    **{identity: _identity(identity) for identity in (os.getpid, os.getppid, threading.get_native_id)},
    **{
        method: _method_of_numpy(name)
        for cls in (numpy.random.RandomState, numpy.random.Generator)
        for name, method in vars(cls).items()
        if callable(method) and not name.startswith("_") and name not in _NUMPY_LEFT_OUT
    },
    _LEGACY.get_state: _get_state_of_numpy,
    _LEGACY.set_state: _set_state_of_numpy,
    numpy.random.seed: lambda world, *args, **kwargs: Enter(_seed_numpy, args, kwargs),
    **{make: functools.partial(_generator_made, make) for make in _MAKERS},
}

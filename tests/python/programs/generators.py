"""Generators: made and consumed in the region, passed around, sent to, thrown at, closed, delegated to."""

from __future__ import annotations

import itertools

import torch

from tests.python.harness import program

EVENTS = []


def vector():
    return torch.arange(4.0)


def _powers(x, count):
    y = x
    for _ in range(count):
        yield y
        y = y * x


def _accumulator():
    total = 0
    while True:
        value = yield total
        if value is None:
            return total
        total = total + value


@program(vector)
def consumed_by_a_loop(x):
    total = 0
    for power in _powers(x, 3):
        total = total + power
    return total


@program(vector)
def consumed_by_builtins(x):
    return list(_powers(x, 2)), tuple(_powers(x, 1)), sum(_powers(x, 3)), dict(enumerate(_powers(x, 2)))


@program(vector)
def next_and_default(x):
    generator = _powers(x, 1)
    return next(generator), next(generator, "empty"), next(generator, None)


@program(vector)
def stop_iteration_reaches_the_caller(x):
    generator = _powers(x, 1)
    next(generator)
    try:
        next(generator)
    except StopIteration as stop:
        return x, stop.value


@program(vector)
def send_values(x):
    generator = _accumulator()
    next(generator)
    generator.send(x)
    partial = generator.send(x * 2)
    try:
        generator.send(None)
    except StopIteration as stop:
        return partial, stop.value


@program(vector)
def throw_into_a_generator(x):
    def patient():
        while True:
            try:
                yield x
            except ValueError as error:
                yield x * int(str(error))

    generator = patient()
    next(generator)
    return generator.throw(ValueError("5")), next(generator)


@program(vector)
def close_runs_finally(x):
    def careful():
        try:
            yield x
            yield x + 1
        finally:
            EVENTS.append("closed")

    generator = careful()
    value = next(generator)
    generator.close()
    return value, next(generator, "finished")


@program(vector)
def yield_from_passes_everything(x):
    def outer():
        result = yield from _accumulator()
        yield "result", result

    generator = outer()
    next(generator)
    generator.send(x)
    generator.send(x)
    return generator.send(None)


@program(vector)
def yield_from_iterables(x):
    def chain(*parts):
        for part in parts:
            yield from part

    return list(chain([x], (1, 2), "ab", range(2), {"k": 1}))


@program(vector)
def recursive_generator(x):
    def walk(tree):
        for node in tree:
            if isinstance(node, list):
                yield from walk(node)
            else:
                yield node

    return [value * 2 for value in walk([x, [1, [x + 1, 2]], 3])]


@program(vector)
def return_value_of_a_generator(x):
    def body():
        yield 1
        return x * 3

    def driver():
        value = yield from body()
        yield value

    return list(driver())


@program(vector)
def pipeline_of_generators(x):
    numbers = (x + i for i in range(5))
    scaled = (y * 2 for y in numbers)
    kept = (y for index, y in enumerate(scaled) if index % 2 == 0)
    return list(kept)


@program(vector)
def laziness_is_kept(x):
    order = []

    def produce():
        for i in range(3):
            order.append(("made", i))
            yield i

    for value in produce():
        order.append(("used", value))
    return x, order


@program(vector)
def generator_passed_to_a_function(x):
    def take(source, count):
        return [next(source) for _ in range(count)]

    source = _powers(x, 10)
    return take(source, 2), take(source, 1)


@program(vector)
def infinite_generator_with_islice(x):
    def naturals():
        n = 0
        while True:
            yield n
            n += 1

    return [x * n for n in itertools.islice(naturals(), 2, 6, 2)]


@program(vector)
def generator_in_unpacking(x):
    a, b, *rest = _powers(x, 4)
    return a, b, rest, [*_powers(x, 2)], max(*(i for i in (1, 5, 2)))


@program(vector)
def generator_method_and_state(x):
    class Bag:
        def __init__(self, *items):
            self.items = items
            self.visits = 0

        def __iter__(self):
            for item in self.items:
                self.visits += 1
                yield item

    bag = Bag(x, x + 1)
    return sum(bag), list(bag), bag.visits, [a + b for a, b in zip(bag, bag)]


@program(vector)
def exception_inside_a_generator(x):
    def failing():
        yield x
        raise KeyError("inside")

    seen = []
    try:
        for value in failing():
            seen.append(value)
    except KeyError as error:
        return seen, error.args


@program(vector)
def generator_with_context_inside(x):
    def guarded():
        with torch.no_grad():
            yield x * 2
            yield torch.is_grad_enabled()

    return list(guarded())


@program(vector, lambda: (i * i for i in range(5)))
def generator_argument_is_advanced(x, squares):
    next(squares)
    return x * next(squares)


@program(vector, lambda: _powers(torch.ones(4), 3))
def tensor_generator_argument_is_drained(x, powers):
    total = x
    for power in powers:
        total = total + power
    return total


@program(vector)
def generator_returned(x):
    generator = _powers(x, 3)
    next(generator)
    return generator


@program(vector)
def generator_left_unfinished(x):
    def body():
        try:
            yield x
        finally:
            EVENTS.append("dropped")

    for value in body():
        return value * 2


@program(vector)
def zip_of_generators_of_unequal_length(x):
    short, long = _powers(x, 2), _powers(x, 4)
    return list(zip(short, long)), len(list(long))

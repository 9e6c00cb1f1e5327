"""Numbers that the host gives anew on each call: drawn in eager's order, once, from what the call finds."""

from __future__ import annotations

import math
import random
import time

import numpy as np
import pytest
import torch

import lampwork
from tests.python.warm import run_cold_and_warm


def compiled(function):
    return lampwork.compile(function, options={"cache": False})


def both(function, *calls, state=lambda: random.getstate()):
    """Calls `function` on each of `calls` (makers of arguments) eagerly and compiled, from the same states."""
    found = []
    for each in (function, compiled(function)):
        random.seed(1)
        np.random.seed(1)
        torch.manual_seed(1)
        results = []
        for make in calls:
            try:
                results.append(each(*make()))
            except Exception as error:
                results.append((type(error), str(error)))
        found.append((results, state(), np.random.get_state()[1:3]))
    (expected, state_of_eager, numpy_of_eager), (results, state_found, numpy_found) = found
    same(results, expected)
    assert state_found == state_of_eager
    assert (numpy_found[0] == numpy_of_eager[0]).all() and numpy_found[1] == numpy_of_eager[1]
    return each


def same(found, expected):
    """Tensors are close, all else is equal."""
    assert type(found) is type(expected)
    if isinstance(found, (list, tuple)):
        assert len(found) == len(expected)
        for pair in zip(found, expected):
            same(*pair)
    elif isinstance(found, torch.Tensor):
        torch.testing.assert_close(found, expected)
    elif isinstance(found, np.ndarray):
        np.testing.assert_array_equal(found, expected)
    else:
        assert found == expected


def x():
    return torch.arange(1.0, 5.0)


def one_entry(function, calls):
    stats = lampwork.stats(function)
    assert stats["captures"] == 1 and not stats["breaks"] and not stats["fallbacks"]
    assert stats["calls"] == calls if "calls" in stats else True


def test_one_entry_draws_anew_on_each_call():
    def f(x):
        first, second = random.random(), random.randint(1, 6)
        return x * first, x + second, math.sqrt(first) * second, np.random.rand() * x

    one_entry(both(f, *[lambda: (x(),)] * 4), 4)


def test_a_call_that_runs_eagerly_draws_once():
    def f(x):
        scale = random.random() + float(np.random.rand())
        if not (x > 0).all():
            raise ValueError("negative")
        return x * scale

    both(f, lambda: (x(),), lambda: (-x(),), lambda: (x(),))


def test_a_number_out_of_a_tensor_that_fails_draws_once():
    def f(x):
        scale = random.gauss(0, 1)
        try:
            root = math.sqrt(x.sum().item())
        except ValueError:
            root = 0.0
        return x * scale, root

    both(f, lambda: (x(),), lambda: (-x(),), lambda: (x(),))


def test_a_host_call_that_fails_is_eagers():
    def f(x, n):
        first = random.random()
        return x * first + random.randint(1, n)

    both(f, lambda: (x(), 5), lambda: (x(), 0), lambda: (x(), 6))


def test_division_by_a_drawn_zero():
    def f(x):
        return x + 1 / random.randint(0, 1)

    both(f, *[lambda: (x(),)] * 8)


def test_integers_that_no_tensor_holds():
    def f(x):
        return x.long() + random.getrandbits(80), random.getrandbits(80)

    both(f, *[lambda: (x(),)] * 3)


class Loaded(random.Random):
    def random(self):
        return 0.25


def test_another_generator():
    def f(x, generator):
        return x * generator.random(), generator.uniform(1, 2), generator.randint(1, 9)

    makers = [lambda: (x(), random.Random(3)), lambda: (x(), random.Random(4)), lambda: (x(), Loaded(5))]
    both(f, *makers, makers[0], lambda: (x(), random.SystemRandom.__new__(Loaded)))


def test_one_generator_in_two_arguments():
    def f(x, first, second):
        return x * first.random(), second.random(), first.random()

    def shared():
        generator = random.Random(3)
        return x(), generator, generator

    both(
        f, lambda: (x(), random.Random(3), random.Random(3)), shared, lambda: (x(), random.Random(3), random.Random(4))
    )


def test_generators_of_numpy():
    def f(x, generator):
        array = generator.normal(size=4)
        return x + torch.from_numpy(array), array, generator.integers(5), generator.random()

    both(f, lambda: (x(), np.random.default_rng(1)), lambda: (x(), np.random.default_rng(2)))


def test_functions_replaced(monkeypatch):
    def f(x):
        return x * random.random() + np.random.rand(), time.time() > 0

    made = compiled(f)
    made(x())
    monkeypatch.setattr(random, "random", lambda: 0.5)
    monkeypatch.setattr(np.random, "rand", lambda: 1.0)
    monkeypatch.setattr(time, "time", lambda: -1.0)
    torch.testing.assert_close(made(x()), (x() * 0.5 + 1, False))


def test_a_method_of_numpy_replaced_by_another(monkeypatch):
    def f(x):
        return x * np.random.rand()

    made = compiled(f)
    made(x())
    monkeypatch.setattr(np.random, "rand", np.random.standard_exponential)
    np.random.seed(3)
    found = made(x())
    np.random.seed(3)
    torch.testing.assert_close(found, f(x()))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.int64])
def test_types(dtype):
    def f(x):
        number, count = random.uniform(0.5, 2), random.randint(1, 5)
        return x * number, number / x, x + count, x - number, x // count

    both(f, *[lambda: (x().to(dtype),)] * 3)


def test_numbers_stored_among_tensors():
    def f(x):
        number = random.random()
        return torch.full((2,), number), torch.tensor([number, 1.0]), torch.clamp(x, max=number + 2), f"{number:.6f}"

    both(f, *[lambda: (x(),)] * 3)


def test_gradients():
    def f(x):
        x = x.clone().requires_grad_()
        y = (x * random.random()).exp().sum()
        return torch.autograd.grad(y, x)

    both(f, *[lambda: (x(),)] * 3)


def test_lists_in_a_drawn_order():
    def f(x, order):
        random.shuffle(order)
        return x * order[0], random.sample(range(9), 2), random.choices([1.5, 2.5], weights=[1, 3], k=2), order

    both(f, *[lambda: (x(), [1, 2, 3])] * 3, lambda: (x(), [5, 6, 7]))


def test_what_lies_between_two_clocks():
    def f(x):
        start = time.perf_counter()
        for _ in range(20):
            x = x @ x / x.norm()
        return x, time.perf_counter() - start

    made = compiled(f)
    made(torch.rand(300, 300))
    begin = time.perf_counter()
    taken = made(torch.rand(300, 300))[1]
    whole = time.perf_counter() - begin
    assert whole / 2 < taken < whole


def test_stored_entries(tmp_path):
    text = """
import random, sys, time
import numpy as np, torch, lampwork

@lampwork.compile
def f(x, generator):
    start = time.monotonic()
    scale = random.random() + generator.uniform(0, 1) + np.random.rand()
    noise = torch.from_numpy(np.random.randn(4))
    return x * scale + noise, random.randint(0, 99), time.monotonic() >= start

random.seed(3)
np.random.seed(3)
for _ in range(3):
    print(f(torch.ones(4), random.Random(5)))
print(random.random(), np.random.rand())
print(len(lampwork.stats(f)["breaks"]))
print(lampwork.stats(f)["cache_hits"])
"""
    cold, warm = run_cold_and_warm(tmp_path, text)
    assert cold[:-1] == warm[:-1]
    assert (cold[-1], warm[-1]) == ("0", "1")


def drawn_by_torch(generator):
    generator.manual_seed(generator.initial_seed() + 1)
    state = generator.get_state()
    first = torch.randn(2, 3, generator=generator), torch.randint(2, 9, (4,), generator=generator)
    second = torch.rand((3,), generator=generator, dtype=torch.float64), torch.randperm(5, generator=generator)
    filled = (
        torch.empty(4).bernoulli_(0.3, generator=generator),
        torch.ones(2, 2).normal_(1, std=2, generator=generator),
    )
    generator.set_state(state)
    return *first, *second, *filled, torch.normal(0.0, 2.0, (3,), generator=generator)


def test_generators_of_torch():
    def f(x, generator):
        return x + 1, drawn_by_torch(generator)

    made = compiled(f)
    for seed in (3, 4, 3):
        ours, eagers = torch.Generator().manual_seed(seed), torch.Generator().manual_seed(seed)
        for _ in range(2):
            same(made(x(), ours), f(x(), eagers))
            same(ours.get_state(), eagers.get_state())
    one_entry(made, 6)


def test_generators_of_torch_made_inside():
    def f(x):
        generator = torch.Generator()
        return x + 1, drawn_by_torch(generator), generator.initial_seed()

    one_entry(both(f, *[lambda: (x(),)] * 3), 3)


def test_the_default_generator_in_place_of_another():
    def f(x, generator):
        return x + torch.rand(4), torch.randn(4, generator=generator), torch.rand(4)

    makers = [lambda: (x(), torch.Generator().manual_seed(3)), lambda: (x(), torch.default_generator)]
    both(f, *makers, makers[0])
    both(f, *reversed(makers))


def test_a_generator_of_torch_and_a_failing_check():
    def f(x, generator):
        noise = torch.randn(4, generator=generator)
        if not (x > 0).all():
            raise ValueError("negative")
        return x + noise

    made = compiled(f)
    ours, eagers = torch.Generator().manual_seed(3), torch.Generator().manual_seed(3)
    for sign in (1, -1, 1):
        found = []
        for function, generator in ((made, ours), (f, eagers)):
            try:
                found.append(function(x() * sign, generator))
            except ValueError as error:
                found.append(str(error))
        same(*found)
        same(ours.get_state(), eagers.get_state())


def test_what_is_drawn_is_written_to():
    def f(x, generator):
        noise = torch.randn(4, generator=generator)
        noise += x
        array = np.random.rand(4)
        array *= 2
        return noise, array, noise.relu_()

    made = compiled(f)
    found = []
    for function in (made, f):
        generator = torch.Generator().manual_seed(3)
        np.random.seed(1)
        found.append([function(x(), generator) for _ in range(3)])
    same(*found)


def test_draws_of_sizes_that_vary():
    def f(x, generator):
        return x + torch.randn(x.shape[0], 2, generator=generator), torch.rand(x.size(), generator=generator)

    made = compiled(f)
    ours, eagers = torch.Generator().manual_seed(3), torch.Generator().manual_seed(3)
    for size in (3, 4, 5, 6, 7):
        same(made(torch.ones(size, 2), ours), f(torch.ones(size, 2), eagers))
    assert lampwork.stats(made)["captures"] <= 3 and not lampwork.stats(made)["breaks"]


def test_texts_in_a_drawn_order():
    def f(x, names):
        random.shuffle(names)
        return x + 1, random.choice("abc"), random.sample(["a", "b", "c"], 2), names, f"<{random.choice('xy')}>"

    one_entry(both(f, *[lambda: (x(), ["d", "e", "f"])] * 4), 4)


def test_a_drawn_text_decides():
    def f(x):
        return x * 2 if random.choice(["double", "same"]) == "double" else x

    both(f, *[lambda: (x(),)] * 6)

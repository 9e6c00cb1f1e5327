"""Random numbers, clocks and names that the host gives anew on each call: `random`, `numpy.random`, `time`, `os`."""

from __future__ import annotations

import datetime
import os
import random
import time
import uuid

import numpy as np
import torch
import torch.nn.functional as F

from tests.python.harness import program
from tests.python.tensors import values

OWN = random.Random(5)
ENTRIES = []


def _x():
    return values(3, 4)


@program(_x)
def scaled_by_a_random_number(x):
    scale = 0.5 + random.random()
    return x * scale, scale


@program(_x)
def number_drawn_and_only_returned(x):
    first, second = random.random(), random.random()
    return x + 1, first, second, first - second


@program(_x)
def noise_of_a_drawn_size(x):
    sigma = random.uniform(0.1, 0.5)
    return x + sigma * x.sin(), sigma


@program(_x, lambda: random.Random(3))
def generator_object_as_argument(x, generator):
    return x * generator.random(), generator.randint(0, 9), generator.gauss(0, 1)


@program(_x)
def generator_object_of_the_module(x):
    return x * OWN.uniform(-1, 1), OWN.getrandbits(16)


@program(_x)
def integers_drawn(x):
    index, count = random.randint(0, 7), random.randrange(10)
    ENTRIES.append(index)
    return x + index, index * count, random.randrange(2, 20, 3)


@program(_x)
def bits_drawn(x):
    return x, random.getrandbits(8), random.getrandbits(100)


@program(_x)
def chosen_among_numbers(x):
    return x * random.choice([0.5, 1.0, 2.0]), random.choice((1, 2, 3)), random.choice("abc")


@program(_x)
def order_shuffled(x):
    order = list(range(5))
    random.shuffle(order)
    return x, order


@program(_x)
def sample_taken(x):
    return x, random.sample(range(100), 3), random.choices([1, 2, 3], k=2)


@program(_x)
def numbers_of_distributions(x):
    return x + random.gauss(0.0, 1.0), random.normalvariate(1, 2), random.expovariate(1.5), random.betavariate(1, 2)


@program(_x)
def seeded_inside_of_the_program(x):
    random.seed(7)
    return x * random.random(), random.random()


@program(_x)
def state_taken_and_put_back(x):
    state = random.getstate()
    first = random.random()
    random.setstate(state)
    return x * first, first - random.random()


@program(_x)
def generator_made_and_seeded(x):
    generator = random.Random(11)
    return x + generator.random(), generator.randint(1, 6)


@program(_x)
def cutout_at_a_drawn_place(x):
    left = random.randint(0, 2)
    return x[:, left : left + 2] * 2


@program(_x)
def mixed_by_a_drawn_weight(x):
    weight = random.betavariate(0.4, 0.4)
    mixed = weight * x + (1 - weight) * x.flip(0)
    return mixed, weight, max(weight, 1 - weight)


@program(_x)
def jitter_for_each_row(x):
    rows = [row * random.uniform(0.9, 1.1) for row in x]
    return torch.stack(rows)


@program(_x, grad=True)
def drawn_weight_and_its_gradient(x):
    x = x.clone().requires_grad_()
    loss = (x * random.random()).square().sum()
    loss.backward()
    return x.grad, loss.detach()


@program(_x)
def layer_dropped_by_chance(x):
    if random.random() < 0.5:
        return x
    return x.relu() * 2


@program(_x)
def random_of_numpy_scales(x):
    return x * float(np.random.rand()), np.random.randint(5), np.random.uniform(0, 1)


@program(_x)
def arrays_of_numpy_drawn(x):
    noise = torch.from_numpy(np.random.randn(3, 4))
    return x + noise.float(), np.random.permutation(4)


@program(_x, lambda: np.random.default_rng(3))
def generator_of_numpy(x, generator):
    return x * generator.random(), generator.integers(0, 10), torch.from_numpy(generator.standard_normal((3, 4))) + x


@program(_x)
def beta_of_numpy_mixes(x):
    lam = np.random.beta(1.0, 1.0)
    return lam * x + (1 - lam) * x.flip(0)


@program(_x)
def timed_by_a_clock(x):
    start = time.perf_counter()
    y = (x @ x.T).relu()
    taken = time.perf_counter() - start
    return y, taken >= 0


@program(_x)
def three_clocks_in_order(x):
    first = time.monotonic()
    y = x * 2
    second = time.monotonic()
    z = y.exp()
    return z, second - first >= 0, time.monotonic() - second >= 0


@program(_x)
def stamped_with_the_time(x):
    stamp = time.time()
    ENTRIES.append(stamp > 1.6e9)
    return x + 1, isinstance(stamp, float), time.time_ns() > 0, time.process_time() >= 0


@program(_x)
def slept_between(x):
    start = time.monotonic()
    time.sleep(0.002)
    return x + 1, time.monotonic() - start >= 0.002


@program(_x)
def times_kept_in_a_table(x):
    table = {}
    for name in ("first", "second"):
        begin = time.perf_counter()
        x = x * 2
        table[name] = time.perf_counter() - begin
    return x, sorted(table), [each >= 0 for each in table.values()]


@program(_x)
def folder_named(x):
    return x + 1, os.getcwd(), os.path.join(os.getcwd(), "x.pt"), os.getpid()


@program(_x)
def environment_read(x):
    return x * int(os.environ.get("LAMPWORK_TEST_FACTOR", "2")), os.getenv("HOME")


@program(_x)
def identifier_made(x):
    name = uuid.uuid4()
    return x + 1, len(str(name))


@program(_x)
def date_noted(x):
    now = datetime.datetime.now()
    return x + 1, now.year > 2000


@program(_x)
def module_imported_by_name(x):
    module = __import__("datetime")
    return x + 1, module.date(2020, 1, 2).year, module.timedelta(seconds=3).total_seconds()


@program(_x, lambda: torch.Generator().manual_seed(3))
def torch_generator_in_many_draws(x, generator):
    first = torch.rand(3, 4, generator=generator)
    second = torch.randint(0, 5, (3,), generator=generator)
    order = torch.randperm(3, generator=generator)
    return x[order] + first + second[:, None]


@program(_x)
def torch_generator_made_and_read(x):
    generator = torch.Generator()
    generator.manual_seed(3)
    state = generator.get_state()
    first = torch.randn(3, 4, generator=generator)
    generator.set_state(state)
    return x + first, torch.randn(3, 4, generator=generator), generator.initial_seed()


@program(_x, lambda: torch.Generator().manual_seed(3))
def torch_generator_dropout(x, generator):
    mask = torch.empty_like(x).bernoulli_(0.5, generator=generator)
    noise = torch.empty_like(x).normal_(generator=generator)
    return x * mask + noise, F.relu(x)


@program(_x)
def seeds_read(x):
    return x + 1, torch.initial_seed(), torch.get_rng_state().shape

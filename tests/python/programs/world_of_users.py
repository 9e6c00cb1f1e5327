"""What lies outside of a program: globals that change, iterators, queues, threads, coroutines, clocks, logs, environments."""

from __future__ import annotations

import asyncio
import collections
import contextvars
import copy
import gc
import itertools
import json
import logging
import os
import pickle
import random
import sys
import threading
import types
import weakref

import torch
import torch.nn.functional as F
from torch import nn

from tests.python.harness import program
from tests.python.tensors import frozen, seeded, values

PLAIN = [lambda: (values(3),), lambda: (values(4, seed=1),), lambda: (values(3, seed=2),)]
ROWS = [lambda: (values(2, 3),), lambda: (values(4, 3, seed=1),), lambda: (values(2, 3, seed=2),)]

SCALE = 1.0
PHASE = "start"
TABLE = {"a": 1.0}
LIMITS = [0.0, 1.0]
log = logging.getLogger("users.program")


@program(
    calls=[
        lambda: (values(3), "start"),
        lambda: (values(3), "end"),
        lambda: (values(3), "start"),
        lambda: (values(3), "other"),
    ]
)
def phases_of_a_global(x, following):
    global PHASE, SCALE
    if PHASE == "start":
        SCALE = SCALE * 2
    elif PHASE == "end":
        SCALE = 1.0
    PHASE = following
    return x * SCALE, PHASE


@program(
    calls=[
        lambda: (values(3), "b", 2.0),
        lambda: (values(3), "a", 5.0),
        lambda: (values(3), "b", None),
        lambda: (values(3), "c", 1),
    ]
)
def table_of_a_global(x, key, value):
    if value is None:
        TABLE.pop(key)
    else:
        TABLE[key] = value
    LIMITS[1] = max(TABLE.values())
    return x.clamp(*LIMITS), sorted(TABLE), sum(TABLE.values())


FEED = itertools.cycle([1.0, 2.0, 3.0])


@program(calls=PLAIN)
def factors_from_a_cycle(x):
    return x * next(FEED) + next(FEED)


STEPS = itertools.count(10, 5)


@program(calls=PLAIN)
def steps_from_a_count(x):
    step = next(STEPS)
    return x * step, step, x + next(STEPS)


ROUND = [itertools.cycle("ab"), 0]


@program(calls=[lambda: (values(3),)] * 5)
def names_from_a_cycle(x):
    name = next(ROUND[0])
    ROUND[1] += 1
    return {name: x * ROUND[1]}, name == "a"


@program(
    calls=[
        lambda: (values(3), itertools.cycle([1, 2])),
        lambda: (values(3), itertools.cycle((3,))),
        lambda: (values(3), itertools.cycle([1, 2, 3])),
    ]
)
def cycle_as_an_argument(x, factors):
    return [x * f for _, f in zip(range(4), factors)]


def _source():
    for i in itertools.count():
        yield torch.full((3,), float(i))


SOURCE = _source()


@program(calls=PLAIN)
def batches_from_a_generator(x):
    batch = next(SOURCE)
    return batch.sum() + x, batch


PAIRS = zip([1.0, 2.0, 3.0, 4.0, 5.0, 6.0], "abcdef")


@program(calls=PLAIN)
def pairs_from_a_zip(x):
    number, letter = next(PAIRS, (0.0, "z"))
    return x * number, letter


SQUARES = map(lambda v: v * v, [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0])


@program(calls=PLAIN)
def squares_from_a_map(x):
    return x * next(SQUARES)


INBOX: collections.deque = collections.deque([1, 2, 3])


@program(calls=PLAIN)
def queue_consumed(x):
    if INBOX:
        x = x * INBOX.popleft()
    INBOX.appendleft(len(x))
    INBOX.rotate(1)
    return x, list(INBOX)


class Key:
    def __init__(self, *parts):
        self.parts = parts

    def __hash__(self):
        return hash(self.parts) % 7

    def __eq__(self, other):
        return type(other) is Key and self.parts == other.parts

    def __repr__(self):
        return f"Key{self.parts}"


BY_KEY = {Key("w"): 2.0, Key("b", 1): 0.5}


@program(
    calls=[lambda: (values(3), "w"), lambda: (values(3), "b", 1), lambda: (values(3), "new"), lambda: (values(3), "w")]
)
def keys_of_users_looked_up(x, *parts):
    key = Key(*parts)
    factor = BY_KEY.get(key, 1.0)
    if key not in BY_KEY:
        BY_KEY[key] = 3.0
    return x * factor, len(BY_KEY), list(BY_KEY)[-1].parts


@program(
    calls=[
        lambda: (values(3), {Key(1): values(3), Key(2): 2.0}),
        lambda: (values(3), {Key(2): 4.0}),
        lambda: (values(3), {}),
    ]
)
def keys_of_users_in_an_argument(x, table):
    total = x
    for key, value in table.items():
        total = total + value * key.parts[0]
    table[Key(3)] = total
    return total, table.pop(Key(2), None), Key(1) in table


VISITED: set = set()


@program(calls=[lambda: (values(3), 1), lambda: (values(3), 2), lambda: (values(3), 1)])
def set_of_keys_of_users(x, n):
    seen = Key(n) in VISITED
    VISITED.add(Key(n))
    return x * n, seen, len(VISITED)


@program(calls=PLAIN)
def generator_of_python_saved(x):
    before = random.getstate()
    noise = random.gauss(0, 1)
    random.setstate(before)
    return x + noise, random.gauss(0, 1) == noise, random.choice(["a", "b"])


OWN = random.Random(3)


@program(calls=PLAIN)
def generator_of_a_user(x):
    picks = OWN.sample(range(10), 2)
    OWN.shuffle(picks)
    return x * OWN.uniform(1, 2), picks, OWN.getrandbits(8)


@program(calls=PLAIN)
def generator_of_torch_saved(x):
    state = torch.get_rng_state()
    a = torch.rand_like(x)
    torch.set_rng_state(state)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(4)
        c = torch.randn(2)
    return a, torch.rand_like(x), c


REQUEST: contextvars.ContextVar = contextvars.ContextVar("request", default="none")


@program(calls=[lambda: (values(3), "a"), lambda: (values(3), None), lambda: (values(3), "b")])
def variable_of_a_context(x, name):
    token = REQUEST.set(name) if name else None
    try:
        return x * len(REQUEST.get()), REQUEST.get()
    finally:
        if token is not None:
            REQUEST.reset(token)


LOCAL = threading.local()


@program(calls=PLAIN)
def state_of_a_thread(x):
    LOCAL.count = getattr(LOCAL, "count", 0) + 1
    return x * LOCAL.count


LOCK = threading.RLock()
SHARED = {"n": 0}


@program(calls=PLAIN)
def counted_under_a_lock(x):
    with LOCK:
        SHARED["n"] += 1
        n = SHARED["n"]
    return x + n


@program(calls=PLAIN)
def work_in_a_thread(x):
    found = []

    def work():
        found.append(x * 2)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    return found[0] + 1


async def _double(x, depth):
    if depth:
        return await _double(x * 2, depth - 1)
    return x


@program(calls=[lambda: (values(3), 0), lambda: (values(3), 2), lambda: (values(3), 1)])
def coroutines_awaited_by_hand(x, depth):
    async def main():
        first = await _double(x, depth)
        parts = [await _double(row, 1) for row in first]
        return torch.stack(parts)

    coroutine = main()
    try:
        coroutine.send(None)
    except StopIteration as stop:
        return stop.value
    return None


@program(calls=PLAIN)
def event_loop_run(x):
    async def work(n):
        await asyncio.sleep(0)
        return x * n

    async def main():
        return await asyncio.gather(work(1), work(2))

    return asyncio.run(main())


CACHE: weakref.WeakValueDictionary = weakref.WeakValueDictionary()


class Entry:
    def __init__(self, value):
        self.value = value


KEPT_ENTRIES: list = []


@program(calls=[lambda: (values(3), "a"), lambda: (values(3), "b"), lambda: (values(3), "a")])
def cache_of_weak_values(x, name):
    entry = CACHE.get(name)
    if entry is None:
        entry = CACHE[name] = Entry(x * 2)
        KEPT_ENTRIES.append(entry)
    return entry.value + 1, sorted(CACHE)


OWNERS: weakref.WeakKeyDictionary = weakref.WeakKeyDictionary()
OWNER = frozen(lambda: nn.Linear(3, 3))


@program(calls=ROWS)
def modules_as_weak_keys(x):
    OWNERS[OWNER] = OWNERS.get(OWNER, 0) + 1
    return OWNER(x), OWNERS[OWNER], len(OWNERS)


class Resource:
    closed: list = []

    def __init__(self, name):
        self.name = name

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        self.closed.append((self.name, exc[0].__name__ if exc[0] else None))


@program(calls=[lambda: (values(3), 2), lambda: (values(3), 5), lambda: (values(3), 0)])
def resources_closed_in_order(x, place):
    with Resource("a"), Resource("b"):
        picked = x[place]
    return picked * 2, len(Resource.closed)


@program(calls=[lambda: (values(3), "1"), lambda: (values(3), None), lambda: (values(3), "0")])
def environment_of_the_process(x, value):
    before = os.environ.get("USERS_FLAG")
    if value is None:
        os.environ.pop("USERS_FLAG", None)
    else:
        os.environ["USERS_FLAG"] = value
    try:
        return x * (2 if os.environ.get("USERS_FLAG", "0") == "1" else 3), before
    finally:
        os.environ.pop("USERS_FLAG", None)


@program(calls=[lambda: (values(3), 10), lambda: (values(3), 30), lambda: (values(3), 20)])
def logged_by_level(x, level):
    log.setLevel(level)
    log.info("rows %d of %s", len(x), "x")
    if log.isEnabledFor(logging.WARNING):
        log.warning("level %s", logging.getLevelName(level), extra={"rows": 1})
    log.debug("never %s", x.shape)
    return x + level


@program(calls=PLAIN)
def module_of_the_system_read(x):
    return (
        x + len(sys.argv) * 0,
        sys.byteorder,
        sys.maxsize > 2**31,
        sys.version_info >= (3, 11),
        "torch" in sys.modules,
        gc.isenabled(),
    )


@program(calls=ROWS)
def module_pickled_and_back(x):
    model = pickle.loads(pickle.dumps(OWNER))
    return model(x) - OWNER(x), type(model).__name__


@program(calls=PLAIN)
def tensor_pickled(x):
    back = pickle.loads(pickle.dumps({"x": x, "n": 1}))
    return back["x"] + back["n"]


@program(calls=PLAIN)
def history_in_json(x):
    record = {"rows": len(x), "mean": round(float(x.mean()), 3)}
    return json.dumps(record), x * 2


MODEL = seeded(lambda: nn.Sequential(nn.Linear(3, 3), nn.ReLU()))


@program(calls=[lambda: (values(2, 3), False), lambda: (values(2, 3), True), lambda: (values(2, 3), False)])
def models_copied_deeply(x, change):
    twin = copy.deepcopy(MODEL)
    if change:
        twin[0].weight.data.mul_(2)
    return twin(x) - MODEL(x), twin[0].weight is MODEL[0].weight, [type(m).__name__ for m in twin.modules()]


@program(
    calls=[lambda: (values(2, 3), nn.ReLU()), lambda: (values(2, 3), nn.Tanh()), lambda: (values(2, 3), nn.Identity())]
)
def layer_replaced_by_the_caller(x, layer):
    MODEL[1] = layer
    return MODEL(x).detach()


@torch.jit.script
def scripted_loop(x: torch.Tensor, n: int) -> torch.Tensor:
    for i in range(n):
        if bool(x.sum() > 100):
            x = x / 2
        x = x + i
    return x


@program(calls=[lambda: (values(3), 2), lambda: (values(3), 0), lambda: (values(3), 3)])
def scripted_part(x, n):
    return scripted_loop(x * 2, n).relu()


SCRIPTED = torch.jit.script(frozen(lambda: nn.Sequential(nn.Linear(3, 2), nn.Sigmoid())))


@program(calls=ROWS)
def scripted_module_called(x):
    return SCRIPTED(x + 1) * 2


class Tagged(torch.Tensor):
    @classmethod
    def __torch_function__(cls, function, kinds, args=(), kwargs=None):
        result = super().__torch_function__(function, kinds, args, kwargs or {})
        if isinstance(result, Tagged):
            result.tag = next((a.tag for a in args if isinstance(a, Tagged) and hasattr(a, "tag")), "none")
        return result


@program(calls=PLAIN)
def subclass_carries_a_tag(x):
    t = x.as_subclass(Tagged)
    t.tag = "in"
    y = t * 2 + 1
    return type(y).__name__, y.tag, y.as_subclass(torch.Tensor)


class Meters:
    """Overloads functions of torch without being a tensor."""

    def __init__(self, value):
        self.value = value

    @classmethod
    def __torch_function__(cls, function, kinds, args=(), kwargs=None):
        plain = [a.value if isinstance(a, Meters) else a for a in args]
        return Meters(function(*plain, **(kwargs or {})))


@program(calls=PLAIN)
def object_overloads_functions(x):
    return torch.add(Meters(x), x).value, torch.sum(Meters(x)).value


class Loud(torch.overrides.TorchFunctionMode):
    def __init__(self):
        super().__init__()
        self.names = []

    def __torch_function__(self, function, kinds, args=(), kwargs=None):
        self.names.append(getattr(function, "__name__", "?"))
        return function(*args, **(kwargs or {}))


@program(calls=PLAIN)
def function_mode_of_a_user(x):
    with Loud() as mode:
        y = torch.relu(x) + 1
    return y, mode.names


@program(calls=[lambda: (values(3), 2), lambda: (values(3), 3), lambda: (values(3), 2)])
def class_made_by_type(x, n):
    made = type("Made", (), {"factor": n, "run": lambda self, v: v * self.factor})
    return made().run(x), made.__name__


@program(calls=[lambda: (values(3), "2 * x"), lambda: (values(3), "x + n"), lambda: (values(3), "oops")])
def expressions_evaluated(x, text):
    try:
        return eval(text, {"x": x, "n": 3})
    except NameError as error:
        return str(error)


@program(calls=[lambda: (values(3), "def f(v):\n    return v * 3"), lambda: (values(3), "f = abs")])
def source_executed(x, source):
    space: dict = {}
    exec(source, space)
    return space["f"](x)


@program(calls=PLAIN)
def module_made_at_run_time(x):
    module = types.ModuleType("made")
    module.scale = 2
    module.run = lambda v: v * module.scale
    return module.run(x), module.__name__, hasattr(module, "missing")


@program(calls=[lambda: (values(3), 3), lambda: (values(3), 20), lambda: (values(3), 1)])
def recursion_over_depth(x, depth):
    def descend(value, left):
        return value if left == 0 else descend(value * 0.9 + left, left - 1)

    return descend(x, depth)


BIG: list = []


@program(calls=[lambda: (values(3), i) for i in range(5)])
def list_that_grows(x, n):
    BIG.append(x * n)
    return sum(BIG), len(BIG)


@program(
    calls=[
        lambda: (values(2, 3), None),
        lambda: (values(2, 3), values(3)),
        lambda: (values(2, 3), 2.0),
        lambda: (values(2, 3), None),
    ]
)
def optional_argument(x, bias=None, *, act=F.relu):
    if bias is None:
        return act(x)
    return act(x + bias)


@program(
    calls=[
        lambda: ({"x": values(2), "y": values(2, seed=1)},),
        lambda: ({"y": values(2, seed=1), "x": values(2)},),
        lambda: ({"x": values(3), "y": 1.0, "z": None},),
    ]
)
def keywords_in_any_order(options):
    def run(*, y, x, **rest):
        return x - y, list(rest), x * 2

    return run(**options), list(options)

"""`torch.cond`, `while_loop`, `scan`, `associative_scan` and `map`: one graph, with the results of what each stands for.

Expected is what the functions mean in Python, or, where that is the question, what PyTorch's own do in eager.
"""

from __future__ import annotations

import random
from types import SimpleNamespace

import pytest
import torch
from torch import nn
from torch._higher_order_ops import associative_scan, scan
from torch._higher_order_ops import map as map_rows
from torch._higher_order_ops.while_loop import while_loop
from torch.testing._internal.hop_db import hop_db
from torch.utils._pytree import tree_flatten, tree_map, tree_unflatten

import lampwork
from lampwork.capture.capture import capture
from lampwork.config import Settings, environment
from lampwork.graph.prepare import prepare
from lampwork.runtime.graphs.cuda_graphs import why_not
from tests.cuda_stand_in import cuda_stand_in
from tests.python.warm import run_cold_and_warm


def _row(tree, index, dim=0):
    return tree_map(lambda each: each.select(dim, index), tree)


def _stacked(rows, dim=0):
    flat = [tree_flatten(each) for each in rows]
    return tree_unflatten(
        [torch.stack(each).movedim(0, dim) for each in zip(*[leaves for leaves, _ in flat])], flat[0][1]
    )


def _scan(combine, init, xs, *, dim=0, reverse=False):
    length = tree_flatten(xs)[0][0].size(dim)
    carried, rows = init, []
    for index in reversed(range(length)) if reverse else range(length):
        carried, made = combine(carried, _row(xs, index, dim))
        rows.append(made)
    return carried, _stacked(rows[::-1] if reverse else rows, dim)


def _while_loop(test, body, carried):
    while test(*carried):
        carried = body(*carried)
    return carried


MEANT = SimpleNamespace(
    cond=lambda pred, yes, no, operands=(): yes(*operands) if pred else no(*operands),
    while_loop=_while_loop,
    scan=_scan,
    map=lambda f, xs, *args: _stacked([f(_row(xs, index), *args) for index in range(tree_flatten(xs)[0][0].size(0))]),
)
TORCH = SimpleNamespace(cond=torch.cond, while_loop=while_loop, scan=scan, map=map_rows)

W = torch.tensor([[0.2, -0.5, 0.1], [0.7, 0.3, -0.2], [-0.4, 0.6, 0.5]])
ROWS = torch.linspace(-1, 1, 192).view(64, 3)


def closures_are_read(flow, x):
    return flow.cond(x.sum() > 0, lambda x: x.sin(), lambda x: (x @ W).cos(), (x,))


def branches_in_branches(flow, x):
    def inner(x):
        return flow.cond(x.max() > 1, lambda x: x + 1, lambda x: x - 1, (x,))

    return flow.cond(x.sum() > 0, inner, lambda x: x.cos(), (x,))


def nested_containers(flow, x):
    yes = lambda d: {"a": d["x"] * 2, "b": [d["x"].sum()]}
    no = lambda d: {"a": d["x"] - 1, "b": [d["x"].prod()]}
    return flow.cond(x.sum() > 0, yes, no, ({"x": x},))


def several_types(flow, x):
    return flow.cond(x.sum() > 0, lambda x: (x.double(), x.argmax()), lambda x: (x.double() * 2, x.argmin()), (x,))


def no_operands(flow, x):
    return flow.cond(x.sum() > 0, lambda: torch.ones(3), lambda: torch.tensor([1.0, 2.0, 3.0])) + x


def writes_to_its_own(flow, x):
    return flow.cond(x.sum() > 0, lambda x: (x * 2).add_(1), lambda x: x.clone().mul_(3), (x,))


def number_of_a_tensor(flow, x):
    return flow.cond(x.sum() > 0, lambda x: x * x.sum().item(), lambda x: x - 1, (x,))


def known_predicate(flow, x):
    return flow.cond(x.size(0) > 2, lambda x: x + 1, lambda x: x - 1, (x,))


def the_same_twice(flow, x):
    return [flow.cond(x.sum() > 0, lambda x: x + 1, lambda x: x - 1, (x,)) for _ in range(2)]


def strided_operands(flow, x):
    return flow.cond(x.sum() > 0, lambda x, y: x + y, lambda x, y: x - y, (x.t(), x[:1].expand(4, 3).t()))


def nobody_reads_it(flow, x):
    flow.cond(x.sum() > 0, lambda x: x + 1, lambda x: x - 1, (x,))
    return x * 2


def operand_is_written_later(flow, x):
    y = x * 2
    z = flow.cond(x.sum() > 0, lambda y: y + 1, lambda y: y - 1, (y,))
    y.add_(100)
    return y, z


def as_often_as_contents_say(flow, x):
    return flow.while_loop(lambda x, n: x.sum() < 100, lambda x, n: (x.abs() * 1.5 + 0.1, n + 1), (x, torch.tensor(0)))


def never(flow, x):
    return flow.while_loop(lambda x: x.sum() < -1000, lambda x: (x.abs() * 1.5,), (x,))


def few_known_turns(flow, x):
    return flow.while_loop(lambda i, x: i < 5, lambda i, x: (i + 1, x * 1.1), (torch.tensor(0), x))


def many_known_turns(flow, x):
    return flow.while_loop(lambda i, x: i < 50, lambda i, x: (i + 1, torch.tanh(x @ W)), (torch.tensor(0), x))


def carries_an_integer(flow, x):
    return flow.while_loop(lambda i, x: i < 5, lambda i, x: (i + 1, x * 1.1 + i), (0, x))


def rows_few(flow, x):
    return flow.scan(lambda c, y: (torch.tanh(c @ W + y), c * y), x[0], x)


def rows_many(flow, x):
    return flow.scan(lambda c, y: (torch.tanh(c @ W + y), c * y), x[0], ROWS * x.mean())


def rows_nested(flow, x):
    def turn(c, y):
        return {"h": torch.tanh(c["h"] @ W + y[0]), "n": c["n"] + 1}, [c["h"] * y[1]]

    return flow.scan(turn, {"h": x[0], "n": torch.zeros((), dtype=torch.int64)}, (ROWS * x.mean(), ROWS))


def rows_in_reverse(flow, x):
    return flow.scan(lambda c, y: (torch.tanh(c @ W + y), c * y), x[0], ROWS * x.mean(), reverse=True)


def rows_in_columns(flow, x):
    return flow.scan(lambda c, y: (torch.tanh(c + y), c * y), x[0], (ROWS * x.mean()).t().contiguous(), dim=1)


def branch_in_a_loop(flow, x):
    def turn(c, y):
        return flow.cond(y.sum() > 0, lambda c: torch.tanh(c @ W), lambda c: c * 0.5, (c,)), c * y

    return flow.scan(turn, x[0], ROWS * x.mean())


def loop_in_a_branch(flow, x):
    many = lambda x: flow.scan(lambda c, y: (c * 0.5 + y, c + 1), x[0], ROWS)[0]
    return flow.cond(x.sum() > 0, many, lambda x: x[0] * 2, (x,))


def carried_in_a_list(flow, x):
    return flow.scan(lambda c, y: ((c[1] + y, c[0] * 0.5), c[0] * y), [x[0], x[1]], x)


def maps_few(flow, x):
    return flow.map(lambda a, b: (a.sin() @ b, a * 2), x, W)


def maps_many(flow, x):
    return flow.map(lambda d, b: {"s": d["p"].sin() @ b + d["q"]}, {"p": ROWS * x.mean(), "q": ROWS}, W)


PROGRAMS = [
    closures_are_read, branches_in_branches, nested_containers, several_types, no_operands, writes_to_its_own,
    number_of_a_tensor, known_predicate, the_same_twice, strided_operands, nobody_reads_it, operand_is_written_later,
    as_often_as_contents_say, never, few_known_turns, many_known_turns, carries_an_integer, rows_few, rows_many,
    rows_nested, carried_in_a_list, rows_in_reverse, branch_in_a_loop, loop_in_a_branch, maps_few, maps_many,
]  # fmt: skip
if tuple(map(int, torch.__version__.split(".")[:2])) >= (
    2,
    13,
):  # before, what is stacked lies along the first dimension
    PROGRAMS.append(rows_in_columns)


def same(found, expected):
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-6)
    for one, other in zip(tree_flatten(found)[0], tree_flatten(expected)[0], strict=True):
        if isinstance(one, torch.Tensor):
            assert (one.stride(), one.requires_grad) == (other.stride(), other.requires_grad)


def whole(compiled):
    """The one entry of a function of which nothing was left to eager."""
    stats = lampwork.stats(compiled)
    assert not stats["breaks"] and not stats["fallbacks"], stats
    (entry,) = compiled.__lampwork__.entries
    return entry


def inputs():
    x = torch.tensor([[0.3, -0.2, 0.9], [1.5, 0.1, -0.4], [0.2, 0.6, -0.1], [-0.3, 0.8, 0.4]])
    return x, -x


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda each: each.__name__)
def test_one_graph(program):
    compiled = lampwork.compile(lambda x: program(TORCH, x), options={"cache": False})
    for x in (*inputs(), *inputs()):
        same(compiled(x), program(MEANT, x))
    whole(compiled)


def test_results_are_fresh():
    compiled = lampwork.compile(lambda x: never(TORCH, x), options={"cache": False})
    x = torch.ones(3)
    (found,) = compiled(x)
    assert found.data_ptr() != x.data_ptr()
    found.add_(1)
    assert x.tolist() == [1, 1, 1]


def test_few_turns_are_part_of_the_graph_and_many_are_not():
    x = inputs()[0]
    for program, bodies in ((rows_few, 0), (rows_many, 1), (few_known_turns, 0), (as_often_as_contents_say, 2)):
        compiled = lampwork.compile(lambda x, program=program: program(TORCH, x), options={"cache": False})
        compiled(x)
        assert len(whole(compiled).artifact.bodies) == bodies, program.__name__


SCRIPT = """
import torch, lampwork
from torch._higher_order_ops import scan

def turn(c, y):
    return torch.cond(y.sum() > 0, lambda c: torch.tanh(c + y), lambda c: c * 0.5, (c,)), c * y

x = torch.linspace(-1, 1, 192).view(64, 3).requires_grad_()
program = lampwork.compile(lambda x: scan(turn, x[0], x)[0].sum())
result = program(x)
result.backward()
stats = lampwork.stats(program)
print(result.item(), x.grad.sum().item(), len(stats["fallbacks"]))
print(stats["captures"])
"""


def test_bodies_are_stored(tmp_path):
    """A process that finds the entry on disk compiles nothing."""
    (cold, captures), (warm, later) = run_cold_and_warm(tmp_path, SCRIPT)
    assert cold == warm and cold.endswith(" 0")
    assert (captures, later) == ("1", "0")


def numbers_in_branches(flow, x, k):
    return flow.cond(x.sum() > 0, lambda x: x * k + 1, lambda x: x - k * 2, (x,)) * k


def numbers_in_rows(flow, x, k):
    return flow.scan(lambda c, y: (torch.tanh(c * k + y / (k + 2)), c * k), x[0], ROWS * x.mean())[1] * k


def numbers_in_turns(flow, x, k):
    return flow.while_loop(lambda x: x.norm() < k * 40, lambda x: (x * 1.5 + k,), (x,))[0] + k


def numbers_of_tensors(flow, x, k):
    s = x.max().item()
    return flow.cond(x.sum() > 0, lambda x: x * s + k, lambda x: x - s, (x,)) * s


@pytest.mark.parametrize("program", [numbers_in_branches, numbers_in_rows, numbers_in_turns, numbers_of_tensors])
def test_numbers_that_vary(program):
    """They are inputs of the graphs, each at its place, whichever of these reads it."""
    compiled = lampwork.compile(lambda x, k: program(TORCH, x, k), options={"cache": False})
    for k in (2.0, 3.5, 0.25, 7.0):
        for x in inputs():
            torch.testing.assert_close(compiled(x, k), program(MEANT, x, k), rtol=1e-5, atol=1e-5)
    stats = lampwork.stats(compiled)
    assert not stats["breaks"] and not stats["fallbacks"] and stats["entries"] == 2


# What eager refuses, and what is left to it ---------------------------------------------------------------------------


class Counting(nn.Module):
    def __init__(self):
        super().__init__()
        self.calls = 0

    def forward(self, x):
        def yes(x):
            self.calls += 1
            return x + 1

        return torch.cond(x.sum() > 0, yes, lambda x: x - 1, (x,))


def appends(x):
    seen = []

    def yes(x):
        seen.append(1)
        return x + 1

    return torch.cond(x.sum() > 0, yes, lambda x: x - 1, (x,)), len(seen)


def counts(x):
    number = 0

    def yes(x):
        nonlocal number
        number += 1
        return x + 1

    return torch.cond(x.sum() > 0, yes, lambda x: x - 1, (x,)), number


def turns_with_a_number(turn, first=0):
    return lambda x: while_loop(lambda n, x: n < 3, turn, (first, x))


def raises(x):
    def yes(x):
        raise ValueError("no")

    return torch.cond(x.sum() > 0, yes, lambda x: x - 1, (x,))


def appends_by_method(x):
    seen = []
    append = seen.append

    def yes(x):
        append(1)
        return x + 1

    return torch.cond(x.sum() > 0, yes, lambda x: x - 1, (x,)), len(seen)


def counts_in_a_class(x):
    class Counter:
        number = 0

    def yes(x):
        Counter.number += 1
        return x + 1

    return torch.cond(x.sum() > 0, yes, lambda x: x - 1, (x,)), Counter.number


def takes_from_an_iterator(x):
    numbers = iter([1, 2, 3])
    return torch.cond(x.sum() > 0, lambda x: x + next(numbers), lambda x: x - 1, (x,)), next(numbers)


def marks_a_tensor(x):
    other = torch.ones(3)

    def yes(x):
        other.seen = True
        return x + 1

    return torch.cond(x.sum() > 0, yes, lambda x: x - 1, (x,)), hasattr(other, "seen")


def prints(x):
    def yes(x):
        print("yes")
        return x + 1

    print("before")
    return torch.cond(x.sum() > 0, yes, lambda x: x - 1, (x,))


ELSEWHERE = torch.ones(3)
REFUSED = {
    "a list is appended to by its method": appends_by_method,
    "a class is counted in": counts_in_a_class,
    "an iterator moves on": takes_from_an_iterator,
    "a tensor is marked": marks_a_tensor,
    "something is printed": prints,
    "the host draws": lambda x: torch.cond(x.sum() > 0, lambda x: x + random.random(), lambda x: x - 1, (x,)),
    "a list is appended to": appends,
    "a variable is counted": counts,
    "an attribute is counted": Counting(),
    "a branch returns its operand": lambda x: torch.cond(x.sum() > 0, lambda x: x, lambda x: x - 1, (x,)),
    "a branch writes to its operand": lambda x: torch.cond(x.sum() > 0, lambda x: x.add_(1), lambda x: x - 1, (x * 1,)),
    "types differ": lambda x: torch.cond(x.sum() > 0, lambda x: x.double(), lambda x: x - 1, (x,)),
    "nothing is returned beside": lambda x: torch.cond(x.sum() > 0, lambda x: (x + 1, None), lambda x: (x, None), (x,)),
    "a predicate of many": lambda x: torch.cond(x > 0, lambda x: x + 1, lambda x: x - 1, (x,)),
    "a branch raises": raises,
    "a loop returns what it carries": lambda x: while_loop(lambda x, y: x.sum() < 9, lambda x, y: (x + 1, y), (x, x)),
    "an operand is a number": lambda x: torch.cond(x.sum() > 0, lambda x, n: x + n, lambda x, n: x - n, (x, 3)),
    "an operand is None": lambda x: torch.cond(x.sum() > 0, lambda x, n: x + 1, lambda x, n: x - 1, (x, None)),
    "parts of results": lambda x: torch.cond(x.sum() > 0, lambda x: (x + 1)[:2], lambda x: (x - 1)[2:], (x,)),
    "a test returns a tuple": lambda x: while_loop(lambda x: (x.sum() < 9,), lambda x: (x.abs() + 1,), (x,)),
    "a loop carries a float": turns_with_a_number(lambda n, x: (n + 1, x * 2), first=0.0),
    "a counting loop writes to what it carries": turns_with_a_number(lambda n, x: (n + 1, x.add_(1) * 2)),
    "a counting loop returns what it carries": turns_with_a_number(lambda n, x: (n + 1, x)),
    "a counting loop returns a view": turns_with_a_number(lambda n, x: (n + 1, x.view(x.shape))),
    "a counting loop writes elsewhere": turns_with_a_number(lambda n, x: (n + 1, x + ELSEWHERE.add_(1).sum())),
    "a loop changes a type": lambda x: while_loop(lambda x: x.sum() < 9, lambda x: (x.double() + 1,), (x,)),
    "a scan over nothing": lambda x: scan(lambda c, y: (c + y, c * 2), x[0], x[:0]),
    "a scan changes strides": lambda x: scan(lambda c, y: ((c + y).contiguous(), y + 1), x.t(), torch.ones(5, 3, 4)),
    "a map returns its rows": lambda x: map_rows(lambda a: a, x),
}


def outcome(program, x):
    """What a call returns, or the class of what it raises."""
    try:
        return program(x)
    except Exception as error:  # whatever it is
        return type(error)


@pytest.mark.parametrize("program", REFUSED.values(), ids=REFUSED)
def test_eager_refuses(program):
    """The errors are eager's, and nothing is changed."""
    x = inputs()[0]
    compiled = lampwork.compile(program, options={"cache": False})
    expected, found = outcome(program, x), outcome(compiled, x)
    if isinstance(expected, type):
        assert found is expected
    else:  # a later PyTorch takes it
        same(found, expected)
    torch.testing.assert_close(x, inputs()[0], rtol=0, atol=0)
    assert ELSEWHERE.tolist() == [1, 1, 1]


@pytest.mark.parametrize("nested", [False, True])
def test_a_counting_loop_that_does_not_run(nested):
    """Results are copies, nested as what is carried, and what a turn does is not done."""
    if nested:
        start = lambda x: ({"n": 3, "x": x},)
        program = lambda x: while_loop(lambda d: d["n"] < 3, lambda d: ({"n": d["n"] + 1, "x": d["x"] * 2},), start(x))
    else:
        program = turns_with_a_number(lambda n, x: (n + 1, x * 2), first=3)
    compiled = lampwork.compile(program, options={"cache": False})
    for x in inputs():
        found, expected = compiled(x), program(x)
        same(found, expected)
        assert all(each is not x for each in tree_flatten(found)[0])
    whole(compiled)


def _scaled(k, nested):
    """Functions from outside of the program, whose closures nothing else reads."""
    return lambda x: x * k + nested["b"][0], lambda c, y: (torch.tanh(c @ nested["w"] + y), c * k)


def test_closures_that_are_read_there_first():
    """To read what was there before is no change."""
    branch, turn = _scaled(3, {"b": [torch.ones(3)], "w": W})
    programs = [
        lambda flow, x, f=branch: flow.cond(x.sum() > 0, f, lambda x: x - 1, (x,)),
        lambda flow, x, f=turn: flow.scan(f, x[0], x),
        lambda flow, x, f=branch: flow.map(f, x),
        lambda flow, x, f=branch: flow.while_loop(lambda x: x.sum().abs() < 99, lambda x: (f(x).clamp(-99, 99),), (x,)),
    ]
    for program in programs:
        compiled = lampwork.compile(lambda x, program=program: program(TORCH, x), options={"cache": False})
        for x in inputs():
            same(compiled(x), program(MEANT, x))
        whole(compiled)


@pytest.mark.parametrize("pred", [True, torch.tensor(False)])
def test_operands_in_containers_that_nothing_has_read(pred):
    x, y = inputs()
    branches = lambda x: x["a"][0] + 1, lambda x: x["a"][0] * x["a"][1]["b"]
    for operands in ([{"a": [x, {"b": y}]}], ({"a": [x, {"b": y}]},)):
        compiled = lampwork.compile(torch.cond, options={"cache": False})
        same(compiled(pred, *branches, operands), MEANT.cond(pred, *branches, operands))
        whole(compiled)


def draws(x):
    return torch.cond(x.sum() > 0, lambda x: x + torch.rand(3), lambda x: x - 1, (x,))


def counts_elements(x):
    return torch.cond(x.sum() > 0, lambda x: x[x > 0].sum(), lambda x: x.sum(), (x,))


def is_mapped(x):
    return torch.vmap(lambda r: torch.cond(r.sum() > 0, lambda r: r + 1, lambda r: r - 1, (r,)))(x)


@pytest.mark.parametrize("program", [draws, counts_elements, is_mapped])
def test_left_to_eager(program):
    """One break, with a page of its own, at the line of the program."""
    compiled = lampwork.compile(lambda x: program(x * 2) + 1, options={"cache": False})
    for x in inputs():
        torch.manual_seed(3)
        expected = program(x * 2) + 1
        torch.manual_seed(3)
        torch.testing.assert_close(compiled(x), expected)
    (told,) = lampwork.stats(compiled)["breaks"]
    assert told.diagnostic.id == "control-flow" if hasattr(told, "diagnostic") else "[control-flow]" in str(told)


def test_an_index_out_of_range_in_a_branch():
    def program(x, i):
        return torch.cond(x.sum() > 0, lambda x: x[i], lambda x: x[:2] * 1, (x,))

    compiled = lampwork.compile(program, options={"cache": False})
    x, other = inputs()
    same(compiled(x, torch.tensor([1, 2])), x[1:3])
    same(compiled(other, torch.tensor([1, 9])), other[:2])
    with pytest.raises(IndexError):
        compiled(x, torch.tensor([1, 9]))
    whole(compiled)


def test_a_whole_graph_is_asked_for():
    compiled = lampwork.compile(draws, fullgraph=True, options={"cache": False})
    with pytest.raises(lampwork.errors.GraphBreak, match="draws random numbers"):
        compiled(inputs()[0])


def test_associative_scan():
    def program(x):
        return associative_scan(lambda a, b: (a[0] * b[0], a[1] * b[0] + b[1]), (x.exp(), x), 0, combine_mode="generic")

    compiled = lampwork.compile(program, options={"cache": False})
    x = inputs()[0]
    torch.testing.assert_close(compiled(x), program(x), rtol=1e-5, atol=1e-6)
    whole(compiled)


@pytest.mark.parametrize("name", ["cond", "map", "scan", "while_loop"])
def test_samples_of_pytorch(name):
    """The programs that PyTorch tests these operators with, and what they return in eager."""
    found = [each for each in hop_db if each.name.rpartition(".")[2] == name]
    if not found:
        pytest.skip("this PyTorch has none")
    for each in found:
        for sample in each.sample_inputs("cpu", torch.float32, requires_grad=False):
            compiled = lampwork.compile(lambda *args, each=each: each.op(*args), options={"cache": False})
            args = (sample.input, *sample.args)
            torch.testing.assert_close(compiled(*args), each.op(*args))
            whole(compiled)


def test_explained():
    """Graphs are printed with the graphs that they run."""
    told = str(
        lampwork.explain(
            lambda x: torch.cond(x.sum() > 0, lambda x: x @ x.t(), lambda x: x @ x, (x,)), torch.ones(3, 3)
        )
    )
    text = told.partition("== functional")[2].partition("== loops")[0]
    assert text.count("aten.mm.default") == 2 and text.count("\nbody ") == 2


@pytest.mark.parametrize("stage", ["functional", "lowered", "scheduled"])
def test_each_stage_means_the_same(stage, monkeypatch):
    monkeypatch.setitem(vars(environment), "stop_at", stage)
    for program in (closures_are_read, rows_many, as_often_as_contents_say, branch_in_a_loop):
        compiled = lampwork.compile(lambda x, program=program: program(TORCH, x), options={"cache": False})
        for x in inputs():
            torch.testing.assert_close(compiled(x), program(MEANT, x), rtol=1e-5, atol=1e-6)


# Programs -------------------------------------------------------------------------------------------------------------


class Decoder(nn.Module):
    """A recurrent language model: scores of the next token, and the next state."""

    def __init__(self, tokens=11, width=8):
        super().__init__()
        self.embedding = nn.Embedding(tokens, width)
        self.cell = nn.GRUCell(width, width)
        self.head = nn.Linear(width, tokens)

    def forward(self, token, state):
        state = self.cell(self.embedding(token), state)
        return self.head(state).log_softmax(-1), state


def beam_search(flow, model, state, width=3, longest=12, end=0):
    """The best `width` continuations: tokens, scores, how many steps it took until all had ended."""
    tokens = torch.full((width, longest), end)
    scores = torch.tensor([0.0] + [-1e9] * (width - 1))
    last = torch.ones(width, dtype=torch.int64)
    done = torch.zeros(width, dtype=torch.bool)

    def goes_on(step, tokens, scores, last, done, state):
        return (step < longest) & ~done.all()

    def go(step, tokens, scores, last, done, state):
        found, state = model(last, state)
        only_end = torch.full_like(found, -1e9)
        only_end[:, end] = 0.0
        found = torch.where(done[:, None], only_end, found) + scores[:, None]
        scores, best = found.flatten().topk(width)
        beam, token = best // found.size(1), best % found.size(1)
        place = torch.arange(longest) == step
        tokens = torch.where(place, token[:, None], tokens[beam])
        return step + 1, tokens, scores, token, done[beam] | (token == end), state[beam]

    carried = (torch.tensor(0), tokens, scores, last, done, state)
    step, tokens, scores, *_ = flow.while_loop(goes_on, go, carried)
    return tokens, scores, step


@torch.no_grad()
def test_a_beam_search_is_one_graph():
    torch.manual_seed(1)
    model = Decoder()
    compiled = lampwork.compile(lambda state: beam_search(TORCH, model, state), options={"cache": False})
    took = set()
    for seed in range(4):
        state = torch.randn(3, 8, generator=torch.Generator().manual_seed(seed)) * 3
        expected = beam_search(MEANT, model, state)
        same(compiled(state), expected)
        took.add(expected[2].item())
    assert len(whole(compiled).artifact.bodies) == 2


class Recurrent(nn.Module):
    def __init__(self, flow, width=8):
        super().__init__()
        self.flow = flow
        self.inner, self.outer = nn.Linear(2 * width, width), nn.Linear(width, width)

    def forward(self, x):
        def turn(state, row):
            state = torch.tanh(self.inner(torch.cat([state, row], -1)))
            return state, self.outer(state)

        return self.flow.scan(turn, torch.zeros(x.size(1), x.size(2)), x)


def test_a_recurrent_net_is_one_graph_and_trains():
    torch.manual_seed(1)
    models = Recurrent(TORCH), Recurrent(MEANT)
    models[1].load_state_dict(models[0].state_dict())
    compiled = lampwork.compile(models[0], options={"cache": False})
    optimizers = [torch.optim.SGD(model.parameters(), lr=0.1) for model in models]
    for _ in range(3):
        x = torch.randn(40, 2, 8)
        losses = []
        for model, optimizer in zip((compiled, models[1]), optimizers):
            state, rows = model(x)
            loss = state.square().mean() + rows.square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.detach())
        torch.testing.assert_close(*losses)
    for one, other in zip(models[0].parameters(), models[1].parameters()):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)


def test_on_a_gpu():
    """The graph is the same there; what the host runs is no CUDA graph."""
    program = lambda x: torch.cond(x.sum() > 0, lambda x: x.sin(), lambda x: x @ x.t(), (x,))
    with cuda_stand_in():
        region = capture(program, (torch.ones(3, 3),), {}, Settings())
    (node,) = [each for each in region.graph.nodes if str(each.target) == "lampwork.cond.default"]
    assert all(each.device.type == "cuda" for each in node.meta["val"])
    compiled = lampwork.compile(program, options={"cache": False})
    compiled(torch.ones(3, 3))
    assert why_not(whole(compiled).artifact).id == "graph-host-value"


def test_a_gpu_decides_by_itself():
    """Where both branches cost less than to wait for it."""
    program = lambda x: torch.cond(x.sum() > 0, lambda x: x.sin() * 2, lambda x: x.cos() + x.sum(), (x,))
    with cuda_stand_in():
        region = capture(program, (torch.ones(1000, 1000),), {}, Settings())
        functional = prepare(region, Settings())
    names = [str(node.target) for node in functional.graph.nodes]
    assert "aten.where.self" in names and "lampwork.cond.default" not in names

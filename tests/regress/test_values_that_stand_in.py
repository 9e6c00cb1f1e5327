"""What stands in for numbers, arrays, texts and tensors is asked like eager's own: a class that does not know an operation
refuses it in its own words, and nothing looks into what is not known."""

import array
import decimal
import operator

import pytest
import torch

import lampwork


def tried(function, *args):
    try:
        return function(*args)
    except Exception as error:
        return type(error).__name__, str(error)


def stepped(value):
    for _ in value:
        pass


def in_two(value):
    first, second = value
    return first, second


def in_one(value):
    first, *rest = value
    return first, rest


def put(container, key, value):
    container[key] = value


def without(container, key):
    del container[key]


def iand(left, right):
    left &= right
    return left


def ipow(left, right):
    left **= right
    return left


REFUSED = {
    "len": len,
    "iteration": stepped,
    "two": in_two,
    "one": in_one,
    "item": lambda value: value[0],
    "set-item": lambda value: put(value, 0, 1),
    "delete-item": lambda value: without(value, 0),
    "contains": lambda value: 1 in value,
    "call": lambda value: value(),
    "set-attribute": lambda value: setattr(value, "nothing", 1),
    "delete-attribute": lambda value: delattr(value, "nothing"),
    "star": lambda value: [*value],
    "arguments": lambda value: max(*value),
}


def check(program, calls):
    compiled = lampwork.compile(program, dynamic=True, options={"cache": False})
    for args in calls:
        assert repr(compiled(*args())) == repr(program(*args()))
    assert not lampwork.stats(compiled)["fallbacks"]
    return compiled


@pytest.mark.parametrize("refused", REFUSED)
@pytest.mark.parametrize("kind", ["number", "size", "number-of-a-tensor"])
def test_what_a_number_refuses(kind, refused):
    def program(x, rate):
        value = rate if kind == "number" else len(x) if kind == "size" else (x * 2).sum().item()
        return x * 2, tried(REFUSED[refused], value)

    calls = [lambda n=n, rate=rate: (torch.ones(n), rate) for n, rate in ((4, 0.25), (5, 0.5), (6, 0.75))]
    assert not lampwork.stats(check(program, calls))["breaks"]


@pytest.mark.parametrize(
    "refused",
    [
        pytest.param(lambda x, n, rate, found: [1, 2][rate], id="index"),
        pytest.param(lambda x, n, rate, found: [1, 2][:rate], id="slice"),
        pytest.param(lambda x, n, rate, found: iand(n, 2.5), id="and"),
        pytest.param(lambda x, n, rate, found: x(), id="tensor-called"),
        pytest.param(lambda x, n, rate, found: without(x, 0), id="tensor-item-deleted"),
        pytest.param(lambda x, n, rate, found: x.numpy()(), id="array-called"),
        pytest.param(lambda x, n, rate, found: without(x.numpy(), 0), id="array-item-deleted"),
        pytest.param(lambda x, n, rate, found: hash(x.numpy()), id="array-hashed"),
        pytest.param(lambda x, n, rate, found: (found == None, found != "a", found in [None]), id="none"),
    ],
)
def test_what_others_refuse(refused):
    def program(x, rate):
        y = x * 2
        return y, tried(refused, y, len(x), rate, y.sum().item())

    calls = [lambda n=n, rate=rate: (torch.ones(n), rate) for n, rate in ((4, 0.25), (5, 0.5), (6, 0.75))]
    check(program, calls)


@pytest.mark.parametrize(
    "use",
    [
        pytest.param(lambda text: text in "8.0 and 10.0", id="in-a-text"),
        pytest.param(lambda text: "0" in text, id="a-text-in-it"),
        pytest.param(lambda text: text * 2, id="repeated"),
        pytest.param(lambda text: text.upper(), id="upper"),
        pytest.param(lambda text: ("8.0" == text, "9" < text, text is None), id="compared"),
        pytest.param(lambda text: tried(operator.add, text, None), id="beside-none"),
        pytest.param(lambda text: [*text], id="letters"),
        pytest.param(lambda text: (bool(text), len(text)), id="length"),
    ],
)
def test_uses_of_a_text_that_is_not_known(use):
    def program(x):
        return x * 2, use(f"{(x * 2).sum().item()}")

    check(program, [lambda n=n: (torch.ones(n),) for n in (4, 5, 6)])


@pytest.mark.parametrize("elements", [(0, 1, 0, 2), (1, 0, 2, 0)])
def test_truth_of_what_is_opaque(elements):
    def program(x, held, number):
        return x * 2, bool(held), not held, 1 if number else 2

    check(program, [lambda n=n: (torch.ones(3), array.array("i", [1] * n), decimal.Decimal(n)) for n in elements])


def test_an_iterator_from_outside_is_unpacked():
    def program(x, pairs, rest):
        first, second = pairs
        other, *more = rest
        return x * 2, first, second, other, more

    check(program, [lambda n=n: (torch.ones(3), iter([n, 2]), iter([1] * n)) for n in (1, 2, 3)])


@pytest.mark.parametrize("exponents", [(0.25, 0.75, 0.5, 2.0, -0.5), (0.5, 0.25, 3.0)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_powers_in_place_are_roots_as_well(exponents, dtype):
    def program(x, rate):
        return ipow(x.clone(), rate), ipow(x[:0].clone(), rate), tried(ipow, x.long(), rate)

    x = torch.tensor([-0.0, -float("inf"), 4.0, 2.0], dtype=dtype)
    check(program, [lambda rate=rate: (x.clone(), rate) for rate in exponents])

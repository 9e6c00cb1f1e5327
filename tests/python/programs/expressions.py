"""Expressions and statements: comprehensions, unpacking, walrus, slices, comparisons, loops with else."""

from __future__ import annotations

import operator

import torch

from tests.python.harness import program


def vector():
    return torch.arange(4.0)


def matrix():
    return torch.arange(6.0).reshape(2, 3)


@program(vector)
def list_comprehensions(x):
    return [x * i for i in range(3)], [x[i] for i in range(4) if i % 2], [(i, j) for i in range(3) for j in range(i)]


@program(vector)
def set_and_dict_comprehensions(x):
    return {i % 3 for i in range(9)}, {f"k{i}": x + i for i in range(3)}, {v: k for k, v in zip("ab", "cd")}


@program(vector)
def nested_comprehension_with_closure(x):
    factor = 3
    return [[y * factor + i for y in (x, x + 1)] for i in range(2)]


@program(vector)
def generator_expressions(x):
    return sum(x * i for i in range(4)), max(i * i for i in (-3, 2)), list(y for y in (x, x) if True)


@program(vector)
def comprehension_variable_does_not_leak(x):
    i = 7
    values = [i for i in range(3)]
    return x * i, values


@program(vector)
def walrus(x):
    if (n := x.numel()) > 3:
        y = x * n
    values = [z := i * 2 for i in range(3)]
    total = 0
    while (total := total + 1) < 5:
        pass
    return y, z, values, total


@program(vector)
def star_unpacking(x):
    first, *middle, last = x.unbind()
    (a, *b), c = [1, 2, 3], 4
    *d, e = "xyz"
    return first, middle, last, a, b, c, d, e


@program(vector)
def star_displays(x):
    parts = [x, x + 1]
    return [*parts, 0, *range(2)], (*parts,), {*"ab", "c"}, {**{"a": 1}, "b": 2, **{"a": 3}}


@program(vector)
def unpacking_of_the_wrong_length(x):
    found = []
    for values in ((1,), (1, 2, 3), 5, {"a": 1}):
        try:
            a, b = values
        except (TypeError, ValueError) as error:
            found.append(str(error))
    return found, x


@program(vector)
def swaps_and_chained_assignment(x):
    a, b = x, x + 1
    a, b = b, a
    c = d = [a]
    c.append(b)
    values = [0, 1, 2]
    i, values[0], values[i] = 2, 5, 6
    return a, b, d, values, c is d


@program(vector)
def chained_comparisons(x):
    n = x.numel()
    calls = []

    def side(value):
        calls.append(value)
        return value

    return 1 < n <= 4, 1 < n > 10, 0 == 0 != 1, side(3) < side(2) < side(1), calls, "a" < "b" in {"b": 1}


@program(vector)
def boolean_operators_return_operands(x):
    return x is None or x, [] and 1, None or "default", not [], 0 or [] or {}, 1 and 2 and x


@program(vector)
def conditional_expressions(x):
    return (x if x.ndim == 1 else None), ("odd" if x.numel() % 2 else "even"), [i if i else -1 for i in range(3)]


@program(matrix)
def slices_of_everything(x):
    values, text = list(range(10)), "abcdefgh"
    values[2:5] = ["x"]
    del values[::3]
    part = slice(1, None, 2)
    return x[:, 1:], x[-1:, ...], values, text[::-1], text[part], x[0, part], part.indices(5), values[-3:][:2]


@program(vector)
def loops_with_else(x):
    found = []
    for i in range(3):
        if i == 5:
            break
    else:
        found.append("no break")
    while True:
        found.append("once")
        break
    else:
        found.append("never")
    n = 0
    while n < 2:
        n += 1
        if n == 1:
            continue
    else:
        found.append(n)
    return x, found


@program(vector)
def loop_over_everything(x):
    seen = []
    for index, (name, value) in enumerate({"a": x, "b": x + 1}.items(), start=1):
        seen.append((index, name, value))
    for left, right in zip(reversed([1, 2, 3]), "ab"):
        seen.append((left, right))
    for row in x:
        seen.append(row)
    return seen


@program(vector)
def mutation_while_iterating(x):
    values = [1, 2, 3]
    for value in values:
        if value < 3:
            values.append(value + 2)
    table = {"a": 1}
    try:
        for key in table:
            table[key + "b"] = 1
    except RuntimeError as error:
        return x, values, str(error)


@program(vector)
def augmented_assignments(x):
    a, b, c, d = 7, [1], {1, 2}, {"k": 1}
    a //= 2
    a **= 3
    a <<= 1
    a ^= 5
    a %= 17
    b += (2, x)
    b *= 2
    c |= {3}
    c -= {1}
    d |= {"m": x}
    e = x.clone()
    e += 1
    e @= torch.eye(4)
    return a, b, c, d, e


@program(vector)
def integer_arithmetic(x):
    return (
        -7 // 2, -7 % 3, 7 / 2, 2**100, 5 & 3, 5 | 3, 5 ^ 3, ~5, 1 << 40, -9 >> 1, divmod(-7, 2), round(2.5), round(3.14159, 3),
        int("0x1f", 16), int(-3.9), 10**-2, (3).bit_length(), x.numel() // 3, abs(-5), pow(3, 5, 7),
    )  # fmt: skip


@program(vector)
def float_arithmetic(x):
    inf, nan = float("inf"), float("nan")
    return (
        inf - 1, nan != nan, 0.1 + 0.2, 1e308 * 10, -0.0, 3.0.is_integer(), (2.5).as_integer_ratio(), 7.5 // 2, -7.5 % 2,
        round(2.675, 2), float("1e-3"), (1 + 2j) * (3 - 1j), abs(3 + 4j), complex("1+2j"), x * 0.5,
    )  # fmt: skip


@program(vector)
def division_by_zero(x):
    found = []
    for op in (operator.truediv, operator.floordiv, operator.mod, divmod, pow):
        try:
            found.append(op(0 if op is pow else 1, -1 if op is pow else 0))
        except ZeroDivisionError as error:
            found.append(str(error))
    return found, x / 0


@program(vector)
def identity_and_none(x):
    y = x
    z = x.view(-1)
    a, b = [], []
    return x is y, x is z, a is b, a == b, None is None, x is not None, type(x) is torch.Tensor, () == ()


@program(vector)
def membership(x):
    values = (1, "a", None)
    return (
        1 in values,
        "b" not in values,
        "el" in "hello",
        3 in range(0, 10, 3),
        b"a" in b"cat",
        None in [0],
        2.0 in {2: 1},
    )


@program(vector)
def string_and_sequence_comparison(x):
    return (
        (1, 2) < (1, 3),
        [1] < [1, 0],
        "abc" < "abd",
        (1, x.numel()) == (1, 4),
        [1, [2]] == [1, [2]],
        {1} < {1, 2},
        {} == {},
    )


@program(vector)
def nested_functions_and_conditions(x):
    result = x
    for i in range(6):
        if i % 3 == 0:
            result = result + i
        elif i % 3 == 1:
            result = result * 2
        else:
            continue
    return result


@program(vector)
def assertion_messages(x):
    assert x.numel() == 4, "never"
    try:
        assert x.numel() == 5, f"got {x.numel()}"
    except AssertionError as error:
        return x, error.args


@program(vector)
def print_like_join(x):
    return ",".join(str(size) for size in x.shape), "-".join(["a"] * 3), "".join(map(str, range(3)))


@program(vector, lambda: iter([1, 2, 3]))
def iterator_argument_is_advanced(x, iterator):
    return x * next(iterator), next(iterator, None)


@program(vector, lambda: [1, 2, 3, 4])
def list_argument_sliced_and_written(x, values):
    values[1:3] = [x]
    values.insert(0, "front")
    del values[-1]
    return values[::2]


@program(vector, lambda: {"x": 1, "y": [2, 3]})
def dict_argument_walked(x, table):
    total = 0
    for key in list(table):
        value = table[key]
        total += sum(value) if isinstance(value, list) else value
        table[key.upper()] = value
    return x * total

"""Text and bytes: formatting of every kind, methods of str and bytes, regular expressions."""

from __future__ import annotations

import re
import string
import textwrap

import torch

from tests.python.harness import program


def vector():
    return torch.arange(4.0)


class Money:
    def __init__(self, amount):
        self.amount = amount

    def __str__(self):
        return f"${self.amount}"

    def __repr__(self):
        return f"Money({self.amount!r})"

    def __format__(self, spec):
        return format(self.amount, spec or ".2f")


@program(vector)
def f_strings(x):
    n, name, value = x.numel(), "abc", 3.14159
    width = 8
    return (
        f"{n}", f"{n:05d}", f"{value:.2f}", f"{name!r:>{width}}", f"{name:^9}|", f"{n=}", f"{value:+.1e}", f"{1234567:,}", f"{255:#x}",
        "{}", f"{n:b}", f"{0.25:%}", f"{name[::-1]}", f"{'q' if n else 'z'}", f"{x.shape}", f"{[1, 'a']}", f"{(n, name)!s}",
    )  # fmt: skip


@program(vector)
def f_strings_of_objects(x):
    money = Money(2.5)
    return (
        f"{money}",
        f"{money!r}",
        f"{money!s}",
        f"{money:.1f}",
        f"{[money]}",
        str(money),
        repr([money]),
        f"{x.dtype}",
        f"{type(x).__name__}",
    )


@program(vector)
def format_method(x):
    return (
        "{} {}".format(1, "a"), "{1} {0}".format("x", "y"), "{a[0]}-{b.numerator}".format(a=[5], b=7), "{:>6.2f}|".format(2.5),
        "{0!r}".format("s"), "{:{w}}".format("a", w=4), format(3.5, "08.3f"), "{a}".format_map({"a": 1}), format(10, "x"),
    )  # fmt: skip


@program(vector)
def percent_formatting(x):
    return (
        "%d %s %r" % (1, "a", "b"),
        "%05.1f%%" % 2.5,
        "%(a)s-%(b)03d" % {"a": "x", "b": 7},
        "%x %o %e" % (255, 8, 1.5),
        "%s" % x.numel(),
    )


@program(vector)
def template_strings(x):
    return string.Template("$a and ${b}").substitute(a=1, b="two"), string.ascii_lowercase[:3], x


@program(vector)
def string_methods(x):
    text = "  Hello, World  "
    return (
        text.strip(), text.lower(), text.upper().split(","), text.replace("l", "L", 2), "a,b,,c".split(","), "a b  c".split(),
        "abc".startswith(("x", "a")), "abc".endswith("bc"), "abcabc".find("c"), "abcabc".rfind("c"), "abc".index("b"), "x".zfill(3),
        "abc".center(7, "*"), "Title case".title(), "aXbX".partition("X"), "aXbX".rpartition("X"), "a\nb".splitlines(), "abc".count("b"),
        "abc".isalpha(), "12".isdigit(), "Ab".swapcase(), "ß".casefold(), "a-b".join("xy"), "abc".translate(str.maketrans("ab", "yz")),
        "prefix_x".removeprefix("prefix_"), "x.py".removesuffix(".py"), "a\tb".expandtabs(4), "abc"[1], "abc" * 2, ord("a"), chr(98),
    )  # fmt: skip


@program(vector)
def bytes_methods(x):
    data = b"abc\x00"
    return (
        data.hex(), bytes.fromhex("6162"), data.decode("latin-1"), "é".encode("utf-8"), data[0], data[:2], data + b"d", b",".join([b"a", b"b"]),
        data.replace(b"a", b"z"), b"a" in data, (258).to_bytes(2, "big"), int.from_bytes(b"\x01\x02", "big"), data.startswith(b"ab"), x,
    )  # fmt: skip


@program(vector)
def regular_expressions(x):
    match = re.match(r"(?P<name>\w+)-(\d+)", "layer-12 rest")
    return (
        match.group("name"), int(match.group(2)), match.groups(), match.span(), re.findall(r"\d", "a1b2"), re.sub(r"a+", "x", "caat"),
        re.split(r"[,;]", "a,b;c"), re.compile("^x").search("yx") is None, [m.start() for m in re.finditer("a", "banana")],
        re.sub(r"\d", lambda m: str(int(m.group()) + 1), "a1b2"), re.fullmatch("a.c", "abc") is not None, x,
    )  # fmt: skip


@program(vector)
def parameter_names_routed(x):
    weights = {"layer.0.weight": x, "layer.0.bias": x + 1, "head.weight": x * 2}
    grouped = {}
    for name, value in weights.items():
        prefix, _, leaf = name.rpartition(".")
        grouped.setdefault(leaf, {})[prefix] = value
    return grouped


@program(vector)
def text_wrapped(x):
    return textwrap.dedent("  a\n  b"), textwrap.shorten("hello big world", 10), textwrap.indent("a\nb", "> "), x


@program(vector)
def string_building_in_a_loop(x):
    line = ""
    for index, size in enumerate(x.shape):
        line += f"[{index}:{size}]"
    parts = []
    for word in ("a", "b"):
        parts.append(word * 2)
    return line, "|".join(parts), x * len(line)


@program(vector)
def text_parsed_to_numbers(x):
    table = dict(pair.split("=") for pair in "a=1;b=2.5".split(";"))
    return x * float(table["b"]) + int(table["a"]), "3.0".isdecimal(), int("ff", 16), float("-inf"), eval_free("1 2 3")


def eval_free(text):
    return [int(part) for part in text.split()]


@program(vector)
def formatting_errors(x):
    found = []
    for attempt in (
        lambda: "{}".format(),
        lambda: "%d" % "a",
        lambda: f"{'a':d}",
        lambda: "{x}".format(y=1),
        lambda: "%d %d" % (1,),
    ):
        try:
            attempt()
        except (IndexError, TypeError, ValueError, KeyError) as error:
            found.append((type(error).__name__, str(error)))
    return found, x


@program(vector)
def repr_of_everything(x):
    return (
        repr([1, "a", None, 2.5, (1,), {"k": {1}}, b"x", 1j, True, ..., range(3), slice(1, 2)]), repr(frozenset()), ascii("é"),
        str(torch.float32), repr(torch.Size([1, 2])), str(torch.device("cpu")), repr(float("nan")), x,
    )  # fmt: skip


@program(vector)
def tensor_in_a_message(x):
    return f"shape {tuple(x.shape)} of {x.dtype} on {x.device}", f"{x.shape[0]:>4}", "x".join(map(str, x.shape))

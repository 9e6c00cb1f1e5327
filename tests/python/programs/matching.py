"""The match statement: values, sequences, mappings, classes, guards, captures."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Any

import torch

from tests.python.harness import program


def vector():
    return torch.arange(4.0)


class Kind(enum.Enum):
    ADD = 1
    MUL = 2


@dataclass
class Node:
    op: str
    left: Any = None
    right: Any = None


class Point:
    __match_args__ = ("x", "y")

    def __init__(self, x, y):
        self.x, self.y = x, y


@program(vector)
def literals(x):
    def name(value):
        match value:
            case 0 | 1:
                return "small"
            case "a" | "b":
                return "letter"
            case None:
                return "none"
            case True:
                return "true"
            case -1.5:
                return "float"
            case _:
                return "other"

    return x, [name(value) for value in (0, 1, "b", None, 7, -1.5, True)]


@program(vector)
def sequences(x):
    def shape(value):
        match value:
            case []:
                return "empty"
            case [one]:
                return one
            case [first, *rest] if len(rest) > 2:
                return first, rest
            case (1, y) | (y, 1):
                return "one and", y
            case [_, [inner, *_]]:
                return inner
            case str():
                return "text"
            case _:
                return "no"

    return [shape(value) for value in ([], [x], [1, 2, 3, 4], (1, 5), (6, 1), [0, [7, 8]], "ab", 3)]


@program(vector)
def mappings(x):
    def read(value):
        match value:
            case {"op": "add", "args": [a, b]}:
                return a + b
            case {"op": "neg", "arg": a, **rest}:
                return -a, rest
            case {}:
                return "mapping"
            case _:
                return None

    return read({"op": "add", "args": [x, 1]}), read({"op": "neg", "arg": x, "k": 1}), read({"z": 1}), read(5)


@program(vector)
def classes(x):
    def read(value):
        match value:
            case Point(0, y):
                return "axis", y
            case Point(x=a, y=b) if a == b:
                return "diagonal"
            case Point():
                return "point"
            case int(n) | float(n):
                return n + 1
            case torch.Tensor():
                return value * 2
            case _:
                return "other"

    return [read(value) for value in (Point(0, 3), Point(2, 2), Point(1, 2), 4, 2.5, x, "s")]


@program(vector)
def enumerations(x):
    results = []
    for kind in Kind:
        match kind:
            case Kind.ADD:
                results.append(x + 1)
            case Kind.MUL:
                results.append(x * 2)
    return results


@program(vector, lambda: Node("mul", Node("leaf", 2.0), Node("add", Node("leaf", 1.0), Node("leaf", 3.0))))
def expression_tree(x, tree):
    def evaluate(node):
        match node:
            case Node("leaf", value):
                return x * value
            case Node(op="add", left=a, right=b):
                return evaluate(a) + evaluate(b)
            case Node("mul", a, b):
                return evaluate(a) * evaluate(b)

    return evaluate(tree)


@program(vector)
def captures_and_as(x):
    match {"data": [1, (2, 3)], "n": x.numel()}:
        case {"data": [first, (second, third) as pair], "n": 4 | 5 as n}:
            return first, second, third, pair, n, x


@program(vector)
def guards_with_effects(x):
    tried = []

    def check(value):
        tried.append(value)
        return value > 2

    for value in (1, 5):
        match value:
            case n if check(n):
                tried.append("big")
            case n if check(n + 2):
                tried.append("almost")
    return x, tried


@program(vector, lambda: ("scale", 3.0), lambda: {"mode": "train", "steps": [1, 2]})
def arguments_matched(x, command, options):
    match command, options:
        case ("scale", factor), {"mode": "train", "steps": [*steps]}:
            return x * factor, steps
    return None


@program(vector)
def no_case_matches(x):
    match x.numel():
        case 1:
            x = x + 1
        case 2:
            x = x + 2
    return x

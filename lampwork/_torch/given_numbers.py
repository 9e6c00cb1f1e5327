"""Our operators that call one of ATen's with numbers that are known when they run: in tensors of one element on a host.

    lerp.Scalar(self, end, weight)      ->      with4_lerp.Scalar(self, end, weight: Tensor)

The number in 4 says which arguments are such tensors, a bit for each in the order of the schema. ATen's operator gets
Python numbers, so that types of results, rounding and kernels are those of a program that has the number.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import torch
from torch._ops import OpOverload

from lampwork._torch.library import GIVEN_NUMBERS, libraries, once, overload

#: What may be a tensor of one element instead, by what the schema says it is. An operand of arithmetic is called a
#: tensor there and may be a number.
_AS_TENSORS = {
    "number": "Tensor", "Scalar": "Tensor", "Optional[number]": "Tensor", "List[number]": "Tensor[]",
    "float": "Tensor", "Optional[float]": "Tensor", "Tensor": "Tensor",
}  # fmt: skip

#: By name of ours: ATen's, and the places of its arguments that are numbers.
_given: dict[str, tuple[OpOverload, tuple[int, ...]]] = {}


def takes_numbers(op: OpOverload, places: tuple[int, ...]) -> bool:
    """Whether `with_numbers` knows the types of these arguments."""
    return all(str(op._schema.arguments[place].type) in _AS_TENSORS for place in places)


@once
def with_numbers(op: OpOverload, places: tuple[int, ...]) -> OpOverload:
    """`op` of ATen's with tensors in place of the numbers at `places`, which count arguments of its schema."""
    schema = op._schema
    bits = sum(1 << place for place in places)
    name = f"with{bits}_{schema.name.removeprefix('aten::').replace('::', '__')}"
    full = name if op._overloadname == "default" else f"{name}.{op._overloadname}"
    call = calling(op, places)
    library = torch.library.Library(GIVEN_NUMBERS, "FRAGMENT")
    library.define(full + _schema(op, places), tags=tuple(tag for tag in op.tags if tag in _TAGS))
    library.impl(full, call, "CompositeImplicitAutograd")
    libraries.append(library)
    made = getattr(getattr(getattr(torch.ops, GIVEN_NUMBERS), name), op._overloadname)
    _given[made.name()] = op, places
    return made


_TAGS = (torch.Tag.nondeterministic_seeded,)


def _schema(op: OpOverload, places: tuple[int, ...]) -> str:
    """Arguments and results of `op` as text, with tensors at `places`, that have no default."""
    text = str(op._schema)
    begin, end = text.index("("), text.rindex(") -> ")
    arguments = re.split(r",\s*", text[begin + 1 : end])
    place, made = 0, []
    for argument in arguments:
        if argument == "*":
            made.append(argument)
            continue
        described = op._schema.arguments[place]
        made.append(f"{_AS_TENSORS[str(described.type)]} {described.name}" if place in places else argument)
        place += 1
    return f"({', '.join(_without_defaults(made, [op._schema.arguments[each].name for each in places]))}{text[end:]}"


def _without_defaults(arguments: list[str], names: list[str]) -> list[str]:
    """What comes before an argument without a default may have none either, unless it is given by name."""
    if "*" in arguments:
        border = arguments.index("*")
    else:
        border = len(arguments)
    last = max([index for index in range(border) if arguments[index].split()[-1] in names], default=-1)
    return [each.partition("=")[0] if index < last else each for index, each in enumerate(arguments)]


def numbers_given(op: OpOverload) -> tuple[OpOverload, tuple[int, ...]]:
    """For an operator that `with_numbers` made: ATen's, and where the numbers are."""
    return _given[op.name()]


def operator_given_numbers(name: str) -> OpOverload:
    """The operator of ours that is called `name` ("lampwork_given_numbers::with4_lerp.Scalar")."""
    bits, _, rest = name.partition("::with")[2].partition("_")
    places = tuple(place for place in range(int(bits).bit_length()) if int(bits) >> place & 1)
    called = rest.replace("lampwork__", "lampwork::", 1) if rest.startswith("lampwork__") else f"aten::{rest}"
    return with_numbers(overload(called), places)


def calling(op: OpOverload, places: tuple[int, ...]) -> Callable:
    """A function that calls `op` with the numbers in the tensors at `places`."""
    direct: Any = getattr(op, "_op", op)
    positions = frozenset(places)
    names = frozenset(op._schema.arguments[place].name for place in places)

    def call(*args: Any, **kwargs: Any) -> Any:
        given = [_number(each) if place in positions else each for place, each in enumerate(args)]
        for name in names & kwargs.keys():
            kwargs[name] = _number(kwargs[name])
        return direct(*given, **kwargs)

    return call


def replaced(op: OpOverload, places: tuple[int, ...], args: tuple, kwargs: dict, number: Any) -> tuple[tuple, dict]:
    """The arguments with `number(each)` for each at `places`."""
    names = frozenset(op._schema.arguments[place].name for place in places)
    return (
        tuple([number(each) if place in places else each for place, each in enumerate(args)]),
        {name: number(each) if name in names else each for name, each in kwargs.items()},
    )


def some_numbers(op: OpOverload, args: tuple, kwargs: dict) -> tuple[OpOverload, tuple, dict]:
    """The call that an operator of ours makes, with numbers that no kernel is a special one for: what shapes, types and
    strides it has does not depend on them."""
    called, places = numbers_given(op)
    some = lambda value: [1.5] * len(value) if isinstance(value, (list, tuple)) else 1.5
    return called, *replaced(called, places, args, kwargs, some)


def _number(value: Any) -> Any:
    return [each.item() for each in value] if isinstance(value, (list, tuple)) else value.item()

"""What operator tables build programs with: variables that eager has computed, and random choices among them."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import torch

from tests.fuzz.inputs import COMPLEX, FLOATS, INTEGERS, Input, any_input
from tests.fuzz.program import EXACT, ROUNDS, VIEW, Statement


class Skip(Exception):
    """The operator found nothing to work on."""


class Builder:
    """The program made so far. `values` holds what eager computed for each variable at the first call's sizes."""

    def __init__(
        self, choose: random.Random, sizes: dict[str, int], dtypes: tuple[str, ...], grad: bool, vary: bool
    ) -> None:
        self.choose, self.sizes, self.dtypes, self.grad, self.vary = choose, sizes, dtypes, grad, vary
        self.inputs: list[Input] = []
        self.numbers: list[tuple[Any, ...]] = []
        self.statements: list[Statement] = []
        self.values: dict[str, Any] = {}
        self.names: dict[str, Any] = {}
        #: Makes the value of an input that was added on the way.
        self.make: Callable[[Input, int], torch.Tensor] | None = None
        self.pending: list[Input] = []
        self.pending_numbers: list[tuple[Any, ...]] = []

    # Choices ----------------------------------------------------------------------------------------------------------

    def one(self, *options: Any) -> Any:
        return self.choose.choice(options)

    def below(self, end: int) -> int:
        return self.choose.randrange(max(end, 1))

    def chance(self, share: float) -> bool:
        return self.choose.random() < share

    # Tensors ----------------------------------------------------------------------------------------------------------

    def tensors(self, test: Callable[[torch.Tensor], bool] | None = None) -> list[str]:
        return [
            name for name, value in self.values.items()
            if isinstance(value, torch.Tensor) and (test is None or test(value))
        ]  # fmt: skip

    def any(self, test: Callable[[torch.Tensor], bool] | None = None) -> str:
        """A tensor, recent ones more often than others: chains find more than fans."""
        found = self.tensors(test)
        if not found:
            raise Skip
        return found[-1 - min(int(self.choose.expovariate(0.4)), len(found) - 1)]

    def float(self, least: int = 0, most: int = 9) -> str:
        return self.any(lambda x: x.is_floating_point() and least <= x.dim() <= most)

    def whole(self) -> str:
        return self.any(lambda x: not x.is_floating_point() and not x.is_complex())

    def ranked(self, least: int, most: int = 9) -> str:
        return self.any(lambda x: least <= x.dim() <= most)

    def value(self, name: str) -> Any:
        return self.values[name]

    def like(self, name: str) -> str:
        """A tensor that broadcasts with `name`; a new input if chance or need will have it."""
        x = self.value(name)

        def fits(y: torch.Tensor) -> bool:
            try:
                return max(torch.broadcast_shapes(x.shape, y.shape), default=1) < 5000
            except RuntimeError:
                return False

        if self.chance(0.75):
            try:
                return self.any(fits)
            except Skip:
                pass
        return self.new(x.shape, self.one(*self.dtypes) if self.chance(0.3) else self.type_of(name))

    def same(self, name: str) -> str:
        """A tensor of the same shape and type."""
        x = self.value(name)
        if self.chance(0.6):
            found = self.tensors(lambda y: y.shape == x.shape and y.dtype == x.dtype)
            return self.choose.choice(found)
        return self.new(x.shape, self.type_of(name))

    def new(self, shape: Any, dtype: str | None = None, values: str = "") -> str:
        """An input of the program that it did not have yet."""
        if len(self.inputs) + len(self.pending) > 7:
            raise Skip
        named = {size: name for name, size in self.sizes.items()} if self.vary else {}
        spec = any_input(
            self.choose,
            tuple(named.get(int(size), int(size)) for size in shape),
            dtype or self.one(*self.dtypes),
            self.grad,
        )
        if values:
            spec = Input(spec.shape, spec.dtype, spec.layout, values, spec.leaf)
        assert self.make is not None
        name = f"x{len(self.inputs) + len(self.pending)}"
        self.values[name] = self.make(spec, len(self.inputs) + len(self.pending))
        self.pending.append(spec)
        return name

    def type_of(self, name: str) -> str:
        return str(self.value(name).dtype).removeprefix("torch.")

    # Arguments --------------------------------------------------------------------------------------------------------

    def dim(self, name: str) -> int:
        rank = self.value(name).dim()
        if rank == 0:
            return self.one(0, -1)
        dim = self.below(rank)
        return dim - rank if self.chance(0.4) else dim

    def dims(self, name: str) -> str:
        rank = self.value(name).dim()
        count = self.one(1, 2, 2, 3)
        if rank < 1:
            raise Skip
        picked = self.choose.sample(range(rank), min(count, rank))
        return "(" + ", ".join(str(d - rank if self.chance(0.3) else d) for d in picked) + ",)"

    def size(self, name: str, dim: int) -> str:
        """The size of a dimension, as text: read from the tensor where sizes vary."""
        if self.vary or self.chance(0.1):
            return self.one(f"{name}.shape[{dim}]", f"{name}.size({dim})")
        return str(self.value(name).shape[dim])

    def dtype(self) -> str:
        return "torch." + self.one(*self.dtypes, *self.dtypes, *FLOATS, *INTEGERS, "bool")

    def float_type(self) -> str:
        return "torch." + self.one(*FLOATS)

    def number(self, *special: Any) -> str:
        """A Python number: of the text, or one that differs between calls."""
        if self.chance(0.3):
            kind = self.below(4)
            if kind == 0:
                values: tuple = tuple(self.choose.choice((1, 2, 3, -1, 0, 5)) for _ in range(4))
            elif kind == 1:
                values = tuple(self.choose.choice((0.5, 1.5, -2.0, 0.0, 3.25, 1e-3)) for _ in range(4))
            elif kind == 2:
                values = tuple(
                    self.choose.choice((0.1, 1.0, -0.0, float("inf"), float("nan"), -1e30, 7.7)) for _ in range(4)
                )
            else:
                values = tuple(self.choose.choice((True, 2, 0.5, 3)) for _ in range(4))
            self.pending_numbers.append(values)
            return f"n{len(self.numbers) + len(self.pending_numbers) - 1}"
        choices = special or (0, 1, 2, -1, 3, 0.5, -0.5, 1.5, 2.0, 0.1, -0.0, 1e-3, 100.0, True, "inf", "nan")
        return str(self.choose.choice(choices))

    def flag(self) -> str:
        return self.one("True", "False")

    def keep(self) -> str:
        return self.one("", "", ", keepdim=True", ", keepdim=False")

    def index(self, size: int, shape: Any) -> str:
        """Whole numbers that are indices into a dimension of that size, as text."""
        if size == 0:
            raise Skip
        name = self.new(shape, "int64", "indices")
        return f"({name} % {size})"


__all__ = ["COMPLEX", "EXACT", "FLOATS", "INTEGERS", "ROUNDS", "VIEW", "Builder", "Skip"]

"""Generated programs over sizes: views, slices, broadcasting, reductions, products, convolutions, attention, branches on sizes.

`generate(seed)` returns a `SizedProgram`, a function of tensors whose sizes are made of two numbers, `make_inputs(n, m)`.
What a step does follows from the sizes it meets, so one program runs at any (n, m), those with 0 and 1 included; where eager
refuses a step at the sizes that it was generated at, the step is left out. Inputs are whole numbers, and what is sorted
or compared was computed without rounding, so that results do not hang on the order of additions.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import torch
import torch.nn.functional as F

#: The sizes that programs are generated at.
TYPICAL = (5, 6)


@dataclass(frozen=True)
class Step:
    name: str
    reads: tuple[int, int]
    numbers: tuple[int, int]

    def __str__(self) -> str:
        return f"{self.name}(v{self.reads[0]}, v{self.reads[1]}, {self.numbers[0]}, {self.numbers[1]})"


@dataclass(frozen=True)
class SizedProgram:
    seed: int
    inputs: tuple[tuple, ...]
    steps: tuple[Step, ...] = ()
    outputs: tuple[int, ...] = ()
    exact: tuple[bool, ...] = field(default=(), compare=False)

    def make_inputs(self, n: int, m: int) -> list[torch.Tensor]:
        generator = torch.Generator().manual_seed(self.seed)
        made = []
        for dims, dtype, layout in self.inputs:
            shape = [{"n": n, "m": m, "n+1": n + 1, "2m": 2 * m}.get(dim, dim) for dim in dims]
            tensor = torch.randint(-4, 5, shape, generator=generator).to(dtype)
            if layout == "transposed" and tensor.dim() > 1:
                tensor = tensor.transpose(0, -1).contiguous().transpose(0, -1)
            elif layout == "rows" and tensor.dim():
                tensor = torch.cat([tensor, tensor])[: shape[0]]
            elif layout == "columns" and tensor.dim():
                tensor = torch.cat([tensor, tensor], -1)[..., : shape[-1]]
            made.append(tensor)
        return made

    def __call__(self, *inputs: torch.Tensor) -> Any:
        variables = list(inputs)
        for step in self.steps:
            variables.append(STEPS[step.name](variables[step.reads[0]], variables[step.reads[1]], *step.numbers))
        return tuple(variables[index] for index in self.outputs)

    def __str__(self) -> str:
        lines = [f"seed {self.seed}: inputs {self.inputs}"]
        lines += [f"  v{index} = {step}" for index, step in enumerate(self.steps, len(self.inputs))]
        return "\n".join([*lines, f"  return {self.outputs}"])


STEPS: dict[str, Callable[[Any, Any, int, int], Any]] = {}
#: Steps whose results are rounded.
ROUNDS: set[str] = set()
#: Steps whose results would differ where their operand was rounded in another way.
NEEDS_EXACT: set[str] = set()


def step(rounds: bool = False, needs_exact: bool = False) -> Callable:
    def register(function: Callable) -> Callable:
        STEPS[function.__name__] = function
        if rounds:
            ROUNDS.add(function.__name__)
        if needs_exact:
            NEEDS_EXACT.add(function.__name__)
        return function

    return register


def _dim(x, a):
    return a % max(x.dim(), 1)


# Views ----------------------------------------------------------------------------------------------------------------


@step()
def transpose(x, y, a, b):
    return x.transpose(_dim(x, a), _dim(x, b))


@step()
def permute(x, y, a, b):
    return x.permute(*reversed(range(x.dim())))


@step()
def flatten(x, y, a, b):
    return x.flatten()


@step()
def flatten_front(x, y, a, b):
    return x.flatten(0, 1)


@step()
def reshape_rows(x, y, a, b):
    return x.reshape(x.shape[0], -1)


@step()
def reshape_as_product(x, y, a, b):
    return x.reshape(x.shape[0] * x.shape[1], *x.shape[2:])


@step()
def reshape_swapped(x, y, a, b):
    return x.reshape(tuple(reversed(x.shape)))


@step()
def view_apart(x, y, a, b):
    return x.contiguous().view(*x.shape[:-1], 1 + a % 3, -1)


@step()
def view_as_other(x, y, a, b):
    return x.reshape(y.shape)


@step()
def unsqueeze(x, y, a, b):
    return x.unsqueeze(a % (x.dim() + 1))


@step()
def squeeze(x, y, a, b):
    return x.squeeze() if b % 2 else x.squeeze(_dim(x, a))


@step()
def expand(x, y, a, b):
    return x.unsqueeze(0).expand(2 + a, *x.shape)


@step()
def expand_by_size(x, y, a, b):
    return x.unsqueeze(0).expand(y.shape[0], *x.shape)


@step()
def expand_as(x, y, a, b):
    return x.expand_as(y)


@step()
def first(x, y, a, b):
    return x.select(_dim(x, a), 0)


@step()
def last(x, y, a, b):
    return x.select(_dim(x, a), -1)


@step()
def row(x, y, a, b):
    return x[b]


@step()
def without_first(x, y, a, b):
    return x[1:]


@step()
def without_last(x, y, a, b):
    return x[..., :-1]


@step()
def every_second(x, y, a, b):
    return x[:: 2 + a % 2]


@step()
def some_rows(x, y, a, b):
    return x[a : a + b]


@step()
def last_rows(x, y, a, b):
    return x[-1 - a :]


@step()
def half(x, y, a, b):
    return x[: x.shape[0] // 2]


@step()
def other_half(x, y, a, b):
    return x[x.shape[0] // 2 :]


@step()
def up_to_other(x, y, a, b):
    return x[: y.shape[0]]


@step()
def narrow(x, y, a, b):
    return x.narrow(_dim(x, a), 1, x.shape[_dim(x, a)] - 1)


@step()
def chunk(x, y, a, b):
    return x.chunk(2, _dim(x, a))[-1]


@step()
def split(x, y, a, b):
    return x.split(2, _dim(x, a))[0]


@step()
def diagonal(x, y, a, b):
    return x.diagonal(a % 3 - 1)


@step()
def unfold(x, y, a, b):
    return x.unfold(_dim(x, a), 2, 1 + b % 2)


@step()
def contiguous(x, y, a, b):
    return x.contiguous()


@step()
def movedim(x, y, a, b):
    return x.movedim(_dim(x, a), _dim(x, b))


# Copies and joins -----------------------------------------------------------------------------------------------------


@step()
def cat(x, y, a, b):
    return torch.cat([x, y], _dim(x, a))


@step()
def cat_itself(x, y, a, b):
    return torch.cat([x, x + 1, x], _dim(x, a))


@step()
def stack(x, y, a, b):
    return torch.stack([x, x * 2], a % (x.dim() + 1))


@step()
def repeat(x, y, a, b):
    return x.repeat(*[2 if index == _dim(x, a) else 1 for index in range(x.dim())])


@step()
def repeat_interleave(x, y, a, b):
    return x.repeat_interleave(2 + a % 2, _dim(x, b))


@step()
def flip(x, y, a, b):
    return x.flip(_dim(x, a))


@step()
def roll(x, y, a, b):
    return x.roll(1 + a, _dim(x, b))


@step()
def pad(x, y, a, b):
    return F.pad(x, (a % 3, b % 3), value=1.0)


@step()
def pad_to_size(x, y, a, b):
    return F.pad(x, (0, y.shape[0]))


@step()
def pad_away(x, y, a, b):
    return F.pad(x, (-1, 1))


@step()
def reflect(x, y, a, b):
    return F.pad(x.reshape(1, x.shape[0], -1), (1, 1 + a % 2), mode="reflect")


@step()
def tril(x, y, a, b):
    return x.tril(a % 3 - 1)


# Arithmetic -----------------------------------------------------------------------------------------------------------


@step()
def add(x, y, a, b):
    return (x + y).clamp(-50, 50)


@step()
def multiply(x, y, a, b):
    return (x * y).clamp(-9, 9)


@step()
def add_transposed(x, y, a, b):
    return x + x.transpose(0, -1)


@step()
def outer(x, y, a, b):
    return (x.unsqueeze(-1) * y.flatten()[:3]).clamp(-9, 9)


@step()
def relu(x, y, a, b):
    return x.relu() + a


@step(rounds=True)
def wave(x, y, a, b):
    return x.float().sin() * 3


@step(needs_exact=True)
def where(x, y, a, b):
    return torch.where(x > a - 1, x, x * 2 - b)


@step(needs_exact=True)
def compare(x, y, a, b):
    return (x >= y).to(x.dtype)


@step()
def times_size(x, y, a, b):
    return x + x.shape[0] - 2 * y.shape[-1]


@step()
def add_positions(x, y, a, b):
    return x + torch.arange(x.shape[-1])


@step()
def new_ones(x, y, a, b):
    return x.new_ones(y.shape[0], 1 + a)


@step(needs_exact=True)
def causal_mask(x, y, a, b):
    length = x.shape[-1]
    return torch.arange(length)[:, None] >= torch.arange(length)[None] + a - 2


@step()
def cast(x, y, a, b):
    return x.to([torch.float32, torch.float64, torch.float32][a % 3])


# Reductions -----------------------------------------------------------------------------------------------------------


@step()
def total(x, y, a, b):
    return x.sum().clamp(-99, 99)


@step()
def sum_along(x, y, a, b):
    return x.sum(_dim(x, a), keepdim=bool(b % 2)).clamp(-99, 99)


@step(rounds=True)
def mean_along(x, y, a, b):
    return x.double().mean(_dim(x, a), keepdim=bool(b % 2))


@step()
def amax_along(x, y, a, b):
    return x.amax(_dim(x, a), keepdim=bool(b % 2))


@step(needs_exact=True)
def argmax_along(x, y, a, b):
    return (x * 8 + torch.arange(x.shape[_dim(x, a)]).reshape([-1 if d == _dim(x, a) else 1 for d in range(x.dim())])).argmax(_dim(x, a))  # fmt: skip


@step(rounds=True)
def softmax(x, y, a, b):
    return x.double().softmax(_dim(x, a))


@step(rounds=True)
def var_along(x, y, a, b):
    return x.double().var(_dim(x, a), correction=0)


@step()
def cumsum(x, y, a, b):
    return x.cumsum(_dim(x, a)).clamp(-99, 99)


@step(needs_exact=True)
def sort(x, y, a, b):
    return x.sort(_dim(x, a))[0]


@step(needs_exact=True)
def topk(x, y, a, b):
    return x.topk(min(2, x.shape[-1]))[0]


@step()
def any_along(x, y, a, b):
    return (x != 0).any(_dim(x, a))


@step(rounds=True)
def layer_norm(x, y, a, b):
    return F.layer_norm(x.double(), (x.shape[-1],), eps=1e-2)


@step(rounds=True)
def average_by_size(x, y, a, b):
    return x.double().sum(0) / (x.shape[0] + 1)


# Products, convolutions, attention -------------------------------------------------------------------------------------


@step()
def gram(x, y, a, b):
    return (x @ x.transpose(-1, -2)).clamp(-50, 50)


@step()
def product(x, y, a, b):
    return (x @ y).clamp(-50, 50)


@step()
def linear(x, y, a, b):
    weight = torch.arange(3 * x.shape[-1]).reshape(3, x.shape[-1]).to(x.dtype) % 5 - 2
    return F.linear(x, weight).clamp(-50, 50)


@step()
def einsum(x, y, a, b):
    return torch.einsum("i...,j...->ij", x, x).clamp(-50, 50)


@step()
def conv1d(x, y, a, b):
    images = x.reshape(-1, 1, x.shape[-1])
    return F.conv1d(images, torch.tensor([[[1, -2, 1]]]).to(x.dtype), padding=a % 3, stride=1 + b % 2).clamp(-50, 50)


@step()
def conv2d(x, y, a, b):
    images = x.reshape(-1, 1, x.shape[-2], x.shape[-1])
    weight = (torch.arange(18).reshape(2, 1, 3, 3) % 4 - 1).to(x.dtype)
    return F.conv2d(images, weight, padding=1 + a % 2).clamp(-50, 50)


@step()
def max_pool(x, y, a, b):
    return F.max_pool1d(x.reshape(1, -1, x.shape[-1]), 2)


@step(rounds=True)
def avg_pool(x, y, a, b):
    return F.avg_pool2d(x.double().reshape(1, -1, x.shape[-2], x.shape[-1]), 2, 1 + a % 2)


@step()
def upsample(x, y, a, b):
    return F.interpolate(x.reshape(1, -1, x.shape[-1]), scale_factor=2.0)


@step(rounds=True)
def attention(x, y, a, b):
    q = x.float().reshape(1, -1, x.shape[-2], x.shape[-1]) / 8
    return F.scaled_dot_product_attention(q, q, q, is_causal=bool(a % 2))


@step(rounds=True)
def group_norm(x, y, a, b):
    return F.group_norm(x.double().reshape(1, -1, x.shape[-1]), 1, eps=1e-2)


# Indices and writes ---------------------------------------------------------------------------------------------------


@step()
def gather_rows(x, y, a, b):
    return x[torch.arange(x.shape[0]).flip(0)]


@step()
def index_pair(x, y, a, b):
    rows = torch.arange(min(x.shape[0], x.shape[1]))
    return x[rows, rows]


@step()
def select_by(x, y, a, b):
    return x.index_select(0, y.flatten()[: 2 + a].long().abs() % max(x.shape[0], 1))


@step()
def one_hot(x, y, a, b):
    return F.one_hot(x.flatten().long().abs() % 5, 5)


@step()
def buffer_filled(x, y, a, b):
    out = x.new_zeros(x.shape[0] + 1 + a, *x.shape[1:])
    out[1 : x.shape[0] + 1] = x
    return out


@step()
def written(x, y, a, b):
    out = x.clone()
    out[..., 0] = a
    out[1:].add_(b)
    return out


@step()
def index_added(x, y, a, b):
    return x.clone().index_add_(0, torch.arange(x.shape[0]).flip(0), x)


@step()
def input_written(x, y, a, b):
    x.add_(1)
    return x * 1


# Branches on sizes ----------------------------------------------------------------------------------------------------


@step()
def long_or_short(x, y, a, b):
    return x * 2 if x.shape[0] > 4 + a else x - 1


@step()
def even_or_odd(x, y, a, b):
    return x[::2] if x.shape[0] % 2 == 0 else x + 1


@step()
def same_length(x, y, a, b):
    return x + y if x.shape == y.shape else x - y.shape[0]


@step()
def nothing_there(x, y, a, b):
    return x + 1 if x.numel() == 0 or (x.shape[0] < 3 and x.dim() > 1) else x - 1


@step()
def fits(x, y, a, b):
    return x.reshape(-1, 2) if x.numel() % 2 == 0 and x.numel() > 2 else x


@step()
def one_of(x, y, a, b):
    return x * 3 if x.shape[-1] in (2, 5) else x


def generate(seed: int, length: int = 9) -> SizedProgram:
    """The program of a seed, with `length` steps that eager runs at the sizes `TYPICAL`."""
    choose = random.Random(seed)
    kinds = ["n", "m", "n", "m", "n+1", "2m", 1, 3, 4]
    inputs = []
    for _ in range(choose.choice([1, 2, 2, 3])):
        dims = tuple(choose.choice(kinds) for _ in range(choose.choice([1, 2, 2, 3])))
        dtype = choose.choice([torch.float32, torch.float32, torch.float64])
        inputs.append((dims, dtype, choose.choice(["plain", "plain", "plain", "transposed", "rows", "columns"])))
    program = SizedProgram(seed, tuple(inputs))
    variables = program.make_inputs(*TYPICAL)
    exact = [True] * len(variables)
    steps: list[Step] = []
    names = list(STEPS)
    for _ in range(60 * length):
        if len(steps) == length:
            break
        # What was made last is read more often: chains find more than fans.
        reads = tuple(
            len(variables) - 1 if choose.random() < 0.5 else choose.randrange(len(variables)) for _ in range(2)
        )
        candidate = Step(choose.choice(names), reads, (choose.randrange(3), choose.randrange(4)))
        known = exact[reads[0]] and exact[reads[1]]
        if candidate.name in NEEDS_EXACT and not known:
            continue
        if candidate.name == "input_written" and reads[0] >= len(inputs):
            continue
        if any(each.dim() > 4 or each.numel() > 20000 for each in (variables[index] for index in reads)):
            continue
        try:
            made = STEPS[candidate.name](variables[reads[0]], variables[reads[1]], *candidate.numbers)
        except (RuntimeError, IndexError, TypeError, ValueError):
            continue
        if made.numel() > 20000:
            continue
        steps.append(candidate)
        variables.append(made)
        exact.append(known and candidate.name not in ROUNDS)
    count = len(variables)
    outputs = {count - 1, *(choose.randrange(len(inputs), count) for _ in range(choose.choice([0, 1, 2])))}
    return replace(program, steps=tuple(steps), outputs=tuple(sorted(outputs)), exact=tuple(exact))

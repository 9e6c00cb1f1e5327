"""Generated programs of views, in-place writes, overlapping inputs and `no_grad` islands.

`generate(seed)` returns a `Program`: input builders and a list of steps. A step names the variables it reads by number,
so the same program runs on real tensors, on fakes, and in any grad mode. Steps that eager refuses are left out while
generating, by trying each on real tensors first.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import torch


@dataclass
class Step:
    name: str
    reads: tuple
    numbers: tuple = ()
    island: bool = False


@dataclass
class Program:
    seed: int
    inputs: list = field(default_factory=list)  # (base number, kind, numbers)
    steps: list = field(default_factory=list)
    outputs: list = field(default_factory=list)

    def make_inputs(self) -> list[torch.Tensor]:
        generator = torch.Generator().manual_seed(self.seed)
        bases = [torch.randn(4, 6, generator=generator), torch.randn(24, generator=generator)]
        bases.append(torch.randint(-5, 5, (4, 6), generator=generator))
        made = []
        for base, kind, numbers in self.inputs:
            tensor = bases[base]
            if kind == "rows":
                tensor = tensor[numbers[0] : numbers[1]]
            elif kind == "transposed":
                tensor = tensor.t() if tensor.dim() == 2 else tensor
            elif kind == "strided":
                tensor = tensor[:, ::2] if tensor.dim() == 2 else tensor[::2]
            elif kind == "alias":
                tensor = tensor.view(tensor.shape)
            made.append(tensor)
        return made

    def __call__(self, *inputs):
        variables = list(inputs)
        for step in self.steps:
            run_step(step, variables)
        return tuple(variables[index] for index in self.outputs)


def _views(x, name, n):
    a, b = n[0], n[1]
    dim = a % max(x.dim(), 1)
    size = x.shape[dim] if x.dim() else 1
    if name == "select":
        return x.select(dim, b % size)
    if name == "slice":
        return x.narrow(dim, b % size, size - b % size)
    if name == "step":
        return x[:: 1 + a % 3] if x.dim() else x.view(1)
    if name == "transpose":
        return x.transpose(a % x.dim(), b % x.dim())
    if name == "permute":
        return x.permute(*reversed(range(x.dim())))
    if name == "flatten":
        return x.reshape(-1)
    if name == "view":
        return x.view(-1)
    if name == "view2":
        return x.view(2, -1)
    if name == "unsqueeze":
        return x.unsqueeze(a % (x.dim() + 1))
    if name == "squeeze":
        return x.squeeze()
    if name == "diagonal":
        return x.diagonal(a % 3 - 1)
    if name == "expand":
        return x.unsqueeze(0).expand(2, *x.shape)
    if name == "detach":
        return x.detach()
    if name == "alias":
        return x.view(x.shape)
    if name == "as_strided":
        return x.as_strided((2, 2), (1, 2), x.storage_offset())
    if name == "unfold":
        return x.unfold(dim, 2, 2)
    if name == "T":
        return x.t()
    raise AssertionError(name)


VIEWS = ("select slice step transpose permute flatten view view2 unsqueeze squeeze diagonal expand detach alias as_strided "
         "unfold T").split()  # fmt: skip
PIECES = "split unbind chunk".split()
FRESH = "add mul relu exp clone contiguous where matmul sum softmax cat compare cast mean max literal ones tril index".split()
WRITES = ("add_ mul_ relu_ copy_ fill_ zero_ setitem setslice masked_fill_ clamp_ sub_scalar out index_put t_ unsqueeze_ "
          "exp_ swap sigmoid_ iadd write_row").split()  # fmt: skip


TWO_OPERAND_WRITES = "add_ mul_ copy_ setitem setslice masked_fill_ out index_put swap".split()


def addresses(x) -> list:
    cells = torch.arange(x.untyped_storage().nbytes() // x.element_size()).as_strided(
        x.shape, x.stride(), x.storage_offset()
    )
    return (cells * x.element_size() + x.untyped_storage().data_ptr()).flatten().tolist()


def partly_overlap(x, y) -> bool:
    left, right = addresses(x), addresses(y)
    return left != right and bool(set(left) & set(right))


def run_step(step: Step, variables: list) -> None:
    if step.island:
        with torch.no_grad():
            _run(step, variables)
    else:
        _run(step, variables)


def _run(step: Step, variables: list) -> None:
    name, n = step.name, step.numbers
    x = variables[step.reads[0]]
    y = variables[step.reads[1]]
    if name in VIEWS:
        variables.append(_views(x, name, n))
    elif name == "split":
        variables.extend(x.split(2, n[0] % max(x.dim(), 1))[:2])
    elif name == "unbind":
        variables.extend(x.unbind(n[0] % max(x.dim(), 1))[:2])
    elif name == "chunk":
        variables.extend(x.chunk(2, n[0] % max(x.dim(), 1)))
    elif name == "add":
        variables.append(x + y)
    elif name == "mul":
        variables.append(x * y)
    elif name == "relu":
        variables.append(torch.relu(x))
    elif name == "exp":
        variables.append(torch.sin(x))
    elif name == "clone":
        variables.append(x.clone())
    elif name == "contiguous":
        variables.append(x.contiguous())
    elif name == "where":
        variables.append(torch.where(x > 0, x, y))
    elif name == "matmul":
        variables.append(x.float() @ y.float())
    elif name == "sum":
        variables.append(x.sum(n[0] % max(x.dim(), 1)))
    elif name == "mean":
        variables.append(x.float().mean())
    elif name == "max":
        variables.append(x.max(n[0] % max(x.dim(), 1))[0])
    elif name == "softmax":
        variables.append(torch.softmax(x.float(), n[0] % max(x.dim(), 1)))
    elif name == "cat":
        variables.append(torch.cat([x, y], n[0] % max(x.dim(), 1)))
    elif name == "compare":
        variables.append(x > y)
    elif name == "cast":
        variables.append(x.to(torch.float64))
    elif name == "literal":
        variables.append(x + torch.tensor([1.0]))
    elif name == "ones":
        variables.append(torch.ones(x.shape))
    elif name == "tril":
        variables.append(torch.tril(x))
    elif name == "index":
        variables.append(x[torch.tensor([0, 0])])
    elif name == "add_":
        x.add_(y)
    elif name == "mul_":
        x.mul_(y)
    elif name == "sub_scalar":
        x.sub_(2)
    elif name == "relu_":
        x.relu_()
    elif name == "sigmoid_":
        x.sigmoid_()
    elif name == "exp_":
        x.sin_()
    elif name == "copy_":
        x.copy_(y)
    elif name == "fill_":
        x.fill_(n[0])
    elif name == "zero_":
        x.zero_()
    elif name == "setitem":
        x[n[0] % x.shape[0]] = y
    elif name == "write_row":
        x[..., 0] = n[1]
    elif name == "setslice":
        x[1:] = y
    elif name == "masked_fill_":
        x.masked_fill_(y > 0, 3)
    elif name == "clamp_":
        x.clamp_(-1, 1)
    elif name == "out":
        torch.add(x, 1, out=y)
    elif name == "index_put":
        x[torch.tensor([0])] = y
    elif name == "t_":
        x.t_()
    elif name == "unsqueeze_":
        x.unsqueeze_(0)
    elif name == "swap":
        saved = x.clone()
        x.copy_(y)
        y.copy_(saved)
    elif name == "iadd":
        x += 1
        variables.append(x)
    else:
        raise AssertionError(name)


def generate(seed: int, length: int = 12) -> Program:
    chooser = random.Random(seed)
    program = Program(seed)
    for _ in range(chooser.choice([1, 2, 3])):
        kind = chooser.choice(["whole", "rows", "transposed", "strided", "alias"])
        low = chooser.randrange(3)
        program.inputs.append((chooser.choice([0, 0, 0, 1, 2]), kind, (low, low + 1 + chooser.randrange(2))))
    inputs = program.make_inputs()
    variables = list(inputs)
    while len(program.steps) < length:
        group = chooser.choice([VIEWS, VIEWS, PIECES, FRESH, WRITES, WRITES])
        recent = [index for index in range(len(variables))]
        step = Step(
            chooser.choice(group), (chooser.choice(recent), chooser.choice(recent)),
            (chooser.randrange(6), chooser.randrange(6)), chooser.random() < 0.2,
        )  # fmt: skip
        # Metadata of what the caller holds stays.
        if step.name in ("t_", "unsqueeze_") and any(variables[step.reads[0]] is each for each in inputs):
            continue
        # Inside of its tensor: writes outside of it fall back to eager, by design.
        if step.name == "as_strided" and not (
            variables[step.reads[0]].is_contiguous() and variables[step.reads[0]].numel() > 3
        ):
            continue
        # Reading what the same operator partly overwrites is undefined in eager.
        if step.name in TWO_OPERAND_WRITES and partly_overlap(variables[step.reads[0]], variables[step.reads[1]]):
            continue
        # An out= tensor of another shape would be resized.
        if step.name == "out" and variables[step.reads[0]].shape != variables[step.reads[1]].shape:
            continue
        count = len(variables)
        try:
            with torch.no_grad():
                _run(step, variables)
        except (RuntimeError, IndexError, TypeError, ZeroDivisionError):
            del variables[count:]
            # A failing write may have changed metadata or data half-way: replay from the start.
            inputs = program.make_inputs()
            variables = list(inputs)
            with torch.no_grad():
                for each in program.steps:
                    _run(each, variables)
            continue
        program.steps.append(step)
    program.outputs = [chooser.randrange(len(variables)) for _ in range(chooser.choice([1, 2, 3, 4]))]
    return program

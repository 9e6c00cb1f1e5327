"""A tour: a toy Lampwork in one file, from Python's byte code to machine code.

    python docs/tour.py      # on CPython 3.11; prints what each stage makes of one function

It compiles functions of float32 matrices, in the stages of the real one:

    capture    byte code  -> graph + guards     lampwork/capture/
    lower      graph      -> loop nests         lampwork/lower/
    schedule   loop nests -> kernels            lampwork/schedule/
    generate   kernels    -> machine code       lampwork/codegen/
    runtime    guards checked, kernels run      lampwork/runtime/

Each part says what the real one does besides, and where. docs/architecture.md goes on from here.
"""

from __future__ import annotations

import ctypes
import dis
import operator
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from types import FunctionType
from typing import Any

import llvmlite.binding as llvm
import torch

# 1. Capture ----------------------------------------------------------------------------------------------------------
#
# The program is interpreted on the arguments of one call. What it does to tensors is not done: it is recorded, as nodes
# of a graph. All else is computed, and what was looked at outside of the call becomes a guard: the graph is the program
# for as long as the guards hold.


@dataclass(eq=False)
class Node:
    """A tensor of the graph, and the operator that makes it of `args`: nodes and numbers. Real: `torch.fx.Node`."""

    op: str
    args: tuple
    shape: tuple
    name: str


@dataclass
class Plain:
    """A value that is no tensor, and where the program found it: an expression, empty for what the program made.

    Real: sources are records (ir/source.py), and each family of values has a file of its own (capture/values/)."""

    value: Any
    source: str = ""


class Break(Exception):
    """The program does something that no graph holds. Here the whole call runs eagerly. Real: a break has an id, a line
    and a remedy, and what follows it is a graph of its own (capture/leave/suspend.py)."""


#: What is recorded, by the function or method that means it. Real: every operator of PyTorch. Fakes without memory
#: stand for tensors (fakes/), and a dispatch mode sees what is done to them (capture/record/recording.py).
SIGNS = {"+": "add", "-": "sub", "*": "mul", "/": "div"}
FUNCTIONS = {torch.exp: "exp", torch.relu: "relu"}
METHODS = ("exp", "relu", "sum", "amax")
REDUCTIONS = {"sum": ("add", "0.0"), "amax": ("max", "0xFFF0000000000000")}  # how they fold, and from where on: -inf

ARITHMETIC = {"+": operator.add, "-": operator.sub, "*": operator.mul, "/": operator.truediv}
COMPARED = {"<": operator.lt, ">": operator.gt, "==": operator.eq}


@dataclass
class Graph:
    """Real: `Region` (ir/region.py), with effects besides: what the program writes outside of itself."""

    nodes: list[Node] = field(default_factory=list)
    inputs: dict[str, Node] = field(default_factory=dict)  # by source
    guards: dict[str, Any] = field(default_factory=dict)  # condition -> the value that it calls KNOWN

    def load(self, value: Any, source: str) -> Node | Plain:
        """A value from outside, under a guard that it stays the same. Real: capture/outside/load.py."""
        if isinstance(value, torch.Tensor):
            if value.dtype != torch.float32 or value.dim() != 2 or not value.is_contiguous():
                raise Break(f"{source} is no contiguous float32 matrix")
            self.guards[f"facts({source}) == KNOWN"] = facts(value)
            return self.inputs.setdefault(source, Node("input", (), tuple(value.shape), f"x{len(self.inputs)}"))
        if isinstance(value, (int, float, str, tuple)):
            self.guards[f"type({source}) is type(KNOWN) and {source} == KNOWN"] = value
        else:
            self.guards[f"{source} is KNOWN"] = value
        return Plain(value, source)

    def record(self, op: str, args: list) -> Node:
        """Real: each operator has a shape rule, for types, strides and sizes that vary, too (fakes/rules/)."""
        operands = tuple(each if isinstance(each, Node) else float(each.value) for each in args)
        sizes = list(zip(*[each.shape for each in operands if isinstance(each, Node)]))
        if any(len({*size} - {1}) > 1 for size in sizes):
            raise Break(f"{op}: sizes {sizes} do not fit")
        shape = (sizes[0][0], 1) if op in REDUCTIONS else tuple(map(max, sizes))
        self.nodes.append(Node(op, operands, shape, f"{op}{len(self.nodes)}"))
        return self.nodes[-1]


def capture(function: FunctionType, args: tuple) -> Graph:
    """The graph of the call; its last node is the result. Raises `Break`. Nothing of the program runs."""
    graph = Graph()
    loaded = [graph.load(value, f"args[{place}]") for place, value in enumerate(args)]
    result = interpret(graph, function, "function", loaded)
    if not graph.nodes or result is not graph.nodes[-1]:
        raise Break("the result is not the last tensor that the program computes")
    return graph


def interpret(graph: Graph, function: FunctionType, source: str, args: list) -> Any:
    """What the function returns. Real: frames are data on an explicit stack (capture/machine/frames.py), so that a
    break can suspend them; the byte code of three CPython versions is made one (capture/bytecode/decode.py)."""
    steps = [each for each in dis.get_instructions(function) if each.opname not in ("RESUME", "PRECALL", "NOP")]
    place_of = {each.offset: place for place, each in enumerate(steps)}
    slots = dict(zip(function.__code__.co_varnames, args))
    stack: list[Any] = []
    place = 0
    while True:
        step, place = steps[place], place + 1
        match step.opname:
            case "LOAD_FAST":
                stack.append(slots[step.argval])
            case "STORE_FAST":
                slots[step.argval] = stack.pop()
            case "LOAD_CONST":
                stack.append(Plain(step.argval))
            case "LOAD_GLOBAL":
                stack += [None] * (step.arg & 1)
                if step.argval not in function.__globals__:
                    raise Break(f"{step.argval} is no global of the module")
                value = function.__globals__[step.argval]
                stack.append(graph.load(value, f"{source}.__globals__[{step.argval!r}]"))
            case "LOAD_ATTR" | "LOAD_METHOD":
                owner, is_call = stack.pop(), step.opname == "LOAD_METHOD"
                if isinstance(owner, Plain):
                    stack += [None] * is_call
                    stack.append(graph.load(getattr(owner.value, step.argval), f"{owner.source}.{step.argval}"))
                elif is_call and step.argval in METHODS:
                    stack += [Plain(step.argval), owner]
                elif step.argval == "shape":
                    stack.append(Plain(owner.shape))  # which follows from guards on the inputs
                else:
                    raise Break(f"the attribute {step.argval} of a tensor")
            case "BINARY_OP":
                right, left = stack.pop(), stack.pop()
                if isinstance(left, Node) or isinstance(right, Node):
                    stack.append(graph.record(SIGNS[step.argrepr], [left, right]))
                else:
                    stack.append(Plain(ARITHMETIC[step.argrepr](left.value, right.value)))
            case "BINARY_SUBSCR":
                key, owner = stack.pop(), stack.pop()
                stack.append(Plain(plain(owner)[plain(key)]))
            case "COMPARE_OP":
                right, left = stack.pop(), stack.pop()
                stack.append(Plain(COMPARED[step.argval](plain(left), plain(right))))
            case "POP_JUMP_FORWARD_IF_FALSE":
                if not plain(stack.pop()):
                    place = place_of[step.argval]
            case "CALL":
                given = [stack.pop() for _ in range(step.arg)][::-1]
                second, first = stack.pop(), stack.pop()
                stack.append(call(graph, second, given) if first is None else call(graph, first, [second, *given]))
            case "RETURN_VALUE":
                return stack.pop()
            case other:
                raise Break(f"the instruction {other}")


def plain(value: Node | Plain) -> Any:
    """A value that the program branches on, or computes with outside of the graph."""
    if isinstance(value, Node):
        raise Break("the program needs the contents of a tensor, which are not known")
    return value.value


def call(graph: Graph, target: Plain, given: list) -> Any:
    """Functions in Python are interpreted, too; operators are recorded. Real: capture/natives/ says of every function
    in C what it may do."""
    op = FUNCTIONS.get(target.value, target.value)
    if isinstance(op, FunctionType):
        return interpret(graph, op, target.source, given)
    if op in REDUCTIONS and [plain(each) for each in given[1:]] == [-1, True]:
        return graph.record(op, given[:1])
    if op in ("exp", "relu"):
        return graph.record(op, given)
    raise Break(f"{op} is called, and what it does with these arguments is not known")


# 2. Lower: an operator becomes a loop nest ---------------------------------------------------------------------------
#
# A nest stores one expression at each index of a buffer. It loads other buffers at the same index, where axes of size 1
# are not walked along: that is all there is to broadcasting. Real: ir/loops.py is the grammar of nests and kernels,
# lower/ has a rule for each operator, and indices are any expressions.


@dataclass(eq=False)
class Nest:
    """`domain`: what is looped over; a reduction folds the last axis of it. `value`: ("add", a, b), ("load", buffer,
    shape) or ("number", 2.0)."""

    name: str
    domain: tuple
    value: tuple
    reduction: str = ""

    @property
    def shape(self) -> tuple:
        return (self.domain[0], 1) if self.reduction else self.domain


def lower(graph: Graph) -> list[Nest]:
    nests = []
    for node in graph.nodes:
        args = [("load", each.name, each.shape) if isinstance(each, Node) else ("number", each) for each in node.args]
        if node.op in REDUCTIONS:
            nests.append(Nest(node.name, node.args[0].shape, args[0], node.op))
        else:
            nests.append(Nest(node.name, node.shape, (node.op, *args)))
    return nests


# 3. Schedule: what shares a kernel -----------------------------------------------------------------------------------
#
# Memory is what costs. So producers are computed where they are read, and never stored (schedule/inline.py), and what
# has the same rows is one loop over rows (schedule/fuse.py). Real: dependences, threads, tiles, planned memory
# (schedule/plan.py). Every refusal says why, here as there.


def schedule(nests: list[Nest]) -> tuple[list[list[Nest]], list[str]]:
    """Kernels, each a list of nests over the same rows; and what was refused."""
    values: dict[str, tuple] = {}
    kernels: list[list[Nest]] = []
    refused = []
    for nest in nests:
        nest.value = inlined(nest.value, values)
        readers = sum(f"'load', '{nest.name}'" in str(other.value) for other in nests)
        if not nest.reduction and nest is not nests[-1]:
            if readers < 2 or "exp" not in str(nest.value):
                values[nest.name] = nest.value
                continue
            refused.append(f"{nest.name} is stored: it would be computed {readers} times")
        if kernels and kernels[-1][0].domain[0] == nest.domain[0]:
            kernels[-1].append(nest)  # row i of it reads rows i
        else:
            kernels.append([nest])
    return kernels, refused


def inlined(value: tuple, values: dict[str, tuple]) -> tuple:
    if value[0] == "load":
        return values.get(value[1], value)
    return tuple(inlined(each, values) if isinstance(each, tuple) else each for each in value)


# 4. Generate: LLVM IR, and machine code ------------------------------------------------------------------------------
#
# Real: codegen/llvm/ writes vector code with threads, codegen/triton/ kernels for a GPU. The result is one image of
# position-independent code that the on-disk cache stores (runtime/cache/).


class Writer:
    """The text of one kernel, `void kernel(float** buffers)`. `slots`: where in `buffers` each one's address is."""

    def __init__(self, kernel: list[Nest], slots: dict[str, int]) -> None:
        self.slots, self.lines = slots, []
        self.loop(kernel[0].domain[0], lambda row: [self.nest(nest, row) for nest in kernel])

    def new(self, text: str) -> str:
        self.lines.append(f"%v{len(self.lines)} = {text}")
        return f"%v{len(self.lines) - 1}"

    def loop(self, extent: int, body: Callable[[str], Any]) -> None:
        counter, name = self.new("alloca i64"), len(self.lines)
        self.lines += [f"store i64 0, ptr {counter}", f"br label %head{name}", f"head{name}:"]
        index = self.new(f"load i64, ptr {counter}")
        more = self.new(f"icmp slt i64 {index}, {extent}")
        self.lines += [f"br i1 {more}, label %body{name}, label %end{name}", f"body{name}:"]
        body(index)
        following = self.new(f"add i64 {index}, 1")
        self.lines += [f"store i64 {following}, ptr {counter}", f"br label %head{name}", f"end{name}:"]

    def nest(self, nest: Nest, row: str) -> None:
        if not nest.reduction:
            self.loop(nest.domain[1], lambda column: self.store(self.value(nest.value, row, column), nest, row, column))
            return
        op, start = REDUCTIONS[nest.reduction]
        total = self.new("alloca float")
        self.lines.append(f"store float {start}, ptr {total}")

        def fold(column: str) -> None:
            made = self.operation(op, [self.new(f"load float, ptr {total}"), self.value(nest.value, row, column)])
            self.lines.append(f"store float {made}, ptr {total}")

        self.loop(nest.domain[1], fold)
        self.store(self.new(f"load float, ptr {total}"), nest, row, "0")

    def address(self, name: str, shape: tuple, *index: str) -> str:
        row, column = (each if size > 1 else "0" for each, size in zip(index, shape))
        place = self.new(f"add i64 {self.new(f'mul i64 {row}, {shape[1]}')}, {column}")
        buffer = self.new(f"load ptr, ptr {self.new(f'getelementptr ptr, ptr %buffers, i64 {self.slots[name]}')}")
        return self.new(f"getelementptr float, ptr {buffer}, i64 {place}")

    def store(self, value: str, nest: Nest, *index: str) -> None:
        self.lines.append(f"store float {value}, ptr {self.address(nest.name, nest.shape, *index)}")

    def value(self, value: tuple, *index: str) -> str:
        if value[0] == "load":
            return self.new(f"load float, ptr {self.address(value[1], value[2], *index)}")
        if value[0] == "number":
            return self.new(f"fptrunc double {value[1]:.17e} to float")
        return self.operation(value[0], [self.value(each, *index) for each in value[1:]])

    def operation(self, op: str, args: list[str]) -> str:
        if op in ("add", "sub", "mul", "div"):
            return self.new(f"f{op} float {args[0]}, {args[1]}")
        if op == "exp":
            return self.new(f"call float @llvm.exp.f32(float {args[0]})")
        other = "0.0" if op == "relu" else args[1]  # NaN stays NaN, as in eager
        return self.new(f"call float @llvm.maximum.f32(float {args[0]}, float {other})")


def generate(kernels: list[list[Nest]], slots: dict[str, int]) -> tuple[str, Any, list[Callable]]:
    """The text, what owns the machine code, and a function for each kernel."""
    text = "declare float @llvm.exp.f32(float)\ndeclare float @llvm.maximum.f32(float, float)\n"
    for number, kernel in enumerate(kernels):
        body = "\n  ".join(Writer(kernel, slots).lines)
        text += f"define void @kernel{number}(ptr %buffers) {{\n  {body}\n  ret void\n}}\n"
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    machine = llvm.Target.from_default_triple().create_target_machine(opt=3)
    module = llvm.parse_assembly(text)
    builder = llvm.create_pass_builder(machine, llvm.create_pipeline_tuning_options(speed_level=3))
    builder.getModulePassManager().run(module, builder)
    engine = llvm.create_mcjit_compiler(module, machine)
    engine.finalize_object()
    addresses = [engine.get_function_address(f"kernel{number}") for number in range(len(kernels))]
    return text, engine, [ctypes.CFUNCTYPE(None, ctypes.c_void_p)(address) for address in addresses]


# 5. Runtime ----------------------------------------------------------------------------------------------------------
#
# A call takes the first entry whose guards hold; where there is none, one is compiled. Real: runtime/function.py.
# Guards on modules and globals are one comparison of memory words (runtime/guards/), and entries are kept on disk
# (runtime/cache/).


def facts(value: Any) -> Any:
    """What the code was generated for. Real: strides and devices, too, and sizes that may vary (ir/guard.py)."""
    return isinstance(value, torch.Tensor) and (value.dtype, tuple(value.shape), value.is_contiguous())


class Entry:
    """Guards and a program. Real: `Artifact` (ir/artifact.py) is what is stored, `Entry` what serves."""

    def __init__(self, function: FunctionType, args: tuple) -> None:
        self.graph = capture(function, args)
        self.kernels, self.refused = schedule(lower(self.graph))
        self.stored = {nest.name: nest.shape for kernel in self.kernels for nest in kernel}
        names = [*(node.name for node in self.graph.inputs.values()), *self.stored]
        self.llvm, self.owner, self.run = generate(self.kernels, {name: slot for slot, name in enumerate(names)})
        self.text = "def check(function, args):\n"
        scope: dict[str, Any] = {"facts": facts}
        for place, (condition, value) in enumerate(self.graph.guards.items()):
            self.text += f"    if not ({condition.replace('KNOWN', f'k{place}')}): return None\n"
            scope[f"k{place}"] = value
        self.text += f"    return [{', '.join(self.graph.inputs)}]\n"
        exec(self.text, scope)
        self.check: Callable = scope["check"]

    def serve(self, inputs: list[torch.Tensor]) -> torch.Tensor:
        made = [torch.empty(shape) for shape in self.stored.values()]
        buffers = (ctypes.c_void_p * (len(inputs) + len(made)))(*[each.data_ptr() for each in (*inputs, *made)])
        for kernel in self.run:
            kernel(ctypes.addressof(buffers))
        return made[-1]


class Compiled:
    """What `compile` returns. `breaks`: why calls ran eagerly."""

    def __init__(self, function: FunctionType) -> None:
        self.function, self.entries, self.breaks = function, [], []

    def __call__(self, *args: Any) -> Any:
        for entry in self.entries:
            inputs = entry.check(self.function, args)
            if inputs is not None:
                return entry.serve(inputs)
        try:
            self.entries.insert(0, Entry(self.function, args))
        except Break as why:
            self.breaks.append(str(why))
            return self.function(*args)
        return self(*args)


# 6. The tour ---------------------------------------------------------------------------------------------------------

SCALE = 2.0


def shifted(x: Any) -> Any:
    return x - x.amax(-1, True)


def softmax(x: Any, bias: Any) -> Any:
    x = torch.relu(x * SCALE + bias)
    if x.shape[1] > 1:
        x = shifted(x)
    e = torch.exp(x)
    return e / e.sum(-1, True)


def branching(x: Any) -> Any:
    if x.amax(-1, True) > 0:
        return x + 1.0
    return x - 1.0


def main() -> None:
    global SCALE
    fast, x, bias = Compiled(softmax), torch.randn(64, 100), torch.randn(1, 100)
    torch.testing.assert_close(fast(x, bias), softmax(x, bias))
    entry = fast.entries[0]
    print("== capture: the branch is decided, the call of `shifted` is inlined")
    for node in entry.graph.nodes:
        operands = ", ".join(each.name if isinstance(each, Node) else str(each) for each in node.args)
        print(f"  {node.name}: f32{list(node.shape)} = {node.op}({operands})")
    print(f"== guards, as one function\n{entry.text}== schedule: loop nests by kernel")
    for number, kernel in enumerate(entry.kernels):
        for nest in kernel:
            print(f"  kernel{number}: {nest.name}{list(nest.shape)} = {nest.reduction}{nest.value}")
    print("  refused:", *entry.refused)
    print(f"== generate: {len(entry.llvm.splitlines())} lines of LLVM IR\n== runtime")
    fast(x + 1, bias)
    print(f"  other contents: {len(fast.entries)} entry")
    torch.testing.assert_close(fast(x[:8], bias), softmax(x[:8], bias))
    print(f"  another shape: {len(fast.entries)} entries")
    SCALE = 3.0
    torch.testing.assert_close(fast(x, bias), softmax(x, bias))
    print(f"  another value of a global: {len(fast.entries)} entries")
    broken = Compiled(branching)
    assert broken(torch.ones(1, 1)).item() == 2
    print(f"  a branch on a tensor ran eagerly: {broken.breaks[0]}")


if __name__ == "__main__":
    if sys.version_info[:2] != (3, 11):
        sys.exit("the tour reads the byte code of CPython 3.11 alone; Lampwork that of 3.11 to 3.14")
    main()

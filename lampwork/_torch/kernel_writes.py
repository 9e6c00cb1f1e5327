"""Which arguments a kernel of Triton may write, out of Triton's own intermediate code.

    tl.store(out + places, tl.load(x + places) * 2)         {"out"}

A pointer is followed from the function's arguments through everything that computes with it: what is loaded is no
pointer, and every operation that is not known to leave memory alone writes to all pointers that it is given. Numbers
are arguments like others here, so that a branch on one counts with both of its sides.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Mapping
from dataclasses import field
from typing import Any

import torch

from lampwork.ir.record import record


class Elsewhere(Exception):
    """The kernel makes pointers of numbers, or loads them: it may read and write memory that it was not given."""


#: What was found out, by kernel and what it was given; with the kernel, which lives as long.
_found: dict[tuple, tuple[Any, set[str] | None]] = {}


def written_by(kernel: Any, given: Mapping[str, Any]) -> set[str] | None:
    """Names of the arguments that `kernel` (a function of `triton.jit`, or its stand-in in Triton's interpreter) may
    write; None where that is not found out, and it may be all. Raises `Elsewhere`.

    `given`: a value for each argument, with an empty tensor of its element type for a tensor, and any number for one
    that is not known.
    """
    code = kernel.fn.__code__, getattr(kernel, "cache_key", "")
    key = (id(kernel), *code, *((name, _told(each)) for name, each in given.items()))
    try:
        known = _found.get(key)
    except TypeError:  # a constant that cannot be hashed
        return _written_by(kernel, given)
    if known is None:
        known = _found[key] = kernel, _written_by(kernel, given)
    return known[1]


def _told(value: Any) -> Any:
    """What decides about the kernel's code."""
    if isinstance(value, tuple):
        return tuple(map(_told, value))
    return ("tensor", value.dtype) if isinstance(value, torch.Tensor) else (type(value), value)


def _written_by(kernel: Any, given: Mapping[str, Any]) -> set[str] | None:
    from triton.runtime.jit import JITFunction

    try:
        compiled = kernel
        if not isinstance(kernel, JITFunction):
            compiled = JITFunction(kernel.fn)
            if compiled.cache_key and compiled.used_global_vals:
                return None  # the interpreter does not look whether they change, as Triton does
        module, names = _intermediate_code(compiled, given)
        text = module.str_nodebug()
        written = {names[each] for each in _Writes(_functions(module)).of(module.get_entry_func_name())}
    except Exception as error:  # whatever the kernel does that cannot be compiled for these arguments
        if "pointer_type" in inspect.getsource(kernel.fn):
            raise Elsewhere from error
        return None
    if "tt.int_to_ptr" in text or "!tt.ptr<!tt.ptr" in text:
        raise Elsewhere
    return written


def _intermediate_code(kernel: Any, given: Mapping[str, Any]) -> tuple[Any, list[str]]:
    """The module of Triton's, and the names of the arguments that the function in it has."""
    from triton._C.libtriton import ir
    from triton.compiler.compiler import ASTSource, make_backend
    from triton.runtime.jit import mangle_type

    target = _target()
    backend = make_backend(target)
    options = backend.parse_options({})
    signature, constants, names = {}, {}, []
    for parameter in kernel.params:
        value = given[parameter.name]
        if parameter.is_constexpr or value is None:
            signature[parameter.name], constants[parameter.num,] = "constexpr", value
        elif isinstance(value, tuple):
            raise NotImplementedError
        else:
            signature[parameter.name] = parameter.annotation_type or mangle_type(value)
            names.append(parameter.name)
    context = ir.context()
    ir.load_dialects(context)
    backend.load_dialects(context)
    source = ASTSource(kernel, signature, constants, {})
    takes = len(inspect.signature(backend.get_codegen_implementation).parameters)
    implementations = backend.get_codegen_implementation(*[options][:takes])
    given_now = {
        "target": target, "options": options, "codegen_fns": implementations, "module_map": backend.get_module_map(),
        "context": context,
    }  # fmt: skip
    return source.make_ir(**{each: given_now[each] for each in inspect.signature(source.make_ir).parameters}), names


def _target() -> Any:
    """The device that kernels are compiled for; without one, any that Triton knows."""
    from triton.backends.compiler import GPUTarget
    from triton.runtime import driver

    if torch.cuda.is_available():
        return driver.active.get_current_target()
    return GPUTarget("cuda", 90, 32)


# What the module says -------------------------------------------------------------------------------------------------


@record(frozen=False, eq=False)
class _Operation:
    """`blocks`: of its regions, in order, each with the values that it begins with and its operations."""

    name: str
    operands: list[int]
    results: list[int]
    regions: list[int]
    callee: str = ""
    blocks: list[_Block] = field(default_factory=list)


@record(frozen=False, eq=False)
class _Block:
    region: int
    arguments: list[int]
    operations: list[_Operation] = field(default_factory=list)


def _functions(module: Any) -> dict[str, _Operation]:
    functions: dict[str, _Operation] = {}
    blocks: dict[int, _Block] = {}

    def visit(operation: Any) -> None:  # what is inside comes first
        name = operation.get_name()
        made = _Operation(
            name,
            [operation.get_operand(each).id() for each in range(operation.get_num_operands())],
            [operation.get_result(each).id() for each in range(operation.get_num_results())],
            [operation.get_region(each).id() for each in range(operation.get_num_regions())],
            operation.get_flat_symbol_ref_attr("callee") if name == "tt.call" else "",
        )
        for region in made.regions:
            made.blocks += [each for each in blocks.values() if each.region == region]
        block = operation.get_block()
        if block is not None:
            if block.id() not in blocks:
                arguments = [block.get_argument(each).id() for each in range(block.get_num_arguments())]
                region = block.get_parent()
                blocks[block.id()] = _Block(-1 if region is None else region.id(), arguments)
            blocks[block.id()].operations.append(made)
        if name == "tt.func":
            functions[operation.get_str_attr("sym_name")] = made

    module.walk(visit)
    return functions


# Where pointers go ----------------------------------------------------------------------------------------------------

#: Operations that write, with the operands that they write to.
_STORES = {
    "tt.store": 1, "tt.atomic_rmw": 1, "tt.atomic_cas": 1, "tt.descriptor_store": 1, "tt.descriptor_reduce": 1,
    "tt.descriptor_scatter": 1,
}  # fmt: skip
#: Operations that read memory, and give what is no pointer.
_LOADS = frozenset({"tt.load", "tt.descriptor_load", "tt.descriptor_gather"})
#: Operations of these dialects compute with what they are given.
_COMPUTING = ("arith.", "math.", "scf.", "cf.", "ub.")
_KNOWN = frozenset({
    "tt.addptr", "tt.splat", "tt.unsplat", "tt.broadcast", "tt.expand_dims", "tt.reshape", "tt.trans", "tt.bitcast",
    "tt.make_tensor_ptr", "tt.make_tensor_descriptor", "tt.advance", "tt.return", "tt.join", "tt.split", "tt.cat",
    "tt.ptr_to_int", "tt.reduce", "tt.reduce.return", "tt.scan", "tt.scan.return", "tt.assert", "tt.print", "tt.dot",
    "tt.gather", "tt.get_program_id", "tt.get_num_programs", "tt.make_range", "tt.fp_to_fp", "tt.clampf",
    "tt.precise_sqrt", "tt.precise_divf", "tt.mulhiui", "tt.histogram",
})  # fmt: skip


class _Writes:
    """What functions write, each looked at once."""

    def __init__(self, functions: Mapping[str, _Operation]) -> None:
        self.functions = dict(functions)
        self.known: dict[str, _Function] = {}

    def function(self, name: str) -> _Function:
        """Raises `KeyError` for a function that calls itself, which Triton has none of."""
        if name not in self.known:
            self.known[name] = _Function(self, self.functions.pop(name))
        return self.known[name]

    def of(self, name: str) -> set[int]:
        """Positions of the arguments that the function writes to."""
        return self.function(name).written


class _Function:
    def __init__(self, writes: _Writes, function: _Operation) -> None:
        self.writes = writes
        #: Positions of the arguments that a value may point into.
        self.origins: dict[int, set[int]] = {}
        self.written: set[int] = set()
        #: Likewise of each of its results.
        self.returned: dict[int, set[int]] = {}
        self.jumped: set[int] = set()
        entry, *self.others = function.blocks
        for position, each in enumerate(entry.arguments):
            self.origins[each] = {position}
        self.changed = True
        while self.changed:
            self.changed = False
            for block in function.blocks:
                self.block(block)

    def block(self, block: _Block) -> None:
        for each in block.arguments if block in self.others else ():
            self.flow(self.jumped, each)
        for operation in block.operations:
            self.operation(operation)

    def reached(self, values: Iterable[int]) -> set[int]:
        return set().union(*(self.origins.get(each, ()) for each in values))

    def flow(self, origins: set[int], value: int) -> None:
        known = self.origins.setdefault(value, set())
        if not origins <= known:
            known |= origins
            self.changed = True

    def write(self, values: Iterable[int]) -> None:
        self.written |= self.reached(values)

    def operation(self, each: _Operation) -> None:
        name = each.name
        if name.startswith("cf.") and not self.reached(each.operands) <= self.jumped:
            self.jumped |= self.reached(each.operands)
            self.changed = True
        if name in _LOADS:
            return
        if name in _STORES:
            self.write(each.operands[: _STORES[name]])
            return
        if name == "tt.return":
            for position, value in enumerate(each.operands):
                self.returned.setdefault(position, set()).update(self.reached([value]))
        if name == "tt.call":
            called = self.writes.function(each.callee)
            self.write(each.operands[position] for position in called.written)
            for position, value in enumerate(each.results):
                given = [each.operands[origin] for origin in called.returned.get(position, ())]
                self.flow(self.reached(given), value)
            return
        if not name.startswith(_COMPUTING) and name not in _KNOWN:
            self.write(each.operands)
        if each.blocks:
            self.regions(each)
        else:
            for value in each.results:
                self.flow(self.reached(each.operands), value)

    def regions(self, each: _Operation) -> None:
        """An operation that runs others: what it is given is what they begin with, what they end with what it gives."""
        ends = [block.operations[-1].operands for block in each.blocks if block.operations]
        if each.name == "scf.for":
            carried = each.operands[3:]
            self.along(carried, each.blocks[0].arguments[1:], each.results)
            self.along(ends[0], each.blocks[0].arguments[1:], each.results)
        elif each.name == "scf.while":
            before, after = each.blocks
            self.along(each.operands, before.arguments)
            self.along(ends[0][1:], after.arguments, each.results)
            self.along(ends[1], before.arguments)
        elif each.name == "scf.if":
            for end in ends:
                self.along(end, each.results)
        else:
            inside = self.reached([*each.operands, *(value for end in ends for value in end)])
            for value in (*each.results, *(value for block in each.blocks for value in block.arguments)):
                self.flow(inside, value)
        for block in each.blocks:
            for operation in block.operations:
                self.operation(operation)

    def along(self, values: list[int], *places: list[int]) -> None:
        for place in places:
            if len(values) != len(place):
                values = [value for value in values for _ in place][: len(place)] if len(values) == 1 else values
                inside = self.reached(values)
                for value in place:
                    self.flow(inside, value)
                continue
            for value, target in zip(values, place):
                self.flow(self.origins.get(value, set()), target)

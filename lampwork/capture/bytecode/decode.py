"""CPython 3.11 to 3.14 bytecode, normalised to one set of instructions.

`decode(code)` turns a code object into a `Code`: a flat list of `(operation, argument)` pairs whose
jump targets are instruction indices, with the exception table resolved per instruction.  Everything that
differs between the versions is known in this file only; the machine sees one language.

What is normalised away: inline caches, `EXTENDED_ARG`, `NOP`, `RESUME`, `PRECALL`; fused loads and stores;
`KW_NAMES` (names become a constant above the arguments and the call a `CALL_KW`, as on 3.13); `LOAD_METHOD`
and method bits (one `LOAD_METHOD`); slices in brackets (`BUILD_SLICE` and an ordinary subscript);
`RETURN_CONST`, `LOAD_SMALL_INT` and `LOAD_COMMON_CONSTANT`; numbered intrinsics; `END_FOR` (a `FOR_ITER` that is
exhausted pops its iterator and jumps past it); borrowed references; the null in place of the keywords of a
`CALL_FUNCTION_EX` (its argument says whether there are any); the six instructions by which 3.14 enters a `with`
(`BEFORE_WITH`, whose argument says that a null lies below the exit, as there).

What is kept exactly: the depth of the stack at every instruction, because the exception table refers to it.

Non-goals: asynchronous instructions.  They decode to `UNSUPPORTED`; the machine leaves coroutines and
asynchronous generators to CPython and never executes them.
"""

from __future__ import annotations

import builtins
import dis
import operator
import os
import sys
from types import CodeType
from typing import Any

# The machine must outlive a program that rebinds `builtins.len`: functions defined below use this copy.
globals()["__builtins__"] = dict(vars(builtins))

VERSION = sys.version_info[:2]

# Functions defined below this folder are the machine's own and run in CPython, unless marked otherwise.
INTERNAL = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep

OPERATIONS: tuple[str, ...] = (
    # stack
    "POP_TOP", "PUSH_NULL", "SWAP", "COPY", "LOAD_CONST",
    # names: the argument is a slot number or a name
    "LOAD_FAST", "LOAD_FAST_AND_CLEAR", "STORE_FAST", "DELETE_FAST",
    "LOAD_NAME", "STORE_NAME", "DELETE_NAME", "LOAD_LOCALS", "LOAD_FROM_DICT_OR_GLOBALS",
    "LOAD_GLOBAL", "STORE_GLOBAL", "DELETE_GLOBAL",
    "MAKE_CELL", "COPY_FREE_VARS", "LOAD_CLOSURE",
    "LOAD_DEREF", "STORE_DEREF", "DELETE_DEREF", "LOAD_FROM_DICT_OR_DEREF",
    # attributes and items; LOAD_SUPER_ATTR's argument is (name, two_argument_form, as_method)
    "LOAD_ATTR", "LOAD_METHOD", "STORE_ATTR", "DELETE_ATTR", "LOAD_SUPER_ATTR",
    "BINARY_SUBSCR", "STORE_SUBSCR", "DELETE_SUBSCR",
    # operators: the argument is a function of the `operator` module
    "BINARY_OP", "INPLACE_OP", "UNARY_OP", "UNARY_NOT", "COMPARE_OP", "IS_OP", "CONTAINS_OP", "TO_BOOL",
    # building
    "BUILD_TUPLE", "BUILD_LIST", "BUILD_SET", "BUILD_MAP", "BUILD_CONST_KEY_MAP", "BUILD_STRING", "BUILD_SLICE",
    "LIST_TO_TUPLE", "LIST_APPEND", "SET_ADD", "MAP_ADD", "LIST_EXTEND", "SET_UPDATE", "DICT_UPDATE", "DICT_MERGE",
    "FORMAT_VALUE", "CONVERT_VALUE",
    # template strings; BUILD_INTERPOLATION's argument is (conversion, has_spec)
    "BUILD_INTERPOLATION", "BUILD_TEMPLATE",
    "UNPACK_SEQUENCE", "UNPACK_EX",
    # control: the argument is an instruction index
    "JUMP", "POP_JUMP_IF_TRUE", "POP_JUMP_IF_FALSE", "POP_JUMP_IF_NONE", "POP_JUMP_IF_NOT_NONE",
    "JUMP_IF_TRUE_OR_POP", "JUMP_IF_FALSE_OR_POP", "GET_ITER", "FOR_ITER",
    # functions and calls
    "CALL", "CALL_KW", "CALL_FUNCTION_EX", "MAKE_FUNCTION", "SET_FUNCTION_ATTRIBUTE", "RETURN_VALUE",
    # generators; SEND pops its receiver when exhausted, YIELD_VALUE's argument says "inside yield from"
    "RETURN_GENERATOR", "GET_YIELD_FROM_ITER", "SEND", "YIELD_VALUE", "END_SEND", "CLEANUP_THROW",
    # exceptions
    "RAISE_VARARGS", "RERAISE", "PUSH_EXC_INFO", "POP_EXCEPT", "CHECK_EXC_MATCH", "CHECK_EG_MATCH",
    "PREP_RERAISE_STAR", "STOPITERATION_ERROR", "BEFORE_WITH", "WITH_EXCEPT_START",
    # the rest
    "IMPORT_NAME", "IMPORT_FROM", "IMPORT_STAR", "LOAD_BUILD_CLASS", "SETUP_ANNOTATIONS", "PRINT_EXPR",
    "GET_LEN", "MATCH_MAPPING", "MATCH_SEQUENCE", "MATCH_KEYS", "MATCH_CLASS",
    "INTRINSIC_1", "INTRINSIC_2", "UNSUPPORTED",
)  # fmt: skip

OP: dict[str, int] = {name: number for number, name in enumerate(OPERATIONS)}

BINARY_FUNCTIONS: dict[str, Any] = {
    "+": operator.add, "&": operator.and_, "//": operator.floordiv, "<<": operator.lshift, "@": operator.matmul,
    "*": operator.mul, "%": operator.mod, "|": operator.or_, "**": operator.pow, ">>": operator.rshift,
    "-": operator.sub, "/": operator.truediv, "^": operator.xor,
}  # fmt: skip
INPLACE_FUNCTIONS: dict[str, Any] = {
    "+=": operator.iadd, "&=": operator.iand, "//=": operator.ifloordiv, "<<=": operator.ilshift,
    "@=": operator.imatmul, "*=": operator.imul, "%=": operator.imod, "|=": operator.ior, "**=": operator.ipow,
    ">>=": operator.irshift, "-=": operator.isub, "/=": operator.itruediv, "^=": operator.ixor,
}  # fmt: skip
COMPARISONS: dict[str, Any] = {
    "<": operator.lt, "<=": operator.le, "==": operator.eq, "!=": operator.ne, ">": operator.gt, ">=": operator.ge,
}  # fmt: skip

# The order of BINARY_OP's and COMPARE_OP's numbers is the same on all versions. 3.14 adds the subscript at the end.
_BINARY_ORDER = ("+", "&", "//", "<<", "@", "*", "%", "|", "**", ">>", "-", "/", "^")
_COMPARE_ORDER = ("<", "<=", "==", "!=", ">", ">=")
_BINARY: list[tuple[int, Any]] = [(OP["BINARY_OP"], BINARY_FUNCTIONS[s]) for s in _BINARY_ORDER]
_BINARY += [(OP["INPLACE_OP"], INPLACE_FUNCTIONS[s + "="]) for s in _BINARY_ORDER]
_BINARY += [(OP["BINARY_SUBSCR"], None)]
_COMPARE: list[Any] = [COMPARISONS[s] for s in _COMPARE_ORDER]
_COMPARE_SHIFT = {(3, 11): 0, (3, 12): 4, (3, 13): 5}.get(VERSION, 5)

Instruction = tuple[int, Any]
Handler = tuple[int, int, bool]  # (target instruction, stack depth, push the raising position)


class Code:
    """A decoded code object.

    `instructions[i]` is `(operation, argument)`.  `handlers[i]` is `(target, depth, with_position)` where the
    exception table covers instruction i, else None.  `slots` names the local variables, cells and free variables
    in slot order.  `hidden` marks code that belongs to the machine's own substitutes: it is left out of
    tracebacks and of `Machine.location()`.  `is_native` marks code that only CPython runs.
    """

    __slots__ = (
        "raw", "instructions", "handlers", "offsets", "slots", "keywords", "positional", "keyword_only", "simple",
        "empty_locals", "is_generator", "is_native", "hidden", "stub", "live", "_lines",
    )  # fmt: skip

    def __init__(self, raw: CodeType) -> None:
        self.raw = raw
        names = raw.co_varnames
        known = set(names)
        self.slots: tuple[str, ...] = (
            names + tuple(name for name in raw.co_cellvars if name not in known) + raw.co_freevars
        )
        named = raw.co_argcount + raw.co_kwonlyargcount
        # Slots of the parameters that can be given by keyword.
        self.keywords = {names[slot]: slot for slot in range(raw.co_posonlyargcount, named)}
        self.positional = raw.co_argcount
        self.keyword_only = raw.co_kwonlyargcount
        flags = raw.co_flags
        self.simple = not (flags & 0x0C) and not raw.co_kwonlyargcount
        self.is_generator = bool(flags & 0x20)
        # Coroutines, asynchronous generators and `types.coroutine` run in CPython, and so do the functions that
        # 3.12+ makes for type parameters: their bounds are evaluated by the native type variable.
        self.is_native = (
            bool(flags & 0x380)
            or raw.co_name.startswith("<generic parameters of ")
            or raw.co_filename.startswith(INTERNAL)
        )
        self.hidden = False
        self.stub: Any = None
        self.live: list[int] | None = None  # found by `liveness.py` when it is asked for
        self._lines: list[int] | None = None
        self.empty_locals = len(self.slots)
        self.instructions, self.offsets, index_of = _decode_instructions(raw)
        self.handlers: list[Handler | None] = _decode_handlers(raw, len(self.instructions), index_of)

    def line(self, index: int) -> int:
        """Line number of instruction `index`; the function's first line where the compiler recorded none."""
        if self._lines is None:
            self._lines = self._build_lines()
        return self._lines[index] if 0 <= index < len(self._lines) else self.raw.co_firstlineno

    def _build_lines(self) -> list[int]:
        ranges = list(self.raw.co_lines())
        lines: list[int] = []
        position, last = 0, self.raw.co_firstlineno
        for offset in self.offsets:
            while position < len(ranges) and offset >= ranges[position][1]:
                position += 1
            line = ranges[position][2] if position < len(ranges) else None
            if line is not None:
                last = line
            lines.append(last)
        return lines

    def listing(self) -> str:
        """The normalised instructions as text, one per line, for people."""
        rows = []
        for index, (operation, argument) in enumerate(self.instructions):
            shown = "" if argument is None else getattr(argument, "__name__", None) or repr(argument)
            handler = self.handlers[index]
            covered = "" if handler is None else f"   ! {handler[0]} depth {handler[1]}"
            rows.append(f"{self.line(index):5d} {index:5d} {OPERATIONS[operation]:24s} {shown}{covered}")
        return "\n".join(rows)

    def __repr__(self) -> str:
        return f"<Code {self.raw.co_qualname} {len(self.instructions)} instructions>"


_cache: dict[int, Code] = {}
#: With so many entries, those of code that is gone are dropped.
_FEWEST_KEPT = 256
_sweep_at = _FEWEST_KEPT


def decode(code: CodeType) -> Code:
    """The `Code` of a code object; decoded once and kept for as long as a function, or other code, refers to it."""
    # Keyed by identity: equal code objects may differ in file name.  The entry keeps the key alive.
    found = _cache.get(id(code))
    if found is None:
        if len(_cache) >= _sweep_at:
            _drop_unused()
        found = _cache[id(code)] = Code(code)
    return found


def _drop_unused() -> None:
    """Forgets code that nothing but its entry here refers to: no function has it, so nobody decodes it again."""
    global _sweep_at
    for key, found in list(_cache.items()):
        if sys.getrefcount(found.raw) <= 2:  # the entry's, and the argument of this call
            _cache.pop(key, None)
    _sweep_at = max(_FEWEST_KEPT, 2 * len(_cache))


# ---------------------------------------------------------------------------------------------------------
# Instructions

# Translations without a choice: raw name -> (normalised name, how to read the argument).
_PLAIN, _RAW, _CONST, _NAME, _FORWARD, _BACKWARD, _DROP = range(7)
_TESTS = ("TRUE", "FALSE", "NONE", "NOT_NONE")
_SIMPLE: dict[str, tuple[str, int]] = {
    **{
        name: (name, _PLAIN)
        for name in (
            "POP_TOP PUSH_NULL LOAD_LOCALS UNARY_NOT BINARY_SUBSCR STORE_SUBSCR DELETE_SUBSCR TO_BOOL GET_ITER "
            "LIST_TO_TUPLE RETURN_VALUE RETURN_GENERATOR GET_YIELD_FROM_ITER END_SEND CLEANUP_THROW PUSH_EXC_INFO "
            "POP_EXCEPT CHECK_EXC_MATCH CHECK_EG_MATCH PREP_RERAISE_STAR BEFORE_WITH WITH_EXCEPT_START IMPORT_STAR "
            "LOAD_BUILD_CLASS SETUP_ANNOTATIONS PRINT_EXPR GET_LEN MATCH_MAPPING MATCH_SEQUENCE MATCH_KEYS "
            "BUILD_TEMPLATE"
        ).split()
    },
    **{
        name: (name, _RAW)
        for name in (
            "SWAP COPY LOAD_FAST LOAD_FAST_AND_CLEAR STORE_FAST DELETE_FAST MAKE_CELL COPY_FREE_VARS LOAD_CLOSURE "
            "LOAD_DEREF STORE_DEREF DELETE_DEREF LOAD_FROM_DICT_OR_DEREF IS_OP CONTAINS_OP BUILD_TUPLE BUILD_LIST "
            "BUILD_SET BUILD_MAP BUILD_CONST_KEY_MAP BUILD_STRING BUILD_SLICE LIST_APPEND SET_ADD MAP_ADD LIST_EXTEND "
            "SET_UPDATE DICT_UPDATE DICT_MERGE CONVERT_VALUE UNPACK_SEQUENCE CALL CALL_KW MAKE_FUNCTION "
            "SET_FUNCTION_ATTRIBUTE RAISE_VARARGS RERAISE MATCH_CLASS"
        ).split()
    },
    **{
        name: (name, _NAME)
        for name in (
            "LOAD_NAME STORE_NAME DELETE_NAME LOAD_FROM_DICT_OR_GLOBALS STORE_GLOBAL DELETE_GLOBAL STORE_ATTR "
            "DELETE_ATTR IMPORT_NAME IMPORT_FROM LOAD_METHOD"
        ).split()
    },
    **{name: (name, _DROP) for name in "NOP RESUME PRECALL CACHE END_FOR EXTENDED_ARG NOT_TAKEN".split()},
    **{
        name: (name, _FORWARD)
        for name in (
            "POP_JUMP_IF_TRUE POP_JUMP_IF_FALSE POP_JUMP_IF_NONE POP_JUMP_IF_NOT_NONE JUMP_IF_TRUE_OR_POP "
            "JUMP_IF_FALSE_OR_POP FOR_ITER SEND"
        ).split()
    },
    **{f"POP_JUMP_FORWARD_IF_{test}": (f"POP_JUMP_IF_{test}", _FORWARD) for test in _TESTS},
    **{f"POP_JUMP_BACKWARD_IF_{test}": (f"POP_JUMP_IF_{test}", _BACKWARD) for test in _TESTS},
    "JUMP_FORWARD": ("JUMP", _FORWARD),
    "JUMP_BACKWARD": ("JUMP", _BACKWARD),
    "JUMP_BACKWARD_NO_INTERRUPT": ("JUMP", _BACKWARD),
    "LOAD_CONST": ("LOAD_CONST", _CONST),
    "LOAD_SMALL_INT": ("LOAD_CONST", _RAW),
    "LOAD_FAST_CHECK": ("LOAD_FAST", _RAW),
    "LOAD_FAST_BORROW": ("LOAD_FAST", _RAW),
    "POP_ITER": ("POP_TOP", _PLAIN),
}  # fmt: skip
_CONSTANT_ARGUMENTS: dict[str, Instruction] = {
    "UNARY_POSITIVE": (OP["UNARY_OP"], operator.pos),
    "UNARY_NEGATIVE": (OP["UNARY_OP"], operator.neg),
    "UNARY_INVERT": (OP["UNARY_OP"], operator.invert),
    "LOAD_ASSERTION_ERROR": (OP["LOAD_CONST"], AssertionError),
    "FORMAT_SIMPLE": (OP["FORMAT_VALUE"], (0, False)),
    "FORMAT_WITH_SPEC": (OP["FORMAT_VALUE"], (0, True)),
}

_COMMON_CONSTANTS = (AssertionError, NotImplementedError, tuple, all, any)
_INTRINSICS_1 = {
    1: ("PRINT_EXPR", None),
    2: ("IMPORT_STAR", None),
    3: ("STOPITERATION_ERROR", None),
    5: ("UNARY_OP", operator.pos),
    6: ("LIST_TO_TUPLE", None),
}


def _special(name: str, arg: int, raw: CodeType, previous: int) -> list[Instruction]:
    """The normalised instructions of a raw instruction whose form differs between versions.

    `previous` is the number of the raw instruction before it.
    """
    if name == "LOAD_GLOBAL":
        load = (OP["LOAD_GLOBAL"], raw.co_names[arg >> 1])
        return [(OP["PUSH_NULL"], None), load] if arg & 1 else [load]
    if name == "LOAD_ATTR":
        if VERSION == (3, 11):
            return [(OP["LOAD_ATTR"], raw.co_names[arg])]
        return [(OP["LOAD_METHOD" if arg & 1 else "LOAD_ATTR"], raw.co_names[arg >> 1])]
    if name == "BINARY_OP":
        return [_BINARY[arg]]
    if name == "COMPARE_OP":
        compare = (OP["COMPARE_OP"], _COMPARE[arg >> _COMPARE_SHIFT])
        return [compare, (OP["TO_BOOL"], None)] if VERSION >= (3, 13) and arg & 16 else [compare]
    if name == "LOAD_FAST_LOAD_FAST" or name == "LOAD_FAST_BORROW_LOAD_FAST_BORROW":
        return [(OP["LOAD_FAST"], arg >> 4), (OP["LOAD_FAST"], arg & 15)]
    if name == "STORE_FAST_LOAD_FAST":
        return [(OP["STORE_FAST"], arg >> 4), (OP["LOAD_FAST"], arg & 15)]
    if name == "STORE_FAST_STORE_FAST":
        return [(OP["STORE_FAST"], arg >> 4), (OP["STORE_FAST"], arg & 15)]
    if name == "RETURN_CONST":
        return [(OP["LOAD_CONST"], raw.co_consts[arg]), (OP["RETURN_VALUE"], None)]
    if name == "LOAD_COMMON_CONSTANT" and arg < len(_COMMON_CONSTANTS):
        return [(OP["LOAD_CONST"], _COMMON_CONSTANTS[arg])]
    if name == "YIELD_VALUE":
        return [(OP["YIELD_VALUE"], False)]  # _decode_instructions notices `yield from`
    if name == "LOAD_SUPER_ATTR":
        return [(OP["LOAD_SUPER_ATTR"], (raw.co_names[arg >> 2], bool(arg & 2), bool(arg & 1)))]
    if name == "BINARY_SLICE":
        return [(OP["BUILD_SLICE"], 2), (OP["BINARY_SUBSCR"], None)]
    if name == "STORE_SLICE":
        return [(OP["BUILD_SLICE"], 2), (OP["STORE_SUBSCR"], None)]
    if name == "FORMAT_VALUE":
        return [(OP["FORMAT_VALUE"], (arg & 3, bool(arg & 4)))]
    if name == "CALL_FUNCTION_EX":
        return [(OP["CALL_FUNCTION_EX"], previous != _PUSH_NULL if _NULL_KEYWORDS else bool(arg & 1))]
    if name == "BUILD_INTERPOLATION":
        return [(OP["BUILD_INTERPOLATION"], (arg >> 2, bool(arg & 1)))]
    if name == "UNPACK_EX":
        return [(OP["UNPACK_EX"], (arg & 0xFF, arg >> 8))]
    if name == "LOAD_CLASSDEREF":
        return [(OP["LOAD_LOCALS"], None), (OP["LOAD_FROM_DICT_OR_DEREF"], arg)]
    if name == "CALL_INTRINSIC_1":
        found = _INTRINSICS_1.get(arg)
        return [(OP["INTRINSIC_1"], arg)] if found is None else [(OP[found[0]], found[1])]
    if name == "CALL_INTRINSIC_2":
        return [(OP["PREP_RERAISE_STAR"], None)] if arg == 1 else [(OP["INTRINSIC_2"], arg)]
    return [(OP["UNSUPPORTED"], name)]


def _build_table() -> tuple[list[tuple[int, int] | None], list[Instruction | None]]:
    simple: list[tuple[int, int] | None] = [None] * 256
    constant: list[Instruction | None] = [None] * 256
    for number, name in enumerate(dis.opname[:256]):
        if name == "LOAD_METHOD" and VERSION > (3, 11):
            continue
        if name in _SIMPLE:
            target, kind = _SIMPLE[name]
            simple[number] = (OP.get(target, -1), kind)
        elif name in _CONSTANT_ARGUMENTS:
            constant[number] = _CONSTANT_ARGUMENTS[name]
    return simple, constant


_TABLE, _CONSTANT_TABLE = _build_table()
_CACHE = 0
_EXTENDED_ARG = dis.opmap["EXTENDED_ARG"]
_KW_NAMES = dis.opmap.get("KW_NAMES", -1)
_CALL = dis.opmap["CALL"]
_END_FOR = dis.opmap.get("END_FOR", -1)
_END_SEND = dis.opmap.get("END_SEND", -1)
_POP_TOP = dis.opmap["POP_TOP"]
# What takes the iterator of a loop off the stack after END_FOR; up to 3.12 FOR_ITER does.
_AFTER_END_FOR = dis.opmap.get("POP_ITER", _POP_TOP if VERSION >= (3, 13) else -1)
# From 3.14 on CALL_FUNCTION_EX always takes keywords, which may be null.
_NULL_KEYWORDS = VERSION >= (3, 14)
_PUSH_NULL = dis.opmap["PUSH_NULL"]
_CALL_FUNCTION_EX = dis.opmap["CALL_FUNCTION_EX"]
_COPY = dis.opmap["COPY"]
_SEND = OP["SEND"]
_FOR_ITER = OP["FOR_ITER"]
_YIELD = OP["YIELD_VALUE"]


def _raw_enter() -> bytes:
    """The instructions by which 3.14 enters a `with`, none on other versions."""
    if "LOAD_SPECIAL" not in dis.opmap:
        return b""
    steps = (("COPY", 1), ("LOAD_SPECIAL", 1), ("SWAP", 2), ("SWAP", 3), ("LOAD_SPECIAL", 0), ("CALL", 0))
    return bytes(byte for name, argument in steps for byte in (dis.opmap[name], argument))


_RAW_ENTER = _raw_enter()


def _decode_instructions(raw: CodeType) -> tuple[list[Instruction], list[int], dict[int, int]]:
    """(instructions, raw offset of each, index of the first instruction at or after each raw offset)."""
    data = raw.co_code
    names, constants = raw.co_names, raw.co_consts
    out: list[Instruction] = []
    offsets: list[int] = []
    index_of: dict[int, int] = {}
    jumps: list[tuple[int, int]] = []  # (index of the instruction, raw target offset)
    extended = 0
    keyword_names: Any = None
    size = len(data)
    offset = -2
    while offset + 2 < size:
        offset += 2
        number = data[offset]
        index_of[offset] = len(out)
        if number == _CACHE:
            continue
        arg = data[offset + 1] | extended
        if number == _EXTENDED_ARG:
            extended = arg << 8
            continue
        extended = 0
        if number == _COPY and _RAW_ENTER and data.startswith(_RAW_ENTER, offset):
            for within in range(offset, offset + len(_RAW_ENTER), 2):
                index_of[within] = len(out)
            offset += len(_RAW_ENTER) - 2
            out.append((OP["BEFORE_WITH"], True))
            offsets.append(offset)
            continue
        if number == _PUSH_NULL and _NULL_KEYWORDS and data[offset + 2] == _CALL_FUNCTION_EX:
            continue
        entry = _TABLE[number]
        if entry is not None:
            operation, kind = entry
            if kind == _DROP:
                continue
            if number == _CALL and keyword_names is not None:
                out.append((OP["LOAD_CONST"], keyword_names))
                offsets.append(offset)
                out.append((OP["CALL_KW"], arg))
                keyword_names = None
            elif kind == _RAW:
                out.append((operation, arg))
            elif kind == _PLAIN:
                out.append((operation, None))
            elif kind == _CONST:
                out.append((operation, constants[arg]))
            elif kind == _NAME:
                out.append((operation, names[arg]))
            else:
                after = offset + 2
                while after < size and data[after] == _CACHE:
                    after += 2
                target = after + 2 * arg if kind == _FORWARD else after - 2 * arg
                if operation == _FOR_ITER and target < size and data[target] == _END_FOR:
                    # Exhaustion skips END_FOR and, from 3.13 on, what pops the iterator after it.
                    target += 2
                    if data[target] == _AFTER_END_FOR:
                        target += 2
                elif operation == _SEND and data[target] == _END_SEND:
                    target += 2
                jumps.append((len(out), target))
                out.append((operation, target))
            offsets.append(offset)
            continue
        constant = _CONSTANT_TABLE[number]
        if constant is not None:
            out.append(constant)
            offsets.append(offset)
        elif number == _KW_NAMES:
            keyword_names = constants[arg]
        else:
            for instruction in _special(dis.opname[number], arg, raw, data[offset - 2]):
                if instruction[0] == _YIELD and out and out[-1][0] == _SEND:
                    instruction = (_YIELD, True)
                out.append(instruction)
                offsets.append(offset)
    index_of[size] = len(out)
    for index, target in jumps:
        out[index] = (out[index][0], index_of[target])
    return out, offsets, index_of


# ---------------------------------------------------------------------------------------------------------
# The exception table (Objects/exception_handling_notes.txt in CPython's sources)


def _decode_handlers(raw: CodeType, count: int, index_of: dict[int, int]) -> list[Handler | None]:
    handlers: list[Handler | None] = [None] * count
    table = raw.co_exceptiontable
    if not table:
        return handlers
    data = iter(table)

    def number() -> int | None:
        byte = next(data, None)
        if byte is None:
            return None
        value = byte & 63
        while byte & 64:
            byte = next(data)
            value = (value << 6) | (byte & 63)
        return value

    while True:
        start = number()
        if start is None:
            return handlers
        length, target, depth_and_position = number(), number(), number()
        assert length is not None and target is not None and depth_and_position is not None
        handler = (index_of[2 * target], depth_and_position >> 1, bool(depth_and_position & 1))
        end = 2 * (start + length)
        for index in range(index_of[2 * start], index_of.get(end, count)):
            handlers[index] = handler

"""Which local variables of suspended code are read again. The others do not outlive a break.

Leaving them out keeps layouts of suspended frames few: paths that left different temporaries behind still meet.
"""

from __future__ import annotations

from lampwork.capture.bytecode.decode import OPERATIONS, Code

_READS = frozenset({
    "LOAD_FAST", "LOAD_FAST_AND_CLEAR", "DELETE_FAST", "MAKE_CELL", "LOAD_CLOSURE", "LOAD_DEREF", "STORE_DEREF",
    "DELETE_DEREF", "LOAD_FROM_DICT_OR_DEREF",
})  # fmt: skip
_WRITES = frozenset({"STORE_FAST", "LOAD_FAST_AND_CLEAR", "DELETE_FAST"})
_JUMPS = frozenset({
    "JUMP", "POP_JUMP_IF_TRUE", "POP_JUMP_IF_FALSE", "POP_JUMP_IF_NONE", "POP_JUMP_IF_NOT_NONE", "JUMP_IF_TRUE_OR_POP",
    "JUMP_IF_FALSE_OR_POP", "FOR_ITER", "SEND",
})  # fmt: skip
_ENDS = frozenset({"JUMP", "RETURN_VALUE", "RAISE_VARARGS", "RERAISE"})
#: Functions that look at the variables of their caller, by the names programs call them by.
_LOOKS_AT_FRAME = frozenset({
    "locals", "vars", "dir", "eval", "exec", "super", "_getframe", "currentframe", "stack", "globals",
})  # fmt: skip
#: Names by which code gets hold of a frame, its own or one of those below.
_HOLDS_FRAME = frozenset({"_getframe", "currentframe", "tb_frame"})


def holds_frame(code: Code) -> bool:
    """Whether the code may keep a frame as an object. What stands for a suspended frame stands still on one line."""
    return not _HOLDS_FRAME.isdisjoint(code.raw.co_names)


def looks_at_frame(code: Code) -> bool:
    """Whether the code may read its local variables other than by name."""
    return not _LOOKS_AT_FRAME.isdisjoint(code.raw.co_names)


def live_slots(code: Code, *indices: int) -> frozenset[int]:
    """The slots that may be read after going on at any of these instructions."""
    if looks_at_frame(code):
        return frozenset(range(len(code.slots)))
    if code.live is None:
        code.live = _analyse(code)
    bits = 0
    for index in indices:
        bits |= code.live[index]
    return frozenset(slot for slot in range(len(code.slots)) if bits >> slot & 1)


def _analyse(code: Code) -> list[int]:
    """For each instruction, the set of slots (as bits) that are read from there on before they are written."""
    instructions = code.instructions
    live = [0] * (len(instructions) + 1)
    changed = True
    while changed:
        changed = False
        for index in range(len(instructions) - 1, -1, -1):
            number, argument = instructions[index]
            name = OPERATIONS[number]
            after = 0 if name in _ENDS else live[index + 1]
            if name in _JUMPS:
                after |= live[argument]
            if name in _WRITES:
                after &= ~(1 << argument)
            if name in _READS:
                after |= 1 << argument
            handler = code.handlers[index]
            if handler is not None:
                after |= live[handler[0]]
            if after != live[index]:
                live[index] = after
                changed = True
    return live

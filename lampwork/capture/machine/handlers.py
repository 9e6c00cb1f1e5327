"""One method per normalised instruction.

A handler receives the running frame and the instruction's argument.  It answers a true value when the loop
must look at the stack of frames again (a frame was pushed or popped, an exception was re-raised, or the handled
exception changed), and nothing otherwise.  Every operation on values is the world's.
"""

from __future__ import annotations

from types import CellType
from typing import Any

from ..bytecode.decode import OP
from .classes import BuildClass
from .errors import Unsupported
from .flow import Flow
from .frames import Frame
from .intrinsics import intrinsic_1, intrinsic_2
from .private import keep_builtins
from .values import NULL, UNBOUND, Enter

keep_builtins(globals())

_BRANCHES = (OP["POP_JUMP_IF_TRUE"], OP["POP_JUMP_IF_FALSE"])


class Handlers(Flow):
    """The instructions of `Machine`: here those that load, store and compute."""

    # -- stack

    def POP_TOP(self, frame: Frame, argument: Any) -> Any:
        frame.stack.pop()

    def PUSH_NULL(self, frame: Frame, argument: Any) -> Any:
        frame.stack.append(NULL)

    def SWAP(self, frame: Frame, argument: Any) -> Any:
        stack = frame.stack
        stack[-1], stack[-argument] = stack[-argument], stack[-1]

    def COPY(self, frame: Frame, argument: Any) -> Any:
        frame.stack.append(frame.stack[-argument])

    def LOAD_CONST(self, frame: Frame, argument: Any) -> Any:
        frame.stack.append(argument)

    # -- local variables, cells

    def LOAD_FAST(self, frame: Frame, argument: Any) -> Any:
        value = frame.locals[argument]
        if value is UNBOUND:
            self.raise_unbound(frame, argument)
        frame.stack.append(value)

    def LOAD_CLOSURE(self, frame: Frame, argument: Any) -> Any:
        frame.stack.append(frame.locals[argument])

    def LOAD_FAST_AND_CLEAR(self, frame: Frame, argument: Any) -> Any:
        frame.stack.append(frame.locals[argument])
        frame.locals[argument] = UNBOUND

    def STORE_FAST(self, frame: Frame, argument: Any) -> Any:
        frame.locals[argument] = frame.stack.pop()

    def DELETE_FAST(self, frame: Frame, argument: Any) -> Any:
        if frame.locals[argument] is UNBOUND:
            self.raise_unbound(frame, argument)
        frame.locals[argument] = UNBOUND

    def raise_unbound(self, frame: Frame, slot: int) -> None:
        name = frame.code.slots[slot]
        if name in frame.code.raw.co_freevars:
            raise NameError(
                f"cannot access free variable '{name}' where it is not associated with a value in enclosing scope",
                name=name,
            )
        # Its `name` is None: CPython sets that of NameErrors proper alone.
        raise UnboundLocalError(f"cannot access local variable '{name}' where it is not associated with a value")

    def MAKE_CELL(self, frame: Frame, argument: Any) -> Any:
        value = frame.locals[argument]
        frame.locals[argument] = CellType() if value is UNBOUND else CellType(value)

    def COPY_FREE_VARS(self, frame: Frame, argument: Any) -> Any:
        if argument:
            frame.locals[-argument:] = frame.closure or ()

    def LOAD_DEREF(self, frame: Frame, argument: Any) -> Any:
        value = self.world.load_cell(frame.locals[argument])
        if value is UNBOUND:
            self.raise_unbound(frame, argument)
        frame.stack.append(value)

    def STORE_DEREF(self, frame: Frame, argument: Any) -> Any:
        self.world.store_cell(frame.locals[argument], frame.stack.pop())

    def DELETE_DEREF(self, frame: Frame, argument: Any) -> Any:
        cell = frame.locals[argument]
        if self.world.load_cell(cell) is UNBOUND:
            self.raise_unbound(frame, argument)
        self.world.delete_cell(cell)

    def LOAD_FROM_DICT_OR_DEREF(self, frame: Frame, argument: Any) -> Any:
        names = frame.stack.pop()
        value = self.world.mapping_lookup(names, frame.code.slots[argument])
        if value is UNBOUND:
            value = self.world.load_cell(frame.locals[argument])
            if value is UNBOUND:
                self.raise_unbound(frame, argument)
        frame.stack.append(value)

    # -- names and globals

    def LOAD_NAME(self, frame: Frame, argument: Any) -> Any:
        frame.stack.append(self.world.load_name(frame, argument))

    def STORE_NAME(self, frame: Frame, argument: Any) -> Any:
        self.world.store_name(frame, argument, frame.stack.pop())

    def DELETE_NAME(self, frame: Frame, argument: Any) -> Any:
        self.world.delete_name(frame, argument)

    def LOAD_LOCALS(self, frame: Frame, argument: Any) -> Any:
        frame.stack.append(frame.names)

    def LOAD_FROM_DICT_OR_GLOBALS(self, frame: Frame, argument: Any) -> Any:
        names = frame.stack.pop()
        value = self.world.mapping_lookup(names, argument)
        if value is UNBOUND:
            value = self.world.load_global(frame, argument)
        frame.stack.append(value)

    def LOAD_GLOBAL(self, frame: Frame, argument: Any) -> Any:
        frame.stack.append(self.world.load_global(frame, argument))

    def STORE_GLOBAL(self, frame: Frame, argument: Any) -> Any:
        self.world.store_global(frame, argument, frame.stack.pop())

    def DELETE_GLOBAL(self, frame: Frame, argument: Any) -> Any:
        self.world.delete_global(frame, argument)

    # -- attributes and items

    def LOAD_ATTR(self, frame: Frame, argument: Any) -> Any:
        stack = frame.stack
        value = self.world.load_attr(stack.pop(), argument)
        if type(value) is Enter:
            return self.deliver(frame, value)
        stack.append(value)

    def LOAD_METHOD(self, frame: Frame, argument: Any) -> Any:
        stack = frame.stack
        value = self.world.load_attr(stack.pop(), argument)
        stack.append(NULL)
        if type(value) is Enter:
            return self.deliver(frame, value)
        stack.append(value)

    def STORE_ATTR(self, frame: Frame, argument: Any) -> Any:
        stack = frame.stack
        target = stack.pop()
        self.world.store_attr(target, argument, stack.pop())

    def DELETE_ATTR(self, frame: Frame, argument: Any) -> Any:
        self.world.delete_attr(frame.stack.pop(), argument)

    def LOAD_SUPER_ATTR(self, frame: Frame, argument: Any) -> Any:
        name, two_arguments, as_method = argument
        stack = frame.stack
        instance, cls, function = stack.pop(), stack.pop(), stack.pop()
        value = self.world.load_super_attr(function, cls, instance, name, two_arguments)
        if as_method:
            stack.append(NULL)
        return self.deliver(frame, value)

    def BINARY_SUBSCR(self, frame: Frame, argument: Any) -> Any:
        stack = frame.stack
        key = stack.pop()
        value = self.world.get_item(stack.pop(), key)
        if type(value) is Enter:
            return self.deliver(frame, value)
        stack.append(value)

    def STORE_SUBSCR(self, frame: Frame, argument: Any) -> Any:
        stack = frame.stack
        key, container = stack.pop(), stack.pop()
        self.world.set_item(container, key, stack.pop())

    def DELETE_SUBSCR(self, frame: Frame, argument: Any) -> Any:
        key = frame.stack.pop()
        self.world.del_item(frame.stack.pop(), key)

    # -- operators

    def BINARY_OP(self, frame: Frame, argument: Any) -> Any:
        stack = frame.stack
        right = stack.pop()
        value = self.world.binary_op(argument, stack.pop(), right)
        if type(value) is Enter:
            return self.deliver(frame, value)
        stack.append(value)

    def INPLACE_OP(self, frame: Frame, argument: Any) -> Any:
        stack = frame.stack
        right = stack.pop()
        value = self.world.inplace_op(argument, stack.pop(), right)
        if type(value) is Enter:
            return self.deliver(frame, value)
        stack.append(value)

    def UNARY_OP(self, frame: Frame, argument: Any) -> Any:
        return self.deliver(frame, self.world.unary_op(argument, frame.stack.pop()))

    def UNARY_NOT(self, frame: Frame, argument: Any) -> Any:
        frame.stack.append(not self.world.truth(frame.stack.pop()))

    def COMPARE_OP(self, frame: Frame, argument: Any) -> Any:
        stack = frame.stack
        right = stack.pop()
        value = self.world.compare_op(argument, stack.pop(), right)
        if type(value) is Enter:
            return self.deliver(frame, value)
        stack.append(value)

    def IS_OP(self, frame: Frame, argument: Any) -> Any:
        right = frame.stack.pop()
        same = self.world.is_(frame.stack.pop(), right)
        frame.stack.append(not same if argument else same)

    def CONTAINS_OP(self, frame: Frame, argument: Any) -> Any:
        container = frame.stack.pop()
        found = self.world.contains(frame.stack.pop(), container)
        frame.stack.append(not found if argument else found)

    def TO_BOOL(self, frame: Frame, argument: Any) -> Any:
        value = frame.stack[-1]
        if value is not True and value is not False and frame.code.instructions[frame.index][0] not in _BRANCHES:
            frame.stack[-1] = self.world.truth(value)

    # -- building

    def take(self, frame: Frame, count: int) -> list[Any]:
        if not count:
            return []
        values = frame.stack[-count:]
        del frame.stack[-count:]
        return values

    def BUILD_TUPLE(self, frame: Frame, argument: Any) -> Any:
        frame.stack.append(tuple(self.take(frame, argument)))

    def BUILD_LIST(self, frame: Frame, argument: Any) -> Any:
        frame.stack.append(self.world.build_list(self.take(frame, argument)))

    def BUILD_SET(self, frame: Frame, argument: Any) -> Any:
        frame.stack.append(self.world.build_set(self.take(frame, argument)))

    def BUILD_MAP(self, frame: Frame, argument: Any) -> Any:
        flat = self.take(frame, 2 * argument)
        frame.stack.append(self.world.build_map(flat[::2], flat[1::2]))

    def BUILD_CONST_KEY_MAP(self, frame: Frame, argument: Any) -> Any:
        keys = frame.stack.pop()
        frame.stack.append(self.world.build_map(keys, self.take(frame, argument)))

    def BUILD_STRING(self, frame: Frame, argument: Any) -> Any:
        frame.stack.append(self.world.build_string(self.take(frame, argument)))

    def BUILD_SLICE(self, frame: Frame, argument: Any) -> Any:
        frame.stack.append(self.world.build_slice(self.take(frame, argument)))

    def LIST_TO_TUPLE(self, frame: Frame, argument: Any) -> Any:
        frame.stack[-1] = self.world.list_to_tuple(frame.stack[-1])

    def LIST_APPEND(self, frame: Frame, argument: Any) -> Any:
        value = frame.stack.pop()
        self.world.list_append(frame.stack[-argument], value)

    def SET_ADD(self, frame: Frame, argument: Any) -> Any:
        value = frame.stack.pop()
        self.world.set_add(frame.stack[-argument], value)

    def MAP_ADD(self, frame: Frame, argument: Any) -> Any:
        value, key = frame.stack.pop(), frame.stack.pop()
        self.world.map_add(frame.stack[-argument], key, value)

    def LIST_EXTEND(self, frame: Frame, argument: Any) -> Any:
        values = frame.stack.pop()
        self.world.list_extend(frame.stack[-argument], values)

    def SET_UPDATE(self, frame: Frame, argument: Any) -> Any:
        values = frame.stack.pop()
        self.world.set_update(frame.stack[-argument], values)

    def DICT_UPDATE(self, frame: Frame, argument: Any) -> Any:
        mapping = frame.stack.pop()
        self.world.dict_update(frame.stack[-argument], mapping)

    def DICT_MERGE(self, frame: Frame, argument: Any) -> Any:
        stack = frame.stack
        mapping = stack.pop()
        # The callable lies below the positional arguments; 3.13 has a null between them.
        function = stack[-argument - 2]
        if function is NULL:
            function = stack[-argument - 3]
        self.world.dict_merge(stack[-argument], mapping, function)

    def FORMAT_VALUE(self, frame: Frame, argument: Any) -> Any:
        conversion, has_spec = argument
        spec = frame.stack.pop() if has_spec else ""
        frame.stack.append(self.world.format_value(frame.stack.pop(), conversion, spec))

    def CONVERT_VALUE(self, frame: Frame, argument: Any) -> Any:
        frame.stack.append(self.world.convert_value(frame.stack.pop(), argument))

    def BUILD_INTERPOLATION(self, frame: Frame, argument: Any) -> Any:
        conversion, has_spec = argument
        stack = frame.stack
        spec = stack.pop() if has_spec else ""
        text = stack.pop()
        stack.append(self.world.build_interpolation(stack.pop(), text, conversion, spec))

    def BUILD_TEMPLATE(self, frame: Frame, argument: Any) -> Any:
        interpolations = frame.stack.pop()
        frame.stack.append(self.world.build_template(frame.stack.pop(), interpolations))

    def UNPACK_SEQUENCE(self, frame: Frame, argument: Any) -> Any:
        values = self.world.unpack_sequence(frame.stack.pop(), argument)
        frame.stack.extend(values[::-1])

    def UNPACK_EX(self, frame: Frame, argument: Any) -> Any:
        values = self.world.unpack_ex(frame.stack.pop(), *argument)
        frame.stack.extend(values[::-1])

    # -- imports, classes, patterns

    def IMPORT_NAME(self, frame: Frame, argument: Any) -> Any:
        names = frame.stack.pop()
        level = frame.stack.pop()
        return self.deliver(frame, self.world.import_name(frame, argument, names, level))

    def IMPORT_FROM(self, frame: Frame, argument: Any) -> Any:
        frame.stack.append(self.world.import_from(frame.stack[-1], argument))

    def IMPORT_STAR(self, frame: Frame, argument: Any) -> Any:
        # 3.11 pops the module; the intrinsic of 3.12 leaves None, which a POP_TOP removes.
        self.world.import_star(frame, frame.stack.pop())
        if self.intrinsic_leaves_value:
            frame.stack.append(None)

    def LOAD_BUILD_CLASS(self, frame: Frame, argument: Any) -> Any:
        build = self.world.load_build_class(frame)
        frame.stack.append(BuildClass(self) if build is BuildClass.native else build)

    def SETUP_ANNOTATIONS(self, frame: Frame, argument: Any) -> Any:
        if self.world.mapping_lookup(frame.names, "__annotations__") is UNBOUND:
            self.world.store_name(frame, "__annotations__", {})

    def PRINT_EXPR(self, frame: Frame, argument: Any) -> Any:
        self.world.print_expression(frame.stack.pop())
        if self.intrinsic_leaves_value:
            frame.stack.append(None)

    def GET_LEN(self, frame: Frame, argument: Any) -> Any:
        frame.stack.append(self.world.length(frame.stack[-1]))

    def MATCH_MAPPING(self, frame: Frame, argument: Any) -> Any:
        frame.stack.append(self.world.match_mapping(frame.stack[-1]))

    def MATCH_SEQUENCE(self, frame: Frame, argument: Any) -> Any:
        frame.stack.append(self.world.match_sequence(frame.stack[-1]))

    def MATCH_KEYS(self, frame: Frame, argument: Any) -> Any:
        frame.stack.append(self.world.match_keys(frame.stack[-2], frame.stack[-1]))

    def MATCH_CLASS(self, frame: Frame, argument: Any) -> Any:
        stack = frame.stack
        names, cls = stack.pop(), stack.pop()
        stack.append(self.world.match_class(stack.pop(), cls, argument, names))

    def INTRINSIC_1(self, frame: Frame, argument: Any) -> Any:
        frame.stack[-1] = intrinsic_1(argument)(frame.stack[-1])

    def INTRINSIC_2(self, frame: Frame, argument: Any) -> Any:
        second = frame.stack.pop()
        frame.stack[-1] = intrinsic_2(argument)(frame.stack[-1], second)

    def UNSUPPORTED(self, frame: Frame, argument: Any) -> Any:
        raise Unsupported(f"the bytecode instruction {argument}", (frame.filename, frame.line))

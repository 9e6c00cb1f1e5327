"""Copies: what a program does to some buffers, it does to many others alike (`Lowered.copies`).

    items: p0 += -lr * g0        copies: p0 g0 | p1 g1 | p2 g2        ->      rows of one launch, or p1 += -lr * g1; ...

Nests that touch the buffers of a table's first row, and what they make, are that table's. Where they become a kernel
that runs for many rows (`horizontal.py`), the others are further rows. Where they do not (`NotFused`), they are written
out.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from lampwork.ir.loops import Compute, Expr, Load, LoopNest
from lampwork.ir.program import Extern, Item, Lowered, TensorRef
from lampwork.schedule.dependences import accesses

#: What a buffer is called in a copy.
Rename = Callable[[str], str]
#: For each copy, the first being what is there: the names of its buffers.
Table = tuple[tuple[str, ...], ...]


class NotFused(Exception):
    """Nests of these tables, by number, do not become rows."""

    def __init__(self, tables: set[int]) -> None:
        super().__init__("copies that do not become rows")
        self.tables = tables


class Copies:
    """The tables of a program, and how the buffers of each copy are called."""

    def __init__(self, tables: Sequence[Table] = ()) -> None:
        self.tables = tables
        self._first = {name: number for number, table in enumerate(tables) for name in table[0]}
        self._names = [[dict(zip(table[0], row)) for row in table] for table in tables]

    def __bool__(self) -> bool:
        return bool(self.tables)

    def of(self, items: Sequence[Item]) -> list[int]:
        """For each item the table it is of, -1 for none. Raises `NotFused` for those of several."""
        if not self.tables:
            return [-1] * len(items)
        found, of = [], dict(self._first)
        for item in items:
            reads, writes = accesses(item)
            tables = {of[name] for name in (*reads, *writes) if name in of}
            if len(tables) > 1:
                raise NotFused(tables)
            table = next(iter(tables), -1)
            if table >= 0:
                for name in writes:
                    of[name] = table
            found.append(table)
        return found

    def count(self, table: int) -> int:
        """How often the program does what it does to a table's first row."""
        return len(self.tables[table]) if table >= 0 else 1

    def name(self, table: int, copy: int, name: str, made: set[str]) -> str:
        """What `name` is called in a copy. `made`: what the table's nests make, which each copy has for itself."""
        found = self._names[table][copy].get(name)
        if found is None:
            found = f"copy{copy}_{name}" if copy and name in made else name
        return found


def written_out(lowered: Lowered, wanted: set[int]) -> Lowered:
    """The program with the copies of the tables `wanted`, by number, as items of their own, each after its model."""
    copies = Copies([table if number in wanted else table[:1] for number, table in enumerate(lowered.copies)])
    buffers = dict(lowered.buffers)
    items: list[Item] = []
    made: dict[int, set[str]] = {}
    for item, table in zip(lowered.items, copies.of(lowered.items)):
        items.append(item)
        if table < 0 or table not in wanted:
            continue
        own = made.setdefault(table, set())
        own.update(name for name in accesses(item)[1] if buffers[name].kind != "input")
        for copy in range(1, copies.count(table)):
            names = partial(copies.name, table, copy, made=own)
            for name in own:
                new = names(name)
                if new not in buffers:
                    buffers[new] = replace(buffers[name], name=new)
            items.append(_renamed(item, names))
    left = tuple([table for number, table in enumerate(lowered.copies) if number not in wanted])
    return replace(lowered, items=tuple(items), buffers=buffers, copies=left)


def _renamed(item: Item, names: Rename) -> Item:
    if isinstance(item, LoopNest):
        store = item.store
        memo: dict = {}
        indirect = tuple([(name, _expr(value, names, memo)) for name, value in store.indirect])
        store = replace(store, buffer=names(store.buffer), value=_expr(store.value, names, memo), indirect=indirect)
        return replace(item, store=store)
    if isinstance(item, Extern):
        return replace(
            item,
            args=_argument(item.args, names),
            kwargs=_argument(item.kwargs, names),
            outputs=tuple([None if name is None else names(name) for name in item.outputs]),
            mutates=tuple([names(name) for name in item.mutates]),
        )
    raise AssertionError("no component of a table checks anything")


def _argument(value: object, names: Rename) -> Any:
    if isinstance(value, TensorRef):
        return replace(value, buffer=names(value.buffer))
    return tuple([_argument(each, names) for each in value]) if isinstance(value, tuple) else value


def _expr(expr: Expr, names: Rename, memo: dict[int, Expr]) -> Expr:
    found = memo.get(id(expr))
    if found is not None:
        return found
    found = expr
    if isinstance(expr, Compute):
        found = Compute(expr.op, tuple([_expr(arg, names, memo) for arg in expr.args]), expr.dtype)
    elif isinstance(expr, Load):
        bound = tuple([(name, _expr(value, names, memo)) for name, value in expr.indirect])
        mask = None if expr.mask is None else _expr(expr.mask, names, memo)
        found = replace(expr, buffer=names(expr.buffer), indirect=bound, mask=mask)
    memo[id(expr)] = found
    return found

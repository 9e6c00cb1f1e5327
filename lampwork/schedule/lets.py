"""Names for what is shared: each part of an expression is computed in the outermost body where its operands exist."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field

from lampwork.ir.loops import Accumulate, Compute, Constant, Expr, Index, Let, Load, Local, Stmt, Store, children, nodes
from lampwork.ir.record import record
from lampwork.schedule.expressions import Pool

#: Nesting of one expression beyond which a part gets a name: keeps recursive walks shallow.
DEEPEST_EXPRESSION = 24


@record(frozen=False, eq=False)
class Scope:
    """A body under construction and what is visible in it."""

    depth: int
    names: frozenset[str]
    body: list[Stmt] = field(default_factory=list)
    maybe_empty: bool = False


class Names:
    """Lets of one kernel, by pooled expression. `accumulator_depth`: the body where an accumulator's result is read."""

    def __init__(self, pool: Pool) -> None:
        self.pool = pool
        self.named: dict[int, Local] = {}
        self.lets = 0
        self.accumulator_depth: dict[str, int] = {}

    def emit(self, scopes: list[Scope], statements: Sequence[Store | Accumulate]) -> None:
        """Lets for what is shared or can be hoisted, then the statements: every read comes before every write."""
        roots: list[Expr] = []
        for stmt in statements:
            roots.append(stmt.value)
            if type(stmt) is Store:
                roots.extend(value for _, value in stmt.indirect)
        counts: dict[int, int] = {}
        for root in roots:
            counts[id(root)] = counts.get(id(root), 0) + 1
        for node in nodes(roots):
            for child in children(node):
                counts[id(child)] = counts.get(id(child), 0) + 1
        stored = {stmt.buffer for stmt in statements if type(stmt) is Store}
        place = _Placer(self, scopes, counts, stored)
        deepest = len(scopes) - 1
        finished: list[Stmt] = []
        for stmt in statements:
            value, _ = place.visit(stmt.value, deepest)
            if type(stmt) is Store:
                indirect = tuple((name, place.visit(bound, deepest)[0]) for name, bound in stmt.indirect)
                finished.append(Store(stmt.buffer, stmt.index, value, stmt.mode, indirect))
            else:
                finished.append(Accumulate(stmt.name, value, stmt.position))
        scopes[-1].body.extend(finished)


class _Placer:
    """Decides for each node of an expression graph in which body it is computed, and whether it gets a name."""

    def __init__(self, names: Names, scopes: list[Scope], counts: dict[int, int], stored: set[str]) -> None:
        self.names, self.scopes, self.counts, self.stored = names, scopes, counts, stored
        self.depth_of = {name: scope.depth for scope in scopes for name in scope.names}
        self.depth_of.update(names.accumulator_depth)

    def visit(self, expr: Expr, user: int) -> tuple[Expr, int]:
        """`expr` as an operand in the body at depth `user`, and the height of the expression returned."""
        if type(expr) is Constant or type(expr) is Index or type(expr) is Local:
            return expr, 0
        named = self.names.named.get(id(expr))
        if named is not None:
            return named, 0
        depth = self._depth(expr, user)
        new, height = self._rebuild(expr, depth)
        shared = self.counts.get(id(expr), 0) > 1
        overwritten = type(expr) is Load and expr.buffer in self.stored
        if depth < user or shared or overwritten or height >= DEEPEST_EXPRESSION:
            local = Local(f"t{self.names.lets}", expr.dtype)
            self.names.lets += 1
            self.scopes[depth].body.append(Let(local.name, new))
            self.names.named[id(expr)] = local
            return local, 0
        return new, height

    def _depth(self, expr: Expr, user: int) -> int:
        depth = max((self.depth_of.get(name, 0) for name in self.names.pool.free(expr)), default=0)
        # Memory is not read for loops that may not run at all.
        for scope in self.scopes[depth + 1 : user + 1]:
            if scope.maybe_empty:
                depth = scope.depth
        return min(depth, user)

    def _rebuild(self, expr: Load | Compute, depth: int) -> tuple[Expr, int]:
        if type(expr) is Compute:
            parts = [self.visit(arg, depth) for arg in expr.args]
            height = 1 + max((part[1] for part in parts), default=0)
            return Compute(expr.op, tuple([part[0] for part in parts]), expr.dtype), height
        if not expr.indirect and expr.mask is None:
            return expr, 1
        indirect = tuple((name, self.visit(value, depth)[0]) for name, value in expr.indirect)
        mask = self.visit(expr.mask, depth)[0] if expr.mask is not None else None
        return Load(expr.buffer, expr.index, expr.dtype, indirect, mask, expr.other), 1

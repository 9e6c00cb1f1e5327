"""The verifier of generated Python: every name is bound before it is used, on every path.

    verify_text("def f(x):\n    if x:\n        y = 1\n    return y\n", names)     # raises UnboundName: y

The texts of guards, entries and host functions are assignments, `if`, `try`, `with`, `return` and `raise`. A name that
is assigned somewhere in a function is local to it; the others are those of the namespace and Python's builtins.
"""

from __future__ import annotations

import ast
import builtins
from collections.abc import Collection, Iterable, Iterator
from typing import Any

#: Bound everywhere: what ends a path (`return`, `raise`) leaves nothing unbound after it.
_ENDED = None


class UnboundName(Exception):
    """Generated text names something that is bound nowhere, or not on every path: a defect of what wrote it."""


def verify_text(text: str, names: Collection[str]) -> None:
    """Raises `UnboundName` for a name that may be used before it is bound. `names`: those of the namespace."""
    known = frozenset(names) | frozenset(vars(builtins))
    _Reader(frozenset(), known, text).block(ast.parse(text).body, frozenset())


class _Reader:
    """Follows the paths through one function. `local`: names that are its own. `known`: those around it."""

    def __init__(self, local: frozenset[str], known: frozenset[str], text: str) -> None:
        self.local, self.known, self.text = local, known, text

    def block(self, body: Iterable[ast.stmt], bound: frozenset[str] | None) -> frozenset[str] | None:
        """What is bound at the end, given what is at the start; None where the end is not reached."""
        for statement in body:
            bound = self.statement(statement, bound)
        return bound

    def statement(self, node: ast.stmt, bound: frozenset[str] | None) -> frozenset[str] | None:
        if bound is _ENDED:
            return _ENDED
        match node:
            case ast.FunctionDef():
                self.function(node, bound)
                return bound | {node.name}
            case ast.If():
                self.uses(node.test, bound)
                return _joined(self.block(node.body, bound), self.block(node.orelse, bound))
            case ast.Try():
                return self.attempt(node, bound)
            case ast.With():
                for item in node.items:
                    self.uses(item.context_expr, bound)
                    bound |= _targets(item.optional_vars)
                return self.block(node.body, bound)
            case ast.For():
                self.uses(node.iter, bound)
                self.block(node.body, bound | _targets(node.target))
                return self.block(node.orelse, bound)
            case ast.While():
                self.uses(node.test, bound)
                self.block(node.body, bound)
                return self.block(node.orelse, bound)
            case ast.Return() | ast.Raise() | ast.Continue() | ast.Break():
                self.uses(node, bound)
                return _ENDED
            case ast.Delete():
                self.uses(node, bound)
                return bound - _targets(*node.targets)
            case ast.Import() | ast.ImportFrom():
                return bound | {(each.asname or each.name).partition(".")[0] for each in node.names}
        self.uses(node, bound)
        return bound | _targets(node)

    def attempt(self, node: ast.Try, bound: frozenset[str]) -> frozenset[str] | None:
        """A handler may be entered before anything in the body was bound, and after anything was deleted."""
        end = self.block(node.orelse, self.block(node.body, bound))
        deleted = _targets(*[each for part in node.body for each in _walk(part) if isinstance(each, ast.Delete)])
        at_least = bound - deleted
        for handler in node.handlers:
            if handler.type is not None:
                self.uses(handler.type, at_least)
            named = frozenset({handler.name} if handler.name else ())
            end = _joined(end, self.block(handler.body, at_least | named))
        if node.finalbody:
            self.block(node.finalbody, at_least)
            return self.block(node.finalbody, end)
        return end

    def function(self, node: ast.FunctionDef, bound: frozenset[str]) -> None:
        taken = frozenset(each.arg for each in _walk(node.args) if isinstance(each, ast.arg))
        local = taken | _targets(*node.body)
        inside = _Reader(local, self.known | bound, self.text)
        inside.block(node.body, taken)

    def uses(self, node: ast.AST, bound: frozenset[str]) -> None:
        """Checks every name that `node` reads or deletes; inside of lambdas and comprehensions, too."""
        pending = [node]
        while pending:
            node = pending.pop()
            kind = type(node)
            if isinstance(node, ast.Name):
                name = node.id
                if name not in bound and (name in self.local or name not in self.known):
                    if type(node.ctx) is not ast.Store:
                        where = f"in line {node.lineno} of\n{self.text}"
                        raise UnboundName(f"{name!r} may be used before it is bound, {where}")
            elif kind is ast.Lambda:
                lambda_: Any = node
                taken = {each.arg for each in _walk(lambda_.args) if isinstance(each, ast.arg)}
                self.uses(lambda_.body, bound | taken)
            elif kind in _COMPREHENSIONS:
                comprehension: Any = node
                inner = bound | _targets(*comprehension.generators)
                for each in _children(node):
                    self.uses(each, inner)
            else:
                pending += _children(node)


_COMPREHENSIONS = frozenset({ast.GeneratorExp, ast.ListComp, ast.SetComp, ast.DictComp})

#: Fields that hold no nodes, or none with names in them.
_WITHOUT_NAMES = frozenset({
    "arg", "attr", "conversion", "ctx", "id", "is_async", "kind", "level", "module", "n", "op", "ops", "s", "simple",
    "type_comment", "type_ignores",
})  # fmt: skip
_fields: dict[type, tuple[str, ...]] = {ast.Constant: (), ast.Name: (), ast.Global: (), ast.Nonlocal: ()}


def _children(node: ast.AST) -> list[ast.AST]:
    """The nodes in `node` that may name something: `ast.iter_child_nodes` in a quarter of the time, without contexts
    and operators."""
    names = _fields.get(type(node))
    if names is None:
        names = _fields[type(node)] = tuple(each for each in node._fields if each not in _WITHOUT_NAMES)
    found: list[Any] = []
    for name in names:
        value = getattr(node, name, None)
        if type(value) is list:
            found += value
        elif value is not None:
            found.append(value)
    return [each for each in found if isinstance(each, ast.AST)]


def _walk(node: ast.AST) -> Iterator[ast.AST]:
    """`node` and all in it that may name something."""
    pending = [node]
    while pending:
        each = pending.pop()
        yield each
        pending += _children(each)


def _targets(*nodes: ast.AST | None) -> frozenset[str]:
    """Names that `nodes` assign or delete, outside of functions in them."""
    found: set[str] = set()
    pending = [each for each in nodes if each is not None]
    while pending:
        node = pending.pop()
        if isinstance(node, (ast.FunctionDef, ast.Lambda)):
            if isinstance(node, ast.FunctionDef):
                found.add(node.name)
            continue
        if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
            found.add(node.id)
        if isinstance(node, ast.ExceptHandler) and node.name:
            found.add(node.name)
        pending.extend(_children(node))
    return frozenset(found)


def _joined(left: frozenset[str] | None, right: frozenset[str] | None) -> frozenset[str] | None:
    """What is bound where two paths meet."""
    if left is None or right is None:
        return right if left is None else left
    return left & right

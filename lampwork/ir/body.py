"""`Body`: a graph that an operator of another graph runs: a branch, or what a loop does once.

    %cond = lampwork.cond(%pred, [%x, %w], Body("3f0a.."), Body("91c2.."))

It stands among the operator's arguments as text, a digest of all that it computes, so that equal ones are equal.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from weakref import WeakValueDictionary

#: Those that are alive, by digest: operators in C hand their arguments on as plain text.
_alive: WeakValueDictionary[str, Body] = WeakValueDictionary()


class Body(str):
    """`graph`: a `torch.fx.Graph` as it was recorded, of operators alone, with placeholders for all that it reads. It
    writes to nothing but memory of its own, draws nothing, and its results are fresh: tensors apart from each other and
    from what it is given. `operators`: how many it calls."""

    graph: Any
    operators: int

    def __new__(cls, digest: str, graph: Any) -> Body:
        made = str.__new__(cls, digest)
        made.graph = graph
        made.operators = sum(node.op == "call_function" for node in graph.nodes)
        return _alive.setdefault(digest, made)

    @property
    def parameters(self) -> tuple[Any, ...]:
        """The tensors without memory that stand for what it is given."""
        return tuple(node.meta["val"] for node in self.graph.nodes if node.op == "placeholder")

    @property
    def results(self) -> tuple[Any, ...]:
        """Those that stand for what it returns."""
        output = next(iter(reversed(self.graph.nodes)))
        return tuple(node.meta["val"] for node in output.args[0])


def body_named(digest: str) -> Body:
    """The body with this digest. Raises KeyError where it is no longer there."""
    return _alive[digest]


def bodies_in(value: object) -> Iterator[Body]:
    """Every body among the arguments of a call."""
    if isinstance(value, Body):
        yield value
    elif isinstance(value, (tuple, list)):
        for part in value:
            yield from bodies_in(part)

"""What eager's autograd saves among the tensors that a caller sees: it raises where they are written after the call.

    y = x.exp(); return y       y is saved: y.add_(1), y.t_(), y[0].zero_() before the backward pass make it raise
    y = x * w; return y         x and w are
    y = x + w; return y         nothing is

The backward half of a region reads what is cheapest, which may be none of these: a mask in place of the values that it
was made of, or nothing at all. What a program writes itself, the engine notices while the derivatives are recorded.
"""

from __future__ import annotations

import functools
from collections.abc import Collection, Iterator, Sequence
from typing import Any

from lampwork import _torch
from lampwork.fakes.fake import Fake
from lampwork.ir.differentiation import Checked, Made, Output


def checked_tensors(
    inputs: Sequence[Any],
    outputs: Sequence[Any],
    made: Sequence[Made],
    targets: Sequence[Output],
    target_fakes: Sequence[Fake],
    moved: Collection[int],
    checkpointed: Collection[range] = (),
) -> tuple[Checked, ...]:
    """The inputs and results whose versions eager's backward pass compares. Inputs that are `moved` are left out: they
    change after they are saved. So are nodes whose sequence number is in `checkpointed`: what they save is computed
    again."""
    owners: dict[int, tuple[int, bool]] = {}
    for position, fake in enumerate(outputs):
        if made[position].kind == "plain":
            owners[_torch.storage_key(fake)] = position, True
    for target, fake in zip(targets, target_fakes, strict=True):
        owners[_torch.storage_key(fake)] = target.index, not target.written
    for index, fake in reversed(list(enumerate(inputs))):
        if isinstance(fake, Fake):
            owners[_torch.storage_key(fake)] = index, False
    found: dict[tuple[int, bool], int] = {}
    for node, tangents in _reached(target_fakes):
        if any(_torch.sequence_number(node) in each for each in checkpointed):
            continue
        for saved in _saved(node):
            owner = owners.get(_torch.storage_key(saved))
            if owner is not None and (owner[1] or owner[0] not in moved):
                found[owner] = found.get(owner, 0) | tangents
    return tuple(
        Checked(index, is_result, tuple([each for each in range(len(targets)) if bits >> each & 1]))
        for (index, is_result), bits in sorted(found.items())
    )


def _reached(targets: Sequence[Fake]) -> Iterator[tuple[Any, int]]:
    """The nodes of the history of `targets`, each with bits of the targets that reach it."""
    bits: dict[Any, int] = {}
    for number, fake in enumerate(targets):
        bits[fake.grad_fn] = bits.get(fake.grad_fn, 0) | 1 << number
    for node in reversed(_readers_last(list(bits))):
        reaching = bits[node]
        yield node, reaching
        for following, _ in node.next_functions:
            if following is not None:
                bits[following] = bits.get(following, 0) | reaching


def _readers_last(roots: Sequence[Any]) -> list[Any]:
    """All nodes, those that hand gradients to others after these."""
    order: list[Any] = []
    seen: set[Any] = set()
    pending: list[tuple[Any, bool]] = [(node, False) for node in roots if node is not None]
    while pending:
        node, is_finished = pending.pop()
        if is_finished:
            order.append(node)
        elif node not in seen:
            seen.add(node)
            pending.append((node, True))
            pending += [(each, False) for each, _ in node.next_functions if each is not None]
    return order


def _saved(node: Any) -> Iterator[Fake]:
    """The tensors that a node of eager's autograd saves."""
    kind: Any = type(node)
    for name in _names(kind):
        yield from _torch.saved_by(node, name)


@functools.cache
def _names(kind: Any) -> tuple[str, ...]:
    """The attributes of a kind of node that hold what it saves. Running statistics are left out: eager's kernels write
    to them without a change of their version."""
    return tuple(name for name in dir(kind) if name.startswith("_raw_saved_") and "_running_" not in name)

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
from lampwork.capture.autograd.reached import reaching
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
) -> tuple[tuple[Checked, ...], bool]:
    """The inputs and results whose versions eager's backward pass compares, and whether it saves any tensor, which a
    backward pass frees. Inputs that are `moved` are left out: they change after they are saved. So are nodes whose
    sequence number is in `checkpointed`: what they save is computed again."""
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
    saves = bool(checkpointed)
    for node, tangents in reaching(target_fakes).items():
        if any(_torch.sequence_number(node) in each for each in checkpointed):
            continue
        for saved in _saved(node):
            saves = True
            owner = owners.get(_torch.storage_key(saved))
            if owner is not None and (owner[1] or owner[0] not in moved):
                found[owner] = found.get(owner, 0) | tangents
    checked = tuple(
        Checked(index, is_result, tuple([each for each in range(len(targets)) if bits >> each & 1]))
        for (index, is_result), bits in sorted(found.items())
    )
    return checked, saves


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

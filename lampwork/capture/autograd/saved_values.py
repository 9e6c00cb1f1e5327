"""What eager's autograd saves among the tensors that a caller sees: it raises where they are written after the call.

    y = x.exp(); return y       y is saved: y.add_(1), y.t_(), y[0].zero_() before the backward pass make it raise
    y = x * w; return y         x and w are
    y = x + w; return y         nothing is
    y = x.view(-1); y.exp_()    y is, which a node is asked that autograd hides (`view_writes.py`)
    y = kron(x, w); return y    their memory is, by views that have versions of their own: it reads what was written

The backward half of a region reads what is cheapest, which may be none of these: a mask in place of the values that it
was made of, or nothing at all. What a program writes itself, the engine notices while the derivatives are recorded.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from lampwork import _torch
from lampwork.capture.autograd.reached import reaching
from lampwork.capture.autograd.refused import refused
from lampwork.capture.autograd.view_writes import refuse_without_derivative
from lampwork.capture.record.recorder import Recorder
from lampwork.capture.record.saved_instead import SAVED_BY_EAGER
from lampwork.fakes.fake import Fake
from lampwork.ir.differentiation import Checked, Made, Output
from lampwork.ir.record import record


@record
class KeptByEager:
    """As in `Joint`."""

    checked: tuple[Checked, ...]
    unnoticed: tuple[Checked, ...]
    held: tuple[Checked, ...] | None
    saves: bool
    freed: tuple[tuple[int, ...], ...]


#: A graph input or a result (`True`), by its index.
_Owner = tuple[int, bool]


def kept_by_eager(
    recorder: Recorder,
    outputs: Sequence[Any],
    made: Sequence[Made],
    targets: Sequence[Output],
    target_fakes: Sequence[Fake],
    moved: Collection[int],
) -> KeptByEager:
    """The inputs and results that eager's backward pass reads, and whether it saves any tensor, which a backward pass
    frees. Inputs that are `moved` are not `checked`: they change after they are saved. Nodes that were made in
    checkpointed functions are left out: what they save is computed again."""
    owners: dict[int, list[tuple[_Owner, Fake]]] = {}
    for index, fake in enumerate(recorder.inputs):
        if isinstance(fake, Fake):
            owners.setdefault(_torch.storage_key(fake), []).append(((index, False), fake))
    for target, fake in zip(targets, target_fakes, strict=True):
        owners.setdefault(_torch.storage_key(fake), []).append(((target.index, not target.written), fake))
    for position, fake in reversed(list(enumerate(outputs))):
        beside = owners.setdefault(_torch.storage_key(fake), [])
        if made[position].kind == "plain" or not any(_torch.shares_version(each, fake) for _, each in beside):
            beside.append(((position, True), fake))
    # By storage of the recorded tensor: the tensor that eager saves.
    instead = {
        _torch.storage_key(node.meta["val"]): node.meta[SAVED_BY_EAGER]
        for node in recorder.graph.nodes
        if SAVED_BY_EAGER in node.meta
    }
    checked: dict[_Owner, int] = {}
    unnoticed: dict[_Owner, int] = {}
    all_tangents = (1 << len(targets)) - 1
    held: dict[_Owner, int] = {(index, False): all_tangents for index in moved}
    saves = bool(recorder.checkpointed)
    freed: dict[int, None] = {}
    is_told = not recorder.own_gradients  # autograd does not tell what a user's function keeps
    for node, tangents in reaching(target_fakes).items():
        refuse_without_derivative(node)
        number = _torch.sequence_number(node)
        if any(number in each for each in recorder.checkpointed):
            freed[tangents] = None
            continue
        left_out = _left_out(node) if any(number in each for each in recorder.given_numbers) else ()
        kept = list(_torch.tensors_saved_by(node))
        if type(node).__name__ == "CopySlices":
            saves = True  # the node that it hides
            hidden = recorder.view_writes.saved(node)
            is_told &= hidden is not None
            kept += hidden or ()
            freed[tangents] = None
        for name, saved in kept:
            saves = True
            freed[tangents] = None
            if name in left_out:
                continue
            saved = instead.get(_torch.storage_key(saved), saved)
            sharing = owners.get(_torch.storage_key(saved), ())
            noticing = [owner for owner, fake in sharing if _torch.shares_version(saved, fake)]
            others = [fake for owner, fake in sharing if not owner[1] and owner not in noticing]
            if any(not owner[1] for owner in noticing) and _are_written_after(recorder, number, others):
                raise refused("an input is saved, and written through another one then that shares its memory")
            for owner, _ in sharing:
                found = held if owner in noticing else unnoticed
                found[owner] = found.get(owner, 0) | tangents
            # Eager's kernels write to running statistics without a change of their version.
            if "_running_" not in name:
                for owner in noticing[:1]:
                    if owner[1] or owner[0] not in moved:
                        checked[owner] = checked.get(owner, 0) | tangents
    count = len(targets)
    return KeptByEager(
        _by_index(checked, count),
        _by_index(unnoticed, count),
        _by_index(held, count) if is_told else None,
        saves,
        tuple([_numbers(bits, count) for bits in freed]),
    )


def _are_written_after(recorder: Recorder, number: int, inputs: Sequence[Fake]) -> bool:
    """Whether the program writes through these inputs, to memory that they share with another, after the node with that
    sequence number was made. Capture takes them for tensors of their own; they may be views of one tensor, all of which
    notice a write to one."""
    return any(
        at > number and any(_torch.shares_version(target, each) for each in inputs)
        for key in {_torch.storage_key(each) for each in inputs}
        for at, target in recorder.writes_through.get(key, ())
    )


def _by_index(found: Mapping[_Owner, int], count: int) -> tuple[Checked, ...]:
    return tuple(Checked(index, is_result, _numbers(bits, count)) for (index, is_result), bits in sorted(found.items()))


def _numbers(bits: int, count: int) -> tuple[int, ...]:
    return tuple([each for each in range(count) if bits >> each & 1])


def _left_out(node: Any) -> tuple[str, ...]:
    """What a node saves for a tensor that stands for a number, and that of the operator which takes the number does
    not: the derivative of a power with respect to its base reads no result."""
    is_exponent = type(node).__name__.startswith("PowBackward1") and node.next_functions[1][0] is None
    return ("_raw_saved_result",) if is_exponent else ()

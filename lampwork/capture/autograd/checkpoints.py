"""`torch.utils.checkpoint` inside a region: what a checkpointed function computes is marked, not run twice.

    %a = sin(%x)      checkpoint 1                   the backward half computes it again
    %b = mm(%a, %w)   checkpoint 1, kept             a selective checkpoint's policy says that it is saved

Where nothing is differentiated, a checkpointed function is one like others. Eager runs it twice, this does not: it may
write to nothing of its caller's. A policy is interpreted for each operator while that is recorded, as eager calls it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.utils.checkpoint
from torch.utils.checkpoint import CheckpointPolicy

from lampwork import _torch
from lampwork.capture.machine import Answer, Enter
from lampwork.capture.outside.overlay import Break
from lampwork.capture.record.fake import Fake

#: What a policy says of results that the backward pass gets as they are.
_KEPT = frozenset({CheckpointPolicy.MUST_SAVE, CheckpointPolicy.PREFER_SAVE})
_COMPUTED_AGAIN = frozenset({CheckpointPolicy.MUST_RECOMPUTE, CheckpointPolicy.PREFER_RECOMPUTE})
#: Settings that change nothing here.
_SETTINGS = ("use_reentrant", "determinism_check", "debug", "early_stop", "preserve_rng_state")


class Selective:
    """Stands for both contexts of a selective checkpoint, which only `checkpoint` may look at.

    `policy`: a function of the program, or operators whose results are saved. It has a `__new__`, so that no template
    describes it.
    """

    policy: Any

    def __new__(cls, policy: Any) -> Selective:
        made = super().__new__(cls)
        made.policy = policy
        return made


def _selective(world: Any, policy_fn_or_list: Any, allow_cache_entry_mutation: bool = False) -> Any:
    """`create_selective_checkpoint_contexts(policy)`."""
    policy = policy_fn_or_list
    if isinstance(policy, list):
        policy = list(world.collect(policy))
        if not all(map(_torch.is_operator, policy)):
            raise Break("native-argument", "a selective checkpoint is made of something else than operators")
    made = Selective(policy)
    return made, made


def _checkpoint(world: Any, function: Any, *args: Any, **options: Any) -> Any:
    """`checkpoint(function, *args, use_reentrant=..., ...)`."""
    enabled, reentrant = torch.is_grad_enabled(), options.get("use_reentrant")
    if reentrant is None or (reentrant and (enabled or "context_fn" in options)):
        return Enter(torch.utils.checkpoint.checkpoint, (function, *args), options)
    for name in _SETTINGS:
        options.pop(name, None)
    contexts = options.pop("context_fn", None)
    if not enabled:
        return world.call(function, args, options)
    return _computed_again(world, function, args, options, _policy(world, contexts))


def _policy(world: Any, contexts: Any) -> Callable | None:
    """Whether an operator's results are saved: (operator, arguments, keywords, result) -> bool."""
    if contexts is None or contexts is torch.utils.checkpoint.noop_context_fn:
        return None
    made = world.machine.call(contexts)
    if type(made) is not tuple or not made or type(made[0]) is not Selective:
        raise Break("native-call", "a checkpointed function runs in contexts of the program's")
    policy = made[0].policy
    ignored = torch.utils.checkpoint.SAC_IGNORED_OPS

    def keeps(op: Any, args: tuple, kwargs: dict, result: Any) -> bool:
        if op in ignored:
            return False
        if isinstance(policy, list):
            return op in policy
        told = _torch.selective_context(result)
        said = world.machine.call(policy, (told, op, *args), kwargs)
        if said is True or said in _KEPT:
            return True
        if said is False or said in _COMPUTED_AGAIN:
            return False
        raise Break("native-call", f"the policy of a selective checkpoint says {said!r:.60}")

    return keeps


def _reentrant(world: Any, function: Any, preserve: Any, *args: Any) -> Any:
    """`CheckpointFunction.apply`, the older kind: what differs is when it computes again, and that all of its results
    require grad where an argument does."""
    if not torch.is_grad_enabled() or not any(isinstance(each, torch.Tensor) and each.requires_grad for each in args):
        return NotImplemented
    result = _computed_again(world, function, args, {})
    for each in result if type(result) is tuple else (result,):
        if isinstance(each, torch.Tensor) and not each.requires_grad and each.dtype.is_floating_point:
            raise Break("autograd-function", "a result of a reentrant checkpoint depends on nothing that requires grad")
    return result


def _computed_again(
    world: Any, function: Any, args: tuple, options: dict[str, Any], keeps: Callable | None = None
) -> Any:
    """What the function returns; the backward pass computes it again, but for what the policy keeps."""
    recorder = world.recorder
    with recorder.checkpoint(keeps) as written:
        result = world.machine.call(function, args, options)
    outside = [*recorder.inputs, *(each for each in (*args, *options.values()))]
    if written & {_torch.storage_key(each) for each in outside if type(each) is Fake}:
        raise Break("native-call", "a checkpointed function writes to tensors of its caller's, which eager does twice")
    return result


NATIVES: dict[Any, Answer] = {
    torch.utils.checkpoint.checkpoint: _checkpoint,
    torch.utils.checkpoint.create_selective_checkpoint_contexts: _selective,
}
#: Functions of PyTorch's own that are not interpreted.
APPLIED: dict[Any, Answer] = {torch.utils.checkpoint.CheckpointFunction: _reentrant}

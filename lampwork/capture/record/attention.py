"""Calls of attention as eager programs make them: without masks that say nothing, without repeated heads.

    mask = (arange(0, 8) >= 0).expand(1, 1, 8, 8)                  sdpa(q, k, v)
    sdpa(q, k, v, attn_mask=mask)                         ->

    mask = arange(0, 8)[None] <= arange(0, 8)[:, None]             sdpa(q, k, v, is_causal=True)
    sdpa(q, k, v, attn_mask=mask)                         ->

    keys, values = (each[:, :, None].expand(2, 4, 3, 8, 64).reshape(2, 12, 8, 64) for each in (k, v))
    sdpa(q, keys, values)                                 ->       sdpa(q, k, v, enable_gqa=True)

Programs leave out such a mask when they run eagerly, where they can look at it, and make it when they are told that
they are being compiled (`transformers` does); with the mask they have to repeat the heads of keys and values. With a
mask, PyTorch's fused attention is slower or none applies: the mathematical form is up to ten times slower. Exact in
real numbers; the kernel that eager picks for these arguments rounds in its own way. Where numbers are to be eager's,
programs are told that they are not compiled, and what they call is called.

Only masks computed from constants are looked at (`constants.py`).

A mask that would widen the scores is refused: eager adds it to them in place, and out of place where Python intercepts
operators.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.fx
import torch.nn.functional
from torch.fx import Node

from lampwork import _torch
from lampwork.capture.record.fake import Fake
from lampwork.capture.record.recorder import Recorder
from lampwork.fakes.strides import broadcast, check_expands

aten = torch.ops.aten
attention = torch.nn.functional.scaled_dot_product_attention
#: All that programs may call it by.
SPELLINGS: frozenset[Any] = frozenset(
    {attention, aten.scaled_dot_product_attention, aten.scaled_dot_product_attention.default}
)

_RESHAPES = {aten.view.default, aten._unsafe_view.default}
_NAMES = ("query", "key", "value", "attn_mask", "dropout_p", "is_causal")


class AttentionCalls:
    """The calls of attention in one recording."""

    def __init__(self, recorder: Recorder) -> None:
        self.recorder = recorder
        self._kinds: dict[Node, str] = {}

    def simplified(self, args: tuple, kwargs: dict[str, Any]) -> tuple[tuple, dict[str, Any]]:
        """Arguments of `attention` that compute the same; see the module's docstring."""
        args, kwargs = self._without_mask(args, kwargs)
        if len(args) > len(_NAMES):
            return args, kwargs
        return self._with_fewer_heads(args, kwargs)

    def _without_mask(self, args: tuple, kwargs: dict[str, Any]) -> tuple[tuple, dict[str, Any]]:
        mask = args[3] if len(args) > 3 else kwargs.get("attn_mask")
        is_causal = args[5] if len(args) > 5 else kwargs.get("is_causal", False)
        if type(mask) is not Fake or is_causal is not False or len(args) > len(_NAMES):
            return args, kwargs
        kind = self.kind(mask)
        if not kind:
            return args, kwargs
        named = {**dict(zip(_NAMES, args)), **kwargs, "attn_mask": None}
        query = named["query"]
        if kind == "causal":
            # Its lengths are the mask's: a mask of one row or column stands for a larger one otherwise.
            key = named["key"]
            if type(query) is not Fake or type(key) is not Fake or query.size()[-2] != mask.size()[-2]:
                return args, kwargs
            if key.size()[-2] != mask.size()[-1]:
                return args, kwargs
            named["is_causal"] = True
        elif type(query) is not Fake or mask.dim() > query.dim() or not _broadcasts_into(mask, query):
            return args, kwargs
        return (), named

    def _with_fewer_heads(self, args: tuple, kwargs: dict[str, Any]) -> tuple[tuple, dict[str, Any]]:
        named = {**dict(zip(_NAMES, args)), **kwargs}
        query: Any
        key: Any
        value: Any
        query, key, value = (named.get(name) for name in _NAMES[:3])
        if named.get("attn_mask") is not None or named.get("enable_gqa") or not all(
            type(each) is Fake and each.dim() == 4 for each in (query, key, value)
        ):  # fmt: skip
            return args, kwargs
        if not query.is_cpu and query.dtype.itemsize != 2:
            return args, kwargs  # the kernel for wider types wants as many heads of each
        keys, values = self._repeated(key), self._repeated(value)
        if keys is None or values is None or keys.size(1) != values.size(1) or keys.size(-1) != values.size(-1):
            return args, kwargs
        if keys.stride(-1) != 1 or values.stride(-1) != 1:
            return args, kwargs  # fused kernels want rows; repeating made them
        return (), {**named, "key": keys, "value": values, "enable_gqa": True}

    def _repeated(self, heads: Fake) -> Fake | None:
        """The tensor [B, H, S, D] whose heads were each repeated to make `heads` [B, H n, S, D]; None if none was."""
        node: Any = heads.node
        for targets in (_RESHAPES, {aten.clone.default}, {aten.expand.default}, {aten.unsqueeze.default}):
            if type(node) is not Node or node.target not in targets:
                return None
            if _torch.storage_key(node.meta["val"]) in self.recorder.written:
                return None
            last, node = node, node.args[0]
        source = node.meta["val"]
        if last.args[1] not in (2, -3) or type(source) is not Fake or source.dim() != 4:
            return None
        batch, count, length, width = source.size()
        if heads.size()[0] != batch or tuple(heads.size()[2:]) != (length, width) or heads.size()[1] % count:
            return None
        return source if heads.size()[1] > count else None

    def kind(self, mask: Fake) -> str:
        """What a mask says: "all" hides nothing, "causal" is a lower triangle, "" is anything else or unknown."""
        node = mask.node
        if type(node) is not Node or _torch.storage_key(mask) in self.recorder.written:
            return ""
        if node not in self._kinds:
            value = self.recorder.constants.value(node)
            with self.recorder._paused():
                self._kinds[node] = "" if value is None else _kind_of(value)
        return self._kinds[node]


def refuse_wide_mask(args: tuple, kwargs: dict[str, Any]) -> None:
    """Raises, as eager does, where the mask of a call of attention does not fit into the scores that it is added to."""
    named = {**dict(zip(_NAMES, args)), **kwargs}
    query: Any
    key: Any
    mask: Any
    query, key, mask = (named.get(name) for name in ("query", "key", "attn_mask"))
    if not all(type(each) is Fake for each in (query, key, mask)) or min(query.dim(), key.dim()) < 2:
        return
    heads = tuple(key.size()[:-2])
    if named.get("enable_gqa") and heads:
        heads = (*heads[:-1], query.size()[-3] if query.dim() > 2 else 1)  # they are repeated
    try:
        batch = broadcast((tuple(query.size()[:-2]), heads))
    except RuntimeError:
        return  # the product says so
    check_expands(mask.size(), (*batch, query.size()[-2], key.size()[-2]))


def _broadcasts_into(mask: Fake, query: Fake) -> bool:
    """A mask of more batches or heads than the query would widen the result."""
    sizes = tuple(mask.size())[:-2]
    wanted = tuple(query.size())[:-2]
    return all(size in (1, other) for size, other in zip(reversed(sizes), reversed(wanted)))


def _kind_of(mask: torch.Tensor) -> str:
    for dim in range(mask.dim() - 2):
        if mask.stride(dim) == 0 and mask.size(dim) > 1:
            mask = mask.narrow(dim, 0, 1)
    if mask.dtype != torch.bool:
        return "all" if mask.is_floating_point() and not mask.any() else ""
    if mask.all():
        return "all"
    if mask.dim() < 2 or mask.size(-1) != mask.size(-2):
        return ""
    triangle = torch.ones(mask.size(-2), mask.size(-1), dtype=torch.bool).tril()
    return "causal" if bool((mask == triangle).all()) else ""

"""Attention masks that say nothing, or only "causal": found while capturing, so that attention goes without them.

    mask = (arange(0, 8) >= 0).expand(1, 1, 8, 8)                  sdpa(q, k, v)
    sdpa(q, k, v, attn_mask=mask)                         ->

    mask = arange(0, 8)[None] <= arange(0, 8)[:, None]             sdpa(q, k, v, is_causal=True)
    sdpa(q, k, v, attn_mask=mask)                         ->

Programs leave out such a mask when they run eagerly, where they can look at it, and make it when they are told that
they are being compiled (`transformers` does). With a mask, PyTorch's fused attention is slower or none applies: the
mathematical form is up to ten times slower. Exact in real numbers; the kernel that eager picks without a mask rounds in
its own way.

Only masks computed from constants are looked at: their part of the graph is run on the CPU, once per mask.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.fx
import torch.nn.functional
from torch.fx import Node

from lampwork import _torch
from lampwork.capture.fake import Fake
from lampwork.capture.recorder import Recorder
from lampwork.fakes.operators import operator

attention = torch.nn.functional.scaled_dot_product_attention

#: Larger masks, in elements, are not looked at.
LARGEST_MASK = 1 << 24

_NAMES = ("query", "key", "value", "attn_mask", "dropout_p", "is_causal")


class KnownMasks:
    """The masks of one recording."""

    def __init__(self, recorder: Recorder) -> None:
        self.recorder = recorder
        self._values: dict[Node, torch.Tensor | None] = {}
        self._kinds: dict[Node, str] = {}

    def without_mask(self, args: tuple, kwargs: dict[str, Any]) -> tuple[tuple, dict[str, Any]]:
        """Arguments of `attention` that compute the same, without the mask where it says nothing but "causal"."""
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

    def kind(self, mask: Fake) -> str:
        """What a mask says: "all" hides nothing, "causal" is a lower triangle, "" is anything else or unknown."""
        node = mask.node
        if type(node) is not Node:
            return ""
        if node not in self._kinds:
            with self.recorder._paused():
                value = self._value(node)
                self._kinds[node] = "" if value is None else _kind_of(value)
        return self._kinds[node]

    def _value(self, node: Node) -> torch.Tensor | None:
        if node not in self._values:
            self._values[node] = None
            self._values[node] = self._computed(node)
        return self._values[node]

    def _computed(self, node: Node) -> torch.Tensor | None:
        """The contents that `node` computes from constants, on the CPU; None if it needs anything else."""
        fake = node.meta["val"]
        if node.op != "call_function" or type(fake) is not Fake or _torch.storage_key(fake) in self.recorder.written:
            return None
        if node.target is _torch.tensor_constant:
            return _torch.tensor_constant(*node.args)
        if not _torch.is_operator(node.target):
            return None
        what = operator(node.target)
        if what.kind not in ("functional", "view") or what.is_random:
            return None
        if what.kind == "functional" and fake.numel() > LARGEST_MASK:
            return None
        known: dict[Node, torch.Tensor] = {}
        for source in node.all_input_nodes:
            value = self._value(source)
            if value is None:
                return None
            known[source] = value
        args: Any = torch.fx.map_arg(node.args, known.__getitem__)
        kwargs: Any = {**torch.fx.map_arg(dict(node.kwargs), known.__getitem__)}
        if "device" in kwargs:
            kwargs["device"] = torch.device("cpu")
        try:
            result = what.overload(*args, **kwargs)
        except RuntimeError:  # not on the CPU
            return None
        return result if isinstance(result, torch.Tensor) else None


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

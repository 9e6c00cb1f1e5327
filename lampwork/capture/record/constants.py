"""What a program computes from constants alone, computed while it is recorded.

%r = arange(8);  %d = diff(%r);  %e = ne(%d, 1)         no input of the graph takes part: `bool(%e.any())` is False

An input is a constant, too, once a guard holds what it holds (`hold`).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import torch
import torch.fx
from torch.fx import Node

from lampwork import _torch
from lampwork.capture.record.fake import Fake
from lampwork.fakes.operators import operator
from lampwork.fakes.views import has_symbols

if TYPE_CHECKING:
    from lampwork.capture.record.recording import Recording

#: Larger tensors, in elements, are not computed; nor what takes more operators.
LARGEST = 1 << 24
MOST_OPERATORS = 1 << 10


class Constants:
    """The contents, in one recording, of tensors that are computed from constants."""

    def __init__(self, recorder: Recording) -> None:
        self.recorder = recorder
        self._values: dict[Node, torch.Tensor | None] = {}
        #: How many storages had been written to when these were computed: another one may be theirs.
        self._written = 0
        #: Inputs of which it is guarded what they hold.
        self._held: dict[Node, torch.Tensor] = {}

    def hold(self, node: Node, value: torch.Tensor) -> None:
        """From here on the input `node` holds `value`, as long as the program does not write to it."""
        self._held[node] = value
        self._values.clear()

    def held_number(self, node: Node) -> int | None:
        """The integer that a held input holds."""
        value = self._held.get(node)
        return None if value is None or value.dtype is not torch.int64 else int(value.item())

    def is_written(self, node: Node) -> bool:
        """Whether the program wrote to a tensor that `node` is computed from, or to its own."""
        return any(_torch.storage_key(each.meta["val"]) in self.recorder.written for each in _behind(node))

    def release(self, node: Node) -> None:
        del self._held[node]
        self._values.clear()

    def inputs_of(self, node: object) -> list[Node] | None:
        """The inputs that `node` is computed from, but for those held; None if that is not told in a few steps."""
        found: list[Node] = []
        if type(node) is not Node:
            return None
        for count, each in enumerate(_behind(node)):
            if count > MOST_OPERATORS or each.op not in ("placeholder", "call_function"):
                return None
            if each.op == "placeholder" and each not in self._held:
                found.append(each)
        return found

    def value(self, node: object) -> torch.Tensor | None:
        """The contents of `node`, on the CPU; None if it needs an input, or was written to."""
        if type(node) is not Node or not self._is_of_constants(node):
            return None
        if self._written != len(self.recorder.written):
            self._written = len(self.recorder.written)
            self._values.clear()
        with self.recorder._paused(), torch.no_grad():
            pending = [node]
            while pending:
                last = pending[-1]
                missing = [each for each in last.all_input_nodes if each not in self._values]
                if missing and last not in self._values:
                    pending += missing
                    continue
                pending.pop()
                if last not in self._values:
                    self._values[last] = self._computed(last)
        return self._values[node]

    def exact_value(self, node: object) -> torch.Tensor | None:
        """The same, where the device of the program computes the same bits: no floats on a GPU."""
        if type(node) is not Node or not self._is_of_constants(node, is_exact=True):
            return None
        return self.value(node)

    def _is_of_constants(self, node: Node, is_exact: bool = False) -> bool:
        for count, each in enumerate(_behind(node), 1):
            fake = each.meta.get("val")
            if type(fake) is not Fake or count > MOST_OPERATORS:
                return False
            if each.op != "call_function" and each not in self._held:
                return False
            if is_exact and not fake.is_cpu and (fake.is_floating_point() or fake.is_complex()):
                return False
        return True

    def _computed(self, node: Node) -> torch.Tensor | None:
        """What `node` computes of what its operands hold."""
        fake = node.meta["val"]
        if _torch.storage_key(fake) in self.recorder.written:
            return None
        if node in self._held:
            return self._held[node]
        if has_symbols(fake) or has_symbols(node.args) or has_symbols(dict(node.kwargs)):
            return None
        if node.target is _torch.tensor_constant:
            return _torch.tensor_constant(*node.args)
        if not _torch.is_operator(node.target):
            return None
        what = operator(node.target)
        if what.kind not in ("functional", "view") or what.is_random or "empty" in what.base:
            return None
        if what.kind == "functional" and fake.numel() > LARGEST:
            return None
        known: dict[Node, Any] = {each: self._values[each] for each in node.all_input_nodes}
        if any(each is None for each in known.values()):
            return None
        args: Any = torch.fx.map_arg(node.args, known.__getitem__)
        kwargs: Any = {**torch.fx.map_arg(dict(node.kwargs), known.__getitem__)}
        if "device" in kwargs:
            kwargs["device"] = torch.device("cpu")
        try:
            result = what.overload(*args, **kwargs)
        except RuntimeError:  # not on the CPU
            return None
        return result if isinstance(result, torch.Tensor) else None


def _behind(node: Node) -> Iterator[Node]:
    """`node`, and all that it is computed from, each once."""
    pending, seen = [node], {node}
    while pending:
        each = pending.pop()
        yield each
        for source in each.all_input_nodes:
            if source not in seen:
                seen.add(source)
                pending.append(source)

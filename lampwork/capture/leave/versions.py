"""The versions that tensors have after a region: how often autograd has seen their memory written.

    x.add_(1); x[0] = 2         the version of x rises by 2
    x.data.add_(1)              not at all: `.data` has a version of its own
    y = x * 1; y.add_(1)        y has version 1 when the caller gets it

Eager raises a version once for each operator that writes, in code above the kernels. Fakes go through the same code, so
theirs are eager's; fakes of inputs begin with 0.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from lampwork import _torch
from lampwork.fakes.fake import Fake
from lampwork.ir.differentiation import Joint


class Versions:
    """What `Region.raised`, `versions` (here `made`), `separate` and `inference` say."""

    def __init__(self, inputs: Sequence[Any], outputs: Sequence[Any], joint: Joint | None) -> None:
        # The function that ties a differentiated region to autograd raises the version of what it writes by one itself.
        dirty = {each.index for each in joint.outputs if each.written} if joint is not None else ()
        rises = [
            (index, _torch.version_of(fake) - (index in dirty))
            for index, fake in enumerate(inputs)
            if isinstance(fake, Fake)
        ]
        self.raised = tuple([each for each in rises if each[1] > 0])
        of_inputs: dict[int, list[Fake]] = {}
        for fake in inputs:
            if isinstance(fake, Fake):
                of_inputs.setdefault(_torch.storage_key(fake), []).append(fake)
        of_outputs: dict[int, list[Fake]] = {}
        for fake in outputs:
            if not isinstance(fake, Fake):
                continue
            others = of_outputs.setdefault(_torch.storage_key(fake), [])
            if not any(fake is other for other in others):
                others.append(fake)
        made: list[tuple[int, int]] = []
        separate: list[tuple[int, int]] = []
        owners: dict[int, list[tuple[int, Fake]]] = {}
        for index, fake in enumerate(outputs):
            if not isinstance(fake, Fake):
                continue
            key = _torch.storage_key(fake)
            neighbours, beside = of_inputs.get(key, []), of_outputs[key]
            if any(fake is each for each in neighbours):
                continue
            # Autograd ties those with a history together, and hands them out as they are.
            first = neighbours or [each for each in beside if each.requires_grad] or beside[:1]
            is_separate = fake is not first[0] and not any(
                _torch.shares_version(fake, each) for each in first if each is not fake
            )
            if is_separate:
                # The first of those that share a version owns it.
                found = owners.setdefault(key, [])
                sharing = [other for other, each in found if _torch.shares_version(fake, each)]
                separate.append((index, sharing[0] if sharing else index))
                if not sharing:
                    found.append((index, fake))
            if (is_separate or not neighbours) and _torch.version_of(fake):
                made.append((index, _torch.version_of(fake)))
        self.made, self.separate = tuple(made), tuple(separate)
        #: Where the call itself is in inference mode, all that is made is such a tensor by itself.
        outside = not torch.is_inference_mode_enabled()
        self.inference = tuple(
            [index for index, fake in enumerate(outputs) if outside and isinstance(fake, Fake) and fake.is_inference()]
        )

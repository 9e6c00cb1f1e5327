"""What `torch.compiler.set_stance` and `torch._dynamo.config.error_on_recompile` say. Loads nothing of the peer's."""

from __future__ import annotations

import sys
from functools import partial
from typing import Any

_loaded = sys.modules.get

#: The module in which the peer keeps its stance; None while it is not loaded. Asked in each call.
peer_frame = partial(_loaded, "torch._dynamo.eval_frame")


def peer_stance() -> str:
    """The stance that the program set for `torch.compile`: "default" where it set none."""
    module: Any = peer_frame()
    return "default" if module is None else module._stance.stance


def peer_raises_on_recompile() -> bool:
    """Whether `torch._dynamo.config.error_on_recompile` is set."""
    module: Any = _loaded("torch._dynamo.config")
    return module is not None and bool(module.error_on_recompile)

"""Why a region is not differentiated: it runs in eager, then."""

from __future__ import annotations

from lampwork.fakes.fake import Unsupported

_REMEDY = "Make tensors that require grad outside of the compiled function, or run inference under torch.no_grad()."


def refused(reason: str, remedy: str = _REMEDY) -> Unsupported:
    """The break of a region whose results require grad, and whose history cannot be tied to the caller's."""
    text = f"a result of this call requires grad, and the region is not differentiated: {reason}"
    return Unsupported(text, remedy, "needs-grad")

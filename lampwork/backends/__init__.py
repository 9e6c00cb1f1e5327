"""Back ends by the type of device: the one place where they are registered."""

from __future__ import annotations

from lampwork.backends.backend import Backend
from lampwork.backends.cpu import CPU
from lampwork.backends.cuda import CUDA

#: A back end of another package puts itself here before the first call is compiled.
BACKENDS: dict[str, Backend] = {each.device: each for each in (CPU, CUDA)}


def backend_of(device: str) -> Backend:
    """The back end of a program on `device` ("cpu", "cuda:1"). Raises `LookupError` where there is none."""
    kind = device.partition(":")[0]
    found = BACKENDS.get(kind)
    if found is None:
        raise LookupError(f"no back end for {kind}; there are {', '.join(sorted(BACKENDS))}")
    return found

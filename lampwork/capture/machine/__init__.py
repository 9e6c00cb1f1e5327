"""An interpreter of CPython 3.11-3.14 bytecode on ordinary Python values; depends on the standard library alone.

    machine = Machine(World())
    machine.call(function, args, kwargs)

`Machine` holds the frames and the control flow, a `World` decides what every operation on values means.
"""

from __future__ import annotations

from .core import Machine
from .errors import Interruption, Unsupported
from .frames import Frame
from .generators import MachineGenerator
from .natives import Answer, InPython, Natives
from .values import NULL, UNBOUND, Enter, Value
from .world import World

__all__ = [
    "Machine", "World", "Frame", "MachineGenerator", "Enter", "Value", "NULL", "UNBOUND", "Interruption", "Unsupported",
    "Answer", "InPython", "Natives",
]  # fmt: skip

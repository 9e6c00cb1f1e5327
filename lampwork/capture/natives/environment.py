"""Environment variables that a program sets: the C library's own are set after the graph, in the program's order.

os.environ["FLAG"] = "1"        a write to the dict that Python reads, and `putenv`, which only C code sees
"""

from __future__ import annotations

import os
from typing import Any

from lampwork.capture.machine import Answer
from lampwork.capture.outside.overlay import Break


def _telling(name: str) -> Any:
    def answer(world: Any, *args: Any) -> None:
        key = args[0] if args else b""
        if not all(type(each) is bytes and b"\0" not in each for each in args) or not key or b"=" in key:
            raise Break("native-argument", f"os.{name} is called with what is no variable's name or value")
        world.output.tell(name, *args)

    return answer


NATIVES: dict[Any, Answer] = {os.putenv: _telling("putenv"), os.unsetenv: _telling("unsetenv")}

"""What was read at a path stays known by the path itself: its id alone is soon that of another one."""

from __future__ import annotations

from lampwork.ir.source import Argument, Item
from lampwork.runtime.guards.interpreter import Scope, read


def test_a_path_made_for_one_read():
    scope = Scope(len, (list(range(64)),), {})
    assert [read(Item(Argument(0), index), scope) for index in range(64)] == list(range(64))

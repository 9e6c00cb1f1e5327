"""PyTorch's operator samples against eager.

Its module of samples imports `expecttest` for tests of its own that never run here. Where that is not installed, an
empty stand-in does.
"""

from __future__ import annotations

import importlib.util
import sys
import types
import unittest

if importlib.util.find_spec("expecttest") is None:
    stand_in = types.ModuleType("expecttest")
    stand_in.TestCase = unittest.TestCase  # type: ignore[attr-defined]
    stand_in.ACCEPT = False  # type: ignore[attr-defined]
    sys.modules["expecttest"] = stand_in

"""Settings of every test: failures inside the compiler raise, the IR is checked after each stage, no shared cache,
planned memory is NaN where nothing is in it."""

from __future__ import annotations

import os
import tempfile

# Read once when lampwork is imported, so they are set before any test module is.
os.environ.setdefault("LAMPWORK_STRICT", "1")
os.environ.setdefault("LAMPWORK_VERIFY", "1")
os.environ.setdefault("LAMPWORK_POISON", "1")
_cache = tempfile.TemporaryDirectory(prefix="lampwork-test-cache-")
os.environ["LAMPWORK_CACHE_DIR"] = _cache.name
os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")


def pytest_addoption(parser):
    parser.addoption("--update-golden", action="store_true", help="rewrite the expected texts of golden tests")

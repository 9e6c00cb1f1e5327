"""Guards at run time: the rules of tests (`tests/`) and of steps (`steps/`), and what is made of them: the compiled
check, version snapshots, reports of failures."""

from lampwork.runtime.guards import steps, tests

__all__ = ["steps", "tests"]

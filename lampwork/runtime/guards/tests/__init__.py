"""One rule for each kind of test of a guard, by families; see `runtime/guards/rules.py`."""

from lampwork.runtime.guards.tests import aliasing, call, classes, containers, equality, identity, sizes, tensors

__all__ = ["aliasing", "call", "classes", "containers", "equality", "identity", "sizes", "tensors"]

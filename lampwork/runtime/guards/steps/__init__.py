"""One rule for each kind of step of a source, by families; see `runtime/guards/rules.py`."""

from lampwork.runtime.guards.steps import attributes, containers, made, roots

__all__ = ["attributes", "containers", "made", "roots"]

"""Passes of the user's (docs/passes.md): what users write them with, and how they are run and verified."""

from lampwork.passes.pattern import Pattern as Pattern
from lampwork.passes.user import GraphPass as GraphPass
from lampwork.passes.user import digest as digest

__all__ = ["GraphPass", "Pattern", "digest"]

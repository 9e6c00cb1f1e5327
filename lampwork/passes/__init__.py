"""Passes of the user's (docs/passes.md): what users write them with, and how they are run and verified."""

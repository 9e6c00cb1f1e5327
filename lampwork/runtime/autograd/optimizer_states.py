"""States of optimizers that a call must make before an entry serves it, as the call did that the entry was made for."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch

from lampwork import _torch
from lampwork.ir.artifact import Artifact
from lampwork.runtime.guards.interpreter import READ_ERRORS, Scope, read


def make_initial_states(
    artifact: Artifact, function: Callable, args: tuple, kwargs: Mapping[str, object], states: _torch.InitialStates
) -> bool:
    """Makes what the artifact's program took for granted; False, with nothing changed, where the optimizers at hand
    lack something else. Whether the guards hold then is for the caller to see."""
    scope = Scope(function, args, dict(kwargs))
    wanted = []
    try:
        for note in artifact.initial_states:
            optimizer = read(note.optimizer, scope)
            if not isinstance(optimizer, torch.optim.Optimizer):
                return False
            group = optimizer.param_groups[note.group]
            params = [group["params"][position] for position in note.positions]
            if len(_torch.without_state(optimizer, params)) < len(params):
                return False
            wanted.append((optimizer, group, params, note))
    except READ_ERRORS:
        return False
    for each in wanted:
        if not states.make(*each):
            states.undo()
            return False
    return bool(wanted)

"""Gradients that a program replaces without looking at them go before it runs, as after `zero_grad()` in eager.

    optimizer.zero_grad(); loss = ...; loss.backward()     ->     values[3].grad = None, the graph, values[3].grad = ...

Together with the new ones they would take their memory twice. What neither graph nor templates look at is not even
among the call's values (`unread_inputs`), which would keep it alive until the call is over. Behind `zero_grad()` the
program does not even know whether there were any (`CallSetAttribute.unseen`): where the call runs eagerly after all, it
forgets them first, too, so nothing is put in their place.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from lampwork.ir.artifact import Artifact
from lampwork.ir.guard import TensorIs
from lampwork.ir.program import Check
from lampwork.ir.source import Attribute, Source
from lampwork.ir.template import CallSetAttribute, NewCall, SourceValue


def unread_inputs(artifact: Artifact, templates: Sequence[Source]) -> frozenset[int]:
    """Inputs whose memory the graph leaves alone, of which no size is taken, that nothing is derived from, and that
    are none of the sources which `templates` read. (Guards look at them all the same.)"""
    if artifact.backward is not None:
        return frozenset()
    named = {id(source) for source in templates} | {
        id(artifact.inputs[index]) for _, indices, _ in artifact.derived for index in indices if index >= 0
    }
    tests = _tests(artifact)
    return frozenset(
        index
        for index in artifact.unaccessed
        if id(source := artifact.inputs[index]) not in named
        and (test := tests.get(id(source))) is not None
        and None not in (*test.shape, *test.strides)
    )


class OldGradients:
    """What an entry writes around its run to let go of them; nothing where there are none.

    `places`: text of the value at each source, by the source's id.
    """

    def __init__(self, artifact: Artifact, unread: frozenset[int], places: dict[int, str]) -> None:
        self._tests: list[TensorIs] = []
        self._targets: list[str] = []
        self._unseen: list[str] = []
        if artifact.backward is not None or not artifact.host_source or _may_refuse(artifact):
            return
        tests = _tests(artifact)
        old = {
            id(source.base): tests[id(source)]
            for index, source in enumerate(artifact.inputs)
            if index in unread and isinstance(source, Attribute) and source.name == "grad"
        }
        for effect in artifact.effects:
            if not isinstance(effect, CallSetAttribute) or effect.name != "grad":
                continue
            target = effect.target
            if not isinstance(target, SourceValue):
                continue
            if effect.unseen:
                self._unseen.append(places[id(target.source)])
                continue
            test = old.pop(id(target.source), None)
            if test is not None and _is_plain(test):
                self._tests.append(test)
                self._targets.append(places[id(target.source)])

    def around(self, run: str, names: dict[str, object]) -> list[str]:
        """Lines with the line `run` among them, which may raise `Rerun`; what they name goes to `names`."""
        forget = [f"{target}.grad = None" for target in self._unseen]
        if not self._targets:
            return [*forget, run]
        names["put_zeros"] = self._put_zeros
        lines = [*forget, *[f"{target}.grad = None" for target in self._targets]]
        lines += ["try:", f"    {run}", "except Rerun:", f"    put_zeros({', '.join(self._targets)})", "    raise"]
        return lines

    def _put_zeros(self, *targets: torch.Tensor) -> None:
        """For a call that runs eagerly after all: it goes the way that the program went, and looks at no numbers of
        gradients there, but it may ask whether they are."""
        with torch.inference_mode(False), torch.no_grad():
            for target, test in zip(targets, self._tests, strict=True):
                empty = torch.empty_strided(
                    test.shape, test.strides, dtype=getattr(torch, test.dtype), device=test.device
                )
                target.grad = empty.zero_()


def _tests(artifact: Artifact) -> dict[int, TensorIs]:
    """What is guarded of tensors, by the ids of their sources."""
    return {id(guard.source): guard.test for guard in artifact.guards if isinstance(guard.test, TensorIs)}


def _is_plain(test: TensorIs) -> bool:
    return (
        test.tensor_type == "torch.Tensor"
        and test.layout == "strided"
        and not (test.requires_grad or test.is_inference or test.is_conj or test.is_neg)
    )


def _may_refuse(artifact: Artifact) -> bool:
    """Whether the program may find out that it does not serve the call, which then goes another way."""
    program = artifact.program
    return (
        bool(program.found)
        or any(isinstance(step, Check) for step in program.steps)
        or any(isinstance(each, NewCall) and each.callable.qualname == "attempt" for each in artifact.objects)
    )

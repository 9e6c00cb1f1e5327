"""Both passes of attention in Triton's interpreter on CPU tensors: they must be as exact as eager."""

from __future__ import annotations

import math
from dataclasses import asdict, replace

import pytest
import torch

from lampwork.codegen.triton import worker
from lampwork.codegen.triton.source import kernel_source
from lampwork.codegen.triton.weighted_sums import sum_tilings
from lampwork.schedule import attention as stage
from lampwork.schedule import weighted_sums
from tests.unit.codegen.triton.attentions import causal, factors, flex
from tests.unit.codegen.triton.interpret import available
from tests.unit.codegen.triton.programs import TARGET, run_kernels, scheduled, sources
from tests.unit.codegen.triton.trained_attentions import PROGRAMS, Trained, eager, tangents_of, trained

interpreted = pytest.mark.skipif(bool(available()), reason=available())


@pytest.fixture(autouse=True)
def _small(monkeypatch):
    torch.manual_seed(0)
    for each in (stage, weighted_sums):
        monkeypatch.setattr(each, "FEWEST_SCORES", 1)
        monkeypatch.setattr(each, "FEWEST_ROWS", 32)
        monkeypatch.setattr(each, "_skips_keys", lambda item: True)


def run(lowered, inputs):
    program = scheduled(lowered)
    assert "fusion-attention" not in [each.id for each in program.refused], program.refused
    return run_kernels(program, sources(program), inputs)


def kinds(lowered):
    names = [kernel.name for kernel in scheduled(lowered).kernels]
    return [sum(name.startswith(kind) for name in names) for kind in ("attention_", "weighted_sums_")]


def as_exact(ours, theirs, right):
    """As near to the result in double precision as eager is; NaN and infinities where eager has them."""
    assert (ours.dtype, ours.shape) == (theirs.dtype, theirs.shape)
    assert torch.equal(ours.isnan(), theirs.isnan()) and torch.equal(ours.isinf(), theirs.isinf())
    known = ours.isfinite() & right.isfinite()
    off, eagers = ((each.double() - right)[known].abs().max() for each in (ours, theirs))
    assert off <= 1.5 * eagers + 1e-5, (off, eagers)


@interpreted
@pytest.mark.parametrize("name", PROGRAMS)
def test_like_eager(name):
    function, make = PROGRAMS[name]
    arguments = trained(*make())
    made = Trained(function, arguments)
    assert kinds(made.forward) == [1, 0] and kinds(made.backward) == [0, 2]
    scores = arguments[0].numel() // arguments[0].size(-1) * arguments[1].size(-2)
    kept = [made.forward.buffers[each.view.buffer].shape for each in made.forward.results if hasattr(each, "view")]
    assert all(math.prod(shape) < scores for shape in kept)
    wide = [each.detach().double().requires_grad_() if each.requires_grad else each for each in arguments]
    assert not [kernel.name for kernel in scheduled(made.forward).kernels if "index_put" in kernel.name]
    tangents = tangents_of(eager(function, arguments)[0])
    found, gradients = made.run(run, arguments, tangents)
    expected, theirs = eager(function, arguments, tangents)
    exact, right = eager(function, wide, [each.double() for each in tangents])
    for one, other, true in zip(found, expected, exact, strict=True):
        as_exact(one, other, true)
    for place, gradient in gradients.items():
        as_exact(gradient, theirs[place], right[place])
        assert gradient.stride() == theirs[place].stride()


@interpreted
@pytest.mark.parametrize("arch, shared", [("sm_90", 227), ("sm_86", 99)])
def test_machine_code(arch, shared, monkeypatch):
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    arguments = trained(*(torch.empty(1, 4, 1024, 128, dtype=torch.float16) for _ in range(3)))
    made = Trained(flex(causal), arguments)
    target = replace(TARGET, name=arch, l1_bytes=shared << 10)
    kernels = [each for each in scheduled(made.backward).kernels if each.name.startswith("weighted_sums_")]
    for kernel in kernels:
        code = worker.compile_text(asdict(kernel_source(kernel, target)))
        assert ("wgmma.mma_async" if arch == "sm_90" else "mma.sync") in code["ptx"]
        assert code["shared_bytes"] <= shared << 10


@interpreted
@pytest.mark.parametrize("place", [0, 2, 5])
def test_tilings(place):
    """The same sums in other tiles: rows and keys that fill none, one, or several."""
    function, arguments = flex(causal), trained(*factors(heads=1, rows=150, keys=150))

    def tiled(lowered, inputs):
        program, made = scheduled(lowered), []
        for kernel in program.kernels:
            tilings = sum_tilings(kernel, TARGET)
            made.append(kernel_source(kernel, TARGET, tiling=tilings[-place - 1] if tilings else None))
        return run_kernels(program, made, inputs)

    tangents = tangents_of(eager(function, arguments)[0])
    wide = [each.detach().double().requires_grad_() for each in arguments]
    _, gradients = Trained(function, arguments).run(tiled, arguments, tangents)
    _, theirs = eager(function, arguments, tangents)
    _, right = eager(function, wide, [each.double() for each in tangents])
    for place, gradient in gradients.items():
        as_exact(gradient, theirs[place], right[place])

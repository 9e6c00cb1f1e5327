"""A program such as users write, which `mypy --strict` must accept: see test_user_program.py. Nothing here is run."""

from __future__ import annotations

from collections.abc import Callable
from typing import assert_type

import torch

import lampwork


class Model(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(8, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.layer(x))

    def width(self) -> int:
        return self.layer.out_features


# A module in, the same type out; a function in, the same parameters and result out.


def scale(x: torch.Tensor, factor: float, *, negate: bool = False) -> tuple[torch.Tensor, int]:
    return (-x if negate else x) * factor, x.shape[0]


model = Model()
fast = lampwork.compile(model)
assert_type(fast, Model)
assert_type(fast.width(), int)
assert_type(lampwork.compile(model, mode="auto", options={"freeze": True}, dynamic=False), Model)
assert_type(lampwork.compile(fullgraph=True)(model), Model)

fast_scale = lampwork.compile(scale, fullgraph=True)
x = torch.ones(2, 8)
assert_type(fast_scale(x, 2.0, negate=True), tuple[torch.Tensor, int])
fast_scale(x, "two")  # type: ignore[arg-type]
fast_scale(x)  # type: ignore[call-arg]


# As a decorator, with and without options, also of a method.


@lampwork.compile
def plain(x: torch.Tensor) -> torch.Tensor:
    return x * 2


@lampwork.compile(mode="max-autotune", dynamic=True, backend="lampwork", disable=False)
def with_options(x: torch.Tensor, times: int = 1) -> list[torch.Tensor]:
    return [x] * times


class Owner:
    @lampwork.compile(fullgraph=True)
    def method(self, x: torch.Tensor) -> torch.Tensor:
        return x + 1


assert_type(plain(x), torch.Tensor)
assert_type(with_options(x, times=3), list[torch.Tensor])
assert_type(Owner().method(x), torch.Tensor)


def my_backend(graph: torch.fx.GraphModule, example_inputs: list[torch.Tensor]) -> Callable[..., object]:
    return graph.forward


assert_type(lampwork.compile(model, backend=my_backend), Model)


# Marks.


@lampwork.disable
def log(x: torch.Tensor, name: str) -> None:
    print(name, x.shape)


@lampwork.assume_constant
def table() -> list[int]:
    return [1, 2, 3]


assert_type(log(x, "x"), None)
assert_type(table(), list[int])
lampwork.mark_dynamic(x, 0, min=2, max=64)
lampwork.mark_dynamic(x, [0, 1])
lampwork.mark_static(x)


# What happened.

found = lampwork.stats(fast)
assert_type(found["captures"] + found["native_kernels"], int)
for record in found["fallbacks"] + found["breaks"] + found["recompiles"]:
    assert_type(record.diagnostic, lampwork.Diagnostic)
    print(
        record.id,
        record.reason,
        record.remedy,
        record.location.file,
        record.location.line,
        record.count,
        record.seconds,
    )
for size in found["specialised"]:
    print(size.reason)
slowest: str = max(found["compile_seconds"], key=lambda stage: found["compile_seconds"][stage])
found["capture"]  # type: ignore[typeddict-item]

explanation = lampwork.explain(model, x)
print(explanation.overview(), explanation["kernels"], list(explanation), explanation.html(), explanation.to_dict())
for path in explanation.dump("folder"):
    assert_type(path.name, str)


# Does it pay, is it right, where does the time go.

verdict = lampwork.assess(model, x, calls=10_000, price=2.5, dtypes=[torch.bfloat16], peer=True)
if verdict.pays:
    print(verdict, verdict.code, verdict.payoff)

verification = lampwork.verify(model, x, backward=True, more=[(x,)], steps=2)
assert_type(verification.right, bool)
if not verification:
    print(verification.sentence(), verification.blame)

profile = lampwork.profile(model, x)
assert_type(profile.sentence, str)

loader: list[tuple[torch.Tensor, torch.Tensor]] = []
for batch in lampwork.watch(loader, calls=100_000):
    assert_type(batch, tuple[torch.Tensor, torch.Tensor])


# Stances: as a call, a block and a decorator.

lampwork.set_stance("default")
with lampwork.set_stance("fail_on_recompile"):
    fast(x)


@lampwork.set_stance("force_eager")
def in_eager(x: torch.Tensor) -> torch.Tensor:
    return plain(x)


assert_type(in_eager(x), torch.Tensor)


# Errors.

try:
    fast_scale(x, 1.0)
except lampwork.GraphBreak as error:
    assert_type(error.diagnostic, lampwork.Diagnostic)
    print(error.diagnostic.page)
except lampwork.DynamicSizeError as error:
    print(error.diagnostic.location.line)
except lampwork.CompileError as error:
    print(error.stage, error.operator)
except (lampwork.RecompileError, lampwork.OptionError):
    raise
except lampwork.LampworkError as error:
    print(error)

problem = lampwork.Diagnostic("data-dependent", "a branch on a tensor")
assert_type(str(problem), str)
warning: type[UserWarning] = lampwork.LampworkWarning
lampwork.reset()
version: str = lampwork.__version__
lampwork.no_such_name  # type: ignore[attr-defined]

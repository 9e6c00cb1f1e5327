"""The programs of a replay: models, training steps, PyTorch's operator samples, programs over sizes that vary.

Each comes with a name that stays the same from checkout to checkout, and the same weights and inputs each time.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any

import numpy
import torch

from lampwork.config import Settings, make_settings
from tests.validation.sources import Program

#: What `python -m tests.replay` takes; `--all` takes all sets, and all programs of each.
SETS = ("models", "training", "mechanisms", "dynamic", "operators", "gradients", "python")
#: The shares of programs that are recorded without `--all`: one of so many.
SHARES = {"operators": 1, "gradients": 4, "python": 8, "training": 8}
#: What `transformers` architectures are recorded; with `--all` those that the tests of models take.
FEW, MANY = ("llama",), ("modernbert", "mixtral", "mamba2", "t5", "wav2vec2", "swin", "clip")
#: Operators whose samples do not say the same in two processes, or whose results are whatever was in memory.
LEFT_OUT = ("empty", "resize", "new_empty", "empty_strided", "empty_like", "empty_permuted", "new_empty_strided")


def programs(chosen: tuple[str, ...], everything: bool, only: str = "") -> Iterator[Program]:
    """Programs of the sets `chosen` whose name holds `only`: a share of each set, or `everything`."""
    for name in chosen:
        share = 1 if everything else SHARES.get(name, 1)
        for place, (title, make) in enumerate(_MAKERS[name](everything)):
            if place % share == 0 and only in f"{name} {title}":
                seed()
                made = make()
                if made is not None:
                    function, calls, settings, gradients = made
                    yield Program(f"{name} {title}", function, calls, settings, gradients)


def seed() -> None:
    torch.manual_seed(7)
    random.seed(7)
    numpy.random.seed(7)


Made = tuple[Callable, list[tuple[tuple, dict]], Settings, bool]
Titled = Iterator[tuple[str, Callable[[], Made | None]]]


def _models(everything: bool) -> Titled:
    from bench.architectures import BY_NAME
    from lampwork.benchmark import zoo

    def of_zoo(name: str, **settings: Any) -> Made:
        workload = zoo.build(name, size="tiny")
        return workload.function, [(workload.args, workload.kwargs)], make_settings(**settings), False

    def of_transformers(name: str) -> Made | None:
        try:
            module, inputs = BY_NAME[name].build()
        except ImportError:
            return None
        return module, [((), inputs)], Settings(), False

    for name in zoo.ZOO:
        yield name, lambda name=name: of_zoo(name)
        if everything:
            yield f"{name} frozen", lambda name=name: of_zoo(name, options={"freeze": True})
            yield f"{name} symbols", lambda name=name: of_zoo(name, dynamic=True)
    for name in (*FEW, *(MANY if everything else ())):
        yield f"transformers {name}", lambda name=name: of_transformers(name)


def _training(everything: bool) -> Titled:
    from lampwork.benchmark import training, zoo
    from tests.training.programs import TABLE

    def of_zoo(name: str, dynamic: bool | None) -> Made:
        workload = training.prepare(name, size="tiny")
        batch = workload.batches[0]

        def loss() -> torch.Tensor:
            return workload.loss(workload.module(*batch.args, **batch.kwargs), batch.target)

        return loss, [((), {})], make_settings(dynamic=dynamic), True

    def step(name: str) -> Made:
        program = TABLE[name]()
        return program.step, [(program.inputs(number), {}) for number in range(2)], Settings(), True

    for name in TABLE:
        yield f"step of {name}", lambda name=name: step(name)
    for place, name in enumerate(zoo.ZOO):
        if everything or place < 3:
            yield f"loss of {name}", lambda name=name: of_zoo(name, None)


def _mechanisms(everything: bool) -> Titled:
    from tests.validation.mechanisms import TABLE

    def made(name: str) -> Made:
        row = TABLE[name]
        calls = [(row.inputs(*sizes), {}) for sizes in (row.sizes if everything else row.sizes[:1])]
        return row.function, calls, row.settings, row.gradients

    for name in TABLE:
        yield name, lambda name=name: made(name)


def _dynamic(everything: bool) -> Titled:
    from tests.dynamic.test_programs import PROGRAMS

    def made(name: str) -> Made:
        function, shapes, _ = PROGRAMS[name]
        calls = []
        for n, m in ((5, 7), (12, 33)):
            found = [shape(n, m) if callable(shape) else shape for shape in shapes]
            calls.append((tuple(torch.randn(*each) if isinstance(each, tuple) else each for each in found), {}))
        return function, calls, make_settings(dynamic=True), False

    for name in PROGRAMS:
        yield name, lambda name=name: made(name)


def _samples(gradients: bool, everything: bool) -> Titled:
    from torch.testing._internal.common_methods_invocations import op_db

    from tests.ops.check import UNINITIALISED, full_name, leave_seeding_to_the_check

    leave_seeding_to_the_check()

    def made(op: Any, dtype: torch.dtype, place: int, dynamic: bool | None) -> Made | None:
        samples = op.sample_inputs("cpu", dtype, requires_grad=gradients)
        sample = next((each for number, each in enumerate(samples) if number == place), None)
        if sample is None:
            return None

        def program(*args: Any, **kwargs: Any) -> Any:
            return op.get_op()(*args, **kwargs)

        calls = [((sample.input, *sample.args), dict(sample.kwargs))]
        return program, calls, make_settings(dynamic=dynamic), gradients

    for op in op_db:
        types = op.supported_dtypes("cpu")
        if op.name in UNINITIALISED or op.name in LEFT_OUT or "resize" in op.name or "empty" in op.name:
            continue
        if gradients and not (op.supports_autograd and torch.float32 in types):
            continue
        if not types:
            continue
        first = torch.float32 if torch.float32 in types else min(types, key=str)
        rows = [(first, 0, None)]
        if everything and not gradients:
            rows += [(each, 1, None) for each in (torch.bfloat16, torch.int64) if each in types]
            rows.append((first, 1, True))
        for dtype, place, dynamic in rows:
            title = f"{full_name(op)} {str(dtype).removeprefix('torch.')} {place}{' symbols' if dynamic else ''}"
            yield title, lambda row=(op, dtype, place, dynamic): made(*row)


def _python(everything: bool) -> Titled:
    from tests.python.harness import all_programs, load_feature

    def made(feature: str, name: str) -> Made:
        program = load_feature(feature)[1][name]
        calls = [(tuple(program.arguments(which)), {}) for which in dict.fromkeys(program.order)]
        return program.function, calls, Settings(), program.grad

    for feature, name in all_programs():
        yield f"{feature} {name}", lambda feature=feature, name=name: made(feature, name)


_MAKERS: dict[str, Callable[[bool], Titled]] = {
    "models": _models,
    "training": _training,
    "mechanisms": _mechanisms,
    "dynamic": _dynamic,
    "operators": lambda everything: _samples(False, everything),
    "gradients": lambda everything: _samples(True, everything),
    "python": _python,
}

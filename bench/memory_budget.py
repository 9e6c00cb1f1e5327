"""What `options={"memory_budget": b}` does: memory that the backward pass keeps, and the time of a step.

    python -m bench.memory_budget gpt2 --budgets 1.0 0.5 0.25

One line for eager and each budget: bytes kept between the forward and the backward pass (without parameters), and the
median time of forward, loss and backward, measured by turns. Dropout is off.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from typing import Any

import torch

import lampwork
from lampwork.benchmark import zoo


def kept_bytes(run: Callable[[], Any], module: torch.nn.Module) -> int:
    """Bytes of the memory that autograd saves in `run()`, without the module's parameters."""
    parameters = {each.untyped_storage().data_ptr() for each in module.parameters()}
    kept: dict[int, torch.Tensor] = {}

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        kept[tensor.untyped_storage().data_ptr()] = tensor
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        result = run()
    del result
    return sum(each.untyped_storage().nbytes() for address, each in kept.items() if address not in parameters)


def loss_of(result: Any) -> torch.Tensor:
    """The mean square of the first tensor in a result."""
    while not isinstance(result, torch.Tensor):
        result = next(iter(result.values() if hasattr(result, "values") else result))
    return result.float().pow(2).mean()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", choices=sorted(zoo.ZOO))
    parser.add_argument("--size", default="full")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--budgets", type=float, nargs="*", default=[1.0, 0.5])
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    workload = zoo.build(options.model, size=options.size, device=options.device)
    module = workload.function.train()  # type: ignore[attr-defined]
    for each in module.modules():
        if isinstance(each, torch.nn.Dropout):
            each.p = 0.0
    runs: dict[str, Callable[..., Any]] = {"eager": module}
    for budget in options.budgets:
        runs[f"budget {budget:g}"] = lampwork.compile(module, options={"cache": False, "memory_budget": budget})
    times: dict[str, list[float]] = {name: [] for name in runs}
    for number in range(options.rounds + 1):
        for name, run in runs.items():
            module.zero_grad()
            start = time.perf_counter()
            loss_of(run(*workload.args)).backward()
            if options.device != "cpu":
                torch.cuda.synchronize()
            if number:
                times[name].append(time.perf_counter() - start)
    for name, run in runs.items():
        kept = kept_bytes(lambda: run(*workload.args), module)
        print(f"{name:12s} {kept / 2**20:10.1f} MiB kept {statistics.median(times[name]) * 1e3:10.1f} ms a step")


if __name__ == "__main__":
    main()

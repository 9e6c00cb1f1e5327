"""One process of `bench.verdicts`: an order as JSON is its argument, and the last line that it prints is the answer.

    {"task": "assess", "workload", "device", "calls", "seconds"}     what `lampwork.assess` says for so many calls
    {"task": "run", "workload", "device", "code", "seconds"}         seconds of the first calls, and of one later

`code` is what a verdict tells the user to write; empty: eager. It is run as it stands before the first call, and its
time is that of the first call's.
"""

from __future__ import annotations

import json
import sys
import time
from typing import Any

import torch

from bench.verdict_workloads import BY_WORKLOAD, Case

#: Calls that are told one by one; beyond them a call takes what the rest took in the mean.
TOLD = 2000
LEAST_CALLS = 12


def main() -> int:
    order = json.loads(sys.argv[1])
    case = BY_WORKLOAD[order["workload"]].build(order["device"])
    print(json.dumps(assess(case, order) if order["task"] == "assess" else run(case, order)))
    return 0


def assess(case: Case, order: dict[str, Any]) -> dict[str, Any]:
    import lampwork
    from lampwork.verdict.candidate import Allowed, candidates
    from lampwork.verdict.program import Program

    with torch.set_grad_enabled(case.grad):
        program = Program(case.function, case.args, case.kwargs)
        program.observe()
        every = candidates(program.root, program.task, order["device"], Allowed())
        variable, holder = program.variables
        codes = {each.name: each.code((variable,), holder) for each in every}
        del program, every
        began = time.perf_counter()
        calls = order["calls"]
        verdict = lampwork.assess(case.function, *case.args, calls=calls, seconds=order["seconds"], **case.kwargs)
        took = time.perf_counter() - began
    subject, payoff = verdict.subject, verdict.payoff
    answer = {
        "calls": calls,
        "pays": verdict.pays,
        "choice": verdict.choice.candidate.name if verdict.pays else "eager",
        "subject": None if subject is None else subject.candidate.name,
        "break_even": None if payoff is None else payoff.calls.value,
        "interval": None if payoff is None else (payoff.calls.lower, payoff.calls.upper),
        "sentence": verdict.sentence,
        "failed": [f"{each.candidate.name}: {each.failure}" for each in verdict.found.tried if each.failure],
        "seconds": took,
    }
    return {"answer": answer, "codes": codes, "variables": [variable, holder]}


def run(case: Case, order: dict[str, Any]) -> dict[str, Any]:
    variable, holder = order["variables"]
    synchronize = torch.cuda.synchronize if order["device"] == "cuda" else lambda: None
    torch.ones(64, 64, device=order["device"]).mm(torch.ones(64, 64, device=order["device"])).sum().item()
    names: dict[str, Any] = {variable: case.function, "torch": torch}
    if holder != variable:
        _put(names, holder, case.model)
    times = []
    began = last = time.perf_counter()
    if order["code"]:
        exec("import lampwork\n" + order["code"], names)
    function = names[variable]
    while len(times) < LEAST_CALLS or last - began < order["seconds"]:
        case.call(function)
        synchronize()
        now = time.perf_counter()
        times.append(now - last)
        last = now
    later = sorted(times[len(times) // 2 :])
    kept = later[: max(1, len(later) * 49 // 50)]  # what was interrupted is left out
    return {"first": times[: min(TOLD, len(times) // 2)], "later": sum(kept) / len(kept), "calls": len(times)}


def _put(names: dict[str, Any], holder: str, model: Any) -> None:
    """`model` under the expression that the verdict calls it by."""
    first, _, rest = holder.partition(".")
    if not rest:
        names[first] = model


if __name__ == "__main__":
    raise SystemExit(main())

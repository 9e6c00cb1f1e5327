"""Checks operators one after the other and writes a line of JSON for each: run by `sweep.py` in processes of their own.

`python -m tests.ops.worker ITEMS.json RECORD.jsonl LIMIT [DEVICE [GRADIENTS]]` where ITEMS lists [operator, dtype]
pairs. GRADIENTS, "whole" or "apart": the derivatives of the operators instead of the operators.
"""

from __future__ import annotations

import json
import os
import sys
import time

os.environ["LAMPWORK_STRICT"] = "0"  # a failure inside the compiler counts as a fall-back here


def main(items_path: str, record_path: str, limit: str, device: str = "cpu", what: str = "") -> None:
    import torch
    from torch.testing._internal.common_methods_invocations import op_db

    from tests.ops.categories import category
    from tests.ops.check import DEVICE_LOST, OUTCOMES, check_sample, full_name, samples
    from tests.ops.gradients import check_gradient, gradient_samples

    torch.set_num_threads(1)
    by_name = {full_name(op): op for op in op_db}
    with open(items_path) as file:
        items = json.load(file)
    with open(record_path, "a", buffering=1) as record:
        for name, dtype_name in items:
            record.write(json.dumps({"op": name, "dtype": dtype_name, "begin": True}) + "\n")
            op, dtype = by_name[name], getattr(torch, dtype_name)
            started = time.perf_counter()
            outcomes = []
            inplace = None
            details = []
            try:
                count = None if limit == "all" else int(limit)
                cases = gradient_samples(op, dtype, count, device) if what else samples(op, dtype, count, device)
            except Exception as error:
                cases = []
                details.append(f"no samples: {type(error).__name__}: {error}"[:300])
            for label, function, args, kwargs in cases:
                if what:
                    outcome = check_gradient(op, function, args, kwargs, what)
                else:
                    outcome = check_sample(op, function, args, kwargs)
                if label == "in-place" and outcome.kind == "fallback":
                    # Counted apart: `squeeze_` on a tensor that the caller holds says nothing about `squeeze`.
                    inplace = outcome.kind
                else:
                    outcomes.append(outcome.kind)
                if outcome.detail and len(details) < 8:
                    details.append(f"{label}: {outcome.kind}: {outcome.detail}")
            line = {
                "op": name,
                "dtype": dtype_name,
                "category": category(op),
                "outcome": max(outcomes, key=OUTCOMES.index) if outcomes else "none",
                "samples": {kind: outcomes.count(kind) for kind in OUTCOMES if kind in outcomes},
                "inplace": inplace,
                "details": details,
                "seconds": round(time.perf_counter() - started, 3),
            }
            record.write(json.dumps(line) + "\n")
            if device != "cpu" and "failed" in outcomes and is_lost():
                os._exit(DEVICE_LOST)


def is_lost() -> bool:
    """Whether an error such as an illegal address has put an end to all work on the GPU in this process."""
    import torch

    try:
        torch.zeros(1, device="cuda").add_(1).item()
        torch.cuda.synchronize()
    except Exception:
        return True
    return False


if __name__ == "__main__":
    main(*sys.argv[1:])

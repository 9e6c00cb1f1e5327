"""Prints what a machine with a GPU offers: versions, the GPU, ptxas, cores."""

from __future__ import annotations

import importlib.metadata
import os
import shutil
import sys

PACKAGES = "torch triton transformers llvmlite numpy rich pytest pytest-xdist pytest-timeout hypothesis".split()


def main() -> None:
    print("Python", sys.version.split()[0], sys.executable, f"{len(os.sched_getaffinity(0))} CPUs")
    for name in PACKAGES:
        try:
            print(name, importlib.metadata.version(name))
        except importlib.metadata.PackageNotFoundError:
            print(name, "MISSING")
    print("ptxas on the path:", shutil.which("ptxas") or "no")
    import torch

    if not torch.cuda.is_available():
        print("GPU: none")
        return
    from lampwork.benchmark.device import describe

    print("GPU:", describe("cuda"), f"{torch.cuda.device_count()} in all")
    free, total = torch.cuda.mem_get_info()
    print(f"memory free {free / 2**30:.1f} of {total / 2**30:.1f} GiB")
    x = torch.randn(4096, 4096, device="cuda", dtype=torch.bfloat16)
    print("a product:", float((x @ x).float().std()))


if __name__ == "__main__":
    main()

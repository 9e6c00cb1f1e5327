"""The on-disk cache: a second process takes what the first compiled.

The script runs itself twice, with an empty folder as its cache.
"""

import os
import subprocess
import sys
import tempfile
from time import perf_counter

import torch

import lampwork


def work() -> None:
    """What a server does when it starts: the first request."""
    torch.manual_seed(0)
    model = torch.nn.TransformerEncoderLayer(64, 4, 256, batch_first=True).eval().requires_grad_(False)
    fast, x = lampwork.compile(model), torch.randn(2, 16, 64)
    start = perf_counter()
    found = fast(x)
    seconds = perf_counter() - start
    torch.testing.assert_close(found, model(x), rtol=1e-4, atol=1e-4)
    stats = lampwork.stats(fast)
    print(f"first call {seconds * 1e3:.0f} ms: {stats['captures']} captured, {stats['cache_hits']} from the cache")


if __name__ == "__main__":
    if sys.argv[1:] == ["work"]:
        work()
    else:
        with tempfile.TemporaryDirectory() as folder:
            # `lampwork cache show` says what is in it. Only you may be able to write to it: entries hold machine code.
            settings = {**os.environ, "LAMPWORK_CACHE_DIR": folder}
            for name in ("cold", "warm"):
                print(f"{name} process:", end=" ", flush=True)
                subprocess.run([sys.executable, __file__, "work"], env=settings, check=True)

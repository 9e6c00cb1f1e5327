"""Every kind of `generate` in one process: are the tokens eager's, what is compiled, and what runs eagerly?

    python -m bench.generate [NAMES...] [--new 12] [--json FILE]

Models are those of `bench.architectures`: llama, gpt2 and t5 if none is named. Each is compiled once, and generates
greedily, sampling and with beams, with a growing and a static cache, for every size of `SIZES`. A kind runs twice: what
the first time compiles the second is timed, beside eager. Ends with 1 if tokens differ, or anything ran eagerly.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path
from typing import Any, NamedTuple

import torch
from rich.console import Console
from rich.table import Table

import lampwork
from bench.architecture_inputs import VOCABULARY
from bench.architectures import BY_NAME

NAMES = ("llama", "gpt2", "t5")
#: (batch, length of the prompt); in every second batch the first text is padded.
SIZES = ((1, 5), (2, 9), (3, 16), (4, 7), (1, 20), (5, 12))
CHOICES: dict[str, dict[str, Any]] = {
    "greedy": {},
    "sample": {"do_sample": True, "temperature": 0.8, "top_k": 20, "top_p": 0.9},
    "beams": {"num_beams": 3},
}
CACHES: dict[str, dict[str, Any]] = {"growing": {}, "static": {"cache_implementation": "static"}}
KINDS = tuple((choice, cache) for choice in CHOICES for cache in CACHES)


class Outcome(NamedTuple):
    """One kind of `generate` for all sizes; seconds are those of a second run."""

    name: str
    choice: str
    cache: str
    right: bool
    captures: int
    fallbacks: int
    breaks: int
    seconds: float
    eager_seconds: float


def generated(model: Any, size: tuple[int, int], choice: str, cache: str, new: int, seed: int = 0) -> torch.Tensor:
    """Tokens for a prompt of that size, drawn from a seed."""
    batch, length = size
    ids = torch.randint(3, VOCABULARY, size, generator=torch.Generator().manual_seed(seed))
    mask = torch.ones_like(ids)
    if batch > 1 and length % 2:
        mask[0, :2], ids[0, :2] = 0, 0
    torch.manual_seed(seed)
    options = {"do_sample": False, **CHOICES[choice], **CACHES[cache]}
    return model.generate(input_ids=ids, attention_mask=mask, max_new_tokens=new, min_new_tokens=new, **options)


def counts(fast: Any) -> tuple[int, int, int]:
    """Captures, calls that ran eagerly, and breaks so far."""
    stats = lampwork.stats(fast)
    return (stats["captures"], *(sum(each.count for each in stats[what]) for what in ("fallbacks", "breaks")))


def outcomes(name: str, new: int) -> list[Outcome]:
    """Of every kind, in the order of `KINDS`, with one compiled model."""
    model, _ = BY_NAME[name].build()
    fast = lampwork.compile(model, options={"cache": False})
    found = []
    for choice, cache in KINDS:
        before = counts(fast)
        first = [generated(fast, size, choice, cache, new) for size in SIZES]
        start = time.perf_counter()
        expected = [generated(model, size, choice, cache, new) for size in SIZES]
        middle = time.perf_counter()
        second = [generated(fast, size, choice, cache, new) for size in SIZES]
        end = time.perf_counter()
        right = all(map(torch.equal, first, expected)) and all(map(torch.equal, second, expected))
        changed = [now - then for now, then in zip(counts(fast), before)]
        found.append(Outcome(name, choice, cache, right, *changed, end - middle, middle - start))
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", default=NAMES)
    parser.add_argument("--new", type=int, default=12, help="tokens to generate")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    found = [each for name in arguments.names for each in outcomes(name, arguments.new)]
    table = Table("model", "choice", "cache", "tokens", "captures", "eager calls", "breaks", "time / eager")
    for each in found:
        shown = [each.captures, each.fallbacks, each.breaks, f"{each.seconds / each.eager_seconds:.2f}"]
        table.add_row(each.name, each.choice, each.cache, "right" if each.right else "WRONG", *map(str, shown))
    Console(width=110).print(table)
    if arguments.json:
        arguments.json.write_text(json.dumps([each._asdict() for each in found], indent=1))
    return int(any(not each.right or each.fallbacks or each.breaks for each in found))


if __name__ == "__main__":
    sys.exit(main())

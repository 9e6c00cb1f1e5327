"""Inference of a transformers model (random weights): the same results as eager, and what a call takes.

Needs `pip install transformers`.
"""

from time import perf_counter

import torch
from transformers import BertConfig, BertModel

import lampwork

torch.manual_seed(0)
config = BertConfig(num_hidden_layers=2, hidden_size=256, num_attention_heads=4, intermediate_size=1024)
model = BertModel(config).eval()
inputs = {"input_ids": torch.randint(0, 30_000, (4, 64)), "attention_mask": torch.ones(4, 64, dtype=torch.long)}

# `freeze`: the weights will not change, so they may be packed once.
fast = lampwork.compile(model, options={"freeze": True})


def milliseconds(call: torch.nn.Module) -> float:
    for _ in range(3):
        call(**inputs)
    times = []
    for _ in range(10):
        start = perf_counter()
        call(**inputs)
        times.append(perf_counter() - start)
    return 1e3 * sorted(times)[5]


with torch.no_grad():
    expected, found = model(**inputs), fast(**inputs)
    difference = (expected.last_hidden_state - found.last_hidden_state).abs().max()
    print(f"results: {type(found).__name__}, largest difference from eager {difference:.1e}")
    torch.testing.assert_close(found.last_hidden_state, expected.last_hidden_state, rtol=1e-4, atol=1e-4)
    print(f"a call: eager {milliseconds(model):.1f} ms, compiled {milliseconds(fast):.1f} ms")

stats = lampwork.stats(fast)
print(f"{stats['captures']} capture, {len(stats['breaks'])} breaks, {len(stats['fallbacks'])} fall-backs,", end=" ")
print(f"{stats['native_kernels']} kernels in {stats['launches']} launches")

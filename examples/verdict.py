"""Does compiling pay? It depends on how many calls there will be: the same function, asked for many and for a few.

The first assessment on a machine also measures what loading the compiler takes, which is some seconds more.
"""

import torch

import lampwork

torch.manual_seed(0)
x = torch.randn(256, 512)


def many_small_operators(x):
    y = x * 0.5 * (1 + torch.tanh(0.79788 * (x + 0.044715 * x * x * x)))
    return (y - y.mean(-1, keepdim=True)) / (y.std(-1, keepdim=True) + 1e-5)


for calls in (1_000_000, 3):
    verdict = lampwork.assess(many_small_operators, x, calls=calls, seconds=5, freeze=False)
    print(f"for {calls:,} calls: {'compile' if verdict.pays else 'leave it as it is'}")
    print(f"    {str(verdict).strip().splitlines()[0]}")  # the rest says why, and what was tried
    print(f"    what to write: {verdict.code or 'nothing'}")

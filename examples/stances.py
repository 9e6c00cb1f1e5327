"""A server that must not compile while it serves: warm up, then forbid it."""

import torch

import lampwork

torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.ReLU(), torch.nn.Linear(32, 4)).requires_grad_(False)
fast = lampwork.compile(model, options={"cache": False})

# Warm up, with a mark on what will vary: one entry serves all batches of 2 to 64.
x = torch.randn(8, 16)
lampwork.mark_dynamic(x, 0, min=2, max=64)
fast(x)
print(f"warmed up: {lampwork.stats(fast)['captures']} compiled")

# From here on a call that nothing compiled serves is an error ...
with lampwork.set_stance("fail_on_recompile"):
    for size in (2, 30, 64):
        torch.testing.assert_close(fast(torch.ones(size, 16)), model(torch.ones(size, 16)))
    try:
        fast(torch.ones(8, 16, dtype=torch.float64))
    except lampwork.RecompileError as error:
        print(f"refused: {error}")

# ... or runs eagerly, and is counted.
with lampwork.set_stance("eager_on_recompile"):
    fast(torch.ones(100, 16))
for record in lampwork.stats(fast)["fallbacks"]:
    print(f"ran eagerly, {record.count} time: [{record.id}]")

# To find out whether the compiler is to blame for something: nothing compiled runs.
with lampwork.set_stance("force_eager"):
    assert torch.equal(fast(x), model(x))
print(f"in the end: {lampwork.stats(fast)['captures']} compiled")

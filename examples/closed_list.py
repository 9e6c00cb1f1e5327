"""A library that compiles by itself, and takes the names of some back ends only: three ways to have Lampwork there."""

import torch

import lampwork


def train(model, backend=None):
    """Stands for accelerate's `prepare` or transformers' `Trainer` (see docs/recipes.md)."""
    if backend not in (None, "inductor", "eager"):
        raise ValueError(f"{backend!r} is not a valid back end")
    if backend is not None:
        model = torch.compile(model, backend=backend)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(3):
        optimizer.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
    return loss.item()


def new_model():
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.GELU(), torch.nn.Linear(16, 1))


x = torch.randn(32, 8, generator=torch.Generator().manual_seed(0))
print(f"eager:                      {train(new_model()):.6f}")

# 1. Compile first, and tell the library to compile nothing. What is handed over is a module of the same class.
model = lampwork.compile(new_model())
print(f"compiled first:             {train(model):.6f}, {lampwork.stats(model)['native_kernels']} kernels")

# 2. The same through PyTorch's front end; the module stays the object that it is.
model = new_model()
model.compile(backend="lampwork")
print(f"Module.compile:             {train(model):.6f}")

# 3. The library calls torch.compile itself: whatever back end it asks for, it gets this one.
with torch.compiler.set_stance("default", force_backend="lampwork"):
    print(f"in place of another:        {train(new_model(), backend='inductor'):.6f}")

"""Custom operators, scripted functions, checkpointing, foreach operators, compiler marks, nested compilation."""

from __future__ import annotations

import threading
import warnings
import weakref

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

import lampwork
from tests.python.harness import program
from tests.python.operators import fill, opaque, scale
from tests.python.tensors import frozen, values


def _x():
    return values(2, 4)


@program(together=lambda: (_x(),))
def custom_operator(x):
    return scale(x, 2.0) + 1


@program(together=lambda: (_x(),))
def custom_operator_by_name(x):
    return torch.ops.lampwork_programs.scale(x, 0.5) + x


@program(together=lambda: (_x(),))
def custom_operator_that_writes(x):
    fill(x, 3.0)
    return x + 1


@program(together=lambda: (_x(),))
def custom_operator_without_fake(x):
    return opaque(x) * 2


@torch.jit.script
def scripted(x: torch.Tensor, n: int) -> torch.Tensor:
    for _ in range(n):
        x = x * 2
    return x


@program(together=lambda: (_x(),))
def scripted_function(x):
    return scripted(x, 3) + 1


@program(together=lambda: (_x(), torch.jit.script(frozen(lambda: nn.Linear(4, 4)))))
def scripted_module(x, layer):
    return layer(x) + 1


@program(together=lambda: (_x(), frozen(lambda: nn.Linear(4, 4))))
def checkpointed_block(x, layer):
    return checkpoint(layer, x, use_reentrant=False) + 1


@program(together=lambda: (_x(), frozen(lambda: nn.Linear(4, 4))), grad=True)
def checkpointed_function_under_no_grad(x, layer):
    def block(value):
        return torch.relu(layer(value))

    with torch.no_grad():
        return checkpoint(block, x, use_reentrant=False)


@program(together=lambda: ([values(3), values(2, 2)], [values(3, seed=1), values(2, 2, seed=1)]))
def foreach_operators(left, right):
    total = torch._foreach_add(left, right, alpha=2)
    torch._foreach_mul_(left, 0.5)
    return total, torch._foreach_norm(right)


@torch.compiler.disable
def _not_compiled(x):
    return x * 3


@program(together=lambda: (_x(),))
def disabled_function(x):
    return _not_compiled(x + 1) * 2


@torch.compiler.disable()
def _also_not_compiled(x):
    return x - 3


@program(together=lambda: (_x(),))
def disabled_function_in_the_middle(x):
    y = x.exp()
    z = _also_not_compiled(y)
    return y + z


def _helper(x):
    return x.sin() if torch.compiler.is_compiling() else x.sin()


@program(together=lambda: (_x(),))
def asks_whether_it_is_compiled(x):
    return _helper(x)


@lampwork.compile
def _compiled_inner(x):
    return x.relu() + 1


@program(together=lambda: (_x(),))
def compiled_function_inside(x):
    return _compiled_inner(x) * 2


@program(together=lambda: (_x(),))
def weak_reference_to_a_tensor(x):
    y = x + 1
    reference = weakref.ref(y)
    return y, reference() is y


@program(together=lambda: (_x(), frozen(lambda: nn.Linear(4, 4))))
def weak_reference_to_a_module(x, layer):
    reference = weakref.ref(layer)
    return reference()(x)


def _checked(x):
    warnings.warn("values are large", UserWarning, stacklevel=2)
    return x


class Child(nn.Module):
    def __init__(self, parent, scale):
        super().__init__()
        self.parent = weakref.ref(parent)
        self.scale = weakref.ref(scale)

    def forward(self, x):
        return x * self.parent().factor + self.scale()


def _family():
    parent = nn.Module()
    parent.factor, parent.scale = 2.0, torch.tensor(3.0)
    return _x(), parent, Child(parent, parent.scale)


@program(together=_family)
def weak_references_from_outside(x, parent, child):
    first = child(x)
    parent.factor = 3.0
    return first, child(x), child.parent() is parent, child.scale


@program(together=lambda: (_x(),))
def warning_given(x):
    return _checked(x) * 2


@program(together=lambda: (_x(),))
def warning_given_if_shapes_differ(x):
    if x.shape[0] != x.shape[1]:
        warnings.warn(f"not square: {tuple(x.shape)}")
    return x @ x.T


@program(together=lambda: (_x(),))
def warnings_silenced(x):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return x / 2


_local = threading.local()


@program(together=lambda: (_x(),))
def state_of_the_thread(x):
    _local.depth = getattr(_local, "depth", 0) + 1
    try:
        return x * _local.depth
    finally:
        _local.depth -= 1


_lock = threading.Lock()


@program(together=lambda: (_x(),))
def lock_held(x):
    with _lock:
        return x + 1


@program(together=lambda: (_x(),))
def scalar_arithmetic_by_torch(x):
    return x * torch.pi, torch.inf, x.clamp(max=torch.e), torch.tensor(float("nan")).isnan()


@program(together=lambda: (_x(),))
def typing_checks_of_torch(x):
    return torch.is_tensor(x), torch.is_floating_point(x), torch.is_complex(x), isinstance(x, torch.FloatTensor)


@program(together=lambda: (_x(), nn.Linear(4, 4)))
def checkpointed_block_in_a_loop(x, layer):
    with torch.no_grad():
        for _ in range(3):
            x = checkpoint(lambda value: torch.relu(layer(value)), x, use_reentrant=False)
    return x


@program(together=lambda: (_x(),))
def counter_guarded_by_a_lock(x):
    lock = threading.Lock()
    total = 0
    with lock:
        total += 1
    return x + total


@program(together=lambda: (_x(),))
def operator_looked_up_by_name(x):
    operators = torch.ops.aten
    return operators.add(x, x), getattr(operators, "mul")(x, 2)

"""Programs on what autograd lets a program do, by subject (`tests/training/test_semantics.py` runs them)."""

from tests.training.semantics import chains, functions, hooks, memory, models, module_hooks, saved_hooks, values  # noqa: F401
from tests.training.semantics.cases import TABLE, backward, case, tensors

__all__ = ["TABLE", "backward", "case", "tensors"]

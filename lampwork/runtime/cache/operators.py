"""What a stored entry depends on of operators that other libraries brought (`torch.library`, C++ extensions).

PyTorch's own come with its release, which is part of every key. Those of others may be declared otherwise in the next
process. Their kernels are called, and so are always the present ones; what capture has asked of them is in the graph:
which arguments they write (the schema), what shapes results have (the Python shape rule), and how they are
differentiated.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from types import CellType, FunctionType

import torch

from lampwork import _torch
from lampwork.ir.reference import code_digest


def declarations(graph: torch.fx.Graph, differentiated: bool) -> dict[str, str]:
    """What was asked of each operator of another library in `graph`, by name, and of each Triton kernel that it
    launches, by the launch. Empty for an operator whose Python derivative is part of the graph, since that may have
    called anything, and for a kernel that no name leads to: such an entry cannot be stored."""
    found = {
        name: "" if differentiated and _torch.has_python_derivative(name) else declaration(name)
        for name in _torch.operators_of_libraries(graph)
    }
    return found | {launch: declaration(launch) for launch in _torch.launches_in(graph)}


def declaration(name: str) -> str:
    """The schema of the operator `name` in this process and a digest of its shape rule, or a digest of the kernel in a
    launch; empty where there is none."""
    if name.startswith("{"):
        return _torch.declared_kernel(name)
    schema = _torch.schema_text(name)
    rule = _torch.fake_kernel(name) if schema else None
    return schema if rule is None else f"{schema} {_digest(rule)}"


def changed(declared: Mapping[str, str]) -> str:
    """The first operator that is declared otherwise in this process; empty if none is."""
    return next((name for name, text in declared.items() if declaration(name) != text), "")


def described(name: str) -> str:
    """An operator, or the kernel that a launch names, in words."""
    return (
        f"the Triton kernel {_torch.launched_kernel(name)}"
        if name.startswith("{")
        else f"the operator {name} of another library"
    )


def _digest(function: Callable) -> str:
    """A digest of the code of `function` and of the functions in its closure: PyTorch wraps what is registered."""
    digest, pending, seen = hashlib.sha256(), [function], set()
    while pending:
        each = pending.pop()
        if type(each) is FunctionType and id(each) not in seen:
            seen.add(id(each))
            digest.update(code_digest(each.__code__).encode())
            pending += [cell.cell_contents for cell in each.__closure__ or () if cell != _EMPTY]
    return digest.hexdigest()[:24]


_EMPTY = CellType()

"""In-place operators, classified for functionalisation: what stands for each in a pure graph.

    %_ = copy_(%x, %y)          the new contents are %y, cast and expanded
    %_ = zero_(%x)              full(sizes of %x, 0)

Most have a functional form with the same arguments (`functional_of`), or are random and need the layout they draw into.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch.fx import Node

from lampwork import _torch

if TYPE_CHECKING:
    from lampwork.graph.functionalize import Functionalizer

aten = torch.ops.aten


def _copy(run: Functionalizer, node: Node) -> bool:
    """`x.copy_(y)`: the new contents are `y` itself, cast and expanded."""
    target = run.views[node.args[0]]
    if not isinstance(node.args[1], Node):  # a number
        return _fill(run, node, converts=True)
    source = run.argument(node.args[1])
    run.write(target, run.converted(source, target.fake))
    return True


def _fill(run: Functionalizer, node: Node, converts: bool = False) -> bool:
    """`converts`: any float is put into a tensor of integers, as the conversion of a tensor does."""
    target = run.views[node.args[0]].fake
    value = node.args[1] if len(node.args) > 1 else 0
    if isinstance(value, Node):
        return False
    if converts and isinstance(value, float) and not (target.is_floating_point() or target.is_complex()):
        value = torch.tensor(value, dtype=torch.float64).to(target.dtype).item()
    filled = run.emit(aten.full.default, list(target.size()), value, dtype=target.dtype, device=target.device)
    run.write(run.views[node.args[0]], filled)
    return True


def _polygamma(run: Functionalizer, node: Node) -> bool:
    """The plain operator takes its arguments the other way round."""
    target = run.views[node.args[0]]
    result = run.emit(aten.polygamma.default, node.args[1], run.read(target))
    run.write(target, run.converted(result, target.fake))
    return True


def _conj_physical(run: Functionalizer, node: Node) -> bool:
    target = run.views[node.args[0]]
    if target.fake.is_complex():
        run.write(target, run.emit(aten._conj_physical.default, run.read(target)))
    return True


#: Random operators that do not look at what the tensor held before.
FILLS = frozenset({
    "bernoulli_", "cauchy_", "exponential_", "geometric_", "log_normal_", "normal_", "random_", "uniform_",
})  # fmt: skip

#: What makes the write of an operator without its functional form; False: that is needed after all.
SHORTCUTS: dict[object, Callable[[Functionalizer, Node], bool]] = {
    aten.polygamma_.default: _polygamma,
    aten.conj_physical_.default: _conj_physical,
    aten.copy_.default: _copy,
    aten.fill_.Scalar: _fill,
    aten.zero_.default: _fill,
}


_functionals: dict[object, object] = {}


def functional_of(op: _torch.Overload) -> Any:
    """The operator that returns what `op` writes; None where there is none."""
    if op not in _functionals:
        _functionals[op] = _torch.functional_of_inplace(op)
    return _functionals[op]

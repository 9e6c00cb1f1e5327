"""Functions of torch as graphs of ATen operators, in the form that passes find programs in.

    lambda x, w: F.linear(x, w).relu()          %t = t(%w);  %mm = mm(%x, %t);  %relu = relu(%mm)

Sizes of the arguments may be symbols. Nothing is computed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.fx
from torch.fx import Node

from lampwork import _torch
from lampwork.capture.record.recorder import Recorder
from lampwork.fakes.fake import Fake, TensorSpec, make_fake
from lampwork.graph.functionalize import functionalize
from lampwork.graph.simplify import embed_literals, remove_dead, remove_no_ops, share_repeated_work
from lampwork.ir.record import record
from lampwork.ir.region import Region, Return
from lampwork.ir.source import Argument
from lampwork.ir.template import ConstantValue

#: In the `meta` of copies of results: a graph holds no views of its inputs as results, and passes want these.
_COPY = "copy of a result"


@record(frozen=False)
class Traced:
    """A pure graph. `inputs`: the placeholder of each argument that is a tensor, None for the others. `results`: the
    nodes that the function returns. `many`: it returns a tuple or list of them.
    """

    graph: torch.fx.Graph
    inputs: tuple[Node | None, ...]
    results: tuple[Node, ...]
    many: bool


def traced(function: Callable[..., Any], arguments: Sequence[Any]) -> Traced:
    """`function(*arguments)`. Tensors among the arguments, real ones or values of nodes, count for their metadata.

    Raises ValueError for a function that returns something else than tensors, or writes to its arguments.
    """
    recorder = Recorder()
    given = [_input(recorder, each) if isinstance(each, torch.Tensor) else each for each in arguments]
    fakes = [each for each in given if isinstance(each, Fake)]
    with torch.no_grad(), _torch.without_autocast(), recorder.recording():
        found = function(*given)
        results = list(found) if isinstance(found, (tuple, list)) else [found]
        if not results or not all(isinstance(each, Fake) for each in results):
            raise ValueError(f"it returns {found!r:.100}, and not tensors alone")
        if recorder.written & set(map(_torch.storage_key, fakes)):
            raise ValueError("it writes to an argument: return what that is to hold, and write nothing")
        copies: list[Any] = [torch.ops.aten.clone.default(each) for each in results]
    for copy in copies:
        recorder.node_of(copy).meta[_COPY] = True
    sources = tuple(map(Argument, range(len(fakes))))
    region = Region("traced", recorder.finish(copies), sources, (), (), (), Return(ConstantValue(None)))
    functional = functionalize(region)
    for each in (remove_dead, embed_literals, share_repeated_work, remove_no_ops, remove_dead):
        functional = each(functional)
    nodes = list(functional.graph.nodes)
    returned = [
        node.args[0] if node.target is torch.ops.aten.clone.default and _COPY in node.meta else node
        for node in nodes[-1].args[0]
    ]
    following = iter(node for node in nodes if node.op == "placeholder")
    inputs = tuple(next(following) if isinstance(each, Fake) else None for each in given)
    return Traced(functional.graph, inputs, tuple(returned), isinstance(found, (tuple, list)))


def _input(recorder: Recorder, tensor: torch.Tensor) -> Fake:
    spec = TensorSpec(tuple(tensor.size()), tuple(tensor.stride()), tensor.dtype, tensor.device)
    fake = make_fake(spec)
    for size in (*spec.shape, *spec.strides):
        if isinstance(size, torch.SymInt):
            recorder.sizes = size.node.sizes
    return recorder.placeholder(fake)

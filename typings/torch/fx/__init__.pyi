from typing import Any

from torch.fx.graph import Graph as Graph
from torch.fx.node import Node as Node
from torch.fx.node import map_arg as map_arg
from torch.nn import Module

def __getattr__(name: str) -> Any: ...

class GraphModule(Module):
    graph: Graph
    code: str
    def __init__(self, root: Module | dict[str, Any], graph: Graph, class_name: str = ...) -> None: ...
    def recompile(self) -> Any: ...

"""Minimum cut of a directed graph with capacities, by Dinic's algorithm.

Y. Dinitz, "Algorithm for solution of a problem of maximum flow in a network with power estimation", 1970: shortest
augmenting paths, all those of one length at a time. Some thousand nodes take milliseconds, as most edges here are
infinite and most paths short.
"""

from __future__ import annotations

from collections import deque

INFINITE = 1 << 60


class Network:
    """Nodes are numbers from 0 on. Capacities are integers; `INFINITE` is never cut."""

    def __init__(self, nodes: int) -> None:
        self.edges: list[list[int]] = [[] for _ in range(nodes)]
        #: Of edge e: where it goes, and what it still can take. Edge e ^ 1 is the way back.
        self.heads: list[int] = []
        self.residual: list[int] = []

    def connect(self, tail: int, head: int, capacity: int) -> None:
        self.edges[tail].append(len(self.heads))
        self.edges[head].append(len(self.heads) + 1)
        self.heads += (head, tail)
        self.residual += (capacity, 0)

    def source_side(self, source: int, sink: int) -> set[int]:
        """The nodes on the source's side of a minimum cut: the one with the fewest nodes there.

        Raises ValueError where every cut is infinite.
        """
        while True:
            levels = self._levels(source)
            if levels[sink] < 0:
                return {node for node, level in enumerate(levels) if level >= 0}
            self._block(source, sink, levels)

    def _levels(self, source: int) -> list[int]:
        """How many edges lead from the source to each node; -1: no path can take any more."""
        levels = [-1] * len(self.edges)
        levels[source] = 0
        pending = deque((source,))
        heads, residual = self.heads, self.residual
        while pending:
            node = pending.popleft()
            following = levels[node] + 1
            for edge in self.edges[node]:
                if residual[edge] and levels[heads[edge]] < 0:
                    levels[heads[edge]] = following
                    pending.append(heads[edge])
        return levels

    def _block(self, source: int, sink: int, levels: list[int]) -> None:
        """Sends what shortest paths can take."""
        heads, residual, edges = self.heads, self.residual, self.edges
        tried = [0] * len(edges)
        path: list[int] = []
        node = source
        while True:
            if node == sink:
                flow = min(residual[edge] for edge in path)
                if flow >= INFINITE // 2:
                    raise ValueError("no cut separates the sink from the source")
                first = len(path)
                for position, edge in enumerate(path):
                    residual[edge] -= flow
                    residual[edge ^ 1] += flow
                    if not residual[edge] and position < first:
                        first = position
                node = heads[path[first] ^ 1]  # goes on from before the first edge that is full
                del path[first:]
                continue
            row = edges[node]
            while tried[node] < len(row):
                edge = row[tried[node]]
                if residual[edge] and levels[heads[edge]] == levels[node] + 1:
                    break
                tried[node] += 1
            else:
                if not path:
                    return
                edge = path.pop()
                node = heads[edge ^ 1]
                tried[node] += 1
                continue
            path.append(edge)
            node = heads[edge]

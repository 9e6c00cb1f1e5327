from __future__ import annotations

from lampwork.schedule import traffic
from tests.unit.schedule.programs import Graph, constant, op, scheduled
from tests.unit.schedule.test_patterns import softmax


def test_softmax_reads_and_writes_each_element_once():
    g = Graph()
    x = g.input((64, 768))
    program = scheduled(g.finish(softmax(g, x, 64, 768)))
    (found,) = traffic(program)
    assert (found.step, found.read_bytes, found.written_bytes) == (0, 64 * 768 * 4, 64 * 768 * 4)
    # Nest by nest: x three times read in two nests, e written once and read twice, m and s, the result.
    assert program.unscheduled_bytes == 4 * (64 * 768 * 6 + 64 * 4)


def test_a_broadcast_row_counts_once():
    g = Graph()
    x, row = g.input((8, 16)), g.input((16,))
    y = g.pointwise((8, 16), lambda i, j: op("add", op("mul", g.load(x, i, j), constant(2.0)), g.load(row, j)))
    (found,) = traffic(scheduled(g.finish(y)))
    assert (found.read_bytes, found.written_bytes) == ((128 + 16) * 4, 128 * 4)

"""Kernels of small programs as text: tests/golden/schedule/*.txt, rewritten with --update-golden."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.schedule.programs import Graph, below, constant, op, scheduled, texts
from tests.unit.schedule.test_patterns import gelu, layer_norm, softmax

FOLDER = Path(__file__).parents[2] / "golden" / "schedule"


def _softmax():
    g = Graph()
    x = g.input((64, 768))
    return g.finish(softmax(g, x, 64, 768))


def _layer_norm():
    g = Graph()
    x, y, weight, bias = g.input((64, 256)), g.input((64, 256)), g.input((256,)), g.input((256,))
    total = g.pointwise((64, 256), lambda i, j: op("add", g.load(x, i, j), g.load(y, i, j)))
    return g.finish(layer_norm(g, total, 64, 256, weight, bias), total)


def _gelu():
    g = Graph()
    x = g.input((1000, 1000))
    return g.finish(gelu(g, x, 1000, 1000))


def _column_sum():
    g = Graph()
    x = g.input((4096, 4096))
    return g.finish(g.reduce("sum", (4096,), (4096,), lambda i, r: g.load(x, r, i)))


def _narrow_column_sum():
    g = Graph()
    x = g.input((100000, 64))
    return g.finish(g.reduce("sum", (64,), (100000,), lambda i, r: g.load(x, r, i)))


def _full_sum():
    g = Graph()
    x = g.input((3000, 1001))
    return g.finish(g.reduce("sum", (), (3000, 1001), lambda i, j: g.load(x, i, j)))


def _transpose():
    g = Graph()
    x = g.input((512, 500))
    return g.finish(g.pointwise((500, 512), lambda i, j: g.load(x, j, i)))


def _cat():
    g = Graph()
    x, y = g.input((32, 40)), g.input((32, 24))

    def piece(i, j):
        first = below(j, 40)
        return op("where", first, g.load(x, i, j, mask=first), g.load(y, i, j - 40, mask=op("not", first)))

    both = g.pointwise((32, 64), piece)
    return g.finish(g.pointwise((32, 64), lambda i, j: op("maximum", g.load(both, i, j), constant(0.0))))


def _padded_rows():
    """What depends on a row alone is behind the same mask as the rest, and is computed once a row all the same."""
    g = Graph()
    x, total = g.input((64, 50)), g.input((64,))
    log = g.pointwise((64,), lambda i: op("log", g.load(total, i)))
    exp = g.pointwise((64, 50), lambda i, j: op("exp", op("sub", g.load(x, i, j), g.load(log, i))))

    def padded(i, j):
        inside = below(j, 50)
        return op("where", inside, g.load(exp, i, j, mask=inside), constant(0.0))

    return g.finish(g.pointwise((64, 56), padded))


def _max_pool():
    g = Graph()
    x = g.input((4, 64, 64))
    return g.finish(g.reduce("max", (4, 31, 31), (3, 3), lambda n, i, j, a, b: g.load(x, n, 2 * i + a, 2 * j + b)))


PROGRAMS = {
    "softmax": _softmax,
    "layer_norm": _layer_norm,
    "gelu": _gelu,
    "column_sum": _column_sum,
    "narrow_column_sum": _narrow_column_sum,
    "full_sum": _full_sum,
    "transpose": _transpose,
    "cat": _cat,
    "padded_rows": _padded_rows,
    "max_pool": _max_pool,
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_kernels_of(name, request):
    found = texts(scheduled(PROGRAMS[name]()))
    path = FOLDER / f"{name}.txt"
    if request.config.getoption("--update-golden"):
        path.write_text(found)
    assert found == path.read_text()

"""A list that is printed with a size in it: what else it holds may be another thing when the graph has run."""

from __future__ import annotations

import io

import torch

import lampwork


class Counted:
    asked = 0

    def __repr__(self):
        Counted.asked += 1
        return f"asked {Counted.asked}"


def tensor_beside(x, stream):
    t = x + 1
    print([x.shape[0], t], file=stream)
    t.add_(5)
    return t


def list_beside(x, stream):
    inner = [x.shape[0]]
    print([x.shape[0], inner], (inner, 0.5), file=stream)
    inner.append(7)
    return x + len(inner)


def object_beside(x, stream):
    print([x.shape[0], Counted()], file=stream)
    return x + Counted.asked


def _is_as_eager(program):
    compiled = lampwork.compile(program, dynamic=True, options={"cache": False})
    for size in (3, 4, 4):
        found = []
        for function in (program, compiled):
            Counted.asked, stream = 0, io.StringIO()
            found.append((function(torch.ones(size), stream), stream.getvalue()))
        assert found[0][1] == found[1][1]
        torch.testing.assert_close(found[1][0], found[0][0], rtol=0, atol=0)


def test_a_tensor_that_is_written_later():
    _is_as_eager(tensor_beside)


def test_a_list_that_grows_later():
    _is_as_eager(list_beside)


def test_an_object_whose_text_counts():
    _is_as_eager(object_beside)

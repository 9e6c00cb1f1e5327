"""Branches with a usual side: what is computed twice is equal, matrices can be factorised, no warning is due."""

from __future__ import annotations

import warnings

import pytest
import torch

import lampwork


def equal_where_computed_twice(x, y, scale):
    one, other = x / scale, y / scale
    return one @ other.T if torch.equal(one, other) else one - other


def after_a_factorisation(x):
    factor, info = torch.linalg.cholesky_ex(x)
    if not torch.any(info):
        return factor
    return torch.linalg.cholesky(x + 20 * torch.eye(3))


def after_another(x):
    inverse, info = torch.linalg.inv_ex(x)
    return inverse if info == 0 else x


def past_a_warning(x):
    if (x < 0).any():
        warnings.warn("negative", stacklevel=1)
        x = x.clamp_min(0)
    return x.sqrt()


X = torch.randn(3, 3, generator=torch.Generator().manual_seed(0))
POSITIVE = X @ X.T + torch.eye(3)
MISSING = X.clone().fill_(float("nan"))
CASES = [
    (equal_where_computed_twice, (X, X, 2.0), (MISSING, MISSING, 2.0)),
    (after_a_factorisation, (POSITIVE,), (-POSITIVE,)),
    (after_another, (POSITIVE,), (torch.zeros(3, 3),)),
    (past_a_warning, (POSITIVE.abs(),), (X,)),
]


@pytest.mark.parametrize("program, usual, unusual", CASES)
def test_the_usual_side_is_assumed_until_the_other_is_taken(program, usual, unusual):
    compiled = lampwork.compile(program, options={"cache": False})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for _ in range(2):
            torch.testing.assert_close(compiled(*usual), program(*usual))
        before = lampwork.stats(compiled)
        assert before["entries"] == 1 and not before["breaks"] and not before["fallbacks"]
        for call in (unusual, usual, unusual):
            torch.testing.assert_close(compiled(*call), program(*call), equal_nan=True)
    after = lampwork.stats(compiled)
    assert sum(each.count for each in after["fallbacks"]) == 1, "only what was assumed first runs eagerly"
    assert sum(each.count for each in after["breaks"]) == 2


def test_whole_graphs_keep_what_they_assume():
    compiled = lampwork.compile(past_a_warning, fullgraph=True, options={"cache": False})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for call in (POSITIVE.abs(), X, X):
            assert torch.equal(compiled(call), past_a_warning(call))


def test_what_differs_in_size_is_not_equal():
    compiled = lampwork.compile(equal_where_computed_twice, fullgraph=True)
    for rows in (1, 2, 1):
        assert torch.equal(compiled(X[:rows], X[0], 2.0), equal_where_computed_twice(X[:rows], X[0], 2.0))


def same_memory(column, row):
    return column * 2 if torch.equal(column, row.unsqueeze(-1)) else column


def test_one_memory_is_guarded():
    row = torch.arange(3)
    column = row.unsqueeze(-1)
    compiled = lampwork.compile(same_memory, options={"cache": False})
    for other in (column, column, column + 1, column.clone()):
        assert torch.equal(compiled(other, row), same_memory(other, row))
    stats = lampwork.stats(compiled)
    assert sum(each.count for each in stats["breaks"]) == 2, "the first two calls have one graph"


def written_between(x):
    before = x.clone()
    first = before + 1
    before.add_(1)
    second = before + 1
    return torch.equal(first, second), torch.equal(before, before.view(-1).view(x.shape)), first


def test_what_was_written_in_between_is_looked_at():
    compiled = lampwork.compile(written_between)
    for x in (torch.arange(4), torch.arange(4)):
        found, expected = compiled(x), written_between(x)
        assert found[:2] == expected[:2] and torch.equal(found[2], expected[2])


def asserted(x):
    bad = x[:, 1] <= x[:, 0]
    if bad.any():
        first = torch.where(bad)[0][0]
        torch._assert(False, f"bad {int(first)}")
    return x * 2


def test_an_assertion_of_false_raises():
    compiled = lampwork.compile(asserted, options={"cache": False})
    good = torch.tensor([[0.0, 1.0], [2.0, 5.0]])
    for _ in range(2):
        assert torch.equal(compiled(good), good * 2)
        with pytest.raises(AssertionError, match="bad 0"):
            compiled(good.flip(1))
    assert lampwork.stats(compiled)["entries"] == 1 and not lampwork.stats(compiled)["breaks"]


def only_element(x, index, choices):
    return x * choices[int(index.item())]


def test_an_index_into_a_sequence_of_one():
    compiled = lampwork.compile(only_element, options={"cache": False})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for choices in ([2.0], (3.0,)):
            for index in (0, 0, -1):
                found = compiled(torch.ones(2), torch.tensor(index), choices)
                assert torch.equal(found, torch.full((2,), choices[0]))
        with pytest.raises(IndexError):
            compiled(torch.ones(2), torch.tensor(1), [2.0])
    assert sum(each.count for each in lampwork.stats(compiled)["fallbacks"]) == 1

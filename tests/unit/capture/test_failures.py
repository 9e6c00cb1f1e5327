"""Errors of operators on fakes become eager's own where they are certain, and stay a break where they are not."""

from __future__ import annotations

import pytest
import torch

import lampwork
from lampwork.capture import failures
from lampwork.capture.failures import has_own_words, is_certain, raised_deliberately
from lampwork.config import environment
from lampwork.fakes import shapes

CALLS = []


@torch.library.custom_op("lampwork_failures::refuses", mutates_args=())
def refuses(x: torch.Tensor) -> torch.Tensor:
    CALLS.append(1)
    raise RuntimeError("refused")


@refuses.register_fake
def _(x):
    raise RuntimeError("refused")


def breaks_of(function, *args):
    """The error of two calls of `function`, compiled, and the ids of its breaks."""
    compiled = lampwork.compile(function, options={"cache": False})
    texts = []
    for _ in range(2):
        with pytest.raises(Exception) as caught:
            compiled(*args)
        texts.append(f"{type(caught.value).__name__}: {caught.value}")
    assert texts[0] == texts[1]
    with pytest.raises(Exception) as caught:
        function(*args)
    assert texts[0] == f"{type(caught.value).__name__}: {caught.value}"
    return [each.id for each in lampwork.stats(compiled)["breaks"]]


def test_an_error_of_shapes_is_part_of_the_graph():
    assert breaks_of(lambda x: x @ x, torch.ones(2, 3)) == []
    assert breaks_of(lambda x: torch.cat([x, x[:, :1]], 0), torch.ones(2, 3)) == []


def test_an_operator_of_the_users_is_not_called_to_find_its_error():
    CALLS.clear()
    assert breaks_of(lambda x: refuses(x), torch.ones(2)) == ["operator-error"]
    assert len(CALLS) == 3  # twice compiled, once eager


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x.tensor_split((x[:2] > 0).cumsum(0))[1] + 1,
        lambda x: torch.asarray([x.max(), 2.0]) + x[:2],
        lambda x: x.new_tensor([x.max(), 2.0]).sum() + x,
    ],
)
def test_what_reads_contents_raises_nothing(function):
    x = torch.tensor([1.0, 2.0, -3.0, 0.5])
    compiled = lampwork.compile(function, options={"cache": False})
    torch.testing.assert_close(compiled(x), function(x), rtol=0, atol=0)
    assert {each.id for each in lampwork.stats(compiled)["breaks"]} == {"data-dependent"}


def test_random_numbers_are_not_drawn_to_find_an_error():
    compiled = lampwork.compile(lambda x: torch.nn.functional.dropout(x, 0.5) @ x, options={"cache": False})
    states = []
    for function in (compiled.__wrapped__, compiled, compiled):
        torch.manual_seed(3)
        with pytest.raises(RuntimeError):
            function(torch.ones(2, 3))
        states.append(torch.get_rng_state())
    assert torch.equal(states[0], states[1]) and torch.equal(states[0], states[2])


def test_memory_shared_by_arguments_is_shared_by_their_stand_ins():
    assert breaks_of(lambda x: x[1:].add_(x[:-1]), torch.ones(4)) == []


def test_an_error_of_one_size_is_not_one_of_another():
    def program(x):
        try:
            return x.view(2, -1)
        except RuntimeError:
            return x + 1

    compiled = lampwork.compile(program, dynamic=True, options={"cache": False})
    for size in (5, 4, 7, 8, 9):
        x = torch.arange(float(size))
        assert torch.equal(compiled(x), program(x))


def test_defects_of_capture_are_not_the_programs_errors():
    try:
        None.missing  # type: ignore[attr-defined]
    except AttributeError as error:
        assert raised_deliberately(error) and is_certain(error)  # raised outside of lampwork
    try:
        failures._zeros(None)  # type: ignore[arg-type]
    except AttributeError as error:
        assert not raised_deliberately(error)
    assert has_own_words(TypeError("unsupported operand type(s) for +: 'Fake' and 'str'"))


def test_a_defect_leaves_the_program_to_eager(monkeypatch):
    monkeypatch.delattr("lampwork.capture.values.tensors.index_of")
    compiled = lampwork.compile(lambda x: x[1], options={"cache": False})
    assert float(compiled(torch.arange(3.0))) == 1


@pytest.mark.parametrize("strict", [False, True])
def test_a_failure_of_our_own_is_not_taken_for_the_operators(monkeypatch, strict):
    rules = {}
    exec(compile("def defect(x): return [x][len(x.shape)]", shapes.__file__, "exec"), rules)
    monkeypatch.setitem(shapes.RULES, "aten::erf", rules["defect"])
    monkeypatch.setitem(vars(environment), "strict", strict)
    compiled = lampwork.compile(lambda x: torch.erf(x + 1) * 2, options={"cache": False})
    x = torch.ones(3)
    if strict:
        with pytest.raises(lampwork.CompileError, match="IndexError"):
            compiled(x)
        return
    torch.testing.assert_close(compiled(x), torch.erf(x + 1) * 2)
    (stop,) = lampwork.stats(compiled)["breaks"]
    assert stop.diagnostic.id == "capture-failed"

"""Stances: whether calls are compiled that no entry serves, by our own word and by the peer's."""

from __future__ import annotations

import pytest
import torch

import lampwork

OPTIONS = {"cache": False}


@pytest.fixture(autouse=True)
def default_after():
    yield
    lampwork.set_stance("default")
    torch.compiler.set_stance("default")
    torch._dynamo.config.error_on_recompile = False


def program():
    return lampwork.compile(lambda x: x * 2 + 1, dynamic=False, options=OPTIONS)


def counts(compiled):
    stats = lampwork.stats(compiled)
    return stats["captures"], stats["fallbacks"]


SETTERS = {"ours": lampwork.set_stance, "theirs": torch.compiler.set_stance}


@pytest.mark.parametrize("setter", SETTERS)
def test_forced_to_be_eager(setter):
    compiled = program()
    x = torch.ones(3)
    assert compiled(x).tolist() == [3, 3, 3]
    calls = []
    traced = lampwork.compile(lambda x: calls.append(0) or x + 1, options=OPTIONS)
    with SETTERS[setter]("force_eager"):
        assert compiled(torch.ones(5)).tolist() == [3] * 5
        for _ in range(3):
            traced(x)
    assert counts(compiled)[0] == 1 and counts(traced)[0] == 0 and len(calls) == 3
    for each, count in ((compiled, 1), (traced, 3)):  # eager calls are counted
        assert [(found.id, found.count) for found in counts(each)[1]] == [("stance", count)]
    compiled(torch.ones(5))
    assert counts(compiled)[0] == 2


@pytest.mark.parametrize("setter", SETTERS)
def test_eager_where_it_would_be_compiled(setter):
    compiled = program()
    with SETTERS[setter]("eager_on_recompile"):
        assert compiled(torch.ones(3)).tolist() == [3, 3, 3]
    assert [each.id for each in counts(compiled)[1]] == ["stance"]
    assert counts(compiled)[0] == 0
    compiled(torch.ones(3))
    with SETTERS[setter]("eager_on_recompile"):
        compiled(torch.ones(3))
        assert counts(compiled)[0] == 1
        compiled(torch.ones(4))
    assert counts(compiled)[0] == 1
    compiled(torch.ones(4))
    assert counts(compiled)[0] == 2


@pytest.mark.parametrize("setter", SETTERS)
def test_error_where_it_would_be_compiled(setter):
    compiled = program()
    with SETTERS[setter]("fail_on_recompile"):
        with pytest.raises(lampwork.RecompileError, match="nothing is compiled yet"):
            compiled(torch.ones(3))
    compiled(torch.ones(3))
    with SETTERS[setter]("fail_on_recompile"):
        assert compiled(torch.ones(3)).tolist() == [3, 3, 3]
        with pytest.raises(lampwork.RecompileError, match=r"shape was \(3\), is now \(4\)|shape"):
            compiled(torch.ones(4))
    assert counts(compiled) == (1, ())


@pytest.mark.parametrize("setter, stance", [
    ("ours", "eager_then_compile"), ("theirs", "eager_then_compile"), ("theirs", "aot_eager_then_compile"),
])  # fmt: skip
def test_eager_at_first(setter, stance):
    compiled = program()
    with SETTERS[setter](stance):
        compiled(torch.ones(3))
        assert counts(compiled)[0] == 0
        compiled(torch.ones(3))
        assert counts(compiled)[0] == 1
        compiled(torch.ones(3))
    assert counts(compiled)[0] == 1


def test_an_error_where_it_is_compiled_again():
    compiled = program()
    torch._dynamo.config.error_on_recompile = True
    compiled(torch.ones(3))
    with pytest.raises(lampwork.RecompileError, match="error_on_recompile is set"):
        compiled(torch.ones(4))


def test_as_function_decorator_and_block():
    compiled = program()

    @lampwork.set_stance("force_eager")
    def forced(x):
        return compiled(x)

    compiled(torch.ones(2))  # the decorator has not set it for others
    assert counts(compiled)[0] == 1
    forced(torch.ones(3))
    assert counts(compiled)[0] == 1
    lampwork.set_stance("force_eager")
    compiled(torch.ones(4))
    assert counts(compiled)[0] == 1
    with lampwork.set_stance("default"):
        compiled(torch.ones(4))
    assert counts(compiled)[0] == 2
    compiled(torch.ones(5))
    assert counts(compiled)[0] == 2


def test_what_is_stored_serves_where_nothing_may_be_compiled(tmp_path, monkeypatch):
    from lampwork.config import use_cache_dir

    def f(x):
        return x * 3 - 1

    with use_cache_dir(tmp_path):
        lampwork.compile(f)(torch.ones(3))
        other = lampwork.compile(f)
        with lampwork.set_stance("fail_on_recompile"):
            assert other(torch.ones(3)).tolist() == [2, 2, 2]
        assert lampwork.stats(other)["cache_hits"] == 1


def test_mode_auto():
    calls = []

    def f(x):
        calls.append(0)
        return x + 1

    compiled = lampwork.compile(f, mode="auto", options=OPTIONS)
    with lampwork.set_stance("force_eager"):
        for _ in range(3):
            compiled(torch.ones(3))
    assert len(calls) == 3 and counts(compiled)[0] == 0


def test_unknown():
    with pytest.raises(lampwork.OptionError, match="choose one of default, force_eager"):
        lampwork.set_stance("eager")

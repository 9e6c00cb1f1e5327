"""`model.generate` with a compiled forward gives eager's tokens, after a number of compiles that does not grow."""

from __future__ import annotations

import pytest
import torch

import lampwork
from bench.architectures import BY_NAME
from bench.generate import outcomes
from lampwork.errors import LampworkWarning

NEW = 12
NAMES = ("llama", "gpt2", "t5")
#: A prompt, the first single token, and tokens on a cache that was there before; with a growing one, its size varies.
LARGEST = 4


def built(name):
    lampwork.reset()
    model, inputs = BY_NAME[name].build()
    return model, inputs["input_ids"]


def generated(model, ids, cache, **options):
    kind = {} if cache == "growing" else {"cache_implementation": "static", "disable_compile": True}
    return model.generate(input_ids=ids, do_sample=False, max_new_tokens=NEW, min_new_tokens=NEW, **kind, **options)


@pytest.mark.parametrize("cache", ["static", "growing"])
@pytest.mark.parametrize("name", NAMES)
def test_tokens_and_compiles(name, cache):
    model, ids = built(name)
    other = ids.flip(0, 1)
    expected = [generated(model, each, cache) for each in (ids, other)]
    forward = lampwork.compile(model.forward, options={"cache": False})
    model.forward = forward
    assert torch.equal(generated(model, ids, cache), expected[0])
    stats = lampwork.stats(forward)
    compiles = stats["captures"]
    assert stats["calls"] == NEW and compiles <= LARGEST
    assert not stats["breaks"] and not stats["fallbacks"]
    assert torch.equal(generated(model, other, cache), expected[1])
    stats = lampwork.stats(forward)
    assert stats["calls"] == 2 * NEW and stats["captures"] == compiles, "the second text compiled something"
    assert not stats["breaks"] and not stats["fallbacks"]


STRATEGIES = {
    "beams": {"num_beams": 3},
    "sampling": {"do_sample": True, "temperature": 0.8, "top_k": 20, "top_p": 0.9},
    "sampled beams": {"num_beams": 2, "do_sample": True},
    "penalties": {"repetition_penalty": 1.3, "no_repeat_ngram_size": 2},
}


def chosen(model, ids, cache, strategy):
    """Tokens that `strategy` chooses, drawn from the same seed each time."""
    kind = {} if cache == "growing" else {"cache_implementation": "static", "disable_compile": True}
    torch.manual_seed(0)
    options = {"do_sample": False, **STRATEGIES[strategy]}
    return model.generate(input_ids=ids, max_new_tokens=NEW, min_new_tokens=NEW, **kind, **options)


@pytest.mark.parametrize(
    "name, cache, strategy",
    [(name, "growing", strategy) for name in NAMES for strategy in ("beams", "sampling")]
    + [("llama", "static", "beams"), ("llama", "static", "sampling"), ("gpt2", "growing", "sampled beams"),
       ("t5", "growing", "penalties")],
)  # fmt: skip
def test_strategies(name, cache, strategy):
    model, ids = built(name)
    texts = ids, ids.flip(0, 1)
    expected = [chosen(model, each, cache, strategy) for each in texts]
    model.forward = forward = lampwork.compile(model.forward, options={"cache": False})
    for each, tokens in zip(texts, expected):
        assert torch.equal(chosen(model, each, cache, strategy), tokens)
    stats = lampwork.stats(forward)
    print(f"{name}, {cache} cache, {strategy}: {stats['captures']} compiles for {stats['calls']} calls")
    assert stats["captures"] <= LARGEST and not stats["breaks"] and not stats["fallbacks"]


@pytest.mark.parametrize("name", ["llama", "t5"])
def test_padding_and_prompts_of_many_lengths(name):
    model, ids = built(name)
    prompts = [(ids[:, :length], torch.ones(2, length, dtype=torch.int64)) for length in (16, 9, 12, 5, 7, 14)]
    for _, mask in prompts:
        mask[1, :2] = 0
    expected = [generated(model, ids, "growing", attention_mask=mask) for ids, mask in prompts]
    model.forward = forward = lampwork.compile(model.forward, options={"cache": False})
    for (ids, mask), tokens in zip(prompts, expected):
        assert torch.equal(generated(model, ids, "growing", attention_mask=mask), tokens)
    stats = lampwork.stats(forward)
    assert stats["captures"] <= LARGEST + 2 and not stats["fallbacks"]


def test_without_dynamic_sizes_compiling_stops_at_the_limit():
    model, ids = built("llama")
    expected = generated(model, ids, "growing")
    model.forward = forward = lampwork.compile(
        model.forward, dynamic=False, options={"cache": False, "recompile_limit": 3}
    )
    with pytest.warns(LampworkWarning, match="recompile-limit"):
        assert torch.equal(generated(model, ids, "growing"), expected)
    stats = lampwork.stats(forward)
    assert stats["captures"] == 3
    assert [(each.id, each.count) for each in stats["fallbacks"]] == [("recompile-limit", NEW - 3)]


def test_a_compiled_module_generates():
    model, ids = built("gpt2")
    expected = generated(model, ids, "growing")
    compiled = lampwork.compile(model, options={"cache": False})
    assert torch.equal(generated(compiled, ids, "growing"), expected)


@pytest.mark.slow
@pytest.mark.parametrize("name", [*NAMES, "mistral", "gemma2"])
def test_every_kind_in_one_process(name):
    lampwork.reset()
    found = outcomes(name, 6)
    assert all(each.right and not each.fallbacks and not each.breaks for each in found), found
    assert sum(each.captures for each in found) <= 32, found

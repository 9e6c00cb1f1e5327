"""Models of `transformers`, packaged here and loaded where it cannot be imported."""

from __future__ import annotations

import json

import pytest
import torch

import lampwork
from tests.shipping.support import compiled, fresh

pytest.importorskip("transformers")

#: Seconds that a first answer may take once the weights are read; measured without other jobs it is a tenth of that.
FIRST_ANSWER_SECONDS = 0.3


def bert():
    from transformers import BertConfig, BertModel

    return BertModel(BertConfig(
        hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=64, vocab_size=100,
        max_position_embeddings=64,
    ))  # fmt: skip


def gpt2():
    from transformers import GPT2Config, GPT2LMHeadModel

    return GPT2LMHeadModel(GPT2Config(
        n_embd=32, n_layer=2, n_head=2, vocab_size=100, n_positions=64, bos_token_id=1, eos_token_id=1,
    ))  # fmt: skip


def llama():
    from transformers import LlamaConfig, LlamaForCausalLM

    return LlamaForCausalLM(LlamaConfig(
        hidden_size=32, num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=1, intermediate_size=64,
        vocab_size=100, max_position_embeddings=64,
    ))  # fmt: skip


LOADS = """
import json, time
import torch, lampwork
lampwork.load
answers = {}
for name in sys.argv[2:]:
    kwargs, expected = torch.load(f"{sys.argv[1]}/{name}.pt")
    start = time.perf_counter()
    package = lampwork.load(f"{sys.argv[1]}/{name}.lamp")
    loaded = time.perf_counter()
    out = package(**kwargs)
    ended = time.perf_counter()
    found = {key: value for key, value in out.items() if isinstance(value, torch.Tensor)}
    cache = out.get("past_key_values")
    if cache is not None:
        found |= {f"keys {i}": layer.keys for i, layer in enumerate(cache.layers)}
    assert list(found) == list(expected), (name, list(found))
    assert all(torch.allclose(found[key], expected[key], atol=1e-4) for key in expected), name
    try:
        package(input_ids=kwargs["input_ids"][:, :3])
    except lampwork.NotServedError as error:
        assert "input_ids=i64[2, 8]" in str(error), error
    else:
        raise AssertionError("a call of another shape was served")
    answers[name] = (loaded - start, ended - loaded)
assert not [name for name in sys.modules if name.startswith("transformers.")]
print(json.dumps(answers))
"""


def test_packages_of_transformers_run_without_it(tmp_path):
    ids = torch.randint(0, 100, (2, 8), generator=torch.Generator().manual_seed(0))
    mask = torch.ones_like(ids)
    mask[1, 5:] = 0
    calls = {
        "bert": (bert, {"input_ids": ids, "attention_mask": mask}),
        "gpt2": (gpt2, {"input_ids": ids}),
        "llama": (llama, {"input_ids": ids, "use_cache": False}),
    }
    for name, (make, kwargs) in calls.items():
        torch.manual_seed(0)
        fast, expected = compiled(make().eval(), **kwargs)
        lampwork.package(fast, tmp_path / f"{name}.lamp")
        tensors = {key: value for key, value in expected.items() if isinstance(value, torch.Tensor)}
        if expected.get("past_key_values") is not None:
            tensors |= {f"keys {i}": layer.keys for i, layer in enumerate(expected.past_key_values.layers)}
        torch.save((kwargs, tensors), tmp_path / f"{name}.pt")
        if name == "gpt2":
            assert [each for each in lampwork.load(tmp_path / "gpt2.lamp").weights if "lm_head" in each] == []
    answers = json.loads(fresh(LOADS, tmp_path, *calls))
    assert set(answers) == set(calls)
    # The first of them loads the modules of the runtime, too.
    assert all(sum(seconds) < FIRST_ANSWER_SECONDS for name, seconds in answers.items() if name != "bert"), answers


def test_a_cache_of_keys_and_values_cannot_be_given_back(tmp_path):
    """The class of the cache is the library's: a call that takes one is refused when it is packaged."""
    model = gpt2().eval()
    fast = lampwork.compile(model, options={"cache": False})
    ids = torch.tensor([[1, 2, 3]])
    with torch.no_grad():
        cache = model(input_ids=ids).past_key_values
        fast(input_ids=ids[:, :1], past_key_values=cache)
    with pytest.raises(lampwork.ArtifactError, match="argument 'past_key_values'.* is .*DynamicCache.*transformers"):
        lampwork.package(fast, tmp_path / "it.lamp")

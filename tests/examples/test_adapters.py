"""The recipe on LoRA of docs/recipes.md: adapters that are chosen, weighed and merged after the model was compiled.

peft is no part of what tests need: `pip install peft`, and these run.
"""

from __future__ import annotations

import pytest
import torch

import lampwork

transformers = pytest.importorskip("transformers")
peft = pytest.importorskip("peft")

TOKENS = torch.arange(3, 17).view(2, 7)


def lora(rank, layers=("q_proj", "v_proj")):
    return peft.LoraConfig(r=rank, lora_alpha=16, target_modules=list(layers), init_lora_weights=False)


@pytest.fixture
def model():
    torch.manual_seed(0)
    config = transformers.LlamaConfig(hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4,
                                      num_key_value_heads=2, vocab_size=64, max_position_embeddings=32)  # fmt: skip
    return peft.get_peft_model(transformers.LlamaForCausalLM(config), lora(4), "rank 4").eval()


@pytest.mark.parametrize("grad", [False, True])
def test_adapters(model, grad):
    compiled = lampwork.compile(model)

    def entries_after_calls():
        with torch.set_grad_enabled(grad):
            for _ in range(2):
                torch.testing.assert_close(compiled(TOKENS).logits, model(TOKENS).logits, rtol=1e-4, atol=1e-5)
        stats = lampwork.stats(compiled)
        assert not stats["breaks"] and not stats["fallbacks"]
        return stats["entries"]

    for rank in (4, 8, 64, 5, 32, 16, 8, 4):
        if f"rank {rank}" not in model.peft_config:
            model.add_adapter(f"rank {rank}", lora(rank))
            model.eval()
        model.set_adapter(f"rank {rank}")
        found = entries_after_calls()
    assert found <= 2
    for names in (["rank 4", "rank 8"], ["rank 64", "rank 5"]):
        model.base_model.set_adapter(names)
        several = entries_after_calls()
    assert several == found + 1
    for layer in model.modules():
        if hasattr(layer, "set_scale"):
            layer.set_scale("rank 64", 0.3)
    assert entries_after_calls() == several
    model.set_adapter("rank 8")
    with model.disable_adapter():
        disabled = entries_after_calls()
    assert disabled == several + 1
    for names in (["rank 8"], ["rank 8", "rank 16"], ["rank 32"]):
        model.merge_adapter(names)
        merged = entries_after_calls()
        model.unmerge_adapter()
    assert merged == disabled + 1
    model.delete_adapter("rank 64")
    model.load_state_dict({name: value * 1.5 for name, value in model.state_dict().items()})
    assert entries_after_calls() == merged

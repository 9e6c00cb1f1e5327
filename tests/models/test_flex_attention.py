"""A model of `transformers` with `attn_implementation="flex_attention"`: one graph, masks and all."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch.nn.attention.flex_attention import flex_attention

import lampwork
from lampwork.capture.autograd import flex_attention as capturing
from tests.processes import plain_environment, run_python
from tests.unit.codegen.triton.trained_attentions import differentiable

ROOT = Path(__file__).parents[2]
transformers = pytest.importorskip("transformers")


@pytest.fixture(params=["cpu", "as_on_a_gpu"])
def model(request, monkeypatch):
    """Two layers with grouped heads. As on a GPU: what there are kernels for is captured as there."""
    if request.param == "as_on_a_gpu":
        monkeypatch.setattr(capturing, "_is_on_gpu", lambda tensor: True)
    config = transformers.LlamaConfig(
        hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
        vocab_size=64, attn_implementation="flex_attention",
    )  # fmt: skip
    torch.manual_seed(0)
    with torch.no_grad():
        flex_attention(*(torch.zeros(1, 1, 4, 4),) * 3)  # imports
    return transformers.LlamaForCausalLM(config)


def of_plain_attention(model):
    """The same weights, with the operator whose gradients eager has on a CPU."""
    config = type(model.config)(**{**model.config.to_dict(), "attn_implementation": "sdpa"})
    other = type(model)(config)
    other.load_state_dict(model.state_dict())
    return other


def test_inference(model):
    tokens, plain = torch.randint(0, 64, (2, 40)), of_plain_attention(model).eval()
    compiled = lampwork.compile(model.eval(), options={"cache": False}, fullgraph=True)
    with torch.no_grad():
        for _ in range(2):
            found = compiled(tokens, use_cache=False).logits
            torch.testing.assert_close(found, plain(tokens, use_cache=False).logits, rtol=1e-4, atol=1e-5)
    assert lampwork.stats(compiled)["captures"] == 1


def test_training(model):
    tokens, plain = torch.randint(0, 64, (2, 40)), of_plain_attention(model)
    plain(tokens, labels=tokens, use_cache=False).loss.backward()
    compiled = lampwork.compile(model, options={"cache": False}, fullgraph=True)
    with differentiable():
        compiled(tokens, labels=tokens, use_cache=False).loss.backward()
    for ours, theirs in zip(model.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(ours.grad, theirs.grad, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize(
    "made", ["flex_attention(x, x, x)", "create_block_mask(causal, 1, 1, 32, 32, device='cpu').to_dense()"]
)
def test_in_a_process_that_has_not_called_it(made):
    """The first call loads more of PyTorch: that is no break."""
    program = f"""
import torch, lampwork
from torch.nn.attention.flex_attention import create_block_mask, flex_attention
rows = torch.arange(32)
def causal(b, h, i, j):
    return rows[i] >= rows[j]
x = torch.ones(1, 2, 32, 16)
compiled = lampwork.compile(lambda: {made}, options={{"cache": False}}, fullgraph=True)
print(compiled().float().mean().item(), len(lampwork.stats(compiled)["fallbacks"]))
"""
    done = run_python(
        ["-c", program], cwd=ROOT, env=plain_environment(LAMPWORK_STRICT="1", PATH="", PYTHONPATH=str(ROOT))
    )
    assert done.stdout.strip() == "1.0 0", done.stderr[-800:]

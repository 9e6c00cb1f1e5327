"""One compile serves every batch size and sequence length of language models: at most three compiles in all."""

from __future__ import annotations

import pytest
import torch

import lampwork

transformers = pytest.importorskip("transformers")


def bert():
    config = transformers.BertConfig(
        hidden_size=64, num_hidden_layers=2, num_attention_heads=4, intermediate_size=128, vocab_size=500
    )
    return transformers.BertModel(config).eval()


def gpt2():
    config = transformers.GPT2Config(
        n_embd=64, n_layer=2, n_head=4, vocab_size=500, bos_token_id=0, eos_token_id=0, n_positions=256
    )
    return transformers.GPT2Model(config).eval()


@pytest.mark.parametrize("make", [bert, gpt2])
def test_fifty_batch_sizes_and_fifty_lengths(make):
    torch.manual_seed(0)
    model = make()
    compiled = lampwork.compile(model, fullgraph=True, options={"cache": False})
    shapes = [(batch, 16) for batch in range(2, 52)] + [(3, length) for length in range(2, 52)]
    with torch.no_grad():
        for shape in shapes:
            tokens = torch.randint(0, 500, shape)
            actual, expected = compiled(tokens).last_hidden_state, model(tokens).last_hidden_state
            torch.testing.assert_close(actual, expected, rtol=1e-4, atol=1e-5)
    stats = lampwork.stats(compiled)
    assert stats["captures"] <= 3 and not stats["fallbacks"]


def test_a_mask_and_a_length_that_vary_together():
    torch.manual_seed(0)
    model = bert()
    compiled = lampwork.compile(model, fullgraph=True, options={"cache": False})
    with torch.no_grad():
        for batch, length in ((2, 9), (3, 12), (5, 7), (4, 30), (8, 8)):
            tokens = torch.randint(0, 500, (batch, length))
            mask = torch.ones(batch, length, dtype=torch.long)
            mask[:, length - 2 :] = 0
            actual, expected = compiled(tokens, mask)[0], model(tokens, mask)[0]
            torch.testing.assert_close(actual, expected, rtol=1e-4, atol=1e-5)
    assert lampwork.stats(compiled)["captures"] <= 3


def test_a_convolutional_network_over_image_sizes():
    torch.manual_seed(0)
    model = torch.nn.Sequential(
        torch.nn.Conv2d(3, 8, 3, stride=2, padding=1), torch.nn.BatchNorm2d(8), torch.nn.ReLU(), torch.nn.MaxPool2d(2),
        torch.nn.Conv2d(8, 16, 3, padding=1), torch.nn.GELU(), torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten(),
        torch.nn.Linear(16, 5),
    ).eval()  # fmt: skip
    compiled = lampwork.compile(model, dynamic=True, fullgraph=True, options={"cache": False})
    with torch.no_grad():
        for batch, height, width in ((2, 32, 32), (3, 40, 36), (5, 64, 32), (2, 33, 47)):
            x = torch.randn(batch, 3, height, width)
            torch.testing.assert_close(compiled(x), model(x), rtol=1e-4, atol=1e-5)
    assert lampwork.stats(compiled)["captures"] == 1


class Decoder(torch.nn.Module):
    """Attention as it is written by hand, over tokens and what came before."""

    def __init__(self, width=32, heads=4, words=100, longest=128):
        super().__init__()
        self.heads = heads
        self.words, self.places = torch.nn.Embedding(words, width), torch.nn.Parameter(torch.randn(longest, width))
        self.query, self.key, self.value, self.out = (torch.nn.Linear(width, width) for _ in range(4))
        self.norm, self.head = torch.nn.LayerNorm(width), torch.nn.Linear(width, words)
        self.register_buffer("earlier", torch.ones(longest, longest, dtype=torch.bool).tril())

    def forward(self, tokens, mask=None):
        batch, length = tokens.shape
        x = self.words(tokens) + self.places[:length]
        query, key, value = (
            each(x).view(batch, length, self.heads, -1).transpose(1, 2) for each in (self.query, self.key, self.value)
        )
        scores = query @ key.transpose(-2, -1) / query.shape[-1] ** 0.5
        scores = scores.masked_fill(~self.earlier[:length, :length], float("-inf"))
        if mask is not None:
            scores = scores.masked_fill(mask[:, None, None, :] == 0, -1e9)
        mixed = (scores.softmax(-1) @ value).transpose(1, 2).contiguous().view(batch, length, -1)
        return self.head(self.norm(x + self.out(mixed)))


@pytest.mark.parametrize("first", [(7, 54), (1, 9), (5, 1)])
@pytest.mark.parametrize("masked", [False, True])
def test_ragged_texts(masked, first):
    """Batches and lengths drawn at random, those of 1 among them."""
    torch.manual_seed(0)
    model = Decoder().eval()
    compiled = lampwork.compile(model, fullgraph=True, options={"cache": False})
    drawn = torch.stack([torch.randint(1, 9, (60,)), torch.randint(1, 65, (60,))], 1).tolist()
    with torch.no_grad():
        for batch, length in [first, (3, 30), (1, 12), (4, 1), (1, 1), *drawn]:
            tokens = torch.randint(0, 100, (batch, length))
            mask = (torch.arange(length) >= torch.randint(0, length, (batch, 1))).long() if masked else None
            actual, expected = compiled(tokens, mask), model(tokens, mask)
            torch.testing.assert_close(actual, expected, rtol=1e-4, atol=1e-5)
            assert actual.stride() == expected.stride()
    stats = lampwork.stats(compiled)
    assert stats["captures"] <= 3 and not stats["fallbacks"]

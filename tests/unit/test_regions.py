"""Settings by submodule: `lampwork.compile(model, regions=...)`."""

from __future__ import annotations

import copy
import gc
import weakref

import pytest
import torch
from torch import nn

import lampwork
from lampwork import regions


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm, self.linear = nn.LayerNorm(8), nn.Linear(8, 8)

    def forward(self, x, *, scale=1):
        return x + torch.relu(self.linear(self.norm(x))) * scale


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(10, 8)
        self.layers = nn.ModuleList([Block() for _ in range(3)])
        self.head = nn.Linear(8, 3)

    def forward(self, tokens):
        x = self.embed(tokens) * 2
        for number, layer in enumerate(self.layers):
            x = layer(x, scale=number + 1)
        return self.head(x).sin()


@pytest.fixture
def tokens():
    return torch.randint(0, 10, (2, 5))


def made_by(compiled):
    """The kinds of breaks of a compiled model, with how often each was met."""
    return {each.diagnostic.id: each.count for each in lampwork.stats(compiled)["breaks"]}


@pytest.mark.parametrize("train", [False, True])
def test_regions_do_what_the_model_does(tokens, train):
    model = Model().train(train)
    eager = copy.deepcopy(model)
    compiled = lampwork.compile(model, regions={"embed": "eager", "layers.*": {"options": {"freeze": not train}}})
    for _ in range(3):
        ours, expected = compiled(tokens), eager(tokens)
        torch.testing.assert_close(ours, expected)
        ours.sum().backward()
        expected.sum().backward()
        for mine, other in zip(model.parameters(), eager.parameters()):
            torch.testing.assert_close(mine.grad, other.grad, rtol=1e-4, atol=1e-4)
    assert made_by(compiled) == {"region": 12}  # an embedding and three blocks, three times
    assert not lampwork.stats(compiled)["fallbacks"]


def test_settings_of_a_region_are_its_own(tokens):
    compiled = lampwork.compile(Model(), regions={"layers.1": {"options": {"recompile_limit": 3}}, "layers.*": "eager"})
    compiled(tokens)
    blocks = [block for table in regions._tables.values() for block in table.compiled.values()]
    (block,) = [block for block in blocks if block.linear is compiled.layers[1].linear]
    assert block is not compiled.layers[1] and lampwork.stats(block)["calls"] == 1
    assert made_by(compiled) == {"region": 3}


def test_a_module_that_takes_the_place_of_another(tokens):
    model = Model()
    compiled = lampwork.compile(model, regions={"layers.0": {}})
    compiled(tokens)
    model.layers[0] = nn.Sequential(nn.Linear(8, 8))
    model.layers[0].forward = lambda x, scale: x * scale  # type: ignore[method-assign]
    torch.testing.assert_close(compiled(tokens), model(tokens))


def test_what_goes_wrong_in_a_region_is_the_users(tokens):
    class Fails(nn.Module):
        def forward(self, x):
            raise KeyError("of the region")

    compiled = lampwork.compile(nn.Sequential(nn.Linear(8, 8), Fails()), regions={"1": "eager"})
    with pytest.raises(KeyError, match="of the region"):
        compiled(torch.ones(2, 8))


def test_nothing_is_kept(tokens):
    model = Model()
    alive = weakref.ref(model.layers[0])
    compiled = lampwork.compile(model, regions={"layers.*": {"dynamic": False}})
    compiled(tokens)
    del compiled, model
    gc.collect()  # the model, and with it what is known of its regions
    gc.collect()
    assert alive() is None and not regions._tables


@pytest.mark.parametrize(
    ("function", "settings", "words"),
    [
        (Model(), {"regions": {"blocks.*": "eager"}}, "matches no submodule"),
        (Model(), {"regions": {"layers.*": "fast"}}, "must be 'eager' or a dict"),
        (Model(), {"regions": {"layers.*": {"mode": "fast"}}}, "unknown mode"),
        (Model(), {"regions": {"layers.*": "eager"}, "fullgraph": True}, "one graph"),
        (Model(), {"regions": {"layers.*": "eager"}, "mode": "auto"}, "by itself"),
        (Model(), {"regions": ["layers.*"]}, "must be 'blocks', or a dict"),
        (torch.sin, {"regions": {"layers.*": "eager"}}, "no torch.nn.Module"),
    ],
)
def test_wrong_settings(function, settings, words):
    with pytest.raises(lampwork.OptionError, match=words):
        lampwork.compile(function, **settings)


def test_blocks_that_a_model_repeats(tokens):
    class Deep(Model):
        def __init__(self, depth):
            super().__init__()
            self.layers = nn.ModuleList([Block() for _ in range(depth)])
            self.ends = nn.Sequential(nn.Linear(8, 8), nn.ReLU())

    lampwork.reset()
    model = Deep(7)
    compiled = lampwork.compile(model, regions="blocks", options={"cache": False})
    for _ in range(2):
        torch.testing.assert_close(compiled(tokens), model(tokens))
    assert made_by(compiled) == {"region": 14}
    key = regions._key(compiled.__lampwork__.settings.regions[0][1])
    each = [lampwork.stats(block)["captures"] for block in regions._tables[key].compiled.values()]
    assert len(each) == 7 and sum(each) == 2  # `scale` differs


def test_a_model_that_repeats_nothing():
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU())
    compiled = lampwork.compile(model, regions="blocks")
    x = torch.randn(2, 4)
    torch.testing.assert_close(compiled(x), model(x))
    assert not lampwork.stats(compiled)["breaks"]
    with pytest.raises(lampwork.OptionError, match="'blocks', or a dict"):
        lampwork.compile(model, regions="block")

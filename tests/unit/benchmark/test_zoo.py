"""Zoo models have the structure that they claim, and give numbers worth comparing."""

from __future__ import annotations

import sys
import types

import pytest
import torch

from lampwork.benchmark import zoo
from lampwork.verdict.verify import leaves


@pytest.mark.parametrize("name", zoo.ZOO)
def test_outputs_vary_and_repeat(name):
    first, second = zoo.build(name, size="tiny"), zoo.build(name, size="tiny")
    with torch.no_grad():
        outputs = [
            [leaf for _, leaf in leaves(w.function(*w.args)) if isinstance(leaf, torch.Tensor)] for w in (first, second)
        ]
    assert not first.function.training
    for one, other in zip(*outputs, strict=True):
        assert torch.equal(one, other)
        assert one.std() > 1e-3  # zeros would pass any comparison


def test_building_leaves_the_random_generator_alone():
    torch.manual_seed(3)
    expected = torch.rand(2)
    torch.manual_seed(3)
    zoo.build("mlp", size="tiny")
    assert torch.equal(torch.rand(2), expected)


@pytest.mark.parametrize(
    ("name", "millions"), [("mlp", 0.399), ("resnet", 25.557), ("bert", 109.514), ("gpt2", 124.440), ("vit", 86.568)]
)
def test_full_models_have_the_published_number_of_parameters(name, millions):
    with torch.device("meta"):
        module, _ = zoo.ZOO[name].factory("full") if name != "resnet" else _resnet_on_meta()
    assert sum(parameter.numel() for parameter in module.parameters()) / 1e6 == pytest.approx(millions, abs=1e-3)


@pytest.mark.parametrize(
    ("name", "size", "millions", "shape"),
    [
        ("llama", "batch", 852.568, (4, 2048)),
        ("llama", "single", 852.568, (1, 64)),
        ("unet", "batch", 256.435, (4, 4, 64, 64)),
        ("bert", "batch", 109.514, (16, 512)),
        ("gpt2", "batch", 124.440, (8, 1024)),
        ("vit", "batch", 86.568, (32, 3, 224, 224)),
        ("resnet", "batch", 25.557, (64, 3, 224, 224)),
    ],
)
def test_sizes_for_a_gpu(name, size, millions, shape):
    with torch.device("meta"):
        module, (first, *_) = zoo.ZOO[name].factory(size)
    assert sum(parameter.numel() for parameter in module.parameters()) / 1e6 == pytest.approx(millions, abs=0.1)
    assert first.shape == shape
    assert name != "resnet" or first.is_contiguous(memory_format=torch.channels_last)


def _resnet_on_meta():
    transformers = pytest.importorskip("transformers")
    return transformers.ResNetForImageClassification(transformers.ResNetConfig(num_labels=1000)), ()


def test_factories(monkeypatch):
    module = types.ModuleType("their_models")
    layer = torch.nn.Linear(4, 2)
    module.two = lambda: (layer, (torch.ones(1, 4),))
    module.three = lambda: (lambda x, scale: x * scale, [torch.ones(2)], {"scale": 3})
    module.wrong = lambda: layer
    module.number = 3
    monkeypatch.setitem(sys.modules, "their_models", module)
    assert zoo.build("their_models:two").module is layer and not layer.training
    three = zoo.build("their_models:three")
    assert three.function(*three.args, **three.kwargs).tolist() == [3.0, 3.0]
    with pytest.raises(TypeError, match="a factory returns"):
        zoo.build("their_models:wrong")
    with pytest.raises(ValueError, match="no callable named 'number'"):
        zoo.build("their_models:number")
    with pytest.raises(ValueError, match="the zoo has mlp resnet"):
        zoo.build("nosuchmodel")


def test_dtype_moves_floats_only():
    workload = zoo.build("unet", size="tiny", dtype=torch.bfloat16)
    image, time = workload.args
    assert image.dtype == torch.bfloat16 and time.dtype == torch.int64
    with torch.no_grad():
        assert workload.function(image, time).dtype == torch.bfloat16

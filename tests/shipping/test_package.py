"""Packages run without their program, and give what it gives."""

from __future__ import annotations

import collections
import dataclasses
import enum
import random
import threading
import warnings

import pytest
import torch

import lampwork
from lampwork.shipping.results import Attributes, Output
from tests.dynamic.test_settings import Padded
from tests.shipping.support import ROOT, ResNet, Tied, UNet, compiled, fresh, same

IMAGES = torch.randn(2, 3, 12, 12)


def packaged(tmp_path, model, *args, key=None, weights=True, **kwargs):
    """A package of a model that was called so, loaded again, and eager's result."""
    fast, expected = compiled(model, *args, **kwargs)
    path = tmp_path / "it.lamp"
    lampwork.package(fast, path, weights, key=key)
    return (lampwork.load(path, key=key) if weights else path), expected


CASES = {
    "resnet": (ResNet, (IMAGES,), {}),
    "resnet with constant weights": (ResNet, (IMAGES,), {"options": {"freeze": True}}),
    "resnet of any size": (ResNet, (IMAGES,), {"dynamic": True}),
    "resnet with eager's numbers": (ResNet, (IMAGES,), {"options": {"numerics": "eager"}}),
    "unet": (UNet, (IMAGES, torch.tensor([1.0, 2.0])), {}),
    "tied": (Tied, (torch.tensor([[1, 2, 3]]),), {}),
}


@pytest.mark.parametrize("case", CASES)
def test_a_package_gives_what_its_model_gives(case, tmp_path):
    make, args, options = CASES[case]
    torch.manual_seed(0)
    package, expected = packaged(tmp_path, make().eval(), *args, **options)
    assert same(package(*args), expected)
    assert same(package(*args), expected)


def test_settings_come_with_the_package(tmp_path):
    """Integers in buffers that the program took for what they are: a package has them, and asks for no others."""
    torch.manual_seed(0)
    x = torch.randn(3, 8)
    model = Padded().eval()
    model.window = torch.nn.Buffer(model.window)  # part of the state
    path, expected = packaged(tmp_path, model, x, weights=False)
    state = model.state_dict()
    assert lampwork.load(path, weights=state)(x).shape == expected.shape
    with pytest.raises(lampwork.NotServedError, match="window.*== 5.*does not hold for 6"):
        lampwork.load(path, weights={**state, "window": torch.tensor(6)})(x)
    package, expected = packaged(tmp_path, Padded().eval(), x)
    assert same(package(x), expected)


def test_other_sizes_of_a_package_for_any_size(tmp_path):
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.GELU()).eval()
    package, _ = packaged(tmp_path, model, torch.randn(3, 8), dynamic=True)
    x = torch.randn(7, 8)
    with torch.no_grad():
        assert same(package(x), model(x))
    with pytest.raises(lampwork.NotServedError, match="shape|size"):
        package(torch.randn(7, 9))


def test_tied_weights_stay_one_and_memory_stays_shared(tmp_path):
    package, _ = packaged(tmp_path, Tied().eval(), torch.tensor([[1, 2, 3]]))
    weights = package.weights
    assert [name for name in weights if "weight" in name] == ["embed.weight"]
    assert weights["early"][1].data_ptr() == weights["late"].data_ptr()
    assert weights["row"].stride() == (0, 1) and weights["turned"].stride() == (1, 4)
    assert isinstance(weights["embed.weight"], torch.nn.Parameter)


def test_the_weights_are_a_safetensors_file(tmp_path):
    reader = pytest.importorskip("safetensors.torch")
    from lampwork.shipping import safetensors

    tensors = {
        str(dtype): torch.randint(0, 2, (3, 5)).to(dtype)
        for dtype in safetensors.NAMES
    } | {"none": torch.empty(0, 3), "number": torch.tensor(1.5)}  # fmt: skip
    data = b"".join(safetensors.pieces(tensors))
    found = reader.load(data)
    assert set(found) == set(tensors)
    assert all(torch.equal(found[name].float(), tensors[name].float()) for name in tensors if "complex" not in name)
    path = tmp_path / "other.safetensors"
    reader.save_file({name: each for name, each in tensors.items()}, path, metadata={"format": "pt"})
    from lampwork.shipping.weights import tensors_of

    again = tensors_of(path)
    assert all(
        torch.equal(again[name].view(torch.uint8), each.view(torch.uint8))
        for name, each in tensors.items()
        if each.dim()
    )


def test_a_package_without_weights_takes_those_of_the_user(tmp_path):
    torch.manual_seed(0)
    model = ResNet().eval()
    path, expected = packaged(tmp_path, model, IMAGES, weights=False)
    assert path.stat().st_size < 120_000
    with pytest.raises(lampwork.ArtifactError, match="without its weights.*blocks.0.first.weight"):
        lampwork.load(path)
    assert same(lampwork.load(path, weights=model.state_dict())(IMAGES), expected)
    other = ResNet().eval()
    with torch.no_grad():
        assert same(lampwork.load(path, weights=other.state_dict())(IMAGES), other(IMAGES))
    writer = pytest.importorskip("safetensors.torch")
    writer.save_file(model.state_dict(), tmp_path / "it.safetensors")
    assert same(lampwork.load(path, weights=tmp_path / "it.safetensors")(IMAGES), expected)
    half = {name: each.half() if each.is_floating_point() else each for name, each in model.state_dict().items()}
    with pytest.raises(lampwork.ArtifactError, match="is float16.*where float32.*was packed"):
        lampwork.load(path, weights=half)
    with pytest.raises(lampwork.ArtifactError, match="head.weight is missing"):
        lampwork.load(path, weights={name: each for name, each in model.state_dict().items() if name != "head.weight"})


def test_weights_that_nobody_needs_are_refused(tmp_path):
    fast, _ = compiled(ResNet().eval(), IMAGES)
    lampwork.package(fast, tmp_path / "it.lamp")
    with pytest.raises(lampwork.ArtifactError, match="has its weights"):
        lampwork.load(tmp_path / "it.lamp", weights={})


def test_gradients_and_inference_mode_are_as_when_it_was_compiled(tmp_path):
    package, expected = packaged(tmp_path, ResNet().eval(), IMAGES)
    assert torch.is_grad_enabled()
    result = package(IMAGES)
    assert not result.requires_grad and torch.is_grad_enabled()
    with torch.inference_mode():
        assert not package(IMAGES).is_inference()
    fast = lampwork.compile(ResNet().eval(), options={"cache": False})
    with torch.inference_mode():
        fast(IMAGES)
    lampwork.package(fast, tmp_path / "other.lamp")
    assert lampwork.load(tmp_path / "other.lamp")(IMAGES).is_inference()


def test_other_state_of_the_process_must_be_as_it_was(tmp_path):
    package, expected = packaged(tmp_path, ResNet().eval(), IMAGES)
    with torch.autocast("cpu"), pytest.raises(lampwork.NotServedError, match="autocast"):
        package(IMAGES)
    assert same(package(IMAGES), expected)


STATES = {
    "default dtype": (lambda: torch.set_default_dtype(torch.float64), lambda: torch.set_default_dtype(torch.float32)),
    "deterministic": (
        lambda: torch.use_deterministic_algorithms(True), lambda: torch.use_deterministic_algorithms(False),
    ),
    "float32 matmul precision": (
        lambda: torch.set_float32_matmul_precision("medium"), lambda: torch.set_float32_matmul_precision("highest"),
    ),
}  # fmt: skip


@pytest.mark.parametrize("state", STATES)
def test_each_state_of_the_process_is_named(state, tmp_path):
    package, expected = packaged(tmp_path, ResNet().eval(), IMAGES)
    change, undo = STATES[state]
    change()
    try:
        with pytest.raises(lampwork.NotServedError, match=state):
            package(IMAGES)
    finally:
        undo()
    assert same(package(IMAGES), expected)


def test_packages_within_compiled_programs_run_as_they_are(tmp_path):
    package, expected = packaged(tmp_path, ResNet().eval(), IMAGES)

    def program(x):
        return package(x * 1) * 2

    fast = lampwork.compile(program, options={"cache": False})
    assert same(fast(IMAGES), expected * 2) and same(fast(IMAGES), expected * 2)


def test_transforms_around_a_package_are_refused(tmp_path):
    package, _ = packaged(tmp_path, ResNet().eval(), IMAGES)
    with pytest.raises(lampwork.NotServedError):
        torch.func.vmap(package)(IMAGES[None])


def test_weights_among_the_arguments_are_noticed(tmp_path):
    def program(x, weight=torch.ones(3)):
        x.add_(1)
        return weight * 2

    fast = lampwork.compile(program, options={"cache": False})
    fast(torch.ones(3))
    lampwork.package(fast, tmp_path / "it.lamp")
    package = lampwork.load(tmp_path / "it.lamp")
    assert same(package(torch.ones(3)), torch.full((3,), 2.0))
    (weight,) = package.weights.values()
    with pytest.raises(lampwork.NotServedError):
        package(weight)
    with pytest.raises(lampwork.NotServedError):
        package(weight.view(3))


def test_several_entries_serve_their_own_calls(tmp_path):
    torch.manual_seed(0)
    model = torch.nn.Linear(4, 4)
    fast = lampwork.compile(model, options={"cache": False}, dynamic=False)
    inputs = [torch.randn(2, 4), torch.randn(3, 4), torch.randn(2, 5, 4)]
    with torch.no_grad():
        for each in inputs:
            fast(each)
    lampwork.package(fast, tmp_path / "it.lamp")
    package = lampwork.load(tmp_path / "it.lamp")
    with torch.no_grad():
        assert all(same(package(each), model(each)) for each in inputs)
    with pytest.raises(lampwork.NotServedError) as refusal:
        package(torch.randn(4, 4))
    assert all(text in str(refusal.value) for text in ("f32[2, 4]", "f32[3, 4]", "f32[2, 5, 4]", "is now [4, 4]"))
    assert len(package.serves) == 3 and "f32[2, 5, 4]" in repr(package)


def test_calls_from_many_threads(tmp_path):
    package, expected = packaged(tmp_path, ResNet().eval(), IMAGES)
    failures = []

    def call():
        for _ in range(20):
            if not same(package(IMAGES), expected):
                failures.append(1)

    threads = [threading.Thread(target=call) for _ in range(4)]
    [each.start() for each in threads]
    [each.join() for each in threads]
    assert not failures


def test_arguments_may_be_written(tmp_path):
    def program(x, notes):
        x.mul_(2)
        notes.append(x.sum())
        notes[0] = "seen"
        return x + 1

    fast = lampwork.compile(program, options={"cache": False})
    fast(torch.ones(3), [0])
    lampwork.package(fast, tmp_path / "it.lamp")
    x, notes = torch.ones(3), [0]
    result = lampwork.load(tmp_path / "it.lamp")(x, notes)
    assert same(x, torch.full((3,), 2.0)) and same(result, x + 1) and notes[0] == "seen" and same(notes[1], x.sum())


def test_an_argument_in_the_result_is_the_argument_and_a_weight_the_weight(tmp_path):
    class Gives(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = torch.nn.Parameter(torch.ones(3))
            self.limit = (1, "two", torch.float32)

        def forward(self, x):
            return x, self.weight, self.limit, x + self.weight

    package, _ = packaged(tmp_path, Gives(), torch.ones(3))
    x = torch.ones(3)
    result = package(x)
    assert result[0] is x and result[1] is package.weights["weight"] and result[2] == (1, "two", torch.float32)


def test_what_the_programs_own_error_is_stays_that(tmp_path):
    model = torch.nn.Embedding(5, 3)
    package, _ = packaged(tmp_path, model, torch.tensor([1, 2]))
    with pytest.raises(IndexError, match="out of range"):
        package(torch.tensor([1, 7]))


def test_random_numbers_are_drawn_anew(tmp_path):
    def program(x):
        return x + torch.rand(3), random.random()

    fast = lampwork.compile(program, options={"cache": False})
    torch.manual_seed(1), random.seed(1)
    expected = program(torch.zeros(3))
    fast(torch.zeros(3))
    lampwork.package(fast, tmp_path / "it.lamp")
    package = lampwork.load(tmp_path / "it.lamp")
    torch.manual_seed(1), random.seed(1)
    assert same(package(torch.zeros(3)), expected)
    assert not same(package(torch.zeros(3)), expected)


# Results -------------------------------------------------------------------------------------------------------------


class Mapping(collections.OrderedDict):
    pass


@dataclasses.dataclass
class Record:
    first: torch.Tensor
    inner: object = None


class Pair(collections.namedtuple("Pair", "left right")):
    pass


def test_objects_of_other_classes_become_plain_ones(tmp_path):
    def program(x):
        made = Mapping(a=x + 1, b=None)
        made["r"] = Record(x * 2, [Record(x * 3)])
        return made, Pair(x, 2)

    fast = lampwork.compile(program, options={"cache": False})
    x = torch.ones(2)
    fast(x)
    assert not lampwork.stats(fast)["breaks"] and not lampwork.stats(fast)["fallbacks"]
    lampwork.package(fast, tmp_path / "it.lamp")
    made, pair = lampwork.load(tmp_path / "it.lamp")(x)
    assert type(made) is Output and list(made) == ["a", "b", "r"] and same(made.a, x + 1) and made.b is None
    assert same(made[0], x + 1) and made.to_tuple()[1] is None
    assert type(made.r) is Attributes and same(made.r.inner[0].first, x * 3) and "first" in repr(made.r)
    assert type(pair) is tuple and pair[1] == 2
    with pytest.raises(AttributeError, match="it has a, b, r"):
        made.nothing


# Refusals ------------------------------------------------------------------------------------------------------------


class Colour(enum.Enum):
    RED = 1


class Counts(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.calls = 0
        self.register_buffer("seen", torch.zeros(()))

    def forward(self, x):
        self.calls += 1
        return x + 1


class Adds(Counts):
    def forward(self, x):
        self.seen += 1
        return x + self.seen


@lampwork.disable
def told(x):
    return None


class Breaks(torch.nn.Module):
    def forward(self, x):
        y = x + 1
        told(y)
        return y * 2


class SetsAnew(Counts):
    def forward(self, x):
        self.last = x.sum()
        return x + 1


class GivesItself(Counts):
    def forward(self, x):
        return x + 1, self


class GivesFunction(torch.nn.Module):
    def forward(self, x):
        return x + 1, lambda: x


class Depends(Counts):
    def forward(self, x):
        return x + 1 if self.seen.item() < 3 else x


class GivesColour(torch.nn.Module):
    def forward(self, x):
        return x + 1, Colour.RED


class Takes(torch.nn.Module):
    def forward(self, x, record):
        return x + record.first


REFUSALS = {
    "counts calls": (Counts, (torch.ones(2),), "self.calls was 0, is now 1"),
    "keeps a tensor": (SetsAnew, (torch.ones(2),), "the call changes self.last|self.last was absent|'last'"),
    "writes a buffer": (Adds, (torch.ones(2),), "each call changes self.seen.*model.eval"),
    "batch norm in training": (lambda: ResNet().train(), (IMAGES,), "each call changes self.*model.eval"),
    "breaks": (Breaks, (torch.ones(2),), "the graph breaks at .*test_package.py"),
    "returns its module": (GivesItself, (torch.ones(2),), "the result holds self of the program"),
    "returns a function": (GivesFunction, (torch.ones(2),), "the result holds a function"),
    "goes by what a buffer holds": (Depends, (torch.ones(2),), "what a weight holds|breaks|depends on"),
    "returns a member of an enumeration": (GivesColour, (torch.ones(2),), "Colour.RED"),
    "takes an object of its own": (
        Takes,
        (torch.ones(2), Record(torch.ones(2))),
        "argument 1 is .*Record, which a process",
    ),
}


@pytest.mark.parametrize("case", REFUSALS)
def test_what_cannot_be_packaged_is_refused_with_the_reason(case, tmp_path):
    make, args, words = REFUSALS[case]
    fast = lampwork.compile(make(), options={"cache": False})
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fast(*args)
    with pytest.raises(lampwork.ArtifactError, match=words):
        lampwork.package(fast, tmp_path / "it.lamp")
    assert not list(tmp_path.iterdir())


def test_entries_that_take_gradients_are_refused(tmp_path):
    fast = lampwork.compile(torch.nn.Linear(3, 3), options={"cache": False})
    fast(torch.ones(2, 3))
    with pytest.raises(lampwork.ArtifactError, match="takes gradients.*torch.no_grad"):
        lampwork.package(fast, tmp_path / "it.lamp")
    with torch.no_grad():
        fast(torch.ones(2, 3))
    with pytest.warns(lampwork.LampworkWarning, match="lacks 1 of the entries.*takes gradients"):
        lampwork.package(fast, tmp_path / "it.lamp")
    assert lampwork.load(tmp_path / "it.lamp")(torch.ones(2, 3)).shape == (2, 3)


def test_a_model_that_has_changed_since_is_refused(tmp_path):
    model = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.Dropout(0.5)).eval()
    fast, _ = compiled(model, torch.ones(2, 3))
    model.train()
    with pytest.raises(
        lampwork.ArtifactError, match=r"has changed since it was compiled: self\[1\].training was False"
    ):
        lampwork.package(fast, tmp_path / "it.lamp")


def test_nothing_compiled_and_what_is_not_compiled(tmp_path):
    with pytest.raises(lampwork.ArtifactError, match="Call it first"):
        lampwork.package(lampwork.compile(ResNet()), tmp_path / "it.lamp")
    with pytest.raises(lampwork.ArtifactError, match="Call it first"):
        lampwork.save(lampwork.compile(ResNet()), tmp_path / "it.lamp")
    for make in (lampwork.package, lampwork.save):
        with pytest.raises(TypeError, match="was not made by lampwork.compile"):
            make(ResNet(), tmp_path / "it.lamp")
    other = lampwork.compile(lambda x: x + 1, backend=lambda graph, inputs: graph.forward)
    other(torch.ones(2))
    for make in (lampwork.package, lampwork.save):
        with pytest.raises(lampwork.ArtifactError, match="another back end"):
            make(other, tmp_path / "it.lamp")


# Another process -----------------------------------------------------------------------------------------------------

LOADS = """
import time, torch, lampwork
start = time.perf_counter()
package = lampwork.load(sys.argv[1])
args, expected = torch.load(sys.argv[2])
result = package(*args)
assert torch.allclose(result["sample"], expected, atol=1e-5)
stages = {"capture", "graph", "lower", "schedule", "codegen", "pipeline"}
assert not [name for name in sys.modules if name.startswith("lampwork.") and name.split(".")[1] in stages]
assert "tests" not in sys.modules and not any(name.startswith("llvmlite") for name in sys.modules)
print("done")
"""


def test_another_process_without_the_source_of_the_model(tmp_path):
    torch.manual_seed(0)
    args = (IMAGES, torch.tensor([1.0, 2.0]))
    fast, expected = compiled(UNet().eval(), *args)
    lampwork.package(fast, tmp_path / "it.lamp")
    torch.save((args, expected["sample"]), tmp_path / "it.pt")
    assert fresh(LOADS, tmp_path / "it.lamp", tmp_path / "it.pt") == "done\n"
    assert ROOT.exists()

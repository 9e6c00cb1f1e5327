"""Files beside their model: ready for the first call, and never a wrong answer where something is another."""

from __future__ import annotations

import inspect
import json
import sys
import types
import warnings

import pytest
import torch

import lampwork
from lampwork.shipping.load import load_file
from tests.shipping.support import Block, ResNet, compiled, fresh, same
from tests.shipping.test_container import changed, opened, sealed

IMAGES = torch.randn(2, 3, 12, 12)


class Scaled(torch.nn.Module):
    """A model with what models have: weights, buffers, attributes, dropout, a submodule, a function it calls."""

    factor = 2.0

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.inner = torch.nn.Linear(4, 4)
        self.drop = torch.nn.Dropout(0.5)
        self.register_buffer("shift", torch.ones(4))
        self.times = 3
        self.names = ["a", "b"]
        self.eval()

    def forward(self, x, flag=True):
        y = self.drop(self.inner(x) * self.times + self.shift)
        return helped(y) * self.factor if flag else y - len(self.names)


def helped(y):
    return torch.tanh(y) + 1


X = torch.linspace(-1, 1, 8).view(2, 4)


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    path = tmp_path_factory.mktemp("saved") / "it.lamp"
    fast, _ = compiled(Scaled(), X)
    lampwork.save(fast, path)
    return path


def answer(fast, *args, **kwargs):
    with torch.no_grad():
        return fast(*args, **kwargs)


def test_the_first_call_is_served_and_nothing_is_captured(saved):
    model = Scaled()
    fast = lampwork.load(saved, model, strict=True)
    assert isinstance(fast, Scaled) and fast.state_dict().keys() == model.state_dict().keys()
    assert same(answer(fast, X), answer(model, X))
    stats = lampwork.stats(fast)
    assert stats["captures"] == 0 and stats["entries"] == 1 and stats["cache_hits"] == 1


#: Loads the file beside a module of each of these texts, and prints what is said.
PROGRAM = """
import json, types
import torch, lampwork
X = torch.linspace(-1, 1, 8).view(2, 4)
answers = []
for text in json.loads(sys.argv[2]):
    module = sys.modules["model_here"] = types.ModuleType("model_here")
    exec(text, module.__dict__)
    model = module.Scaled()
    try:
        fast = lampwork.load(sys.argv[1], model, strict=True)
    except lampwork.ArtifactError as error:
        answers.append(str(error))
        continue
    with torch.no_grad():
        assert torch.allclose(fast(X), model(X), atol=1e-6)
    stages = {"capture", "graph", "lower", "schedule", "codegen", "pipeline"}
    assert not [name for name in sys.modules if name.startswith("lampwork.") and name.split(".")[1] in stages]
    answers.append("served")
print(json.dumps(answers))
"""


def test_another_process_traces_nothing_and_notices_other_code(tmp_path, monkeypatch):
    text = f"import torch\n{inspect.getsource(helped)}\n{inspect.getsource(Scaled)}"
    module = types.ModuleType("model_here")
    monkeypatch.setitem(sys.modules, "model_here", module)
    exec(compile(text, "model_here.py", "exec", dont_inherit=True), module.__dict__)
    fast, _ = compiled(module.Scaled(), X)
    lampwork.save(fast, tmp_path / "it.lamp")
    texts = [text, text.replace("y - len", "y + len"), text.replace("tanh(y) + 1", "tanh(y) + 2")]
    served, forward, helper = json.loads(fresh(PROGRAM, tmp_path / "it.lamp", json.dumps(texts)))
    assert served == "served"
    assert "was made for another code of object model_here.Scaled, which has changed since" in forward
    assert "does not fit" in helper and "helped" in helper


# What the file was made for ------------------------------------------------------------------------------------------

WORLDS = {
    "lampwork": ("9.9", "made for Lampwork 9.9.*here is Lampwork 0.1.0"),
    "torch": ("1.0", "made for PyTorch 1.0.*here is"),
    "python": ("3.9.1", "made for Python 3.9.1"),
    "implementation": ("cpython-39", "made for Python cpython-39"),
    "entries": ("99", "entries of format 99"),
    "schema": ("0", "entries with fields 0"),
    "sources": ("0", "a working copy of Lampwork with sources 0"),
    "machine": ("riscv64", "made for processors of type riscv64"),
    "kernels": ("AVX1024", "made for PyTorch's kernels for AVX1024"),
    "onednn": ("SSE41", "oneDNN held to SSE41"),
    "max_isa": ("avx2048", "machine code of at most avx2048"),
    "features": (["avx", "avx1024f"], "it needs avx1024f, which this processor lacks"),
    "devices": ({"cuda:7": "sm_123"}, "it needs the device cuda:7 of architecture sm_123, and this process has none"),
}


@pytest.mark.parametrize("kind", ("save", "package"))
@pytest.mark.parametrize("fact", WORLDS)
def test_files_for_other_worlds_name_the_difference(kind, fact, saved, tmp_path):
    value, words = WORLDS[fact]
    if kind == "package":
        fast, _ = compiled(Scaled(), X)
        lampwork.package(fast, tmp_path / "it.lamp")
        if fact == "python":
            return  # a package has no byte code
    data = (saved if kind == "save" else tmp_path / "it.lamp").read_bytes()
    header, sections = opened(data)
    assert fact in header["manifest"]["made_for"]
    (tmp_path / "other.lamp").write_bytes(sealed(changed(header, ("manifest", "made_for", fact), value), sections))
    with pytest.raises(lampwork.ArtifactError, match=words) as refusal:
        lampwork.load(tmp_path / "other.lamp", *([Scaled()] if kind == "save" else []))
    assert "Make the file again" in str(refusal.value)


def test_the_architecture_of_the_gpu_is_compared(saved, tmp_path, monkeypatch):
    header, sections = opened(saved.read_bytes())
    other = changed(header, ("manifest", "made_for", "devices"), {"cuda:0": "sm_90"})
    (tmp_path / "it.lamp").write_bytes(sealed(other, sections))
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda index: (8, 0))
    with pytest.raises(lampwork.ArtifactError, match="made for cuda:0 of architecture sm_90, here it is sm_80"):
        lampwork.load(tmp_path / "it.lamp", Scaled())
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda index: (9, 0))
    assert same(answer(lampwork.load(tmp_path / "it.lamp", Scaled(), strict=True), X), answer(Scaled(), X))


# The model -----------------------------------------------------------------------------------------------------------


class Other(torch.nn.Module):
    def forward(self, x):
        return x


def with_bias(model):
    model.inner.extra = torch.nn.Parameter(torch.ones(2))


def without_buffer(model):
    del model.shift


MODELS = {
    "another class": (lambda: Other(), "made for the model object .*Scaled, and this is object .*Other"),
    "a function": (lambda: helped, "and this is function .*helped"),
    "weights of another type": (lambda: Scaled().double(), "inner.weight was float32.* is now float64"),
    "more weights": (lambda: edited(with_bias), "the model has a weight inner.extra, which there was none of"),
    "fewer weights": (lambda: edited(without_buffer), "the model has no weight shift, which was float32"),
    "weights of another shape": (
        lambda: edited(lambda model: setattr(model, "inner", torch.nn.Linear(4, 6))), r"was float32\[4.*now float32\[6",
    ),
}  # fmt: skip


def edited(change):
    model = Scaled()
    change(model)
    return model


@pytest.mark.parametrize("case", MODELS)
def test_other_models_are_refused_when_the_file_is_loaded(case, saved):
    make, words = MODELS[case]
    with pytest.raises(lampwork.ArtifactError, match=words):
        lampwork.load(saved, make())


def new_forward(self, x, flag=True):
    return x * 100


def hooked(model):
    model.inner.register_forward_hook(lambda module, args, result: result * 10)


CHANGES = {
    "training": (lambda model: model.train(), "drop.training was False, is now True"),
    "an attribute": (lambda model: setattr(model, "times", 5), "times was 3, is now 5"),
    "a hook": (hooked, "inner"),
    "a forward of its own": (
        lambda model: setattr(model.inner, "forward", types.MethodType(lambda self, x: x * 7, model.inner)), "inner",
    ),
    "another submodule": (
        lambda model: setattr(model, "drop", torch.nn.Sequential()), "self.drop was a .*Dropout, is now a .*Sequential",
    ),
    "a weight with other strides": (
        lambda model: setattr(model.inner, "weight", torch.nn.Parameter(torch.randn(4, 4).t())), "strides was",
    ),
    "a weight that needs no gradient": (lambda model: model.inner.weight.requires_grad_(False), "requires_grad|gradient"),
}  # fmt: skip


@pytest.mark.parametrize("case", CHANGES)
def test_models_in_another_state_get_no_wrong_answer(case, saved):
    change, words = CHANGES[case]
    model = edited(change)
    with pytest.raises(lampwork.ArtifactError, match=words):
        lampwork.load(saved, model, strict=True)
    fast = lampwork.load(saved, model)
    torch.manual_seed(1)
    with pytest.warns(lampwork.LampworkWarning, match="has no program for this call.*" + words):
        found = answer(fast, X)
    torch.manual_seed(1)
    assert same(found, answer(model, X))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        answer(fast, X)


@pytest.mark.parametrize("case", CHANGES)
def test_models_that_change_after_the_file_was_loaded_are_noticed(case, saved):
    model = Scaled()
    fast = lampwork.load(saved, model, strict=True)
    answer(fast, X)
    change, words = CHANGES[case]
    change(model)
    with pytest.raises(lampwork.NotServedError, match=words):
        answer(fast, X)


def test_values_of_weights_and_buffers_are_read_anew(saved):
    model = Scaled()
    fast = lampwork.load(saved, model, strict=True)
    answer(fast, X)
    model.inner.weight.data.mul_(2)
    model.shift = torch.full((4,), 7.0)
    assert same(answer(fast, X), answer(model, X))
    model.load_state_dict({name: each + 1 for name, each in model.state_dict().items()})
    assert same(answer(fast, X), answer(model, X))


def test_changed_code_is_refused_or_noticed(saved, monkeypatch):
    monkeypatch.setattr(Scaled, "forward", new_forward)
    with pytest.raises(lampwork.ArtifactError, match="made for another code of object .*Scaled, which has changed"):
        lampwork.load(saved, Scaled())
    monkeypatch.undo()
    monkeypatch.setitem(globals(), "helped", lambda y: y)
    with pytest.raises(lampwork.ArtifactError, match="does not fit .*helped"):
        lampwork.load(saved, Scaled(), strict=True)
    monkeypatch.undo()
    monkeypatch.setattr(Scaled, "factor", 5.0)
    model = Scaled()
    with pytest.raises(lampwork.ArtifactError, match="factor was 2.0, is now 5.0"):
        lampwork.load(saved, model, strict=True)
    fast = lampwork.load(saved, model)
    with pytest.warns(lampwork.LampworkWarning, match="factor was 2.0, is now 5.0"):
        assert same(answer(fast, X), answer(model, X))


def test_replaced_functions_of_torch_are_noticed(saved, monkeypatch):
    monkeypatch.setattr(torch.nn.functional, "linear", lambda x, weight, bias: x)
    with pytest.raises(
        lampwork.ArtifactError, match="where torch.nn.functional.linear was replaced otherwise than here"
    ):
        lampwork.load(saved, Scaled())


# Calls ---------------------------------------------------------------------------------------------------------------

CALLS = {
    "another shape": (lambda fast: answer(fast, torch.ones(3, 4)), r"argument 0 shape was \[2, 4\], is now \[3, 4\]"),
    "another type": (lambda fast: answer(fast, X.double()), "argument 0 dtype was|float64"),
    "other strides": (lambda fast: answer(fast, torch.ones(4, 2).t()), "strides"),
    "more arguments": (lambda fast: answer(fast, X, False), "was called with 1 positional"),
    "a keyword": (lambda fast: answer(fast, x=X), "was called with 1 positional"),
    "no tensor": (lambda fast: answer(fast, 3.0), "argument 0"),
    "gradients": (lambda fast: fast(X), "grad mode was False, is now True"),
}


@pytest.mark.parametrize("case", CALLS)
def test_other_calls_are_refused_if_so_asked(case, saved):
    call, words = CALLS[case]
    fast = lampwork.load(saved, Scaled(), strict=True)
    with pytest.raises(lampwork.NotServedError, match=words) as refusal:
        call(fast)
    assert "It serves:\n  (f32[2, 4])" in str(refusal.value)


def test_other_calls_are_compiled_if_nothing_else_is_said(saved):
    model = Scaled()
    fast = lampwork.load(saved, model)
    assert same(answer(fast, X), answer(model, X))
    with pytest.warns(lampwork.LampworkWarning, match=r"shape was \[2, 4\], is now \[3, 4\]. It is compiled"):
        assert same(answer(fast, torch.ones(3, 4)), answer(model, torch.ones(3, 4)))
    assert lampwork.stats(fast)["captures"] == 1
    assert same(answer(fast, X), answer(model, X))


def test_entries_of_a_file_come_back_after_a_reset(saved):
    fast = lampwork.load(saved, Scaled(), strict=True)
    answer(fast, X)
    lampwork.reset()
    assert answer(fast, X).shape == (2, 4)


def test_a_reset_does_not_need_what_the_file_names(tmp_path):
    """A module that was removed since: as for a process without it, calls are compiled again."""
    module = types.ModuleType("gone_after_loading")
    exec("def helped(y):\n    return y.tanh() + 1\n", module.__dict__)
    sys.modules[module.__name__] = module
    try:

        def program(x):
            return module.helped(x) * 2

        def other(x):
            return x + 1

        fast, second = (lampwork.compile(each, options={"cache": False}) for each in (program, other))
        answer(fast, X)
        answer(second, X)
        lampwork.save(fast, tmp_path / "it.lamp")
        fast = lampwork.load(tmp_path / "it.lamp", program)
        assert same(answer(fast, X), program(X))
    finally:
        del sys.modules[module.__name__]
    lampwork.reset()
    assert lampwork.stats(second)["entries"] == 0
    with pytest.warns(lampwork.LampworkWarning, match="gone_after_loading.helped cannot be read"):
        assert same(answer(fast, X), program(X))
    assert lampwork.stats(fast)["captures"] == 1


# What is in a file ---------------------------------------------------------------------------------------------------


def test_gradients_and_several_entries(tmp_path):
    model = Scaled()
    fast = lampwork.compile(model, options={"cache": False})
    fast(X).sum().backward()
    answer(fast, X)
    answer(fast, X, False)
    lampwork.save(fast, tmp_path / "it.lamp")
    again, eager = Scaled(), Scaled()
    fast = lampwork.load(tmp_path / "it.lamp", again, strict=True)
    fast(X).sum().backward()
    eager(X).sum().backward()
    assert same(again.inner.weight.grad, eager.inner.weight.grad)
    assert same(answer(fast, X, False), answer(eager, X, False)) and same(answer(fast, X), answer(eager, X))
    assert lampwork.stats(fast)["captures"] == 0 and lampwork.stats(fast)["entries"] == 3
    lampwork.save(fast, tmp_path / "again.lamp")
    assert lampwork.stats(lampwork.load(tmp_path / "again.lamp", Scaled(), strict=True))["captures"] == 0


@lampwork.disable
def seen(x):
    return x.sum().item()


class Breaks(torch.nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.first, self.second = torch.nn.Linear(4, 4), torch.nn.Linear(4, 4)

    def forward(self, x):
        y = self.first(x)
        if seen(y) > 1e6:
            return y
        return self.second(torch.relu(y))


def test_calls_that_break_go_on_with_what_the_file_has(tmp_path):
    model = Breaks()
    fast = lampwork.compile(model, options={"cache": False})
    expected = answer(fast, X)
    assert lampwork.stats(fast)["breaks"]
    lampwork.save(fast, tmp_path / "it.lamp")
    again = Breaks()
    loaded = lampwork.load(tmp_path / "it.lamp", again)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert same(answer(loaded, X), expected)
    assert lampwork.stats(loaded)["captures"] == 0
    assert all(each.counters.captures == 0 for each in loaded.__lampwork__.continuations.values())
    again_loaded = lampwork.load(tmp_path / "it.lamp", Breaks())
    lampwork.reset()
    lampwork.save(again_loaded, tmp_path / "again.lamp")  # though no call has come to the place where it goes on
    last = lampwork.load(tmp_path / "again.lamp", Breaks())
    assert same(answer(last, X), expected)
    assert all(each.counters.captures == 0 for each in last.__lampwork__.continuations.values())
    with pytest.raises(lampwork.ArtifactError, match="cannot be loaded with strict=True: calls break"):
        lampwork.load(tmp_path / "it.lamp", again, strict=True)


def test_compiled_submodules_are_part_of_the_file(tmp_path):
    def made():
        torch.manual_seed(0)
        return ResNet().eval()

    model = made()
    for index in range(2):
        model.blocks[index] = lampwork.compile(model.blocks[index], options={"cache": False})
    expected = answer(model, IMAGES)
    lampwork.save(model, tmp_path / "it.lamp")
    plain = made()
    loaded = lampwork.load(tmp_path / "it.lamp", plain, strict=True)
    assert loaded is plain and isinstance(loaded.blocks[1], Block)
    assert same(answer(loaded, IMAGES), expected)
    assert [lampwork.stats(loaded.blocks[index])["captures"] for index in range(2)] == [0, 0]
    shorter = made()
    shorter.blocks = torch.nn.Sequential(shorter.blocks[0])
    with pytest.raises(lampwork.ArtifactError, match="submodule blocks.1, which the model lacks"):
        lampwork.load(tmp_path / "it.lamp", shorter)


def local_class():
    class Node:
        pass

    def makes(x):
        node = Node()
        node.value = x + 1
        return node

    return makes


def test_what_no_other_process_can_find_is_refused_when_it_is_saved(tmp_path):
    fast = lampwork.compile(local_class(), options={"cache": False})
    answer(fast, X)
    with pytest.raises(lampwork.ArtifactError, match="no entry of .* can be saved: .*Node"):
        lampwork.save(fast, tmp_path / "it.lamp")


def scaled_by(factor):
    def inner(x, y=2):
        return x * factor + y

    return inner


def test_functions_and_what_they_close_over(tmp_path):
    fast = lampwork.compile(scaled_by(3.0), options={"cache": False})
    fast(X)
    lampwork.save(fast, tmp_path / "it.lamp")
    loaded = lampwork.load(tmp_path / "it.lamp", scaled_by(3.0), strict=True)
    assert same(loaded(X), X * 3 + 2) and loaded.__name__ == "inner"
    with pytest.raises(lampwork.ArtifactError, match="was 3.0, is now 4.0"):
        lampwork.load(tmp_path / "it.lamp", scaled_by(4.0), strict=True)


def test_settings_are_those_of_then(tmp_path):
    model = Scaled()
    fast = lampwork.compile(model, fullgraph=True, dynamic=True, options={"recompile_limit": 3, "cache": False})
    answer(fast, X)
    lampwork.save(fast, tmp_path / "it.lamp")
    loaded = lampwork.load(tmp_path / "it.lamp", model)
    assert loaded.__lampwork__.settings == fast.__lampwork__.settings
    assert same(answer(loaded, torch.ones(5, 4)), answer(model, torch.ones(5, 4)))
    assert lampwork.stats(loaded)["captures"] == 0


def test_what_was_asked_for_the_wrong_way_is_told(saved, tmp_path):
    fast, _ = compiled(Scaled(), X)
    lampwork.package(fast, tmp_path / "package.lamp")
    with pytest.raises(lampwork.ArtifactError, match="is a package, which runs without the model"):
        lampwork.load(tmp_path / "package.lamp", Scaled())
    with pytest.raises(lampwork.ArtifactError, match=r"holds compiled code of a model.*lampwork.load\(.*, model\)"):
        lampwork.load(saved)
    with pytest.raises(lampwork.OptionError, match="weights are those of the model"):
        lampwork.load(saved, Scaled(), weights={})
    with pytest.raises(lampwork.OptionError, match="strict"):
        lampwork.load(saved, Scaled(), strict=1)
    with pytest.raises(TypeError, match="takes a module, not its class"):
        lampwork.load(saved, Scaled)
    assert callable(load_file)

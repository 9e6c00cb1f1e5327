"""What users call, through the whole pipeline."""

from __future__ import annotations

import copy
import pickle
import warnings

import pytest
import torch

import lampwork
from lampwork.errors import LampworkWarning, OptionError


def same(left, right):
    torch.testing.assert_close(left, right)


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first = torch.nn.Linear(8, 16)
        self.norm = torch.nn.LayerNorm(16)
        self.second = torch.nn.Linear(16, 8)
        self.scale = 1.0

    def forward(self, x, residual=None):
        y = self.second(torch.nn.functional.gelu(self.norm(self.first(x)))) * self.scale
        return y if residual is None else {"sum": y + residual, "parts": [y, residual]}


@pytest.fixture(autouse=True)
def no_grad():
    with torch.no_grad():
        yield


def test_a_function():
    fast = lampwork.compile(lambda x: (x + 1) * 2, fullgraph=True)
    x = torch.randn(8)
    same(fast(x), (x + 1) * 2)
    found = lampwork.stats(fast)
    assert found["native_kernels"] == 1 and found["extern_calls"] == {} and found["fallbacks"] == ()
    assert set(found["compile_seconds"]) >= {"capture", "schedule", "generate", "host"}


def test_as_a_decorator():
    @lampwork.compile
    def plain(x):
        """Doc."""
        return x * 2

    @lampwork.compile(fullgraph=True, mode="default")
    def with_arguments(x):
        return x * 2

    class Owner:
        factor = 3

        @lampwork.compile
        def method(self, x):
            return x * self.factor

    x = torch.randn(4)
    same(plain(x), x * 2)
    same(with_arguments(x), x * 2)
    same(Owner().method(x), x * 3)
    assert plain.__doc__ == "Doc." and plain.__name__ == "plain"
    assert lampwork.stats(plain)["captures"] == lampwork.stats(with_arguments)["captures"] == 1


def test_disable_returns_the_original():
    def program(x):
        return x

    assert lampwork.compile(program, disable=True) is program
    assert lampwork.compile(disable=True)(program) is program


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"mode": "fast"}, "unknown mode 'fast'; choose one of default"),
        ({"options": {"frieze": True}}, "unknown option 'frieze'; known options: freeze"),
        ({"options": {"freeze": 1}}, "must be of type bool"),
        ({"options": 3}, "must be a dict"),
        ({"fullgraph": 1}, "fullgraph must be True or False"),
        ({"options": {"recompile_limit": 0}}, "'recompile_limit' must be 1 or more"),
        ({"options": {"memory_budget": float("nan")}}, "'memory_budget' must be from 0 to 1"),
        ({"dynamic": "yes"}, "dynamic must be"),
        ({"dynamic": 1}, "dynamic must be"),
        ({"disable": 1}, "disable must be True or False"),
        ({"backend": 3}, "backend must be a name or a callable"),
    ],
)
def test_wrong_arguments(arguments, message):
    with pytest.raises(OptionError, match=message):
        lampwork.compile(lambda x: x, **arguments)


def test_an_unknown_backend_lists_the_known():
    with pytest.raises(OptionError, match="unknown backend 'nope'; choose 'lampwork' or one of .*inductor"):
        lampwork.compile(lambda x: x, backend="nope")


@pytest.mark.parametrize("thing", [3, "text", None, torch.ones(1)])
def test_what_cannot_be_called(thing):
    if thing is None:
        assert callable(lampwork.compile(None))
        return
    with pytest.raises(TypeError, match="lampwork.compile takes a function or a module"):
        lampwork.compile(thing)
    with pytest.raises(TypeError, match="lampwork.explain takes a function or a module"):
        lampwork.explain(thing)
    with pytest.raises(TypeError, match="lampwork.disable takes a function"):
        lampwork.disable(thing)
    with pytest.raises(TypeError, match="lampwork.assume_constant takes a function"):
        lampwork.assume_constant(thing)


def test_a_class_is_not_a_module():
    with pytest.raises(TypeError, match=r"not its class: lampwork.compile\(Model\(...\)\)"):
        lampwork.compile(Model)
    with pytest.raises(TypeError, match=r"not its class: lampwork.explain\(Model\(...\), ...\)"):
        lampwork.explain(Model, torch.ones(8))


def test_a_module_is_not_disabled():
    """A function in its place would hide its parameters from the module that it is put in."""
    with pytest.raises(TypeError, match="mark the `forward` of its class"):
        lampwork.disable(Model())


@pytest.mark.parametrize(
    ("dim", "limits", "message"),
    [
        ("a", {}, "a dimension is an integer"),
        (2, {}, "no dimension 2"),
        (0, {"min": "2"}, "min and max are integers"),
        (0, {"min": 8, "max": 16}, "not between min=8 and max=16"),
    ],
)
def test_wrong_marks(dim, limits, message):
    with pytest.raises(OptionError, match=message):
        lampwork.mark_dynamic(torch.ones(4, 4), dim, **limits)


def test_an_explanation_names_its_sections():
    with pytest.raises(KeyError, match="no section 'kernel'; there are .*kernels"):
        lampwork.explain(lambda x: x + 1, torch.ones(2))["kernel"]


def test_stats_of_something_else():
    with pytest.raises(TypeError, match="was not made by lampwork.compile"):
        lampwork.stats(lambda x: x)


def test_a_module():
    model = Model().eval()
    fast = lampwork.compile(model, fullgraph=True)
    x = torch.randn(4, 8)
    same(fast(x), model(x))
    found, expected = fast(x, residual=x), model(x, residual=x)
    assert list(found) == ["sum", "parts"] and found["parts"][1] is x
    same(found, expected)
    with torch.inference_mode():
        same(fast(x), model(x))
    assert list(fast.state_dict()) == list(model.state_dict()) and isinstance(fast, Model)
    assert lampwork.stats(fast)["fallbacks"] == ()


def test_changes_of_a_module_are_noticed():
    model = Model().eval()
    fast = lampwork.compile(model)
    x = torch.randn(4, 8)
    changes = [
        lambda: setattr(model, "scale", 2.0),
        lambda: model.first.weight.mul_(2),
        lambda: setattr(fast.first.weight, "data", torch.randn(16, 8)),
        lambda: setattr(model, "norm", torch.nn.Identity()),
        lambda: fast.second.register_forward_hook(lambda module, args, output: output + 1),
        lambda: setattr(model, "second", torch.nn.Linear(16, 8, bias=False)),
        lambda: model.double(),
    ]
    same(fast(x), model(x))
    for change in changes:
        change()
        x = x.to(model.first.weight.dtype)
        for _ in range(2):
            same(fast(x), model(x))


def test_copies_compile_on_their_own():
    fast = lampwork.compile(Model().eval())
    x = torch.randn(4, 8)
    expected = fast(x)
    for copied in (copy.deepcopy(fast), pickle.loads(pickle.dumps(fast))):
        same(copied(x), expected)
        assert lampwork.stats(copied)["calls"] == 1
    copied.first.weight.zero_()
    same(fast(x), expected)


def test_frozen_weights_that_are_replaced_are_noticed():
    model = torch.nn.Sequential(torch.nn.Linear(256, 256), torch.nn.GELU(), torch.nn.Linear(256, 256)).eval()
    fast = lampwork.compile(model, options={"freeze": True}, fullgraph=True)
    x = torch.randn(128, 256)
    for _ in range(2):
        torch.testing.assert_close(fast(x), model(x), rtol=1e-4, atol=1e-5)
    model[0].weight = torch.nn.Parameter(torch.randn(256, 256))
    torch.testing.assert_close(fast(x), model(x), rtol=1e-4, atol=1e-4)
    model[2].weight.data = torch.randn(256, 256)
    torch.testing.assert_close(fast(x), model(x), rtol=1e-4, atol=1e-2)
    found = lampwork.stats(fast)
    assert found["captures"] == 1 and found["fallbacks"] == ()


def test_frozen_batch_norm_follows_its_parameters():
    model = torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3), torch.nn.BatchNorm2d(8)).eval()
    model[1].running_mean.normal_()
    model[1].running_var.uniform_(0.5, 2)
    fast = lampwork.compile(model, options={"freeze": True}, fullgraph=True)
    x = torch.randn(2, 3, 16, 16)
    same(fast(x), model(x))
    assert fast.__lampwork__.entries[0].artifact.derived
    model[0].weight.data = torch.randn(8, 3, 3, 3)
    torch.testing.assert_close(fast(x), model(x), rtol=1e-4, atol=1e-4)
    model[1].bias = torch.nn.Parameter(torch.randn(8))
    torch.testing.assert_close(fast(x), model(x), rtol=1e-4, atol=1e-4)
    assert lampwork.stats(fast)["captures"] == 1


def test_results_may_be_kept():
    """Memory of large results is used again only when nobody holds it: the result, a view, an export."""
    fast = lampwork.compile(lambda x: x * 2, fullgraph=True)
    x = torch.ones(1 << 19)
    first = fast(x)
    address = first.data_ptr()
    view, exported = fast(x)[5:], fast(x).numpy()
    storage = fast(x).untyped_storage()
    for _ in range(5):
        later = fast(x * 3)
        assert later.data_ptr() != address
        assert (first == 2).all() and (view == 2).all() and (exported == 2).all() and (later == 6).all()
        assert torch.tensor([], dtype=torch.float32).set_(storage)[7] == 2
    del first, later
    assert any(fast(x).data_ptr() == address for _ in range(4))


def test_gradients_are_compiled():
    model = Model()
    fast = lampwork.compile(model)
    x = torch.randn(4, 8)
    with torch.enable_grad():
        fast(x).sum().backward()
        fast(x)
    assert model.first.weight.grad is not None
    found = lampwork.stats(fast)
    assert found["captures"] == 1 and not found["fallbacks"] and found["graphs"] == 1


def test_a_break_runs_the_call_eagerly(capsys):
    @lampwork.disable
    def say(text):
        print(text, end="")

    def program(x):
        say("seen")
        return x + 1

    fast = lampwork.compile(program)
    x = torch.randn(4)
    for _ in range(2):
        same(fast(x), x + 1)
    assert capsys.readouterr().out == "seenseen"
    record = lampwork.stats(fast)["breaks"][0]
    assert record.count == 2 and record.reason and str(record)
    with pytest.raises(lampwork.GraphBreak):
        lampwork.compile(program, fullgraph=True)(x)


def test_an_error_in_the_program_is_eagers():
    def program(table, index):
        return torch.nn.functional.embedding(index, table) * 2

    fast = lampwork.compile(program)
    table = torch.randn(4, 3)
    same(fast(table, torch.tensor([1, 2])), program(table, torch.tensor([1, 2])))
    with warnings.catch_warnings():
        warnings.simplefilter("error", LampworkWarning)
        with pytest.raises(IndexError, match="out of range"):
            fast(table, torch.tensor([1, 9]))


def test_a_callable_backend():
    graphs = []

    def backend(graph_module, example_inputs):
        graphs.append((graph_module, example_inputs))
        return graph_module.forward

    model = Model().eval()
    fast = lampwork.compile(model, backend=backend)
    x = torch.randn(4, 8)
    for _ in range(2):
        same(fast(x), model(x))
    ((graph_module, example_inputs),) = graphs
    assert isinstance(graph_module, torch.fx.GraphModule) and any(each is x for each in example_inputs)
    assert len([node for node in graph_module.graph.nodes if node.op == "placeholder"]) == len(example_inputs)


def test_a_named_backend():
    fast = lampwork.compile(lambda x: torch.relu(x) + 1, backend="eager")
    x = torch.randn(8)
    same(fast(x), torch.relu(x) + 1)
    assert lampwork.stats(fast)["captures"] == 1


def test_as_a_backend_of_the_frameworks_front_end():
    from lampwork.runtime.backend import lampwork_backend

    made = []

    def backend(graph_module, example_inputs):
        made.append(lampwork_backend(graph_module, example_inputs))
        return made[-1]

    model = Model().eval()
    fast = torch.compile(model, backend=backend)
    x = torch.randn(4, 8)
    for _ in range(2):
        same(fast(x), model(x))
    found = lampwork.stats(made[0])
    assert found["calls"] == 2 and found["entries"] == 1 and found["fallbacks"] == ()


def test_explain_names_every_stage():
    text = lampwork.explain(Model().eval(), torch.randn(4, 8))
    assert list(text)[:3] == ["summary", "fusion", "guards"]
    assert {"functional", "loops", "kernels", "host", "llvm", "seconds"} <= set(text)
    assert "addmm" in text["graph"] and "x is a Tensor float32[4, 8]" in text["guards"]
    assert "test_api.py" in str(text)


def test_explain_a_break():
    def program(x):
        open("/dev/null").close()
        return x

    text = lampwork.explain(program, torch.ones(2))
    assert "test_api.py" in text["breaks"]

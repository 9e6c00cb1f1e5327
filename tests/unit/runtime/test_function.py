"""The road from a call to an entry: limits, fall-backs, threads, modules. Entries are made by hand."""

from __future__ import annotations

import copy
import io
import pickle
import threading
import warnings

import pytest
import torch

import lampwork
from lampwork.config import make_settings
from lampwork.errors import CompileError, Diagnostic, GraphBreak, LampworkWarning
from lampwork.ir.region import RunEagerly
from lampwork.runtime import function as function_module
from lampwork.runtime.entry import Entry
from lampwork.runtime.function import CompiledFunction, is_compiling
from lampwork.runtime.launch.host import Rerun
from lampwork.runtime.module import compile_module
from lampwork.runtime.wrappers import wrap
from tests.unit.runtime import handmade


def program(x):
    """Adds one to what is positive."""
    return torch.relu(x) + 1


def by_hand(function, args, kwargs, settings, eagerly):
    return Entry(handmade.relu_plus_one(args[0].numel()), eagerly)


@pytest.fixture
def lenient(monkeypatch):
    """Failures of the compiler fall back, as they do for users."""
    monkeypatch.setattr(
        function_module,
        "environment",
        type(function_module.environment)(**{**vars(function_module.environment), "strict": False}),
    )


def compiled(make_entry=by_hand, target=program, **options):
    return wrap(CompiledFunction(target, make_settings(options=options), make_entry))


def same(left, right):
    torch.testing.assert_close(left, right, rtol=0, atol=0)


def test_a_call_and_its_counters():
    fast = compiled()
    x = torch.randn(8)
    for _ in range(3):
        same(fast(x), program(x))
    found = lampwork.stats(fast)
    assert (found["captures"], found["entries"], found["calls"]) == (1, 1, 3)
    assert found["extern_calls"] == {"aten::relu": 1, "aten::add.Tensor": 1} and found["fallbacks"] == ()
    with pytest.raises(TypeError):
        found["calls"] = 0


def test_an_entry_per_shape_most_recently_used_first():
    fast = compiled()
    for size in (3, 4, 3, 5, 3):
        x = torch.randn(size)
        same(fast(x), program(x))
    found = lampwork.stats(fast)
    assert found["captures"] == found["entries"] == 3
    assert fast.__lampwork__.entries[0].artifact.guards[1].test.shape == (3,)


def test_recompile_limit_names_the_culprit_once():
    fast = compiled(recompile_limit=2)
    with pytest.warns(LampworkWarning, match=r"recompile_limit.*argument 0 shape was \[4\], is now \[5\]") as seen:
        for size in (3, 4, 5, 6, 7):
            x = torch.randn(size)
            same(fast(x), program(x))
    assert len(seen) == 1
    found = lampwork.stats(fast)
    assert found["captures"] == 2
    assert [(record.id, record.count) for record in found["fallbacks"]] == [("recompile-limit", 3)]


def test_wrapped_like_the_original():
    fast = compiled()
    assert fast.__name__ == "program" and fast.__doc__ == program.__doc__ and fast.__wrapped__ is program

    class Owner:
        method = compiled(
            lambda function, args, kwargs, settings, eagerly: Entry(eager_artifact(), eagerly),
            lambda self, x: (self, x),
        )

    owner = Owner()
    assert owner.method(3) == (owner, 3)


def eager_artifact(is_break=False):
    artifact = handmade.relu_plus_one()
    outcome = RunEagerly("some-id", "some reason", is_break=is_break)
    return type(artifact)(**{**vars(artifact), "outcome": outcome, "guards": ()})


def test_an_entry_that_runs_eagerly_is_counted_and_not_captured_again():
    fast = compiled(lambda *rest: Entry(eager_artifact(True), rest[-1]))
    for _ in range(3):
        same(fast(torch.ones(2)), program(torch.ones(2)))
    found = lampwork.stats(fast)
    assert found["captures"] == 1 and found["fallbacks"][0].count == 3 and found["breaks"][0].reason == "some reason"


def test_a_break_without_guards_is_tried_a_few_times():
    def broken(*_):
        raise GraphBreak(Diagnostic("some-break", "not in a graph", remedy="Do otherwise."))

    fast = compiled(broken)
    for _ in range(10):
        same(fast(torch.ones(2)), program(torch.ones(2)))
    found = lampwork.stats(fast)
    assert found["captures"] == function_module.CAPTURE_ATTEMPTS and found["entries"] == 0
    assert found["breaks"][0].count == found["fallbacks"][0].count == 10


def test_fullgraph_raises_the_break():
    def broken(*_):
        raise GraphBreak(Diagnostic("some-break", "not in a graph", remedy="Do otherwise."))

    fast = wrap(CompiledFunction(program, make_settings(fullgraph=True), broken))
    with pytest.raises(GraphBreak, match="not in a graph.*Do otherwise"):
        fast(torch.ones(2))


def test_a_failing_compiler_is_one_warning_with_a_reproducer(lenient):
    def failing(*_):
        raise CompileError("lower", "no rule", "aten::thing")

    fast = compiled(failing)
    with pytest.warns(LampworkWarning, match="stage lower .aten::thing.*Reproducer") as seen:
        for _ in range(3):
            same(fast(torch.ones(2)), program(torch.ones(2)))
    assert len(seen) == 1
    path = str(seen[0].message).rpartition("Reproducer: ")[2]
    text = open(path).read()
    compile(text, path, "exec")
    assert "LAMPWORK_STRICT" in text and "no rule" in text
    page = "docs/diagnostics/compiler-failed.md"
    assert page in text and page in str(seen[0].message)
    assert lampwork.stats(fast)["fallbacks"][0].id == "compiler-failed"


def test_a_failing_compiler_raises_in_strict_mode():
    def failing(*_):
        raise CompileError("lower", "no rule")

    with pytest.raises(CompileError, match="no rule"):
        compiled(failing)(torch.ones(2))


def test_a_program_that_fails_before_it_wrote_runs_eagerly(lenient):
    def failing(*rest):
        entry = by_hand(*rest)
        artifact = entry.artifact

        def run(values, generation=None):
            raise Rerun from MemoryError("no memory")

        return Entry(artifact, rest[-1], run)

    fast = compiled(failing)
    with pytest.warns(LampworkWarning, match="no memory"):
        same(fast(torch.ones(2)), program(torch.ones(2)))
    assert lampwork.stats(fast)["fallbacks"][0].id == "run-failed"


def test_an_error_of_the_program_itself_is_eagers():
    def failing(x):
        raise ZeroDivisionError("the program's own")

    def make(*rest):
        def run(values, generation=None):
            raise Rerun from RuntimeError("ours")

        return Entry(handmade.relu_plus_one(), rest[-1], run)

    fast = compiled(make, failing)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(ZeroDivisionError, match="own"):
            fast(torch.ones(8))


def test_a_device_without_a_back_end_is_one_warning():
    fast = compiled()
    x = torch.ones(8, device="meta")
    with pytest.warns(LampworkWarning, match="device meta.*Supported devices: cpu") as seen:
        assert fast(x).device.type == "meta"
        fast(x)
    assert len(seen) == 1 and lampwork.stats(fast)["captures"] == 0


def test_under_a_mode_calls_run_eagerly():
    from torch.utils._python_dispatch import TorchDispatchMode

    class Mode(TorchDispatchMode):
        def __torch_dispatch__(self, operator, types, args=(), kwargs=None):
            return operator(*args, **(kwargs or {}))

    fast = compiled()
    with Mode():
        same(fast(torch.ones(8)), program(torch.ones(8)))
    assert lampwork.stats(fast)["fallbacks"][0].id == "modes-active"


def test_a_compiled_function_inside_a_capture_runs_as_written():
    inner = compiled()

    def make(*rest):
        assert is_compiling()
        inner(torch.ones(8))
        return by_hand(*rest)

    outer = compiled(make)
    outer(torch.ones(8))
    assert lampwork.stats(inner)["captures"] == 0 and not is_compiling()


def test_threads_share_entries():
    fast = compiled(recompile_limit=100)
    inputs = [torch.randn(size) for size in range(1, 9)]
    failures = []

    def work():
        for _ in range(20):
            for x in inputs:
                if not torch.equal(fast(x), program(x)):
                    failures.append(x.numel())

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == [] and lampwork.stats(fast)["captures"] == len(inputs)


def test_reset_forgets():
    fast = compiled()
    fast(torch.ones(8))
    lampwork.reset()
    assert lampwork.stats(fast)["entries"] == lampwork.stats(fast)["calls"] == 0
    same(fast(torch.ones(8)), program(torch.ones(8)))


def test_results_in_inference_mode_are_eagers():
    fast = compiled()
    x = torch.randn(8)
    first = fast(x)
    with torch.inference_mode():
        inside = fast(x)
    assert inside.is_inference() and not first.is_inference()
    same(fast(x), program(x))


# Modules ---------------------------------------------------------------------------------------------------------------


class Positive(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(2, 2)
        self.register_buffer("count", torch.zeros(()))

    def forward(self, x):
        return program(x)


def again(module):
    return compile_module(module, CompiledFunction(module, make_settings(), by_hand), again)


def test_a_compiled_module_is_the_module():
    module = Positive()
    fast = again(module)
    same(fast(torch.ones(8)), program(torch.ones(8)))
    assert isinstance(fast, Positive) and type(fast).__name__ == "Positive"
    assert list(fast.state_dict()) == list(module.state_dict()) == ["count", "layer.weight", "layer.bias"]
    assert fast.layer is module.layer and lampwork.stats(fast)["calls"] == 1
    fast.eval()
    assert not module.training and not module.layer.training
    module.extra = 3
    assert fast.extra == 3
    fast.register_forward_hook(lambda *_: None)
    assert len(module._forward_hooks) == 1
    del fast.extra
    assert not hasattr(module, "extra")
    fast.load_state_dict(module.state_dict())
    assert [name for name, _ in fast.named_modules()] == ["", "layer"]


def test_copies_of_a_compiled_module():
    fast = again(Positive())
    for copied in (copy.deepcopy(fast), pickle.loads(pickle.dumps(fast))):
        assert isinstance(copied, Positive) and copied.layer is not fast.layer
        same(copied(torch.ones(8)), program(torch.ones(8)))
        assert lampwork.stats(copied)["calls"] == 1 and lampwork.stats(fast)["calls"] == 0
    file = io.BytesIO()
    torch.save(fast, file)
    file.seek(0)
    same(torch.load(file, weights_only=False).layer.weight, fast.layer.weight)


def test_a_compiled_module_inside_another():
    outer = torch.nn.Sequential(again(Positive()))
    assert "0.layer.weight" in outer.state_dict()
    same(outer(torch.ones(8)), program(torch.ones(8)))
    assert lampwork.stats(outer[0])["calls"] == 1


def test_a_module_with_slots_is_refused():
    class Slotted(torch.nn.Module):
        __slots__ = ("extra",)

    with pytest.raises(TypeError, match="__slots__"):
        again(Slotted())

"""What docs/from-torch-compile.md says, run. What it says of GPUs is tested in tests/gpu."""

from __future__ import annotations

import binascii
import inspect
import os
import re
import subprocess
import sys
import zlib
from pathlib import Path

import pytest
import torch

import lampwork
from lampwork.config import MODES, Options

PAGE = (Path(lampwork.__file__).parents[1] / "docs" / "from-torch-compile.md").read_text()


@pytest.fixture(autouse=True)
def no_grad():
    with torch.no_grad():
        yield


def compiled(function, **settings):
    settings["options"] = {"cache": False, **settings.get("options", {})}
    return lampwork.compile(function, **settings)


def captures(function, *calls, **settings):
    """How many captures these calls take."""
    fast = compiled(function, **settings)
    for args in calls:
        torch.testing.assert_close(fast(*args), function(*args))
    return lampwork.stats(fast)["captures"]


def breaks(function, *args):
    fast = compiled(function)
    torch.testing.assert_close(fast(*args), function(*args))
    return [record.id for record in lampwork.stats(fast)["breaks"]]


X = torch.linspace(-1, 1, 32).view(4, 8)
branch = lambda x: x * 2 if x.sum() > 0 else x * 3  # a graph break
smooth = lambda x: x.sin() + 1


# Parameters ----------------------------------------------------------------------------------------------------------


def test_every_parameter_of_the_peer_is_told_of():
    ours, theirs = (set(inspect.signature(each).parameters) for each in (lampwork.compile, torch.compile))
    table = PAGE.partition("## Parameters")[2].partition("## ")[0]
    assert all(re.search(rf"`{name}\b", table) for name in theirs)
    for name in theirs - ours - {"model"}:
        with pytest.raises(TypeError):
            lampwork.compile(smooth, **{name: None})
    assert all(f'"{mode}"' in table for mode in MODES)


def test_what_stays_in_a_graph_with_nothing_to_set(capsys):
    def program(x):
        print("rows:", x.shape[0])
        return x * x.sum().item() + x[x > 0].numel()

    compiled(program, fullgraph=True)(X)
    assert capsys.readouterr().out == "rows: 4\n"


def test_what_raises():
    with pytest.raises(lampwork.GraphBreak):
        compiled(branch, fullgraph=True)(X)
    for settings in ({"mode": "lite"}, {"backend": None}, {"backend": "no-such"}, {"options": {"max_autotune": True}},
                     {"options": {"guard_filter_fn": torch.compiler.skip_all_guards_unsafe}}):  # fmt: skip
        with pytest.raises(lampwork.OptionError):
            lampwork.compile(smooth, **settings)
    with pytest.raises(TypeError):
        lampwork.compile(torch.nn.Linear)
    assert compiled(smooth, mode="max-autotune", options={"freeze": True})(X).shape == X.shape
    assert lampwork.compile(smooth, disable=True) is smooth


def test_sizes_and_numbers_that_vary():
    sizes = [(torch.ones(n, 8),) for n in (3, 4, 5)]
    assert [captures(smooth, *sizes, dynamic=dynamic) for dynamic in (None, True, False)] == [2, 1, 3]
    floats = [(X, k) for k in (2.0, 3.0, 4.0)]
    assert captures(lambda x, k: x * k, *floats) == 2 and captures(lambda x, k: x * k, *floats, dynamic=False) == 3


def test_a_compiled_module():
    module = torch.nn.Linear(8, 8)
    fast = compiled(module)
    assert isinstance(fast, torch.nn.Linear) and list(fast.state_dict()) == ["weight", "bias"]
    assert not hasattr(fast, "_orig_mod")


def test_options_named_in_the_page():
    for name in re.findall(r'options=\{"(\w+)"', PAGE):
        assert name in {*Options.__dataclass_fields__}


# torch.compiler ------------------------------------------------------------------------------------------------------


def test_disable():
    for mark in (torch.compiler.disable, torch.compiler.disable(recursive=False), lampwork.disable):
        marked = mark(lambda x: x * 3)
        assert breaks(lambda x: marked(x + 1).sin(), X) == ["disabled"]


#: Marked functions stay alive: the peer knows them by their addresses, which others would get.
KEPT = []


def allowed_in_graph(function):
    KEPT.append(torch.compiler.allow_in_graph(function))
    return function


def test_what_is_allowed_in_a_graph_runs_while_capturing():
    told = []
    allowed = allowed_in_graph(lambda x: (told.append(1), x * 2)[1])
    branching = allowed_in_graph(lambda x: branch(x))
    fast = compiled(lambda x: allowed(x) + 1, fullgraph=True)
    assert all(torch.equal(fast(X), X * 2 + 1) for _ in range(3)) and len(told) == 1
    assert breaks(lambda x: branching(x) + 1, X) == ["data-dependent"]


def test_a_mark_of_our_own_allows_in_a_graph():
    told = []

    @lampwork.allow_in_graph
    def allowed(x, factor, *, options):
        told.append(1)
        return {"y": [x * factor + options[0]], "n": 3}

    fast = compiled(lambda x: allowed(x, 2.0, options=(1, None))["y"][0] + 1, fullgraph=True)
    assert all(torch.equal(fast(X), X * 2 + 2) for _ in range(3)) and len(told) == 1
    weight = torch.ones(8, 8, requires_grad=True)
    product = lampwork.allow_in_graph(lambda x, w: (x @ w).relu())
    with torch.enable_grad():
        compiled(lambda x, w: product(x, w).sum(), fullgraph=True)(X, weight).backward()
        assert torch.equal(weight.grad, torch.autograd.grad((X @ weight).relu().sum(), weight)[0])
    for other in (torch.relu, torch.nn.Linear, 3):
        with pytest.raises(TypeError, match="a function written in Python"):
            lampwork.allow_in_graph(other)


def hqx(data, value):
    for byte in data:
        value ^= byte << 8
        for _ in range(8):
            value = value << 1 ^ (0x1021 if value & 0x8000 else 0)
        value &= 0xFFFF
    return value


def test_substitutes_are_followed():
    program = lambda x: x + binascii.crc_hqx(b"abc", 0) % 7
    assert breaks(program, X) == ["unknown-native"]
    globals()["hqx"] = torch.compiler.substitute_in_graph(binascii.crc_hqx, skip_signature_check=True)(hqx)
    fast = compiled(program, fullgraph=True)
    assert torch.equal(fast(X), program(X))
    hqx.__torch_dynamo_polyfill__ = lambda data, value: 1
    assert torch.equal(fast(X), X + 1) and lampwork.stats(fast)["captures"] == 2  # its code is guarded


def test_substitutes_without_a_name_are_not_followed():
    @torch.compiler.substitute_in_graph(zlib.adler32, skip_signature_check=True)
    def substitute(data):
        return 1

    assert breaks(lambda x: x + zlib.adler32(b"abc") % 7, X) == ["unknown-native"]


def test_results_that_are_assumed_constant():
    for mark in (torch.compiler.assume_constant_result, lampwork.assume_constant):
        value = [2.0]

        @mark
        def constant():
            return value[0]

        fast = compiled(lambda x: x * constant())
        fast(X)
        value[0] = 5.0
        assert torch.equal(fast(X), X * 2)


def test_is_compiling():
    for asked, expected in ((torch.compiler.is_compiling, 1), (torch.compiler.is_dynamo_compiling, 1),
                            (torch.compiler.is_exporting, 0)):  # fmt: skip
        program = lambda x: x * 0 + int(asked())
        assert compiled(program)(X)[0, 0] == expected
    program = lambda x: x * 0 + int(torch.compiler.is_compiling())
    assert compiled(program, options={"numerics": "eager"})(X)[0, 0] == 0


def test_stances():
    fast = compiled(smooth)
    with torch.compiler.set_stance("fail_on_recompile"), pytest.raises(lampwork.RecompileError):
        fast(X)
    with torch.compiler.set_stance("default", force_backend="eager"):
        fast(X)
    assert lampwork.stats(fast)["native_kernels"] == 1
    with torch.compiler.set_stance(skip_guard_eval_unsafe=True):
        assert torch.equal(fast(torch.ones(5, 8)), smooth(torch.ones(5, 8)))


def test_reset():
    fast = compiled(smooth)
    fast(X)
    torch.compiler.reset()
    assert lampwork.stats(fast)["entries"] == 1
    lampwork.reset()
    assert lampwork.stats(fast)["entries"] == 0


def test_what_libraries_tell_dynamo():
    config = torch._dynamo.config

    def write(x):
        before, config.cache_size_limit = config.cache_size_limit, 99
        y, seen = x * config.cache_size_limit, config.cache_size_limit
        config.cache_size_limit = before
        return y, seen

    def patch(x):
        with config.patch(capture_scalar_outputs=True):
            y = x + int(config.capture_scalar_outputs)
        return y, config.capture_scalar_outputs

    def marks(x):
        y, z = x * 2, x + 1
        torch._dynamo.mark_static_address(y)
        torch._dynamo.maybe_mark_dynamic(z, 0)
        return y, z, torch._dynamo.is_compiling()

    def reset(x):
        y = x + 1
        torch._dynamo.reset()
        return y * 2

    limit = config.cache_size_limit
    assert breaks(write, X) == [] and breaks(reset, X) == ["native-call"]
    fast = compiled(patch)
    for _ in range(2):
        torch.testing.assert_close(fast(X), patch(X))
    assert config.cache_size_limit == limit
    fast = compiled(marks, fullgraph=True)
    (y, z, asked), (other_y, other_z, _) = fast(X), marks(X)
    assert asked and vars(y) == vars(other_y) and vars(z) == vars(other_z)


def test_what_is_inlined_or_means_nothing():
    region = torch.compiler.nested_compile_region(lambda x: x.sin() * 2)
    numeric = torch.compiler.wrap_numpy(lambda a: a + 1)

    def program(x):
        torch.compiler.cudagraph_mark_step_begin()
        torch._dynamo.graph_break()
        return numeric(region(region(x)))

    assert breaks(program, X) == []
    with torch._dynamo.error_on_graph_break(True):
        assert breaks(branch, X) == ["data-dependent"]


def test_marks_of_the_peer():
    for mark in (torch._dynamo.mark_dynamic, torch._dynamo.maybe_mark_dynamic):
        x = torch.ones(4, 8)
        mark(x, 0)
        assert captures(smooth, (x,), (torch.ones(7, 8),)) == 1
    sizes = [torch.ones(n, 8) for n in (3, 4, 5)]
    for x in sizes:
        torch._dynamo.mark_static(x, 0)
    assert captures(smooth, *((x,) for x in sizes)) == 3


# Settings and variables ----------------------------------------------------------------------------------------------


def test_settings_of_the_peer():
    texts = [(X, "a" * length) for length in range(1, 4)]
    changed = {"recompile_limit": 1, "disable": True, "automatic_dynamic_shapes": False, "specialize_float": True}
    with torch._dynamo.config.patch(**changed):
        assert captures(lambda x, text: x * len(text), *texts) == 3
        assert captures(lambda x, k: x * k, (X, 2.0), (X, 3.0), (X, 4.0)) == 2
    with torch._dynamo.config.patch(suppress_errors=True), pytest.raises(lampwork.GraphBreak):
        compiled(branch, fullgraph=True)(X)
    with torch._dynamo.config.patch(error_on_recompile=True):
        fast = compiled(smooth)
        fast(X)
        with pytest.raises(lampwork.RecompileError):
            fast(torch.ones(2, 3, 4))


def test_variables(tmp_path):
    program = (
        "import torch, lampwork\n"
        "fast = lampwork.compile(lambda x: x * 2 if x.sum() > 0 else x)\n"
        "fast(torch.ones(3)); print(lampwork.stats(fast)['captures'])"
    )
    peers = {"TORCH_COMPILE_DISABLE": "1", "TORCHDYNAMO_DISABLE": "1", "TORCHINDUCTOR_FORCE_DISABLE_CACHES": "1"}
    known = {**os.environ, **peers, "LAMPWORK_DEBUG": "1", "LAMPWORK_CACHE_DIR": str(tmp_path / "cache")}
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=known, check=True)
    assert done.stdout == "2\n" and "breaks there" in done.stderr
    assert list((tmp_path / "cache").rglob("*"))


# Used together, and as a back end ------------------------------------------------------------------------------------


def test_used_together():
    peer = torch.compile(smooth, backend="eager")
    outer = compiled(lambda x: peer(x) * 2, fullgraph=True)
    torch.testing.assert_close(outer(X), smooth(X) * 2)
    assert lampwork.stats(outer)["native_kernels"] == 1

    inner = compiled(smooth)
    torch.testing.assert_close(torch.compile(lambda x: inner(x) * 2, backend="eager")(X), smooth(X) * 2)
    assert lampwork.stats(inner)["captures"] == 0
    outer = compiled(lambda x: inner(x) * 2, fullgraph=True)
    torch.testing.assert_close(outer(X), smooth(X) * 2)
    assert lampwork.stats(inner)["captures"] == 0 and lampwork.stats(outer)["captures"] == 1

    module = compiled(torch.compile(torch.nn.Linear(8, 8), backend="eager"))
    assert type(module).__name__ == "OptimizedModule" and module(X).shape == X.shape


def test_as_a_back_end():
    assert "lampwork" in torch.compiler.list_backends()
    module = torch.nn.Linear(8, 8)
    peer = torch.compile(module, backend="lampwork", options={"freeze": True})
    torch.testing.assert_close(peer(X), module(X))
    assert list(peer.state_dict()) == ["_orig_mod.weight", "_orig_mod.bias"]
    module.compile(backend="lampwork", mode="reduce-overhead")
    torch.testing.assert_close(module(X), torch.nn.functional.linear(X, module.weight, module.bias))
    with pytest.raises(TypeError):
        lampwork.stats(torch.compile(smooth, backend="lampwork"))
    torch.compiler.set_default_backend("lampwork")
    try:
        torch.testing.assert_close(torch.compile(smooth)(X), smooth(X))
    finally:
        torch.compiler.set_default_backend("inductor")
    with pytest.raises(Exception, match="unknown option 'max_autotune'"):
        torch.compile(smooth, backend="lampwork", options={"max_autotune": True})(X)

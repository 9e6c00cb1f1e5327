"""Everything before the schedule, on a real GPU: `python tests/gpu/capture.py [--tiny | --batch] [MODEL ...]`.

For each model of the zoo, moved to the GPU: capture, the functional graph and `Lowered` are made, the graph is run with
real tensors (one ATen call per node) and compared with eager. Prints per model what was recorded, what differs from
what the fakes said (dtype, shape, strides, device), and the error of the results. Then small programs about devices.
"""

from __future__ import annotations

import collections
import operator
import os
import sys
import time
import traceback
from typing import Any

os.environ.setdefault("LAMPWORK_STRICT", "1")
os.environ.setdefault("LAMPWORK_VERIFY", "1")
sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))

import torch
import torch.nn.functional as F

from lampwork import _torch
from lampwork.benchmark import zoo
from lampwork.capture.capture import capture
from lampwork.config import make_settings
from lampwork.debug.interpret.graphs import run_functional
from lampwork.errors import GraphBreak
from lampwork.graph.prepare import prepare
from lampwork.ir.program import Extern
from lampwork.ir.verify import verify_lowered
from lampwork.lower import lower
from lampwork.runtime.guards.failures import explain_failure
from lampwork.runtime.guards.interpreter import Scope, read
from lampwork.runtime.launch.prepacked import derive
from tests.capture_support import Builder

failures: list[str] = []


def check(functional: Any, inputs: list[Any]) -> list[str]:
    """Where real results differ in metadata from what the fakes said."""
    differences: collections.Counter[str] = collections.Counter()
    values: dict[Any, Any] = {}
    arguments = iter([*inputs, *[derive(recipe, inputs) for recipe in functional.derived]])

    def compare(node: Any, real: Any, said: Any) -> None:
        if isinstance(real, torch.Tensor) and isinstance(said, torch.Tensor):
            for name in ("dtype", "shape", "device"):
                if getattr(real, name) != getattr(said, name):
                    differences[f"{node.target} {name}: {getattr(real, name)}, fake {getattr(said, name)}"] += 1
            if real.stride() != said.stride():
                differences[f"{node.target} strides of {list(real.shape)}: {real.stride()}, fake {said.stride()}"] += 1
        elif isinstance(real, torch.Tensor) != isinstance(said, torch.Tensor):
            differences[f"{node.target}: {type(real).__name__}, fake {type(said).__name__}"] += 1

    with torch.no_grad(), _torch.below_autograd():
        for node in functional.graph.nodes:
            if node.op == "placeholder":
                values[node] = next(arguments)
            elif node.op == "get_attr":
                values[node] = node.meta["constant"].to(node.meta["val"].device, copy=True)
            elif node.op == "call_function":
                args = torch.fx.map_arg(node.args, values.__getitem__)
                kwargs = torch.fx.map_arg(node.kwargs, values.__getitem__)
                values[node] = real = node.target(*args, **kwargs)
                if node.target is operator.getitem:
                    compare(node, real, node.meta["val"])
                elif isinstance(real, torch.Tensor):
                    compare(node, real, node.meta["val"])
            else:
                continue
            for each in node.all_input_nodes:  # memory of the full models
                if all(user in values for user in each.users):
                    values[each] = None if each.op == "call_function" else values[each]
    return [f"{text} (x{count})" for text, count in differences.items()]


def tensors(value: Any, found: list[torch.Tensor], seen: set[int]) -> list[torch.Tensor]:
    if id(value) in seen:
        return found
    seen.add(id(value))
    if isinstance(value, torch.Tensor):
        found.append(value)
    elif isinstance(value, dict):
        for each in value.values():
            tensors(each, found, seen)
    elif isinstance(value, (list, tuple)):
        for each in value:
            tensors(each, found, seen)
    elif hasattr(value, "__dict__"):
        tensors(vars(value), found, seen)
    return found


def run(
    name: str, function: Any, args: tuple, kwargs: dict | None = None, freeze: bool = False, tol: float = 2e-2
) -> None:
    kwargs = kwargs or {}
    settings = make_settings(options={"freeze": freeze})
    try:
        with torch.no_grad():
            eager = function(*args, **kwargs)
            start = time.perf_counter()
            region = capture(function, args, kwargs, settings)
            captured = time.perf_counter()
            functional = prepare(region, settings)
            prepared = time.perf_counter()
            lowered = lower(functional, settings)
            done = time.perf_counter()
            verify_lowered(lowered)
            reason = explain_failure(region.guards, function, args, kwargs)
            assert not reason, reason
            scope = Scope(function, args, kwargs)
            inputs = [read(source, scope) for source in region.inputs]
            differences = check(functional, inputs)
            results = run_functional(functional, inputs)
            builder = Builder(region, scope, results)
            builder.prepare()
            outcome = builder.value(region.outcome.value)
        worst, notes = 0.0, []
        left, right = tensors(outcome, [], set()), tensors(eager, [], set())
        if len(left) != len(right):
            notes.append(f"{len(left)} results, eager has {len(right)}")
        for mine, theirs in zip(left, right):
            for attribute in ("dtype", "shape", "device"):
                if getattr(mine, attribute) != getattr(theirs, attribute):
                    notes.append(f"result {attribute} {getattr(mine, attribute)}, eager {getattr(theirs, attribute)}")
            if mine.stride() != theirs.stride():
                notes.append(f"result strides {mine.stride()}, eager {theirs.stride()}")
            if mine.shape == theirs.shape and mine.numel():
                a, b = mine.double().cpu(), theirs.double().cpu()
                worst = max(worst, float((a - b).abs().max() / (b.abs().max() + 1e-12)))
        externs = collections.Counter(item.op.removeprefix("aten::") for item in lowered.items if type(item) is Extern)
        foreign = [buffer.name for buffer in lowered.buffers.values() if buffer.device]
        attention = sorted({op for op in externs if "attention" in op})
        times = f"capture {captured - start:.3f} prepare {prepared - captured:.3f} lower {done - prepared:.3f} s"
        print(f"{name}: {len(list(region.graph.nodes))} nodes, {len(lowered.items)} items, device {lowered.device}, "
              f"{times}, error {worst:.1e}")  # fmt: skip
        print(f"    externs {dict(externs)}")
        if attention:
            print(f"    attention {attention}")
        if foreign:
            print(f"    elsewhere {foreign}")
        for text in (*notes, *differences):
            print(f"    DIFFERS {text}")
        if worst > tol or notes:
            failures.append(name)
    except GraphBreak as stop:
        print(f"{name}: BREAK {stop}")
    except Exception as error:
        failures.append(name)
        print(f"{name}: FAILED {type(error).__name__}: {error}")
        traceback.print_exc(limit=-4)
    sys.stdout.flush()


def on_cpu() -> None:
    """Whether this Python and this torch work at all."""
    import lampwork

    for name in ("mlp", "bert"):
        try:
            workload = zoo.build(name, size="tiny")
            with torch.no_grad():
                expected = tensors(workload.function(*workload.args), [], set())
                compiled = lampwork.compile(workload.function)
                found = tensors(compiled(*workload.args), [], set())
                found = tensors(compiled(*workload.args), [], set())
            error = max(float((a - b).abs().max()) for a, b in zip(found, expected))
            print(f"cpu {name}: error {error:.1e}; {compiled.__lampwork__.counters}"[:600])
        except Exception as error:
            failures.append(f"cpu {name}")
            print(f"cpu {name}: FAILED {type(error).__name__}: {error}")
            traceback.print_exc(limit=-6)


def small_programs() -> None:
    cuda = torch.device("cuda", 0)
    x = torch.randn(4, 16, device=cuda)
    half = torch.randn(2, 8, 64, 64, device=cuda, dtype=torch.bfloat16)
    mask = torch.ones(2, 1, 64, 64, device=cuda, dtype=torch.bool).tril()
    image = torch.randn(2, 32, 16, 16, device=cuda, dtype=torch.bfloat16)
    convolution = torch.nn.Conv2d(32, 64, 3, padding=1).cuda().bfloat16()
    depthwise = torch.nn.Conv2d(32, 32, 3, padding=1, groups=32).cuda().bfloat16()
    last = torch.channels_last
    norm = torch.nn.Sequential(torch.nn.Conv2d(32, 64, 3), torch.nn.BatchNorm2d(64), torch.nn.ReLU()).cuda().eval()
    scalar = torch.tensor(2.5)

    def autocast(x: torch.Tensor) -> torch.Tensor:
        with torch.autocast("cuda", torch.bfloat16):
            return x @ x.t() + 1

    def constants(x: torch.Tensor) -> torch.Tensor:
        return (
            x * torch.tensor([1.0] * 16, device=x.device)
            + torch.arange(16).to(x.device)
            + torch.zeros(16, device="cuda")
        )

    sdpa = F.scaled_dot_product_attention
    programs: dict[str, tuple[Any, tuple]] = {
        "constants": (constants, (x,)),
        "autocast": (autocast, (x,)),
        "cpu scalar input": (lambda x, s: x * s + 1, (x, scalar)),
        "cpu result": (lambda x: (x.relu().cpu(), x + 1), (x,)),
        "cpu input moved": (lambda x, y: x + y.to(x.device), (x, torch.randn(4, 16))),
        "both devices": (lambda x, y: (x + 1, (y * 2).sum()), (x, torch.randn(4, 16))),
        "current device": (lambda x: x + torch.ones(16, device=f"cuda:{torch.cuda.current_device()}"), (x,)),
        "cuda()": (lambda x, y: x + y.cuda(), (x, torch.randn(16))),
        "index from cpu": (lambda x: x[torch.tensor([0, 2])], (x,)),
        "index from cpu input": (lambda x, i: x[i], (x, torch.tensor([0, 2]))),
        "tf32 flag": (lambda x: x + int(torch.backends.cuda.matmul.allow_tf32), (x,)),
        "capability": (lambda x: x + torch.cuda.get_device_capability()[0], (x,)),
        "in place": (lambda x: x.clone().add_(1).mul_(2).view(2, -1), (x,)),
        "layer norm, rms norm": (lambda x: F.rms_norm(F.layer_norm(x, (16,)), (16,)), (x,)),
        "dropout": (lambda x: F.dropout(x, 0.0) + F.dropout(x, 0.5, training=False), (x,)),
        "sdpa": (lambda q: sdpa(q, q, q), (half,)),
        "sdpa causal": (lambda q: sdpa(q, q, q, is_causal=True), (half,)),
        "sdpa transposed": (lambda q: sdpa(q.transpose(1, 2), q.transpose(1, 2), q.transpose(1, 2)), (half,)),
        "sdpa mask": (lambda q, m: sdpa(q, q, q, m), (half, mask)),
        "sdpa odd mask": (lambda q, m: sdpa(q[:, :, :63], q[:, :, :61], q[:, :, :61], m[:, :, :63, :61]), (half, mask)),
        "sdpa float32": (lambda q: sdpa(q.float(), q.float(), q.float()), (half,)),
        "sdpa width 60": (lambda q: sdpa(q[..., :60], q[..., :60], q[..., :60]), (half,)),
        "sdpa value width": (lambda q: sdpa(q, q, q[..., :32]), (half,)),
        "sdpa groups": (lambda q: sdpa(q, q[:, :2], q[:, :2], enable_gqa=True), (half,)),
        "sdpa 3d": (lambda q: sdpa(q[0], q[0], q[0]), (half,)),
        "sdpa fused qkv": (lambda q: sdpa(*q.reshape(2, 64, 8, 64).transpose(1, 2).split(4, 1), q[:, :4]), (half,)),
        "convolution": (convolution, (image,)),
        "convolution channels last": (convolution, (image.to(memory_format=last),)),
        "depthwise": (depthwise, (image,)),
        "depthwise channels last": (depthwise, (image.to(memory_format=last),)),
        "transposed convolution": (torch.nn.ConvTranspose2d(32, 16, 2, 2).cuda().bfloat16(), (image.to(memory_format=last),)),
        "convolution 1d": (torch.nn.Conv1d(16, 8, 3).cuda(), (x.reshape(1, 16, 4),)),
        "double convolution": (torch.nn.Conv2d(32, 8, 3).cuda().double(), (image.double().to(memory_format=last),)),
        "pools": (lambda i: (F.max_pool2d(i, 2), F.avg_pool2d(i, 2), F.adaptive_avg_pool2d(i, 1)), (image.to(memory_format=last),)),
        "interpolate": (lambda i: F.interpolate(i, scale_factor=2.0, mode="bilinear"), (image.to(memory_format=last),)),
        "group norm channels last": (lambda i: F.group_norm(i, 4), (image.to(memory_format=last),)),
        "batch norm": (norm, (image.float(),)),
        "batch norm channels last": (norm, (image.float().to(memory_format=last),)),
        "embedding": (lambda t, w: F.embedding(t, w), (torch.arange(4, device=cuda), x)),
        "sorting": (lambda x: (x.sort(), x.t().topk(2), x.argmax(1), x.cumsum(0)), (x,)),
        "reductions": (lambda x: (x.sum(0), x.t().amax(1), x.var(1), x.norm(), x.softmax(-1)), (x,)),
        "item": (lambda x: x * x.sum().item(), (x,)),
        "random": (lambda x: x.shape[0] * torch.zeros_like(torch.randn(3, device=x.device)), (x,)),
        "pinned": (lambda x: x.cpu().pin_memory(), (x,)),
        "get default device": (lambda x: x + torch.ones(1, device=torch.get_default_device()), (scalar,)),
    }  # fmt: skip
    for name, (function, args) in programs.items():
        run(name, function, args)
    run("batch norm frozen", norm, (image.float(),), freeze=True)
    run(
        "batch norm frozen, channels last",
        norm.to(memory_format=last),
        (image.float().to(memory_format=last),),
        freeze=True,
    )


def main(arguments: list[str]) -> int:
    print(f"python {sys.version.split()[0]}, torch {torch.__version__}, {torch.cuda.get_device_name()}")
    size = "tiny" if "--tiny" in arguments else "batch" if "--batch" in arguments else "full"
    chosen = [each for each in arguments if not each.startswith("--")] or list(zoo.ZOO)
    if size != "batch":
        on_cpu()
        small_programs()
    for name in chosen:
        try:
            workload = zoo.build(name, device="cuda", dtype=torch.bfloat16, size=size)
        except Exception as error:
            print(f"{name}: cannot be built: {type(error).__name__}: {error}")
            continue
        run(name, workload.function, workload.args, workload.kwargs)
        if name in ("resnet", "unet"):
            function = workload.function.to(memory_format=torch.channels_last)
            args = tuple(a.to(memory_format=torch.channels_last) if a.dim() == 4 else a for a in workload.args)
            run(f"{name} channels last", function, args)
            run(f"{name} channels last, frozen", function, args, freeze=True)
        del workload
        torch.cuda.empty_cache()
    print(f"failures: {failures}")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

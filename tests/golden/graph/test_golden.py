"""Graph passes as text: one idea each, before and after, rewritten with `--update-golden`, reviewed as code."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
import torch.nn.functional as F

from lampwork.capture.record.recorder import record
from lampwork.config import make_settings
from lampwork.fakes.fake import Fake, describe
from lampwork.graph import freeze, functionalize, products, simplify
from lampwork.graph.prepare import prepare

HERE = Path(__file__).parent


def show(graph) -> str:
    lines = []
    for node in graph.nodes:
        if node.op == "output":
            lines.append(f"return ({', '.join(str(each) for each in node.args[0])})")
            continue
        value = node.meta.get("val")
        kind = describe(value) if isinstance(value, Fake) else "..."
        if node.op == "call_function":
            arguments = [str(each) for each in node.args] + [f"{key}={each}" for key, each in node.kwargs.items()]
            name = (
                str(getattr(node.target, "__name__", node.target))
                if node.target.__class__ is not type(torch.ops.aten.add.Tensor)
                else str(node.target)
            )
            lines.append(f"{node.name}: {kind} = {name}({', '.join(arguments)})")
        else:
            lines.append(f"{node.name}: {kind} = {node.op}")
    return "\n".join(lines)


def after(functional) -> str:
    text = show(functional.graph) + "\n" + "\n".join(f"result {each}" for each in functional.results)
    text += "".join(f"\nwrite input {index} from output {source}" for index, source in functional.writes)
    return text + "".join(f"\nderived {each}" for each in functional.derived)


def write_to_row(x):
    y = torch.relu(x)
    y[1].mul_(2)
    return y


def write_to_input(x):
    x.t()[0].add_(1)
    return x.sum()


def views_follow_their_base(x):
    flat = x.view(-1)
    x += 1
    return flat * 2


def overlapping_inputs(x, y):
    y.zero_()
    return x + 1


def repeated(x):
    return torch.exp(x) + torch.exp(x) * 2.0


def no_ops(x):
    return torch.relu(x.view(6).view(2, 3).detach()).clone() + x.expand(2, 3).to(torch.float32)


def literals(x):
    return x * torch.tensor(2.0) + torch.tensor([1.0, 2.0, 3.0])


def own_memory(x):
    y = x.clone()
    z = torch.empty(2, 3)
    z.copy_(y)
    return y, z, torch.tensor([1.0, 2.0])


def linear_gelu(x, w, b):
    return F.gelu(F.linear(x, w, b))


def convolution_norm_relu(x, w, gamma, beta, mean, var):
    return F.relu(F.batch_norm(F.conv2d(x, w, padding=1), mean, var, gamma, beta))


def always(rows, inner, columns, dtype):
    return True


def matrix():
    return [torch.ones(2, 3)]


def overlapping():
    base = torch.ones(4, 3)
    return [base[:3], base[1:]]


def layer():
    return [torch.ones(4, 8, 16), torch.ones(32, 16), torch.ones(32)]


def normed():
    return [torch.ones(1, 3, 8, 8), torch.ones(4, 3, 3, 3), *(torch.ones(4) for _ in range(4))]


CASES = [
    (write_to_row, matrix, []),
    (write_to_input, matrix, []),
    (views_follow_their_base, matrix, []),
    (overlapping_inputs, overlapping, []),
    (repeated, matrix, [simplify.share_repeated_work]),
    (no_ops, matrix, [simplify.remove_no_ops]),
    (literals, matrix, [simplify.embed_literals]),
    (own_memory, matrix, [simplify.remove_no_ops, simplify.remove_dead, simplify.separate_outputs]),
    (linear_gelu, layer, [lambda each: products.use_vendor_products(each, always), simplify.remove_dead]),
    (convolution_norm_relu, normed, [freeze.freeze, simplify.remove_dead]),
]


@pytest.mark.parametrize("program,inputs,passes", CASES, ids=[case[0].__name__ for case in CASES])
def test_pass(program, inputs, passes, request):
    with torch.no_grad():
        region = record(program, inputs())
    text = "# recorded\n" + show(region.graph)
    functional = functionalize.functionalize(region)
    if not passes:
        text += "\n\n# pure\n" + after(functional)
    else:
        text += "\n\n# before\n" + after(functional)
        for each in passes:
            functional = each(functional)
        text += "\n\n# after\n" + after(functional)
    path = HERE / f"{program.__name__}.txt"
    text += "\n"
    if request.config.getoption("--update-golden"):
        path.write_text(text)
    assert text == path.read_text(), f"rewrite {path.name} with --update-golden if this is wanted"


def test_freeze_is_an_option():
    with torch.no_grad():
        x, w, b = torch.ones(64, 512), torch.ones(512, 512), torch.ones(512)
        region = record(lambda x, w, b: F.linear(x, w, b), [x, w, b])
    assert not prepare(region, make_settings()).derived
    assert prepare(region, make_settings(options={"freeze": True})).derived == (
        ("pack_linear_weight", (1,), (64, False)),
    )

"""Many tensors, and long texts, among the arguments are guarded like few and short ones, at a fraction of the cost."""

import pytest
import torch

import lampwork
from lampwork.runtime.guards.compile import source_text

COUNT = 24


def shapes(tensors, y):
    total = 0
    for each in tensors:
        total = total + each.shape[0]
    return y * total


def values(tensors, y):
    total = y
    for each in tensors:
        total = total + each
    return total


def first_and_sum(tensors, y):
    return tensors[0] + y, sum(tensors[1:])


def keyed(tensors, y):
    total = y
    for name, each in tensors.items():
        total = total + each * len(name)
    return total


def make(kind):
    if kind == "plain":
        return [torch.randn(4) for _ in range(COUNT)]
    if kind == "rows":
        return list(torch.randn(COUNT, 4).unbind(0))
    if kind == "parameters":
        return [torch.nn.Parameter(torch.randn(4)) for _ in range(COUNT)]
    if kind == "history":
        return [row * 2 for row in torch.randn(COUNT, 4).requires_grad_()]
    assert kind == "tuple"
    return tuple(torch.randn(4) for _ in range(COUNT))


def text_of(compiled):
    entry = compiled.__lampwork__.entries[0]
    return source_text(entry.artifact.guards, entry.artifact.inputs)


@pytest.mark.parametrize("kind", ["plain", "rows", "parameters", "history", "tuple"])
@pytest.mark.parametrize("function", [shapes, values, first_and_sum])
def test_lists_of_tensors(kind, function):
    compiled = lampwork.compile(function, options={"cache": False})
    for _ in range(4):  # views are asked one by one from the second call on
        tensors, y = make(kind), torch.randn(4)
        torch.testing.assert_close(compiled(tensors, y), function(tensors, y))
    assert compiled.__lampwork__.counters.captures == 1
    # What has a history is asked for its attributes: its class in C++ says whether it requires grad.
    assert ("found = (" in text_of(compiled)) is (kind != "history")


def changed(tensors, how, place):
    tensors = list(tensors)
    old = tensors[place]
    if how == "shape":
        tensors[place] = torch.randn(5)[:1]
    elif how == "strides":
        tensors[place] = torch.randn(8)[::2]
    elif how == "dtype":
        tensors[place] = old.double()
    elif how == "requires_grad":
        tensors[place] = old.detach().clone().requires_grad_()
    elif how == "type":
        tensors[place] = torch.nn.Parameter(old.detach().clone(), requires_grad=False)
    elif how == "number":
        tensors[place] = 2.0
    elif how == "same object":
        tensors[place] = tensors[place - 1]
    elif how == "shorter":
        del tensors[place]
    elif how == "longer":
        tensors.append(torch.randn(4))
    return tensors


@pytest.mark.parametrize("kind", ["plain", "rows"])
@pytest.mark.parametrize(
    "how", ["shape", "strides", "dtype", "requires_grad", "type", "same object", "shorter", "longer"]
)
def test_a_change_of_one_tensor_is_noticed(kind, how):
    compiled = lampwork.compile(values, options={"cache": False})
    for _ in range(3):
        compiled(make(kind), torch.randn(4))
    tensors, y = changed(make(kind), how, COUNT - 2), torch.randn(4)
    torch.testing.assert_close(compiled(tensors, y), values(tensors, y))
    assert compiled.__lampwork__.counters.captures == 2


def test_a_number_in_place_of_a_tensor_is_noticed():
    compiled = lampwork.compile(values, options={"cache": False})
    compiled(make("plain"), torch.randn(4))
    tensors, y = changed(make("plain"), "number", 5), torch.randn(4)
    torch.testing.assert_close(compiled(tensors, y), values(tensors, y))


def test_written_tensors_that_overlap_are_noticed():
    def write(tensors, y):
        tensors[0].add_(1)
        return tensors[1] + y

    compiled = lampwork.compile(write, options={"cache": False})
    memory = torch.zeros(COUNT, 4)
    for overlap in (False, False, True):
        ours, theirs = ([each.clone() for each in memory] for _ in range(2))
        for tensors in (ours, theirs):
            if overlap:
                tensors[1] = tensors[0].view(4)
        y = torch.randn(4)
        torch.testing.assert_close(compiled(ours, y), write(theirs, y))
        torch.testing.assert_close(ours, theirs)


def test_dicts_of_tensors():
    compiled = lampwork.compile(keyed, options={"cache": False})
    for _ in range(3):
        tensors, y = {"k" * (n % 5 + 1) + str(n): each for n, each in enumerate(make("plain"))}, torch.randn(4)
        torch.testing.assert_close(compiled(tensors, y), keyed(tensors, y))
    assert compiled.__lampwork__.counters.captures == 1


def test_long_texts_are_compared_as_objects():
    text = "ab" * 5000

    def decide(text, x):
        return x * 2 if text.endswith("ab") else x * 3

    compiled = lampwork.compile(decide, options={"cache": False})
    x = torch.ones(3)
    assert torch.equal(compiled(text, x), x * 2)
    assert len(text_of(compiled)) < len(text)
    assert torch.equal(compiled("".join(["ab"] * 5000), x), x * 2)  # an equal text, another object
    assert compiled.__lampwork__.counters.captures == 1
    assert torch.equal(compiled(text + "c", x), x * 3)
    assert torch.equal(compiled(text.encode().decode()[:-1] + "B", x), x * 3)

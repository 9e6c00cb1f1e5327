"""Structures of tensors in and out: dicts, dataclasses, named tuples, model outputs, trees."""

from __future__ import annotations

import collections
import dataclasses
import typing

import torch
import torch.utils._pytree as pytree
from transformers.modeling_outputs import BaseModelOutput, BaseModelOutputWithPooling

from tests.python.harness import program
from tests.python.tensors import values


def _x():
    return values(2, 4)


@program(together=lambda: ({"a": _x(), "b": values(4, seed=1)},))
def dict_of_tensors(inputs):
    return {key: value * 2 for key, value in inputs.items()} | {"sum": inputs["a"] + inputs["b"]}


@program(together=lambda: ([_x(), (values(4), {"deep": values(2, 1)})],))
def nested_structure(tree):
    first, (second, rest) = tree
    return {"out": [first + second, (rest["deep"],)], "in": tree}


@dataclasses.dataclass
class Output:
    logits: torch.Tensor
    hidden: list = dataclasses.field(default_factory=list)
    loss: typing.Optional[torch.Tensor] = None


@program(together=lambda: (_x(),))
def dataclass_out(x):
    output = Output(x * 2)
    output.hidden.append(x)
    output.loss = output.logits.sum()
    return output


@program(together=lambda: (Output(_x(), [values(2, 4, seed=1)]),))
def dataclass_in_and_changed(batch):
    batch.loss = (batch.logits - batch.hidden[0]).abs().mean()
    batch.hidden.append(batch.logits * 2)
    return dataclasses.replace(batch, logits=batch.logits + 1)


class Pair(typing.NamedTuple):
    left: torch.Tensor
    right: torch.Tensor = None

    def total(self):
        return self.left if self.right is None else self.left + self.right


@program(together=lambda: (Pair(_x(), values(2, 4, seed=1)),))
def named_tuple_of_tensors(pair):
    return Pair(pair.total(), pair.left), pair._replace(right=None).total(), pair._asdict()["left"]


@program(together=lambda: (_x(),))
def model_output(x):
    output = BaseModelOutput(last_hidden_state=x * 2, hidden_states=(x, x + 1))
    return output, output[0], output["last_hidden_state"], len(output), output.attentions is None


@program(together=lambda: (_x(),))
def model_output_to_tuple(x):
    output = BaseModelOutputWithPooling(last_hidden_state=x, pooler_output=x.mean(0))
    return output.to_tuple(), list(output.keys()), output.get("missing")


@program(together=lambda: (BaseModelOutput(last_hidden_state=_x()),))
def model_output_as_argument(output):
    return output.last_hidden_state + 1, output.to_tuple()


@program(together=lambda: ({"x": _x(), "y": [values(3), 2]},))
def tree_mapped(tree):
    doubled = pytree.tree_map(lambda leaf: leaf * 2, tree)
    leaves, spec = pytree.tree_flatten(tree)
    return doubled, pytree.tree_unflatten([leaf + 1 for leaf in leaves], spec), len(leaves)


@program(together=lambda: ({"x": _x(), "y": [values(3), 2]},))
def tree_mapped_over_tensors(tree):
    return pytree.tree_map_only(torch.Tensor, torch.sum, tree), pytree.tree_leaves(tree)[0]


@program(together=lambda: (_x(), None, None))
def optional_tensors(x, mask=None, bias=None):
    if mask is not None:
        x = x.masked_fill(mask, 0)
    return x if bias is None else x + bias


@program(together=lambda: (_x(), values(2, 4, seed=1) > 0, values(4)))
def optional_tensors_given(x, mask=None, bias=None):
    if mask is not None:
        x = x.masked_fill(mask, 0)
    return x if bias is None else x + bias


@program(together=lambda: (_x(), {}))
def results_put_into_a_dict(x, sink):
    sink["first"] = x + 1
    sink.setdefault("all", []).append(sink["first"] * 2)
    return len(sink)


@program(together=lambda: (_x(),))
def same_tensor_twice_in_the_result(x):
    y = x + 1
    return y, [y, y], {"y": y, "x": x}


@program(together=lambda: (collections.OrderedDict(b=_x(), a=values(2, 4, seed=1)),))
def ordered_dict_of_tensors(items):
    items.move_to_end("b")
    return list(items), torch.stack(list(items.values())), collections.OrderedDict((k, v + 1) for k, v in items.items())


class Batch:
    def __init__(self, **tensors):
        self.__dict__.update(tensors)

    def to(self, *args):
        return Batch(**{name: value.to(*args) for name, value in vars(self).items()})

    def __getitem__(self, name):
        return self.__dict__[name]


@program(together=lambda: (Batch(tokens=_x(), mask=values(2, 4) > 0),))
def user_batch_class(batch):
    moved = batch.to(torch.float64)
    return moved, moved["mask"].sum(), batch["tokens"] is batch.tokens


@program(together=lambda: ([_x(), _x() + 1, _x() + 2],))
def list_of_tensors_changed(tensors):
    tensors.append(torch.cat(tensors))
    del tensors[0]
    tensors[0] = tensors[0] * 2
    tensors.reverse()
    return tensors


def _rows(x):
    for row in x:
        yield row.sum()


@program(together=lambda: (_x(),))
def generator_of_tensors(x):
    return sum(_rows(x)), torch.stack(tuple(_rows(x + 1))), max(row.shape[0] for row in x)


@program(together=lambda: ({"a": _x()}, [_x()]))
def look_ups_that_fail(table, rows):
    try:
        table["b"]
    except KeyError as error:
        missing = error.args
    try:
        return rows[3]
    except IndexError:
        return rows[0] + 1, missing

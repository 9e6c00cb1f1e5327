"""What goes wrong: errors of torch and of the program, caught and not caught, asserts."""

from __future__ import annotations

import torch
from torch import nn

from tests.python.harness import program
from tests.python.tensors import frozen, values


def _x():
    return values(2, 4)


@program(together=lambda: (_x(), values(3, 5)))
def shapes_do_not_match(x, y):
    return x @ y


@program(together=lambda: (_x(), values(3, 5)))
def shapes_do_not_broadcast(x, y):
    return x + y


@program(together=lambda: (_x(), values(3, 5)))
def shape_error_caught(x, y):
    try:
        return x + y
    except RuntimeError:
        return x * 2


@program(together=lambda: (_x(), values(3, 5)))
def shape_error_message_returned(x, y):
    try:
        return x @ y
    except RuntimeError as error:
        return x * 2, str(error)


@program(together=lambda: (_x(),))
def reshape_impossible(x):
    return x.reshape(3, 3)


@program(together=lambda: (_x(),))
def index_out_of_range(x):
    return x[5]


@program(together=lambda: (_x(),))
def index_error_caught(x):
    try:
        return x[:, 7]
    except IndexError as error:
        return x, str(error)


@program(together=lambda: (_x(),))
def wrong_argument_type(x):
    return torch.relu("text")


@program(together=lambda: (_x(),))
def unknown_attribute(x):
    return x.nothing_of_the_kind


@program(together=lambda: (_x(), frozen(lambda: nn.Linear(4, 4))))
def unknown_attribute_of_a_module(x, layer):
    return layer.nothing(x)


@program(together=lambda: (_x(),))
def assert_on_a_shape_holds(x):
    assert x.shape[1] == 4, f"expected 4 columns, got {x.shape[1]}"
    return x * 2


@program(together=lambda: (_x(),))
def assert_on_a_shape_fails(x):
    assert x.shape[1] == 5, f"expected 5 columns, got {x.shape[1]}"
    return x * 2


@program(together=lambda: (_x(), []))
def raised_half_way(x, log):
    log.append(x + 1)
    x.add_(1)
    raise ValueError("stopped")


@program(together=lambda: (_x(), frozen(lambda: nn.Linear(5, 4))))
def layer_given_wrong_width(x, layer):
    return layer(x)


class Strict(nn.Module):
    def forward(self, x):
        if x.dim() != 3:
            raise ValueError(f"expected 3 dimensions, got {x.dim()}")
        return x


@program(together=lambda: (_x(), Strict()))
def module_refuses_input(x, model):
    return model(x)


@program(together=lambda: (_x(),))
def error_chained(x):
    try:
        x.view(3, 3)
    except RuntimeError as error:
        raise ValueError("bad input") from error


@program(together=lambda: (_x(),))
def types_that_do_not_mix(x):
    return torch.cat([x, "x"])


@program(together=lambda: (torch.arange(4),))
def in_place_result_type(x):
    x += 0.5
    return x


@program(together=lambda: (_x(),))
def torch_check(x):
    torch._check(x.shape[0] == 2)
    torch._assert(x.shape[1] == 4, "width")
    return x + 1


@program(together=lambda: (_x(),))
def missing_argument_of_a_call(x):
    return torch.nn.functional.linear(x)


@program(together=lambda: (torch.tensor([1, 9]), frozen(lambda: nn.Embedding(4, 2))))
def token_out_of_range(tokens, table):
    return table(tokens)

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


@program(together=lambda: (_x(), []))
def batches_that_fail_are_skipped(x, log):
    total = torch.zeros(4)
    for rows in (x, x[:, :3], x + 1):
        try:
            total += rows.sum(0)
        except RuntimeError as error:
            log.append(str(error))
    return total


@program(together=lambda: (_x(),))
def error_then_cleanup(x):
    state = {"open": True}
    try:
        try:
            x.view(5, -1)
        finally:
            state["open"] = False
    except RuntimeError as error:
        return state, type(error).__name__, error.args, x * 2


@program(together=lambda: (_x(),))
def dimension_out_of_range(x):
    x.mul_(2)
    return x.sum(dim=4)


@program(together=lambda: (_x(), torch.arange(3)))
def mixed_types_refused(x, y):
    results = []
    for attempt in (lambda: torch.dot(x[0], y), lambda: x @ y.float(), lambda: torch.bmm(x, x), lambda: x[0, 0, 0]):
        try:
            results.append(attempt())
        except (RuntimeError, IndexError) as error:
            results.append(f"{type(error).__name__}: {error}")
    return results


@program(together=lambda: (_x(), frozen(lambda: nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(3, 2)))))
def deep_layer_refuses(x, model):
    try:
        return model(x)
    except RuntimeError as error:
        raise ValueError(f"layer refused: {str(error)[:20]}") from error


@program(together=lambda: (_x(), frozen(lambda: nn.Conv2d(3, 4, 3))))
def convolution_of_too_few_dimensions(x, layer):
    return layer(x)


@program(together=lambda: (_x(), {"a": 1}))
def missing_key_after_work(x, table):
    x.add_(1)
    table["b"] = x * 2
    return table["c"]


@program(together=lambda: (_x(),))
def unpacked_into_too_few(x):
    a, b, c = x
    return a


@program(together=lambda: (_x(), torch.zeros(2, 4, dtype=torch.long)))
def gather_index_of_wrong_rank(x, index):
    try:
        return torch.gather(x, 1, index[0])
    except RuntimeError as error:
        return str(error), torch.gather(x, 1, index)


@program(together=lambda: (_x(), None))
def none_is_not_a_tensor(x, mask):
    return x.masked_fill(mask, 0.0)


@program(together=lambda: (_x(),))
def stack_of_different_shapes(x):
    return torch.stack([x, x[0]])


@program(together=lambda: (_x(),))
def missing_method_has_a_way_out(x):
    try:
        return x.fancy_relu()
    except AttributeError:
        return x.relu()


@program(together=lambda: (torch.zeros(2, requires_grad=True),), grad=True)
def leaf_written_in_place(x):
    try:
        x.add_(1)
    except RuntimeError as error:
        return str(error)


@program(together=lambda: (_x(),))
def number_divided_by_zero(x):
    count = x.shape[0] - 2
    return x.sum() * (1 / count)


@program(together=lambda: (_x(),))
def text_that_is_no_number(x):
    scales = []
    for each in ("2", "x3", "4"):
        try:
            scales.append(float(each))
        except ValueError as error:
            scales.append(str(error))
    return scales, x * scales[0]

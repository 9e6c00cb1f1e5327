"""Numbers that leave tensors: `.item()`, `.tolist()`, branches and sizes that depend on values."""

from __future__ import annotations

import math

import torch

from tests.python.harness import program
from tests.python.tensors import integers, values


def _x():
    return values(3, 4)


@program(together=lambda: (_x(),))
def item_returned(x):
    return x.sum().item()


@program(together=lambda: (_x(),))
def item_used_in_arithmetic(x):
    scale = x.abs().max().item()
    return x / scale, math.sqrt(scale)


@program(together=lambda: (_x(),))
def item_of_a_constant(x):
    return x * torch.tensor(3.0).item(), torch.tensor(2).item()


@program(together=lambda: (torch.tensor([1, 2, 3]), _x()))
def tolist_of_an_argument(sizes, x):
    return x.sum(), sizes.tolist()


@program(together=lambda: (_x(),))
def branch_on_a_value(x):
    if x.sum() > 0:
        return x + 1
    return x - 1


@program(together=lambda: (_x(),))
def branch_on_a_value_midway(x):
    y = x * 2
    if (y > 3).any():
        y = y.clamp(max=3)
    return y + 1


@program(together=lambda: (_x(),))
def loop_until_small(x):
    steps = 0
    while x.abs().max() > 0.1:
        x = x * 0.5
        steps += 1
    return x, steps


@program(together=lambda: (_x(), 0))
def conditional_expression_on_a_value(x, offset):
    return x * 2 if x.mean() < offset else x * 3


@program(together=lambda: (_x(),))
def int_and_float_of_tensors(x):
    total = float(x.sum())
    return x * total, int(x.argmax()), bool(x.any())


@program(together=lambda: (torch.tensor(3), _x()))
def scalar_tensor_as_a_number(count, x):
    result = [x * index for index in range(count)]
    return torch.stack(result)


@program(together=lambda: (_x(),))
def assert_on_a_value(x):
    assert torch.isfinite(x).all(), "not finite"
    return x.log1p()


@program(together=lambda: (_x(),))
def nan_check_raises(x):
    y = (x - 10).log()
    if torch.isnan(y).any():
        raise ValueError("nan in the result")
    return y


@program(together=lambda: (integers(6, high=3),))
def python_sum_of_items(x):
    return sum(int(each) for each in x), x + 1


@program(together=lambda: (torch.tensor([3, 1]), _x()))
def sizes_from_a_tensor(lengths, x):
    rows = [x[:length].sum(0) for length in lengths.tolist()]
    return torch.stack(rows)


@program(together=lambda: (_x(),))
def early_exit_on_convergence(x):
    history = []
    for _ in range(4):
        step = x * 0.3
        x = x - step
        history.append(step.norm())
        if step.norm() < 0.5:
            break
    return x, len(history)


@program(together=lambda: (_x(),))
def equality_decides(x):
    return "same" if torch.equal(x, x.clone()) else "different"


@program(together=lambda: (_x(),))
def close_decides(x):
    return x + 1 if torch.allclose(x, x + 1e-9) else x


@program(together=lambda: (_x(),))
def repeats_by_count(x):
    counts = (x.sum(1) > 0).long() + 1
    return x.repeat_interleave(counts, dim=0)


@program(together=lambda: (_x(),))
def torch_cond(x):
    return torch.where(x.sum() > 0, x.sin(), x.cos())


@program(together=lambda: (_x(), torch.tensor(True), torch.tensor(2)))
def flags_as_tensors(x, flag, count):
    y = torch.where(flag, x, -x)
    return y * count, x.pow(count)


@program(together=lambda: (_x(),))
def tensor_printed(x):
    y = x.sum()
    print("sum", y.shape)
    return y


@program(together=lambda: (torch.tensor([1.0, 2.0]),))
def tensor_values_printed(x):
    print(x)
    return x * 2


@program(together=lambda: (_x(),))
def counts_of_matches(x):
    hits = (x > 0).sum()
    return hits / x.numel(), hits.item() / x.numel()


class Meter:
    def __init__(self):
        self.values, self.total, self.count = [], 0.0, 0

    def update(self, value, n):
        self.values.append(value)
        self.total = self.total + value * n
        self.count += n

    @property
    def average(self):
        return self.total / self.count


@program(together=lambda: (_x(), Meter()))
def losses_logged(x, meter):
    for step in range(2):
        loss = (x - step).pow(2).mean()
        meter.update(loss.item(), x.shape[0])
    return x - meter.average


@program(together=lambda: (_x(), {}))
def metrics_in_a_dict(x, metrics):
    predicted = x.argmax(1)
    metrics["loss"] = float(x.mean())
    metrics["correct"] = int((predicted == 1).sum())
    metrics["accuracy"] = (predicted == 1).sum().item() / len(x)
    return metrics["loss"], type(metrics["correct"]), isinstance(metrics["loss"], float)


@program(together=lambda: (_x(),))
def numbers_beside_tensors(x):
    low, high = x.min().item(), x.max().item()
    scaled = (x - low) / (high - low + 1e-6 * 1.0)
    return x > low, high - x, 1.0 - low, scaled


@program(together=lambda: (torch.arange(4), _x()))
def whole_numbers_beside_tensors(counts, x):
    largest = counts.max().item()
    return counts + largest, x * largest, largest


@program(together=lambda: (_x(),))
def number_taken_before_a_write(x):
    before = x[0, 0].item()
    x.zero_()
    return before, x[0, 0].item()


@program(together=lambda: (_x(),))
def number_formatted(x):
    return f"{x.mean().item():.3f}"


@program(together=lambda: (_x(),))
def number_decides(x):
    mean = x.mean().item()
    kind = "high" if mean > 0.5 else "low"
    return kind, x * 2


@program(together=lambda: (_x(), torch.zeros(())))
def division_by_a_number_that_is_zero(x, zero):
    try:
        return 1.0 / zero.item()
    except ZeroDivisionError:
        return x / zero.item()


@program(together=lambda: (values(3, 4).to(torch.bfloat16),))
def numbers_beside_half_types(x):
    scale = x.abs().max().item()
    return x / scale, scale


@program(together=lambda: (_x(),))
def number_as_key_and_in_comparisons(x):
    mean = x.mean().item()
    return {mean: 1}, mean in (1, 2), mean == mean, sorted([mean, 0.0])


@program(together=lambda: (_x(),))
def list_of_numbers(x):
    rows = x.tolist()
    return rows, len(rows), x.sum(0).tolist()


@program(together=lambda: (_x(), torch.tensor([3, 4, 5])))
def counts_in_exact_arithmetic(x, counts):
    a, b, c = counts.tolist()
    return a * b + c, (a - b) // 1, a % 2 == 1, a**2, -b, [a < b, b != c], a * 10**18 * b


@program(together=lambda: (_x(),))
def statistics_of_rows(x):
    means = [row.mean().item() for row in x]
    return sum(means) / len(means), max(means), min(means), round(means[0], 3), abs(means[1])


@program(together=lambda: (_x(),))
def norm_clipped_by_a_number(x):
    norm = math.sqrt(x.pow(2).sum().item())
    scale = 1.0 / (norm + 1e-6)
    return x * scale, norm


@program(together=lambda: (_x(),))
def perplexity_reported(x):
    loss = x.abs().mean()
    return {"loss": loss.item(), "ppl": math.exp(loss.item()), "text": f"{math.exp(loss.item()):.2f}"}


@program(together=lambda: (_x(), {"best": 0.0}))
def accuracy_as_percentage(x, record):
    correct = int((x.argmax(1) == torch.arange(3)).sum())
    record["accuracy"] = 100.0 * correct / len(x)
    record["line"] = "{}/{} ({:.1f}%)".format(correct, len(x), record["accuracy"])
    return x + 1


@program(together=lambda: (_x(),))
def flags_collected(x):
    flags = [bool((row > 0.5).any()) for row in x]
    return flags, bool(x.isnan().any()), not x.requires_grad


@program(together=lambda: (values(3, 4).to(torch.float16), torch.arange(4)))
def numbers_and_other_types(x, counts):
    peak = x.max().item()
    return x * peak, peak - x, counts * peak, counts / 2 + peak, peak * 2 > 1


@program(together=lambda: (torch.tensor([-1.0, 4.0]),))
def root_of_a_negative_number(x):
    return [math.sqrt(each) for each in x.tolist()]


@program(together=lambda: (_x(),))
def number_after_a_write(x):
    x.mul_(2)
    top = x.max().item()
    return x / top, f"{top:.2f}", int(top)


@program(together=lambda: (_x(), []))
def moving_average(x, history):
    average = 0.0
    for row in x:
        average = 0.9 * average + 0.1 * row.sum().item()
        history.append(average)
    return x - average

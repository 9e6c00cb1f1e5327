"""Advanced indexing, gathering and scattering."""

from __future__ import annotations

import torch

from tests.python.harness import program
from tests.python.tensors import integers, values


def _x():
    return values(4, 5, 6)


# It warns that it is new, once in a process: here, so that no program sees it.
torch.zeros(1).index_reduce_(0, torch.zeros(1, dtype=torch.long), torch.zeros(1), "amax")


@program(together=lambda: (_x(),))
def slices_none_and_ellipsis(x):
    return x[1:3, ..., -1], x[:, None, 2], x[..., ::2], x[-1], x[None], x[:, 1:-1, 2:]


@program(together=lambda: (_x(), integers(3, high=4)))
def tensor_as_index(x, index):
    return x[index], x[:, index], x[index, :, 1], x[index, index], x[index.tolist().__len__()]


@program(together=lambda: (_x(),))
def boolean_mask_selects(x):
    return x[x > 0]


@program(together=lambda: (_x(),))
def boolean_mask_of_rows(x):
    keep = x.sum((1, 2)) > 0
    return x[keep].sum(0)


@program(together=lambda: (_x(),))
def boolean_mask_assigned(x):
    y = x.clone()
    y[y < 0] = 0.5
    y[:, :, 0][x[:, :, 0] > 1] = 9
    return y


@program(together=lambda: (_x(),))
def lists_as_indices(x):
    return x[[0, 2]], x[:, [1, 3, 4]], x[[0, 1], [2, 3]]


@program(together=lambda: (_x(), integers(2, 3, high=4), integers(2, 3, high=5, seed=1)))
def several_index_tensors(x, rows, columns):
    return x[rows, columns], x[rows, :, 0].shape, x[rows[:, 0], ..., columns[:, 0]]


@program(together=lambda: (_x(),))
def reversed_by_flip(x):
    return x.flip(0), torch.flip(x, (1, 2)), x[torch.arange(3, -1, -1)]


@program(together=lambda: (values(3, 5), integers(3, 2, high=5)))
def gather_and_scatter(x, index):
    picked = x.gather(1, index)
    return picked, torch.zeros(3, 5).scatter(1, index, picked), torch.zeros(3, 5).scatter_add(1, index, picked)


@program(together=lambda: (values(3, 5), integers(4, high=3)))
def index_select_add_and_fill(x, index):
    return x.index_select(0, index), x.index_add(0, index, torch.ones(4, 5)), x.index_fill(0, index, -1.0)


@program(together=lambda: (values(3, 5), integers(3, 5, high=15)))
def take_and_put(x, index):
    return x.take(index), torch.take_along_dim(x, x.argsort(1), dim=1), x.masked_select(x > 0).sum()


@program(together=lambda: (values(3, 5),))
def where_in_two_forms(x):
    rows, columns = torch.where(x > 0)
    return torch.where(x > 0, x, -x), rows.sum() + columns.sum()


@program(together=lambda: (values(3, 5),))
def nonzero_used_later(x):
    found = (x > 0).nonzero()
    return found.float().mean(0), found.shape[1]


@program(together=lambda: (values(3, 5),))
def top_k_and_sorting(x):
    best, where = x.topk(2, dim=1)
    ordered, order = torch.sort(x, dim=0, descending=True)
    return best, where, ordered, order, x.argmax(1), x.kthvalue(2, dim=1).values


@program(together=lambda: (integers(12, high=4),))
def unique_values(x):
    return torch.unique(x), torch.bincount(x, minlength=5)


@program(together=lambda: (values(6, 4), integers(6, high=3)))
def segments_reduced(x, segment):
    totals = torch.zeros(3, 4).index_add_(0, segment, x)
    counts = torch.zeros(3).scatter_add_(0, segment, torch.ones(6)).clamp(min=1)
    return totals / counts[:, None], torch.zeros(3, 4).index_reduce_(0, segment, x, "amax")


@program(together=lambda: (integers(2, 5, high=7),))
def one_hot_and_embedding(tokens):
    table = torch.arange(21.0).view(7, 3)
    return torch.nn.functional.one_hot(tokens, 7), torch.nn.functional.embedding(tokens, table), table[tokens]


@program(together=lambda: (values(3, 5), 1))
def index_from_arguments(x, position):
    return (
        x[position],
        x[:, position : position + 2],
        x[position, position],
        x.select(1, position),
        x.narrow(1, position, 2),
    )


@program(together=lambda: (values(3, 5), slice(1, None), (0, slice(None, 2))))
def slices_as_arguments(x, rows, both):
    return x[rows], x[both], x[rows, 0]


@program(together=lambda: (values(3, 5), torch.tensor(1)))
def scalar_tensor_as_index(x, position):
    return x[position], x[position, 2]


# Sizes that contents decide -------------------------------------------------------------------------------------------


@program(together=lambda: (values(6, 4),))
def rows_above_their_mean(x):
    chosen = x[x.mean(1) > x.mean()]
    return chosen, chosen.shape[0], chosen.sum(0)


@program(together=lambda: (values(8, 3), integers(8, high=4)))
def tokens_routed_to_experts(x, expert):
    result = torch.zeros_like(x)
    for number in range(4):
        (rows,) = torch.where(expert == number)
        result[rows] = x[rows] * (number + 1)
    return result


@program(together=lambda: (values(5, 2), torch.tensor([1.0, 0.9, 0.8, 0.7, 0.6])))
def boxes_kept_by_score(boxes, scores):
    keep = scores > 0.65
    order = scores[keep].argsort()
    return boxes[keep][order], scores[keep][order]


@program(together=lambda: (torch.tensor([3, 1, 2]), values(6, 2)))
def sequences_unpacked(lengths, packed):
    return [part.mean(0) for part in packed.split(lengths.tolist())]


@program(together=lambda: (torch.tensor([3, 1, 4]),))
def mask_of_lengths(lengths):
    longest = int(lengths.max())
    return torch.arange(longest)[None, :] < lengths[:, None]


@program(together=lambda: (integers(10, high=5), values(10)))
def mean_of_each_label(labels, x):
    names, places, counts = labels.unique(return_inverse=True, return_counts=True)
    totals = torch.zeros(names.shape[0]).index_add_(0, places, x)
    return names, totals / counts


@program(together=lambda: (values(4, 6),))
def longest_run_of_columns(x):
    columns = (x > 0).all(0).nonzero().flatten()
    return x[:, columns] if columns.numel() else x


@program(together=lambda: (integers(2, 6, high=9),))
def padding_removed(tokens):
    flat = tokens[tokens != 0]
    return flat, torch.cat([flat, flat.new_zeros(2)]), len(flat)


@program(together=lambda: (values(6), torch.tensor(2)))
def best_of_a_number(x, k):
    return x.topk(int(k)).values, x.sort(descending=True).values[: int(k)]


@program(together=lambda: (values(3, 4),))
def masked_statistics(x):
    picked = torch.masked_select(x, x > 0)
    return picked.mean(), picked.max(), picked.numel() / x.numel()

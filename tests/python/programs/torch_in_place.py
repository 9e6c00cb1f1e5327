"""In-place operators and views: of arguments, of each other, with `out=`."""

from __future__ import annotations

import torch

from tests.python.harness import program
from tests.python.tensors import values


def _x():
    return values(4, 6)


@program(together=lambda: (_x(),))
def argument_changed(x):
    x.add_(1).mul_(2)
    return x


@program(together=lambda: (_x(),))
def view_of_argument_changed(x):
    row = x[1]
    row += 10
    x[:, 0] = 0
    return row, x.sum()


@program(together=lambda: (_x(),))
def views_returned(x):
    return x.view(-1), x[1:3], x.t(), x.unsqueeze(0), x.expand(2, 4, 6), x


@program(together=lambda: (_x(),))
def overlapping_writes(x):
    left, right = x[:, :4], x[:, 2:]
    left.mul_(2)
    right.add_(1)
    return left, right


@program(together=lambda: (_x(),))
def chunks_changed(x):
    first, second = x.chunk(2, dim=1)
    first.copy_(second)
    second.zero_()
    return first + 1


@program(together=lambda: (_x(),))
def unbind_and_split_changed(x):
    for index, row in enumerate(x.unbind(0)):
        row.mul_(index)
    a, b = x.split([2, 4], dim=1)
    a.neg_()
    return b


@program(together=lambda: (_x(), torch.zeros(4, 6)))
def out_argument(x, out):
    result = torch.mul(x, 2, out=out)
    return result is out, out + 1


@program(together=lambda: (_x(), torch.zeros(4), torch.zeros(4, dtype=torch.long)))
def out_arguments(x, best, where):
    torch.max(x, dim=1, out=(best, where))
    return best * 2


@program(together=lambda: (_x(), torch.empty(0)))
def out_argument_resized(x, out):
    torch.add(x, 1, out=out)
    return out.shape


@program(together=lambda: (_x(),))
def index_put_with_accumulation(x):
    index = torch.tensor([0, 1, 0])
    x.index_put_((index, torch.tensor([1, 1, 1])), torch.tensor([1.0, 2.0, 3.0]), accumulate=True)
    return x[0, 1]


@program(together=lambda: (_x(),))
def masked_fill_and_scatter(x):
    x.masked_fill_(x > 1, 1.0)
    x.scatter_(1, torch.tensor([[0], [1], [2], [3]]), 9.0)
    return x.sum(1)


@program(together=lambda: (_x(),))
def assignments_by_index(x):
    x[0] = 1
    x[1, 2:4] = torch.tensor([5.0, 6.0])
    x[..., -1] = x[..., 0]
    x[x < -1] = 0
    return x


@program(together=lambda: (_x(),))
def augmented_assignments_by_index(x):
    x[0] += 1
    x[1:, 1] *= 2
    x[:, ::2] -= 3
    return x


@program(together=lambda: (_x(),))
def made_and_changed(x):
    y = torch.zeros(4, 6)
    y[1:] = x[:-1]
    y[:, 0].fill_(7)
    z = y.view(6, 4)
    z[0] = -1
    return y


@program(together=lambda: (_x(),))
def diagonal_and_flat_views(x):
    x.diagonal().fill_(1)
    x.view(-1)[3:9].zero_()
    torch.as_strided(x, (2, 2), (6, 2)).add_(5)
    return x


@program(together=lambda: (_x(),))
def metadata_changed_in_place(x):
    y = x.clone()
    y.t_()
    y.unsqueeze_(0)
    y.squeeze_()
    return y, y.shape


@program(together=lambda: (_x(),))
def argument_transposed_in_place(x):
    x.t_()
    return x + 1


@program(together=lambda: (_x(), values(4, 6, seed=1)))
def swapped_contents(x, y):
    temporary = x.clone()
    x.copy_(y)
    y.copy_(temporary)
    return x - y


@program(together=lambda: (lambda base: (base, base[1:3], base.view(-1)))(_x()))
def arguments_that_alias(base, middle, flat):
    middle.zero_()
    flat[0] = 5
    return base.sum(), middle + 1


@program(together=lambda: (_x(),))
def list_of_views_changed(x):
    parts = [x[index] for index in range(4)]
    for part in parts:
        part -= part.mean()
    return torch.stack(parts)


@program(together=lambda: (_x(),))
def functions_changing_their_argument(x):
    torch.relu_(x)
    torch.nn.functional.relu(x - 1, inplace=True)
    torch.nn.init.constant_(x[0], 3.0)
    torch.clamp_(x, max=2)
    return x


@program(together=lambda: (values(4, 6).to(torch.complex64),))
def real_part_changed(x):
    torch.view_as_real(x)[..., 0] = 0
    x.imag.mul_(2)
    return x


@program(together=lambda: (_x(),))
def bits_seen_as_another_type(x):
    y = x.view(torch.int32)
    return y & 0x7FFFFFFF, (y & 0x7FFFFFFF).view(torch.float32)


@program(together=lambda: (_x(),))
def set_and_resize(x):
    y = torch.empty(0)
    y.resize_(2, 3)
    y.fill_(1)
    return y + x[:2, :3]


@program(together=lambda: (_x(), torch.zeros(4, 6), []))
def changed_tensor_kept_in_a_list(x, state, history):
    state.add_(x)
    history.append(state.clone())
    return state

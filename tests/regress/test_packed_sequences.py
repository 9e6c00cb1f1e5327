"""Packed sequences were calls between graphs: four breaks around each recurrent layer. They are operators of a graph."""

from __future__ import annotations

import copy
import itertools

import pytest
import torch
from torch import nn
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pack_sequence, pad_packed_sequence

import lampwork


def _x(*size, seed=0):
    return torch.randn(*size, generator=torch.Generator().manual_seed(seed))


def _same(found, expected):
    assert type(found) is type(expected)
    if isinstance(expected, (list, tuple)):
        assert len(found) == len(expected)
        for one, other in zip(found, expected, strict=True):
            _same(one, other)
    elif isinstance(expected, torch.Tensor):
        assert (found.dtype, found.shape, found.stride()) == (expected.dtype, expected.shape, expected.stride())
        assert found.requires_grad == expected.requires_grad
        torch.testing.assert_close(found, expected)
    else:
        assert found == expected


def packed_and_padded(x, lengths):
    packed = pack_padded_sequence(x, lengths, batch_first=True)
    doubled = PackedSequence(packed.data * 2, packed.batch_sizes)
    padded, found = pad_packed_sequence(doubled, batch_first=True, padding_value=-1.0)
    return padded, found, packed.data, packed.batch_sizes, int(packed.batch_sizes[0])


def in_any_order(x, lengths):
    packed = pack_padded_sequence(x.transpose(0, 1), lengths, enforce_sorted=False)
    return *pad_packed_sequence(packed, total_length=x.shape[1]), packed.unsorted_indices


def of_images(x, lengths):
    packed = pack_padded_sequence(x[..., None].expand(*x.shape, 2), lengths, batch_first=True, enforce_sorted=False)
    return packed.data, pad_packed_sequence(packed, padding_value=3)[0]


CALLS = [(3, 5, [5, 3, 2]), (3, 5, [4, 4, 1]), (2, 6, [6, 1]), (2, 6, [3, 3]), (1, 4, [4])]


@pytest.mark.parametrize("dynamic", [None, True, False])
@pytest.mark.parametrize("as_list", [False, True])
@pytest.mark.parametrize("program", [packed_and_padded, in_any_order, of_images])
def test_one_graph_as_eager(program, as_list, dynamic):
    compiled = lampwork.compile(program, fullgraph=True, dynamic=dynamic, options={"cache": False})
    for batch, time, lengths in CALLS:
        given = lengths if as_list else torch.tensor(lengths)
        if program is not packed_and_padded:
            given = given[::-1] if as_list else given.flip(0)
        x = _x(batch, time, 4)
        _same(compiled(x, given), program(x, given))


class Encoder(nn.Module):
    def __init__(self, kind, **options):
        super().__init__()
        self.layers = kind(4, 6, batch_first=True, **options)

    def forward(self, x, lengths, state=None):
        packed = pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
        out, last = self.layers(packed, state)
        padded, found = pad_packed_sequence(out, batch_first=True, total_length=x.shape[1])
        return padded, found, last


KINDS = [
    (nn.LSTM, {}), (nn.GRU, {}), (nn.RNN, {}), (nn.RNN, {"nonlinearity": "relu", "bias": False}),
    (nn.LSTM, {"num_layers": 2, "bidirectional": True}), (nn.GRU, {"num_layers": 2, "dropout": 0.5}),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "options"), KINDS)
def test_layers(kind, options):
    torch.manual_seed(0)
    encoder = Encoder(kind, **options).eval()
    compiled = lampwork.compile(encoder, fullgraph=True, options={"cache": False})
    with torch.no_grad():
        for batch, time, lengths in CALLS:
            x, lengths = _x(batch, time, 4), torch.tensor(lengths).flip(0)
            _same(compiled(x, lengths), encoder(x, lengths))


def test_layers_with_a_state():
    torch.manual_seed(0)
    encoder, state = Encoder(nn.LSTM), (_x(1, 3, 6), _x(1, 3, 6, seed=1))
    compiled = lampwork.compile(encoder, fullgraph=True, options={"cache": False})
    with torch.no_grad():
        for lengths in ([5, 3, 2], [1, 2, 5]):
            _same(
                compiled(_x(3, 5, 4), torch.tensor(lengths), state), encoder(_x(3, 5, 4), torch.tensor(lengths), state)
            )


@pytest.mark.parametrize(("kind", "options"), KINDS)
@pytest.mark.parametrize("inside", [False, True])
def test_gradients(kind, options, inside):
    torch.manual_seed(0)
    encoder = Encoder(kind, **options).eval()
    twin = copy.deepcopy(encoder)

    def step(model, x, lengths):
        padded, _, last = model(x, lengths)
        loss = padded.square().sum() + sum(each.sum() for each in (last if isinstance(last, tuple) else (last,)))
        if inside:
            loss.backward()
        return loss

    compiled = lampwork.compile(step, fullgraph=True, options={"cache": False})
    for batch, time, lengths in CALLS:
        gradients = []
        for function, model in ((compiled, encoder), (step, twin)):
            x = _x(batch, time, 4).requires_grad_()
            loss = function(model, x, torch.tensor(lengths).flip(0))
            if not inside:
                loss.backward()
            gradients.append([loss.detach(), x.grad, *[each.grad for each in model.parameters()]])
        _same(*gradients)


def test_bits_of_eager():
    torch.manual_seed(0)
    encoder = Encoder(nn.LSTM, bidirectional=True)
    compiled = lampwork.compile(encoder, fullgraph=True, options={"cache": False, "numerics": "eager"})
    for _ in range(2):
        found, expected = (each(_x(3, 5, 4), torch.tensor([2, 5, 1])) for each in (compiled, encoder))
        assert all(map(torch.equal, (found[0], *found[2]), (expected[0], *expected[2])))


@pytest.mark.parametrize("lengths", [[3, 5, 2], [5, 3, 0], [5, -1, -2]])
@pytest.mark.parametrize("as_list", [False, True])
@pytest.mark.parametrize("used", [False, True])
def test_what_eager_refuses(lengths, as_list, used):
    def program(x, lengths, counter):
        counter.append(len(counter))
        packed = pack_padded_sequence(x, lengths, batch_first=True)
        return packed.data if used else x * 2

    compiled = lampwork.compile(program, options={"cache": False})
    for first in ([5, 3, 2], [5, 4, 4]):
        counter = []
        compiled(_x(3, 5, 4), first if as_list else torch.tensor(first), counter)
        assert counter == [0]
    messages, counters = [], ([], [])
    for function, counter in zip((program, compiled), counters):
        with pytest.raises(RuntimeError) as raised:
            function(_x(3, 5, 4), lengths if as_list else torch.tensor(lengths), counter)
        messages.append(str(raised.value))
    assert messages[0] == messages[1] and counters[0] == counters[1] == [0]


def cut_off(x, lengths):
    return pack_padded_sequence(x, lengths, batch_first=True)[:2]  # longer ones than there are steps


def sizes_written(x, lengths):
    packed = pack_padded_sequence(x, lengths, batch_first=True)
    packed.batch_sizes[0] = 2
    return packed.batch_sizes[0].item(), packed.batch_sizes


def padded_too_short(x, lengths):
    packed = pack_padded_sequence(x, lengths, batch_first=True)
    try:
        return pad_packed_sequence(packed, total_length=2)
    except ValueError as error:
        return str(error)


def other_data(x, lengths):
    packed = pack_padded_sequence(x, lengths, batch_first=True)
    try:
        return pad_packed_sequence(PackedSequence(packed.data[1:], packed.batch_sizes))
    except RuntimeError:
        return "refused"


def caller_sees_writes(x, lengths, seen):
    seen.add_(1)
    return pack_padded_sequence(x, lengths, batch_first=True).data + seen


@pytest.mark.parametrize("program", [cut_off, sizes_written, padded_too_short, other_data, caller_sees_writes])
def test_the_rest_is_as_eager(program):
    compiled = lampwork.compile(program, options={"cache": False})
    for lengths in ([5, 3, 2], [4, 4, 1], [6, 4, 1], [5, 3, 2]):
        more = [(torch.zeros(4),), (torch.zeros(4),)] if program is caller_sees_writes else [(), ()]
        found, expected = (
            each(_x(3, 5, 4), torch.tensor(lengths), *rest)
            for each, rest in zip((compiled, program), more, strict=True)
        )
        _same(found, expected)
        _same(*more)


def test_packed_outside():
    torch.manual_seed(0)
    layers = nn.GRU(4, 6)

    def program(packed):
        out, last = layers(packed)
        return pad_packed_sequence(out)[0], last

    compiled = lampwork.compile(program, options={"cache": False})
    with torch.no_grad():
        for lengths in ([5, 3], [4, 4, 1]):
            packed = pack_sequence([_x(each, 4) for each in lengths])
            _same(compiled(packed), program(packed))


def test_differentiated_again():
    torch.manual_seed(0)
    encoder = Encoder(nn.GRU)

    def program(x, lengths):
        (first,) = torch.autograd.grad(encoder(x, lengths)[0].sum(), x, create_graph=True)
        return torch.autograd.grad(first.square().sum(), x)[0]

    compiled = lampwork.compile(program, options={"cache": False})
    for lengths in ([5, 3, 2], [2, 2, 5]):
        found, expected = (each(_x(3, 5, 4).requires_grad_(), torch.tensor(lengths)) for each in (compiled, program))
        _same(found, expected)


def test_stored(tmp_path, monkeypatch):
    monkeypatch.setenv("LAMPWORK_CACHE_DIR", str(tmp_path))
    torch.manual_seed(0)
    encoder = Encoder(nn.LSTM)
    for _, lengths in itertools.product(range(2), ([5, 3, 2], [1, 4, 4])):
        compiled = lampwork.compile(encoder, fullgraph=True)
        _same(compiled(_x(3, 5, 4), torch.tensor(lengths)), encoder(_x(3, 5, 4), torch.tensor(lengths)))


@pytest.mark.parametrize("grad", [False, True])
def test_dropout_between_layers_draws_as_eager(grad):
    torch.manual_seed(0)
    encoder = Encoder(nn.LSTM, num_layers=3, dropout=0.5).double()
    twin = copy.deepcopy(encoder)
    compiled = lampwork.compile(encoder, options={"cache": False})
    for batch, time, lengths in CALLS:
        seen = []
        for function, model in ((compiled, encoder), (twin, twin)):
            torch.manual_seed(batch)
            x = _x(batch, time, 4).double().requires_grad_(grad)
            with torch.set_grad_enabled(grad):
                padded, found, _ = function(x, torch.tensor(lengths))
                if grad:
                    padded.sum().backward()
            gradients = [each.grad for each in model.parameters()]
            seen.append([padded.detach(), found, x.grad, gradients, torch.rand(2)])
        _same(*seen)


def test_other_inputs():
    def program(x, lengths):
        packed = pack_padded_sequence(x, lengths, enforce_sorted=False)
        return *pad_packed_sequence(packed, padding_value=-3), packed.data

    compiled = lampwork.compile(program, fullgraph=True, options={"cache": False})
    for x in (torch.arange(15).reshape(5, 3), _x(3, 5).T, _x(5, 3).half(), _x(5, 3, 2, 2)[..., ::2], _x(5, 3) > 0):
        for lengths in ([3, 5, 1], torch.tensor([2, 2, 4], dtype=torch.int32)):
            _same(compiled(x, lengths), program(x, lengths))

"""What training loops do inside of a step: schedules, scaling of gradients, running averages, sequences of lengths."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pack_sequence, pad_packed_sequence, pad_sequence
from torch.optim.lr_scheduler import CosineAnnealingLR, LambdaLR, OneCycleLR, ReduceLROnPlateau, StepLR

from tests.python.harness import program
from tests.python.tensors import values


def _x():
    return values(3, 4)


def _model():
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))


def _norm_without_momentum():
    return nn.BatchNorm1d(4, momentum=None)


@program(_x, _norm_without_momentum)
def batch_norm_averages_all_batches(x, norm):
    return norm(x)


@program(lambda: values(2, 3, 4, 4), lambda: nn.BatchNorm2d(3, momentum=None).eval())
def batch_norm_without_momentum_evaluates(x, norm):
    return norm(x)


@program(_x, _norm_without_momentum, grad=True)
def batch_norm_without_momentum_trains(x, norm):
    norm(x).square().sum().backward()
    return norm.weight.grad, norm.num_batches_tracked


def _packed_parts():
    torch.manual_seed(2)
    return values(3, 5, 4), torch.tensor([5, 3, 2]), nn.LSTM(4, 6, batch_first=True)


@program(together=_packed_parts)
def lengths_packed_and_padded(x, lengths, lstm):
    packed = pack_padded_sequence(x, lengths, batch_first=True)
    padded, found = pad_packed_sequence(packed, batch_first=True)
    return padded, found, packed.batch_sizes


@program(together=_packed_parts)
def lstm_over_packed_lengths(x, lengths, lstm):
    packed = pack_padded_sequence(x, lengths, batch_first=True)
    out, (hidden, cell) = lstm(packed)
    padded, found = pad_packed_sequence(out, batch_first=True)
    return padded, found, hidden, cell


@program(together=lambda: (values(3, 5, 4), torch.tensor([2, 5, 3]), nn.GRU(4, 6, batch_first=True)))
def gru_over_lengths_in_any_order(x, lengths, gru):
    packed = pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
    out, hidden = gru(packed)
    return pad_packed_sequence(out, batch_first=True)[0], hidden


@program(together=_packed_parts, grad=True)
def lstm_over_packed_lengths_trains(x, lengths, lstm):
    out, _ = lstm(pack_padded_sequence(x, lengths, batch_first=True))
    pad_packed_sequence(out, batch_first=True)[0].square().sum().backward()
    return lstm.weight_ih_l0.grad


@program(together=lambda: (values(3, 5, 4), [5, 3, 2], nn.LSTM(4, 6, batch_first=True)))
def lstm_over_lengths_in_a_list(x, lengths, lstm):
    out, _ = lstm(pack_padded_sequence(x, lengths, batch_first=True))
    return pad_packed_sequence(out, batch_first=True)


@program(lambda: [values(4, 2), values(3, 2), values(1, 2)])
def sequences_packed(parts):
    packed = pack_sequence(parts)
    return packed.data, packed.batch_sizes, isinstance(packed, PackedSequence), pad_sequence(parts)


@program(lambda: values(1, 2, 6, 6))
def pooled_and_unpooled(x):
    y, indices = F.max_pool2d(x, 2, return_indices=True)
    return F.max_unpool2d(y, indices, 2), indices


@program(lambda: values(1, 2, 6, 6), lambda: nn.MaxPool2d(2, return_indices=True), lambda: nn.MaxUnpool2d(2))
def unpooling_module(x, pool, unpool):
    y, indices = pool(x)
    return unpool(y, indices, output_size=x.shape)


@program(_x, lambda: torch.tensor(2))
def slice_from_a_buffer(x, count):
    return x[: int(count)] * 2


class Queue(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("queue", torch.zeros(6, 4))
        self.register_buffer("at", torch.zeros(1, dtype=torch.long))

    def forward(self, x):
        at = int(self.at)
        self.queue[at : at + 3] = x
        self.at[0] = (at + 3) % 6
        return self.queue.sum(0)


@program(_x, Queue)
def queue_filled_from_a_pointer(x, queue):
    return queue(x)


def _loss(model, x):
    return model(x).square().mean()


def _scheduled(schedule, **options):
    def together():
        model = _model()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, **options)
        return _x(), model, optimizer, schedule(optimizer)

    return together


def _stepped(x, model, optimizer, scheduler):
    optimizer.zero_grad()
    loss = _loss(model, x)
    loss.backward()
    optimizer.step()
    scheduler.step()
    return loss.detach(), scheduler.get_last_lr()


@program(together=_scheduled(lambda each: StepLR(each, 2, 0.5)), grad=True)
def schedule_of_steps(x, model, optimizer, scheduler):
    return _stepped(x, model, optimizer, scheduler)


@program(together=_scheduled(lambda each: CosineAnnealingLR(each, 10)), grad=True)
def schedule_of_cosines(x, model, optimizer, scheduler):
    return _stepped(x, model, optimizer, scheduler)


@program(together=_scheduled(lambda each: LambdaLR(each, lambda step: min(1.0, (step + 1) / 4))), grad=True)
def schedule_that_warms_up(x, model, optimizer, scheduler):
    return _stepped(x, model, optimizer, scheduler)


@program(together=_scheduled(lambda each: OneCycleLR(each, 0.2, total_steps=20), momentum=0.9), grad=True)
def schedule_of_one_cycle(x, model, optimizer, scheduler):
    return _stepped(x, model, optimizer, scheduler)


@program(together=_scheduled(lambda each: ReduceLROnPlateau(each, patience=1)), grad=True)
def schedule_on_a_plateau(x, model, optimizer, scheduler):
    optimizer.zero_grad()
    loss = _loss(model, x)
    loss.backward()
    optimizer.step()
    scheduler.step(loss.item())
    return loss.detach()


def _with_lbfgs():
    model = _model().double()
    return _x().double(), model, torch.optim.LBFGS(model.parameters(), lr=0.1, max_iter=3)


@program(together=_with_lbfgs, grad=True)
def step_of_lbfgs(x, model, optimizer):
    def closure():
        optimizer.zero_grad()
        loss = _loss(model, x)
        loss.backward()
        return loss

    return optimizer.step(closure).detach()


def _scaled():
    model = _model()
    scaler = torch.amp.GradScaler("cpu", init_scale=16.0)
    return _x(), model, torch.optim.SGD(model.parameters(), lr=0.1), scaler


@program(together=_scaled, grad=True)
def step_with_scaled_gradients(x, model, optimizer, scaler):
    optimizer.zero_grad()
    loss = _loss(model, x)
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
    return loss.detach(), scaler.get_scale()


@program(together=_scaled, grad=True)
def gradients_unscaled_and_clipped(x, model, optimizer, scaler):
    optimizer.zero_grad()
    loss = _loss(model, x)
    scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    norm = nn.utils.clip_grad_norm_(model.parameters(), 0.1)
    scaler.step(optimizer)
    scaler.update()
    return loss.detach(), norm


def _scaler_that_is_off():
    model = _model()
    scaler = torch.amp.GradScaler("cpu", enabled=False)
    return _x(), model, torch.optim.SGD(model.parameters(), lr=0.1), scaler


@program(together=_scaler_that_is_off, grad=True)
def step_with_a_scaler_that_is_off(x, model, optimizer, scaler):
    optimizer.zero_grad()
    loss = _loss(model, x)
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
    return loss.detach(), scaler.get_scale()


def _averaged():
    model = _model()
    return _x(), model, torch.optim.swa_utils.AveragedModel(model)


@program(together=_averaged)
def weights_averaged(x, model, averaged):
    averaged.update_parameters(model)
    return averaged(x), averaged.n_averaged

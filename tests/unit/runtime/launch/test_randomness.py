"""Keys for kernels: how they are made of the generator's state, and when."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

from lampwork import _torch
from lampwork.ir.loops import Buffer
from lampwork.ir.program import Extern, FromBuffer, Placement
from lampwork.runtime.launch import randomness
from lampwork.runtime.launch.randomness import captured_draws, draw_key, dropout_advance, mixed
from tests.unit.runtime.handmade import whole
from tests.unit.runtime.launch.test_host import program, run

H100 = 132 * 8


class OnGpu(torch.Tensor):
    """Memory of the CPU that says it is a GPU's."""

    is_cuda = True
    device = torch.device("cuda", 0)


class Generator:
    def __init__(self, seed=3, offset=8):
        self.seed, self.offset = seed, offset

    def initial_seed(self):
        return self.seed

    def get_offset(self):
        return self.offset

    def set_offset(self, offset):
        self.offset = offset


@pytest.fixture
def generator(monkeypatch):
    made = Generator()
    monkeypatch.setattr(torch.cuda, "default_generators", (made,))
    monkeypatch.setattr(randomness, "resident_blocks", lambda device: H100)
    monkeypatch.setattr(_torch, "is_cuda_capturing", lambda: False)
    return made


def empty():
    return torch.zeros((), dtype=torch.int64).as_subclass(OnGpu)


@pytest.mark.parametrize(
    ("numel", "advance"),
    [(0, 0), (1, 4), (256 * H100 * 4, 4), (256 * H100 * 4 + 1, 8), (1 << 30, 4 * 993), (1 << 33, 4 * 7944)],
)
def test_advances_as_eager(numel, advance):
    assert dropout_advance(numel, H100) == advance


def test_a_key_for_each_state(generator):
    keys = [draw_key((1000, 300_000_000), out=empty()).item() for _ in range(4)]
    assert len(set(keys)) == 4
    assert generator.offset == 8 + 4 * (4 + 4 * 278)
    generator.offset = 8
    assert draw_key((7,), out=empty()).item() == keys[0]
    assert generator.offset == 12


def test_states_that_look_alike_have_keys_that_do_not():
    keys = {mixed(seed, offset) for seed in range(64) for offset in range(0, 256, 4)}
    assert len(keys) == 64 * 64
    assert all(-(1 << 63) <= key < 1 << 63 for key in keys)
    ones = [bin((key ^ mixed(0, 0)) & (1 << 64) - 1).count("1") for key in keys]
    assert 31 < sum(ones) / len(ones) < 33


def test_a_graph_reads_keys_drawn_before_each_replay(generator, monkeypatch):
    out = [empty(), empty()]
    monkeypatch.setattr(_torch, "is_cuda_capturing", lambda: True)
    with captured_draws(torch.empty(2, dtype=torch.int64).as_subclass(OnGpu)) as draws:
        for each in out:
            draw_key((1000, 5), out=each)
        with pytest.raises(RuntimeError, match="more than 2 keys"):
            draw_key((1000, 5), out=empty())
    monkeypatch.setattr(_torch, "is_cuda_capturing", lambda: False)
    assert len(draws) == 2 and generator.offset == 8  # nothing was drawn
    with torch.inference_mode():
        draws.before_replay()
    assert generator.offset == 8 + 2 * 8
    graph_keys = [key.item() for key, _ in draws._places]
    generator.offset = 8
    assert graph_keys == [draw_key((1000, 5), out=empty()).item() for _ in range(2)]  # as a plain call draws them


def test_in_a_capture_of_the_programs_own_aten_draws(generator, monkeypatch):
    monkeypatch.setattr(_torch, "is_cuda_capturing", lambda: True)
    torch.manual_seed(0)
    keys = {draw_key((1000,), out=empty()).item() for _ in range(3)}
    assert len(keys) == 3 and generator.offset == 8


def test_a_program_draws_into_planned_memory():
    key = Buffer("key", "int64", (), ())
    result = Buffer("out", "int64", (), ())
    steps = [
        Extern("lampwork::draw_key.default", ((12, 30),), (), ("key",), "lampwork::draw_key.out", draws=True),
        Extern("aten::clone", (whole(key),), (), ("out",), "aten::clone.out"),
    ]
    places = {"key": Placement("workspace"), "out": Placement("result")}
    made = program(
        [key, result], places, steps, [FromBuffer(whole(result))], (), result_storages=("out",), workspace_bytes=64
    )
    torch.manual_seed(4)
    (drawn,) = run(made)
    torch.manual_seed(4)
    assert torch.equal(drawn, torch.empty((), dtype=torch.int64).random_())


def test_threads_of_the_device(monkeypatch):
    properties = SimpleNamespace(multi_processor_count=132, max_threads_per_multi_processor=2048)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: properties)
    assert randomness.resident_blocks.__wrapped__(0) == H100

"""Random numbers of kernels on a GPU: keys drawn from torch's generator, which advances as eager's kernels would do it.

    key = mixed(seed, offset of the default generator)      one for all that draws between two random calls of ATen
    bits = random(key + number of the dropout, element)     in kernels, see `ir.scalar_operators`
    offset += what eager's dropout of each would add

So draws differ from call to call, come again after `torch.manual_seed` or with a saved state of the generator, and
leave the generator as eager leaves it. Their values are not eager's.

A CUDA graph reads its keys from memory that is filled before each replay (`captured_draws`). In a graph that the
program captures itself, nobody is asked before a replay: there ATen draws the key, which is another one on each replay,
and the generator advances by less than eager's.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import torch

from lampwork import _torch, forks
from lampwork.backends import backend_of

#: ATen's dropout: threads of a block, and numbers that a thread draws at a time.
_BLOCK, _UNROLL = 256, 4
_MASK = (1 << 64) - 1

_lock = threading.Lock()
_capture = threading.local()


@forks.in_child
def _in_child() -> None:
    global _lock
    _lock = threading.Lock()


def draw_key(numels: Sequence[int], *, out: torch.Tensor) -> torch.Tensor:
    """Draws a key into `out` (int64, one element); the generator advances as for dropouts of `numels` elements."""
    if not out.is_cuda:
        return out.random_()
    if _torch.is_cuda_capturing():
        draws = getattr(_capture, "draws", None)
        return out.random_() if draws is None else out.copy_(draws.place(out, numels))
    return out.fill_(_next_key(out, numels))


def generator_states(device: str) -> tuple[torch.Tensor, ...]:
    """The states of the generators that a program on `device` draws from: the CPU's and, on a GPU, the device's."""
    state = torch.get_rng_state()
    return (state, *backend_of(device).launching.generator_states(device))


def restore_generators(states: tuple[torch.Tensor, ...], device: str) -> None:
    """The generators as `generator_states` found them."""
    torch.set_rng_state(states[0])
    if len(states) > 1:
        backend_of(device).launching.restore_generators(states[1:], device)


class CapturedDraws:
    """The keys that a captured graph reads, in order, in `memory` from before the capture: what the graph allocates may
    lie where something else in it lay, and keys are filled in before all of it."""

    def __init__(self, memory: torch.Tensor) -> None:
        self._memory = memory
        self._places: list[tuple[torch.Tensor, tuple[int, ...]]] = []

    def place(self, like: torch.Tensor, numels: Sequence[int]) -> torch.Tensor:
        """Where the graph finds its next key. Raises `RuntimeError` where there is no more room."""
        if len(self._places) == self._memory.numel():
            raise RuntimeError(f"a graph with more than {self._memory.numel()} keys for random numbers")
        with torch.inference_mode(False):
            key = self._memory[len(self._places)].view(like.shape)
        self._places.append((key, tuple(numels)))
        return key

    def before_replay(self) -> None:
        """Draws new keys, on the current stream."""
        for key, numels in self._places:
            key.fill_(_next_key(key, numels))

    def __len__(self) -> int:
        return len(self._places)


@contextmanager
def captured_draws(memory: torch.Tensor) -> Iterator[CapturedDraws]:
    """Meanwhile this thread captures a graph whose replays are preceded by `before_replay`; its keys are in `memory`
    (int64)."""
    outer = getattr(_capture, "draws", None)
    _capture.draws = draws = CapturedDraws(memory)
    try:
        yield draws
    finally:
        _capture.draws = outer


def _next_key(key: torch.Tensor, numels: Sequence[int]) -> int:
    """The next key of the device where `key` is."""
    device = key.get_device()
    generator = torch.cuda.default_generators[device]
    blocks = resident_blocks(device)
    with _lock:  # calls of ATen in other threads take the generator's own lock, which Python cannot
        offset = generator.get_offset()
        generator.set_offset(offset + sum(dropout_advance(numel, blocks) for numel in numels))
    return mixed(generator.initial_seed(), offset)


@functools.cache
def resident_blocks(device: int) -> int:
    """Blocks of ATen's dropout that a device holds at a time; no launch has more."""
    properties = torch.cuda.get_device_properties(device)
    return properties.multi_processor_count * (properties.max_threads_per_multi_processor // _BLOCK)


def dropout_advance(numel: int, blocks: int) -> int:
    """By how much eager's dropout of `numel` elements advances the generator's offset, where `blocks` fit the device.

    Each thread draws `_UNROLL` numbers at a time until all elements have one (ATen/native/cuda/Dropout.cu).
    """
    if not numel:
        return 0
    grid = min(blocks, -(-numel // _BLOCK))
    return ((numel - 1) // (_BLOCK * grid * _UNROLL) + 1) * _UNROLL


def mixed(seed: int, offset: int) -> int:
    """A signed 64-bit number, another one for each state of a generator (SplitMix64: Steele, Lea and Flood, 2014)."""
    word = (seed + offset * 0x9E3779B97F4A7C15) & _MASK
    word = (word ^ (word >> 30)) * 0xBF58476D1CE4E5B9 & _MASK
    word = (word ^ (word >> 27)) * 0x94D049BB133111EB & _MASK
    word ^= word >> 31
    return word - (1 << 64) if word >> 63 else word


#: Operators of programs that are not ATen's, by name; they write into `out`.
OPERATORS: dict[str, Callable[..., torch.Tensor]] = {"lampwork::draw_key.out": draw_key}

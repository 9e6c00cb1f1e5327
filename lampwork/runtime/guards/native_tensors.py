"""Tensors that are new on each call, compared natively with what their guards ask for.

    look = NativeTensorGuard(tests)  one `TensorIs` for each tensor, all sizes known
    places = look(tensors)           their addresses, None where some tensor is not as its test says
    look.disjoint(places, ranges)       whether they overlap neither each other nor memory that stays

A gradient is another tensor in each step, of the same type, sizes, strides and device. Asking for ten attributes of
each of three hundred takes 300 us; here machine code compares the words of their `TensorImpl`s that the answers come
from, and reads where their data is, in 3 us. What it finds different is asked for its attributes: bits that no test
asks for may differ (four variants of them are remembered), and tensors with a history or views are always looked at so.
"""

from __future__ import annotations

import ctypes
import functools
import platform
from array import array
from collections.abc import Callable, Sequence
from typing import Any

import torch

from lampwork import _torch
from lampwork.ir.dtype import ITEM_SIZE_BYTES
from lampwork.ir.guard import TensorIs
from lampwork.runtime.guards.interpreter import extent_bytes
from lampwork.runtime.launch.native import ExecutableMemory

#: LLVM's code for four functions, whose text is in tests/unit/runtime/guards/test_native_tensors.py:
#:     int64 look(items, table, places, start)                 the number of the first tensor that is turned away
#:     int64 disjoint(places, extents, order, count, ranges)      1 or 0; `order` is left sorted by place
#:     int64 touches(begin, end, places, extents, count)       whether memory from `begin` to `end` overlaps any
#:     int64 same(places, count, item_bytes)                   whether numbers of 4 or 8 bytes have the same bits
_MACHINE_CODE = {
    "x86_64": bytes.fromhex(
        "554157415641554154534889c848895424f8488b0e4c8b4608488b56104c8b56184c8b4e204c894c24e04c8b4e284c894c24e84c"
        "8b76304c8b7e384c8b66404c8b4e484c894c24f04839c80f83d80000004c8b1cc7488b6cc650498b5b08483b5d000f85c1000000"
        "4f8b1c034b8b1c23483b5d187416483b5d207410483b5d28740a483b5d300f859d000000488b5d384c8d6d404885db74210f1f80"
        "000000004d8b4d004f8b0c0b4d3b4d08757b48ffcb4983c5104885db75e6488b5d104f8b2c134d85ed742a4c8b4c24f04d394d00"
        "75574c8b4c24e84b837c0d0000754a4c8b4c24e0470fb64c0d004939d97407eb384885db7533498b1c134885db742a4a8b1c3348"
        "85db74214f8b0c3b4c0faf4d084c01cb4c8b4c24f849891cc148ffc04839c80f8228ffffff5b415c415d415e415f5dc36666662e"
        "0f1f840000000000415741564154534889c8660f1f44000048d1e84885c074544c8d0cc24989d24989c3eb1b6666662e0f1f8400"
        "000000004b891cf949ffc34983c1084983c2084939cb73cc4a8b1cda4c8b34df4531ff904f8d243b4939c472d74f8b24fa4e3934"
        "e776cd4f8924f94929c7ebe4498b004983c0104531f64531c94531d2eb0b66904d89f349ffc14d89de4939c9735c4a8b1cca4c8b"
        "1cde4d85db74e5488b1cdf4c39f372424901db4d89d649c1e6044d01c64939c273cd662e0f1f84000000000049391e771b49ffc2"
        "4983c6104939c272efebb0666666662e0f1f8400000000004d395ef8739d31c0eb05b8010000005b415c415e415fc3660f1f8400"
        "0000000031c04c39c0733a660f1f8400000000004c8b0cc24c8b14c14f8d1c114c39df410f92c34939f1410f92c14520d94d85d2"
        "410f95c24584d1750b48ffc04c39c072cf31c0c3b801000000c3660f1f440000488b074883fa087505488b00eb028b00b9010000"
        "004839f17336660f1f4400004c8b04cf4883fa0875164d8b004939c07416eb226666662e0f1f840000000000458b004939c0750e"
        "48ffc14839f172d0b801000000c331c0c3"
    ),
    "aarch64": bytes.fromhex(
        "f30f1ff8282440a92a2c41a92c3442a92e3c43a9304444a97f0008eb6206005472f07dd34502018b046872f8b22840f9850440f9"
        "460240f9bf0006eb61050054846869f8469e41a9856870f8bf0006eb46ce42a9a41047faa41046faa41053fa41040054451e40f9"
        "46020191e50000b4c74cc1a8876867f8ff0013eb61030054a50400d165ffffb586686bf8450a40f9460100b4c70040f9ff0011eb"
        "61020054c7686df8270200b5c6686c38df0005eb600000540d000014850100b585686af8450100b4a5686ef8050100b484686ff8"
        "520640f99214129b527823f8630400917f0008ebe3f9ff54e00303aaf30741f8c0035fd6e80303aa08fd41d3080300b4490c088b"
        "ea0302aaeb0308aa050000142c792ef86b050091292100914a2100917f0103eba2feff544c786bf8ee031faa0d786cf86f010e8b"
        "ff0108eba3feff544f796ef810786ff81f020deb29feff542f792ef8ce0108cbf7ffff178b0441f8e9031faaec031faaea031faa"
        "2800805205000014cd815ff8bf010cebe3020054290500913f0103eba20200544d7869f82f786df86fffffb40d786df8bf010ceb"
        "c30100548e100a8bac010f8b5f010beb82feff54ef030eaaf00541f81f020deba8fdff544a050091ee030faa5f010beb23ffff54"
        "ebffff17e8031faae00308aac0035fd6e80300aae9031faa2000805202000014290500913f0104eb420100544b7869f86a7869f8"
        "6c010a8b1f010ceb22ffff547f0101ebe2feff54cafeffb4c0035fd6e0031faac0035fd6080040f95f2000f161000054090140f9"
        "02000014090140b9280080522a0080525f0101ebc20100540b786af85f2000f1a10000546b0140f97f0109eba000005409000014"
        "6b0140b97f0109ebc10000544a0500915f0101eb83feff54e00308aac0035fd6e8031faae00308aac0035fd6"
    ),
}
_ENTRIES = {"x86_64": (0, 320, 576, 656), "aarch64": (0, 244, 484, 556)}
_PLAIN = {"torch.Tensor": torch.Tensor, "torch.nn.parameter.Parameter": torch.nn.Parameter}
#: Words of a pattern in front of its fields; the variants of traits in it.
_FIELDS, _VARIANTS = 8, range(3, 7)
#: Where a pattern has the keys that are wanted.
_KEYS = _FIELDS + 1
#: So many tensors, and a fourth of all, turned away by the native comparison make it a waste of time.
MOST_ASKED = 8
#: More dimensions are kept elsewhere.
_MOST_DIMENSIONS = 5
#: Items of a tuple begin so many bytes after its address (from CPython 3.14 on, a hash is in front of them).
_TUPLE_ITEMS = tuple.__basicsize__


@functools.cache
def _functions() -> tuple[Callable[..., int], ...]:
    machine = platform.machine()
    memory = ExecutableMemory(_MACHINE_CODE[machine])
    _kept.append(memory)
    word = ctypes.c_int64
    return tuple(
        ctypes.PYFUNCTYPE(word, *[word] * count)(memory.address + entry)
        for entry, count in zip(_ENTRIES[machine], (4, 5, 5, 3))
    )


_kept: list[object] = []


@functools.cache
def supported() -> bool:
    """Whether this machine, interpreter and PyTorch keep things where this file looks for them. (Beside what
    `memory_words.supported` asks for.)"""
    sample = (object(), object())
    held = ctypes.c_uint64.from_address(id(sample) + _TUPLE_ITEMS + 8).value
    return platform.machine() in _MACHINE_CODE and held == id(sample[1]) and _torch.metadata_layout() is not None


def can_look_at(test: TensorIs) -> bool:
    """Whether tensors with this test can be compared natively: they have memory, and all sizes are known."""
    return (
        test.tensor_type in _PLAIN
        and test.layout == "strided"
        and None not in (*test.shape, *test.strides)
        and 0 not in test.shape
        and len(test.shape) <= _MOST_DIMENSIONS
        and test.dtype in ITEM_SIZE_BYTES
        and not (test.is_inference or test.is_conj or test.is_neg)
        and test.is_leaf is not False
    )


class NativeTensorGuard:
    """Called with a tuple of tensors, one for each of `tests` (which `can_look_at`): an array of their addresses; None
    where one is not as its test says. `placed`: which of them `disjoint` and `touch` speak of; all by default. Safe to
    call from many threads."""

    def __init__(self, tests: Sequence[TensorIs], placed: Sequence[bool] | None = None) -> None:
        layout, metadata = _torch.tensor_layout(), _torch.metadata_layout()
        assert layout is not None and metadata is not None
        self._tests, self._metadata = tuple(tests), metadata
        known = {test: _pattern(test, metadata) for test in dict.fromkeys(tests)}
        self._patterns = [known[test] for test in tests]
        self._table = array("Q", [
            len(tests), layout.handle, layout.storage, layout.autograd, layout.requires_grad, layout.grad_fn,
            layout.data, metadata.offset, metadata.traits, metadata.plain_autograd,
            *[pattern.buffer_info()[0] for pattern in self._patterns],
        ])  # fmt: skip
        self._address = self._table.buffer_info()[0]
        self._empty = array("Q", bytes(8 * len(tests)))
        asked = [True] * len(tests) if placed is None else placed
        self._extents = array("Q", [extent_bytes(test) or 0 if each else 0 for test, each in zip(tests, asked)])
        self._order = array("Q", range(len(tests)))
        self._functions = _functions()
        predicates = {test: _predicate(test) for test in known}
        self._predicates = [predicates[test] for test in tests]
        #: Set where the native comparison turns many of the tensors away (views): they are asked one by one then.
        self._one_by_one = False

    def __call__(self, tensors: tuple) -> array | None:
        if self._one_by_one:
            return self._ask_each(tensors)
        places = self._empty[:]
        look, count = self._functions[0], len(self._tests)
        into = places.buffer_info()[0]
        position = look(id(tensors) + _TUPLE_ITEMS, self._address, into, 0)
        asked = 0
        while position != count:
            place = self._ask(position, tensors[position])
            if place is None:
                return None
            asked += 1
            places[position] = place
            position = look(id(tensors) + _TUPLE_ITEMS, self._address, into, position + 1)
        self._one_by_one = asked > MOST_ASKED and asked > count // 4
        return places

    def _ask_each(self, tensors: tuple) -> array | None:
        """The same without the native comparison."""
        if len(tensors) != len(self._predicates):
            return None
        for predicate, value in zip(self._predicates, tensors):
            if not predicate(value):
                return None
        return array("Q", [value.data_ptr() for value in tensors])

    def _ask(self, position: int, value: Any) -> int | None:
        """The address of a tensor that the native comparison turned away, if it is as its test says all the same."""
        pattern = self._patterns[position]
        if not self._predicates[position](value):
            return None
        if not value.is_leaf or value._is_view():  # looked at so each time
            return value.data_ptr()
        traits = ctypes.c_uint64.from_address(value._cdata + self._metadata.traits).value
        keys = ctypes.c_uint64.from_address(value._cdata + self._metadata.keys).value
        known = [pattern[variant] for variant in _VARIANTS] if pattern[_KEYS] == keys else []
        if traits not in known:
            # No other thread may see these keys with traits that were seen with others; no tensor's are 0.
            for variant in _VARIANTS:
                pattern[variant] = 0
            pattern[_KEYS] = keys
            for variant, word in zip(_VARIANTS, [traits, *known]):
                pattern[variant] = word
        return value.data_ptr()

    def disjoint(self, places: array, ranges: array) -> bool:
        """The tensors at `places` overlap neither each other nor `ranges`: how many there are, then begin and end of
        each, sorted and not overlapping."""
        order = self._order[:]
        count = len(places)
        addresses = [each.buffer_info()[0] for each in (places, self._extents, order)]
        if not self._functions[1](*addresses, count, ranges.buffer_info()[0]):
            return False
        self._order = order  # the next tensors often lie in the same order
        return True

    def touch(self, places: array, begin: int, extent: int) -> bool:
        """A tensor at `places` overlaps the `extent` bytes from `begin`."""
        addresses = [each.buffer_info()[0] for each in (places, self._extents)]
        return bool(extent and self._functions[2](begin, begin + extent, *addresses, len(places)))


class DistinctObjects:
    """Called with a tuple of `count` objects: whether no two of them are one. Safe to call from many threads."""

    def __init__(self, count: int) -> None:
        self._count = count
        self._extents, self._order = array("Q", [1]) * count, array("Q", range(count))
        self._nothing = array("Q", [0])
        self._disjoint = _functions()[1]

    def __call__(self, objects: tuple) -> bool:
        order = self._order[:]
        extents, nothing = self._extents.buffer_info()[0], self._nothing.buffer_info()[0]
        # Different objects do not overlap as one byte each: the items of the tuple are their addresses.
        found = self._disjoint(id(objects) + _TUPLE_ITEMS, extents, order.buffer_info()[0], self._count, nothing)
        self._order = order  # the next objects often lie in the same order
        return bool(found)


class SameNumbers:
    """Whether tensors of one element on the CPU, which stay where they are, all hold the same number; called without
    arguments. Where it is false they may: 0.0 is -0.0. Raises ValueError for other tensors."""

    def __init__(self, tensors: Sequence[torch.Tensor]) -> None:
        first = tensors[0]
        self._item_bytes = first.element_size()
        if self._item_bytes not in (4, 8) or any(
            each.numel() != 1 or each.dtype is not first.dtype or not each.is_cpu for each in tensors
        ):
            raise ValueError("not numbers of one type on the CPU")
        self._first, self._places = first, array("Q", [each.data_ptr() for each in tensors])
        self._address, self._same = self._places.buffer_info()[0], _functions()[3]

    def __call__(self) -> bool:
        number = self._first.item()
        return bool(number == number and self._same(self._address, len(self._places), self._item_bytes))


def _predicate(test: TensorIs) -> Callable[[object], bool]:
    """Whether a value is a tensor as `test` says, of those that `can_look_at`. Runs nothing of the program."""
    kind, dtype, device = _PLAIN[test.tensor_type], getattr(torch, test.dtype), torch.device(test.device)
    shape, strides, requires_grad, leaf = test.shape, test.strides, test.requires_grad, test.is_leaf
    strided = torch.strided

    def is_such(value: object) -> bool:
        return (
            type(value) is kind
            and value.dtype is dtype
            and value.layout is strided
            and value.shape == shape
            and value.stride() == strides
            and value.requires_grad is requires_grad
            and value.device == device
            and not (value.is_inference() or value.is_neg() or value.is_conj())
            and (leaf is None or value.is_leaf is leaf)
        )

    return is_such


def _pattern(test: TensorIs, metadata: Any) -> array:
    """What the native comparison wants of a tensor; the words of its type and keys are those of the first that comes.

    type, bytes of an element, requires_grad, four variants of traits, number of fields, then offset and word of each
    """
    fields: list[tuple[int, Any]] = [(metadata.keys, 0), (metadata.dimensions, len(test.shape))]
    fields += [(metadata.sizes + 8 * axis, size) for axis, size in enumerate(test.shape)]
    fields += [(metadata.strides + 8 * axis, step) for axis, step in enumerate(test.strides)]
    head = [id(_PLAIN[test.tensor_type]), ITEM_SIZE_BYTES[test.dtype], int(test.requires_grad), 0, 0, 0, 0, len(fields)]
    return array("Q", [*head, *(word for field in fields for word in field)])

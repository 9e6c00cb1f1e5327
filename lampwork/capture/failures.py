"""What eager raises where an operator fails on fakes: the same call on stand-ins, tensors with the fakes' metadata.

    x @ y      # f32[2, 4], f32[3, 5]  ->  RuntimeError: mat1 and mat2 shapes cannot be multiplied (2x4 and 3x5)

Metadata is guarded, so an error that it causes comes on every call that the guards let in, in eager's own words. It is
taken for one if the stand-ins raise it whatever they hold. The program may then catch it, or end with it, in the graph.
"""

from __future__ import annotations

import dis
import operator
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

from lampwork import _torch
from lampwork.capture.leave.operations import Operation, operation_of
from lampwork.capture.machine import Frame
from lampwork.capture.outside.overlay import Break
from lampwork.capture.outside.plain import is_plain
from lampwork.capture.outside.tensor_inputs import is_tensor_function
from lampwork.capture.record.fake import DataDependent, Fake
from lampwork.capture.stops import makes_its_text
from lampwork.capture.values.sizes import SYMBOLIC, number

#: What the storages of the stand-ins of one call may take. The call itself is expected to fail before it computes.
_LARGEST_BYTES = 1 << 28
#: Classes of what stands for a number or a tensor of the program, as errors of native code name them.
_STAND_INS = (
    "Fake", "MachineGenerator", "SymInt", "SymBool", "SymFloat", "SizeNode", "TruthNode", "FloatNode", "NumberNode",
    "'Scalar'", "not Scalar",
)  # fmt: skip
#: What the text of an error betrays: values that stand for the program's own, and addresses.
_OWN_WORDS = (*_STAND_INS, "lampwork", "Unknown", "Interpreted", "Deferred", "Pending", "Callback", " at 0x")
_OWN_DIRECTORY = __file__.rpartition("/")[0] + "/"
_PACKAGE = _OWN_DIRECTORY.rpartition("capture/")[0]
_MACHINE_DIRECTORY = _OWN_DIRECTORY + "machine/"
#: Where functions are called because the program calls them.
_CALLS_FOR_THE_PROGRAM = (
    _OWN_DIRECTORY, _PACKAGE + "fakes/", _PACKAGE + "_torch/", _PACKAGE + "ir/operations.py",
)  # fmt: skip
_OWN_NAMESPACES = frozenset({"aten", "prims", "prim"})


class _NoStandIn(Exception):
    """A value that nothing can stand for."""


def has_own_words(error: BaseException) -> bool:
    """Whether the text of `error` tells of values that exist while capturing only."""
    if makes_its_text(error):
        return not all(map(is_plain, error.args))
    text = str(error)
    return any(word in text for word in _OWN_WORDS)


def tells_of_stand_ins(error: BaseException) -> bool:
    """Whether native code that raised `error` was given what stands for a number or a tensor, and says so."""
    return any(word in each for each in error.args if type(each) is str for word in _STAND_INS)


def is_certain(error: BaseException) -> bool:
    """Whether a native function of Python that raised `error` on guarded values raises an equal one on every call."""
    return not has_own_words(error) and all(map(is_plain, error.args))


def raised_deliberately(error: BaseException) -> bool:
    """Whether the line of ours that raised `error`, if it is one, calls something or raises: what else fails in our own
    code (but the machine's, which does what instructions do) is a defect, and the program is better off without it."""
    traceback = error.__traceback__
    while traceback is not None and traceback.tb_next is not None:
        traceback = traceback.tb_next
    file = "" if traceback is None else traceback.tb_frame.f_code.co_filename
    if traceback is None or not file.startswith(_PACKAGE) or file.startswith(_MACHINE_DIRECTORY):
        return True
    if not file.startswith(_CALLS_FOR_THE_PROGRAM):
        return False
    operation = traceback.tb_frame.f_code.co_code[traceback.tb_lasti]
    return dis.opname[operation].startswith(("CALL", "RAISE"))


def eager_error(recorder: Any, frame: Frame, stack: list[Any], error: Exception) -> Exception | None:
    """What the operation that `frame` is executing raises in eager; None if that may depend on what tensors hold.

    `stack`: the frame's when the operation began. `error`: what the operation raised on fakes.
    """
    if _torch.refuses_write(error) and not has_own_words(error):
        # Fakes have eager's history. Stand-ins have none, and neither has what a region that ended here would leave.
        error.__traceback__ = _without_own(error.__traceback__)
        return error
    operation = _operation(frame, stack)
    if operation is None:
        return None
    found: list[Exception] = []
    with recorder._paused(), _random_state_kept():
        for fill in (_zeros, _ones_and_noise):
            try:
                call = _on_stand_ins(operation, fill)
            except _NoStandIn:
                return None
            try:
                call()
            except Exception as raised:
                found.append(raised)
            else:
                return None
    first, second = found
    # They hold this frame, which holds them: without that, what it knows of is let go where capture ends.
    first.__traceback__, second.__traceback__ = None, _without_own(second.__traceback__)
    if type(first) is not type(second) or str(first) != str(second):
        return None
    if type(first) is not type(error) or has_own_words(first):
        return None
    error.__traceback__ = None
    return second


def break_for(error: Exception) -> Break:
    """The break where `error` was raised on fakes, and `eager_error` knows none: an operator that reads contents, the
    operator's own error, or a defect of ours. Under LAMPWORK_STRICT the latter ends the capture."""
    if _torch.reads_what_is_not_there(error):
        unread = DataDependent("a native function")
        return Break(unread.diagnostic.id, unread.diagnostic.reason, unread.diagnostic.remedy)
    if raised_deliberately(error):
        return Break("operator-error", f"a tensor operator raises {type(error).__name__}: {error}")
    stop = Break("capture-failed", f"recording an operation failed with {type(error).__name__}: {error}")
    stop.__cause__ = error
    return stop


def _operation(frame: Frame, stack: list[Any]) -> Operation | None:
    kept = frame.stack
    frame.index -= 1
    frame.stack = list(stack)
    try:
        return operation_of(frame)
    finally:
        frame.index += 1
        frame.stack = kept


def _on_stand_ins(operation: Operation, fill: Callable[[torch.Tensor], None]) -> Callable[[], Any]:
    """The call, on stand-ins made afresh. Raises `_NoStandIn` if it does more than to compute on tensors."""
    made = _StandIns(fill)
    function = operation.callable
    owner = getattr(function, "__self__", None)
    if isinstance(function, _torch.OPERATOR_TYPES):
        if str(function).partition(".")[0] not in _OWN_NAMESPACES:
            raise _NoStandIn  # a user's own may do anything
    elif type(owner) is Fake:
        function = getattr(made.value(owner), function.__name__)
    elif (
        not is_tensor_function(function) and getattr(operator, getattr(function, "__name__", ""), None) is not function
    ):
        raise _NoStandIn
    args = [made.value(each) for each in operation.args]
    kwargs = {name: made.value(each) for name, each in operation.kwargs.items()}
    return lambda: function(*args, **kwargs)


class _StandIns:
    """Makes stand-ins for the values of one call; those of fakes that share memory share memory."""

    def __init__(self, fill: Callable[[torch.Tensor], None]) -> None:
        self.fill = fill
        self.room = _LARGEST_BYTES
        self.storages: dict[int, torch.UntypedStorage] = {}
        self.tensors: dict[int, torch.Tensor] = {}

    def value(self, value: Any) -> Any:
        kind = type(value)
        if kind is Fake:
            made = self.tensors.get(id(value))
            if made is None:
                made = self.tensors[id(value)] = self.tensor(value)
            return made
        if kind is list or kind is tuple:
            return kind([self.value(each) for each in value])
        if kind is dict and all(type(name) is str for name in value):
            return {name: self.value(each) for name, each in value.items()}
        if kind is slice:
            return slice(*map(self.value, (value.start, value.stop, value.step)))
        if kind in SYMBOLIC:
            return number(value)
        if is_plain(value):
            return value
        raise _NoStandIn

    def tensor(self, fake: Fake) -> torch.Tensor:
        if fake.is_conj() or fake.is_neg() or fake.is_inference():
            raise _NoStandIn
        grows = fake.requires_grad
        if grows and not fake.is_leaf and fake._is_view():
            raise _NoStandIn
        with torch.no_grad():
            made = torch.empty(0, dtype=fake.dtype, device=fake.device)
            sizes, strides = [int(each) for each in fake.size()], [int(each) for each in fake.stride()]
            made.set_(self.storage(fake), int(fake.storage_offset()), sizes, strides)
            if issubclass(fake.real_class, torch.nn.Parameter):
                made = torch.nn.Parameter(made, requires_grad=grows)
        if grows and fake.is_leaf:
            made.requires_grad_()
        elif grows:
            with torch.enable_grad():
                made = made.requires_grad_().clone()
        return made

    def storage(self, fake: Fake) -> torch.UntypedStorage:
        held = fake if fake.lampwork_storage is None else fake.lampwork_storage
        key = _torch.storage_key(fake)
        found = self.storages.get(key)
        if found is None:
            storage = held.untyped_storage() if isinstance(held, torch.Tensor) else held
            # The storage of a tensor of symbolic sizes is a name.
            size = 0 if isinstance(storage, _torch.MemoryName) else int(storage.nbytes())
            last = sum((int(size) - 1) * int(step) for size, step in zip(fake.size(), fake.stride()))
            size = max(size, (int(fake.storage_offset()) + last + 1) * fake.itemsize)
            self.room -= size
            if self.room < 0:
                raise _NoStandIn
            memory = torch.empty(size // fake.itemsize + 1, dtype=fake.dtype, device=fake.device)
            self.fill(memory)
            found = self.storages[key] = memory.untyped_storage()
        return found


def _zeros(memory: torch.Tensor) -> None:
    memory.zero_()


def _ones_and_noise(memory: torch.Tensor) -> None:
    if memory.is_floating_point() and memory.element_size() > 1:
        memory.uniform_(0.5, 1.5)
    else:
        memory.fill_(1)


@contextmanager
def _random_state_kept() -> Iterator[None]:
    before = torch.get_rng_state()
    cuda = torch.cuda.get_rng_state() if torch.cuda.is_initialized() else None
    try:
        yield
    finally:
        torch.set_rng_state(before)
        if cuda is not None:
            torch.cuda.set_rng_state(cuda)


def _without_own(traceback: Any) -> Any:
    while traceback is not None and traceback.tb_frame.f_code.co_filename.startswith(_OWN_DIRECTORY):
        traceback = traceback.tb_next
    return traceback

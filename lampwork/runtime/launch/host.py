"""Turns an artifact's host text into a function that runs: its names, its memory, its machine code.

Host(artifact).call(values, generation) -> tuple of results, one for each of `Program.results`
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import torch

from lampwork import _torch
from lampwork.backends import backend_of
from lampwork.config import environment
from lampwork.errors import LampworkError
from lampwork.ir.artifact import Artifact
from lampwork.ir.dtype import ITEM_SIZE_BYTES
from lampwork.ir.program import Program
from lampwork.ir.source import is_lasting
from lampwork.runtime.generated import run_text
from lampwork.runtime.launch.memory import Lease, ResultMemory, arena, planned
from lampwork.runtime.launch.out_arguments import ResultMoved, checked
from lampwork.runtime.launch.prepacked import DerivedInputs
from lampwork.runtime.launch.rollback import Rollbacks, put_back
from lampwork.runtime.launch.unbacked_sizes import AssumptionFailed, SideNotAssumed, SizeNotAssumed

#: The module of this folder, each loaded by the first program that calls it, for each operator of Lampwork's own.
_HOMES = {
    "lampwork::draw_key.out": "randomness",
    "lampwork::many_of_one.default": "unbacked_sizes",
    "lampwork::as_strided_scatter.default": "strided",
    "lampwork::mkldnn_rnn_layer_with_workspace.default": "recurrent",
    "lampwork::recurrent_layer.default": "recurrent",
    "lampwork::recurrent_layer_backward.default": "recurrent",
    "lampwork::pack_padded.default": "recurrent",
    "lampwork::pad_packed.default": "recurrent",
    "lampwork::pack_padded_backward.default": "recurrent",
    "lampwork::pad_packed_backward.default": "recurrent",
}


class Rerun(LampworkError):
    """An entry failed before it did anything that the caller can see: the call may run eagerly instead.

    `__cause__` is what happened. `stage`: "run" for the program, whose failure may be the call's own; "guards" and
    "result" for what stands around it, which is ours.
    """

    def __init__(self, stage: str = "run") -> None:
        super().__init__(f"stage {stage} of an entry failed")
        self.stage = stage


class Host:
    """A bound host function with its memory. Safe to call from many threads at once.

    `call` takes the values of the graph's inputs, and an object that stays the same while the weights among them are
    the same tensors at the same place in memory (None: they may be others on each call). It raises `Rerun` as that
    class says; any other exception comes from past the commit point.
    """

    def __init__(self, artifact: Artifact) -> None:
        self.artifact = artifact
        self.device = artifact.program.device
        self._launching = backend_of(self.device).launching
        self.results = ResultMemory()
        self._constants: dict[str, torch.Tensor] = {}
        self._native = _load_native(artifact)
        self.bodies: dict[str, Any] = {}
        if artifact.bodies:
            from lampwork.runtime.launch.control_flow import runner

            self.bodies = {name: runner(Host(each.artifact), each, Rerun) for name, each in artifact.bodies.items()}
        workspace_bytes = artifact.program.workspace_bytes
        self.pool: Any = self._launching.leases(self._lease, workspace_bytes, self.device)
        namespace = self._names()
        if environment.verify:
            from lampwork.ir.text import verify_text

            verify_text(artifact.host_source, namespace)
        run_text(artifact.host_source, f"<lampwork host {artifact.name}>", namespace)
        self._tables = namespace
        self._make_constants(namespace.get("ELSEWHERE", {}))
        #: What a run that is captured into a CUDA graph needs of planned memory.
        self.captured_bytes: int = namespace.get("CAPTURED_BYTES", workspace_bytes)
        #: What a run allocates at its peak in large blocks, without its results and with them; 0 where sizes vary.
        self.allocated_bytes: tuple[int, int] = namespace.get("ALLOCATED_BYTES", (0, 0))
        self.call: Callable[..., tuple] = self._launching.on_device(namespace["host"], self.device)
        self._forget_derived: Callable[[], None] = lambda: None
        self.derived = DerivedInputs(artifact.derived) if artifact.derived else None
        if self.derived is not None:
            self.call = self._with_derived(self.call, self.derived)

    def _make_constants(self, elsewhere: Mapping[str, str]) -> None:
        """The program's constants on its device, but for those that are `elsewhere`."""
        for name, literal in self.artifact.program.constants.items():
            self._constants[name] = _literal_tensor(*literal, elsewhere.get(name, self.device))
        if self._constants:
            self._launching.settle(self.device)  # they are read on whatever stream a call comes on

    def _with_derived(self, host: Callable[..., tuple], derived: DerivedInputs) -> Callable[..., tuple]:
        """`host` called with the derived inputs after the others. While weights stay, so does what is made of them."""
        sources = {index for _, indices, _ in derived.recipes for index in indices if index >= 0}
        lasting = all(is_lasting(self.artifact.inputs[index]) for index in sources)
        count = len(self.artifact.inputs)  # after them may stand values that only templates read
        last: tuple[object, tuple] = (None, ())
        seen: tuple = ()

        def call(values: Sequence[object], generation: object = None) -> tuple:
            nonlocal last, seen
            made_for, made = last
            if generation is None or made_for is not generation or not lasting:
                try:
                    made = derived.values(values)
                    if made is not seen:
                        self._launching.settle(self.device)  # other streams read them as well
                    seen = made
                except Exception as error:
                    raise Rerun from error
                if derived.is_final(made):
                    last = (generation, made)
            return host([*values[:count], *made], generation)

        def forget() -> None:
            nonlocal last, seen
            last, seen = (None, ()), ()
            derived.refresh()

        self._forget_derived = forget
        return call

    def _names(self) -> dict[str, Any]:
        names = {
            "torch": torch,
            "idle": self.pool.pop,
            "new_lease": self.pool.make,
            "give": self.pool.give,
            "runs": () if self._native is None else self._native.runs,
            "threads": torch.get_num_threads,
            "empty": torch.empty_strided,
            "large": self.results.empty,
            "view": view,
            "weight_view": weight_view,
            "view_result": view_result,
            "alias": torch.ops.aten.alias.default,
            "planned": planned,
            "arena": arena,
            "constant": self._constants.__getitem__,
            "restride": restride,
            "checked": checked,
            "ResultMoved": ResultMoved,
            "scrap": lambda: torch.empty(0, device=self.device),
            "operator": lambda name: self._bound(name) or operator(name),
            "below_autograd": _torch.below_autograd,
            "generator_states": lambda: _randomness().generator_states(self.device),
            "restore_generators": lambda states: _randomness().restore_generators(states, self.device),
            "rollbacks": Rollbacks(self.device),
            "put_back": put_back,
            "increment_version": _torch.increment_version,
            "increment_versions": _torch.increment_versions,
            "set_versions": _torch.set_versions,
            "as_inference": as_inference,
            "with_version_of": with_version_of,
            "with_versions": _torch.with_versions,
            "Rerun": Rerun,
            "AssumptionFailed": AssumptionFailed,
            "SideNotAssumed": SideNotAssumed,
            "SizeNotAssumed": SizeNotAssumed,
        }
        names.update(self._launching.host_names(self.device))
        if environment.poison:
            from lampwork.runtime.launch.poison import NAMES, poisoned

            names.update(NAMES, empty=poisoned(names["empty"]), large=poisoned(names["large"]))
        return names

    def _bound(self, name: str) -> Callable[..., Any] | None:
        """An operator that runs graphs, bound to those of this program."""
        if not self.bodies:
            return None
        from lampwork.runtime.launch.control_flow import bound, runs_bodies

        return bound(name, self.bodies) if runs_bodies(name) else None

    def _lease(self, workspace: torch.Tensor) -> Lease:
        tables = self._tables
        lease = Lease(len(self.artifact.native.buffer_order), len(tables["SIZES"]), workspace)
        base = lease.workspace.data_ptr()
        for slot, offset in tables["WORKSPACE_SLOTS"].items():
            lease.pointers[slot] = base + offset
        for slot, name in tables["CONSTANT_SLOTS"].items():
            lease.pointers[slot] = self._constants[name].data_ptr()
        with torch.inference_mode(False), torch.no_grad():
            for name, dtype, shape, strides, offset_bytes in tables["VIEWS"]:
                memory = lease.workspace if name is None else self._constants[name]
                lease.views.append(planned(memory, getattr(torch, dtype), shape, strides, offset_bytes))
        return lease

    def forget_weights(self) -> None:
        """Let go of weights that idle leases hold, and of what was derived from them. Takes no lock: the program may
        let go of them while a call runs."""
        self.pool.forget()
        self._forget_derived()
        for each in self.bodies.values():
            each.host.forget_weights()

    def release(self) -> None:
        """Give back the memory that is idle."""
        self.pool.release()
        self.results.release()
        for each in self.bodies.values():
            each.release()


def _load_native(artifact: Artifact) -> Any:
    if not artifact.native.runs:
        return None
    return backend_of(artifact.native.device).launching.load(artifact.native)


def operator(name: str) -> Callable[..., Any]:
    """What is called for an operator of a program."""
    home = _HOMES.get(name)
    if home is None:
        return _torch.direct_call(name)
    return importlib.import_module(f"lampwork.runtime.launch.{home}").OPERATORS[name]


def _randomness() -> Any:
    from lampwork.runtime.launch import randomness

    return randomness


def view(tensor: torch.Tensor, dtype: torch.dtype, shape: tuple, strides: tuple, offset: int) -> torch.Tensor:
    """`tensor`'s memory as a strided view; `offset` in elements of `dtype` from the tensor's first element."""
    if tensor.dtype is not dtype:
        if tensor.dtype.is_complex and not dtype.is_complex:
            tensor = torch.view_as_real(tensor)
            if tensor.dtype is not dtype:
                tensor = tensor.view(dtype)
        elif dtype.is_complex and not tensor.dtype.is_complex:
            tensor = tensor if tensor.dtype is dtype.to_real() else tensor.view(dtype.to_real())
            pairs = (*shape, 2), (*[2 * step for step in strides], 1)
            return torch.view_as_complex(tensor.as_strided(*pairs, tensor.storage_offset() + 2 * offset))
        elif tensor.itemsize == dtype.itemsize:
            tensor = tensor.view(dtype)
        else:  # of all that the view reaches, in a row: rows need not be whole elements of the other type
            steps = sum([(size - 1) * step for size, step in zip(shape, strides)])
            end = 0 if 0 in shape else offset + 1 + steps
            count = -(-end * dtype.itemsize // tensor.itemsize)
            tensor = tensor.as_strided((count,), (1,), tensor.storage_offset()).view(dtype)
    return tensor.as_strided(shape, strides, tensor.storage_offset() + offset)


def as_inference(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor, as one made in inference mode: autograd neither follows it nor lets it be written to outside."""
    with torch.inference_mode():
        made = torch.empty(0, dtype=tensor.dtype, device=tensor.device)
        return made.set_(tensor)


def with_version_of(owner: torch.Tensor, tensor: torch.Tensor) -> torch.Tensor:
    """A tensor over the memory of `tensor` that shares the version of `owner`, which lies in that memory, too. It has a
    version of its own where no view of `owner`, which does not require grad, gives it: elements of another size, or
    another conjugate bit."""
    if owner.itemsize != tensor.itemsize or owner.is_conj() != tensor.is_conj():
        return tensor.data
    seen = owner if owner.dtype == tensor.dtype else owner.view(tensor.dtype)
    return seen.as_strided(tensor.shape, tensor.stride(), tensor.storage_offset())


def versioned(program: Program, results: Iterable[Any]) -> tuple:
    """`results`, the first of the program's, with the versions that eager's have."""
    made = list(results)
    for index, owner in program.separate:
        made[index] = made[index].data if index == owner else with_version_of(made[owner], made[index])
    for index, owner in program.detached:
        made[index] = made[index].detach() if index == owner else with_version_of(made[owner], made[index])
    for index in program.inference:
        made[index] = as_inference(made[index])
    if program.versions:
        indices, versions = zip(*program.versions)
        _torch.set_versions([made[index] for index in indices], versions)
    return tuple(made)


def view_result(tensor: torch.Tensor, dtype: torch.dtype, shape: tuple, strides: tuple, offset: int) -> torch.Tensor:
    """As `view`, for a result of the program that is a view of its input: no result is tied to autograd.

    Without grad mode, too: `as_strided` of a tensor that requires grad gives one that does (torch 2.11 and 2.13). What
    is detached last is no view, which `detach_()` would refuse.
    """
    result = view(tensor, dtype, shape, strides, offset)
    return result.detach() if tensor.requires_grad else result


def weight_view(tensor: torch.Tensor, dtype: torch.dtype, shape: tuple, strides: tuple, offset: int) -> torch.Tensor:
    """As `view`, with no tie to autograd: kept from call to call."""
    with torch.inference_mode(False), _torch.below_autograd():
        return view(tensor, dtype, shape, strides, offset)


def restride(tensor: torch.Tensor, shape: tuple, strides: tuple, dtype: torch.dtype) -> torch.Tensor:
    """What an operator returned, with the strides the program was planned for: a view of it if they differ only where
    there is nothing to step over (dimensions of size 1), else a copy. Nothing of it is lazy.

    Raises RuntimeError when the shape or the element type is another than planned, or there is no tensor.
    """
    if tensor is None:
        raise RuntimeError(f"an operator returned nothing, planned was {dtype}{list(shape)}")
    if tuple(tensor.shape) != tuple(shape) or tensor.dtype != dtype:
        raise RuntimeError(f"an operator returned {tensor.dtype}{list(tensor.shape)}, planned was {dtype}{list(shape)}")
    tensor = tensor.resolve_conj().resolve_neg()
    if all(size == 1 or step == planned for size, step, planned in zip(shape, tensor.stride(), strides)):
        return tensor.as_strided(shape, strides)
    return torch.empty_strided(shape, strides, dtype=tensor.dtype, device=tensor.device).copy_(tensor)


def _literal_tensor(dtype: str, shape: tuple[int, ...], data: bytes, device: str) -> torch.Tensor:
    """The constant buffer: `data` in memory order, contiguous."""
    with torch.inference_mode(False):
        made = torch.empty(shape, dtype=getattr(torch, dtype))
        if data:
            assert len(data) == made.numel() * ITEM_SIZE_BYTES[dtype], "a literal has the size of its shape"
            made.reshape(-1).view(torch.uint8).copy_(torch.frombuffer(bytearray(data), dtype=torch.uint8))
        return made.to(device)

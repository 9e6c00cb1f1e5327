"""Eager runs that say how far rounding leads: one beside float64, and ones with every result off by a rounding.

`Beside64` computes in float64 whatever eager computes, operator by operator, beside eager's own numbers. Whole numbers,
booleans and random draws are eager's, so both go the same way through the program. `Rounded` disturbs each result.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._pytree import tree_flatten, tree_leaves, tree_unflatten

from lampwork import _torch
from lampwork.ir.record import record

WIDE = {
    torch.float32: torch.float64,
    torch.float16: torch.float64,
    torch.bfloat16: torch.float64,
    torch.complex64: torch.complex128,
}

#: Forgotten storages are looked for after so many new ones.
_SWEEP = 512


@record(frozen=False)
class _Wide:
    """All of a storage in float64. `dtype`: of eager's elements."""

    storage: StorageWeakRef
    flat: torch.Tensor
    dtype: torch.dtype


class Beside64(_torch.EagerMode):
    """While active, every operator is run on float64 values as well.

    `of(tensor)` is a tensor in float64 as the program has computed it, which begins with what the tensor held when it
    was first seen. `failed`: operators that have no float64; of their results eager's own numbers are taken.
    """

    def __init__(self) -> None:
        super().__init__()
        self.failed: set[str] = set()
        self._known: dict[int, _Wide] = {}
        self._made = 0

    def of(self, value: Any) -> Any:
        """`value`, a fresh float64 tensor for one of a narrower type."""
        if not isinstance(value, torch.Tensor):
            return value
        with _torch.without_modes(), torch.no_grad():
            return self._wide(value.detach()).clone()

    def run(self, op: Any, args: tuple, kwargs: dict[str, Any]) -> Any:
        flat, spec = tree_flatten((args, kwargs))
        if not self._is_wide_here(op, flat):
            result = op(*args, **kwargs)
            self._forget_written(op, args, kwargs)
            return result
        wide = [self._argument(each) for each in flat]
        result = op(*args, **kwargs)
        if torch.Tag.nondeterministic_seeded in op.tags:
            found = _drawn(op, wide, result)
        else:
            wide_args, wide_kwargs = tree_unflatten(wide, spec)
            try:
                found = op(*wide_args, **wide_kwargs)
            except (RuntimeError, NotImplementedError, TypeError, ValueError, IndexError):
                self.failed.add(str(op))
                self._forget_written(op, args, kwargs)
                return result
        if found is None:
            self._forget_written(op, args, kwargs)
            return result
        for mine, other in zip(tree_leaves(result), tree_leaves(found)):
            self._keep(mine, other)
        return result

    def _is_wide_here(self, op: Any, flat: Iterable[object]) -> bool:
        """Whether float64 numbers may differ from eager's here: the operator reads or makes some of a narrower type."""
        return any(
            each in WIDE if isinstance(each, torch.dtype) else isinstance(each, torch.Tensor) and each.dtype in WIDE
            for each in flat
        )

    def _argument(self, value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            return self._wide(value) if value.dtype in WIDE else value
        return WIDE.get(value, value) if isinstance(value, torch.dtype) else value

    def _wide(self, tensor: torch.Tensor) -> torch.Tensor:
        """A view of the float64 memory beside the tensor's, which is made if there is none."""
        if tensor.dtype not in WIDE:
            return tensor
        if tensor.layout != torch.strided or not tensor.numel() or tensor.is_neg():
            return tensor.to(WIDE[tensor.dtype])
        known = self._known.get(_torch.storage_key(tensor))
        if known is None or known.storage.expired():
            whole = torch.empty(0, dtype=tensor.dtype, device=tensor.device).set_(tensor.untyped_storage())
            known = self._remember(tensor, whole.to(WIDE[tensor.dtype], copy=True))
        flat = known.flat
        if known.dtype != tensor.dtype:
            if known.dtype.is_complex and known.dtype.to_real() == tensor.dtype:
                flat = torch.view_as_real(flat).reshape(-1)
            elif tensor.dtype.is_complex and tensor.dtype.to_real() == known.dtype and flat.numel() % 2 == 0:
                flat = torch.view_as_complex(flat.view(-1, 2))
            else:  # memory that is read as two types
                return tensor.to(WIDE[tensor.dtype])
        made = flat.as_strided(tensor.size(), tensor.stride(), tensor.storage_offset())
        return made.conj() if tensor.is_conj() else made

    def _remember(self, tensor: torch.Tensor, flat: torch.Tensor) -> _Wide:
        self._made += 1
        if self._made % _SWEEP == 0:
            self._known = {key: each for key, each in self._known.items() if not each.storage.expired()}
        made = _Wide(StorageWeakRef(tensor.untyped_storage()), flat, tensor.dtype)
        self._known[_torch.storage_key(tensor)] = made
        return made

    def _keep(self, mine: Any, other: Any) -> None:
        """Notes what stands beside a result, unless it lies in memory that has float64 beside it already."""
        if not isinstance(mine, torch.Tensor) or mine.dtype not in WIDE or mine.layout != torch.strided:
            return
        key = _torch.storage_key(mine)
        known = self._known.get(key)
        if (known is not None and not known.storage.expired()) or not mine.numel():
            return
        if not isinstance(other, torch.Tensor) or other.shape != mine.shape:
            return
        count = mine.untyped_storage().nbytes() // mine.element_size()
        flat = torch.zeros(count, dtype=WIDE[mine.dtype], device=mine.device)
        self._remember(mine, flat)
        once = tuple(slice(0, 1) if step == 0 else slice(None) for step in mine.stride())
        self._wide(mine)[once].copy_(other[once])

    def _forget_written(self, op: Any, args: tuple, kwargs: dict[str, Any]) -> None:
        """What was written without float64 beside it begins anew with eager's numbers."""
        for each in _written(op, args, kwargs):
            if each.dtype in WIDE and each.layout == torch.strided:
                self._known.pop(_torch.storage_key(each), None)


class Rounded(_torch.EagerMode):
    """While active, every result of an operator is off by a rounding, up or down by chance; `seed` says how.

    Whole numbers stay: what counts or indexes is exact. What only moves numbers does not round.
    """

    def __init__(self, seed: int) -> None:
        super().__init__()
        self._chance = torch.Generator().manual_seed(seed)

    def run(self, op: Any, args: tuple, kwargs: dict[str, Any]) -> Any:
        inputs = {
            _torch.storage_key(each)
            for each in tree_leaves((args, kwargs))
            if isinstance(each, torch.Tensor) and each.layout == torch.strided
        }
        result = op(*args, **kwargs)
        if op.namespace == "aten" and op._schema.name.partition("::")[2].rstrip("_") in _MOVES:
            return result
        done: set[int] = set()
        for each in tree_leaves(result):
            if isinstance(each, torch.Tensor) and each.layout == torch.strided:
                if _torch.storage_key(each) not in inputs:
                    self._disturb(each, done)
        for each in _written(op, args, kwargs):
            self._disturb(each, done)
        return result

    def _disturb(self, tensor: torch.Tensor, done: set[int]) -> None:
        if tensor.dtype not in WIDE and tensor.dtype not in (torch.float64, torch.complex128):
            return
        if tensor.layout != torch.strided or not tensor.numel() or _torch.storage_key(tensor) in done:
            return
        if any(size > 1 and step == 0 for size, step in zip(tensor.size(), tensor.stride())):
            return
        done.add(_torch.storage_key(tensor))
        if tensor.is_complex():
            tensor = torch.view_as_real(tensor.resolve_conj() if not tensor.is_conj() else tensor.conj())
        up = torch.randint(0, 2, tensor.shape, generator=self._chance, dtype=torch.int8).to(tensor.device)
        off = 1 + torch.finfo(tensor.dtype).eps * (2.0 * up.to(tensor.dtype) - 1)
        exact = (tensor == tensor.round()) & (tensor.abs() < _LARGEST_COUNT)
        tensor.copy_(torch.where(exact, tensor, tensor * off))


#: Whole numbers below this may count something.
_LARGEST_COUNT = 1 << 20

#: Operators of ATen that copy, fill or draw, and compute nothing that would be rounded.
_MOVES = frozenset(
    """cat stack clone copy fill zero index index_select gather slice_scatter select_scatter scatter index_put embedding
    _to_copy where masked_fill repeat expand_copy constant_pad_nd flip roll neg abs relu maximum minimum max min amax
    amin sort topk clamp clamp_min clamp_max full full_like zeros zeros_like ones ones_like empty empty_like
    new_zeros new_ones new_full new_empty arange rand randn uniform normal bernoulli random lift_fresh lift_fresh_copy
    _local_scalar_dense max_pool2d_with_indices tril triu diagonal_copy unfold_copy sign sgn floor ceil round trunc
    empty_strided new_empty_strided slice_backward select_backward pixel_shuffle native_dropout""".split()
)


class Noted(_torch.EagerMode):
    """While active, `note(op, results)` is told of every operator that eager runs, below autograd."""

    def __init__(self, note: Callable[[Any, list[Any]], None]) -> None:
        super().__init__()
        self._note = note

    def run(self, op: Any, args: tuple, kwargs: dict[str, Any]) -> Any:
        result = op(*args, **kwargs)
        self._note(op, tree_leaves(result))
        return result


def _dispatch(self: Any, op: Any, types: Any, args: tuple = (), kwargs: dict[str, Any] | None = None) -> Any:
    return self.run(op, args, kwargs or {})


# Set after the classes exist: `__init_subclass__` would wrap it in something that imports Dynamo.
for _mode in (Beside64, Rounded, Noted):
    _mode.__torch_dispatch__ = _dispatch


def _written(op: Any, args: tuple, kwargs: dict[str, Any]) -> Iterator[torch.Tensor]:
    """The tensors that the operator writes to in place."""
    if not op._schema.is_mutable:
        return
    for place, argument in enumerate(op._schema.arguments):
        if argument.alias_info is None or not argument.alias_info.is_write:
            continue
        value = args[place] if place < len(args) else kwargs.get(argument.name)
        for each in tree_leaves(value):
            if isinstance(each, torch.Tensor):
                yield each


def _drawn(op: Any, wide: list[Any], result: Any) -> Any:
    """The float64 result of an operator that drew random numbers, which are eager's; None: the same as eager's."""
    if op._schema.name == "aten::native_dropout" and isinstance(wide[0], torch.Tensor):
        kept, chance = result[1], float(wide[1])
        return wide[0] * kept * (1 / (1 - chance) if wide[2] and chance < 1 else 1.0), kept
    return None

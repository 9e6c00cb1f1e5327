"""Operators whose results have as many elements as the contents of a tensor say: `mask.nonzero()`, `x[mask]`, `unique`.

    %nonzero = nonzero(%mask)               i64[u0, 2]: the size u0 is known once the graph has come this far
    %select = select(%nonzero, 1, 0)
    %index = index(%x, [%select])           f32[u0, 4]

The number of elements is a symbol without a source (`SymbolicSizes.from_contents`). Masks are indexed with as eager
does it, by the places where they are true, found once: tensors picked by one mask have one size. Of masks that depend
on no input (`x[:, [True, False]]`) places and number are known.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from lampwork import _torch
from lampwork.capture.record.fake import DataDependent, Fake
from lampwork.fakes.operators import operator
from lampwork.fakes.rules.memory import MASKS, check_masks
from lampwork.fakes.shapes import (
    Spec,
    broadcast,
    contiguous,
    infer_by_meta_kernel,
    materialize,
    refuse_several_devices,
    surely_same,
    tensors_in,
    wrap_dim,
)
from lampwork.fakes.symbolic import by_contents, found_symbol, size_of
from lampwork.ir.program import UNUSUAL_SIDE
from lampwork.ir.size import INFINITY

aten = torch.ops.aten
#: More places than these, as numbers, are found by the program, even if they are known.
_LARGEST_KNOWN = 1 << 12
_PLAIN = (torch.Tensor, bool, int, float)


def _are_one(one: Fake, other: Fake) -> bool:
    """Whether two tensors of one size and type are the same elements of the same memory."""
    return (
        _torch.storage_key(one) == _torch.storage_key(other)
        and size_of(one.storage_offset()) == size_of(other.storage_offset())
        and all(size == 1 or left == right for size, left, right in zip(one.size(), one.stride(), other.stride()))
        and (one.is_conj(), one.is_neg()) == (other.is_conj(), other.is_neg())
    )


class Contents:
    """The sizes that contents decided so far in one recording. `allowed`: else every such operator is a break."""

    def __init__(self, recorder: Any, allowed: bool) -> None:
        self.recorder = recorder
        self.allowed = allowed
        #: The places where masks are true, by how the mask was computed.
        self._places: dict[Any, Fake] = {}
        #: How results were computed, numbered, and the number of each result of which that was asked.
        self._structures: dict[Any, int] = {}
        self._computed: dict[torch.fx.Node, int] = {}
        #: Tensors of one element that became sizes, with the size.
        self._numbers: dict[int, tuple[Fake, Any]] = {}
        #: Whether an operator is running that raises where two tensors are equal.
        self.must_differ = False
        #: Whether two tensors were found to be the same elements of one memory.
        self.compared_memory = False
        #: Sizes that mostly are the least that they can be, by name, with that number.
        self._mostly: dict[str, int] = {}
        #: Sizes of batches of sequences that the program packed: how many sequences there are, and steps of them all.
        self.batches: dict[Any, tuple[Any, Any]] = {}

    def call(self, op: Any, args: tuple, kwargs: dict) -> Any:
        """What the operator returns, recorded. Raises `DataDependent` where no graph holds it, and `Unsupported` for
        operands on several devices."""
        answer = _ANSWERS.get(op.overload)
        if answer is None and op.overload.namespace not in ("aten", "prims"):
            return self.of_library(op, args, kwargs)
        if answer is None or not self.allowed:
            raise DataDependent(str(op.overload))
        # None takes a tensor without dimensions from another device.
        refuse_several_devices(op.overload, args, kwargs, tensors_in((*args, *kwargs.values())))
        return answer(self, *args, **kwargs)

    def of_library(self, op: Any, args: tuple, kwargs: dict) -> Any:
        """What an operator of a library returns whose shape rule asks for sizes (`new_dynamic_size`), recorded. The
        sizes that the rule declares are looked at when they are known: where they are others, the call runs eagerly.
        """
        rule = _torch.fake_kernel(op.overload.name())
        if rule is None or not self.allowed:
            raise DataDependent(str(op.overload))

        def new_size(*, min: int = 0, max: int | None = None) -> Any:
            found = self.size()
            if min:
                found.node.sizes.expect(found.node.value, ">=", min, f"a size of {op.overload} below {min}")
            if max is not None:
                found.node.sizes.at_most(found.node.value, max)
            return found

        with _torch.sizes_asked_of(new_size):
            result = infer_by_meta_kernel(op.overload, args, kwargs, rule)
        if not all(isinstance(each, Fake) for each in (result if isinstance(result, (list, tuple)) else (result,))):
            raise DataDependent(str(op.overload))  # it returns the number itself
        op.kind = "data-dependent"  # to all that looks at the graph from now on
        self.recorder.record(op, args, kwargs, result)
        return result

    def without_masks(self, x: Any, indices: Any) -> list[Any]:
        """Indices with each mask replaced by the places where it is true, as eager does it.

        Raises eager's errors, and `DataDependent`.
        """
        if not self.allowed and not self._are_known(indices):
            raise DataDependent("indexing by a boolean mask")
        check_masks(x, indices)
        found: list[Any] = []
        for index in indices:
            if index is None or index.dtype not in MASKS:
                found.append(index)
                continue
            places = self._places_of(index)
            found += [self.recorder.call(aten.select.int, (places, 1, axis), {}) for axis in range(index.dim())]
        return found

    def places_written(self, args: tuple) -> tuple:
        """The arguments of an `index_put` with the places where masks are true in place of them, as eager does it: the
        program finds out whether as many values are given. One value fits wherever it is put.

        Raises eager's errors. Masks stay where no graph may hold sizes by contents: the operator finds that out itself.
        """
        x, indices, values = args[:3]
        masks = [each for each in indices if each is not None and each.dtype in MASKS]
        if not masks or not all(each.dim() for each in masks) or surely_same(values.size(), (1,) * values.dim()):
            return args
        if not self.allowed and not self._are_known(indices):
            return args
        return x, self.without_masks(x, indices), *args[2:]

    def size(self, upper: Any = INFINITY, lower: int = 0) -> Any:
        """A number of elements that is not known yet, or the only one that there can be."""
        upper = upper if type(upper) is int else INFINITY
        if upper == lower:
            return lower
        return self.recorder.sizes.from_contents(lower, upper)

    def of_number(self, number: Any) -> Any:
        """The integer that a tensor of one element holds, as a size. Where it is negative the call runs eagerly."""
        known = self._numbers.get(id(number))
        if known is None:
            if not self.allowed:
                raise DataDependent("a number taken out of a tensor, as a size,")
            count = self.recorder.sizes.from_contents(usual=2)  # it mostly is part of something
            with torch.no_grad():
                self.record(_torch.many_of_one(), (number,), {}, Spec((count,), (0,), torch.bool))
            known = self._numbers[id(number)] = number, count
        return known[1]

    def number_of(self, size: Any) -> int | None:
        """`size` as a number, where one is known or may be assumed: classes are counted so that none is above the last
        (`bincount(minlength=...)`)."""
        if type(size) is torch.SymInt:
            usual = self._mostly.get(found_symbol(size) or "")
            if usual is not None and not size == usual:
                return None
            size = size_of(size)
        return size if type(size) is int else None

    def batch_in(self, tensor: Any) -> Any:
        """How many sequences a packed batch has, where `tensor` is the first of its sizes; None for any other."""
        if not self.batches or type(tensor) is not Fake or _torch.storage_key(tensor) in self.recorder.written:
            return None
        node = self.recorder.node_of(tensor)
        is_first = node.op == "call_function" and node.target is aten.select.int and node.args[1:] == (0, 0)
        return self.batches.get(node.args[0], (None,))[0] if is_first else None

    def record(self, overload: Any, args: tuple, kwargs: dict, specs: Any) -> Any:
        result = materialize(specs, args, kwargs)
        self.recorder.record(operator(overload), args, kwargs, result)
        return result

    # The operators ----------------------------------------------------------------------------------------------------

    def nonzero(self, x: Fake) -> Fake:
        """The places as a tensor of the program's own: what it writes to them changes no other, nor what masks pick."""
        places = self._places_of(x)
        spec = Spec(tuple(places.size()), tuple(places.stride()), torch.int64)
        return self.record(aten.clone.default, (places,), {}, spec)

    def _places_of(self, x: Fake) -> Fake:
        key = self._key(x)
        made = self._places.get(key)
        if made is None:
            known = self._known_places(x)
            if known is not None and x.is_cpu and 0 < known.numel() <= _LARGEST_KNOWN:
                by_dimension = self.recorder.constant(known.t())  # as eager's kernel lays it out
                made = self._places[key] = self.recorder.call(aten.t.default, (by_dimension,), {})
                return made
            count = self.size(x.numel()) if known is None else known.size(0)
            # Of no place the kernel for a CPU returns strides (1, 0), that for a GPU (1, 1).
            rows = torch.sym_max(count, 1) if x.is_cuda else count
            made = self.record(aten.nonzero.default, (x,), {}, Spec((count, x.dim()), (1, rows), torch.int64))
            self._places[key] = made
        return made

    def _known_places(self, mask: Fake) -> torch.Tensor | None:
        """Where a mask is true that depends on no input; None for any other."""
        known = self.recorder.constants.exact_value(self.recorder.node_of(mask))
        if known is None:
            return None
        with self.recorder._paused():
            return known.nonzero()

    def _are_known(self, indices: Any) -> bool:
        """Whether the places are known of all masks among the indices."""
        masks = [each for each in indices if each is not None and each.dtype in MASKS]
        return all(self._known_places(each) is not None for each in masks)

    def _key(self, value: Any, reader: torch.fx.Node | None = None) -> Any:
        """Equal for values that are equal whatever the program's inputs hold, as `reader` finds them, or as they are
        now: memory that is written in between holds something else."""
        if isinstance(value, Fake):
            return self._key(self.recorder.node_of(value), reader)
        if isinstance(value, torch.fx.Node):
            result = value.meta["val"]
            if not isinstance(result, Fake):
                return value
            writes = self._writes(result, reader)
            if not _repeats(value) or writes != self._writes(result, value):
                return value, writes
            return "result", self._number(value)
        if isinstance(value, (list, tuple)):
            return type(value), *[self._key(each, reader) for each in value]
        if isinstance(value, torch.SymInt):
            return value.node.resolved
        return type(value), repr(value) if isinstance(value, float) else value

    def _number(self, node: torch.fx.Node) -> int:
        """Of nodes that `_repeats`: equal for those that compute equal values, as they were recorded. A value may be
        used many times and lie deep in a program, so each node is looked at once, what it reads first."""
        waiting = [node]
        while waiting:
            each = waiting[-1]
            unknown = [read for read in each.all_input_nodes if read not in self._computed and _repeats(read)]
            if unknown and each not in self._computed:
                waiting.extend(unknown)
                continue
            waiting.pop()
            if each not in self._computed:
                structure = each.target, *[self._key(read, each) for read in (*each.args, *each.kwargs.items())]
                self._computed[each] = self._structures.setdefault(structure, len(self._structures))
        return self._computed[node]

    def _writes(self, fake: Fake, reader: torch.fx.Node | None) -> int:
        """How often the memory of `fake` was written before `reader` was recorded, or by now."""
        writes = self.recorder.writes_to.get(_torch.storage_key(fake), ())
        before = self.recorder.writes if reader is None else self.recorder.writes_before.get(reader, 0)
        return sum(each <= before for each in writes)

    def nonzero_numpy(self, x: Fake) -> Any:
        if not x.dim():
            x = self.recorder.call(aten.unsqueeze.default, (x, 0), {})
        return list(self.recorder.call(aten.unbind.int, (self.nonzero(x), 1), {}))

    def masked_select(self, x: Fake, mask: Fake) -> Any:
        if mask.dtype is not torch.bool or x.dtype is torch.bool and not x.dim():
            raise DataDependent("masked_select")
        shape = list(broadcast([x.size(), mask.size()])) or [1]
        call = self.recorder.call
        x, mask = (self._expanded(each, shape) for each in (x, mask))
        return call(aten.index.Tensor, (x, [mask]), {})

    def _expanded(self, x: Fake, shape: list[Any]) -> Fake:
        if list(x.size()) == shape:
            return x
        return self.recorder.call(aten.expand.default, (x, shape), {})

    def unique(self, x: Fake, sorted: bool = True, return_inverse: bool = False, return_counts: bool = False) -> Any:
        return self._unique(
            aten._unique2.default, x, (sorted, return_inverse, return_counts), *(return_inverse, return_counts)
        )

    def unique_consecutive(
        self, x: Fake, return_inverse: bool = False, return_counts: bool = False, dim: int | None = None
    ) -> Any:
        if dim is not None:
            raise DataDependent("unique_consecutive of a dimension")
        rest = (return_inverse, return_counts)
        return self._unique(aten.unique_consecutive.default, x, rest, *rest)

    def _unique(self, overload: Any, x: Fake, rest: tuple, inverse: bool, counts: bool) -> Any:
        count = self.size(x.numel(), 1 if type(x.numel()) is int and x.numel() else 0)
        # Eager's kernel gives the inverse where counts are asked for, too.
        places: Any = tuple(x.size()) if inverse or (counts and overload is aten._unique2.default) else (0,)
        specs = (
            Spec((count,), (1,), x.dtype),
            Spec(places, contiguous(places), torch.int64),
            Spec((count,) if counts else (0,), (1,), torch.int64),
        )
        return self.record(overload, (x, *rest), {}, specs)

    def unique_dim(
        self, x: Fake, dim: int, sorted: bool = True, return_inverse: bool = False, return_counts: bool = False
    ) -> Any:
        dim = wrap_dim(dim, x.dim())
        length = x.size(dim)
        if any(not size for size in x.size()):
            raise DataDependent("unique of an empty tensor")
        count = self.size(length, 1)
        shape = (*x.size()[:dim], count, *x.size()[dim + 1 :])
        strides = contiguous(shape)
        if x.is_cpu:  # the dimension lies outermost; on a GPU slices are picked out of `x`
            outermost = contiguous((count, *x.size()[:dim], *x.size()[dim + 1 :]))
            strides = (*outermost[1 : dim + 1], outermost[0], *outermost[dim + 1 :])
        specs = (
            Spec(shape, strides, x.dtype),
            Spec((length,), (1,), torch.int64),
            Spec((count,), (1,), torch.int64),
        )
        return self.record(aten.unique_dim.default, (x, dim, sorted, return_inverse, return_counts), {}, specs)

    def bincount(self, x: Fake, weights: Any = None, minlength: int = 0) -> Any:
        if x.dim() != 1 or minlength < 0 or (weights is not None and weights.size() != x.size()):
            raise DataDependent("bincount")
        if weights is not None:  # of nothing, eager makes whole numbers
            length: Any = x.size(0)
            if by_contents(length):
                length.node.sizes.expect(size_of(length), ">=", 1, "bincount of nothing, with weights,")
            elif length == 0:
                options = {"dtype": torch.int64, "device": x.device}
                return self.recorder.call(aten.zeros.default, ([minlength],), options)
        dtype = torch.int64 if weights is None else torch.float32 if weights.dtype is torch.float32 else torch.float64
        count = self.size(lower=minlength if type(minlength) is int else 0)
        if type(minlength) is int and minlength > 1:
            self._mostly[str(count)] = minlength
        return self.record(aten.bincount.default, (x, weights, minlength), {}, Spec((count,), (1,), dtype))

    def repeat_interleave(self, repeats: Fake, *, output_size: Any = None) -> Any:
        if repeats.dim() != 1:
            raise DataDependent("repeat_interleave")
        count = self.size() if output_size is None else output_size
        options = {} if output_size is None else {"output_size": output_size}
        spec = Spec((count,), (1,), repeats.dtype)
        return self.record(aten.repeat_interleave.Tensor, (repeats,), options, spec)

    def equal(self, one: Fake, other: Fake) -> bool:
        """`torch.equal` of what is known already (`cov` asks so), or where an operator would raise if they were."""
        known, other_known = self._known(one), self._known(other)
        if known is not None and other_known is not None:
            return torch.equal(known, other_known)
        if one.dtype is other.dtype and one.device == other.device and not self.must_differ:
            if tuple(one.size()) != tuple(other.size()):
                return False
            if self._key(one) == self._key(other):
                return self._equals_itself(one)
            if _are_one(one, other):
                self.compared_memory = True
                return self._equals_itself(one)
        if not self.must_differ or one.numel() != 1:
            raise DataDependent("aten.equal.default")
        differ = self.recorder.call(aten.ne.Tensor, (one, other), {})
        self.recorder.call(aten._assert_async.msg, (differ, "two tensors that must differ are equal"), {})
        return False

    def _equals_itself(self, x: Fake) -> bool:
        """Whether what is computed twice in one way is equal: it is but for NaN, of which there are none for all one
        knows."""
        if x.is_floating_point() or x.is_complex():
            if not self.allowed:
                raise DataDependent("aten.equal.default")
            same = self.recorder.call(aten.eq.Tensor, (x, x), {})
            every = self.recorder.call(aten.all.default, (same,), {})
            self.recorder.call(aten._assert_async.msg, (every, f"{UNUSUAL_SIDE}: it compares NaN"), {})
        return True

    def _known(self, value: Any) -> Any:
        """The tensor of one element that plain numbers make of `value`, whatever the inputs hold; None: not known."""
        if not isinstance(value, Fake) or value.numel() != 1 or _torch.storage_key(value) in self.recorder.written:
            return None
        if value.constant is not None:
            return value.constant
        node = self.recorder.node_of(value)
        if node.op != "call_function" or not _torch.is_operator(node.target):
            return None
        what = operator(node.target)
        if what.kind != "functional" or what.is_random or "empty" in what.base or what.overload.namespace != "aten":
            return None
        makes_anew = what.base.startswith("new_")
        found = []
        for each in node.args:
            if isinstance(each, torch.fx.Node):
                like = each.meta["val"]
                if makes_anew and isinstance(like, Fake):
                    each = torch.empty((), dtype=like.dtype, device="cpu")
                else:
                    each = self._known(like)
            if not all(isinstance(part, _PLAIN) for part in (each if isinstance(each, list) else [each])):
                return None
            found.append(each)
        options = {name: each for name, each in node.kwargs.items() if name != "device"}
        if any(isinstance(each, (torch.fx.Node, torch.SymInt)) for each in options.values()):
            return None
        with self.recorder._paused(), torch.no_grad():
            return node.target(*found, **options)

    def ctc_loss(
        self, log_probs: Fake, targets: Fake, input_lengths: Any, target_lengths: Any, blank: int = 0,
        zero_infinity: bool = False, overload: Any = aten._ctc_loss.default,
    ) -> Any:  # fmt: skip
        """The losses, and what their derivative reads: log probabilities [batch, time, 2 * longest target + 1]."""
        time, batch, _ = log_probs.size()
        known = type(target_lengths) is not Fake
        longest = 2 * max(target_lengths, default=0) + 1 if known else self.size(lower=1)
        specs = (
            Spec((batch,), (1,), log_probs.dtype),
            Spec((batch, time, longest), contiguous((batch, time, longest)), log_probs.dtype),
        )
        return self.record(
            overload, (log_probs, targets, input_lengths, target_lengths, blank, zero_infinity), {}, specs
        )

    def ctc_loss_of_tensors(
        self, log_probs: Fake, targets: Fake, input_lengths: Any, target_lengths: Any, blank: int = 0,
        zero_infinity: bool = False,
    ) -> Any:  # fmt: skip
        of_tensors = aten._ctc_loss.Tensor
        return self.ctc_loss(log_probs, targets, input_lengths, target_lengths, blank, zero_infinity, of_tensors)


def _repeats(node: torch.fx.Node) -> bool:
    """Whether the node computes one tensor, and the same one where it reads the same."""
    if not isinstance(node.meta.get("val"), Fake) or node.op == "placeholder" or not _torch.is_operator(node.target):
        return False
    what = operator(node.target)
    return what.kind in ("functional", "view") and not what.is_random and what.overload.namespace == "aten"


_ANSWERS: dict[Any, Callable[..., Any]] = {
    aten.nonzero.default: Contents.nonzero,
    aten.nonzero_numpy.default: Contents.nonzero_numpy,
    aten.masked_select.default: Contents.masked_select,
    aten._unique2.default: Contents.unique,
    aten.unique_consecutive.default: Contents.unique_consecutive,
    aten.unique_dim.default: Contents.unique_dim,
    aten.bincount.default: Contents.bincount,
    aten.repeat_interleave.Tensor: Contents.repeat_interleave,
    aten.equal.default: Contents.equal,
    aten._ctc_loss.default: Contents.ctc_loss,
    aten._ctc_loss.Tensor: Contents.ctc_loss_of_tensors,
}

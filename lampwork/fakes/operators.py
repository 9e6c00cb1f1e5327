"""What kind of operator an overload is, decided once per overload from its schema."""

from __future__ import annotations

import builtins
import keyword
import re
from typing import Any

import torch

from lampwork import _torch

#: The result depends on tensor contents, not only on shapes: cannot be recorded while sizes are static.
DATA_DEPENDENT = frozenset({
    "aten::_local_scalar_dense", "aten::item", "aten::is_nonzero", "aten::equal", "aten::nonzero",
    "aten::nonzero_numpy",
    "aten::masked_select", "aten::_unique2", "aten::_unique", "aten::unique_dim", "aten::unique_consecutive",
    "aten::unique_dim_consecutive", "aten::bincount", "aten::repeat_interleave.Tensor",
    "aten::_nested_tensor_from_mask",
    "aten::linalg_matrix_rank", "aten::combinations", "aten::to_sparse", "aten::_to_sparse",
    "aten::record_stream",
})  # fmt: skip

#: In-place operators that change metadata only, and the view operators that say the same: `x.t_()` is `x = x.t()` to
#: all that holds this tensor object.
METADATA_ONLY = {
    "aten::t_": "t", "aten::transpose_": "transpose.int", "aten::swapaxes_": "transpose.int",
    "aten::swapdims_": "transpose.int", "aten::unsqueeze_": "unsqueeze", "aten::squeeze_": "squeeze",
    "aten::squeeze_.dim": "squeeze.dim", "aten::squeeze_.dims": "squeeze.dims", "aten::as_strided_": "as_strided",
}  # fmt: skip

#: Change what storage a tensor lies in, or its size: no graph can say that.
STORAGE_CHANGING = frozenset({
    "aten::set_.source_Storage", "aten::set_.source_Tensor", "aten::set_.source_Storage_storage_offset", "aten::set_",
    "aten::set_.source_Tensor_storage_offset", "aten::resize_", "aten::resize_as_", "aten::_resize_output_",
    "aten::sparse_resize_", "aten::set_data", "aten::rename_", "aten::_fw_primal", "aten::requires_grad_",
})  # fmt: skip


#: Tagged as data-dependent, but their shape rules tell: indexing depends on contents for boolean masks only.
SHAPE_FROM_SHAPES = frozenset({
    "aten::index.Tensor", "aten::_unsafe_index.Tensor", "aten::segment_reduce", "aten::histogram.bins_tensor",
})  # fmt: skip


#: Ours, written in terms of others, which a graph holds as they are and without which it is the same.
WHOLE = frozenset({
    "lampwork::recurrent_layer", "lampwork::recurrent_layer_backward", "lampwork::cudnn_batch_norm",
    "lampwork::pack_padded", "lampwork::pad_packed", "lampwork::pack_padded_backward", "lampwork::pad_packed_backward",
    "lampwork::cond", "lampwork::while_loop", "lampwork::while_rows", "lampwork::scan",
})  # fmt: skip
#: Those among them that run graphs.
CONTROL_FLOW = frozenset({"lampwork::cond", "lampwork::while_loop", "lampwork::while_rows", "lampwork::scan"})
#: Ours that can be called anew to see how eager lays out what is made of their results.
REPEATABLE = (WHOLE - CONTROL_FLOW) | {"lampwork::bernoulli_of"}


#: Elementwise operators without the tag.
ELEMENTWISE = frozenset({"aten::copy_", "aten::fill_.Scalar", "aten::fill_.Tensor", "aten::zero_", "aten::_to_copy"})


class Operator:
    """An overload's facts.

    kind      "composite" (decompose), "view" (run the view kernel), "inplace" (results are written arguments),
              "metadata" (in-place on metadata only), "functional", "data-dependent", "storage", "lift", "device",
              "identity" (autograd's alone: the memory and metadata stay), "unclear" (of a library: it returns a view of
              something, or lists beside other results)
    written   positions (int) or names (str) of the arguments it writes
    base      identifier that graph nodes of it are named by
    elementwise  it computes each element of its one result of those in the same place, which it may write to
    """

    __slots__ = (
        "base", "elementwise", "has_effect", "is_random", "kind", "overload", "positional", "returns_written", "view",
        "written",
    )  # fmt: skip

    def __init__(self, overload: _torch.Overload) -> None:
        schema = overload._schema
        name = overload.name()
        self.overload = overload
        self.base = _identifier(schema.name.split("::")[-1])
        self.written: tuple[int | str, ...] = tuple(
            argument.name if argument.kwarg_only else position
            for position, argument in enumerate(schema.arguments)
            if argument.alias_info is not None and argument.alias_info.is_write
        )
        self.positional = tuple(argument.name for argument in schema.arguments)
        self.is_random = torch.Tag.nondeterministic_seeded in overload.tags
        #: Whether a call matters though nobody reads its result: libraries that are not ATen's may do anything.
        self.has_effect = name not in WHOLE and (
            not schema.returns or overload.namespace not in ("aten", "prims", "mkldnn", _torch.GIVEN_NUMBERS)
        )
        self.view = METADATA_ONLY.get(name)
        self.returns_written = [
            result.alias_info is not None and result.alias_info.is_write for result in schema.returns
        ]
        self.kind = self._kind(overload, schema, name)
        self.elementwise = (
            overload.namespace == "aten"
            and (torch.Tag.pointwise in overload.tags or name in ELEMENTWISE)
            and not self.is_random
            and (
                self.kind == "functional"
                and len(schema.returns) == 1
                or self.kind == "inplace"
                and self.written == (0,)
                and self.returns_written == [True]
            )
        )

    def _kind(self, overload: _torch.Overload, schema: Any, name: str) -> str:
        if name in DATA_DEPENDENT:
            return "data-dependent"
        if name in STORAGE_CHANGING:
            return "storage"
        if self.view is not None:
            return "metadata"
        if name == "aten::detach_":
            return "identity"
        if schema.name in ("aten::lift_fresh", "aten::lift"):
            return "lift"
        if schema.name.startswith("prim::"):
            return "device" if name == "prim::device" else "functional"
        is_whole = name in WHOLE or overload.namespace == _torch.GIVEN_NUMBERS
        if not is_whole and _torch.has_composite_implementation(overload):
            return "composite"
        if name not in SHAPE_FROM_SHAPES and (
            torch.Tag.data_dependent_output in overload.tags or torch.Tag.dynamic_output_shape in overload.tags
        ):
            return "data-dependent"
        if self.written:
            return "inplace"
        if any(result.alias_info is not None for result in schema.returns):
            return "view" if schema.name.startswith(("aten::", "prims::")) else "unclear"
        if len(schema.returns) > 1 and any(str(each.type).startswith("List[") for each in schema.returns):
            return "unclear"
        return "functional"


def _identifier(name: str) -> str:
    text = re.sub(r"\W", "_", name) or "_"
    if keyword.iskeyword(text) or text[0].isdigit() or hasattr(builtins, text):
        text += "_"  # fx avoids builtins' names in the code it prints
    # A trailing number would collide with the numbering of names.
    return text + "_" if re.search(r"_\d+$", text) else text


#: By id, since the hash of an overload is computed in Python; an `Operator` keeps its overload alive.
_table: dict[int, Operator] = {}


def operator(overload: _torch.Overload) -> Operator:
    found = _table.get(id(overload))
    if found is None:
        found = _table[id(overload)] = Operator(overload)
    return found

"""oneDNN's LSTM layer, which prepares for its derivative where grad mode is on, whatever its arguments say.

Host programs run below autograd, and with grad mode as it happens to be: where the workspace is read, the layer is
called with grad mode on.
"""

from __future__ import annotations

from lampwork.ir.program import Extern
from lampwork.lower.lower import Lowering
from lampwork.lower.rules import rule
from lampwork.lower.values import TensorValue

#: What `runtime/launch/recurrent.py` runs.
LAYER_WITH_WORKSPACE = "lampwork::mkldnn_rnn_layer_with_workspace.default"
_WORKSPACE = 3


@rule("mkldnn_rnn_layer")
def _mkldnn_rnn_layer(lowering: Lowering, *args: object) -> tuple[TensorValue | None, ...]:
    if not lowering.needed(_WORKSPACE):
        return NotImplemented
    results = [
        lowering.new_buffer(meta, str(position)) if lowering.needed(position) else None
        for position, meta in enumerate(lowering.out)
    ]
    names = tuple(None if each is None else each.ref.buffer for each in results)
    given = lowering.extern_argument(args)
    lowering.items.append(Extern(LAYER_WITH_WORKSPACE, given, (), names, None, (), lowering.origin))
    return tuple(results)

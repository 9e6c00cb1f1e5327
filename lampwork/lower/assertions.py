"""Assertions about the contents of tensors: the host looks before anything the caller can see is written."""

from __future__ import annotations

from lampwork.ir.program import UNUSUAL_SIDE, Check, CheckError
from lampwork.lower import expressions as ex
from lampwork.lower.lower import Lowering
from lampwork.lower.rules import rule
from lampwork.lower.values import TensorValue


@rule("_assert_async", "_assert_async.msg")
def _assert_async(
    lowering: Lowering, self: TensorValue, assert_msg: str = "an assertion on a tensor failed"
) -> tuple[TensorValue | None, ...]:
    """On a GPU the host waits for the answer, as eager does where the program branches on it: an assertion on the
    device would take the process's context with it."""
    if any(extent != 1 for extent in self.shape):
        return NotImplemented  # ATen says what is wrong with it
    first = (0,) * len(self.shape)
    flag = lowering.compute_fresh((), "bool", lambda index: ex.unary("not", ex.cast(self.load(first), "bool")), "check")
    error: CheckError = "SideNotAssumed" if assert_msg.startswith(UNUSUAL_SIDE) else "AssumptionFailed"
    lowering.items.append(Check(flag.ref.buffer, assert_msg, error, lowering.origin))
    return ()

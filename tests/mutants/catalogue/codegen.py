"""Faults of code generation for the CPU: arithmetic, lanes, masks, the host function."""

from tests.mutants.fault import Fault

FAULTS = (
    Fault(
        "max-starts-at-zero", "codegen/llvm/arithmetic.py",
        'return self.constant(float("-inf") if lowest else float("inf"), dtype)', "return self.constant(0, dtype)",
        "a maximum of floats starts from 0",
    ),
    Fault(
        "integer-min-starts-low", "codegen/llvm/arithmetic.py",
        "return self.constant(-(1 << (bits - 1)) if lowest else (1 << (bits - 1)) - 1, dtype)",
        "return self.constant(-(1 << (bits - 1)), dtype)",
        "a minimum of integers starts from the least integer",
    ),
    Fault(
        "product-starts-at-zero", "codegen/llvm/arithmetic.py",
        'return self.constant(1 if op in ("prod", "all") else 0, dtype)', 'return self.constant(1 if op == "all" else 0, dtype)',
        "a product starts from 0",
    ),
    Fault(
        "maximum-loses-nan", "codegen/llvm/arithmetic.py",
        "    return build.select(build.is_nan(a), a, larger)\n", "    return larger\n",
        "a maximum with NaN on the left is the right side",
    ),
    Fault(
        "floor-division-truncates", "codegen/llvm/arithmetic.py",
        'return self.build.binary("sub", quotient, self.build.convert("zext", adjust, a.type))', "return quotient",
        "an integer floor division rounds to zero",
    ),
    Fault(
        "float-remainder-sign", "codegen/llvm/arithmetic.py",
        "return build.select(adjust, build.fadd(remainder, b), remainder)", "return remainder",
        "a remainder has the sign of the dividend",
    ),
    Fault(
        "least-integer-by-minus-one", "codegen/llvm/arithmetic.py",
        "    if dtype in SIGNED:\n        least =", "    if False:\n        least =",
        "the least integer divided by -1 traps",
    ),
    Fault(
        "unsigned-compared-as-signed", "codegen/llvm/arithmetic.py",
        'order = ("sgt" if larger else "slt") if dtype in SIGNED else ("ugt" if larger else "ult")',
        'order = "sgt" if larger else "slt"',
        "maxima of unsigned integers compare them as signed",
    ),
    Fault(
        "argmax-takes-last", "codegen/llvm/reduction.py",
        'build.compare("icmp slt", b_position, a_position)', 'build.compare("icmp sgt", b_position, a_position)',
        "the position of equal maxima is the last one",
    ),
    Fault(
        "argmax-ignores-nan", "codegen/llvm/reduction.py",
        'better, both = build.binary("or", better, only_b), build.binary("and", nan_a, nan_b)', 'both = build.binary("and", nan_a, nan_b)',
        "the position of a NaN is not that of the maximum",
    ),
    Fault(
        "tail-lanes-fold", "codegen/llvm/reduction.py",
        "    if self.mask is not None:\n        new = build.select(self.mask, new, old)\n", "    if False:\n        new = build.select(self.mask, new, old)\n",
        "lanes beyond the end fold into a reduction",
    ),
    Fault(
        "half-of-lanes-lost", "codegen/llvm/reduction.py",
        "                value, _ = _fold(self, slots, low, None, high, None)\n", "                value = low\n",
        "the upper lanes of a reduction are dropped",
    ),
    Fault(
        "tail-stored-unmasked", "codegen/llvm/memory.py",
        "            if mask is not None:\n                _masked_store(self, raw, pointer, align, mask)\n                return\n", "",
        "lanes beyond the end are stored",
    ),
    Fault(
        "reversed-store-not-reversed", "codegen/llvm/memory.py",
        "                raw = build.shuffle(raw, None, order)\n", "",
        "a store to falling addresses keeps the order of its lanes",
    ),
    Fault(
        "reversed-load-not-reversed", "codegen/llvm/memory.py",
        "return result if place.stride == 1 else build.shuffle(result, None, order)", "return result",
        "a load from falling addresses keeps the order of its lanes",
    ),
    Fault(
        "gather-mask-dropped", "codegen/llvm/memory.py",
        "    return varying if uniform is None else self.build.binary(\"and\", varying, uniform)\n", "    return varying\n",
        "a load that no lane may make is made",
    ),
    Fault(
        "scatter-of-tail", "codegen/llvm/memory.py",
        "mask = self.mask if self.mask is not None else self.build.widen(self.build.boolean(True), lanes)",
        "mask = self.build.widen(self.build.boolean(True), lanes)",
        "a scatter stores for lanes beyond the end",
    ),
    Fault(
        "additions-meet-between-threads", "codegen/llvm/memory.py",
        "    if not self.in_parallel:\n        raw = build.here", "    if True:\n        raw = build.here",
        "additions of two threads to one element are not atomic in half types",
    ),
    Fault(
        "alignment-assumed", "codegen/llvm/memory.py",
        "    if not buffer.aligned:\n        return buffer.item_bytes\n", "",
        "memory of the caller is taken for aligned",
    ),
    Fault(
        "host-view-offset-lost", "codegen/host_expressions.py",
        "offset_bytes = place.offset_bytes + ref.offset * ITEM_SIZE_BYTES[ref.dtype]", "offset_bytes = place.offset_bytes",
        "an ATen call is handed planned memory from the buffer's beginning",
    ),
    Fault(
        "host-result-not-copied", "codegen/host_expressions.py",
        'return f"{self.view(ref)}.clone()"', "return self.view(ref)",
        "a result lies in memory that the next call uses",
    ),
    Fault(
        "host-results-one-object", "codegen/host_expressions.py",
        'text = f"alias({text})"', "pass",
        "two results of one value are one object",
    ),
    Fault(
        "host-conjugate-lost", "codegen/host_expressions.py",
        'return self._view_result(ref) + ".conj()" * conjugate', "return self._view_result(ref)",
        "a conjugated result is not conjugated",
    ),
    Fault(
        "whole-without-strides", "codegen/host_expressions.py",
        "ref.shape == buffer.shape and ref.strides == buffer.strides", "ref.shape == buffer.shape",
        "a transposed view of a square buffer is the buffer",
    ),
    Fault(
        "size-factor-lost", "codegen/host_steps.py",
        'self.emit(f"{symbol.name} = {value}" + (f" // {factor}" if factor != 1 else ""))',
        'self.emit(f"{symbol.name} = {value}")',
        "a symbol read from a multiple of it is that multiple",
    ),
    Fault(
        "commit-point-late", "codegen/host_steps.py",
        "                    if any(self._writes_input(launch) for launch in self._sequence(position)):\n                        self._commit()\n",
        "",
        "a failure after the caller's memory is written runs the call again",
    ),
)  # fmt: skip

"""Faults of code generation for GPUs: masks, folds, offsets."""

from tests.mutants.fault import Fault

FAULTS = (
    Fault(
        "triton-store-unmasked", "codegen/triton/values.py",
        "        conditions = [mask[0] for dim, mask in self.masks.items() if dim in dims]\n        mask = f\", mask={self._all(conditions)}\" if conditions else \"\"\n        if stmt.mode",
        "        conditions = []\n        mask = \"\"\n        if stmt.mode",
        "a tile that overhangs stores beyond the end",
    ),
    Fault(
        "triton-load-condition-alone", "codegen/triton/values.py",
        "        conditions = [mask[0] for dim, mask in self.masks.items() if dim in dims and mask[1] <= dims]\n", "        conditions = []\n",
        "a tile that overhangs loads beyond the end",
    ),
    Fault(
        "triton-fill-dropped", "codegen/triton/values.py",
        'other = f", other={self._other(load)}"', 'other = ""',
        "a masked load gives anything outside of its mask",
    ),
    Fault(
        "triton-add-as-store", "codegen/triton/values.py",
        "self._line(f'tl.atomic_add({pointer}, {value}{mask}, sem=\"relaxed\")')", "self._line(f\"tl.store({pointer}, {value}{mask})\")",
        "a kernel that adds to memory overwrites it",
    ),
    Fault(
        "triton-random-words-swapped", "codegen/triton/values.py",
        'self.name(f"tl.where(({number} & 1) == 0, {first}, {second})")', 'self.name(f"tl.where(({number} & 1) == 0, {second}, {first})")',
        "neighbouring random numbers change places",
    ),
    Fault(
        "triton-row-tail-folds", "codegen/triton/folds.py",
        "            start = self._literal_of(identity(op, dtype), dtype)\n            value = self.name(f\"tl.where({mask[0]}, {value}, {start})\")\n",
        "            pass\n",
        "what lies beyond a row's end is folded",
    ),
    Fault(
        "triton-block-tail-folds", "codegen/triton/folds.py",
        'self._line(f"{name} = {new}" if mask is None else f"{name} = tl.where({mask[0]}, {new}, {name})")', 'self._line(f"{name} = {new}")',
        "what lies beyond the last block's end is folded",
    ),
    Fault(
        "triton-all-as-any", "codegen/triton/folds.py",
        'function = "tl.max" if op == "any" else "tl.min"', 'function = "tl.max"',
        "`all` of a row is `any`",
    ),
    Fault(
        "triton-rescaling-dropped", "codegen/triton/folds.py",
        "{self.name(f'{stmt.total} * {scale}')} + tl.sum", "{stmt.total} + tl.sum",
        "what was summed is not scaled when the maximum grows",
    ),
    Fault(
        "triton-rescaling-of-infinities", "codegen/triton/folds.py",
        'shift = self.name(f\'tl.where({top} == float("-inf"), 0.0, {top})\')', "shift = top",
        "a row that begins with -inf sums to NaN",
    ),
)  # fmt: skip

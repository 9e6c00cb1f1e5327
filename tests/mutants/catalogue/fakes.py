"""Faults of shape rules: shapes, strides, types, symbols."""

from tests.mutants.fault import Fault

FAULTS = (
    Fault(
        "promotion-of-zero-dim", "fakes/promotion.py",
        "            if operand.dim():\n", "            if True:\n",
        "a 0-d tensor decides the type like any other",
    ),
    Fault(
        "promotion-ignores-default", "fakes/promotion.py",
        "    if kind is float:\n        return torch.get_default_dtype()\n", "    if kind is float:\n        return torch.float32\n",
        "numbers make float32 whatever the default type is",
    ),
    Fault(
        "promotion-within-category", "fakes/promotion.py",
        "    if _category(lower) > _category(higher):\n", "    if _category(lower) >= _category(higher):\n",
        "a 0-d tensor of the same kind widens the result",
    ),
    Fault(
        "broadcast-takes-first", "fakes/strides.py",
        "                if not differ(current, 1):\n                    result[shift + index] = size\n                elif current != size:\n",
        "                if not differ(current, 1):\n                    result[shift + index] = size\n                elif current < size:\n",
        "shapes that do not fit are broadcast",
    ),
    Fault(
        "empty-dimension-in-strides", "fakes/strides.py",
        "        strides.append(step)\n        step *= at_least_one(size)\n", "        strides.append(step)\n        step *= size\n",
        "strides of an empty tensor are zeros",
    ),
    Fault(
        "sorted-strides-reversed", "fakes/strides.py",
        "        if less(first, second):\n            return -1\n", "        if less(first, second):\n            return 1\n",
        "results are laid out in the opposite order of their operands",
    ),
    Fault(
        "channels-last-order", "fakes/strides.py",
        "    for dim in (1, *range(len(shape) - 1, 1, -1), 0):\n", "    for dim in range(len(shape) - 1, -1, -1):\n",
        "channels-last results are contiguous",
    ),
    Fault(
        "preserved-of-gaps", "fakes/strides.py",
        "    if is_dense(shape, strides):\n        return tuple(strides)\n    return contiguous", "    if True:\n        return tuple(strides)\n    return contiguous",
        "a fresh result keeps the gaps of its operand",
    ),
    Fault(
        "iterated-ignores-broadcast", "fakes/strides.py",
        "        row[place] = step if is_kept else 0\n",
        "        row[place] = step\n",
        "a broadcast dimension's stride decides the layout",
    ),
    Fault(
        "negative-dimension-off-by-one", "fakes/shapes.py",
        "    return dim + limit if dim < 0 else dim\n", "    return dim + limit - 1 if dim < 0 else dim\n",
        "negative dimensions are the ones before",
    ),
    Fault(
        "bounds-narrowed-too-far", "fakes/solving.py",
        "            low = max(low, -(constant // factor))\n", "            low = max(low, -(constant // factor) + 1)\n",
        "a symbol's lower bound is one too high",
    ),
    Fault(
        "strict-relation-not-strict", "fakes/solving.py",
        '            constant, relation = constant + 1, "<="\n', '            relation = "<="\n',
        "an upper bound is one too high",
    ),
    Fault(
        "relation-mirrored", "fakes/solving.py",
        "factor, constant, relation = -factor, -difference.constant, _MIRRORED[relation]",
        "factor, constant = -factor, -difference.constant",
        "a relation with a negative factor keeps its direction",
    ),
    Fault(
        "relation-forgotten", "fakes/solving.py",
        "        self._noted[key] = Noted(left, relation, right, self.location())\n",
        "        if relation == \"==\":\n            self._noted[key] = Noted(left, relation, right, self.location())\n",
        "an inequality of several symbols that the program was specialised to is not guarded",
    ),
    Fault(
        "replacement-sign", "fakes/solving.py",
        "            value = mul(rest, -1) if factor > 0 else rest\n", "            value = mul(rest, -1)\n",
        "a symbol is replaced by the negative of its value",
    ),
)  # fmt: skip

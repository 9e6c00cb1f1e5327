"""Faults of lowering: index maps, promotion, identities, checks of indices."""

from tests.mutants.fault import Fault

FAULTS = (
    Fault(
        "reshape-extents-swapped", "lower/view.py",
        "                    flat = add(mul(flat, new[k]), index[k])\n",
        "                    flat = add(mul(flat, new[c + d - 1 - k]), index[k])\n",
        "a reshape multiplies by the extents in the other order",
    ),
    Fault(
        "reshape-of-gaps-is-a-view", "lower/view.py",
        "            if outer_stride != mul(inner, inner_stride):\n", "            if outer_stride == -1:\n",
        "a reshape of a tensor with gaps counts as a view",
    ),
    Fault(
        "permute-strides-inverted", "lower/view.py",
        "        tuple([strides[d] for d in order]),\n", "        tuple([strides[d] for d in inverse]),\n",
        "a permuted view has the strides of the inverse permutation",
    ),
    Fault(
        "permute-index-inverted", "lower/view.py",
        "lambda index: tuple([index[k] for k in inverse]),", "lambda index: tuple([index[k] for k in order]),",
        "a permuted view reads the elements of the inverse permutation",
    ),
    Fault(
        "expanded-stride-kept", "lower/view.py",
        "[0 if wide[k] else strides[k] for k in range(len(shape))]", "[strides[k] for k in range(len(shape))]",
        "an expanded dimension has the stride of the dimension of one element",
    ),
    Fault(
        "slice-start-forgotten", "lower/view.py",
        "return self.view(new_shape, new_strides, mul(strides[dim], start), None if whole else index_map)",
        "return self.view(new_shape, new_strides, 0, None if whole else index_map)",
        "a slice handed to an ATen call begins at the first element",
    ),
    Fault(
        "slice-step-forgotten", "lower/view.py",
        "return (*index[:dim], add(mul(index[dim], step), start), *index[dim + 1 :])",
        "return (*index[:dim], add(index[dim], start), *index[dim + 1 :])",
        "a slice with a step reads neighbours",
    ),
    Fault(
        "slice-bound-before-the-first", "lower/view.py",
        "        return maximum(add(bound, extent), 0)\n", "        return add(bound, extent)\n",
        "a slice of a symbolic extent that begins before its first element reads before it",
    ),
    Fault(
        "negative-index-not-wrapped", "lower/indexing.py",
        "            loaded = ex.where(ex.compare(\"lt\", loaded, zero), ex.add(loaded, size), loaded)\n",
        "            pass\n",
        "negative indices are taken for 0",
    ),
    Fault(
        "index-check-off-by-one", "lower/indexing.py",
        'ex.compare("ge", loaded, size)), "bool")', 'ex.compare("gt", loaded, size)), "bool")',
        "an index equal to the extent passes the check",
    ),
    Fault(
        "index-never-checked", "lower/indexing.py",
        "    if known is None or known[0] < (-smallest if wrap else 0) or known[1] >= smallest:\n", "    if False:\n",
        "indices are not checked",
    ),
    Fault(
        "indexed-dimensions-first", "lower/indexing.py",
        "adjacent = indexed == list(range(indexed[0], indexed[-1] + 1))", "adjacent = len(indexed) == 1",
        "adjacent index tensors put their dimensions first",
    ),
    Fault(
        "cat-piece-off-by-one", "lower/cat_pad.py",
        "            value = ex.where(ex.below(position, starts[k + 1]), piece_at(k), value)\n        return value\n\n    return",
        "            value = ex.where(ex.below(position, starts[k]), piece_at(k), value)\n        return value\n\n    return",
        "concatenated pieces end a piece early",
    ),
    Fault(
        "pad-right-unmasked", "lower/cat_pad.py",
        "                mask = ex.both(mask, ex.below(index[k], end))\n", "                pass\n",
        "padding behind the tensor reads beyond it",
    ),
    Fault(
        "pad-dimensions-swapped", "lower/cat_pad.py",
        "        before[rank - 1 - k] = pad[2 * k]\n", "        before[rank - len(pad) // 2 + k] = pad[2 * k]\n",
        "padding of several dimensions is given to them in the other order",
    ),
    Fault(
        "roll-direction", "lower/cat_pad.py",
        "mod(add(i, -amount[k]), shape[k])", "mod(add(i, amount[k]), shape[k])",
        "`roll` over dimensions goes the other way",
    ),
    Fault(
        "slice-write-phase", "lower/cat_pad.py",
        "            mask = ex.both(mask, phase)\n", "",
        "a write to every second row writes all rows",
    ),
    Fault(
        "reflection-repeats-edge", "lower/cat_pad.py",
        "    return add(add(extent, -1), mul(maximum(rest, mul(rest, -1)), -1))\n",
        "    return add(add(extent, -1), mul(maximum(rest, add(mul(rest, -1), -1)), -1))\n",
        "reflection padding repeats the last element",
    ),
    Fault(
        "scatter-keeps-stale-elements", "lower/scatter.py",
        "        target.known = None\n", "        pass\n",
        "a scatter into constants is not seen by later readers",
    ),
    Fault(
        "accumulate-overwrites", "lower/scatter.py",
        'partial_store(lowering, target, advanced.shape, advanced.locate, value, "add" if accumulate else "write")',
        'partial_store(lowering, target, advanced.shape, advanced.locate, value, "write")',
        "`index_put(accumulate=True)` overwrites",
    ),
    Fault(
        "half-sums-round-once", "lower/scatter.py",
        'return dtype not in ("float16", "bfloat16", "bool")', 'return dtype != "bool"',
        "adding to half types rounds otherwise than eager",
    ),
    Fault(
        "bool-max-folds-all", "lower/reduction.py",
        'op = "any" if op.endswith("max") else "all"', 'op = "all" if op.endswith("max") else "any"',
        "max of booleans is min",
    ),
    Fault(
        "requested-type-after-sum", "lower/reduction.py",
        "return lambda index: ex.cast(ex.cast(self.load(index), wanted), accumulator)",
        "return lambda index: ex.cast(self.load(index), accumulator)",
        "`sum(dtype=)` converts after the sum",
    ),
    Fault(
        "mean-of-all-elements", "lower/reduction.py",
        "    return product(shape[d] for d in set(dims))\n", "    return product(shape)\n",
        "a mean divides by the number of all elements",
    ),
    Fault(
        "variance-correction-ignored", "lower/reduction.py",
        "divisor: Any = max(0.0, count - correction)", "divisor: Any = max(0.0, count - 1)",
        "a variance's correction is always 1",
    ),
    Fault(
        "variance-correction-of-symbols", "lower/reduction.py",
        "free = ex.sub(size, ex.constant(correction, accumulator))",
        "free = size",
        "a variance over a symbolic extent has no correction",
    ),
    Fault(
        "logsumexp-of-infinities", "lower/reduction.py",
        "return ex.where(infinite, ex.like(0, largest), largest)", "return largest",
        "logsumexp of a row of infinities is NaN",
    ),
    Fault(
        "keepdim-place", "lower/nests.py",
        "kept = tuple(0 if k in chosen else symbol for k, symbol in enumerate(index))",
        "kept = tuple(symbol for k, symbol in enumerate(index) if k not in chosen) + (0,) * len(chosen)",
        "a reduction that keeps its dimensions stores to the wrong places",
    ),
    Fault(
        "empty-reduction-identity", "lower/nests.py",
        "identity = ex.constant(IDENTITIES[op], dtype)", "identity = ex.constant(0, dtype)",
        "a reduction of no elements is 0",
    ),
    Fault(
        "alpha-ignored", "lower/pointwise.py",
        "return ex.fma(b, ex.like(alpha, b), a)", "return ex.add(b, a)",
        "`alpha` of add and sub of floats is ignored",
    ),
    Fault(
        "rsub-operands", "lower/pointwise.py",
        "_plus_scaled(lowering, other, self, -alpha)", "_plus_scaled(lowering, self, other, -alpha)",
        "`rsub` subtracts in the other order",
    ),
    Fault(
        "zero-divisor-unchecked", "lower/pointwise.py",
        "    if 0 not in lowering.out.shape:\n", "    if False:\n",
        "an integer division by zero raises no error",
    ),
    Fault(
        "half-operand-not-rounded", "lower/nests.py",
        "        if dtype not in HALVES:\n            return value\n", "        return value\n",
        "numbers beside half tensors are not rounded to their type",
    ),
    Fault(
        "integer-literal-not-wrapped", "lower/expressions.py",
        "    if dtype not in UNSIGNED and number >> (bits - 1):\n        number -= 1 << bits\n", "",
        "a negative literal of an integer type is a huge one",
    ),
    Fault(
        "bool-add-carries", "lower/expressions.py",
        'return Compute("add" if a.dtype != "bool" else "or", (a, b), a.dtype)', 'return Compute("add", (a, b), a.dtype)',
        "the sum of two true values is no boolean",
    ),
    Fault(
        "layer-norm-eps-outside-root", "lower/normalization.py",
        'lambda i: ex.unary("rsqrt", ex.add(variance.load(i), ex.constant(eps, dtype))),',
        'lambda i: ex.unary("rsqrt", variance.load(i)),',
        "normalisations forget their epsilon",
    ),
    Fault(
        "group-of-channel", "lower/normalization.py",
        "        row = (index[0], floordiv(channel, each))\n", "        row = (index[0], floordiv(channel, group))\n",
        "a channel is normalised by another group's statistics",
    ),
    Fault(
        "pool-divisor-counts-padding", "lower/pooling.py",
        "            if not count_include_pad:\n", "            if count_include_pad:\n",
        "`count_include_pad` means its opposite",
    ),
    Fault(
        "pool-position-in-window", "lower/pooling.py",
        "at = ex.add(start, ex.mul(step, ex.constant(dilation[k], \"int64\")))", "at = ex.add(start, step)",
        "positions of a dilated max pool are those without dilation",
    ),
    Fault(
        "mean-as-it-was-rounded", "lower/reduction.py",
        'lambda i: ex.add(near.load(i), off(i)), "exact mean")', 'near.load, "exact mean")',
        "rows of equal elements are not zeros after a layer norm",
    ),
    Fault(
        "numbers-fit-always", "lower/values.py",
        "return type(value) is TensorValue and not is_in_range(value.dtype, dtype)", "return False",
        "a number out of a tensor that does not fit is not refused",
    ),
    Fault(
        "entropy-of-several-types", "lower/activation.py",
        "if self.dtype not in FLOATING or any(each.dtype != self.dtype for each in parts):",
        "if self.dtype not in FLOATING:",
        "cross entropy with logits of several types is computed in one of them",
    ),
)  # fmt: skip

"""Faults of scheduling: dependences, fusion, loops, memory."""

from tests.mutants.fault import Fault

FAULTS = (
    Fault(
        "war-edge-lost", "schedule/dependences.py",
        "            waits |= reads_since.get(name, set())\n", "",
        "a write does not wait for earlier reads",
    ),
    Fault(
        "waw-edge-lost", "schedule/dependences.py",
        "        for name in item_writes:\n            if name in last_write:\n                waits.add(last_write[name])\n",
        "        for name in item_writes:\n",
        "a write does not wait for the write before it",
    ),
    Fault(
        "raw-edge-lost", "schedule/dependences.py",
        "        for name in item_reads:\n            if name in last_write:\n                waits.add(last_write[name])\n",
        "        for name in item_reads:\n            if name in last_write and times_written[name] == 1:\n"
        "                waits.add(last_write[name])\n",
        "a read does not wait for the second write",
    ),
    Fault(
        "draws-unordered", "schedule/dependences.py",
        "            if last_draw is not None:\n", "            if False:\n",
        "random operators may change places",
    ),
    Fault(
        "writes-before-checks", "schedule/dependences.py",
        "            waits |= checks  # A failed check leaves the caller's memory as it was.\n", "            pass\n",
        "the caller's memory is written before indices are checked",
    ),
    Fault(
        "caller-memory-not-mutable", "schedule/dependences.py",
        'times > 1 or buffers[name].kind != "intermediate"', "times > 1",
        "a buffer of the caller that is written once counts as never changed",
    ),
    Fault(
        "donated-while-read", "schedule/in_place.py",
        "if self.last[read] != number or self.first[written] != number or read in self.taken:",
        "if self.first[written] != number or read in self.taken:",
        "a result takes the memory of a buffer that is read later",
    ),
    Fault(
        "donated-under-an-old-name", "schedule/in_place.py",
        "read, written = self.name(read), self.name(written)", "read, written = read, written",
        "a buffer that has become another one becomes a third",
    ),
    Fault(
        "donated-at-other-places", "schedule/in_place.py",
        "each[1] <= place and each[2] == index for", "each[1] <= place for",
        "a result takes memory that other iterations still load",
    ),
    Fault(
        "donated-result", "schedule/in_place.py",
        "or read in self.returned or one.device", "or one.device",
        "a result takes the memory of another result",
    ),
    Fault(
        "donated-by-a-lender", "schedule/in_place.py",
        "if maker is not None and maker.out_variant is None and maker.op not in FRESH:", "if False:",
        "a result takes memory that an operator returned, and that may be somebody else's",
    ),
    Fault(
        "workspace-given-early", "schedule/plan.py",
        "            last[name] = number\n", "            last.setdefault(name, number)\n",
        "a buffer's memory is free again after its first use",
    ),
    Fault(
        "arena-slot-too-small", "schedule/plan.py",
        "if never_larger(size_bytes, self.sizes[slot])]", "if never_larger(self.sizes[slot], size_bytes)]",
        "a buffer of symbolic size takes a slot that is smaller",
    ),
    Fault(
        "workspace-ranges-overlap", "schedule/plan.py",
        "insort(self.free, (offset + size, length - size))", "insort(self.free, (offset, length - size))",
        "what is left of a range begins where the range did",
    ),
    Fault(
        "dead-write-to-input", "schedule/inline.py",
        "read = set(live_out) | set(written_at)", "read = set(live_out)",
        "a write to the caller's memory counts as dead",
    ),
    Fault(
        "inlined-across-a-write", "schedule/inline.py",
        "if any(number < position < root for position in positions):", "if False:",
        "a load moves behind a write to what it loads",
    ),
    Fault(
        "inlined-into-its-own-write", "schedule/inline.py",
        "            if root in positions:\n", "            if False:\n",
        "a load at another place moves into the kernel that writes there",
    ),
    Fault(
        "inlined-mask-dropped", "schedule/inline.py",
        "                both = _conjunction(pool, mask, inner_mask)\n", "                both = inner_mask\n",
        "an inlined producer loads where the consumer does not",
    ),
    Fault(
        "inlined-fill-dropped", "schedule/inline.py",
        "            if mask is not None:\n                value = pool.compute(\"where\"",
        "            if False:\n                value = pool.compute(\"where\"",
        "a masked load of an inlined producer gives its value outside of the mask",
    ),
    Fault(
        "inlined-by-place-alone", "schedule/inline.py",
        "for name, value in indirect), id(mask), repr(load.other))", "for name, value in indirect), id(mask))",
        "masked loads of an inlined value that give different numbers outside of their mask are taken for one",
    ),
    Fault(
        "first-of-two-stores-inlined", "schedule/inline.py",
        'store.mode != "write" or store.indirect or store.buffer in written_at:', 'store.mode != "write" or store.indirect:',
        "a producer is inlined though a later one writes to its buffer, too",
    ),
    Fault(
        "fusion-ignores-readers", "schedule/fuse.py",
        "            before.update(self.loaders.get(name, ()))\n", "",
        "a write joins a kernel before kernels that read the old value",
    ),
    Fault(
        "fusion-ignores-between", "schedule/fuse.py",
        "if any(self.ancestors[other] & bit for other in required if other != number):", "if False:",
        "kernels that need one another are ordered in a cycle",
    ),
    Fault(
        "fusion-of-other-order", "schedule/fuse.py",
        "                if not self.unifier.equate(left, right):\n",
        "                if not self.unifier.equate(left, right) and False:\n",
        "a consumer that reads in another order joins the producer's kernel",
    ),
    Fault(
        "fusion-overwrites-elsewhere", "schedule/fuse.py",
        "load.indirect or self._offset(reader, load.index, load.buffer) != place", "load.indirect",
        "a kernel overwrites elements that another iteration of it reads",
    ),
    Fault(
        "fusion-of-other-reductions", "schedule/fuse.py",
        "if operator.reduction and set(kept) != set(outer):", "if False:",
        "reductions over different axes share a kernel",
    ),
    Fault(
        "needed-store-dropped", "schedule/segment.py",
        "if name in live_out or name in mutable or any(", "if name in live_out or any(",
        "a kernel does not store to memory that is written more than once",
    ),
    Fault(
        "needed-by-neighbours-dropped", "schedule/segment.py",
        "any(other is not group for other in readers.get(name, ()))", "False",
        "a kernel does not store what another kernel of the segment reads",
    ),
    Fault(
        "memo-without-strides", "schedule/segment.py",
        "buffer.shape, buffer.strides, buffer.kind, name in live_out", "buffer.shape, buffer.kind, name in live_out",
        "segments that differ in strides are taken for one",
    ),
    Fault(
        "memo-without-fill", "schedule/segment.py",
        "(_token(expr.mask, axes, numbers), repr(expr.other)),", "(_token(expr.mask, axes, numbers),),",
        "segments that differ in what a masked load gives are taken for one",
    ),
    Fault(
        "split-last-piece-long", "schedule/split.py",
        "        if extent % length:\n", "        if False:\n",
        "the last piece of a split reduction reads beyond the end",
    ),
    Fault(
        "split-combines-by-sum", "schedule/split.py",
        "reduction=Reduction(reduction.op, tuple(chunks), exact),", 'reduction=Reduction("sum", tuple(chunks), exact),',
        "partial results of any reduction are added",
    ),
    Fault(
        "region-off-by-one", "schedule/regions.py",
        '"lt": 0, "ge": 0, "le": 1, "gt": 1}', '"lt": 0, "ge": 0, "le": 0, "gt": 0}',
        "a region's border is taken for outside of it",
    ),
    Fault(
        "cut-reads-beyond", "schedule/loops.py",
        "whole = isinstance(extent, int) and extent % chunk == 0", "whole = isinstance(extent, int)",
        "the last chunk of a loop is as long as the others",
    ),
    Fault(
        "merged-loops-of-other-strides", "schedule/loops.py",
        "        if known.get(first, 0) != mul(known.get(second, 0), second_extent):\n            return False\n",
        "",
        "loops merge though their strides do not fit",
    ),
    Fault(
        "masks-decided-wrongly", "schedule/masks.py",
        'return self.pool.constant(known, "bool")', 'return self.pool.constant(True, "bool")',
        "a condition that never holds counts as always true",
    ),
    Fault(
        "masked-load-unmasked", "schedule/masks.py",
        "        if not idle or not self._satisfiable(list(idle.values())):\n", "        if not idle:\n",
        "a mask is left out that no element satisfies",
    ),
    Fault(
        "mask-lost-between-members", "schedule/build.py",
        "                    if mask is not None:\n                        other =", "                    if False:\n                        other =",
        "a value passed on inside a kernel is seen outside of the mask of the load",
    ),
    Fault(
        "scatter-access-as-write", "schedule/build.py",
        'access = "add" if store.mode == "add" else "write"', 'access = "write"',
        "a kernel that adds to memory says that it only writes there",
    ),
    Fault(
        "rows-forget-order", "schedule/horizontal.py",
        "        before[me] |= reads_since.get(written, set())\n", "",
        "rows of one launch overwrite what others still read",
    ),
    Fault(
        "number-without-its-mask", "schedule/horizontal.py",
        "            if expr.mask is not None:\n                other = Constant(",
        "            if False:\n                other = Constant(",
        "a number that each reader computes is read where its mask says no",
    ),
    Fault(
        "rows-forget-constants", "schedule/horizontal.py",
        'return ("constant", repr(expr.value), expr.dtype)\n\n    tokens', 'return ("constant", expr.dtype)\n\n    tokens',
        "rows with other constants share a kernel",
    ),
    Fault(
        "narrower-values-unseen", "schedule/arrange.py",
        "earlier = timed.space <= space and timed.time <= time", "earlier = timed.space == space and timed.time <= time",
        "loops become one without a look at what values of fewer dimensions read in them",
    ),
)  # fmt: skip

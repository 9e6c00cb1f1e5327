"""Faults of the graph passes: functionalisation, simplification, the two halves of training."""

from tests.mutants.fault import Fault

FAULTS = (
    Fault(
        "alias-check-dropped", "graph/views.py",
        "        elif start < end:\n", "        elif start < end and fake.storage_offset() < 0:\n",
        "inputs that overlap are taken for separate memory",
    ),
    Fault(
        "overlap-ends-early", "graph/views.py",
        "            end = max(end, stop)\n", "            end = stop\n",
        "an input inside another one ends the overlapping group early",
    ),
    Fault(
        "inverse-permutation-not-inverted", "graph/views.py",
        "    inverse = [dims.index(position) for position in range(len(dims))]\n", "    inverse = dims\n",
        "a write through a permuted view is permuted the same way again",
    ),
    Fault(
        "split-slices-begin-equal", "graph/views.py",
        "start = sum(each.size()[dim] for each in values[:index])", "start = index * values[index].size()[dim]",
        "pieces of unequal sizes begin where equal ones would",
    ),
    Fault(
        "stretched-view-unnoticed", "graph/views.py",
        "        if view.operator in STRETCHES and overlaps_itself(view.fake):\n            return True\n", "",
        "a write through a view that repeats elements is scattered as if each element were its own",
    ),
    Fault(
        "keyword-writes-unnoticed", "graph/views.py",
        "                if isinstance(where, str):\n                    note(node.kwargs.get(where))\n",
        "                if isinstance(where, str):\n                    pass\n",
        "an out= argument does not count as written",
    ),
    Fault(
        "stale-view-read", "graph/functionalize.py",
        "if view.node is not None and view.generation == memory.generation:", "if view.node is not None:",
        "a view made before a write is read with its old contents",
    ),
    Fault(
        "written-offset-of-storage", "graph/functionalize.py",
        "        base = self.exact_root(view.memory)\n        offset = fake.storage_offset() - root.fake.storage_offset()\n",
        "        base = self.exact_root(view.memory)\n        offset = fake.storage_offset()\n",
        "a write through `as_strided` of an input that begins inside its storage goes beyond its place",
    ),
    Fault(
        "root-of-other-strides", "graph/functionalize.py",
        "        memory.exact = same_metadata(value.meta[\"val\"], memory.root.fake)\n", "        memory.exact = True\n",
        "views are replayed on a value whose strides are not the root's",
    ),
    Fault(
        "result-view-dropped", "graph/functionalize.py",
        "return FromGraph(result.index, conjugate=result.conjugate) if uses[result.index] == 1 else result",
        "return FromGraph(result.index, conjugate=result.conjugate)",
        "two results that share memory are given memory of their own",
    ),
    Fault(
        "result-offset-of-storage", "graph/functionalize.py",
        "offset = fake.storage_offset() - start // fake.element_size()", "offset = fake.storage_offset()",
        "a result that is a view of an input begins too late by the input's offset",
    ),
    Fault(
        "overlapping-write-lost", "graph/functionalize.py",
        "            if len(memory.inputs) == 1:\n                value = memory.value\n",
        "            if index == memory.inputs[0]:\n                value = memory.value\n",
        "what one of two overlapping inputs is written is the whole memory's value",
    ),
    Fault(
        "copy-elsewhere-as-no-op", "graph/simplify.py",
        "if offsets_matter and node.meta", "if False and node.meta",
        "a copy goes though a later view counts from the beginning of its memory",
    ),
    Fault(
        "common-work-forgets-keywords", "graph/simplify.py",
        "key = (id(node.target), _key(node.args), _key(node.kwargs), *half)",
        "key = (id(node.target), _key(node.args), *half)",
        "calls that differ in a keyword are taken for one",
    ),
    Fault(
        "common-work-of-equal-numbers", "graph/simplify.py",
        "        return (kind, value)\n    if isinstance(value, (list, tuple)):", "        return value\n    if isinstance(value, (list, tuple)):",
        "calls with 1 and True are taken for one",
    ),
    Fault(
        "random-operators-shared", "graph/simplify.py",
        "    return op.is_random or op.has_effect or", "    return op.has_effect or",
        "two draws become one, and unread draws do not advance the generator",
    ),
    Fault(
        "outputs-share-memory", "graph/simplify.py",
        'if owner in owners or owner.op != "call_function" or', 'if owner.op != "call_function" or',
        "two results lie in one memory though eager's do not",
    ),
    Fault(
        "output-lies-in-input", "graph/simplify.py",
        'if owner in owners or owner.op != "call_function" or', "if owner in owners or",
        "a copy of an input is the input itself",
    ),
    Fault(
        "reshape-of-strided", "graph/simplify.py",
        "            if _is_row_major(origin) and _is_row_major(node):\n", "            if True:\n",
        "reshapes of tensors with gaps are merged",
    ),
    Fault(
        "backward-forgets-written-input", "graph/partition.py",
        "        return self.written | {\n            node\n", "        return {\n            node\n",
        "the backward half reads an input that the program has written since",
    ),
    Fault(
        "backward-nodes-by-mark-alone", "graph/partition.py",
        "if node.meta.get(self.mark) or any(each in self.backward for each in node.all_input_nodes):",
        "if any(each in self.backward for each in node.all_input_nodes):",
        "what autograd computed for the backward pass is done in the forward half",
    ),
    Fault(
        "random-recomputed", "graph/recompute.py",
        'if node.op == "placeholder" or is_random(node) or not _can_run_again(node) or self.is_of_a_copy(node):',
        'if node.op == "placeholder" or not _can_run_again(node) or self.is_of_a_copy(node):',
        "a random mask is drawn again instead of saved",
    ),
    Fault(
        "fresh-as-view-is-saved-whole", "graph/partition.py",
        "    return is_free(node) and node not in joined.given\n", "    return False\n",
        "a saved view is not copied",
    ),
    Fault(
        "repeated-with-other-numbers", "graph/repeated.py",
        "            return kind, value.hex()\n", "            return kind\n",
        "updates that differ in a number are taken for one repeated update",
    ),
    Fault(
        "repeated-with-other-layouts", "graph/repeated.py",
        "component.layouts.append((tuple(value.size()), value.stride(), value.storage_offset()))",
        "component.layouts.append((tuple(value.size()), value.storage_offset()))",
        "updates of tensors of other strides are taken for one",
    ),
    Fault(
        "fill-forgets-type", "graph/in_place.py",
        "value, dtype=target.dtype, device=target.device)", "value, device=target.device)",
        "`fill_` gives its memory the type of the number",
    ),
    Fault(
        "inputs-kept-as-they-are", "graph/partition.py",
        "if node.meta.get(COPIED) or not (node in self.kept or _stays_between_steps(node)) or node in self.lost",
        "if node.meta.get(COPIED)",
        "what is computed again is computed of inputs that the caller may write to meanwhile",
    ),
    Fault(
        "returned-copy-is-kept", "graph/partition.py",
        'if node.op == "placeholder" or node.meta.get(COPIED) or node in joined.copied_results:',
        'if node.op == "placeholder" or node in joined.copied_results:',
        "a copy that the program returns is what the backward pass reads",
    ),
    Fault(
        "results-kept-as-they-are", "graph/partition.py",
        'if node.op == "placeholder" or node.meta.get(COPIED) or node in joined.copied_results:',
        'if node.op == "placeholder" or node.meta.get(COPIED):',
        "a result that eager does not keep is what the backward pass reads, and the caller may write to it",
    ),
    Fault(
        "kept-for-other-tangents", "graph/partition.py",
        "            lost.append(node)\n", "            pass\n",
        "what eager keeps for one result is read for another, too, and the caller may write to it",
    ),
    Fault(
        "gradients-of-other-tangents", "graph/partition.py",
        "        if origin in parts:\n", "        if False:\n",
        "a gradient is what a missing tangent makes of zeros",
    ),
    Fault(
        "computed-again-of-what-changes", "graph/recompute.py",
        "        if \"checkpoint\" not in node.meta and not self.changing.isdisjoint(node.all_input_nodes):\n"
        "            return INFINITE\n", "",
        "what eager keeps is computed again of memory that the caller may have written to unnoticed",
    ),
    Fault(
        "counted-within-a-copy", "graph/recompute.py",
        "        return self.is_saved_as_copy(base)\n", "        return False\n",
        "a view that counts from the beginning of a storage is made of a copy",
    ),
    Fault(
        "read-for-every-tangent", "graph/partition.py",
        "        return {node: _places(bits[node]) for node in sources}\n",
        "        return {node: {*range(len(self.tangents))} for node in sources}\n",
        "what one derivative reads counts as kept for all of them",
    ),
    Fault(
        "replay-without-own-history", "graph/replay.py",
        "or _has_history_of_its_own(node)", "or False",
        "an operator with a derivative in Python has no history where it is run again",
    ),
    Fault(
        "statistics-read-again", "graph/replay.py",
        "        if any(storages & self.outside & read for storages in writes.values()):\n", "        if False:\n",
        "what a region wrote to memory of others is read where it is run again",
    ),
)  # fmt: skip

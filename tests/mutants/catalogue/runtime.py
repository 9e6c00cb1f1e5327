"""Faults of the runtime: guards, version snapshots, results, memory, training calls, the cache."""

from tests.mutants.fault import Fault

FAULTS = (
    Fault(
        "guard-without-keywords", "runtime/guards/tests/call.py",
        'writer.refuse(f"len(args) != {test.positional} or kwargs")', 'writer.refuse(f"len(args) != {test.positional}")',
        "a call with keywords passes the guards of one without",
    ),
    Fault(
        "end-of-an-object-unnoticed", "runtime/guards/static.py",
        "                stands.clear()\n                forgotten = guards()", "                forgotten = None",
        "a state stays though an object is gone whose address is in it",
    ),
    Fault(
        "guard-number-without-type", "runtime/guards/tests/equality.py",
        'writer.refuse(f"type({value}) is not {writer.constant(kind)} or {value} != {expected!r}")',
        'writer.refuse(f"{value} != {expected!r}")',
        "True passes a guard for 1",
    ),
    Fault(
        "guard-float-without-type", "runtime/guards/tests/equality.py",
        'writer.refuse(f"type({value}) is not {writer.constant(float)} or {value} != {writer.constant(expected)}")',
        'writer.refuse(f"{value} != {writer.constant(expected)}")',
        "2 passes a guard for 2.0",
    ),
    Fault(
        "guard-tensor-without-strides", "runtime/guards/tests/tensors.py",
        '            conditions.append(_shape_differs(f"{value}.stride()", test.strides, writer))\n', "            pass\n",
        "a tensor of other strides passes",
    ),
    Fault(
        "guard-tensor-without-grad", "runtime/guards/tests/tensors.py",
        '        conditions.append(f"{value}.requires_grad is not {test.requires_grad}")\n', "",
        "a tensor that requires grad passes the guard of one that does not",
    ),
    Fault(
        "guard-tensor-without-dtype", "runtime/guards/tests/tensors.py",
        '        conditions.append(f"{value}.dtype is not {writer.constant(getattr(torch, test.dtype))}")\n', "",
        "a tensor of another type passes",
    ),
    Fault(
        "guard-tensor-without-inference", "runtime/guards/tests/tensors.py",
        '        conditions.append(f"{value}.is_inference() is not {test.is_inference}")\n', "",
        "an inference tensor passes the guard of a plain one",
    ),
    Fault(
        "guard-aliasing-dropped", "runtime/guards/tests/aliasing.py",
        '            writer.refuse(f"-{extents[1]} < {right} - {left} < {extents[0]}")\n', "            pass\n",
        "two arguments that overlap pass the guard of two that do not",
    ),
    Fault(
        "guard-groups-dropped", "runtime/guards/tests/aliasing.py",
        'writer.require(f"reading.aliasing_is(({pointers}), {sizes}, {writer.constant(test.groups)})")', "pass",
        "arguments that overlap in another way pass",
    ),
    Fault(
        "guard-distinct-dropped", "runtime/guards/tests/aliasing.py",
        '            writer.refuse(f"{value} is {others[0]}")\n', "            pass\n",
        "one object twice passes the guard of two",
    ),
    Fault(
        "guard-same-object-dropped", "runtime/guards/tests/aliasing.py",
        'writer.refuse(f"{value} is not {writer.load(test.other)}")', "pass",
        "two objects pass the guard of one",
    ),
    Fault(
        "guard-absent-key-dropped", "runtime/guards/tests/containers.py",
        "            writer.refuse(f\"{key} {'not in' if test.present else 'in'} {value}\")\n",
        "            if test.present:\n                writer.refuse(f\"{key} not in {value}\")\n",
        "a key that was absent may be there",
    ),
    Fault(
        "guard-key-order-dropped", "runtime/guards/tests/containers.py",
        "same_value(tuple({value}), {keys})\")", "set({value}) == set({keys})\")",
        "a dict whose keys stand in another order passes",
    ),
    Fault(
        "guard-size-relation-dropped", "runtime/guards/tests/sizes.py",
        "        writer.require(writer.number(test.holds))\n", "        pass\n",
        "sizes that the program was specialised to may be others",
    ),
    Fault(
        "guard-class-lookup-dropped", "runtime/guards/tests/classes.py",
        '            writer.refuse(f"{actual} is not None")\n            return\n', "            return\n",
        "a method that was absent may be there",
    ),
    Fault(
        "guard-code-dropped", "runtime/guards/tests/identity.py",
        'f"({value}.__code__ is not {code} and not reading.function_is({value}, {test.ref.digest!r}))"', 'f"False"',
        "a function of other code passes",
    ),
    Fault(
        "guard-plain-module-dropped", "runtime/guards/tests/classes.py",
        'conditions = [f"{name}[{key!r}]" for key in test.empty] + [', "conditions = [",
        "hooks on a module go unnoticed",
    ),
    Fault(
        "same-value-of-zeros", "runtime/guards/plain_data.py",
        "return value == expected and math.copysign(1.0, value) == math.copysign(1.0, expected)", "return value == expected",
        "-0.0 passes a guard for 0.0",
    ),
    Fault(
        "overlap-of-touching", "runtime/guards/interpreter.py",
        "    return span(shape, strides) * ITEM_SIZE_BYTES.get(test.dtype, 16)\n",
        "    return (span(shape, strides) - 1) * ITEM_SIZE_BYTES.get(test.dtype, 16)\n",
        "the last element of a tensor does not count for overlaps",
    ),
    Fault(
        "shared-result-made-twice", "runtime/leave/reconstruction.py",
        "self._uses.get(index, 0) > 1 or not isinstance(", "not isinstance(",
        "one list returned twice is two lists",
    ),
    Fault(
        "result-grad-flag-dropped", "runtime/leave/reconstruction.py",
        "{self.constant(cls)}, {template.requires_grad})", "{self.constant(cls)}, False)",
        "a Parameter made by the program requires no grad",
    ),
    Fault(
        "deque-length-dropped", "runtime/leave/reconstruction.py",
        'return f"{self.constant(deque)}(({self._items(items)}), {maxlen})"', 'return f"{self.constant(deque)}(({self._items(items)}))"',
        "a returned deque has no longest length",
    ),
    Fault(
        "effects-before-templates", "runtime/leave/reconstruction.py",
        "            self.lines.append(f\"outcome = {text}\")\n            text = \"outcome\"\n", "            pass\n",
        "a result is made after effects changed what it is made of",
    ),
    Fault(
        "result-memory-still-held", "runtime/launch/memory.py",
        "            if _torch.storage_use_count_at(pointer) == 1:\n                if capacity >= size_bytes:",
        "            if _torch.storage_use_count_at(pointer) >= 1:\n                if capacity >= size_bytes:",
        "a result that the caller keeps is overwritten by the next call",
    ),
    Fault(
        "result-memory-too-small", "runtime/launch/memory.py",
        "                if capacity >= size_bytes:\n", "                if True:\n",
        "a larger result is put into smaller memory",
    ),
    Fault(
        "idle-memory-of-another", "runtime/launch/memory.py",
        "== (size_bytes, dtype) and _torch.storage_use_count_at(keeper[1]) == 1:", "== (size_bytes, dtype):",
        "memory of another entry's result, which is in use, is taken",
    ),
    Fault(
        "arena-not-grown", "runtime/launch/memory.py",
        "    if memory is None or memory.numel() < size_bytes:\n", "    if memory is None:\n",
        "memory for symbolic sizes keeps its first size",
    ),
    Fault(
        "saved-of-moved-input", "runtime/autograd/nodes.py",
        "saved = [values[index].detach() if index in joint.moved else values[index] for index in link.saved_inputs]",
        "saved = [values[index].detach() for index in link.saved_inputs]",
        "an input that is changed before the backward pass raises no error",
    ),
    Fault(
        "unnoticed-with-its-version", "runtime/autograd/nodes.py",
        "            saved[place] = saved[place].data\n", "            pass\n",
        "a write to what eager reads by a view with a version of its own raises",
    ),
    Fault(
        "written-not-marked", "runtime/autograd/nodes.py",
        "        if owner.written:\n            ctx.mark_dirty(", "        if False:\n            ctx.mark_dirty(",
        "autograd does not learn that an input was written",
    ),
    Fault(
        "granted-grad-dropped", "runtime/autograd/differentiate.py",
        "        for index in self.joint.granted:\n            values[index].requires_grad_()\n", "",
        "`requires_grad_()` inside of the program is lost",
    ),
    Fault(
        "restride-never-copies", "runtime/launch/host.py",
        "if all(size == 1 or step == planned for size, step, planned in zip(shape, tensor.stride(), strides)):",
        "if True:",
        "an operator's result of other strides is read with the planned ones",
    ),
    Fault(
        "view-offset-of-tensor", "runtime/launch/host.py",
        "return tensor.as_strided(shape, strides, tensor.storage_offset() + offset)", "return tensor.as_strided(shape, strides, offset)",
        "a view of an input that begins inside its storage begins too early",
    ),
    Fault(
        "derived-of-old-weights", "runtime/launch/host.py",
        "if generation is None or made_for is not generation or not lasting:", "if made_for is None:",
        "packed weights are not made again when a weight is replaced",
    ),
    Fault(
        "saved-beside-the-output", "runtime/autograd/nodes.py",
        "            results = [*results[: each.index], output, *results[each.index + 1 :]]\n", "",
        "a write to a view of what is saved is not noticed",
    ),
    Fault(
        "freed-for-all-results", "runtime/autograd/nodes.py",
        "        frees = frozenset().union(*(each for each in joint.freed if index in each))\n",
        "        frees = frozenset(range(len(joint.outputs)))\n",
        "a backward pass frees what results need that share no node with it",
    ),
    Fault(
        "one-node-for-all-inputs", "runtime/autograd/nodes.py",
        "            inputs.setdefault(tuple(sorted(depends)), []).append(place)\n",
        "            inputs.setdefault((*range(len(joint.outputs)),), []).append(place)\n",
        "hooks on inputs that a result does not lead to are called",
    ),
    Fault(
        "path-known-by-its-id", "runtime/guards/interpreter.py",
        "scope.known[id(source)] = (source, step_of(source)", "scope.known[id(source)] = (None, step_of(source)",
        "a value is known by the id of a path that may be gone",
    ),
)  # fmt: skip

"""Faults of capture: effects, guards that are left out."""

from tests.mutants.fault import Fault

FAULTS = (
    Fault(
        "removed-keys-stay", "capture/leave/effects.py",
        "    removed = [key for key in base if not dict.__contains__(copy, key)]\n", "    removed = []\n",
        "`del d[k]` is lost",
    ),
    Fault(
        "leaf-of-the-caller-ignored", "capture/autograd/differentiate.py",
        "        kept |= {id(fake._base) for fake in self.outputs}\n", "        kept = set()\n",
        "no gradient goes to a leaf that the program made and the caller gets",
    ),
    Fault(
        "setting-unguarded", "capture/values/numbers.py",
        "            else:\n                number.take()\n", "",
        "an integer in a buffer may change unseen after a branch on it",
    ),
    Fault(
        "dict-order-lost", "capture/leave/effects.py",
        "    if order != kept_order + added:\n", "    if False:\n",
        "a key that was taken out and put back keeps its place",
    ),
    Fault(
        "unseen-write-of-same", "capture/leave/effects.py",
        "if key in base and key not in overlay.unseen and same(", "if key in base and same(",
        "a write of what was there is dropped though nothing guards it",
    ),
    Fault(
        "list-length-unnoticed", "capture/leave/effects.py",
        "    if keep == len(base) == len(copy):\n        return []\n", "    if keep == len(copy):\n        return []\n",
        "a list that became shorter keeps its length",
    ),
    Fault(
        "equal-numbers-are-same", "capture/outside/changes.py",
        "return type(now) is type(before) and is_plain(now) and is_plain(before) and repr(now) == repr(before)",
        "return is_plain(now) and is_plain(before) and now == before",
        "writing True over 1 is dropped",
    ),
    Fault(
        "written-alias-unguarded", "capture/outside/identity.py",
        "        if first is not None and len(group) > 1:\n", "        if False:\n",
        "an object that was written may be one that was read",
    ),
    Fault(
        "identities-unguarded", "capture/outside/identity.py",
        "        if len(sources) > 1:\n            loader.guards.distinct(sources)\n",
        "        if False:\n            loader.guards.distinct(sources)\n",
        "objects whose `id()` was taken may be one",
    ),
    Fault(
        "leaf-detached-unnoticed", "capture/leave/effects.py",
        "        if fake.is_leaf and not raw.is_leaf:\n", "        if False:\n",
        "`x.detach_()` is lost",
    ),
    Fault(
        "gradient-dropped", "capture/leave/effects.py",
        '        if "grad" not in slots.values and gradient is not None:\n', "        if False:\n",
        "a gradient of a tensor that the program made is lost",
    ),
    Fault(
        "guard-by-source-alone", "capture/outside/guards.py",
        "self.add(source, (\"key\", type(key), which), lambda: HasKey(key, present))",
        "self.add(source, (\"key\",), lambda: HasKey(key, present))",
        "only the first key looked for in a dict is guarded",
    ),
    Fault(
        "lookup-by-class-alone", "capture/outside/guards.py",
        '            source, ("lookup", name),', '            source, ("lookup",),',
        "only the first attribute looked up in a class is guarded",
    ),
    Fault(
        "module-rules-left-out", "capture/outside/guards.py",
        "        return (*self._guards.values(), *plain)\n", "        return (*self._guards.values(),)\n",
        "attributes and hooks that were absent from modules are not guarded",
    ),
    Fault(
        "power-of-number-keeps-result", "capture/autograd/saved_values.py",
        'return ("_raw_saved_result",) if is_exponent else ()', "return ()",
        "a write to a power of a number raises, as to one of a tensor",
    ),
    Fault(
        "views-with-versions-of-their-own", "capture/autograd/saved_values.py",
        "if _torch.shares_version(saved, fake)]", "if True]",
        "a write is noticed through views that have versions of their own",
    ),
    Fault(
        "copies-in-place-of-views", "capture/autograd/saved_values.py",
        "saved = instead.get(_torch.storage_key(saved), saved)", "saved = saved",
        "a write to an operand of a product is not noticed where sizes may be 1",
    ),
    Fault(
        "first-has-the-version", "capture/leave/versions.py",
        "first = neighbours or [each for each in beside if each.requires_grad] or beside", "first = neighbours or beside",
        "`x.data` returned before `x` has the version of what the backward pass reads",
    ),
    Fault(
        "keys-at-one-place", "capture/outside/guards.py",
        "return self._intern((KeyAt, id(base), index), KeyAt, base, index)", "return self._intern((KeyAt, id(base)), KeyAt, base, index)",
        "all keys of a dict are one source",
    ),
)  # fmt: skip

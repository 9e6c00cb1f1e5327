"""Effects: what the program did to objects that the caller can see, as the difference between overlays and what was."""

from __future__ import annotations

from typing import Any

import torch

from lampwork.capture.autograd.backward import HOOK_TABLES, has_new_history, has_usable_history
from lampwork.capture.leave.object_reconstruction import raised_at
from lampwork.capture.leave.reconstruction import Templates
from lampwork.capture.machine.attributes import NATIVE_KINDS
from lampwork.capture.outside import identity
from lampwork.capture.outside.changes import dict_written, list_written, same, set_written
from lampwork.capture.outside.load import CHANGED_BY_RAISING, Loader
from lampwork.capture.outside.overlay import (
    MISSING,
    Break,
    CellOverlay,
    DictOverlay,
    ListOverlay,
    Pending,
    SetOverlay,
    SlotOverlay,
    entries,
)
from lampwork.capture.outside.wrappers import writes
from lampwork.capture.record.fake import Fake
from lampwork.ir.reference import ObjectRef
from lampwork.ir.template import (
    Call,
    CallSetAttribute,
    ConstantValue,
    DeleteAttribute,
    DeleteItem,
    Effect,
    ReplaceDict,
    ReplaceItems,
    ReplaceSet,
    SetAttribute,
    SetCell,
    SetItem,
    SourceValue,
    Template,
)

_RAISE_VERSION = ObjectRef("function", "lampwork.runtime.leave.post_graph", "raise_version")
_DELETE_PAST = ObjectRef("function", "lampwork.runtime.leave.post_graph", "delete_past")
_SPEND = ObjectRef("function", "lampwork.runtime.leave.post_graph", "spend")


def collect_effects(loader: Loader, templates: Templates) -> list[Effect]:
    """Effects for every overlay whose contents differ from what was there, in the order the objects were met.

    Raises `Break` if a value that was stored cannot be described.
    """
    effects: list[Effect] = []
    for overlay in list(loader.dicts.values()):
        if overlay.changed or overlay.whole:
            effects += _dict_effects(overlay, loader, templates)
    for listed in list(loader.lists.values()):
        if listed.changed or listed.state != "raw":
            effects += _list_effects(listed, loader, templates)
    for collected in list(loader.sets.values()):
        if collected.settled:
            effects += _set_effects(collected, templates)
    for slots in list(loader.slots.values()):
        if not isinstance(slots.owner, torch.Tensor):
            effects += _slot_effects(slots, loader, templates)
    for cell in list(loader.cells.values()):
        effects += _cell_effects(cell, templates)
    for error, before in list(loader.exceptions.values()):
        effects += _exception_effects(error, before, loader, templates)
    return effects + _tensor_effects(loader, templates)


def _tensor_effects(loader: Loader, templates: Templates) -> list[Effect]:
    """Attributes and gradients of tensors: of those from outside, and of those that leave the region, which an
    attribute of another may be. So this comes last."""
    effects: list[Effect] = []
    for origin, _ in loader.subclasses.outside:
        count = writes(origin)
        if count:
            effects.append(Call(_RAISE_VERSION, (SourceValue(origin.source), ConstantValue(count))))
    inputs = loader.tensors
    for raw, source, fake in zip(inputs.values, inputs.sources, inputs.fakes_of_tensors()):
        if fake.is_leaf and not raw.is_leaf:
            effects.append(Call(loader.guards.reference(torch.Tensor.detach_), (SourceValue(source),)))
        if fake.is_leaf and fake.requires_grad is not (raw.requires_grad and raw.is_leaf):  # `x.requires_grad_()`
            effects.append(CallSetAttribute(SourceValue(source), "requires_grad", ConstantValue(fake.requires_grad)))
        elif has_new_history(fake) and not has_usable_history(loader, fake):
            effects.append(Call(_SPEND, (SourceValue(source),)))
    for slots in list(loader.slots.values()):
        if isinstance(slots.owner, torch.Tensor) and loader.origin(slots.owner) is not None:
            effects += _slot_effects(slots, loader, templates)
    done = 0
    while done < len(templates.outputs):
        tensor = templates.outputs[done]
        done += 1
        if loader.origin(tensor) is not None:
            continue
        slots = loader.slots.get(id(tensor)) or SlotOverlay(tensor)
        kept = not tensor.is_leaf and tensor.retains_grad
        if kept:
            effects.append(Call(loader.guards.reference(torch.Tensor.retain_grad), (templates.template(tensor),)))
        gradient = tensor.grad if tensor.is_leaf or kept else None
        if "grad" not in slots.values and gradient is not None:
            slots.write("grad", gradient)
        effects += _slot_effects(slots, loader, templates)
    return effects


def granted_inputs(loader: Loader) -> list[Fake]:
    """Leaves from outside that require grad only since the program set it."""
    pairs = zip(loader.tensors.values, loader.tensors.fakes_of_tensors())
    return [fake for raw, fake in pairs if fake.is_leaf and fake.requires_grad and not raw.requires_grad]


def guard_distinct(loader: Loader) -> None:
    """Objects that the program changed must stay other objects than all it read of the same type, or it would have
    read back what it wrote. Guarded at the end, when it is known what was written."""
    written: dict[int, Any] = {}
    for overlay in loader.dicts.values():
        if dict_written(overlay, loader):
            written[id(overlay.owner if overlay.owner is not None else overlay.copy)] = overlay
    for listed in loader.lists.values():
        if listed.changed or (listed.state == "settled" and list_written(listed, loader)):
            written[id(listed.copy)] = listed
    for collected in loader.sets.values():
        if collected.settled and set_written(collected):
            written[id(collected.copy)] = collected
    for slots in loader.slots.values():
        if slots.written:
            written[id(slots.owner)] = slots
    if not written:
        return
    identity.changed_stay_different(loader, set(written))


def _dict_effects(overlay: DictOverlay, loader: Loader, templates: Templates) -> list[Effect]:
    base, copy = overlay.base, overlay.copy
    owner: Template | None = None
    if overlay.owner is not None:
        owner = templates.template(overlay.owner)
    target = SourceValue(overlay.source)
    removed = [key for key in base if not dict.__contains__(copy, key)]
    kept_order = [key for key in base if dict.__contains__(copy, key)]
    added = [key for key in dict.__iter__(copy) if key not in base]
    order = [key for key, _ in entries(copy)]
    if order != kept_order + added:
        loader.dict_keys(overlay)
        pairs = []
        for key in order:
            if key in overlay.pending:
                value: Template = SourceValue(loader.sources.item(overlay.source, loader.key_part(overlay, key)))
            else:
                value = templates.template(dict.__getitem__(copy, key))
            pairs.append((templates.template(key), value))
        return [ReplaceDict(target, tuple(pairs))]
    effects: list[Effect] = []
    for key in removed:
        if owner is not None:
            effects.append(DeleteAttribute(owner, key))
        else:
            effects.append(DeleteItem(target, templates.template(key)))
    stored = kept_order + added
    if not overlay.whole:  # nobody knows which of the keys that are written a later call finds there
        stored = [*overlay.written, *(key for key in stored if key not in overlay.written)]
    for key in stored:
        if key in overlay.pending:
            continue
        now = dict.__getitem__(copy, key)
        if key in base and key not in overlay.unseen and same(now, overlay.before(key), loader):
            continue
        if owner is not None and isinstance(key, str):
            effects.append(SetAttribute(owner, key, templates.template(now)))
        else:
            effects.append(SetItem(target, templates.template(key), templates.template(now)))
    return effects


def _list_effects(overlay: ListOverlay, loader: Loader, templates: Templates) -> list[Effect]:
    target = SourceValue(overlay.source)
    base, copy = overlay.base, list(overlay.base_class.__iter__(overlay.copy))
    if overlay.state == "appended":
        appended = copy[len(base) :]
        return [ReplaceItems(target, None, templates.items(appended))] if appended else []
    keep = 0
    while keep < len(base) and keep < len(copy):
        element = copy[keep]
        if type(element) is Pending:
            if element.index != keep:
                break
        elif not same(element, overlay.before(keep), loader):
            break
        keep += 1
    if keep == len(base) == len(copy):
        return []
    rest = [
        SourceValue(loader.sources.item(overlay.source, element.index))
        if type(element) is Pending
        else templates.template(element)
        for element in copy[keep:]
    ]
    return [ReplaceItems(target, keep, tuple(rest))]


def _set_effects(overlay: SetOverlay, templates: Templates) -> list[Effect]:
    if not set_written(overlay):
        return []
    return [ReplaceSet(SourceValue(overlay.source), templates.items(overlay.copy))]


def _slot_effects(overlay: SlotOverlay, loader: Loader, templates: Templates) -> list[Effect]:
    effects: list[Effect] = []
    inside = isinstance(overlay.owner, torch.Tensor) and loader.origin(overlay.owner) is None
    for name in overlay.written:
        if inside and name == HOOK_TABLES[0] and overlay.owner.grad_fn is not None:
            continue  # they are part of how the tensor is differentiated
        value = overlay.values.get(name, MISSING)
        initial = overlay.initial.get(name, MISSING)
        if value is initial and (value is not MISSING or inside or name in overlay.initial):
            continue
        owner = templates.template(overlay.owner)
        if value is initial:  # written, then deleted: on a later call there may be something
            effects.append(CallSetAttribute(owner, name, ConstantValue(None), past=stores_itself(overlay.owner)))
        if value is MISSING:
            effects.append(Call(_DELETE_PAST, (owner, ConstantValue(name))))
        elif name == "grad" and value is None and loader.origin(overlay.owner) is None:
            continue
        else:
            unseen = name not in overlay.initial
            past = stores_itself(overlay.owner)
            effects.append(CallSetAttribute(owner, name, templates.template(value), unseen, past))
    return effects


def stores_itself(owner: Any) -> bool:
    """Whether the class of `owner` has a `__setattr__` of the program's, which ran when the program stored."""
    return type(type(owner).__setattr__) not in NATIVE_KINDS


def _exception_effects(error: BaseException, before: tuple, loader: Loader, templates: Templates) -> list[Effect]:
    """What raising and chaining changed in an exception from outside."""
    source = loader.by_value[id(error)].source
    owner = SourceValue(source)
    effects: list[Effect] = []
    for name, value in list(zip(CHANGED_BY_RAISING, before))[1:]:
        if getattr(error, name) is not value:
            effects.append(CallSetAttribute(owner, name, templates.template(getattr(error, name))))
    places = raised_at(error, before[0])
    if places:
        rest = SourceValue(loader.sources.attribute(source, "__traceback__"))
        effects.append(CallSetAttribute(owner, "__traceback__", templates.traceback(rest, places)))
    return effects


def _cell_effects(overlay: CellOverlay, templates: Templates) -> list[Effect]:
    if not overlay.written or overlay.value is overlay.initial:
        return []
    value = None if overlay.value is MISSING else templates.template(overlay.value)
    if overlay.function is None:
        if value is None:
            raise Break("result", "a variable that a function shares is deleted after a break")
        return [CallSetAttribute(SourceValue(overlay.source), "cell_contents", value)]
    return [SetCell(SourceValue(overlay.function), overlay.index, value)]

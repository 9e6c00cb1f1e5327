"""Launches of the program's own Triton kernels: `kernel[grid](...)` is one node of the graph.

    add[lambda meta: (triton.cdiv(n, meta["BLOCK"]),)](x, out, n, BLOCK=64)

        %launch = launch('{"kernel": ["module", "add", ..], ..}', [%out], [%x], [n, ceil(n / 64)])
        copy_(%out, %launch[0])

What the kernel writes is found out (`_torch/kernel_writes.py`), or is every tensor that it gets. A tensor is given as
the memory that it lies in where others lie there, too, and see what is written. Autograd knows nothing of a launch: no
version rises, and no history is made.

Grids and heuristics are functions of the program, and are interpreted; for a kernel that is tuned, once for each
choice. What is left to Triton is to compile kernels, to tune them, and to launch them.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, NoReturn

import torch

from lampwork import _torch
from lampwork.capture.outside.overlay import Break
from lampwork.capture.record.fake import Fake
from lampwork.capture.record.scalars import Scalars
from lampwork.capture.record.writes import write_unseen
from lampwork.capture.values.scalar import Scalar, is_unbacked
from lampwork.capture.values.sizes import number, simplified
from lampwork.capture.values.unbacked_numbers import as_size
from lampwork.fakes.operators import operator
from lampwork.fakes.shapes import infer, is_dense
from lampwork.fakes.shared_memory import is_same_view, share_elements

if TYPE_CHECKING:
    from lampwork.capture.world import TorchWorld

aten = torch.ops.aten


def launch_kernel(world: TorchWorld, function: Any, args: tuple, kwargs: dict[str, Any]) -> None:
    """`kernel.run(*args, grid=grid, warmup=False, **kwargs)`, which is what `kernel[grid](*args, **kwargs)` calls."""
    kernel, *given = args
    named = dict(kwargs)
    grid = named.pop("grid", None)
    if named.pop("warmup", False) or grid is None:
        refuse("is only compiled")
    _Launch(world, kernel).record(given, named, grid)


def without_wrapper(world: TorchWorld, function: Any, args: tuple, kwargs: dict[str, Any]) -> Any:
    """`torch.library.wrap_triton(kernel)`: what it gives launches as the kernel does."""
    (kernel,) = args if not kwargs else (None,)
    if not _torch.kernel_kind(kernel):
        refuse("is wrapped, and is none that is known")
    return kernel


def call_wrapper(world: TorchWorld, function: Any, args: tuple, kwargs: dict[str, Any]) -> Any:
    """A call of one of the methods of what `torch.library.wrap_triton` gave before the program was called."""
    wrapper, *given = args
    kernel = world.attribute(wrapper, "kernel")
    if function.__name__ == "__getitem__":
        return world.get_item(kernel, *given)
    if function.__name__ == "__call__":
        kwargs = {**kwargs, "grid": world.attribute(wrapper, "grid")}
    return launch_kernel(world, function, (kernel, *given), kwargs)


def refuse(why: str, remedy: str = "") -> NoReturn:
    remedy = remedy or "Make it an operator: torch.library.triton_op, or torch.library.custom_op with register_fake."
    raise Break("triton-kernel", f"a kernel of Triton {why}", remedy)


class _Launch:
    def __init__(self, world: TorchWorld, kernel: Any) -> None:
        self.world, self.recorder, self.kernel = world, world.recorder, kernel
        self.known(kernel)
        self.base = kernel
        while _torch.kernel_kind(self.base) in ("autotuner", "heuristics"):
            self.base = world.attribute(self.base, "fn")
        if _torch.kernel_kind(self.base) != "function":
            refuse("is of a class that is not known")
        world.attribute(self.base, "fn")  # which guards its code
        self.refuse_unknown_release()
        if world.loader.settle(world.attribute(self.base, "pre_run_hooks")):
            refuse("has hooks that run before it")
        self.parameters = inspect.signature(self.base.fn).parameters
        self.constants = {name for name, each in self.parameters.items() if "constexpr" in _annotation(each)}
        self.tensors: list[Fake] = []
        #: Those that the launch takes, in the order in which it does.
        self.numbers: list[Any] = []
        self.items: list[Fake] = []

    def refuse_unknown_release(self) -> None:
        """Raises `Break` for kernels that lack what is asked of them below, as those of other releases may."""
        asked = _RESET if _torch.kernel_kind(self.kernel) == "autotuner" else ()
        if not hasattr(self.base, "pre_run_hooks") or not all(hasattr(self.kernel, each) for each in asked):
            refuse("is of a release of Triton that is not known")

    def known(self, kernel: Any) -> None:
        """Guards that it is this kernel, which was there before the call."""
        origin = self.world.loader.origin(kernel)
        if origin is None or not _torch.kernel_kind(kernel):
            refuse("is made in the program, or is of a class that is not known")
        self.world.guards.is_object(origin.source, kernel)

    def record(self, given: list[Any], named: dict[str, Any], grid: Any) -> None:
        given = [self.value(each) for each in given]
        named = {name: self.value(each) for name, each in named.items()}
        variants = list(self.variants(self.kernel, given, named, {}))
        bound = [(choice, self.bound(given, all_named)) for choice, all_named in variants]
        grids = [(choice, self.grid(grid, meta)) for choice, meta in bound]
        kernel = self.kernel
        if _torch.kernel_kind(kernel) == "heuristics" and len(variants) == 1:
            # What heuristics find is part of the launch: nothing of the program's runs when it is made.
            kernel, named = self.base, variants[0][1]
        if all(_same_grid(each, grids[0][1]) for _, each in grids):
            grids = [({}, grids[0][1])]
        self.collect([*given, *named.values()])
        written = self.written([meta for _, meta in bound])
        places, written_roots, read_roots = self.roots(written)
        arguments = [self.form(each, places) for each in given]
        keywords = [[name, self.form(each, places)] for name, each in named.items()]
        sizes = [[choice, [self.form(each, {}) for each in found]] for choice, found in grids]
        launch = json.dumps({
            "kernel": _torch.kernel_name(kernel), "args": arguments, "kwargs": keywords,
            "grids": sizes,
        })  # fmt: skip
        op, recorder = _torch.overload("lampwork::launch"), self.recorder
        made = infer(op, (launch, written_roots, read_roots, self.numbers, []), {})
        recorder.record(operator(op), (launch, written_roots, read_roots, self.numbers, self.items), {}, made)
        for root, value in zip(written_roots, made, strict=True):
            write_unseen(recorder, root, value)

    # Arguments --------------------------------------------------------------------------------------------------------

    def value(self, value: Any) -> Any:
        """An argument, with symbols as simple as they are known to be."""
        value = simplified(value)
        kind = type(value)
        if kind is Scalar:
            if value.kind not in (int, float):
                return value.take()
            return as_size(self.recorder, value) if is_unbacked(value) else value
        if kind is torch.SymBool or kind is torch.SymFloat:
            return number(value)
        if kind is tuple:
            return tuple(map(self.value, value))
        if _torch.triton_constant(value):
            return self.value(self.world.attribute(value, "value"))
        if _torch.triton_type(value):
            self.world.attribute(value, "name")  # which guards it
            return value
        if isinstance(value, torch.Tensor):
            if kind is not Fake:
                refuse("gets a tensor of a subclass")
            return value
        if _torch.kernel_kind(value) == "function":
            self.known(value)
            return value
        if value is None or kind in (bool, int, float, str, torch.dtype, torch.SymInt):
            return value
        refuse(f"gets a {kind.__module__}.{kind.__qualname__}", "Pass tensors, numbers, texts and types.")

    def fixed(self, named: Mapping[str, Any]) -> dict[str, Any]:
        """Keywords with numbers in place of symbols where Triton takes constants."""
        return {
            name: each if name in self.parameters and name not in self.constants else _known(each)
            for name, each in named.items()
        }

    def variants(self, kernel: Any, given: list, named: dict, choice: dict) -> Iterator[tuple[dict, dict]]:
        """What a tuner may choose, and the keywords that the kernel gets then; one where there is none to choose."""
        world, kind = self.world, _torch.kernel_kind(kernel)
        if kind == "function":
            yield choice, self.fixed(named)
            return
        inner = world.attribute(kernel, "fn")
        if kind == "heuristics":
            named = dict(named)
            for name, function in world.loader.settle(world.attribute(kernel, "values")).items():
                meta = {**dict(zip(self.parameters, given)), **named}
                named[name] = _known(self.value(world.machine.call(function, (meta,))))
            yield from self.variants(inner, given, named, choice)
            return
        configs = world.loader.settle(world.attribute(kernel, "configs"))
        for config in configs:
            if world.attribute(config, "pre_hook") is not None:
                refuse("is tuned with hooks that run before it")
            chosen = dict(world.loader.settle(world.attribute(config, "kwargs")))
            options = {name: world.attribute(config, name) for name in _OPTIONS if hasattr(config, name)}
            if any(name in named for name in chosen):
                refuse("gets an argument that it is tuned for")
            chosen = {name: self.value(each) for name, each in chosen.items()}
            if not all(each is None or type(each) in (bool, int, str) for each in chosen.values()):
                refuse("is tuned over other constants than numbers")
            options = {name: each for name, each in options.items() if each is not None}
            yield from self.variants(inner, given, {**named, **chosen, **options}, {**choice, **chosen})

    def bound(self, given: list[Any], named: Mapping[str, Any]) -> dict[str, Any]:
        """The value of each parameter, which a grid is asked with."""
        if len(given) > len(self.parameters):
            refuse("gets arguments that it does not take")
        bound: dict[str, Any] = dict(zip(self.parameters, given))
        for name, parameter in self.parameters.items():
            if name in named:
                if name in bound:
                    refuse("gets an argument twice")
                bound[name] = named[name]
            elif name not in bound:
                if parameter.default is inspect.Parameter.empty:
                    refuse(f"is launched without {name}")
                bound[name] = self.value(parameter.default)
        return {name: _known(each) if name in self.constants else each for name, each in bound.items()}

    def grid(self, grid: Any, meta: dict[str, Any]) -> list[Any]:
        if not isinstance(grid, (tuple, list)):
            grid = self.world.machine.call(grid, (meta,))
        if not isinstance(grid, (tuple, list)):
            refuse("is launched over a grid that is no tuple")
        sizes = [self.value(each) for each in self.world.loader.settle(grid)]
        if not 1 <= len(sizes) <= 3 or not all(type(each) in (int, bool, torch.SymInt, Scalar) for each in sizes):
            refuse("is launched over a grid of other sizes than integers")
        return [int(each) if type(each) is bool else each for each in sizes]

    def form(self, value: Any, places: Mapping[int, list]) -> list:
        """An argument as a launch says it; its numbers are the next ones."""
        kind = type(value)
        if kind is Fake:
            form, numbers = places[id(value)]
            self.numbers += numbers
            return form
        if kind is torch.SymInt:
            self.numbers.append(value)
            return ["number"]
        if kind is Scalar:
            self.items.append(Scalars(self.recorder).in_tensor(value))
            return ["item"]
        if kind is tuple:
            return ["tuple", [self.form(each, places) for each in value]]
        if kind is float:
            return ["float", value.hex()]
        if kind is torch.dtype:
            return ["dtype", str(value).removeprefix("torch.")]
        if _torch.kernel_kind(value):
            return ["kernel", _torch.kernel_name(value)]
        return ["type", value.name] if _torch.triton_type(value) else ["constant", value]

    # Memory -----------------------------------------------------------------------------------------------------------

    def collect(self, values: list[Any]) -> None:
        for each in values:
            if type(each) is tuple:
                self.collect(list(each))
            elif type(each) is Fake and not any(each is other for other in self.tensors):
                self.tensors.append(each)

    def written(self, bounds: list[dict[str, Any]]) -> set[int]:
        """Tensors that the kernel may write, by id."""
        every = {id(each) for each in self.tensors}
        found = {id(meta[name]) for meta in bounds[:1] for name in self.reset() if type(meta.get(name)) is Fake}
        seen = []
        for meta in bounds:
            with self.recorder._paused():
                stand_ins = {name: _stand_in(each, name in self.constants) for name, each in meta.items()}
            told = {name: each if name in self.constants else type(each) for name, each in stand_ins.items()}
            if told in seen:
                continue
            seen.append(told)
            try:
                with self.recorder._paused():
                    names = _torch.written_by(self.base, stand_ins)
            except _torch.Elsewhere:
                refuse("makes pointers of numbers, and may write anywhere")
            if names is None:
                return every
            found |= {id(meta[name]) for name in names if type(meta[name]) is Fake}
        return found & every

    def reset(self) -> list[str]:
        """Names of the arguments that a tuner writes to while it tries."""
        if _torch.kernel_kind(self.kernel) != "autotuner":
            return []
        lists = [self.world.loader.settle(self.world.attribute(self.kernel, each)) for each in _RESET]
        return [name for each in lists for name in each]

    def roots(self, written: set[int]) -> tuple[dict[int, Any], list[Fake], list[Fake]]:
        """How each tensor is given, by id, as its form and numbers; tensors that hold what is written; others."""
        groups: dict[int, list[Fake]] = {}
        for each in self.tensors:
            groups.setdefault(_torch.storage_key(each), []).append(each)
        changed: list[Fake] = []
        read: list[Fake] = []
        placed: list[tuple[Fake, list[Fake], int]] = []
        for group in groups.values():
            if not any(id(each) in written for each in group):
                placed += [(each, read, len(read) + number) for number, each in enumerate(group)]
                read += group
                continue
            for members, root in self.shared(group, written):
                roots = changed if any(id(each) in written for each in members) else read
                placed += [(each, roots, len(roots)) for each in members]
                roots.append(root)
        forms: dict[int, Any] = {}
        for each, roots, place in placed:
            root = roots[place]
            position = place if roots is changed else len(changed) + place
            if is_same_view(each, root):
                forms[id(each)] = ["tensor", position], []
            else:
                offset = each.storage_offset() - root.storage_offset()
                forms[id(each)] = ["view", position, each.dim()], [*each.size(), *each.stride(), offset]
        return forms, changed, read

    def shared(self, group: list[Fake], written: set[int]) -> list[tuple[list[Fake], Fake]]:
        """Tensors of one storage some of which are written, with what holds all of their memory."""
        first = group[0]
        if any(each.dtype != first.dtype for each in group):
            refuse("writes memory that it gets as tensors of several types")
        key = _torch.storage_key(first)
        inputs = [each for each in self.recorder.inputs if isinstance(each, Fake) and _torch.storage_key(each) == key]
        if len(inputs) > 1:
            return self.of_inputs(group, inputs)
        root = inputs[0] if inputs else self.made_first(first)
        if all(is_same_view(each, root) for each in group):
            return [(group, first)]
        return [(group, self.in_a_row(root))]

    def made_first(self, tensor: Fake) -> Fake:
        """The tensor that the memory of `tensor` was made for."""
        node = self.recorder.node_of(tensor)
        while True:
            of_views = node.args[0] if node.target is _torch.getitem else node
            if not _torch.is_operator(of_views.target) or operator(of_views.target).kind != "view":
                break
            node = of_views.args[0]
        made = node.meta["val"]
        if type(made) is not Fake or _torch.storage_key(made) != _torch.storage_key(tensor):
            refuse("writes memory of which nothing tells what else lies in it", "Call clone() on it.")
        return made

    def of_inputs(self, group: list[Fake], inputs: list[Fake]) -> list[tuple[list[Fake], Fake]]:
        """Inputs that share a storage, and no element."""
        for each in group:
            if not any(each is other for other in inputs):
                refuse("writes memory of several of the call's tensors", "Call clone() on one of them.")
            for other in inputs:
                if other is not each and share_elements(each, other) is not False:
                    refuse("writes memory of several of the call's tensors", "Call clone() on one of them.")
        return [([each], each) for each in group]

    def in_a_row(self, tensor: Fake) -> Fake:
        """The elements of a dense tensor, in the order in which they lie."""
        if not is_dense(tensor.size(), tensor.stride()):
            refuse("writes a part of a tensor that has gaps", "Call contiguous() on it.")
        sizes, strides = tensor.size(), tensor.stride()
        order = sorted(range(tensor.dim()), key=lambda place: (-int(strides[place]), -int(sizes[place])))
        if order != sorted(order):
            tensor = self.recorder.call(aten.permute.default, (tensor, order), {})
        return self.recorder.call(aten.view.default, (tensor, [tensor.numel()]), {})


#: Names of the arguments that a tuner clears, and puts back, between its tries.
_RESET = ("reset_to_zero", "restore_value")
#: What a configuration of a tuner says beside constants.
_OPTIONS = ("num_warps", "num_stages", "num_ctas", "maxnreg", "ir_override")


def _annotation(parameter: inspect.Parameter) -> str:
    annotation = parameter.annotation
    return annotation if isinstance(annotation, str) else getattr(annotation, "__name__", "")


def _known(value: Any) -> Any:
    """A number that Triton takes for a constant, guarded."""
    return value.take() if type(value) is Scalar else number(value)


def _same_grid(left: list[Any], right: list[Any]) -> bool:
    return len(left) == len(right) and all(
        type(one) is type(other) and str(one) == str(other) for one, other in zip(left, right)
    )


def _stand_in(value: Any, constant: bool = False) -> Any:
    """What stands for an argument where Triton is asked what the kernel does with it: of numbers that are no constants
    of the kernel, the type matters."""
    if type(value) is Fake:
        return torch.empty(0, dtype=value.dtype)
    if type(value) is torch.SymInt:
        return 2
    if type(value) is Scalar:
        return 2 if value.kind is int else 0.5
    if type(value) is float and not constant:
        return 0.5
    if type(value) is int and not constant and -(1 << 31) <= value < 1 << 31:
        return 2
    return tuple(map(_stand_in, value)) if type(value) is tuple and not constant else value

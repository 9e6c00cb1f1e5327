"""Operators by name, and those that Lampwork registers itself."""

from __future__ import annotations

import functools
import re
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch._library import custom_ops, fake_impl, simple_registry
from torch._ops import OpOverload

from lampwork import forks


def overload(name: str) -> Any:
    """The `torch.ops` overload named "aten::addmm.out" ("aten::relu" and "aten::relu.default" are the same)."""
    namespace, _, rest = name.partition("::")
    operator, _, variant = rest.partition(".")
    if namespace == "lampwork":
        _define_operators()
    elif namespace == _PURE:
        lengths: tuple[int, ...] = ()
        of_numbers = operator.startswith("numbers_")
        operator = operator.removeprefix("numbers_")
        if operator.startswith("lists"):
            counts, _, operator = operator[5:].partition("_")
            lengths = tuple(map(int, counts.split("x")))
        digits, _, rest = operator[2:].partition("_")
        origin, rest = rest[: int(digits)], rest[int(digits) + 1 :]
        called = getattr(getattr(getattr(torch.ops, origin), rest), variant or "default")
        pure = numbers_as_tensors(called) if of_numbers else functional_of_custom(called, lengths)
        assert pure is not None
        return pure
    elif namespace == DRAWING:
        from lampwork._torch.draws import drawing

        return drawing(overload(f"aten::{rest}"))
    elif namespace == GIVEN_NUMBERS:
        from lampwork._torch.given_numbers import operator_given_numbers

        return operator_given_numbers(name)
    return getattr(getattr(getattr(torch.ops, namespace), operator), variant or "default")


def direct_call(name: str) -> Callable:
    """The C++ callable behind the overload `name`, without the Python `OpOverload.__call__` around it."""
    if name in (LAUNCH, LAUNCH_OUT):
        from lampwork._torch import launches

        return launches.launch if name == LAUNCH else launches.launch_out
    found = overload(name)
    if found.namespace == GIVEN_NUMBERS:
        from lampwork._torch.given_numbers import calling, numbers_given

        return calling(*numbers_given(found))
    direct = getattr(found, "_op", found)
    if name.removesuffix(".default") in custom_ops.OPDEFS or has_python_derivative(name):
        return _without_history(direct)
    return direct


def _without_history(operator: Callable) -> Callable:
    """As the kernel is called below a derivative in Python, an `autograd.Function`: where an argument requires grad, in
    no_grad mode, so that the kernel may ask it for its memory (`numpy()`)."""

    def call(*args: Any, **kwargs: Any) -> Any:
        if torch.is_grad_enabled() and _require_grad((*args, *kwargs.values())):
            with torch.no_grad():
                return operator(*args, **kwargs)
        return operator(*args, **kwargs)

    return call


def _require_grad(values: Sequence[Any]) -> bool:
    return any(
        _require_grad(each)
        if isinstance(each, (list, tuple))
        else isinstance(each, torch.Tensor) and each.requires_grad
        for each in values
    )


def returns_list(name: str) -> bool:
    """Whether the operator `name` returns a list of tensors, which may have one element."""
    try:
        returns = overload(name)._schema.returns
    except AttributeError:  # the host's own, which makes one tensor
        return False
    return len(returns) == 1 and str(returns[0].type).startswith("List[")


def out_arguments(name: str, results: int = 1) -> tuple[str, ...]:
    """Names of the arguments that the overload `name` writes its results to, in order; our own write to `out`, but for
    launches of kernels, which have `out0`, `out1` and so on."""
    if name.startswith("lampwork::"):
        return ("out",) if name != LAUNCH_OUT else tuple(f"out{place}" for place in range(results))
    arguments = overload(name)._schema.arguments
    return tuple(each.name for each in arguments if each.alias_info is not None and each.alias_info.is_write)


def draws_random_numbers(name: str) -> bool:
    """Whether the operator `name` advances a random number generator."""
    return torch.Tag.nondeterministic_seeded in overload(name).tags


#: Namespaces of operators that come with releases which every stored entry is made for.
_RELEASED = frozenset({"aten", "prim", "prims", "mkldnn", "lampwork", "lampwork_drawing", "lampwork_given_numbers"})


def operators_of_libraries(graph: torch.fx.Graph) -> tuple[str, ...]:
    """Names of the operators in `graph` that neither PyTorch nor Lampwork brought, sorted; of our functional forms of
    such operators (`functional_of_custom`), those that they are forms of."""
    found = {
        _pure_forms.get(name := node.target.name(), name) for node in graph.nodes if isinstance(node.target, OpOverload)
    }
    return tuple(sorted(name for name in found if name.partition("::")[0] not in _RELEASED))


def launches_in(graph: torch.fx.Graph) -> tuple[str, ...]:
    """What `graph` launches of the program's own Triton kernels, sorted (see `launches.py`)."""
    nodes = [node for node in graph.nodes if isinstance(node.target, OpOverload)]
    return tuple(sorted({str(node.args[0]) for node in nodes if node.target.name() == "lampwork::launch"}))


def schema_text(name: str) -> str:
    """The schema of the operator `name` in this process; empty where there is no such operator."""
    try:
        return str(overload(name)._schema)
    except AttributeError:
        return ""


#: Dispatch keys of derivatives: of all devices, and of each.
_AUTOGRAD_KEYS = tuple(name for name in torch._C.DispatchKey.__members__ if name.startswith("Autograd"))


def has_python_derivative(name: str) -> bool:
    """Whether Python code was registered as the derivative of the operator `name` (`torch.library.register_autograd`,
    `Library.impl` for a dispatch key of autograd)."""
    place = name.removesuffix(".default").replace("::", "/")
    return any(f"{place}/{key}" in torch.library._impls for key in _AUTOGRAD_KEYS)


def derivative_in_python(name: str) -> tuple[object, ...]:
    """The Python functions that are registered as the derivative of the operator `name`, where it is a
    `torch.library.custom_op`: it may be given others at any time."""
    defined = custom_ops.OPDEFS.get(name.removesuffix(".default"))
    return () if defined is None else (defined._backward_fn, defined._setup_context_fn)


def fake_kernel(name: str) -> Callable | None:
    """The Python function that was registered as the shape rule of the operator `name`; None where there is none."""
    if name.startswith(f"{_PURE}::numbers_"):
        op = overload(_pure_forms[name])
        rule = fake_kernel(op.name())
        return None if rule is None else lambda *args, **kwargs: _in_tensors(op, rule(*args, **kwargs))
    defined = custom_ops.OPDEFS.get(name.removesuffix(".default"))
    if defined is not None:
        return defined._abstract_fn
    entry = simple_registry.singleton._data.get(name.removesuffix(".default"))
    kernel = None if entry is None else entry.fake_impl.kernel
    return None if kernel is None else kernel.func


@contextmanager
def sizes_asked_of(new_size: Callable[..., Any]) -> Iterator[None]:
    """Meanwhile shape rules of libraries get their sizes from `new_size(min=0, max=None)`, by
    `torch.library.get_ctx().new_dynamic_size()`."""
    with fake_impl.set_ctx_getter(lambda: _Sizes(new_size)):
        yield


class _Sizes:
    """What shape rules of libraries ask for sizes, in place of PyTorch's own, which knows symbols of its own."""

    def __init__(self, new_size: Callable[..., Any]) -> None:
        self.new_dynamic_size = new_size

    def create_unbacked_symint(self, *, min: int = 2, max: int | None = None) -> Any:
        return self.new_dynamic_size(min=min, max=max)


def finds_sizes(name: str) -> bool:
    """Whether contents decide what sizes the results of the operator `name` have."""
    return torch.Tag.dynamic_output_shape in overload(name).tags


_registering = threading.RLock()


@forks.in_child
def _in_child() -> None:
    global _registering
    _registering = threading.RLock()


def once(function: Callable) -> Any:
    """`functools.cache` for what registers operators: two threads that ask first do not register twice."""
    cached = functools.cache(function)

    @functools.wraps(function)
    def one_at_a_time(*args: object) -> Any:
        with _registering:
            return cached(*args)

    return one_at_a_time


@once
def random_state_operator(name: str) -> OpOverload:
    """Our own operators on the random number generators, so that a graph can hold them in order with the draws:

    manual_seed(int seed) of all devices, get_rng_state() and set_rng_state(Tensor) of the CPU.
    """
    _define_operators()
    return getattr(torch.ops.lampwork, name).default


def named_operator(value: object) -> Any:
    """An operator by its name, as data; any other value as it is."""
    return ("operator", str(value)) if type(value) is OpOverload else value


def many_of_one() -> OpOverload:
    """Our operator that gives as many elements, all in one place, as an integer tensor of one element says: so a graph
    knows the integer as a size. What runs it is in `runtime/launch/unbacked_sizes.py`."""
    return overload("lampwork::many_of_one")


def if_given() -> OpOverload:
    """Our operator that gives its first argument where the second, a bool of one element, is true; else zeros, and the
    first argument's memory is not read: there may be none."""
    _define_operators()
    return overload("lampwork::if_given")


def promised() -> OpOverload:
    """Our operator that gives its first argument, a mask, which is false wherever the second one is: kernels need not
    look there."""
    _define_operators()
    return overload("lampwork::promised")


def cudnn_batch_norm() -> OpOverload:
    """Our operator for the batch norm of cuDNN in training that writes to nothing: its results, among them what it
    reserves for the backward pass, then the new running statistics."""
    return overload("lampwork::cudnn_batch_norm")


def _cudnn_batch_norm(
    input: Any, weight: Any, bias: Any, running_mean: torch.Tensor, running_var: torch.Tensor, factor: float, eps: float
) -> tuple[torch.Tensor, ...]:
    mean, variance = running_mean.clone(), running_var.clone()
    given = input, weight, bias, mean, variance, True, factor, eps
    return (*torch.ops.aten.cudnn_batch_norm.default(*given), mean, variance)


def bernoulli_of() -> OpOverload:
    """Our operator that draws a fresh tensor as `bernoulli_(p)` of ATen does, `p` being in a tensor on the CPU: so a
    graph serves every `p`."""
    _define_operators()
    return overload("lampwork::bernoulli_of")


def _bernoulli_of(p: torch.Tensor, size: object, stride: object, dtype: torch.dtype) -> torch.Tensor:
    made = torch.empty_strided(size, stride, dtype=dtype, device=p.device)
    return made if made.is_meta else made.bernoulli_(p.item())


@once
def _define_operators() -> Any:
    from lampwork._torch import control_flow, launches, packed, recurrent

    library = torch.library.Library("lampwork", "DEF")
    tag = (torch.Tag.nondeterministic_seeded,)
    key = "CompositeExplicitAutograd"
    library.define("manual_seed(int seed) -> ()", tags=tag)
    library.impl("manual_seed", lambda seed: torch.manual_seed(seed) and None, key)
    library.define("get_rng_state() -> Tensor", tags=tag)
    library.impl("get_rng_state", lambda: torch.default_generator.get_state(), key)
    library.define("set_rng_state(Tensor state) -> ()", tags=tag)
    library.impl("set_rng_state", lambda state: torch.default_generator.set_state(state) and None, key)
    library.define("many_of_one(Tensor number) -> Tensor", tags=(torch.Tag.dynamic_output_shape,))
    library.define("if_given(Tensor x, Tensor given) -> Tensor", tags=(torch.Tag.pointwise,))
    library.define("bernoulli_of(Tensor p, SymInt[] size, SymInt[] stride, ScalarType dtype) -> Tensor", tags=tag)
    library.impl("bernoulli_of", _bernoulli_of, key)
    library.define("promised(Tensor x, Tensor within) -> Tensor", tags=(torch.Tag.pointwise,))
    library.impl("promised", lambda x, within: x.clone(), key)
    library.impl("if_given", lambda x, given: torch.where(given, x, torch.zeros_like(x)), key)
    library.define(
        "cudnn_batch_norm(Tensor input, Tensor weight, Tensor? bias, Tensor running_mean, Tensor running_var, "
        "float exponential_average_factor, float epsilon) -> (Tensor, Tensor, Tensor, Tensor, Tensor, Tensor)"
    )
    library.impl("cudnn_batch_norm", _cudnn_batch_norm, "CompositeImplicitAutograd")
    library.define(launches.SCHEMA)
    library.impl("launch", launches.launch, key)
    library.impl("launch", launches.without_memory, "Meta")
    library.define(packed.PACK, tags=(torch.Tag.dynamic_output_shape,))
    library.impl("pack_padded", packed.pack_padded, "CompositeImplicitAutograd")
    library.define(packed.PAD)
    library.impl("pad_packed", packed.pad_packed, "CompositeImplicitAutograd")
    library.define(packed.PACK_BACKWARD)
    library.impl("pack_padded_backward", packed.pack_padded_backward, "CompositeImplicitAutograd")
    library.define(packed.PAD_BACKWARD)
    library.impl("pad_packed_backward", packed.pad_packed_backward, "CompositeImplicitAutograd")
    library.define(recurrent.FORWARD)
    library.impl("recurrent_layer", recurrent.recurrent_layer, "CompositeImplicitAutograd")
    library.define(recurrent.BACKWARD)
    library.impl("recurrent_layer_backward", recurrent.recurrent_layer_backward, "CompositeImplicitAutograd")
    library.define(control_flow.COND)
    library.define(control_flow.WHILE)
    library.define(control_flow.WHILE_ROWS, tags=(torch.Tag.dynamic_output_shape,))
    library.define(control_flow.SCAN)
    for name in control_flow.RUN_CONTROL_FLOW:
        run = functools.partial(control_flow.RUN_CONTROL_FLOW[name], control_flow.run_graph)
        library.impl(name, run, "CompositeImplicitAutograd")
    return library  # which lives as long as what it registers


@functools.cache
def cpu_random_state_bytes() -> int:
    return torch.default_generator.get_state().numel()


_PURE = "lampwork_pure"
#: The operator of a library that an operator of `_PURE` is the functional form of, by name.
_pure_forms: dict[str, str] = {}
DRAWING = "lampwork_drawing"
#: Launches of the program's own Triton kernels (`launches.py`), and those into given memory.
LAUNCH, LAUNCH_OUT = "lampwork::launch.default", "lampwork::launch.out"
GIVEN_NUMBERS = "lampwork_given_numbers"


@once
def functional_of_custom(op: OpOverload, lengths: tuple[int, ...] = ()) -> OpOverload | None:
    """For an operator of a user's that writes to tensors: our operator with its own results (`own_results`), followed
    by what it would have written, which leaves its arguments alone. Of a list of tensors that is a list if there is
    nothing else, or one result for each of its elements; of a tensor that is not given, some tensor. None for results
    that are views of arguments, and for lists beside other results that it does not write.

    `lengths`: those of the lists that are written (`lengths_written`). `OpOverload._schema`; the new operator lives in
    a library of ours, under a name that `overload` can read.
    """
    schema = op._schema
    written = [each for each in schema.arguments if each.alias_info is not None and each.alias_info.is_write]
    if any(str(each.type) not in _WRITTEN for each in written):
        return None
    if any(result.alias_info is not None and written_by_result(op, place) is None
           for place, result in enumerate(schema.returns)):  # fmt: skip
        return None
    origin, _, name = schema.name.partition("::")
    arguments = re.sub(r"\([a-z]\d*!?( -> [^)]*)?\)", "", str(schema))
    arguments = arguments[arguments.index("(") : arguments.rindex(" -> ")]
    own = own_results(op)
    results = [_type_text(schema.returns[place].type) for place in own]
    if lengths:
        count = sum(lengths) + sum("List" not in str(each.type) for each in written)
        results += ["Tensor"] * count
    else:
        results += ["Tensor[]" if "List" in str(each.type) else "Tensor" for each in written]
    if len(results) > 1 and any(each.endswith("[]") for each in results):
        return None
    pure = f"of{len(origin)}_{origin}_{name}"
    if lengths:
        pure = f"lists{'x'.join(map(str, lengths))}_{pure}"
    full = pure if op._overloadname == "default" else f"{pure}.{op._overloadname}"
    positions = {argument.name: place for place, argument in enumerate(schema.arguments)}

    def call(*args: Any, **kwargs: Any) -> Any:
        given, named = list(args), dict(kwargs)
        copies: list[Any] = []
        nothing = torch.empty(0, device=_device_in((args, tuple(kwargs.values()))))
        for argument in written:
            place = positions[argument.name]
            holder: Any = given if place < len(given) else named
            key: Any = place if place < len(given) else argument.name
            value = holder[key] if place < len(given) else named.get(argument.name)
            if value is None:
                copies.append(nothing)
                continue
            if isinstance(value, (list, tuple)):
                holder[key] = [None if each is None else each.clone() for each in value]
                if lengths:
                    copies += [nothing if each is None else each for each in holder[key]]
                    continue
            else:
                holder[key] = value.clone()
            copies.append(holder[key])
        result = op(*given, **named)
        results = () if result is None else result if len(schema.returns) > 1 else (result,)
        for place, each in enumerate(results):
            position = None if place in own else written_by_result(op, place)
            if position is not None:
                argument = given[position] if position < len(given) else named[schema.arguments[position].name]
                _check_same(op, each, argument)
        made = (*(results[place] for place in own), *copies)
        return made[0] if len(made) == 1 else made

    def without_memory(*args: Any, **kwargs: Any) -> Any:
        """What is written keeps its metadata, also where the operator has no kernel for tensors without memory."""
        from lampwork._torch.schemas import has_meta_kernel

        if own or has_meta_kernel(op.name()):
            return call(*args, **kwargs)
        values = dict(zip(positions, args)) | kwargs
        made: list[Any] = []
        for argument in written:
            value = values.get(argument.name)
            if lengths and isinstance(value, (list, tuple)):
                made += map(_empty_copy, value)
            else:
                made.append(_empty_copy(value))
        return made[0] if len(made) == 1 else tuple(made)

    library = torch.library.Library(_PURE, "FRAGMENT")
    library.define(f"{full}{arguments} -> ({', '.join(results)})")
    library.impl(full, call, "CompositeExplicitAutograd")
    library.impl(full, without_memory, "Meta")
    libraries.append(library)
    made = getattr(getattr(getattr(torch.ops, _PURE), pure), op._overloadname)
    _pure_forms[made.name()] = op.name()
    return made


def _check_same(op: OpOverload, result: Any, argument: torch.Tensor) -> None:
    """Raises where an operator returns something else than the argument that it says it writes and returns: a part of
    it, say, which is eager's to return."""
    if not isinstance(result, torch.Tensor) or result is argument:
        return
    mine, theirs = ((each.size(), each.stride(), each.storage_offset()) for each in (result, argument))
    if mine == theirs and (result.device.type == "meta" or result.data_ptr() == argument.data_ptr()):
        return
    raise RuntimeError(f"{op.name()} returns another tensor than the argument that its schema names")


def written_arguments_of(op: OpOverload) -> tuple[str, OpOverload, tuple[str, ...]] | None:
    """For a functional form (`functional_of_custom`) of an operator that writes tensors, each given by itself, and
    returns results of its own alone: the operator's name with its overload, the operator, and the names of what it
    writes, in the order of the last results of the form."""
    name = _pure_forms.get(op.name(), "")
    if not name or op.name().startswith(f"{_PURE}::numbers_"):
        return None
    written = overload(name)
    kinds = {each.name: str(each.type) for each in written._schema.arguments if each.alias_info is not None}
    if len(own_results(written)) < len(written._schema.returns) or any("List" in each for each in kinds.values()):
        return None
    return f"{written._schema.name}.{written._overloadname or 'default'}", written, tuple(kinds)


#: Types of results that are numbers, and what tensors hold them.
_NUMBERS = {"int": torch.int64, "SymInt": torch.int64, "float": torch.float64, "bool": torch.bool}


def returning_numbers(function: Any) -> OpOverload | None:
    """The operator of a library that a call of `function` is, if it writes to nothing and returns numbers, or numbers
    and tensors."""
    name = function.name() if type(function) is OpOverload else getattr(function, "_qualified_op_name", "aten::")
    if name.partition("::")[0] in ("aten", "prims", "lampwork"):
        return None
    op = function if type(function) is OpOverload else getattr(function, "default", None)
    if type(op) is not OpOverload:
        return None
    kinds = [str(each.type) for each in op._schema.returns]
    known = all(each in _NUMBERS or each == "Tensor" for each in kinds) and any(each in _NUMBERS for each in kinds)
    return op if known and not any(each.alias_info for each in (*op._schema.arguments, *op._schema.returns)) else None


def tells_numbers(op: OpOverload) -> bool:
    """Whether the shape rule of an operator may know the numbers that it returns: those that sizes decide."""
    return all(str(each.type) not in ("float", "bool") for each in op._schema.returns)


@once
def numbers_as_tensors(op: OpOverload) -> OpOverload:
    """For an operator that `returns_numbers`: our operator with tensors of one element on the CPU in their place."""
    schema = op._schema
    origin, _, name = schema.name.partition("::")
    text = str(schema)
    pure = f"numbers_of{len(origin)}_{origin}_{name}"
    full = pure if op._overloadname == "default" else f"{pure}.{op._overloadname}"
    library = torch.library.Library(_PURE, "FRAGMENT")
    results = ", ".join("Tensor" for _ in schema.returns)
    library.define(f"{full}{text[text.index('(') : text.rindex(' -> ')]} -> ({results})")
    library.impl(full, lambda *args, **kwargs: _in_tensors(op, op(*args, **kwargs)), "CompositeExplicitAutograd")
    library.impl(full, lambda *args, **kwargs: _in_tensors(op, _on_meta(op, args, kwargs)), "Meta")
    libraries.append(library)
    made = getattr(getattr(getattr(torch.ops, _PURE), pure), op._overloadname)
    _pure_forms[made.name()] = op.name()
    return made


def _on_meta(op: OpOverload, args: tuple, kwargs: dict) -> Any:
    """What `op` returns on tensors without memory; a rule is not asked for numbers alone."""
    if all(str(each.type) in _NUMBERS for each in op._schema.returns):
        return (0,) * len(op._schema.returns) if len(op._schema.returns) > 1 else 0
    return op(*args, **kwargs)


def _in_tensors(op: OpOverload, results: Any) -> Any:
    returns = op._schema.returns
    each = results if len(returns) > 1 else (results,)
    made = []
    for result, value in zip(returns, each, strict=True):
        kind = _NUMBERS.get(str(result.type))
        if kind is not None:
            known = type(value) in (int, float, bool)
            value = torch.empty((), dtype=kind, device="cpu").fill_(value if known else 0)
        made.append(value)
    return tuple(made) if len(made) > 1 else made[0]


def _device_in(values: Any) -> torch.device | None:
    """The device of the first tensor among `values`."""
    if isinstance(values, torch.Tensor):
        return values.device
    found = map(_device_in, values) if isinstance(values, (list, tuple)) else ()
    return next((each for each in found if each is not None), None)


def _empty_copy(value: Any) -> Any:
    if isinstance(value, (list, tuple)):
        return [torch.empty_like(each) for each in value]
    return torch.empty(0, device="meta") if value is None else torch.empty_like(value)


#: Types of arguments that operators of users may write to.
_WRITTEN = ("Tensor", "Optional[Tensor]", "List[Tensor]", "List[Optional[Tensor]]")


def lengths_written(op: OpOverload, values: Sequence[Any]) -> tuple[int, ...]:
    """The lengths of the lists that a call of `op` writes to, `values` being what it writes to in order; empty where
    `functional_of_custom` needs none."""
    written = [each for each in op._schema.arguments if each.alias_info is not None and each.alias_info.is_write]
    if len(written) + len(own_results(op)) == 1 and str(written[0].type) == "List[Tensor]":
        return ()
    pairs = zip(written, values, strict=True)
    return tuple(len(value) for argument, value in pairs if "List" in str(argument.type))


def _type_text(kind: Any) -> str:
    """A type of a schema, as schemas are written."""
    text = str(kind)
    if text.startswith("List["):
        return f"{_type_text(text[5:-1])}[]"
    return f"{text[9:-1]}?" if text.startswith("Optional[") else text


def own_results(op: OpOverload) -> tuple[int, ...]:
    """Positions of the results that are no arguments."""
    return tuple(place for place, each in enumerate(op._schema.returns) if each.alias_info is None)


def written_by_result(op: OpOverload, place: int) -> int | None:
    """The position of the argument that is written and returned as result `place`; None where that is another view."""
    alias = op._schema.returns[place].alias_info
    for position, argument in enumerate(op._schema.arguments):
        info = argument.alias_info
        if info is not None and info.is_write and alias.is_write and info.before_set == alias.before_set:
            return position if str(argument.type) == str(op._schema.returns[place].type) else None
    return None


libraries: list[object] = []  # they live as long as what they register

"""Whatever a program reads can change between two calls: the guards must notice each such change, and nothing else.

Each case gives a program, its arguments and a change. The region captured before the change serves the same call again;
after the change it must not, or else give eager's answer all the same.
"""

from __future__ import annotations

import collections
import contextlib
import sys
import types
from dataclasses import dataclass

import pytest
import torch
from torch import nn

from tests.capture_support import capture_call, guards_fail, run_region, same

CASES: dict[str, object] = {}


def case(function):
    CASES[function.__name__] = function
    return function


class Box:
    """A user object."""

    scale = 2.0
    table = {"a": 3.0}

    def __init__(self, value=1.0):
        self.value = value

    def method(self, x):
        return x * self.value

    @property
    def doubled(self):
        return self.value * 2

    @staticmethod
    def static(x):
        return x + 5

    @classmethod
    def klass(cls, x):
        return x * cls.scale


class Slotted:
    __slots__ = ("value",)

    def __init__(self, value):
        self.value = value


class Derived(Box):
    def method(self, x):
        return super().method(x) + 1


@dataclass
class Config:
    hidden: int = 4
    act: str = "relu"


FACTOR = 2.0
LIST = [1.0, 2.0, 3.0]
BOX = Box()


def helper(x):
    return x + 1


def other_helper(x):
    return x + 2


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.norm = nn.BatchNorm1d(4)
        self.drop = nn.Dropout(0.5)
        self.layers = nn.ModuleList([nn.Linear(4, 4) for _ in range(2)])
        self.register_buffer("offset", torch.ones(4))
        self.config = Config()
        self.factor = 3.0
        self.eval()

    def forward(self, x):
        x = self.drop(self.linear(x)) * self.factor + self.offset
        for layer in self.layers:
            x = layer(x)
        return x.relu() if self.config.act == "relu" else x.tanh()


def x4():
    return torch.randn(2, 4, generator=torch.Generator().manual_seed(0))


# Objects ---------------------------------------------------------------------------------------------------------------


@case
def attribute():
    box = Box()
    return (lambda box, x: x * box.value), (box, x4()), lambda: setattr(box, "value", 5.0)


@case
def attribute_through_method():
    box = Box()
    return (lambda box, x: box.method(x)), (box, x4()), lambda: setattr(box, "value", 5.0)


@case
def attribute_through_property():
    box = Box()
    return (lambda box, x: x * box.doubled), (box, x4()), lambda: setattr(box, "value", 5.0)


@case
def attribute_of_slots():
    box = Slotted(2.0)
    return (lambda box, x: x * box.value), (box, x4()), lambda: setattr(box, "value", 5.0)


@case
def attribute_type():
    box = Box(2)
    return (lambda box, x: x * 3 if isinstance(box.value, int) else x), (box, x4()), lambda: setattr(box, "value", 2.0)


@case
def attribute_added():
    box = Box()
    return (lambda box, x: x * 2 if hasattr(box, "extra") else x), (box, x4()), lambda: setattr(box, "extra", 1)


@case
def attribute_removed():
    box = Box()
    return (lambda box, x: x * getattr(box, "value", 9.0)), (box, x4()), lambda: delattr(box, "value")


@case
def attribute_shadows_class():
    box = Box()
    return (lambda box, x: x * box.scale), (box, x4()), lambda: setattr(box, "scale", 7.0)


@case
def instance_overrides_method():
    box = Box()
    return (lambda box, x: box.method(x)), (box, x4()), lambda: setattr(box, "method", lambda x: x + 100)


@case
def class_attribute():
    def restore():
        Box.scale = 2.0

    return (lambda x: x * Box.scale), (x4(),), lambda: setattr(Box, "scale", 9.0), restore


@case
def class_attribute_dict():
    def restore():
        Box.table["a"] = 3.0

    return (lambda box, x: x * box.table["a"]), (Box(), x4()), lambda: Box.table.__setitem__("a", 4.0), restore


@case
def class_method_replaced():
    original = Box.method

    def restore():
        Box.method = original

    return (lambda b, x: b.method(x)), (Box(2.0), x4()), lambda: setattr(Box, "method", lambda s, x: x - 1), restore


@case
def base_class_method_replaced():
    original = Box.method

    def restore():
        Box.method = original

    return (lambda b, x: b.method(x)), (Derived(2.0), x4()), lambda: setattr(Box, "method", lambda s, x: x - 1), restore


@case
def subclass_gains_method():
    class Child(Box):
        pass

    return (lambda b, x: b.method(x)), (Child(2.0), x4()), lambda: setattr(Child, "method", lambda s, x: x - 1)


@case
def static_method_replaced():
    original = Box.__dict__["static"]

    def restore():
        Box.static = original

    return (lambda b, x: b.static(x)), (Box(), x4()), lambda: setattr(Box, "static", staticmethod(lambda x: x)), restore


@case
def class_method_via_class():
    original = Box.__dict__["klass"]

    def restore():
        Box.klass = original

    return (lambda x: Box.klass(x)), (x4(),), lambda: setattr(Box, "klass", classmethod(lambda c, x: x)), restore


@case
def property_replaced():
    original = Box.__dict__["doubled"]

    def restore():
        Box.doubled = original

    return (
        (lambda b, x: x * b.doubled),
        (Box(), x4()),
        lambda: setattr(Box, "doubled", property(lambda s: 50.0)),
        restore,
    )


@case
def class_of_object():
    box = Box()

    class Other(Box):
        def method(self, x):
            return x - 9

    return (lambda box, x: box.method(x)), (box, x4()), lambda: setattr(box, "__class__", Other)


@case
def getattr_added_to_class():
    class Child(Box):
        pass

    return (
        (lambda b, x: x * getattr(b, "missing", 2.0)), (Child(), x4()),
        lambda: setattr(Child, "__getattr__", lambda self, name: 11.0),
    )  # fmt: skip


@case
def dataclass_field():
    config = Config()
    return (lambda c, x: x.sum(0) if c.hidden == 4 else x), (config, x4()), lambda: setattr(config, "hidden", 5)


# Containers -----------------------------------------------------------------------------------------------------------


@case
def list_element():
    values = [1.0, 2.0]
    return (lambda v, x: x * v[1]), (values, x4()), lambda: values.__setitem__(1, 7.0)


@case
def list_length():
    values = [1.0, 2.0]
    return (lambda v, x: x * len(v)), (values, x4()), lambda: values.append(7.0)


@case
def list_iterated():
    values = [1.0, 2.0]
    return (lambda v, x: x * sum(e for e in v)), (values, x4()), lambda: values.append(7.0)


@case
def list_last():
    values = [1.0, 2.0]
    return (lambda v, x: x * v[-1]), (values, x4()), lambda: values.append(7.0)


@case
def list_truth():
    values = []
    return (lambda v, x: x * 2 if v else x), (values, x4()), lambda: values.append(7.0)


@case
def list_membership():
    values = [1, 2]
    return (lambda v, x: x * 2 if 3 in v else x), (values, x4()), lambda: values.append(3)


@case
def objects_known_by_their_identity():
    values = [Box(), Box()]
    return (
        (lambda v, x: x * len({id(v[0]), id(v[1])})), (values, x4()), lambda: values.__setitem__(1, values[0]),
    )  # fmt: skip


@case
def keys_that_are_objects():
    values = {Box: 1.0, Slotted: 2.0}

    def change():
        values[Config] = values.pop(Slotted)

    return (lambda v, x: x * (2 if list(v)[1] is Slotted else 3)), (values, x4()), change


@case
def keys_that_are_identities():
    values = [[1.0], [1.0]]

    def program(v, x):
        names = {id(each): name for name, each in zip("ab", v)}
        return x * 2 if names[id(v[0])] == "a" else x * 3

    return program, (values, x4()), lambda: values.__setitem__(1, values[0])


@case
def nested_list():
    values = [[1.0], [2.0]]
    return (lambda v, x: x * v[1][0]), (values, x4()), lambda: values[1].__setitem__(0, 9.0)


@case
def dict_entry():
    values = {"a": 1.0, "b": 2.0}
    return (lambda v, x: x * v["b"]), (values, x4()), lambda: values.__setitem__("b", 7.0)


@case
def dict_key_added():
    values = {"a": 1.0}
    return (lambda v, x: x * v.get("b", 2.0)), (values, x4()), lambda: values.__setitem__("b", 7.0)


@case
def dict_key_removed():
    values = {"a": 1.0}
    return (lambda v, x: x * 2 if "a" in v else x), (values, x4()), lambda: values.pop("a")


@case
def dict_order():
    values = {"a": 1.0, "b": 2.0}

    def change():
        values["a"] = values.pop("a")

    return (lambda v, x: x * list(v)[0].count("a")), (values, x4()), change


@case
def dict_items():
    values = {"a": 1.0, "b": 2.0}
    return (lambda v, x: x * sum(e for _, e in v.items())), (values, x4()), lambda: values.__setitem__("b", 3.0)


@case
def set_element():
    values = {"a"}
    return (lambda v, x: x * 2 if "b" in v else x), (values, x4()), lambda: values.add("b")


@case
def deque_element():
    values = collections.deque([1.0, 2.0])
    return (lambda v, x: x * v[0]), (values, x4()), lambda: values.appendleft(7.0)


@case
def tensor_in_list():
    values = [torch.ones(4), torch.ones(4)]
    return (lambda v, x: x * v[1]), (values, x4()), lambda: values.__setitem__(1, torch.ones(2, 4))


@case
def container_type():
    holder = Box([1.0])
    return (
        (lambda b, x: x * 2 if isinstance(b.value, list) else x), (holder, x4()),
        lambda: setattr(holder, "value", (1.0,)),
    )  # fmt: skip


# Functions, closures, globals ------------------------------------------------------------------------------------------


@case
def closure_cell():
    factor = 2.0

    def program(x):
        return x * factor

    def change():
        nonlocal factor
        factor = 3.0

    return program, (x4(),), change


@case
def closure_function():
    inner = helper

    def program(x):
        return inner(x)

    def change():
        nonlocal inner
        inner = other_helper

    return program, (x4(),), change


@case
def closure_of_closure():
    def make(value):
        return lambda x: x * value

    inner = make(2.0)

    def program(x):
        return inner(x)

    def change():
        nonlocal inner
        inner = make(3.0)

    return program, (x4(),), change


@case
def function_default():
    def inner(x, by=2.0):
        return x * by

    return (lambda x: inner(x)), (x4(),), lambda: setattr(inner, "__defaults__", (3.0,))


@case
def function_keyword_default():
    def inner(x, *, by=2.0):
        return x * by

    return (lambda x: inner(x)), (x4(),), lambda: inner.__kwdefaults__.__setitem__("by", 3.0)


@case
def function_code():
    def inner(x):
        return x * 2

    return (lambda x: inner(x)), (x4(),), lambda: setattr(inner, "__code__", (lambda x: x * 3).__code__)


@case
def function_attribute():
    def inner(x):
        return x * inner.by

    inner.by = 2.0
    return (lambda x: inner(x)), (x4(),), lambda: setattr(inner, "by", 3.0)


@case
def global_value():
    def restore():
        globals()["FACTOR"] = 2.0

    return (lambda x: x * FACTOR), (x4(),), lambda: globals().__setitem__("FACTOR", 3.0), restore


@case
def global_function():
    original = helper

    def restore():
        globals()["helper"] = original

    return (lambda x: helper(x)), (x4(),), lambda: globals().__setitem__("helper", other_helper), restore


@case
def global_list():
    def restore():
        LIST[1] = 2.0

    return (lambda x: x * LIST[1]), (x4(),), lambda: LIST.__setitem__(1, 9.0), restore


@case
def global_shadows_builtin():
    def restore():
        del globals()["len"]

    return (lambda x: x * len([1, 2])), (x4(),), lambda: globals().__setitem__("len", lambda v: 50), restore


@case
def module_attribute():
    module = types.ModuleType("lampwork_test_module")
    module.value = 2.0
    sys.modules["lampwork_test_module"] = module

    def program(x):
        import lampwork_test_module

        return x * lampwork_test_module.value

    def restore():
        del sys.modules["lampwork_test_module"]

    return program, (x4(),), lambda: setattr(module, "value", 3.0), restore


@case
def torch_function_replaced():
    original = torch.nn.functional.relu

    def restore():
        torch.nn.functional.relu = original

    return (
        (lambda x: torch.nn.functional.relu(x)), (x4(),),
        lambda: setattr(torch.nn.functional, "relu", lambda x: x + 1), restore,
    )  # fmt: skip


@case
def tensor_method_replaced():
    def restore():
        del torch.Tensor.relu

    return (lambda x: x.relu()), (x4(),), lambda: setattr(torch.Tensor, "relu", lambda self: self + 100), restore


@case
def partial_argument():
    import functools

    box = Box(functools.partial(torch.mul, other=2.0))
    return (
        (lambda b, x: b.value(x)), (box, x4()), lambda: setattr(box, "value", functools.partial(torch.mul, other=3.0))
    )  # fmt: skip


@case
def bound_method_stored():
    first, second = Box(2.0), Box(3.0)
    holder = Box(first.method)
    return (lambda h, x: h.value(x)), (holder, x4()), lambda: setattr(holder, "value", second.method)


# Arguments -------------------------------------------------------------------------------------------------------------


def _arguments(name, program, before, after):
    CASES[name] = lambda: (program, before, None, None, after)


_arguments("argument_int", lambda x, n: x * n, (x4(), 2), (x4(), 3))
_arguments("argument_bool_for_int", lambda x, n: x + 1 if n is True else x, (x4(), 1), (x4(), True))
_arguments("argument_float_zero_sign", lambda x, n: x * n, (x4(), 0.0), (x4(), -0.0))
_arguments("argument_none", lambda x, n: x if n is None else x * 2, (x4(), None), (x4(), 3))
_arguments("argument_count", lambda x, *rest: x * len(rest), (x4(), 3), (x4(), 3, 3))
_arguments("argument_shape", lambda x: x * x.shape[0], (x4(),), (torch.ones(3, 4),))
_arguments("argument_strides", lambda x: x.t().is_contiguous() + x, (torch.ones(4, 4),), (torch.ones(4, 4).t(),))
_arguments("argument_dtype", lambda x: x * 2, (x4(),), (x4().double(),))
_arguments("argument_requires_grad", lambda x: x * int(x.requires_grad), (x4(),), (x4().requires_grad_(),))
_arguments("argument_type", lambda x, y: x * 2 if isinstance(y, torch.Tensor) else x, (x4(), x4()), (x4(), 3.0))
_arguments("argument_parameter", lambda x: x + isinstance(x, nn.Parameter), (x4(),),
           (nn.Parameter(x4(), requires_grad=False),))  # fmt: skip
_arguments("argument_class", lambda b, x: b.method(x), (Box(2.0), x4()), (Derived(2.0), x4()))
_arguments("argument_tuple", lambda v, x: x * v[0], ((1, 2), x4()), ((3, 2), x4()))
_shared = x4()
_arguments("arguments_become_same", lambda a, b: a.add_(1) + b, (x4(), x4()), (_shared, _shared))
_arguments("arguments_become_different", lambda a, b: a.add_(1) + b, (_shared, _shared), (x4(), x4()))
_whole = torch.zeros(6)
_arguments("arguments_overlap", lambda a, b: a.add_(1) + b, (torch.zeros(4), torch.zeros(4)), (_whole[:4], _whole[2:]))
_first, _second = Box(1.0), Box(2.0)
_arguments(
    "objects_become_same", lambda a, b: b.value if a is b else torch.ones(1), (_first, _second), (_first, _first)
)


# Modules ---------------------------------------------------------------------------------------------------------------


def _module(name, change, restore=None):
    def build():
        torch.manual_seed(0)
        net = Net()
        undo = (lambda: restore(net)) if restore else None
        return net, (x4(),), lambda: change(net), undo

    CASES[f"module_{name}"] = build


_module("training_flag", lambda net: net.drop.train())
_module("attribute", lambda net: setattr(net, "factor", 4.0))
_module("config", lambda net: setattr(net.config, "act", "tanh"))
_module("config_replaced", lambda net: setattr(net, "config", Config(act="tanh")))
_module("parameter_dtype", lambda net: setattr(net.linear, "weight", nn.Parameter(net.linear.weight.double())))
_module("parameter_data", lambda net: setattr(net.layers[0].weight, "data", torch.ones(4, 4).t()[:, :]))
_module("parameter_requires_grad", lambda net: net.linear.weight.requires_grad_(False))
_module("parameter_removed", lambda net: setattr(net.linear, "bias", None))
_module("submodule_replaced", lambda net: setattr(net, "linear", nn.Sequential(nn.Linear(4, 4), nn.ReLU())))
_module("submodule_same_class", lambda net: setattr(net, "linear", nn.Linear(4, 4, bias=False)))
_module("layer_appended", lambda net: net.layers.append(nn.Linear(4, 4)))
_module("layer_removed", lambda net: net.layers.__delitem__(1))
_module("buffer_replaced", lambda net: setattr(net, "offset", torch.ones(2, 4)))
_module("dropout_p", lambda net: setattr(net.drop, "p", 0.1) or net.drop.train())
_module("forward_hook", lambda net: net.linear.register_forward_hook(lambda m, a, o: o * 0))
_module("forward_pre_hook", lambda net: net.register_forward_pre_hook(lambda m, a: (a[0] * 0,)))
_module("forward_override", lambda net: setattr(net.linear, "forward", lambda x: x))
_module("class_forward", lambda net: setattr(Net, "forward", lambda self, x: x),
        lambda net: setattr(Net, "forward", _net_forward))  # fmt: skip
_module("shadowing_attribute", lambda net: net.__dict__.__setitem__("linear", nn.Identity()))
_module("aliased_layers", lambda net: net.layers.__setitem__(1, net.layers[0]))
_net_forward = Net.forward


@case
def module_global_hook():
    handles = []
    net = Net()

    def change():
        handles.append(nn.modules.module.register_module_forward_hook(lambda m, a, o: o * 0))

    return net, (x4(),), change, lambda: handles[0].remove()


# Process state -----------------------------------------------------------------------------------------------------------


def _state(name, program, enter):
    def build():
        stack = contextlib.ExitStack()
        return program, (x4(),), lambda: enter(stack), stack.close

    CASES[f"state_{name}"] = build


def _set_default_dtype(stack):
    torch.set_default_dtype(torch.float64)
    stack.callback(torch.set_default_dtype, torch.float32)


def _set_deterministic(stack):
    torch.use_deterministic_algorithms(True)
    stack.callback(torch.use_deterministic_algorithms, False)


_state("default_dtype", lambda x: x + torch.ones(4), _set_default_dtype)
_state("grad_mode", lambda x: x * 2 if torch.is_grad_enabled() else x, lambda s: s.enter_context(torch.no_grad()))
_state("inference_mode", lambda x: x * torch.is_inference_mode_enabled(),
       lambda s: s.enter_context(torch.inference_mode()))  # fmt: skip
_state("autocast", lambda x: x @ x.t(), lambda s: s.enter_context(torch.autocast("cpu", dtype=torch.bfloat16)))
_state("deterministic", lambda x: x * torch.are_deterministic_algorithms_enabled(), _set_deterministic)


def test_sdpa_backend_is_guarded():
    def program(q):
        return nn.functional.scaled_dot_product_attention(q, q, q)

    q = torch.randn(1, 2, 4, 8)
    region = capture_call(program, q)
    with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
        assert guards_fail(region, program, q)


# ---------------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", CASES)
def test_change_is_noticed(name):
    parts = CASES[name]()
    program, args, change, restore, after = (*parts, None, None)[:5] if len(parts) < 5 else parts
    with torch.no_grad() if name.startswith("module") else contextlib.nullcontext():
        region = capture_call(program, *args)
        assert not guards_fail(region, program, *args), "the guards fail on the call that was captured"
        if change is not None:
            change()
        try:
            served = not guards_fail(region, program, *(after or args))
            if served:
                from copy import deepcopy

                expected = program(*deepcopy(after or args))
                found = run_region(region, program, after or args)
                assert same(expected, found), "the change went unnoticed and the answer is wrong"
                assert name in HARMLESS, "the change went unnoticed; list it as harmless if no answer depends on it"
        finally:
            if restore is not None:
                restore()


#: Changes that a region may serve because the answer stays right.
HARMLESS: set[str] = set()


def test_unread_values_are_not_guarded():
    box = Box()
    box.unread = 1
    program = lambda b, v, x: x * b.value + v[0]
    values = [torch.ones(4), 3]
    region = capture_call(program, box, values, x4())
    box.unread = "changed"
    values[1] = 4
    values.append(5)
    assert not guards_fail(region, program, box, values, x4())


def test_parameter_values_are_not_guarded():
    net = Net()
    with torch.no_grad():
        region = capture_call(net, x4())
        net.linear.weight.mul_(2)
        assert same(net(x4()), run_region(region, net, (x4(),)))


# Aliasing of what the program writes ---------------------------------------------------------------------------------------


def _appends(a, b):
    a.append(1)
    return torch.ones(1) * len(b)


def _sets_item(a, b):
    a["k"] = 5
    return torch.ones(1) * b.get("k", 1)


def _sets_attribute(a, b):
    a.value = 5.0
    return torch.ones(1) * b.value


def _adds_element(a, b):
    a.add("k")
    return torch.ones(1) * len(b)


@pytest.mark.parametrize(
    ("program", "make"), [(_appends, list), (_sets_item, dict), (_sets_attribute, Box), (_adds_element, set)]
)
def test_written_objects_that_become_the_same(program, make):
    region = capture_call(program, make(), make())
    assert not guards_fail(region, program, make(), make())
    one = make()
    assert guards_fail(region, program, one, one)
    region = capture_call(program, one, one)
    assert guards_fail(region, program, make(), make())

"""Classes: slots, descriptors, metaclasses, properties, super in every form, operators, special methods."""

from __future__ import annotations

import abc
import functools

import torch

from tests.python.harness import program

REGISTRY = {}


def vector():
    return torch.arange(4.0)


# Slots and attributes --------------------------------------------------------------------------------------------------


class Slotted:
    __slots__ = ("weight", "bias", "__dict__")

    def __init__(self, weight):
        self.weight = weight


class SlottedChild(Slotted):
    __slots__ = ("extra",)


class Strict:
    __slots__ = ("a",)


@program(vector, lambda: Slotted(2.0))
def slots_read_and_written(x, holder):
    holder.bias = holder.weight + 1
    holder.loose = x
    return x * holder.bias


@program(vector)
def slots_of_a_subclass(x):
    child = SlottedChild(x)
    child.extra = 1
    child.other = 2
    return child, child.__slots__, hasattr(child, "bias"), vars(child)


@program(vector)
def slots_refuse_other_names(x):
    strict = Strict()
    found = []
    for action in (lambda: strict.a, lambda: setattr(strict, "b", 1), lambda: delattr(strict, "a")):
        try:
            action()
        except AttributeError as error:
            found.append(str(error))
    strict.a = x
    del strict.a
    return x, found, hasattr(strict, "a")


class Lazy:
    """Computes attributes that are missing."""

    def __init__(self):
        self.asked = []

    def __getattr__(self, name):
        if name.startswith("scale_"):
            self.asked.append(name)
            return float(name[6:])
        raise AttributeError(f"no {name}")


@program(vector, Lazy)
def getattr_for_missing_names(x, lazy):
    return x * lazy.scale_3 + lazy.scale_2, hasattr(lazy, "other"), getattr(lazy, "nothing", 5), lazy.asked


class Recording:
    def __init__(self):
        object.__setattr__(self, "writes", [])

    def __setattr__(self, name, value):
        self.writes.append(name)
        object.__setattr__(self, name, value)

    def __delattr__(self, name):
        self.writes.append("del " + name)
        super().__delattr__(name)

    def __getattribute__(self, name):
        if name == "secret":
            return 42
        return super().__getattribute__(name)


@program(vector, Recording)
def attribute_access_overridden(x, recording):
    recording.a = x
    recording.b = 2
    del recording.b
    return recording.secret, recording.a * 2, recording.writes


class Celsius:
    def __init__(self, degrees=0.0):
        self._degrees = degrees
        self.reads = 0

    @property
    def degrees(self):
        self.reads += 1
        return self._degrees

    @degrees.setter
    def degrees(self, value):
        if value < -273:
            raise ValueError("too cold")
        self._degrees = value

    @degrees.deleter
    def degrees(self):
        self._degrees = None

    fahrenheit = property(lambda self: self._degrees * 1.8 + 32)


@program(vector, lambda: Celsius(10.0))
def properties(x, temperature):
    temperature.degrees += 5
    y = x * temperature.degrees
    try:
        temperature.degrees = -300
    except ValueError as error:
        message = str(error)
    try:
        temperature.fahrenheit = 1
    except AttributeError as error:
        message += str(error)
    f = temperature.fahrenheit
    del temperature.degrees
    return y, message, f


class Typed:
    """A data descriptor with a name given by the class."""

    def __init__(self, kind):
        self.kind = kind

    def __set_name__(self, owner, name):
        self.name = "_" + name

    def __get__(self, instance, owner=None):
        return self if instance is None else getattr(instance, self.name, None)

    def __set__(self, instance, value):
        if not isinstance(value, self.kind):
            raise TypeError(f"{self.name} must be {self.kind.__name__}")
        setattr(instance, self.name, value)

    def __delete__(self, instance):
        delattr(instance, self.name)


class Settings:
    rate = Typed(float)
    name = Typed(str)

    def __init__(self, rate, name):
        self.rate, self.name = rate, name


@program(vector, lambda: Settings(0.5, "first"))
def data_descriptors(x, settings):
    settings.rate = settings.rate * 2
    try:
        settings.name = 3
    except TypeError as error:
        message = str(error)
    made = Settings(1.5, "second")
    del made.name
    return x * settings.rate * made.rate, message, made.name, Settings.rate.kind


class CachedOnce:
    """A non-data descriptor that replaces itself in the instance."""

    def __init__(self, function):
        self.function = function
        self.name = function.__name__

    def __get__(self, instance, owner):
        if instance is None:
            return self
        value = instance.__dict__[self.name] = self.function(instance)
        return value


class Model:
    version = 1

    def __init__(self, scale):
        self.scale = scale
        self.computed = 0

    @CachedOnce
    def table(self):
        self.computed += 1
        return torch.arange(4.0) * self.scale

    @functools.cached_property
    def other(self):
        self.computed += 10
        return [self.scale] * 2

    @classmethod
    def default(cls, scale=3):
        return cls(scale)

    @staticmethod
    def square(x):
        return x * x

    def __call__(self, x):
        return self.square(x) * self.scale + self.version


@program(vector, lambda: Model(2))
def values_cached_in_the_instance(x, model):
    return x + model.table + model.table, model.other, model.other is model.other, model.computed


@program(vector)
def class_and_static_methods(x):
    model = Model.default()
    bound = model.square
    return model(x), bound(x), Model.square(x), type(model).default(4).scale, Model.__call__(model, x)


@program(vector, lambda: Model(2))
def class_attribute_shadowed_by_instance(x, model):
    before = model.version
    model.version += 5
    return x * model.version, before, Model.version


@program(vector)
def class_attribute_written(x):
    Model.version = Model.version + 1
    return x * Model.version


# Inheritance -----------------------------------------------------------------------------------------------------------


class Base:
    def __init__(self, **options):
        self.order = ["Base"]
        self.options = options

    def run(self, x):
        return x + 1

    @property
    def size(self):
        return 1

    @classmethod
    def build(cls):
        return cls.__name__


class Left(Base):
    def __init__(self, left=0, **options):
        super().__init__(**options)
        self.order.append("Left")
        self.left = left

    def run(self, x):
        return super().run(x) * 2

    @property
    def size(self):
        return super().size + 10

    @classmethod
    def build(cls):
        return "Left:" + super().build()


class Right(Base):
    def __init__(self, right=0, **options):
        super(Right, self).__init__(**options)
        self.order.append("Right")
        self.right = right

    def run(self, x):
        return super(Right, self).run(x) * 3


class Bottom(Left, Right):
    def __init__(self, **options):
        super().__init__(**options)
        self.order.append("Bottom")

    def run(self, x):
        parent = super()
        return parent.run(x) + Base.run(self, x)


@program(vector)
def diamond_with_cooperative_super(x):
    bottom = Bottom(left=1, right=2, other=3)
    return bottom.run(x), bottom, bottom.size, Bottom.build(), [cls.__name__ for cls in Bottom.__mro__]


@program(vector)
def super_of_a_class_and_unbound(x):
    bottom = Bottom()
    return super(Left, bottom).run(x), super(Bottom, Bottom).build(), super(Left, bottom).__init__ is not None


@program(vector)
def super_in_a_nested_function(x):
    class Child(Base):
        def run(self, x):
            later = lambda: super(Child, self).run(x)
            return later() * 10

    return Child().run(x)


@program(vector)
def isinstance_and_issubclass(x):
    bottom = Bottom()
    return (
        isinstance(bottom, (int, Right)), issubclass(Bottom, Left), issubclass(bool, int), isinstance(True, int),
        isinstance(x, torch.Tensor), type(bottom) is Bottom, isinstance(None, type(None)), isinstance(3, int | str),
        isinstance(Bottom, type), callable(bottom.run), callable(bottom),
    )  # fmt: skip


class Shape(abc.ABC):
    @abc.abstractmethod
    def area(self): ...

    def doubled(self):
        return self.area() * 2


class Square(Shape):
    def __init__(self, side):
        self.side = side

    def area(self):
        return self.side * self.side


@program(vector)
def abstract_classes(x):
    try:
        Shape()
    except TypeError as error:
        message = str(error)
    return Square(x).doubled(), message, isinstance(Square(1), Shape)


class Registered(type):
    def __new__(mcls, name, bases, namespace, **keywords):
        cls = super().__new__(mcls, name, bases, namespace)
        cls.tag = keywords.get("tag", name.lower())
        return cls

    def __init__(cls, name, bases, namespace, **keywords):
        super().__init__(name, bases, namespace)
        REGISTRY[cls.tag] = cls

    def __call__(cls, *args):
        made = super().__call__(*args)
        made.tagged = cls.tag
        return made

    def __len__(cls):
        return len(cls.tag)

    def __getitem__(cls, item):
        return (cls.__name__, item)


class Plugin(metaclass=Registered, tag="plug"):
    def __init__(self, by=1):
        self.by = by

    def run(self, x):
        return x * self.by


@program(vector)
def metaclass_calls_and_operators(x):
    plugin = Plugin(3)
    return plugin.run(x), plugin.tagged, len(Plugin), Plugin[0], REGISTRY["plug"] is Plugin, type(Plugin).__name__


@program(vector)
def class_made_with_a_metaclass(x):
    class Local(Plugin, tag="local"):
        def run(self, x):
            return super().run(x) + 1

    made = Local(2)
    return made.run(x), Local.tag, "local" in REGISTRY


class Tracked:
    subclasses = []

    def __init_subclass__(cls, weight=1, **options):
        super().__init_subclass__(**options)
        cls.weight = weight
        Tracked.subclasses.append(cls.__name__)


class Heavy(Tracked, weight=7):
    pass


@program(vector)
def init_subclass(x):
    return x * Heavy.weight, list(Tracked.subclasses)


@program(vector)
def class_made_with_init_subclass(x):
    class Local(Tracked, weight=4):
        pass

    return x * Local().weight


@program(vector)
def class_made_with_type(x):
    Made = type("Made", (Base,), {"factor": 3, "run": lambda self, x: x * self.factor})
    return Made().run(x), Made.__name__, Made.__bases__ == (Base,)


@program(vector)
def class_made_in_a_loop(x):
    classes = []
    for factor in range(3):

        class Step:
            by = factor

            def run(self, x):
                return x * self.by

        classes.append(Step)
    return [cls().run(x) for cls in classes]


class Singleton:
    instance = None

    def __new__(cls, *args):
        if cls.instance is None:
            made = super().__new__(cls)
            made.uses = 0
            return made
        return cls.instance

    def __init__(self, value):
        self.value = value
        self.uses += 1


@program(vector)
def new_and_init(x):
    made = Singleton(x)
    return made.uses, made.value * 2


class OnlyPositive(int):
    def __new__(cls, value):
        return super().__new__(cls, abs(value))

    def twice(self):
        return OnlyPositive(self * 2)


class Tagged(str):
    def __new__(cls, text, tag):
        made = super().__new__(cls, text)
        made.tag = tag
        return made


@program(vector)
def subclasses_of_builtins(x):
    n = OnlyPositive(-3)
    text = Tagged("ab", "t")
    return x * n, n.twice() + 1, text + "c", text.tag, text.upper(), isinstance(n, int)


class Stack(list):
    def push(self, value):
        self.append(value)
        return self

    def __getitem__(self, index):
        return super().__getitem__(-1 - index)


class Attributes(dict):
    def __getattr__(self, name):
        try:
            return self[name]
        except KeyError:
            raise AttributeError(name) from None

    def __setattr__(self, name, value):
        self[name] = value

    def __missing__(self, key):
        return f"no {key}"


@program(vector)
def subclasses_of_containers(x):
    stack = Stack([1, 2]).push(x)
    table = Attributes(a=1)
    table.b = x
    return stack[0], len(stack), stack, table.a, table["zz"], table.b, table


@program(vector, lambda: Attributes(a=1.0, b=torch.ones(4)), lambda: Stack([1, 2]))
def subclasses_of_containers_as_arguments(x, table, stack):
    table.c = x * table.a
    stack.push(table.c)
    return table.b + stack[1]


class Changing:
    kind = "first"

    def run(self, x):
        return x + 1


class Changed(Changing):
    kind = "second"

    def run(self, x):
        return x * 10


@program(vector, Changing)
def class_assignment(x, thing):
    before = thing.run(x)
    thing.__class__ = Changed
    return before, thing.run(x), thing.kind, type(thing).__name__


@program(vector)
def class_assignment_inside(x):
    thing = Changing()
    thing.value = 1
    thing.__class__ = Changed
    return thing.run(x), thing


# Operators -------------------------------------------------------------------------------------------------------------


class Vector:
    def __init__(self, data):
        self.data = data

    def __add__(self, other):
        if isinstance(other, Vector):
            return Vector(self.data + other.data)
        if isinstance(other, (int, float)):
            return Vector(self.data + other)
        return NotImplemented

    def __radd__(self, other):
        return Vector(other + self.data)

    def __iadd__(self, other):
        self.data = self.data + getattr(other, "data", other)
        return self

    def __mul__(self, other):
        return Vector(self.data * other)

    __rmul__ = __mul__

    def __sub__(self, other):
        return NotImplemented

    def __rsub__(self, other):
        return "reflected"

    def __neg__(self):
        return Vector(-self.data)

    def __pos__(self):
        return self

    def __invert__(self):
        return "inverted"

    def __abs__(self):
        return Vector(abs(self.data))

    def __matmul__(self, other):
        return self.data @ other.data

    def __getitem__(self, index):
        return self.data[index]

    def __setitem__(self, index, value):
        self.data[index] = value

    def __delitem__(self, index):
        self.data = self.data[:index]

    def __len__(self):
        return len(self.data)

    def __divmod__(self, other):
        return "divmod", other

    def __pow__(self, other, modulo=None):
        return "pow", other, modulo


@program(vector)
def arithmetic_operators(x):
    v = Vector(x)
    return (v + v, v + 1, 1 + v, v * 2, 3 * v, -v, +v, ~v, abs(v), v @ v, divmod(v, 2), v**2, pow(v, 2, 3), sum([v, v]))


@program(vector)
def reflected_and_refused_operators(x):
    v = Vector(x)
    found = []
    for action in (lambda: v + "a", lambda: v - v, lambda: v - 1, lambda: v // 2, lambda: v < v, lambda: v & 1):
        try:
            found.append(action())
        except TypeError as error:
            found.append(str(error))
    return found, 5 - v


@program(vector)
def inplace_operators(x):
    v = w = Vector(x)
    v += 1
    v += Vector(x)
    v *= 2
    return v, w, v is w


@program(vector)
def item_operators(x):
    v = Vector(x.clone())
    v[0] = 5
    v[1:3] += 10
    del v[3]
    return v, v[-1], len(v), list(v), 10 in [float(i) for i in range(11)]


@functools.total_ordering
class Version:
    def __init__(self, major, minor):
        self.key = (major, minor)

    def __eq__(self, other):
        return isinstance(other, Version) and self.key == other.key

    def __lt__(self, other):
        return self.key < other.key

    def __hash__(self):
        return hash(self.key)

    def __repr__(self):
        return f"Version{self.key}"

    def __bool__(self):
        return self.key != (0, 0)

    def __contains__(self, part):
        return part in self.key

    def __iter__(self):
        return iter(self.key)

    def __index__(self):
        return self.key[0]

    def __int__(self):
        return self.key[0]

    def __float__(self):
        return self.key[0] + self.key[1] / 10

    def __format__(self, spec):
        return f"{self.key[0]}{spec}{self.key[1]}"


@program(vector)
def comparison_operators(x):
    a, b, c = Version(1, 2), Version(1, 10), Version(1, 2)
    return a == c, a != b, a < b, a <= b, a > b, a >= c, max(a, b) is b, sorted([b, a]) == [a, b], a == 5, a in [b, c]


@program(vector)
def conversion_operators(x):
    version = Version(2, 3)
    return (
        bool(Version(0, 0)), 3 in version, list(version), [10, 20, 30][version], int(version), float(version), f"{version:-}",
        repr(version), str(version), x[version], range(5)[version], "yes" if version else "no",
    )  # fmt: skip


@program(vector)
def objects_as_keys(x):
    table = {Version(1, 2): x, Version(2, 0): x + 1}
    table[Version(1, 2)] = x * 5
    return table[Version(1, 2)], len(table), Version(2, 0) in table, {Version(1, 1), Version(1, 1)} == {Version(1, 1)}


class Countdown:
    def __init__(self, start):
        self.left = start

    def __iter__(self):
        return self

    def __next__(self):
        if self.left == 0:
            raise StopIteration
        self.left -= 1
        return self.left


class Squares:
    """The old protocol: items by number."""

    def __getitem__(self, index):
        if index >= 4:
            raise IndexError(index)
        return index * index


@program(vector)
def iteration_protocols(x):
    return (
        [x * i for i in Countdown(3)],
        list(Squares()),
        9 in Squares(),
        sum(Countdown(5)),
        [*zip(Countdown(2), Squares())],
    )


@program(vector, lambda: Countdown(5))
def iterator_object_as_argument(x, countdown):
    return x * next(countdown), next(countdown)


@program(vector)
def callable_objects(x):
    class Scale:
        def __init__(self, by):
            self.by = by

        def __call__(self, x, *, plus=0):
            return x * self.by + plus

    return (
        Scale(2)(x),
        Scale(3)(x, plus=1),
        list(map(Scale(4), [1, 2])),
        functools.reduce(lambda f, g: g, [Scale(1), Scale(5)])(x),
    )


@program(vector)
def private_names_are_mangled(x):
    class Secret:
        __hidden = 3

        def __init__(self):
            self.__value = 4

        def get(self):
            return self.__value * self.__hidden

    secret = Secret()
    return x * secret.get(), sorted(vars(secret)), hasattr(secret, "__value")


@program(vector)
def bound_methods_compare(x):
    a, b = Base(), Base()
    return a.run == a.run, a.run is a.run, a.run == b.run, a.run.__self__ is a, a.run.__func__ is Base.run, a.run(x)


@program(vector)
def linked_objects(x):
    class Node:
        def __init__(self, value, next=None):
            self.value, self.next = value, next

        def __iter__(self):
            node = self
            while node is not None:
                yield node.value
                node = node.next

    chain = Node(x, Node(x + 1, Node(x + 2)))
    chain.next.next.next = None
    return sum(chain), chain


@program(vector, lambda: Base(a=1))
def object_argument_grows(x, base):
    base.options["b"] = x
    base.order += ["again"]
    base.total = getattr(base, "total", 0) + 1
    base.run = lambda y: y * 100
    return base.run(x)

"""`record` against the standard library's dataclasses, before and after a class gets methods of its own."""

from __future__ import annotations

import copy
import pickle
from dataclasses import FrozenInstanceError, dataclass, field, fields, is_dataclass, replace

import pytest

from lampwork.ir.record import OFTEN, record


@record
class Point:
    x: int
    y: int = 2
    values: list[str] = field(default_factory=list, compare=False)
    note: str = field(default="", repr=False)


@record
class Named(Point):
    name: str = ""

    def __repr__(self) -> str:
        return self.name


@record(frozen=False)
class Open:
    x: int

    def __post_init__(self) -> None:
        self.doubled = 2 * self.x


@record(eq=False)
class Alone:
    x: int


@pytest.fixture(params=["shared methods", "methods of its own"])
def often(request: pytest.FixtureRequest) -> bool:
    if request.param == "methods of its own":
        for _ in range(OFTEN):
            Point(1), Named(1), Open(1), Alone(1)
        assert all(cls.__init__.__code__.co_filename == "<string>" for cls in (Point, Named, Open, Alone))
    return True


def test_behaves_as_a_frozen_dataclass(often: bool) -> None:
    point = Point(1)
    assert (point.x, point.y, point.values, point.note) == (1, 2, [], "")
    assert point.values is not Point(1).values
    assert point == Point(x=1, y=2, values=["not compared"]) != Point(1, 3)
    assert hash(point) == hash(Point(1)) and hash(point) != hash(Named(1))
    assert repr(point) == "Point(x=1, y=2, values=[])"
    assert replace(point, y=5) == Point(1, 5)
    assert [each.name for each in fields(Point)] == ["x", "y", "values", "note"] and is_dataclass(point)
    assert copy.deepcopy(point) == point == pickle.loads(pickle.dumps(point))
    match point:
        case Point(x, y):
            assert (x, y) == (1, 2)
    with pytest.raises(FrozenInstanceError):
        point.x = 2  # type: ignore[misc]
    with pytest.raises(FrozenInstanceError):
        del point.x  # type: ignore[misc]
    for wrong in ({}, {"x": 1, "z": 2}):
        with pytest.raises(TypeError):
            Point(**wrong)
    with pytest.raises(TypeError):
        Point(1, x=2)  # type: ignore[misc]
    with pytest.raises(TypeError):
        Point(1, 2, [], "", 5)  # type: ignore[call-arg]


def test_hash_of_an_instance_stays_when_its_class_gets_methods() -> None:
    @record
    class Fresh:
        x: int
        y: str

    first = Fresh(1, "a")
    known = {first: 1}
    for _ in range(OFTEN):
        Fresh(1, "a")
    assert known[Fresh(1, "a")] == 1 and first == Fresh(1, "a")


def test_bases(often: bool) -> None:
    named = Named(1, name="n")
    assert (named.y, repr(named)) == (2, "n")
    assert named != Point(1) and [each.name for each in fields(Named)][-1] == "name"


def test_open(often: bool) -> None:
    instance = Open(2)
    assert instance.doubled == 4
    instance.x = 3
    assert instance == Open(3)
    with pytest.raises(TypeError):
        hash(instance)


def test_compared_by_identity(often: bool) -> None:
    instance = Alone(1)
    assert instance != Alone(1) and len({instance, Alone(1)}) == 2


def test_wrong_declarations() -> None:
    with pytest.raises(ValueError, match="default_factory"):

        @record
        class Shared:
            names: list[str] = []

    with pytest.raises(TypeError, match="without a default"):

        @record
        class Late:
            x: int = 1
            y: int

    with pytest.raises(TypeError):

        @dataclass
        class Thawed(Point):
            z: int = 0

"""What calls of a package return in place of objects of the model's libraries, which are not there."""

from __future__ import annotations

from typing import Any


class Output(dict):
    """A dict whose items are attributes, too: in place of a dict-like object, such as an output of a model of
    `transformers`. What else that object had is an attribute.

        out["logits"] is out.logits is out[0]

    As there, a number gives the value at that place.
    """

    def __getattr__(self, name: str) -> Any:
        try:
            return dict.__getitem__(self, name)
        except KeyError:
            raise AttributeError(f"this output has no {name!r}; it has {', '.join(map(str, self))}") from None

    def __getitem__(self, key: Any) -> Any:
        if type(key) is int and key not in self or type(key) is slice:
            return self.to_tuple()[key]
        return dict.__getitem__(self, key)

    def to_tuple(self) -> tuple:
        """The values, in order."""
        return tuple(dict.values(self))


class Attributes:
    """An object with attributes: in place of any other object, such as a cache of keys and values."""

    def __repr__(self) -> str:
        return f"Attributes({', '.join(vars(self))})"

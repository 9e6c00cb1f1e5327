"""What a field of a stored record may hold, where its Python type does not say it.

    index: int                        an int
    base: Source                      any source
    key: Key                          plain data, or a source
    wrapper: Annotated[str, OneOf("", "staticmethod")]
                                      one of these texts

`runtime/cache/schema.py` makes the check of each field from the text of its annotation, and says which values each
name below stands for. Type checkers see the Python type alone.
"""

from __future__ import annotations

from typing import Any, TypeAlias


class OneOf:
    """One of these texts."""

    def __init__(self, *texts: str) -> None:
        self.texts = texts


#: Plain data: what `ir.guard.Equals` compares.
Data: TypeAlias = Any
#: Plain data, or a `Source`.
Key: TypeAlias = Any
#: A name that becomes part of generated Python text.
Identifier: TypeAlias = str
#: The name of an operation of `ir/number_operations.py`.
Operation: TypeAlias = str
#: Dropped when the record is stored.
Dropped: TypeAlias = Any

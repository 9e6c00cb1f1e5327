"""`TextLines`: the body of a function as it is written, equal texts once."""

from __future__ import annotations


class TextLines:
    """Lines of a function's body. Implements `expressions.Lines`."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.indent = "    "
        #: Names by the text they stand for, one table for each enclosing loop.
        self.known: list[dict[str, str]] = [{}]
        self.names = 0

    def _line(self, text: str) -> None:
        self.lines.append(self.indent + text)

    def name(self, text: str) -> str:
        """A name for `text`, which has no effects: the same one wherever it is visible already."""
        if text.isidentifier():
            return text
        for table in reversed(self.known):
            found = table.get(text)
            if found is not None:
                return found
        name = self._fresh()
        self._line(f"{name} = {text}")
        self.known[-1][text] = name
        return name

    def block(self, lines: tuple[str, ...], result: str) -> str:
        names: list[str] = []
        while any(f"{{{len(names)}}}" in line for line in lines):
            names.append(self._fresh())
        for line in lines:
            self._line(line.format(*names))
        return result.format(*names)

    def _fresh(self) -> str:
        self.names += 1
        return f"t{self.names - 1}"

"""A fault to seed: one text of one file, and what stands there instead."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
#: Code generation has three parts with tests of their own each: two back ends, and the host function.
CODE_GENERATION = {"codegen/llvm/": "llvm", "codegen/triton/": "triton", "codegen/": "host"}


@dataclass(frozen=True)
class Fault:
    """`before` occurs once in `file` (below `lampwork/`); `after` compiles, and makes the compiler wrong.

    `what` says which mistake it is.
    """

    name: str
    file: str
    before: str
    after: str
    what: str

    @property
    def path(self) -> Path:
        return ROOT / "lampwork" / self.file

    @property
    def module(self) -> str:
        return "lampwork." + self.file.removesuffix(".py").replace("/", ".").removesuffix(".__init__")

    @property
    def stage(self) -> str:
        parts = (name for folder, name in CODE_GENERATION.items() if self.file.startswith(folder))
        return next(parts, self.file.split("/")[0])

    def source(self) -> str:
        """The text of the file with the fault in it. Raises ValueError where `before` does not occur exactly once."""
        text = self.path.read_text()
        found = text.count(self.before)
        if found != 1:
            raise ValueError(
                f"{self.name}: its text occurs {found} times in {self.file}; bring the catalogue up to date"
            )
        return text.replace(self.before, self.after)

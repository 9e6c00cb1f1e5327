"""The answer of `lampwork.verify`: what was compared, what is wrong, and who is to blame."""

from __future__ import annotations

import io
from html import escape
from typing import Any

from lampwork.debug.markup import document, heading, table
from lampwork.ir.record import record
from lampwork.verification.blame import Blame
from lampwork.verification.judge import Difference
from lampwork.verification.losses import Losses

#: Wrong values that are told of one by one.
SHOWN = 8


@record
class Wrong:
    """A value of call (or step) `call` that is wrong."""

    call: int
    difference: Difference


@record
class Compared:
    """What was compared: values and elements by kind ("results", "gradients", "buffers", "parameters", ...)."""

    kind: str
    values: int
    elements: int
    wrong: int


@record
class Verification:
    """`right`: nothing is wrong, and the loss curve, if there is one, is inside eager's noise. It is what the object is
    as a bool. `notes`: what was not compared, and what ran eagerly."""

    name: str
    compared: tuple[Compared, ...]
    wrong: tuple[Wrong, ...] = ()
    losses: Losses | None = None
    blame: Blame | None = None
    notes: tuple[str, ...] = ()
    graphs: int = 0
    calls: int = 1
    seconds: float = 0.0

    @property
    def right(self) -> bool:
        return not self.wrong and (self.losses is None or self.losses.inside)

    def __bool__(self) -> bool:
        return self.right

    def sentence(self) -> str:
        """The answer in one sentence."""
        elements = sum(each.elements for each in self.compared)
        values = sum(each.values for each in self.compared)
        if self.right:
            return f"{self.name}: right. {values} values, {elements:,} elements are as near to float64 as eager's."
        if not self.wrong:
            return f"{self.name}: the loss curve is wrong; all values that were compared are right."
        first = self.wrong[0]
        when = f" of call {first.call}" if self.calls > 1 else ""
        more = f" {len(self.wrong)} of {values} values are wrong." if len(self.wrong) > 1 else ""
        return f"{self.name}: wrong. First{when}, {first.difference}.{more}"

    def __str__(self) -> str:
        from rich.console import Console

        output = io.StringIO()
        console = Console(file=output, width=110)
        self.print(console)
        return output.getvalue().rstrip()

    def print(self, console: Any) -> None:
        """The answer, a table of what was compared, and the blame, on a console of rich's."""
        from rich.table import Table
        from rich.text import Text

        console.print(Text(self.sentence(), style="green" if self.right else "bold red"))
        if self.blame is not None:
            console.print(Text("To blame: ", style="bold") + Text(str(self.blame)))
            for name, value in self._of_blame():
                console.print(Text(f"  {name}: {value}"))
        if self.losses is not None:
            console.print(Text(self.losses.sentence(), style="" if self.losses.inside else "red"))
        shown = Table("compared", "values", "elements", "wrong values")
        for each in self.compared:
            shown.add_row(each.kind, str(each.values), f"{each.elements:,}", str(each.wrong))
        console.print(shown)
        for wrong in self.wrong[1:SHOWN]:
            console.print(Text(f"  call {wrong.call}: {wrong.difference}"))
        if len(self.wrong) > SHOWN:
            console.print(Text(f"  and {len(self.wrong) - SHOWN} more"))
        for note in self.notes:
            console.print(Text(note))

    def _of_blame(self) -> list[tuple[str, str]]:
        blame = self.blame
        if blame is None:
            return []
        origin = blame.origin
        rows = [
            ("operator", f"{origin.op} ({origin.node})" if origin is not None and origin.op else ""),
            ("source line", blame.where),
            ("module", origin.location.module if origin is not None else ""),
            ("kernel", blame.kernel),
            ("function", blame.function),
            ("numbers", blame.what),
            ("bisected", ", ".join(f"{name} {'right' if right else 'wrong'}" for name, right in blame.bisected)),
        ]
        return [(name, value) for name, value in rows if value]

    def to_dict(self) -> dict[str, object]:
        """All of it, as JSON can hold it."""
        return {
            "name": self.name, "right": self.right, "sentence": self.sentence(), "graphs": self.graphs,
            "calls": self.calls, "seconds": self.seconds, "notes": list(self.notes),
            "compared": [
                {"kind": each.kind, "values": each.values, "elements": each.elements, "wrong": each.wrong}
                for each in self.compared
            ],
            "wrong": [
                {
                    "call": each.call, "name": each.difference.name, "what": each.difference.what,
                    "wrong": each.difference.wrong, "elements": each.difference.elements,
                }
                for each in self.wrong
            ],
            "losses": None if self.losses is None else self.losses.to_dict(),
            "blame": None if self.blame is None else self.blame.to_dict(),
        }  # fmt: skip

    def html(self) -> str:
        """A page that needs nothing beside it."""
        body = [f"<h1>{escape(self.name)}</h1>", f'<p class="answer">{escape(self.sentence())}</p>']
        if self.blame is not None:
            rows = [(name, escape(value)) for name, value in self._of_blame()]
            body += [heading("To blame"), f"<p>{escape(str(self.blame))}</p>", table(("", ""), rows)]
        if self.losses is not None:
            body += [heading("Losses"), f"<p>{escape(self.losses.sentence())}</p>", _loss_table(self.losses)]
        compared = [(each.kind, each.values, f"{each.elements:,}", each.wrong) for each in self.compared]
        body += [heading("Compared"), table(("", "values", "elements", "wrong"), compared, (1, 2, 3))]
        if self.wrong:
            told = [(str(each.call), escape(each.difference.name), escape(each.difference.what)) for each in self.wrong]
            body += [heading("Wrong", len(told)), table(("call", "value", "what"), told)]
        return document(f"{self.name}: verify", [*body, *(f"<p>{escape(note)}</p>" for note in self.notes)])


def _loss_table(losses: Losses) -> str:
    outside = set(losses.outside)
    rows = [
        (
            step,
            *(f"{curve[step]:.9g}" if step < len(curve) else "" for curve in (losses.ours, losses.eager, losses.wide)),
            f"{noise:.3g}",
            "outside" if step in outside else "inside",
        )
        for step, noise in enumerate(losses.noise)
    ]
    return table(("step", "lampwork", "eager", "float64", "eager's noise", ""), rows, (0, 1, 2, 3, 4))

"""The record of a run: what each part found, kept in a file, so that a run which was cut off goes on with it."""

from __future__ import annotations

import hashlib
import json
import time
from pathlib import Path
from typing import Any

#: What a part found: numbers, texts, lists and such dictionaries, as JSON has them.
Found = dict[str, Any]

ROOT = Path(__file__).resolve().parents[2]


class Record:
    """Results of parts, in a file of one line of JSON each (or in memory alone), by (case, part, column).

    What the file holds of another plan, or of another source of lampwork unless `any_source`, is measured again.
    """

    def __init__(
        self, path: str | None = None, plan: str = "", source: str = "", resume: bool = False, any_source: bool = False
    ) -> None:
        self.path = Path(path) if path else None
        self.plan, self.source = plan, source
        self.found: dict[tuple[str, str, str], Found] = {}
        if self.path is not None and not resume:
            self.path.write_text("")
        for line in self.path.read_text().splitlines() if self.path is not None and self.path.exists() else ():
            try:
                part = json.loads(line)
            except ValueError:
                continue  # cut off while it was written
            if part.get("plan") == plan and (any_source or part.get("source") == source):
                self.found[(part["case"], part["part"], part["column"])] = part

    def add(self, case: str, part: str, column: str, found: Found, seconds: float) -> None:
        when = time.strftime("%Y-%m-%dT%H:%M:%S%z")
        line: Found = {"case": case, "part": part, "column": column, "when": when}
        line |= {"plan": self.plan, "source": self.source, "seconds": round(seconds, 2), "found": found}
        self.found[(case, part, column)] = line
        if self.path is not None:
            with open(self.path, "a") as file:
                file.write(json.dumps(line) + "\n")

    def get(self, case: str, part: str, column: str = "") -> Found:
        """What was found, or {} if it was not measured."""
        return self.found.get((case, part, column), {}).get("found", {})


def source_digest() -> str:
    """Changes with lampwork's source."""
    digest = hashlib.sha256()
    for path in sorted((ROOT / "lampwork").rglob("*.py")):
        digest.update(path.relative_to(ROOT).as_posix().encode() + path.read_bytes())
    return digest.hexdigest()[:12]

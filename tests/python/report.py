"""How much of the programs was captured without a break, as a table by feature."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable


def is_counted(feature: str) -> bool:
    """Whether the programs of a feature count as captured or not."""
    return not feature.startswith("changing_")


def share_table(outcomes: Iterable[tuple[str, bool]]) -> list[str]:
    """Lines of text from (feature, broken) of each program. Those of `changing_*`, whose calls differ, break on purpose
    and are not counted."""
    total: Counter[str] = Counter()
    whole: Counter[str] = Counter()
    for feature, broken in outcomes:
        if not is_counted(feature):
            continue
        total[feature] += 1
        whole[feature] += not broken
    width = max(map(len, total), default=5)
    lines = [f"{feature:{width}}  {whole[feature]:3} of {total[feature]:3}" for feature in sorted(total)]
    count = total.total()
    if not count:
        return []
    lines.append(f"captured without a break: {whole.total()} of {count} programs ({whole.total() / count:.1%})")
    return lines

"""The end of a run over programs says what share of them was captured in one graph."""

from __future__ import annotations

from tests.python.report import share_table


def pytest_terminal_summary(terminalreporter):
    outcomes = []
    for kind in ("passed", "failed"):
        for report in terminalreporter.stats.get(kind, ()):
            outcomes += [value for key, value in getattr(report, "user_properties", ()) if key == "program"]
    if outcomes:
        terminalreporter.write_line("")
        for line in share_table([(feature, bool(reasons)) for feature, _, reasons in outcomes]):
            terminalreporter.write_line(line)

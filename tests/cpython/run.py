"""Runs CPython's own test modules through the machine: every test method's body is interpreted.

    python tests/cpython/run.py                     the quick modules, on every CPython found
    python tests/cpython/run.py --all               all modules
    python tests/cpython/run.py test_with test_iter these modules
    python tests/cpython/run.py --python PATH       this interpreter (may be repeated)
    python tests/cpython/run.py --update            rewrite the list of known failures

Each module runs twice in processes of its own, natively and interpreted.  A test that passes natively must pass
in the machine, unless `expected.json` names it with a reason; a named test that passes is an error too, so
that the list can only shrink.  A test whose reason begins with "slow" is not run in the machine.  Needs nothing but the standard library with its `test` package.
"""

from __future__ import annotations

import argparse
import glob
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
EXPECTED = os.path.join(HERE, "expected.json")

QUICK = """
    test_augassign test_bool test_class test_compare test_contains test_contextlib test_dictcomps test_exception_group
    test_extcall test_except_star test_generator_stop test_genexps test_global test_iter test_keywordonlyarg
    test_listcomps test_opcodes test_patma test_positional_only_arg test_property test_raise test_scope test_setcomps
    test_slice test_super test_unary test_unpack test_unpack_ex test_with test_yield_from test_named_expressions
    test_fstring test_decorators test_dynamic test_baseexception test_richcmp test_metaclass
    test_string_literals test_subclassinit test_type_params test_type_aliases test_tstring test_annotationlib
""".split()  # fmt: skip
# Left out: modules that test arithmetic or C code at length (test_long, test_math, test_decimal, test_re, ...).
ALL = QUICK + """
    test_abc test_binop test_builtin test_call test_collections test_complex test_copy test_coroutines test_dataclasses
    test_defaultdict test_deque test_descr test_dict test_enum test_enumerate test_exceptions test_float
    test_format test_frozen test_funcattrs test_functools test_generators test_genericalias test_grammar test_hash
    test_heapq test_int test_isinstance test_itertools test_list test_operator test_ordered_dict
    test_pow test_range test_reprlib test_set test_sort test_string test_syntax test_tuple
    test_types test_typing test_userdict test_userlist test_userstring test_weakref test_textwrap test_json test_copyreg
    test_getopt test_graphlib test_bisect
    test_dictviews test_print test_finalization test_module test_shlex test_traceback
""".split()  # fmt: skip

PER_TEST_SECONDS = 60


# ---------------------------------------------------------------------------------------------------------
# In the child process


def child(module: str, mode: str, report: str, skip: list[str]) -> None:
    """Runs one test module and appends a JSON line per event to `report`."""
    import importlib
    import signal
    import unittest

    sys.path.insert(0, ROOT)
    log = open(report, "a", buffering=1)

    def write(**event: object) -> None:
        log.write(json.dumps(event) + "\n")

    class Result(unittest.TestResult):
        def startTest(self, test: unittest.TestCase) -> None:
            super().startTest(test)
            self.outcome, self.detail = "passed", ""
            write(event="start", test=test.id())
            signal.setitimer(signal.ITIMER_REAL, PER_TEST_SECONDS)

        def stopTest(self, test: unittest.TestCase) -> None:
            signal.setitimer(signal.ITIMER_REAL, 0)
            super().stopTest(test)
            write(event="stop", test=test.id(), outcome=self.outcome, detail=self.detail)

        def record(self, outcome: str, error: object) -> None:
            self.outcome = outcome
            if error is not None and not self.detail:
                kind, value, trace = error  # type: ignore[misc]
                try:
                    import traceback

                    where = traceback.extract_tb(trace)
                    places = [f"{os.path.basename(entry.filename)}:{entry.lineno}" for entry in where[-4:]]
                    self.detail = f"{kind.__name__}: {str(value)[:300]} at {' '.join(places)}"
                except Exception as failure:
                    self.detail = f"{kind.__name__} (not shown: {type(failure).__name__})"

        def addError(self, test, err):  # type: ignore[no-untyped-def]
            self.record("failed", err)

        def addFailure(self, test, err):  # type: ignore[no-untyped-def]
            self.record("failed", err)

        def addSkip(self, test, reason):  # type: ignore[no-untyped-def]
            self.outcome, self.detail = "skipped", reason

        def addSubTest(self, test, subtest, err):  # type: ignore[no-untyped-def]
            if err is not None:
                self.record("failed", err)

        def addUnexpectedSuccess(self, test):  # type: ignore[no-untyped-def]
            self.record("failed", None)

    class TookTooLong(BaseException):
        pass

    def alarm(number: int, frame: object) -> None:
        raise TookTooLong(f"more than {PER_TEST_SECONDS} s")

    signal.signal(signal.SIGALRM, alarm)
    try:
        loaded = importlib.import_module("test." + module)
    except unittest.SkipTest as reason:
        write(event="module", outcome="skipped", detail=str(reason))
        return
    except ImportError as reason:
        write(event="module", outcome="absent", detail=str(reason))
        return
    suite = unittest.defaultTestLoader.loadTestsFromModule(loaded)

    def flatten(tests: object) -> list[unittest.TestCase]:
        if isinstance(tests, unittest.TestCase):
            return [tests]
        return [case for each in tests for case in flatten(each)]  # type: ignore[attr-defined]

    cases = flatten(suite)
    if mode == "machine":
        from lampwork.capture.machine import Interruption, Machine, World

        def run_method(self: unittest.TestCase, method: object) -> None:
            machine = Machine(World())
            # Not even its `finally` may run if a test of the recursion limit leaves the machine too little.
            limit = sys.getrecursionlimit()
            try:
                machine.call(method)
            except Interruption as interruption:
                raise AssertionError(f"Unsupported: {interruption}") from None
            finally:
                sys.setrecursionlimit(limit)

        unittest.TestCase._callTestMethod = run_method  # type: ignore[attr-defined]
    result = Result()
    kept = unittest.TestSuite(case for case in cases if case.id() not in set(skip))
    stdout, sys.stdout = sys.stdout, open(os.devnull, "w")
    kept.run(result)
    sys.stdout = stdout
    write(event="module", outcome="done")
    log.flush()
    os._exit(0)  # threads and subprocesses of a test must not hold us up


# ---------------------------------------------------------------------------------------------------------
# In the parent


def run_module(
    python: str, module: str, mode: str, seconds: int, skip: list[str]
) -> tuple[dict[str, tuple[str, str]], str]:
    """({test id: (outcome, detail)}, why the module did not run).  A test that kills its process has "crashed"."""
    results: dict[str, tuple[str, str]] = {}
    with tempfile.TemporaryDirectory() as folder:
        report = os.path.join(folder, "report")
        for _attempt in range(6):
            open(report, "a").close()
            command = [
                python, "-X", "faulthandler", os.path.abspath(__file__), "--child", module, mode, report,
                json.dumps(sorted([*results, *skip])),
            ]  # fmt: skip
            environment = {**os.environ, "PYTHONPATH": ROOT, "PYTHONHASHSEED": "0"}
            try:
                done = subprocess.run(
                    command, cwd=folder, timeout=seconds, capture_output=True, env=environment, stdin=subprocess.DEVNULL
                )
                ended = f"exit status {done.returncode}: {done.stderr.decode(errors='replace')[-300:]}"
            except subprocess.TimeoutExpired:
                ended = f"more than {seconds} s"
            running, finished = None, False
            with open(report) as lines:
                for line in lines:
                    event = json.loads(line)
                    if event["event"] == "start":
                        running = event["test"]
                    elif event["event"] == "stop":
                        running = None
                        results[event["test"]] = (event["outcome"], event["detail"])
                    elif event["outcome"] == "done":
                        finished = True
                    else:
                        return {}, event["detail"]
            os.remove(report)
            if finished:
                return results, ""
            if running is None:
                return results, ended
            results[running] = ("crashed", ended)
    return results, "too many crashes"


def find_pythons() -> list[str]:
    """One CPython of each supported version: on the path, or among pyenv's."""
    found = []
    for version in ("3.11", "3.12", "3.13", "3.14"):
        if sys.version.startswith(version + "."):
            found.append(sys.executable)
            continue
        root = os.environ.get("PYENV_ROOT", os.path.expanduser("~/.pyenv"))
        choices = sorted(glob.glob(os.path.join(root, "versions", version + ".*", "bin", "python")))
        path = choices[-1] if choices else shutil.which(f"python{version}")
        if path:
            found.append(path)
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("modules", nargs="*")
    parser.add_argument("--all", action="store_true", help="all modules instead of the quick ones")
    parser.add_argument("--python", action="append", help="an interpreter; default: 3.11 to 3.14 where found")
    parser.add_argument("--update", action="store_true", help="rewrite expected.json with what failed")
    parser.add_argument("--verbose", action="store_true", help="show why known failures fail")
    parser.add_argument("--timeout", type=int, default=180, help="seconds for one module in one mode")
    options = parser.parse_args()
    modules = options.modules or (list(dict.fromkeys(ALL)) if options.all else QUICK)
    with open(EXPECTED) as file:
        expected: dict[str, dict[str, str]] = json.load(file)
    bad = 0
    for python in options.python or find_pythons():
        version = subprocess.run(
            [python, "-c", "import sys; print('%d.%d' % sys.version_info[:2])"], capture_output=True, text=True
        ).stdout.strip()
        known = expected.setdefault(version, {})
        totals = [0, 0, 0]
        started = time.perf_counter()
        for module in modules:
            native, reason = run_module(python, module, "native", options.timeout, [])
            if not native:
                print(f"{version} {module:28s} not run: {reason or 'no tests'}")
                continue
            slow = [test for test, why in known.items() if why.startswith("slow")]
            machine, reason = run_module(python, module, "machine", options.timeout, slow)
            passing = {test for test, (outcome, _) in native.items() if outcome == "passed"}
            skipped = sum(outcome == "skipped" for outcome, _ in native.values())
            failing = {test for test in passing if machine.get(test, ("missing", ""))[0] != "passed"}
            totals[0] += len(native)
            totals[1] += len(passing)
            totals[2] += len(passing) - len(failing)
            mine = {test for test in known if test.startswith(f"test.{module}.") or test.split(".")[0] == module}
            new, gone = sorted(failing - set(known)), sorted(mine & (passing - failing))
            print(
                f"{version} {module:28s} tests {len(native):4d}  native {len(passing):4d}  "
                f"machine {len(passing) - len(failing):4d}  skipped {skipped:3d}" + (f"  ({reason})" if reason else "")
            )
            for test in new + (sorted(failing & set(known)) if options.verbose else []):
                print(f"    {'FAILS' if test in new else 'known'} {test}: {machine.get(test, ('missing', ''))[1]}")
            for test in gone:
                print(f"    PASSES NOW {test}: remove it from {os.path.basename(EXPECTED)}")
            bad += len(new) + len(gone)
            if options.update:
                for test in gone:
                    del known[test]
                for test in new:
                    known[test] = machine.get(test, ("missing", ""))[1]
        share = 100 * totals[2] / totals[1] if totals[1] else 0.0
        seconds = time.perf_counter() - started
        print(
            f"{version} total: {totals[0]} tests, {totals[1]} pass natively, {totals[2]} of them in the machine "
            f"({share:.2f}%), {seconds:.0f} s"
        )
    if options.update:
        with open(EXPECTED, "w") as file:
            json.dump(expected, file, indent=1, sort_keys=True)
            file.write("\n")
        return 0
    return 1 if bad else 0


if __name__ == "__main__":
    if len(sys.argv) > 1 and sys.argv[1] == "--child":
        child(sys.argv[2], sys.argv[3], sys.argv[4], json.loads(sys.argv[5]))
    else:
        sys.exit(main())

"""Settings of every test: failures inside the compiler raise, the IR is checked after each stage, no shared cache,
planned memory is NaN where nothing is in it, random numbers are the same in each run."""

from __future__ import annotations

import gc
import os
import sys
import tempfile
import types

import pytest

# Read once when lampwork is imported, so they are set before any test module is.
os.environ.setdefault("LAMPWORK_STRICT", "1")
os.environ.setdefault("LAMPWORK_VERIFY", "1")
os.environ.setdefault("LAMPWORK_POISON", "1")
os.environ.setdefault("LAMPWORK_COMPILE_WORKERS", "2")  # beside several processes of pytest
os.environ.setdefault("GOMP_SPINCOUNT", "0")  # threads that wait take nothing from the other processes: 3/4 of the time
_cache = tempfile.TemporaryDirectory(prefix="lampwork-test-cache-")
os.environ["LAMPWORK_CACHE_DIR"] = _cache.name
os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
_settings = {name: value for name, value in os.environ.items() if name.startswith("LAMPWORK_")}


def pytest_addoption(parser):
    parser.addoption("--update-golden", action="store_true", help="rewrite the expected texts of golden tests")
    parser.addoption(
        "--as-if-large", type=int, metavar="SEED", help="compile all as large programs are (tests/fuzz/thresholds.py)"
    )


def pytest_collectstart(collector):
    """What a module draws when it is imported is the same whatever was imported before."""
    if isinstance(collector, pytest.Module):
        _seed()


@pytest.fixture(autouse=True)
def _same_numbers_in_each_run():
    """Tests draw the same numbers whatever ran before in their process: one that rounding decides fails always or never.
    Fuzzers draw others from run to run."""
    _seed()


def _seed():
    if "torch" in sys.modules:
        sys.modules["torch"].manual_seed(0)


def pytest_collection_finish(session):
    """A module that changes settings when it is imported changes them for every test of the process."""
    found = {name: value for name, value in os.environ.items() if name.startswith("LAMPWORK_")}
    changed = sorted(name for name in {*found, *_settings} if found.get(name) != _settings.get(name))
    if changed:
        raise pytest.UsageError(f"a test module sets {', '.join(changed)} when it is imported: set it in a fixture")
    _without_what_nobody_reads()


def _without_what_nobody_reads():
    """PyTorch notes where seeds are set, and who asks for samples, by walks through the stack: a fifth of all time here.
    Nobody reads these notes."""
    for name in ("torch.cuda", "torch.xpu", "torch.mtia"):
        if name in sys.modules:
            sys.modules[name].traceback = types.SimpleNamespace(format_stack=list)
    for name in ("torch.testing._internal.common_utils", "torch.testing._internal.opinfo.core"):
        if name in sys.modules:
            sys.modules[name].extract_test_fn = lambda: None
    _freeze()


def _freeze():
    """Hides what is alive from the collector. Tests ask for many collections of garbage, which then go through what was
    made since, and not through a million objects."""
    gc.collect()
    gc.freeze()


#: What so many tests leave behind (caches, modules) is frozen, too.
_TESTS_BETWEEN_FREEZES = 200
_not_frozen = 0


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item, nextitem):
    """Freezes between files: what one test of a file makes another may drop, and look whether it is gone."""
    global _not_frozen
    result = yield
    _not_frozen += 1
    if _not_frozen >= _TESTS_BETWEEN_FREEZES and nextitem is not None and nextitem.path != item.path:
        _not_frozen = 0
        _freeze()
    return result


@pytest.fixture(autouse=True, scope="session")
def _as_if_large(request):
    """Answers of tests are right whatever the thresholds are. Numbers of kernels and of bytes are others."""
    seed = request.config.getoption("--as-if-large")
    if seed is None:
        yield
        return
    from tests.fuzz.thresholds import as_if_large

    with as_if_large(seed):
        yield


@pytest.fixture(autouse=True)
def _nothing_of_equal_modules():
    """Each test has its captures to itself: modules of earlier ones, which may be alive still, share nothing with it."""
    siblings = sys.modules.get("lampwork.runtime.siblings")
    if siblings is not None:
        siblings.forget_all()


@pytest.fixture(autouse=True, scope="module")
def _settings_of_the_compiler_stay():
    """Sizes from which the compiler does something, which a test may lower, are as before for the tests of others."""
    before = _numbers_of_the_compiler()
    yield
    now = _numbers_of_the_compiler()
    changed = sorted(name for name, value in before.items() if now.get(name) != value)
    assert not changed, f"a test of this file changes {', '.join(changed)}: it must set them back"


#: By module of the compiler: the names of its numbers, which are looked for once.
_names_of_numbers: dict[types.ModuleType, tuple[str, ...]] = {}


def _numbers_of_the_compiler():
    for module in [each for path, each in sys.modules.items() if path.startswith("lampwork.")]:
        if module not in _names_of_numbers:
            values = vars(module).items()
            _names_of_numbers[module] = tuple(
                name for name, value in values if type(value) in (int, float) and name.isupper()
            )
    return {
        f"{module.__name__}.{name}": vars(module).get(name)
        for module, names in _names_of_numbers.items()
        for name in names
    }


@pytest.fixture
def unfrozen():
    """Nothing is hidden from the collector meanwhile."""
    was = gc.get_freeze_count()
    gc.unfreeze()
    yield
    gc.unfreeze()
    if was:
        gc.collect()
        gc.freeze()

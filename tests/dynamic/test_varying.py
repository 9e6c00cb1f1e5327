"""dynamic=None: what differs between calls becomes symbolic in the next compile, and nothing else."""

from __future__ import annotations

import os
import textwrap

import pytest
import torch

import lampwork
from tests.dynamic.support import check, relations
from tests.processes import run_python


def calls(compiled, program, *samples):
    for args in samples:
        torch.testing.assert_close(compiled(*args), program(*args))
    return lampwork.stats(compiled)["captures"]


def compiled(function, **options):
    return lampwork.compile(function, options={"cache": False}, **options)


def test_one_dimension_varies():
    def program(x, w):
        return torch.relu(x @ w) + 1

    w = torch.randn(8, 5)
    f = compiled(program)
    assert calls(f, program, *[(torch.randn(n, 8), w) for n in (4, 7, 9, 100, 1, 4)]) == 2
    assert ["1 <= s0"] in relations(f)


def test_integers_that_vary_become_symbolic():
    def program(x, n):
        return x[:, :n] * n

    f = compiled(program)
    x = torch.randn(6, 40)
    assert calls(f, program, *[(x, n) for n in (3, 5, 9, 21, 39)]) == 2
    assert calls(f, program, (x, 41)) == 3  # past the end of x: another program


def test_integers_in_a_tuple():
    def program(x, size):
        return x.reshape(size) + 1

    f = compiled(program)
    samples = [(torch.randn(24), (4, 6)), (torch.randn(35), (5, 7)), (torch.randn(18), (2, 9))]
    assert calls(f, program, *samples) == 2


def test_false_never_makes_a_symbol():
    def program(x):
        return x + 1

    f = compiled(program, dynamic=False)
    assert calls(f, program, *[(torch.randn(n),) for n in (3, 4, 5)]) == 3
    assert relations(f) == [[], [], []]


def test_another_type_is_not_a_size():
    def program(x):
        return x + 1

    f = compiled(program)
    calls(f, program, (torch.randn(3),), (torch.randn(3, dtype=torch.float64),))
    assert relations(f) == [[], []]


def test_a_size_that_violates_a_guard_is_compiled_again():
    def program(x):
        return x * 2 if x.shape[0] > 10 else x - 1

    f = compiled(program, dynamic=True)
    assert calls(f, program, *[(torch.randn(n),) for n in (4, 10, 2, 1)]) == 1
    assert calls(f, program, *[(torch.randn(n),) for n in (11, 300)]) == 2
    assert sorted(relations(f)) == [["1 <= s0 <= 10"], ["11 <= s0"]]


def test_related_sizes_are_guarded():
    def program(x, y):
        return torch.cat([x, y]) + torch.arange(x.shape[0] + y.shape[0])

    check(program, [(torch.randn(a), torch.randn(b)) for a, b in ((3, 5), (4, 4), (9, 2))])

    def added(x, y):
        return x + y

    f = compiled(added, dynamic=True)
    assert calls(f, added, *[(torch.randn(n), torch.randn(n)) for n in (3, 5, 90)]) == 1
    with pytest.raises(RuntimeError, match="must match"):
        f(torch.randn(3), torch.randn(4))
    assert calls(f, added, (torch.randn(3), torch.randn(1)), (torch.randn(7), torch.randn(1))) <= 4


def test_a_slice_of_a_larger_tensor_keeps_its_strides():
    def program(x):
        return x * 2 + x.sum(0)

    big = torch.randn(50, 64)
    check(program, [(big[:, :n],) for n in (3, 8, 40)], captures=1)
    check(program, [(torch.randn(n, 8).t(),) for n in (3, 8, 40)], captures=1)


def test_strides_that_vary_alone():
    def program(x):
        return x.relu() + 1

    samples = [(torch.randn(6, n)[:, :4],) for n in (5, 8, 9, 30)]
    check(program, samples, captures=2, dynamic=None)


def test_a_module_attribute_that_counts():
    class Counter(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.step = 5

        def forward(self, x):
            self.step += 1
            return x * self.step

    eager, module = Counter(), Counter()
    f = compiled(module)
    x = torch.randn(3)
    for _ in range(6):
        torch.testing.assert_close(f(x), eager(x))
    assert module.step == eager.step == 11
    assert lampwork.stats(f)["captures"] <= 3


def test_sizes_in_messages_and_containers():
    def program(x, names):
        table = {x.shape[0]: "rows"}
        assert x.shape[1] < 1000, f"too wide: {x.shape[1]}"
        return x + len(table), [x.shape[1]] * 2, max(x.shape), min(x.shape[1], 100), x.shape[1] in names

    f = compiled(program, dynamic=True)
    for n in (6, 9, 30):
        x = torch.randn(40, n)
        actual, expected = f(x, (100, 200)), program(x, (100, 200))
        torch.testing.assert_close(actual[0], expected[0])
        assert actual[1:] == expected[1:]
    assert lampwork.stats(f)["captures"] == 1


PROGRAM = """
import torch, lampwork
def program(x):
    return x.relu() * x.shape[0]
f = lampwork.compile(program)
for n in {sizes}:
    x = torch.randn(n, 3)
    assert torch.equal(f(x), program(x))
stats = lampwork.stats(f)
print(stats["captures"], stats["cache_hits"])
"""


def test_another_process_knows_what_varied(tmp_path):
    """It serves new sizes from the stored entry, and compiles nothing."""
    script = tmp_path / "program.py"
    seen = []
    for sizes in ((4, 5, 6), (7, 8)):
        script.write_text(textwrap.dedent(PROGRAM.format(sizes=sizes)))
        run = run_python(
            [script],
            timeout=120,
            env={**os.environ, "LAMPWORK_CACHE_DIR": str(tmp_path / "cache"), "LAMPWORK_CACHE": "1"},
        )
        assert run.returncode == 0, run.stderr
        seen.append(run.stdout.split())
    assert seen[0] == ["2", "0"]
    assert seen[1][0] == "0" and int(seen[1][1]) >= 1

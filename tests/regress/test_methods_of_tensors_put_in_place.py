"""Functions of `operator`, texts and keys went past methods that a program had put into `torch.Tensor`."""

from __future__ import annotations

from tests.processes import run_python

PROGRAM = """
import operator, torch, lampwork

def gives(number):
    return lambda *operands: torch.full((3,), float(number))

def text(tensor, spec=""):
    return "shown"

OPERATORS = [
    (function, special, method)
    for name in ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow")
    for function, special in ((name, f"__{name}__"), (f"i{name}", f"__i{name}__"))
    for method in [gives(7)]
]
PROGRAMS = [
    (lambda x, f=getattr(operator, function): f(x.clone(), 2) + 1, special, method)
    for function, special, method in OPERATORS
]
PROGRAMS += [
    (lambda x: operator.neg(x) + 1, "__neg__", gives(7)),
    (lambda x: x + operator.eq(x, 1), "__eq__", gives(7)),
    (lambda x: operator.getitem(x, slice(0, 2)).sum() + x, "__getitem__", gives(7)),
    (lambda x: x + len(f"{x}"), "__format__", text),
    (lambda x: x + len("{}".format(x)), "__format__", text),
    (lambda x: x + len(str(x)), "__str__", text),
    (lambda x: x + len(repr(x)), "__repr__", text),
    (lambda x: x + (hash(x) == id(x)), "__hash__", lambda tensor: 7),
    (lambda x: x + {x: 5}[x], "__hash__", lambda tensor: KEYS.append(1) or 7),
]
KEYS = []
x = torch.ones(3)
for number, (program, special, method) in enumerate(PROGRAMS):
    compiled = lampwork.compile(program, options={"cache": False})
    compiled(x)
    had, before = special in vars(torch.Tensor), vars(torch.Tensor).get(special)
    setattr(torch.Tensor, special, method)
    expected = program(x)
    calls = len(KEYS)
    found = compiled(x)
    assert not calls or len(KEYS) > calls, "a hash was not asked for"
    if had:
        setattr(torch.Tensor, special, before)
    else:
        delattr(torch.Tensor, special)
    assert torch.equal(found, expected), (number, special, found.tolist(), expected.tolist())
"""


def test_programs_that_patch_tensors():
    """In a process of its own: CPython keeps slots that a patch fills."""
    done = run_python(["-c", PROGRAM])
    assert not done.returncode, done.stderr

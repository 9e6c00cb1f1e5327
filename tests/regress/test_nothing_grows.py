"""What is remembered of a function goes with it: a program that compiles lambdas without end must not grow."""

import gc

import torch

import lampwork
from lampwork.capture.bytecode import decode as bytecode
from lampwork.ir import reference
from lampwork.runtime.launch import native


def _compile_lambdas(first: int, count: int) -> None:
    x = torch.ones(4)
    for number in range(first, first + count):
        function = eval(f"lambda x: x * {number} + 1")
        compiled = lampwork.compile(function, options={"cache": False})
        assert torch.equal(compiled(x), function(x))


def _remembered() -> tuple[int, int]:
    gc.collect()  # compiled functions lie in cycles
    bytecode._drop_unused()
    return len(reference._digests), len(native._definitions)


def test_code_of_dropped_functions_is_forgotten():
    _compile_lambdas(0, 3)
    before = _remembered()
    _compile_lambdas(3, 12)
    after = _remembered()
    assert after[0] <= before[0] and after[1] <= before[1]


def test_decoded_code_of_dropped_functions_is_swept():
    kept = eval("lambda x: x + 7")
    known = bytecode.decode(kept.__code__)
    for number in range(5):
        bytecode.decode(eval(f"lambda x: x + {number}").__code__)
    bytecode._drop_unused()
    held = [code.raw for code in bytecode._cache.values()]
    assert bytecode.decode(kept.__code__) is known
    assert not any(
        raw.co_consts[-1:] == (number,) and raw.co_filename == "<string>" for raw in held for number in range(5)
    )


def test_code_in_use_survives_a_sweep():
    def outer(x):
        def inner(y):
            return y * 3

        return inner(x) + inner(x + 1)

    compiled = lampwork.compile(outer, options={"cache": False})
    x = torch.arange(4.0)
    assert torch.equal(compiled(x), outer(x))
    bytecode._drop_unused()
    assert torch.equal(compiled(torch.arange(6.0)), outer(torch.arange(6.0)))


def test_definitions_are_used_again():
    _compile_lambdas(0, 3)
    gc.collect()
    before = len(native._spare_definitions)
    _compile_lambdas(3, 1)
    gc.collect()
    assert len(native._spare_definitions) == before

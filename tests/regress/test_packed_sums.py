"""CUDA's assembler drops the constant of a sum of packed 16-bit numbers, so that windows of small pools were off by one,
the sign of a zero that is chosen beside 1, and comparisons of an absolute value that is the smallest integer.
"""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

import lampwork
from lampwork.codegen.triton import worker
from lampwork.codegen.triton.worker import absolute_by_sign, chosen_as_bits, unpacked
from tests.unit.codegen.triton.interpret import available
from tests.unit.codegen.triton.programs import program_of, sources


def test_halves_are_added_one_by_one():
    text = unpacked("\tadd.s16x2 \t%r28, %r26, %r27;\n\tsub.u16x2 %r2, %r1, 65537;\n\tadd.s32 %r1, %r2, 1;\n")
    assert "16x2" not in text and text.count("add.s16") == 2 and text.count("sub.s16") == 2
    assert text.endswith("add.s32 %r1, %r2, 1;\n")


def test_negative_zero_is_chosen_as_bits():
    text = "\tselp.f32 \t%r2, 0f80000000, 0f3F800000, %p2;\n\tselp.f32 \t%r3, 0f3F000000, %r1, %p3;\n"
    assert chosen_as_bits(text) == text.replace("selp.f32 \t%r2, 0f80000000, 0f3F800000", "selp.b32 \t%r2, 0x80000000, 0x3F800000")  # fmt: skip
    text = "\tselp.f64 \t%rd2, %rd1, 0d8000000000000000, %p2;\n"
    assert chosen_as_bits(text) == "\tselp.b64 \t%rd2, %rd1, 0x8000000000000000, %p2;\n"


def test_absolute_values_are_made_of_the_sign():
    text = absolute_by_sign("\tabs.s64 \t%rd2, %rd1;\n\tabs.f32 %r2, %r1;\n")
    assert "abs.s" not in text and "shr.s64 s, %rd1, 63;" in text and "sub.s64 %rd2, a, s;" in text
    assert text.endswith("abs.f32 %r2, %r1;\n")


def _compiled(monkeypatch, tmp_path, rewriting, program, *inputs):
    """What is compiled of the program's one kernel, and the PTX that `rewriting`, a function of `worker`, was given."""
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))  # nothing is found that was made before
    (kernel,) = sources(program_of(program, [*inputs]))
    seen = []
    monkeypatch.setattr(worker, rewriting.__name__, lambda ptx: seen.append(ptx) or rewriting(ptx))
    answer = worker.compile_text({
        "name": kernel.name, "source": kernel.source, "signature": kernel.signature, "aligned": kernel.aligned,
        "constants": kernel.constants, "num_warps": 1, "num_stages": 1, "arch": "sm_90",
    })  # fmt: skip
    assert answer["binary"][:4] == b"\x7fELF"
    return answer["ptx"], seen[0]


@pytest.mark.skipif(bool(available()), reason="needs Triton")
def test_no_kernel_adds_packed_numbers(monkeypatch, tmp_path):
    x = torch.randn(1, 2, 3, 3)
    ptx, before = _compiled(monkeypatch, tmp_path, unpacked, lambda x: F.adaptive_avg_pool2d(x, (4, 4)), x)
    assert "add.s16x2" in before and "16x2" not in ptx


@pytest.mark.skipif(bool(available()), reason="needs Triton")
@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.int16], ids=str)
@pytest.mark.parametrize(
    "program",
    [torch.abs, lambda x: torch.where(x < 0, -x, x), lambda x: torch.maximum(x, -x)],
    ids=["abs", "choice", "maximum"],
)
def test_no_kernel_takes_absolute_values_of_integers(monkeypatch, tmp_path, program, dtype):
    x = torch.arange(-50, 50, dtype=dtype)
    ptx, before = _compiled(monkeypatch, tmp_path, absolute_by_sign, program, x)
    assert "abs.s" in before and "abs.s" not in ptx


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU")
def test_small_windows_on_a_gpu():
    for size, wanted in [((3, 3), (4, 4)), ((9, 7), (13, 10)), ((5, 4), (3, 7))]:
        x = torch.randn(1, 2, *size, device="cuda")
        compiled = lampwork.compile(lambda x, wanted=wanted: F.adaptive_avg_pool2d(x, wanted) + 1)
        torch.testing.assert_close(compiled(x), F.adaptive_avg_pool2d(x, wanted) + 1)

"""CUDA's assembler drops the constant of a sum of packed 16-bit numbers, so that windows of small pools were off by one,
and the sign of a zero that is chosen beside 1.
"""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

import lampwork
from lampwork.codegen.triton import worker
from lampwork.codegen.triton.worker import chosen_as_bits, unpacked
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


@pytest.mark.skipif(bool(available()), reason="needs Triton")
def test_no_kernel_adds_packed_numbers(monkeypatch, tmp_path):
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))  # nothing is found that was made before
    (kernel,) = sources(program_of(lambda x: F.adaptive_avg_pool2d(x, (4, 4)), [torch.randn(1, 2, 3, 3)]))
    monkeypatch.setattr(worker, "unpacked", lambda ptx: seen.append(ptx) or unpacked(ptx))
    seen = []
    answer = worker.compile_text({
        "name": kernel.name, "source": kernel.source, "signature": kernel.signature, "aligned": kernel.aligned,
        "constants": kernel.constants, "num_warps": 1, "num_stages": 1, "arch": "sm_90",
    })  # fmt: skip
    assert "add.s16x2" in seen[0]
    assert "16x2" not in answer["ptx"] and answer["binary"][:4] == b"\x7fELF"


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU")
def test_small_windows_on_a_gpu():
    for size, wanted in [((3, 3), (4, 4)), ((9, 7), (13, 10)), ((5, 4), (3, 7))]:
        x = torch.randn(1, 2, *size, device="cuda")
        compiled = lampwork.compile(lambda x, wanted=wanted: F.adaptive_avg_pool2d(x, wanted) + 1)
        torch.testing.assert_close(compiled(x), F.adaptive_avg_pool2d(x, wanted) + 1)

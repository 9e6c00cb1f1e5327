"""CUDA 12.8's assembler adds to descriptors of matrices in shared memory a register that nothing wrote: attention over
131 keys with rows of 48 and of 24 elements gave anything, and read outside of memory (H100)."""

from __future__ import annotations

from dataclasses import asdict, replace

import pytest
import torch

from lampwork.codegen.triton import worker
from lampwork.codegen.triton.assembled import unwritten
from lampwork.codegen.triton.source import kernel_source
from lampwork.schedule import attention as stage
from tests.unit.codegen.triton.attentions import by_hand, factors, lowered_of
from tests.unit.codegen.triton.interpret import available
from tests.unit.codegen.triton.programs import TARGET, scheduled


def test_registers_that_nothing_writes():
    code = """
        /*0060*/                   ULDC.64 UR48, c[0x0][0x208] ;
        /*0790*/                   ULEA UR20, UR48, UR49, 0x18 ;
        /*30a0*/                   HGMMA.64x32x16.F32.BF16 R168, R24, gdesc[UR8].tnspB, R168 ;
        /*30b0*/              @!UP1 UIADD3 UR46, UP0, UR20, 0x40, URZ ;
        /*69d0*/                   STG.E.128 desc[UR2][R2.64], R28 ;
    """
    assert unwritten(code) == set()
    assert unwritten(code + "/*30c0*/  UIADD3.X UR47, UR21, -0x7fffffe0, URZ, UP0, !UPT ;") == {21}
    assert unwritten(code + "/*30c0*/  @P0 IMAD R4, R5, UR50, R6 ;") == {50}


def test_wide_sums_are_two():
    text = worker.added_by_halves("\tadd.s64 \t%rd34, %rd70, -9223371899415822272;\n\tadd.s64 %rd1, %rd2, 64;\n")
    assert "add.cc.u32 a, a, 64; addc.u32 b, b, 2147483680;" in text and text.endswith("add.s64 %rd1, %rd2, 64;\n")


@pytest.mark.skipif(bool(available()), reason="needs Triton")
def test_an_attention_kernel(monkeypatch, tmp_path):
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(stage, "FEWEST_SCORES", 1)
    program = scheduled(lowered_of(by_hand, factors(keys=131, inner=48, column=24))[0])
    (kernel,) = (each for each in program.kernels if each.name.startswith("attention_"))
    job = asdict(kernel_source(kernel, replace(TARGET, name="sm_90", l1_bytes=227 << 10)))
    assert "wgmma" in worker.compile_text(job)["ptx"]
    monkeypatch.setattr(worker, "added_by_halves", lambda ptx: ptx)
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / "other"))
    with pytest.raises(worker.Refused, match="which nothing writes"):
        worker.compile_text(job)


def test_on_a_gpu():
    if not torch.cuda.is_available():
        pytest.skip("needs an NVIDIA GPU")
    import lampwork

    torch.manual_seed(0)
    shapes = ((8, 600, 48), (8, 1031, 48), (8, 1031, 24))
    q, k, v = (torch.randn(shape, dtype=torch.bfloat16, device="cuda") for shape in shapes)
    with torch.no_grad():
        found, expected = lampwork.compile(by_hand)(q, k, v), by_hand(*(each.double() for each in (q, k, v)))
    torch.testing.assert_close(found.double(), expected, rtol=2e-2, atol=1e-2)

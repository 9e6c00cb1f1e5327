# Short names for the commands of CONTRIBUTING.md. PYTHON may name another interpreter: make test PYTHON=.venv/bin/python
PYTHON ?= python

.PHONY: test test-isa compat test-slow test-ops test-gpu lint dist docs bench bench-gpu cpython kernels

test:
	$(PYTHON) -m pytest -n auto

# As on other x86 machines: the libraries' instruction sets and ours held to AVX2, then to AVX-512 without its extensions.
test-isa:
	@status=0; \
	ONEDNN_MAX_CPU_ISA=AVX2 ATEN_CPU_CAPABILITY=avx2 LAMPWORK_MAX_ISA=avx2 \
	  $(PYTHON) -m pytest -n auto $(ISA_TESTS) || status=1; \
	ONEDNN_MAX_CPU_ISA=AVX512_CORE ATEN_CPU_CAPABILITY=avx512 LAMPWORK_MAX_ISA=avx512 \
	  $(PYTHON) -m pytest -n auto $(ISA_TESTS) || status=1; \
	exit $$status

# In an environment made for a pair of versions: make compat TORCH=2.15.0 PYTHON=3.14 [TESTS="tests/unit -n 2"]
compat:
	python3 tests/compat/run.py --torch $(TORCH) --python $(PYTHON) $(if $(TESTS),-- $(TESTS))

# What an ordinary run leaves out: every operator of the lowering samples, long fuzzing.
test-slow:
	$(PYTHON) -m pytest -m slow

# The operators, then their first derivatives both ways. Resumes where it stopped; `make test-ops OPS="--fresh --samples all"`
# starts again with every sample.
test-ops:
	@status=0; \
	$(PYTHON) -m tests.ops.sweep $(OPS) || status=1; \
	$(PYTHON) -m tests.ops.sweep --gradients whole $(OPS) || status=1; \
	$(PYTHON) -m tests.ops.sweep --gradients apart $(OPS) || status=1; \
	exit $$status

# For a machine with an NVIDIA GPU, about 8 minutes on 16 cores; the operators resume where they stopped.
test-gpu:
	@status=0; \
	$(PYTHON) -m pytest tests/gpu -n 6 $(GPU_TESTS) || status=1; \
	$(PYTHON) -m tests.ops.sweep --device cuda --samples 1 --jobs 14 --timeout 60 $(OPS) || status=1; \
	$(PYTHON) -m tests.ops.sweep --device cuda --samples 1 --jobs 14 --timeout 60 --gradients whole $(OPS) || status=1; \
	$(PYTHON) -m tests.ops.sweep --device cuda --samples 1 --jobs 14 --timeout 60 --gradients apart $(OPS) || status=1; \
	exit $$status

lint:
	$(PYTHON) -m ruff check .
	$(PYTHON) -m ruff format --check .
	$(PYTHON) -m mypy
	$(PYTHON) -c "import importlinter.cli as cli; cli.lint_imports_command()"

# Wheel and source distribution, checked; `make dist DIST="--keep dist"` keeps them.
dist:
	$(PYTHON) .ci/dist.py $(DIST)

# The site, in site/. Needs the package, whose docstrings it shows, and its `docs` extra.
docs:
	$(PYTHON) -m mkdocs build --strict

bench:
	$(PYTHON) -m lampwork.cli bench mlp resnet vit bert gpt2 llama unet --device cpu --task infer $(BENCH)

# On a GPU, in every mode; a run that is cut off goes on with BENCH="--json FILE --resume".
bench-gpu:
	$(PYTHON) -m lampwork.cli bench mlp resnet vit bert gpt2 llama unet --device cuda --task infer $(BENCH)
	$(PYTHON) -m bench.gpu_kernels

kernels:
	$(PYTHON) -m bench.kernels
	$(PYTHON) -m bench.overhead

# CPython's own test modules through the bytecode machine, on the interpreter that runs it.
cpython:
	$(PYTHON) tests/cpython/run.py $(CPYTHON)

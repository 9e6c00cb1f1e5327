# Short names for the commands of CONTRIBUTING.md. PYTHON may name another interpreter: make test PYTHON=.venv/bin/python
PYTHON ?= python

.PHONY: test test-slow test-ops lint bench cpython kernels

test:
	$(PYTHON) -m pytest

# What an ordinary run leaves out: every operator of the lowering samples, long fuzzing.
test-slow:
	$(PYTHON) -m pytest -m slow

# Resumes where it stopped; `make test-ops OPS="--fresh --samples all"` starts again with every sample.
test-ops:
	$(PYTHON) -m tests.ops.sweep $(OPS)

lint:
	$(PYTHON) -m ruff check .
	$(PYTHON) -m mypy
	$(PYTHON) -c "import importlinter.cli as cli; cli.lint_imports_command()"

bench:
	$(PYTHON) -m lampwork.cli bench mlp resnet vit bert gpt2 llama unet --device cpu --task infer $(BENCH)

kernels:
	$(PYTHON) -m bench.kernels
	$(PYTHON) -m bench.overhead

# CPython's own test modules through the bytecode machine, on the interpreter that runs it.
cpython:
	$(PYTHON) tests/cpython/run.py $(CPYTHON)

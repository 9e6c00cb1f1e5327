"""Mutation testing of the compiler: each fault of `catalogue/` is seeded, and the tests of its stage must fail.

python -m tests.mutants                  every fault; a table of what caught each
python -m tests.mutants schedule lower   the faults of two stages
python -m tests.mutants war-edge-lost    one fault
"""

"""Tensors without memory and the rules that say what operators return on them. Used by `capture` and `graph`.

fake.py        `Fake`, `make_fake`
operators.py   what kind of operator an overload is
shapes.py      `infer`: the answer of an operator on fakes; helpers for rules
rules/         one rule per operator, by family
"""

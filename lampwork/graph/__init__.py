"""The graph stage: passes from `torch.fx` graph to `torch.fx` graph over ATen operators.

prepare.py        the stage: which passes, in which order
functionalize.py  in-place operators and views -> a pure graph with writes
simplify.py       literals, no-ops, repeated and dead work
products.py       matrix products through the vendor library's fused linear operator
freeze.py         packed weights and folded batch norm, for options={"freeze": True}
interpret.py      plain interpreters, for tests and bisecting
build.py          adding nodes with metadata
"""

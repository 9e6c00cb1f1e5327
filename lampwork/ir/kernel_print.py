"""Kernels as text, one statement a line; the golden tests' format and what `lampwork explain` shows.

A kernel with two loops:

    kernel pointwise_0(b0: f32[4096] read, b1: f32[4096] write)
      parallel i0 in 2 grain 1
        vector i1 in 2048
          b1[2048*i0 + i1] = exp(b0[2048*i0 + i1])
"""

from __future__ import annotations

from lampwork.ir.dtype import SHORT
from lampwork.ir.loops import (
    Accumulate,
    Accumulator,
    Constant,
    Expr,
    If,
    Index,
    Kernel,
    Let,
    Load,
    Local,
    Loop,
    Scratch,
    Stmt,
    Store,
)
from lampwork.ir.print import size_text

_INFIX = {
    "add": "+", "sub": "-", "mul": "*", "div": "/", "floordiv": "//", "mod": "%", "eq": "==", "ne": "!=", "lt": "<",
    "le": "<=", "gt": ">", "ge": ">=", "and": "&", "or": "|", "xor": "^", "shift_left": "<<", "shift_right": ">>",
}  # fmt: skip


def kernel_text(kernel: Kernel) -> str:
    """All of the kernel but its origins: equal texts mean equal kernels."""
    parameters = ", ".join(
        f"{p.name}: {SHORT[p.dtype]}[{size_text(p.numel)}] {p.access}{' aligned' if p.aligned else ''}"
        for p in kernel.parameters
    )
    sizes = f"; {', '.join(kernel.sizes)}" if kernel.sizes else ""
    lines = [f"kernel {kernel.name}({parameters}{sizes}){' horizontal' if kernel.horizontal else ''}"]
    for stmt in kernel.body:
        _stmt(stmt, 1, lines)
    return "\n".join(lines) + "\n"


def _stmt(stmt: Stmt, depth: int, lines: list[str]) -> None:
    pad = "  " * depth
    if isinstance(stmt, Loop):
        grain = f" grain {stmt.grain}" if stmt.kind == "parallel" else ""
        lines.append(f"{pad}{stmt.kind} {stmt.axis.name} in {size_text(stmt.axis.extent)}{grain}")
        for inner in stmt.body:
            _stmt(inner, depth + 1, lines)
    elif isinstance(stmt, Let):
        lines.append(f"{pad}{stmt.name} = {expr_text(stmt.value)}")
    elif isinstance(stmt, Accumulator):
        lines.append(f"{pad}accumulator {stmt.name}: {SHORT[stmt.dtype]} {stmt.op}")
    elif isinstance(stmt, Accumulate):
        position = "" if stmt.position is None else f" at {size_text(stmt.position)}"
        lines.append(f"{pad}{stmt.name} <- {expr_text(stmt.value)}{position}")
    elif isinstance(stmt, Scratch):
        lines.append(f"{pad}scratch {stmt.name}: {SHORT[stmt.dtype]}[{stmt.numel}]")
    elif isinstance(stmt, Store):
        sign = "+=" if stmt.mode == "add" else "="
        index = ", ".join(map(size_text, stmt.index))
        lines.append(f"{pad}{stmt.buffer}[{index}{_bound(stmt.indirect)}] {sign} {expr_text(stmt.value)}")
    elif isinstance(stmt, If):
        lines.append(f"{pad}if {expr_text(stmt.condition)}")
        for inner in stmt.body:
            _stmt(inner, depth + 1, lines)
    else:
        raise TypeError(f"not a statement: {stmt!r}")


def expr_text(expr: Expr) -> str:
    """One expression as text. Types show where an operation changes them."""
    if isinstance(expr, Constant):
        return f"{expr.value!r}:{SHORT[expr.dtype]}"
    if isinstance(expr, Index):
        return f"index({size_text(expr.value)})"
    if isinstance(expr, Local):
        return expr.name
    if isinstance(expr, Load):
        mask = "" if expr.mask is None else f" if {expr_text(expr.mask)} else {expr.other!r}"
        return f"{expr.buffer}[{', '.join(map(size_text, expr.index))}{_bound(expr.indirect)}{mask}]"
    if expr.op in ("cast", "bitcast"):
        return f"{SHORT[expr.dtype]}{'' if expr.op == 'cast' else '_bits'}({expr_text(expr.args[0])})"
    if expr.op in _INFIX:
        return f"({expr_text(expr.args[0])} {_INFIX[expr.op]} {expr_text(expr.args[1])})"
    return f"{expr.op}({', '.join(expr_text(arg) for arg in expr.args)})"


def _bound(indirect: tuple[tuple[str, Expr], ...]) -> str:
    return "".join(f"; {name}={expr_text(value)}" for name, value in indirect)

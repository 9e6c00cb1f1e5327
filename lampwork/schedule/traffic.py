"""`traffic`: bytes each launch reads and writes, for `lampwork explain` and the kernel benchmarks."""

from __future__ import annotations

from lampwork.ir.dtype import ITEM_SIZE_BYTES
from lampwork.ir.loops import Compute, Expr, If, Kernel, Let, Load, Loop, Stmt, Store, children
from lampwork.ir.program import Launch, Program, launch_instances
from lampwork.ir.record import record
from lampwork.ir.size import Size, product, substitute, symbols
from lampwork.schedule.expressions import estimate


@record
class LaunchTraffic:
    """`step`: index into `Program.steps`. Every element touched counts once per buffer, gathers once per iteration."""

    step: int
    kernel: str
    read_bytes: int
    written_bytes: int


def traffic(program: Program) -> tuple[LaunchTraffic, ...]:
    """Memory traffic of every launch, in order. Dynamic sizes are estimated."""
    by_kernel = [None if kernel.horizontal else kernel_traffic(kernel) for kernel in program.kernels]
    return tuple(
        LaunchTraffic(
            number,
            program.kernels[step.kernel].name,
            *(by_kernel[step.kernel] or kernel_traffic(program.kernels[step.kernel], step)),
        )
        for number, step in enumerate(program.steps)
        if isinstance(step, Launch)
    )


def kernel_traffic(kernel: Kernel, launch: Launch | None = None) -> tuple[int, int]:
    """(bytes read, bytes written) of one run; of all rows of `launch`, if the kernel is `horizontal`."""
    values: dict[str, Size] = {}
    if kernel.horizontal and launch is not None:  # the rows' elements are read as one row's
        values[kernel.sizes[0]] = sum(
            size for _, (size, *_) in launch_instances(launch, kernel) if isinstance(size, int)
        )
    parameters = {parameter.name: parameter for parameter in kernel.parameters}
    read: dict[str, int] = {}
    written: dict[str, int] = {}

    def touch(
        found: dict[str, int], buffer: str, index: tuple[Size, ...], gathered: bool, loops: dict[str, Size]
    ) -> None:
        parameter = parameters.get(buffer)
        if parameter is None:
            return  # A scratch row stays in the cache.
        used = symbols(index[0])
        sizes = [substitute(extent, values) for name, extent in loops.items() if gathered or name in used]
        elements = estimate(product(sizes))
        whole = elements if gathered else min(elements, estimate(substitute(parameter.numel, values)))
        found[buffer] = max(found.get(buffer, 0), whole * ITEM_SIZE_BYTES[parameter.dtype])

    def expression(expr: Expr, loops: dict[str, Size]) -> None:
        if type(expr) is Load:
            touch(read, expr.buffer, expr.index, bool(expr.indirect), loops)
        if type(expr) in (Load, Compute):
            for child in children(expr):
                expression(child, loops)

    def body(statements: tuple[Stmt, ...], loops: dict[str, Size]) -> None:
        for stmt in statements:
            if type(stmt) is Loop:
                body(stmt.body, {**loops, stmt.axis.name: stmt.axis.extent})
            elif type(stmt) is If:
                expression(stmt.condition, loops)
                body(stmt.body, loops)
            elif type(stmt) is Store:
                touch(written, stmt.buffer, stmt.index, bool(stmt.indirect), loops)
                expression(stmt.value, loops)
                for _, bound in stmt.indirect:
                    expression(bound, loops)
            elif type(stmt) is Let or hasattr(stmt, "value"):
                expression(stmt.value, loops)

    body(kernel.body, {})
    # What the kernel stored itself comes back from the cache.
    return sum(size for name, size in read.items() if name not in written), sum(written.values())

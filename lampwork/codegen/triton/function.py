"""`FunctionWriter`: the function around a kernel's lines, and the indices of its tile.

What a kernel does before its row (`_outer`) and in its inner loops (`_nest`) is up to the writers of loops (`source`)
and of matrix products (`product`).
"""

from __future__ import annotations

from collections.abc import Iterator

from lampwork.codegen.triton.expressions import HELPERS, POINTERS
from lampwork.codegen.triton.folds import FoldWriter
from lampwork.codegen.triton.horizontal import prologue
from lampwork.codegen.triton.tiles import Form, Nest, Rescaled, Tiling, upper
from lampwork.codegen.triton.values import parts
from lampwork.errors import CompileError
from lampwork.ir.dtype import STORED
from lampwork.ir.loops import Accumulate, Accumulator, Axis, Expr, Kernel, Let, Load, Store, nodes
from lampwork.ir.program import DeviceKernel
from lampwork.ir.size import FloorDiv, Max, Min, Mod, Size, bounds, product
from lampwork.ir.target import Target

#: From here on index arithmetic takes 64 bits: blocks may overhang.
INT32_END = (1 << 31) - (1 << 16)


class FunctionWriter(FoldWriter):
    """One kernel of the given form, in tiles of the given shape."""

    def __init__(self, kernel: Kernel, target: Target, form: Form, tiling: Tiling) -> None:
        super().__init__(kernel, target, "tl.int64" if _is_large(form, kernel) else "tl.int32")
        self.form, self.tiling = form, tiling
        for parameter in kernel.parameters:
            if parameter.dtype not in STORED:
                raise CompileError("generate", f"kernel {kernel.name}: parameter of {parameter.dtype}")
        self.aligned_inputs = True

    def _outer(self) -> Size:
        """Lines for the outer loops' indices; the number of programs."""
        raise NotImplementedError

    def _nest(self, nest: Nest) -> None:
        """Lines for inner loops; afterwards `locals` has what they fold."""
        raise NotImplementedError

    # -- The function -------------------------------------------------------------------------------------------------

    def write(self, aligned_inputs: bool) -> DeviceKernel:
        kernel = self.kernel
        self.aligned_inputs = aligned_inputs
        if kernel.horizontal:
            self.lines += prologue(kernel, self.index_type)
        grid = self._outer()
        for stmt in self.form.row:
            if isinstance(stmt, Nest):
                self._nest(stmt)
            elif isinstance(stmt, Let):
                self._let(stmt)
            elif isinstance(stmt, Accumulator):
                self.accumulators[stmt.name] = stmt
            else:
                self._store(stmt, tuple(dim for dim in self.dims if dim != "r"))
        blocks = [
            (name, number)
            for name, number in (
                ("XBLOCK", self.tiling.x_block),
                ("YBLOCK", self.tiling.y_block),
                ("RBLOCK", self.tiling.r_block),
            )
            if number
        ]
        if kernel.horizontal:
            return self._device_kernel(("*i64", "i32"), (0,), blocks, grid)
        return self.finished(aligned_inputs, blocks, grid)

    def finished(self, aligned_inputs: bool, blocks: list[tuple[str, int]], grid: Size) -> DeviceKernel:
        """The kernel of the lines so far, called with its buffers and sizes."""
        kernel = self.kernel
        size_type = "i64" if self.index_type == "tl.int64" else "i32"
        signature = (*(POINTERS[p.dtype] for p in kernel.parameters), *(size_type for _ in kernel.sizes))
        aligned = tuple(place for place, p in enumerate(kernel.parameters) if p.aligned or aligned_inputs)
        return self._device_kernel(signature, aligned, blocks, grid)

    def _device_kernel(
        self, signature: tuple[str, ...], aligned: tuple[int, ...], blocks: list[tuple[str, int]], grid: Size
    ) -> DeviceKernel:
        return DeviceKernel(
            self.kernel.name,
            self._module([name for name, _ in blocks]),
            signature,
            aligned,
            tuple(blocks),
            (grid,),
            self.tiling.num_warps,
            self.tiling.num_stages,
            self.target.name,
        )

    def _module(self, blocks: list[str]) -> str:
        body = "\n".join(self.lines)
        header = [f"# {line}" for line in self._origins()]
        header += ["import triton", "import triton.language as tl"]
        if "libdevice." in body:
            header.append("from triton.language.extra import libdevice")
        helpers = "".join(f"\n{HELPERS[name]}" for name in self.helpers)
        given = ("table", "rows") if self.kernel.horizontal else (*self.parameters, *self.kernel.sizes)
        arguments = [*given, *(f"{name}: tl.constexpr" for name in blocks)]
        function = f"@triton.jit\ndef {self.kernel.name}({', '.join(arguments)}):\n{body}\n"
        return "\n".join(header) + f"\n{helpers}\n\n{function}"

    def _origins(self) -> list[str]:
        found: dict[str, None] = {}
        for origin in self.kernel.origins:
            place = f" at {origin.location.file}:{origin.location.line}" if origin.location.file else ""
            found.setdefault(f"{origin.op}{place}".replace("\n", " "))
        return list(found)

    # -- The tile -----------------------------------------------------------------------------------------------------

    def _range(self, block: str, dim: str) -> str:
        """Consecutive numbers along dimension `dim` of the tile."""
        text = f"tl.arange(0, {block})"
        if self.index_type == "tl.int64":
            text += ".to(tl.int64)"
        if len(self.dims) < 2:
            return text
        return text + ("[:, None]" if self.dims.index(dim) == 0 else "[None, :]")

    def _bound(self, dim: str, index: str, extent: Size, block: int) -> None:
        """The mask of a dimension, unless all blocks are full."""
        if not isinstance(extent, int) or extent % block:
            self.masks[dim] = (self.name(f"{index} < {self._size(extent)[0]}"), frozenset(dim))

    def _split(self, index: str, dims: frozenset[str], axes: list[Axis]) -> None:
        """The indices of `axes`, row by row, as parts of one index over all of them."""
        rest = index
        block = {"x": self.tiling.x_block, "y": self.tiling.y_block, "r": self.tiling.r_block}
        for dim in dims:
            self.along[dim] = tuple(axes) if block[dim] > 1 else ()
        for place in range(len(axes) - 1, -1, -1):
            axis = axes[place]
            extent = upper(axis.extent)
            if extent == 1 or place == 0:
                text = "0" if extent == 1 else rest
            else:
                text = self.name(f"{rest} % {self._divisor(extent)}")
                rest = self.name(f"{rest} // {self._divisor(extent)}")
            self.symbols[axis.name] = (text, dims)


def _is_large(form: Form, kernel: Kernel) -> bool:
    """Whether offsets, or what they are divided from, need 64 bits."""
    sizes = [bounds(p.numel)[1] for p in kernel.parameters]
    sizes.append(bounds(product(axis.extent for axis in form.outer))[1])
    sizes += [bounds(product(upper(axis.extent) for axis in nest.axes))[1] for nest in form.nests]
    sizes += [max(map(abs, bounds(part))) for part in _exact_parts(form)]
    return max(sizes) >= INT32_END


def _exact_parts(form: Form) -> Iterator[Size]:
    """What of the index arithmetic must not wrap around, beside offsets: positions, and what is divided or compared.

    Loops over small buffers may have any number of iterations together: (x[:, None] + y).reshape(m, n).sum(1).
    """
    statements: list[Let | Accumulate | Accumulator | Store | Rescaled] = []
    for part in form.row:
        statements += part.body if isinstance(part, Nest) else (part,)
    for stmt in statements:
        if isinstance(stmt, Accumulator):
            continue
        indices: list[Size] = []
        if isinstance(stmt, Accumulate) and stmt.position is not None:
            yield stmt.position
            indices.append(stmt.position)
        roots: list[Expr] = [stmt.value]
        if isinstance(stmt, Store):
            indices += stmt.index
            roots += [value for _, value in stmt.indirect]
        for expr in nodes(roots):
            indices += expr.index if isinstance(expr, Load) else ()
        for index in indices:
            for inner in parts(index):
                if isinstance(inner, (FloorDiv, Mod)):
                    yield inner.value
                elif isinstance(inner, (Min, Max)):
                    yield inner.left
                    yield inner.right

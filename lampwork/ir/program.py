"""The host program: what runs, in order, on which memory. Data only; no torch.

`Lowered` is what lowering hands to scheduling; `Program` what scheduling hands to code generation and the runtime.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import field, fields
from typing import TYPE_CHECKING, Any, Literal, Union

from lampwork.ir.location import Location, Origin
from lampwork.ir.record import record

if TYPE_CHECKING:  # the runtime reads programs and loads no loop IR
    from lampwork.ir.attention import Attention
    from lampwork.ir.loops import Buffer, Kernel, LoopNest
    from lampwork.ir.size import Size
    from lampwork.ir.weighted_sums import WeightedSums


@record
class TensorRef:
    """How an ATen operator sees a buffer: a strided view. `offset` in elements of `dtype` from the buffer's start."""

    buffer: str
    dtype: str
    shape: tuple[Size, ...]
    strides: tuple[Size, ...]
    offset: Size = 0


@record
class TorchConstant:
    """A constant argument of an extern that is not plain data: a dtype, device, layout or memory format."""

    kind: Literal["dtype", "device", "layout", "memory_format"]
    name: str


@record
class Extern:
    """A call of the ATen (or mkldnn, custom) operator `op` ("aten::addmm.default").

    `args`/`kwargs` are trees of tuples with leaves TensorRef | TorchConstant | int | float | bool | str | None | Size.
    `outputs` name one buffer per returned tensor (None: a returned tensor nobody reads). With `out_variant`
    ("aten::addmm.out") the operator can write into planned memory of exactly the outputs' shape and strides; without,
    it allocates its results, which must then have the strides of the output buffers (checked when it runs the
    first time; a mismatch is restrided by copy).
    `mutates` lists argument buffers it writes in place. `draws`: it advances a random number generator, so it keeps its
    place among all that do.
    """

    op: str
    args: tuple[Any, ...]
    kwargs: tuple[tuple[str, Any], ...] = ()
    outputs: tuple[str | None, ...] = ()
    out_variant: str | None = None
    mutates: tuple[str, ...] = ()
    origin: Origin = Origin("", "")
    draws: bool = False


CheckError = Literal["IndexError", "RuntimeError", "AssumptionFailed", "SideNotAssumed"]

#: How the message of an assertion begins that a branch takes the side which it mostly takes.
UNUSUAL_SIDE = "a branch on the contents of a tensor takes the side that is not usual"


@record
class Check:
    """The host raises `error(message)` if element 0 of the bool buffer `buffer` is true.

    Comes before every write to an input that follows it in program order: a failed check leaves the caller's memory as
    it was. Loads guarded by a check are clamped, so that kernels may run ahead of it. `AssumptionFailed`: the program
    does not serve this call, which is no defect; `SideNotAssumed`: nor are others assumed to be as it is any more.
    """

    buffer: str
    message: str
    error: CheckError = "IndexError"
    origin: Origin = Origin("", "")


@record
class Assumed:
    """`text`, a relation of sizes, holds in this call, or the host raises SizeNotAssumed: it is looked at as soon as
    the sizes that it names are known."""

    text: str
    names: tuple[str, ...]
    location: Location = Location()


Item = Union["LoopNest", "Attention", "WeightedSums", Extern, Check]


@record
class FromInput:
    """The result is the very tensor object passed as input `input`."""

    input: int


@record
class FromBuffer:
    """The result is a fresh tensor: a strided view of the storage of `view.buffer` (whole storage if fresh).

    `conjugate`: lazily conjugated, as `x.conj()` is.
    """

    view: TensorRef
    conjugate: bool = False


@record
class ViewOfInput:
    """The result is a view of input `input`: as_strided(shape, strides, absolute storage offset = input's + offset)."""

    input: int
    dtype: str
    shape: tuple[Size, ...]
    strides: tuple[Size, ...]
    offset: Size = 0
    conjugate: bool = False


@record
class ScalarResult:
    """The result is a Python number read from the graph."""

    value: Size


Result = FromInput | FromBuffer | ViewOfInput | ScalarResult


@record
class InputWrite:
    """After all reads of input `input`, its memory is overwritten with `source` (same shape; strides of the input)."""

    input: int
    source: TensorRef


@record
class Lowered:
    """A program as operators over buffers, in a valid order. Views are already index arithmetic or TensorRefs.

    `inputs`: buffer name of each graph input, in the region's input order. `constants`: small literal tensors by
    buffer name, as (dtype, shape, bytes). `writes` are performed last; a nest may also store into an input buffer
    directly when lowering emitted it so (`store.buffer` is an input), in program order. `device`: as in `Program`.
    `sizes`: names of all symbols. `numbers`: inputs that are integers, which have no buffer: what each is in symbols.
    `found`: symbols that a call of ATen decides: the result that has it, and for which dimension. `assumed`: what the
    program takes for granted of those. `rematerialised`: forward values that a training step computes a second time,
    for its backward passes.
    `copies`: as in `FunctionalGraph`, by name: what the items do to the buffers of a table's first row is done to those
    of each other row.
    """

    buffers: Mapping[str, Buffer]
    inputs: tuple[str, ...]
    items: tuple[Item, ...]
    results: tuple[Result, ...]
    writes: tuple[InputWrite, ...] = ()
    constants: Mapping[str, tuple[str, tuple[int, ...], bytes]] = field(default_factory=dict)
    sizes: tuple[str, ...] = ()
    device: str = "cpu"
    numbers: Mapping[str, Size] = field(default_factory=dict)
    found: Mapping[str, tuple[str, int]] = field(default_factory=dict)
    assumed: tuple[Assumed, ...] = ()
    rematerialised: frozenset[str] = frozenset()
    copies: tuple[tuple[tuple[str, ...], ...], ...] = ()


# ---------------------------------------------------------------------------------------------------------------------
# After scheduling


@record
class Launch:
    """Run `kernels[kernel]` on `buffers` (names, in parameter order) with `sizes`.

    A `horizontal` kernel runs once for each row, side by side: `buffers` and `sizes`, which are numbers, are those of
    all rows, one after the other. `table`: the int64 buffer that a GPU keeps their addresses in (`rows_table`).
    """

    kernel: int
    buffers: tuple[str, ...]
    sizes: tuple[Size, ...] = ()
    origins: tuple[Origin, ...] = ()
    table: str = ""


def launch_instances(launch: Launch, kernel: Kernel) -> list[tuple[tuple[str, ...], tuple[Size, ...]]]:
    """(buffers, sizes) of each run of a launch: one, unless the kernel is `horizontal`."""
    if not kernel.horizontal:
        return [(launch.buffers, launch.sizes)]
    wide, long = len(kernel.parameters), len(kernel.sizes)
    count = len(launch.buffers) // wide
    return [
        (launch.buffers[wide * row : wide * (row + 1)], launch.sizes[long * row : long * (row + 1)])
        for row in range(count)
    ]


@record
class Placement:
    """Where a buffer lives.

    input      data pointer of input tensor `index`
    workspace  `offset` bytes into the call's workspace (64-byte aligned)
    arena      slot `index` of the call's arena: memory whose size depends on the call's sizes
    result     a fresh tensor made for result storage `index` (storages may serve several results: views)
    extern     memory of its own: allocated by the extern that outputs it; else when it is first needed, if its size is
               found midway, or it is large and on a GPU
    constant   literal `index`
    """

    kind: Literal["input", "workspace", "arena", "result", "extern", "constant"]
    index: int = 0
    offset_bytes: int = 0


Step = Launch | Extern | Check


def tensor_refs(value: object) -> Iterator[TensorRef]:
    """Every tensor among the arguments of a call of ATen, or in one of them."""
    if isinstance(value, TensorRef):
        yield value
    elif isinstance(value, (tuple, list)):
        for part in value:
            yield from tensor_refs(part)
    elif isinstance(value, Extern):
        yield from tensor_refs(value.args)
        yield from tensor_refs(value.kwargs)


def step_buffers(step: Step) -> tuple[str, ...]:
    """Buffers that a step reads, writes or makes."""
    if isinstance(step, Launch):
        return (*step.buffers, step.table) if step.table else step.buffers
    if isinstance(step, Check):
        return (step.buffer,)
    names = [ref.buffer for ref in tensor_refs(step)]
    return tuple(dict.fromkeys([*names, *(name for name in step.outputs if name is not None), *step.mutates]))


@record
class RefusedFusion:
    """Why two neighbouring nests do not share a kernel; `bytes` is the memory traffic that fusing would have saved.

    `id` names a page of docs/diagnostics.
    """

    id: str
    producer: Origin
    consumer: Origin
    reason: str
    bytes: int


@record
class Program:
    """Kernels and the steps that run them, with every buffer's place decided.

    `result_storages`: buffer names that own a fresh result tensor's memory, by index of Placement("result").
    `workspace_bytes`: size of the workspace leased per call. `arena`: bytes of each slot of the arena.
    `free_after[i]`: buffers with memory of their own, and inputs, whose last use is step i.
    `device`: the one device that kernels run on and planned memory lives on ("cpu", "cuda:0"). Buffers elsewhere (a CPU
    scalar among the inputs of a CUDA program) are touched by externs alone. `sizes`, `numbers`, `found`, `assumed`: as
    in `Lowered`. `stored_storages`: as of `storages_of_results`, in stored programs, which are without buffers.
    `raised`: (input, by how much the program raises its version), as eager does once for each operator that writes, and
    not for writes through `.data`; None: by one where it is written. `versions`: (result, its version), where that is
    not 0 and the result is no view of an input. `separate`: (result, another one) where the version of a
    result is not that of all others in its memory, as of `x.data`: it is that of the other, earlier one, or its own.
    `detached`: (result, another one) where autograd takes a result for no view of others in its memory, as
    `x.detach()`: it is a view of the other one, of which this is true as well, or of none.
    `inference`: results that the program makes in an inference mode of its own.
    """

    kernels: tuple[Kernel, ...]
    buffers: Mapping[str, Buffer]
    placements: Mapping[str, Placement]
    steps: tuple[Step, ...]
    inputs: tuple[str, ...]
    results: tuple[Result, ...]
    result_storages: tuple[str, ...] = ()
    workspace_bytes: int = 0
    constants: Mapping[str, tuple[str, tuple[int, ...], bytes]] = field(default_factory=dict)
    free_after: Mapping[int, tuple[str, ...]] = field(default_factory=dict)
    written_inputs: tuple[int, ...] = ()
    refused: tuple[RefusedFusion, ...] = ()
    sizes: tuple[str, ...] = ()
    unscheduled_bytes: int = 0
    device: str = "cpu"
    numbers: Mapping[str, Size] = field(default_factory=dict)
    arena: tuple[Size, ...] = ()
    found: Mapping[str, tuple[str, int]] = field(default_factory=dict)
    assumed: tuple[Assumed, ...] = ()
    stored_storages: tuple[tuple[TensorRef, ...], tuple[int | None, ...]] | None = None
    raised: tuple[tuple[int, int], ...] | None = None
    versions: tuple[tuple[int, int], ...] = ()
    separate: tuple[tuple[int, int], ...] = ()
    detached: tuple[tuple[int, int], ...] = ()
    inference: tuple[int, ...] = ()


def raised_inputs(program: Program) -> tuple[int, ...]:
    """The inputs whose versions a call raises, each as often as it does so."""
    if program.raised is None:
        return program.written_inputs
    return tuple([index for index, count in program.raised for _ in range(count)])


def storages_of_results(program: Program) -> tuple[tuple[TensorRef, ...], tuple[int | None, ...]]:
    """(result storages, whole; for each result the number of the storage it lies in, None where it lies elsewhere)."""
    if program.stored_storages is not None:
        return program.stored_storages
    if not program.placements:  # stored for a CPU, where nobody asks
        return (), (None,) * len(program.results)
    buffers = [program.buffers[name] for name in program.result_storages]
    storages = tuple([TensorRef(each.name, each.dtype, each.shape, each.strides) for each in buffers])
    places = [
        program.placements[each.view.buffer] if isinstance(each, FromBuffer) else None for each in program.results
    ]
    return storages, tuple([each.index if each is not None and each.kind == "result" else None for each in places])


def device_index(device: str) -> int:
    """The number in "cuda:0"."""
    return int(device.partition(":")[2] or 0)


@record
class DeviceKernel:
    """One kernel for a GPU: its Triton text and, once compiled, its machine code.

    `source`: the text of a module that defines the `triton.jit` function `name`, imports included. `signature`: the
    Triton types ("*fp32", "i64") of its arguments in order: the pointers of `Kernel.parameters`, then `Kernel.sizes`;
    an "i32" takes the lower half of the size. `aligned`: numbers of the arguments that are divisible by 16.
    `constants`: values of the `tl.constexpr` arguments, which follow, by name. `grid`: up to three numbers of
    programs, as expressions of `Kernel.sizes`; a launch without programs is left out.

    Of a `horizontal` kernel, the arguments are a table of its rows and their number, and `grid` is that of one row.

    Filled in by compilation: `binary` (a cubin for `arch`), `entry` (the name of the function in it), `num_warps` as
    compiled, `shared_bytes`, `hidden` (how many null pointers Triton wants after the arguments of the signature).
    """

    name: str
    source: str
    signature: tuple[str, ...]
    aligned: tuple[int, ...] = ()
    constants: tuple[tuple[str, int], ...] = ()
    grid: tuple[Size, ...] = (1,)
    num_warps: int = 4
    num_stages: int = 1
    arch: str = "sm_90"
    shared_bytes: int = 0
    binary: bytes = b""
    entry: str = ""
    hidden: int = 0


#: What a sequence on a GPU answers when a pointer that comes from outside is not divisible by 16; nothing was launched.
UNALIGNED = 0x7FFFFFFF


@record
class NativeCode:
    """Machine code of all kernels of a program as one flat position-independent image.

    `runs[k]` is the byte offset of the entry that executes the k-th maximal sequence of consecutive Launch steps:
    `void run(void** externals, void** buffers, int64* sizes, int64 threads)`, with `buffers` indexed by
    `buffer_order` and `sizes` by `Program.sizes`. `calls[k]`: the same as a CPython vector call (see
    runtime/launch/native.py).
    `externals` names the addresses the code expects, in table order
    ("gomp:GOMP_parallel", "torch_cpu:Sleef_...").
    `features`: the ISA features the code needs ("avx512f", ...).

    On a GPU (`device` "cuda:0") the image launches `kernels`, of which externals "kernel:K" are the function handles on
    the device and "shared:K" the sizes of shared memory. The 4th argument is the CUDA stream; an entry returns an int64
    which is 0, or says what went wrong: an error code of the driver, or `UNALIGNED`, in the lower half, and in the
    upper the number of the sequence's launch.

    Image and offsets may be on their way (`being_made`): who reads one of them waits for all.
    """

    image: bytes
    runs: tuple[int, ...]
    buffer_order: tuple[str, ...]
    externals: tuple[str, ...]
    features: tuple[str, ...]
    kernel_names: tuple[str, ...] = ()
    source: str = field(default="", compare=False)
    calls: tuple[int, ...] = field(default_factory=tuple)
    device: str = "cpu"
    kernels: tuple[DeviceKernel, ...] = ()

    @classmethod
    def being_made(cls, rest: Callable[[], Mapping[str, Any]], **known: Any) -> NativeCode:
        """Code of which `known` are all fields but `image`, `runs` and `calls`. `rest` gives these to whoever reads one
        of them first, where it may raise `CompileError`; threads that read at the same time each call it."""
        code = object.__new__(cls)
        code.__dict__.update(known, _rest=rest)
        return code

    def __getstate__(self) -> dict[str, Any]:
        """All fields, for copies and for other processes."""
        return {each.name: getattr(self, each.name) for each in fields(self)}

    if not TYPE_CHECKING:  # all fields are declared

        def __getattr__(self, name: str) -> Any:
            values = self.__dict__
            if name in ("image", "runs", "calls"):
                rest = values.get("_rest")
                if rest is not None:
                    values.update(rest())
                    values.pop("_rest", None)
                if name in values:
                    return values[name]
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

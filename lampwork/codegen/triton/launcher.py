"""The machine code that launches kernels: a small interpreter of tables, the same for every program.

`CODE` is `TEXT`, compiled once by LLVM for every x86-64 processor, so that a program for a GPU needs no LLVM, which
takes 0.2 s to import. `python -m lampwork.codegen.triton.launcher` prints it.

    run(externals, buffers, sizes, stream, table) -> i64     see `NativeCode`
    call(self, args, table) -> PyObject*                     the same for a CPython function of three integers

The first externals are `EXTERNALS`; each kernel's handle is followed by its size of shared memory. A table is an array
of 32-bit words:

    checked, steps, launches, start       how many there are of each, and the word where they begin
    constants                             64 bits each, up to `start`
    checked times   place                 of a pointer in `buffers` that must be divisible by 16
    steps times     op, a, b              the next value is `a op b`; ops are `OPERATIONS`
    launches times  kernel, position, x, y, z, threads, count, count arguments

Operands, grids and arguments are byte offsets, a multiple of 4, plus what they are offsets into: 0 `buffers`,
1 `sizes`, 2 the table, 3 the values. An argument's address is handed to the driver as it is; a launch without programs
is left out.
"""

from __future__ import annotations

EXTERNALS = (
    "cuda:cuLaunchKernel", "python:PyLong_AsVoidPtr", "python:PyEval_SaveThread", "python:PyEval_RestoreThread",
    "python:PyLong_FromLongLong",
)  # fmt: skip
OPERATIONS = ("add", "mul", "floordiv", "mod", "min", "max")
BUFFERS, SIZES, TABLE, VALUES = range(4)

#: Most values of one table, and most arguments of one kernel.
MOST_VALUES, MOST_ARGUMENTS = 256, 500

#: Division is floor division; a divisor below one, as of an empty tensor's size, counts as one.
TEXT = """target triple = "x86_64-unknown-linux-gnu"
define internal ptr @address(i32 %word, ptr %buffers, ptr %sizes, ptr %table, ptr %values) alwaysinline {
  %kind = and i32 %word, 3
  %bytes = and i32 %word, -4
  %offset = zext i32 %bytes to i64
  %is_buffer = icmp eq i32 %kind, 0
  %is_size = icmp eq i32 %kind, 1
  %is_table = icmp eq i32 %kind, 2
  %last = select i1 %is_table, ptr %table, ptr %values
  %late = select i1 %is_size, ptr %sizes, ptr %last
  %base = select i1 %is_buffer, ptr %buffers, ptr %late
  %address = getelementptr i8, ptr %base, i64 %offset
  ret ptr %address
}
define internal i32 @field(ptr %record, i64 %number) alwaysinline {
  %place = getelementptr i32, ptr %record, i64 %number
  %word = load i32, ptr %place, align 4
  ret i32 %word
}
define internal i64 @operand(ptr %record, i64 %number, ptr %buffers, ptr %sizes, ptr %table,
                             ptr %values) alwaysinline {
  %word = call i32 @field(ptr %record, i64 %number)
  %address = call ptr @address(i32 %word, ptr %buffers, ptr %sizes, ptr %table, ptr %values)
  %value = load i64, ptr %address, align 8
  ret i64 %value
}
define internal ptr @pointer(ptr %array, i64 %number) alwaysinline {
  %place = getelementptr ptr, ptr %array, i64 %number
  %pointer = load ptr, ptr %place, align 8
  ret ptr %pointer
}
define i64 @run(ptr %externals, ptr %buffers, ptr %sizes, i64 %stream, ptr %table) #0 {
entry:
  %values = alloca [256 x i64], align 16
  %parameters = alloca [512 x ptr], align 16
  %checked = load i32, ptr %table, align 4
  %steps = call i32 @field(ptr %table, i64 1)
  %launches = call i32 @field(ptr %table, i64 2)
  %start_word = call i32 @field(ptr %table, i64 3)
  %start_wide = zext i32 %start_word to i64
  %first = getelementptr i32, ptr %table, i64 %start_wide
  br label %checking
checking:
  %check = phi i32 [ 0, %entry ], [ %checks, %look ]
  %bits = phi i64 [ 0, %entry ], [ %more, %look ]
  %place = phi ptr [ %first, %entry ], [ %further, %look ]
  %left = icmp ult i32 %check, %checked
  br i1 %left, label %look, label %looked
look:
  %slot = load i32, ptr %place, align 4
  %wide = zext i32 %slot to i64
  %pointer_place = getelementptr i64, ptr %buffers, i64 %wide
  %pointer = load i64, ptr %pointer_place, align 8
  %more = or i64 %bits, %pointer
  %further = getelementptr i32, ptr %place, i64 1
  %checks = add i32 %check, 1
  br label %checking
looked:
  %odd = and i64 %bits, 15
  %fine = icmp eq i64 %odd, 0
  br i1 %fine, label %computing, label %unaligned
unaligned:
  ret i64 2147483647
computing:
  %step = phi i32 [ 0, %looked ], [ %step_next, %computed ]
  %instruction = phi ptr [ %place, %looked ], [ %instruction_next, %computed ]
  %steps_left = icmp ult i32 %step, %steps
  br i1 %steps_left, label %compute, label %launching
compute:
  %op = load i32, ptr %instruction, align 4
  %a = call i64 @operand(ptr %instruction, i64 1, ptr %buffers, ptr %sizes, ptr %table, ptr %values)
  %b = call i64 @operand(ptr %instruction, i64 2, ptr %buffers, ptr %sizes, ptr %table, ptr %values)
  %b_positive = icmp sgt i64 %b, 1
  %divisor = select i1 %b_positive, i64 %b, i64 1
  %quotient = sdiv i64 %a, %divisor
  %remainder = srem i64 %a, %divisor
  %is_negative = icmp slt i64 %remainder, 0
  %lower = sub i64 %quotient, 1
  %floor = select i1 %is_negative, i64 %lower, i64 %quotient
  %upper_rest = add i64 %remainder, %divisor
  %rest = select i1 %is_negative, i64 %upper_rest, i64 %remainder
  %sum = add i64 %a, %b
  %product = mul i64 %a, %b
  %is_less = icmp slt i64 %a, %b
  %smaller = select i1 %is_less, i64 %a, i64 %b
  %larger = select i1 %is_less, i64 %b, i64 %a
  %is_add = icmp eq i32 %op, 0
  %is_mul = icmp eq i32 %op, 1
  %is_div = icmp eq i32 %op, 2
  %is_mod = icmp eq i32 %op, 3
  %is_min = icmp eq i32 %op, 4
  %r4 = select i1 %is_min, i64 %smaller, i64 %larger
  %r3 = select i1 %is_mod, i64 %rest, i64 %r4
  %r2 = select i1 %is_div, i64 %floor, i64 %r3
  %r1 = select i1 %is_mul, i64 %product, i64 %r2
  %r0 = select i1 %is_add, i64 %sum, i64 %r1
  br label %computed
computed:
  %value_index = zext i32 %step to i64
  %value_place = getelementptr i64, ptr %values, i64 %value_index
  store i64 %r0, ptr %value_place, align 8
  %instruction_next = getelementptr i32, ptr %instruction, i64 3
  %step_next = add i32 %step, 1
  br label %computing
launching:
  %launch = phi i32 [ 0, %computing ], [ %following, %launched ]
  %record = phi ptr [ %instruction, %computing ], [ %argument, %launched ]
  %some = icmp ult i32 %launch, %launches
  br i1 %some, label %fill, label %done
done:
  ret i64 0
fill:
  %count = call i32 @field(ptr %record, i64 6)
  %arguments = getelementptr i32, ptr %record, i64 7
  br label %filling
filling:
  %number = phi i32 [ 0, %fill ], [ %next, %fill_one ]
  %argument = phi ptr [ %arguments, %fill ], [ %behind, %fill_one ]
  %unfilled = icmp ult i32 %number, %count
  br i1 %unfilled, label %fill_one, label %measure
fill_one:
  %word = load i32, ptr %argument, align 4
  %value = call ptr @address(i32 %word, ptr %buffers, ptr %sizes, ptr %table, ptr %values)
  %which = zext i32 %number to i64
  %filled = getelementptr ptr, ptr %parameters, i64 %which
  store ptr %value, ptr %filled, align 8
  %behind = getelementptr i32, ptr %argument, i64 1
  %next = add i32 %number, 1
  br label %filling
measure:
  %position = call i32 @field(ptr %record, i64 1)
  %x_wide = call i64 @operand(ptr %record, i64 2, ptr %buffers, ptr %sizes, ptr %table, ptr %values)
  %y_wide = call i64 @operand(ptr %record, i64 3, ptr %buffers, ptr %sizes, ptr %table, ptr %values)
  %z_wide = call i64 @operand(ptr %record, i64 4, ptr %buffers, ptr %sizes, ptr %table, ptr %values)
  %xy = mul i64 %x_wide, %y_wide
  %programs = mul i64 %xy, %z_wide
  %nothing = icmp eq i64 %programs, 0
  br i1 %nothing, label %launched, label %fits
fits:
  %x_or_y = or i64 %x_wide, %y_wide
  %any = or i64 %x_or_y, %z_wide
  %too_many = icmp ugt i64 %any, 2147483647
  br i1 %too_many, label %failed, label %start
start:
  %function_index = load i32, ptr %record, align 4
  %function_wide = zext i32 %function_index to i64
  %function_place = getelementptr ptr, ptr %externals, i64 %function_wide
  %function = load ptr, ptr %function_place, align 8
  %shared_place = getelementptr ptr, ptr %function_place, i64 1
  %shared_wide = load i64, ptr %shared_place, align 8
  %shared = trunc i64 %shared_wide to i32
  %x = trunc i64 %x_wide to i32
  %y = trunc i64 %y_wide to i32
  %z = trunc i64 %z_wide to i32
  %threads = call i32 @field(ptr %record, i64 5)
  %queue = inttoptr i64 %stream to ptr
  %driver = load ptr, ptr %externals, align 8
  %code = call i32 %driver(ptr %function, i32 %x, i32 %y, i32 %z, i32 %threads, i32 1, i32 1, i32 %shared, ptr %queue,
                           ptr %parameters, ptr null)
  %bad = icmp ne i32 %code, 0
  br i1 %bad, label %failed, label %launched
launched:
  %following = add i32 %launch, 1
  br label %launching
failed:
  %error = phi i32 [ %code, %start ], [ 1, %fits ]
  %error_wide = zext i32 %error to i64
  %position_wide = zext i32 %position to i64
  %upper = shl i64 %position_wide, 32
  %answer = or i64 %upper, %error_wide
  ret i64 %answer
}
define ptr @call(ptr %self, ptr %args, ptr %table) #0 {
entry:
  %externals = getelementptr i8, ptr %self, i64 32
  %convert = call ptr @pointer(ptr %externals, i64 1)
  %arg0 = load ptr, ptr %args, align 8
  %arg1 = call ptr @pointer(ptr %args, i64 1)
  %arg2 = call ptr @pointer(ptr %args, i64 2)
  %buffers = call ptr %convert(ptr %arg0)
  %sizes = call ptr %convert(ptr %arg1)
  %pointer = call ptr %convert(ptr %arg2)
  %stream = ptrtoint ptr %pointer to i64
  %save = call ptr @pointer(ptr %externals, i64 2)
  %state = call ptr %save()
  %code = call i64 @run(ptr %externals, ptr %buffers, ptr %sizes, i64 %stream, ptr %table)
  %restore = call ptr @pointer(ptr %externals, i64 3)
  call void %restore(ptr %state)
  %number = call ptr @pointer(ptr %externals, i64 4)
  %answer = call ptr %number(i64 %code)
  ret ptr %answer
}
attributes #0 = { nounwind noinline "no-builtins" }
"""


def compiled() -> tuple[bytes, dict[str, int]]:
    """`TEXT` as machine code, and where its functions begin. Loads LLVM."""
    import llvmlite.binding as llvm

    from lampwork.codegen.llvm.compile import TRIPLE
    from lampwork.codegen.llvm.link import link

    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    machine = llvm.Target.from_triple(TRIPLE).create_target_machine(cpu="x86-64", opt=2, reloc="pic", codemodel="small")
    module = llvm.parse_assembly(TEXT)
    with llvm.create_pass_builder(machine, llvm.create_pipeline_tuning_options(1)) as builder:
        manager = llvm.create_new_module_pass_manager()
        manager.add_always_inliner_pass()
        manager.run(module, builder)
    return link(bytes(machine.emit_object(module)))


CODE = bytes.fromhex(
    "554157415641554154534881ec281800004c89c348894c24184989d74989f448897c2410418b00418b7004418b4808894c2404418b480c49"
    "8d3c8831c931d239c2731e666666662e0f1f840000000000448b074b0b0cc44883c704ffc239c272eff6c10f740ab8ffffff7fe98b020000"
    "4531c04c8d4c2420e9830000000f1f00448b1783e0fc488b0c014889c84c09d848c1e8200f84d60000004889c8489949f7fb4c8d68ff4901"
    "d34885d24c0f49e84c0f49da4a8d04314889ca490fafd64c39f14c89f5480f4ce9490f4cce4183fa04480f44cd4183fa03490f44cb4183fa"
    "02490f44cd4183fa01480f44ca4585d2480f44c84a894cc4204883c70c49ffc04139f073778b470489c283e2034889d983fa0274034c89c9"
    "83fa01490f44cf85d2490f44cc8b57084189d24183e2034989db4183fa0274034d89cb83e2fc4183fa014d0f44df4585d24d0f44dc4d8b34"
    "134d89f34d85f60f8f23ffffff41bb01000000e918ffffff0f1f84000000000089c831d241f7f3e926ffffff4531db4c8d6c2420eb10662e"
    "0f1f84000000000041ffc34c89f7443b5c24040f83450100008b47184c8d771c31c9eb280f1f400083e2fc4183f801490f44f74585c0490f"
    "44f44801d64889b4cc200800004983c60448ffc139c17318418b164189d04183e0034889de4183f80274c54c89eeebc08b470889c183e103"
    "83e0fc83f9024c89ea480f44d383f901490f44d785c9490f44d48b4f0c4189c84183e00383e1fc4183f8024d89e94c0f44cb4183f8014d0f"
    "44cf488b34024585c04d0f44cc8b47104189c04183e00383e0fc4183f8024d89ea4c0f44d3498b14094183f8014d0f44d74585c04d0f44d4"
    "498b0c024889f0480fafc2480fafc14885c00f8410ffffff448b47044889f04809d04809c8483dffffff7f77554c894424088b07448b4714"
    "4c8b542410498b3cc2418b44c2084883ec0841b9010000006a00488dac243008000055ff742430506a014c89dd41ff124989eb4883c43085"
    "c00f84b1feffff4c8b442408eb0931c0eb11b80100000089c049c1e0204909c04c89c04881c4281800005b415c415d415e415f5dc30f1f00"
    "55415741564155415453504989d64889fb4c8b7f28488b3e4c8b66084c8b6e1041ffd74889c54c89e741ffd74989c44c89ef41ffd74989c5"
    "ff53304989c7488d7b204889ee4c89e24c89e94d89f0e89dfcffff4989c64c89ffff53384c89f7ff53404883c4085b415c415d415e415f5d"
    "c3"
)
#: Where the functions begin.
RUN, CALL = 0, 784


if __name__ == "__main__":
    print(*compiled())

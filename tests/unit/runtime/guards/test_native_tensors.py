"""Tensors compared natively: machine code and LLVM's compilation of its text agree, and both with what is asked slowly."""

from __future__ import annotations

import ctypes
import platform
import random
from array import array

import pytest
import torch

from lampwork.runtime.guards import interpreter, native_tensors
from tests.unit.runtime.handmade import tensor_guard

pytestmark = pytest.mark.skipif(
    not native_tensors.supported(), reason="tensors are looked at where their fields were found"
)


def sample(**change):
    return torch.empty(3, 4, **change)


def leaf():
    return sample().requires_grad_()


OTHERS = {
    "shape": lambda: torch.empty(4, 3),
    "dimensions": lambda: torch.empty(3, 4, 1),
    "strides": lambda: torch.empty(4, 3).t(),
    "type of elements": lambda: sample(dtype=torch.int32),
    "requires grad": leaf,
    "history": lambda: leaf() * 2,
    "a view of what requires grad": lambda: leaf()[:],
    "parameter": lambda: torch.nn.Parameter(sample()),
    "inference": lambda: torch.inference_mode()(sample)(),
    "negative bit": lambda: torch._neg_view(sample()),
    "meta device": lambda: sample(device="meta"),
    "subclass": lambda: sample().as_subclass(type("Other", (torch.Tensor,), {})),
    "sparse": lambda: sample().zero_().to_sparse(),
    "no tensor": lambda: 3,
    "none": lambda: None,
}

SAME = {
    "new": sample,
    "detached": lambda: sample().detach(),
    "data": lambda: leaf().data,
    "part of another": lambda: torch.empty(5, 3, 4)[2],
    "made without grad": lambda: torch.no_grad()(lambda: leaf() * 2)(),
    "what backward leaves": lambda: backward(),
    "required grad once": lambda: leaf().requires_grad_(False),
}


def backward():
    each = leaf()
    (each * 2).sum().backward()
    return each.grad


@pytest.mark.parametrize("name", OTHERS)
def test_others_are_turned_away(name):
    look = native_tensors.NativeTensorGuard([tensor_guard(sample()), tensor_guard(sample())])
    for known in SAME.values():
        assert look((sample(), known())) is not None
    for _ in range(2):
        assert look((sample(), OTHERS[name]())) is None
        assert look((OTHERS[name](), sample())) is None
    assert look((sample(), sample())) is not None


@pytest.mark.parametrize("name", SAME)
def test_places_are_those_of_the_data(name):
    look = native_tensors.NativeTensorGuard([tensor_guard(sample())] * 3)
    for _ in range(3):
        tensors = (sample(), SAME[name](), sample())
        assert list(look(tensors)) == [each.data_ptr() for each in tensors]


def test_a_leaf_that_requires_grad():
    look = native_tensors.NativeTensorGuard([tensor_guard(leaf())])
    assert look((leaf(),)) and look((leaf(),))
    assert look((sample(),)) is None and look((leaf().requires_grad_(False),)) is None


def test_disjoint_agrees_with_the_slow_way():
    generator = random.Random(0)
    memory = torch.zeros(400)
    test = tensor_guard(torch.zeros(3))
    for _ in range(300):
        count = generator.randrange(1, 9)
        starts = [generator.randrange(0, 200) for _ in range(count)]
        placed = [generator.random() < 0.8 for _ in range(count)]
        look = native_tensors.NativeTensorGuard([test] * count, placed)
        tensors = tuple(memory[start : start + 3] for start in starts)
        places = look(tensors)
        begins = sorted(generator.sample(range(0, 200, 8), generator.randrange(0, 4)))
        ranges = [memory.data_ptr() + 4 * word for begin in begins for word in (begin, begin + 5)]
        asked = [start for start, each in zip(starts, placed) if each]
        pointers, extents = [*asked, *begins], [3] * len(asked) + [5] * len(begins)
        expected = interpreter.aliasing_is(pointers, extents, ())
        assert look.disjoint(places, array("Q", [len(begins), *ranges])) is expected
        begin = generator.randrange(0, 200)
        touched = any(start < begin + 2 and begin < start + 3 for start in asked)
        assert look.touch(places, memory.data_ptr() + 4 * begin, 8) is touched
        assert not look.touch(places, memory.data_ptr() + 4 * begin, 0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.int64])
def test_numbers_that_are_the_same(dtype):
    numbers = [torch.tensor(3, dtype=dtype) for _ in range(5)]
    same = native_tensors.SameNumbers(numbers)
    assert same()
    for each in numbers:
        each.add_(1)
    assert same()
    numbers[4].add_(1)
    assert not same()
    with pytest.raises(ValueError):
        native_tensors.SameNumbers([torch.zeros(2), torch.zeros(2)])


def test_a_number_that_is_none_is_not_itself():
    assert not native_tensors.SameNumbers([torch.tensor(float("nan"))] * 2)()


def test_machine_code_is_what_its_source_says(monkeypatch):
    """The bytes in native_tensors.py and LLVM's compilation of the text below give the same answers."""
    llvm = pytest.importorskip("llvmlite.binding")
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    machine = llvm.Target.from_default_triple().create_target_machine(opt=2, reloc="pic")
    engine = llvm.create_mcjit_compiler(llvm.parse_assembly(TEXT), machine)
    engine.finalize_object()
    word = ctypes.c_int64
    functions = tuple(
        ctypes.PYFUNCTYPE(word, *[word] * count)(engine.get_function_address(name))
        for name, count in (("look", 4), ("disjoint", 5), ("touches", 5), ("same", 3))
    )
    monkeypatch.setattr(native_tensors, "_functions", lambda: functions)
    test_disjoint_agrees_with_the_slow_way()
    for name in SAME:
        test_places_are_those_of_the_data(name)
    for name in OTHERS:
        test_others_are_turned_away(name)
    test_numbers_that_are_the_same(torch.float32)


def test_there_is_code_for_this_machine():
    assert platform.machine() in native_tensors._MACHINE_CODE


TEXT = """
define i64 @look(ptr %items, ptr %table, ptr %places, i64 %start) #0 {
entry:
  %count = load i64, ptr %table
  %handle = call i64 @at(ptr %table, i64 1)
  %storage_offset = call i64 @at(ptr %table, i64 2)
  %autograd = call i64 @at(ptr %table, i64 3)
  %requires_grad = call i64 @at(ptr %table, i64 4)
  %grad_fn = call i64 @at(ptr %table, i64 5)
  %data = call i64 @at(ptr %table, i64 6)
  %offset = call i64 @at(ptr %table, i64 7)
  %traits = call i64 @at(ptr %table, i64 8)
  %plain = call i64 @at(ptr %table, i64 9)
  br label %item
item:
  %i = phi i64 [ %start, %entry ], [ %i_next, %found ]
  %some = icmp ult i64 %i, %count
  br i1 %some, label %begin, label %done
begin:
  %object_place = getelementptr ptr, ptr %items, i64 %i
  %object = load ptr, ptr %object_place
  %row = add i64 %i, 10
  %pattern_word = call i64 @at(ptr %table, i64 %row)
  %pattern = inttoptr i64 %pattern_word to ptr
  %type = call i64 @at(ptr %object, i64 1)
  %type_wanted = load i64, ptr %pattern
  %type_fits = icmp eq i64 %type, %type_wanted
  br i1 %type_fits, label %typed, label %done
typed:
  %impl_word = call i64 @byte_at(ptr %object, i64 %handle)
  %impl = inttoptr i64 %impl_word to ptr
  %found_traits = call i64 @byte_at(ptr %impl, i64 %traits)
  %t0 = call i64 @at(ptr %pattern, i64 3)
  %t1 = call i64 @at(ptr %pattern, i64 4)
  %t2 = call i64 @at(ptr %pattern, i64 5)
  %t3 = call i64 @at(ptr %pattern, i64 6)
  %is0 = icmp eq i64 %found_traits, %t0
  %is1 = icmp eq i64 %found_traits, %t1
  %is2 = icmp eq i64 %found_traits, %t2
  %is3 = icmp eq i64 %found_traits, %t3
  %is01 = or i1 %is0, %is1
  %is23 = or i1 %is2, %is3
  %is_one = or i1 %is01, %is23
  br i1 %is_one, label %fields, label %done
fields:
  %fields_left = call i64 @at(ptr %pattern, i64 7)
  %first = getelementptr i64, ptr %pattern, i64 8
  br label %field
field:
  %left = phi i64 [ %fields_left, %fields ], [ %left_next, %field_fits ]
  %place = phi ptr [ %first, %fields ], [ %place_next, %field_fits ]
  %any = icmp ne i64 %left, 0
  br i1 %any, label %field_look, label %history
field_look:
  %field_offset = load i64, ptr %place
  %field_wanted = call i64 @at(ptr %place, i64 1)
  %field_found = call i64 @byte_at(ptr %impl, i64 %field_offset)
  %fits = icmp eq i64 %field_found, %field_wanted
  br i1 %fits, label %field_fits, label %done
field_fits:
  %left_next = sub i64 %left, 1
  %place_next = getelementptr i64, ptr %place, i64 2
  br label %field
history:
  %wanted = call i64 @at(ptr %pattern, i64 2)
  %meta_word = call i64 @byte_at(ptr %impl, i64 %autograd)
  %meta = inttoptr i64 %meta_word to ptr
  %has_meta = icmp ne i64 %meta_word, 0
  br i1 %has_meta, label %look_meta, label %no_meta
no_meta:
  %none_wanted = icmp eq i64 %wanted, 0
  br i1 %none_wanted, label %memory, label %done
look_meta:
  %kind = load i64, ptr %meta
  %is_plain = icmp eq i64 %kind, %plain
  br i1 %is_plain, label %plain_meta, label %done
plain_meta:
  %node = call i64 @byte_at(ptr %meta, i64 %grad_fn)
  %no_node = icmp eq i64 %node, 0
  %flag_place = getelementptr i8, ptr %meta, i64 %requires_grad
  %flag = load i8, ptr %flag_place
  %flag_wide = zext i8 %flag to i64
  %flag_fits = icmp eq i64 %flag_wide, %wanted
  %meta_fits = and i1 %no_node, %flag_fits
  br i1 %meta_fits, label %memory, label %done
memory:
  %storage_word = call i64 @byte_at(ptr %impl, i64 %storage_offset)
  %storage = inttoptr i64 %storage_word to ptr
  %has_storage = icmp ne i64 %storage_word, 0
  br i1 %has_storage, label %look_storage, label %done
look_storage:
  %base = call i64 @byte_at(ptr %storage, i64 %data)
  %has_data = icmp ne i64 %base, 0
  br i1 %has_data, label %found, label %done
found:
  %elements = call i64 @byte_at(ptr %impl, i64 %offset)
  %item_bytes = call i64 @at(ptr %pattern, i64 1)
  %bytes = mul i64 %elements, %item_bytes
  %address = add i64 %base, %bytes
  %out = getelementptr i64, ptr %places, i64 %i
  store i64 %address, ptr %out
  %i_next = add i64 %i, 1
  br label %item
done:
  ret i64 %i
}
define internal i64 @at(ptr %base, i64 %index) alwaysinline {
  %place = getelementptr i64, ptr %base, i64 %index
  %word = load i64, ptr %place
  ret i64 %word
}
define internal i64 @byte_at(ptr %base, i64 %offset) alwaysinline {
  %place = getelementptr i8, ptr %base, i64 %offset
  %word = load i64, ptr %place
  ret i64 %word
}
define i64 @disjoint(ptr %places, ptr %extents, ptr %order, i64 %count, ptr %ranges) #0 {
entry:
  %gap_first = lshr i64 %count, 1
  br label %gaps
gaps:
  %gap = phi i64 [ %gap_first, %entry ], [ %gap_next, %gapped ]
  %sorting = icmp ne i64 %gap, 0
  br i1 %sorting, label %insert, label %sorted
insert:
  %n = phi i64 [ %gap, %gaps ], [ %n_next, %inserted ]
  %more = icmp ult i64 %n, %count
  br i1 %more, label %take, label %gapped
take:
  %taken_place = getelementptr i64, ptr %order, i64 %n
  %taken = load i64, ptr %taken_place
  %key = call i64 @at(ptr %places, i64 %taken)
  br label %shift
shift:
  %hole = phi i64 [ %n, %take ], [ %before, %move ]
  %room = icmp uge i64 %hole, %gap
  br i1 %room, label %compare, label %inserted
compare:
  %before = sub i64 %hole, %gap
  %other = call i64 @at(ptr %order, i64 %before)
  %other_key = call i64 @at(ptr %places, i64 %other)
  %larger = icmp ugt i64 %other_key, %key
  br i1 %larger, label %move, label %inserted
move:
  %hole_place = getelementptr i64, ptr %order, i64 %hole
  store i64 %other, ptr %hole_place
  br label %shift
inserted:
  %last_place = getelementptr i64, ptr %order, i64 %hole
  store i64 %taken, ptr %last_place
  %n_next = add i64 %n, 1
  br label %insert
gapped:
  %gap_next = lshr i64 %gap, 1
  br label %gaps
sorted:
  %range_count = load i64, ptr %ranges
  br label %next
next:
  %k = phi i64 [ 0, %sorted ], [ %k_next, %clear ]
  %previous = phi i64 [ 0, %sorted ], [ %end, %clear ]
  %range = phi i64 [ 0, %sorted ], [ %range_now, %clear ]
  %left = icmp ult i64 %k, %count
  br i1 %left, label %one, label %yes
one:
  %index = call i64 @at(ptr %order, i64 %k)
  %begin = call i64 @at(ptr %places, i64 %index)
  %extent = call i64 @at(ptr %extents, i64 %index)
  %is_asked = icmp ne i64 %extent, 0
  br i1 %is_asked, label %asked, label %clear
asked:
  %own_end = add i64 %begin, %extent
  %overlaps = icmp ult i64 %begin, %previous
  br i1 %overlaps, label %no, label %skip
skip:
  %range_at = phi i64 [ %range, %asked ], [ %range_next, %skipped ]
  %has_range = icmp ult i64 %range_at, %range_count
  br i1 %has_range, label %behind, label %clear
behind:
  %twice = shl i64 %range_at, 1
  %range_begin_at = add i64 %twice, 1
  %range_end_at = add i64 %twice, 2
  %range_end = call i64 @at(ptr %ranges, i64 %range_end_at)
  %is_behind = icmp ule i64 %range_end, %begin
  br i1 %is_behind, label %skipped, label %before_range
skipped:
  %range_next = add i64 %range_at, 1
  br label %skip
before_range:
  %range_begin = call i64 @at(ptr %ranges, i64 %range_begin_at)
  %inside = icmp ult i64 %range_begin, %own_end
  br i1 %inside, label %no, label %clear
clear:
  %end = phi i64 [ %previous, %one ], [ %own_end, %skip ], [ %own_end, %before_range ]
  %range_now = phi i64 [ %range, %one ], [ %range_at, %skip ], [ %range_at, %before_range ]
  %k_next = add i64 %k, 1
  br label %next
yes:
  ret i64 1
no:
  ret i64 0
}
define i64 @touches(i64 %begin, i64 %end, ptr %places, ptr %extents, i64 %count) #0 {
entry:
  br label %next
next:
  %i = phi i64 [ 0, %entry ], [ %i_next, %clear ]
  %left = icmp ult i64 %i, %count
  br i1 %left, label %one, label %no
one:
  %place = call i64 @at(ptr %places, i64 %i)
  %extent = call i64 @at(ptr %extents, i64 %i)
  %place_end = add i64 %place, %extent
  %ends_behind = icmp ult i64 %begin, %place_end
  %begins_before = icmp ult i64 %place, %end
  %overlaps_any = and i1 %ends_behind, %begins_before
  %is_asked = icmp ne i64 %extent, 0
  %overlaps = and i1 %overlaps_any, %is_asked
  br i1 %overlaps, label %yes, label %clear
clear:
  %i_next = add i64 %i, 1
  br label %next
yes:
  ret i64 1
no:
  ret i64 0
}
define internal i64 @number(ptr %places, i64 %index, i1 %wide) alwaysinline {
entry:
  %word = call i64 @at(ptr %places, i64 %index)
  %place = inttoptr i64 %word to ptr
  br i1 %wide, label %eight, label %four
eight:
  %long = load i64, ptr %place
  br label %done
four:
  %short = load i32, ptr %place
  %extended = zext i32 %short to i64
  br label %done
done:
  %bits = phi i64 [ %long, %eight ], [ %extended, %four ]
  ret i64 %bits
}
define i64 @same(ptr %places, i64 %count, i64 %item_bytes) #0 {
entry:
  %wide = icmp eq i64 %item_bytes, 8
  %first = call i64 @number(ptr %places, i64 0, i1 %wide)
  br label %next
next:
  %i = phi i64 [ 1, %entry ], [ %i_next, %equal ]
  %left = icmp ult i64 %i, %count
  br i1 %left, label %one, label %yes
one:
  %bits = call i64 @number(ptr %places, i64 %i, i1 %wide)
  %is_equal = icmp eq i64 %bits, %first
  br i1 %is_equal, label %equal, label %no
equal:
  %i_next = add i64 %i, 1
  br label %next
yes:
  ret i64 1
no:
  ret i64 0
}
attributes #0 = { nounwind noinline "no-builtins" }
"""

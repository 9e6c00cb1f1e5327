"""The registry of diagnostics: every id that Lampwork can tell a user, what it means and what to do about it.

Each id has a page, docs/diagnostics/<id>.md, with the smallest program that shows it. A test finds every id that the
code makes, runs the programs of the pages, and says what is missing.
"""

from __future__ import annotations

from typing import Literal

from lampwork.errors import Diagnostic, page_of
from lampwork.ir.record import record

Kind = Literal["break", "fallback", "recompile", "specialised", "fusion", "graph", "error"]

#: What a kind of diagnostic is called.
KINDS: dict[Kind, str] = {
    "break": "a break",
    "fallback": "a fall-back",
    "recompile": "a recompile",
    "specialised": "a fixed size",
    "fusion": "a refused fusion",
    "graph": "a refused CUDA graph",
    "error": "an error",
}


@record
class Meaning:
    """One id: its kind, one sentence on what happened, and what its user can do. A remedy that begins with "None" says
    that there is nothing to do (`asks_for_nothing`)."""

    kind: Kind
    meaning: str
    remedy: str


def meaning_of(id: str) -> Meaning:
    """The registered meaning; an honest blank for an id that is not registered (a back end's own)."""
    return DIAGNOSTICS.get(id) or Meaning("fallback", "No page describes this id.", "")


def remedy_of(diagnostic: Diagnostic) -> str:
    """What to do: as the diagnostic says, else as its page does."""
    return diagnostic.remedy or meaning_of(diagnostic.id).remedy


def asks_for_nothing(remedy: str) -> bool:
    return not remedy or remedy.startswith("None")


def index_text() -> str:
    """The text of docs/diagnostics/README.md."""
    lines = ["# Diagnostics", "", INTRODUCTION, ""]
    for kind, title in KINDS.items():
        lines += [f"## {title.partition(' ')[2].capitalize()}", "", "| id | |", "|---|---|"]
        lines += [
            f"| [{id}]({id}.md) | {each.meaning} |" for id, each in sorted(DIAGNOSTICS.items()) if each.kind == kind
        ]
        lines.append("")
    return "\n".join(lines)


INTRODUCTION = """Whatever keeps a program from running as one compiled piece has an id, which warnings,
`lampwork.stats` and `lampwork.explain` print. Each page says what the id means, shows the smallest program that brings
it up, and says what to do and what it costs."""

DIAGNOSTICS: dict[str, Meaning] = {
    # Break --------------------------------------------------------------------------------------------------------
    "aliasing": Meaning(
        "break",
        "Two tensors of the call share memory through different storages, or as element types that do not fit.",
        "Derive both from one tensor, or clone one of them.",
    ),
    "attribute-write": Meaning(
        "break",
        "An attribute that native code stores is written on an object from outside.",
        "Write it outside, or keep the value in an ordinary attribute.",
    ),
    "autograd": Meaning(
        "break",
        "Gradients flow into the history that a tensor has from outside, or are taken of objects that are no tensors.",
        "Compute what is differentiated inside the compiled function, or call `backward()` outside of it.",
    ),
    "autograd-function": Meaning(
        "break",
        "A custom autograd function is applied with arguments by name, or inside of a function transform.",
        "Give the arguments by position, or run inference under `torch.no_grad()`.",
    ),
    "backward-effect": Meaning(
        "break",
        "A hook or a backward method of the program does more than compute, so eager's engine must call it.",
        "Take the gradients inside of the compiled function, where it is part of the graph.",
    ),
    "cached-function": Meaning(
        "break",
        "A function behind `functools.lru_cache` is called with tensors or objects, or returns some.",
        "Cache outside the compiled function, or take the cache off: compiled code computes constants once anyway.",
    ),
    "capture-failed": Meaning(
        "break",
        "Lampwork's own code failed while it recorded an operation, which runs natively.",
        "Report it: the reason and the line are what is needed.",
    ),
    "class-made": Meaning(
        "break",
        "A class is made whose creation runs code of the program from C: `__init_subclass__`, `__set_name__`.",
        "Define the class outside the compiled function.",
    ),
    "class-write": Meaning(
        "break",
        "An attribute of a class from outside is deleted, or one whose name begins with two underscores is written.",
        "Keep state that changes from call to call in an instance.",
    ),
    "comparison": Meaning(
        "break",
        "Tensors or objects are compared from native code: an order of containers, `itertools.groupby`, keys of dicts.",
        "Compare the elements with statements of your own.",
    ),
    "context": Meaning(
        "break",
        "A context implemented in C, such as `torch.inference_mode()`, is entered where the graph breaks, or a "
        "dispatch mode is entered. Or the program catches an error while its caller handles another one.",
        "Break outside of the context, or enter it around the call. Call the program after the `except` block.",
    ),
    "control-flow": Meaning(
        "break",
        "A function given to `torch.cond`, `while_loop`, `scan` or `map` is no graph of its own: it draws random "
        "numbers, finds sizes in contents, changes something, or returns what it was given.",
        "Let such functions compute new tensors from those that they are given, and nothing else; draw random numbers "
        "before.",
    ),
    "custom-operator": Meaning(
        "break",
        "A custom operator says too little about itself: what its results look like, or which memory they share.",
        "Register a fake implementation (`@op.register_fake`); return copies, not views; write to no memory twice.",
    ),
    "data-dependent": Meaning(
        "break",
        "The program asks for the contents of a tensor while it is being captured: `bool(tensor)`, a branch "
        "on `x[mask].shape[0]`, a loop over what a mask picks.",
        "Keep the value in a tensor: `torch.where` in place of a branch, masks in place of indices; or compute it "
        "outside.",
    ),
    "data-identity": Meaning(
        "break",
        "Whether two equal numbers, texts or tuples are one object is asked, which may change from call to call.",
        "Compare data with `==`.",
    ),
    "dict-key": Meaning(
        "break",
        "A dict or set from outside has a key that is made anew each time it is read, such as a method of an object.",
        "Use strings, numbers, functions, classes or objects of Python classes as keys.",
    ),
    "disabled": Meaning(
        "break",
        "A function is called that is marked as not to be compiled.",
        "Take the mark off, or leave it: the function runs as it was written.",
    ),
    "empty-cell": Meaning(
        "break",
        "A closure variable from outside is read before it has a value.",
        "Give the variable a value before the function is called.",
    ),
    "exception": Meaning(
        "break",
        "The program raised an exception that it does not catch itself.",
        "Look at the exception: it is the program's own. A program that catches its exceptions is compiled whole.",
    ),
    "fake-escaped": Meaning(
        "break",
        "A stand-in of capture is met where real tensors are expected, or the other way round.",
        "Report it: native code kept a tensor that capture had handed it.",
    ),
    "foreign-generator": Meaning(
        "break",
        "A random operator draws from a generator of the program's own.",
        "Use the default generator, seeded by `torch.manual_seed`.",
    ),
    "foreign-tensor": Meaning(
        "break",
        "A tensor turns up that the program did not get from its arguments, globals, closures or attributes.",
        "Pass the tensor as an argument, or keep it in an attribute of a module.",
    ),
    "hash": Meaning(
        "break",
        "`hash()` of an object from native code is used.",
        "Compute with something else than hashes, or compute them outside.",
    ),
    "identity-number": Meaning(
        "break",
        "A number that differs from process to process, as `id()` and `hash()` give it, is looked at.",
        "Use identities as keys and compare them with each other only.",
    ),
    "import": Meaning(
        "break",
        "An import is made that no guard can describe: `from module import *`, or in a namespace that is no module's.",
        "Import at the top of the file.",
    ),
    "large-literal": Meaning(
        "break",
        "A tensor of more than a mebibyte is made from Python data.",
        "Make large tables once and register them as buffers.",
    ),
    "legacy-constructor": Meaning(
        "break",
        "`torch.Tensor` or one of its old relatives is called with something else than sizes or numbers.",
        "Use `torch.tensor` or `torch.empty`.",
    ),
    "logging": Meaning(
        "break",
        "A message is logged with more than plain data.",
        "Log outside the compiled function; messages whose level is off cost nothing.",
    ),
    "native-argument": Meaning(
        "break",
        "A native function that is known is called with objects that it may run code of, or that it cannot describe.",
        "Pass it plain numbers, strings and containers of them.",
    ),
    "finalizer": Meaning(
        "break",
        "An object of a class with a `__del__` is made, which runs at the moment when nothing refers to it any more.",
        "Make it outside the compiled function, or free what it holds in a `with` statement.",
    ),
    "watched": Meaning(
        "break",
        "The program starts a debugger, a tracer or a profiler of Python: `breakpoint()`, `sys.settrace`, `cProfile`.",
        'Start it outside, and call the function eagerly while you debug it: `lampwork.set_stance("force_eager")`.',
    ),
    "native-attribute": Meaning(
        "break",
        "An attribute that native code computes is read, and nothing is known that would guard it.",
        "Read it outside the compiled function and pass what is needed.",
    ),
    "native-call": Meaning(
        "break",
        "A function that acts on the world outside the program is called: `input`, `open`, `sys._getframe`.",
        "Do it outside the compiled function.",
    ),
    "native-class": Meaning(
        "break",
        "A class fills itself from native code that calls back into the program.",
        "Build the object empty and fill it with statements of your own, or make it outside.",
    ),
    "operator-error": Meaning(
        "break",
        "A tensor operator refuses its arguments and raises, for reasons that are not in its metadata alone.",
        "Look at the exception: it is the operator's own.",
    ),
    "opaque-value": Meaning(
        "break",
        "An object from outside is used whose contents cannot be read without running it: iterators, generators, "
        "native objects.",
        "Pass plain data, tensors or objects of Python classes.",
    ),
    "out-resized": Meaning(
        "break",
        "An `out=` tensor would have to be resized that is not empty, or that may share memory: the caller's, or a "
        "view.",
        "Give `out=` a tensor of the result's shape.",
    ),
    "python-hash": Meaning(
        "break",
        "An object whose hash or equality is Python code that does more than read is used as a key.",
        "Use strings, numbers or tuples of them as keys, or objects that keep the hash they were born with.",
    ),
    "random-state": Meaning(
        "break",
        "The state of the random generator is set to something that is not a number or a state of the CPU.",
        "Seed with a 64-bit number.",
    ),
    "region": Meaning(
        "break",
        "A submodule is called that has settings of its own (`lampwork.compile(model, regions=...)`).",
        "Nothing: what stands around it is compiled, and so is the submodule, unless its region is 'eager'.",
    ),
    "result": Meaning(
        "break",
        "The program returns, or leaves behind, an object that cannot be made again from a description.",
        "Return tensors, plain data, containers of these, or objects of ordinary Python classes.",
    ),
    "several-devices": Meaning(
        "break",
        "One program uses tensors on several GPUs, or one operator tensors on a CPU and on a GPU.",
        "Compile the part on each device by itself.",
    ),
    "shared-array": Meaning(
        "break",
        "A numpy array and a tensor share memory, and one of them is written.",
        "Copy the array first.",
    ),
    "storage-changed": Meaning(
        "break",
        "An operator changes the memory or the size of a tensor in place: `resize_`, `set_`.",
        "Make a new tensor in place of it.",
    ),
    "tensor-argument": Meaning(
        "break",
        "A tensor operator is called with an argument that no graph node can hold.",
        "Pass tensors, numbers, dtypes and devices; make other objects into those outside.",
    ),
    "tensor-attribute": Meaning(
        "break",
        "An attribute of a tensor is used that the compiled program cannot reproduce, such as hooks or attributes of "
        "the user's own.",
        "Keep such data beside the tensor, in an object or a dict.",
    ),
    "tensor-copy": Meaning(
        "break",
        "`copy.deepcopy` meets a tensor that is a view of a larger one, or no ordinary tensor.",
        "Call `clone()` on it.",
    ),
    "tensor-device": Meaning(
        "break",
        "A tensor is on a device that this build of PyTorch was made without.",
        "Install a build of PyTorch for that device.",
    ),
    "tensor-layout": Meaning(
        "break",
        "A sparse, quantized or lazily conjugated tensor comes in.",
        "Convert it first: `to_dense()`, `dequantize()`, `resolve_conj()`.",
    ),
    "tensor-subclass": Meaning(
        "break",
        "A tensor of a subclass of `torch.Tensor` is used or made that has gradients or sizes of its own.",
        "Work on plain tensors and parameters inside, or on tensors of subclasses that require no gradient.",
    ),
    "triton-kernel": Meaning(
        "break",
        "A kernel of Triton is launched by the program in a way that no graph holds.",
        "Do what the reason says, or make it an operator: `torch.library.custom_op` with `register_fake`.",
    ),
    "unknown-native": Meaning(
        "break",
        "A function implemented in C is called, and what it does to its arguments is not known.",
        "Call it outside the compiled function, or report it so that it can be added to the table.",
    ),
    "unsupported": Meaning(
        "break",
        "The program does something that the bytecode machine does not interpret, such as `await`.",
        "Keep coroutines out of the compiled function.",
    ),
    "unsupported-operator": Meaning(
        "break",
        "An operator is used in a way that is not put in a graph.",
        "Use the form of the operator that returns a new tensor.",
    ),
    # Fall-back ----------------------------------------------------------------------------------------------------
    "assumption-failed": Meaning(
        "fallback",
        "A check of the program on a tensor's contents failed, and it went on another way: it catches what it raises "
        "then, or asked whether numbers are finite, or took a side that is not usual.",
        "Choose between the two sides by `torch.where`, or check outside the compiled function.",
    ),
    "compiler-failed": Meaning(
        "fallback",
        "A stage of the compiler, or the back end that was given, failed.",
        "Report it with the reproducer that the warning names.",
    ),
    "modes-active": Meaning(
        "fallback",
        "A torch function mode, dispatch mode, function transform, level of forward derivatives or trace is active "
        "around the call.",
        "Call the compiled function outside of it.",
    ),
    "needs-grad": Meaning(
        "fallback",
        "A result of the call requires grad, and its history cannot be tied to the caller's tensors.",
        "Make tensors that require grad outside of the compiled function, or run inference under `torch.no_grad()`.",
    ),
    "double-backward": Meaning(
        "fallback",
        "Gradients of a compiled region are taken with `create_graph=True`: eager computes them, forward included.",
        "Take them inside of the compiled function, where second derivatives are part of the graph.",
    ),
    "gradient-of-zeros": Meaning(
        "fallback",
        "Gradients are taken of results that lead to an input by zeros alone, and of none that it has a gradient of: "
        "eager computes them, forward included.",
        "Take gradients of these results inside of the compiled function, or return them detached.",
    ),
    "no-back-end": Meaning(
        "fallback",
        "Tensors are on a device that no back end of Lampwork compiles for.",
        "Use CPU or CUDA tensors.",
    ),
    "recompile-limit": Meaning(
        "fallback",
        "So many entries were compiled that further calls which fit none of them run eagerly.",
        'Raise `options={"recompile_limit": N}`, or keep the value that changes out of the program.',
    ),
    "run-failed": Meaning(
        "fallback",
        "The compiled program raised an error before it had changed anything, and eager did not.",
        "Report it; under LAMPWORK_STRICT=1 the error is raised.",
    ),
    "stance": Meaning(
        "fallback",
        "The program's stance does not let calls be compiled that no entry serves.",
        'Take the stance back: `lampwork.set_stance("default")` or `torch.compiler.set_stance("default")`.',
    ),
    "tangent-layout": Meaning(
        "fallback",
        'Under `numerics="eager"` a gradient is handed in that is laid out as none before, and is copied: last bits '
        "may differ.",
        "Take the loss inside of the compiled function, where layouts are known, or keep its layout from step to step.",
    ),
    "unstable-state": Meaning(
        "fallback",
        "What the program reads was changed while the call was being compiled.",
        "Do not write to what compiled code reads while another thread makes its first call.",
    ),
    # Recompile ----------------------------------------------------------------------------------------------------
    "recompile": Meaning(
        "recompile",
        "No entry serves the call: a guard of each failed, so the call was compiled again.",
        "Keep what changes out of the program, pass it as a tensor, or compile for changing sizes with `dynamic=True`.",
    ),
    # Fixed size -----------------------------------------------------------------------------------------------------
    "size-specialised": Meaning(
        "specialised",
        "A size that could vary is fixed, as the program needs it as a number.",
        "Use the size in arithmetic and tensor operators only.",
    ),
    # Refused fusion -----------------------------------------------------------------------------------------------
    "fusion-aten-call": Meaning(
        "fusion",
        "The producer or the consumer is an operator of ATen, called as it is: matrix products, convolutions, "
        "attention, sorting.",
        "None is needed where the vendor's operator is the fast one.",
    ),
    "fusion-attention": Meaning(
        "fusion",
        "Two matrix products with a softmax between them do not become one attention kernel.",
        "Do not return or read the weights, if only the result is needed.",
    ),
    "fusion-between": Meaning(
        "fusion",
        "Another kernel must run between the two.",
        "Compute what lies between them first, or last.",
    ),
    "fusion-buffers": Meaning(
        "fusion",
        "Together the two would use more buffers than one kernel is given.",
        "None: processors prefetch a limited number of streams.",
    ),
    "fusion-chain": Meaning(
        "fusion",
        "Together the two would be a longer chain of operations than one kernel is given.",
        "None: what a kernel does is kept to what the compiler's passes take at once.",
    ),
    "fusion-few-rows": Meaning(
        "fusion",
        "Too few rows for too many elements: in one kernel most threads would have no work.",
        "None: apart, all threads can work.",
    ),
    "fusion-gather": Meaning(
        "fusion",
        "The consumer picks elements of the producer's result by indices that are data.",
        "Index first and compute on what was picked, if that is less.",
    ),
    "fusion-layout": Meaning(
        "fusion",
        "What they store, or a sum reads, is laid out in different orders: one along rows, the other along columns.",
        "Keep one memory order; transpose once, at the end.",
    ),
    "fusion-order": Meaning(
        "fusion",
        "The consumer reads the producer's result in another order, or elements that other iterations make.",
        "Read elements where they are made, or shift and flip before computing.",
    ),
    "fusion-overwrite": Meaning(
        "fusion",
        "One of the two overwrites memory that the other reads.",
        "Return a new tensor in place of writing into an input.",
    ),
    "fusion-partial": Meaning(
        "fusion",
        "The producer stores only part of the buffer that the consumer reads whole.",
        "Write the whole tensor with one expression, such as `torch.where` or `torch.cat`.",
    ),
    "fusion-reductions": Meaning(
        "fusion",
        "The two reduce over different axes.",
        "Reduce over the same axes, or over all of them at once.",
    ),
    "fusion-rows": Meaning("fusion", "The two do not run over the same rows.", "None, if one of the two is small."),
    "fusion-scatter": Meaning(
        "fusion",
        "A scatter keeps a kernel of its own: its stores happen in order.",
        "Scatter last.",
    ),
    "fusion-space": Meaning(
        "fusion",
        "The two run over different iteration spaces.",
        "None, unless the shapes can be made equal.",
    ),
    # Refused cuda graph -------------------------------------------------------------------------------------------
    "graph-cpu-operator": Meaning(
        "graph",
        "The program calls an operator on the CPU, which a CUDA graph cannot hold.",
        "Keep its tensors on the GPU.",
    ),
    "graph-failed": Meaning(
        "graph",
        "CUDA refused to capture the program; the reason is CUDA's own.",
        "Look at the reason: an operator that synchronises cannot be captured.",
    ),
    "graph-host-check": Meaning(
        "graph",
        "The host checks a condition that the device computed.",
        "Keep the value on the device: `torch.where` in place of a branch, the tensor in place of its number.",
    ),
    "graph-host-value": Meaning(
        "graph",
        "The host reads a value in the middle of the program.",
        "Keep the value on the device: `torch.where` in place of a branch, the tensor in place of its number.",
    ),
    "graph-input": Meaning(
        "graph",
        "An input cannot be copied into the graph's memory: it is no tensor of the device, is expanded, or overlaps "
        "one that is written.",
        "Move it to the device and call `contiguous()` on it first.",
    ),
    "graph-number-input": Meaning(
        "graph",
        "A number that may differ from call to call is an input of the program.",
        "Pass it as a tensor on the device, or keep it the same.",
    ),
    "graph-many-sizes": Meaning(
        "graph",
        "More combinations of sizes come up than have graphs; the first of them do.",
        "Pad to few sizes.",
    ),
    "graph-no-gain": Meaning(
        "graph",
        "Launching takes less time than the device needs, or than a replay: a graph would gain nothing.",
        'None is needed; `mode="reduce-overhead"` replays a graph all the same.',
    ),
    "graph-weights": Meaning(
        "graph",
        "Parameters or buffers are replaced again and again, and each time the graph must be captured anew.",
        "Write into them in place: `parameter.copy_(new)`.",
    ),
}

__all__ = ["DIAGNOSTICS", "KINDS", "Meaning", "asks_for_nothing", "index_text", "meaning_of", "page_of", "remedy_of"]

"""What users call: `compile`, `warmup`, `save`, `load`, `stats`, `explain`, `assess`, ... No logic of its own."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from types import FunctionType
from typing import TYPE_CHECKING, Any, ParamSpec, Protocol, TypeVar, overload

import torch

from lampwork._torch import ALLOWED_IN_GRAPH, is_called_natively
from lampwork.config import Settings, make_settings
from lampwork.errors import OptionError
from lampwork.runtime.function import CompiledFunction, reset_all
from lampwork.runtime.module import compile_module
from lampwork.runtime.pickled import register
from lampwork.runtime.stances import set_stance as set_stance
from lampwork.runtime.wrappers import compiled_of, is_wrapper, original_of, wrap

if TYPE_CHECKING:
    from lampwork.debug.explain import Explanation
    from lampwork.profiling.profile import Profile
    from lampwork.runtime.stats import Stats
    from lampwork.verdict.verdict import Verdict
    from lampwork.verdict.watch import Watch
    from lampwork.verification.answer import Verification
    from lampwork.warming.report import Warmup

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")
Module = TypeVar("Module", bound=torch.nn.Module)

Backend = str | Callable[..., Any]
PathLike = str | os.PathLike[str]
#: Bytes, or the file that they are in.
Key = bytes | str | Path | None

register()


class Compiler(Protocol):
    """`lampwork.compile` whose options are given: a decorator, which gives back the type that it is given."""

    @overload
    def __call__(self, function: Module, /) -> Module: ...
    @overload
    def __call__(self, function: Callable[P, R], /) -> Callable[P, R]: ...


@overload
def compile(
    function: Module,
    *,
    fullgraph: bool = False,
    dynamic: bool | None = None,
    mode: str | None = None,
    options: Mapping[str, object] | None = None,
    backend: Backend = "lampwork",
    disable: bool = False,
    regions: Mapping[str, object] | str | None = None,
) -> Module: ...
@overload
def compile(
    function: Callable[P, R],
    *,
    fullgraph: bool = False,
    dynamic: bool | None = None,
    mode: str | None = None,
    options: Mapping[str, object] | None = None,
    backend: Backend = "lampwork",
    disable: bool = False,
    regions: Mapping[str, object] | str | None = None,
) -> Callable[P, R]: ...
@overload
def compile(
    function: None = None,
    *,
    fullgraph: bool = False,
    dynamic: bool | None = None,
    mode: str | None = None,
    options: Mapping[str, object] | None = None,
    backend: Backend = "lampwork",
    disable: bool = False,
    regions: Mapping[str, object] | str | None = None,
) -> Compiler: ...
@is_called_natively
def compile(
    function: Callable[..., Any] | None = None,
    *,
    fullgraph: bool = False,
    dynamic: bool | None = None,
    mode: str | None = None,
    options: Mapping[str, object] | None = None,
    backend: Backend = "lampwork",
    disable: bool = False,
    regions: Mapping[str, object] | str | None = None,
) -> Any:
    """A callable with the results of `function`, which runs faster; for a module, a module with the same state.

    function   a function, method, callable object or `torch.nn.Module`. Left out: a decorator.
    fullgraph  raise `GraphBreak` where the program holds something that cannot be compiled, instead of running the
               call eagerly
    dynamic    None: compile for the sizes seen; those that differ in a later call may be any from then on. True: all
               sizes and integers of arguments may be any at once. False: never (see docs/usage.md)
    mode       "default", "reduce-overhead", "max-autotune" or "max-autotune-no-cudagraphs"; "auto" compiles while calls
               run eagerly, and keeps what is faster (see docs/usage.md)
    options    see `lampwork.config.Options`, such as {"freeze": True}
    backend    "lampwork"; or the name of a `torch.compile` back end, or a callable that takes a
               `torch.fx.GraphModule` and example inputs, run after Lampwork's capture
    disable    return `function` as it is
    regions    settings by submodule: {"layers.*": {"mode": "max-autotune"}, "head": "eager"}. A pattern (of `fnmatch`)
               names submodules as `named_modules` does, the first that matches counts. A graph ends at each of them.
               "blocks": the blocks that the model repeats, which are compiled once, with the same settings

    Nothing is compiled before the first call. Raises `OptionError` for an invalid argument, TypeError for something
    that cannot be called.
    """
    settings = make_settings(fullgraph, dynamic, mode, options, regions)
    if not isinstance(disable, bool):
        raise OptionError(f"disable must be True or False, not {disable!r}")
    if not (isinstance(backend, str) or callable(backend)):
        expected = "a name or a callable taking (graph_module, example_inputs)"
        raise OptionError(f"backend must be {expected}, not {backend!r}")
    if isinstance(backend, str) and backend != "lampwork":
        from lampwork.runtime.foreign import find_backend

        backend = find_backend(backend)
    if settings.options.passes and backend != "lampwork":
        raise OptionError("option 'passes' is of Lampwork's own stages: leave backend=... out")
    if settings.options.exact and backend != "lampwork":
        raise OptionError(
            "option 'numerics' is 'eager', which back ends of other compilers do not promise: leave one out"
        )
    if function is None:
        return functools.partial(_compile, settings=settings, backend=backend, disable=disable)
    return _compile(function, settings=settings, backend=backend, disable=disable)


def _check_callable(function: Callable[..., Any], name: str) -> None:
    """Raises TypeError for what `lampwork.NAME` cannot take."""
    if isinstance(function, type):
        if issubclass(function, torch.nn.Module):
            remedy = f"lampwork.{name}({function.__name__}(...){', ...' * (name == 'explain')})"
            raise TypeError(f"lampwork.{name} takes a module, not its class: {remedy}")
        raise TypeError(f"lampwork.{name} takes a function or a module, not the class {function.__name__}")
    if not callable(function):
        what = f"{type(function).__name__} {str(function):.60}"
        raise TypeError(f"lampwork.{name} takes a function or a module, not {what}")


def _compile(function: Callable[..., Any], *, settings: Settings, backend: Backend, disable: bool) -> Any:
    _check_callable(function, "compile")
    if disable:
        return function
    again = functools.partial(_compile, settings=settings, backend=backend, disable=disable)
    if is_wrapper(function):
        function = original_of(function)  # compiling what is compiled already: its original, so set
    make_entry = None
    if callable(backend):
        from lampwork.runtime.foreign import entry_maker

        make_entry = entry_maker(backend)
    if settings.mode == "auto":
        from lampwork.runtime.auto.function import AutoFunction

        compiled: CompiledFunction = AutoFunction(function, settings, make_entry)
    else:
        compiled = CompiledFunction(function, settings, make_entry)
    compiled.again = again
    if settings.regions:
        from lampwork.regions import join

        join(compiled, function, settings, lambda own: functools.partial(
            _compile, settings=own, backend=backend, disable=False))  # fmt: skip
    if isinstance(function, torch.nn.Module):
        return compile_module(function, compiled, again)
    return wrap(compiled)


@is_called_natively
def disable(function: Callable[P, R]) -> Callable[P, R]:
    """`function`, never compiled: a call of it from compiled code is a break. Code marked for `torch.compiler.disable`
    needs no second mark. Raises TypeError for something that cannot be called, and for a module."""
    if isinstance(function, torch.nn.Module):
        remedy = "mark the `forward` of its class, or a function that calls it"
        raise TypeError(f"lampwork.disable takes a function, not the module {type(function).__name__}: {remedy}")
    if not callable(function):
        raise TypeError(f"lampwork.disable takes a function, not {type(function).__name__} {str(function):.60}")

    @functools.wraps(function)
    def uncompiled(*args: P.args, **kwargs: P.kwargs) -> R:
        return function(*args, **kwargs)

    uncompiled.__dict__["_torchdynamo_disable"] = True
    return uncompiled


@is_called_natively
def allow_in_graph(function: Callable[P, R]) -> Callable[P, R]:
    """`function`, not interpreted where compiled code calls it: it runs once while that is compiled, on tensors without
    memory, and the operators that it calls are part of the graph. What else it does happens then and in no later call,
    and what it reads beside its arguments is not guarded: that is what the mark declares. It takes and returns tensors
    and plain data, and asks for the contents of no tensor. The mark speaks of one process: an entry is stored on disk
    only where the function belongs to an installed library, and found again while that library stays the same.

    Seldom needed: functions are interpreted as they are. `torch.compiler.allow_in_graph` is followed, too, and loads
    Dynamo. Raises TypeError for anything but a function written in Python: what is written in C becomes an operator by
    `torch.library.custom_op`.
    """
    if not isinstance(function, FunctionType):
        what = f"{type(function).__name__} {str(function):.60}"
        remedy = "make an operator of it by torch.library.custom_op"
        raise TypeError(f"lampwork.allow_in_graph takes a function written in Python, not {what}: {remedy}")
    function.__dict__[ALLOWED_IN_GRAPH] = True
    return function


@is_called_natively
def assume_constant(function: Callable[P, R]) -> Callable[P, R]:
    """`function`, called once while compiling; its result is a constant of the compiled code. What it reads is not
    guarded: that is what the mark declares, for one process; entries are stored as those with `allow_in_graph` are.
    Raises TypeError for anything but a function written in Python."""
    if not callable(function) or not hasattr(function, "__dict__"):
        what = f"{type(function).__name__} {str(function):.60}"
        raise TypeError(f"lampwork.assume_constant takes a function written in Python, not {what}")
    function.__dict__["_dynamo_marked_constant"] = True
    return function


@is_called_natively
def mark_dynamic(
    tensor: torch.Tensor, dim: int | Sequence[int], *, min: int | None = None, max: int | None = None
) -> None:
    """From the first compile on, dimension `dim` of `tensor` may have any size from `min` to `max`.

    The mark is on this tensor object. Sizes of 0 and 1 are compiled apart. A call raises `DynamicSizeError` where the
    program needs the size as a number; it names the line. Raises `OptionError` for a dimension that the tensor does not
    have and for limits that its size is outside of.
    """
    from lampwork.runtime.marks import mark

    mark(tensor, dim, min, max)


@is_called_natively
def mark_static(tensor: torch.Tensor, dim: int | Sequence[int] | None = None) -> None:
    """Dimension `dim` of `tensor` (all of them by default) is compiled as the number it is, whatever else varies."""
    from lampwork.runtime.marks import unmark

    unmark(tensor, dim)


@is_called_natively
def stats(compiled: Callable[..., Any]) -> Stats:
    """What happened to a compiled function so far, as a read-only mapping.

    captures         how many calls were captured
    entries          compiled entries in memory
    graphs           those whose program computes something
    continuations    places where calls go on after a graph break
    calls            calls made
    breaks           what divided calls: records with `.reason`, `.location`, `.remedy`, `.count`
    fallbacks        why calls, or what was left of them after a break, ran eagerly: the same kind of records
    recompiles       why calls were compiled although entries existed: the guard that failed, and `.seconds` it cost
    specialised      sizes that would be dynamic, had the program not needed them as numbers: `.reason`, `.location`
    native_kernels   distinct generated kernels, summed over entries
    launches         kernel launches of one call of the most recently used entry
    extern_calls     ATen operators that one call of that entry makes, with counts
    cuda_graphs      for each entry on a GPU, how many captures and replays of CUDA graphs, and why calls run without;
                     where gradients are taken, how often all memory for graphs was in use
    cache_hits       entries that came from the on-disk cache, a file that was loaded, or a module of the same class
    compile_seconds  by stage, summed over entries
    cache            how many entries were `stored` on disk; `fetched` from the shared cache, `refused` there, `sent` to
                     it; and how often another process that compiled the same was `waited` for
    cache_notes      what the on-disk cache did, in words (why an entry was not used, which fact
                     of a key missed)
    choices          of mode "auto", for each class of calls: `.way`, "eager" or a mode, None while it is tried;
                     `.seconds` of a typical call of each way; how many `.trials` there were

    Raises TypeError for something `lampwork.compile` did not make.
    """
    found = compiled_of(compiled)
    return found.counters.snapshot(found.entries, found.continuations, found.choices)


@is_called_natively
def reset() -> None:
    """Forget every compiled entry of this process, and give back the memory kept for them. The disk cache stays."""
    reset_all()


@is_called_natively
def warmup(
    function: Callable[..., Any] | str, inputs: Iterable[Any] = (), *, jobs: int = 1, run: bool = False, **options: Any
) -> Warmup:
    """Compiles `function` for calls that will come, and stores the entries in the on-disk cache. Print the result; as a
    bool it says whether all of these calls will run compiled.

        lampwork.warmup(compiled, [("float32[1,128]",), ("float32[8,128]",)])

    The calls are not made: nothing of the program runs, and its state stays as it is. Entries are for the grad mode
    that is in force.

    function   what is compiled: something compiled already, which is warm afterwards; what `lampwork.compile` takes,
               with its `options`; or "module:factory", where the factory returns one of these
    inputs     for each call a tuple of arguments, a dict of keywords, a pair of both, or one tensor. "float32[8,128]"
               stands for a tensor, with "@cuda" after it for one on a device. Left out: what the factory returns beside
               the callable
    jobs       so many processes compile at once, where `function` can be found by name; else it is this one, where
               compiles wait for each other
    run        make the calls, so that what follows graph breaks is compiled, too

    What would run eagerly is told, not raised. Raises `OptionError` for an invalid argument, TypeError for something
    that cannot be called, ValueError and ImportError for a name that leads nowhere.
    """
    if not isinstance(function, str):
        _check_callable(function, "warmup")
    from lampwork.warming.warm import warm

    return warm(function, inputs, jobs, run, compile, options)


@is_called_natively
def save(compiled: Callable[..., Any], path: PathLike, *, key: Key = None) -> None:
    """All that was compiled of `compiled`, in one file: `lampwork.load(path, model)` in another process traces nothing.

        fast = lampwork.compile(model)
        fast(x)                                  # what is to be served is called once
        lampwork.save(fast, "model.lamp")

    The file holds programs, guards, machine code and the signatures of weights, not the weights. Of a module it also
    holds what was compiled of its submodules, and `compiled` may be a module of which only submodules are compiled.

    key   signs the file: bytes, or the path of a file with them (see `lampwork.signatures`)

    Raises `ArtifactError` where nothing is compiled yet, or nothing that another process could use; TypeError for
    something that `lampwork.compile` did not make; OSError where the file cannot be written. Entries that no file can
    hold are left out, with a warning that says why.
    """
    from lampwork.shipping.save import save_compiled

    save_compiled(compiled, os.fspath(path), _key(key))


@is_called_natively
def load(
    path: PathLike,
    model: Callable[..., Any] | None = None,
    *,
    key: Key = None,
    strict: bool = False,
    weights: Mapping[str, torch.Tensor] | PathLike | None = None,
    passes: Mapping[str, Sequence[Callable[..., Any]]] | None = None,
) -> Any:
    """What `lampwork.save` wrote for `model`, compiled; without `model`, the `Package` that `lampwork.package` wrote.

    model     the function or module that the file was made of, with its weights; it is returned as by
              `lampwork.compile` with the settings of then. Submodules that were compiled are replaced in it
    key       what the file was signed with: a file that is unsigned, or was changed, is refused. Without a key, whoever
              can write the file can run code here (docs/shipping.md says which)
    strict    calls that the file has nothing for raise `NotServedError`; False: they are compiled, with a warning
    weights   of a package that was made without them: a `state_dict`, or the path of a safetensors file
    passes    those that the file was made with (see docs/passes.md): it has their digests, not their code. Needed where
              calls are compiled that the file has nothing for

    Raises `ArtifactError` where the file was made for other versions, processors, devices, code or weights, is no such
    file, or was changed. The text names the fact.
    """
    if not isinstance(strict, bool):
        raise OptionError(f"strict must be True or False, not {strict!r}")
    if model is not None:
        _check_callable(model, "load")
    from lampwork.shipping.load import load_file

    compile = functools.partial(_compile_with, backend="lampwork", disable=False)
    known = make_settings(options={"passes": passes}).options.passes if passes is not None else None
    return load_file(os.fspath(path), model, _key(key), strict, weights, compile, known)


def _compile_with(function: Callable[..., Any], settings: Settings, **others: Any) -> Any:
    return _compile(function, settings=settings, **others)


@is_called_natively
def package(compiled: Callable[..., Any], path: PathLike, weights: bool = True, *, key: Key = None) -> None:
    """What was compiled of `compiled`, in one file that runs without the model's source and libraries:

        lampwork.load(path)(input_ids=ids)       # in a process that has torch and lampwork only

    The package is the program as it is now; it serves calls like those that were made, and refuses others with a list
    of what it serves. Objects of library classes in results become dicts and objects with the same attributes.

    weights   put them into the file, in the safetensors format; False: whoever loads it gives those of `state_dict`
    key       as of `lampwork.save`

    Raises `ArtifactError` where nothing can be packaged, with the reasons: calls that break, take gradients, change the
    model, or run code of libraries. See docs/shipping.md. TypeError and OSError as `lampwork.save`.
    """
    if not isinstance(weights, bool):
        raise OptionError(f"weights must be True or False, not {weights!r}")
    from lampwork.shipping.package import package_compiled

    package_compiled(compiled, os.fspath(path), weights, _key(key))


def _key(key: Key) -> bytes | None:
    """The bytes of a key. Raises `OptionError` for one that is none, or can be guessed."""
    if key is None:
        return None
    from lampwork.signatures import read_key, signature

    try:
        if isinstance(key, bytes):
            signature(key, b"")
            return key
        if isinstance(key, (str, Path)):
            return read_key(key)
    except (ValueError, OSError) as error:
        raise OptionError(f"the key cannot be used: {error}") from error
    raise OptionError(f"a key is bytes, or the path of a file with them, not {type(key).__name__}")


@is_called_natively
def explain(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Explanation:
    """How one call of `function` compiles, what kept it from being one piece, and what that costs. Print the result.

    It is a mapping from section names to texts, with `overview()`, `to_dict()`, `html()` and `dump(folder)`. A call
    that compiles as one graph is not run; one that breaks is run once, as what follows a break depends on what the
    program does there. For something compiled already nothing is run, and what happened to it so far is told. Raises
    TypeError for something that cannot be called; what the call itself raises is told, not raised.
    """
    _check_callable(function, "explain")
    from lampwork.debug.explain import explain_call

    return explain_call(function, args, kwargs)


@is_called_natively
def assess(
    function: Callable[..., Any],
    *args: Any,
    calls: int | None = None,
    restarts: int = 0,
    seconds: float = 60.0,
    price: float | None = None,
    dtypes: Iterable[torch.dtype] = (),
    freeze: bool = True,
    peer: bool = False,
    backward: bool | None = None,
    progress: bool | None = None,
    **kwargs: Any,
) -> Verdict:
    """Does compiling `function` pay, for `calls` calls such as `function(*args, **kwargs)`? Print the result.

    The call is made many times, eagerly and compiled in each way that may pay, in turns; the cost of each way is
    measured with an empty cache and with a filled one. Parameters, buffers, gradients, optimizers and generators are
    put back after it, wherever they were seen to be used; what else a call does is done many times.

    calls      how many calls will be made; None: the answer says after how many it pays
    restarts   how often the program will be started again with a filled cache
    seconds    after which no new way is tried; measuring what was tried takes up to ten more
    price      of an hour, in any currency: the answer says what is saved
    dtypes     types that you allow calculations in, by `torch.autocast`; results are compared with eager's in the same
    freeze     whether the weights may be taken as constant (inference only)
    peer       try `torch.compile`, too; where it is better, the answer says so
    backward   whether gradients of the result belong to a call; None: for a module in training mode, where gradients
               are on
    progress   tell on stderr what is being done; None: where that is a terminal

    Raises `OptionError` for an invalid argument, TypeError for something that cannot be called, and what the eager call
    raises.
    """
    _check_callable(function, "assess")
    from lampwork.verdict.assess import assess_call

    return assess_call(
        function, args, kwargs, calls=calls, restarts=restarts, seconds=seconds, price=price, dtypes=dtypes,
        freeze=freeze, peer=peer, backward=backward, progress=progress,
    )  # fmt: skip


@is_called_natively
def profile(function: Callable[..., Any], *args: Any, backward: bool | None = None, **kwargs: Any) -> Profile:
    """Where the time of a call such as `function(*args, **kwargs)` goes, and what would help. Print the result.

    The call is made many times, eagerly; its operators are timed one by one. What compiling could gain is bounded: what
    waits and what computes stays. Other means (narrower types, larger batches, channels last, no gradients) are tried,
    and told with what they gained here. State is put back as `assess` does.

    backward   whether gradients of the result belong to a call; None: for a module in training mode, where gradients
               are on

    Raises TypeError for something that cannot be called, and what the call raises.
    """
    _check_callable(function, "profile")
    from lampwork.profiling.profile import profile_call

    return profile_call(function, args, kwargs, backward)


@is_called_natively
def verify(
    function: Callable[..., Any],
    *args: Any,
    backward: bool | None = None,
    steps: int = 0,
    more: Iterable[tuple[Any, ...]] = (),
    seeds: int = 2,
    blame: bool = True,
    progress: bool | None = None,
    **kwargs: Any,
) -> Verification:
    """Are the numbers right that `function` gives when it is compiled? Print the result; as a bool it is the answer.

    The call is made by eager, by eager beside float64, three times by eager with every result off by a rounding, and
    compiled; state is put back each time, as by `assess`. Results, gradients, buffers, parameters, states of optimizers
    and tensors among the arguments are compared element by element: each may be off by a few times what eager's own
    element is. Where something is wrong, `.blame` names the pass or the kernel, the first operator that diverges and
    its source line.

    function   what is compiled; or something compiled already, which is verified with its options
    backward   whether gradients of the result belong to a call; None: for a module in training mode, where gradients
               are on
    steps      so many calls one after the other, with the curve of their losses: inside eager's noise or not. For a
               module each is a whole step of AdamW; a function makes its own steps, and returns the loss
    more       arguments of further calls, which entries serve that were made before: tuples
    seeds      eager runs with other random numbers that loss curves are compared with, if the program draws any
    blame      look for what is to blame
    progress   tell on stderr what is being done; None: where that is a terminal

    Raises `OptionError` for an invalid argument, TypeError for something that cannot be called, and what the eager call
    raises.
    """
    _check_callable(function, "verify")
    from lampwork.verification.verify import verify_calls

    calls = [(args, kwargs), *((tuple(each), kwargs) for each in more)]
    return verify_calls(
        function, calls, backward=backward, steps=steps, seeds=seeds, blame=blame, progress=progress
    )  # fmt: skip


@is_called_natively
def watch(
    loader: Iterable[T],
    *,
    calls: int | None = None,
    steps: int = 60,
    price: float | None = None,
    peer: bool = False,
    progress: bool | None = None,
) -> Watch[T]:
    """The items of `loader`, while the steps that a loop makes with them are assessed. The answer is printed on stderr.

        for batch in lampwork.watch(loader, calls=100_000):
            step(batch)

    The first `steps` steps are taken in turns, eagerly and with the modules that they call compiled in each way that
    may pay; each step is done once. Then everything is as it was, and `.verdict` has the answer.

    calls      how many steps will be made in all; None: the answer says after how many it pays
    steps      that the trial lasts, 20 or more
    price      of an hour, in any currency: the answer says what is saved
    peer       try `torch.compile`, too
    progress   None: tell what is being done where stderr is a terminal; False: print no answer either

    Raises `OptionError` for an invalid argument.
    """
    from lampwork.verdict.watch import watch_loop

    return watch_loop(loader, calls, steps, price, peer, progress)

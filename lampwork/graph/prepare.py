"""The graph stage: from a region as recorded to a pure graph that lowering takes.

What only training, a GPU or an option needs is imported where it is used: a cold start of inference does without.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from lampwork.backends import backend_of
from lampwork.config import Settings, environment
from lampwork.graph.branches import pick_branches
from lampwork.graph.convolutions import simplify_convolutions, split_biases, sum_bias_gradients
from lampwork.graph.devices import place_constants, program_device
from lampwork.graph.functionalize import functionalize
from lampwork.graph.products import use_vendor_products
from lampwork.graph.repeated import repeated
from lampwork.graph.result_layouts import with_exact_layouts
from lampwork.graph.simplify import (
    embed_literals,
    keep_checks,
    pure,
    remove_dead,
    remove_no_ops,
    separate_outputs,
    share_repeated_work,
)
from lampwork.ir.region import FunctionalGraph, Region
from lampwork.turns import give_way

if TYPE_CHECKING:
    from lampwork.graph.partition import Choose, Halves
    from lampwork.graph.relaid import Laid
    from lampwork.ir.replay import EagerBackward

Pass = Callable[[FunctionalGraph], FunctionalGraph]
#: The user's passes of a stage, "program", "joint", "forward" or "backward" (docs/passes.md).
UserPasses = Callable[[str], tuple[Pass, ...]]


def _none(stage: str) -> tuple[Pass, ...]:
    return ()


def passes(settings: Settings, device: str = "cpu", of_the_user: tuple[Pass, ...] = ()) -> tuple[Pass, ...]:
    """The passes for a program on `device`, in order.

    `remove_dead` runs first so that later ones look at less, and after what leaves nodes dead. Where numbers are to be
    eager's bit by bit, only passes that are exact are left. Those `of_the_user` see ATen's operators, without what is
    there twice or does nothing, before vendor products are chosen.
    """
    if settings.options.exact:
        on_a_gpu = (place_constants,) if backend_of(device).library == "cuDNN" else ()
        exact = (
            remove_dead,
            embed_literals,
            *on_a_gpu,
            share_repeated_work,
            remove_no_ops,
            *of_the_user,
            remove_dead,
            separate_outputs,
        )
        return exact
    if backend_of(device).library == "cuDNN":  # what names oneDNN, or was measured on CPUs, stays out
        from lampwork.graph.freeze import fold_batch_norms
        from lampwork.graph.layout import order_convolutions
        from lampwork.graph.padding import pad_products

        return (
            remove_dead,
            embed_literals,
            place_constants,
            share_repeated_work,
            remove_no_ops,
            *of_the_user,
            *((fold_batch_norms, remove_dead) if settings.options.freeze else ()),
            split_biases,
            partial(order_convolutions, settings=settings),
            partial(pad_products, settings=settings),
            remove_dead,
            separate_outputs,
        )
    frozen: tuple[Pass, ...] = ()
    if settings.options.freeze:
        from lampwork.graph.freeze import freeze

        frozen = (freeze, remove_dead)
    return (
        remove_dead,
        embed_literals,
        share_repeated_work,
        remove_no_ops,
        *of_the_user,
        *frozen,
        use_vendor_products,
        simplify_convolutions,
        remove_dead,
        separate_outputs,
    )


def prepare(
    region: Region, settings: Settings, copies: bool = False, of_the_user: UserPasses = _none
) -> FunctionalGraph:
    """The region without side effects, simplified, with vendor products chosen for `settings`. With `copies`, what it
    does to many inputs alike is there once (`FunctionalGraph.copies`).

    Raises `CompileError` for programs that cannot be made pure, and `GraphBreak` for ones on several GPUs or on a
    device without a back end; the caller then runs the region eagerly.
    """
    tables, left_out = repeated(region) if copies else ((), frozenset())
    functional = functionalize(region, left_out)
    functional = with_exact_layouts(region, functional)
    functional = replace(functional, device=program_device(functional.graph), copies=tables)
    functional = pick_branches(keep_checks(functional))
    joint = (*of_the_user("program"), *of_the_user("joint"))
    if _has_backward(functional):
        from lampwork.graph.whole_step import rematerialise

        functional = _run(_joint_passes(settings, functional.device, joint), functional)
        functional = rematerialise(functional, _choice(settings))
    elif joint:
        functional = _run((*_SHORTER, *joint, remove_dead), functional)
    return _run(passes(settings, functional.device, of_the_user("forward")), functional)


def _has_backward(functional: FunctionalGraph) -> bool:
    """Whether the program takes gradients itself."""
    return any("gradient" in node.meta for node in functional.graph.nodes)


def prepare_halves(region: Region, settings: Settings, of_the_user: UserPasses = _none) -> Halves:
    """The forward and backward half of a region that is differentiated, each as `prepare` leaves one.

    Weights are not frozen: they are what is trained. Raises as `prepare` does.
    """
    from lampwork.graph.partition import partition
    from lampwork.graph.replay import eager_backward_of, replay_of

    assert region.joint is not None
    functional = functionalize(region)
    functional = keep_checks(replace(functional, device=program_device(functional.graph)))
    functional = pick_branches(functional)
    functional = _run(_joint_passes(settings, functional.device, of_the_user("joint")), functional)
    halves = partition(functional, region.joint, len(region.inputs), region.sizes, _choice(settings))
    if halves.backward is not None:
        # In the symbols whose values the forward half hands on: later passes may write one of them by another.
        replay, why = replay_of(region)
        halves.link = replace(
            halves.link,
            eager=eager_backward_of(halves.backward),
            replay=replay,
            replayed=replay.inputs if replay and not why else (),
            unrepeatable=why,
        )
    halves.forward = with_exact_layouts(region, halves.forward)
    settings = _without_freezing(settings)
    halves.forward = _run(passes(settings, functional.device, of_the_user("forward")), halves.forward)
    if halves.backward is not None:
        halves.backward = _run(passes(settings, functional.device, of_the_user("backward")), halves.backward)
    return halves


def prepare_relaid(
    half: EagerBackward, inputs: Sequence[Laid | int], expected: Sequence[Laid | int], device: str, settings: Settings,
    of_the_user: UserPasses = _none,
) -> FunctionalGraph:  # fmt: skip
    """The backward half as `prepare_halves` leaves it, for inputs laid out so, in place of those `expected`."""
    from lampwork.graph.relaid import relaid_backward

    every = passes(_without_freezing(settings), device, of_the_user("backward"))
    return _run(every, relaid_backward(half, inputs, expected, device))


#: What leaves less for other passes to look at.
_SHORTER = (remove_dead, embed_literals, share_repeated_work, remove_no_ops)


def _joint_passes(settings: Settings, device: str, of_the_user: tuple[Pass, ...]) -> tuple[Pass, ...]:
    """Those before it is chosen what of the forward pass is kept for the backward one. A padded product is kept as the
    vendor's kernel wrote it: the part of it that the program sees would be a copy."""
    from lampwork.graph.operands import forget_contents

    decomposed: tuple[Pass, ...] = ()
    if backend_of(device).library == "cuDNN" and not settings.options.exact:
        from lampwork.graph.layout import order_convolutions
        from lampwork.graph.operands import keep_places_in_windows
        from lampwork.graph.padding import pad_products
        from lampwork.graph.statistics import decompose_log_softmaxes, decompose_norms

        decomposed = (
            keep_places_in_windows,
            decompose_log_softmaxes,
            decompose_norms,
            sum_bias_gradients,
            partial(order_convolutions, settings=_without_freezing(settings)),
            partial(pad_products, settings=_without_freezing(settings)),
        )
    return (*_SHORTER, *of_the_user, *decomposed, forget_contents, remove_dead)


def _without_freezing(settings: Settings) -> Settings:
    return replace(settings, options=replace(settings.options, freeze=False))


def _choice(settings: Settings) -> Choose:
    from lampwork.graph.recompute import cheapest

    return partial(cheapest, budget=settings.options.memory_budget, exact=settings.options.exact)


def _run(all_passes: tuple[Pass, ...], functional: FunctionalGraph) -> FunctionalGraph:
    for each in all_passes:
        give_way()
        functional = each(functional)
        if environment.verify:
            pure(functional)
    return functional

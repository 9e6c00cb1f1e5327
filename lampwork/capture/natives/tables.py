"""All natives that capture has an answer for: the table of each module, gathered.

A new answer is an entry in the `NATIVES` of the module that it belongs to. No native is in two of them. What a program
put in the place of a native, before anything was captured, is interpreted: it gets no answer.
"""

from __future__ import annotations

from functools import cache
from types import ModuleType

from lampwork.capture.autograd import backward, checkpoints, histories, saved_hooks
from lampwork.capture.leave import output
from lampwork.capture.machine import Natives
from lampwork.capture.natives import (
    answers,
    context_variables,
    conversions,
    environment,
    function_modes,
    generators,
    heaps,
    host_functions,
    identities,
    introspection,
    json_texts,
    library,
    locks,
    numpy_data,
    object_arguments,
    optimizers,
    python_warnings,
    ranges,
    standard_values,
    switches,
    thread_locals,
    torch_answers,
)
from lampwork.capture.outside import iterators
from lampwork.capture.record import cells, packed
from lampwork.capture.values import assumptions, subclasses, text
from lampwork.ir.reference import is_replacement

MODULES: tuple[ModuleType, ...] = (
    answers, assumptions, backward, cells, checkpoints, context_variables, conversions, environment, function_modes,
    generators, heaps, histories, host_functions, identities, introspection, iterators, json_texts, library, locks,
    numpy_data, object_arguments, optimizers, output, packed, python_warnings, ranges, saved_hooks, standard_values,
    subclasses, switches, text, thread_locals, torch_answers,
)  # fmt: skip
_ANSWERS = {
    native: answer
    for module in MODULES
    for native, answer in module.NATIVES.items()
    if not is_replacement(native)
}  # fmt: skip
NATIVES = Natives(_ANSWERS)


@cache
def exact_natives() -> Natives:
    """Those where numbers are to be eager's bit by bit."""
    return Natives({**_ANSWERS, **torch_answers.EXACT_NATIVES})

"""`TorchWorld`: what operations on values mean while a torch program is captured.

Values from outside are loaded and guarded when the program reads them (`outside/load.py`), writes go to overlays
(`outside/overlay.py`), tensors are fakes whose operators are recorded, native functions run only as their effect class
allows (`natives/perform.py`).

    operators, items, attributes, conversions    a family of values each: `values/dispatch.py` says who is asked
    names, cells, imports                        outside/names.py
    calls                                        by rule, natives/rules.py; of tensor functions values/tensor_calls.py
    what is data                                 values/data.py
    functions                                    here

The world holds its parts, and they ask each other through it.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import CodeType, FunctionType
from typing import TYPE_CHECKING, Any
from weakref import ReferenceType, ref

import torch

from lampwork import regions
from lampwork.capture.autograd.histories import Histories
from lampwork.capture.leave.output import Output
from lampwork.capture.machine import Frame, World
from lampwork.capture.natives import perform
from lampwork.capture.natives.context_variables import ContextVariables
from lampwork.capture.natives.locks import Locks
from lampwork.capture.natives.object_arguments import native_operator
from lampwork.capture.natives.process_state import ProcessState
from lampwork.capture.natives.rules import Rules
from lampwork.capture.natives.tables import NATIVES, exact_natives
from lampwork.capture.outside.dynamic_sizes import MARKED_ONLY, DynamicPolicy
from lampwork.capture.outside.guards import GuardList, Sources
from lampwork.capture.outside.iterators import Walks
from lampwork.capture.outside.load import Loader
from lampwork.capture.outside.names import Names
from lampwork.capture.outside.open_text import fixed
from lampwork.capture.outside.overlay import Break
from lampwork.capture.outside.tensor_inputs import TensorInputs
from lampwork.capture.values.classes import Classes
from lampwork.capture.values.data import Data
from lampwork.capture.values.dispatch import Dispatcher, Families
from lampwork.capture.values.family import HANDS_ON
from lampwork.capture.values.host_results import HostCalls
from lampwork.capture.values.numbers import BackedNumbers
from lampwork.capture.values.open_texts import closed_call
from lampwork.capture.values.subclasses import Subclasses
from lampwork.capture.values.tensor_attributes import TensorAttributes
from lampwork.capture.values.tensor_calls import TensorCalls
from lampwork.capture.values.unknown_text import joined
from lampwork.ir.loops import Location
from lampwork.ir.reference import code_digest
from lampwork.turns import give_way

if TYPE_CHECKING:
    from lampwork._torch import InitialStates
    from lampwork.capture.record.recorder import Recorder

#: Where no line is the user's: torch itself, Triton, which is installed beside it, and what calls a submodule with its
#: own settings.
_LIBRARIES = (
    torch.__file__.rpartition("/")[0] + "/", torch.__file__.rpartition("/torch/")[0] + "/triton/", regions.__file__,
)  # fmt: skip


class TorchWorld(Dispatcher):
    """The world of one capture. Not shared between threads."""

    def __init__(self, recorder: Recorder, policy: DynamicPolicy = MARKED_ONLY) -> None:
        super().__init__(exact_natives() if recorder.exact else NATIVES, Families(self), Classes(self))
        self.recorder = recorder
        # The world before the call.
        self.sources = Sources()
        self.guards = GuardList(self.location)
        self.tensors = TensorInputs(recorder, self.guards, policy)
        self.backed_numbers = BackedNumbers(recorder, self.guards, self.tensors)
        self.loader = Loader(self.guards, self.sources, self.tensors, self.backed_numbers)
        recorder.settings = lambda fake: self.backed_numbers.held(fake, self.loader.origin)
        self.subclasses = self.loader.subclasses = Subclasses(self)
        self.loader.check_keys = self.families.container.check_keys
        self.walks = Walks(self.loader)
        self.names = Names(self)
        # Values.
        self.data = Data(self.loader)
        self.histories = Histories(self.loader, self.guards, recorder)
        self.tensor_attributes = TensorAttributes(self)
        self.tensor_calls = TensorCalls(self)
        # Native functions.
        self.rules = Rules(self)
        self.process = ProcessState(self.guards, self.sources)
        self.context_variables = ContextVariables(self)
        self.host_calls = HostCalls(recorder, self.tensors)
        self.locks = Locks()
        self.output = Output(recorder, lambda: self.machine)

        # What the capture is told.

        #: Whether the region may end before the program does.
        self.may_divide = False
        #: Kinds of code of backward passes that are left to eager ("hooks", "saved hooks", "functions"), and why.
        self.natively: dict[str, str] = {}
        #: States of optimizers made for this call; None: none are made.
        self.initial_states: InitialStates | None = None
        #: What names the settings of each submodule that has some of its own, by id, see `lampwork/regions.py`.
        self.regions: Mapping[int, str] = {}
        #: What suspended frames held when this region began.
        self.resumed_with: tuple = ()

        # What the program has done.

        #: Digests of all functions whose bytecode was interpreted.
        self.code_digests: dict[str, str] = {}
        #: The libraries of functions that ran natively on the word of whoever marked them, see `Region.vouched`.
        self.vouched: set[str] = set()
        #: Functions made by `torch.compile`, by the code of what they were made of.
        self.peers: dict[CodeType, FunctionType] = {}
        #: Functions that the program itself wrapped in `functools.lru_cache`, by id.
        self.made_caches: dict[int, Any] = {}
        #: Each `threading.local` that the program has made, by id.
        self.made_locals: dict[int, Any] = {}
        #: Objects whose `id()` was taken: which of them are the same is guarded at the end. And the step that took the
        #: first of them.
        self.identified: dict[int, Any] = {}
        self.identified_at = 0
        #: The step of PyTorch's first warning under filters that the program has set, 0 for none.
        self.warned_at = 0
        #: Classes whose subclasses were asked for, what these were, and in which step.
        self.asked_subclasses: list[tuple[type, tuple[type, ...], int]] = []
        #: Optimizers whose step the program has come to, by id.
        self.stepped: set[int] = set()
        #: Whether the program sets hooks on what autograd saves; why they are forbidden at the moment, if they are.
        self.sets_saved_hooks = False
        self.saved_hooks_refusal: str | None = None
        #: How many operators that take functions the program has called.
        self.flows = 0
        #: How many hooks the program registered.
        self.hooks_registered = 0
        #: What eager's engine knows of functions of the user's, by their class.
        self.function_nodes: dict[Any, Any] = {}
        #: The memos of `copy.deepcopy`, by id, with the storages that it has copied.
        self.copied_storages: dict[int, tuple[Any, set[int]]] = {}
        #: Arrays that share memory with tensors: the array, a copy of what it held, the tensor.
        self.shared_arrays: list[tuple[Any, Any, Any]] = []
        #: Containers whose text is being written, by id.
        self.being_written: set[int] = set()

        self._parts: dict[int, tuple[Any, Any, Any]] = {}
        self._made_functions: dict[int, ReferenceType[FunctionType]] = {}
        self._keep: list[Any] = []
        #: The innermost two frames when last asked where we are, the frame that the answer is about, and its module.
        #: Weakly: a generator that nobody finishes closes itself when its frame is let go of.
        self._located: tuple[ReferenceType[Frame], ReferenceType[Frame] | None, ReferenceType[Frame], str] | None = None
        self._locations: dict[tuple[int, int, str], Location] = {}

    def attach(self, recorder: Any) -> None:
        recorder.location_hook = self.location
        recorder.data_hook = self.tensor_attributes.note_data
        recorder.write_hook = self.tensor_calls.note_write

    # ------------------------------------------------------------------------------------------------------------------
    # Where we are

    def location(self) -> Location:
        """The user's line being interpreted: the innermost outside torch and Triton, with the module it belongs to."""
        machine = self.__dict__.get("machine")
        if machine is None or not machine.frames:
            return Location()
        top = machine.frames[-1]
        below = machine.frames[-2] if len(machine.frames) > 1 else None  # a generator's frame has several in its life
        known = self._located
        if known is not None and known[0]() is top and (known[1] and known[1]()) is below:
            frame = known[2]()
            if frame is not None:
                return self._location_at(frame, known[3])
        chosen = None
        module = ""
        for frame in reversed(machine.frames):
            code = frame.code
            if code.hidden:
                continue
            if chosen is None and not code.raw.co_filename.startswith(_LIBRARIES):
                chosen = frame
            if not module and frame.locals and isinstance(frame.locals[0], torch.nn.Module):
                module = self.families.module.path(frame.locals[0])
            if chosen is not None and module:
                break
        frame = chosen if chosen is not None else top
        # The frames below stand still while the innermost one runs.
        self._located = ref(top), None if below is None else ref(below), ref(frame), module
        return self._location_at(frame, module)

    def _location_at(self, frame: Frame, module: str) -> Location:
        code = frame.code
        key = id(code), frame.index, module
        found = self._locations.get(key)
        if found is None:
            found = self._locations[key] = Location(code.raw.co_filename, code.line(frame.index - 1), module)
            self._keep.append(code)
        return found

    # ------------------------------------------------------------------------------------------------------------------
    # Functions

    def function_parts(self, function: FunctionType) -> tuple[Any, Any, Any]:
        parts = self._parts.get(id(function))
        if parts is not None:
            return parts
        origin = self.loader.origin(function)
        if origin is None:
            if id(function) not in self._made_functions:
                self._keep.append(function)
                self.adopt_function(function)
                origin = self.loader.origin(function)
            if origin is None:
                return function.__defaults__, function.__kwdefaults__, function.__closure__
        source = origin.source
        defaults, keyword_defaults = function.__defaults__, function.__kwdefaults__
        if defaults is not None:
            defaults = self.loader.load(defaults, self.sources.attribute(source, "__defaults__"))
        if keyword_defaults is not None:
            keyword_defaults = self.loader.settle(
                self.loader.load(keyword_defaults, self.sources.attribute(source, "__kwdefaults__"))
            )
        self.loader.register_cells(function)
        name = f"{function.__module__}:{function.__qualname__}"
        self.code_digests[name] = code_digest(function.__code__)
        parts = self._parts[id(function)] = (defaults, keyword_defaults, function.__closure__)
        return parts

    def note_depth(self) -> None:
        self.process.read("recursion_limit")

    def note_handling(self) -> None:
        self.process.read("exception_handled")
        if self.process.initial["exception_handled"]:
            raise Break("context", "an error that is handled outside shows in one that is caught")

    def note_signature(self, function: FunctionType) -> None:
        origin = self.loader.origin(function)
        if origin is not None:
            for name in ("__defaults__", "__kwdefaults__", "__qualname__"):
                self.loader.load(getattr(function, name), self.sources.attribute(origin.source, name))

    def adopt_function(self, function: FunctionType) -> None:
        """A function that reached the program without being read from anywhere: found by its importable name."""
        reference = self.guards.reference(function)
        if function.__module__.startswith("lampwork.capture."):
            self._note_made(function)
            return
        if not reference.portable:
            raise Break("opaque-value", f"the function {function.__qualname__} came from native code")
        source = self.sources.named(reference.module, reference.qualname)
        self.loader.load(function, source)

    def make_function(self, *args: Any) -> FunctionType:
        function = World.make_function(self, *args)
        self._note_made(function)
        return function

    def set_function_attribute(self, function: FunctionType, flag: int, value: Any) -> FunctionType:
        made = World.set_function_attribute(self, function, flag, value)
        self._note_made(made)
        return made

    def _note_made(self, function: FunctionType) -> None:
        """Weakly: a generator that what it closes over holds closes itself when the program lets go of the function."""
        number, made = id(function), self._made_functions
        made[number] = ref(function, lambda _: made.pop(number, None))

    def build_string(self, parts: list[str]) -> str:
        return joined(fixed(parts) if self.loader.open_texts else parts)

    # ------------------------------------------------------------------------------------------------------------------
    # Calls

    def call(self, function: Any, args: tuple, kwargs: dict[str, Any]) -> Any:
        rule = self.rules.of(function)
        if self.loader.open_texts and (type(function) is not FunctionType or rule or function in self.intrinsics):
            args, kwargs = closed_call(function, args, kwargs)
        answer = HANDS_ON if rule is None else rule(self, function, args, kwargs)
        return World.call(self, function, args, kwargs) if answer is HANDS_ON else answer

    def native_operator(self, op: Any, left: Any, right: Any) -> Any:
        return native_operator(self, op, left, right)

    def call_attribute(self, attribute: Any, obj: Any, args: tuple) -> Any:
        if type(attribute) is FunctionType:
            return self.call(attribute, (obj, *args), {})
        return World.call_attribute(self, attribute, obj, args)

    def should_interpret(self, function: FunctionType) -> bool:
        give_way()
        return True

    def call_native(self, function: Any, args: tuple, kwargs: dict[str, Any]) -> Any:
        for family in self.families.given(function, args, kwargs):
            answer, function, args, kwargs = family.native(function, args, kwargs)
            if answer is not HANDS_ON:
                return answer
        return perform.call_by_effect(self, function, args, kwargs)

    def call_new(self, new: Any, cls: Any, args: tuple, kwargs: dict[str, Any]) -> Any:
        return perform.call_new(self, new, cls, *self._closed(cls, args, kwargs))

    def instantiate(self, cls: Any, args: tuple, kwargs: dict[str, Any]) -> Any:
        return perform.instantiate(self, cls, *self._closed(cls, args, kwargs))

    def _closed(self, cls: Any, args: tuple, kwargs: dict[str, Any]) -> tuple[tuple, dict[str, Any]]:
        return closed_call(cls, args, kwargs) if self.loader.open_texts else (args, kwargs)

    # ------------------------------------------------------------------------------------------------------------------
    # Names

    def load_global(self, frame: Frame, name: str) -> Any:
        return self.names.load_global(frame, name)

    def store_global(self, frame: Frame, name: str, value: Any) -> None:
        self.names.store_global(frame, name, value)

    def delete_global(self, frame: Frame, name: str) -> None:
        self.names.delete_global(frame, name)

    def load_cell(self, cell: Any) -> Any:
        return self.names.load_cell(cell)

    def store_cell(self, cell: Any, value: Any) -> None:
        self.names.store_cell(cell, value)

    def delete_cell(self, cell: Any) -> None:
        self.names.delete_cell(cell)

    def load_build_class(self, frame: Frame) -> Any:
        return self.names.load_build_class(frame)

    def import_name(self, frame: Frame, name: str, names: Any, level: int) -> Any:
        return self.names.import_name(frame, name, names, level)

    def import_from(self, module: Any, name: str) -> Any:
        return self.names.import_from(module, name)

    def import_star(self, frame: Frame, module: Any) -> None:
        self.names.import_star(frame, module)

"""`CaptureWorld`: what the parts of `TorchWorld` ask of each other.

`TorchWorld` (`world.py`) is made of parts, a file each, which have no method in common. What they, and the families of
values, use of others is declared here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lampwork.capture.machine import World

if TYPE_CHECKING:
    from types import ModuleType

    from lampwork._torch import InitialStates
    from lampwork.capture.leave.output import Output
    from lampwork.capture.outside.guards import GuardList, Sources
    from lampwork.capture.outside.iterators import Walks
    from lampwork.capture.outside.load import Loader
    from lampwork.capture.outside.names import Namespace
    from lampwork.capture.record.attention import AttentionCalls
    from lampwork.capture.record.recorder import Recorder
    from lampwork.capture.values.classes import Classes
    from lampwork.capture.values.dispatch import Families
    from lampwork.capture.values.host_results import HostCalls
    from lampwork.capture.values.numbers import BackedNumbers


class CaptureWorld(World):
    """A world whose operations on tensors are recorded. `TorchWorld` sets the attributes."""

    recorder: Recorder
    sources: Sources
    guards: GuardList
    loader: Loader
    walks: Walks
    families: Families
    classes: Classes
    host_calls: HostCalls
    backed_numbers: BackedNumbers
    output: Output
    attention_calls: AttentionCalls
    #: Nodes of autograd's graph that the program has, by id: the node, and whether it is of the program's own making.
    history_nodes: dict[int, tuple[Any, bool]]
    #: States of optimizers made for this call; None: none are made.
    initial_states: InitialStates | None = None
    #: Optimizers whose step the program has come to, by id.
    stepped: set[int]
    #: Process state when capture began, by name.
    initial_state: dict[str, Any]

    if TYPE_CHECKING:

        def type_of(self, value: Any) -> type:
            """`type(value)` as the program sees it."""

        # Names

        def module_namespace(self, module: ModuleType) -> Namespace:
            """The variables of a module."""

        def read_name(self, namespace: Namespace, name: str) -> Any:
            """A global variable, loaded; MISSING if there is none. Guards what was seen."""

        def write_name(self, namespace: Namespace, name: str, value: Any) -> None:
            """Sets a global variable, or deletes it (MISSING)."""

        def namespace_dict(self, namespace: Namespace) -> dict:
            """The variables of a module as a dict that the program holds."""

        # Attributes

        def tensor_class_lookup(self, name: str) -> tuple[bool, Any]:
            """The entry `name` of `torch.Tensor` and its bases, guarded where it may change."""

        def load_tensor_attribute(self, tensor: Any, name: str) -> Any:
            """`tensor.name`."""

        def load_node_attribute(self, node: Any, name: str) -> Any:
            """`node.name` of one of the `history_nodes`."""

        def store_tensor_attribute(self, tensor: Any, name: str, value: Any) -> None:
            """`tensor.name = value`."""

        # Containers

        @property
        def has_symbols(self) -> bool:
            """Whether sizes are symbols."""

        def native_key(self, container: Any, key: Any, value: Any = None) -> Any:
            """A key or an index, with which `value` may be stored, as native code takes it."""

        def touch(self, value: Any) -> Any:
            """`value`, loaded whole if it is a container from outside."""

        # What values hold

        def are_data(self, args: tuple, kwargs: dict[str, Any]) -> bool:
            """Whether all arguments of a call are."""

        def is_data(self, value: Any) -> bool:
            """Plain data, tensors, and containers of them; loads containers from outside."""

        def is_plain_data(self, value: Any) -> bool:
            """As `is_data`, without tensors: comparing and hashing it natively is right."""

        def is_text_data(self, value: Any) -> bool:
            """Plain data and compiled regular expressions."""

        def describe_arguments(self, args: tuple, kwargs: dict[str, Any]) -> str:
            """Those that are no data, in words."""

        # Native calls

        def call_by_effect(self, function: Any, args: tuple, kwargs: dict[str, Any]) -> Any:
            """A callable implemented in C, by its effect class."""

        def read_state(self, name: str) -> None:
            """Guards process state by name, once."""

        def call_tensor(self, function: Any, args: tuple, kwargs: dict[str, Any]) -> Any:
            """A native function of tensors, recorded."""

        def takes_symbols(self, function: Any) -> bool:
            """Whether a native function is one of tensors, or looks at no element of what it is given."""

        def with_sizes(self, value: Any) -> Any:
            """Arguments of an operator, with integers out of tensors as sizes that contents decide."""

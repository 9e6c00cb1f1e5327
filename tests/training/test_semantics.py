"""What autograd lets programs do, on two roads: the region compiled, and everything compiled with the gradients taken.

Results are compared in values, layout and what autograd shows of them; so are gradients, what was written, which
tensors share memory and which are the same object, errors, and the generator's state.
"""

from __future__ import annotations

import copy
import dataclasses
from typing import Any

import pytest
import torch
from torch import nn

import lampwork
from tests.training.semantics import TABLE, backward, tensors

CALLS = 3

#: (case, road) -> breaks and fall-backs, by id. All others have none.
COUNTED: dict[tuple[str, str], set[str]] = {
    ("function_without_materialized_gradients", "region"): {"backward-effect"},
    ("function_that_reverses_gradients", "region"): {"backward-effect"},
    ("function_that_returns_its_input", "region"): {"backward-effect"},
    ("function_with_a_wrong_number_of_gradients_raises", "region"): {"backward-effect"},
    ("function_with_a_wrong_number_of_gradients_raises", "step"): {"autograd", "backward-effect", "opaque-value"},
    ("function_whose_backward_raises", "region"): {"backward-effect"},
    ("function_whose_backward_raises", "step"): {"autograd", "backward-effect", "opaque-value"},
    ("function_that_counts_backward_calls", "region"): {"backward-effect"},
    ("function_called_under_vmap", "region"): {"autograd-function"},
    ("function_called_under_vmap", "step"): {"autograd-function"},
    ("grad_of_grad_outside", "region"): {"double-backward"},
    ("gradient_penalty_outside", "region"): {"double-backward"},
    ("hook_that_records_gradients", "region"): {"backward-effect"},
    ("hook_on_an_input_that_is_no_leaf", "region"): {"autograd"},
    ("hook_on_an_input_that_is_no_leaf", "step"): {"autograd"},
    ("hook_handle_returned", "region"): {"backward-effect"},
    ("hook_inside_on_a_result_removed_outside", "region"): {"backward-effect"},
    ("full_backward_hook", "region"): {"backward-effect"},
    ("backward_hook_on_the_outer_module_without_input_gradient", "region"): {"backward-effect"},
    ("module_hooks_in_order", "region"): {"backward-effect"},
    ("class_activation_map", "region"): {"backward-effect"},
    ("gradient_kept_on_the_module", "region"): {"backward-effect"},
    ("module_hook_for_all_modules", "region"): {"backward-effect"},
    ("module_hook_removed_by_itself", "region"): {"backward-effect"},
    ("module_hook_that_raises", "region"): {"backward-effect"},
    ("module_hook_that_decides_by_a_gradient", "region"): {"backward-effect"},
    ("module_hook_that_decides_by_a_gradient", "step"): {"autograd", "backward-effect"},
    ("module_hook_with_a_wrong_number_of_gradients", "region"): {"backward-effect"},
    ("history_from_outside_is_compared", "step"): {"autograd"},
    ("packed_by_name", "region"): {"autograd", "backward-effect"},
    ("packed_wrong", "region"): {"autograd", "backward-effect"},
    ("packed_wrong", "step"): {"autograd", "backward-effect"},
    ("packed_and_break", "region"): {"data-dependent"},
    ("packed_and_break", "step"): {"autograd", "data-dependent"},
    ("allow_mutation", "region"): {"context", "modes-active"},
    ("allow_mutation", "step"): {"context", "modes-active"},
    ("multi_grad_hook", "region"): {"backward-effect"},
    ("multi_grad_hook", "step"): {"autograd", "backward-effect"},
    ("retained_gradient_of_a_result", "region"): {"needs-grad"},
    ("anomaly_mode", "region"): {"native-call"},
    ("anomaly_mode", "step"): {"autograd", "native-call"},
    ("write_to_input_with_history", "step"): {"autograd"},
    ("write_to_view_of_input_with_history", "step"): {"autograd"},
    ("write_to_saved_value_raises", "region"): {"needs-grad"},
    ("input_and_its_view", "step"): {"autograd"},
    ("overlapping_views_written", "region"): {"needs-grad"},
    ("overlapping_views_written", "step"): {"needs-grad"},
    ("views_of_one_base_with_history", "region"): {"needs-grad"},
    ("views_of_one_base_with_history", "step"): {"autograd"},
    ("complex_views_written", "region"): {"needs-grad"},
    ("written_after_it_was_saved", "region"): {"needs-grad"},
    ("checkpoint_in_contexts_of_ones_own", "region"): {"native-call"},
    ("checkpoint_in_contexts_of_ones_own", "step"): {"autograd", "native-call"},
    ("lazy_linear", "region"): {"opaque-value", "tensor-layout"},
    ("lazy_linear", "step"): {"opaque-value", "tensor-layout"},
    ("rnn_from_packed_sequences", "region"): {"data-dependent", "operator-error"},
    ("rnn_from_packed_sequences", "step"): {"autograd", "data-dependent", "operator-error"},
    ("adaptive_softmax", "region"): {"assumption-failed", "data-dependent"},
    ("adaptive_softmax", "step"): {"assumption-failed", "data-dependent"},
    ("is_grads_batched", "region"): {"double-backward"},
    ("is_grads_batched", "step"): {"autograd", "double-backward", "unknown-native"},
    ("expanded_and_non_dense_inputs", "step"): {"autograd"},
    ("a_leaf_made_inside_and_returned", "region"): {"needs-grad"},
    ("lazily_conjugated_and_negated", "region"): {"result"},
    ("lazily_conjugated_and_negated", "step"): {"result"},
    ("sparse_embedding_gradient", "region"): {"needs-grad"},
    ("sparse_embedding_gradient", "step"): {"tensor-layout"},
}


#: (case, road) -> what the error says where eager has an answer.
REFUSED: dict[tuple[str, str], str] = {
    ("function_twice_differentiated", "region"): "cannot be differentiated again",
    ("second_derivative_of_a_written_input", "region"): "cannot be differentiated again",
}


class _Road:
    """A case made anew, and how it is run."""

    def __init__(self, name: str, road: str, compiled: bool = True) -> None:
        torch.manual_seed(0)
        self.road = road
        self.function, self.inputs, *rest = TABLE[name]()
        self.use = rest[0] if rest else backward
        self.compiled: Any = None
        function, use = self.function, self.use
        if road == "region" and compiled:
            function = self.compiled = lampwork.compile(function, options={"cache": False})

        def step(*inputs: Any) -> Any:
            results = function(*inputs)
            return results, use(results, inputs)

        self.step = step
        if road == "step" and compiled:
            self.step = self.compiled = lampwork.compile(step, options={"cache": False})

    def run(self, number: int) -> dict[str, Any]:
        """Everything that call `number` leaves behind."""
        torch.manual_seed(number)
        inputs = _again(self.inputs)
        given = tensors(inputs)
        versions = [each._version for each in given]
        seen: dict[str, Any] = {}
        try:
            results, used = self.step(*inputs)
        except Exception as error:
            return {"error": type(error).__name__, "text": str(error)}
        seen["results"], seen["used"], seen["inputs"] = described(results), described(used), described(inputs)
        seen["identity"] = [[one is other for other in given] for one in tensors(results)]
        everything = tensors(results) + given
        seen["memory"] = [[_together(one, other) for other in everything] for one in everything]
        if self.road != "step":  # there, histories that were used up are made anew
            seen["bases"] = [[_base(one) is other for other in everything] for one in tensors(results)]
        seen["written"] = [number for number, each in enumerate(given) if each._version != versions[number]]
        seen["generator"] = torch.get_rng_state()
        seen["modes"] = torch.is_grad_enabled()
        if isinstance(self.function, nn.Module):
            seen["parameters"] = described(dict(self.function.named_parameters()))
            seen["buffers"] = described(dict(self.function.named_buffers()))
        return seen


def _again(inputs: tuple) -> tuple:
    """The inputs anew, with their history and with what they share."""
    leaves: dict[int, torch.Tensor] = {}
    return tuple(_copied(each, leaves) for each in inputs)


def _copied(value: Any, made: dict[int, Any]) -> Any:
    if not isinstance(value, torch.Tensor):
        if isinstance(value, tuple) and not hasattr(value, "_fields"):
            return tuple(_copied(each, made) for each in value)
        return copy.deepcopy(value) if not isinstance(value, tuple) else type(value)(*[_copied(v, made) for v in value])
    if id(value) in made:
        return made[id(value)]
    base = value._base
    if base is not None:
        root = _copied(base, made)
        with torch.set_grad_enabled(value.requires_grad or not root.requires_grad):
            found = root.as_strided(value.shape, value.stride(), value.storage_offset())
    else:
        key = value.untyped_storage()._cdata, value.shape
        shared = made.get(key)
        if shared is not None:  # detached from one another
            found = shared.detach().as_strided(value.shape, value.stride(), value.storage_offset())
        else:
            found = torch.empty_strided(value.shape, value.stride(), dtype=value.dtype).copy_(value.detach())
        if value.requires_grad:
            found = found.requires_grad_() if value.is_leaf else found.requires_grad_() * 1
        made[key] = found
        found.grad = value.grad.clone() if value.is_leaf and value.grad is not None else found.grad
    made[id(value)] = found
    return found


def _together(one: torch.Tensor, other: torch.Tensor) -> bool:
    strided = one.layout == other.layout == torch.strided
    return strided and one.untyped_storage()._cdata == other.untyped_storage()._cdata and one.numel() > 0


def _base(tensor: torch.Tensor) -> torch.Tensor | None:
    return tensor._base if tensor.layout == torch.strided else None


@dataclasses.dataclass
class _Tensor:
    values: torch.Tensor
    shown: dict[str, Any]
    gradient: Any


def described(value: Any) -> Any:
    """A value with everything that can be compared of its tensors, as it is now."""
    if isinstance(value, torch.Tensor):
        sparse = value.layout != torch.strided
        shown = {
            "type": type(value).__name__, "dtype": value.dtype, "shape": tuple(value.shape), "layout": value.layout,
            "strides": None if sparse else [s for s, size in zip(value.stride(), value.shape) if size > 1],
            "requires_grad": value.requires_grad, "leaf": value.is_leaf, "conjugated": value.is_conj(),
            "negated": value.is_neg(),
        }  # fmt: skip
        if value.requires_grad and (value.is_leaf or value.retains_grad):
            shown["retains"] = value.retains_grad
            grad = value.grad.resolve_conj() if value.grad is not None else None
        else:
            grad = None
        return _Tensor(value.detach().clone(), shown, described(grad))
    if isinstance(value, dict):
        return type(value).__name__, {key: described(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value).__name__, [described(each) for each in value]
    if dataclasses.is_dataclass(value):
        return type(value).__name__, {
            each.name: described(getattr(value, each.name)) for each in dataclasses.fields(value)
        }
    if isinstance(value, torch.utils.hooks.RemovableHandle):
        return "handle"
    return value


def compare(found: Any, expected: Any, where: str) -> None:
    """Raises AssertionError, which says where, unless the two descriptions are alike."""
    assert type(found) is type(expected), f"{where}: {found} for {expected}"
    if isinstance(expected, _Tensor):
        assert found.shown == expected.shown, f"{where}: {found.shown} for {expected.shown}"
        one, other = found.values, expected.values
        if one.layout != torch.strided:
            one, other = one.to_dense(), other.to_dense()
        tolerance = 2e-2 if one.dtype in (torch.bfloat16, torch.float16) or "autocast" in where else 2e-4
        torch.testing.assert_close(
            one, other, rtol=tolerance, atol=tolerance / 10, equal_nan=True, msg=lambda text: f"{where}: {text}"
        )
        compare(found.gradient, expected.gradient, f"{where}.grad")
    elif isinstance(expected, dict):
        assert list(found) == list(expected), f"{where}: {list(found)} for {list(expected)}: {found}, {expected}"
        for key in expected:
            compare(found[key], expected[key], f"{where}.{key}")
    elif isinstance(expected, (list, tuple)):
        assert len(found) == len(expected), f"{where}: {len(found)} items for {len(expected)}"
        for number, (one, other) in enumerate(zip(found, expected)):
            compare(one, other, f"{where}[{number}]")
    elif isinstance(expected, torch.Tensor):
        assert torch.equal(found, expected), where
    elif isinstance(expected, float):
        assert abs(found - expected) <= 1e-4 + 1e-4 * abs(expected), f"{where}: {found} for {expected}"
    else:
        assert found == expected, f"{where}: {found!r} for {expected!r}"


def checked(name: str, road: str) -> set[str]:
    """Runs the case on the road and in eager; the ids of what did not run compiled. Raises where they differ."""
    eager, other = _Road(name, road, compiled=False), _Road(name, road)
    raised = False
    for number in range(CALLS):
        try:
            expected = eager.run(number)
            found = other.run(number)
        finally:
            torch.set_grad_enabled(True)
        said, _ = found.pop("text", ""), expected.pop("text", "")
        if (name, road) in REFUSED:
            assert REFUSED[name, road] in said, f"{name} ({road}): {said or 'no error'}"
            return set()
        if "written" in found and "written" in expected:  # writes through `x.data` count, too
            assert set(found.pop("written")) >= set(expected.pop("written")), f"{name} ({road}): versions"
        raised = raised or "error" in expected
        compare(found, expected, f"{name} ({road}), call {number}")
    counted = lampwork.stats(other.compiled)
    # Calls that raise in eager run eagerly here, and are counted.
    expected_ids = {"exception"} if raised else set()
    return {each.diagnostic.id for each in (*counted["breaks"], *counted["fallbacks"])} - expected_ids


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("road", ["region", "step"])
@pytest.mark.parametrize("name", TABLE)
def test_case(name: str, road: str) -> None:
    assert checked(name, road) == COUNTED.get((name, road), set())


if (
    __name__ == "__main__"
):  # python -m tests.training.test_semantics [names]: what breaks, what runs eagerly, what differs
    import sys
    import traceback
    import warnings

    warnings.simplefilter("ignore")
    for each in sys.argv[1:] or TABLE:
        for way in ("region", "step"):
            try:
                ids = checked(each, way)
            except Exception as error:
                if sys.argv[1:]:
                    traceback.print_exc()
                print(f"WRONG {each} ({way}): {type(error).__name__}: {str(error).strip()[:400]}", flush=True)
                continue
            if ids != COUNTED.get((each, way), set()):
                print(f"ids   {each} ({way}): {', '.join(sorted(ids))}", flush=True)

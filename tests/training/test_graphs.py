"""CUDA graphs of both halves of a program, on the CPU: the tests for a GPU on a stand-in for it, and the rules."""

from __future__ import annotations

import pytest

from tests.gpu.test_training_graphs import (  # noqa: F401
    CALLS,
    account,
    close_gradients,
    pair,
    rows,
    test_a_generator_and_its_critic,
    test_a_hook_that_raises_between_two_modules,
    test_a_weight_written_between_the_passes_is_an_error,
    test_backward_passes_in_any_order,
    test_batch_norm_writes_its_statistics,
    test_both_halves_are_replayed,
    test_changed_weights_are_seen,
    test_dropout_draws_anew_and_backward_draws_it_again,
    test_forward_passes_without_a_backward_one,
    test_gradients_are_accumulated,
    test_gradients_of_inputs_through_two_modules,
    test_gradients_that_are_held_while_forward_passes_run,
    test_hooks_on_saved_tensors,
    test_hooks_see_gradients,
    test_results_and_gradients_that_the_caller_keeps,
    test_retain_graph,
    test_several_forward_passes_before_a_backward_one,
    test_sizes_that_vary,
    test_the_graph_is_kept_for_several_backward_passes,
    test_training_with_an_optimizer,
    test_two_threads,
)
from tests.graph_device import on_stand_in
from tests.training.test_programs import COUNTED, trained


@pytest.fixture
def stand_in():
    with on_stand_in() as device:
        yield device


@pytest.fixture
def device(stand_in):
    return "cpu"


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    "name",
    [
        "accumulated gradients", "checkpoint", "complex", "dropouts", "evaluated on every other step", "frozen", "gan",
        "gradient penalty", "hooks on gradients", "norms", "own function", "tied", "two losses",
    ],
)  # fmt: skip
def test_programs_that_users_write(name):
    """Graphs from the first call on: losses, gradients and weights come to what eager's come to."""
    with on_stand_in(0, always=True):
        assert trained(name, "module") == COUNTED.get((name, "module"), set())

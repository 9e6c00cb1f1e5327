"""Where no gradient is asked for that reads what is saved, zeros take its place: LAPACK refuses a pivot of 0."""

from __future__ import annotations

import pytest
import torch

import lampwork

PROGRAMS = {
    "logdet": torch.logdet,
    "det": torch.linalg.det,
    "slogdet": lambda x: torch.linalg.slogdet(x)[1],
    "solve": lambda x: torch.linalg.solve(x, x.sin()),
    "tensorsolve": lambda x: torch.linalg.tensorsolve(x, torch.ones(3)),
    "lu_solve": lambda x: torch.linalg.lu_solve(*torch.linalg.lu_factor_ex(x)[:2], x.sin()),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_result_beside_a_solution(name):
    program = lambda x: (PROGRAMS[name](x), x * 2)
    compiled = lampwork.compile(program)
    for _ in range(2):
        matrix = torch.randn(3, 3) + 3 * torch.eye(3)
        gradients = []
        for each in (program, compiled):
            x = matrix.clone().requires_grad_()
            solution, scaled = each(x)
            scaled.sum().backward()
            alone = x.grad.clone()
            solution.sum().backward()
            gradients.append((alone, x.grad))
        torch.testing.assert_close(gradients[1], gradients[0], rtol=1e-4, atol=1e-4)
    assert not lampwork.stats(compiled)["fallbacks"]


def test_a_result_beside_one_whose_saved_sizes_contents_decide():
    def program(x, targets, lengths, of_targets):
        return torch.nn.functional.ctc_loss(x.log_softmax(2), targets, lengths, of_targets), x * 2

    compiled = lampwork.compile(program)
    rest = torch.randint(1, 5, (2, 4)), torch.tensor([10, 9]), torch.tensor([4, 3])
    for _ in range(2):
        values = torch.randn(10, 2, 5)
        gradients = []
        for each in (program, compiled):
            x = values.clone().requires_grad_()
            loss, scaled = each(x, *rest)
            scaled.sum().backward()
            alone = x.grad.clone()
            loss.backward()
            gradients.append((alone, x.grad))
        torch.testing.assert_close(gradients[1], gradients[0])

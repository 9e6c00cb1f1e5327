"""Random numbers: eager's draws in eager's order, and the generator left where eager leaves it."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn

from tests.python.harness import program
from tests.python.tensors import values


def _x():
    return values(3, 4)


@program(together=lambda: (_x(),))
def seed_set_inside(x):
    torch.manual_seed(7)
    return x + torch.rand(3, 4), torch.randn(2)


@program(together=lambda: (_x(),))
def draws_of_every_kind(x):
    torch.manual_seed(1)
    return torch.rand_like(x), torch.randn_like(x), torch.randint(0, 10, (3,)), torch.randperm(5), torch.normal(x, 1.0)


@program(together=lambda: (_x(),))
def draws_without_a_seed(x):
    return (x + torch.rand(3, 4)).shape, torch.randn(2, 2).dtype


@program(together=lambda: (_x(),))
def dropout_in_training(x):
    torch.manual_seed(3)
    return F.dropout(x, 0.5, training=True), F.dropout(x, 0.5, training=False)


@program(together=lambda: (_x(), nn.Dropout(0.3)))
def dropout_module(x, dropout):
    torch.manual_seed(3)
    first = dropout(x)
    return first, dropout.eval()(x)


@program(together=lambda: (_x(), torch.Generator().manual_seed(5)))
def generator_as_argument(x, generator):
    return x + torch.randn(3, 4, generator=generator)


@program(together=lambda: (_x(),))
def generator_made_inside(x):
    generator = torch.Generator()
    generator.manual_seed(11)
    return x + torch.rand(3, 4, generator=generator), torch.randint(0, 5, (2,), generator=generator)


@program(together=lambda: (_x(),))
def forked_generator(x):
    torch.manual_seed(0)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(9)
        inside = torch.rand(2)
    return inside, torch.rand(2) + x[0, :2]


@program(together=lambda: (_x(),))
def state_saved_and_restored(x):
    torch.manual_seed(0)
    state = torch.get_rng_state()
    first = torch.rand(3)
    torch.set_rng_state(state)
    return first, torch.rand(3), x


@program(together=lambda: (_x(),))
def filled_in_place(x):
    torch.manual_seed(2)
    x.uniform_(-1, 1)
    y = torch.empty(3).normal_(0, 2)
    z = torch.empty(4).bernoulli_(0.5)
    return x, y, z, torch.empty(3).exponential_()


@program(together=lambda: (_x(),))
def samples_from_distributions(x):
    torch.manual_seed(4)
    weights = x.softmax(-1)
    return torch.multinomial(weights, 2), torch.bernoulli(weights), torch.poisson(weights * 4)


@program(together=lambda: (_x(),))
def distribution_objects(x):
    torch.manual_seed(4)
    normal = torch.distributions.Normal(x, torch.ones_like(x))
    return normal.sample(), normal.log_prob(x + 1), normal.entropy()


@program(together=lambda: (_x(),))
def categorical_distribution(x):
    torch.manual_seed(4)
    categorical = torch.distributions.Categorical(logits=x)
    action = categorical.sample()
    return action, categorical.log_prob(action)


@program(together=lambda: (_x(),))
def gumbel_softmax(x):
    torch.manual_seed(6)
    return F.gumbel_softmax(x, tau=0.5), F.gumbel_softmax(x, hard=True)


@program(together=lambda: (_x(), 0.5))
def stochastic_depth(x, rate):
    torch.manual_seed(8)
    mask = torch.empty(x.shape[0], 1).bernoulli_(1 - rate)
    return x / (1 - rate) * mask


@program(together=lambda: (_x(),))
def weights_initialised(x):
    torch.manual_seed(0)
    weight = torch.empty(4, 4)
    nn.init.xavier_uniform_(weight)
    nn.init.kaiming_normal_(weight[:2])
    return x @ weight


@program(together=lambda: (_x(),))
def policy_sampled_and_scored(x):
    torch.manual_seed(2)
    policy = torch.distributions.Categorical(logits=x)
    action = policy.sample()
    return action, policy.log_prob(action).sum(), policy.entropy().mean()


@program(together=lambda: (_x(),))
def latent_drawn_with_its_gradient_path(x):
    torch.manual_seed(2)
    mean, log_scale = x.chunk(2, 1)
    drawn = torch.distributions.Normal(mean, log_scale.exp()).rsample()
    prior = torch.distributions.Normal(torch.zeros_like(mean), torch.ones_like(mean))
    return drawn, prior.log_prob(drawn).sum(1)


@program(together=lambda: (_x(), torch.Generator().manual_seed(1)))
def generator_handed_to_a_helper(x, generator):
    def noise(shape):
        return torch.randn(shape, generator=generator)

    return x + noise(x.shape), noise((2,))


@program(together=lambda: (_x(),))
def kept_where_a_draw_says(x):
    torch.manual_seed(9)
    keep = torch.rand(x.shape[0]) < 0.7
    return x[keep], keep.sum()

"""Models that make something: diffusion, autoencoders, adversaries."""

from __future__ import annotations

import copy
import math

import torch
from torch import nn
from torch.nn import functional as F

from tests.training.scripts.support import mlp, script, state


class Denoiser(nn.Module):
    """A small U of convolutions that is told the time."""

    def __init__(self):
        super().__init__()
        self.time = mlp(16, 32, 8, activation=nn.SiLU)
        self.enter = nn.Conv2d(1, 8, 3, padding=1)
        self.down = nn.Conv2d(8, 16, 4, stride=2, padding=1)
        self.norm = nn.GroupNorm(4, 16)
        self.up = nn.ConvTranspose2d(16, 8, 4, stride=2, padding=1)
        self.leave = nn.Conv2d(16, 1, 3, padding=1)

    def forward(self, x, t):
        frequencies = torch.exp(-math.log(1000.0) * torch.arange(8) / 8)
        angles = t[:, None].to(x.dtype) * frequencies
        told = self.time(torch.cat([angles.sin(), angles.cos()], -1))
        first = self.enter(x) + told[:, :, None, None]
        low = F.silu(self.norm(self.down(F.silu(first))))
        return self.leave(torch.cat([first, self.up(low)], 1))


@script
def ddpm(compile):
    """Noise is added, the model finds it; an average of the weights follows; samples are drawn at the end."""
    model = Denoiser()
    average = copy.deepcopy(model)
    fast = compile(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    kept = torch.cumprod(1 - torch.linspace(1e-4, 0.02, 50), 0)
    losses = []
    for _ in range(6):
        x, noise, t = torch.randn(4, 1, 8, 8), torch.randn(4, 1, 8, 8), torch.randint(0, 50, (4,))
        share = kept[t].view(-1, 1, 1, 1)
        loss = F.mse_loss(fast(share.sqrt() * x + (1 - share).sqrt() * noise, t), noise)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        with torch.no_grad():
            for slow, new in zip(average.parameters(), model.parameters()):
                slow.lerp_(new, 0.1)
        losses.append(loss.item())
    model.eval()
    with torch.no_grad():
        sample = torch.randn(2, 1, 8, 8)
        for step in (40, 20, 0):
            sample = sample - 0.1 * fast(sample, torch.full((2,), step))
    return {"losses": losses, "state": state(model, average), "sample": sample}


@script
def vae(compile):
    """Reparametrised samples, two losses, one weighed by a schedule."""

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.encoder, self.decoder = mlp(20, 32, 8), mlp(4, 32, 20)

        def forward(self, x):
            mean, log_variance = self.encoder(x).chunk(2, -1)
            z = mean + torch.randn_like(mean) * (0.5 * log_variance).exp()
            return self.decoder(z), mean, log_variance

    model = Model()
    fast, optimizer = compile(model), torch.optim.Adam(model.parameters(), lr=1e-3)
    losses = []
    for step in range(6):
        x = torch.rand(8, 20)
        logits, mean, log_variance = fast(x)
        far = F.binary_cross_entropy_with_logits(logits, x, reduction="sum")
        divergence = -0.5 * (1 + log_variance - mean.pow(2) - log_variance.exp()).sum()
        loss = far + min(1.0, step / 4) * divergence
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return {"losses": losses, "state": state(model)}


@script
def vq_vae(compile):
    """Nearest codes with gradients straight through, the codebook learned by moving averages in the forward."""

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.encoder, self.decoder = mlp(12, 24, 6), mlp(6, 24, 12)
            self.register_buffer("codes", torch.randn(10, 6))
            self.register_buffer("counts", torch.ones(10))

        def forward(self, x):
            z = self.encoder(x)
            index = torch.cdist(z, self.codes).argmin(-1)
            chosen = self.codes[index]
            if self.training:
                with torch.no_grad():
                    hot = F.one_hot(index, 10).to(z.dtype)
                    self.counts.mul_(0.9).add_(hot.sum(0), alpha=0.1)
                    self.codes.lerp_((hot.t() @ z) / self.counts[:, None].clamp(min=0.1), 0.1)
            return self.decoder(z + (chosen - z).detach()), F.mse_loss(z, chosen.detach())

    model = Model()
    fast, optimizer = compile(model), torch.optim.Adam(model.parameters(), lr=1e-3)
    losses = []
    for _ in range(6):
        x = torch.randn(16, 12)
        made, commitment = fast(x)
        loss = F.mse_loss(made, x) + 0.25 * commitment
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return {"losses": losses, "state": state(model)}


@script
def gan(compile):
    """Two models, two optimizers; the second loss goes through both."""
    generator = nn.Sequential(nn.Linear(4, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Linear(32, 10), nn.Tanh())
    critic = nn.Sequential(nn.Linear(10, 32), nn.LeakyReLU(0.2), nn.Linear(32, 1))
    make, judge = compile(generator), compile(critic)
    first = torch.optim.Adam(generator.parameters(), lr=2e-3, betas=(0.5, 0.999))
    second = torch.optim.Adam(critic.parameters(), lr=2e-3, betas=(0.5, 0.999))
    losses = []
    for _ in range(6):
        real, fake = torch.randn(8, 10), make(torch.randn(8, 4))
        second.zero_grad()
        told = F.binary_cross_entropy_with_logits(judge(real), torch.ones(8, 1))
        told = told + F.binary_cross_entropy_with_logits(judge(fake.detach()), torch.zeros(8, 1))
        told.backward()
        second.step()
        first.zero_grad()
        fooled = F.binary_cross_entropy_with_logits(judge(fake), torch.ones(8, 1))
        fooled.backward()
        first.step()
        losses += [told.item(), fooled.item()]
    return {"losses": losses, "state": state(generator, critic)}


@script
def wgan_penalty(compile):
    """A penalty on the critic's gradient, which is differentiated itself."""
    generator, critic = mlp(4, 16, 6), mlp(6, 16, 1, activation=nn.Tanh)
    judge = compile(critic)
    optimizer = torch.optim.RMSprop(critic.parameters(), lr=1e-3)
    losses = []
    for _ in range(5):
        real, fake = torch.randn(8, 6), generator(torch.randn(8, 4)).detach()
        share = torch.rand(8, 1)
        between = (share * real + (1 - share) * fake).requires_grad_()
        slope = torch.autograd.grad(judge(between).sum(), between, create_graph=True)[0]
        loss = judge(fake).mean() - judge(real).mean() + 10 * ((slope.norm(dim=1) - 1) ** 2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return {"losses": losses, "state": state(critic)}


@script
def normalizing_flow(compile):
    """Coupling layers and the logarithm of their volume."""

    class Flow(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = nn.ModuleList(mlp(3, 16, 6, activation=nn.Tanh) for _ in range(4))

        def forward(self, x):
            volume = x.new_zeros(x.shape[0])
            for layer in self.layers:
                kept, moved = x.chunk(2, -1)
                scale, shift = layer(kept).chunk(2, -1)
                scale = scale.tanh()
                x = torch.cat([moved * scale.exp() + shift, kept], -1)
                volume = volume + scale.sum(-1)
            return x, volume

    model = Flow()
    fast, optimizer = compile(model), torch.optim.Adamax(model.parameters(), lr=2e-3)
    losses = []
    for _ in range(6):
        z, volume = fast(torch.randn(8, 6) * 2 + 1)
        normal = torch.distributions.Normal(0.0, 1.0)
        loss = -(normal.log_prob(z).sum(-1) + volume).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return {"losses": losses, "state": state(model)}


@script
def masked_autoencoder(compile):
    """A share of the patches, drawn anew, is dropped by `gather` and put back by its inverse."""

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed = nn.Linear(12, 16)
            self.place = nn.Parameter(torch.randn(1, 9, 16) * 0.02)
            self.mask = nn.Parameter(torch.zeros(1, 1, 16))
            self.encoder = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, batch_first=True, norm_first=True)
            self.decoder = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, batch_first=True, norm_first=True)
            self.head = nn.Linear(16, 12)

        def forward(self, x):
            order = torch.rand(x.shape[:2]).argsort(1)
            back, kept = order.argsort(1), order[:, :4]
            h = self.embed(x) + self.place
            h = self.encoder(h.gather(1, kept[..., None].expand(-1, -1, 16)))
            whole = torch.cat([h, self.mask.expand(x.shape[0], 5, -1)], 1)
            whole = whole.gather(1, back[..., None].expand(-1, -1, 16)) + self.place
            hidden = (back >= 4).to(x.dtype)
            error = (self.head(self.decoder(whole)) - x).square().mean(-1)
            return (error * hidden).sum() / hidden.sum()

    model = Model()
    fast, optimizer = compile(model), torch.optim.AdamW(model.parameters(), lr=1e-3, betas=(0.9, 0.95))
    losses = []
    for _ in range(5):
        loss = fast(torch.randn(4, 9, 12))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return {"losses": losses, "state": state(model)}

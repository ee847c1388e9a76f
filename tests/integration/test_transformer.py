"""A small transformer, trained for some steps here and on the CPU."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn
from torch.nn import functional

pytestmark = pytest.mark.device

VOCABULARY, WIDTH, LENGTH, BATCH, STEPS = 17, 16, 8, 4, 6


class Tiny(nn.Module):  # type: ignore[misc]  # torch is untyped where the type checker runs
    """Embedding, two blocks of causal attention and feed-forward, tied output."""

    def __init__(self):
        super().__init__()
        self.tokens, self.places = nn.Embedding(VOCABULARY, WIDTH), nn.Embedding(LENGTH, WIDTH)
        self.blocks = nn.ModuleList(
            nn.TransformerEncoderLayer(WIDTH, 2, 32, dropout=0.0, batch_first=True, norm_first=True) for _ in range(2)
        )
        self.norm, self.output = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, VOCABULARY, bias=False)
        self.output.weight = self.tokens.weight

    def forward(self, text):
        hidden = self.tokens(text) + self.places(torch.arange(text.shape[1], device=text.device))
        mask = nn.Transformer.generate_square_subsequent_mask(text.shape[1], device=text.device)
        for block in self.blocks:
            hidden = block(hidden, src_mask=mask, is_causal=True)
        return self.output(self.norm(hidden))


@pytest.fixture(scope="module")
def model():
    torch.manual_seed(5)
    return Tiny()


@pytest.fixture(scope="module")
def text():
    return (torch.arange(BATCH * (LENGTH + 1)) * 7 % VOCABULARY).reshape(BATCH, LENGTH + 1)


def losses(model, text, **options):
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2, **options)
    told = []
    for _ in range(STEPS):
        optimizer.zero_grad()
        scores = model(text[:, :-1])
        loss = functional.cross_entropy(scores.flatten(0, 1), text[:, 1:].flatten())
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        told.append(loss.item())
    return told


@pytest.mark.parametrize("foreach", [False, True], ids=["loop", "foreach"])
def test_training_must_follow_the_cpu_and_learn(device, product_tolerance, model, text, foreach):
    expected = losses(copy.deepcopy(model), text, foreach=False)
    got = losses(copy.deepcopy(model).to(device), text.to(device), foreach=foreach)
    assert got[-1] < got[0] * 0.8
    torch.testing.assert_close(
        torch.tensor(got), torch.tensor(expected), rtol=0, atol=max(1e-3, 10 * product_tolerance["atol"])
    )


def test_training_twice_must_give_the_same_losses(device, model, text):
    runs = [losses(copy.deepcopy(model).to(device), text.to(device)) for _ in range(2)]
    torch.testing.assert_close(torch.tensor(runs[0]), torch.tensor(runs[1]), rtol=1e-5, atol=1e-6)


def test_inference_must_equal_cpu(device, product_tolerance, model, text):
    here, there = copy.deepcopy(model).eval(), copy.deepcopy(model).eval().to(device)
    with torch.inference_mode():
        torch.testing.assert_close(
            there(text[:, :-1].to(device)).cpu(), here(text[:, :-1]), rtol=1e-3, atol=10 * product_tolerance["atol"]
        )


def test_first_gradients_must_equal_cpu(device, product_tolerance, model, text):
    gradients = []
    for place in ("cpu", device):
        twin = copy.deepcopy(model).to(place)
        twin(text[:, :-1].to(place)).square().mean().backward()
        gradients.append([value.grad.cpu() for value in twin.parameters()])
    torch.testing.assert_close(gradients[1], gradients[0], rtol=1e-3, atol=10 * product_tolerance["atol"])


def test_greedy_generation_must_give_the_tokens_of_the_cpu(device, model, text):
    told = []
    for place in ("cpu", device):
        twin, tokens = copy.deepcopy(model).eval().to(place), text[:1, :2].to(place)
        with torch.no_grad():
            while tokens.shape[1] < LENGTH:
                following = twin(tokens)[:, -1].argmax(-1, keepdim=True)
                tokens = torch.cat([tokens, following], 1)
        told.append(tokens.tolist())
    assert told[0] == told[1]

"""Probabilities of all options of discrete heads, and which of them an action consists of."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from gymnasium import spaces
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.fx.experimental.proxy_tensor import make_fx

from maze_pl.distributions import (
    BernoulliProbabilityDistribution,
    CategoricalProbabilityDistribution,
    MultiCategoricalProbabilityDistribution,
)
from maze_pl.distributions.probability_distribution import choice_sizes, chosen_options

DISCRETE = {
    "categorical": (CategoricalProbabilityDistribution, spaces.Discrete(4, start=3)),
    "multi_categorical": (MultiCategoricalProbabilityDistribution, spaces.MultiDiscrete([[3, 2], [4, 1]])),
    "bernoulli": (BernoulliProbabilityDistribution, spaces.MultiBinary((2, 2))),
}


def test_probabilities_computed_by_hand():
    bits = BernoulliProbabilityDistribution(torch.tensor([3.0, 1.0]).log(), spaces.MultiBinary(2))
    torch.testing.assert_close(bits.probabilities()[0], torch.tensor([0.25, 0.75, 0.5, 0.5]))
    masked = MultiCategoricalProbabilityDistribution(
        torch.tensor([1.0, 3.0, 9.0, 9.0, 9.0]).log(),
        spaces.MultiDiscrete([3, 2]),
        mask=torch.tensor([1, 1, 0, 0, 1]),
    )
    probability, log_prob = masked.probabilities()
    torch.testing.assert_close(probability, torch.tensor([0.25, 0.75, 0.0, 0.0, 1.0]))
    torch.testing.assert_close(log_prob, torch.tensor([0.25, 0.75, 1.0, 1.0, 1.0]).log())


@pytest.mark.parametrize("name", DISCRETE)
@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_probabilities_agree_with_log_probabilities_and_entropies(name, data):
    kind, space = DISCRETE[name]
    (size,) = kind.required_logits_shape(space)
    mask = data.draw(st.none() | st.lists(st.booleans(), min_size=size, max_size=size))
    scale = data.draw(st.sampled_from([0.0, 1.0, 1e20]))
    logits = (scale * torch.randn(16, size, generator=torch.Generator().manual_seed(0))).requires_grad_()
    one = kind(logits, space, mask=None if mask is None else torch.tensor(mask).expand(16, size))
    probability, log_prob = one.probabilities()
    sizes = choice_sizes(space)
    assert probability.shape == (16, sum(sizes))
    totals = torch.stack([part.sum(dim=-1) for part in probability.split(sizes, dim=-1)])
    torch.testing.assert_close(totals, torch.ones_like(totals))
    entropy = -(probability * log_prob).sum(dim=-1)
    torch.testing.assert_close(entropy, one.entropy())
    action = one.sample(torch.Generator().manual_seed(1))
    chosen = log_prob.gather(-1, chosen_options(space, action)).sum(dim=-1)
    torch.testing.assert_close(chosen, one.log_prob(action))
    if kind is not BernoulliProbabilityDistribution:  # the others compute both in a way of their own
        torch.testing.assert_close((chosen, entropy), one.log_prob_and_entropy(action))
    elif mask is None:
        bits = torch.distributions.Bernoulli(logits=logits.double())
        torch.testing.assert_close(chosen.double(), bits.log_prob(action.flatten(1).double()).sum(dim=-1))
    (gradient,) = torch.autograd.grad((entropy * 1e3).sum(), logits)
    assert torch.isfinite(gradient).all()
    assert mask is None or not gradient[:, ~torch.tensor(mask)].any()


SPACES = [*(space for _, space in DISCRETE.values()), spaces.MultiDiscrete([3, 3, 3]), spaces.MultiDiscrete([5])]


@pytest.mark.parametrize("space", SPACES, ids=str)
def test_chosen_options_count_through_all_choices_and_copy_nothing_to_the_device(space):
    actions = np.stack([space.sample() for _ in range(20)])
    action = torch.from_numpy(actions)
    found = chosen_options(space, action)
    start = int(space.start) if isinstance(space, spaces.Discrete) else 0
    for row, options in zip(actions.reshape(20, -1) - start, found.tolist(), strict=True):
        first, expected = 0, []
        for choice, size in zip(row.tolist(), choice_sizes(space), strict=True):
            expected.append(first + choice)
            first += size
        assert options == expected
    graph = make_fx(lambda given: chosen_options(space, given))(action)
    assert not [node for node in graph.graph.nodes if node.op == "get_attr"], "a tensor that was made on the host"

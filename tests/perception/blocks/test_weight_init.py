from __future__ import annotations

import doctest

import pytest
import torch
from gymnasium import spaces
from torch import nn

from maze_pl.distributions import BernoulliProbabilityDistribution
from maze_pl.perception import LinearOutputBlock, compute_sigmoid_bias, make_module_init_normc
from maze_pl.perception.blocks import dense, weight_init


@pytest.mark.parametrize("layer", [nn.Linear(7, 5), nn.Conv1d(3, 5, 2), nn.Conv2d(3, 5, 3), nn.Conv3d(2, 5, 2)])
@pytest.mark.parametrize("std", [1.0, 0.01])
def test_incoming_weights_of_each_unit_have_the_given_norm_and_biases_are_zero(layer, std):
    layer.apply(make_module_init_normc(std))
    torch.testing.assert_close(layer.weight.flatten(1).norm(dim=1), torch.full((5,), std))
    assert not layer.bias.any()


def test_other_layers_and_missing_biases_are_left_alone():
    network = nn.Sequential(nn.Linear(3, 3, bias=False), nn.LayerNorm(3), nn.Embedding(4, 3))
    norm, embedding = network[1].weight.clone(), network[2].weight.clone()
    network.apply(make_module_init_normc(1.0))
    assert torch.equal(network[1].weight, norm)
    assert torch.equal(network[2].weight, embedding)


def test_weights_depend_on_the_global_generator():
    def weights(seed):
        torch.manual_seed(seed)
        return nn.Linear(3, 3).apply(make_module_init_normc(1.0)).weight

    assert torch.equal(weights(1), weights(1))
    assert not torch.equal(weights(1), weights(2))


@pytest.mark.parametrize("probability", [0.02, 0.1, 0.5, 0.9])
def test_a_bernoulli_head_with_the_bias_samples_at_the_rate(probability):
    torch.manual_seed(0)
    head = LinearOutputBlock("latent", "use", [8], output_units=4).apply(make_module_init_normc(0.01))
    nn.init.constant_(head.net.bias, compute_sigmoid_bias(probability))
    logits = head({"latent": torch.randn(1_000_000, 8)})["use"]
    sampled = BernoulliProbabilityDistribution(logits, spaces.MultiBinary(4)).sample()
    assert sampled.float().mean().item() == pytest.approx(probability, rel=0.02)


@pytest.mark.parametrize("probability", [0.0, 1.0, -0.1, 1.1, float("nan")])
def test_rates_that_no_bias_gives_are_refused(probability):
    with pytest.raises(ValueError, match=f"probability={probability} must lie between 0 and 1"):
        compute_sigmoid_bias(probability)


def test_the_examples_run():
    assert doctest.testmod(weight_init).failed == 0
    assert doctest.testmod(dense).failed == 0

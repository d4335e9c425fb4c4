"""Target entropies of soft actor-critic where the network itself masks options, as a block or with infinite logits."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import Tensor, nn

from maze_pl.core.batches import ReplayBatch, TransitionBatch
from maze_pl.core.spec import Spec, StepSpec
from maze_pl.modules import SAC
from maze_pl.perception import (
    CustomModelComposer,
    FlattenConcatStateActionValueNet,
    ProbabilisticPolicyComposer,
    SharedStateActionCriticComposer,
)

pytestmark = pytest.mark.filterwarnings("ignore:.*LeafSpec.*", "ignore:You defined a `validation_step`")

B = 6
LOWEST = torch.finfo(torch.float32).min
HEADS: dict[str, tuple[Any, list[int]]] = {
    "choice": (spaces.Discrete(5), [5]),
    "choices": (spaces.MultiDiscrete([2, 3]), [2, 3]),
    "bits": (spaces.MultiBinary(5), [1] * 5),
}


class Masking(nn.Module):
    """Masks its logits itself by an observation."""

    def __init__(self, obs_shapes: Any, action_logits_shapes: Any, low: float) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 5)
        self.low = low

    def forward(self, observation: dict[str, Tensor]) -> dict[str, Tensor]:
        return {"act": torch.where(observation["mask"] != 0, self.layer(observation["view"]), self.low)}


class Unmasked(Masking):
    """Leaves masks to the distribution."""

    def forward(self, observation: dict[str, Tensor]) -> dict[str, Tensor]:
        return {"act": self.layer(observation["view"])}


def make(kind: str, low: float | None, capture: str) -> SAC:
    """An agent whose network masks by a number, or which declares the mask if there is none."""
    observation = {"view": spaces.Box(-1, 1, (3,)), "mask": spaces.MultiBinary(5)}
    masks = {"act": "mask"} if low is None else {}
    spec = Spec({0: StepSpec(spaces.Dict(observation), spaces.Dict({"act": HEADS[kind][0]}), masks=masks)})
    policy = partial(Unmasked, low=0.0) if low is None else partial(Masking, low=low)
    critic = partial(FlattenConcatStateActionValueNet, hidden_units=[4])
    networks = CustomModelComposer(ProbabilisticPolicyComposer([policy]), SharedStateActionCriticComposer([critic]))
    torch.manual_seed(0)
    return SAC(networks=networks, spec=spec, capture=capture, entropy_coef_lr=0.01)  # type: ignore[arg-type]


def batch_of(kind: str, seed: int, n_updates: int = 2) -> ReplayBatch:
    """Transitions in which each choice has an allowed option; actions are the first allowed ones."""
    generator = torch.Generator().manual_seed(seed)
    sizes = HEADS[kind][1]
    shape = (n_updates, B)

    def observed() -> dict[str, Tensor]:
        mask = torch.randint(2, (*shape, 5), generator=generator, dtype=torch.int8)
        if kind != "bits":
            for part in torch.split(mask, sizes, -1):
                part[..., -1] = 1
        return {"view": torch.randn(*shape, 3, generator=generator), "mask": mask}

    observation = observed()
    action = torch.stack([part.argmax(-1) for part in torch.split(observation["mask"], sizes, -1)], -1)
    action = {"choice": action[..., 0], "choices": action, "bits": observation["mask"]}[kind]
    reward = torch.randn(shape, generator=generator)
    agents = torch.zeros(shape, dtype=torch.int64)
    acts = TransitionBatch(observation, {"act": action}, agents, observed(), reward, torch.full(shape, 0.9))
    return ReplayBatch({0: acts}, n_updates, None)


def target_by_counting(kind: str, mask: Tensor) -> float:
    """0.98 times the mean of the logarithms of the numbers of allowed actions, row by row."""
    totals = []
    for row in mask.reshape(-1, 5).tolist():
        parts = [row] if kind == "bits" else np.split(np.array(row), np.cumsum(HEADS[kind][1])[:-1])
        numbers = [2 ** sum(parts[0])] if kind == "bits" else [int(part.sum()) for part in parts]
        totals.append(sum(math.log(number) for number in numbers))
    return 0.98 * sum(totals) / len(totals)


@pytest.mark.parametrize("kind", HEADS)
@pytest.mark.parametrize("low", [LOWEST, -math.inf, None], ids=["lowest", "infinite", "declared"])
def test_options_that_the_network_masks_do_not_count_in_the_target_entropy(kind: str, low: float | None) -> None:
    module = make(kind, low, "off")
    (first, *_) = batch_of(kind, 1, 1).updates()
    loss, records = module._gradient_steps.evaluate(module.policy_loss, first)
    assert bool(loss.isfinite())
    recorded = {name: float(value.detach()) for name, value, *_ in records}
    assert recorded["target_entropy"] == pytest.approx(target_by_counting(kind, first[0].observation["mask"]), rel=1e-5)
    assert recorded["policy_entropy"] <= recorded["target_entropy"] / 0.98 + 1e-5
    for gradient in torch.autograd.grad(loss, list(module.policy.parameters())):
        assert bool(gradient.isfinite().all())


@pytest.mark.parametrize("capture", ["off", pytest.param("auto", marks=pytest.mark.slow)])
def test_an_agent_whose_network_masks_learns_as_one_that_declares_the_mask(kit: Any, capture: str) -> None:
    found = []
    for low in (LOWEST, -math.inf, None):
        module = make("choice", low, capture)
        torch.manual_seed(1)
        kit.fit(module, lambda seed: batch_of("choice", seed), length=2)
        assert (module.n_traces > 0) == (capture == "auto")
        table = module.epoch_statistics["train"]
        statistics = {name: value for name, value in table.items() if "entropy" in name}
        found.append((statistics, [value.detach().clone() for value in module.parameters()]))
    for statistics, parameters in found[:2]:
        assert statistics == pytest.approx(found[2][0], rel=1e-4)
        torch.testing.assert_close(parameters, found[2][1], rtol=1e-4, atol=1e-6)

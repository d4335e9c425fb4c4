"""Delta critics: the value of each act of a row, the credit that follows from it, and what they refuse."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import pytorch_lightning as pl
import torch
from torch import Tensor, nn

from maze_pl.agents import TorchActorCritic, TorchDeltaStateCritic, TorchPolicy, TorchSharedStateCritic
from maze_pl.core.batches import Rollout
from maze_pl.core.rows import FinalObservations, Rows, Segment
from maze_pl.core.spec import Spec
from maze_pl.modules import A2C, PPO, AlgorithmModule
from maze_pl.modules.on_policy.credit import delta_credit, shared_credit
from maze_pl.modules.on_policy.learning_batch import learning_batch
from tests.modules.kit import Network, step_spec
from tests.structured import agreement, hierarchy
from tests.structured.catalogue import random_rollout

# Lightning warns about itself with torch 2.13, and about a hook that the module overrides on purpose.
pytestmark = pytest.mark.filterwarnings("ignore:.*LeafSpec.*", "ignore:You defined a `validation_step`")

SPEC = Spec({0: step_spec(name="stock"), 1: step_spec(name="piece")})


class Sum(nn.Module):
    """Value: the sum of what is seen, times a weight."""

    def __init__(self, weight: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.tensor(weight))

    def forward(self, observation: dict[str, Tensor]) -> dict[str, Tensor]:
        (seen,) = observation.values()
        return {"value": self.weight * seen.sum(-1, keepdim=True)}


def column(*values: float) -> Tensor:
    """[T, 1] for one environment."""
    return torch.tensor(values, dtype=torch.float64)[:, None]


def flags(*values: int) -> Tensor:
    return torch.tensor(values, dtype=torch.bool)[:, None]


def rollout_of(rewards: list[Tensor], terminated: Tensor, truncated: Tensor, active: list[Tensor]) -> Rollout:
    """Rows in which sub-step 0 acts, then sub-step 1; observation [t, position, 0] of row t, final [9, 9, 9]."""
    n_rows = len(terminated)
    nothing = torch.zeros(n_rows, 1, dtype=torch.int64)
    end = -(terminated | truncated).long()
    total = torch.stack(rewards).sum(0)
    rows = Rows(flags(*[1] * n_rows), total, terminated, truncated, nothing + 1, nothing, nothing, end, end)
    segments = {}
    for position, (name, reward) in enumerate(zip(("stock", "piece"), rewards, strict=True)):
        time = torch.arange(float(n_rows))
        seen = torch.stack([time, torch.full_like(time, position), 0 * time], -1)[:, None]
        segments[position] = Segment(
            {name: seen}, {"action": nothing}, active[position], nothing + position, nothing, reward, nothing.bool(),
            nothing.bool(),
        )  # fmt: skip
    needed = truncated[:, 0].clone()
    needed[-1] = ~terminated[-1, 0]
    row = needed.nonzero()[:, 0]
    none = torch.zeros_like(row)
    first = FinalObservations(row, none, none, none, {"stock": torch.full((len(row), 3), 9.0)})
    second = FinalObservations(row[:0], none[:0], none[:0], none[:0], {"piece": torch.zeros(0, 3)})
    return Rollout(rows, segments, {0: first, 1: second}, n_rows, False)


BOTH = [flags(1, 1, 1), flags(1, 1, 1)]


def test_later_networks_add_to_the_value_before_and_leave_it_alone() -> None:
    critic = TorchDeltaStateCritic([Sum(1.0), Sum(10.0)], SPEC)
    stock, piece = torch.tensor([[1.0, 2.0, 3.0]]), torch.tensor([[0.0, 1.0, 0.0]])
    assert critic.value(0, {"stock": stock}).tolist() == [6.0]
    value = critic.value(1, {"piece": piece, "0/stock": stock})
    assert value.tolist() == [16.0]
    value.sum().backward()
    first, second = (network.weight.grad for network in critic.networks)
    assert first is None
    assert float(second) == 1.0


def test_credit_by_hand_within_rows_and_across_an_end() -> None:
    """gamma 0.5, lambda 0.5; values 1, 2 | 3, 5 | 4, 6 with the end of an episode after the second row."""
    rollout = rollout_of([column(0, 0, 0), column(1, 2, 3)], flags(0, 1, 0), flags(0, 0, 0), BOTH)
    values = {0: column(1, 3, 4), 1: column(2, 5, 6)}
    credit = delta_credit(rollout, values, {0: torch.tensor([8.0]), 1: torch.zeros(0)}, 0.5, 0.5)
    # Backwards: second act of row 2: 3 + 0.5 * 8 - 6 = 1; first: (6 - 4) + 0.5 * 1 = 2.5.
    # Row 1, the last of its episode: 2 - 5 = -3; (5 - 3) + 0.5 * -3 = 0.5.
    # Row 0: 1 + 0.5 * 3 - 2 + 0.5 * 0.5 * 0.5 = 0.625; (2 - 1) + 0.5 * 0.625 = 1.3125.
    assert credit[0].advantage[:, 0].tolist() == [1.3125, 0.5, 2.5]
    assert credit[1].advantage[:, 0].tolist() == [0.625, -3.0, 1.0]
    assert credit[0].return_[:, 0].tolist() == [2.3125, 3.5, 6.5]
    assert credit[1].return_[:, 0].tolist() == [2.625, 2.0, 7.0]
    assert all(bool((part.weight == 1).all() and (part.value_weight == 1).all()) for part in credit.values())


def test_a_truncated_row_bootstraps_and_ends_the_sum() -> None:
    rollout = rollout_of([column(0, 0, 0), column(1, 2, 3)], flags(0, 0, 0), flags(1, 0, 0), BOTH)
    values = {0: column(1, 3, 4), 1: column(2, 5, 6)}
    credit = delta_credit(rollout, values, {0: torch.tensor([10.0, 8.0]), 1: torch.zeros(0)}, 0.5, 0.5)
    assert credit[1].advantage[0].item() == 1 + 0.5 * 10 - 2
    assert credit[0].advantage[0].item() == (2 - 1) + 0.5 * 4.0


def test_an_episode_may_end_before_the_last_sub_step() -> None:
    rollout = rollout_of([column(0, 7, 0), column(1, 0, 3)], flags(0, 1, 0), flags(0, 0, 0), [BOTH[0], flags(1, 0, 1)])
    values = {0: column(1, 3, 4), 1: column(2, 0, 6)}
    credit = delta_credit(rollout, values, {0: torch.tensor([8.0]), 1: torch.zeros(0)}, 0.5, 0.5)
    assert credit[0].advantage[:, 0].tolist() == [1.75, 4.0, 2.5]  # row 0: 1 + 0.5 * (1 + 0.5 * 3 - 2 + 0.25 * 4)
    assert credit[1].advantage[:, 0].tolist() == [1.5, 0.0, 1.0]
    assert credit[1].weight[:, 0].tolist() == [1.0, 0.0, 1.0]


def test_with_lambda_1_and_no_differences_it_is_the_credit_of_the_row() -> None:
    rollout = random_rollout(agreement, 3, 30)
    torch.manual_seed(0)
    value = torch.randn(rollout.rows.filled.shape)
    finals = {key: torch.randn(len(final.row)) for key, final in rollout.finals.items()}
    delta = delta_credit(rollout, {0: value, 1: value}, finals, 0.9, 1.0)
    shared = shared_credit(rollout, {0: value, 1: value}, finals, 0.9, 1.0)
    for key in rollout.segments:
        torch.testing.assert_close(delta[key].advantage, shared[key].advantage)
        torch.testing.assert_close(delta[key].return_, shared[key].return_)


def test_rows_that_differ_are_refused() -> None:
    rollout = random_rollout(hierarchy, 2, 20)
    values = {key: torch.zeros(part.active.shape) for key, part in rollout.segments.items()}
    finals = {key: torch.zeros(len(final.row)) for key, final in rollout.finals.items()}
    with pytest.raises(ValueError, match="act once each, in this order, in every environment step"):
        delta_credit(rollout, values, finals, 0.9, 0.9)


def test_several_agents_are_refused() -> None:
    with pytest.raises(ValueError, match=r"one agent in each sub-step, not \{1: 2\}"):
        TorchDeltaStateCritic([Sum(1.0), Sum(1.0)], Spec({0: step_spec(), 1: step_spec(n_agents=2)}))


def test_one_sub_step_is_judged_as_by_a_shared_critic() -> None:
    spec = Spec({0: step_spec()})
    network = Network(3, "value", 1)
    seen = {"observation": torch.randn(5, 3)}
    values = [kind([network], spec).value(0, seen) for kind in (TorchDeltaStateCritic, TorchSharedStateCritic)]
    assert torch.equal(*values)


def delta_networks() -> TorchActorCritic:
    torch.manual_seed(0)
    policy = TorchPolicy([Network(3, "action", 2) for _ in SPEC.steps], SPEC)
    return TorchActorCritic(policy, TorchDeltaStateCritic([Network(3, "value", 1) for _ in SPEC.steps], SPEC))


def test_minibatches_carry_what_the_critic_saw_before_in_the_row() -> None:
    networks = delta_networks()
    rollout = rollout_of([column(0, 0, 0), column(1, 2, 3)], flags(0, 1, 0), flags(0, 0, 0), BOTH)
    options = {"normalize_advantage": False, "with_log_prob": True}
    batch = learning_batch(networks, rollout, 0.9, 0.9, **options)
    assert batch.even
    assert batch.open_share == {0: (0, 3), 1: (0, 3)}
    parts = batch.minibatches(3, torch.Generator().manual_seed(1))
    rows = []
    for minibatch in parts:
        later = minibatch[1]
        assert set(later.critic_inputs) == {"piece", "0/stock"} and set(later.observation) == {"piece"}
        assert torch.equal(later.critic_inputs["0/stock"], minibatch[0].observation["stock"])
        assert networks.critic is not None
        torch.testing.assert_close(networks.critic.value(1, later.critic_inputs), later.old_value)
        rows.append(int(later.observation["piece"][0, 0]))
    assert sorted(rows) == [0, 1, 2]


@pytest.mark.slow
@pytest.mark.parametrize(("algorithm", "n_rollouts"), [(PPO, 120), (A2C, 400)])
def test_algorithms_learn_values_and_differences(
    kit: SimpleNamespace, algorithm: type[AlgorithmModule], n_rollouts: int
) -> None:
    pl.seed_everything(0, verbose=False)
    networks = delta_networks()
    rollout = rollout_of([column(0, 0, 0), column(1, 2, 3)], flags(0, 1, 1), flags(0, 0, 0), BOTH)
    options = {"batch_size": 3} if algorithm is PPO else {}
    module = algorithm(actor_critic=networks, spec=SPEC, lr=3e-2, **options)
    kit.fit(module, lambda seed: rollout, length=n_rollouts)
    batch = learning_batch(networks, rollout, 0.98, 1.0, normalize_advantage=False, with_log_prob=False)
    for acts in batch.acts.values():
        assert float((acts.old_value - acts.return_).abs().max()) < 0.15
    assert module.capture_refusal is None  # one act of each sub-step in each row: recorded

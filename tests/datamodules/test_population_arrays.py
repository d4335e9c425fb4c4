"""Populations in arrays: the same episodes and returns as one after the other, or a message that says why not."""

from __future__ import annotations

from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from maze_pl.collect.engines import InProcessEngine, ProcessEngine
from maze_pl.core.population import PopulationBatch
from maze_pl.core.training_data import DataRequirements
from maze_pl.datamodules import PopulationDataModule
from maze_pl.envs import CartPoleArrayEnv, PendulumArrayEnv
from maze_pl.envs.cutting_2d import StructuredCutting2DArrayEnvironment
from maze_pl.envs.wrappers import (
    ObservationNormalizationWrapper,
    RandomResetWrapper,
    RewardScalingWrapper,
    TimeLimitWrapper,
)
from maze_pl.modules import ES
from maze_pl.perception import CustomModelComposer, FlattenConcatPolicyNet, ProbabilisticPolicyComposer
from tests.datamodules.probe import next_batch
from tests.envs.arrays.walks import N_STEPS, PriceOfSimulationWrapper, WalkArrayEnv, make_walk, price_after
from tests.equality import assert_equal

CYCLE = [(1, 2), (2, 2), (1, 1)]
CUTTING = partial(StructuredCutting2DArrayEnvironment, 10, (4, 3), CYCLE, masked=True)
ENVS: dict[str, tuple[Any, list[Any]]] = {
    "cartpole": (CartPoleArrayEnv, []),
    "scaled": (CartPoleArrayEnv, [partial(RewardScalingWrapper, scale=0.5)]),
    "pendulum": (PendulumArrayEnv, [partial(TimeLimitWrapper, max_episode_steps=20)]),
    "structured with masks": (CUTTING, [partial(TimeLimitWrapper, max_episode_steps=15)]),
}


class OneByOne(PopulationDataModule):
    """Plays one episode after the other in any environment."""

    def _can_play_together(self, policy: Any, wrapper_statistics: dict[str, Any]) -> bool:
        return False


def make(kind: type[PopulationDataModule], name: str, **options: Any) -> Any:
    """In the hands of a trainer that trains a policy."""
    return make_around(kind, *ENVS[name], **options)


def make_around(kind: type[PopulationDataModule], env: Any, wrappers: list[Any], **options: Any) -> Any:
    """The same around any environment."""
    defaults: dict[str, Any] = {"evaluators": {}, "n_rollouts_per_update": 12, "shared_noise_table_size": 100_000}
    data = kind(env, wrappers, seed=3, **{**defaults, **options})
    nets = [partial(FlattenConcatPolicyNet, non_lin=torch.nn.Tanh, hidden_units=[8]) for _ in data.spec.step_keys]
    torch.manual_seed(1)
    policy = ES(networks=CustomModelComposer(ProbabilisticPolicyComposer(nets)), spec=data.spec).policy
    module = SimpleNamespace(policy=policy, data_requirements=lambda: DataRequirements(noise_stddev=0.5))
    trainer = {"lightning_module": module, "fit_loop": SimpleNamespace(total_batch_idx=-1), "ckpt_path": None}
    data.trainer = SimpleNamespace(**trainer, global_rank=0, world_size=1)  # type: ignore[assignment]
    return data


def batches(data: Any, n: int = 3) -> list[PopulationBatch]:
    """Batches of a policy that changes after each of them."""
    found = []
    for _ in range(n):
        found.append(next_batch(data))
        data.trainer.fit_loop.total_batch_idx += 1
        for parameter in data.trainer.lightning_module.policy.parameters():
            parameter.data += 0.1
    data.teardown("fit")
    return found


def content(batch: PopulationBatch) -> list[Any]:
    summaries = [[one.env_steps, one.reward, one.statistics, one.kpis] for one in batch.summaries]
    return [batch.offsets, batch.returns, batch.env_steps, summaries, batch.measures]


@pytest.mark.parametrize("name", ENVS)
@pytest.mark.parametrize(
    "options",
    [{}, {"max_steps": 9}, {"n_rollouts_per_update": 2, "n_timesteps_per_update": 300}],
    ids=["episodes", "limited", "env steps"],
)
def test_population_in_arrays_equals_one_after_the_other(name: str, options: dict[str, Any]) -> None:
    together, reference = (batches(make(kind, name, **options)) for kind in (PopulationDataModule, OneByOne))
    for batch, expected in zip(together, reference, strict=True):
        torch.testing.assert_close(batch.returns, expected.returns, rtol=1e-5, atol=1e-5)
        assert batch.offsets == expected.offsets
        assert batch.env_steps == expected.env_steps
        assert batch.measures == expected.measures
        assert [one.env_steps for one in batch.summaries] == [one.env_steps for one in expected.summaries]
        for one, other in zip(batch.summaries, expected.summaries, strict=True):
            assert one.statistics.keys() == other.statistics.keys()
            assert one.kpis == pytest.approx(other.kpis)
            assert one.reward == pytest.approx(other.reward, rel=1e-5)
    returns = np.concatenate([batch.returns.numpy().ravel() for batch in together])
    assert len(np.unique(returns)) > 1


@pytest.mark.slow
@pytest.mark.parametrize("options", [{}, {"n_timesteps_per_update": 400}])
def test_workers_decide_nothing_about_populations_in_arrays(options: dict[str, Any]) -> None:
    engines = [InProcessEngine(), ProcessEngine(n_workers=3)]
    one, other = (batches(make(PopulationDataModule, "cartpole", engine=engine, **options)) for engine in engines)
    assert_equal([content(batch) for batch in one], [content(batch) for batch in other])


def test_more_episodes_than_fit_are_played_in_several_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = batches(make(PopulationDataModule, "cartpole"))
    monkeypatch.setattr("maze_pl.collect.population_worker._MOST_NUMBERS", 300)  # room for five policies
    parts = batches(make(PopulationDataModule, "cartpole"))
    for batch, expected in zip(parts, whole, strict=True):
        assert batch.returns.tolist() == expected.returns.tolist()
        assert [one.env_steps for one in batch.summaries] == [one.env_steps for one in expected.summaries]


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"deterministic": False}, "they sample their actions"),
        (
            {"wrappers": [ObservationNormalizationWrapper]},
            "wrappers gather statistics: maze_pl.envs.wrappers.observation_normalization_wrapper",
        ),
    ],
)
def test_message_says_why_policies_play_one_after_the_other(
    options: dict[str, Any], reason: str, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    env, wrappers = ENVS["cartpole"]
    data = make(PopulationDataModule, "cartpole")
    options = {"wrappers": wrappers, **options}
    given = PopulationDataModule(
        env, seed=3, evaluators={}, n_rollouts_per_update=4, shared_noise_table_size=100_000, **options
    )
    given.trainer = data.trainer
    caplog.set_level("INFO")
    assert len(batches(given, 2)) == 2
    text = caplog.text + capsys.readouterr().err
    assert text.count(f"policies of a population play one after the other: {reason}") == 1


def test_each_run_decides_again_whether_policies_play_together(
    capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    data = make(PopulationDataModule, "cartpole", deterministic=False)
    batches(data, 1)
    text = caplog.text + capsys.readouterr().err
    assert text.count("they sample their actions") == 1
    data.deterministic = True
    reference = batches(make(PopulationDataModule, "cartpole"), 1)
    policy = data.trainer.lightning_module.policy  # type: ignore[union-attr]
    for parameter in policy.parameters():
        parameter.data -= 0.1  # which the first run has added
    data.trainer.fit_loop.total_batch_idx = -1  # type: ignore[union-attr]
    (batch,) = batches(data, 1)
    torch.testing.assert_close(batch.returns, reference[0].returns)
    caplog.clear()
    data.deterministic = False
    batches(data, 1)
    assert (caplog.text + capsys.readouterr().err).count("they sample their actions") == 1


def test_policies_without_copies_play_one_after_the_other() -> None:
    data = make(PopulationDataModule, "cartpole")
    policy = data.trainer.lightning_module.policy  # type: ignore[union-attr]

    class Branching(torch.nn.Module):
        """A network that looks at values, which torch.vmap cannot follow."""

        def __init__(self, network: torch.nn.Module) -> None:
            super().__init__()
            self.network = network

        def forward(self, observation: dict[str, torch.Tensor]) -> Any:
            if observation["observation"].sum() > 1e9:
                raise AssertionError
            return self.network(observation)

    changed = type(policy)([Branching(policy.networks[0][0])], data.spec)
    with pytest.raises(ValueError, match=r"torch\.vmap does not evaluate the network of sub-step 0"):
        changed.stacked()
    reference = batches(make(PopulationDataModule, "cartpole"), 1)
    data.trainer.lightning_module.policy = changed  # type: ignore[union-attr]
    (batch,) = batches(data, 1)
    assert batch.returns.tolist() == reference[0].returns.tolist()


# ----------------------------------------------------------------------------- parameters that callbacks freeze


def played(data: Any, update: int, frozen: list[str]) -> PopulationBatch:
    """The batch of an update whose policy has other weights than before, some of them frozen."""
    policy = data.trainer.lightning_module.policy
    torch.manual_seed(update)
    for name, parameter in policy.named_parameters():
        parameter.data = torch.randn_like(parameter)
        parameter.requires_grad_(not any(part in name for part in frozen))
    data.trainer.fit_loop.total_batch_idx = update - 1
    return next_batch(data)


def assert_follows_frozen(data: Any, name: str, updates: list[list[str]]) -> None:
    """The players of a run perturb the parameters that those of a new run perturb, and the algorithm follows them."""
    for update, frozen in enumerate(updates):
        batch = played(data, update, frozen)
        new = make(type(data), name, **FEW)
        expected = played(new, update, frozen)
        new.teardown("fit")
        assert batch.returns.tolist() == expected.returns.tolist()
        policy = data.trainer.lightning_module.policy
        n_trained = sum(parameter.numel() for parameter in policy.parameters() if parameter.requires_grad)
        assert batch.offsets == [batch.noise.offset(n_trained, update, pair) for pair in range(2)]
        assert batch.perturbed == tuple(parameter.requires_grad for parameter in policy.parameters())
    data.teardown("fit")


BODY = ["networks.0.0.body"]
FEW: dict[str, Any] = {"n_rollouts_per_update": 4, "max_steps": 6}


@pytest.mark.parametrize("kind", [PopulationDataModule, OneByOne])
@pytest.mark.parametrize("updates", [[[], BODY, []], [BODY, [], BODY]], ids=["freeze", "unfreeze"])
def test_callbacks_freeze_parameters_between_updates(kind: Any, updates: list[list[str]]) -> None:
    assert_follows_frozen(make(kind, "pendulum", **FEW), "pendulum", updates)


@pytest.mark.slow
@pytest.mark.parametrize("kind", [PopulationDataModule, OneByOne])
def test_workers_notice_what_callbacks_freeze(kind: Any) -> None:
    data = make(kind, "pendulum", engine=ProcessEngine(2), **FEW)
    assert_follows_frozen(data, "pendulum", [[], BODY, []])


def test_policies_play_one_after_the_other_while_a_sub_step_is_frozen(
    capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    data = make(PopulationDataModule, "structured with masks", **FEW)
    first = ["networks.0"]
    assert_follows_frozen(data, "structured with masks", [[], first, []])
    text = caplog.text + capsys.readouterr().err
    assert text.count("network of sub-step 0 has no trainable parameters") == 1 + 1  # here, and in the new run


@pytest.mark.parametrize("options", [{}, {"deterministic": False}, {"max_steps": 7}])
def test_wrappers_that_change_the_simulation_do_so_in_policies_that_play_one_after_the_other(
    options: dict[str, Any],
) -> None:
    wrappers = [PriceOfSimulationWrapper, partial(RewardScalingWrapper, scale=0.5)]
    options = {"n_rollouts_per_update": 6, **options}
    data = [make_around(PopulationDataModule, form, wrappers, **options) for form in (make_walk, WalkArrayEnv)]
    single, arrays = (batches(one) for one in data)
    for batch, expected in zip(arrays, single, strict=True):
        assert batch.returns.tolist() == expected.returns.tolist()
        assert_equal([one.statistics for one in batch.summaries], [one.statistics for one in expected.summaries])
    (state,) = data[1].wrapper_statistics().values()
    assert state == {"merged": sum(batch.env_steps for batch in arrays), "added": 0}
    n_steps = options.get("max_steps", N_STEPS)
    for batch, price in zip(arrays, map(price_after, range(0, 18 * n_steps, 6 * n_steps)), strict=True):
        assert (batch.returns / (0.5 * price)).ge(n_steps).all()  # each step is paid the price, or twice as much
        assert (batch.returns / (0.5 * price)).le(2 * n_steps).all()


@pytest.mark.parametrize(
    ("wrappers", "engine", "message"),
    [
        (
            [partial(RandomResetWrapper, min_skip_steps=0, max_skip_steps=2)],
            None,
            "RandomResetWrapper .* no array",
        ),
        ([], InProcessEngine(step_timeout=60), "step_timeout cannot interrupt an array environment"),
    ],
)
@pytest.mark.parametrize("deterministic", [True, False])
def test_population_refuses_what_array_environments_cannot_do(
    wrappers: list[Any], engine: Any, message: str, deterministic: bool
) -> None:
    data = make_around(PopulationDataModule, CartPoleArrayEnv, wrappers, engine=engine, deterministic=deterministic)
    with pytest.raises(ValueError, match=message):
        next_batch(data)

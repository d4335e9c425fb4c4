from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import pytorch_lightning as pl
import torch
from pytorch_lightning.loggers import CSVLogger
from torch import Tensor

from maze_pl.core.batches import Evaluation, Rollout
from maze_pl.functional import lambda_return
from maze_pl.modules import A2C, PPO, AlgorithmModule, FlatAdam, run_module
from maze_pl.modules.run_statistics import RunStatistics
from tests.modules.small_algorithms import GradientAscent, Reinforce, Watcher, flat

pytestmark = pytest.mark.filterwarnings("ignore:.*LeafSpec.*", "ignore:You defined a `validation_step`")


# ------------------------------------------------------------------------------------------------- optimisation


def test_user_algorithm_steps_as_adam_would(kit: SimpleNamespace) -> None:
    module, reference = Reinforce(actor_critic=kit.make_actor_critic(), lr=1e-2), kit.make_actor_critic()
    trainer = kit.fit(module, length=3)
    assert trainer.global_step == 3
    optimizer = torch.optim.Adam(reference.parameters(), lr=1e-2)
    for index in range(3):
        rollout = kit.make_flat_rollout(seed=40 * index)
        rows, segment = rollout.rows, rollout.segments[0]
        nothing = torch.zeros_like(rows.reward)
        returns = lambda_return(rows.reward, nothing, rows.terminated, rows.truncated, 0.99, 1.0)
        log_prob, _ = reference.policy.evaluate(0, segment.observation, segment.action)
        optimizer.zero_grad()
        (-(log_prob * returns).mean()).backward()
        optimizer.step()
    torch.testing.assert_close(flat(module.policy), flat(reference.policy), rtol=0, atol=1e-6)
    assert torch.equal(flat(module.critic), flat(reference.critic))


def test_gradient_is_clipped_by_its_global_norm(kit: SimpleNamespace) -> None:
    for limit, expected in ((0.0, 3.0), (0.5, 0.5), (100.0, 3.0)):
        module = GradientAscent(actor_critic=kit.make_actor_critic(), max_grad_norm=limit)
        trainer = kit.fit(module, length=1)
        optimizer = trainer.optimizers[0]
        assert isinstance(optimizer, FlatAdam)
        assert optimizer.gradient.norm().item() == pytest.approx(expected, rel=1e-5)
        table = module.epoch_statistics["train"]
        assert table["ActorCriticEvents/critic_grad_norm/substep_0"] == pytest.approx(3.0)
        assert table["ActorCriticEvents/policy_grad_norm/substep_0"] == 0.0


def test_a_trainer_makes_the_process_keep_freed_memory(kit: SimpleNamespace, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[bool] = []
    monkeypatch.setattr(run_module, "keep_freed_memory", lambda: calls.append(True))
    kit.fit(Reinforce(actor_critic=kit.make_actor_critic()), length=1)
    assert calls == [True]


@pytest.mark.filterwarnings("ignore:You are using fast_dev_run")
def test_fast_dev_run_limits_batches_that_take_several_steps_each(kit: SimpleNamespace) -> None:
    module = PPO(actor_critic=kit.make_actor_critic(), batch_size=20, n_optimization_epochs=2)
    trainer = kit.fit(module, epochs=5, length=5, fast_dev_run=3)
    assert (module.env_steps, trainer.global_step) == (3 * 40, 3 * 4)


@pytest.mark.filterwarnings("ignore:You are using fast_dev_run")
def test_fast_dev_run_is_limited_also_if_it_overfits(kit: SimpleNamespace) -> None:
    module = PPO(actor_critic=kit.make_actor_critic(), batch_size=20, n_optimization_epochs=1)
    data = kit.Source(module, kit.make_flat_rollout, 50)
    trainer = kit.make_trainer(fast_dev_run=2, overfit_batches=1.0)
    trainer.fit(module, torch.utils.data.DataLoader(list(data), batch_size=None))
    assert trainer.global_step == 2


def test_loss_without_graph_takes_a_step_all_the_same(kit: SimpleNamespace) -> None:
    class Idle(AlgorithmModule):
        def training_step(self, rollout: Rollout, batch_idx: int) -> None:
            self.gradient_step(torch.zeros(()))

    module = Idle(actor_critic=kit.make_actor_critic())
    before = flat(module)
    assert kit.fit(module, length=2).global_step == 2
    assert torch.equal(flat(module), before)


def test_other_optimisers_work_and_keep_their_learning_rate(kit: SimpleNamespace) -> None:
    class ByDescent(GradientAscent):
        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.SGD(self.parameters(), lr=0.1)

    module = ByDescent(actor_critic=kit.make_actor_critic(), max_grad_norm=1.0, lr=5.0)
    bias = module.critic.network.body[3].bias.item()
    kit.fit(module, length=2)
    assert module.critic.network.body[3].bias.item() == pytest.approx(bias + 0.2)


def test_linear_schedule_reaches_zero_after_all_batches(kit: SimpleNamespace) -> None:
    rates: list[float] = []

    class Noting(GradientAscent):
        def training_step(self, rollout: Rollout, batch_idx: int) -> None:
            super().training_step(rollout, batch_idx)
            rates.append(self.trainer.optimizers[0].param_groups[0]["lr"])

    module = Noting(actor_critic=kit.make_actor_critic(), lr=1.0, lr_schedule="linear")
    kit.fit(module, epochs=2, length=2)
    assert rates == [1.0, 0.75, 0.5, 0.25]
    assert module.epoch_statistics["train"]["ActorCriticEvents/learning_rate"] == pytest.approx(0.375)


def test_linear_schedule_without_a_limit_is_refused(kit: SimpleNamespace) -> None:
    module = GradientAscent(actor_critic=kit.make_actor_critic(), lr_schedule="linear")
    with pytest.raises(ValueError, match=r"set trainer\.max_epochs"):
        kit.fit(module, epochs=-1)


@pytest.mark.parametrize("algorithm", [A2C, PPO])
def test_only_the_critic_learns_during_burn_in(kit: SimpleNamespace, algorithm: Any) -> None:
    options = {"batch_size": 20} if algorithm is PPO else {}
    module = algorithm(actor_critic=kit.make_actor_critic(), critic_burn_in_epochs=1, **options)
    policy, critic = flat(module.policy), flat(module.critic)
    kit.fit(module, epochs=1)
    assert torch.equal(flat(module.policy), policy)
    assert not torch.equal(flat(module.critic), critic)
    assert "ActorCriticEvents/policy_loss/substep_0" not in module.epoch_statistics["train"]
    module = algorithm(actor_critic=kit.make_actor_critic(), critic_burn_in_epochs=1, **options)
    kit.fit(module, epochs=2)
    assert not torch.equal(flat(module.policy), policy)


def test_shared_parameters_belong_to_the_policy_and_rest_during_burn_in(kit: SimpleNamespace) -> None:
    actor_critic = kit.make_actor_critic()
    actor_critic.critic.network.body[0] = actor_critic.policy.networks[0][0].body[0]
    shared = actor_critic.critic.network.body[0].weight
    before = shared.detach().clone()
    module = A2C(actor_critic=actor_critic, critic_burn_in_epochs=1)
    trainer = kit.fit(module)
    names = {group["name"]: [id(p) for p in group["params"]] for group in trainer.optimizers[0].param_groups}
    assert id(shared) in names["policy"]
    assert id(shared) not in names["critic"]
    assert torch.equal(shared, before)


def test_burn_in_of_a_critic_without_parameters_of_its_own_is_refused(kit: SimpleNamespace) -> None:
    actor_critic = kit.make_actor_critic()
    actor_critic.critic = None
    with pytest.raises(ValueError, match="critic_burn_in_epochs needs a critic with separate parameters"):
        AlgorithmModule(actor_critic=actor_critic, critic_burn_in_epochs=2)


def test_networks_without_the_critic_of_the_algorithm_act_but_are_refused_for_training(kit: SimpleNamespace) -> None:
    actor_critic = kit.make_actor_critic()
    actor_critic.critic = None
    module = A2C(actor_critic=actor_critic)
    assert module.acting_policy() is actor_critic.policy
    with pytest.raises(ValueError, match="A2C needs a StateCritic, not none: name a composer"):
        kit.fit(module)


def test_contradictory_options_are_refused(kit: SimpleNamespace) -> None:
    actor_critic = kit.make_actor_critic()
    with pytest.raises(ValueError, match="either networks"):
        A2C(networks="auto", actor_critic=actor_critic)
    with pytest.raises(ValueError, match="networks='automatic' must be a composer, or 'auto'"):
        A2C(networks="automatic")
    for networks in ([64, 64], torch.nn.Linear(4, 2)):
        with pytest.raises(TypeError, match=r"networks=.* must be a composer, such as .*; ready-made .* actor_critic="):
            A2C(networks=networks)
    with pytest.raises(ValueError, match="lr=0 must be greater than 0"):
        A2C(actor_critic=actor_critic, lr=0)
    with pytest.raises(ValueError, match="max_grad_norm=-1 must be at least 0"):
        A2C(actor_critic=actor_critic, max_grad_norm=-1)
    with pytest.raises(ValueError, match="lr_schedule='cosine'"):
        A2C(actor_critic=actor_critic, lr_schedule="cosine")


# ------------------------------------------------------------------------------------------------------ hooks


class WithTemperature(GradientAscent):
    """Makes a parameter once there are networks, and refuses networks without a critic."""

    def __init__(self, **options: Any) -> None:
        self.n_calls = 0
        super().__init__(**options)

    def on_networks_ready(self) -> None:
        super().on_networks_ready()
        self.n_calls += 1
        if self.critic is None:
            raise ValueError("there is no critic")
        self.temperature = torch.nn.Parameter(torch.ones(()))


class Making:
    def __init__(self, make: Any) -> None:
        self.make = make

    def compose(self, spec: Any) -> Any:
        return self.make(spec)


def test_networks_are_ready_once_however_they_are_made(kit: SimpleNamespace) -> None:
    ready = WithTemperature(actor_critic=kit.make_actor_critic())
    composed = WithTemperature(networks=Making(kit.make_actor_critic), spec=kit.flat_spec)
    for module in (ready, composed):
        kit.fit(module)
        assert module.n_calls == 1
        groups = module.parameter_groups()
        assert list(groups) == ["policy", "critic", "other"]
        assert groups["other"] == [module.temperature]
        assert "temperature" in module.state_dict()


class SpecOnly(pl.LightningDataModule):
    """Knows the spaces, and has no batch to learn from."""

    def __init__(self, spec: Any) -> None:
        super().__init__()
        self.spec = spec

    def train_dataloader(self) -> Any:
        raise AssertionError("the networks are refused before")


def test_networks_that_are_refused_are_refused_in_the_next_run_too(kit: SimpleNamespace) -> None:
    def without_critic(spec: Any) -> Any:
        networks = kit.make_actor_critic(spec)
        networks.critic = None
        return networks

    module = WithTemperature(networks=Making(without_critic))
    with pytest.raises(ValueError, match="there is no critic"):
        kit.make_trainer(1).fit(module, datamodule=SpecOnly(kit.flat_spec))
    with pytest.raises(RuntimeError, match="the networks are not built yet"):
        module.networks  # noqa: B018


def test_a_step_needs_a_function_with_a_minibatch_or_a_scalar_alone(kit: SimpleNamespace) -> None:
    module = GradientAscent(actor_critic=kit.make_actor_critic())
    wrong: list[tuple[Any, ...]] = [(module.loss,), (torch.zeros(()), {})]
    for arguments in wrong:
        with pytest.raises(TypeError, match="a function with its minibatch, or a scalar"):
            module.gradient_step(*arguments)
    with pytest.raises(RuntimeError, match="outside of a training batch"):
        module.gradient_step(torch.zeros(()))


def test_a_loss_that_is_returned_instead_of_minimised_is_refused(kit: SimpleNamespace) -> None:
    class Returning(AlgorithmModule):
        def training_step(self, rollout: Rollout, batch_idx: int) -> Any:
            return sum(parameter.sum() for parameter in self.policy.parameters())

    class Reporting(GradientAscent):
        def training_step(self, rollout: Rollout, batch_idx: int) -> Any:
            super().training_step(rollout, batch_idx)
            return {"loss": torch.zeros(()), "for_callbacks": torch.ones(())}

    expected = "training_step of Returning returned a loss, which is not minimised, .*: pass the loss to self.gradient"
    with pytest.raises(TypeError, match=expected):
        kit.fit(Returning(actor_critic=kit.make_actor_critic()))
    kit.fit(Reporting(actor_critic=kit.make_actor_critic()))


@pytest.mark.parametrize("capture", ["auto", "off"])
@pytest.mark.parametrize(
    ("shape", "came"),
    [((3,), r"a tensor of shape \(3,\)"), ((1,), r"a tensor of shape \(1,\)"), (None, "NoneType")],
)
def test_losses_that_are_not_scalars_are_refused_by_name(
    kit: SimpleNamespace, shape: tuple[int, ...] | None, came: str, capture: Any
) -> None:
    class Wrong(AlgorithmModule):
        def training_step(self, rollout: Rollout, batch_idx: int) -> None:
            self.gradient_step(self.loss, {0: None})

        def loss(self, minibatch: Any) -> Any:
            total = flat(self.policy).sum()
            return None if shape is None else total.expand(shape)

    class WrongTensor(AlgorithmModule):
        def training_step(self, rollout: Rollout, batch_idx: int) -> None:
            self.gradient_step(torch.zeros(shape or (2,)))

    with pytest.raises(TypeError, match=rf"the loss .*Wrong.loss is {came}; expected a scalar tensor: "):
        kit.fit(Wrong(actor_critic=kit.make_actor_critic(), capture=capture))
    with pytest.raises(TypeError, match=r"the loss of gradient_step is a tensor of shape .*: reduce it, by mean"):
        kit.fit(WrongTensor(actor_critic=kit.make_actor_critic(), capture=capture))


@pytest.mark.parametrize("index", [1, -1])
def test_a_missing_optimiser_is_named(kit: SimpleNamespace, index: int) -> None:
    class Wrong(GradientAscent):
        def training_step(self, rollout: Rollout, batch_idx: int) -> None:
            self.gradient_step(torch.zeros(()), optimizer=index)

    with pytest.raises(IndexError, match=rf"gradient_step of Wrong got optimizer={index}; configure_optimizers .* 1, "):
        kit.fit(Wrong(actor_critic=kit.make_actor_critic()))


def test_a_minibatch_of_any_kind_is_learned_from_and_the_reason_why_it_is_not_recorded_is_told(
    kit: SimpleNamespace,
) -> None:
    class OnTensors(GradientAscent):
        def loss(self, minibatch: Any) -> Tensor:
            observation, action = minibatch
            log_prob, _ = self.policy.evaluate(0, {"observation": observation}, {"action": action})
            return -log_prob.mean()

        def training_step(self, rollout: Rollout, batch_idx: int) -> None:
            segment = rollout.segments[0]
            pair = segment.observation["observation"].flatten(0, 1), segment.action["action"].flatten()
            self.gradient_step(self.loss, pair)

    module = OnTensors(actor_critic=kit.make_actor_critic(), lr=1e-2)
    before = flat(module.policy)
    kit.fit(module)
    assert not torch.equal(flat(module.policy), before)
    assert module.capture_refusal == "the minibatch, a tuple, is not a dict of samples by step key"


def test_the_learning_rate_of_the_schedule_is_public_and_other_optimisers_can_follow_it(kit: SimpleNamespace) -> None:
    rates: list[tuple[float, float]] = []

    class ByDescent(GradientAscent):
        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.SGD(self.parameters(), lr=0.1)

        def training_step(self, rollout: Rollout, batch_idx: int) -> None:
            self.follow_learning_rate(self.trainer.optimizers[0])
            super().training_step(rollout, batch_idx)
            rates.append((self.current_learning_rate, self.trainer.optimizers[0].param_groups[0]["lr"]))

    kit.fit(ByDescent(actor_critic=kit.make_actor_critic(), lr=1.0, lr_schedule="linear"), epochs=1, length=2)
    assert rates == [(1.0, 1.0), (0.5, 0.5)]


@pytest.mark.parametrize(
    ("kind", "options", "expected"),
    [
        (torch.optim.SGD, {}, [1.0, 1.0]),
        (torch.optim.SGD, {"lr_schedule": "linear"}, [1.0, 0.5]),
        (FlatAdam, {}, [1.0, 1.0]),
    ],
)
def test_an_algorithm_may_change_the_rates_of_its_optimiser_after_each_call(
    kit: SimpleNamespace, kind: Any, options: dict[str, Any], expected: list[float]
) -> None:
    rates: list[tuple[float, float]] = []

    class Cautious(GradientAscent):
        def configure_optimizers(self) -> torch.optim.Optimizer:
            return kind(self.parameters(), lr=0.3)

        def training_step(self, rollout: Rollout, batch_idx: int) -> None:
            wrapper = self.optimizers()
            self.follow_learning_rate(wrapper)
            (group,) = wrapper.param_groups
            followed = group["lr"]
            group["lr"] *= 0.1
            rates.append((followed, group["lr"]))

    kit.fit(Cautious(actor_critic=kit.make_actor_critic(), lr=1.0, **options), epochs=1, length=2)
    assert rates == [(rate, pytest.approx(0.1 * rate)) for rate in expected]


# --------------------------------------------------------------------------------------------------- statistics


def test_callbacks_see_the_statistics_of_the_epoch(kit: SimpleNamespace) -> None:
    watcher = Watcher()
    module = Reinforce(actor_critic=kit.make_actor_critic())
    kit.fit(module, epochs=2, callbacks=[watcher])
    assert [hook for hook, _, _ in watcher.seen] == ["validation_end", "train_epoch_end"] * 2
    for epoch in range(2):
        for _, tables, metrics in watcher.seen[2 * epoch : 2 * epoch + 2]:
            # Two rollouts of 40 environment steps in each epoch; returns are the steps known when they were made.
            assert metrics["train/return"] == pytest.approx(20 + 80 * epoch)
            assert metrics["train/kpi/waste"] == pytest.approx(2 + 8 * epoch)
            assert metrics["eval/return"] == pytest.approx(80 + 80 * epoch + 1)
            assert metrics["eval/kpi/waste"] == pytest.approx((80 + 80 * epoch + 1) / 10)
            assert tables["train"]["BaseEnvEvents/reward/mean"] == pytest.approx(20 + 80 * epoch)
            assert tables["train"]["BaseEnvEvents/reward/total_episode_count"] == 2 * (epoch + 1)
            assert tables["eval"]["BaseEnvEvents/kpi/mean/waste"] == pytest.approx((80 + 80 * epoch + 1) / 10)
            assert tables["train"]["ActorCriticEvents/time_rollout"] == pytest.approx(0.25)
            assert tables["train"]["ActorCriticEvents/time_epoch"] > 0
            assert "ActorCriticEvents/policy_loss/substep_0" in tables["train"]


def test_loggers_get_tables_with_environment_steps_on_the_x_axis(kit: SimpleNamespace, tmp_path: Path) -> None:
    logger = CSVLogger(tmp_path, name="", version="")
    module = Reinforce(actor_critic=kit.make_actor_critic())
    module.env_steps = 2**24 + 1
    kit.fit(module, epochs=2, logger=logger, log_every_n_steps=1)
    lines = (tmp_path / "metrics.csv").read_text().splitlines()
    header = lines[0].split(",")
    steps = [int(line.split(",")[header.index("step")]) for line in lines[1:]]
    assert steps == sorted(steps)
    assert set(steps) == {2**24 + 81, 2**24 + 161}
    assert {"train_BaseEnvEvents/reward/mean", "eval_BaseEnvEvents/reward/mean"} <= set(header)
    assert "train_ActorCriticEvents/policy_loss/substep_0" in header
    assert module.env_steps == 2**24 + 161


def test_loggers_save_after_each_epoch(kit: SimpleNamespace, tmp_path: Path) -> None:
    class Reading(pl.Callback):
        def __init__(self) -> None:
            self.n_lines: list[int] = []

        def on_train_epoch_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
            files = [*tmp_path.glob("metrics.csv")]
            self.n_lines.append(sum(len(file.read_text().splitlines()) for file in files))

    logger = CSVLogger(tmp_path, name="", version="")
    reading = Reading()
    options = {"logger": logger, "log_every_n_steps": 1, "callbacks": [reading]}
    kit.fit(Reinforce(actor_critic=kit.make_actor_critic()), epochs=3, **options)
    first, second, third = reading.n_lines
    assert first == 0 < second < third


def test_epoch_that_is_ended_early_has_statistics(kit: SimpleNamespace) -> None:
    module = Reinforce(actor_critic=kit.make_actor_critic())
    kit.fit(module, length=5, max_steps=3)
    assert module.epoch_statistics["train"]["BaseEnvEvents/reward/episode_count"] == 3


def test_sanity_check_and_validation_do_not_count_as_training(kit: SimpleNamespace) -> None:
    module = Reinforce(actor_critic=kit.make_actor_critic())
    kit.fit(module, num_sanity_val_steps=1)
    assert module.epoch_statistics["eval"]["BaseEnvEvents/reward/total_episode_count"] == 2
    assert module.epoch_statistics["train"]["BaseEnvEvents/reward/total_episode_count"] == 2


def test_evaluators_are_told_apart_by_name(kit: SimpleNamespace) -> None:
    module = Reinforce(actor_critic=kit.make_actor_critic())
    trainer = kit.make_trainer()
    evaluations = Evaluation("eval", [kit.summary(7.0)]), Evaluation("noisy", [kit.summary(3.0)])
    sources = [kit.Source(module, lambda seed, one=one: one, 1) for one in evaluations]
    trainer.validate(module, sources, verbose=False)
    metrics = {name: float(value) for name, value in trainer.callback_metrics.items()}
    expected = {"eval/return": 7.0, "eval/kpi/waste": 0.7, "noisy/return": 3.0, "noisy/kpi/waste": 0.3}
    assert {name: metrics[name] for name in expected} == pytest.approx(expected)
    assert metrics["noisy_BaseEnvEvents/reward/mean"] == 3.0
    assert list(module.epoch_statistics) == ["eval", "noisy"]


def test_recorded_numbers_are_weighted_by_their_count() -> None:
    statistics = RunStatistics()
    statistics.record("T/x", torch.tensor(6.0, requires_grad=True), 0, 2.0)
    statistics.record("T/x", 2.0, 0, 2.0)
    statistics.record("T/x", 0.0, 0, 0.0)
    statistics.record("T/y", 5, None, 1.0)
    statistics.record("T/z", 5, None, 0.0)
    values = statistics.finish_training().values
    assert values["T/x/substep_0"] == 2.0
    assert values["T/y"] == 5.0
    assert "T/z" not in values

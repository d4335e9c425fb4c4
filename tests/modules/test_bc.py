from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import numpy as np
import pytest
import pytorch_lightning as pl
import torch
from gymnasium import spaces
from torch import Tensor, distributions, nn

from maze_pl.agents import TorchActorCritic, TorchPolicy
from maze_pl.callbacks import BestCheckpoint
from maze_pl.core.batches import TrajectoryBatch, TransitionBatch
from maze_pl.core.spec import Spec, StepSpec
from maze_pl.modules import A2C, BC
from maze_pl.perception import (
    CustomModelComposer,
    FlattenConcatPolicyNet,
    FlattenConcatStateValueNet,
    ProbabilisticPolicyComposer,
    SharedStateCriticComposer,
)
from tests.exact.comparison import differences, without_times
from tests.modules.kit import KIT

pytestmark = pytest.mark.filterwarnings("ignore:.*LeafSpec.*", "ignore:You defined a `validation_step`")

HEADS: dict[str, spaces.Space[Any]] = {
    "choice": spaces.Discrete(3, start=1),
    "choices": spaces.MultiDiscrete([2, 3]),
    "bits": spaces.MultiBinary(3),
    "box": spaces.Box(-1, 1, (2,)),
}
ACTIONS = {
    "choice": torch.tensor([1, 3]),
    "choices": torch.tensor([[0, 2], [1, 1]]),
    "bits": torch.tensor([[1, 0, 1], [0, 0, 0]], dtype=torch.int8),
    "box": torch.tensor([[0.5, -0.5], [0.0, 1.0]]),
}


class Logits(nn.Module):
    """Gives the same logits, its parameters, whatever is observed."""

    def __init__(self, logits: dict[str, list[float]]) -> None:
        super().__init__()
        self.logits = nn.ParameterDict({head: nn.Parameter(torch.tensor(values)) for head, values in logits.items()})

    def forward(self, observation: dict[str, Tensor]) -> dict[str, Tensor]:
        n = len(next(iter(observation.values())))
        return {head: values.expand(n, -1) for head, values in self.logits.items()}


def module_of(*logits: dict[str, list[float]], masks: dict[str, str] | None = None, **options: Any) -> BC:
    """A policy with the given logits, a sub-step for each dict of them."""
    observation = spaces.Dict({"observation": spaces.Box(-1, 1, (3,)), "mask": spaces.MultiBinary(3)})
    steps = {
        key: StepSpec(observation, spaces.Dict({head: HEADS[head] for head in own}), masks=masks or {})
        for key, own in enumerate(logits)
    }
    policy = TorchPolicy([Logits(own) for own in logits], Spec(dict(steps)))
    return BC(actor_critic=TorchActorCritic(policy), **options)


def acts(*heads: str, rows: slice = slice(None), mask: list[int] | None = None) -> TransitionBatch:
    n = len(range(2)[rows])
    observation = {"observation": torch.zeros(n, 3), "mask": torch.tensor([mask or [1, 1, 1]] * n, dtype=torch.int8)}
    return TransitionBatch(
        observation, {head: ACTIONS[head][rows] for head in heads}, torch.zeros(n, dtype=torch.int64)
    )


def loss_and_gradient(module: BC, *own: TransitionBatch) -> tuple[float, dict[str, list[float]]]:
    loss: Any = module.training_step(TrajectoryBatch(dict(enumerate(own))), 0)
    loss.backward()
    named = {name.rpartition(".")[2]: parameter for name, parameter in module.named_parameters()}
    assert all(parameter.grad is not None for parameter in module.parameters())
    return loss.item(), {name: parameter.grad.tolist() for name, parameter in named.items()}


# -------------------------------------------------------------------------------------------------- losses by hand


def test_a_discrete_head_has_its_cross_entropy() -> None:
    module = module_of({"choice": [0.0, 0.0, math.log(2.0)]})  # 1/4, 1/4, 1/2; the actions are the first and the third
    loss, gradient = loss_and_gradient(module, acts("choice"))
    assert loss == pytest.approx((math.log(4) + math.log(2)) / 2)
    assert gradient["choice"] == pytest.approx([0.25 - 0.5, 0.25, 0.5 - 0.5])


def test_a_multi_discrete_head_has_the_sum_of_those_of_its_choices() -> None:
    module = module_of({"choices": [0.0, 0.0, 0.0, 0.0, math.log(2.0)]})
    loss, gradient = loss_and_gradient(module, acts("choices"))
    assert loss == pytest.approx(math.log(2) + (math.log(2) + math.log(4)) / 2)
    assert gradient["choices"] == pytest.approx([0.0, 0.0, 0.25, 0.25 - 0.5, 0.5 - 0.5])


def test_a_binary_head_has_the_sum_of_the_cross_entropies_of_its_bits() -> None:
    module = module_of({"bits": [math.log(3.0), 0.0, 0.0]})  # 3/4, 1/2, 1/2
    loss, gradient = loss_and_gradient(module, acts("bits"))
    assert loss == pytest.approx((math.log(4 / 3) + math.log(4)) / 2 + 2 * math.log(2))
    assert gradient["bits"] == pytest.approx([0.75 - 0.5, 0.5, 0.5 - 0.5])


def test_a_box_has_its_negative_log_density() -> None:
    module = module_of({"box": [0.5, 0.0, 0.0, math.log(2.0)]})  # means 1/2 and 0, deviations 1 and 2
    loss, gradient = loss_and_gradient(module, acts("box"))
    squares = (0.0 + 0.25) / 2 + (0.25 + 1.0) / 4 / 2  # of the standardised errors, means over the acts
    assert loss == pytest.approx(squares / 2 + math.log(2) + math.log(2 * math.pi))
    assert gradient["box"] == pytest.approx([0.25, -0.25 / 4, 1 - 0.125, 1 - 1.25 / 8])


def test_heads_are_added_and_so_are_sub_steps_which_are_means_over_their_own_acts() -> None:
    first, second = {"choice": [0.3, 0.1, -0.2], "bits": [0.5, -1.0, 2.0]}, {"box": [0.5, 0.0, 0.0, 1.0]}
    alone = [
        loss_and_gradient(module_of({"choice": first["choice"]}), acts("choice"))[0],
        loss_and_gradient(module_of({"bits": first["bits"]}), acts("bits"))[0],
        loss_and_gradient(module_of(second), acts("box", rows=slice(1)))[0],
    ]
    loss, _ = loss_and_gradient(module_of(first, second), acts("choice", "bits"), acts("box", rows=slice(1)))
    assert loss == pytest.approx(sum(alone))


def test_a_sub_step_without_acts_stays_in_the_graph_with_weight_0() -> None:
    module = module_of({"choice": [0.0, 0.0, 1.0]}, {"box": [0.5, 0.0, 0.0, 1.0]})
    alone, _ = loss_and_gradient(module_of({"choice": [0.0, 0.0, 1.0]}), acts("choice"))
    loss, gradient = loss_and_gradient(module, acts("choice"), acts("box", rows=slice(0)))
    assert loss == pytest.approx(alone)
    assert gradient["box"] == [0.0, 0.0, 0.0, 0.0]
    assert module.env_steps == 2


def test_what_a_mask_forbids_has_no_probability() -> None:
    module = module_of({"choice": [0.0, 5.0, 0.0]}, masks={"choice": "mask"})
    loss, gradient = loss_and_gradient(module, acts("choice", mask=[1, 0, 1]))
    assert loss == pytest.approx(math.log(2))
    assert gradient["choice"] == pytest.approx([0.0, 0.0, 0.0])


def test_a_demonstrated_action_that_its_mask_forbids_is_refused() -> None:
    module = module_of({"choice": [0.0, 5.0, 0.0]}, masks={"choice": "mask"})
    with pytest.raises(ValueError, match=r"the loss is .*actions that masks forbid"):
        module.training_step(TrajectoryBatch({0: acts("choice", mask=[0, 1, 1])}), 0)


def test_entropy_is_added_with_its_coefficient() -> None:
    logits = {"choice": [0.0, 0.0, math.log(2.0)]}
    entropy = 0.5 * math.log(4) + 0.5 * math.log(2)
    plain, _ = loss_and_gradient(module_of(logits), acts("choice"))
    loss, _ = loss_and_gradient(module_of(logits, entropy_coef=0.3), acts("choice"))
    assert loss == pytest.approx(plain - 0.3 * entropy)


@pytest.mark.parametrize("seed", range(3))
def test_losses_and_gradients_are_those_of_a_slow_reference(seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    sizes = {"choice": 3, "choices": 5, "bits": 3, "box": 4}
    logits = {head: torch.randn(size, generator=generator).tolist() for head, size in sizes.items()}
    loss, gradient = loss_and_gradient(module_of(logits, entropy_coef=0.1), acts(*sizes))
    leaves = {head: torch.tensor(values, dtype=torch.float64, requires_grad=True) for head, values in logits.items()}
    total = torch.zeros((), dtype=torch.float64)
    for row in range(2):
        row_of = {head: action[row] for head, action in ACTIONS.items()}
        mean, log_std = leaves["box"].chunk(2)
        parts = [
            (distributions.Categorical(logits=leaves["choice"]), row_of["choice"] - 1),
            (distributions.Categorical(logits=leaves["choices"][:2]), row_of["choices"][0]),
            (distributions.Categorical(logits=leaves["choices"][2:]), row_of["choices"][1]),
            (distributions.Bernoulli(logits=leaves["bits"]), row_of["bits"].double()),
            (distributions.Normal(mean, log_std.exp()), row_of["box"].double()),
        ]
        for distribution, action in parts:
            total = total - (distribution.log_prob(action).sum() + 0.1 * distribution.entropy().sum()) / 2
    total.backward()
    assert loss == pytest.approx(total.item(), rel=1e-5)
    for head, leaf in leaves.items():
        assert leaf.grad is not None
        assert gradient[head] == pytest.approx(leaf.grad.tolist(), abs=1e-5)


# ------------------------------------------------------------------------------------------------------- training

OBSERVED = spaces.Dict({"seen": spaces.Box(-np.inf, np.inf, (4,), np.float32)})
TEAM = Spec(
    {
        "lead": StepSpec(OBSERVED, spaces.Dict({"turn": spaces.Discrete(3)})),
        "crew": StepSpec(
            OBSERVED, spaces.Dict({"force": spaces.Box(-1, 1, (2,)), "flags": spaces.MultiBinary(2)}), 2, 2
        ),
    }
)


def networks(spec: Spec = TEAM, critic: bool = False) -> TorchActorCritic:
    def policy_net(obs_shapes: Any, action_logits_shapes: Any) -> nn.Module:
        return FlattenConcatPolicyNet(obs_shapes, action_logits_shapes, nn.Tanh, [8])

    def value_net(obs_shapes: Any) -> nn.Module:
        return FlattenConcatStateValueNet(obs_shapes, nn.Tanh, [8])

    torch.manual_seed(3)
    critics = SharedStateCriticComposer([value_net]) if critic else None
    return CustomModelComposer(ProbabilisticPolicyComposer([policy_net]), critics).compose(spec)


def demonstrations(seed: int, n: int = 20, n_lead: int | None = None) -> TrajectoryBatch:
    """Acts of a teacher that looks at one number each."""
    generator = torch.Generator().manual_seed(seed)
    seen = torch.randn(n, 4, generator=generator)
    n_lead = int(torch.randint(0, n + 1, (), generator=generator)) if n_lead is None else n_lead
    lead, crew = seen[:n_lead], seen[n_lead:]
    turn = (lead[:, 0] > 0).long() + (lead[:, 0] > 1).long()
    act = {"force": crew[:, :2].clamp(-1, 1), "flags": (crew[:, 2:] > 0).to(torch.int8)}
    none = torch.zeros(n, dtype=torch.int64)
    return TrajectoryBatch(
        {
            "lead": TransitionBatch({"seen": lead}, {"turn": turn}, none[:n_lead]),
            "crew": TransitionBatch({"seen": crew}, act, none[n_lead:]),
        }
    )


def flat(module: nn.Module) -> Tensor:
    return torch.cat([parameter.detach().reshape(-1).clone() for parameter in module.parameters()])


def fit(kit: SimpleNamespace, module: Any, epochs: int = 1, length: int = 4, **options: Any) -> Any:
    """Train on acts that depend on nothing but how many were seen."""
    ckpt_path, make = options.pop("ckpt_path", None), options.pop("make", demonstrations)
    trainer = kit.make_trainer(epochs, **options)
    evaluation = kit.Source(module, lambda seed: demonstrations(1000, 50, 25), 1)
    source = kit.Source(module, make, length)
    trainer.fit(module, source, evaluation, ckpt_path=ckpt_path, weights_only=True)
    return trainer


class Descent(BC):
    """Plain gradient descent, whose steps are as long as the gradient."""

    def configure_optimizers(self) -> Any:
        return torch.optim.SGD(self.parameters(), lr=1.0)


def steps(kit: SimpleNamespace, length: int = 1, make: Any = demonstrations, **options: Any) -> Tensor:
    """How far the parameters move."""
    own = {name: options.pop(name) for name in ("max_grad_norm",) if name in options}
    module = Descent(actor_critic=networks(), **own)
    before = flat(module)
    fit(kit, module, length=length, make=make, **options)
    return flat(module) - before


def test_the_trainer_and_the_module_limit_the_gradient(kit: SimpleNamespace) -> None:
    free = steps(kit)
    norm = float(free.norm())
    assert norm > 0.5
    for options in (
        {"gradient_clip_val": 0.1},
        {"max_grad_norm": 0.1},
        {"gradient_clip_val": 9.0, "max_grad_norm": 0.1},
    ):
        torch.testing.assert_close(steps(kit, **options), free * (0.1 / norm), rtol=1e-4, atol=1e-6)


def test_accumulated_gradients_are_those_of_one_large_batch(kit: SimpleNamespace) -> None:
    whole = demonstrations(0, 20, n_lead=10)

    def half(seed: int) -> TrajectoryBatch:
        part = slice(0, 5) if seed == 0 else slice(5, 10)
        own = {
            key: TransitionBatch(
                {name: value[part] for name, value in a.observation.items()},
                {name: value[part] for name, value in a.action.items()},
                a.agent_id[part],
            )
            for key, a in whole.acts.items()
        }
        return TrajectoryBatch(own)

    together = steps(kit, make=lambda seed: whole)
    torch.testing.assert_close(steps(kit, 2, half, accumulate_grad_batches=2), together, rtol=1e-4, atol=1e-6)


@pytest.mark.slow
def test_it_learns_what_the_teacher_does_and_says_how_well(kit: SimpleNamespace) -> None:
    module = BC(actor_critic=networks(), lr=2e-2)
    trainer = fit(kit, module, epochs=3, length=100, make=lambda seed: demonstrations(seed, 100))
    tables = {name: table for name, table in module.epoch_statistics.items()}
    for source in ("train", "eval"):
        table = tables[source]
        assert table["ImitationEvents/discrete_accuracy/substep_lead/turn"] > 0.9
        assert table["ImitationEvents/multi_binary_accuracy/substep_crew/flags"] > 0.9
        assert table["ImitationEvents/box_mean_abs_deviation/substep_crew/force"] < 0.15
        assert table["ImitationEvents/policy_entropy/substep_lead"] < 0.5
        assert not any(name.startswith("BaseEnvEvents") for name in table)
    assert tables["train"]["ImitationEvents/learning_rate"] == 2e-2
    assert tables["train"]["ImitationEvents/policy_grad_norm/substep_crew"] > 0
    lead = torch.cat([parameter.flatten() for parameter in module.policy.networks[0].parameters()])
    assert tables["train"]["ImitationEvents/policy_l2_norm/substep_lead"] == pytest.approx(lead.norm().item())
    assert module.env_steps == 3 * 100 * 100
    assert float(trainer.callback_metrics["eval/loss"]) < 0


def test_what_is_measured_on_held_out_acts_is_their_mean(kit: SimpleNamespace) -> None:
    module = BC(actor_critic=networks())
    trainer = fit(kit, module)
    wanted, loss = {}, 0.0
    for key, own in demonstrations(1000, 50, 25).acts.items():
        with torch.no_grad():
            joint = module.policy.distribution(key, own.observation, own.agent_id)
        surprise = -joint.log_prob(own.action)
        loss += float(surprise.sum()) / 50
        wanted[f"policy_loss/substep_{key}"] = float(surprise.mean())
        wanted[f"policy_entropy/substep_{key}"] = float(joint.entropy().mean())
        if "force" not in own.action:  # probabilities of discrete heads only
            wanted[f"prob_true_act/substep_{key}"] = float((-surprise).exp().mean())
        for head, value in joint.deterministic_sample().items():
            error = (value - own.action[head]).abs() if head == "force" else (value == own.action[head]).float()
            name = {"turn": "discrete_accuracy", "flags": "multi_binary_accuracy", "force": "box_mean_abs_deviation"}
            wanted[f"{name[head]}/substep_{key}/{head}"] = float(error.mean())
    wanted = {f"ImitationEvents/{name}": value for name, value in wanted.items()}
    assert module.epoch_statistics["eval"] == pytest.approx(wanted, rel=1e-5)
    assert float(trainer.callback_metrics["eval/loss"]) == pytest.approx(loss, rel=1e-5)


def test_held_out_acts_and_played_episodes_are_one_evaluation(kit: SimpleNamespace) -> None:
    module = BC(actor_critic=networks())
    trainer = kit.make_trainer()
    played = kit.Source(module, kit.make_evaluations, 1)
    held_out = kit.Source(module, lambda seed: demonstrations(1000, 50, 25), 1)
    trainer.fit(module, kit.Source(module, demonstrations, 2), [played, held_out])
    assert module.epoch_statistics["eval"]["BaseEnvEvents/reward/episode_count"] == 2
    assert "ImitationEvents/discrete_accuracy/substep_lead/turn" in module.epoch_statistics["eval"]
    assert {"eval/return", "eval/loss"} <= set(trainer.callback_metrics)


def test_the_best_checkpoint_may_be_that_of_the_least_loss_on_held_out_acts(
    kit: SimpleNamespace, tmp_path: Path
) -> None:
    module = BC(actor_critic=networks(), lr=1e-2)
    best = BestCheckpoint("eval/loss", "min", str(tmp_path))
    fit(kit, module, epochs=2, callbacks=[best], enable_checkpointing=True)
    assert best.best_model_score is not None
    assert (tmp_path / "best.ckpt").is_file()


def test_the_learning_rate_may_fall_to_0_over_the_run(kit: SimpleNamespace) -> None:
    module = BC(actor_critic=networks(), lr=8e-3, lr_schedule="linear")
    trainer = fit(kit, module, epochs=2, length=4)
    assert module.epoch_statistics["train"]["ImitationEvents/learning_rate"] == pytest.approx(
        8e-3 * (4 + 3 + 2 + 1) / 32
    )
    assert trainer.optimizers[0].param_groups[0]["lr"] == pytest.approx(1e-3)


def test_a_critic_is_left_out(kit: SimpleNamespace) -> None:
    module = BC(actor_critic=networks(critic=True))
    assert module.critic is None
    assert not any("critic.critic" in name for name in module.state_dict())
    fit(kit, module)


def test_invalid_options_and_batches_are_refused(kit: SimpleNamespace) -> None:
    with pytest.raises(ValueError, match="critic_burn_in_epochs needs a critic"):
        BC(actor_critic=networks(critic=True), critic_burn_in_epochs=3)
    with pytest.raises(ValueError, match="entropy_coef=-1"):
        BC(actor_critic=networks(), entropy_coef=-1)
    with pytest.raises(ValueError, match=r"not from a Rollout: use .*TrajectoryDataModule"):
        kit.fit(BC(actor_critic=kit.make_actor_critic()))
    poisoned = demonstrations(0, n_lead=10)
    poisoned.acts["lead"].observation["seen"][0, 0] = math.nan
    module = BC(actor_critic=networks())
    before = flat(module)
    with pytest.raises(ValueError, match="the loss is nan in epoch 0, after 20 acts"):
        fit(kit, module, make=lambda seed: poisoned)
    assert torch.equal(flat(module), before)


def test_a_policy_that_remembers_is_refused(kit: SimpleNamespace) -> None:
    class Remembering(nn.Module):
        state_shapes: ClassVar[dict[str, tuple[int, ...]]] = {"memory": (2,)}

        def forward(self, observation: dict[str, Tensor]) -> dict[str, Tensor]:
            return {"action": observation["memory"], "memory": observation["memory"]}

    policy = TorchPolicy([Remembering()], kit.flat_spec)
    with pytest.raises(
        ValueError, match=r"sub-step 0 is recurrent \(policy state \['memory'\]\).*ObservationStackWrapper"
    ):
        BC(actor_critic=TorchActorCritic(policy))


# ---------------------------------------------------------------------------------------------------------- exact


def test_the_same_seed_gives_the_same_run(kit: SimpleNamespace) -> None:
    first, second = (BC(actor_critic=networks(), lr=1e-2, max_grad_norm=0.5) for _ in range(2))
    tables = []
    for module in (first, second):
        fit(kit, module, epochs=2)
        tables.append(without_times(module.epoch_statistics))
    assert torch.equal(flat(first), flat(second))
    assert tables[0] == tables[1]


def test_six_epochs_equal_three_and_three_more(kit: SimpleNamespace, tmp_path: Path) -> None:
    whole, half, resumed = (BC(actor_critic=networks(), lr=1e-2, lr_schedule="linear") for _ in range(3))
    states = []
    options: dict[str, Any] = {"accumulate_grad_batches": 2, "gradient_clip_val": 0.5}
    fit(kit, whole, epochs=6, **options).save_checkpoint(tmp_path / "whole.ckpt")

    class Stop(pl.Callback):
        def on_train_epoch_end(self, trainer: Any, pl_module: Any) -> None:
            if trainer.current_epoch == 2:
                trainer.save_checkpoint(tmp_path / "half.ckpt")

    fit(kit, half, epochs=6, callbacks=[Stop()], **options)
    trainer = fit(kit, resumed, epochs=6, ckpt_path=tmp_path / "half.ckpt", **options)
    trainer.save_checkpoint(tmp_path / "resumed.ckpt")
    for name in ("whole", "resumed", "half"):
        checkpoint = torch.load(tmp_path / f"{name}.ckpt", weights_only=True)
        kept = ("state_dict", "optimizer_states", "global_step", "epoch", "maze_pl")
        states.append(without_times({key: checkpoint[key] for key in kept}))
    assert differences(states[0], states[1]) == []
    assert differences(states[0]["state_dict"], states[2]["state_dict"]) != []
    assert resumed.env_steps == 6 * 4 * 20


def test_the_policy_goes_on_under_another_algorithm(kit: SimpleNamespace, tmp_path: Path) -> None:
    module = BC(actor_critic=kit.make_actor_critic())
    learner = A2C(actor_critic=kit.make_actor_critic())
    own = module.state_dict()
    assert {name: value.shape for name, value in own.items() if "policy" in name} == {
        name: value.shape for name, value in learner.state_dict().items() if "policy" in name
    }


def part(seed: int, rank: int) -> TrajectoryBatch:
    """What one of two ranks gets; in the first batch rank 1 has no acts of the lead."""
    return demonstrations(2 * seed + rank, 20 + 10 * rank, n_lead=0 if seed == 0 and rank else None)


def both(seed: int) -> TrajectoryBatch:
    """What both of them get."""
    parts = [part(seed, rank).acts for rank in range(2)]
    return TrajectoryBatch(
        {
            key: TransitionBatch(
                {name: torch.cat([p[key].observation[name] for p in parts]) for name in parts[0][key].observation},
                {name: torch.cat([p[key].action[name] for p in parts]) for name in parts[0][key].action},
                torch.cat([p[key].agent_id for p in parts]),
            )
            for key in parts[0]
        }
    )


def run_on_two_ranks(folder: Path) -> None:
    from maze_pl.system.ranks import gather_objects

    rank = int(os.environ.get("LOCAL_RANK", "0"))
    module = BC(actor_critic=networks(), lr=1e-2, max_grad_norm=0.5)
    options: dict[str, Any] = dict(devices=2, strategy="ddp", use_distributed_sampler=False)
    trainer = fit(KIT, module, epochs=2, length=3, make=lambda seed: part(seed, rank), **options)
    tables = gather_objects(without_times(module.epoch_statistics))
    parameters = gather_objects(flat(module).tolist())
    if rank == 0:
        report = {
            "parameters": parameters[0],
            "ranks_equal": parameters[0] == parameters[1] and tables[0] == tables[1],
            "env_steps": module.env_steps,
            "loss": float(trainer.callback_metrics["eval/loss"]),
            "train": tables[0]["train"]["ImitationEvents/policy_loss/substep_crew"],
        }
        (folder / "report.json").write_text(json.dumps(report))


@pytest.mark.slow
@pytest.mark.long
def test_two_ranks_do_what_one_does_with_the_acts_of_both(kit: SimpleNamespace, tmp_path: Path) -> None:
    command = [sys.executable, "-W", "ignore", __file__, str(tmp_path)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(Path(__file__).parents[2])}
    process = subprocess.run(command, timeout=240, env=environment, capture_output=True, text=True)
    assert process.returncode == 0, process.stderr[-5000:]
    report = json.loads((tmp_path / "report.json").read_text())
    module = BC(actor_critic=networks(), lr=1e-2, max_grad_norm=0.5)
    trainer = fit(kit, module, epochs=2, length=3, make=both)
    assert report["ranks_equal"]
    assert report["env_steps"] == module.env_steps == 2 * 3 * 50
    torch.testing.assert_close(torch.tensor(report["parameters"]), flat(module), rtol=1e-4, atol=1e-5)
    assert report["loss"] == pytest.approx(float(trainer.callback_metrics["eval/loss"]), rel=1e-4)
    table = module.epoch_statistics["train"]
    assert report["train"] == pytest.approx(table["ImitationEvents/policy_loss/substep_crew"], rel=1e-4)


if __name__ == "__main__":
    run_on_two_ranks(Path(sys.argv[1]))

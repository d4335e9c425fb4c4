"""IMPALA by hand: V-trace of streams, rows and sub-steps, losses and gradients, clipped rewards, memories."""

from __future__ import annotations

import copy
import math
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import pytorch_lightning as pl
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import Tensor

from maze_pl.core.batches import Rollout
from maze_pl.datamodules import ActorDataModule, RolloutEvaluator
from maze_pl.envs import make_gym_maze_env
from maze_pl.modules import A2C, IMPALA, learning_batch
from maze_pl.modules.on_policy.credit import VTrace, delta_credit, shared_credit, step_credit
from maze_pl.modules.on_policy.evaluation import existing_acts, log_ratios
from maze_pl.modules.on_policy.minibatches import LearningBatch
from tests.collect.collectors import random_policy
from tests.collect.random_scripts import script_collector, scripts, value_of
from tests.collect.scripted import PlayedAct, Reference, Script, shared_reference, step_reference
from tests.functional.paper import by_the_paper
from tests.learning.training import networks
from tests.modules.gradients import Gradients
from tests.modules.hand_computed import BATCH, ENTROPY, LOGIT, constant_networks, minibatch
from tests.modules.recurrent_plays import PLAYS, networks_that_remember, step_by_step
from tests.structured import agreement, hierarchy, team
from tests.structured.catalogue import random_rollout

# Lightning warns about itself with torch 2.13, and about a hook that the module overrides on purpose.
pytestmark = pytest.mark.filterwarnings("ignore:.*LeafSpec.*", "ignore:You defined a `validation_step`")

limits = st.sampled_from([None, 0.7, 1.0, 1.8])


def log_rho_of(observation: Any) -> Any:
    """An arbitrary smooth function of an observation id."""
    return np.cos(np.asarray(observation) * 0.73)


# ---------------------------------------------------------------------------------------------------------- credit


def clipped(log_rho: float, limit: float | None) -> float:
    return min(math.exp(log_rho), math.inf if limit is None else limit)


def vtrace_along(
    deltas: list[float], rhos: list[float], following: list[tuple[int, float] | None], clip: Any, clip_pg: Any
) -> list[tuple[float, float]]:
    """Advantage, and target less value, from one-step errors, log rhos, and what follows with which discount."""
    found = [(0.0, 0.0)] * len(deltas)
    for i in reversed(range(len(deltas))):
        after = following[i]
        later = 0.0 if after is None else after[1] * found[after[0]][1]
        difference = clipped(rhos[i], clip) * deltas[i] + clipped(rhos[i], 1.0) * later
        found[i] = clipped(rhos[i], clip_pg) * (deltas[i] + later), difference
    return found


def of_streams(acts: list[PlayedAct], gamma: float, attributed: bool, clip: Any, clip_pg: Any) -> list[Any]:
    """(advantage, target, weight) of the acts of one environment, each actor a stream of its own."""
    given = step_reference(acts, value_of, gamma, 0.0, attributed)
    following: list[tuple[int, float] | None] = []
    for i, (me, (_, discount, _, _)) in enumerate(zip(acts, given, strict=True)):
        after = None
        for j in range(i + 1, len(acts)):
            if me.act.actor_done or acts[j - 1].terminated or acts[j - 1].truncated:
                break
            if (acts[j].act.key, acts[j].act.agent) == (me.act.key, me.act.agent):
                after = (j, discount) if given[j][3] else None  # an open act has no estimate of its own
                break
        following.append(after)
    rhos = [float(log_rho_of(a.obs)) for a in acts]
    found = vtrace_along([delta for _, _, delta, _ in given], rhos, following, clip, clip_pg)
    return [
        (advantage * weight, (difference + value_of(a.obs)) * weight, weight)
        for a, (advantage, difference), (*_, weight) in zip(acts, found, given, strict=True)
    ]


def of_rows(acts: list[PlayedAct], gamma: float, clip: Any, clip_pg: Any) -> list[tuple[float, float]]:
    """(advantage, target) of the rows of one environment; the rho of a row is the product of those of its acts."""
    given = shared_reference(acts, value_of, gamma, 0.0)
    rows = [[a for a in acts if a.row == t] for t in range(len(given))]
    lasts = [row[-1] for row in rows]
    following = [
        None if a.terminated or a.truncated or t + 1 == len(rows) else (t + 1, gamma**a.advance)
        for t, a in enumerate(lasts)
    ]
    rhos = [sum(float(log_rho_of(a.obs)) for a in row) for row in rows]
    found = vtrace_along([delta for delta, _ in given], rhos, following, clip, clip_pg)
    return [(advantage, difference + v) for (advantage, difference), (_, v) in zip(found, given, strict=True)]


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(script=scripts(), n_rollout_steps=st.integers(1, 6), gamma=st.floats(0.5, 1.0), clip=limits, clip_pg=limits)
def test_vtrace_of_streams_and_rows_agrees_with_playing_act_by_act(
    script: Script, n_rollout_steps: int, gamma: float, clip: float | None, clip_pg: float | None
) -> None:
    collector, reference = script_collector(script, n_rollout_steps), Reference(script, n_rollout_steps)
    policy = random_policy(collector)
    for _ in range(2):
        rollout, played = collector.collect(policy), reference.collect()
        seen = {key: part.observation["id"][..., 0] for key, part in rollout.segments.items()}
        values = {key: torch.from_numpy(value_of(shown)) for key, shown in seen.items()}
        finals = {key: torch.from_numpy(value_of(end.observation["id"][..., 0])) for key, end in rollout.finals.items()}
        log_rho = {
            key: torch.from_numpy(log_rho_of(shown)) * rollout.segments[key].active for key, shown in seen.items()
        }
        method = VTrace(clip, clip_pg, log_rho)
        step = step_credit(rollout, values, finals, gamma, method)
        shared = shared_credit(rollout, values, finals, gamma, method)
        for n, acts in enumerate(played):
            rows = of_rows(acts, gamma, clip, clip_pg)
            for a, wanted in zip(acts, of_streams(acts, gamma, script.attributed, clip, clip_pg), strict=True):
                at = a.row, n * rollout.n_slots(a.act.key) + a.slot
                credit = step[a.act.key]
                found = credit.advantage[at].item(), credit.return_[at].item(), credit.weight[at].item()
                assert found == pytest.approx(wanted, abs=1e-9)
                of_row = shared[a.act.key].advantage[at].item(), shared[a.act.key].return_[at].item()
                assert of_row == pytest.approx(rows[a.row], abs=1e-9)


def test_vtrace_of_sub_steps_is_that_of_one_stream_of_all_acts() -> None:
    gamma, rollout = 0.9, random_rollout(agreement, 3, 30)
    rows, parts = rollout.rows, list(rollout.segments.values())
    torch.manual_seed(0)
    values, log_rho = ({key: torch.randn(rows.filled.shape).double() for key in (0, 1)} for _ in range(2))
    finals = {key: torch.randn(len(final.row)).double() for key, final in rollout.finals.items()}
    credit = delta_credit(rollout, values, finals, gamma, VTrace(1.3, 0.8, log_rho))
    final_value = {
        (int(t), int(n)): v for t, n, v in zip(rollout.finals[0].row, rollout.finals[0].env, finals[0], strict=True)
    }
    n_rows = len(rows.filled)
    assert bool(rows.truncated.any()) and bool(rows.filled.all())
    for n in range(rollout.n_envs):
        stream: list[list[float]] = []
        for t in range(n_rows):
            for k in (0, 1):
                reward, discount = float(parts[k].reward[t, n]), 1.0 if k == 0 else gamma
                if k and (rows.truncated[t, n] or t + 1 == n_rows):
                    reward, discount = reward + gamma * float(final_value[t, n]), 0.0
                stream.append([float(log_rho[k][t, n]), discount, reward, float(values[k][t, n])])
        columns = (column[:, None] for column in torch.tensor(stream, dtype=torch.float64).unbind(1))
        targets, advantages = by_the_paper(*columns, torch.zeros(1), 1.3, 0.8)
        for k in (0, 1):
            wanted = torch.tensor([targets[k::2], advantages[k::2]], dtype=torch.float64)[..., 0]
            torch.testing.assert_close(credit[k].return_[:, n], wanted[0])
            torch.testing.assert_close(credit[k].advantage[:, n], wanted[1])


# --------------------------------------------------------------------------------------------- losses and gradients


def test_loss_by_hand(kit: SimpleNamespace) -> None:
    module = IMPALA(
        actor_critic=constant_networks(kit, LOGIT, 2.0), policy_loss_coef=3.0, value_loss_coef=0.25, entropy_coef=0.1
    )
    policy = -(2 * math.log(0.75) + 2 * math.log(0.25)) / 2
    critic = ((2 - 1) ** 2 + (2 - 4) ** 2) / 2
    loss, _ = module._gradient_steps.evaluate(module.loss, minibatch(**BATCH))
    assert loss.item() == pytest.approx(3.0 * policy + 0.25 * critic - 0.1 * ENTROPY, rel=1e-5)


def rollout_of_another_policy(kit: SimpleNamespace) -> Rollout:
    rollout: Rollout = kit.make_flat_rollout(n_steps=12, n_envs=3, ends=0.15)
    generator = torch.Generator().manual_seed(7)
    rollout.segments[0].log_prob = -2.0 * torch.rand(12, 3, generator=generator)
    return rollout


def loss_by_hand(module: IMPALA, rollout: Rollout, clip: float, clip_pg: float) -> Tensor:
    """The loss of a flat rollout in plain PyTorch, with the targets of the paper's sums."""
    policy, critic = module.policy.networks[0][0], module.critic.network  # type: ignore[union-attr]
    segment, rows, final = rollout.segments[0], rollout.rows, rollout.finals[0]
    log_probs = policy.body(segment.observation["observation"]).log_softmax(-1)
    log_prob = log_probs.gather(-1, segment.action["action"][..., None])[..., 0]
    value = critic.body(segment.observation["observation"])[..., 0]
    reward, discount = rows.reward.clone(), torch.full_like(rows.reward, module.gamma)
    discount[rows.terminated | rows.truncated] = 0.0
    discount[-1] = 0.0
    after = critic.body(final.observation["observation"])[:, 0].detach()
    reward[final.row, final.env] += module.gamma * after
    log_rho = log_prob.detach() - segment.log_prob
    columns = (part.detach().double() for part in (log_rho, discount, reward, value, torch.zeros(3)))
    targets, advantages = (torch.tensor(x) for x in by_the_paper(*columns, clip, clip_pg))
    entropy = -(log_probs.exp() * log_probs).sum(-1).mean()
    policy_loss, error = -(log_prob * advantages).mean(), (value - targets).square().mean()
    return module.policy_loss_coef * policy_loss + module.value_loss_coef * error - module.entropy_coef * entropy


@pytest.mark.parametrize(("clip", "clip_pg", "capture"), [(1.0, 1.0, "auto"), (2.0, None, "off"), (None, 0.5, "auto")])
def test_gradient_is_that_of_a_slow_reference(
    kit: SimpleNamespace, clip: float | None, clip_pg: float | None, capture: Any
) -> None:
    rollout = rollout_of_another_policy(kit)
    options = {"vtrace_clip_rho_threshold": clip, "vtrace_clip_pg_rho_threshold": clip_pg, "capture": capture}
    module = IMPALA(actor_critic=kit.make_actor_critic(), policy_loss_coef=1.5, entropy_coef=0.2, **options)
    before = copy.deepcopy(module)
    gradients = Gradients()
    trainer = kit.fit(module, make=lambda seed: rollout, length=1, callbacks=[gradients])
    unlimited = [math.inf if limit is None else limit for limit in (clip, clip_pg)]
    loss = loss_by_hand(before, rollout, *unlimited)
    wanted = torch.autograd.grad(loss, list(before.parameters()))
    for parameter, gradient in zip(module.parameters(), wanted, strict=True):
        torch.testing.assert_close(gradients.of[id(parameter)], gradient.float(), rtol=1e-4, atol=1e-6)
    assert trainer.global_step == 1
    assert module.capture_refusal is None


def test_without_lag_it_is_a2c_with_whole_returns(kit: SimpleNamespace) -> None:
    parameters = []
    for kind, options in ((A2C, {"gae_lambda": 1.0}), (IMPALA, {})):
        for spec, make in ((kit.flat_spec, kit.make_flat_rollout), (kit.team_spec, kit.make_team_rollout)):
            module = kind(actor_critic=kit.make_actor_critic(spec), entropy_coef=0.01, lr=1e-2, **options)
            kit.fit(module, make=make, length=3)
            parameters.append(torch.cat([parameter.detach().flatten() for parameter in module.parameters()]))
    for a2c, impala in zip(parameters[:2], parameters[2:], strict=True):
        torch.testing.assert_close(impala, a2c, rtol=1e-4, atol=1e-6)


def test_what_another_policy_did_counts_less(kit: SimpleNamespace) -> None:
    rollout, networks = rollout_of_another_policy(kit), kit.make_actor_critic()
    options = {"normalize_advantage": False, "with_log_prob": True}
    off = learning_batch(networks, rollout, 0.9, VTrace(1.0, 1.0), **options).acts[0]
    assert torch.equal(off.old_log_prob, rollout.segments[0].log_prob.flatten())
    rollout.segments[0].log_prob = None
    on = learning_batch(networks, rollout, 0.9, VTrace(1.0, 1.0), **options).acts[0]
    assert float((off.advantage - on.advantage).abs().max()) > 0.1
    whole = learning_batch(networks, rollout, 0.9, 1.0, **options).acts[0]
    torch.testing.assert_close(on.advantage, whole.advantage)
    torch.testing.assert_close(on.return_, whole.return_)


# --------------------------------------------------------------------------------------------------------- rewards


def test_rewards_are_clipped_as_asked(kit: SimpleNamespace) -> None:
    rollout = kit.make_flat_rollout(n_steps=5, n_envs=1)
    rewards = torch.tensor([-10.0, -0.5, 0.0, 0.5, 10.0], dtype=torch.float64)[:, None]
    rollout = replace(rollout, rows=replace(rollout.rows, reward=rewards))
    rollout.segments[0].reward = rewards
    soft = [-0.3 * 5 * math.tanh(2), -0.3 * 5 * math.tanh(0.1), 0.0, 5 * math.tanh(0.1), 5 * math.tanh(2)]
    for how, wanted in (("abs_one", [-1.0, -0.5, 0.0, 0.5, 1.0]), ("soft_asymmetric", soft)):
        module = IMPALA(actor_critic=kit.make_actor_critic(), reward_clipping=how)
        found = module._with_clipped_rewards(rollout)
        assert found.rows.reward.flatten().tolist() == pytest.approx(wanted)
        assert found.segments[0].reward.flatten().tolist() == pytest.approx(wanted)
    assert torch.equal(rollout.rows.reward, rewards)


def test_rows_have_the_clipped_rewards_of_their_acts_and_agents_their_own() -> None:
    rollout = random_rollout(team, 2, 20)
    for part in rollout.segments.values():
        part.actor_reward = 5 * part.actor_reward
        part.reward = 5 * part.reward
    module = IMPALA(
        networks=networks("step", (4,)), reward_clipping="abs_one", spec=ActorDataModule(team.make_env).spec
    )
    found = module._with_clipped_rewards(rollout)
    total = sum(
        part.reward.clamp(-1, 1).view(*rollout.rows.reward.shape, -1).sum(-1) for part in rollout.segments.values()
    )
    torch.testing.assert_close(found.rows.reward, total)
    for key, part in rollout.segments.items():
        assert float(part.actor_reward.abs().max()) > 1
        assert torch.equal(found.segments[key].actor_reward, part.actor_reward.clamp(-1, 1))


@pytest.mark.slow
def test_learning_sees_clipped_rewards_and_logs_the_environments_own(kit: SimpleNamespace) -> None:
    results = []
    for how, factor in (("abs_one", 1000.0), ("none", 1.0)):

        def make(seed: int, factor: float = factor) -> Rollout:
            rollout = kit.make_flat_rollout(seed=seed)
            signs = rollout.rows.reward.sign() * factor
            rollout.segments[0].reward = signs
            return replace(rollout, rows=replace(rollout.rows, reward=signs))

        module = IMPALA(actor_critic=kit.make_actor_critic(), reward_clipping=how)
        kit.fit(module, make=make, length=2)
        results.append(torch.cat([parameter.detach().flatten() for parameter in module.parameters()]))
        table = module.epoch_statistics["train"]
        assert table["ImpalaEvents/rho/substep_0"] == pytest.approx(1.0)
        assert {"ImpalaEvents/policy_loss/substep_0", "ImpalaEvents/open_acts/substep_0"} <= set(table)
    assert torch.equal(*results)


# ------------------------------------------------------------------------------------------- log-probabilities, memory


@pytest.mark.parametrize("name", PLAYS)
def test_noted_log_probabilities_are_those_of_stepping_one_by_one(name: str) -> None:
    play = PLAYS[name]
    source = play.rollouts(9)
    rollouts = [next(source).clone() for _ in range(2)]
    with torch.no_grad():
        reference = step_by_step(play, rollouts, 10**6)
    for rollout, expected in zip(rollouts, reference, strict=True):
        play.actor_critic.policy.note_log_probs(rollout)
        for key, segment in rollout.segments.items():
            assert segment.log_prob is not None and not segment.log_prob[~segment.active].any()
            numbers = segment.observation["id"][segment.active].flatten().tolist()
            wanted = [float(expected[key][number].log_prob) for number in numbers]
            assert segment.log_prob[segment.active].tolist() == pytest.approx(wanted, abs=1e-5)


@pytest.mark.parametrize("name", PLAYS)
def test_sequences_have_the_vtrace_of_their_acts(name: str) -> None:
    play = PLAYS[name]
    rollout = next(play.rollouts(12)).clone()
    play.actor_critic.policy.note_log_probs(rollout)
    options = {"normalize_advantage": False, "with_log_prob": True, "sequence_length": 4}
    whole, traced = (
        learning_batch(play.actor_critic, rollout, 0.9, how, **options).acts for how in (1.0, VTrace(1.0, 1.0))
    )
    for key, acts in traced.items():  # nothing was learned meanwhile
        torch.testing.assert_close(acts.advantage, whole[key].advantage, rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(acts.return_, whole[key].return_, rtol=1e-4, atol=1e-5)


# ------------------------------------------------------------------------------------------------- mixed precision


@pytest.mark.parametrize("kind", ["shared", "step"])
def test_ratios_in_mixed_precision_are_those_of_a_slow_reference(kit: SimpleNamespace, kind: str) -> None:
    """Also if log-probabilities are noted in mixed precision, which no data module does."""
    networks = kit.make_actor_critic(kit.team_spec, kind)
    rollout = kit.make_team_rollout()
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        networks.policy.note_log_probs(rollout)
        for parameter in networks.policy.parameters():
            parameter.mul_(1.5)
        ratios = log_ratios(networks, existing_acts(rollout, networks.critic, {}))
        exact = copy.deepcopy(networks.policy).double()
    assert ratios.keys() == rollout.segments.keys()
    for place, (key, segment) in enumerate(rollout.segments.items()):
        assert segment.log_prob is not None
        inputs, actions = segment.observation[f"{key}_view"].double(), segment.action["action"]
        wanted = exact.networks[place][0].body(inputs).log_softmax(-1).gather(-1, actions[..., None])[..., 0]
        change = torch.where(segment.active, wanted.detach() - segment.log_prob, 0.0)
        torch.testing.assert_close(ratios[key].double(), change, rtol=0.0, atol=1e-6)
        assert float(change.abs().max()) > 0.1


@pytest.mark.parametrize("precision", ["32-true", "bf16-mixed", "bf16-true"])
def test_without_lag_the_ratio_is_1_in_every_precision(precision: Any) -> None:
    weights: list[Tensor] = []

    class Noting(IMPALA):
        def _record_importance_weights(self, batch: LearningBatch) -> None:
            weights.extend(weight[weight > 0] for weight, _ in batch.importance_weight.values())
            super()._record_importance_weights(batch)

    data = ActorDataModule(
        lambda: make_gym_maze_env("CartPole-v1"), num_actors=2, actors_batch_size=2, n_rollout_steps=40,
        epoch_length=3, seed=3, evaluators={"eval": RolloutEvaluator(n_episodes=1)},
    )  # fmt: skip
    module = Noting(networks=networks("shared", (8,)), spec=data.spec, lr=1e-2, capture="off")
    trainer = pl.Trainer(
        max_epochs=1, accelerator="cpu", devices=1, logger=False, enable_checkpointing=False, precision=precision,
        enable_progress_bar=False, enable_model_summary=False, num_sanity_val_steps=0,
    )  # fmt: skip
    trainer.fit(module, data)
    assert [len(weight) for weight in weights] == [80] * 3
    torch.testing.assert_close(torch.cat(weights), torch.ones(240).double(), rtol=0.0, atol=1e-6)
    table = module.epoch_statistics["train"]
    assert table["ImpalaEvents/rho/substep_0"] == pytest.approx(1.0, abs=1e-6)
    assert table["ImpalaEvents/rho_clip_fraction/substep_0"] == 0.0


# -------------------------------------------------------------------------------------------------------- training


def train(make_env: Any, composer: Any, **options: Any) -> tuple[IMPALA, Tensor]:
    pl.seed_everything(3, verbose=False)
    data = ActorDataModule(
        make_env, num_actors=2, actors_batch_size=3, queue_out_of_sync_factor=1, n_rollout_steps=13, epoch_length=3,
        seed=3, evaluators={"eval": RolloutEvaluator(n_episodes=1)},
    )  # fmt: skip
    module = IMPALA(networks=composer, spec=data.spec, lr=1e-2, sequence_length=5, **options)
    before = torch.cat([parameter.detach().flatten().clone() for parameter in module.parameters()])
    trainer = pl.Trainer(
        max_epochs=1, accelerator="cpu", devices=1, logger=False, enable_checkpointing=False, num_sanity_val_steps=0,
        enable_progress_bar=False, enable_model_summary=False,
    )  # fmt: skip
    trainer.fit(module, data)
    after = torch.cat([parameter.detach().flatten() for parameter in module.parameters()])
    assert after.isfinite().all() and (after != before).float().mean() > 0.8
    assert module.env_steps == 3 * 3 * 13
    return module, after


@pytest.mark.parametrize(
    ("environment", "critic"),
    [(agreement, "delta"), (agreement, "shared"), (team, "step"), (hierarchy, "shared"), (hierarchy, "step")],
)
def test_structured_environments_are_learned_from_with_every_critic(environment: Any, critic: Any) -> None:
    module, _ = train(environment.make_env, networks(critic, (8,)))
    table = module.epoch_statistics["train"]
    for key in module.spec.step_keys:
        # nothing was learned since the acts, but shared critics multiply up what is rounded
        assert table[f"ImpalaEvents/rho/substep_{key}"] == pytest.approx(1.0, abs=1e-3)
        assert f"ImpalaEvents/open_acts/substep_{key}" in table
    assert table["ImpalaEvents/lag_max"] == 0.0


@pytest.mark.parametrize("cell", ["gru", "lstm"])
def test_policies_that_remember_learn_and_the_same_seed_gives_the_same_run(cell: str) -> None:
    runs = [train(lambda: make_gym_maze_env("CartPole-v1"), networks_that_remember(cell))[1] for _ in range(2)]
    assert torch.equal(*runs)


# --------------------------------------------------------------------------------------------------------- options


def test_defaults_are_those_of_the_documents(kit: SimpleNamespace) -> None:
    module = IMPALA(actor_critic=kit.make_actor_critic())
    expected = dict(
        lr=5e-4, gamma=0.98, policy_loss_coef=1.0, value_loss_coef=0.5, entropy_coef=0.01, max_grad_norm=0.0,
        critic_burn_in_epochs=0, vtrace_clip_rho_threshold=1.0, vtrace_clip_pg_rho_threshold=1.0,
        reward_clipping="none",
    )  # fmt: skip
    assert {name: getattr(module, name) for name in expected} == expected


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"gamma": 1.5}, r"gamma=1\.5 must lie between 0 and 1"),
        ({"entropy_coef": -1}, "entropy_coef=-1 must be at least 0"),
        ({"sequence_length": 0}, "sequence_length=0 must be at least 1"),
        ({"vtrace_clip_rho_threshold": 0.0}, r"vtrace_clip_rho_threshold=0\.0 must be greater than 0"),
        ({"vtrace_clip_pg_rho_threshold": -1.0}, r"vtrace_clip_pg_rho_threshold=-1\.0 must be greater than 0"),
        ({"reward_clipping": "abs_two"}, "reward_clipping='abs_two' must be one of"),
    ],
)
def test_options_that_cannot_work_are_refused(kit: SimpleNamespace, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        IMPALA(actor_critic=kit.make_actor_critic(), **options)


def test_it_learns_from_rollouts_only(kit: SimpleNamespace) -> None:
    message = "IMPALA learns from Rollout batches, not from a dict: use "
    with pytest.raises(ValueError, match=message):
        kit.fit(IMPALA(actor_critic=kit.make_actor_critic()), make=lambda seed: {})

"""Rollouts of environments in tensors: every row by a slow reference, graphs, resuming, and what is refused."""

from __future__ import annotations

import gc
import math
import weakref
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from types import SimpleNamespace
from typing import Any, ClassVar

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import Tensor, nn

from maze_pl.agents import TorchPolicy
from maze_pl.collect.tensors import tensor_collector
from maze_pl.collect.tensors.tensor_collector import TensorCollector
from maze_pl.collect.tensors.tensor_vector import TensorVector
from maze_pl.core.batches import Rollout
from maze_pl.core.spaces import leaves
from maze_pl.core.spec import Spec
from maze_pl.core.streams import act_streams, dense_streams
from maze_pl.envs.tensors import CartPoleTensorEnv, Outcome, TensorEnv
from maze_pl.envs.tensors.tensor_streams import environment_seeds, episode_seeds, uniform
from maze_pl.modules import IMPALA, PPO
from maze_pl.modules.on_policy.credit import VTrace
from maze_pl.modules.on_policy.learning_batch import learning_batch
from maze_pl.perception import (
    CustomModelComposer,
    DeltaStateCriticComposer,
    FlattenConcatPolicyNet,
    FlattenConcatStateValueNet,
    ProbabilisticPolicyComposer,
    SharedStateCriticComposer,
    StepStateCriticComposer,
)
from maze_pl.system.device_graph import N_WARM_UPS
from tests import equality
from tests.collect.late_episodes import LateEpisodes
from tests.envs.tensors.tensor_envs import ENVS, WRAPPED

N_ENVS, N_STEPS = 6, 25
CPU = torch.device("cpu")
MAKERS = {**ENVS, **WRAPPED}


class Counter(TensorEnv):
    """Counts the acts of an episode; ends with the act number 3 of even environments; a bounded action is the reward.

    Attributes:
        spoiled: Number of an environment whose observations are NaN from its second step on, -1 for none.
    """

    def __init__(self, spoiled: int = -1, max_episode_steps: int | None = None) -> None:
        super().__init__(max_episode_steps)
        self.spoiled = spoiled

    @property
    def observation_spaces_dict(self) -> Mapping[Any, spaces.Dict]:
        return {0: spaces.Dict({"count": spaces.Box(0.0, 100.0, (1,))})}

    @property
    def action_spaces_dict(self) -> Mapping[Any, spaces.Dict]:
        return {0: spaces.Dict({"amount": spaces.Box(-0.5, 0.5, (1,))})}

    @property
    def kpi_names(self) -> tuple[str, ...]:
        return ("n_acts",)

    def make_tensors(self, n_envs: int) -> None:
        self.count = torch.zeros(n_envs, device=self.device)
        self.number = torch.arange(n_envs, device=self.device)

    def begin(self, which: Tensor, seeds: Tensor) -> None:
        self.count.masked_fill_(which, 0.0)

    def observe(self, step_key: Any) -> dict[str, Tensor]:
        is_bad = (self.number == self.spoiled) & (self.count > 0)
        return {"count": torch.where(is_bad, torch.nan, self.count)[:, None]}

    def act(self, step_key: Any, action: Mapping[str, Tensor]) -> Outcome:
        self.count.add_(1)
        return Outcome(action["amount"][:, 0], (self.count >= 3) & (self.number % 2 == 0))

    def kpi_tensors(self) -> dict[str, Tensor]:
        return {"n_acts": self.count}


def collector_of(
    make: Any, *, records: bool = False, n_envs: int = N_ENVS, n_steps: int = N_STEPS
) -> tuple[TensorCollector, PPO]:
    """A collector with a policy for its environments."""
    spec = Spec.of(make())
    torch.manual_seed(0)
    module = PPO(spec=spec)
    vector = TensorVector(make(), n_envs, spec, CPU, seed=3, first_env_index=10, merges=True)
    return TensorCollector(vector, n_steps, torch.Generator().manual_seed(1), records), module


def assert_equal(first: Rollout, second: Rollout) -> None:
    pairs = list(zip(leaves(first), leaves(second), strict=True))
    assert all(torch.equal(*pair) for pair in pairs if isinstance(pair[0], Tensor))
    equality.assert_equal(first.summaries, second.summaries)


def test_cartpole_rollouts_are_those_of_gymnasium_one_by_one() -> None:
    collector, module = collector_of(partial(CartPoleTensorEnv, 14))
    first_seeds = environment_seeds(3, 10 + torch.arange(N_ENVS))
    envs = [gymnasium.make("CartPole-v1").unwrapped for _ in range(N_ENVS)]
    episode = [0] * N_ENVS
    steps = [0] * N_ENVS

    def start(index: int) -> None:
        seed = episode_seeds(first_seeds, torch.full((N_ENVS,), episode[index]))[index : index + 1]
        envs[index].reset()
        envs[index].state = (uniform(seed, 4)[0] * 0.1 - 0.05).numpy()
        steps[index] = 0

    for index in range(N_ENVS):
        start(index)
    n_truncated = n_terminated = 0
    for number in range(3):
        rollout = collector.collect(module.policy)
        (segment,) = rollout.segments.values()
        assert rollout.starting is not None
        assert rollout.starting.all() == (number == 0)
        expected: list[tuple[int, int, int, float]] = []
        final = rollout.finals[0]
        after = {
            (int(t), int(n)): final.observation["observation"][place]
            for place, (t, n) in enumerate(zip(final.row, final.env, strict=True))
        }
        for n, env in enumerate(envs):
            for t in range(N_STEPS):
                seen = segment.observation["observation"][t, n].numpy()
                assert seen == pytest.approx(np.array(env.state, np.float32), abs=1e-6)
                assert bool(segment.is_first[t, n]) == (steps[n] == 0)
                _, reward, terminated, _, _ = env.step(int(segment.action["action"][t, n]))
                steps[n] += 1
                truncated = steps[n] == 14 and not terminated
                assert float(rollout.rows.reward[t, n]) == reward
                assert bool(rollout.rows.terminated[t, n]) == terminated
                assert bool(rollout.rows.truncated[t, n]) == truncated
                assert int(rollout.rows.next_key[t, n]) == (-1 if terminated or truncated else 0)
                assert after[t, n].numpy() == pytest.approx(np.array(env.state, np.float32), abs=1e-6)
                if terminated or truncated:
                    expected.append((10 + n, episode[n], steps[n], float(steps[n])))
                    n_truncated, n_terminated = n_truncated + truncated, n_terminated + terminated
                    episode[n] += 1
                    start(n)
        found = [(one.env_index, one.episode_index, one.env_steps, one.reward) for one in rollout.summaries]
        assert found == expected
    assert n_truncated > 3, "both kinds of ends are tested"
    assert n_terminated > 3


def test_without_a_time_limit_only_the_observations_after_the_last_row_are_kept() -> None:
    collector, module = collector_of(Counter)
    rollout = collector.collect(module.policy)
    assert rollout.finals[0].row.tolist() == [N_STEPS - 1] * N_ENVS
    assert rollout.finals[0].env.tolist() == list(range(N_ENVS))
    count = [1.0, 25.0] * 3  # episodes of even environments have 3 acts
    assert rollout.finals[0].observation["count"].flatten().tolist() == count
    assert [one.kpis["n_acts"] for one in rollout.summaries] == [3.0] * 8 * 3


def test_actions_are_stored_as_sampled_and_played_within_their_bounds() -> None:
    collector, module = collector_of(Counter)
    rollout = collector.collect(module.policy)
    sampled = rollout.segments[0].action["amount"][..., 0].double()
    assert sampled.abs().max() > 0.6
    assert torch.equal(rollout.rows.reward, sampled.clamp(-0.5, 0.5))


@pytest.mark.parametrize("name", MAKERS)
def test_a_recorded_step_gives_the_same_rollouts(name: str) -> None:
    (plain, module), (recorded, _) = collector_of(MAKERS[name]), collector_of(MAKERS[name], records=True)
    for _ in range(3):
        assert_equal(plain.collect(module.policy).clone(), recorded.collect(module.policy).clone())
        equality.assert_equal(plain.vector.shared_states(), recorded.vector.shared_states())


class WarmedUp:
    """A graph that calls its function as often as recording on CUDA does."""

    def __init__(self, function: Any, device: Any, generator: torch.Generator, prepare: Any) -> None:
        for _ in range(N_WARM_UPS):
            prepare()
            function()
        self.replay = function


def test_pending_episodes_are_compared_by_what_they_hold(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tensor_collector, "TensorEpisodes", LateEpisodes)
    (first, module), (second, _) = collector_of(Counter), collector_of(Counter)
    rollouts = [collector.collect(module.policy).clone() for collector in (first, second)]
    assert_equal(*rollouts)
    rollouts[1].summaries.fetched().reward[0] += 1.0  # type: ignore[attr-defined]
    with pytest.raises(AssertionError):
        assert_equal(*rollouts)


class DrawingNet(nn.Module):
    """Logits with noise of the global generator."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 2)

    def forward(self, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
        logits = self.layer(tensors["observation"])
        return {"action": logits + 3 * torch.randn_like(logits)}


def test_a_policy_that_draws_global_numbers_continues_exactly_and_is_recorded(
    caplog: pytest.LogCaptureFixture,
) -> None:
    collector, module = collector_of(CartPoleTensorEnv)
    policy = TorchPolicy([DrawingNet()], module.spec).eval()
    collector.collect(policy)
    state, generator = collector.state_dict(), torch.get_rng_state()
    expected = collector.collect(policy).clone()
    for records in (False, True):
        other, _ = collector_of(CartPoleTensorEnv, records=records)
        other.load_state_dict(state)
        torch.set_rng_state(generator)
        assert_equal(other.collect(policy), expected)
    assert "without a graph" not in caplog.text


@pytest.mark.parametrize("n_steps", [1, 2, 3])
@pytest.mark.parametrize("name", ENVS)
def test_warm_ups_stay_within_the_rows_of_short_rollouts(
    name: str, n_steps: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tensor_collector, "DeviceGraph", WarmedUp)
    plain, module = collector_of(ENVS[name], n_steps=n_steps)
    recorded, _ = collector_of(ENVS[name], n_steps=n_steps, records=True)
    for _ in range(3):
        assert_equal(plain.collect(module.policy).clone(), recorded.collect(module.policy).clone())


def test_a_step_is_recorded_again_for_another_policy() -> None:
    collector, module = collector_of(CartPoleTensorEnv, records=True)
    other = PPO(spec=module.spec)
    with torch.no_grad():
        for parameter in other.policy.parameters():
            nn.init.constant_(parameter, 0.0)
        list(other.policy.parameters())[-1].copy_(torch.tensor([0.0, 50.0]))
    collector.collect(module.policy)
    assert collector.collect(other.policy).segments[0].action["action"].min() == 1


@pytest.mark.parametrize("name", MAKERS)
def test_a_loaded_state_continues_exactly(name: str) -> None:
    collector, module = collector_of(MAKERS[name])
    collector.collect(module.policy)
    collector.vector.shared_states()
    state = collector.state_dict()
    expected = collector.collect(module.policy).clone()
    other, _ = collector_of(MAKERS[name])
    assert other.load_state_dict(state) == []
    assert_equal(other.collect(module.policy), expected)


def test_states_of_other_environments_are_refused() -> None:
    collector, module = collector_of(CartPoleTensorEnv)
    collector.collect(module.policy)
    state = collector.state_dict()
    other, _ = collector_of(Counter)
    with pytest.raises(ValueError, match=r"but Counter has .*resume with the code that saved it"):
        other.load_state_dict(state)
    larger, _ = collector_of(CartPoleTensorEnv, n_envs=7)
    with pytest.raises(ValueError, match="has shape"):
        larger.load_state_dict(state)
    with pytest.raises(ValueError, match="environments in arrays, not in tensors"):
        collector.load_state_dict({"started": True, "generator": state["generator"]})


@pytest.mark.parametrize("is_started", [True, False])
def test_a_generator_of_another_kind_of_device_starts_again_from_its_seed(
    is_started: bool, caplog: pytest.LogCaptureFixture
) -> None:
    collector, module = collector_of(CartPoleTensorEnv)
    if is_started:
        collector.collect(module.policy)
    state = collector.state_dict()
    state["generator"] = torch.zeros(16, dtype=torch.uint8)  # that of CUDA has a seed and an offset
    other, _ = collector_of(CartPoleTensorEnv)
    torch.rand(5, generator=other.generator)
    assert other.load_state_dict(state) == []
    assert torch.equal(other.generator.get_state(), torch.Generator().manual_seed(1).get_state())
    assert "written on another kind of device" in caplog.text
    if is_started:
        assert torch.equal(other.env.state, collector.env.state)  # type: ignore[attr-defined]
    other.collect(module.policy)


class Gaining(Counter):
    """A counter whose rewards are a gain, a tensor that the constructor makes."""

    def __init__(self, gain: float) -> None:
        super().__init__(max_episode_steps=5)
        self.gain = torch.tensor(gain, dtype=torch.float64)

    def act(self, step_key: Any, action: Mapping[str, Tensor]) -> Outcome:
        super().act(step_key, action)
        return Outcome(self.gain.expand(self.n_envs))


@pytest.mark.parametrize("is_older", [False, True])
def test_a_resumed_run_uses_the_tensors_that_its_constructor_made(is_older: bool) -> None:
    collector, module = collector_of(partial(Gaining, 1.0))
    collector.collect(module.policy)
    state = collector.state_dict()
    assert "state gain" not in state["tensors"]
    if is_older:
        state["tensors"]["state gain"] = torch.tensor(1.0, dtype=torch.float64)
    other, _ = collector_of(partial(Gaining, 10.0))
    assert other.load_state_dict(state) == []
    rollout = other.collect(module.policy)
    assert rollout.rows.reward.unique().tolist() == [10.0]
    assert torch.equal(rollout.segments[0].observation["count"][0, :, 0], state["tensors"]["state count"])


class Stuck(Counter):
    """A counter that cannot be closed."""

    def close(self) -> None:
        raise OSError("the display is gone")


@pytest.mark.parametrize("records", [False, True])
@pytest.mark.parametrize("is_closed", [False, True])
def test_a_collector_frees_its_memory_without_the_garbage_collector(
    is_closed: bool, records: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tensor_collector, "TensorEpisodes", LateEpisodes)
    spec = Spec.of(Counter())
    policy = PPO(spec=spec).policy
    gc.collect()
    gc.disable()
    try:
        collector = TensorCollector(TensorVector(Stuck(), N_ENVS, spec, CPU), 3, torch.Generator(), records)
        rollout = collector.collect(policy)
        kept = [weakref.ref(collector._storage), weakref.ref(rollout.summaries)]
        kept += [weakref.ref(collector._graph)] if records else []
        del rollout
        if is_closed:
            for _ in range(2):
                with pytest.raises(OSError, match="display"):
                    collector.close()
        else:
            kept += [weakref.ref(collector), weakref.ref(collector.env)]
            del collector
        assert [reference() for reference in kept] == [None] * len(kept)
    finally:
        gc.enable()


class Finer(Counter):
    """A counter that observes in other types than those of its space."""

    @property
    def observation_spaces_dict(self) -> Mapping[Any, spaces.Dict]:
        return {0: spaces.Dict({"count": spaces.Box(0.0, 100.0, (1,)), "level": spaces.Box(0, 9, (), np.int8)})}

    def observe(self, step_key: Any) -> dict[str, Tensor]:
        return {"count": super().observe(step_key)["count"].double() + 1e-9, "level": self.number}


def test_policies_act_on_observations_in_the_types_of_their_spaces() -> None:
    class Noting:
        acts_on_device = True
        types: ClassVar[set[Any]] = set()

        def distribution(self, key: Any, observation: Mapping[str, Tensor], agent_id: Any = None) -> Any:
            self.types.update((name, tensor.dtype) for name, tensor in observation.items())
            drawn = partial(torch.zeros, len(observation["count"]), 1)
            return SimpleNamespace(sample=lambda generator: {"amount": drawn()})

    vector = TensorVector(Finer(), N_ENVS, Spec.of(Finer()), CPU)
    TensorCollector(vector, 3, torch.Generator()).collect(Noting())
    assert Noting.types == {("count", torch.float32), ("level", torch.int8)}


def test_invalid_observations_are_refused_with_the_number_of_the_environment() -> None:
    collector, module = collector_of(partial(Counter, spoiled=4))
    with pytest.raises(ValueError, match="observation 'count' of sub-step 0 of environment 14 is NaN or infinite"):
        collector.collect(module.policy)


@pytest.mark.parametrize("name", ENVS)
def test_a_recording_that_fails_leaves_neither_events_nor_a_spoiled_generator(
    name: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(function: Any, device: Any, generator: torch.Generator, prepare: Any) -> None:
        function()  # a warm-up
        env.act(key, action)  # fires events that nobody stores
        used.append(generator)
        raise RuntimeError("operation not permitted\nwhen stream is capturing")

    used: list[torch.Generator] = []
    (plain, module), (collector, _) = collector_of(ENVS[name]), collector_of(ENVS[name], records=True)
    env = collector.env
    key, space = next(iter(env.action_spaces_dict.items()))
    action = {head: torch.zeros(N_ENVS, dtype=torch.int64) for head in space.spaces}
    monkeypatch.setattr(tensor_collector, "DeviceGraph", fail)
    for _ in range(2):
        assert_equal(plain.collect(module.policy).clone(), collector.collect(module.policy).clone())
    assert "without a graph of the device, which is slower: recording it failed: operation not permitted" in caplog.text
    assert len(used) == 1, "a failed recording is not repeated"
    assert collector.generator is not used[0], "CUDA cannot use the generator of a failed graph"


@pytest.mark.cuda
def test_an_environment_that_waits_for_the_device_is_collected_without_a_graph(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Waiting(Counter):
        def act(self, step_key: Any, action: Mapping[str, Tensor]) -> Outcome:
            assert float(self.count.sum()) >= 0.0
            return super().act(step_key, action)

    device = torch.device("cuda")
    collectors = []
    spec = Spec.of(Waiting())
    policy = PPO(spec=spec).policy.to(device)
    for records in (False, True):
        vector = TensorVector(Waiting(), N_ENVS, spec, device, seed=3)
        collectors.append(TensorCollector(vector, N_STEPS, torch.Generator(device).manual_seed(1), records))
    for _ in range(2):
        assert_equal(*[collector.collect(policy).clone() for collector in collectors])
    assert "recording it failed" in caplog.text


def with_finals_at_ends(rollout: Rollout) -> Rollout:
    """A rollout as any other environment gives it: not dense, and with final observations only where something ends."""
    stops = rollout.rows.truncated.clone()
    stops[-1] = True
    stops &= ~rollout.rows.terminated
    finals = {}
    for key, final in rollout.finals.items():
        kept = stops[final.row, final.env]
        observation = {name: tensor[kept] for name, tensor in final.observation.items()}
        finals[key] = replace(final, row=final.row[kept], env=final.env[kept], slot=final.slot[kept])
        finals[key] = replace(finals[key], agent_id=final.agent_id[kept], observation=observation)
    return replace(rollout, dense=False, finals=finals)


class RememberingValueNet(nn.Module):
    """The value by a GRU over the acts of an actor."""

    state_shapes: ClassVar = {"h": (1, 5)}

    def __init__(self, obs_shapes: dict[str, tuple[int, ...]]) -> None:
        super().__init__()
        self.shapes = obs_shapes
        self.gru = nn.GRU(sum(math.prod(shape) for shape in obs_shapes.values()), 5)
        self.head = nn.Linear(5, 1)

    def forward(self, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
        flat = [tensors[name].float().flatten(tensors[name].dim() - len(shape)) for name, shape in self.shapes.items()]
        inputs = torch.cat(flat, -1)  # [L, B, n], or [B, n] for single acts
        is_act = inputs.dim() == 2
        outputs, after = self.gru(inputs[None] if is_act else inputs, tensors["h"].transpose(0, 1).contiguous())
        return {"value": self.head(outputs[0] if is_act else outputs), "h": after.transpose(0, 1)}


def recurrent_step_critic(networks: Any) -> StepStateCriticComposer:
    return StepStateCriticComposer([RememberingValueNet])


def learner_of(critic: Any, algorithm: Any = PPO, **options: Any) -> Any:
    """An algorithm for the environment with sub-steps."""
    torch.manual_seed(0)
    units: dict[str, Any] = {"hidden_units": [16]}
    networks = CustomModelComposer(
        policy=ProbabilisticPolicyComposer([partial(FlattenConcatPolicyNet, **units)]),
        critic=critic([partial(FlattenConcatStateValueNet, **units)]),
    )
    return algorithm(spec=Spec.of(ENVS["structured"]()), networks=networks, **options)


def structured_rollout(module: Any) -> Rollout:
    env = ENVS["structured"]()
    vector = TensorVector(env, 16, module.spec, CPU)
    rollout = TensorCollector(vector, 32, torch.Generator().manual_seed(1)).collect(module.policy)
    assert rollout.dense and rollout.rows.truncated.any()
    return rollout


STEP_CRITICS = [StepStateCriticComposer, recurrent_step_critic]


@pytest.mark.parametrize("critic", [SharedStateCriticComposer, DeltaStateCriticComposer, *STEP_CRITICS])
@pytest.mark.parametrize("is_leave_one_out", [False, True])
def test_dense_rollouts_are_learned_from_as_any_others(critic: Any, is_leave_one_out: bool) -> None:
    module = learner_of(critic)
    rollout = structured_rollout(module)
    rollout.n_same_starts = 4 if is_leave_one_out else 1
    options: dict[str, Any] = {"normalize_advantage": True, "with_log_prob": True, "leave_one_out": is_leave_one_out}
    batches, losses = [], []
    for one in (rollout, with_finals_at_ends(rollout)):
        batch = learning_batch(module.networks, one, 0.98, 0.95, **options)
        minibatches = batch.minibatches(4, torch.Generator().manual_seed(4))
        losses.append([float(module.loss(part).detach()) for part in minibatches])
        batches.append(batch)
    assert losses[0] == pytest.approx(losses[1], rel=1e-6)
    for key, (n_open, n_acts) in batches[0].open_share.items():
        assert n_acts == 16 * 32
        assert (n_open > 0) == (is_leave_one_out or (critic in STEP_CRITICS and key == 1))
        assert n_open == batches[1].open_share[key][0]


def test_minibatches_of_dense_rollouts_in_which_all_acts_are_open_count_nothing() -> None:
    module = learner_of(StepStateCriticComposer)
    options: dict[str, Any] = {"normalize_advantage": True, "with_log_prob": True}
    batch = learning_batch(module.networks, structured_rollout(module), 0.98, 0.95, **options)
    minibatches = batch.minibatches(16 * 32, torch.Generator().manual_seed(4))  # one row each
    for key, (n_open, n_acts) in batch.open_share.items():
        for parts in zip(*[(part[key].share, part[key].value_share) for part in minibatches], strict=True):
            shares = [float(share) for share in parts]
            assert shares == [float(part[key].weight.sum()) for part in minibatches]
            assert shares.count(0.0) == n_open
            assert shares.count(1.0) == n_acts - n_open


def test_acts_of_dense_rollouts_are_streams_as_any_others() -> None:
    rollout = structured_rollout(learner_of(StepStateCriticComposer))
    for segment in rollout.segments.values():
        segment.reward.uniform_(-1.0, 1.0)
    others = act_streams(with_finals_at_ends(rollout), 0.9)
    for key, streams in dense_streams(rollout, 0.9).items():
        other = others[key]
        for name in ("row", "terminated", "cut", "open"):
            torch.testing.assert_close(getattr(streams, name), getattr(other, name), msg=f"{key} {name}")
        counts = ~streams.open
        torch.testing.assert_close(streams.reward[counts], other.reward[counts])
        torch.testing.assert_close(streams.discount[counts], other.discount[counts])
        assert ((streams.final >= 0) == (other.final >= 0)).all()


@pytest.mark.parametrize("critic", STEP_CRITICS)
def test_impala_learns_the_same_from_dense_rollouts_of_an_older_policy(critic: Any) -> None:
    tables = []
    for is_dense in (True, False):
        module = learner_of(critic, IMPALA)
        rollout = structured_rollout(module)
        module.policy.note_log_probs(rollout)
        with torch.no_grad():
            for parameter in module.policy.parameters():
                parameter.add_(0.05 * torch.randn(parameter.shape, generator=torch.Generator().manual_seed(2)))
        one = rollout if is_dense else with_finals_at_ends(rollout)
        batch = module.make_learning_batch(one, VTrace(1.0, 1.0), with_log_prob=True)
        module._record_importance_weights(batch)
        (whole,) = batch.minibatches(1)
        loss = float(module.loss(whole).detach())
        tables.append({"loss": loss, **module._statistics.finish_training().values})
    assert tables[0] == pytest.approx(tables[1], rel=1e-6)
    assert tables[0]["ImpalaEvents/rho_clip_fraction/substep_1"] > 0.1


def test_joined_rollouts_of_dense_parts_are_dense() -> None:
    module = learner_of(SharedStateCriticComposer)
    part = structured_rollout(module)
    joined = Rollout.concatenated([part, part.clone()])
    assert joined.dense and joined.n_env_steps == 2 * 16 * 32
    assert not Rollout.concatenated([part, replace(part, dense=False)]).dense

"""Rollouts from Python: the same episodes wherever they are played, recorded as asked, by whatever acts."""

from __future__ import annotations

import doctest
import pickle
import sys
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces

import maze_pl
from maze_pl.agents import DummyCartPolePolicy, RandomPolicy, TorchPolicy
from maze_pl.collect.engines import InProcessEngine, ProcessEngine
from maze_pl.config.factories import Factory
from maze_pl.config.search_path import ConfigurationError
from maze_pl.core.policy import MazeStatePolicy, PolicyBatch, PolicyStep
from maze_pl.core.spec import Spec
from maze_pl.datasets import ReplayRecordedActionsPolicy
from maze_pl.envs import GymMazeEnv, TrajectoryFiles
from maze_pl.envs.contract import EnvContractError
from maze_pl.envs.cutting_2d import GreedyCuttingPolicy, masked_struct_env_factory, maze_env_factory, struct_env_factory
from maze_pl.envs.wrappers import (
    LogStatsWrapper,
    ObservationNormalizationWrapper,
    RandomResetWrapper,
    TrajectoryRecordingWrapper,
)
from maze_pl.modules import PPO
from maze_pl.perception import FlattenConcatPolicyNet
from maze_pl.runs import rollout as rollouts
from maze_pl.runs.rollout import Trajectory, rollout
from tests.datamodules.drift import Drift, Stuck
from tests.envs.stateful_wrappers import RisingPriceWrapper, make_walk
from tests.structured.catalogue import every_environment

RECORD = ("spaces", "states", "events")


def cart_pole() -> GymMazeEnv:
    return GymMazeEnv("CartPole-v1")


def cutting() -> Any:
    return masked_struct_env_factory(20, (4, 3), [(1, 2), (1, 1), (2, 2)])


def returns(trajectories: list[Trajectory]) -> list[float]:
    return [one.summary.reward for one in trajectories]


def content(trajectories: list[Trajectory]) -> list[Any]:
    """Everything but the time of day."""
    rows = [[(name, [row[:1] + row[2:] for row in rows]) for name, _, rows in one.events] for one in trajectories]
    records = [(one.spaces and one.spaces.to_bytes(), one.states and pickle.dumps(one.states)) for one in trajectories]
    plain = [(one.episode_id, one.seed, one.summary.reward, one.summary.env_steps) for one in trajectories]
    return [*zip(plain, records, rows, strict=True)]


class OutOfOrder(InProcessEngine):
    """Three workers, of which the last one that was asked answers first."""

    n_workers = 3

    def submit(self, actor: int, method: str, *arguments: Any) -> None:
        super().submit(actor, method, *arguments)
        self._jobs.rotate(1)


class OneIsSlow(InProcessEngine):
    """Two workers, of which the first one never answers as long as the second has something to do."""

    n_workers = 2

    def __init__(self) -> None:
        super().__init__()
        self.given: dict[int, list[Any]] = {0: [], 1: []}

    def submit(self, actor: int, method: str, *arguments: Any) -> None:
        self.given[actor] += arguments
        super().submit(actor, method, *arguments)

    def get(self, timeout: float | None = None) -> Any:
        self._jobs.rotate(-1 if self._jobs and self._jobs[0].player == 0 else 0)
        return super().get(timeout)


def test_the_examples_in_the_docstrings_work() -> None:
    assert doctest.testmod(rollouts).failed == 0
    assert maze_pl.rollout is rollout


def test_the_same_seed_gives_the_same_episodes_and_another_one_others() -> None:
    once, again, other = (rollout(cart_pole, "random", 6, seed, record=RECORD) for seed in (3, 3, 4))
    assert content(once) == content(again)
    assert not {one.seed for one in once} & {one.seed for one in other}
    assert [one.summary.episode_index for one in once] == list(range(6))
    for one in once:
        assert one.spaces is not None and one.states is not None
        first = gymnasium.make("CartPole-v1").reset(seed=one.seed)[0]
        np.testing.assert_array_equal(one.spaces.observation[0]["observation"][0], first)
        assert one.spaces.episode_id == one.states.episode_id == one.episode_id
        assert len(one.spaces) == len(one.states.steps) == one.summary.env_steps
        ((name, columns, rows),) = one.events
        assert name == "BaseEnvEvents.reward" and [*columns][:1] == ["episode_id"]
        assert [row[2:] for row in rows] == [(time, 1.0) for time in range(one.summary.env_steps)]


@pytest.mark.parametrize("episodes", [1, 4, 11])
def test_actors_that_answer_in_any_order_change_nothing(episodes: int) -> None:
    told: list[int] = []
    trajectories = rollout(
        cart_pole, "random", episodes, record=RECORD, engine=OutOfOrder(), receive=lambda one: told.append(one.seed)
    )
    assert content(trajectories) == content(rollout(cart_pole, "random", episodes, record=RECORD))
    assert told == [one.seed for one in trajectories]


def test_a_long_episode_keeps_no_other_waiting() -> None:
    engine = OneIsSlow()
    played = rollout(cart_pole, "random", 6, n_envs=1, engine=engine)
    assert engine.given == {0: [range(1)], 1: [range(n, n + 1) for n in range(1, 6)]}
    assert content(played) == content(rollout(cart_pole, "random", 6, n_envs=1))


@pytest.mark.slow
def test_processes_do_not_change_the_result() -> None:
    engine = ProcessEngine(2)
    options: dict[str, Any] = {"record": RECORD, "max_steps": 15}
    expected = rollout(cutting, "random", 10, 5, **options)
    assert content(rollout(cutting, "random", 10, 5, engine=engine, **options)) == content(expected)


@pytest.mark.slow
def test_an_environment_that_hangs_is_replaced_and_its_episodes_are_played_again(tmp_path: Path) -> None:
    expected = rollout(partial(Stuck, str(tmp_path)), episodes=5, seed=2, n_envs=2, record=RECORD)
    (tmp_path / "hang").touch()
    engine = InProcessEngine(step_timeout=0.3)
    found = rollout(partial(Stuck, str(tmp_path)), episodes=5, seed=2, n_envs=2, record=RECORD, engine=engine)
    assert not list(tmp_path.iterdir())
    assert content(found) == content(expected)


@pytest.mark.slow
@pytest.mark.long
def test_a_time_limit_and_policies_that_want_states_go_together() -> None:
    engine = InProcessEngine(step_timeout=60)
    found = rollout(cutting, "heuristic", episodes=3, max_steps=5, engine=engine)
    assert content(found) == content(rollout(cutting, "heuristic", episodes=3, max_steps=5))
    with pytest.raises(
        ValueError, match="step_timeout=60 needs environments that are made in separate processes: give a fun"
    ):
        rollout(cart_pole(), episodes=1, engine=engine)


def test_groups_of_another_size_play_the_same_episodes_with_other_random_numbers() -> None:
    four, three = (rollout(cart_pole, "random", 6, n_envs=n_envs) for n_envs in (4, 3))
    assert [one.seed for one in four] == [one.seed for one in three]
    assert returns(four) != returns(three)
    policy = DummyCartPolePolicy(look_ahead=0.05)
    assert returns(rollout(cart_pole, policy, 6, n_envs=4)) == returns(rollout(cart_pole, policy, 6, n_envs=3))


def test_a_rollout_continues_another_one() -> None:
    make = partial(GymMazeEnv, "CartPole-v1")
    whole = rollout(make, "random", 10, 3, n_envs=4)
    rest = rollout(make, "random", 6, 3, n_envs=4, first_episode=4)
    found = [(one.seed, one.episode_id, one.summary.reward, one.summary.episode_index) for one in rest]
    assert found == [(one.seed, one.episode_id, one.summary.reward, one.summary.episode_index) for one in whole[4:]]
    with pytest.raises(ValueError, match="first_episode=-1 must be at least 0"):
        rollout(make, first_episode=-1)


def test_an_environment_that_is_given_plays_one_episode_after_the_other() -> None:
    policy = partial(RandomPolicy, masks={})
    played = rollout(Drift(), policy, 5)
    assert content(played) == content(rollout(Drift, policy, 5, n_envs=1))


def test_a_limit_of_steps_truncates() -> None:
    limited, whole = (rollout(cart_pole, "random", 8, max_steps=limit, record=RECORD) for limit in (20, 0))
    for one, other in zip(limited, whole, strict=True):
        assert one.spaces is not None and one.states is not None and other.spaces is not None
        is_cut = other.summary.env_steps > 20
        assert one.summary.env_steps == min(20, other.summary.env_steps)
        assert (one.spaces.terminated, one.spaces.truncated) == (not is_cut, is_cut)
        assert (one.states.steps[-1].terminated, one.states.steps[-1].truncated) == (not is_cut, is_cut)
        assert (other.spaces.terminated, other.spaces.truncated) == (True, False)
    assert {one.spaces.truncated for one in limited if one.spaces} == {True, False}


def test_nothing_is_recorded_that_was_not_asked_for() -> None:
    (one,) = rollout(cart_pole, "random", record=())
    assert (one.spaces, one.states, one.events) == (None, None, [])
    (two,) = rollout(cart_pole, "random", wrappers=[TrajectoryRecordingWrapper])
    assert two.states is None and two.spaces is not None


def test_gifs_are_written(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MAZE_PL_RUN_DIR", str(tmp_path))
    played = rollout(partial(GymMazeEnv, "CartPole-v1", render_mode="rgb_array"), max_steps=2, record=["gifs"])
    assert [path.name for path in (tmp_path / "renderings").iterdir()] == [f"{played[0].episode_id}.gif"]
    with pytest.raises(ValueError, match="nothing draws CartPole"):
        rollout(cart_pole, record=["gifs"])


@pytest.mark.parametrize("record", [["frames"], ("gifs", "frames")])
def test_frames_are_kept_with_the_states(tmp_path: Any, monkeypatch: pytest.MonkeyPatch, record: Any) -> None:
    monkeypatch.chdir(tmp_path)
    env = partial(GymMazeEnv, "CartPole-v1", render_mode="rgb_array")
    (played,) = rollout(env, max_steps=2, record=record, n_envs=1)
    assert played.states is not None and len(played.states.frames) == 3
    assert len(list(tmp_path.rglob("*.gif"))) == int("gifs" in record)


def test_the_sample_is_closed_if_a_rollout_is_refused() -> None:
    closed = []

    class Closing(GymMazeEnv):
        """Notes that it is closed."""

        def close(self) -> None:
            closed.append(True)
            super().close()

    with pytest.raises(ValueError, match=r"no policy 'randm'"):
        rollout(partial(Closing, "CartPole-v1"), "randm")
    assert closed == [True]


def test_progress_is_shown_on_a_terminal_and_says_what_is_played(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    rollout(cart_pole, episodes=2, max_steps=2, progress=True)
    assert capsys.readouterr().err == ""  # a file
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    rollout(cart_pole, episodes=2, max_steps=2)
    assert capsys.readouterr().err == ""
    for progress, label in ((True, "episodes"), ("trained", "trained")):
        rollout(cart_pole, episodes=2, max_steps=2, progress=progress)
        assert f"\r{label}: 100%" in capsys.readouterr().err


def test_a_rollout_can_be_stopped_between_groups() -> None:
    told: list[int] = []
    options: dict[str, Any] = {"receive": lambda one: told.append(one.seed), "stop": lambda: len(told) >= 8}
    assert len(rollout(cart_pole, "random", 100, **options)) == len(told) == 8


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"episodes": 0}, "episodes=0 must be at least 1"),
        ({"max_steps": -1}, "max_steps=-1 must be at least 0"),
        ({"n_envs": 0}, "n_envs=0 must be at least 1"),
        ({"temperature": 0.0}, "temperature=0.0 must be at least"),
        ({"policy": "heuristic", "env": partial(GymMazeEnv, "Acrobot-v1")}, "no policy 'heuristic' for Acrobot-v1"),
        ({"policy": "randm"}, "no policy 'randm'"),
        (
            {"record": ("spaces", "state")},
            r"record=\('spaces', 'state'\) must be a list of names among \['spaces', 'st",
        ),
        ({"record": "states"}, r"record='states' must be a list of names among"),
        (
            {
                "policy": "heuristic",
                "wrappers": [partial(ObservationNormalizationWrapper)],
                "wrapper_statistics": {"5:a": 1},
            },
            "5:a",
        ),
        (
            {"env": partial(GymMazeEnv, "Pendulum-v1"), "policy": DummyCartPolePolicy},
            "DummyCartPolePolicy is not a policy for",
        ),
        (
            {"env": partial(GymMazeEnv, "Acrobot-v1"), "policy": GreedyCuttingPolicy},
            "GreedyCuttingPolicy is not a policy for",
        ),
    ],
)
def test_invalid_options_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        rollout(**{"env": cart_pole, **options})


class Heights(gymnasium.Env[Any, Any]):
    """Observes 64-bit numbers, of which the third is not a number of 32 bits."""

    observation_space = spaces.Box(-1e300, 1e300, (2,), np.float64)
    action_space = spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.time = 0
        return np.zeros(2), {}

    def step(self, action: Any) -> Any:
        self.time += 1
        return np.array([1e39 if self.time > 1 else 1e38, 0.0]), 1.0, self.time == 3, False, {}


def test_numbers_beyond_the_range_of_the_networks_are_refused() -> None:
    def make() -> Any:
        return GymMazeEnv(Heights())

    policy = torch_policy(make())
    with pytest.raises(EnvContractError, match=r"'observation' holds 1e\+39, but networks read numbers up to 3.4e\+38"):
        rollout(make, policy, record=())
    assert returns(rollout(make, policy.double(), record=())) == [3.0]
    assert returns(rollout(make, "random", record=())) == [3.0]


def test_something_that_does_not_act_is_no_policy() -> None:
    for policy in (3, lambda: 3, Factory("maze_pl.envs.GymMazeEnv", {"env": "CartPole-v1"})):
        with pytest.raises(TypeError, match=r"policy|callable"):
            rollout(cart_pole, policy)


def torch_policy(env: Any, **options: Any) -> TorchPolicy:
    spec = Spec.of(env)
    shapes = {"action": (2,)}
    torch.manual_seed(3)
    return TorchPolicy([FlattenConcatPolicyNet(spec.steps[0].observation_shapes, shapes, torch.nn.Tanh, [8])], spec)


def test_a_trained_policy_acts_as_it_is_told_to() -> None:
    policy = torch_policy(cart_pole())
    firm, same, cold = (
        rollout(cart_pole, policy, 4, deterministic=deterministic, temperature=temperature)
        for deterministic, temperature in ((True, 1.0), (True, 5.0), (False, 1e-4))
    )
    assert content(firm) == content(same) == content(cold)
    assert content(firm) != content(rollout(cart_pole, policy, 4))
    assert policy.training


def test_an_algorithm_acts_by_its_policy_and_one_for_other_spaces_is_refused() -> None:
    policy = torch_policy(cart_pole())
    module = PPO(actor_critic=maze_pl.agents.TorchActorCritic(policy, None))
    assert content(rollout(cart_pole, module, 2)) == content(rollout(cart_pole, policy, 2))
    with pytest.raises(ConfigurationError, match=r"trained with other spaces: .* box \[4\] there and box \[6\]"):
        rollout(partial(GymMazeEnv, "Acrobot-v1"), module)


class TakesWhatItNeeds:
    """A policy that keeps what it was made from."""

    def __init__(self, spec: Spec, masks: Any, look_ahead: float = 2.0) -> None:
        self.spec, self.masks, self.look_ahead = spec, masks, look_ahead

    def act(self, batch: PolicyBatch, **_: Any) -> PolicyStep:
        return PolicyStep({"action": np.full(len(batch.agent_id), int(self.look_ahead > 1))})


def test_policies_are_made_from_what_they_ask_for() -> None:
    path = f"{TakesWhatItNeeds.__module__}.TakesWhatItNeeds"
    for policy, action in ((TakesWhatItNeeds, 1), (Factory(path, {"look_ahead": 0.5}), 0)):
        (one,) = rollout(cart_pole, policy)
        assert one.spaces is not None
        assert set(one.spaces.action[0]["action"].tolist()) == {action}
    masked, unmasked = (
        rollout(cutting, policy, 3, max_steps=30) for policy in ("random", partial(RandomPolicy, masks={}))
    )
    assert max(returns(unmasked)) < min(returns(masked))  # what masks forbid costs


class WrongShape(DummyCartPolePolicy):
    def act(self, batch: PolicyBatch, **_: Any) -> PolicyStep:
        return PolicyStep({"action": np.zeros((len(batch.agent_id), 1))})


class OutOfRange(DummyCartPolePolicy):
    def act(self, batch: PolicyBatch, **_: Any) -> PolicyStep:
        return PolicyStep({"action": np.full(len(batch.agent_id), 17)})


class OtherHead(DummyCartPolePolicy):
    def act(self, batch: PolicyBatch, **_: Any) -> PolicyStep:
        return PolicyStep({"push": np.zeros(len(batch.agent_id), np.int64)})


class Broken(DummyCartPolePolicy):
    def act(self, batch: PolicyBatch, **_: Any) -> PolicyStep:
        raise KeyError("mine")


@pytest.mark.parametrize("policy", [WrongShape, OutOfRange, OtherHead])
def test_actions_outside_of_the_spaces_are_refused_and_errors_of_a_policy_pass(policy: Any) -> None:
    with pytest.raises(ValueError, match=r"are not 4 actions of \{'action': Discrete\(2\)\}"):
        rollout(cart_pole, policy(), 4)
    with pytest.raises(KeyError, match="mine"):
        rollout(cart_pole, Broken())


class ByState(MazeStatePolicy):
    """Balances by the simulation's own state, however observations are changed."""

    def act(self, batch: PolicyBatch, **_: Any) -> PolicyStep:
        assert batch.maze_state is not None and len(batch.maze_state) == len(batch.agent_id)
        states = np.stack(batch.maze_state)
        return PolicyStep({"action": (states[:, 2] + states[:, 3] > 0).astype(np.int64)})


@pytest.mark.parametrize("wrappers", [[], [partial(ObservationNormalizationWrapper)]])
def test_a_policy_that_asks_for_states_gets_them(wrappers: list[Any]) -> None:
    played = rollout(cart_pole, ByState(), 5, record=(), wrappers=wrappers, max_steps=120)
    assert returns(played) == [120.0] * 5 == returns(rollout(cart_pole, "heuristic", 5, max_steps=120))
    assert all(steps > 400 for steps in returns(rollout(cart_pole, ByState(), 2, record=())))


def test_statistics_that_wrappers_have_learned_are_used_and_kept_as_they_are() -> None:
    wrappers = [partial(ObservationNormalizationWrapper)]
    name = f"{ObservationNormalizationWrapper.__module__}.ObservationNormalizationWrapper"
    env = LogStatsWrapper(wrappers[0](cart_pole()))
    env.estimate(50, 1)
    learned = {name: env.env.shared_state()}
    given = rollout(cart_pole, "random", 2, wrappers=wrappers, wrapper_statistics=learned, record=("spaces", "states"))
    for one in given:
        assert one.spaces is not None and one.states is not None
        np.testing.assert_array_equal(
            one.spaces.observation[0]["observation"][3],
            env.env.observation({"observation": one.states.steps[3].maze_state})["observation"],
        )
    estimated = rollout(cart_pole, "random", 2, wrappers=wrappers)
    assert returns(estimated) == returns(given)
    assert content(estimated) != content(given)


@pytest.mark.parametrize("make_env", [maze_env_factory, struct_env_factory, masked_struct_env_factory])
def test_the_greedy_policy_is_the_heuristic_of_the_cutting_problem(make_env: Any) -> None:
    (one,) = rollout(
        lambda: make_env(50, (4, 3), [(1, 2), (1, 2), (1, 1), (2, 2), (1, 2), (1, 1)]), "heuristic", max_steps=180
    )
    assert one.summary.reward == -31


@every_environment
def test_recorded_actions_replayed_give_the_same_rewards(module: ModuleType) -> None:
    played = rollout(module.make_env, "random", 6, 2, record=RECORD)
    again = rollout(module.make_env, ReplayRecordedActionsPolicy([one.spaces for one in played]), 6, 2, record=RECORD)
    assert content(again) == content(played)


def test_state_records_and_files_are_replayed_too(tmp_path: Any) -> None:
    played = rollout(cutting, "random", 5, 2, record=("spaces", "states"), max_steps=20)
    states = partial(ReplayRecordedActionsPolicy, [one.states for one in played])
    assert content(rollout(cutting, states, 5, 2, record=("spaces", "states"), max_steps=20)) == content(played)
    files = TrajectoryFiles(str(tmp_path), "all")
    for one in played:
        files.write(one.spaces)
        files.write(one.states)
    for options in ({"records": f"{tmp_path}/all.spaces"}, {"records": f"{tmp_path}/all.states", "trust": True}):
        policy = partial(ReplayRecordedActionsPolicy, **options)
        assert returns(rollout(cutting, policy, 5, 2, max_steps=20)) == returns(played)
    with pytest.raises(ValueError, match="trust"):
        rollout(cutting, partial(ReplayRecordedActionsPolicy, f"{tmp_path}/all.states"), 5, 2)


def test_what_was_not_recorded_is_not_replayed() -> None:
    played = rollout(cart_pole, "random", 2, max_steps=5)
    replay = ReplayRecordedActionsPolicy([one.spaces for one in played])
    with pytest.raises(ValueError, match=r"act 5 of episode 0 .* nothing was recorded"):
        rollout(cart_pole, replay, 2)
    with pytest.raises(ValueError, match=r"act 0 of episode 2 .* nothing was recorded"):
        rollout(cart_pole, replay, 3, max_steps=5)
    with pytest.raises(ValueError, match=r"is not a policy for sub-step"):
        rollout(cutting, replay, 2, max_steps=5)
    batch = PolicyBatch(0, {}, np.zeros(1, np.int64))
    with pytest.raises(ValueError, match="whole episodes"):
        replay.act(batch)


def test_attempts_that_a_random_reset_drops_do_not_mix_with_the_episode() -> None:
    wrappers = [partial(RandomResetWrapper, min_skip_steps=1, max_skip_steps=3)]
    for one in rollout(cart_pole, "random", 4, wrappers=wrappers, record=RECORD):
        assert one.spaces is not None
        assert len(one.spaces) <= one.summary.env_steps
        assert {row[0] for _, _, rows in one.events for row in rows} == {one.episode_id}


def test_spaces_that_are_recorded_know_masks_that_were_configured() -> None:
    class Masked(gymnasium.Env[Any, Any]):
        observation_space = spaces.Dict(mask=spaces.MultiBinary(2))
        action_space = spaces.Discrete(2)

        def reset(self, **_: Any) -> Any:
            return {"mask": np.array([0, 1], np.int8)}, {}

        def step(self, action: int) -> Any:
            return {"mask": np.array([0, 1], np.int8)}, float(action), False, False, {}

    (one,) = rollout(Masked, "random", max_steps=30, action_masks={"action": "mask"})
    assert one.spaces is not None and one.summary.reward == 30
    assert one.spaces.spec.steps[0].masks == {"action": "mask"}


def test_wrappers_of_a_group_do_not_remember_the_groups_before_it() -> None:
    played = rollout(make_walk, "random", 6, n_envs=2, wrappers=[RisingPriceWrapper], engine=OutOfOrder())
    assert returns(played) == [10.0] * 6
    assert content(played) == content(rollout(make_walk, "random", 6, n_envs=2, wrappers=[RisingPriceWrapper]))


def test_an_environment_that_exists_already_keeps_the_state_of_its_wrappers() -> None:
    env = RisingPriceWrapper.wrap(make_walk())
    assert returns(rollout(env, "random", 3)) == [10.0, 20.0, 30.0]
    assert env.level == 3

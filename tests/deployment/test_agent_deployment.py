"""Deployments: ways to make one, episodes, sub-steps, users' wrappers, and bad input."""

from __future__ import annotations

import copy
import threading
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces

import maze_pl
from examples.structured import repair_shop
from maze_pl import AgentDeployment
from maze_pl.agents import DummyCartPolePolicy, RandomPolicy, TorchPolicy
from maze_pl.config.search_path import ConfigurationError
from maze_pl.core.policy import PolicyBatch, PolicyStep
from maze_pl.core.spaces import MaskError
from maze_pl.core.spec import Spec
from maze_pl.envs import GymMazeEnv, MazeEnv, ObservationWrapper, Wrapper
from maze_pl.envs.contract import EnvContractError
from maze_pl.envs.cutting_2d import CuttingEvents, InventoryEvents, masked_struct_env_factory, maze_env_factory
from maze_pl.envs.gym_observation_conversion import GymObservationConversion
from maze_pl.envs.trajectory_record import StateTrajectoryRecord
from maze_pl.envs.wrappers import (
    EventLogsWrapper,
    LogStatsWrapper,
    ObservationNormalizationWrapper,
    ObservationStackWrapper,
    RandomResetWrapper,
    RewardScalingWrapper,
    StepSkipWrapper,
    TimeLimitWrapper,
    TrajectoryRecordingWrapper,
)
from maze_pl.events import EventLogFiles
from maze_pl.modules import ES
from maze_pl.perception import CustomModelComposer, FlattenConcatPolicyNet, ProbabilisticPolicyComposer
from maze_pl.runs.rollout import rollout
from tests.deployment.replaying import SEED, compare, decisions_on, play, untrained
from tests.envs.structured_example import HeapCoreEnv, make_heap_env
from tests.equality import assert_equal

CART_POLE = partial(GymMazeEnv, "CartPole-v1")
STATE = np.array([0.0, 0.1, 0.05, -0.1], np.float32)
CONFIGURATION = {"class_path": "maze_pl.envs.GymMazeEnv", "init_args": {"env": "CartPole-v1"}}


def deployed(*wrappers: Any, policy: Any = DummyCartPolePolicy, **options: Any) -> AgentDeployment:
    return AgentDeployment(policy, CART_POLE, wrappers, **options)


class Following:
    """Turns towards the pole's side; remembers what it was shown."""

    def __init__(self) -> None:
        self.shown: list[np.ndarray] = []

    def act(self, batch: PolicyBatch, **_: Any) -> PolicyStep:
        self.shown.append(batch.observation["observation"][0])
        return PolicyStep({"action": np.array([int(batch.observation["observation"].ravel()[-2] > 0)])})


# ------------------------------------------------------------------------------------------------- ways to make one


def test_the_documented_example_with_an_external_environment() -> None:
    env = GymMazeEnv("CartPole-v1")
    policy = RandomPolicy(action_spaces_dict=env.action_spaces_dict)
    agent_deployment = AgentDeployment(policy=policy, env=env, seed=1)
    external_env = gymnasium.make("CartPole-v1")
    maze_state, info = external_env.reset(seed=1)
    reward, terminated, truncated = 0, False, False
    for _ in range(10):
        maze_action = agent_deployment.act(maze_state, reward, terminated, truncated, info)
        maze_state, reward, terminated, truncated, info = external_env.step(maze_action)
    agent_deployment.close(maze_state, reward, terminated, truncated, info)
    assert agent_deployment.statistics()["BaseEnvEvents/reward/mean"] == 10.0
    external_env.close()


@pytest.mark.parametrize(
    "env",
    [
        lambda: CART_POLE,
        lambda: CONFIGURATION,
        CART_POLE,
        partial(gymnasium.make, "CartPole-v1"),
        lambda: LogStatsWrapper(CART_POLE()),
    ],
    ids=["callable", "configuration", "instance", "gymnasium", "wrapped"],
)
@pytest.mark.parametrize(
    "policy",
    [
        *("maze_pl.agents.DummyCartPolePolicy", "heuristic", {"class_path": "maze_pl.agents.DummyCartPolePolicy"}),
        *(DummyCartPolePolicy, DummyCartPolePolicy()),
    ],
    ids=["path", "heuristic", "configuration", "class", "instance"],
)
def test_any_mixture_of_instances_and_configuration(policy: Any, env: Any) -> None:
    env = env()
    wrappers = [
        {"class_path": "maze_pl.envs.wrappers.TimeLimitWrapper", "init_args": {"max_episode_steps": 2}},
        partial(RewardScalingWrapper, scale=0.1),
    ]
    with AgentDeployment(policy=policy, env=env, wrappers=wrappers) as deployment:
        assert deployment.act(STATE) in (0, 1)
        assert deployment.act(STATE, 1.0) in (0, 1)
        assert deployment.act(STATE, 1.0) is None, "the time limit"


@pytest.mark.parametrize("is_mapping_of_paths", [True, False])
def test_wrappers_may_be_a_mapping_with_arguments(is_mapping_of_paths: bool) -> None:
    path, arguments = "maze_pl.envs.wrappers.TimeLimitWrapper", {"max_episode_steps": 2}
    wrappers = {path: arguments} if is_mapping_of_paths else {"class_path": path, "init_args": arguments}
    with AgentDeployment(DummyCartPolePolicy, CART_POLE, wrappers=wrappers) as deployment:
        assert deployment.act(STATE) in (0, 1)
        assert deployment.act(STATE, 1.0) in (0, 1)
        assert deployment.act(STATE, 1.0) is None, "the time limit"


def test_networks_are_copied_and_evaluated_as_in_a_rollout() -> None:
    policy = untrained(CART_POLE)
    policy.train()
    deployment = AgentDeployment(policy, CART_POLE)
    before = deployment.act(STATE)
    assert policy.training
    with torch.no_grad():
        for parameter in policy.parameters():
            parameter.mul_(-1.0)
    deployment.reset()
    assert deployment.act(STATE) == before
    deployment.close()


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with normalised and stacked observations."""
    from maze_pl.__main__ import main

    path = tmp_path_factory.mktemp("runs") / "run"
    wrappers = (
        "[{class_path: maze_pl.envs.wrappers.ObservationNormalizationWrapper},"
        "{class_path: maze_pl.envs.wrappers.TimeLimitWrapper, init_args: {max_episode_steps: 20}}]"
    )
    small = ("--data.n_envs", "2", "--data.n_rollout_steps", "50", "--data.epoch_length", "1")
    options = ("--trainer.max_epochs", "1", "--data.evaluators", "null", "--data.wrappers", wrappers)
    assert main(["fit", "--config", "ppo_cartpole", "--run_dir", str(path), *small, *options]) == 0
    return path


@pytest.mark.slow
def test_a_run_directory_provides_policy_wrappers_and_statistics(run: Path) -> None:
    options = maze_pl.runs.loading.load_data(run).rollout_options
    policy = maze_pl.load(run).policy
    statistics = maze_pl.runs.loading.load_data(run).wrapper_statistics()
    records, played = play(options["env"], options["wrappers"], policy, statistics, 10, 20, deterministic=True)
    with AgentDeployment.from_run(run, seed=SEED) as deployment:
        compare(deployment, records, played)
        (drift,) = deployment.drift()
        assert drift.n_observations == sum(len(record.steps) for record in records)
        assert drift.outside < 0.2
    with AgentDeployment.from_run(run, env=CONFIGURATION, policy=policy, seed=SEED) as deployment:
        compare(deployment, records, played)
    normaliser = {"class_path": "maze_pl.envs.wrappers.ObservationNormalizationWrapper"}
    with AgentDeployment.from_run(run, wrappers=[normaliser], seed=SEED) as deployment:
        decided = decisions_on(deployment, records[0])
        assert decided[:-1] == [step.maze_action for step in records[0].steps]
        assert deployment.is_running or records[0].steps[-1].terminated, "without the time limit"


@pytest.mark.slow
def test_other_wrappers_of_a_run_must_have_those_that_the_policy_needs(run: Path) -> None:
    other = {"class_path": "maze_pl.envs.wrappers.SpacesRecordingWrapper"}
    message = (
        r"the deployment has no wrapper maze_pl.*ObservationNormalizationWrapper, with which the policy is trained"
    )
    with pytest.raises(ConfigurationError, match=message):
        AgentDeployment.from_run(run, wrappers=[other])
    with AgentDeployment.from_run(run, wrappers=[other], policy="heuristic") as deployment:
        assert deployment.act(STATE) in (0, 1)


def test_statistics_that_are_missing_are_refused() -> None:
    with pytest.raises(ValueError, match=r"no statistics of \['observation'\]: give wrapper_statistics, or take them"):
        deployed(ObservationNormalizationWrapper)


def test_arguments_that_are_no_environment_or_policy_are_refused() -> None:
    with pytest.raises(TypeError, match="env is '7' of type int; expected an environment"):
        AgentDeployment(DummyCartPolePolicy, 7)
    with pytest.raises(TypeError, match="is not a policy"):
        AgentDeployment(lambda: 7, CART_POLE)
    with pytest.raises(ValueError, match="names no class: write class_path"):
        AgentDeployment(DummyCartPolePolicy, {"env": "CartPole-v1"})
    with pytest.raises(ValueError, match="temperature=0 must be above 0"):
        deployed(temperature=0)


# --------------------------------------------------------------------------------------------------------- episodes


def test_several_episodes_in_one_deployment() -> None:
    policy = Following()
    stack = partial(ObservationStackWrapper, stack_config=[{"observation": "observation", "stack_steps": 2}])
    deployment = deployed(stack, policy=policy)
    ones = np.ones(4, np.float32)
    deployment.act(STATE)
    deployment.act(STATE + 1, 1.0)
    assert deployment.act(STATE + 2, 2.0, terminated=True) is None
    assert not deployment.is_running
    deployment.act(ones, 5.0)
    np.testing.assert_array_equal(policy.shown[-1], [ones, ones], "the stack begins anew")
    deployment.reset()
    deployment.act(STATE, 7.0)
    deployment.close(STATE, 4.0, False, True)
    statistics = deployment.statistics()
    assert statistics["BaseEnvEvents/reward/episode_count"] == 2, "an episode of no step is none"
    assert (statistics["BaseEnvEvents/reward/min"], statistics["BaseEnvEvents/reward/max"]) == (3.0, 4.0)


def test_an_episode_that_is_given_up_counts_up_to_there() -> None:
    deployment = deployed()
    deployment.act(STATE)
    deployment.act(STATE, 1.0)
    deployment.reset()
    assert deployment.statistics()["BaseEnvEvents/reward/mean"] == 1.0
    deployment.close()
    assert deployment.statistics()["BaseEnvEvents/reward/episode_count"] == 1


def test_a_system_that_goes_on_after_a_time_limit_gives_the_state_again() -> None:
    deployment = deployed(partial(TimeLimitWrapper, max_episode_steps=1))
    deployment.act(STATE)
    assert deployment.act(STATE, 1.0) is None
    assert deployment.act(STATE) in (0, 1)
    deployment.close()


def test_random_steps_at_the_beginning_are_left_out() -> None:
    deployment = deployed(partial(RandomResetWrapper, min_skip_steps=3, max_skip_steps=5))
    assert deployment.act(STATE) in (0, 1)
    assert deployment.env.get_env_time() == 0
    deployment.close()


def test_closing_writes_logs_and_records(tmp_path: Path) -> None:
    class Kept(list[StateTrajectoryRecord]):
        needs_frames = False
        is_closed = False

        def write(self, record: StateTrajectoryRecord) -> None:
            self.append(record)

        def close(self) -> None:
            self.is_closed = True

    kept: Any = Kept()
    logged: list[dict[str, float]] = []

    class Logger:
        def log_metrics(self, metrics: dict[str, float], step: int) -> None:
            logged.append({**metrics, "step": step})

        def save(self) -> None: ...

    deployment = deployed(
        partial(TrajectoryRecordingWrapper, writer=kept),
        partial(EventLogsWrapper, writer=EventLogFiles(str(tmp_path))),
        loggers=[Logger()],  # type: ignore[list-item]
    )
    action = deployment.act(STATE)
    deployment.act(STATE + 1, 1.0)
    deployment.close()
    deployment.close()
    assert kept.is_closed
    ((step,),) = (record.steps for record in kept)
    assert (step.maze_action, step.reward) == (action, 1.0)
    assert len((tmp_path / "BaseEnvEvents.reward.csv").read_text().splitlines()) == 2
    assert [metrics["step"] for metrics in logged] == [1]


def test_a_last_state_that_is_refused_loses_nothing_else() -> None:
    deployment = deployed()
    deployment.act(STATE)
    deployment.act(STATE, 2.0)
    with pytest.raises(EnvContractError):
        deployment.close(np.full(4, np.nan, np.float32), 1.0)
    assert deployment.statistics()["BaseEnvEvents/reward/mean"] == 2.0
    with pytest.raises(RuntimeError, match="is closed"):
        deployment.reset()


def test_a_block_closes_the_deployment_whatever_happens() -> None:
    before = threading.active_count()
    with pytest.raises(KeyError), deployed() as deployment:
        deployment.act(STATE)
        raise KeyError
    assert threading.active_count() == before
    with pytest.raises(RuntimeError, match="this AgentDeployment is closed: make a new one"):
        deployment.act(STATE)


def test_deployments_do_not_disturb_each_other() -> None:
    stack = partial(ObservationStackWrapper, stack_config=[{"observation": "observation", "stack_steps": 3}])
    policy = untrained(CART_POLE, [stack])
    states = np.random.default_rng(0).normal(size=(4, 50, 4)).astype(np.float32)

    def decide(place: int) -> list[int]:
        with AgentDeployment(policy, CART_POLE, [stack], deterministic=False, seed=place) as deployment:
            return [deployment.act(state, 1.0) for state in states[place]]

    alone = [decide(place) for place in range(4)]
    together: dict[int, list[int]] = {}
    threads = [threading.Thread(target=lambda i=i: together.update({i: decide(i)})) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [together[place] for place in range(4)] == alone
    several = [AgentDeployment(policy, CART_POLE, [stack], deterministic=False, seed=i) for i in range(4)]
    in_turns = [[several[i].act(states[i, t], 1.0) for t in range(50)] for i in range(4)]
    assert in_turns == alone
    for deployment in several:
        deployment.close()


def test_events_that_the_caller_fires_count_in_their_step() -> None:
    make_env = partial(maze_env_factory, 8, (4, 3), (1, 2))
    played = rollout(make_env, "heuristic", 2, SEED, record=["states"], max_steps=10, n_envs=1, deterministic=True)
    limit = partial(TimeLimitWrapper, max_episode_steps=10)
    deployment = AgentDeployment("heuristic", make_env, [limit], seed=SEED, reports_events=True)
    topics = {topic: deployment.event_topic(topic) for topic in (CuttingEvents, InventoryEvents)}
    for trajectory in played:
        record: Any = trajectory.states
        before: tuple[Any, ...] = (0.0, False, False, {})
        for step in record.steps:
            deployment.act(step.maze_state, *before)
            for event in step.events:
                if event.topic in topics:
                    getattr(topics[event.topic], event.event.__name__)(**event.attributes)
            before = (step.reward, False, False, step.info)
        assert deployment.act(record.last_maze_state, *before) is None
    for summary, trajectory in zip(deployment._summaries, played, strict=True):
        assert summary.kpis == trajectory.summary.kpis != {}
        assert_equal(summary.statistics, trajectory.summary.statistics)
    deployment.close()


def test_events_before_the_first_state_of_an_episode_count_in_its_first_step(tmp_path: Path) -> None:
    state = maze_env_factory(8, (4, 3), (1, 2)).core_env.reset()
    log = partial(EventLogsWrapper, writer=EventLogFiles(str(tmp_path)))
    make_env = partial(maze_env_factory, 8, (4, 3), (1, 2))
    deployment = AgentDeployment("heuristic", make_env, [log], reports_events=True)
    events = deployment.event_topic(CuttingEvents)

    def fire() -> None:
        events.invalid_cut(current_demand=(1, 2), piece_to_cut=(4, 3), raw_piece_size=(4, 3))

    fire()
    fire()
    deployment.reset()  # there is no episode to abandon
    with pytest.raises(EnvContractError):
        deployment.act(7)  # nor does one begin
    deployment.act(state)
    deployment.act(state, -1.0)
    fire()
    assert deployment.act(state, -1.0, terminated=True) is None
    fire()
    deployment.act(state)
    deployment.close(state, -1.0)
    totals = []
    for summary in deployment._summaries:
        totals += [value for key, value in summary.statistics.items() if key[1] == "invalid_cut"]
    assert totals == [3, 1]
    rows = (tmp_path / "CuttingEvents.invalid_cut.csv").read_text().splitlines()
    assert len(rows) == 5, "each event has one row"


def test_an_event_that_waits_is_checked_when_it_is_fired() -> None:
    with AgentDeployment("heuristic", partial(maze_env_factory, 8, (4, 3), (1, 2))) as deployment:
        events = deployment.event_topic(CuttingEvents)
        with pytest.raises(
            TypeError, match=r"missing a required argument: 'piece_to_cut'; it is CuttingEvents.invalid"
        ):
            events.invalid_cut(current_demand=(1, 2))
        with pytest.raises(AttributeError, match="CuttingEvents has no event 'other'"):
            events.other()


def test_kpis_are_left_out_if_nobody_fires_events() -> None:
    deployment = AgentDeployment("heuristic", partial(maze_env_factory, 8, (4, 3), (1, 2)))
    state = maze_env_factory(8, (4, 3), (1, 2)).core_env.reset()
    deployment.act(state)
    deployment.close(state, 1.0)
    assert not [name for name in deployment.statistics() if "kpi" in name]


# ------------------------------------------------------------------------------------------- candidates and actors


def test_candidates_are_the_most_likely_actions() -> None:
    policy = untrained(CART_POLE)
    deployment = AgentDeployment(policy, CART_POLE)
    found = deployment.candidates(STATE, 5)
    expected = policy.act_on({"observation": STATE}, with_probabilities=True)[1]["action"]
    assert [one.maze_action for one in found] == np.argsort(-expected).tolist()
    np.testing.assert_allclose([one.probability for one in found], np.sort(expected)[::-1])
    assert deployment.act(STATE) == found[0].maze_action, "the same state is not counted twice"
    second = deployment.candidates(STATE + 1, 2, 1.0)[1]
    assert deployment.take(second) == second.maze_action
    deployment.close(STATE, 1.0)
    assert deployment.statistics()["BaseEnvEvents/reward/mean_step_count"] == 2


def test_candidates_of_sub_steps_are_asked_for_one_after_the_other() -> None:
    make_env = partial(masked_struct_env_factory, 4, (4, 3), (3, 1))
    state = maze_env_factory(4, (4, 3), (3, 1)).core_env.reset()
    deployment = AgentDeployment(untrained(make_env), make_env)
    pieces = deployment.candidates(state, 10)
    assert [(one.action, one.probability) for one in pieces] == [({"piece_idx": 0}, 1.0)], "the mask allows one"
    assert deployment.take(pieces[0]) is None
    cuts = deployment.candidates(state, 10)
    assert len(cuts) == 4, "both rotations and orders"
    assert sum(one.probability for one in cuts) == pytest.approx(1.0)
    action = deployment.take(cuts[2])
    assert (action.piece_id, action.rotate) == (0, bool(cuts[2].action["cut_rotation"]))
    deployment.close()


def test_candidates_in_skipped_steps_and_after_the_end() -> None:
    deployment = AgentDeployment(untrained(CART_POLE), CART_POLE, [partial(StepSkipWrapper, n_steps=2)])
    chosen = deployment.take(deployment.candidates(STATE, 2)[1])
    following = STATE + 1
    assert deployment.candidates(following, 2, 1.0) == []
    assert deployment.act(following) == chosen, "the action is repeated"
    assert deployment.candidates(STATE, 2, 1.0, terminated=True) == [] and not deployment.is_running
    deployment.close()


def test_policies_and_actions_without_candidates_are_refused() -> None:
    deployment = deployed()
    with pytest.raises(TypeError, match="a DummyCartPolePolicy has no probabilities"):
        deployment.candidates(STATE, 2)
    assert deployment.act(STATE) in (0, 1), "nothing is lost"
    deployment.close()
    make_env = partial(GymMazeEnv, "Pendulum-v1")
    deployment = AgentDeployment(untrained(make_env), make_env)
    with pytest.raises(TypeError, match=r"head 'action' is Box.*: only discrete actions have candidates"):
        deployment.candidates(np.zeros(3, np.float32), 2)
    deployment.close()


def test_the_actor_must_be_named_where_the_simulation_has_several() -> None:
    deployment = AgentDeployment("random", make_heap_env)
    assert deployment.needs_actor
    state = {"target": 0, "heap": 3, "strength": 3}
    for named, message in (
        ({}, "needs to know who acts"),
        ({"actor_id": ("rest", 0)}, r"actor_id=\('rest', 0\) is unknown"),
        ({"actor_id": ("plan", 1)}, r"actor_id=\('plan', 1\) is unknown"),
        ({"actor_id": ("plan", 0), "env_time": 2}, "env_time=2: expected 0"),
    ):
        with pytest.raises(EnvContractError, match=message):
            deployment.act(state, **named)
    assert deployment.act(state, actor_id=("plan", 0))[0] == "plan"
    with pytest.raises(EnvContractError, match="needs to know who acts"):
        deployment.act(state, actor_id=("work", 0))
    assert deployment.act(state, actor_id=("work", 0), env_time=0)[0] == "work"
    deployment.close()


def test_the_end_of_an_episode_of_several_actors_needs_no_actor() -> None:
    state = {"target": 0, "heap": 3, "strength": 3}
    deployment = AgentDeployment("random", make_heap_env)
    for end in ({"terminated": True}, {"truncated": True}):
        deployment.act(state, actor_id=("plan", 0))
        deployment.act(state, 1.0, actor_id=("work", 0), env_time=0)
        assert deployment.act(state, 2.0, **end) is None
        assert not deployment.is_running
        assert deployment.env.get_env_time() == 1
    deployment.act(state, actor_id=("plan", 0))
    deployment.act(state, 1.0, actor_id=("work", 0), env_time=0)
    deployment.act(state, 1.0, actor_id=("plan", 0), env_time=1)
    assert deployment.act(state, 1.0, terminated=True, env_time=1) is None, "within a step"
    assert deployment.env.get_env_time() == 1
    deployment.act(state, actor_id=("plan", 0))
    deployment.close(state, 4.0)
    statistics = deployment.statistics()
    assert statistics["BaseEnvEvents/reward/episode_count"] == 4
    assert (statistics["BaseEnvEvents/reward/min"], statistics["BaseEnvEvents/reward/max"]) == (3.0, 4.0)


def test_the_last_state_is_converted_for_an_actor_that_it_fits() -> None:
    simulation = repair_shop.make_env()
    simulation.reset(seed=0)
    waiting = simulation.get_maze_state()
    simulation.step({"choice": 0})
    picked = simulation.get_maze_state()
    deployment = AgentDeployment("random", repair_shop.make_env)
    for last, named in ((waiting, {}), (picked, {"env_time": 0}), (picked, {}), (waiting, {"env_time": 0})):
        deployment.act(waiting, actor_id=("pick", 0))
        deployment.act(picked, actor_id=("tool", 0), env_time=0)
        with pytest.raises(EnvContractError, match="of sub-step"):
            deployment.act({"waiting": [], "picked": None}, 1.0, terminated=True, **named)
        assert deployment.act(last, 1.0, terminated=True, **named) is None
        assert deployment.env.get_env_time() == named.get("env_time", 1)
    assert deployment.statistics()["BaseEnvEvents/reward/mean"] == 1.0
    deployment.close()


class Counting:
    """Counts the acts of each actor in its policy state and its noise, and notes what it was given."""

    def __init__(self) -> None:
        heads = {key: list(space.spaces) for key, space in make_heap_env().action_spaces_dict.items()}
        self.actions = {key: {head: np.zeros(1, np.int64) for head in names} for key, names in heads.items()}
        self.notes: list[Any] = []

    def act(self, batch: PolicyBatch, **_: Any) -> PolicyStep:
        assert batch.is_first is not None and batch.noise_state is not None
        before = 0.0 if batch.policy_state is None else float(batch.policy_state["n"][0])
        noise = [int(array[0]) for array in batch.noise_state.values()]  # without entries if nobody has acted
        self.notes.append((batch.step_key, int(batch.agent_id[0]), bool(batch.is_first[0]), before, noise))
        after = {"n": np.array([before + 1])}
        return PolicyStep(self.actions[batch.step_key], policy_state=after, noise_state=after)


class Leaving(HeapCoreEnv):
    """Has workers that leave."""

    @property
    def agent_counts_dict(self) -> dict[int | str, int]:
        return {"plan": 1, "work": -1}


def test_actors_that_are_done_are_treated_as_in_a_rollout() -> None:
    def make_env() -> MazeEnv:
        return make_heap_env(Leaving())

    policy = Counting()
    records, _ = play(make_env, [], policy, None, 2, 10, max_agents={"work": 3})
    in_rollout = policy.notes[:]
    policy.notes.clear()
    with AgentDeployment(policy, make_env, seed=SEED) as deployment:
        for record in records:
            decisions_on(deployment, record)
    assert policy.notes == in_rollout
    assert any(note[:4] == ("work", 0, False, 3.0) for note in policy.notes), "worker 0 keeps its state"


def test_where_agents_come_and_go_one_that_is_done_is_forgotten() -> None:
    policy = Counting()
    state = {"target": 0, "heap": 3, "strength": 3}
    with AgentDeployment(policy, lambda: make_heap_env(Leaving())) as deployment:
        for agent, done in ((0, False), (1, False), (0, False), (1, True), (1, False), (2, False)):
            deployment.act(state, actor_id=("work", agent), env_time=0, is_actor_done=done)
        kept = [deployment._decider._policy_states._states, deployment._decider._noise_states._states]
        assert [set(states) for states in kept] == [{("work", 1), ("work", 2)}] * 2
    numbers = [note[1:] for note in policy.notes]
    assert numbers == [
        (0, True, 0.0, []),
        (1, True, 0.0, [0]),
        (0, False, 1.0, [1]),
        (1, False, 1.0, [1]),
        (1, False, 2.0, [2]),
        (2, True, 0.0, [0]),
    ]


@pytest.mark.parametrize("core", [HeapCoreEnv, Leaving])
def test_an_actor_that_was_done_does_not_act_again_in_the_episode(core: Any) -> None:
    state = {"target": 0, "heap": 3, "strength": 3}
    message = r"actor_id=\('work', 0\) acts after it was done"
    with AgentDeployment("random", lambda: make_heap_env(core())) as deployment:
        for _ in range(2):
            deployment.act(state, actor_id=("work", 0))
            with pytest.raises(EnvContractError, match=message):
                deployment.act(state, actor_id=("work", 0), env_time=0, is_actor_done=True)
            deployment.act(state, actor_id=("work", 1), env_time=0, is_actor_done=np.True_)
            with pytest.raises(EnvContractError, match=message):
                deployment.act(state, actor_id=("work", 0), env_time=1)
            deployment.act(state, actor_id=("work", 2), env_time=1)
            deployment.act(state, actor_id=("work", 1), env_time=1)
            assert deployment.act(state, terminated=True, actor_id=("work", 0), env_time=2) is None
        deployment.act(state, actor_id=("work", 0))
        deployment.reset()
        assert deployment.act(state, actor_id=("work", 0))[0] == "work"


@pytest.mark.parametrize(
    ("named", "message"),
    [
        ({"actor_id": "work"}, r"act was given actor_id='work'; expected \(step key, agent\)"),
        ({"actor_id": ("work", 0.0)}, r"act was given actor_id=\('work', 0.0\); expected \(step key, agent\)"),
        ({"actor_id": (["work"], 0)}, r"act was given actor_id=\(\['work'\], 0\)"),
        ({"actor_id": ("work", 0, 1)}, r"act was given actor_id=\('work', 0, 1\)"),
        ({"env_time": 0.0}, "act was given env_time='0.0' of type float; expected an integer"),
        ({"is_actor_done": "x"}, "act was given is_actor_done='x' of type str; expected True or False"),
        ({"is_actor_done": 1}, "act was given is_actor_done='1' of type int; expected True or False"),
    ],
)
def test_malformed_actors_are_refused_before_anything_advances(named: dict[str, Any], message: str) -> None:
    state = {"target": 0, "heap": 3, "strength": 3}
    good = {"actor_id": ["work", np.int64(1)], "env_time": np.int32(0), "is_actor_done": False}
    with AgentDeployment("random", make_heap_env) as deployment:
        deployment.act(state, actor_id=("work", np.int64(0)))
        with pytest.raises(EnvContractError, match=message):
            deployment.act(state, **{**good, **named})
        assert deployment.act(state, **good)[0] == "work"
        assert deployment.env.actor_id() == ("work", 1)


def test_agents_without_a_network_are_refused_before_anything_advances() -> None:
    """A policy of three workers in a system where workers come and go."""
    spec = Spec.of(make_heap_env())
    composer = CustomModelComposer(
        ProbabilisticPolicyComposer([FlattenConcatPolicyNet] * 2, substeps_with_separate_agent_nets=["work"])
    )
    policy = ES(spec=spec, networks=composer).policy
    state = {"target": 0, "heap": 3, "strength": 3}
    with AgentDeployment(policy, lambda: make_heap_env(Leaving())) as deployment:
        with pytest.raises(EnvContractError, match=r"actor_id=\('work', 3\) is unknown.*'work': 3"):
            deployment.act(state, actor_id=("work", 3))
        for agent in (0, 2):
            assert deployment.act(state, actor_id=("work", agent), env_time=0)[0] == "work"


# ------------------------------------------------------------------------------------------------- users' wrappers


class Doubled(ObservationWrapper):
    def observation(self, observation: Any) -> Any:
        return {name: 2 * value for name, value in observation.items()}


class Plain(Wrapper):
    def step(self, action: Any) -> Any:
        return self.env.step(action)


class Twice(Wrapper):
    """Takes each action twice."""

    def step_in_parts(self, action: Any) -> Any:
        _, first, terminated, truncated, info = result = yield action
        if terminated or truncated:
            return result
        observation, second, terminated, truncated, info = yield action
        return observation, first + second, terminated, truncated, info


def test_wrappers_of_users() -> None:
    policy = Following()
    deployment = deployed(Doubled, Twice, policy=policy)
    first = deployment.act(STATE)
    assert deployment.act(STATE + 1, 1.0) == first, "taken twice"
    deployment.act(STATE + 2, 1.0)
    np.testing.assert_array_equal(policy.shown, [2 * STATE, 2 * (STATE + 2)])
    deployment.close()
    env = Twice(CART_POLE())
    env.reset(seed=0)
    assert env.step({"action": 1})[1] == 2.0, "the same code makes its step"


def test_wrappers_that_cannot_be_kept_in_step_are_refused() -> None:
    with pytest.raises(TypeError, match="Plain cannot be kept in step, as it overrides step: define step_in_parts"):
        deployed(Plain)

    class Derived(Twice):
        def step(self, action: Any) -> Any:
            return super().step(action)

    with pytest.raises(TypeError, match="Derived cannot be kept in step"):
        deployed(Derived)

    class Stepping(Wrapper):
        def reset(self, **options: Any) -> Any:
            self.env.reset(**options)
            observation, *_, info = self.env.step({"action": 0})
            return observation, info

    deployment = deployed(Stepping)
    with pytest.raises(TypeError, match="GymCoreEnv was stepped in deployment, where only states come"):
        deployment.act(STATE)
    deployment.close()


def test_the_simulation_is_not_asked_for_what_it_cannot_know() -> None:
    class Peeking(ObservationWrapper):
        def observation(self, observation: Any) -> Any:
            return {"observation": observation["observation"] + self.core_env.env.unwrapped.state[0]}

    deployment = deployed(Peeking)
    with pytest.raises(
        AttributeError, match="'env' of GymCoreEnv is unknown in deployment: read it from the maze state"
    ):
        deployment.act(STATE)
    with pytest.raises(RuntimeError, match="an error interrupted the episode: call reset"):
        deployment.act(STATE)
    deployment.close()


# ------------------------------------------------------------------------------------------------------- bad input


@pytest.mark.parametrize(
    ("state", "message"),
    [
        (np.array([0, np.nan, 0, 0], np.float32), r"entry 'observation' .* is not a number \(nan\) at \[1\]"),
        (np.array([0, np.inf, 0, 0], np.float32), "'observation' of sub-step 0 is not finite after the wrappers"),
        (np.zeros(3, np.float32), r"has shape \(3,\); its space has \(4,\)"),
        (np.zeros((1, 4), np.float32), r"has shape \(1, 4\)"),
        (
            ["1", "2", "3", "4"],
            "the state that was given is a list of 4 values, one of which is '1'; its space expects",
        ),
        ([0.0, None, 0.0, 0.0], "the state that was given is a list of 4 values, one of which is None; its space"),
        ({"x": 1}, "is a dict with"),
        (None, "given None instead of a state"),
        (np.array([object()] * 4), "its space expects float32"),
    ],
)
def test_bad_states_are_refused(state: Any, message: str) -> None:
    deployment = deployed()
    with pytest.raises(EnvContractError, match=message):
        deployment.act(state)
    if "finite" in message:
        deployment.reset()
    assert deployment.act(STATE) in (0, 1)
    deployment.close(STATE, 1.0)


class Heights(gymnasium.Env[Any, Any]):
    """Observes 64-bit numbers."""

    observation_space = spaces.Box(-1e300, 1e300, (2,), np.float64)
    action_space = spaces.Discrete(2)


@pytest.mark.parametrize("search", [None, "best_of:2"])
def test_numbers_beyond_the_range_of_the_networks_are_refused(search: str | None) -> None:
    policy = ES(spec=Spec.of(GymMazeEnv(Heights()))).policy
    deployment = AgentDeployment(policy, lambda: GymMazeEnv(Heights()), search=search)
    message = r"'observation' of sub-step 0 holds 1e\+39, but networks read numbers up to 3.4e\+38 only"
    with pytest.raises(EnvContractError, match=message):
        deployment.act(np.array([1e39, 0.5]))
    deployment.reset()
    if search is None:
        assert deployment.act(np.array([1e38, 0.5])) in (0, 1)
    deployment.close()
    wide = AgentDeployment(copy.deepcopy(policy).double(), GymMazeEnv(Heights()))
    assert wide.act(np.array([1e39, 0.5])) in (0, 1)
    wide.close()


def test_nothing_advances_with_a_bad_state() -> None:
    policy = Following()
    stack = partial(ObservationStackWrapper, stack_config=[{"observation": "observation", "stack_steps": 3}])
    deployment = deployed(stack, policy=policy)
    deployment.act(STATE)
    for _ in range(3):
        with pytest.raises(EnvContractError):
            deployment.act(np.full(4, np.nan, np.float32), 1.0)
    deployment.act(STATE + 1, 1.0)
    np.testing.assert_array_equal(policy.shown[-1], [STATE, STATE, STATE + 1])
    deployment.close()
    assert deployment.statistics()["BaseEnvEvents/reward/mean"] == 1.0


@pytest.mark.parametrize(
    ("step", "message"),
    [
        ({"reward": np.nan}, "act was given the reward nan; expected a finite number"),
        ({"reward": "1"}, "act was given '1' of type str as reward; expected one number"),
        ({"terminated": None}, "act was given terminated=None; expected True or False"),
        ({"truncated": "no"}, "act was given truncated='no' of type str"),
        ({"info": 3}, "act was given '3' of type int as info; expected a dict"),
        ({"actor_id": (1, 0)}, r"actor_id=\(1, 0\): the only actor is \(0, 0\)"),
        ({"env_time": "noon"}, "act was given env_time='noon' of type str; expected an integer"),
    ],
)
def test_bad_steps_are_refused(step: dict[str, Any], message: str) -> None:
    deployment = deployed()
    deployment.act(STATE)
    with pytest.raises(EnvContractError, match=message):
        deployment.act(STATE, **step)
    assert deployment.act(STATE, 1.0) in (0, 1)
    deployment.close()


def test_fractions_are_refused_where_the_space_has_integers() -> None:
    with AgentDeployment("random", partial(GymMazeEnv, "FrozenLake-v1")) as deployment:
        with pytest.raises(EnvContractError, match="type float64 for observation 'observation', expected int64"):
            deployment.act(1.5)
        assert deployment.act(1) in range(4)


class Counts(gymnasium.Env[Any, Any]):
    """Observes a few integers of some type."""

    action_space = spaces.Discrete(2)

    def __init__(self, dtype: Any) -> None:
        self.observation_space = spaces.Box(0, 100, (3,), dtype)


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int16, np.int32, np.uint32])
def test_integers_that_do_not_fit_the_space_are_refused(dtype: Any) -> None:
    policy = Following()
    limits = np.iinfo(dtype)
    with AgentDeployment(policy, lambda: GymMazeEnv(Counts(dtype))) as deployment:
        for number in (int(limits.max) + 1, int(limits.min) - 1, 2**32 + 5):
            for state in ([1, number, 2], np.array([1, number, 2])):
                message = f"has the value {number}, which its type {np.dtype(dtype)} cannot hold"
                with pytest.raises(EnvContractError, match=message):
                    deployment.act(state)
        for state in ([1, limits.max, 2], np.array([1, limits.max, 2]), np.array([1, limits.max, 2], dtype)):
            deployment.act(state)
            deployment.reset()
    for shown in policy.shown:
        assert (shown.tolist(), shown.dtype) == ([1, limits.max, 2], dtype)
    assert len(policy.shown) == 3


class WideCount(ObservationWrapper):
    """Adds a number of a wider type than that of its space."""

    number = 300

    def __init__(self, env: Any) -> None:
        super().__init__(env)
        count = spaces.Box(0, 255, (1,), np.uint8)
        self._observation_spaces = {}
        for key, space in env.observation_spaces_dict.items():
            self._observation_spaces[key] = spaces.Dict({**space.spaces, "count": count})

    def observation(self, observation: Any) -> Any:
        return {**observation, "count": np.array([self.number], np.int64)}


class FittingCount(WideCount):
    """Adds a number that fits."""

    number = 255


def test_integers_of_wrappers_that_do_not_fit_their_space_are_refused() -> None:
    deployment = deployed(WideCount, policy=RandomPolicy)
    fitting = deployed(FittingCount, policy=RandomPolicy)
    assert fitting.act(STATE) in (0, 1)
    with pytest.raises(EnvContractError, match=r"'count' of sub-step 0 has the value 300, which its type uint8 cannot"):
        deployment.act(STATE)
    with pytest.raises(ValueError, match=r"has the value 300, which its type uint8 cannot"):
        rollout(CART_POLE, RandomPolicy, 1, wrappers=[WideCount])
    for one in (deployment, fitting):
        one.close()


def test_a_conversion_whose_integers_do_not_fit_its_space_is_refused() -> None:
    class Wide(GymObservationConversion):
        def maze_to_space(self, maze_state: Any) -> Any:
            return {"observation": np.asarray(maze_state, np.int64)}

    def make_env() -> MazeEnv:
        env = GymMazeEnv(Counts(np.int16))
        conversion = Wide(env.core_env.env.observation_space)
        return MazeEnv(env.core_env, env.action_conversion_dict, {0: conversion})

    with AgentDeployment("random", make_env) as deployment:
        assert deployment.act([70, 1, 2]) in (0, 1)
        with pytest.raises(EnvContractError, match="by Wide has the value 65606, which its type int16 cannot hold"):
            deployment.act([2**16 + 70, 1, 2])
        assert deployment.act([70, 1, 2]) in (0, 1)


def test_a_conversion_that_fails_is_named() -> None:
    deployment = AgentDeployment("random", partial(maze_env_factory, 8, (4, 3), (1, 2)))
    with pytest.raises(EnvContractError, match="ObservationConversion of sub-step 0 refuses the state '7' of type int"):
        deployment.act(7)
    deployment.close()


def test_a_malformed_mask_is_refused_and_the_state_kept() -> None:
    class Masked(gymnasium.Env[Any, Any]):
        observation_space = spaces.Dict({"mask": spaces.Box(0, 1, (2,))})
        action_space = spaces.Discrete(2)

    masks = {"action": "mask"}
    with AgentDeployment("random", lambda: GymMazeEnv(Masked()), action_masks=masks) as deployment:
        state = {"mask": np.array([0.5, 1.0], np.float32)}
        with pytest.raises(MaskError):
            deployment.act(state)
        with pytest.raises(RuntimeError, match="no decision yet: call reset if an error came instead"):
            deployment.act({"mask": np.array([0.0, 1.0], np.float32)})
        deployment.reset()
        assert deployment.act({"mask": np.array([0.0, 1.0], np.float32)}) == 1


def test_a_mask_that_allows_nothing_is_refused() -> None:
    class Masked(gymnasium.Env[Any, Any]):
        observation_space = spaces.Dict({"mask": spaces.Box(0, 1, (5,))})
        action_space = spaces.MultiDiscrete([2, 3])

    def state(*mask: float) -> dict[str, Any]:
        return {"mask": np.array(mask, np.float32)}

    message = r"^observation 'mask' allows no option of choice 1 of 'action' \(sub-step 0\); call reset"
    with AgentDeployment("random", lambda: GymMazeEnv(Masked()), action_masks={"action": "mask"}) as deployment:
        with pytest.raises(EnvContractError, match=message):
            deployment.act(state(0, 1, 0, 0, 0))
        deployment.reset()
        assert deployment.act(state(0, 1, 0, 0, 1)).tolist() == [1, 2]
    shapes = {"mask": (5,)}
    spec = Spec.of(GymMazeEnv(Masked()), masks={"action": "mask"})
    policy = TorchPolicy([FlattenConcatPolicyNet(shapes, {"action": (5,)}, torch.nn.Tanh, [4])], spec)
    with AgentDeployment(policy, lambda: GymMazeEnv(Masked()), action_masks={"action": "mask"}) as deployment:
        for refused in (
            lambda: deployment.act(state(0, 1, 0, 0, 0)),
            lambda: deployment.candidates(state(0, 1, 0, 0, 0), 2),
        ):
            with pytest.raises(EnvContractError, match=message):
                refused()
            deployment.reset()
        (candidate,) = deployment.candidates(state(1, 0, 0, 1, 0), 2)
        assert candidate.action["action"].tolist() == [0, 1]


def test_environments_without_conversions_are_refused() -> None:
    class Other(MazeEnv):
        def step(self, action: Any) -> Any:
            return super().step(action)

    heap = make_heap_env()
    other = Other(heap.core_env, heap.action_conversion_dict, heap.observation_conversion_dict)
    with pytest.raises(TypeError, match="Other cannot be kept in step, as it overrides step"):
        AgentDeployment("random", other)


def test_an_environment_belongs_to_one_deployment() -> None:
    env = CART_POLE()
    deployment = AgentDeployment(DummyCartPolePolicy, env)
    with pytest.raises(ValueError, match="the environment already belongs to another deployment: make one for each"):
        AgentDeployment(DummyCartPolePolicy, env)
    deployment.close()

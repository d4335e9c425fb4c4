"""Structured environments in RLlib: the same episodes, and rewards and ends of each agent as maze_pl counts them."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest

from maze_pl.core.spec import Spec
from maze_pl.envs import GymMazeEnv
from maze_pl.envs.building import make_wrapped
from maze_pl.rllib.agent_names import AGENT_ID, ModuleOfAgent, agent_name, module_names
from maze_pl.rllib.training_env import TrainingEnv
from tests.envs.late_ends import LateEnds
from tests.rllib.bounded_actions import BoundedActions, clipped, drawn_actions
from tests.structured import agreement, hierarchy, team

# RLlib takes seconds to be imported.
pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore::DeprecationWarning")]

SEED = 2
N_EPISODES = 3
Act = dict[str, Any]


def make_late_team() -> LateEnds:
    return LateEnds(team.make_env())


def training_env(make_env: Callable[[], Any], env_index: int = 0) -> TrainingEnv:
    factory = partial(make_wrapped, make_env)
    return TrainingEnv(factory, Spec.of(factory()), SEED, env_index)


def played_directly(env: TrainingEnv, random: np.random.Generator) -> list[Act]:
    """The acts of an episode: agent, observation, action, and the rewards that followed until its next act."""
    acts: list[Act] = []
    observation = env.reset()
    of_step: list[Act] = []
    is_over = False
    while not is_over:
        actor = env.actor
        space = env.spec.steps[actor.step_key].action_space
        action = {head: int(random.integers(part.n)) for head, part in space.spaces.items()}
        act = {"agent": agent_name(actor), "observation": observation, "action": action, "reward": 0.0, "done": False}
        acts.append(act)
        of_step.append(act)
        result = env.step(action)
        observation, is_over = result.observation, result.is_over
        act["done"] = env.env.is_actor_done()
        if result.has_advanced or is_over:
            for done in map(agent_name, env.env.get_done_actors()):
                next(one for one in reversed(acts) if one["agent"] == done)["done"] = True
        latest = {one["agent"]: one for one in acts}  # the last act of each agent
        for one in latest.values():
            if not one["done"] or one in of_step:
                one["reward"] += result.reward
        if result.has_advanced or is_over:
            attributed = env.env.get_actor_rewards()
            if attributed is not None:
                for one, reward in zip(of_step, attributed, strict=True):
                    one["own"] = float(reward)
            of_step = []
    return acts


@pytest.mark.parametrize("make_env", [agreement.make_env, hierarchy.make_env, team.make_env, make_late_team])
def test_agents_have_the_acts_and_rewards_that_maze_pl_counts(make_env: Any) -> None:
    from ray.rllib.env.multi_agent_episode import MultiAgentEpisode

    from maze_pl.rllib.multi_agent_env import StructuredMultiAgentEnv

    direct = training_env(make_env)
    env = StructuredMultiAgentEnv(training_env(make_env))
    random, same_random = (np.random.default_rng(7) for _ in range(2))
    spec = direct.spec
    for _ in range(N_EPISODES):
        acts = played_directly(direct, random)
        episode = MultiAgentEpisode(agent_to_module_mapping_fn=ModuleOfAgent(spec))
        observations, infos = env.reset()
        episode.add_env_reset(observations=observations, infos=infos)
        for _ in acts:
            assert not episode.is_done
            (agent,) = episode.get_agents_to_act()
            heads = next(step for key, step in spec.steps.items() if agent.startswith(f"{key}/")).action_space
            values = {head: int(same_random.integers(part.n)) for head, part in heads.spaces.items()}
            action = values if len(values) > 1 else next(iter(values.values()))
            assert env.get_action_space(agent).contains(action)
            assert all(env.get_observation_space(name).contains(one) for name, one in observations.items())
            observations, rewards, terminations, truncations, infos = env.step({agent: action})
            episode.add_env_step(
                observations=observations,
                actions={agent: action},
                rewards=rewards,
                terminateds=terminations,
                truncateds=truncations,
                infos=infos,
                extra_model_outputs={},
            )
        assert episode.is_done
        agents = {act["agent"] for act in acts}
        assert set(episode.agent_episodes) == agents
        for agent in agents:
            ours = [act for act in acts if act["agent"] == agent]
            theirs = episode.agent_episodes[agent]
            assert len(theirs) == len(ours)
            assert theirs.module_id == module_names(spec)[_key(spec, agent)]
            expected = [act.get("own", act["reward"]) for act in ours]
            assert theirs.get_rewards() == pytest.approx(expected)
            for seen, act in zip(theirs.get_observations(), ours, strict=False):
                for name, value in act["observation"].items():
                    assert np.array_equal(seen[name], value)
            has_left = bool(ours[-1]["done"])
            assert theirs.is_terminated == (has_left or episode.is_terminated)
            assert theirs.is_truncated == (episode.is_truncated and not has_left)
    theirs, ours = (env_.report() for env_ in (env.training_env, direct))
    assert [one.reward for one in theirs.summaries] == [one.reward for one in ours.summaries]
    assert len(theirs.summaries) == N_EPISODES


def _key(spec: Spec, agent: str) -> Any:
    return next(key for key in spec.step_keys if agent.startswith(f"{key}/"))


def test_agents_of_one_sub_step_see_their_id() -> None:
    from maze_pl.rllib.multi_agent_env import StructuredMultiAgentEnv

    env = StructuredMultiAgentEnv(training_env(team.make_env))
    observations, _ = env.reset()
    assert env.possible_agents == ["member/0", "member/1", "member/2"]
    assert int(observations["member/0"][AGENT_ID]) == 0
    observations, *_ = env.step({"member/0": 0})
    assert int(observations["member/1"][AGENT_ID]) == 1


@pytest.mark.parametrize("module", [agreement, hierarchy, team])
def test_spaces_can_be_sampled_as_rllib_does_it(module: Any) -> None:
    from maze_pl.rllib.multi_agent_env import StructuredMultiAgentEnv, observation_space_with_id

    env = StructuredMultiAgentEnv(training_env(module.make_env))
    for name in env.possible_agents:
        space = env.get_observation_space(name)
        sample = {part: np.asarray(value) for part, value in space.sample().items()}
        assert space.contains(sample)
    (space, *_) = env.observation_spaces.values()
    assert observation_space_with_id(space, -1)[AGENT_ID].contains(np.array(2**31 - 1))


@pytest.mark.parametrize("make_env", [team.make_env, make_late_team])
def test_an_agent_that_leaves_ends_with_its_environment_step_while_the_others_go_on(make_env: Any) -> None:
    from maze_pl.rllib.multi_agent_env import StructuredMultiAgentEnv

    env = StructuredMultiAgentEnv(training_env(make_env))
    observations, _ = env.reset()
    ended = {}
    for n_acts in range(1, 100):
        (agent,) = observations
        observations, _, terminations, truncations, _ = env.step({agent: 0})
        ended.update({name: n_acts for name, is_over in terminations.items() if is_over})
        if terminations["__all__"] or truncations["__all__"]:
            break
    assert ended[f"member/{team.LEAVER}"] == team.LEAVES_AFTER * team.N_AGENTS
    assert n_acts == team.LEAVES_AFTER * 3 + (team.N_STEPS - team.LEAVES_AFTER) * 2


def test_actions_outside_of_their_box_are_clipped() -> None:
    from maze_pl.rllib.multi_agent_env import StructuredMultiAgentEnv

    env = StructuredMultiAgentEnv(training_env(lambda: GymMazeEnv(BoundedActions())))
    observations, _ = env.reset()
    (agent,) = observations
    for action in drawn_actions(10):
        observations, rewards, *_ = env.step({agent: action})
        assert observations[agent]["observation"].tolist() == clipped(action)
        assert rewards[agent] == pytest.approx(sum(clipped(action)))

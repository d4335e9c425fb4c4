"""PettingZoo environments: turns, rewards and ends as PettingZoo has them, masks, policies, copies, and faults."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from pettingzoo import AECEnv, ParallelEnv, make

from maze_pl.collect.replay.transitions import Transitions
from maze_pl.core.actor_id import ActorID
from maze_pl.core.streams import act_streams
from maze_pl.envs import PettingZooMazeEnv, Wrapper, check_env, make_pettingzoo_env
from maze_pl.envs.contract import EnvContractError
from maze_pl.envs.vector import SequentialVectorEnv
from maze_pl.envs.wrappers import StepSkipWrapper, TimeLimitWrapper
from maze_pl.modules.on_policy.credit import assign_credit
from tests.collect.collectors import collector_of, random_policy
from tests.equality import assert_equal

pytestmark = pytest.mark.filterwarnings("ignore")  # PettingZoo's classic environments warn of themselves


CLASSIC = ["classic/tictactoe-v3", "classic/connect_four-v3", "classic/rps-v2"]


class Runners(ParallelEnv[str, Any, Any]):
    """Agents see the time; `early_1` ends early, the others after four steps; `limit` truncates all."""

    metadata = {"name": "runners"}  # noqa: RUF012

    def __init__(self, limit: int = 99, early_end: int = 2) -> None:
        self.possible_agents = ["late_0", "early_1", "late_2"]
        self.limit = limit
        self.early_end = early_end
        self.render_mode = None

    def observation_space(self, agent: str) -> spaces.Space[Any]:
        return spaces.Box(0.0, 9.0, (1,))

    def action_space(self, agent: str) -> spaces.Space[Any]:
        return spaces.Discrete(2)

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        self.agents, self.time = self.possible_agents[:], 0
        return self._observations(), {agent: {} for agent in self.agents}

    def step(self, actions: dict[str, int]) -> Any:
        self.time += 1
        rewards = {agent: 10.0 * self.possible_agents.index(agent) + actions[agent] for agent in self.agents}
        ends = {agent: self.time == (self.early_end if agent == "early_1" else 4) for agent in self.agents}
        cuts = {agent: self.time == self.limit for agent in self.agents}
        result = self._observations(), rewards, ends, cuts, {agent: {} for agent in self.agents}
        self.agents = [agent for agent in self.agents if not ends[agent] and not cuts[agent]]
        return result

    def _observations(self) -> dict[str, Any]:
        return {agent: np.full(1, self.time, np.float32) for agent in self.agents}


def play(env: Any, seed: int) -> list[tuple[Any, ...]]:
    """Actor, action, whether it was done, time, rewards of a finished round, flags, and who ended in the round."""
    rng = np.random.default_rng(seed)
    observation, _ = env.reset(seed=seed)
    acts: list[tuple[Any, ...]] = []
    over = False
    while not over:
        actor, time = env.actor_id(), env.get_env_time()
        space = env.action_space["action"]
        allowed = observation.get("action_mask", np.ones(int(space.n)))
        action = int(rng.choice(np.flatnonzero(allowed)))
        observation, _, terminated, truncated, _ = env.step({"action": action})
        over = terminated or truncated
        is_round = env.get_env_time() > time
        rewards = env.get_actor_rewards().tolist() if is_round else None
        done = list(env.get_done_actors()) if is_round else None
        acts.append((actor, action, env.is_actor_done(), env.get_env_time(), rewards, terminated, truncated, done))
    return acts


def test_agents_of_a_parallel_environment_act_in_turn_and_one_that_ends_early_leaves() -> None:
    env = PettingZooMazeEnv(Runners())
    assert env.agent_counts_dict == {"late": 2, "early": 1}
    acts = play(env, 1)
    late, other, early = ActorID("late", 0), ActorID("late", 1), ActorID("early", 0)
    assert [act[0] for act in acts] == [late, early, other] * 2 + [late, other] * 2
    assert [act[3] for act in acts] == [0, 0, 1, 1, 1, 2, 2, 3, 3, 4]
    assert [act[2] for act in acts] == [False] * 9 + [True]
    assert [act[7] for act in acts if act[7] is not None] == [[], [early], [], [late]], "of rounds"
    chosen = [act[1] for act in acts]
    assert acts[2][4] == [chosen[0], 10 + chosen[1], 20 + chosen[2]]
    assert acts[5][4] == [chosen[3], 10 + chosen[4], 20 + chosen[5]]
    assert acts[7][4] == [chosen[6], 20 + chosen[7]]
    assert acts[9][4] == [chosen[8], 20 + chosen[9]]
    assert [act[5:7] for act in acts] == [(False, False)] * 9 + [(True, False)]


def test_an_episode_that_its_environment_truncates_is_truncated() -> None:
    acts = play(PettingZooMazeEnv(Runners(limit=3)), 1)
    assert acts[-1][3:] == (3, acts[-1][4], False, True, [])
    assert not any(act[5] or act[6] for act in acts[:-1])


class Returning(Runners):
    """`early_1` comes back after the third step."""

    def step(self, actions: dict[str, int]) -> Any:
        seen, rewards, ends, cuts, infos = super().step(actions)
        if self.time == 3:
            self.agents = self.possible_agents[:]
            seen["early_1"], rewards["early_1"], infos["early_1"] = seen["late_0"], 0.0, {}
            ends["early_1"] = cuts["early_1"] = False
        return seen, rewards, ends, cuts, infos


def test_an_agent_that_comes_back_after_it_has_terminated_is_refused() -> None:
    message = r"agent 'early_1' acts again after it has terminated, but it has reported its last act \(is_actor_done\)"
    with pytest.raises(EnvContractError, match=message):
        play(PettingZooMazeEnv(Returning()), 1)


class OneIsCut(Runners):
    """`early_1` is truncated after two steps, not terminated."""

    def step(self, actions: dict[str, int]) -> Any:
        seen, rewards, ends, _, infos = super().step(actions)
        cuts = {agent: ends[agent] and agent == "early_1" for agent in ends}
        return seen, rewards, {agent: ends[agent] and not cuts[agent] for agent in ends}, cuts, infos


def test_an_agent_that_is_truncated_alone_has_no_last_turn_and_is_not_done() -> None:
    acts = play(PettingZooMazeEnv(OneIsCut()), 1)
    late, other, early = ActorID("late", 0), ActorID("late", 1), ActorID("early", 0)
    assert [act[0] for act in acts] == [late, early, other] * 2 + [late, other] * 2
    assert [act[2] for act in acts] == [False] * 9 + [True]
    assert not any(early in (act[7] or ()) for act in acts)
    chosen = [act[1] for act in acts]
    assert acts[5][4] == [chosen[3], 10 + chosen[4], 20 + chosen[5]], "its latest act keeps its rewards"
    assert acts[9][4] == [chosen[8], 20 + chosen[9]]
    assert [act[5:7] for act in acts] == [(False, False)] * 9 + [(True, False)], "it does not truncate the episode"


class EndsAtTheLimit(Runners):
    """All agents are truncated after three steps, in which some of them end; they observe their places."""

    def __init__(self, agents: list[str], enders: list[str]) -> None:
        super().__init__(limit=3)
        self.possible_agents = agents
        self.enders = enders

    def step(self, actions: dict[str, int]) -> Any:
        acted = self.agents
        seen, rewards, _, cuts, infos = super().step(actions)
        self.agents = [] if self.time == self.limit else acted
        ends = {agent: self.time == self.limit and agent in self.enders for agent in acted}
        return seen, rewards, ends, cuts, infos

    def _observations(self) -> dict[str, Any]:
        return {agent: np.full(1, self.possible_agents.index(agent), np.float32) for agent in self.agents}


def actor_of(env: PettingZooMazeEnv, agent: str) -> ActorID:
    roles = env.core_env._roles
    return ActorID(roles.step_keys[agent], roles.agent_ids[agent])


@pytest.mark.parametrize("agents", [["wolf", "sheep"], ["sheep", "wolf"], ["c_1", "a_0", "b_10", "b_9"]])
@pytest.mark.parametrize("enders", [[], [0], [-1], [0, 1], [1], "all"])
def test_an_episode_is_truncated_also_if_some_agents_end_at_the_limit(agents: list[str], enders: list[int]) -> None:
    enders = list(range(len(agents))) if enders == "all" else enders
    ending = [agents[place] for place in enders]
    env = PettingZooMazeEnv(EndsAtTheLimit(agents, ending))
    acts = play(env, 1)
    is_terminated = len(set(ending)) == len(agents)
    assert [act[5:7] for act in acts] == [(False, False)] * (len(acts) - 1) + [(is_terminated, not is_terminated)]
    times = [time for time in (0, 1, 2) for _ in agents]
    assert [act[3] for act in acts] == [*times[1:], 3], "there are no last turns, since all have acted in the round"
    is_done = agents[-1] in ending
    assert [act[2] for act in acts] == [False] * (len(acts) - 1) + [is_done]
    assert acts[-1][7] == [actor_of(env, agent) for agent in agents[:-1] if agent in ending]
    chosen = [act[1] for act in acts[-len(agents) :]]
    assert acts[-1][4] == [10 * place + choice for place, choice in enumerate(chosen)]
    state = env.core_env.get_maze_state()
    assert state["observation"][0] == agents.index(state["agent"])
    assert is_terminated or state["agent"] not in ending, (
        "the value of what follows is that of an agent that has a future"
    )


def make_limited(wrapper: Any = None, **options: Any) -> Any:
    env = PettingZooMazeEnv(EndsAtTheLimit(["wolf", "sheep"], ["wolf"]))
    return env if wrapper is None else wrapper.wrap(env, **options)


@pytest.mark.parametrize("make", [make_limited, partial(make_limited, TimeLimitWrapper, max_episode_steps=3)])
def test_the_last_reward_of_an_agent_that_ends_at_the_limit_is_learned_from(make: Any) -> None:
    collector = collector_of([make], 3)
    rollout = collector.collect(random_policy(collector))
    assert rollout.rows.truncated.ravel().tolist() == [False, False, True]
    assert rollout.rows.env_steps.ravel().tolist() == [1, 1, 1]
    streams = act_streams(rollout, 0.5)
    wolf, sheep = streams["wolf"], streams["sheep"]
    assert wolf.open.ravel().tolist() == [False] * 3
    assert wolf.terminated.ravel().tolist() == [False, False, True]
    assert wolf.discount.ravel().tolist() == [0.5, 0.5, 0.0]
    assert wolf.reward.ravel().tolist() == rollout.segments["wolf"].action["action"].ravel().tolist()
    assert sheep.final.ravel().tolist() == [-1, -1, 0]
    assert sheep.discount.ravel().tolist() == [0.5, 0.5, 0.5]


@pytest.mark.parametrize("n_rollout_steps", [1, 2])
@pytest.mark.parametrize("limit", [2, 99])
def test_an_agent_that_ends_with_a_round_has_ended_for_time_limits_and_the_end_of_a_rollout(
    n_rollout_steps: int, limit: int
) -> None:
    """`early_1` ends in the second round, after which the episode or the rollout is cut."""
    make = partial(TimeLimitWrapper.wrap, PettingZooMazeEnv(Runners()), max_episode_steps=limit)
    collector = collector_of([make], n_rollout_steps)
    policy = random_policy(collector)
    rollouts = [collector.collect(policy) for _ in range(2 // n_rollout_steps)]
    early, late = (act_streams(rollouts[-1], 0.5)[key] for key in ("early", "late"))
    assert early.discount.ravel().tolist()[-1] == 0.0
    assert not early.open.any() and not (early.final.ravel()[-2:] >= 0).any()
    assert rollouts[-1].finals["late"].observation["observation"].ravel().tolist() == [2.0], "of an agent that goes on"
    assert late.final[:, 0].tolist()[-1] == 0
    assert bool(rollouts[-1].rows.truncated[-1, 0]) == (limit == 2)


class CutsWithinARound(Wrapper):
    """Truncates the episode after the first act of the third round."""

    def step(self, action: Any) -> Any:
        time = self.env.get_env_time()
        observation, reward, terminated, truncated, info = self.env.step(action)
        return observation, reward, terminated, truncated or time == 2, info


@pytest.mark.parametrize("n_steps", [0, 1, 2])
@pytest.mark.parametrize("team_reward", [False, True])
def test_ends_and_rewards_of_earlier_rounds_are_not_told_again_where_a_wrapper_cuts_a_round(
    team_reward: bool, n_steps: int
) -> None:
    """`early_1` ends in the second round, which is that of the first decision if every other one is skipped."""
    env: Any = PettingZooMazeEnv(Runners(), None, team_reward)
    if n_steps:
        env = StepSkipWrapper.wrap(env, n_steps=n_steps)
    n_rows = 2 if n_steps == 2 else 3
    collector = collector_of([lambda: CutsWithinARound.wrap(env)], n_rows)
    rollout = collector.collect(random_policy(collector))
    assert rollout.rows.truncated.ravel().tolist() == [*[False] * (n_rows - 1), True]
    assert rollout.segments["early"].actor_done.ravel().tolist() == [*[False] * (n_rows - 2), True, False]
    paid = rollout.segments["late"].actor_reward
    assert paid is None if team_reward else paid[-1].tolist() == [0.0, 0.0]


def test_an_agent_that_ends_in_a_decided_step_is_done_while_others_are_skipped() -> None:
    acts = play(make_limited(StepSkipWrapper, n_steps=2), 1)
    wolf, sheep = ActorID("wolf", 0), ActorID("sheep", 0)
    assert [act[0] for act in acts] == [wolf, sheep, wolf, sheep]
    assert [act[3] for act in acts] == [0, 2, 2, 3]
    chosen = [act[1] for act in acts]
    assert [acts[place][4] for place in (1, 3)] == [
        [2 * chosen[0], 2 * (10 + chosen[1])],
        [chosen[2], 10 + chosen[3]],
    ]
    assert acts[-1][5:] == (False, True, [wolf])


@pytest.mark.parametrize("early_end", [2, 3], ids=["in a skipped step", "in a decided step"])
def test_others_repeat_their_acts_after_the_end_of_an_agent(early_end: int) -> None:
    env = StepSkipWrapper.wrap(PettingZooMazeEnv(Runners(early_end=early_end)), n_steps=2)
    acts = play(env, 1)
    late, other, early = ActorID("late", 0), ActorID("late", 1), ActorID("early", 0)
    first = [late, early, other]
    assert [act[0] for act in acts] == (first * 2 if early_end == 3 else [*first, late, other])
    chosen = [act[1] for act in acts]
    assert acts[2][4] == [2 * chosen[0], 2 * (10 + chosen[1]), 2 * (20 + chosen[2])]
    if early_end == 2:
        assert acts[2][7] == [early]
        return
    assert acts[2][7] == []
    assert acts[-1][4] == [2 * chosen[3], 10 + chosen[4], 2 * (20 + chosen[5])]
    assert early in acts[-1][7]


class EndsAbruptly(AECEnv[str, Any, Any]):
    """The second act of `first_0` terminates `third_2`, which has not acted in this round, and truncates the others."""

    metadata = {"name": "abrupt"}  # noqa: RUF012
    render_mode = None

    def __init__(self) -> None:
        super().__init__()
        self.possible_agents = ["first_0", "second_1", "third_2"]

    def observation_space(self, agent: str) -> spaces.Space[Any]:
        return spaces.Box(0.0, 9.0, (1,))

    def action_space(self, agent: str) -> spaces.Space[Any]:
        return spaces.Discrete(2)

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> None:
        self.agents = self.possible_agents[:]
        self.agent_selection = self.agents[0]
        self.n_acts = 0
        self.rewards = dict.fromkeys(self.agents, 0.0)
        self._cumulative_rewards = dict.fromkeys(self.agents, 0.0)
        self.terminations = dict.fromkeys(self.agents, False)
        self.truncations = dict.fromkeys(self.agents, False)
        self.infos = {agent: {} for agent in self.agents}

    def observe(self, agent: str) -> Any:
        return np.full(1, self.possible_agents.index(agent), np.float32)

    def step(self, action: Any) -> None:
        if self.terminations[self.agent_selection] or self.truncations[self.agent_selection]:
            self._was_dead_step(action)
            return
        self.n_acts += 1
        self.agent_selection = self.agents[self.n_acts % 3]
        if self.n_acts == 4:
            self.terminations["third_2"] = True
            self.truncations = {agent: agent != "third_2" for agent in self.agents}
            self.rewards["third_2"] = 1.0
            self._deads_step_first()


class WritesInPlace(EndsAbruptly):
    """Writes all observations to one array."""

    def __init__(self) -> None:
        super().__init__()
        self.observed = np.zeros(1, np.float32)

    def observe(self, agent: str) -> Any:
        self.observed[0] = self.possible_agents.index(agent)
        return self.observed


@pytest.mark.parametrize("kind", [EndsAbruptly, WritesInPlace])
def test_the_final_state_is_that_of_a_truncated_agent_also_if_another_one_takes_its_last_turn_later(kind: Any) -> None:
    env = PettingZooMazeEnv(kind())
    acts = play(env, 1)
    first, second, third = (ActorID(name, 0) for name in ("first", "second", "third"))
    assert [act[0] for act in acts] == [first, second, third, first, third]
    assert [act[2:7] for act in acts[3:]] == [(False, 1, None, False, False), (True, 2, [0.0, 1.0], False, True)]
    state = env.core_env.get_maze_state()
    assert state["agent"] in ("first_0", "second_1")
    assert state["observation"][0] == env.core_env.env.possible_agents.index(state["agent"])


class RemovesAgents(EndsAbruptly):
    """Truncates agents, of which some may end, and removes all of them in the same act."""

    def __init__(self, ending: list[str]) -> None:
        super().__init__()
        self.ending = ending

    def step(self, action: Any) -> None:
        self.n_acts += 1
        self.agent_selection = self.agents[self.n_acts % 3]
        if self.n_acts == 4:
            self.terminations = {agent: agent in self.ending for agent in self.agents}
            self.truncations = {agent: agent not in self.ending for agent in self.agents}
            self.agents = []


@pytest.mark.parametrize("ending", [[], ["third_2"], ["first_0"], ["first_0", "second_1", "third_2"]])
def test_an_episode_is_truncated_also_if_its_agents_are_removed_with_it(ending: list[str]) -> None:
    env = PettingZooMazeEnv(RemovesAgents(ending))
    acts = play(env, 1)
    is_terminated = len(ending) == 3
    assert [act[5:7] for act in acts] == [(False, False)] * 3 + [(is_terminated, not is_terminated)]
    assert [act[2] for act in acts] == [False] * 3 + ["first_0" in ending]
    state = env.core_env.get_maze_state()
    assert state["agent"] == ("second_1" if ending == ["first_0"] else "first_0"), "truncated, if any agent is"
    assert state["observation"][0] == env.core_env.env.possible_agents.index(state["agent"])


class ScoredAtALimit(EndsAbruptly):
    """The fourth act truncates all agents, and pays the one that acts and the last one."""

    def step(self, action: Any) -> None:
        super().step(action)
        if self.n_acts == 4 and len(self.agents) == 3:
            self.terminations["third_2"] = False
            self.truncations["third_2"] = True
            self.rewards["first_0"] = -1.0


class ForgetsRemovedAgents(RemovesAgents):
    """Observes present agents only, and the one that acts last."""

    def observe(self, agent: str) -> Any:
        if agent not in (*self.agents, "first_0"):
            raise KeyError(agent)
        return super().observe(agent)


def test_the_final_state_is_that_of_the_acting_agent_if_removed_ones_cannot_be_observed() -> None:
    env = PettingZooMazeEnv(ForgetsRemovedAgents(["first_0"]))
    assert play(env, 1)[-1][5:7] == (False, True)
    assert env.core_env.get_maze_state()["agent"] == "first_0"


def test_truncated_agents_are_credited_up_to_their_latest_round() -> None:
    acts = play(PettingZooMazeEnv(ScoredAtALimit()), 1)
    assert [act[4] for act in acts] == [None, None, [0.0, 0.0, 0.0], [-1.0]]
    assert acts[-1][5:7] == (False, True)


@pytest.mark.parametrize("name", CLASSIC)
def test_each_agent_receives_what_pettingzoo_pays_it(name: str) -> None:
    env = make_pettingzoo_env(name)
    agents = env.core_env.env.possible_agents
    for seed in range(20):
        acts = play(env, seed)
        paid = dict.fromkeys(agents, 0.0)
        of_round: list[str] = []
        for actor, _, _, _, rewards, *_ in acts:
            of_round.append(agents[actor.agent_id])
            for agent, reward in zip(of_round, rewards or [], strict=False):
                paid[agent] += reward
            if rewards is not None:
                assert len(rewards) == len(of_round)
                of_round = []
        raw = make("aec", name)
        raw.reset(seed=seed)
        expected = dict.fromkeys(agents, 0.0)
        actions = iter([act[1] for act in acts])
        for agent in raw.agent_iter():
            _, reward, terminated, truncated, _ = raw.last()
            expected[agent] += reward
            raw.step(None if terminated or truncated else next(actions))
        assert paid == expected


def test_masks_forbid_in_every_act_but_the_last_turn_which_has_no_effect() -> None:
    env = make_pettingzoo_env(CLASSIC[0])
    assert env.action_masks_dict == {"player": {"action": "action_mask"}}
    for seed in range(10):
        acts = play(env, seed)  # ends with an illegal move, and a warning, if a mask were wrong
        winners = [act for act in acts if act[4] is not None and 1.0 in act[4]]
        assert len(winners) <= 1
        assert all(act[2] for act in acts[-1:])


class MasksInInfos(Runners):
    """Forbids an action in infos."""

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        observations, infos = super().reset(seed, options)
        return observations, {agent: {"action_mask": np.array([1, 0], np.int8)} for agent in infos}


def test_masks_in_infos_are_not_read_with_one_warning(recwarn: pytest.WarningsRecorder) -> None:
    env = PettingZooMazeEnv(MasksInInfos())
    for _ in range(2):
        env.reset(seed=1)
    found = [str(warning.message) for warning in recwarn if "in infos" in str(warning.message)]
    remedy = "where it is not read; add it to the observations of this agent"
    assert found == [f"MasksInInfos has the action_mask of 'late_0' in infos, {remedy}"]


class MasksInLaterInfos(Runners):
    """Forbids an action in the infos of steps, but not of `reset`."""

    def step(self, actions: dict[str, int]) -> Any:
        *result, infos = super().step(actions)
        return *result, {agent: {"action_mask": np.array([1, 0], np.int8)} for agent in infos}


def test_masks_in_infos_of_steps_are_found_too(recwarn: pytest.WarningsRecorder) -> None:
    env = PettingZooMazeEnv(MasksInLaterInfos())
    env.reset(seed=1)
    for _ in range(5):
        env.step({"action": 0})
    found = [str(warning.message) for warning in recwarn if "in infos" in str(warning.message)]
    assert len(found) == 1 and found[0].startswith("MasksInLaterInfos has the action_mask of 'late_0' in infos")


class MasksOfSeveralActions(MasksInInfos):
    """Has actions of two parts."""

    def action_space(self, agent: str) -> spaces.Space[Any]:
        return spaces.MultiDiscrete([2, 2])


def test_masks_in_infos_of_other_actions_than_discrete_ones_have_no_remedy(recwarn: pytest.WarningsRecorder) -> None:
    PettingZooMazeEnv(MasksOfSeveralActions()).reset(seed=1)
    found = [str(warning.message) for warning in recwarn if "in infos" in str(warning.message)]
    remedy = "masks are for Discrete actions only, and those of this agent are MultiDiscrete([2 2])"
    assert found == [f"MasksOfSeveralActions has the action_mask of 'late_0' in infos, where it is not read; {remedy}"]


def test_policies_are_assigned_by_patterns() -> None:
    assert make_pettingzoo_env(CLASSIC[0], {"player_2": "second", "*": 0}).agent_counts_dict == {
        0: 1,
        "second": 1,
    }
    with pytest.raises(ValueError, match=r"no policy for 'player_2'; the agents are \['player_1', 'player_2'\]"):
        make_pettingzoo_env(CLASSIC[0], {"player_1": 0})
    with pytest.raises(ValueError, match=r"policies has \['goalkeeper'\], but there are only the agents"):
        make_pettingzoo_env(CLASSIC[0], {"goalkeeper": 0, "*": 1})


def test_a_team_has_one_reward() -> None:
    env = PettingZooMazeEnv(Runners(), team_reward=True)
    env.reset(seed=1)
    rewards = [env.step({"action": 1})[1] for _ in range(3)]
    assert rewards == [0.0, 0.0, 33.0] and env.get_actor_rewards() is None


def test_a_copy_continues_like_the_original() -> None:
    env, other = (make_pettingzoo_env(CLASSIC[1]) for _ in range(2))
    env.reset(seed=1)
    for column in (3, 3, 4):
        env.step({"action": column})
    other.clone_from(env)
    for column in (2, 4, 4):
        one, two = env.step({"action": column}), other.step({"action": column})
        assert np.array_equal(one[0]["observation"], two[0]["observation"]) and one[1:4] == two[1:4]


def test_what_is_no_environment_is_refused_in_one_line() -> None:
    with pytest.raises(TypeError, match=r"expected a PettingZoo environment \(AECEnv or ParallelEnv\), got object"):
        PettingZooMazeEnv(object())
    with pytest.raises(ValueError, match=r"PettingZoo has no environment 'classic/tictactoe-v0': .* v3"):
        make_pettingzoo_env("classic/tictactoe-v0")
    with pytest.raises(ImportError, match=r"'classic/hanabi-v5' cannot be imported .* pip install"):
        make_pettingzoo_env("classic/hanabi-v5")
    with pytest.raises(ValueError, match=r"'json' does not name a PettingZoo environment: expected a registered one"):
        make_pettingzoo_env("json")
    with pytest.raises(ValueError, match=r"json.tool has no function env"):
        make_pettingzoo_env("json.tool")


class Mortal(ParallelEnv[str, Any, Any]):
    """All observations are equal; action 1 pays 1 and ends the agent, and action 0 pays 0.9."""

    metadata = {"name": "mortal"}  # noqa: RUF012
    render_mode = None
    possible_agents = ["first", "clock", "second"]  # noqa: RUF012

    def observation_space(self, agent: str) -> spaces.Space[Any]:
        return spaces.Box(-1.0, 1.0, (1,))

    def action_space(self, agent: str) -> spaces.Space[Any]:
        return spaces.Discrete(2)

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        self.agents, self.time = self.possible_agents[:], 0
        return {agent: np.zeros(1, np.float32) for agent in self.agents}, {agent: {} for agent in self.agents}

    def step(self, actions: dict[str, int]) -> Any:
        self.time += 1
        seen = {agent: np.zeros(1, np.float32) for agent in self.agents}
        dies = {agent: actions[agent] == 1 and agent != "clock" for agent in self.agents}
        rewards = {agent: 1.0 if dies[agent] else 0.9 for agent in self.agents}
        ends = {agent: dies[agent] or self.time == 8 for agent in self.agents}
        cuts = dict.fromkeys(self.agents, False)
        self.agents = [agent for agent in self.agents if not ends[agent]]
        return seen, rewards, ends, cuts, {agent: {} for agent in cuts}


VALUE = 5.0
GAMMA = 0.9
LAMBDA = 0.7


def lives(segment: Any, env: int) -> list[list[int]]:
    """The actions of an agent with one slot in each of its lives in a rollout."""
    rows = np.flatnonzero(segment.active[:, env].numpy())
    starts = [place for place, row in enumerate(rows) if place and segment.is_first[row, env]]
    actions = segment.action["action"][:, env].numpy()
    return [actions[part].tolist() for part in np.split(rows, starts)]


@pytest.mark.parametrize("agent", ["first", "second"])
def test_the_act_that_ends_an_agent_is_terminal(agent: str) -> None:
    """Whatever its place among the agents, it neither bootstraps nor is followed by another act."""
    collector = collector_of([lambda: PettingZooMazeEnv(Mortal())] * 2, 40)
    rollout = collector.collect(random_policy(collector))
    values = {key: torch.full(segment.active.shape, VALUE) for key, segment in rollout.segments.items()}
    final_values = {key: torch.full(final.row.shape, VALUE) for key, final in rollout.finals.items()}
    credit = assign_credit("step", rollout, values, final_values, GAMMA, LAMBDA)[agent]
    transitions = Transitions(2, GAMMA, {key: 1 for key in rollout.segments}).of(rollout)[agent]
    died = transitions["action"]["action"] == 1
    assert died.any() and (transitions["discount"][died] == 0.0).all() and (transitions["reward"][died] == 1.0).all()
    segment = rollout.segments[agent]
    n_deaths = 0
    for env in range(2):
        advantages = credit.advantage[:, env][segment.active[:, env]].tolist()
        for actions in lives(segment, env)[:-1]:  # the last one may go on
            of_life, advantages = advantages[: len(actions)], advantages[len(actions) :]
            expected = 0.0
            for place in reversed(range(len(actions))):
                is_last = place == len(actions) - 1
                assert is_last or actions[place] == 0
                reward = 1.0 if actions[place] else 0.9
                delta = reward - VALUE if is_last else reward + GAMMA * VALUE - VALUE
                expected = delta + (0.0 if is_last else GAMMA * LAMBDA * expected)
                assert of_life[place] == pytest.approx(expected, abs=1e-5)
            n_deaths += actions[-1]
    assert n_deaths > 5


class Judged(EndsAbruptly):
    """In its turn, the judge pays the worker for the latest act of the worker."""

    def __init__(self, first: str = "judge") -> None:
        super().__init__()
        self.possible_agents = [first, "worker" if first == "judge" else "judge"]

    def step(self, action: Any) -> None:
        if self.terminations[self.agent_selection]:
            self._was_dead_step(action)
            return
        self.rewards = {"worker": float(self.agent_selection == "judge" and self.n_acts > 0), "judge": 0.0}
        self.n_acts += 1
        self.agent_selection = self.agents[self.n_acts % 2]
        if self.n_acts == 8:
            self.terminations = dict.fromkeys(self.agents, True)


def test_rewards_before_the_turn_of_an_agent_are_told_once_as_they_credit_its_next_act() -> None:
    env = PettingZooMazeEnv(Judged())
    message = r"Judged pays agent 'worker' before its turn in a round, which credits its next act: .* gae_lambda only"
    with pytest.warns(UserWarning, match=message) as told:
        acts = play(env, 1)
        play(env, 2)
    assert len(told) == 1
    assert [act[4] for act in acts if act[4]] == [[0.0, 0.0], *[[0.0, 1.0]] * 3]


@pytest.mark.parametrize("make", [Runners, partial(Judged, "worker"), lambda: make("aec", CLASSIC[0])])
@pytest.mark.filterwarnings("error:.*before its turn in a round")
def test_other_rewards_are_not_told_of(make: Any) -> None:
    play(PettingZooMazeEnv(make()), 1)


@pytest.mark.filterwarnings("error:.*before its turn in a round")
def test_a_team_may_be_paid_at_any_time() -> None:
    env = PettingZooMazeEnv(Judged(), team_reward=True)
    env.reset(seed=1)
    rewards = [env.step({"action": 0})[1] for _ in range(8)]
    assert rewards == [0.0, 0.0, 1.0, 0.0, 1.0, 0.0, 1.0, 0.0]


class Numbered(Runners):
    """Has numbers as agents."""

    def __init__(self) -> None:
        super().__init__()
        self.possible_agents = [0, 1]  # type: ignore[list-item]


def test_agents_need_not_have_names() -> None:
    env = PettingZooMazeEnv(Numbered())
    assert env.agent_counts_dict == {"0": 1, "1": 1}
    acts = play(env, 1)
    assert [act[0] for act in acts] == [ActorID("0", 0), ActorID("1", 0)] * 4
    assert env.core_env.get_maze_state()["agent"] in (0, 1)
    shared = PettingZooMazeEnv(Numbered(), policies={0: "one", "*": "other"})
    assert shared.agent_counts_dict == {"one": 1, "other": 1}
    with pytest.raises(ValueError, match=r"policies has \[2\], but there are only the agents \[0, 1\]"):
        PettingZooMazeEnv(Numbered(), policies={0: "one", 2: "other"})
    collector = collector_of([lambda: PettingZooMazeEnv(Numbered())], 3)
    other = collector_of([lambda: PettingZooMazeEnv(Numbered())], 3)
    collector.collect(random_policy(collector))
    other.load_state_dict(collector.state_dict())
    one, two = (each.collect(random_policy(each)) for each in (collector, other))
    assert_equal(one.segments, two.segments)
    vector = collector.vector
    assert isinstance(vector, SequentialVectorEnv) and vector.episode_state(0)
    assert check_env(lambda: PettingZooMazeEnv(Numbered()), n_steps=50).ok


@pytest.mark.slow
@pytest.mark.parametrize("name", CLASSIC)
def test_the_doctor_and_pettingzoo_s_own_test_find_nothing(name: str) -> None:
    from pettingzoo.test import api_test  # warns when it is imported

    api_test(make("aec", name), num_cycles=50)
    report = check_env(partial(make_pettingzoo_env, name))
    assert "errors: 0, warnings: 0" in str(report), str(report)

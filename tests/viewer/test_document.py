"""Episode documents: their arrays are those of the episode, on whatever way it came."""

from __future__ import annotations

import base64
import io
import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from PIL import Image

from maze_pl.config.search_path import ConfigurationError
from maze_pl.core.policy import PolicyBatch, PolicyStep
from maze_pl.core.spec import Spec
from maze_pl.envs import CartPoleArrayEnv, GymMazeEnv
from maze_pl.envs.arrays import ArrayMazeEnv
from maze_pl.envs.cutting_2d import masked_struct_env_factory
from maze_pl.envs.wrappers import RewardScalingWrapper, StepSkipWrapper
from maze_pl.modules import PPO
from maze_pl.runs.rollout import Trajectory, rollout
from maze_pl.viewer.arrays import decoded
from maze_pl.viewer.document import episode_document
from maze_pl.viewer.episode_view import view
from maze_pl.viewer.playing import episode_of
from tests.envs.line import make_line_env
from tests.envs.relay import make_relay_env

N_STEPS = 12


def cutting() -> Any:
    return masked_struct_env_factory(20, (10, 8), (3, 2))


@pytest.fixture(scope="module")
def agent() -> PPO:
    return PPO(spec=Spec.of(cutting()))


@pytest.fixture(scope="module")
def trajectory(agent: PPO) -> Trajectory:
    return rollout(cutting, agent, seed=3, record=["spaces", "states", "events"], max_steps=N_STEPS)[0]


@pytest.fixture(scope="module")
def document(agent: PPO, trajectory: Trajectory) -> dict[str, Any]:
    env = cutting()
    parts = {"renderer": env.get_renderer(), "kpi_calculator": env.get_kpi_calculator()}
    return episode_document([episode_of(trajectory, "trained", "PPO", agent, parts=parts)], title="cutting")


@pytest.fixture(scope="module")
def episode(document: dict[str, Any]) -> dict[str, Any]:
    return document["episodes"][0]


def test_document_is_json_that_names_format_and_version(document: dict[str, Any]) -> None:
    assert (document["format"], document["version"], document["title"]) == ("maze_pl episodes", 1, "cutting")
    assert json.loads(json.dumps(document, allow_nan=False)) == document


def test_acts_are_those_of_the_record(episode: dict[str, Any], trajectory: Trajectory) -> None:
    acts = episode["acts"]
    assert acts["n"] == 2 * N_STEPS == len(decoded(acts["step_key"]))
    np.testing.assert_array_equal(decoded(acts["env_step"]), np.repeat(np.arange(N_STEPS), 2))
    np.testing.assert_array_equal(decoded(acts["step_key"]), [0, 1] * N_STEPS)
    np.testing.assert_array_equal(decoded(acts["reward"]), trajectory.spaces.actor_reward)
    assert episode["step_keys"] == ["0", "1"]
    assert (episode["seed"], episode["end"], episode["n_env_steps"]) == (trajectory.seed, "truncated", N_STEPS)


def test_rewards_of_steps_sum_up_to_the_return(episode: dict[str, Any], trajectory: Trajectory) -> None:
    assert decoded(episode["env_steps"]["reward"]).sum() == episode["return"] == trajectory.summary.reward


def test_masked_options_are_marked_and_have_no_probability(episode: dict[str, Any], trajectory: Trajectory) -> None:
    head = episode["heads"]["0"]["piece_idx"]
    allowed = decoded(head["allowed"])
    probabilities = decoded(head["probabilities"])
    np.testing.assert_array_equal(allowed, trajectory.spaces.observation[0]["inventory_mask"])
    np.testing.assert_allclose(probabilities.sum(axis=1), 1.0, rtol=1e-5)
    assert probabilities.shape == (N_STEPS, 20)
    assert not probabilities[allowed == 0].any()
    taken = decoded(head["action"])
    np.testing.assert_array_equal(taken[:, 0], trajectory.spaces.action[0]["piece_idx"])
    np.testing.assert_array_equal(decoded(head["most_likely"])[:, 0], probabilities.argmax(axis=1))
    assert (head["kind"], head["sizes"], head["family"]) == ("categorical", [20], "Categorical")


def test_observations_have_kinds(episode: dict[str, Any], trajectory: Trajectory) -> None:
    kinds = {name: content["kind"] for name, content in episode["observations"]["0"].items()}
    assert kinds.pop("inventory_size") == "vector"
    assert kinds == {"inventory": "matrix", "inventory_mask": "mask", "ordered_piece": "vector"}
    values = decoded(episode["observations"]["0"]["inventory"]["values"])
    np.testing.assert_array_equal(values, trajectory.spaces.observation[0]["inventory"])


def test_events_are_in_their_steps(episode: dict[str, Any], trajectory: Trajectory) -> None:
    events = episode["events"]
    names = [events["names"][name] for name in decoded(events["name"])]
    assert "BaseEnvEvents.reward" not in names
    cuts = [place for place, name in enumerate(names) if name == "CuttingEvents.valid_cut"]
    assert [int(decoded(events["env_step"])[place]) for place in cuts] == list(range(N_STEPS))
    assert events["attributes"][cuts[0]]["current_demand"] in ([3, 2], "(3, 2)")


def test_kpis_so_far_end_with_those_of_the_episode(episode: dict[str, Any]) -> None:
    assert episode["kpis"]
    for name, values in episode["running_kpis"].items():
        assert decoded(values).shape == (N_STEPS,)
        assert decoded(values)[-1] == pytest.approx(episode["kpis"][name])
    assert episode["running_kpis"].keys() == episode["kpis"].keys()


def test_renderer_draws_each_step_and_the_end(episode: dict[str, Any]) -> None:
    pictures = episode["pictures"]
    assert (pictures["source"], pictures["per"]) == ("renderer", "env_step")
    index = decoded(pictures["index"])
    assert index.shape == (N_STEPS + 1,)
    assert len(set(index.tolist())) == len(pictures["images"])
    content = base64.b64decode(pictures["images"][0].removeprefix("data:image/png;base64,"))
    image = Image.open(io.BytesIO(content))
    assert image.format == "PNG"
    assert image.size == (640, 288)


def test_shared_critic_has_values_at_the_first_act_of_each_step(episode: dict[str, Any]) -> None:
    value = decoded(episode["acts"]["value"])
    np.testing.assert_array_equal(np.isfinite(value), [True, False] * N_STEPS)


@pytest.fixture(scope="module")
def scaled() -> Trajectory:
    wrappers = [lambda env: RewardScalingWrapper(env, 0.1)]
    return rollout(cutting, "random", record=["spaces", "events"], wrappers=wrappers, max_steps=4)[0]


def test_rewards_after_wrappers_are_told_from_those_of_the_environment(scaled: Trajectory) -> None:
    parts = {"reward_wrappers": ["RewardScalingWrapper"]}
    for given, unit in ((parts, "after RewardScalingWrapper"), ({}, "after wrappers that change rewards")):
        content = episode_document([episode_of(scaled, "", "", parts=given)])["episodes"][0]
        assert (content["acts"]["unit"], content["env_steps"]["unit"]) == (unit, None)
        assert decoded(content["env_steps"]["reward"]).sum() == content["return"]
        assert content["events"]["is_recorded"]
        without_events = replace(episode_of(scaled, "", "", parts=given), events=[])
        content = episode_document([without_events])["episodes"][0]
        assert content["acts"]["unit"] == content["env_steps"]["unit"] == unit
        shown = decoded(content["env_steps"]["reward"]).sum()
        assert shown == pytest.approx(0.1 * content["return"]) and shown != 0.0
        assert content["return_unit"] is None and not content["events"]["is_recorded"]
        content = episode_document([replace(without_events, total_reward=None)])["episodes"][0]
        assert content["return_unit"] == content["env_steps"]["unit"] == (unit if given else None)
        assert content["return"] == pytest.approx(shown)


def test_rewards_of_the_environment_have_no_other_unit(episode: dict[str, Any]) -> None:
    assert episode["acts"]["unit"] is episode["env_steps"]["unit"] is None


def test_acts_have_no_rewards_unless_these_are_attributed() -> None:
    (played,) = rollout(make_line_env, "random", max_steps=3)
    content = episode_document([episode_of(played, "", "")])["episodes"][0]
    assert played.spaces.actor_reward is None and content["acts"]["reward"] is None


def test_heuristic_has_actions_without_probabilities() -> None:
    played = rollout(lambda: GymMazeEnv("CartPole-v1"), "heuristic", max_steps=5)[0]
    content = episode_document([episode_of(played, "heuristic", "heuristic")])["episodes"][0]
    head = content["heads"]["0"]["action"]
    assert head["probabilities"] is head["most_likely"] is head["allowed"] is None
    assert decoded(head["action"]).shape == (5, 1)
    assert content["acts"]["value"] is content["pictures"] is None
    assert decoded(content["env_steps"]["reward"]).tolist() == [1.0] * 5


def test_episode_of_states_alone_has_acts_and_events() -> None:
    played = rollout(make_line_env, "random", record=["states"], max_steps=3)[0]
    content = episode_document([episode_of(played, "walk", "random")])["episodes"][0]
    assert content["acts"]["n"] == content["n_env_steps"] == 3
    assert content["heads"] == content["observations"] == {}
    assert "LineEvents.moved" in content["events"]["names"]


def test_state_that_cannot_be_drawn_is_named(trajectory: Trajectory) -> None:
    class Broken:
        def render(self, *arguments: Any) -> Any:
            raise KeyError("paint")

    with pytest.raises(ConfigurationError, match=r"Broken cannot draw state 0 of episode .*: KeyError: 'paint'"):
        episode_document([episode_of(trajectory, "", "", parts={"renderer": Broken()})])


class Ones:
    """Takes 1 in each act."""

    def act(self, batch: PolicyBatch, **options: Any) -> PolicyStep:
        return PolicyStep({"amount": np.ones(len(batch.agent_id), np.int64)})


@pytest.mark.parametrize("n_steps", [1, 3])
def test_kpis_so_far_are_those_of_the_states_between_steps(n_steps: int) -> None:
    env = make_relay_env(n_steps=6)
    record = ["spaces", "states", "events"]
    wrappers = [lambda env: StepSkipWrapper(env, n_steps)]
    (played,) = rollout(lambda: make_relay_env(n_steps=6), Ones(), record=record, wrappers=wrappers)
    parts = {"kpi_calculator": env.get_kpi_calculator()}
    content = episode_document([episode_of(played, "", "", parts=parts)])["episodes"][0]
    known = np.arange(1, 7) % n_steps == 0  # the states within a decision are not recorded
    kpis = {name: decoded(values) for name, values in content["running_kpis"].items()}
    assert content["acts"]["unit"] is None  # rewards of several steps belong to one decision
    np.testing.assert_array_equal(kpis["time"], np.where(known, np.arange(1, 7), np.nan))
    np.testing.assert_array_equal(kpis["turn"], np.where(known, 0, np.nan))
    np.testing.assert_array_equal(kpis["acts_per_step"], np.where(known, 3, np.nan))


class CountedActs(CartPoleArrayEnv):
    """Has the number of acts so far as its KPI."""

    kpi_names = ("n_acts",)

    def allocate(self, n: int) -> None:
        super().allocate(n)
        self.n_acts = np.zeros(n)

    def reset(self, which: Any, seeds: Any) -> Any:
        self.n_acts[which] = 0
        return super().reset(which, seeds)

    def step(self, actions: Any, which: Any) -> Any:
        self.n_acts[which] += 1
        return super().step(actions, which)

    def kpis(self, which: Any) -> dict[str, Any]:
        return {"n_acts": self.n_acts[which]}


@pytest.mark.parametrize("is_instance", [True, False])
def test_kpis_that_only_the_environment_knows_are_not_shown_after_each_step(is_instance: bool) -> None:
    env: Any = ArrayMazeEnv(CountedActs()) if is_instance else lambda: ArrayMazeEnv(CountedActs())
    played = rollout(env, seed=3, record=["spaces", "states", "events"], n_envs=1, max_steps=4)
    (content,) = view(played, env=env).document["episodes"]
    assert content["kpis"] == {"n_acts": 4.0}
    assert content["running_kpis"] == {}


def test_array_environment_itself_is_adapted_for_playing_and_viewing() -> None:
    env = CountedActs()
    played = rollout(env, episodes=2, seed=3, record=["spaces", "states", "events"], n_envs=1, max_steps=4)
    made = rollout(CountedActs, episodes=2, seed=3, n_envs=1, max_steps=4)
    for one, other in zip(played, made, strict=True):
        assert one.spaces is not None and other.spaces is not None
        assert one.summary.kpis == other.summary.kpis == {"n_acts": 4.0}
        np.testing.assert_array_equal(one.spaces.reward, other.spaces.reward)
        for key, observation in one.spaces.observation.items():
            for name, array in observation.items():
                np.testing.assert_array_equal(array, other.spaces.observation[key][name])
    assert [content["kpis"] for content in view(played, env=env).document["episodes"]] == [{"n_acts": 4.0}] * 2


def test_episode_of_states_alone_has_all_of_its_environment_steps() -> None:
    wrappers = [lambda env: StepSkipWrapper(env, 3)]
    (played,) = rollout(lambda: make_relay_env(n_steps=6), Ones(), record=["states"], wrappers=wrappers)
    content = episode_document([episode_of(played, "", "")])["episodes"][0]
    assert (content["n_env_steps"], content["end"]) == (6, "terminated")
    np.testing.assert_allclose(decoded(content["env_steps"]["reward"]), [3.3] * 6, rtol=1e-6)


class Threes(Ones):
    """Ends an episode of the relay within its environment step 3."""

    def act(self, batch: PolicyBatch, **options: Any) -> PolicyStep:
        return PolicyStep({"amount": 3 * np.ones(len(batch.agent_id), np.int64)})


@pytest.mark.parametrize("kind", ["spaces", "states"])
def test_step_within_which_an_episode_ends_is_shown_but_not_counted(kind: str) -> None:
    (played,) = rollout(make_relay_env, Threes(), record=[kind])
    content = episode_document([episode_of(played, "", "")])["episodes"][0]
    assert content["n_complete_env_steps"] == played.summary.env_steps == 3
    assert (content["n_env_steps"], content["acts"]["n"]) == (4, 10)

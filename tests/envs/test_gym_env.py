from __future__ import annotations

from collections import OrderedDict
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.envs.classic_control import CartPoleEnv

from maze_pl.core.actor_id import ActorID
from maze_pl.envs import GymCoreEnv, GymMazeEnv, make_gym_maze_env
from maze_pl.events import BaseEnvEvents


class Echo(gymnasium.Env[Any, Any]):
    """Returns samples of its observation space and remembers what it got; uses the same array again and again."""

    def __init__(self, observation_space: spaces.Space[Any], action_space: spaces.Space[Any]) -> None:
        self.observation_space, self.action_space = observation_space, action_space
        self.buffer = np.zeros(2, np.float64)
        self.options: dict[str, Any] | None = None
        self.received: Any = None

    def _observe(self) -> Any:
        if isinstance(self.observation_space, spaces.Box):
            self.buffer += 1
            return self.buffer
        return self.observation_space.sample()

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        if seed is not None:
            self.observation_space.seed(seed)
        self.options = options
        return self._observe(), {"drawn": self.action_space.sample()}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.received = action
        return self._observe(), np.float32(0.5), False, False, {}


BOX = spaces.Box(-100, 100, (2,), np.float32)


def test_cartpole_equals_the_bare_environment() -> None:
    bare, env = gymnasium.make("CartPole-v1"), GymMazeEnv("CartPole-v1")
    expected, _ = bare.reset(seed=7)
    observation, _ = env.reset(seed=7)
    np.testing.assert_array_equal(observation["observation"], expected)
    for i in range(300):
        expected, reward, terminated, truncated, _ = bare.step(i % 2)
        observation, *result, _ = env.step({"action": i % 2})
        np.testing.assert_array_equal(observation["observation"], expected)
        assert result == [reward, terminated, truncated]
        if terminated or truncated:
            break
    assert env.get_env_time() == i + 1


def test_truncation_by_gymnasium_stays_truncation() -> None:
    env = GymMazeEnv("Pendulum-v1", max_episode_steps=3)
    env.reset(seed=0)
    flags = [env.step({"action": np.zeros(1, np.float32)})[2:4] for _ in range(3)]
    assert flags == [(False, False), (False, False), (False, True)]


def test_spaces_are_dicts_with_the_documented_names() -> None:
    env = make_gym_maze_env("CartPole-v1")
    assert list(env.observation_space) == ["observation"]
    assert env.action_space == spaces.Dict({"action": spaces.Discrete(2)})
    assert list(env.action_spaces_dict) == list(env.observation_spaces_dict) == [0]
    assert env.actor_id() == ActorID(0, 0)
    assert not env.is_actor_done()
    assert env.get_actor_rewards() is None


def test_flat_time_and_reward_event_are_kept_by_the_maze_env() -> None:
    env = GymMazeEnv("CartPole-v1")
    env.reset(seed=0)
    for t in range(3):
        env.step({"action": 0})
        assert env.get_env_time() == t + 1
        (record,) = env.get_step_events()
        assert record.event is BaseEnvEvents.reward
        assert record.attributes == {"value": 1.0}
        assert record.env_time == t
    assert env.get_maze_action() == 0
    env.reset(seed=1)
    assert (env.get_env_time(), env.get_maze_action(), env.get_step_events()) == (0, None, [])


def test_observations_do_not_alias_buffers_that_the_environment_uses_again() -> None:
    env = GymMazeEnv(Echo(BOX, spaces.Discrete(2)))
    first, _ = env.reset(seed=0)
    second, reward, *_ = env.step({"action": 1})
    np.testing.assert_array_equal(first["observation"], [1, 1])
    np.testing.assert_array_equal(second["observation"], [2, 2])
    assert second["observation"].dtype == np.float32
    assert type(reward) is float


def test_nested_spaces_are_flattened_with_slashes_and_back() -> None:
    inner = spaces.Dict({"position": BOX, "gear": spaces.Discrete(3)})
    space = spaces.Dict(OrderedDict(robot=inner, goal=spaces.MultiBinary(2)))
    bare = Echo(space, space)
    env = GymMazeEnv(bare)
    assert list(env.observation_space) == ["goal", "robot/gear", "robot/position"]
    observation, _ = env.reset(seed=3)
    assert env.observation_space.contains(observation)
    action = env.action_space.sample()
    env.step(action)
    assert space.contains(bare.received)
    assert bare.received["robot"]["gear"] == action["robot/gear"]
    conversion = env.action_conversion
    assert set(conversion.maze_to_space(bare.received)) == set(action)
    state = env.observation_conversion.space_to_maze(observation)
    np.testing.assert_array_equal(state["robot"]["position"], observation["robot/position"])


def test_discrete_actions_that_do_not_start_at_zero_are_passed_on_unchanged() -> None:
    bare = Echo(BOX, spaces.Discrete(3, start=5))
    env = GymMazeEnv(bare)
    env.reset(seed=0)
    assert env.action_space["action"] == spaces.Discrete(3, start=5)
    env.step({"action": np.array(6)})
    assert bare.received == 6
    assert type(bare.received) is int


def test_discrete_observations_become_arrays() -> None:
    env = GymMazeEnv(Echo(spaces.Discrete(4), spaces.Discrete(2)))
    observation, _ = env.reset(seed=0)
    assert observation["observation"].shape == ()
    assert env.observation_space.contains(observation)


def test_tuples_are_flattened_by_place_and_back() -> None:
    inner = spaces.Dict({"gear": spaces.Discrete(3), "pair": spaces.Tuple([BOX, spaces.Discrete(2)])})
    space = spaces.Tuple([spaces.Discrete(4, start=2), inner])
    bare = Echo(space, space)
    env = GymMazeEnv(bare)
    parts = ["0", "1/gear", "1/pair/0", "1/pair/1"]
    assert list(env.observation_space) == [f"observation_{part}" for part in parts]
    assert list(env.action_space) == [f"action_{part}" for part in parts]
    observation, _ = env.reset(seed=3)
    assert env.observation_space.contains(observation)
    assert space.contains(env.observation_conversion.space_to_maze(observation))
    action = env.action_space.sample()
    env.step(action)
    number, rest = bare.received
    assert type(number) is int and number == action["action_0"]
    np.testing.assert_array_equal(rest["pair"][0], action["action_1/pair/0"])
    assert env.action_conversion.maze_to_space(bare.received).keys() == action.keys()


def test_blackjack_shows_the_parts_of_its_tuple() -> None:
    bare, env = gymnasium.make("Blackjack-v1"), GymMazeEnv("Blackjack-v1")
    expected, _ = bare.reset(seed=1)
    observation, _ = env.reset(seed=1)
    assert [int(part) for part in observation.values()] == list(expected)
    assert env.observation_space["observation_1"] == spaces.Discrete(11)


def test_a_tuple_of_another_length_is_refused() -> None:
    class Short(Echo):
        def _observe(self) -> Any:
            return (1,)

    env = GymMazeEnv(Short(spaces.Tuple([spaces.Discrete(2), spaces.Discrete(2)]), spaces.Discrete(2)))
    with pytest.raises(ValueError, match=r"returned is a tuple of 1 values; its space is a tuple of 2"):
        env.reset(seed=0)


def test_text_is_left_out_of_observations_with_a_warning() -> None:
    space = spaces.Dict({"mission": spaces.Text(5), "view": BOX})
    with pytest.warns(UserWarning, match=r"observation space has text at \['mission'\], which is left out"):
        env = GymMazeEnv(Echo(space, spaces.Discrete(2)))
    observation, _ = env.reset(seed=0)
    assert list(observation) == list(env.observation_space) == ["view"]
    assert env.observation_conversion.space_to_maze(observation)["mission"] == ""
    with pytest.raises(TypeError, match=r"action space has at 'mission' Text"):
        GymMazeEnv(Echo(BOX, space))


@pytest.mark.parametrize(
    "space", [spaces.Text(5), spaces.Sequence(BOX), spaces.Dict({"a": spaces.Dict({"b": spaces.Text(5)})})]
)
def test_unsupported_spaces_are_named_with_a_remedy(space: spaces.Space[Any]) -> None:
    with pytest.raises(TypeError, match=r"(Text|Sequence).*not supported.*gymnasium\.wrappers\.TransformObservation"):
        GymMazeEnv(Echo(space, spaces.Discrete(2)))
    with pytest.raises(TypeError, match=r"action space.*gymnasium\.wrappers\.TransformAction"):
        GymMazeEnv(Echo(BOX, space))


def test_a_sequence_that_a_wrapper_pads_is_supported() -> None:
    def pad(observation: Any) -> Any:
        rows = np.zeros((4, *BOX.shape), BOX.dtype)
        rows[: len(observation[:4])] = np.stack(observation[:4]) if observation else 0
        return rows

    padded = spaces.Box(np.stack([BOX.low] * 4), np.stack([BOX.high] * 4), dtype=BOX.dtype.type)  # type: ignore[union-attr]
    bare = Echo(spaces.Sequence(BOX), spaces.Discrete(2))
    env = GymMazeEnv(gymnasium.wrappers.TransformObservation(bare, pad, padded))
    observation, _ = env.reset(seed=0)
    assert env.observation_space["observation"].contains(observation["observation"])


@pytest.mark.parametrize("name", ["NormalizeObservation", "NormalizeReward"])
def test_running_statistics_of_gymnasium_are_said_to_be_in_no_checkpoint(name: str) -> None:
    normalized = getattr(gymnasium.wrappers, name)(gymnasium.make("CartPole-v1"))
    with pytest.warns(UserWarning, match=rf"{name} of gymnasium .* no checkpoint.*: use maze_pl\.envs\.wrappers\."):
        GymMazeEnv(gymnasium.wrappers.RecordEpisodeStatistics(normalized))
    normalized.update_running_mean = False
    GymMazeEnv(normalized)


def test_names_that_collide_when_flattened_are_refused() -> None:
    space = spaces.Dict({"a": spaces.Dict({"b": BOX}), "a/b": BOX})
    with pytest.raises(ValueError, match="same name"):
        GymMazeEnv(Echo(space, spaces.Discrete(2)))


def test_seeding_covers_the_action_space_of_the_environment_and_ours() -> None:
    drawn = []
    for warm_up in (0, 3):
        env = GymMazeEnv(Echo(BOX, spaces.Discrete(1000)))
        for _ in range(warm_up):
            env.reset()
            env.action_space.sample()
        _, info = env.reset(seed=11)
        drawn.append((info["drawn"], env.action_space.sample()["action"], env.context.episode_id))
    assert drawn[0] == drawn[1]


def test_agents_that_sample_do_not_disturb_environments_that_do() -> None:
    drawn = []
    for n_samples in (0, 5):
        env = GymMazeEnv(Echo(BOX, spaces.Discrete(1000)))
        env.reset(seed=11)
        for _ in range(n_samples):
            env.action_space.sample()
        drawn.append(env.core_env.env.action_space.sample())
    assert drawn[0] == drawn[1]


def test_unseeded_resets_go_on_with_the_generator() -> None:
    env = GymMazeEnv("CartPole-v1")
    starts = [env.reset(seed=1)[0], env.reset()[0], env.reset()[0]]
    assert len({float(start["observation"][0]) for start in starts}) == 3


def test_options_and_information_of_reset_are_passed_through() -> None:
    bare = Echo(BOX, spaces.Discrete(1000))
    env = GymMazeEnv(bare)
    _, info = env.reset(seed=1, options={"level": 3})
    assert bare.options == {"level": 3}
    assert "drawn" in info


def test_instances_take_no_arguments_for_making_them() -> None:
    with pytest.raises(TypeError, match="by name"):
        GymMazeEnv(Echo(BOX, spaces.Discrete(2)), render_mode="rgb_array")


def test_versions_that_are_gone_are_replaced_with_a_warning() -> None:
    with pytest.warns(UserWarning, match="no longer has Pendulum-v0; using Pendulum-v1"):
        env = make_gym_maze_env("Pendulum-v0")
    assert env.spec is not None
    assert env.spec.id == "Pendulum-v1"


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("CartPool-v1", "'CartPool-v1'.* Did you mean: `CartPole`"),
        ("cartpole-v1", "Did you mean: `CartPole`"),
        ("CartPole-v9", "'CartPole-v9'.*provides .*`v1`"),
        ("Nothing/OfTheKind-v0", "'Nothing/OfTheKind-v0'.*other packages: module:Name"),
    ],
)
def test_unknown_environments_are_refused_with_the_nearest_names(name: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make_gym_maze_env(name)


@pytest.mark.parametrize(
    ("message", "remedy"),
    [
        ('MuJoCo is not installed, run `pip install "gymnasium[mujoco]"`', r'pip install "maze-pl\[mujoco\]"'),
        ('Box2D is not installed, run `pip install "gymnasium[box2d]"`', r'pip install "maze-pl\[box2d\]"'),
    ],
)
def test_a_missing_extra_is_named_with_how_to_install_it(
    monkeypatch: pytest.MonkeyPatch, message: str, remedy: str
) -> None:
    def missing(*arguments: Any, **kwargs: Any) -> Any:
        raise gymnasium.error.DependencyNotInstalled(message)

    monkeypatch.setattr("gymnasium.envs.registration.load_env_creator", missing)
    with pytest.raises(ImportError, match=rf"LunarLander-v3 needs a package that is not installed: .*{remedy}"):
        make_gym_maze_env("LunarLander-v3")


def test_a_failing_import_of_somebody_elses_environment_passes_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    def make() -> Any:
        raise ModuleNotFoundError("No module named 'theirs'", name="theirs")

    gymnasium.register("Theirs-v0", entry_point=make)
    try:
        with pytest.raises(ModuleNotFoundError, match="No module named 'theirs'"):
            make_gym_maze_env("Theirs-v0")
    finally:
        del gymnasium.registry["Theirs-v0"]


def test_a_step_before_a_reset_is_refused() -> None:
    with pytest.raises(gymnasium.error.ResetNeeded, match="step of CartPole-v1 was called before reset"):
        GymMazeEnv("CartPole-v1").step({"action": 0})


def test_recorded_states_and_actions_are_converted() -> None:
    env = GymMazeEnv("CartPole-v1")
    env.reset(seed=0)
    state = env.get_maze_state()
    observations, actions = env.get_observation_and_action_dicts(state, 1, True)
    assert actions == {0: {"action": 1}}
    assert observations is not None
    np.testing.assert_array_equal(observations[0]["observation"], state)
    assert env.get_observation_and_action_dicts(None, None, False) == (None, None)


def test_rendering_and_closing_reach_gymnasium() -> None:
    class Drawn(Echo):
        metadata = {"render_modes": ["rgb_array"]}  # noqa: RUF012
        render_mode = "rgb_array"
        closed = False

        def render(self) -> Any:
            return np.zeros((2, 2, 3), np.uint8)

        def close(self) -> None:
            self.closed = True

    bare = Drawn(BOX, spaces.Discrete(2))
    env = GymMazeEnv(bare)
    assert env.render_mode == "rgb_array"
    assert env.render().shape == (2, 2, 3)
    env.close()
    assert bare.closed
    assert isinstance(env.core_env, GymCoreEnv)


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_gymnasiums_own_checker_accepts_it() -> None:
    from gymnasium.utils.env_checker import check_env

    env = GymMazeEnv("CartPole-v1")
    assert check_env(env, skip_render_check=True) is None


def test_a_subclass_may_name_its_heuristic_policy() -> None:
    class Ruled(GymMazeEnv):
        heuristic_policy = "my_project.Rule"

    assert Ruled("CartPole-v1").heuristic_policy == "my_project.Rule"
    assert GymMazeEnv("CartPole-v1").heuristic_policy == "maze_pl.agents.DummyCartPolePolicy"
    assert GymMazeEnv("Acrobot-v1").heuristic_policy is None


def test_a_class_in_place_of_an_environment_is_named() -> None:
    given: Any = CartPoleEnv
    with pytest.raises(TypeError, match=r"got the class CartPoleEnv: pass an environment, as in GymMazeEnv"):
        GymMazeEnv(given)

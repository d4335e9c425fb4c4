from __future__ import annotations

import copy
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces

from maze_pl.__main__ import main
from maze_pl.core.policy import MazeStatePolicy, PolicyBatch, PolicyStep
from maze_pl.envs import ArrayVectorEnv, GymMazeEnv, SequentialVectorEnv, check_env
from maze_pl.envs.array_forms import make_wrapped_arrays
from maze_pl.envs.arrays import PendulumArrayEnv
from maze_pl.envs.arrays.array_maze_env import reseed_arrays
from maze_pl.envs.arrays.array_wrapper import allocate
from maze_pl.envs.building import make_wrapped
from maze_pl.envs.checker.same_as import compare_envs
from maze_pl.envs.multi_echelon_stock import StockArrayEnvironment, StockChain, stock_factory, structured_stock_factory
from maze_pl.envs.multi_echelon_stock.base_stock_policy import BaseStockPolicy
from maze_pl.envs.wrappers import (
    DiscretizeActionsWrapper,
    ObservationNormalizationWrapper,
    ResidualActionWrapper,
    RunningObservationNormalizationWrapper,
    TimeLimitWrapper,
)
from maze_pl.envs.wrappers.no_correction_policy import NoCorrectionPolicy
from maze_pl.envs.wrappers.partly_corrected_policy import PartlyCorrectedPolicy
from maze_pl.runs.rollout import rollout
from tests.envs.multi_echelon_stock.chains import DRIFTING
from tests.envs.wrappers.environments import Leaning, make_action_env, make_vector_heap_env
from tests.exact.comparison import comparable, differences

BOX = spaces.Box(np.array([-1, -2], np.float32), np.array([1, 2], np.float32))
LEVELS = {"levels": [25, 20, 30, 20], "gains": [1.5, 0.5, 0.5, 0.0]}
STOCK = partial(
    ResidualActionWrapper,
    corrections={"order": 0.3},
    policy="maze_pl.envs.multi_echelon_stock.base_stock_policy.BaseStockPolicy",
    policy_arguments=LEVELS,
)


class Constant:
    """Always the same action."""

    def __init__(self, **action: Any) -> None:
        self.action = action

    def act(self, batch: PolicyBatch, **options: Any) -> PolicyStep:
        n = len(batch.agent_id)
        return PolicyStep({head: np.tile(np.float32(value), (n, 1)) for head, value in self.action.items()})


def make_constant(share: float, env: Any) -> Constant:
    """A rule with an argument."""
    return Constant(action=[share, share])


def corrected(**options: Any) -> ResidualActionWrapper:
    return ResidualActionWrapper(make_action_env(BOX), **{"corrections": {"action": 0.5}, **options})


def test_corrections_are_scaled_added_and_clipped() -> None:
    env = corrected(corrections={"action": [0.5, 1]}, policy=Constant(action=[0.75, -0.5]))
    assert env.action_space == spaces.Dict({"action_correction": spaces.Box(-1, 1, (2,))})
    env.reset(seed=0)
    given, expected = [[0, 0], [-1, 1], [1, -1]], [[0.75, -0.5], [0.25, 0.5], [1, -1.5]]
    actions = [env.action({"action_correction": np.float32(values)})["action"] for values in given]
    np.testing.assert_array_equal(actions, np.float32(expected))
    assert actions[0].dtype == np.float32


class Watching:
    """Remembers what it is given, and does nothing."""

    def __init__(self) -> None:
        self.seen: list[Any] = []

    def act(self, batch: PolicyBatch, **options: Any) -> PolicyStep:
        self.seen.append((batch.step_key, batch.observation["observation"], batch.agent_id.tolist(), batch.maze_state))
        assert options["deterministic"] and options["generator"] is not None
        return PolicyStep({"action": np.zeros((len(batch.agent_id), 1), np.float32)})


class WatchingStates(Watching, MazeStatePolicy):
    """The same for a policy that uses states."""


def test_a_rule_gets_states_if_it_uses_them() -> None:
    for rule, count in ((Watching(), 0), (WatchingStates(), 1)):
        env = ResidualActionWrapper(GymMazeEnv("Pendulum-v1"), {"action": 0.1}, rule)
        env.reset(seed=3)
        env.step(env.action_space.sample())
        wrapper = partial(ResidualActionWrapper, corrections={"action": 0.1}, policy=rule)
        arrays = make_wrapped_arrays(PendulumArrayEnv, [wrapper])
        allocate(arrays, 2)
        arrays.reset(np.arange(2), np.arange(2))
        arrays.step({0: {"action_correction": np.zeros((2, 1), np.float32)}}, slice(None))
        assert [len(states or ()) for *_, states in rule.seen] == [count, 2 * count]


def test_the_rule_sees_the_last_observation_and_the_state() -> None:
    rule = WatchingStates()
    seen = rule.seen
    env = ResidualActionWrapper(GymMazeEnv("Pendulum-v1"), {"action": 0.1}, rule)
    observation, _ = env.reset(seed=3)
    for _ in range(3):
        state = env.get_maze_state()
        observation, *_ = env.step(env.action_space.sample())
        key, _, agents, states = seen.pop()
        assert (key, agents) == (0, [0])
        np.testing.assert_equal(states, [state])
    env.step(env.action_space.sample())
    np.testing.assert_array_equal(seen.pop()[1], observation["observation"][np.newaxis])


class Network(torch.nn.Module, Watching):
    """A rule that may have learned from normalised observations."""


@pytest.mark.parametrize("normalization", [ObservationNormalizationWrapper, RunningObservationNormalizationWrapper])
def test_normalisation_inside_of_a_rule_in_units_is_warned_of(normalization: Any) -> None:
    normalized = normalization(GymMazeEnv("Pendulum-v1"))
    message = f"^Watching observes what .*{normalization.__name__}.* have normalised: if the rule needs the units"
    with pytest.warns(UserWarning, match=message):
        ResidualActionWrapper(TimeLimitWrapper(normalized, 10), {"action": 0.1}, Watching())
    for rule in (WatchingStates(), Network()):
        assert ResidualActionWrapper(normalized, {"action": 0.1}, rule).rule.rule is rule
    excluded = ObservationNormalizationWrapper(GymMazeEnv("Pendulum-v1"), exclude=["observation"])
    normalization(ResidualActionWrapper(excluded, {"action": 0.1}, Watching()))


def test_without_corrections_the_rule_plays() -> None:
    chain = StockChain(**DRIFTING)
    rule = BaseStockPolicy(stock_factory(chain).action_spaces_dict, **LEVELS)
    for factory in (stock_factory, structured_stock_factory):
        bare = rollout(partial(factory, chain), rule, episodes=3, seed=1, max_steps=100)
        wrapped = rollout(partial(factory, chain), "heuristic", wrappers=[STOCK], episodes=3, seed=1, max_steps=100)
        assert [one.summary.reward for one in bare] == [one.summary.reward for one in wrapped]
        assert len({one.summary.reward for one in bare}) == 3


@pytest.mark.parametrize("num_bins", [5, 4])
def test_the_heuristic_takes_the_bins_nearest_to_no_correction(num_bins: int) -> None:
    bins = partial(DiscretizeActionsWrapper, discretization_config={"order_correction": {"num_bins": num_bins}})
    factory = partial(stock_factory, StockChain(**DRIFTING))
    options: dict[str, Any] = {"episodes": 2, "seed": 1, "record": ()}
    found = rollout(factory, "heuristic", wrappers=[STOCK, bins], **options)
    least = 0.0 if num_bins == 5 else -1 / 3  # bins at -1, -1/3, 1/3 and 1; the first of the two nearest
    expected = rollout(factory, partial(Always, value=least), wrappers=[STOCK], **options)
    assert [one.summary.reward for one in found] == [one.summary.reward for one in expected]


def test_no_correction_refuses_other_heads_than_corrections() -> None:
    for space in (spaces.Discrete(5), spaces.MultiDiscrete([5, 5]), spaces.Box(0, 1, (2,))):
        with pytest.raises(ValueError, match="NoCorrectionPolicy gives actions of"):
            NoCorrectionPolicy({0: spaces.Dict(order_correction=space)})


class Always:
    """Always the same number in all entries of all heads."""

    def __init__(self, action_spaces_dict: Any, value: float) -> None:
        self.action_spaces_dict = action_spaces_dict
        self.value = value

    def act(self, batch: PolicyBatch, **options: Any) -> PolicyStep:
        heads = self.action_spaces_dict[batch.step_key].spaces
        n = len(batch.agent_id)
        return PolicyStep({head: np.full((n, *box.shape), self.value, np.float32) for head, box in heads.items()})


def test_the_heuristic_of_the_environment_is_the_default_and_other_heads_stay() -> None:
    chain = StockChain(**DRIFTING)
    env = ResidualActionWrapper(stock_factory(chain), {"order": 0.2})
    assert isinstance(env.rule.rule, BaseStockPolicy)
    partly = ResidualActionWrapper(make_two_heads(), {"x": 0.5}, Constant(x=[0.2]))
    assert list(partly.action_space) == ["x_correction", "y"]
    assert partly.heuristic_policy != env.heuristic_policy
    partly.reset(seed=0)
    action = partly.action({"x_correction": np.float32([-1]), "y": 1})
    assert action["y"] == 1 and action["x"] == np.float32([-0.3])


def make_two_heads() -> GymMazeEnv:
    return make_action_env(spaces.Dict(x=spaces.Box(-1, 1, (1,)), y=spaces.Discrete(3)))


def test_recorded_actions_become_corrections() -> None:
    chain = StockChain(**DRIFTING)
    env = STOCK(stock_factory(chain))
    env.reset(seed=2)
    for _ in range(6):
        state = env.get_maze_state()
        correction = env.action_space.sample()["order_correction"] * np.float32(0.5)
        env.step({"order_correction": correction})
        _, actions = env.get_observation_and_action_dicts(state, env.get_maze_action(), False)
        unit = 2 / chain.largest_action / 0.3  # orders are rounded to units
        assert (np.abs(actions[0]["order_correction"] - correction) <= unit).all()


def test_recorded_actions_of_several_agents_are_refused() -> None:
    chain = StockChain(**{**DRIFTING, "max_level": 60})
    env = STOCK(structured_stock_factory(chain))
    env.reset(seed=2)
    state = env.get_maze_state()
    env.step({"order_correction": np.zeros(1, np.float32)})
    with pytest.raises(ValueError, match="several agents"):
        env.get_observation_and_action_dicts(state, env.get_maze_action(), False)


class Drawing(Leaning):
    """Leans, and adds a random number, whether it is to act deterministically or not."""

    def act(self, batch: PolicyBatch, *, generator: Any = None, **options: Any) -> PolicyStep:
        action = super().act(batch).action
        noise = {head: torch.rand(values.shape, generator=generator).numpy() for head, values in action.items()}
        return PolicyStep({head: values + 0.3 * noise[head] for head, values in action.items()})


DRAWING = partial(ResidualActionWrapper, corrections={"action": 0.5}, policy=Drawing)
NOTHING = {"action_correction": np.zeros(1, np.float32)}


def rewards(env: ResidualActionWrapper, n: int = 3) -> list[float]:
    return [env.step(NOTHING)[1] for _ in range(n)]


def test_what_a_rule_draws_depends_on_the_seed_of_the_episode() -> None:
    env = DRAWING(GymMazeEnv("Pendulum-v1"))
    found = []
    for seed in (3, 3, 4, None, 4, None):
        env.reset(seed=seed)
        actions = [env.action(NOTHING)["action"].item() for _ in range(3)]
        assert len({*actions}) == 3
        found.append((*actions, *rewards(env)))
    assert found[0] == found[1]
    assert found[2:4] == found[4:]
    assert len({*found}) == 3


def test_states_of_equal_runs_are_the_same_in_the_first_episodes() -> None:
    states = []
    for _ in range(2):
        vector = SequentialVectorEnv([lambda: DRAWING(GymMazeEnv("Pendulum-v1"))], seed=4)
        vector.reset()
        states.append(vector.state_dict()["histories"][0]["wrappers"])
    assert differences(*states) == []


def test_copies_draw_alike_until_they_are_reseeded() -> None:
    first, second, third = (DRAWING(GymMazeEnv("Pendulum-v1")) for _ in range(3))
    first.reset(seed=5)
    rewards(first)
    for other in (second, third):
        other.reset(seed=6)
        other.clone_from(first)
    third.reseed(1)
    expected = rewards(first)
    assert rewards(second) == expected != rewards(third)


def test_draws_continue_from_a_saved_state() -> None:
    env, resumed = (DRAWING(GymMazeEnv("Pendulum-v1")) for _ in range(2))
    env.reset(seed=5)
    resumed.reset(seed=5)
    rewards(env)
    assert env.action(NOTHING) != resumed.action(NOTHING)
    resumed.load_state_dict(env.state_dict())
    resumed.env.clone_from(env.env)
    resumed._seen = env._seen
    assert env.action(NOTHING) == resumed.action(NOTHING)


@pytest.mark.parametrize("n_envs", [1, 4])
def test_arrays_equal_single_episodes_with_a_rule_that_draws(n_envs: int) -> None:
    wrappers = [DRAWING, partial(TimeLimitWrapper, max_episode_steps=9)]
    one = SequentialVectorEnv([partial(make_wrapped, partial(GymMazeEnv, "Pendulum-v1"), wrappers)] * n_envs, seed=1)
    other = ArrayVectorEnv(partial(make_wrapped_arrays, PendulumArrayEnv, wrappers), n_envs, seed=1)
    comparison = compare_envs(lambda: one, lambda: other, n_steps=40)
    assert comparison.difference is None, str(comparison.difference)


def test_draws_in_arrays_are_saved_and_reseeded() -> None:
    first, second = (make_wrapped_arrays(PendulumArrayEnv, [DRAWING]) for _ in range(2))
    for env, seeds in ((first, [1, 2]), (second, [3, 4])):
        allocate(env, 2)
        env.reset(np.arange(2), np.array(seeds))
    first.step({0: {"action_correction": np.zeros((2, 1), np.float32)}}, slice(None))
    second.load_state_dict(copy.deepcopy(first.state_dict()))
    reseed_arrays(second, np.array([1]), np.array([8]))
    found = []
    for env in (first, second):
        found.append(env.step({0: {"action_correction": np.zeros((2, 1), np.float32)}}, slice(None)).reward)
    assert (found[0] == found[1]).tolist() == [True, False]


def test_the_heuristic_draws_from_the_generator_that_it_gets() -> None:
    class Both(Constant):
        def act(self, batch: PolicyBatch, *, generator: Any = None, **options: Any) -> PolicyStep:
            y = torch.randint(3, (len(batch.agent_id),), generator=generator).numpy()
            return PolicyStep({**super().act(batch).action, "y": y})

    env = ResidualActionWrapper(make_two_heads(), {"x": 0.5}, Both(x=[0.2]))
    policy = PartlyCorrectedPolicy(env)
    batch = PolicyBatch(0, {"observation": np.zeros((20, 1), np.float32)}, np.zeros(20, np.int64))
    draws = [policy.act(batch, generator=torch.Generator().manual_seed(2)).action["y"].tolist() for _ in range(2)]
    assert draws[0] == draws[1] and len({*draws[0]}) == 3


def test_copies_share_the_rule_and_continue_alike() -> None:
    first, second = (STOCK(stock_factory(StockChain(**DRIFTING))) for _ in range(2))
    first.reset(seed=5)
    second.reset(seed=6)
    action = {"order_correction": np.float32([0.1, -0.5, 0.7, 0.2])}
    first.step(action)
    own = second.rule
    second.clone_from(first)
    assert second.rule is own
    for _ in range(3):
        np.testing.assert_equal(first.step(action), second.step(action))


@pytest.mark.parametrize("structured", [False, True])
def test_arrays_equal_single_episodes(structured: bool) -> None:
    chain = StockChain(**DRIFTING)
    factory = structured_stock_factory if structured else stock_factory
    wrappers = [STOCK, partial(TimeLimitWrapper, max_episode_steps=7)]
    arrays = partial(StockArrayEnvironment, chain, structured=structured)
    one = SequentialVectorEnv([partial(make_wrapped, partial(factory, chain), wrappers)] * 5, seed=1)
    other = ArrayVectorEnv(partial(make_wrapped_arrays, arrays, wrappers), 5, seed=1)
    comparison = compare_envs(lambda: one, lambda: other, n_steps=300)
    assert comparison.difference is None, str(comparison.difference)
    assert comparison.n_episodes > 5


def test_arrays_equal_single_episodes_with_a_rule_that_uses_observations() -> None:
    wrappers = [partial(ResidualActionWrapper, corrections={"action": 0.7}, policy=Leaning)]
    one = SequentialVectorEnv([partial(make_wrapped, partial(GymMazeEnv, "Pendulum-v1"), wrappers)] * 4, seed=1)
    other = ArrayVectorEnv(partial(make_wrapped_arrays, PendulumArrayEnv, wrappers), 4, seed=1)
    comparison = compare_envs(lambda: one, lambda: other, n_steps=500)
    assert comparison.difference is None, str(comparison.difference)


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"corrections": {"acton": 1}}, ValueError, r"of \['acton'\], but the action heads are \['action'\]"),
        ({"corrections": {"action": 0}}, ValueError, "scale 0; expected finite numbers above 0"),
        ({"corrections": {"action": [1, float("nan")]}}, ValueError, "finite numbers above 0"),
        ({"corrections": {"action": [1, 2, 3]}}, ValueError, r"a number, or a list of shape \(2,\)"),
        ({"corrections": {"action": "all"}}, ValueError, "a number, or a list"),
        ({"policy": None}, ValueError, "has no heuristic_policy; name the rule"),
        ({"policy": "maze_pl.envs.wrappers.NoSuchPolicy"}, ImportError, "NoSuchPolicy"),
        ({"policy": 3}, TypeError, "policy=3 is not a policy"),
        ({"policy": Constant(), "policy_arguments": {"a": 1}}, TypeError, "are for a class or function"),
        ({"policy": lambda: 3}, TypeError, "policy=3 is not a policy"),
        (
            {"policy": make_constant, "policy_arguments": {"shar": 0.3}},
            TypeError,
            r"policy_arguments=\{'shar': 0.3\} do not fit make_constant\(share, env\): ",
        ),
        (
            {"policy": make_constant},
            TypeError,
            r"policy_arguments=\{\} do not fit make_constant\(share, env\): missing a",
        ),
    ],
)
def test_what_does_not_fit_is_refused(options: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        corrected(**{"policy": Constant(action=[0, 0]), **options})


def test_a_head_that_is_not_a_box_is_refused() -> None:
    with pytest.raises(ValueError, match=r"head 'y' is Discrete\(3\); only a Box can be corrected"):
        ResidualActionWrapper(make_two_heads(), {"y": 1}, Constant())


@pytest.mark.parametrize(
    ("action", "came"), [({}, r"actions to \[\] only"), ({"action": [0, float("nan")]}, "one that is not finite")]
)
def test_a_rule_that_gives_no_action_is_named(action: dict[str, Any], came: str) -> None:
    env = corrected(policy=Constant(**action))
    env.reset(seed=0)
    with pytest.raises(ValueError, match=f"Constant, whose actions are corrected, must give .* it gave {came}"):
        env.step(env.action_space.sample())


@pytest.mark.slow
def test_sub_steps_are_corrected_with_the_same_scale() -> None:
    env = ResidualActionWrapper(make_vector_heap_env(), {"amount": 0.5}, Leaning)
    assert all(list(space) == ["amount_correction"] for space in env.action_spaces_dict.values())
    check_env(env)


STACK = """
- class_path: maze_pl.envs.wrappers.ResidualActionWrapper
  init_args:
    corrections: {order: 0.2}
    policy: maze_pl.envs.multi_echelon_stock.base_stock_policy.BaseStockPolicy
    policy_arguments: {levels: [30, 27, 18, 26], gains: [2.5, -1.0, 3.0, -0.25]}
"""


@pytest.mark.slow
@pytest.mark.parametrize("env", ["env/multi_echelon_stock", "maze_pl.envs.multi_echelon_stock.StockArrayEnvironment"])
def test_training_is_resumed_exactly(env: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "stack.yaml").write_text(STACK, encoding="utf-8")
    fit = ["fit", "--config", "ppo_multi_echelon_stock", "--data.env", env, "--data.wrappers", "stack.yaml"]
    fit += ["--data.n_envs", "4", "--data.n_rollout_steps", "30", "--data.epoch_length", "2"]
    fit += [
        "--model.lr_schedule",
        "constant",
        "--model.batch_size",
        "40",
        "--data.evaluators",
        '{"eval": {"n_episodes": 2}}',
    ]
    assert main([*fit, "--trainer.max_epochs", "3", "--run_dir", "whole"]) == 0
    assert main([*fit, "--trainer.max_epochs", "1", "--run_dir", "parts"]) == 0
    assert main(["fit", "--resume", "parts", "--trainer.max_epochs", "3"]) == 0
    whole, parts = (comparable(tmp_path / run / "checkpoints" / "last.ckpt") for run in ("whole", "parts"))
    for part in ("state_dict", "optimizer_states", "epoch", "global_step"):
        assert differences(whole[part], parts[part]) == [], part

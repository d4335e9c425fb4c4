"""Making of the environments of a data module."""

from __future__ import annotations

import pickle
from typing import Any

import gymnasium
import pytest

from maze_pl.core.spec import Spec
from maze_pl.datamodules.environment_maker import EnvironmentMaker
from maze_pl.envs import CartPoleArrayEnv, GymMazeEnv
from maze_pl.envs.arrays import ArrayMazeEnv
from maze_pl.envs.vector import SequentialVectorEnv, SubprocVectorEnv
from maze_pl.envs.wrappers import ObservationNormalizationWrapper, TimeLimitWrapper


def make_maker(env: Any, step_timeout: float | None = None, wrappers: Any = (), **options: Any) -> EnvironmentMaker:
    """A maker with default options."""
    masks, agents = options.get("action_masks"), options.get("max_agents")
    return EnvironmentMaker(env, wrappers, masks, agents, check="fast", step_timeout=step_timeout, owner="Data")


def test_the_environment_is_made_once_to_describe_it() -> None:
    made: list[GymMazeEnv] = []

    def make_env() -> GymMazeEnv:
        made.append(GymMazeEnv("CartPole-v1"))
        return made[-1]

    maker = make_maker(make_env, wrappers=[ObservationNormalizationWrapper.wrap])
    assert not maker.is_described
    assert maker.description is maker.description
    assert maker.is_described and len(made) == 1
    with maker.factory()() as env:
        assert maker.description.spec == Spec.of(env)
    names = [name.rpartition(".")[2] for name in maker.description.wrappers]
    assert names == ["LogStatsWrapper", "ObservationNormalizationWrapper"]
    assert list(maker.description.wrappers.values())[1] is ObservationNormalizationWrapper
    assert not maker.description.is_array


def test_it_goes_to_other_processes_with_what_lambdas_make() -> None:
    maker = make_maker(lambda: GymMazeEnv("CartPole-v1"), wrappers=[lambda env: TimeLimitWrapper.wrap(env, 7)])
    spec = maker.description.spec
    copy = pickle.loads(pickle.dumps(maker))
    assert copy.is_described and copy.description.spec == spec
    with copy.factory()() as env:
        env.reset(seed=0)
        n_steps = 1
        while not any(env.step({"action": n_steps % 2})[2:4]):
            n_steps += 1
    assert n_steps == 7


def test_without_an_environment_the_spaces_may_be_told() -> None:
    maker = make_maker(None)
    assert not maker.has_env
    with pytest.raises(ValueError, match="this Data has no environment: give one as env"):
        maker.factory()
    with pytest.raises(ValueError, match="this Data has no environment"):
        _ = maker.description
    with GymMazeEnv("CartPole-v1") as env:
        spec = Spec.of(env)
    maker.describe_as(spec)
    assert maker.description.spec is spec
    assert maker.rollout_options == {"env": None, "wrappers": [], "action_masks": None, "max_agents": None}


@pytest.mark.parametrize(
    ("step_timeout", "vectorization", "kind"),
    [
        (None, "sequential", SequentialVectorEnv),
        (None, "subprocess", SubprocVectorEnv),
        (3.0, "sequential", SubprocVectorEnv),
    ],
)
def test_single_environments_are_stepped_where_the_options_say(
    step_timeout: float | None, vectorization: str, kind: type
) -> None:
    maker = make_maker(lambda: GymMazeEnv("CartPole-v1"), step_timeout)
    maker.vectorization = vectorization
    factory: Any = maker.vector(2)
    assert factory.func is kind
    assert factory.keywords.get("step_timeout") == step_timeout


def test_single_episodes_of_an_array_environment_are_single_environments() -> None:
    def make_env() -> ArrayMazeEnv:
        return ArrayMazeEnv(CartPoleArrayEnv())

    for env in (make_env, lambda: TimeLimitWrapper.wrap(make_env(), 7)):
        assert not make_maker(env).description.is_array
        factory: Any = make_maker(env).vector(2)
        assert factory.func is SequentialVectorEnv
        vector = factory()
        vector.reset()
        vector.step()
        assert vector.staging.reward.tolist() == [1.0, 1.0]
        assert make_maker(env, 3.0).vector(2).func is SubprocVectorEnv  # type: ignore[attr-defined]


def test_environments_in_arrays_refuse_options_that_mean_nothing_there() -> None:
    with pytest.raises(ValueError, match=r"step_timeout cannot interrupt an array environment"):
        make_maker(CartPoleArrayEnv, 3.0).vector(2)
    maker = make_maker(CartPoleArrayEnv)
    assert maker.description.is_array
    maker.vectorization = "subprocess"
    with pytest.raises(ValueError, match="vectorization=subprocess has no use for an array environment"):
        maker.vector(2)


def same_gym() -> Any:
    env = gymnasium.make("CartPole-v1")
    return lambda: gymnasium.wrappers.TimeLimit(env, 20)  # a new wrapper around the same environment


def same_adapted() -> Any:
    env = gymnasium.make("CartPole-v1")
    return lambda: GymMazeEnv(env)


def same_arrays() -> Any:
    env = CartPoleArrayEnv()
    return lambda: env


@pytest.mark.parametrize("make", [same_gym, same_adapted, same_arrays])
def test_a_factory_that_returns_the_same_environment_again_is_refused(make: Any) -> None:
    maker = make_maker(make())
    assert maker.description.spec.step_keys == (0,)
    with pytest.raises(ValueError, match=r"returned the same CartPole\S* twice, .*: make a new one in each call"):
        maker.vector(1)().close()


def test_environments_of_an_evaluator_with_other_wrappers_must_be_new_ones_too() -> None:
    env = GymMazeEnv("CartPole-v1")
    maker = make_maker(lambda: env)
    assert maker.description.kpi_names is not None
    with pytest.raises(ValueError, match="returned the same CartPole-v1 twice"):
        _ = maker.with_others(None, [TimeLimitWrapper.wrap]).description

"""A vector of array environments equals a vector of single ones, in everything that anybody sees of it."""

from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch

from maze_pl.collect.collector import Collector
from maze_pl.core.random_policy import RandomPolicy
from maze_pl.core.spec import Spec
from maze_pl.envs import (
    ArrayEnv,
    ArrayStep,
    ArrayVectorEnv,
    CartPoleArrayEnv,
    GymMazeEnv,
    PendulumArrayEnv,
    SequentialVectorEnv,
)
from maze_pl.envs.arrays import ArrayMazeEnv
from maze_pl.envs.arrays.array_checks import MissingKpiWarning
from maze_pl.envs.checker.same_as import compare_envs
from maze_pl.envs.contract import EnvContractError
from maze_pl.events import EpochStatistics
from maze_pl.events.topics import StatisticsError
from tests.envs.arrays.yard import YardArrayEnv, YardEvents, make_yard

FORMS: dict[str, tuple[Callable[[], Any], Callable[[], ArrayEnv]]] = {
    "CartPole": (partial(GymMazeEnv, "CartPole-v1"), CartPoleArrayEnv),
    "Pendulum": (partial(GymMazeEnv, "Pendulum-v1"), PendulumArrayEnv),
    "structured": (make_yard, YardArrayEnv),
}


def _both(name: str, n_envs: int, **options: Any) -> tuple[SequentialVectorEnv, ArrayVectorEnv]:
    single, many = FORMS[name]
    return SequentialVectorEnv([single] * n_envs, **options), ArrayVectorEnv(many, n_envs, **options)


def _policy(spec: Spec) -> RandomPolicy:
    spaces = {key: step.action_space for key, step in spec.steps.items()}
    return RandomPolicy(spaces, {key: step.masks for key, step in spec.steps.items()})


@pytest.mark.parametrize("name", FORMS)
@pytest.mark.parametrize("n_envs", [1, 7])
def test_both_forms_give_equal_steps_and_summaries(name: str, n_envs: int) -> None:
    one, other = _both(name, n_envs, seed=11, first_env_index=3)
    comparison = compare_envs(lambda: one, lambda: other, n_steps=230 * n_envs)
    assert comparison.difference is None
    assert comparison.n_episodes >= n_envs


@pytest.mark.parametrize("name", FORMS)
def test_a_single_episode_view_equals_the_form_for_single_episodes(name: str) -> None:
    single, many = FORMS[name]
    view = SequentialVectorEnv([lambda: ArrayMazeEnv(many())] * 2, seed=4)
    comparison = compare_envs(lambda: SequentialVectorEnv([single] * 2, seed=4), lambda: view, n_steps=450)
    assert comparison.difference is None


def _tensors(rollout: Any) -> dict[str, torch.Tensor]:
    """Everything in a rollout, by name."""
    found = dict(vars(rollout.rows))
    for key, segment in rollout.segments.items():
        for name, value in vars(segment).items():
            parts = value if isinstance(value, dict) else {"": value}
            found |= {f"{key} {name} {part}": tensor for part, tensor in parts.items() if tensor is not None}
    return {name: tensor.clone() for name, tensor in found.items()}


@pytest.mark.parametrize("name", FORMS)
def test_rollouts_and_epoch_statistics_are_equal(name: str) -> None:
    found, tables = [], []
    for vector in _both(name, 5, seed=2):
        collector = Collector(vector, 30, torch.Generator().manual_seed(0))
        epoch = EpochStatistics([YardEvents])
        of_vector = []
        for _ in range(8):
            rollout = collector.collect(_policy(vector.spec))
            of_vector.append(_tensors(rollout))
            finals = {key: final for key, final in rollout.finals.items()}
            for key, final in finals.items():
                order = np.lexsort((final.env.numpy(), final.row.numpy()))
                of_vector[-1] |= {f"final {key} row": final.row[order].clone(), f"final {key} env": final.env[order]}
                for part, tensor in final.observation.items():
                    of_vector[-1][f"final {key} {part}"] = tensor[order].clone()
            epoch.add_all(rollout.summaries)
        found.append(of_vector)
        plots = epoch.compute_plots()
        assert plots == {}
        tables.append(epoch.compute())
    for one, other in zip(*found, strict=True):
        assert one.keys() == other.keys()
        for field, tensor in one.items():
            assert torch.equal(tensor, other[field]), field
    assert tables[0] == tables[1]
    assert tables[0]["BaseEnvEvents/reward/episode_count"] > 0


@pytest.mark.parametrize("name", FORMS)
def test_a_collector_resumes_exactly_in_the_middle_of_episodes(name: str) -> None:
    make = FORMS[name][1]

    def collector() -> Collector:
        return Collector(ArrayVectorEnv(make, 4, seed=9), 13, torch.Generator().manual_seed(3))

    whole = collector()
    policy = _policy(whole.spec)
    for _ in range(3):
        whole.collect(policy)
    state = whole.state_dict()
    assert torch.load(_saved(state), weights_only=True).keys() == state.keys()
    resumed = collector()
    assert resumed.load_state_dict(torch.load(_saved(state), weights_only=True)) == []
    for _ in range(4):
        expected = whole.collect(policy)
        came = resumed.collect(policy)
        after, before = _tensors(came), _tensors(expected)
        assert all(torch.equal(after[field], tensor) for field, tensor in before.items())
        summaries = [[_plain(asdict(one)) for one in rollout.summaries] for rollout in (expected, came)]
        assert summaries[0] == summaries[1]


def _saved(state: Any) -> Any:
    import io

    file = io.BytesIO()
    torch.save(state, file)
    file.seek(0)
    return file


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(name): _plain(part) for name, part in value.items()}
    return value.tolist() if isinstance(value, np.ndarray) else value


def test_the_state_of_single_environments_is_refused() -> None:
    one, other = _both("CartPole", 2)
    one.reset()
    with pytest.raises(ValueError, match="acts of single environments"):
        other.load_state_dict(one.state_dict())


def test_final_observations_are_those_before_the_reset() -> None:
    vector = ArrayVectorEnv(partial(CartPoleArrayEnv, max_episode_steps=3), 2, seed=1)
    vector.reset()
    for _ in range(2):
        assert vector.step().finals == []
    (group,) = vector.step().finals
    assert group.envs.tolist() == [0, 1]
    assert not np.array_equal(group.observation["observation"], vector.staging.observation[0]["observation"])
    assert np.abs(vector.staging.observation[0]["observation"]).max() <= 0.05


class _Faulty(CartPoleArrayEnv):
    """Gives a faulty result in its second step."""

    def __init__(self, change: Callable[[ArrayStep], None]) -> None:
        super().__init__()
        self.change = change
        self.count = 0

    def step(self, actions: Any, which: Any) -> ArrayStep:
        result = super().step(actions, which)
        self.count += 1
        if self.count == 2:
            self.change(result)
        return result


def _set(**fields: Any) -> Callable[[ArrayStep], None]:
    def change(result: ArrayStep) -> None:
        for name, value in fields.items():
            setattr(result, name, value)

    return change


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (_set(reward=None), r"reward of _Faulty is None; expected numbers of shape \(4,\)"),
        (_set(reward=np.ones(3)), r"reward of _Faulty is an array of shape \(3,\) and type float64; expected"),
        (_set(terminated=np.zeros(4)), "terminated of _Faulty .* type float64; expected booleans"),
        (_set(truncated=np.zeros((4, 1), bool)), r"truncated of _Faulty .* shape \(4, 1\)"),
        (_set(env_time=np.zeros(4)), "env_time of _Faulty .* expected integers"),
        (_set(observation={}), "the observations of sub-step 0 of _Faulty are None"),
        (_set(observation={0: {"seen": np.ones(4)}}), r"of _Faulty are \['seen'\]; expected \['observation'\] by name"),
        (
            _set(observation={0: {"observation": np.ones((4, 3), np.float32)}}),
            r"observation 'observation' of sub-step 0 of _Faulty is an array of shape \(4, 3\) .* shape \(4, 4\)",
        ),
        (_set(observation={0: {"observation": np.ones((4, 4), complex)}}), "type complex128; expected .* float32"),
    ],
)
def test_names_what_a_step_returned_instead(change: Callable[[ArrayStep], None], message: str) -> None:
    vector = ArrayVectorEnv(lambda: _Faulty(change), 4)
    vector.reset()
    vector.step()
    with pytest.raises(EnvContractError, match=message):
        vector.step()


@pytest.mark.parametrize("field", ["observation", "reward"])
def test_names_the_one_environment_of_thousands_with_a_number_that_is_not_finite(field: str) -> None:
    def change(result: ArrayStep) -> None:
        array = result.reward if field == "reward" else result.observation[0]["observation"]
        array[3456] = np.nan

    vector = ArrayVectorEnv(lambda: _Faulty(change), 4000, first_env_index=10)
    collector = Collector(vector, 3, torch.Generator())
    with pytest.raises(
        EnvContractError, match=rf"{field}.* of environment 3466.*not finite \(step [12] of the rollout"
    ):
        collector.collect(_policy(vector.spec))


def test_the_full_check_names_values_outside_of_the_space() -> None:
    def change(result: ArrayStep) -> None:
        result.observation[0]["observation"][2] = 99.0

    vector = ArrayVectorEnv(lambda: _Faulty(change), 4, check="full")
    vector.reset()
    vector.step()
    with pytest.raises(EnvContractError, match=r"of environment 2 of _Faulty is .*99.* which is not in Box"):
        vector.step()


def test_arrays_that_the_environment_overwrites_later_do_no_harm() -> None:
    class Reusing(CartPoleArrayEnv):
        def allocate(self, n_envs: int) -> None:
            super().allocate(n_envs)
            self.seen = np.zeros((n_envs, 4), np.float32)
            self.paid = np.zeros(n_envs)

        def _observations(self) -> Any:
            self.seen[...] = super()._observations()[0]["observation"]
            return {0: {"observation": self.seen}}

        def step(self, actions: Any, which: Any) -> ArrayStep:
            result = super().step(actions, which)
            self.paid[...] = result.reward
            result.reward = self.paid
            return result

    one = partial(ArrayVectorEnv, Reusing, 6, seed=1)
    assert compare_envs(one, partial(ArrayVectorEnv, CartPoleArrayEnv, 6, seed=1), n_steps=600).difference is None


def test_refuses_kpis_that_are_not_declared_or_have_another_shape() -> None:
    class Undeclared(YardArrayEnv):
        kpi_names = ()

    class Wrong(YardArrayEnv):
        def kpis(self, which: Any) -> Any:
            return {"mean_haul": np.zeros(self.n_envs + 1)}

    for kind, message in ((Undeclared, "add it to kpi_names"), (Wrong, "return one number for each")):
        vector = ArrayVectorEnv(kind, 3)
        collector = Collector(vector, 20, torch.Generator())
        with pytest.raises(StatisticsError, match=message):
            collector.collect(_policy(vector.spec))


def test_warns_once_of_kpis_that_are_declared_but_not_returned() -> None:
    class Lacking(YardArrayEnv):
        kpi_names = ("mean_haul", "first", "last")

    vector = ArrayVectorEnv(Lacking, 3)
    collector = Collector(vector, 60, torch.Generator())
    message = r"Lacking declares the KPIs \['first', 'last'\] in kpi_names, but kpis did not return them: return num"
    with pytest.warns(MissingKpiWarning, match=message) as caught:
        summaries = collector.collect(_policy(vector.spec)).summaries
    assert len(caught) == 1 < len(summaries)


def test_kpis_of_arrays_have_the_order_in_which_they_are_declared() -> None:
    class Ordered(YardArrayEnv):
        kpi_names = ("first", "mean_haul", "last")

        def kpis(self, which: Any) -> Any:
            numbers = np.asarray(which, float)
            return {"last": numbers, **super().kpis(which), "first": -numbers}

    vector = ArrayVectorEnv(Ordered, 3)
    summaries = Collector(vector, 40, torch.Generator()).collect(_policy(vector.spec)).summaries
    assert summaries
    for summary in summaries:
        assert [name for name in summary.kpis if name != "mean_haul"] == ["first", "last"]
        assert summary.kpis["last"] == -summary.kpis["first"] == summary.env_index


def test_refuses_a_factory_of_something_else_and_no_environments() -> None:
    with pytest.raises(TypeError, match="which is not an ArrayEnv"):
        ArrayVectorEnv(lambda: GymMazeEnv("CartPole-v1"), 2)  # type: ignore[arg-type, return-value]
    with pytest.raises(ValueError, match="n_envs=0 must be at least 1"):
        ArrayVectorEnv(CartPoleArrayEnv, 0)


def test_sub_steps_without_environment_time_are_refused() -> None:
    class Timeless(YardArrayEnv):
        def _result(self) -> ArrayStep:
            result = super()._result()
            result.env_time = None
            return result

    vector = ArrayVectorEnv(Timeless, 2)
    vector.reset()
    with pytest.raises(EnvContractError, match="env_time is None; return env_time"):
        vector.step()


def test_an_environment_whose_time_stands_still_is_refused() -> None:
    class Still(YardArrayEnv):
        def _result(self) -> ArrayStep:
            result = super()._result()
            result.env_time = np.zeros(self.n_envs, np.int64)
            return result

        def step(self, actions: Any, which: Any) -> ArrayStep:
            result = super().step(actions, which)
            result.actor_rewards = None
            return result

    vector = ArrayVectorEnv(Still, 4)
    collector = Collector(vector, 200, torch.Generator())
    with pytest.raises(EnvContractError, match=r"environment time of Still did not advance in . episodes"):
        collector.collect(_policy(vector.spec))


def test_summaries_are_sorted_by_environment_and_episode_in_whatever_order_episodes_were_played() -> None:
    vector = ArrayVectorEnv(CartPoleArrayEnv, 3)
    for first in (70, 2, 40):
        vector.reset(np.arange(3), np.full(3, first))
        for _ in range(60):  # pushes to the left end an episode after about ten steps
            vector.staging.action[0]["action"][...] = 0
            vector.step()
    played = [(one.env_index, one.episode_index) for one in vector.drain_summaries()]
    assert played == sorted(played) and len(set(played)) == len(played)
    assert {2, 40, 70} <= {episode for env, episode in played if env == 1}

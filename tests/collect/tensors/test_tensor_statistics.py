"""Statistics of episodes on a device equal those of the same acts in arrays, across rollouts and checkpoints."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import Tensor

from maze_pl.collect.tensors import tensor_statistics
from maze_pl.collect.tensors.tensor_collector import TensorCollector
from maze_pl.collect.tensors.tensor_episodes import TensorEpisodes
from maze_pl.collect.tensors.tensor_statistics import RolloutRecord, TensorStatistics
from maze_pl.collect.tensors.tensor_vector import TensorVector
from maze_pl.core.batches import Rollout
from maze_pl.core.episode_batch import EpisodeBatch
from maze_pl.core.spec import Spec, StepSpec
from maze_pl.envs.arrays.array_statistics import ArrayStatistics
from maze_pl.envs.tensors import Outcome, TensorEnv
from maze_pl.envs.tensors.tensor_streams import environment_seeds, episode_seeds
from maze_pl.events import define_episode_stats, define_epoch_stats, define_stats_grouping, define_step_stats
from maze_pl.events.attribute_values import copied, plain
from maze_pl.events.topics import StatisticsError
from maze_pl.modules import PPO
from tests.envs.tensors.tensor_envs import ENVS
from tests.equality import assert_equal

N_ENVS, N_STEPS, FIRST = 6, 7, 10
CPU = torch.device("cpu")


class WalkEvents:
    """Events of a walk."""

    @define_epoch_stats(np.mean, input_name="sum", output_name="sum")
    @define_epoch_stats(max, input_name="most", output_name="most")
    @define_episode_stats(sum, input_name="sum", output_name="sum")
    @define_episode_stats(max, input_name="sum", output_name="most")
    @define_step_stats(sum, output_name="sum")
    def moved(self, value: float) -> None:
        """The walker moved."""

    @define_epoch_stats(np.mean, output_name="mean")
    @define_episode_stats(len)
    @define_step_stats(None, input_name="height")
    @define_stats_grouping("side", "kind")
    def passed(self, side: int, kind: str, height: float) -> None:
        """The walker passed something."""

    @define_epoch_stats(None, output_name="places")
    @define_episode_stats(None)
    @define_step_stats(None)
    def began(self, place: float) -> None:
        """An episode began."""

    @define_epoch_stats(np.mean)
    @define_episode_stats(sum)
    @define_step_stats(len)
    def flew(self) -> None:
        """Never happens."""


CHANGING: Mapping[str, tuple[Any, Any]] = {
    "number": (1.0, 2.0),
    "NaN": (1.0, np.nan),
    "integer of NumPy": (np.int64(3), np.int64(4)),
    "float of NumPy": (np.float32(1), np.float32(2)),
    "tuple": ((1,), (2,)),
    "dict": ({"at": np.arange(2)}, {"at": np.ones(2)}),
}
"""Values of an event in its first rows, and in later ones."""


class Walk(TensorEnv):
    """Walkers with two kinds of acts, whose events depend on the seed, on the environment and on the action.

    Attributes:
        wrong: A fault: "order" for other events each time, "numbers" for events without masks, "shape" for a
            short mask, or one of `_fire_wrong_values`.
    """

    def __init__(self, wrong: str = "", max_episode_steps: int | None = 5) -> None:
        super().__init__(max_episode_steps)
        self.wrong = wrong
        self.calls = itertools.count(1)  # whose number nothing sees, as one that changes would be refused
        self.walk: Any = self.create_event_topic(WalkEvents)

    @property
    def observation_spaces_dict(self) -> Mapping[Any, spaces.Dict]:
        space = spaces.Dict({"place": spaces.Box(-1e3, 1e3, (1,))})
        return {"step": space, "jump": space}

    @property
    def action_spaces_dict(self) -> Mapping[Any, spaces.Dict]:
        return {
            "step": spaces.Dict({"to": spaces.Box(-0.5, 0.5, (2,)), "speed": spaces.Discrete(3)}),
            "jump": spaces.Dict({"high": spaces.MultiBinary(2)}),
        }

    def make_tensors(self, n_envs: int) -> None:
        self.place = torch.zeros(n_envs, dtype=torch.float64, device=self.device)
        self.number = torch.arange(n_envs, device=self.device)

    def begin(self, which: Tensor, seeds: Tensor) -> None:
        self.place.copy_(torch.where(which, (seeds % 10).double(), self.place))
        self.walk.began(which & (seeds % 3 > 0), self.place)

    def observe(self, step_key: Any) -> dict[str, Tensor]:
        return {"place": self.place[:, None].float()}

    def act(self, step_key: Any, action: Mapping[str, Tensor]) -> Outcome:
        is_later = next(self.calls) > 4
        everyone = torch.ones_like(self.number, dtype=torch.bool)
        if step_key == "step":
            self.place.add_(action["to"].sum(1) * (1 + action["speed"]))
            self.walk.moved(self.place > 4, value=self.place)
            self.walk.moved(everyone, value=2.5)
            return Outcome(self.place)
        self.walk.passed(action["high"][:, 0] > 0, side=self.number % 2, kind="tree", height=self.place.float())
        self.walk.passed(self.place < 5, side=3, kind="bush", height=self.number)
        if self.wrong == "order" and is_later:
            self.walk.moved(everyone, value=1.0)
        if self.wrong == "numbers":
            self.walk.moved(self.number, value=1.0)
        if self.wrong == "shape":
            self.walk.moved(everyone[1:], value=1.0)
        self._fire_wrong_values(everyone, is_later)
        return Outcome(-self.place, self.place > 6)

    def _fire_wrong_values(self, everyone: Tensor, is_later: bool) -> None:
        """Fire an event with values that differ from those before, or have no place in a tensor."""
        if self.wrong == "values":
            self.walk.passed(everyone, 3, "bush", torch.stack([self.place] * 2, 1) if is_later else self.place)
        if self.wrong == "type":
            self.walk.passed(everyone, 3, "bush", self.place if is_later else self.number)
        if self.wrong in CHANGING:
            before, after = CHANGING[self.wrong]
            self.walk.passed(everyone, 3, "bush", after if is_later else before)
        if self.wrong == "kind":
            self.walk.passed(everyone, 3, "bush", 2.0 if is_later else self.place)
        if self.wrong == "tensor within":
            self.walk.passed(everyone, 3, "bush", {"at": (1, self.place)})
        if self.wrong == "array":
            self.walk.moved(everyone, np.arange(6.0))
        if self.wrong == "list":
            self.walk.moved(everyone, [1.0] * 6)


class CountingWalk(Walk):
    """A walk that also fires a number that counts for all environments, in a tensor of the state."""

    def make_tensors(self, n_envs: int) -> None:
        super().make_tensors(n_envs)
        self.n_acts = torch.zeros((), dtype=torch.int64, device=self.device)

    def act(self, step_key: Any, action: Mapping[str, Tensor]) -> Outcome:
        self.n_acts.add_(1)
        outcome = super().act(step_key, action)
        if step_key == "step":
            self.walk.moved(self.number > 2, value=self.n_acts)
            self.walk.passed(self.number < 2, side=self.n_acts % 3, kind="wall", height=self.n_acts)
        return outcome


class ShapedWalk(Walk):
    """A walk that also fires pairs and a text for an event that otherwise has a number."""

    def act(self, step_key: Any, action: Mapping[str, Tensor]) -> Outcome:
        if step_key == "step":
            self.walk.began(self.number > 3, torch.stack([self.place, -self.place], 1))
            self.walk.passed(self.number > 2, side=3, kind="bush", height="low")
        return super().act(step_key, action)


class Rising(Walk):
    """A walk with a KPI that is infinite in one environment."""

    @property
    def kpi_names(self) -> tuple[str, ...]:
        return ("height",)

    def kpi_tensors(self) -> dict[str, Tensor]:
        return {"height": torch.where(self.number == 4, torch.inf, self.place)}


Make = Callable[[], TensorEnv]
MAKERS: dict[str, Make] = {
    "walk": Walk,
    "walk without limit": partial(Walk, max_episode_steps=None),
    "walk with numbers for all": CountingWalk,
    "walk with values of several shapes": ShapedWalk,
    **ENVS,
}


def collector_of(make: Make, **options: Any) -> tuple[TensorCollector, Any]:
    """A collector with a policy for its environments."""
    spec = Spec.of(make())
    torch.manual_seed(0)
    records = options.pop("records", False)
    vector = TensorVector(make(), N_ENVS, spec, CPU, seed=3, first_env_index=FIRST, **options)
    return TensorCollector(vector, N_STEPS, torch.Generator().manual_seed(1), records), PPO(spec=spec).policy


def step_by_step(make: Make, rollouts: list[Rollout]) -> list[EpisodeBatch]:
    """Episodes of the rollouts, from their actions, by stepping environments in arrays."""
    env = make()
    env.allocate(N_ENVS)
    spec = Spec.of(make())
    statistics = ArrayStatistics(spec, N_ENVS, FIRST)
    first_seeds = environment_seeds(3, FIRST + torch.arange(N_ENVS))

    def begin(which: np.ndarray) -> None:
        seeds = episode_seeds(first_seeds, torch.from_numpy(statistics.episode)).numpy()
        env.reset(which, seeds[which])
        statistics.receive(env.array_events.drain())

    begin(np.arange(N_ENVS))
    batches = []
    for rollout in rollouts:
        for row in range(N_STEPS):
            for place, (key, step) in enumerate(spec.steps.items()):
                heads = {head: values[row].numpy() for head, values in rollout.segments[key].action.items()}
                for head, space in step.action_space.spaces.items():
                    if isinstance(space, spaces.Box):
                        heads[head] = heads[head].clip(space.low, space.high)
                statistics.note_actions(key, slice(None), heads)
                result = env.step({key: heads}, slice(None))
                statistics.receive(env.array_events.drain())
                advanced = np.full(N_ENVS, int(place == len(spec.steps) - 1))
                statistics.note_rewards(slice(None), result.reward.numpy(), advanced)
            ended = result.terminated.numpy().copy()
            if result.truncated is not None:
                ended |= result.truncated.numpy()
            which = np.flatnonzero(ended)
            kpis = {name: np.asarray(values) for name, values in env.kpis(which).items()}
            lengths = env.n_steps.numpy()[which]
            statistics.end_episodes(which, lengths, kpis, np.ones(len(which), np.bool_), {})
            statistics.episode[which] += 1
            if len(which):
                begin(which)
        batches.append(statistics.drain(env.array_events.topics))
    return batches


def assert_same(found: Any, expected: EpisodeBatch) -> None:
    """Numbers and statistics are equal; actions may have other dtypes."""
    found = found.fetched() if isinstance(found, TensorEpisodes) else found
    assert len(found) == len(expected)
    if not len(expected):
        return
    assert found.statistics.keys() == expected.statistics.keys()
    for name, column in expected.statistics.items():
        assert_equal(vars(found.statistics[name]), vars(column))
    assert_equal({**vars(found), "statistics": None}, {**vars(expected), "statistics": None})


@pytest.mark.parametrize("records", [False, True])
@pytest.mark.parametrize("name", MAKERS)
def test_they_are_those_of_the_same_acts_in_arrays(name: str, records: bool) -> None:
    collector, policy = collector_of(MAKERS[name], records=records)
    rollouts = [collector.collect(policy).clone() for _ in range(6)]
    for rollout, expected in zip(rollouts, step_by_step(MAKERS[name], rollouts), strict=True):
        assert_same(rollout.summaries, expected)
    assert sum(len(rollout.summaries) for rollout in rollouts) > N_ENVS
    names = {key[1] for rollout in rollouts for key in rollout.summaries.statistics}
    if name.startswith("walk"):
        assert names >= {"moved", "passed", "began", "flew", "action"}


def test_a_number_is_right_by_hand() -> None:
    collector, policy = collector_of(partial(Walk, max_episode_steps=3))
    rollout = collector.collect(policy)
    acts = rollout.segments["step"].action
    to = acts["to"].clamp(-0.5, 0.5).double().sum(2) * (1 + acts["speed"])
    first = int(episode_seeds(environment_seeds(3, FIRST + torch.arange(N_ENVS)), torch.zeros(N_ENVS).long())[2]) % 10
    places = first + to[:3, 2].cumsum(0)
    ends_after = 1 + next((step for step in range(3) if places[step] > 6), 2)
    expected = sum(2.5 + (float(place) if place > 4 else 0.0) for place in places[:ends_after])
    summary = next(one for one in rollout.summaries if one.env_index == FIRST + 2 and one.episode_index == 0)
    (key,) = [key for key in summary.statistics if key[1:3] == ("moved", "sum")]
    assert summary.statistics[key] == pytest.approx(expected)


@pytest.mark.parametrize("name", MAKERS)
def test_a_checkpoint_continues_episodes_with_their_events_and_actions(name: str) -> None:
    collector, policy = collector_of(MAKERS[name])
    collector.collect(policy)
    state = collector.state_dict()
    expected = [collector.collect(policy).summaries for _ in range(4)]
    other, _ = collector_of(MAKERS[name])
    other.start()  # is undone by loading
    other.load_state_dict(state)
    for one in expected:
        assert_same(other.collect(policy).summaries, one)


def test_only_groups_with_events_of_running_episodes_are_kept() -> None:
    collector, policy = collector_of(partial(Walk, max_episode_steps=1))
    for _ in range(3):
        collector.collect(policy)
        events = collector.state_dict()["statistics"]["events"]
        assert [saved["event"] for saved in events] == ["began"]


def test_a_checkpoint_without_statistics_continues_the_episodes() -> None:
    collector, policy = collector_of(Walk)
    collector.collect(policy)
    state = collector.state_dict()
    expected = collector.collect(policy).summaries
    del state["statistics"]
    other, _ = collector_of(Walk)
    other.load_state_dict(state)
    found = other.collect(policy).summaries
    assert np.array_equal(found.reward, expected.reward)
    assert np.array_equal(found.env_steps, expected.env_steps)


def test_a_checkpoint_with_events_that_are_not_declared_is_refused() -> None:
    collector, policy = collector_of(Walk)
    collector.collect(policy)
    state = collector.state_dict()
    state["statistics"]["events"][0]["event"] = "swam"
    other, _ = collector_of(Walk)
    with pytest.raises(ValueError, match=r"the event 'swam' of .*WalkEvents, which the environment does not declare"):
        other.load_state_dict(state)


def test_values_that_no_statistic_needs_are_dropped_from_a_checkpoint() -> None:
    collector, policy = collector_of(Walk)
    collector.collect(policy)
    state = collector.state_dict()
    expected = collector.collect(policy).summaries
    for saved in state["statistics"]["events"]:
        saved["columns"]["value of an earlier version"] = saved["columns"]["step"]
    other, _ = collector_of(Walk)
    other.load_state_dict(state)
    assert_same(other.collect(policy).summaries, expected)


def test_a_checkpoint_without_values_of_a_statistic_is_refused() -> None:
    collector, policy = collector_of(Walk)
    collector.collect(policy)
    state = collector.state_dict()
    (moved,) = (saved for saved in state["statistics"]["events"] if saved["event"] == "moved")
    del moved["columns"]["value value"]
    other, _ = collector_of(Walk)
    message = (
        r"the saved statistics of the event 'moved' of .*WalkEvents have no values of 'value'; resume with the code"
    )
    with pytest.raises(ValueError, match=message):
        other.load_state_dict(state)


def grouped(saved: dict[str, Any]) -> list[dict[str, Any]]:
    """The state of an event as earlier versions saved it, by groups."""
    columns, groups = saved["columns"], []
    for number, labels in enumerate(saved["labels"]):
        which = torch.as_tensor(columns["group"]) == number
        chosen = {name: values[which] for name, values in columns.items() if isinstance(values, Tensor)}
        values = {name.removeprefix("value "): part for name, part in chosen.items() if name.startswith("value ")}
        parts = {"env": chosen["run"], "step": chosen["step"], "values": values}
        groups.append({"topic": saved["topic"], "event": saved["event"], "labels": labels, **parts})
    return groups


def test_a_checkpoint_of_an_earlier_version_continues_episodes_with_their_events() -> None:
    collector, policy = collector_of(Walk)
    collector.collect(policy)
    state = collector.state_dict()
    expected = [collector.collect(policy).summaries for _ in range(3)]
    events = state["statistics"]["events"]
    state["statistics"]["events"] = [group for saved in events for group in grouped(saved)]
    assert len(state["statistics"]["events"]) > len(events)
    other, _ = collector_of(Walk)
    other.load_state_dict(state)
    for one in expected:
        assert_same(other.collect(policy).summaries, one)
    (moved,) = (group for group in state["statistics"]["events"] if group["event"] == "moved")
    del moved["values"]["value"]
    with pytest.raises(ValueError, match=r"the event 'moved' of .*WalkEvents have no values of 'value'"):
        other.load_state_dict(state)


def test_episodes_that_are_dropped_leave_nothing_to_those_that_begin_instead() -> None:
    collector, policy = collector_of(partial(Walk, max_episode_steps=50), n_same_starts=3)
    for _ in range(4):
        rollout = collector.collect(policy)
        for summary in rollout.summaries:
            counts = {key[2:]: value for key, value in summary.statistics.items() if key[1] == "action"}
            assert all(len(values) == summary.env_steps for values in counts.values())
            (key,) = [key for key in summary.statistics if key[1:3] == ("moved", "sum")]
            assert summary.statistics[key] >= 2.5 * summary.env_steps
            began = [value for key, value in summary.statistics.items() if key[1] == "began"]
            assert all(len(values) == 1 for values in began)


def record_of(number: int, *, is_valid: bool = True) -> RolloutRecord:
    """A rollout of two environments and three rows, in which only the first environment ends an episode."""
    ended = torch.tensor([[False, False], [True, False], [False, False]])
    numbers = {name: torch.full((3, 2), number) for name in ("env_steps", "episode_index")}
    numbers["reward"] = torch.zeros(3, 2, dtype=torch.float64)
    actions = {0: {"action": number * 10 + torch.arange(3)[:, None].expand(3, 2)}}

    def check() -> None:
        if not is_valid:
            raise ValueError("not valid")

    return RolloutRecord(ended, numbers, actions, [], [], False, check)


def statistics_of_two() -> TensorStatistics:
    step = StepSpec(spaces.Dict({"x": spaces.Box(0, 1)}), spaces.Dict({"action": spaces.Discrete(1000)}))
    return TensorStatistics(Spec({0: step}), 2, 0, [])


def test_rollouts_are_fetched_in_their_order_whichever_is_read_first() -> None:
    statistics = statistics_of_two()
    rollouts = [TensorEpisodes(record_of(number), statistics) for number in range(3)]
    for number in (2, 0, 1):
        (column,) = rollouts[number].fetched().statistics.values()
        assert column.values.tolist() == ([0, 1] if not number else [number * 10 - 8, number * 10, number * 10 + 1])


def test_a_number_for_all_stays_a_number_of_the_environment() -> None:
    collector, policy = collector_of(CountingWalk)
    collector.collect(policy)
    assert int(collector.env.n_acts) == 2 * N_STEPS  # type: ignore[attr-defined]


def test_infinite_kpis_are_refused_each_time_that_they_are_read() -> None:
    collector, policy = collector_of(partial(Rising, max_episode_steps=5))
    message = "KPI 'height' of environment 14 is infinite; return NaN where it has no value"
    with pytest.raises(StatisticsError, match=message):
        collector.collect(policy)
    with pytest.raises(StatisticsError, match=message):
        collector.state_dict()


def test_rollouts_stay_on_the_device_until_they_take_too_much_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    fetched: list[EpisodeBatch] = []
    statistics = statistics_of_two()
    assert record_of(0).n_bytes == 5 * 512, "small tensors take a block each"
    monkeypatch.setattr(tensor_statistics, "MOST_PENDING_BYTES", 300 * 5 * 512)
    for number in range(601):
        statistics.add(record_of(number), fetched.append)
        assert len(fetched) == number // 301 * 301 + (number % 301 == 300) * 301, "then all are fetched at once"
    statistics.state_dict()
    assert [batch.episode_index.tolist() for batch in fetched] == [[number] for number in range(601)]


def test_records_hold_counts_and_discrete_actions_in_small_types_and_episodes_do_not() -> None:
    collector, policy = collector_of(Walk)
    rollout = collector.collect(policy)
    record = collector._storage.record(collector._played, False, 0, "Walk")
    types = {name: tensor.dtype for name, tensor in record.numbers.items()}
    assert types == {"env_steps": torch.int32, "episode_index": torch.int64, "reward": torch.float64}
    assert record.actions["step"]["speed"].dtype == torch.int8
    assert record.actions["step"]["to"].dtype == torch.float32
    summaries = rollout.summaries.fetched() if isinstance(rollout.summaries, TensorEpisodes) else rollout.summaries
    assert (summaries.env_steps.dtype, summaries.episode_index.dtype) == (np.int64, np.int64)
    values = {key[3][1]: column.values.dtype for key, column in summaries.statistics.items() if key[1] == "action"}
    assert values == {"to": np.float32, "speed": np.int64, "high": np.int8}


def test_an_invalid_rollout_is_refused_each_time_that_it_is_read() -> None:
    statistics = statistics_of_two()
    episodes = TensorEpisodes(record_of(0, is_valid=False), statistics)
    for _ in range(2):
        with pytest.raises(ValueError, match="not valid"):
            episodes.fetched()


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (
            "order",
            r"an act of sub-step 'jump' fired the events WalkEvents.passed, WalkEvents.passed, WalkEvents.moved, but "
            "previously WalkEvents.passed, WalkEvents.passed; each time the same events must be fired",
        ),
        ("numbers", r"WalkEvents.moved was fired for torch.int64; expected a tensor \[N\] of bool"),
        (
            "shape",
            r"WalkEvents.moved was fired for a tensor of shape \(5,\) with N = 6; expected a tensor \[N\] of bool",
        ),
        ("values", r"height of WalkEvents.passed has shape \(6, 2\), but previously \(6,\)"),
        ("type", r"height of WalkEvents.passed has type torch.float64, but previously torch.int64"),
        ("number", r"height of WalkEvents.passed is 2.0, but was 1.0 before; give values that change as a tensor"),
        ("NaN", r"height of WalkEvents.passed is nan, but was 1.0 before"),
        ("integer of NumPy", r"height of WalkEvents.passed is 4, but was 3 before"),
        ("float of NumPy", r"height of WalkEvents.passed is 2.0, but was 1.0 before"),
        ("tuple", r"height of WalkEvents.passed is \(2,\), but was \(1,\) before"),
        ("dict", r"height of WalkEvents.passed is {'at': array.*1.*}, but was {'at': array.*0.*} before"),
        ("kind", r"height of WalkEvents.passed is 2.0, but was a tensor before; give values that change as a tensor"),
        (
            "array",
            r"value of WalkEvents.moved is an array of shape \(6,\) .*; expected a tensor \[N, ...\] or a single",
        ),
        ("tensor within", r"height of WalkEvents.passed is a dict with a tensor; expected a tensor \[N, ...\] or num"),
        ("list", r"value of WalkEvents.moved is a list of 6 values; expected a tensor \[N, ...\] or a single value"),
    ],
)
def test_events_that_cannot_be_stored_are_refused(wrong: str, message: str) -> None:
    collector, policy = collector_of(partial(Walk, wrong=wrong))
    with pytest.raises((ValueError, TypeError), match=message):
        collector.collect(policy)


SAME_VALUES: list[Any] = [
    *(np.float32(0.5), float("nan"), np.float64("nan"), None),
    *((1, (np.arange(2),)), ((np.array([np.nan]),), "same"), {"at": [np.arange(2), np.array("oak")]}),
]


@pytest.mark.parametrize("value", SAME_VALUES, ids=repr)
def test_single_values_that_are_equal_are_the_same(value: Any) -> None:
    class Same(Walk):
        def _fire_wrong_values(self, everyone: Tensor, is_later: bool) -> None:
            self.walk.passed(everyone, 3, "fence", copied(value))

    collector, policy = collector_of(Same)
    collector.collect(policy)
    events = collector._storage.record(collector._played, False, 0, "Same").acts
    heights = [event.attributes["height"] for event in events if event.attributes.get("kind") == "fence"]
    assert [repr(plain(height)) for height in heights] == [repr(plain(value))]

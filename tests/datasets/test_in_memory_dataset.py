from __future__ import annotations

import doctest
import re
import tracemalloc
from collections import deque
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, cast

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces

from maze_pl.core.batches import TrajectoryBatch
from maze_pl.core.spec import Spec, StepSpec
from maze_pl.datasets import (
    InMemoryDataset,
    in_memory_dataset,
    replay_recorded_actions_policy,
)
from maze_pl.datasets.dead_end_clipping_trajectory_processor import DeadEndClippingTrajectoryProcessor
from maze_pl.envs import GymMazeEnv, MazeEnv
from maze_pl.envs.cutting_2d import struct_env_factory
from maze_pl.envs.gym_action_conversion import GymActionConversion
from maze_pl.envs.gym_observation_conversion import GymObservationConversion
from maze_pl.envs.structured_env import StructuredEnv
from maze_pl.envs.trajectory_files import TrajectoryFiles
from maze_pl.envs.trajectory_record import StateTrajectoryRecord
from maze_pl.envs.wrappers import (
    ObservationNormalizationWrapper,
    ObservationStackWrapper,
    SpacesRecordingWrapper,
    TrajectoryRecordingWrapper,
)
from maze_pl.records.record_files import SpacesTrajectoryRecord
from maze_pl.runs.rollout import rollout
from tests.datasets.episodes_of_acts import Act, episode, flat, make_spec
from tests.envs.line import LineAction, LineCoreEnv, LineObservation, make_line_env


def everything(dataset: InMemoryDataset) -> TrajectoryBatch:
    return dataset.batch(torch.arange(len(dataset)))


def walks(*strides: list[int]) -> list[StateTrajectoryRecord]:
    """Episodes of the walker, each with these strides."""
    env = TrajectoryRecordingWrapper(make_line_env(goal=100), n_episodes=len(strides))
    for number, episode_strides in enumerate(strides):
        env.reset(seed=number)
        for stride in episode_strides:
            env.step({"stride": stride})
    env.close()
    return list(env.trajectories)


def save_walks(folder: Path, *strides: list[int]) -> list[Path]:
    paths = [folder / f"{number}.states" for number in range(len(strides))]
    for path, record in zip(paths, walks(*strides), strict=True):
        path.parent.mkdir(parents=True, exist_ok=True)
        record.save(path)
    return paths


# --------------------------------------------------------------------------------------------------- episodes in order


def test_batches_hold_the_acts_that_were_asked_for() -> None:
    dataset = InMemoryDataset([flat(3, 0), flat(2, 1)]).load()
    assert (len(dataset), dataset.n_episodes, dataset.spec) == (5, 2, make_spec(1))
    acts = dataset.batch(torch.tensor([4, 0, 0])).acts["a"]
    assert acts.observation["seen"].tolist() == [[1, 1], [0, 0], [0, 0]]
    assert acts.action["choice"].tolist() == [1, 0, 0]
    assert acts.agent_id.tolist() == [0, 0, 0]
    assert acts.next_observation is acts.reward is None


def test_every_sub_step_is_in_a_batch_even_if_it_has_no_acts_there() -> None:
    spec = make_spec(1, 2)
    records = [
        episode([Act("a", 0, 0), Act("b", 1, 0)], spec, number=0),
        episode([Act("b", 0, 0), Act("a", 0, 0), Act("b", 1, 0)], spec, number=1),
    ]
    dataset = InMemoryDataset(records).load()
    acts = everything(dataset).acts
    assert acts["a"].observation["seen"].tolist() == [[0, 0], [1, 1]]
    assert acts["b"].observation["seen"].tolist() == [[0, 1], [1, 0], [1, 2]]
    assert acts["b"].agent_id.tolist() == [1, 0, 1]
    batch = dataset.batch(torch.tensor([4, 2]))
    assert (list(batch.acts), len(batch), len(batch.acts["a"])) == (["a", "b"], 2, 0)
    assert batch.acts["b"].observation["seen"].tolist() == [[1, 2], [0, 1]]
    assert batch.acts["a"].observation["seen"].shape == (0, 2)


def test_a_batch_moves_to_a_device() -> None:
    batch = everything(InMemoryDataset(flat(2)).load()).to("meta")
    assert batch.acts["a"].observation["seen"].device.type == batch.acts["a"].agent_id.device.type == "meta"


def test_episodes_are_split_as_wholes_and_by_seed() -> None:
    spec = make_spec(1, 1)
    acts = [Act(key, 0, 0) for key in "ab"]
    dataset = InMemoryDataset([episode(acts, spec, number=number) for number in range(10)]).load()
    numbers = []
    for part in dataset.split(20, seed=1):
        seen = dataset.batch(part).acts
        assert torch.equal(seen["a"].observation["seen"][:, 0], seen["b"].observation["seen"][:, 0])
        numbers.append(set(seen["a"].observation["seen"][:, 0].int().tolist()))
    assert [len(part) for part in numbers] == [8, 2]
    assert numbers[0] | numbers[1] == set(range(10))
    held_out = [dataset.split(20, seed)[1].tolist() for seed in range(5)]
    assert held_out[1] == dataset.split(20, seed=1)[1].tolist() and len({*map(tuple, held_out)}) > 1


@pytest.mark.parametrize(("n_episodes", "percentage", "held_out"), [(10, 0, 0), (10, 1, 1), (10, 99, 9), (1, 20, 0)])
def test_a_split_leaves_at_least_one_episode_for_training(n_episodes: int, percentage: int, held_out: int) -> None:
    dataset = InMemoryDataset([flat(1, number) for number in range(n_episodes)]).load()
    assert [len(part) for part in dataset.split(percentage, 0)] == [n_episodes - held_out, held_out]


def test_a_processor_may_leave_nothing_of_an_episode_but_not_of_all() -> None:
    clip = DeadEndClippingTrajectoryProcessor(2)
    dataset = InMemoryDataset([flat(2, 0), flat(3, 1)], clip).load()
    assert everything(dataset).acts["a"].observation["seen"].tolist() == [[1, 0]]
    with pytest.raises(ValueError, match=r"episode 0, episode episode 1: there is no act to learn from"):
        InMemoryDataset([flat(2, 0), flat(2, 1)], clip).load()


# ---------------------------------------------------------------------------------------------------------- conversions


class DoubledObservation(LineObservation):
    def maze_to_space(self, maze_state: Any) -> dict[str, np.ndarray]:
        return {"place": 2 * super().maze_to_space(maze_state)["place"]}


def test_states_are_converted_by_the_conversions_of_today() -> None:
    def make() -> MazeEnv:
        return MazeEnv(LineCoreEnv(), {0: LineAction()}, {0: DoubledObservation()})

    dataset = InMemoryDataset(walks([0, 1, 1], [1])).load(make)
    acts = everything(dataset).acts[0]
    assert acts.observation["place"].tolist() == [[0], [2], [6], [0]]
    assert acts.action["stride"].tolist() == [0, 1, 1, 1]
    assert acts.action["stride"].dtype == torch.int64 and acts.observation["place"].dtype == torch.float32


def test_stacks_have_the_history_of_their_own_episode() -> None:
    def make() -> StructuredEnv:
        stack = {"observation": "place", "stack_steps": 3}
        return ObservationStackWrapper(make_line_env(), [stack])

    acts = everything(InMemoryDataset(walks([0, 1, 0], [1, 1])).load(make)).acts[0]
    stacks = acts.observation["place"][..., 0].tolist()
    assert stacks == [[0, 0, 0], [0, 0, 1], [0, 1, 3], [0, 0, 0], [0, 0, 2]]


def test_states_are_normalised_by_the_statistics_of_the_environment() -> None:
    def make() -> StructuredEnv:
        env = ObservationNormalizationWrapper(make_line_env())
        env.set_normalization_statistics({"place": {"mean": 1.0, "std": 2.0}})
        return env

    acts = everything(InMemoryDataset(walks([0, 1])).load(make)).acts[0]
    np.testing.assert_allclose(acts.observation["place"].numpy(), [[-0.5], [0.0]], atol=1e-6)


def cartpole_states() -> StateTrajectoryRecord:
    (trajectory,) = rollout(lambda: gymnasium.make("CartPole-v1"), record=("states",), max_steps=5)
    assert trajectory.states is not None
    return trajectory.states


@pytest.mark.parametrize("n_workers", [1, 2])
def test_states_are_converted_by_a_gymnasium_environment(n_workers: int) -> None:
    dataset = InMemoryDataset(cartpole_states(), n_workers=n_workers)
    assert dataset.load(lambda: gymnasium.make("CartPole-v1")).is_converted
    assert len(dataset) == 5


def test_an_environment_in_place_of_a_function_that_makes_it_is_refused() -> None:
    dataset = InMemoryDataset(cartpole_states())
    env: Any = gymnasium.make("CartPole-v1")
    with pytest.raises(TypeError, match=r"^make_env=.*CartPole.* must be a function that makes an environment, such"):
        dataset.load(env)
    with pytest.raises(TypeError, match="returned None, which is not a gymnasium environment"):
        dataset.load(lambda: None)


def make_structured() -> StructuredEnv:
    return struct_env_factory(max_pieces_in_inventory=50, raw_piece_size=(20, 20), static_demand=(6, 4))


def test_states_become_what_all_sub_steps_of_a_structured_environment_saw() -> None:
    outside = SpacesRecordingWrapper(TrajectoryRecordingWrapper(make_structured(), n_episodes=2), n_episodes=2)
    generator = np.random.default_rng(0)
    for seed in range(2):
        outside.reset(seed=seed)
        for _ in range(20):
            outside.step({head: int(generator.integers(2)) for head in outside.action_space.spaces})
    outside.close()
    expected = InMemoryDataset(list(outside.trajectories)).load()
    states = list(outside.env.trajectories)  # type: ignore[attr-defined]
    assert len(states[0].steps) == 10, "a state for both sub-steps"
    converted = InMemoryDataset(states).load(make_structured)
    for key in (0, 1):
        one, other = (everything(dataset).acts[key] for dataset in (expected, converted))
        assert len(one) == 20
        for name, values in {**one.observation, **one.action}.items():
            assert torch.equal(values, {**other.observation, **other.action}[name]), name


def test_converted_episodes_say_how_they_ended() -> None:
    from maze_pl.datasets.state_conversion import converted

    record = walks([0, 1, 1])[0]
    env = make_line_env()
    spaces_record = converted(record, env, InMemoryDataset(record).load(make_line_env).spec)  # type: ignore[arg-type]
    assert (spaces_record.terminated, spaces_record.truncated, spaces_record.last_env_time) == (False, True, 3)
    assert spaces_record.last_actor == (0, 0)
    assert spaces_record.last_observation["place"].tolist() == [5]
    assert spaces_record.reward.tolist() == [1, 2, 2]


def test_states_need_an_environment() -> None:
    with pytest.raises(ValueError, match="holds states, which only an environment can convert: pass one"):
        InMemoryDataset(walks([0])).load()


# ---------------------------------------------------------------------------------------------------------------- files


def test_folders_are_read_with_all_that_is_in_them_in_the_order_of_names(tmp_path: Path) -> None:
    save_walks(tmp_path / "b", [1, 1])
    save_walks(tmp_path / "a" / "deep", [0], [0, 0, 0])
    (tmp_path / "a" / "notes.txt").write_text("not an episode")
    dataset = InMemoryDataset(tmp_path, trust=True, n_workers=1).load(make_line_env)
    assert everything(dataset).acts[0].action["stride"].tolist() == [0, 0, 0, 0, 1, 1]
    several = InMemoryDataset([tmp_path / "b", str(tmp_path / "a" / "deep" / "1.states")], trust=True, n_workers=1)
    assert everything(several.load(make_line_env)).acts[0].action["stride"].tolist() == [1, 1, 0, 0, 0]


def both_records(folder: Path, policy: str = "random", files: str | None = None) -> int:
    """What `maze-pl rollout` leaves: three episodes, each as states and as spaces; gives the number of acts."""
    kinds = {kind: TrajectoryFiles(str(folder / kind), files) for kind in ("states", "spaces")}
    played = rollout(
        lambda: GymMazeEnv("CartPole-v1"), policy, episodes=3, seed=5, max_steps=20, record=("states", "spaces")
    )
    for one in played:
        kinds["states"].write(cast(Any, one.states))
        kinds["spaces"].write(cast(Any, one.spaces))
    for writer in kinds.values():
        writer.close()
    return sum(one.summary.env_steps for one in played)


@pytest.mark.parametrize("files", [None, "episodes"])
def test_an_episode_that_is_there_as_states_and_as_spaces_is_read_once_and_safely(
    tmp_path: Path, files: str | None
) -> None:
    n_acts = both_records(tmp_path, files=files)
    for input_data in (tmp_path, [tmp_path / "states", tmp_path / "spaces"]):
        dataset = InMemoryDataset(input_data).load()
        assert (dataset.n_episodes, len(dataset)) == (3, n_acts)
        learned, held_out = (
            everything(dataset).acts[0].observation["observation"][part] for part in dataset.split(34, 0)
        )
        assert not {*map(tuple, learned.tolist())} & {*map(tuple, held_out.tolist())}


def test_records_of_both_kinds_in_one_folder_are_one_episode_each(tmp_path: Path) -> None:
    n_acts = both_records(tmp_path)
    for path in [*tmp_path.glob("s*/*.s*")]:
        path.rename(tmp_path / path.name)
    dataset = InMemoryDataset(tmp_path).load()
    assert (dataset.n_episodes, len(dataset)) == (3, n_acts)


def test_an_episode_that_comes_twice_is_there_once_however_its_files_are_called(tmp_path: Path) -> None:
    n_acts = both_records(tmp_path)
    for number, path in enumerate(sorted(tmp_path.glob("states/*"))):
        path.rename(tmp_path / f"{number}.states")
    with pytest.raises(ValueError, match=r"0\.states runs whatever code it holds"):  # which may be another episode
        InMemoryDataset(tmp_path).load()
    dataset = InMemoryDataset([tmp_path, tmp_path / "spaces"], trust=True, n_workers=1)
    dataset.load(lambda: GymMazeEnv("CartPole-v1"))
    assert (dataset.n_episodes, len(dataset)) == (3, n_acts)


def test_episodes_of_one_seed_that_were_played_by_two_policies_are_two(tmp_path: Path) -> None:
    n_acts = both_records(tmp_path / "random") + both_records(tmp_path / "heuristic", "heuristic")
    assert len({path.name for path in tmp_path.rglob("*.spaces")}) == 3, "they have the same ids"
    dataset = InMemoryDataset(tmp_path).load()
    assert (dataset.n_episodes, len(dataset)) == (6, n_acts)


def test_states_that_have_no_spaces_are_not_passed_over(tmp_path: Path) -> None:
    both_records(tmp_path / "both")
    (path,) = save_walks(tmp_path / "states", [0])
    with pytest.raises(ValueError, match=f"{path}.*trust"):
        InMemoryDataset(tmp_path).load()


def test_states_with_times_that_no_environment_has_are_refused() -> None:
    (record,) = walks([0, 1, 0])
    record.steps[1].env_time = 10**12
    with pytest.raises(ValueError, match=r"cannot convert.*environment times, 0 to 3, are not in ascending order"):
        InMemoryDataset(record).load(make_line_env)


def test_records_with_times_that_no_environment_has_are_refused() -> None:
    record = flat(3)
    record.env_time[1] = -4
    with pytest.raises(ValueError, match="environment times"):
        InMemoryDataset(record).load()


def masked_records(value: float) -> list[SpacesTrajectoryRecord]:
    """Two episodes, the second of which holds a number as a mask."""
    sees = spaces.Dict({"m": spaces.Box(-9, 9, (2,), np.float32)})
    spec = Spec({0: StepSpec(sees, spaces.Dict({"a": spaces.Discrete(2)}), masks={"a": "m"})})
    rest = {"terminated": True, "truncated": False, "last_env_time": 1, "last_actor": None, "last_observation": {}}
    return [
        SpacesTrajectoryRecord.of_acts(f"e{v}", spec, [(0, 0, 0, 1.0, False, {"m": [v, 1]}, {"a": 1})], **rest)
        for v in (0, value)
    ]


@pytest.mark.parametrize("value", [-1, 0.5, 2])
def test_masks_with_other_numbers_than_0_and_1_are_named(value: float) -> None:
    with pytest.raises(ValueError, match=rf"episode e{value}: the mask 'm' of action head 'a' holds \[{value}"):
        InMemoryDataset(masked_records(value)).load()
    with pytest.warns(UserWarning, match="skipped, 1 in all"):
        dataset = InMemoryDataset(masked_records(value), on_damaged="skip").load()
    assert dataset.n_episodes == 1
    assert InMemoryDataset(masked_records(1)).load().n_episodes == 2


def masked_episode(head: spaces.Space[Any], mask: list[int], *actions: Any) -> SpacesTrajectoryRecord:
    """An episode of some actions under the same mask."""
    sees = spaces.Dict({"m": spaces.MultiBinary(len(mask))})
    spec = Spec({"pick": StepSpec(sees, spaces.Dict({"a": head}), masks={"a": "m"})})
    acts = [("pick", 0, t, 1.0, False, {"m": mask}, {"a": action}) for t, action in enumerate(actions)]
    return SpacesTrajectoryRecord.of_acts("e", spec, acts, True, False, len(acts), None, {})


@pytest.mark.parametrize(
    ("head", "mask", "allowed", "forbidden"),
    [
        (spaces.Discrete(3), [1, 0, 1], [0, 2], 1),
        (spaces.Discrete(3, start=5), [1, 0, 1], [5, 7], 6),
        (spaces.Discrete(3, start=5, dtype=np.uint64), [1, 0, 1], [5, 7], 6),
        (spaces.MultiDiscrete([2, 3], dtype=np.uint64), [1, 0, 0, 1, 1], [[0, 1], [0, 2]], [0, 0]),
        (spaces.Discrete(3), [0, 0, 0], [0, 1, 2], None),  # all are equally likely then
        (spaces.MultiDiscrete([2, 3]), [1, 0, 0, 1, 1], [[0, 1], [0, 2]], [0, 0]),
        (spaces.MultiDiscrete([2, 3]), [0, 0, 0, 1, 1], [[0, 1], [1, 2]], [1, 0]),
        (spaces.MultiBinary(3), [1, 0, 1], [[1, 0, 0], [0, 0, 1]], [0, 1, 0]),
        (spaces.MultiBinary(3), [0, 0, 0], [[0, 0, 0]], [1, 0, 0]),
    ],
)
def test_actions_that_a_mask_forbids_are_refused(
    head: spaces.Space[Any], mask: list[int], allowed: list[Any], forbidden: Any, tmp_path: Path
) -> None:
    assert len(InMemoryDataset(masked_episode(head, mask, *allowed)).load()) == len(allowed)
    if forbidden is None:
        return
    path = tmp_path / "one.spaces"
    masked_episode(head, mask, *allowed, forbidden).save(path)
    came = re.escape(f"its action {forbidden} of head 'a' in act {len(allowed)} of sub-step 'pick'")
    with pytest.raises(ValueError, match=rf"one\.spaces, episode e: {came} is forbidden by the mask 'm'"):
        InMemoryDataset(path).load()
    with pytest.warns(UserWarning, match="skipped, 1 in all"):
        dataset = InMemoryDataset([masked_episode(head, mask, *allowed), path], on_damaged="skip").load()
    assert dataset.n_episodes == 1


@pytest.mark.parametrize("is_loaded", [False, True])
@pytest.mark.parametrize("max_memory", [0, 1])
def test_masks_that_only_the_data_module_names_are_compared_with_actions(is_loaded: bool, max_memory: int) -> None:
    records = []
    for name, actions in (("good", [0, 2, 0]), ("bad", [0, 1]), ("fine", [2])):
        record = masked_episode(spaces.Discrete(3), [1, 0, 1], *actions)
        (step,) = record.spec.steps.values()
        records.append(replace(record, episode_id=name, spec=Spec({"pick": replace(step, masks={})})))

    def dataset(on_damaged: Literal["refuse", "skip"], which: slice = slice(None)) -> InMemoryDataset:
        made = InMemoryDataset(records[which], on_damaged=on_damaged, max_memory=max_memory)
        return made.load() if is_loaded else made

    refusing = dataset("refuse")
    for _ in range(2):
        with pytest.raises(ValueError, match=r"^episode bad: its action 1 of head 'a' in act 1 .* the mask 'm'"):
            refusing.load(masks={"a": "m"})
    with pytest.warns(UserWarning, match="skipped, 1 in all: episode bad: "):
        kept = dataset("skip").load(masks={"a": "m"})
    assert kept.lengths.tolist() == [[3], [1]] and len(kept.load(masks={"a": "m"})) == 4
    assert kept.spec is not None and kept.spec.steps["pick"].masks == {}, "another data module need not name them"
    assert len(dataset("refuse", slice(0, 3, 2)).load(masks={"a": "m"})) == 4
    with pytest.raises(ValueError, match=r"\['b'\] fit no sub-step"):
        dataset("skip").load(masks={"b": "m"})


def records_against_masks() -> list[SpacesTrajectoryRecord]:
    """Episodes of an action that two masks allow, that "m" forbids, and that "n" forbids."""
    sees = spaces.Dict({"m": spaces.MultiBinary(2), "n": spaces.MultiBinary(2)})
    spec = Spec({0: StepSpec(sees, spaces.Dict({"a": spaces.Discrete(2), "b": spaces.Discrete(2)}))})
    records = []
    for name, first, second in (("good", 0, 0), ("against m", 1, 0), ("against n", 0, 1)):
        acts = [(0, 0, 0, 1.0, False, {"m": [1, 0], "n": [1, 0]}, {"a": first, "b": second})]
        records.append(SpacesTrajectoryRecord.of_acts(name, spec, acts, True, False, 1, None, {}))
    return records


def test_episodes_that_an_earlier_mask_forbids_stay_left_out_if_another_mask_is_added() -> None:
    dataset = InMemoryDataset(records_against_masks(), on_damaged="skip")
    with pytest.warns(UserWarning, match="skipped, 1 in all: episode against m"):
        assert dataset.load(masks={"a": "m"}).n_episodes == 2
    with pytest.warns(UserWarning, match=r"skipped, 2 in all: episode against m.*, episode against n"):
        assert dataset.load(masks={"b": "n"}).n_episodes == 1


def test_episodes_that_an_earlier_mask_forbids_stay_left_out_after_another_mask_was_refused() -> None:
    dataset = InMemoryDataset(records_against_masks()[1:], on_damaged="skip")
    with pytest.warns(UserWarning, match="skipped, 1 in all: episode against m"):
        dataset.load(masks={"a": "m"})
    for _ in range(2):
        with (
            pytest.warns(UserWarning, match="skipped, 2 in all"),
            pytest.raises(ValueError, match="there is no act to learn from"),
        ):
            dataset.load(masks={"b": "n"})
    with pytest.warns(UserWarning, match="skipped, 1 in all: episode against m"):
        assert len(dataset.load()) == 1


def test_files_that_may_run_code_are_only_read_if_they_are_trusted(tmp_path: Path) -> None:
    (path,) = save_walks(tmp_path, [0])
    with pytest.raises(ValueError, match=f"{path}.*trust"):
        InMemoryDataset(tmp_path).load(make_line_env)
    with pytest.raises(ValueError, match=f"{path}.*trust"):
        InMemoryDataset(tmp_path, on_damaged="skip").load(make_line_env)


@pytest.mark.parametrize("n_workers", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_damaged_files_are_named_and_refused_or_skipped(tmp_path: Path, n_workers: int) -> None:
    first, _, third = save_walks(tmp_path, [0], [1], [1, 1])
    first.write_bytes(first.read_bytes()[:-20])
    third.write_bytes(b"")
    with pytest.raises(ValueError, match=f"{first}.*on_damaged=skip"):
        InMemoryDataset(tmp_path, trust=True, n_workers=n_workers).load(make_line_env)
    dataset = InMemoryDataset(tmp_path, trust=True, n_workers=n_workers, on_damaged="skip")
    with pytest.warns(UserWarning, match=f"skipped, 2 in all: {first}.*, {third}"):
        dataset.load(make_line_env)
    assert everything(dataset).acts[0].action["stride"].tolist() == [1]
    assert [str(third) in message for message in dataset.damaged] == [False, True]


@pytest.mark.slow
def test_processes_give_the_same_episodes_in_the_same_order(tmp_path: Path) -> None:
    generator = np.random.default_rng(0)
    save_walks(tmp_path, *(generator.integers(2, size=length).tolist() for length in (5, 1, 9, 3, 2)))
    one, two = (InMemoryDataset(tmp_path, trust=True, n_workers=n).load(make_line_env) for n in (1, 2))
    assert torch.equal(everything(one).acts[0].action["stride"], everything(two).acts[0].action["stride"])
    assert torch.equal(everything(one).acts[0].observation["place"], everything(two).acts[0].observation["place"])


def test_there_must_be_something_to_read(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=f"there is no file or folder {tmp_path / 'none'}"):
        InMemoryDataset(tmp_path / "none").load()
    with pytest.raises(ValueError, match=f"the folder {tmp_path} holds no recorded episodes"):
        InMemoryDataset(str(tmp_path)).load()
    with pytest.raises(ValueError, match="there is no act to learn from"):
        InMemoryDataset([]).load()


@pytest.mark.parametrize("options", [{"on_damaged": "ignore"}, {"n_workers": -1}, {"max_memory": -1}])
def test_arguments_out_of_range_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=str(next(iter(options.values())))):
        InMemoryDataset([], **options)


@pytest.mark.parametrize(
    ("other", "message"),
    [
        (flat(2, 1, make_spec(1, size=5)), r"observation 'seen' of sub-step 'a' is Box\(0.0, 5.0.*that of .* is Box"),
        (episode([Act("b", 0, 0)], make_spec(1, 1), number=1), r"observation 'seen' of sub-step 'b' .* has only \[\]"),
    ],
)  # fmt: skip
def test_episodes_with_other_spaces_are_refused(other: SpacesTrajectoryRecord, message: str) -> None:
    with pytest.raises(ValueError, match=f"episode 1 does not fit: its {message}"):
        InMemoryDataset([flat(2, 0), other]).load()


@pytest.mark.parametrize(("what", "value"), [("action", 17), ("action", -1), ("observation", np.nan)])
def test_a_file_with_what_is_outside_of_its_space_is_named(
    what: str, value: float, tmp_path: Path, recwarn: pytest.WarningsRecorder
) -> None:
    record, other = (one.spaces for one in rollout(lambda: GymMazeEnv("CartPole-v1"), "random", 2))
    assert record is not None
    getattr(record, what)[0][what][1] = value
    record.save(tmp_path / "wrong.spaces")
    message = rf"wrong\.spaces, episode \S+: its {what} '{what}' of sub-step 0 holds a value that is not in"
    with pytest.raises(ValueError, match=message):
        InMemoryDataset(tmp_path).load()
    dataset = InMemoryDataset([str(tmp_path), other], on_damaged="skip").load()
    assert (dataset.n_episodes, len(dataset.damaged), len(recwarn)) == (1, 1, 1)


@pytest.mark.parametrize("max_memory", [0, 1])
@pytest.mark.parametrize("copies", ["a", "ab", "z", "az"])
def test_a_damaged_copy_does_not_take_the_intact_one_with_it(copies: str, max_memory: int, tmp_path: Path) -> None:
    good, other = flat(3, 0), flat(4, 1)
    good.save(tmp_path / "m.spaces")
    other.save(tmp_path / "n.spaces")
    good.observation["a"]["seen"][1] = np.nan
    for name in copies:  # read before or after the intact one
        good.save(tmp_path / f"{name}.spaces")
    dataset = InMemoryDataset(tmp_path, on_damaged="skip", max_memory=max_memory)
    n_damaged = copies.count("a") + copies.count("b")
    if n_damaged:
        with pytest.warns(UserWarning, match=f"skipped, {n_damaged} in all: .*a.spaces"):
            dataset.load()
    dataset.load()
    assert (dataset.n_episodes, len(dataset), len(dataset.damaged)) == (2, 7, n_damaged)
    seen = everything(dataset).acts["a"].observation["seen"].tolist()
    assert sorted(seen) == [[0, 0], [0, 1], [0, 2], [1, 0], [1, 1], [1, 2], [1, 3]]


def test_a_file_with_states_of_another_environment_is_named(tmp_path: Path) -> None:
    (path,) = save_walks(tmp_path, [1, 2])
    with pytest.raises(ValueError, match=r"0\.states holds states that the environment cannot convert: \w+Error"):
        InMemoryDataset(path, trust=True, on_damaged="skip").load(lambda: GymMazeEnv("CartPole-v1"))
    with pytest.raises(ValueError, match=r"0\.states holds states that the environment cannot convert: \w+Error"):
        InMemoryDataset(path, trust=True).load(lambda: GymMazeEnv("CartPole-v1"))


def test_equal_spaces_need_not_be_the_same_objects() -> None:
    dataset = InMemoryDataset([flat(2, 0, make_spec(1)), flat(2, 1, make_spec(1))])
    assert len(dataset.load()) == 4


# --------------------------------------------------------------------------------------------------------------- memory


@pytest.mark.slow
def test_large_data_is_in_files_that_leave_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    records = [flat(500, number) for number in range(200)]
    expected = everything(InMemoryDataset(records).load()).acts["a"]
    size = sum(values.nbytes for values in (expected.observation["seen"], expected.action["choice"], expected.agent_id))
    tracemalloc.start()
    dataset = InMemoryDataset(records, max_memory=size // 20).load()
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < size / 5
    assert not [*tmp_path.iterdir()]
    acts = everything(dataset).acts["a"]
    assert torch.equal(acts.observation["seen"], expected.observation["seen"])
    assert torch.equal(acts.action["choice"], expected.action["choice"])


def test_episodes_of_other_types_are_the_same_in_files() -> None:
    records = [flat(5, number) for number in range(6)]
    for record, seen, choice in zip(records[2:], "fdee", "hlbq", strict=True):
        record.observation["a"]["seen"] = record.observation["a"]["seen"].astype(seen)
        record.action["a"]["choice"] = record.action["a"]["choice"].astype(choice)
    whole = everything(InMemoryDataset(records).load()).acts["a"]
    assert whole.observation["seen"].tolist() == [[number, i] for number in range(6) for i in range(5)]
    for max_memory in (1, 200, 300, 500):  # files that end with each episode, or with several, or not with the last
        acts = everything(InMemoryDataset(records, max_memory=max_memory).load()).acts["a"]
        for name, one, other in (("seen", acts.observation, whole.observation), ("choice", acts.action, whole.action)):
            assert one[name].dtype == other[name].dtype
            assert torch.equal(one[name], other[name])


def test_a_sub_step_without_any_act_can_be_in_a_file() -> None:
    records = [episode([Act("a", 0, time) for time in range(5)], make_spec(1, 1))]
    acts = everything(InMemoryDataset(records, max_memory=1).load()).acts
    assert [len(part) for part in acts.values()] == [5, 0]
    assert acts["b"].observation["seen"].shape == (0, 2)


def test_other_processes_read_for_themselves() -> None:
    import pickle

    dataset = InMemoryDataset([flat(3)]).load()
    copy = pickle.loads(pickle.dumps(dataset))
    assert len(everything(copy.load()).acts["a"]) == 3 and copy.n_episodes == 1


# --------------------------------------------------------------------------------------------------------------- Minari


@pytest.mark.filterwarnings("ignore:`eval_env` is set to None", "ignore:env_spec is None")
@pytest.mark.parametrize(
    ("observation_space", "action_space"),
    [
        (spaces.Box(-1, 1, (2,)), spaces.Discrete(3, start=1)),
        (spaces.Discrete(4), spaces.Box(-1, 1, (2,))),
        (spaces.Dict({"near": spaces.Box(0, 1, (2,)), "far": spaces.Discrete(3)}), spaces.Box(-1, 1, (1,), np.float64)),
    ],
)
def test_data_sets_of_minari_are_episodes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, observation_space: Any, action_space: Any
) -> None:
    minari = pytest.importorskip("minari")
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path))

    def joined(values: list[Any]) -> Any:
        return (
            {key: np.stack([one[key] for one in values]) for key in values[0]}
            if isinstance(values[0], dict)
            else values
        )

    buffers, seen, done = [], list[Any](), list[Any]()
    for number, length in enumerate((3, 2)):
        observations = [observation_space.sample() for _ in range(length + 1)]
        actions = [action_space.sample() for _ in range(length)]
        ends = [False] * (length - 1)
        outcome = {"terminations": [*ends, number == 0], "truncations": [*ends, number == 1], "infos": {}}
        rewards = [1.0] * length
        buffers.append(
            minari.data_collector.EpisodeBuffer(
                id=number, observations=joined(observations), actions=np.stack(actions), rewards=rewards, **outcome
            )
        )
        seen += observations[:-1]
        done += actions
    minari.create_dataset_from_buffers(
        *("test/walk-v0", buffers),
        observation_space=observation_space,
        action_space=action_space,
        data_format="arrow",
        **{name: "x" for name in ("author", "author_email", "code_permalink", "algorithm_name", "description")},
    )
    dataset = InMemoryDataset("minari:test/walk-v0").load()
    sees, acts = GymObservationConversion(observation_space), GymActionConversion(action_space)
    assert (dataset.n_episodes, len(dataset)) == (2, 5)
    assert dataset.spec == Spec({0: StepSpec(sees.space(), acts.space())})
    batch = everything(dataset).acts[0]
    for name, values in batch.observation.items():
        np.testing.assert_array_equal(values.numpy(), np.stack([sees.maze_to_space(one)[name] for one in seen]))
    np.testing.assert_array_equal(batch.action["action"].numpy(), np.stack(done))


def test_data_sets_that_minari_does_not_have_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("minari")
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path))
    with pytest.raises(ValueError, match=r"no data set 'test/none-v0'"):
        InMemoryDataset("minari:test/none-v0").load()


def test_examples() -> None:
    assert doctest.testmod(in_memory_dataset).failed == 0
    assert doctest.testmod(replay_recorded_actions_policy).failed == 0


# -------------------------------------------------------------------------------------------------- parts of episodes


def cut(record: SpacesTrajectoryRecord, acts: list[Act], n_acts: int, number: int) -> SpacesTrajectoryRecord:
    """The first acts of an episode, as they are recorded when a run is interrupted."""
    part = episode(acts[:n_acts], record.spec, number=number, terminated=False)
    part.episode_id = record.episode_id
    return part


@pytest.mark.parametrize("max_memory", [0, 100])
def test_parts_of_episodes_that_resumed_runs_continued_are_left_out(max_memory: int) -> None:
    spec = make_spec(1, 2)
    acts = [Act(key, agent, time) for time in range(5) for key, agent in (("a", 0), ("b", 0), ("b", 1))]
    wholes = [episode(acts, spec, number=number) for number in range(300)]
    records = list(wholes)
    records.insert(2, cut(wholes[2], acts, 7, 2))
    records.append(cut(wholes[9], acts, 1, 9))
    different = cut(wholes[4], acts, 4, 4)
    different.action["b"]["choice"][1] += 1  # another policy
    records.insert(200, different)
    found = InMemoryDataset(records, max_memory=max_memory).load()
    expected = InMemoryDataset([*wholes[:199], different, *wholes[199:]]).load()
    assert found.n_episodes == expected.n_episodes == 301
    np.testing.assert_array_equal(found.lengths, expected.lengths)
    for key in "ab":
        one, other = (everything(dataset).acts[key] for dataset in (found, expected))
        assert torch.equal(one.observation["seen"], other.observation["seen"])
        assert torch.equal(one.action["choice"], other.action["choice"])
        assert torch.equal(one.agent_id, other.agent_id)


def test_any_sequence_of_records_is_read_and_other_objects_are_refused() -> None:
    records = [flat(3, number) for number in range(2)]
    for several in (tuple(records), deque(records), iter(records)):
        assert len(InMemoryDataset(several).load()) == 6  # type: ignore[arg-type]
    played = rollout(lambda: GymMazeEnv("CartPole-v1"), "random", 2)
    for wrong in (played, played[0], [1]):
        with pytest.raises(
            TypeError, match=r"is not a recorded episode; pass files or records, such as \[episode\.spaces"
        ):
            InMemoryDataset(wrong).load()  # type: ignore[arg-type]


def test_messages_name_only_some_of_many_episodes() -> None:
    dataset = InMemoryDataset([flat(2, number) for number in range(1000)]).load()
    with pytest.raises(ValueError, match=r"and 997 more does not fit: its observation") as found:
        dataset.load(spec=Spec.of(GymMazeEnv("CartPole-v1")))
    assert len(str(found.value)) < 500


def test_a_data_set_is_shown_with_its_size() -> None:
    dataset = InMemoryDataset(["a.spaces", "b.spaces"])
    assert repr(dataset) == "InMemoryDataset(a.spaces, b.spaces: not loaded)"
    dataset = InMemoryDataset([flat(3, 0), flat(2, 1)]).load()
    assert repr(dataset).endswith(": 2 episodes, 5 acts)")

"""Statistics of normalised observations: those of the recordings, and those of the agent."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from maze_pl.__main__ import main
from maze_pl.core.spec import Spec
from maze_pl.datamodules import RolloutDataModule
from maze_pl.envs import GymMazeEnv
from maze_pl.envs.wrappers import (
    ObservationNormalizationWrapper,
    ReturnNormalizationRewardWrapper,
    RunningObservationNormalizationWrapper,
)
from maze_pl.estimation.recorded_acts import read_acts
from maze_pl.runs.observation_units import (
    Recorder,
    are_equal,
    doubts_of_observations,
    observation_statistics,
    recorder_at,
    recorder_of,
)
from maze_pl.runs.rollout import rollout
from tests.runs import recording_runs
from tests.runs.recording_runs import ShiftedObservation, ShiftedReward, write_checkpoint, write_rollout

RUNNING = RunningObservationNormalizationWrapper
NAME = f"{RUNNING.__module__}.{RUNNING.__qualname__}"
CART = partial(GymMazeEnv, "CartPole-v1")


def statistics_of(folder: Path, *wrappers: Any, seed: int = 0) -> dict[str, Any] | None:
    """Statistics of a run that has these wrappers, as its checkpoint tells them."""
    data = RolloutDataModule(env=CART, wrappers=list(wrappers), seed=seed, n_normalization_samples=20)
    file = folder / "-".join([str(seed), *(wrapper.__name__ for wrapper in wrappers)]) / "checkpoints" / "best.ckpt"
    return observation_statistics(write_checkpoint(file, data.wrapper_statistics()), trust=False)


@pytest.mark.parametrize("kind", [RUNNING, ObservationNormalizationWrapper])
def test_other_statistics_than_those_of_the_recording_run_are_warned_of(kind: Any, tmp_path: Path) -> None:
    def doubts(agent: Any, recorder: Any) -> list[str]:
        return doubts_of_observations(agent, [Recorder("the run old", recorder)])

    agent = statistics_of(tmp_path, kind, ReturnNormalizationRewardWrapper)
    assert doubts(agent, statistics_of(tmp_path, kind)) == []
    found = f"the statistics of {kind.__name__} are not the same in the run old and the agent's run: record states"
    without = statistics_of(tmp_path)
    for one, other in ((agent, statistics_of(tmp_path, kind, seed=1)), (agent, without), (without, agent)):
        (doubt,) = doubts(one, other)
        assert found in doubt
    assert doubts(without, statistics_of(tmp_path, ReturnNormalizationRewardWrapper)) == []


def test_an_unknown_recorder_is_warned_of_only_if_the_agent_has_statistics() -> None:
    unknown = [None, Recorder("", None, "best.ckpt has changed"), None]
    plain, changed = doubts_of_observations({NAME: {"n": 1}}, unknown)
    condition = f"unless they were normalised by the statistics of the agent's {RUNNING.__name__}, record states"
    assert condition in plain
    assert f"that were recorded, and best.ckpt has changed: {condition}" in changed
    assert doubts_of_observations({}, unknown) == []


def test_only_wrappers_whose_statistics_differ_are_named() -> None:
    def of(mean: float) -> dict[str, Any]:
        return {"some.First": {"n": 3}, "some.Second (1 of 2)": {"mean": mean}, "some.Second (2 of 2)": {"mean": mean}}

    recorders = [Recorder(name, of(mean)) for name, mean in (("A", 0.0), ("B", 1.0), ("C", 2.0), ("C", 3.0))]
    first, second = doubts_of_observations(of(0.0), recorders)
    assert "the statistics of Second are not the same in B and the agent's run" in first
    assert "the statistics of Second are not the same in C and the agent's run" in second


def test_classes_of_other_packages_count_unless_they_are_trusted_and_leave_observations(tmp_path: Path) -> None:
    names = [f"{recording_runs.__name__}.{kind.__name__}" for kind in (ShiftedObservation, ShiftedReward)]
    names += ["nowhere.Wrapper", f"{ReturnNormalizationRewardWrapper.__module__}.ReturnNormalizationRewardWrapper"]
    file = write_checkpoint(tmp_path / "run/checkpoints/best.ckpt", {name: {"n": np.ones(1)} for name in names})
    assert list(observation_statistics(file, trust=False) or ()) == names[:3]
    assert list(observation_statistics(file, trust=True) or ()) == [names[0], names[2]]


NORMALIZATION = "maze_pl.envs.wrappers.ObservationNormalizationWrapper"
IN_STATE = f"{ObservationNormalizationWrapper.__module__}.ObservationNormalizationWrapper"


def test_statistics_that_the_configuration_states_count_like_estimated_ones(tmp_path: Path) -> None:
    def statistics(estimated: dict[str, Any], *wrappers: dict[str, Any]) -> Any:
        nodes = [{"class_path": NORMALIZATION, "init_args": arguments} for arguments in wrappers]
        file = tmp_path / "run/checkpoints/best.ckpt"
        return observation_statistics(write_checkpoint(file, estimated, wrappers=nodes), trust=False)

    level = {"mean": [0.5, 1.0], "std": [1.0, 2.0]}
    stated = statistics({}, {"manual_config": {"level": {"statistics": level}, "zone": {"strategy": "x"}}})
    estimated = statistics({IN_STATE: {"level": {name: np.array(value) for name, value in level.items()}}}, {})
    other = statistics({}, {"default_statistics": {"mean": 3.0, "std": 1.0}, "manual_config": None})
    assert stated == {IN_STATE: {"level": level}} and other[IN_STATE]["default_statistics"]["mean"] == 3.0
    assert doubts_of_observations(stated, [Recorder("old", estimated)]) == []
    for recorder in (Recorder("old", other), Recorder("old", {})):
        (doubt,) = doubts_of_observations(stated, [recorder])
        assert "the statistics of ObservationNormalizationWrapper are not the same in old and the agent's run" in doubt
    (doubt,) = doubts_of_observations(other, [None])
    assert "unless they were normalised by the statistics of the agent's ObservationNormalizationWrapper" in doubt
    second = statistics({f"{IN_STATE} (1 of 2)": {"zone": {"mean": 1.0}}}, {}, {"default_statistics": {"mean": 2.0}})
    assert list(second) == [f"{IN_STATE} (1 of 2)", f"{IN_STATE} (2 of 2)"]


@pytest.mark.parametrize(
    ("one", "other", "are_alike"),
    [
        ({"default_statistics": 2.0}, {"level": 2.0, "zone": 2.0}, True),
        ({"default_statistics": 2.0, "level": 3.0}, {"level": 3.0, "zone": 2.0}, True),
        ({"default_statistics": 2.0}, {"default_statistics": 2.0, "level": 2.0}, True),
        ({"default_statistics": 2.0}, {"level": 2.0, "zone": 3.0}, False),
        ({"default_statistics": 2.0}, {"default_statistics": 3.0}, False),
        ({"default_statistics": 2.0, "level": 3.0}, {"default_statistics": 3.0, "level": 3.0}, False),
        ({"default_statistics": 2.0}, {}, False),
        ({"level": 2.0}, {"level": 2.0, "zone": 2.0}, False),
        ({"default_statistics": 2.0, "level": 3.0}, {"level": 3.0, "zone": None}, False),
        ({"default_statistics": 2.0, "zone": None}, {"level": 2.0, "zone": None}, True),
        ({"default_statistics": 2.0, "zone": None}, {"default_statistics": 2.0}, False),
        ({"level": 2.0}, {"level": 2.0, "zone": None}, True),
    ],
)
def test_statistics_of_all_other_observations_stand_for_those_that_another_run_names(
    one: dict[str, Any], other: dict[str, Any], are_alike: bool
) -> None:
    agent, recorder = ({IN_STATE: statistics_by_name(means)} for means in (one, other))
    assert (doubts_of_observations(agent, [Recorder("old", recorder)]) == []) is are_alike
    assert (doubts_of_observations(recorder, [Recorder("old", agent)]) == []) is are_alike


def statistics_by_name(means: dict[str, Any]) -> dict[str, Any]:
    """Statistics of observations with these means; None for observations that are excluded."""
    return {name: None if mean is None else {"mean": mean} for name, mean in means.items()}


def test_observations_that_a_configuration_excludes_are_not_normalised(tmp_path: Path) -> None:
    def statistics(estimated: dict[str, Any], **arguments: Any) -> Any:
        node = {"class_path": NORMALIZATION, "init_args": arguments}
        file = tmp_path / "run/checkpoints/best.ckpt"
        return observation_statistics(write_checkpoint(file, estimated, wrappers=[node]), trust=False)

    level = {"mean": 3.0, "std": 1.0}
    recorder = Recorder("old", statistics({IN_STATE: {"level": level}}, exclude=["zone"]))
    assert recorder.statistics == {IN_STATE: {"level": level, "zone": None}}
    assert statistics({}, exclude=["zone", "level"]) == statistics({}, exclude="zone") == {}
    others: dict[str, Any] = {"default_statistics": {"mean": 2.0, "std": 1.0}}
    others["manual_config"] = {"level": {"statistics": level}}
    (doubt,) = doubts_of_observations(statistics({}, **others), [recorder])
    assert "the statistics of ObservationNormalizationWrapper are not the same in old and the agent's run" in doubt
    assert doubts_of_observations(statistics({}, **others, exclude=["zone"]), [recorder]) == []


def test_other_parts_of_a_configuration_state_no_statistics(tmp_path: Path) -> None:
    foreign = {"class_path": "nowhere.Wrapper", "init_args": {"manual_config": "a file"}}
    file = tmp_path / "run/checkpoints/best.ckpt"
    wrappers = [foreign, {"class_path": "maze_pl.run_context.given.anything"}, "nowhere.Wrapper"]
    assert observation_statistics(write_checkpoint(file, {}, wrappers=wrappers), trust=False) == {}
    assert observation_statistics(write_checkpoint(file, {}, wrappers=None), trust=False) == {}


def test_the_recording_checkpoint_is_found_by_its_digest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def statistics(n: float) -> dict[str, Any]:
        return {NAME: {"n": np.full(1, n)}}

    def recorded(files: Path) -> Any:
        recorder = recorder_of(files, trust=False)
        assert recorder is not None and recorder.statistics is not None
        return recorder.statistics[NAME]["n"].item()

    monkeypatch.chdir(tmp_path)
    best = write_checkpoint(Path("run/checkpoints/best.ckpt"), statistics(1.0))
    last = write_checkpoint(Path("run/checkpoints/last.ckpt"), statistics(2.0))
    inside = write_rollout(Path("run/rollouts/one"), played_by=best, run="gone", checkpoint="best")
    outside = write_rollout(Path("played"), played_by=last, run="run", checkpoint="last")
    assert (recorded(inside), recorded(outside)) == (1.0, 2.0)
    Path("run").rename("moved")
    assert recorded(Path("moved/rollouts/one/trajectories/spaces")) == 1.0
    assert recorder_of(outside, trust=False) is None
    Path("moved").rename("run")
    best.rename(last)
    write_checkpoint(best, statistics(3.0))  # by a run that has trained on
    assert recorded(inside) == 1.0
    recorder = recorder_of(outside, trust=False)
    assert recorder is not None and recorder.statistics is None
    assert recorder.fault.startswith("run/checkpoints/last.ckpt is not the checkpoint that played the episodes in")


def test_a_copy_of_the_recording_checkpoint_stands_for_one_that_has_changed(tmp_path: Path) -> None:
    best = write_checkpoint(tmp_path / "run/checkpoints/best.ckpt", {NAME: {"n": np.ones(1)}})
    files = write_rollout(tmp_path / "run/rollouts/one", played_by=best)
    copy = best.rename(tmp_path / "copy.ckpt")
    write_checkpoint(best, {NAME: {"n": np.zeros(1)}})
    found = [recorder_of(files, trust=False, candidate=candidate) for candidate in (copy, best, None)]
    assert found[0] is not None and found[0].name == f"the recording checkpoint {copy}"
    assert [one is not None and one.statistics is not None for one in found] == [True, False, False]


def test_the_observations_of_a_run_without_an_environment_are_unknown(tmp_path: Path) -> None:
    file = write_checkpoint(tmp_path / "run/checkpoints/best.ckpt", {}, env=None, wrappers=[])
    recorder = recorder_at("the run clone", file, trust=False)
    assert recorder.statistics is None
    (doubt,) = doubts_of_observations({NAME: {"n": 1}}, [recorder])
    assert "recorded, and the run clone was trained without an environment: unless they were normalised" in doubt


def test_recordings_without_a_run_have_no_recorder(tmp_path: Path) -> None:
    assert recorder_of(None, trust=False) is None
    assert recorder_of(tmp_path, trust=False) is None
    files = write_rollout(tmp_path / "played", policy="random")
    assert recorder_of(files, trust=False) is None
    (tmp_path / "played" / "config.yaml").write_text("[broken")
    recorder = recorder_of(files, trust=False)
    assert recorder is not None and recorder.statistics is None and "config.yaml cannot be read" in recorder.fault


@pytest.mark.slow
def test_the_configuration_of_a_rollout_tells_its_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    fit = ["fit", "--config", "ppo_auto", "--trainer.max_epochs", "1", "--data.epoch_length", "1"]
    assert main([*fit, "--run_dir", "run", "--data.evaluators", "{}"]) == 0
    assert main(["rollout", "run", "--n_episodes", "2", "--trajectories", "spaces", "--output_dir", "played"]) == 0
    recorder = recorder_of(next(Path("played").rglob("*.spaces")).parent, trust=False)
    assert recorder is not None
    assert recorder.name == "the recording checkpoint run/checkpoints/last.ckpt"
    trained = observation_statistics("run", trust=False)
    assert trained is not None and list(trained) == [NAME]
    assert doubts_of_observations(trained, [recorder]) == []


def test_statistics_are_compared_in_all_their_parts() -> None:
    first = {"a": {"mean": np.zeros(2), "n": 3}}
    assert are_equal(first, {"a": {"mean": [0.0, 0.0], "n": 3.0}})
    assert not are_equal(first, {"a": {"mean": [0.0, 1.0], "n": 3}})
    assert not are_equal(first, {"b": first["a"]})
    assert not are_equal(first, {"a": {"mean": np.zeros(3), "n": 3}})


@pytest.mark.parametrize("form", ["spaces", "states"])
def test_acts_tell_if_their_observations_are_those_of_the_recording(form: str, tmp_path: Path) -> None:
    (played,) = rollout(CART, "random", max_steps=3, record=(form,))
    record: Any = getattr(played, form)
    acts = read_acts([record], Spec.of(CART()), CART, trust=True)
    assert acts.space_folders == ((None,) if form == "spaces" else ())

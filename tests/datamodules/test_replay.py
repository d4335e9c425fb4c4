from __future__ import annotations

import errno
import hashlib
import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import pytorch_lightning as pl
import torch
from gymnasium import spaces

from maze_pl.collect.engines import ProcessEngine
from maze_pl.core.batches import ReplayBatch
from maze_pl.core.policy import PolicyBatch, PolicyStep, RandomPolicy
from maze_pl.core.training_data import DataRequirements
from maze_pl.datamodules import ReplayDataModule
from maze_pl.datasets import InMemoryDataset
from maze_pl.datasets.dead_end_clipping_trajectory_processor import DeadEndClippingTrajectoryProcessor
from maze_pl.datasets.identity_with_next_observation_trajectory_processor import (
    IdentityWithNextObservationTrajectoryProcessor,
)
from maze_pl.runs.rollout import rollout
from maze_pl.schedules import Linear
from tests.bad_input.project import disk_full_at
from tests.datamodules.counter import Counter
from tests.datamodules.drift import Drift, Log, Moody

# Lightning asks back where there are no evaluators.
pytestmark = pytest.mark.filterwarnings("ignore:Total length of `list` across ranks is zero")

GAMMA = 0.9


class Learner(pl.LightningModule):
    """Acts by numbers from 100 on, which grow with each update; keeps its batches."""

    def __init__(self, gamma: float = GAMMA) -> None:
        super().__init__()
        self.automatic_optimization = False
        self.policy, self.gamma = Counter(), gamma
        torch.nn.init.constant_(self.policy.weight, 100)
        self.batches: list[ReplayBatch] = []

    def data_requirements(self) -> DataRequirements:
        return DataRequirements(gamma=self.gamma)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.policy.parameters(), lr=1.0)

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        raise AssertionError("there is no evaluation")

    def training_step(self, batch: ReplayBatch, batch_idx: int) -> None:
        self.batches.append(batch)
        if batch.reprioritise is not None:
            batch.reprioritise({key: acts.reward for key, acts in batch.acts.items()})
        self.policy.weight.grad = -torch.ones(())
        self.optimizers().step()


def make_data(env: Any = Drift, **options: Any) -> ReplayDataModule:
    given = {"initial_buffer_size": 20, "batch_size": 8, "replay_buffer_size": 1000, "epoch_length": 2, "seed": 3}
    return ReplayDataModule(env, **{**given, "evaluators": {}, **options})


def fit(
    data: ReplayDataModule, epochs: int = 1, ckpt_path: Any = None, save: Path | None = None, module: Any = None
) -> Any:
    module = module or Learner()
    trainer = pl.Trainer(
        max_epochs=epochs,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        accelerator="cpu",
        devices=1,
        num_sanity_val_steps=0,
        default_root_dir=save and save.parent,
    )
    trainer.fit(module, data, ckpt_path=ckpt_path, weights_only=True)
    if save is not None:
        trainer.save_checkpoint(save)
    return module


def tensors(batches: list[ReplayBatch]) -> list[torch.Tensor]:
    return [tensor for batch in batches for acts in batch.acts.values() for tensor in acts.tensors()]


def same(ours: list[ReplayBatch], theirs: list[ReplayBatch]) -> bool:
    mine, others = tensors(ours), tensors(theirs)
    return len(mine) == len(others) > 0 and all(map(torch.equal, mine, others))


# ------------------------------------------------------------------------------------------------------------- batches


def test_the_first_batch_comes_after_the_other_policy_and_counts_what_it_did() -> None:
    log = Log()
    data = make_data(partial(Drift, log), num_actors=2, n_rollout_steps=3, rollouts_per_iteration=2)
    first, second = fit(data).batches
    assert (first.env_steps, second.env_steps) == (24 + 12, 12), "24: the first number of steps that is not below 20"
    assert (first.measures, second.measures) == ({"buffer_size": 36}, {"buffer_size": 48})
    played = [episode for env in log.rewards for episode in env]
    steps = sum(len(episode) for episode in played)
    assert steps == 48
    own = [reward for episode in played for reward in episode if reward > 50]
    assert len(own) == 24, "random actions come from a standard normal distribution"
    ended = sum(len(env) for env in log.rewards) - 2
    assert len(first.summaries) + len(second.summaries) >= ended - 2 > 4
    assert first.seconds > 0 and first.reprioritise is None


def test_what_is_drawn_has_happened() -> None:
    (batch, _) = fit(make_data(num_batches_per_iter=5, batch_size=16)).batches
    acts = batch.acts[0]
    seen, following = acts.observation["observation"], acts.next_observation["observation"]
    assert seen.shape == (5, 16, 2) and acts.reward.shape == (5, 16)
    ends = seen[..., 1] == 2 + (4 * seen[..., 0]).int()
    assert ends.any() and torch.equal(acts.discount, torch.where(ends, 0.0, GAMMA))
    assert torch.equal(following, torch.where(ends[..., None], seen, seen + torch.tensor([0.0, 1.0])))
    torch.testing.assert_close(acts.reward, seen[..., 0] + acts.action["action"][..., 0])


def test_seeds_decide_what_is_drawn() -> None:
    one, two, other = (fit(make_data(seed=seed)).batches for seed in (3, 3, 4))
    assert same(one, two) and not same(one, other)
    assert not torch.equal(tensors(one)[0], tensors(one)[6]), "each batch is drawn anew"


def test_whole_runs_are_drawn_where_rollouts_are_not_split() -> None:
    options = {"n_rollout_steps": 3, "batch_size": 20, "num_actors": 2}
    split, whole = (
        fit(make_data(split_rollouts_into_transitions=one, **options)).batches[1].acts[0] for one in (True, False)
    )
    assert split.reward.shape == (1, 20) and whole.reward.shape == (1, 60)
    runs = whole.observation["observation"].reshape(20, 3, 2)
    goes_on = whole.discount.reshape(20, 3)[:, :-1] > 0
    following = runs[:, :-1] + torch.tensor([0.0, 1.0])
    is_next = (runs[:, 1:] == following).all(-1)
    assert is_next[goes_on].float().mean() > 0.9, "but for acts whose successor is not known yet"
    seen = split.observation["observation"][0]
    assert (seen[1:] == seen[:-1] + torch.tensor([0.0, 1.0])).all(-1).float().mean() < 0.3


def test_returns_of_several_acts_are_those_of_the_episodes() -> None:
    acts = fit(make_data(n_step=10, batch_size=20)).batches[1].acts[0]
    full = acts.discount[0] == 0
    start, time = acts.observation["observation"][0].T
    left = 3 + (4 * start).int() - time
    assert full.float().mean() > 0.5
    last = acts.next_observation["observation"][0]
    assert torch.equal(last[full, 1], (2 + (4 * start).int()).float()[full])
    torch.testing.assert_close(acts.discount[0][~full], GAMMA ** (last[~full, 1] - time[~full]))
    assert (left[~full] > 0).all()


class Sevens:
    """A policy that is configured by its class."""

    def __init__(self, action_spaces_dict: dict[Any, spaces.Dict]) -> None:
        assert list(action_spaces_dict) == [0]

    def act(self, batch: PolicyBatch, **options: Any) -> PolicyStep:
        return PolicyStep({"action": np.full((len(batch.agent_id), 1), 7, np.float32)})


def test_another_policy_can_fill_the_buffer() -> None:
    (batch, _) = fit(make_data(initial_sampling_policy=Sevens)).batches
    action = batch.acts[0].action["action"]
    assert ((action == 7) | (action >= 100)).all() and (action == 7).any()


class Picky(Drift):
    """Allows one of three actions, another one each time."""

    def __init__(self) -> None:
        super().__init__()
        parts = {"observation": self.observation_space, "allowed": spaces.MultiBinary(3)}
        self.observation_space, self.action_space = spaces.Dict(parts), spaces.Discrete(3)

    def step(self, action: Any) -> Any:
        assert action == self.time % 3
        return super().step([action])

    def _observe(self) -> Any:
        return {"observation": super()._observe(), "allowed": np.arange(3, dtype=np.int8) == self.time % 3}


class Obedient(Counter):
    """Does what is allowed."""

    def act(self, batch: PolicyBatch, **options: Any) -> PolicyStep:
        return PolicyStep({"action": batch.observation["allowed"].argmax(-1)})


@pytest.mark.parametrize("policy", [None, RandomPolicy])
def test_random_actions_heed_masks(policy: Any) -> None:
    data, module = make_data(Picky, action_masks={"action": "allowed"}, initial_sampling_policy=policy), Learner()
    module.policy = Obedient()
    assert fit(data, module=module).batches[0].env_steps == 21


@pytest.mark.slow
def test_engines_decide_nothing_about_what_is_drawn() -> None:
    options = {"num_actors": 2, "n_shards": 2, "n_rollout_steps": 3, "prioritized": True, "n_step": 2}
    here, there = (fit(make_data(engine=engine, **options), epochs=2).batches for engine in (None, ProcessEngine(2)))
    assert same(here, there)


class Forgetful(Learner):
    """Gives no errors back, or not those that are wanted."""

    errors: Any = None

    def training_step(self, batch: ReplayBatch, batch_idx: int) -> None:
        if self.errors is not None:
            assert batch.reprioritise is not None
            batch.reprioritise(self.errors)


def test_an_algorithm_that_gives_no_errors_back_cannot_have_priorities() -> None:
    with pytest.raises(ValueError, match=r"Forgetful reported none: call batch.reprioritise.*prioritized=False"):
        fit(make_data(prioritized=True), module=Forgetful())
    fit(make_data(), module=Forgetful())


@pytest.mark.parametrize(
    ("errors", "came"), [({}, "none"), ({0: torch.zeros(8)}, r"\[8\]"), ({0: torch.zeros(1, 7)}, r"\[1, 7\]")]
)
def test_errors_of_other_acts_than_those_of_the_batch_are_refused(errors: Any, came: str) -> None:
    module = Forgetful()
    module.errors = errors
    with pytest.raises(ValueError, match=rf"wants errors \[1, 8\] of 0, got .*{came}"):
        fit(make_data(prioritized=True), module=module)


def test_what_was_learned_decides_what_is_drawn() -> None:
    """Rewards are the errors here: from the second batch on, large ones are drawn."""
    options = {"priority_alpha": 1.0, "initial_buffer_size": 200, "batch_size": 100}
    even, by_error = (fit(make_data(prioritized=one, **options), epochs=5).batches[-1] for one in (False, True))
    assert by_error.acts[0].weight.shape == (1, 100) and even.acts[0].weight is None
    large = [(batch.acts[0].reward > 50).float().mean() for batch in (even, by_error)]
    assert large[0] < 0.2 and large[1] > 0.5


def test_exponents_of_priorities_follow_schedules_and_are_logged() -> None:
    options = {"prioritized": True, "initial_buffer_size": 200, "batch_size": 100}
    schedules = {"priority_alpha": Linear(1.0, 0.0), "priority_beta": Linear(0.4, 1.0)}
    changing = fit(make_data(**options, **schedules), epochs=5).batches
    for name, schedule in schedules.items():
        assert [batch.measures[name] for batch in changing] == pytest.approx([schedule(n / 10) for n in range(10)])
    share = [float((batch.acts[0].reward > 50).float().mean()) for batch in changing]
    assert share[2] > 0.3 > share[9]  # the last exponent of 0.1 draws almost uniformly
    lightest = [float(batch.acts[0].weight.min()) for batch in changing[1:]]
    assert lightest[0] < 0.5
    constant = fit(make_data(**options), epochs=1).batches[0]
    assert "priority_alpha" not in constant.measures


def test_schedules_of_priorities_need_the_length_of_the_run() -> None:
    with pytest.raises(ValueError, match=r"priority_beta needs the length of the run: set trainer.max_epochs"):
        fit(make_data(prioritized=True, priority_beta=Linear(0.4, 1.0)), epochs=-1)


def test_a_buffer_in_files_gives_the_same_and_leaves_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MAZE_PL_RUN_DIR", str(tmp_path))
    assert same(fit(make_data()).batches, fit(make_data(memory_map=True)).batches)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"batch_size": 30}, ["batch_size=30", "initial_buffer_size=20"]),
        ({"replay_buffer_size": 19}, ["initial_buffer_size=20", "replay_buffer_size=19"]),
        ({"batch_size": 0}, ["batch_size=0", "at least 1"]),
        ({"n_step": 0}, ["n_step=0"]),
        ({"num_batches_per_iter": 0}, ["num_batches_per_iter=0"]),
        ({"rollouts_per_iteration": 0}, ["rollouts_per_iteration=0"]),
        ({"num_actors": -1}, ["num_actors=-1"]),
        ({"prioritized": True, "split_rollouts_into_transitions": False}, ["prioritized", "split_rollouts"]),
        ({"priority_alpha": 1.5}, ["priority_alpha=1.5"]),
        ({"priority_beta": -0.1}, ["priority_beta=-0.1"]),
        ({"priority_beta": Linear(0.4, 2.0)}, ["priority_beta=1.2", "schedule Linear", "progress 0.5"]),
        ({"demonstration_share": 0.5}, ["demonstration_share=0.5", "demonstrations"]),
        ({"demonstration_share": 0.01, "demonstrations": InMemoryDataset("x")}, ["0.01", "batch_size=8"]),
        ({"demonstration_share": float("nan"), "demonstrations": InMemoryDataset("x")}, ["nan", "batch_size=8"]),
        ({"demonstration_share": 1.5, "demonstrations": InMemoryDataset("x")}, ["1.5", "batch_size=8"]),
    ],
    ids=lambda value: str(value) if isinstance(value, list) else "",
)
def test_options_that_make_no_sense_are_refused(options: dict[str, Any], words: list[str]) -> None:
    with pytest.raises(ValueError) as caught:
        make_data(**options)
    assert all(word in str(caught.value) for word in words)


# ------------------------------------------------------------------------------------------------------ demonstrations


@pytest.fixture(scope="module")
def episodes() -> list[Any]:
    """Recorded episodes with actions from 1000 on."""

    class Teacher(Sevens):
        def act(self, batch: PolicyBatch, **options: Any) -> PolicyStep:
            return PolicyStep({"action": np.full((len(batch.agent_id), 1), 1000, np.float32)})

    return [one.spaces if hasattr(one, "spaces") else one for one in rollout(Drift, Teacher, 6, seed=5)]


def shown(batch: ReplayBatch) -> torch.Tensor:
    return batch.acts[0].action["action"][..., 0] == 1000


def test_demonstrations_take_the_place_of_the_other_policy(episodes: list[Any]) -> None:
    data = make_data(demonstrations=InMemoryDataset(episodes))
    n = sum(len(one) for one in episodes)
    first, second = fit(data).batches
    assert (first.env_steps, second.env_steps) == (1, 1)
    assert (first.measures, second.measures) == ({"buffer_size": n + 1}, {"buffer_size": n + 2})
    action = first.acts[0].action["action"]
    assert ((action == 1000) | ((action >= 100) & (action < 200))).all() and shown(first).float().mean() > 0.5
    ends = first.acts[0].discount == 0
    assert torch.equal(first.acts[0].discount, torch.where(ends, 0.0, GAMMA)), "gamma is that of the algorithm"


def test_new_transitions_take_their_places(episodes: list[Any]) -> None:
    n = sum(len(one) for one in episodes)
    data = make_data(demonstrations=InMemoryDataset(episodes), replay_buffer_size=n, n_rollout_steps=n)
    assert not shown(fit(data).batches[0]).any()


@pytest.mark.parametrize("options", [{}, {"prioritized": True}, {"n_step": 2}, {"num_batches_per_iter": 3}], ids=str)
def test_a_share_of_each_minibatch_is_demonstrations_for_ever(episodes: list[Any], options: dict[str, Any]) -> None:
    demonstrations = InMemoryDataset(episodes, IdentityWithNextObservationTrajectoryProcessor(0.5))
    share = {"demonstrations": demonstrations, "demonstration_share": 0.25, "replay_buffer_size": 20}
    batches = fit(make_data(**share, **options), epochs=3).batches
    assert batches[0].env_steps == 21 and batches[-1].measures == {"buffer_size": 20}
    for batch in batches:
        assert (shown(batch).sum(-1) == 2).all() and shown(batch).shape[-1] == 8
        assert set(batch.acts[0].discount.unique().tolist()) <= {
            0.0,
            *torch.tensor([GAMMA, np.float32(GAMMA) * np.float32(GAMMA)]).tolist(),
        }


def test_returns_of_demonstrations_stop_where_episodes_end(episodes: list[Any]) -> None:
    options = {"demonstrations": InMemoryDataset(episodes), "demonstration_share": 1.0, "n_step": 10, "batch_size": 20}
    acts = fit(make_data(**options)).batches[0].acts[0]
    start, time = acts.observation["observation"][0].T
    left = 3 + (4 * start).int() - time
    assert (acts.discount == 0).all()
    torch.testing.assert_close(acts.reward[0], (start + 1000) * (1 - GAMMA**left) / (1 - GAMMA))


def test_demonstrations_that_do_not_fit_are_refused(episodes: list[Any]) -> None:
    with pytest.raises(ValueError, match="its observation 'allowed' of sub-step 0 is None"):
        fit(make_data(Picky, demonstrations=InMemoryDataset(episodes)))
    clipped = InMemoryDataset(episodes, DeadEndClippingTrajectoryProcessor(1))
    with pytest.raises(ValueError, match="DeadEndClippingTrajectoryProcessor hold no next observations"):
        fit(make_data(demonstrations=clipped))
    with pytest.raises(ValueError, match="replay_buffer_size=20: raise it"):
        fit(make_data(demonstrations=InMemoryDataset(episodes), replay_buffer_size=20))


# ---------------------------------------------------------------------------------------------------------- side files

CASES: dict[str, dict[str, Any]] = {
    "plain": {},
    "runs": {"split_rollouts_into_transitions": False, "n_rollout_steps": 3, "num_actors": 2},
    "prioritized": {"prioritized": True, "n_step": 3, "replay_buffer_size": 23},
    "files": {"memory_map": True},
}


@pytest.mark.parametrize("case", CASES)
def test_a_run_resumes_exactly_with_its_buffer(tmp_path: Path, case: str) -> None:
    options = {**CASES[case], "save_buffer": True}
    whole = fit(make_data(**options), epochs=4).batches
    begun = fit(make_data(**options), epochs=2, save=tmp_path / "kept.ckpt").batches
    resumed = fit(make_data(**options), epochs=4, ckpt_path=tmp_path / "kept.ckpt").batches
    assert len(whole) == 8 and same(whole, begun + resumed)
    assert [batch.env_steps for batch in whole] == [batch.env_steps for batch in begun + resumed]


def test_demonstrations_that_are_kept_apart_are_resumed_without_reading_them(
    tmp_path: Path, episodes: list[Any]
) -> None:
    options = {"demonstration_share": 0.5, "save_buffer": True, "prioritized": True}
    whole, begun = (
        fit(make_data(demonstrations=InMemoryDataset(episodes), **options), n, save=tmp_path / f"{n}.ckpt").batches
        for n in (4, 2)
    )
    gone = InMemoryDataset(tmp_path / "gone")
    resumed = fit(make_data(demonstrations=gone, **options), 4, ckpt_path=tmp_path / "2.ckpt").batches
    assert same(whole, begun + resumed)


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint with a buffer."""
    path = tmp_path_factory.mktemp("saved") / "kept.ckpt"
    fit(make_data(save_buffer=True), save=path)
    return path


def buffers(folder: Path) -> list[Path]:
    return sorted(folder.glob("replay-*"))


def test_a_checkpoint_names_its_buffer_and_does_not_hold_it(saved: Path) -> None:
    checkpoint = torch.load(saved, weights_only=True)
    (buffer,) = buffers(saved.parent)
    assert checkpoint["ReplayDataModule"]["replay"]["files"] == [buffer.name]
    state = torch.load(buffer, weights_only=True)
    assert len(state["storages"][0][0]["columns"]["reward"]) == 22, "what is there, and not what could be"


def test_a_buffer_is_found_beside_its_checkpoint_wherever_that_is(saved: Path, tmp_path: Path) -> None:
    (buffer,) = buffers(saved.parent)
    for path in (saved, buffer):
        (tmp_path / path.name).write_bytes(path.read_bytes())
    one, two = (fit(make_data(), 2, ckpt_path=path).batches for path in (saved, tmp_path / saved.name))
    assert same(one, two)


def test_without_its_buffer_a_run_fills_a_new_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    fit(make_data(), save=tmp_path / "kept.ckpt")
    assert buffers(tmp_path) == []
    with pytest.MonkeyPatch.context() as patch:
        said: list[str] = []
        patch.setattr("maze_pl.datamodules.replay.rank_zero_info", said.append)
        (batch, _) = fit(make_data(), 2, ckpt_path=tmp_path / "kept.ckpt").batches
    assert said == ["the checkpoint names no replay buffer (save_buffer was off): it is filled as at the start"]
    assert batch.env_steps == 21 and (batch.acts[0].action["action"] < 50).any()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"replay_buffer_size": 999}, "replay_buffer_size was 1000 and is 999"),
        ({"n_step": 2}, "n_step was 1 and is 2"),
        ({"prioritized": True}, "alpha was None and is 0.6"),
        ({"num_actors": 2}, "ranks and actors was"),
        ({"env": Picky}, "spec was"),
    ],
    ids=str,
)
def test_a_buffer_of_another_kind_is_refused(saved: Path, options: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        fit(make_data(**options), 2, ckpt_path=saved)


def test_a_buffer_for_another_gamma_is_refused(saved: Path) -> None:
    with pytest.raises(ValueError, match=r"gamma was 0.9 and is 0.8"):
        fit(make_data(), 2, ckpt_path=saved, module=Learner(0.8))


@pytest.mark.parametrize("change", ["missing", "altered", "empty"])
def test_a_buffer_that_is_not_what_was_written_is_refused(saved: Path, tmp_path: Path, change: str) -> None:
    (buffer,) = buffers(saved.parent)
    content = bytearray(buffer.read_bytes())
    checkpoint = torch.load(saved, weights_only=True)
    checkpoint["ReplayDataModule"]["replay"]["folder"] = str(tmp_path)
    torch.save(checkpoint, tmp_path / saved.name)
    content[len(content) // 2] ^= 1
    if change != "missing":
        (tmp_path / buffer.name).write_bytes(content if change == "altered" else b"")
    with pytest.raises(ValueError, match="which the checkpoint names, is missing or was altered"):
        fit(make_data(), 2, ckpt_path=tmp_path / saved.name)


def crafted(saved: Path, folder: Path, change: Callable[[dict[str, Any]], None]) -> Path:
    """A checkpoint with a buffer in which something was changed, and which it names all the same."""
    (buffer,) = buffers(saved.parent)
    content, checkpoint = (torch.load(path, weights_only=True) for path in (buffer, saved))
    change(content)
    torch.save(content, folder / "made")
    name = f"replay-{hashlib.sha256((folder / 'made').read_bytes()).hexdigest()}.pt"
    (folder / "made").rename(folder / name)
    checkpoint["ReplayDataModule"]["replay"] = {"folder": str(folder), "files": [name]}
    torch.save(checkpoint, folder / saved.name)
    return folder / saved.name


@pytest.mark.parametrize("name", ["capacity", "written"])
@pytest.mark.parametrize("number", [-1, 10**15])
def test_a_buffer_with_a_number_that_it_cannot_hold_is_refused(
    saved: Path, tmp_path: Path, name: str, number: int
) -> None:
    def change(content: dict[str, Any]) -> None:
        content["storages"][0][0][name] = number

    with pytest.raises(ValueError, match=r"replay-.* is damaged: it (holds|has a column).*"):
        fit(make_data(), 2, ckpt_path=crafted(saved, tmp_path, change))


def test_a_buffer_of_bytes_that_were_never_written_is_refused(saved: Path, tmp_path: Path) -> None:
    path = crafted(saved, tmp_path, lambda content: None)
    (buffer,) = buffers(tmp_path)
    with buffer.open("r+b") as file:
        file.truncate(1 << 40)
    with pytest.raises(ValueError, match="it is sparse"):
        fit(make_data(), 2, ckpt_path=path)


class Keep(pl.Callback):
    """Writes a checkpoint twice after each epoch, and another one after the first."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.there = folder, list[list[str]]()

    def on_train_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        names = ["last", "last"] + ["best"] * (trainer.current_epoch == 0)
        for name in names:
            trainer.save_checkpoint(self.folder / f"{name}.ckpt")
        self.there.append([buffer.name for buffer in buffers(self.folder)])


class Folder(pl.callbacks.Checkpoint):
    """A callback for checkpoints that has a folder."""

    def __init__(self, dirpath: Path) -> None:
        self.dirpath = dirpath


def test_buffers_that_no_checkpoint_names_any_more_are_removed(tmp_path: Path) -> None:
    keep, data = Keep(tmp_path), make_data(save_buffer=True)
    (tmp_path / "replay-notes.txt").write_bytes(b"of the user")
    trainer = pl.Trainer(
        max_epochs=4,
        logger=False,
        callbacks=[keep, Folder(tmp_path)],
        enable_progress_bar=False,
        enable_model_summary=False,
        accelerator="cpu",
        devices=1,
        default_root_dir=tmp_path / "elsewhere",
    )
    trainer.fit(Learner(), data)
    assert [len(there) for there in keep.there] == [2, 3, 4, 4], "until the next batch, also the former ones"
    (tmp_path / "replay-notes.txt").unlink()
    named = [
        torch.load(tmp_path / f"{name}.ckpt", weights_only=True)["ReplayDataModule"]["replay"]["files"][0]
        for name in ("best", "last")
    ]
    assert [buffer.name for buffer in buffers(tmp_path)] == sorted(named) and len(set(named)) == 2


def test_a_buffer_that_a_checkpoint_in_another_folder_names_is_kept(tmp_path: Path) -> None:
    class Last(pl.Callback):
        def on_train_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
            trainer.save_checkpoint(tmp_path / "two" / "last.ckpt")

    trainer = pl.Trainer(
        max_epochs=2,
        logger=False,
        callbacks=[Last(), Folder(tmp_path / "one"), Folder(tmp_path / "two")],
        enable_progress_bar=False,
        enable_model_summary=False,
        accelerator="cpu",
        devices=1,
    )
    data = make_data(save_buffer=True)
    trainer.fit(Learner(), data)
    first, beside = *buffers(tmp_path / "one"), *buffers(tmp_path / "two")
    assert first.samefile(beside)
    assert (first.parent.name, beside.parent.name) == ("one", "two")
    other = first.with_name(f"replay-{64 * 'a'}.pt")
    other.write_bytes(b"of a run that goes on")
    data.teardown("validate")
    assert other.exists(), "evaluation of a run may take place while it goes on"
    other.unlink()
    assert len(fit(make_data(), 3, ckpt_path=tmp_path / "two" / "last.ckpt").batches) == 2
    first.unlink()
    beside.unlink()
    trainer.save_checkpoint(tmp_path / "two" / "once_more.ckpt")
    assert first.samefile(beside)


@pytest.mark.parametrize("can_link", [True, False])
def test_a_checkpoint_that_is_written_elsewhere_keeps_its_buffer_when_training_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, can_link: bool
) -> None:
    class Elsewhere(pl.Callback):
        def on_train_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
            if trainer.current_epoch == 1:
                trainer.save_checkpoint(tmp_path / "elsewhere" / "kept.ckpt")
            trainer.save_checkpoint(tmp_path / "run" / "last.ckpt")

    def link(*_: Any) -> None:
        raise OSError(errno.EXDEV, os.strerror(errno.EXDEV))

    if not can_link:
        monkeypatch.setattr(os, "link", link)
    trainer = pl.Trainer(
        max_epochs=4,
        logger=False,
        callbacks=[Elsewhere(), Folder(tmp_path / "run")],
        enable_progress_bar=False,
        enable_model_summary=False,
        accelerator="cpu",
        devices=1,
    )
    learner = Learner()
    trainer.fit(learner, make_data(save_buffer=True))
    assert [len(buffers(tmp_path / name)) for name in ("run", "elsewhere")] == [1, 1]
    (tmp_path / "elsewhere").rename(tmp_path / "moved")
    resumed = fit(make_data(), 4, ckpt_path=tmp_path / "moved" / "kept.ckpt").batches
    assert same(learner.batches[4:], resumed)


def test_a_checkpoint_that_no_buffer_can_be_put_beside_is_refused(tmp_path: Path) -> None:
    trainer = fit(make_data(save_buffer=True), save=tmp_path / "kept.ckpt").trainer
    with pytest.raises(ValueError, match=r"save_buffer=True needs checkpoints in local folders, not memory://kept"):
        trainer.save_checkpoint("memory://kept.ckpt")


def test_a_full_disk_leaves_the_former_buffer_as_it_was(tmp_path: Path) -> None:
    class Full(pl.Callback):
        def on_train_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
            if trainer.current_epoch == 0:
                trainer.save_checkpoint(tmp_path / "kept.ckpt")
            else:
                with disk_full_at(2000):
                    trainer.save_checkpoint(tmp_path / "kept.ckpt")

    trainer = pl.Trainer(
        max_epochs=2,
        logger=False,
        callbacks=[Full(), Folder(tmp_path)],
        enable_progress_bar=False,
        enable_model_summary=False,
        accelerator="cpu",
        devices=1,
    )
    with pytest.raises(OSError, match="the replay buffer cannot be written"):
        trainer.fit(Learner(), make_data(save_buffer=True))
    assert len(buffers(tmp_path)) == 1
    assert len(fit(make_data(), 2, ckpt_path=tmp_path / "kept.ckpt").batches) == 2


def test_environments_that_start_anew_leave_no_transition_between_episodes(tmp_path: Path) -> None:
    fit(make_data(Moody, save_buffer=True, n_rollout_steps=4), save=tmp_path / "kept.ckpt")
    data = make_data(Moody, n_rollout_steps=4, batch_size=200, initial_buffer_size=200, num_batches_per_iter=2)
    (batch, _) = fit(data, 2, ckpt_path=tmp_path / "kept.ckpt").batches
    seen, following = batch.acts[0].observation["observation"], batch.acts[0].next_observation["observation"]
    assert torch.equal(seen[..., 0], following[..., 0])

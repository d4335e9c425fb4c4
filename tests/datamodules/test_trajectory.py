from __future__ import annotations

import inspect
import itertools
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import pytorch_lightning as pl
import torch
from gymnasium import spaces
from pytorch_lightning.callbacks import ModelCheckpoint
from torch import nn

from maze_pl.core.batches import Evaluation, TrajectoryBatch
from maze_pl.core.spec import Spec, StepSpec
from maze_pl.datamodules import RolloutEvaluator, TrajectoryDataModule
from maze_pl.datamodules.act_loader import ActLoader
from maze_pl.datasets import InMemoryDataset
from maze_pl.datasets.identity_with_next_observation_trajectory_processor import (
    IdentityWithNextObservationTrajectoryProcessor,
)
from maze_pl.datasets.trajectory_processors import TrajectoryProcessor
from maze_pl.envs import GymMazeEnv
from maze_pl.envs.wrappers import (
    FlattenPreProcessor,
    ObservationNormalizationWrapper,
    PreProcessingWrapper,
    RunningObservationNormalizationWrapper,
    SpacesRecordingWrapper,
    TrajectoryRecordingWrapper,
)
from maze_pl.records.columns import columns_of, taken
from maze_pl.records.record_files import SpacesTrajectoryRecord
from tests.datasets.episodes_of_acts import Act, episode, flat, make_spec
from tests.envs.scripted import Scripted

pytestmark = pytest.mark.filterwarnings(
    "ignore:.*does not have many workers",
    "ignore:The number of training batches",
    "ignore:Checkpoint directory",
    "ignore:The dirpath",
)


def dataset_of(*lengths: int, **options: Any) -> InMemoryDataset:
    return InMemoryDataset([flat(length, number) for number, length in enumerate(lengths)], **options)


def identities(batch: TrajectoryBatch) -> list[tuple[int, ...]]:
    """Episode and place of each act."""
    return [tuple(row) for acts in batch.acts.values() for row in acts.observation["seen"].int().tolist()]


def acts_of(loader: Any) -> list[list[tuple[int, ...]]]:
    return [identities(batch) for batch in loader]


def joined(parts: Iterable[list[Any]]) -> list[Any]:
    return list(itertools.chain.from_iterable(parts))


ALL = {(number, place) for number, length in enumerate((7, 5, 9, 4)) for place in range(length)}


# -------------------------------------------------------------------------------------------------------------- batches


def test_an_epoch_has_every_act_once_and_its_last_batch_is_smaller() -> None:
    module = TrajectoryDataModule(dataset_of(7, 5, 9, 4), batch_size=6, validation_percentage=0, seed=1)
    loader = module.train_dataloader()
    batches = acts_of(loader)
    assert [len(batch) for batch in batches] == [6, 6, 6, 6, 1] and len(loader) == 5
    assert sorted(joined(batches)) == sorted(ALL)
    assert joined(batches) != sorted(ALL), "they are shuffled"
    assert module.val_dataloader() == []


def test_the_order_of_batches_depends_on_the_seed() -> None:
    one, two, other = (
        acts_of(TrajectoryDataModule(dataset_of(7, 5, 9, 4), batch_size=6, seed=seed).train_dataloader())
        for seed in (1, 1, 2)
    )
    assert one == two != other


def test_held_out_episodes_are_a_dataloader_of_validation() -> None:
    module = TrajectoryDataModule(dataset_of(7, 5, 9, 4), batch_size=6, validation_percentage=25, seed=1)
    (held_out,) = module.val_dataloader()
    learned, measured = (set(joined(acts_of(loader))) for loader in (module.train_dataloader(), held_out))
    assert learned | measured == ALL and not learned & measured
    assert len({number for number, _ in measured}) == 1
    assert acts_of(held_out) == acts_of(held_out), "validation sees them in the same order every time"


def test_a_processor_that_leaves_acts_in_held_out_episodes_alone_is_refused() -> None:
    ((held_out, _), *_), *_ = acts_of(TrajectoryDataModule(dataset_of(3, 3)).val_dataloader()[0])

    class Only(TrajectoryProcessor):
        def process(self, record: Any) -> Any:
            (own,) = columns_of(record).items()
            is_held_out = own[1]["observation"]["seen"][0, 0] == held_out
            return {own[0]: taken(own[1], slice(None) if is_held_out else slice(0))}

    with pytest.raises(ValueError, match="all acts are of held-out episodes: record more, or lower"):
        TrajectoryDataModule(dataset_of(3, 3, trajectory_processor=Only())).train_dataloader()


def test_nothing_is_held_out_of_a_single_episode() -> None:
    module = TrajectoryDataModule(dataset_of(7), validation_percentage=25)
    assert module.val_dataloader() == [] and len(joined(acts_of(module.train_dataloader()))) == 7


@pytest.mark.parametrize("n_ranks", [2, 3])
def test_ranks_have_different_parts_of_the_same_order_and_equally_many_batches(n_ranks: int) -> None:
    dataset = dataset_of(7, 5, 9, 4).load()
    numbers = torch.arange(len(dataset))

    def loader(batch_size: int, rank: int, n_ranks: int) -> ActLoader:
        return ActLoader(dataset, numbers, batch_size, lambda: 7, rank, n_ranks)

    loaders = [loader(4, rank, n_ranks) for rank in range(n_ranks)]
    assert {len(loader) for loader in loaders} == {-(-25 // (4 * n_ranks))}
    batches = [acts_of(loader) for loader in loaders]
    assert sorted(joined(map(joined, batches))) == sorted(ALL)
    sizes = {tuple(sorted({len(part[i]) for part in batches})) for i in range(len(loaders[0]))}
    assert all(size[-1] - size[0] <= 1 for size in sizes), "ranks have equal shares of the last batch"
    together = loader(4 * n_ranks, 0, 1)
    assert [sorted(batch) for batch in acts_of(together)] == [sorted(joined(parts)) for parts in zip(*batches)]  # noqa: B905


def test_batches_are_drawn_from_all_sub_steps() -> None:
    acts = [Act(key, 0, time) for time in range(10) for key in "ab"]
    dataset = InMemoryDataset([episode(acts, make_spec(1, 1), number=number) for number in range(5)])
    module = TrajectoryDataModule(dataset, batch_size=8, seed=0)
    sizes = [[len(acts) for acts in batch.acts.values()] for batch in module.train_dataloader()]
    assert {sum(pair) for pair in sizes} == {8}
    assert len({pair[0] for pair in sizes}) > 1, "as many of each as were drawn"


def test_processors_give_batches_further_fields() -> None:
    dataset = dataset_of(7, 5, 9, 4, trajectory_processor=IdentityWithNextObservationTrajectoryProcessor(0.5))
    for batch in TrajectoryDataModule(dataset, batch_size=6, seed=1).train_dataloader():
        acts = batch.acts["a"]
        place, following = acts.observation["seen"][:, 1], acts.next_observation["seen"][:, 1]
        assert torch.equal(following, place + (~acts.terminated))
        assert torch.equal(acts.reward, place + 1.0)
        assert torch.equal(acts.discount, 0.5 * ~acts.terminated)


# ---------------------------------------------------------------------------------------------------------- environment


def lander_like(seen: float = np.inf) -> GymMazeEnv:
    env = Scripted([1.0] * 4)
    env.observation_space = spaces.Box(-seen, seen, (2,), np.float32)
    return GymMazeEnv(env)


def recorded(env: Any, n_episodes: int = 5) -> Any:
    """Episodes of a recording wrapper."""
    generator = np.random.default_rng(0)
    for seed in range(n_episodes):
        env.reset(seed=seed)
        for _ in range(4):
            env.step({head: generator.uniform(-1, 1, space.shape) for head, space in env.action_space.items()})
    env.close()
    return list(env.trajectories)


def test_without_an_environment_the_spaces_are_those_of_the_recording() -> None:
    module = TrajectoryDataModule(dataset_of(7, 5))
    assert module.spec == make_spec(1)
    assert module.evaluators == {}


def test_without_an_environment_the_masks_are_those_of_the_configuration() -> None:
    seen = spaces.Dict({"m": spaces.Box(0, 9, (2,), np.float32)})
    spec = Spec({0: StepSpec(seen, spaces.Dict({"a": spaces.Discrete(2)}))})
    rest = {"terminated": True, "truncated": False, "last_env_time": 1, "last_actor": None, "last_observation": {}}

    def module(value: int, masks: dict[str, str]) -> TrajectoryDataModule:
        acts: Any = [(0, 0, 0, 1.0, False, {"m": [value, 1]}, {"a": 1})]
        return TrajectoryDataModule(
            InMemoryDataset(SpacesTrajectoryRecord.of_acts("e", spec, acts, **rest)), action_masks=masks
        )

    assert module(0, {"a": "m"}).spec.steps[0].masks == {"a": "m"}
    with pytest.raises(ValueError, match=r"episode e: the mask 'm' of action head 'a' holds \[2.0\]"):
        _ = module(2, {"a": "m"}).spec
    with pytest.raises(ValueError, match=r"episode e: the mask 'm' of action head 'a' holds \[2.0\]"):
        module(2, {"a": "m"}).train_dataloader()
    with pytest.raises(ValueError, match=r"\['b'\] fit no sub-step"):
        _ = module(0, {"b": "m"}).spec


def test_demonstrations_in_other_spaces_than_the_environments_are_refused() -> None:
    records = recorded(SpacesRecordingWrapper(lander_like(), n_episodes=5))
    module = TrajectoryDataModule(InMemoryDataset(records), env=lambda: lander_like(3.0))
    expected = r"its observation 'observation' of sub-step 0 is Box\(-inf, .* and the environment's is Box\(-3.0, 3.0"
    with pytest.raises(ValueError, match=expected):
        module.train_dataloader()
    with pytest.raises(ValueError, match=expected):  # also what was read without it
        TrajectoryDataModule(InMemoryDataset(records).load(), env=lambda: lander_like(3.0)).train_dataloader()
    module = TrajectoryDataModule(InMemoryDataset(records), env=lander_like)
    assert sum(len(batch) for batch in module.train_dataloader()) == 16


def test_the_wrappers_that_change_observations_are_named_where_space_records_lack_them() -> None:
    records = recorded(SpacesRecordingWrapper(lander_like(), n_episodes=2))
    wrappers: Any = [RunningObservationNormalizationWrapper]
    module = TrajectoryDataModule(InMemoryDataset(records), lambda: lander_like(3.0), wrappers)
    reason = "observations of this run are changed by RunningObservationNormalizationWrapper"
    with pytest.raises(ValueError, match=f"does not fit: its observation .*; {reason}: use state records, or the"):
        module.train_dataloader()
    bare = TrajectoryDataModule(InMemoryDataset(records), lambda: lander_like(3.0))
    with pytest.raises(ValueError, match=r"is Box\(-3.0, 3.0, \(2,\), float32\)$"):
        bare.train_dataloader()


def test_wrappers_of_the_records_are_named_as_the_likely_cause_of_other_names() -> None:
    flattened = {"observation": "observation", "class_path": FlattenPreProcessor, "config": {"num_flatten_dims": 1}}
    wrapped = PreProcessingWrapper(lander_like(), [{**flattened, "keep_original": False}])
    records = recorded(SpacesRecordingWrapper(wrapped, n_episodes=2))
    came = r"its observation 'observation' of sub-step 0 is missing, as there are only \['observation-flatten'\], and"
    remedy = "wrappers have named those of the records otherwise: use state records, or the same wrappers as"
    with pytest.raises(ValueError, match=f"{came} the environment's is Box.*; {remedy}"):
        TrajectoryDataModule(InMemoryDataset(records), lander_like).train_dataloader()


def test_untrusted_state_records_are_refused_with_the_option_of_the_command_line(tmp_path: Path) -> None:
    (record, *_) = recorded(TrajectoryRecordingWrapper(lander_like(), n_episodes=1), 1)
    record.save(tmp_path / "one.states")
    option = r"set trust=True .* \(on the command line: --data.dataset.trust true\)$"
    with pytest.raises(ValueError, match=option):
        TrajectoryDataModule(InMemoryDataset(tmp_path), lander_like).train_dataloader()
    with pytest.raises(ValueError, match=option):
        _ = TrajectoryDataModule(InMemoryDataset(tmp_path)).spec


def test_evaluators_come_before_held_out_episodes() -> None:
    records = recorded(SpacesRecordingWrapper(lander_like(), n_episodes=5))
    module = TrajectoryDataModule(
        InMemoryDataset(records), env=lander_like, evaluators={"one": RolloutEvaluator(), "two": RolloutEvaluator()}
    )
    assert [type(source).__name__ for source in module.val_dataloader()] == ["Source", "Source", "ActLoader"]
    assert list(TrajectoryDataModule(InMemoryDataset(records), env=lander_like).evaluators) == ["eval"]
    without = TrajectoryDataModule(InMemoryDataset(records), env=lander_like, evaluators={})
    assert [type(source).__name__ for source in without.val_dataloader()] == ["ActLoader"]


def test_states_are_normalised_by_statistics_that_are_estimated_from_the_environment() -> None:
    records = recorded(TrajectoryRecordingWrapper(lander_like(), n_episodes=5))
    module = TrajectoryDataModule(
        InMemoryDataset(records), lander_like, [ObservationNormalizationWrapper], validation_percentage=0, seed=3
    )
    (batch,) = module.train_dataloader()
    seen = np.unique(batch.acts[0].observation["observation"].numpy()[:, 0])
    statistics = module.make_env().get_normalization_statistics()["observation"]  # type: ignore[attr-defined]
    np.testing.assert_allclose(seen, (np.arange(4) - statistics["mean"]) / statistics["std"], rtol=1e-5)


@pytest.mark.parametrize("n_space_records", [0, 2, 5])
def test_new_statistics_are_told_of_where_space_records_keep_others(
    n_space_records: int, caplog: pytest.LogCaptureFixture
) -> None:
    def normalised() -> Any:
        return ObservationNormalizationWrapper(lander_like())

    env = normalised()
    env.estimate(4, seed=1)
    records: list[Any] = recorded(SpacesRecordingWrapper(env, n_episodes=5))[:n_space_records]
    records += recorded(TrajectoryRecordingWrapper(env, n_episodes=5))[n_space_records:]
    dataset = InMemoryDataset(records)
    module = TrajectoryDataModule(dataset, lander_like, [ObservationNormalizationWrapper])
    later = TrajectoryDataModule(dataset, lander_like, [ObservationNormalizationWrapper])
    later.warm_start(module.wrapper_statistics())
    with caplog.at_level("INFO"):
        module.train_dataloader()
        module.val_dataloader()
        later.train_dataloader()
    found = [text for text in caplog.messages if "space records keep the observations" in text]
    assert len(found) == (n_space_records > 0)
    assert all("ObservationNormalizationWrapper has estimated statistics here: unless" in text for text in found)


def first_numbers(module: TrajectoryDataModule) -> Any:
    """Sorted distinct first numbers of all observations, in a single batch."""
    (batch,) = module.train_dataloader()
    return np.unique(batch.acts[0].observation["observation"].numpy()[:, 0])


def normalised_by(module: TrajectoryDataModule) -> Any:
    """Expected `first_numbers`, from the statistics of the module."""
    statistics = module.make_env().get_normalization_statistics()["observation"]  # type: ignore[attr-defined]
    return (np.arange(4) - statistics["mean"]) / statistics["std"]


def test_states_that_another_data_module_has_read_are_normalised_by_the_statistics_of_each() -> None:
    dataset = InMemoryDataset(recorded(TrajectoryRecordingWrapper(lander_like(), n_episodes=5)))
    modules = []
    for n_samples in (3, 4):  # which have other means
        modules.append(
            TrajectoryDataModule(
                dataset,
                lander_like,
                [ObservationNormalizationWrapper],
                validation_percentage=0,
                n_normalization_samples=n_samples,
            )
        )
    first, second = modules
    expected = [normalised_by(module) for module in modules]
    assert not np.allclose(*expected)
    for module, numbers in zip([*modules, first], [*expected, expected[0]], strict=True):
        np.testing.assert_allclose(first_numbers(module), numbers, rtol=1e-5)
    assert first.dataset is dataset
    loaded = second.dataset
    first_numbers(second)
    assert second.dataset is loaded  # it is read once
    second.warm_start(first.wrapper_statistics())
    np.testing.assert_allclose(first_numbers(second), expected[0], rtol=1e-5)


def test_a_data_set_without_states_is_shared_by_data_modules() -> None:
    dataset = InMemoryDataset(recorded(SpacesRecordingWrapper(lander_like(), n_episodes=5)))
    modules = [TrajectoryDataModule(dataset, lander_like) for _ in range(2)]
    for module in modules:
        module.train_dataloader()
    assert all(module.dataset is dataset for module in modules)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"batch_size": 0}, "batch_size=0 must be at least 1"),
        ({"validation_percentage": 100}, "validation_percentage=100 must be at least 0 and below 100"),
        ({"wrappers": [ObservationNormalizationWrapper]}, "there is none"),
        ({"evaluators": {"eval": RolloutEvaluator()}}, "there is none"),
    ],
)
def test_options_that_contradict_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        TrajectoryDataModule(dataset_of(3), **options)


# --------------------------------------------------------------------------------------------------------------- resume


class Listener(pl.LightningModule):
    """Notes which acts it is given in which epoch."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(()))
        self.heard: list[tuple[int, list[tuple[int, ...]]]] = []

    def training_step(self, batch: TrajectoryBatch, batch_idx: int) -> Any:
        self.heard.append((self.current_epoch, identities(batch)))
        return self.weight * len(batch)

    def validation_step(self, batch: TrajectoryBatch | Evaluation, batch_idx: int) -> None:
        assert isinstance(batch, TrajectoryBatch)

    def configure_optimizers(self) -> Any:
        return torch.optim.SGD(self.parameters(), 1e-3)


def heard(folder: Path, ckpt_path: Path | None = None, max_epochs: int = 6, **options: Any) -> Any:
    """Acts that were learned from, and checkpoints after every third batch and at the end."""
    listener = Listener()
    checkpoints = ModelCheckpoint(folder, "{step}", every_n_train_steps=3, save_top_k=-1)
    trainer = pl.Trainer(
        max_epochs=max_epochs,
        accelerator="cpu",
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        callbacks=[checkpoints],
        **options,
    )
    module = TrajectoryDataModule(dataset_of(7, 5, 9, 4), batch_size=4, validation_percentage=25, seed=5)
    trainer.fit(listener, module, ckpt_path=ckpt_path, weights_only=True)
    trainer.save_checkpoint(folder / "end.ckpt")
    return listener.heard


def test_epochs_differ_and_a_run_that_is_resumed_between_them_goes_on_as_if_nothing_had_happened(
    tmp_path: Path,
) -> None:
    whole = heard(tmp_path / "whole")
    assert len({str([batch for epoch, batch in whole if epoch == number]) for number in range(6)}) == 6
    first = heard(tmp_path / "half", max_epochs=3)
    assert first + heard(tmp_path / "rest", tmp_path / "half" / "end.ckpt") == whole


@pytest.mark.parametrize("options", [{}, {"val_check_interval": 2}])
def test_a_run_that_is_resumed_within_an_epoch_goes_on_with_the_next_batch(
    tmp_path: Path, options: dict[str, Any]
) -> None:
    whole = heard(tmp_path / "whole", max_epochs=3, **options)
    assert len(whole) % 3 == 0 and len(whole) // 3 > 3
    for step in (3, 6, 9):
        rest = heard(tmp_path / f"from {step}", tmp_path / "whole" / f"step={step}.ckpt", max_epochs=3, **options)
        assert whole[:step] + rest == whole, step


def test_a_checkpoint_of_another_data_module_is_refused(tmp_path: Path) -> None:
    heard(tmp_path, max_epochs=1)
    checkpoint = torch.load(tmp_path / "end.ckpt", weights_only=True)
    checkpoint["RolloutDataModule"] = checkpoint.pop("TrajectoryDataModule")
    torch.save(checkpoint, tmp_path / "other.ckpt")
    with pytest.raises(ValueError, match=r"holds no state of a TrajectoryDataModule"):
        heard(tmp_path, tmp_path / "other.ckpt")


def test_the_number_of_shards_takes_no_position_of_an_earlier_argument() -> None:
    last = ["n_normalization_samples", "engine", "check", "n_shards"]
    assert list(inspect.signature(TrajectoryDataModule).parameters)[-4:] == last

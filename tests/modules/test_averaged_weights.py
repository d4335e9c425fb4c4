"""Averages of weights by callbacks of Lightning, and checkpoints that hold them."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from gymnasium import spaces
from pytorch_lightning.callbacks import Callback, Checkpoint, EMAWeightAveraging, OnExceptionCheckpoint, WeightAveraging
from torch import Tensor, distributed, multiprocessing, nn
from torch.optim.swa_utils import AveragedModel, get_ema_avg_fn, get_ema_multi_avg_fn, get_swa_multi_avg_fn

from maze_pl.core.spec import Spec, StepSpec
from maze_pl.modules import A2C, DQN
from maze_pl.modules.averaged_weights import ExactAverage
from maze_pl.schedules import Linear
from maze_pl.system.ranks import gather_objects
from tests.faults.moments import FailAt

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*LeafSpec.*", "ignore:You defined a `validation_step`"),
    pytest.mark.filterwarnings("ignore:You're using the WeightAveraging callback"),
    pytest.mark.filterwarnings("ignore:Be aware that when using `ckpt_path`"),
]

N_STEPS = 10 * 4 * 2  # in an epoch


class Saved(Checkpoint):
    """Keeps a checkpoint after the second epoch."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def on_train_epoch_end(self, trainer: Any, pl_module: Any) -> None:
        if trainer.current_epoch == 1:
            trainer.save_checkpoint(self.path)


class Last(Checkpoint):
    """Keeps a checkpoint at the end of training, before the average takes the place of the weights."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def on_train_epoch_end(self, trainer: Any, pl_module: Any) -> None:
        trainer.save_checkpoint(self.path)


@pytest.fixture
def path(kit: SimpleNamespace, tmp_path: Path) -> Path:
    averaging = EMAWeightAveraging(decay=0.5)
    module = A2C(actor_critic=kit.make_actor_critic(), lr=0.1)
    kit.fit(module, epochs=2, enable_checkpointing=True, callbacks=[averaging, Saved(tmp_path / "averaged.ckpt")])
    return tmp_path / "averaged.ckpt"


@pytest.mark.parametrize("earlier", [False, True])
def test_the_count_of_steps_is_that_of_the_run(kit: SimpleNamespace, path: Path, earlier: bool) -> None:
    saved = torch.load(path, weights_only=True)
    counts = [int(saved[name]["_extra_state"]) for name in ("state_dict", "current_model_state")]
    assert counts == [2 * N_STEPS, 2 * N_STEPS]
    weight = next(name for name in saved["state_dict"] if name.endswith("weight"))
    assert not torch.equal(saved["state_dict"][weight], saved["current_model_state"][weight])
    if earlier:  # the count at which the weights were copied
        saved["state_dict"]["_extra_state"] = torch.tensor(0)
        torch.save(saved, path)
    module = A2C(actor_critic=kit.make_actor_critic())
    evaluations = kit.Source(module, kit.make_evaluations, 1)
    kit.make_trainer().validate(module, evaluations, ckpt_path=path, verbose=False, weights_only=True)
    assert module.env_steps == 2 * N_STEPS
    assert torch.equal(module.state_dict()[weight], saved["state_dict"][weight])


def test_resuming_needs_the_callback_as_the_optimisers_state_is_not_that_of_the_average(
    kit: SimpleNamespace, path: Path
) -> None:
    with pytest.raises(ValueError, match=r"averaged.ckpt are an average.*EMAWeightAveraging, or use --warm-start"):
        kit.fit(A2C(actor_critic=kit.make_actor_critic()), epochs=3, ckpt_path=path)
    module = A2C(actor_critic=kit.make_actor_critic())
    kit.fit(module, epochs=3, ckpt_path=path, callbacks=[EMAWeightAveraging(decay=0.5)])
    assert module.env_steps == 3 * N_STEPS


class Buffers(nn.Module):
    """Buffers of all kinds, the weight of a layer, and the running statistics of its outputs."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2))
        self.n_updates = nn.Buffer(torch.tensor(0))
        self.scale = nn.Buffer(torch.tensor(1.0))
        self.levels = nn.Buffer(torch.arange(16), persistent=False)
        self.factor = nn.Buffer(torch.tensor(0.05), persistent=False)

    def learn(self, step: int) -> None:
        with torch.no_grad():
            self.layers[0].weight.fill_(step)
        self.layers(torch.randn(8, 3, generator=torch.Generator().manual_seed(step)))
        self.n_updates.add_(1)
        self.scale.mul_(2.0)


@pytest.mark.parametrize(
    "options",
    [
        {"avg_fn": get_ema_avg_fn(0.9), "use_buffers": True},
        {"multi_avg_fn": get_ema_multi_avg_fn(0.9), "use_buffers": True},
        {"avg_fn": get_ema_avg_fn(0.9), "use_buffers": False},
        {"use_buffers": True},
    ],
    ids=["ema", "lists", "without_buffers", "equal"],
)
def test_weights_and_running_statistics_are_averaged_and_counts_and_constants_are_copied(options: Any) -> None:
    current = Buffers()
    exact, reference = ExactAverage(AveragedModel(current, **options)), AveragedModel(current, **options)
    for step in range(1, 4):
        current.learn(step)
        exact.update_parameters(current)
        reference.update_parameters(current)
    states = [one.module.state_dict() for one in (exact, reference)]
    averaged = [f"layers.{name}" for name, one in current.layers.state_dict().items() if one.is_floating_point()]
    assert all(torch.equal(*(state[name] for state in states)) for name in averaged)
    assert len(averaged) == 6
    assert not torch.equal(exact.module.layers[0].weight, current.layers[0].weight)
    means = [one.layers[1].running_mean for one in (exact.module, current)]
    assert torch.equal(*means) is not options["use_buffers"]
    for name in ("n_updates", "scale", "levels", "factor", "layers.1.num_batches_tracked"):
        assert torch.equal(exact.module.get_buffer(name), current.get_buffer(name)), name
    assert exact.state_dict().keys() == reference.state_dict().keys()
    assert exact.n_averaged == 3


@pytest.mark.parametrize("options", [{}, {"multi_avg_fn": get_swa_multi_avg_fn()}], ids=["equal", "lists"])
def test_booleans_are_copied_to_an_average_of_equal_weights(options: Any) -> None:
    current = nn.Linear(1, 1)
    current.mask = nn.Buffer(torch.tensor([True, False]))
    average = ExactAverage(AveragedModel(current, use_buffers=True, **options))
    for _ in range(3):
        current.mask.logical_not_()
        average.update_parameters(current)
        assert torch.equal(average.module.mask, current.mask)


def test_exploration_that_follows_a_schedule_does_not_lag_behind_also_between_updates_of_the_average() -> None:
    step = StepSpec(spaces.Dict({"x": spaces.Box(-1, 1, (2,))}), spaces.Dict({"action": spaces.Discrete(2)}))
    current = DQN(spec=Spec({0: step}))
    average = ExactAverage(AveragedModel(current, avg_fn=get_ema_avg_fn(0.999), use_buffers=True))
    for epsilon in (1.0, 0.5):
        current.policy.set_exploration(epsilon)
        average.update_parameters(current)
    assert average.module.policy.exploration == 0.5
    current.policy.set_exploration(0.05)
    for _ in range(2):  # to the average and back
        average.exchange(current)
        assert current.policy.exploration == torch.tensor(0.05)


@pytest.mark.parametrize("options", [{"avg_fn": get_ema_avg_fn(0.9)}, {"multi_avg_fn": get_ema_multi_avg_fn(0.9)}])
def test_complex_parameters_are_averaged(options: Any) -> None:
    current = nn.Linear(1, 2)
    current.phase = nn.Parameter(torch.zeros(2, dtype=torch.complex64))
    average = ExactAverage(AveragedModel(current, **options))
    for value in (0.0, 1.0j):
        nn.init.constant_(current.phase, value)
        average.update_parameters(current)
    assert torch.allclose(average.module.phase, torch.full((2,), 0.1j))


def average_on_a_rank(rank: int, folder: str) -> None:
    distributed.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=2)
    current = Buffers()
    average = ExactAverage(AveragedModel(current, avg_fn=get_ema_avg_fn(0.5), use_buffers=True))
    for step in (1, 2):
        current.learn(2 * step + rank)
        average.update_parameters(current)
    statistics = gather_objects(average.module.layers[1].running_mean.tolist())
    assert statistics[0] == statistics[1]
    distributed.destroy_process_group()


@pytest.mark.slow
def test_all_ranks_have_the_same_average_of_running_statistics(tmp_path: Path) -> None:
    multiprocessing.spawn(average_on_a_rank, (str(tmp_path),), nprocs=2)


class Watched(Callback):
    """Notes categories that the policy has in evaluations."""

    def __init__(self) -> None:
        self.levels: list[list[int]] = []

    def on_validation_batch_start(self, trainer: Any, pl_module: Any, *args: Any) -> None:
        self.levels.append(pl_module.policy.levels.tolist())


@pytest.mark.parametrize("averaging", [EMAWeightAveraging(decay=0.9), WeightAveraging(avg_fn=get_ema_avg_fn(0.992))])
def test_evaluations_and_the_result_of_training_have_the_categories_of_the_networks(
    kit: SimpleNamespace, averaging: WeightAveraging
) -> None:
    watched = Watched()
    module = A2C(actor_critic=kit.make_actor_critic(), lr=0.1)
    module.policy.levels = nn.Buffer(torch.arange(4), persistent=False)
    kit.fit(module, epochs=2, callbacks=[averaging, watched])
    assert [*watched.levels, module.policy.levels.tolist()] == [[0, 1, 2, 3]] * 3


class Counting(Callback):
    """Counts batches in a buffer of the policy, and notes the count that evaluations see."""

    def __init__(self) -> None:
        self.evaluated: list[int] = []

    def on_train_batch_end(self, trainer: Any, pl_module: Any, *args: Any) -> None:
        pl_module.policy.n_batches += 1

    def on_validation_batch_start(self, trainer: Any, pl_module: Any, *args: Any) -> None:
        self.evaluated.append(int(pl_module.policy.n_batches))

    def on_train_end(self, trainer: Any, pl_module: Any) -> None:
        pl_module.policy.n_batches += 100


class SavedInEvaluation(Checkpoint):
    """Keeps a checkpoint after each evaluation, before the average is updated."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def on_validation_end(self, trainer: Any, pl_module: Any) -> None:
        trainer.save_checkpoint(self.path)


def test_between_updates_of_the_average_evaluations_and_checkpoints_have_the_current_buffers(
    kit: SimpleNamespace, tmp_path: Path
) -> None:
    counting = Counting()
    once_per_epoch = EMAWeightAveraging(decay=0.5, update_every_n_steps=0, update_starting_at_epoch=0)
    module = A2C(actor_critic=kit.make_actor_critic(), lr=0.1)
    module.policy.n_batches = nn.Buffer(torch.tensor(0))
    callbacks = [counting, once_per_epoch, SavedInEvaluation(tmp_path / "saved.ckpt")]
    kit.fit(module, epochs=2, enable_checkpointing=True, callbacks=callbacks)
    n_batches = counting.evaluated[0]
    assert n_batches > 0
    assert counting.evaluated == [n_batches, 2 * n_batches]
    saved = torch.load(tmp_path / "saved.ckpt", weights_only=True)
    name = "actor_critic.policy.n_batches"
    assert saved["state_dict"][name] == saved["current_model_state"][name] == 2 * n_batches
    assert module.policy.n_batches == 2 * n_batches + 100


def test_a_run_in_64_bits_with_a_scheduled_option_is_resumed_bit_for_bit(kit: SimpleNamespace, tmp_path: Path) -> None:
    def train(**options: Any) -> tuple[A2C, dict[str, Any]]:
        module = A2C(actor_critic=kit.make_actor_critic(), entropy_coef=Linear(0.1, 0.0), lr=0.1)
        callbacks = [EMAWeightAveraging(decay=0.9), Saved(tmp_path / "second.ckpt"), Last(tmp_path / "last.ckpt")]
        kit.fit(module, epochs=4, precision="64-true", enable_checkpointing=True, callbacks=callbacks, **options)
        return module, torch.load(tmp_path / "last.ckpt", weights_only=True)

    whole, expected = train()
    resumed, found = train(ckpt_path=tmp_path / "second.ckpt")
    for state in ("state_dict", "current_model_state"):
        for name, value in expected[state].items():
            assert torch.equal(value, found[state][name]), f"{state} {name}"
    weights = [value for value in expected["current_model_state"].values() if value.is_floating_point()]
    assert all((value != value.float()).any() for value in weights), "evaluations do not round weights to 32 bits"
    assert whole.state_dict().keys() == resumed.state_dict().keys()


class Followed(Callback):
    """Averages the same weights by hand, and keeps the last ones."""

    def __init__(self, decay: float) -> None:
        self.decay = decay
        self.average: dict[str, Tensor] = {}
        self.current: dict[str, Tensor] = {}

    def on_train_batch_end(self, trainer: Any, pl_module: Any, *args: Any) -> None:
        self.current = {name: weight.detach().clone() for name, weight in pl_module.named_parameters()}
        for name, weight in self.current.items():
            former = self.average.get(name, weight.float())
            self.average[name] = self.decay * former + (1 - self.decay) * weight.float()


def test_evaluations_do_not_round_the_average_to_the_precision_of_the_networks(
    kit: SimpleNamespace, tmp_path: Path
) -> None:
    followed = Followed(decay=0.99)
    callbacks = [EMAWeightAveraging(decay=0.99), followed, Last(tmp_path / "last.ckpt")]
    module = A2C(actor_critic=kit.make_actor_critic(), lr=0.1)
    kit.fit(module, epochs=5, length=1, precision="bf16-true", enable_checkpointing=True, callbacks=callbacks)
    saved = torch.load(tmp_path / "last.ckpt", weights_only=True)
    assert {one.dtype for one in followed.current.values()} == {torch.bfloat16}
    for name, weight in followed.average.items():
        assert torch.allclose(saved["state_dict"][name], weight, rtol=1e-6), name
        assert torch.equal(saved["current_model_state"][name], followed.current[name]), name


class SavedWithinEvaluation(Checkpoint):
    """Keeps a checkpoint while the average is evaluated."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def on_validation_batch_start(self, trainer: Any, *args: Any) -> None:
        trainer.save_checkpoint(self.path)


def test_checkpoints_within_an_evaluation_hold_the_current_weights_as_well(
    kit: SimpleNamespace, tmp_path: Path
) -> None:
    path, followed = tmp_path / "saved.ckpt", Followed(decay=0.9)
    module = A2C(actor_critic=kit.make_actor_critic(), lr=0.1)
    callbacks = [EMAWeightAveraging(decay=0.9), followed, SavedWithinEvaluation(path)]
    kit.fit(module, enable_checkpointing=True, callbacks=callbacks)
    saved = torch.load(path, weights_only=True)
    for name, weight in followed.current.items():
        assert torch.equal(saved["current_model_state"][name], weight), name
        assert torch.allclose(saved["state_dict"][name], followed.average[name]), name
    assert not torch.equal(saved["state_dict"][name], weight)


class Telling(EMAWeightAveraging):
    """Notes failures."""

    failures = 0

    def on_exception(self, *args: Any) -> None:
        self.failures += 1


class FailInEvaluation(Callback):
    """Raises an error while the average is evaluated."""

    def on_validation_batch_start(self, *args: Any) -> None:
        raise ZeroDivisionError


@pytest.mark.filterwarnings("ignore:.*ckpt_path=")
@pytest.mark.parametrize("failing", [FailInEvaluation(), FailAt("validation_end")])
def test_an_evaluation_that_fails_leaves_the_current_weights_and_the_average_in_their_places(
    kit: SimpleNamespace, tmp_path: Path, failing: Callback
) -> None:
    followed, averaging = Followed(decay=0.9), Telling(decay=0.9)
    callbacks = [failing, averaging, followed, OnExceptionCheckpoint(tmp_path)]
    module = A2C(actor_critic=kit.make_actor_critic(), lr=0.1)
    with pytest.raises(ZeroDivisionError):
        kit.fit(module, enable_checkpointing=True, callbacks=callbacks)
    saved = torch.load(tmp_path / "on_exception.ckpt", weights_only=True)
    weights = dict(module.named_parameters())
    for name, weight in followed.current.items():
        assert torch.equal(weights[name], weight), name
        assert torch.equal(saved["current_model_state"][name], weight), name
        assert torch.allclose(saved["state_dict"][name], followed.average[name]), name
    assert not torch.equal(saved["state_dict"][name], weight)
    assert averaging.failures == 1

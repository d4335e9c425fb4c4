"""Coefficients that callbacks set: when they are used, and what resumed runs have of them."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import pytorch_lightning as pl
import torch

from maze_pl.callbacks import LastCheckpoint
from maze_pl.core.checkpoint_content import CHECKPOINT_KEY
from maze_pl.core.spec import Spec
from maze_pl.modules import DQN, IMPALA, PPO
from maze_pl.schedules import Linear
from tests.exact.comparison import differences
from tests.modules.sac_reference import make as make_sac
from tests.modules.sac_reference import replay_batch, step_spec

pytestmark = pytest.mark.filterwarnings("ignore:.*LeafSpec.*", "ignore:You defined a `validation_step`")

N_BATCHES = 2


class Setting(pl.Callback):
    """Sets attributes of the module when a hook is called for the n-th time, counted from 0."""

    def __init__(self, hook: str, at: int = 0, **values: Any) -> None:
        self._at, self._values = at, values
        self._n_calls = 0
        setattr(self, hook, self._set)

    def _set(self, trainer: Any, pl_module: Any, *_: Any) -> None:
        if self._n_calls == self._at:
            for name, value in self._values.items():
                setattr(pl_module, name, value)
        self._n_calls += 1


def ppo(kit: SimpleNamespace, **options: Any) -> PPO:
    given = {"batch_size": 40, "n_optimization_epochs": 2, "lr": 0.01, "entropy_coef": 0.0, "capture": "off"}
    return PPO(actor_critic=kit.make_actor_critic(), **{**given, **options})


def run(kit: SimpleNamespace, module: Any, path: Path, epochs: int, *callbacks: Any, **options: Any) -> dict[str, Any]:
    """Train; return the weights, and all statistics of the last epoch without times."""
    torch.manual_seed(1)
    trainer = kit.fit(module, epochs=epochs, length=N_BATCHES, callbacks=[*callbacks], **options)
    trainer.save_checkpoint(path)
    table = module.epoch_statistics["train"]
    return {
        "state": {name: tensor.clone() for name, tensor in module.state_dict().items()},
        "table": {name: value for name, value in table.items() if "time" not in name},
    }


def added(path: Path) -> Any:
    """Coefficients in a checkpoint; None without the entry."""
    return torch.load(path, weights_only=True)[CHECKPOINT_KEY].get("coefficients")


CHANGES = {"entropy_coef": 5.0, "clip_range": 0.05, "value_clip_range": 0.01}


@pytest.mark.parametrize(
    ("hook", "at", "capture"),
    [
        pytest.param("on_train_start", 0, "off", marks=pytest.mark.slow),
        ("on_train_epoch_start", 1, "off"),
        pytest.param("on_train_epoch_start", 1, "auto", marks=pytest.mark.slow),
        pytest.param("on_validation_end", 1, "off", marks=pytest.mark.slow),
    ],
)
def test_a_resumed_run_has_the_numbers_that_callbacks_have_set(
    kit: SimpleNamespace, tmp_path: Path, hook: str, at: int, capture: str
) -> None:
    """The whole run and one of three parts, of which only the first has the callback."""
    make, change = partial(ppo, kit, capture=capture), partial(Setting, hook, at, **CHANGES)
    whole = run(kit, make(), tmp_path / "whole.ckpt", 4, change())
    run(kit, make(), tmp_path / "two.ckpt", 2, change())
    run(kit, make(), tmp_path / "three.ckpt", 3, ckpt_path=tmp_path / "two.ckpt")
    module = make()
    resumed = run(kit, module, tmp_path / "four.ckpt", 4, ckpt_path=tmp_path / "three.ckpt")
    assert differences(whole, resumed) == []
    assert {name: getattr(module, name) for name in CHANGES} == CHANGES
    assert module.n_traces == (1 if capture == "auto" else 0)
    assert added(tmp_path / "four.ckpt") == {
        "entropy_coef": {"option": 0.0, "value": 5.0},
        "clip_range": {"option": 0.2, "value": 0.05},
        "value_clip_range": {"option": None, "value": 0.01},
    }


def replay(kind: str) -> Callable[..., Any]:
    return lambda seed: replay_batch(kind, 1, seed)


def test_sac_keeps_the_entropy_coefficient_of_a_callback(kit: SimpleNamespace, tmp_path: Path) -> None:
    make = partial(make_sac, "continuous", entropy_tuning=False)
    change = partial(Setting, "on_train_epoch_end", entropy_coef=0.7, tau=0.5)
    how = {"make": replay("continuous")}
    whole = run(kit, make(), tmp_path / "whole.ckpt", 2, change(), **how)
    run(kit, make(), tmp_path / "one.ckpt", 1, change(), **how)
    module = make()
    resumed = run(kit, module, tmp_path / "two.ckpt", 2, ckpt_path=tmp_path / "one.ckpt", **how)
    assert differences(whole, resumed) == []
    assert module.log_entropy_coef.exp().tolist() == pytest.approx([0.7])


def explored(kit: SimpleNamespace, path: Path, epochs: int, *callbacks: Any, **options: Any) -> list[float]:
    """Train DQN with an epsilon of 0.5; return the epsilon with which each batch was collected."""
    found: list[float] = []
    module = DQN(spec=Spec({0: step_spec("masked_choice")}), epsilon=0.5, capture="off")

    def collect(seed: int) -> Any:
        found.append(float(module.policy.exploration))
        return replay_batch("masked_choice", 1, seed)

    run(kit, module, path, epochs, *callbacks, make=collect, **options)
    return found


def test_dqn_explores_with_the_epsilon_of_a_callback_from_the_next_epoch_on(
    kit: SimpleNamespace, tmp_path: Path
) -> None:
    change = partial(Setting, "on_train_epoch_end", epsilon=0.25)
    whole = explored(kit, tmp_path / "whole.ckpt", 3, change())
    assert whole == [0.5] * N_BATCHES + [0.25] * 2 * N_BATCHES
    explored(kit, tmp_path / "one.ckpt", 1, change())
    assert explored(kit, tmp_path / "three.ckpt", 3, ckpt_path=tmp_path / "one.ckpt") == whole[N_BATCHES:]


@pytest.mark.filterwarnings("ignore:You're resuming from a checkpoint that ended before the epoch ended")
def test_dqn_explores_with_an_epsilon_from_an_evaluation_within_an_epoch_in_the_next_batch(
    kit: SimpleNamespace, tmp_path: Path
) -> None:
    change, options = Setting("on_validation_end", epsilon=0.25), {"val_check_interval": 1, "num_sanity_val_steps": 0}
    assert explored(kit, tmp_path / "one.ckpt", 1, change, **options) == [0.5, 0.25]
    options |= {"max_steps": 1, "enable_checkpointing": True, "default_root_dir": str(tmp_path)}
    again = [Setting("on_validation_end", epsilon=0.25), LastCheckpoint(dirpath=str(tmp_path))]
    assert explored(kit, tmp_path / "part.ckpt", 1, *again, **options) == [0.5]
    assert explored(kit, tmp_path / "resumed.ckpt", 1, ckpt_path=tmp_path / "last.ckpt") == [0.25]


def test_an_option_that_is_changed_replaces_the_number_of_a_callback(kit: SimpleNamespace, tmp_path: Path) -> None:
    one = tmp_path / "one.ckpt"
    run(kit, ppo(kit), one, 1, Setting("on_train_start", **CHANGES))
    module = ppo(kit, entropy_coef=0.1, value_clip_range=0.3, clip_range=Linear(0.2, 0.1))
    run(kit, module, tmp_path / "two.ckpt", 2, ckpt_path=one)
    assert (module.entropy_coef, module.value_clip_range) == (0.1, 0.3)
    assert module.value_of("clip_range") == pytest.approx(0.1)  # the end of the schedule
    assert added(tmp_path / "two.ckpt") is None


def test_a_callback_of_the_resumed_run_sets_a_number_when_training_starts(kit: SimpleNamespace, tmp_path: Path) -> None:
    one = tmp_path / "one.ckpt"
    run(kit, ppo(kit), one, 1, Setting("on_train_start", entropy_coef=5.0))
    module = ppo(kit)
    run(kit, module, tmp_path / "two.ckpt", 2, Setting("on_train_start", entropy_coef=0.5), ckpt_path=one)
    assert module.entropy_coef == 0.5


def test_a_coefficient_that_follows_a_schedule_cannot_be_set(kit: SimpleNamespace, tmp_path: Path) -> None:
    module = ppo(kit, entropy_coef=Linear(0.1, 0.0))
    with pytest.raises(TypeError, match=r"entropy_coef follows the schedule Linear.* number to PPO"):
        kit.fit(module, callbacks=[Setting("on_train_epoch_start", entropy_coef=5.0)])
    replaced = ppo(kit, entropy_coef=Linear(0.1, 0.0))
    run(kit, replaced, tmp_path / "one.ckpt", 1, Setting("on_train_start", entropy_coef=torch.tensor(5.0)))
    assert float(replaced.entropy_coef) == replaced.value_of("entropy_coef") == 0.0
    assert added(tmp_path / "one.ckpt") is None


def test_the_default_epsilon_follows_a_schedule_and_cannot_be_set() -> None:
    module = DQN(spec=Spec({0: step_spec("masked_choice")}))
    with pytest.raises(TypeError, match=r"epsilon follows the schedule .* cannot be set to 0.9: pass a number to DQN"):
        module.epsilon = 0.9


@pytest.mark.parametrize(
    ("name", "value", "error", "message"),
    [
        ("entropy_coef", -1.0, ValueError, "entropy_coef=-1.0 must be at least 0"),
        ("entropy_coef", float("nan"), ValueError, "entropy_coef=nan must be at least 0"),
        ("entropy_coef", torch.tensor(-1.0), ValueError, r"entropy_coef=-1.0 must be at least 0"),
        ("entropy_coef", "0.1", TypeError, "entropy_coef='0.1' must be a number, or a tensor of one: convert it by"),
        ("entropy_coef", True, TypeError, "entropy_coef=True must be a number"),
        ("entropy_coef", np.array(0.2), TypeError, r"entropy_coef=array\(0.2\) must be a number, or a tensor of one"),
        ("entropy_coef", None, TypeError, "entropy_coef=None must be a number"),
        ("entropy_coef", Linear(0.1, 0.0), TypeError, r"entropy_coef=Linear\(.*\) must be a number"),
        ("entropy_coef", torch.zeros(2), TypeError, r"entropy_coef=tensor\(\[0., 0.\]\) must be a number"),
        ("clip_range", 0.0, ValueError, "clip_range=0.0 must be greater than 0"),
        ("clip_range", None, TypeError, "clip_range=None must be a number"),
        ("target_kl", 0.0, ValueError, "target_kl=0.0 must be greater than 0"),
    ],
)
def test_a_number_that_an_option_could_not_have_is_refused(
    kit: SimpleNamespace, name: str, value: Any, error: type[Exception], message: str
) -> None:
    module = ppo(kit)
    with pytest.raises(error, match=message):
        setattr(module, name, value)
    assert getattr(module, name) == getattr(ppo(kit), name)


def test_a_tensor_with_a_gradient_is_followed_without_a_warning(kit: SimpleNamespace, tmp_path: Path) -> None:
    module = ppo(kit)
    run(
        kit,
        module,
        tmp_path / "one.ckpt",
        1,
        Setting("on_train_start", entropy_coef=torch.ones((), requires_grad=True)),
    )
    assert added(tmp_path / "one.ckpt")["entropy_coef"]["value"] == 1.0


def test_an_array_of_one_number_is_an_option_like_the_number(kit: SimpleNamespace) -> None:
    module = ppo(kit, entropy_coef=np.array(0.2))
    assert (module.entropy_coef, type(module.entropy_coef)) == (0.2, float)


def test_the_entropy_coefficient_that_sac_learns_cannot_be_set(kit: SimpleNamespace) -> None:
    module = make_sac("continuous")
    with pytest.raises(ValueError, match=r"entropy_coef cannot be set while .* set entropy_tuning=False"):
        kit.fit(module, callbacks=[Setting("on_train_epoch_start", entropy_coef=5.0)], make=replay("continuous"))


def test_only_numbers_that_callbacks_have_set_are_saved(kit: SimpleNamespace, tmp_path: Path) -> None:
    run(kit, ppo(kit, entropy_coef=0, gae_lambda=np.float64(0.9)), tmp_path / "one.ckpt", 1)
    assert added(tmp_path / "one.ckpt") is None
    values = {"entropy_coef": torch.tensor(0.5), "clip_range": np.float64(0.25), "target_kl": None}
    module = ppo(kit, target_kl=0.5)
    run(kit, module, tmp_path / "two.ckpt", 1, Setting("on_train_start", **values))
    found = {name: saved["value"] for name, saved in added(tmp_path / "two.ckpt").items()}
    assert found == {"entropy_coef": 0.5, "clip_range": 0.25, "target_kl": None}
    assert {type(value) for value in found.values()} == {float, type(None)}


def test_checkpoints_of_earlier_versions_have_the_numbers_of_the_options(kit: SimpleNamespace, tmp_path: Path) -> None:
    path = tmp_path / "one.ckpt"
    run(kit, ppo(kit), path, 1, Setting("on_train_start", **CHANGES))
    checkpoint = torch.load(path, weights_only=True)
    del checkpoint[CHECKPOINT_KEY]["coefficients"]
    torch.save(checkpoint, path)
    module = ppo(kit)
    run(kit, module, tmp_path / "two.ckpt", 2, ckpt_path=path)
    assert (module.entropy_coef, module.clip_range, module.value_clip_range) == (0.0, 0.2, None)


def test_numbers_of_a_later_run_of_the_same_module_are_forgotten_by_an_earlier_checkpoint(
    kit: SimpleNamespace, tmp_path: Path
) -> None:
    early = tmp_path / "early.ckpt"
    module = ppo(kit)
    run(kit, module, early, 1)
    run(kit, module, tmp_path / "two.ckpt", 2, Setting("on_train_epoch_end", **CHANGES), ckpt_path=early)
    assert module.entropy_coef == 5.0
    run(kit, module, tmp_path / "again.ckpt", 2, ckpt_path=early)
    assert (module.entropy_coef, module.clip_range, module.value_clip_range) == (0.0, 0.2, None)


def test_a_number_from_before_the_first_run_is_kept_if_the_checkpoint_has_none(
    kit: SimpleNamespace, tmp_path: Path
) -> None:
    run(kit, ppo(kit), tmp_path / "one.ckpt", 1)
    module = ppo(kit)
    module.entropy_coef = 0.5
    run(kit, module, tmp_path / "two.ckpt", 2, ckpt_path=tmp_path / "one.ckpt")
    assert module.entropy_coef == 0.5


def test_tensors_of_callbacks_are_followed_without_waiting_for_their_device(kit: SimpleNamespace) -> None:
    module = ppo(kit)
    coefficients, trainer = module._coefficients, pl.Trainer(logger=False)
    module.entropy_coef = torch.empty((), device="meta")  # its value cannot be read
    coefficients.follow(trainer)
    assert not coefficients.are_changed
    module.entropy_coef.fill_(0.5)
    assert coefficients.are_changed
    coefficients.follow(trainer)
    module.entropy_coef = torch.empty((), device="meta")
    assert coefficients.are_changed
    with torch.inference_mode():
        module.entropy_coef = torch.tensor(0.5)
    coefficients.follow(trainer)
    assert not coefficients.are_changed


def test_a_module_that_is_loaded_to_act_has_the_numbers_of_its_options(kit: SimpleNamespace, tmp_path: Path) -> None:
    path = tmp_path / "one.ckpt"
    module = IMPALA(actor_critic=kit.make_actor_critic(), capture="off")
    run(kit, module, path, 1, Setting("on_train_start", entropy_coef=5.0))
    loaded = IMPALA.load_from_checkpoint(path, actor_critic=kit.make_actor_critic(), weights_only=True)
    assert loaded.entropy_coef == IMPALA(actor_critic=kit.make_actor_critic()).entropy_coef != 5.0

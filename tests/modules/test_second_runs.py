"""Several runs of one module, of which some fail: each begins without what the previous one has left."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from maze_pl.core.batches import Evaluation
from maze_pl.modules import A2C
from tests.faults.moments import FailAt

pytestmark = pytest.mark.filterwarnings("ignore:You defined a `validation_step`")


class Noting(A2C):
    """A2C that records the environment steps so far in each batch."""

    def training_step(self, *arguments: Any) -> None:
        """Learn from a rollout."""
        self.record("noted", float(self.env_steps))
        super().training_step(*arguments)


def counted(module: A2C) -> float:
    """Return the number of episodes in the last epoch of training."""
    return float(module.epoch_statistics["train"]["BaseEnvEvents/reward/episode_count"])


def test_numbers_and_episodes_of_a_run_that_failed_do_not_count_in_the_next_one(kit: SimpleNamespace) -> None:
    module = Noting(actor_critic=kit.make_actor_critic())
    with pytest.raises(ZeroDivisionError):
        kit.fit(module, length=4, callbacks=[FailAt("batch_end", count=2)])
    assert module.env_steps == 3 * 40
    kit.fit(module, length=2)
    assert counted(module) == 2
    assert module.epoch_statistics["train"]["ActorCriticEvents/noted"] == (160 + 200) / 2


def test_an_epoch_that_ends_early_has_no_batches_of_a_run_that_failed(kit: SimpleNamespace) -> None:
    module = Noting(actor_critic=kit.make_actor_critic())
    with pytest.raises(ZeroDivisionError):
        kit.fit(module, length=4, callbacks=[FailAt("batch_end", count=2)])
    kit.fit(module, length=4, max_steps=1)
    assert counted(module) == 1


def test_what_waits_for_the_end_of_an_epoch_is_released_on_the_way_to_the_cpu(kit: SimpleNamespace) -> None:
    module = A2C(actor_critic=kit.make_actor_critic())
    module.record("noted", 1.0)
    module._statistics.add_episodes("train", [kit.summary(1.0)])
    module.cpu()
    table = module._statistics.finish_training()
    assert (table.values, table.metrics) == ({}, {})


def test_tables_of_evaluators_that_a_run_does_not_have_are_forgotten(kit: SimpleNamespace) -> None:
    module = A2C(actor_critic=kit.make_actor_critic())
    kit.fit(module)
    for name in ("noisy", "eval"):
        evaluations = kit.Source(module, lambda seed, name=name: Evaluation(name, [kit.summary(1.0)]), 1)
        kit.make_trainer().fit(module, kit.Source(module, kit.make_flat_rollout, 1), evaluations)
        assert [*module.epoch_statistics] == ["train", name]
        assert [*module.epoch_plots] == ["train", name]


@pytest.mark.filterwarnings("ignore:Found .* in eval mode")
def test_an_evaluation_that_fails_leaves_modules_in_their_modes(kit: SimpleNamespace) -> None:
    module = A2C(actor_critic=kit.make_actor_critic(dropout=0.5))
    resting = module.networks.critic
    assert resting is not None
    resting.eval()
    with pytest.raises(ZeroDivisionError):
        kit.fit(module, callbacks=[FailAt("validation_start")])
    assert [part for part in module.modules() if not part.training] == [*resting.modules()]
    module.eval().cpu()
    assert not any(part.training for part in module.modules()), "this call is not by the trainer"


def test_a_checkpoint_that_was_refused_has_no_effect_on_the_next_run(kit: SimpleNamespace, tmp_path: Path) -> None:
    path = tmp_path / "sgd.ckpt"
    kit.fit(A2C(actor_critic=kit.make_actor_critic(), optimizer="sgd")).save_checkpoint(path)
    module = A2C(actor_critic=kit.make_actor_critic())
    with pytest.raises(ValueError, match=r"sgd.ckpt does not fit"):
        kit.fit(module, epochs=2, ckpt_path=path)
    kit.fit(module)
    assert counted(module) == 2

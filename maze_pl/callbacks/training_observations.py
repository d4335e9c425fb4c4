"""A sample of the observations of training, saved in checkpoints."""

from typing import Any

import pytorch_lightning as pl
from pytorch_lightning.callbacks import Callback
from pytorch_lightning.utilities import rank_zero_info

from maze_pl.agents import TorchPolicy
from maze_pl.core.observation_sample import ObservationSample
from maze_pl.core.run_starts import is_first_fit
from maze_pl.modules.notes import notes_on_observations


class TrainingObservations(Callback):
    """Samples the observations that the agent learns from, so that a deployment can detect drift.

    After the first epoch, it prints a note on each that is too large for the networks.

    The sample is part of checkpoints, and continues when a run is resumed. Batches without
    observations, such as those of populations, add nothing. With several ranks, only rank 0
    samples. On an accelerator, observations are fetched at the end of an epoch and for checkpoints;
    see `ObservationSample`.

    Attributes:
        sample: The sample.
    """

    def __init__(self) -> None:
        self.sample = ObservationSample()

    def setup(self, trainer: pl.Trainer, pl_module: pl.LightningModule, stage: str) -> None:
        """Forget an earlier run, unless the same trainer trains on."""
        if stage == "fit" and is_first_fit(trainer):  # the state of a resumed run is restored later
            self.sample = ObservationSample()

    def on_train_batch_start(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, batch: Any, batch_idx: int
    ) -> None:
        """Sample a batch, on rank 0."""
        if trainer.is_global_zero:
            self.sample.add_batch(batch)

    def on_train_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Fetch the observations of the epoch; after the first one, print notes on them."""
        self.sample.fetch()
        policy = getattr(pl_module, "policy", None)
        if trainer.current_epoch == 0 and isinstance(policy, TorchPolicy):
            for note in notes_on_observations(policy, self.sample):
                rank_zero_info(f"note: {note}")

    def state_dict(self) -> dict[str, Any]:
        """Return the state of the sample."""
        return self.sample.state_dict()

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Continue from the result of `state_dict`."""
        self.sample.load_state_dict(state_dict)

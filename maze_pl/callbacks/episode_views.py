"""View of an episode of the best policy, at the end of training."""

from pathlib import Path

import pytorch_lightning as pl
from pytorch_lightning import callbacks

from maze_pl.callbacks.epoch_table import say
from maze_pl.loggers.dashboard import dashboards
from maze_pl.modules.algorithm import AlgorithmModule
from maze_pl.system.atomic_files import write_file
from maze_pl.viewer.document import FILE_NAME, episode_document
from maze_pl.viewer.html_page import html_page
from maze_pl.viewer.pictures import picture_strip
from maze_pl.viewer.playing import PlayOptions, played_by_run


class EpisodeViews(callbacks.Callback):
    """Writes the view of one episode of `best.ckpt` to the run directory after training.

    Dashboards get it, too: Weights & Biases as HTML, TensorBoard as a strip of pictures. The
    episode is the first one of `maze-pl view RUN_DIR`. If it cannot be played or drawn, a message
    is printed, and the run ends as usual.

    Args:
        run_dir: The run directory.
        trust: Whether the run may name any class, as for `maze-pl view`; this run names them
            itself.
    """

    def __init__(self, run_dir: str, trust: bool = True) -> None:
        self.run_dir = run_dir
        self._folder = Path(run_dir).absolute()
        self._trust = trust

    def on_train_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Play, and write the view."""
        if not trainer.is_global_zero or not isinstance(pl_module, AlgorithmModule):
            return
        try:
            episodes, pairs = played_by_run(self._folder, PlayOptions(trust=self._trust))
            document = episode_document(episodes, pairs)
            page = html_page(document)
            write_file(self._folder / FILE_NAME, page.encode("utf-8", "replace"))
            strip = picture_strip(document)
            for dashboard in dashboards(trainer):
                dashboard.log_page("view", page, strip, pl_module.env_steps)
        except Exception as error:  # the run has succeeded, whatever a user's environment or renderer does now
            say(trainer, f"no view of an episode: {type(error).__name__}: {error}")
            return
        say(trainer, f"view of an episode: {Path(self.run_dir, FILE_NAME)}")

"""Pictures of a run's networks: in the run directory, and where a logger takes images."""

from pathlib import Path
from urllib.parse import quote

import pytorch_lightning as pl
from pytorch_lightning.callbacks import Callback

from maze_pl.callbacks.dashboards import dashboards
from maze_pl.callbacks.epoch_table import say
from maze_pl.core.output_folder import write_file
from maze_pl.envs.rendering import figure_to_array
from maze_pl.events.plots import require_matplotlib
from maze_pl.modules.algorithm import AlgorithmModule
from maze_pl.perception.drawing import actor_critic_graphs, draw, render


class NetworkPictures(Callback):
    """Draws policy and critic after the first epoch, as `networks/<name>.svg` and `.png`, and logs the pictures.

    A resumed run draws what is missing. Without matplotlib it says so, and draws nothing.

    Args:
        run_dir: The run directory.
    """

    def __init__(self, run_dir: str) -> None:
        self._folder: Path | None = Path(run_dir, "networks")

    def on_train_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Draw, when the first epoch ends: importing matplotlib would delay the first step."""
        folder, self._folder = self._folder, None
        if folder is None or not trainer.is_global_zero or not isinstance(pl_module, AlgorithmModule):
            return
        try:
            require_matplotlib("drawing the networks")
            graphs = actor_critic_graphs(pl_module.networks)
        except Exception as error:  # of any kind: a network may be the user's, and learns whether it is drawn or not
            say(trainer, f"no pictures of the networks: {error}")
            return
        for name, graph in graphs.items():
            svg, png = (folder / f"{quote(name, safe='')}.{form}" for form in ("svg", "png"))
            if trainer.ckpt_path is not None and svg.is_file() and png.is_file():
                continue
            figure = draw(graph, name)
            for path in (svg, png):
                write_file(path, render(figure, path.suffix[1:]))
            for dashboard in dashboards(trainer):
                dashboard.log_images({f"networks/{name}": figure_to_array(figure)}, pl_module.env_steps)

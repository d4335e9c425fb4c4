"""Pictures of policy and critic."""

from pathlib import Path
from urllib.parse import quote

import pytorch_lightning as pl
from pytorch_lightning.callbacks import Callback

from maze_pl.callbacks.epoch_table import say
from maze_pl.envs.rendering import figure_to_array
from maze_pl.events.display import require_matplotlib
from maze_pl.loggers.dashboard import dashboards
from maze_pl.modules.algorithm import AlgorithmModule
from maze_pl.perception import drawing, network_graph
from maze_pl.system.atomic_files import write_file


class NetworkPictures(Callback):
    """Draws policy and critic after the first epoch.

    The pictures are saved as `networks/<name>.svg` and `.png`, and logged to dashboards. Without
    matplotlib, a message is printed instead.

    Args:
        run_dir: The run directory.
    """

    def __init__(self, run_dir: str) -> None:
        self._folder: Path | None = Path(run_dir, "networks").absolute()

    def on_train_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Draw at the end of the first epoch: importing matplotlib would delay the first step."""
        folder = self._folder
        self._folder = None
        if folder is None or not trainer.is_global_zero:
            return
        if not isinstance(pl_module, AlgorithmModule):
            return
        try:
            require_matplotlib("drawing the networks")
            for name, graph in network_graph.actor_critic_graphs(pl_module.networks).items():
                figure = drawing.draw(graph, name)
                for form in ("svg", "png"):
                    write_file(folder / f"{quote(name, safe='')}.{form}", drawing.render(figure, form))
                for dashboard in dashboards(trainer):
                    images = {f"networks/{name}": figure_to_array(figure)}
                    dashboard.log_images(images, pl_module.env_steps)
        except Exception as error:  # a user's network trains even if it cannot be drawn
            say(trainer, f"no pictures of the networks: {error}")

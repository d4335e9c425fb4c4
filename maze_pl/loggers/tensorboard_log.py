"""Logger for TensorBoard."""

import contextlib
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml
from lightning_utilities.core.rank_zero import rank_zero_only
from pytorch_lightning.loggers import TensorBoardLogger
from tensorboard.backend.event_processing.event_file_loader import LegacyEventFileLoader
from tensorboard.compat.proto.event_pb2 import Event, SessionLog
from tensorboard.compat.proto.summary_pb2 import Summary, SummaryMetadata
from torch.utils.tensorboard.summary import hparams

from maze_pl.loggers.dashboard import Bins, Dashboard, description_of, hyperparameters
from maze_pl.loggers.log_folder import is_in_run_directory, log_folder
from maze_pl.system.atomic_files import shown_path

_SCALARS = "scalars"  # plugin that shows numbers; readers warn of metadata without one
_COMPARED = ("eval_BaseEnvEvents/reward/mean", "train_BaseEnvEvents/reward/mean")


class TensorBoardLog(Dashboard, TensorBoardLogger):
    """Writes event files to one folder, with configuration, hyper-parameters and distributions.

    Args:
        save_dir: Folder of the folder with the event files; None means the run directory.
        name: Folder of the event files in `save_dir`.
    """

    def __init__(self, save_dir: str | None = None, name: str = "tensorboard") -> None:
        super().__init__(str(log_folder(save_dir)), name="", version=name, default_hp_metric=False)
        self.view_command = f"tensorboard --logdir {shlex.quote(shown_path(self.log_dir))}"
        self._descriptions: dict[str, str] = {}
        self._described: set[str] = set()

    def begin(self, config: str, command: str, env_steps: int) -> None:
        """Log configuration and command as texts and, for a new run, values for the HPARAMS tab."""
        writer = self.experiment._get_file_writer()
        if env_steps > 0 or is_in_run_directory(Path(self.log_dir)):  # else earlier files are of other runs
            # TensorBoard drops everything in earlier files at this step or later.
            writer.add_event(Event(step=env_steps + 1, session_log=SessionLog(status=SessionLog.START)))
        if env_steps == 0:
            content = yaml.safe_load(config)
            metrics = dict.fromkeys([*_COMPARED, *_final_returns(content)], 0.0)
            experiment, start, _ = hparams(hyperparameters(content), metrics)  # type: ignore[no-untyped-call]
            writer.add_summary(experiment)
            writer.add_summary(start)
        self.experiment.add_text("configuration", f"```yaml\n{config}\n```", env_steps)
        self.experiment.add_text("command", f"`{command}`", env_steps)
        self.save()

    def conclude(self, results: Mapping[str, float], env_steps: int) -> None:
        """Log the final results, and the end of the session in the HPARAMS tab."""
        super().log_metrics(dict(results), env_steps)
        _, _, end = hparams({}, {})  # type: ignore[no-untyped-call]
        self.experiment._get_file_writer().add_summary(end)
        self.save()

    def describe_statistics(self, descriptions: Mapping[str, str]) -> None:
        """Attach descriptions to the tags of statistics; TensorBoard shows them at the charts."""
        self._descriptions.update(descriptions)

    @rank_zero_only
    def log_metrics(self, metrics: Mapping[str, float], step: int | None = None) -> None:
        """Log numbers; the first point of a tag carries its description.

        Args:
            metrics: Name -> value.
            step: Env steps so far.
        """
        others = dict(metrics)
        for name, value in metrics.items():
            description = None if name in self._described else description_of(name, self._descriptions)
            if description is not None:
                self._described.add(name)
                del others[name]
                plugin = SummaryMetadata.PluginData(plugin_name=_SCALARS)
                metadata = SummaryMetadata(display_name=name, summary_description=description, plugin_data=plugin)
                point = Summary.Value(tag=name, simple_value=float(value), metadata=metadata)
                self.experiment._get_file_writer().add_summary(Summary(value=[point]), step)
        super().log_metrics(others, step)

    def log_distributions(self, distributions: Mapping[str, Bins], env_steps: int) -> None:
        """Log histograms, for the tabs HISTOGRAMS and DISTRIBUTIONS."""
        for name, (counts, edges) in distributions.items():
            centres = (edges[1:] + edges[:-1]) / 2
            self.experiment.add_histogram_raw(
                name,
                min=edges[0],
                max=edges[-1],
                num=int(counts.sum()),
                sum=float(counts @ centres),
                sum_squares=float(counts @ centres**2),
                bucket_limits=edges[1:].tolist(),
                bucket_counts=counts.tolist(),
                global_step=env_steps,
            )

    def log_images(self, images: Mapping[str, Any], env_steps: int) -> None:
        """Log images, for the tab IMAGES."""
        for name, image in images.items():
            self.experiment.add_image(name, image, env_steps, dataformats="HWC")

    def save(self) -> None:
        """Flush to disk; no hyper-parameter file, as the run directory holds the configuration."""
        self.experiment.flush()

    def finalize(self, status: str) -> None:
        """Write the rest; a run that failed before it logged anything leaves no file."""
        if status != "failed" or self._experiment is None:
            super().finalize(status)
            return
        path = Path(self.experiment._get_file_writer().event_writer._file_name)
        with contextlib.suppress(OSError):  # a full disk must not hide the actual failure
            super().finalize(status)
            events = LegacyEventFileLoader(str(path)).Load()
            if all(event.HasField("file_version") for event in events):
                path.unlink()
                path.parent.rmdir()


def _final_returns(config: Mapping[str, Any]) -> list[str]:
    """Return the names of the final returns of all evaluators in a configuration."""
    data = config.get("data") or {}
    evaluators = (data.get("init_args") or {}).get("evaluators")
    names = list(evaluators) if isinstance(evaluators, dict) else ["eval"]
    return [f"final_{name}/{which}/return" for name in names for which in ("best", "last")]

"""Writer of animated GIFs of recorded episodes."""

import io
from typing import Any

from maze_pl.envs.rendering import save_gif
from maze_pl.envs.trajectory_writer import TrajectoryWriter
from maze_pl.system.atomic_files import output_folder


class GifFiles(TrajectoryWriter):
    """Writes an animated GIF of each episode, `<episode id>.gif`.

    Args:
        folder: Folder of the files; relative to the run directory in `maze-pl fit`.
        frames_per_second: Number of states shown per second, above 0 and at most 50.

    Raises:
        ValueError: `frames_per_second` is out of range.
    """

    needs_frames = True

    def __init__(self, folder: str = "renderings", frames_per_second: float = 20.0) -> None:
        if not 0 < frames_per_second <= 50:
            limits = "above 0 and at most 50, as gifs can show"
            raise ValueError(f"frames_per_second={frames_per_second} must be {limits}")
        self.folder = output_folder(folder)
        self.frames_per_second = frames_per_second

    def write(self, record: Any) -> None:
        """Write the GIF."""
        from PIL import Image

        frames = (Image.open(io.BytesIO(frame)) for frame in record.frames)
        save_gif(self.folder / f"{record.episode_id}.gif", frames, self.frames_per_second)

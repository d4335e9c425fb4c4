"""Writer of animated GIFs of recorded episodes."""

import io
from functools import partial
from pathlib import Path
from typing import Any, Final

from maze_pl.envs.episode_files import EpisodeFiles, decisions_digest, is_part_of
from maze_pl.envs.rendering import gif_of
from maze_pl.envs.trajectory_record import StateTrajectoryRecord
from maze_pl.envs.trajectory_writer import TrajectoryWriter
from maze_pl.system.atomic_files import output_folder, write_file
from maze_pl.system.deferred_files import deferred_files

_SECONDS: Final = 20.0
"""Seconds that a GIF lasts unless its number of frames per second is given, or too small or large."""
_SLOWEST: Final = 2.0
_FASTEST: Final = 20.0
"""Frames per second if none are given: few decisions can be followed, and long episodes have an end."""


class GifFiles(TrajectoryWriter):
    """Writes an animated GIF of each episode, `<episode id>.gif`.

    Evaluations repeat seeds and thus ids: further episodes go to `<episode id>-2.gif`, and so on,
    unless they are to replace each other. An episode that a resumed run continues or plays once
    more replaces its file in any case.

    Args:
        folder: Folder of the files; relative to the run directory in `maze-pl fit`.
        frames_per_second: Number of states shown per second, above 0 and at most 50. None makes
            episodes of up to 400 states last 20 s, with 2 to 20 states per second.
        keep_all: Whether the GIFs of all episodes with the same id are kept; otherwise that of the last one.

    Raises:
        ValueError: `frames_per_second` is out of range.
    """

    needs_frames = True

    def __init__(
        self, folder: str = "renderings", frames_per_second: float | None = None, keep_all: bool = True
    ) -> None:
        if frames_per_second is not None and not 0 < frames_per_second <= 50:
            limits = "above 0 and at most 50, as gifs can show"
            raise ValueError(f"frames_per_second={frames_per_second} must be {limits}")
        self.folder = output_folder(folder)
        self.frames_per_second = frames_per_second
        self.keep_all = keep_all
        self._files = EpisodeFiles(self.folder)

    def write(self, record: Any) -> None:
        """Write the GIF."""
        from PIL import Image

        frames = (Image.open(io.BytesIO(frame)) for frame in record.frames)
        speed = self.frames_per_second
        if speed is None:
            speed = max(_SLOWEST, min(_FASTEST, len(record.frames) / _SECONDS))
        film = gif_of(frames, speed, decisions_digest(record, len(record.steps)))
        if film is None:
            return
        if not self.keep_all:
            write_file(self._files.first(record.episode_id, "gif"), film)
            return
        files = deferred_files()
        path, further = self._files.choose(record.episode_id, "gif", partial(_holds_part, record), files)
        files.write(path, film, further)
        files.flush()


def _holds_part(record: StateTrajectoryRecord, path: Path) -> bool:
    """True if a GIF shows a part of an episode or the same episode, or cannot be read."""
    from PIL import Image

    try:
        with Image.open(path) as image:
            comment = image.info.get("comment", b"")
    except OSError:
        return True
    return is_part_of(comment, record)

"""Data sets of recorded episodes: the in-memory data set, trajectory processors and Minari.

The format of recorded files belongs to `maze_pl.records`, batches to `maze_pl.datamodules`.
"""

from .in_memory_dataset import InMemoryDataset as InMemoryDataset
from .replay_recorded_actions_policy import (
    ReplayRecordedActionsPolicy as ReplayRecordedActionsPolicy,
)
from .dead_end_clipping_trajectory_processor import (
    DeadEndClippingTrajectoryProcessor as DeadEndClippingTrajectoryProcessor,
)
from .identity_trajectory_processor import (
    IdentityTrajectoryProcessor as IdentityTrajectoryProcessor,
)
from .identity_with_next_observation_trajectory_processor import (
    IdentityWithNextObservationTrajectoryProcessor as IdentityWithNextObservationTrajectoryProcessor,
)
from .trajectory_processors import TrajectoryProcessor as TrajectoryProcessor

"""Lightning callbacks of a training run: checkpoints, console output, records and early ends.

Loggers are in `maze_pl.loggers`, and are exported here as well.
"""

from .best_checkpoint import BestCheckpoint as BestCheckpoint
from .early_stopping import EarlyStopping as EarlyStopping
from .episode_views import EpisodeViews as EpisodeViews
from .final_evaluation import FinalEvaluation as FinalEvaluation
from .last_checkpoint import LastCheckpoint as LastCheckpoint
from .matmul_precision import MatmulPrecision as MatmulPrecision
from .run_summary import RunSummary as RunSummary
from .stop_at_return import StopAtReturn as StopAtReturn
from .stop_on_signal import StopOnSignal as StopOnSignal
from .training_observations import TrainingObservations as TrainingObservations
from .epoch_table import EpochTable as EpochTable
from .network_pictures import NetworkPictures as NetworkPictures
from .rollout_progress_bar import RolloutProgressBar as RolloutProgressBar
from .run_record import RunRecord as RunRecord
from .evaluations import EvaluationCheck as EvaluationCheck
from maze_pl.loggers.dashboard import Dashboard as Dashboard
from maze_pl.loggers.metrics_file import MetricsFile as MetricsFile
from maze_pl.loggers.tensorboard_log import TensorBoardLog as TensorBoardLog
from maze_pl.loggers.wandb_log import WandbLog as WandbLog

"""Runs policies that `maze-pl export` has written; needs NumPy and ONNX Runtime, and nothing of maze_pl."""

from .bundle_file import BundleError as BundleError
from .policy import Decision as Decision
from .policy import Policy as Policy

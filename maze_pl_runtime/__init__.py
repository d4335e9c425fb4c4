"""Runs policies that `maze-pl export` has written, with NumPy and ONNX Runtime, without maze_pl."""

from .bundle_file import BundleError as BundleError
from .policy import Decision as Decision
from .policy import Policy as Policy

"""Training, evaluation and rollouts from Python, by the same assembly as on the command line.

`RunContext` makes command lines and runs them in this process. It holds no second configuration.
"""

from .run_context import RunContext as RunContext

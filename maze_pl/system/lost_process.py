"""The error of a process that died or hung, separate from modules that are slow to import."""


class LostProcessError(RuntimeError):
    """A process that a run needs died, or was ended because it hung.

    The job is not at fault: engines repeat it in a new process. If the error ends a command, its
    message suffices, without a traceback.
    """

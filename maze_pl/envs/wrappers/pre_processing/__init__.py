"""Pre-processing of observations: the wrapper and pre-processors, which maze_pl.envs.wrappers exports."""

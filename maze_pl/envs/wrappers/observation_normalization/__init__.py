"""Observation normalisation: wrapper, strategies and estimation, which maze_pl.envs.wrappers exports."""

"""Recorded episodes: the format of their files, and their acts as arrays.

Records of the simulation's states, which need a renderer, belong to `maze_pl.envs`; data sets to `maze_pl.datasets`.
"""

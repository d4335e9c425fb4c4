"""Comparison of policies by the results of their episodes: statistics, playing, tables, pages.

Files with statistics are pure: NumPy arrays in, numbers out. Intervals of a few independent numbers,
such as the final returns of several seeds, are in `maze_pl.runs.intervals`.
"""

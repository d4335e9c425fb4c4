"""Bundles: a trained policy and the wrappers that are arithmetic, as ONNX graphs in one file.

This package turns a run into a bundle and tests it. `maze_pl_runtime`, a package next to this one,
reads bundles without maze_pl; `maze_pl.runs.bundle_policy` plays them.
"""

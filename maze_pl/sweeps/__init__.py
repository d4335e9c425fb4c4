"""Sweeps: runs with different options, chosen by a grid or by Optuna, their storage, tables and pictures.

Each trial is an ordinary run in a process of `maze-pl fit`; nothing is trained here.
"""

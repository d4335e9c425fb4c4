"""Errors of exports."""

from maze_pl.config.search_path import ConfigurationError


class ExportError(ConfigurationError):
    """A policy cannot be exported; the message says which part of it, and why."""

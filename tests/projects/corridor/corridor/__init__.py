"""A project with its configurations inside its package, as they would be installed with it."""

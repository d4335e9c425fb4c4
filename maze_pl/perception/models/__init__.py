"""Model composers and built-in models."""

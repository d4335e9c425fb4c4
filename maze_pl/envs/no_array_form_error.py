"""Error of wrappers without an array form."""


class NoArrayFormError(TypeError):
    """A wrapper has no array form, or none with its options, so that it is refused around array environments."""

"""Numbers of things, which users give, and which must make sense."""


def require_count(name: str, value: int, least: int, whose: str = "") -> None:
    """Refuse a number of things that is no integer, or too small.

    Raises:
        TypeError: It is no integer.
        ValueError: It is too small.
    """
    if not isinstance(value, int) or isinstance(value, bool):
        raise TypeError(f"{name}={value!r}{whose} must be an integer, not {type(value).__name__}")
    if value < least:
        raise ValueError(f"{name}={value}{whose} must be at least {least}")

"""Requests that cannot be answered."""

from typing import Any


class RequestError(ValueError):
    """A request that is refused.

    Args:
        message: What came, and what was expected.
        field: The part of the request that is wrong, such as `observation/position`; "" for none.
        status: HTTP status of the answer.

    Attributes:
        field: As above.
        status: As above.
    """

    def __init__(self, message: str, field: str = "", status: int = 422) -> None:
        super().__init__(message)
        self.field = field
        self.status = status

    def content(self) -> dict[str, Any]:
        """Return the content of the answer."""
        return {"error": str(self), "field": self.field}

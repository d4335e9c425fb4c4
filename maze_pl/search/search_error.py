"""Error of a search that an environment or a policy does not support."""


class SearchError(ValueError):
    """Error of a search that an environment or a policy does not support."""

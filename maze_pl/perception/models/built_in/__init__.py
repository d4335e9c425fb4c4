"""Networks that come with the package."""

"""Types that everything else is built from; imports nothing else of the package."""

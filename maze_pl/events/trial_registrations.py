"""Registrations with a pubsub that are made on trial."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from maze_pl.events.pubsub import Pubsub


@contextmanager
def trial_registrations(pubsub: Pubsub) -> Iterator[None]:
    """Remove the subscribers and readers that are registered within a `with` block, at its end."""
    forget = forgetting_newer(pubsub)
    try:
        yield
    finally:
        forget()


def forgetting_newer(pubsub: Pubsub) -> Callable[[], None]:
    """Return a function that removes subscribers and readers that are registered from now on."""
    readers = pubsub.readers
    n_subscribers = len(pubsub.subscribers)

    def forget() -> None:
        for reader in pubsub.readers - readers:
            pubsub.remove_reader(reader)
        for subscriber in pubsub.subscribers[n_subscribers:]:
            pubsub.remove_subscriber(subscriber)

    return forget

"""Members that an environment does not define but passes on, without a call for each layer on the way."""

from __future__ import annotations

from operator import attrgetter
from typing import Any, TypeVar, cast

Member = TypeVar("Member")


def passed_on(member: Member | str, to: str = "env") -> Member:
    """A member of a class that is the one of the same name of what its instances hold.

    Args:
        member: The method that is passed on, or the name of an attribute.
        to: The attribute of the instances that holds what has it.
    """
    if isinstance(member, str):
        return cast(Member, property(attrgetter(f"{to}.{member}")))
    return cast(Member, property(attrgetter(f"{to}.{cast(Any, member).__name__}"), doc=member.__doc__))

"""Names of options, which may be spelled in several ways."""

import re
from typing import Final

_OPTIONAL: Final = re.compile(r"\.init_args(?=\.|$)")


def option_name(option: str) -> str:
    """Return the name of an option without `init_args`, which may be omitted, and without the plus of appending.

    Args:
        option: An option, such as `model.init_args.lr` or `data.wrappers+`.

    Example:
        >>> option_name("model.init_args.lr")
        'model.lr'
    """
    return _OPTIONAL.sub("", option.removesuffix("+"))

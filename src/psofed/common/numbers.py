"""Numbers on their way to JSON, which has neither NaN nor infinity."""

import math
from typing import Any


def finite_or_none(value: Any) -> Any:
    """Return None for a float that is not finite, any other value as it is; lists and dicts member by member.

    Examples
    --------
    >>> finite_or_none({"mean": 1.0, "error": [math.nan, 2]})
    {'mean': 1.0, 'error': [None, 2]}
    """
    if isinstance(value, dict):
        return {key: finite_or_none(member) for key, member in value.items()}
    if isinstance(value, list | tuple):
        return [finite_or_none(member) for member in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value

"""Inputs that are independent over time."""

from typing import ClassVar

from psofed.parts import InputStream


class Independent(InputStream):
    """Inputs that are independent over time: x_{k,n} ~ N(0, R_k) in every iteration, as in the paper."""

    methods: ClassVar[tuple[str, ...]] = ()  # the engine draws these inputs itself

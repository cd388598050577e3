"""What each built-in attack states to the theory, by kind."""

from collections.abc import Callable
from typing import Any

from psofed.common.errors import NotCoveredError
from psofed.parts.affine import Affine, PoisonedSamples

Statement = Affine | PoisonedSamples


def statement_of(attack: Any) -> Statement:
    """Return what an attack states of itself.

    Parameters
    ----------
    attack : Attack
        Its ``kind`` and the kind's options are read.

    Raises
    ------
    NotCoveredError
        For attacks that are not affine in the models, by name and with the reason.

    Examples
    --------
    >>> from psofed import Attack
    >>> statement_of(Attack(num_byzantine=1, kind="sign-flip", scale=2.0))
    Affine(own=-2.0, server=3.0, offset=0.0, variance=0.0, common_variance=0.0)
    """
    if attack.kind in STATEMENTS:
        return STATEMENTS[attack.kind](attack)
    reason = NOT_AFFINE.get(attack.kind, "it does not state its moments")
    raise NotCoveredError(f'the theory does not cover attack.kind = "{attack.kind}": {reason}')


def _sign_flip(attack: Any) -> Affine:
    if attack.of == "model":
        return Affine(own=-attack.scale)
    return Affine(own=-attack.scale, server=1.0 + attack.scale)


STATEMENTS: dict[str, Callable[[Any], Statement]] = {
    "gaussian": lambda attack: Affine(variance=attack.variance),
    "colluding-gaussian": lambda attack: Affine(common_variance=attack.variance),
    "constant-bias": lambda attack: Affine(offset=attack.bias),
    "sign-flip": _sign_flip,
    "scaled-update": lambda attack: Affine(own=attack.scale, server=1.0 - attack.scale),
    # Under the mean a number that is missing, or is no number, counts as the server's own.
    "drop-out": lambda attack: Affine(own=0.0, server=1.0),
    "non-finite": lambda attack: Affine(own=0.0, server=1.0),
    "label-poisoning": lambda attack: PoisonedSamples(label=-attack.scale),
    "data-poisoning": lambda attack: PoisonedSamples(input_noise_variance=attack.variance),
}

NOT_AFFINE = {
    "inner-product": "what an attacker sends depends on how many others attack in the same entry and iteration",
    "little-is-enough": "a standard deviation is not affine in the models",
    "mimic": "which client is copied depends on who participates and who attacks, so the copy is not affine",
}

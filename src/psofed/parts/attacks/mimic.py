"""Attackers that say what one honest client says."""

from psofed.parts.base import Attack
from psofed.parts.contexts import UploadAndEveryone


class Mimic(Attack):
    """All attackers send what one honest client sends, which so gets too many votes.

    In each entry an attacker sends the number that the clean participant with the lowest client number, of those who
    share the entry in this iteration, sends; always siding with the same clients, it biases the model towards their
    data. Where no clean upload holds the entry, the attacker sends its own value. Nothing it sends is out of the
    ordinary, so no rule can tell it from an honest client. Its strength is how often it does so.

    References
    ----------
    Karimireddy, He, Jaggi, "Byzantine-robust learning on heterogeneous datasets via bucketing", ICLR 2022.
    """

    knows = "everyone"
    not_affine_because = (
        "which client is copied depends on who participates and who attacks, so the copy is not affine"
    )

    def corrupt(self, upload: UploadAndEveryone) -> float:
        """Copy the clean upload of the lowest client number."""
        return upload.honest[0] if upload.honest.size > 0 else upload.value

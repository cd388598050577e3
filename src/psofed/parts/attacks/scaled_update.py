"""An update, exaggerated."""

from psofed.parts import Attack, option
from psofed.parts.affine import Affine
from psofed.parts.contexts import Upload


class ScaledUpdate(Attack):
    """A Byzantine participant exaggerates: it sends a multiple of its update, with probability p_a.

    With w_n the server's model before the upload, w'_{k,n+1} = w_n + scale · (w_{k,n+1} − w_n) on the shared entries.
    With the scale |S_n| one client alone decides the mean ("model replacement").

    References
    ----------
    Bagdasaryan, Veit, Hua, Estrin, Shmatikov, "How to backdoor federated learning", AISTATS 2020.

    Examples
    --------
    >>> upload = Upload(1.0, entry=0, client=0, iteration=0, normal=0.0, common_normal=0.0, server=0.5)
    >>> ScaledUpdate(num_byzantine=1, scale=3.0).corrupt(upload)
    2.0
    """

    knows = "server"

    scale: float = option(default=10.0, low=0.0, text="factor that multiplies the update", strength=True)

    def corrupt(self, upload: Upload) -> float:
        """Multiply the update."""
        return upload.server + self.scale * (upload.value - upload.server)

    def affine(self) -> Affine:
        """State the coefficients."""
        return Affine(own=self.scale, server=1.0 - self.scale)

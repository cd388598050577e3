"""An update or a model, turned round."""

from psofed.parts import Attack, option
from psofed.parts.affine import Affine
from psofed.parts.contexts import Upload


class SignFlip(Attack):
    """A Byzantine participant flips the sign of its model or update, with probability p_a.

    With w_n the server's model before the upload and u = w_{k,n+1} − w_n on the shared entries,

        of = "model":  w'_{k,n+1} = −scale · w_{k,n+1}            of = "update":  w'_{k,n+1} = w_n − scale · u

    RSA flips the message, and here messages are models: the first, which pushes towards −w all the time. Where papers
    send gradients, the flipped message is a flipped update: the second. Near the steady state u is small and of mean
    zero, so it is weak here.

    References
    ----------
    Li, Xu, Chen, Giannakis, Ling, "RSA: Byzantine-robust stochastic aggregation methods", AAAI 2019.

    Examples
    --------
    >>> upload = Upload(1.0, entry=0, client=0, iteration=0, normal=0.0, common_normal=0.0, server=0.5)
    >>> SignFlip(num_byzantine=1, scale=2.0).corrupt(upload)
    -2.0
    >>> SignFlip(num_byzantine=1, scale=2.0, of="update").corrupt(upload)
    -0.5
    """

    knows = "server"

    scale: float = option(default=1.0, low=0.0, text="factor of the reversed update or model", strength=True)
    of: str = option(default="model", choices=("model", "update"), text="what is reversed: the model or its update")

    def corrupt(self, upload: Upload) -> float:
        """Turn round what is sent, seen from the origin or from the server's model."""
        if self.of == "model":
            return -self.scale * upload.value
        return upload.server - self.scale * (upload.value - upload.server)

    def affine(self) -> Affine:
        """State the coefficients."""
        return Affine(own=-self.scale, server=0.0 if self.of == "model" else 1.0 + self.scale)

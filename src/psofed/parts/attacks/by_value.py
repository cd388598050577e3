"""Attacks that change each uploaded value on its own, in the models or the noise: theory covers them exactly."""

import math

from psofed.parts import Attack, option
from psofed.parts.affine import Affine
from psofed.parts.contexts import Upload


class Gaussian(Attack):
    """The paper's attack: a Byzantine participant adds N(0, σ_B² I) to what it uploads, with probability p_a.

    w'_{k,n+1} = w_{k,n+1} + β_k τ_{k,n} δ_{k,n+1}; its own local model stays clean (eq:attack_model).

    References
    ----------
    Lari, Arablouei, Gogineni, Werner, "Resilience in Online Federated Learning: Mitigating Model-Poisoning
    Attacks via Partial Sharing", IEEE TSIPN.

    Examples
    --------
    >>> attack = Gaussian(num_byzantine=15, variance=0.25)
    >>> attack.corrupt(Upload(value=1.0, entry=0, client=0, iteration=0, normal=2.0, common_normal=0.0))
    2.0
    """

    variance: float = option(
        default=0.5, low=0.0, text="variance of the noise added to each uploaded value", strength=True
    )

    def corrupt(self, upload: Upload) -> float:
        """Add δ."""
        return upload.value + math.sqrt(self.variance) * upload.normal

    def affine(self) -> Affine:
        """State noise of variance σ_B² (the diagonal of the paper's Ω_δ is p_a σ_B²)."""
        return Affine(variance=self.variance)


class ColludingGaussian(Attack):
    """All clients that attack in an iteration add the same δ_n ~ N(0, σ_B² I), which does not average out.

    w'_{k,n+1} = w_{k,n+1} + β_k τ_{k,n} δ_n. Each client still decides independently, with probability p_a, whether to
    attack. It breaks assumption A2 of the paper, perturbations that are independent between clients. Two colluders who
    share different entries add the entries of δ_n that they share.

    Examples
    --------
    >>> attack = ColludingGaussian(num_byzantine=2, variance=0.25)
    >>> attack.corrupt(Upload(value=1.0, entry=0, client=0, iteration=0, normal=0.0, common_normal=4.0))
    3.0
    """

    variance: float = option(
        default=0.5, low=0.0, text="variance of the noise that all attackers add alike", strength=True
    )

    def corrupt(self, upload: Upload) -> float:
        """Add δ_n."""
        return upload.value + math.sqrt(self.variance) * upload.common_normal

    def affine(self) -> Affine:
        """State noise that the attackers have in common."""
        return Affine(common_variance=self.variance)


class ConstantBias(Attack):
    """A Byzantine participant adds the same constant b to every value it uploads, with probability p_a.

    w'_{k,n+1} = w_{k,n+1} + β_k τ_{k,n} b·1. It does not average out over clients, entries or time.

    Examples
    --------
    >>> attack = ConstantBias(num_byzantine=1, bias=2.0)
    >>> attack.corrupt(Upload(value=1.0, entry=0, client=0, iteration=0, normal=0.0, common_normal=0.0))
    3.0
    """

    bias: float = option(default=0.5, text="value added to every entry (b)", strength=True)

    def corrupt(self, upload: Upload) -> float:
        """Add b."""
        return upload.value + self.bias

    def affine(self) -> Affine:
        """State the offset b."""
        return Affine(offset=self.bias)


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


class DropOut(Attack):
    """A Byzantine participant downloads and then stays silent, with probability p_a.

    Nothing of its upload arrives; under the mean it counts, as an entry that is not shared does, with the server's old
    value. Its strength is how often it does so.
    """

    def corrupt(self, upload: Upload) -> float:
        """Send nothing."""
        return math.nan

    def affine(self) -> Affine:
        """State that under the mean the server's own number counts instead."""
        return Affine(own=0.0, server=1.0, is_lost=True)


class NonFinite(Attack):
    """A Byzantine participant sends NaN, infinity or minus infinity, with probability p_a.

    Entries 0, 3, 6, … become NaN, entries 1, 4, 7, … infinity, entries 2, 5, 8, … minus infinity. A server that
    averages without looking is destroyed by one such upload; here no rule lets one into the model, and what is not
    finite counts as not sent. So the attack is as harmful as ``"drop-out"``, and a test of every rule.
    """

    def corrupt(self, upload: Upload) -> float:
        """Send NaN, ∞ or −∞, by entry."""
        if upload.entry % 3 == 0:
            return math.nan
        return math.inf if upload.entry % 3 == 1 else -math.inf

    def affine(self) -> Affine:
        """State that under the mean the server's own number counts instead."""
        return Affine(own=0.0, server=1.0, is_lost=True)

"""Named arguments of the window kernels.

Entries are labelled by their place c relative to the moving frame, in which client k's mask is always s_k(c) = 1 if
(c − o_k) mod D < M, and every iteration relabels c + M as c. With white inputs all moments at place c are numbers, and
first moments are V numbers (:class:`psofed.theory.moments.layout.Entries`). Arrays over places and clients are (D,
K): clients are contiguous, so that loops over them run on whole registers.
"""

from typing import NamedTuple

from psofed.common.types import FloatArray


class WindowSystem(NamedTuple):
    """Everything that is linear in the moments, at one stepsize.

    Attributes
    ----------
    single, pair, only, neither : float
        p_c, E[a_k a_l], E[a_k (1 − a_l)], E[(1 − a_k)(1 − a_l)].
    participants, shift : int
        |S_n| and M.
    redrawn : bool
        Whether the uploading participants are an independent draw.
    decay, keep, trace : array (K,)
        LMS: means become `decay` v, own moments `keep` P + `trace` tr P.
    swing : float
        Added to decay_k decay_l for a pair.
    own, server, chance : array (K,)
        E[A_k], E[G_k] and E[t_k] of the uploads.
    affine_own, affine_server, covariance : float
        Factors of an attacked upload, and Cov(t_k, t_l).
    """

    single: float
    pair: float
    only: float
    neither: float
    participants: int
    shift: int
    redrawn: bool
    decay: FloatArray
    keep: FloatArray
    trace: FloatArray
    swing: float
    own: FloatArray
    server: FloatArray
    chance: FloatArray
    affine_own: float
    affine_server: float
    covariance: float


class WindowDrive(NamedTuple):
    """Everything that drives the moments.

    Attributes
    ----------
    noise : array (K,)
        Added to every own moment by the LMS step.
    variance, common : float
        What attackers add to an entry: its variance, and E[δδ] of two attackers over E[t_k] E[t_l].
    walk : float
        q of a target that walks.
    directed : bool
        Whether the rest is there: it needs first moments.
    constant : array (V,)
        c of the uploads.
    weight, scaled : array (B, K)
        Probability, and μς², of the kinds of samples a client learns from.
    displacement : array (B, K, V)
        e of each kind of samples.
    push : array (2, K, V)
        −μ E[R e], and −μ times the difference of R e between poisoned and clean samples.
    push_swing : array (K,)
        −μ times the difference of R between poisoned and clean samples.
    push_covariance : float
        Cov(t_k, t_l) of clients that poison their samples.
    """

    noise: FloatArray
    variance: float
    common: float
    walk: float
    directed: bool
    constant: FloatArray
    weight: FloatArray
    scaled: FloatArray
    displacement: FloatArray
    push: FloatArray
    push_swing: FloatArray
    push_covariance: float


class WindowMoments(NamedTuple):
    """Moments of server and clients after a download, and sums over pairs before the next upload, already relabelled.

    Attributes
    ----------
    server : array (D,)
        E[g²].
    cross1, cross0, own1, own0 : array (D, K)
        As in :class:`psofed.theory.moments.second.ClientMoments`.
    sums : array (D, K)
        w_l = Σ_{m≠l} s_m E[b_m A_m z_m z_l].
    together : array (D,)
        h = Σ_{k≠l} s_k s_l E[b_k b_l A_k A_l z_k z_l].
    """

    server: FloatArray
    cross1: FloatArray
    cross0: FloatArray
    own1: FloatArray
    own0: FloatArray
    sums: FloatArray
    together: FloatArray


class PairGains(NamedTuple):
    """Moments that pairs gain from: E[g' z_l], (D, K), and E[g'²], (D,)."""

    client: FloatArray
    server: FloatArray


class PairStep(NamedTuple):
    """Everything that acts on pairs in one iteration: masks (D, K), first moments after the download, and gains."""

    mask: FloatArray
    system: WindowSystem
    drive: WindowDrive
    first: FloatArray
    got: PairGains


class PairRow(NamedTuple):
    """Scratch of a row of pairs: moments of one client k with all clients l at one place.

    Attributes
    ----------
    value : array (K,)
        Y = E[z_k z_l], whoever participates.
    both, one : array (K,)
        The same after exchange and LMS step, given that both, or only k, participate.
    uploads : array (D, K)
        Σ_k s_k A_k E[z_k z_l | b_k = b_l = 1], of the rows so far.
    """

    value: FloatArray
    both: FloatArray
    one: FloatArray
    uploads: FloatArray

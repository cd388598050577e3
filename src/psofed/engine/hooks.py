"""Where parts plug into the kernels: the signatures of functions that kernels call in every iteration.

Arrays have the trial (lane) as their last axis; P is the number of uploads, M of numbers in each. Kernels
hold errors, w − model, and so do ``sent`` and ``server``; a model's entry i is ``target[i]`` less that.
"""

from numba import boolean, float64, int32, int64, types, uint64

# attack(n, key, gamma, uploaders, entries, is_byzantine, options, target, server, sent)
#   n            iteration
#   key, gamma   (lanes,)        the attack's random stream
#   uploaders    (P, lanes)      which client each upload is from
#   entries      (P, M, lanes)   which entry each number belongs to
#   is_byzantine (K, lanes)      who is Byzantine; the hook redraws it where the set is redrawn
#   options      (any,)          from the attack's `options` function
#   target       (D,)            w
#   server       (D, lanes)      the server's error before the upload
#   sent         (P, M, lanes)   what was to be uploaded; to be changed in place. NaN: not sent at all.
ATTACK = types.void(
    int64,
    uint64[::1],
    uint64[::1],
    int32[:, ::1],
    int32[:, :, ::1],
    boolean[:, ::1],
    float64[::1],
    float64[::1],
    float64[:, ::1],
    float64[:, :, ::1],
)

# aggregation(entries, sent, options, server)
#   entries, sent, options       as above
#   server       (D, lanes)      to be changed in place; no NaN or infinity in `sent` may reach it
AGGREGATION = types.void(int32[:, :, ::1], float64[:, :, ::1], float64[::1], float64[:, ::1])

# poison(n, k, key, gamma, is_byzantine, options, target, inputs, noise)
#   n, k         iteration and client
#   key, gamma, is_byzantine, options, target    as above
#   inputs       (D, lanes)      x, to be changed in place into the x' the client learns from
#   noise        (lanes,)        ν = y − wᵀx, to be changed into y' − wᵀx'
POISON = types.void(
    int64,
    int64,
    uint64[::1],
    uint64[::1],
    boolean[:, ::1],
    float64[::1],
    float64[::1],
    float64[:, ::1],
    float64[::1],
)

# function(inputs, out)
#   inputs       (d, lanes)      a client's inputs x
#   out          (lanes,)        to be filled with f(x)
FUNCTION = types.void(float64[:, ::1], float64[::1])

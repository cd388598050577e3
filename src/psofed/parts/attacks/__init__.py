"""Attacks, one file each: what Byzantine clients do, and the moments of it that theory needs.

An attack's module has

- ``OPTIONS``, the options it reads (see :mod:`psofed.parts.options`);
- ``options(attack, scenario)``, the numbers its hook is called with;
- ``attack``, a hook of signature :data:`psofed.engine.hooks.ATTACK` that changes uploads, with ``corrupt``, the same
  written literally on models; or ``poison``, a hook of signature :data:`psofed.engine.hooks.POISON` that changes the
  client's own data, with ``poison_sample``;
- where it can be stated, ``perturbation_moments(attack, num_clients)``, for the theory.

Whether client k attacks in iteration n, τ_{k,n}, and its normals are addressed by iteration, client and entry and
are the same for all kinds, so whether and how one client attacks does not depend on who else does, and two kinds
of attack are compared on the same occasions. What an omniscient attack *sees* are the uploads of this iteration's
participants who do not attack in it (*clean* uploads), each on the entries it shares.
"""

"""Attacks, one file each: what Byzantine clients do, and the moments of it that theory needs.

An attack's module has ``attack``, a hook of signature :data:`psofed.hooks.ATTACK`, and
``options(attack, scenario)``, the numbers it is called with. Its draws are addressed by iteration and client, so
whether and how one client attacks does not depend on who else does.
"""

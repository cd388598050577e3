"""Algorithms, one file each.

An algorithm module has ``start(scenario, fleet, seed, trials) -> Run`` (see :class:`psofed.simulate.run.Run`),
which advances all given trials in lock step, and ``payload(scenario) -> Payload``, the numbers one exchange
carries. Arrays have the trial (*lane*) as their last axis: a loop over lanes is what the compiler turns into
vector instructions.
"""

"""Algorithms, one file (or package) each.

An algorithm's module has

- ``Options``, a frozen, validated dataclass: the fields of ``[algorithm_options]`` and their defaults,
- ``check(scenario)``, which refuses what the algorithm gives no meaning to,
- ``traffic(scenario) -> Traffic``, what an exchange costs and how often there is one
  (see :mod:`psofed.results.traffic`),
- ``start(scenario, fleet, seed, trials) -> Run`` (see :class:`psofed.engine.blocks.Run`), which advances all
  given trials in lock step,
- ``reference(scenario, seed, trial) -> ReferenceRun``, the same written literally, on the same draws.

Scenarios are checked by it, so importing it must not import Numba: kernels are imported by ``start``. An
algorithm whose clients hold no model of their own needs no kernel; it describes an exchange (see
:mod:`psofed.parts.algorithms._exchange`), and literally what it does to the server's model, ``reference_step``.

Arrays have the trial (*lane*) as their last axis: a loop over lanes is what the compiler turns into vector
instructions.
"""

"""Aggregation rules, one file each: how the server puts the uploaded entries together.

A rule's module has

- ``OPTIONS``, the options it reads (see :mod:`psofed.parts.options`);
- ``options(scenario, root_stream)``, the numbers its hook is called with;
- ``aggregate``, a hook of signature :data:`psofed.engine.hooks.AGGREGATION`;
- ``combine``, the same written literally for one server, on models.

**Entries shared by few or by none.** Clients may share different entries, and some send nothing. All rules keep to
one principle: they find what those who *answered* agree on, and the server moves towards it by the share of
participants who did.

- Rules that work entry by entry (median, trimmed mean) look at the q_i participants who sent entry i. With v_i what
  the rule makes of their numbers, w_i moves by q_i/|S_n| · (v_i − w_i). An entry nobody sent stays.
- Rules that work on vectors (Krum, multi-Krum, geometric median, the two clippings, FLTrust) look at the updates
  w'_k − w_n of the P' participants who sent anything, zero (the server's own value) in entries that k does not
  share. With v what the rule makes of them, w moves by P'/|S_n| · v.

So every rule is the paper's mean once its robustness is switched off (nothing trimmed, all selected, nothing
clipped). Numbers that are not finite, or beyond ±1e150 (whose squares would overflow), count as not sent.
"""

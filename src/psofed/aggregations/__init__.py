"""Aggregation rules, one file each: how the server puts the uploaded entries together.

A rule's module has ``aggregate``, a hook of signature :data:`psofed.hooks.AGGREGATION`, and
``options(scenario)``, the numbers it is called with. Numbers that are not finite count as not sent.
"""

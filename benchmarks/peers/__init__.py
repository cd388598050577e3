"""psofed beside its peers: each in an environment of its own, all on the same job. `make peers` runs them all.

It needs the network, some gigabytes of disk and about ten minutes. Results go into ``out/peers.json`` and, with
``--write-docs``, into the tables of docs/comparison.md and docs/tables.
"""

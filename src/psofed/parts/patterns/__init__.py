"""Selection patterns, one file each: how masks are drawn, and what their moments are.

A pattern module has ``draw_entries(key, gamma, first, clients, num_clients, dimension, coordinated, out)``,
compiled: fills ``out[t, p, :, lane]`` with the M entries that client ``clients[t, p, lane]`` shares in
iteration ``first + t``. Masks depend on stream, iteration and client alone, so the mask a client uploads
with is the very one it downloads with next.
"""

"""Attacks, one file each: how perturbations are drawn, and what their moments are.

An attack module has ``draw_perturbation(key, gamma, first, clients, entries, num_clients, dimension, attack,
out)``: fills ``out[t, p, m, lane]`` with what client ``clients[t, p, lane]`` adds to entry
``entries[t, p, m, lane]`` of its upload in iteration ``first + t``; 0 for the honest.
"""

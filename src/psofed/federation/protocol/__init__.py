"""Conventions between server and clients: masks, the form of messages and models, and the doorbell."""

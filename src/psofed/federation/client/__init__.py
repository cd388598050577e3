"""A node: its clients, what they learn from, and what they keep."""

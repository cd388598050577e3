"""Real processes: keys and certificates, SuperLink, SuperNodes, and what stops them again."""

"""The server's side: the strategy, what it remembers, whom it asks, and which replies count."""

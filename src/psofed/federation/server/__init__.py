"""The server's side: the strategy, its memory, the participants, and the checks of replies."""

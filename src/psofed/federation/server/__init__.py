"""The server: the loop over rounds, the step, the checks of replies, the checkpoint and the history."""

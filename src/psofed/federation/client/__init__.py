"""The client's side: sharing, learning from a stream, and its memory between rounds."""

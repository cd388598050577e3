"""What server and clients agree on: masks, the form of messages and models, and the doorbell."""

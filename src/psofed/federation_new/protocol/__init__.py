"""What server and nodes exchange: messages and their codec, masks, the layout of a model, the settings of a run."""

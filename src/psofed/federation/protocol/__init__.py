"""Messages between server and nodes: their values and codec, masks, the layout of a model, the settings of a run."""

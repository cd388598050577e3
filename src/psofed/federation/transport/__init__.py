"""How frames travel between server and nodes: the interface, within one process, and MQTT."""

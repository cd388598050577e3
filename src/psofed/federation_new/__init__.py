"""PSO-Fed with real clients: a core without a transport, MQTT for fleets, and a plain app for Flower.

`protocol`, `server` and `client` import neither flwr nor paho. Someone with machines uses ``psofed federation …``.
"""

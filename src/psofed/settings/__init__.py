"""Settings of functions and commands, each declared once: how data is read, how runs proceed, what is computed.

A module declares the settings of one function. From a declaration come the function's arguments, the options of its
command and the reference page. Nothing here imports anything heavy, so that ``psofed --help`` stays instant. (The
settings of a scenario are in :mod:`psofed.scenario`, those of parts in :mod:`psofed.parts`.)
"""

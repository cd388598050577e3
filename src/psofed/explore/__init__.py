"""The explorer behind ``psofed explore``: a page on loopback whose sliders move the exact theory.

What the page says is made in modules that know nothing of Panel: `settings` (scenario ↔ form ↔ link), `fields` (what
the form shows), `presets`, `theory` and `simulating` (what is computed, in steps), `words` (the sentence on top) and
`exports` (what can be copied). `workers` runs the computing in processes of its own. `charts`, `page` and `server` are
the thin layer of Bokeh and Panel.
"""

"""The explorer behind ``psofed explore``: a page on loopback whose sliders move the exact theory.

Modules exchange small frozen values. These know nothing of Panel:

- `drafts`: what the form holds, and the same in the page's address. `form`: its fields. `presets`: where to start.
- `theory`, `simulating`: compute `answers`, step by step. `workers`: run them in other processes.
- `words`: the sentence and the table. `exports`: what can be copied and downloaded.

`chart`, `controls`, `view`, `page` and `server` are the layer of Bokeh and Panel; `access` guards every request.
"""

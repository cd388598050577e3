"""The explorer behind ``psofed explore``: a page on loopback whose sliders move the exact theory.

Modules exchange small frozen values. These know nothing of Panel:

- `settings`: a form's draft, its scenario and its link. `fields`, `sliders`: the form. `presets`: where to start.
- `theory`, `simulating`: compute `answers`, step by step. `workers`: run them in other processes.
- `sides`: the state of scenario A or B. `headline`: sentences and numbers. `exports`: texts and files.

`charts`, `frame`, `page` and `server` are the layer of Bokeh and Panel; `access` guards every request.
"""

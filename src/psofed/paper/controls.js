"use strict";
// Connects the page's buttons to Bokeh's charts: what is hidden, highlighted, zoomed, read off. It draws nothing.
// When all charts are connected, <body data-ready> says so.
(() => {
  const root = document.documentElement;
  const narrow = matchMedia("(max-width: 760px)");
  const darkness = matchMedia("(prefers-color-scheme: dark)");
  const columns = {
    "simulation": "simulated", "exact-theory": "exact theory", "paper-theory": "paper’s theory",
    "approximation": "for small μ", "published": "printed", "published-theory": "theory printed",
  };

  // --- light and dark -------------------------------------------------------------------------------------------
  const button = document.getElementById("theme");
  const remembered = (() => { try { return localStorage.getItem("psofed-theme"); } catch { return null; } })();
  if (remembered) root.dataset.theme = remembered;
  const isDark = () => (root.dataset.theme ? root.dataset.theme === "dark" : darkness.matches);

  // On a dark page a curve keeps its hue and is three tenths nearer to white, as its chip (see page.css).
  const lighter = (colour) => "#" + [1, 3, 5].map((place) => {
    const channel = parseInt(colour.slice(place, place + 2), 16);
    return Math.round(channel + 0.3 * (255 - channel)).toString(16).padStart(2, "0");
  }).join("");

  function paint() {
    button.setAttribute("aria-pressed", String(isDark()));
    const style = getComputedStyle(document.body);
    for (const plot of plots.values()) {
      for (const axis of [...plot.below, ...plot.left]) axis.major_label_text_color = style.color;
      for (const { tags: [, kind, colour], glyph } of tagged(plot)) {
        const shade = kind === "label" ? style.color : isDark() ? lighter(colour) : colour;
        for (const name of ["line_color", "fill_color", "text_color"]) if (name in glyph) glyph[name] = { value: shade };
      }
    }
  }
  button.addEventListener("click", () => {
    root.dataset.theme = isDark() ? "light" : "dark";
    try { localStorage.setItem("psofed-theme", root.dataset.theme); } catch { /* a page from disk may have no store */ }
    paint();
  });
  darkness.addEventListener("change", paint);

  // --- charts -----------------------------------------------------------------------------------------------------
  const plots = new Map();
  const tagged = (plot) => plot.renderers.filter((renderer) => renderer.tags.length === 3);
  const sourcesOf = (plot) => [...new Set(tagged(plot).filter((r) => r.tags[1] !== "label").map((r) => r.data_source))];
  const write = (number, digits) => number.toFixed(digits).replace("-", "−");

  const alphas = new WeakMap();
  function fade(glyph, factor) {
    const names = ["line_alpha", "fill_alpha", "text_alpha"].filter((name) => name in glyph);
    if (!alphas.has(glyph)) alphas.set(glyph, names.map((name) => glyph[name].value ?? glyph[name]));
    names.forEach((name, place) => { glyph[name] = { value: factor * alphas.get(glyph)[place] }; });
  }

  class Figure {
    constructor(section) {
      this.section = section;
      this.hidden = new Set();
      this.charts = [...section.querySelectorAll("[data-chart]")].map((element) => new Chart(element, this));
      for (const chip of section.querySelectorAll(".chip")) this.connectChip(chip);
      for (const tool of section.querySelectorAll("[data-tool]")) tool.addEventListener("click", () => this.use(tool));
      section.querySelector("[data-copy]").addEventListener("click", (event) => this.copy(event.target.nextElementSibling));
      const metric = section.querySelector("[data-metric]");
      if (metric) metric.addEventListener("change", () => this.measure(metric));
      const controls = section.querySelector("details.controls");
      if (controls && narrow.matches) controls.open = false;
      if (matchMedia("(pointer: fine)").matches) this.drag("box");
    }

    connectChip(chip) {
      const key = chip.dataset.curve !== undefined ? `curve ${chip.dataset.curve}` : `kind ${chip.dataset.kind}`;
      chip.addEventListener("click", () => {
        const show = this.hidden.delete(key);
        if (!show) this.hidden.add(key);
        chip.setAttribute("aria-pressed", String(show));
        this.highlight(null);
        for (const chart of this.charts) chart.update();
      });
      for (const [event, on] of [["mouseenter", 1], ["focus", 1], ["mouseleave", 0], ["blur", 0]]) {
        chip.addEventListener(event, () => this.highlight(on && !this.hidden.has(key) ? key : null));
      }
    }

    // The picture for print, at twice its size, on white
    async copy(status) {
      const picture = this.section.querySelector("img.print"), canvas = document.createElement("canvas");
      await picture.decode();
      [canvas.width, canvas.height] = [2 * picture.naturalWidth, 2 * picture.naturalHeight];
      const context = canvas.getContext("2d");
      context.fillStyle = "white";
      context.fillRect(0, 0, canvas.width, canvas.height);
      context.drawImage(picture, 0, 0, canvas.width, canvas.height);
      const blob = await new Promise((resolve) => canvas.toBlob(resolve, "image/png"));
      try {
        await navigator.clipboard.write([new ClipboardItem({ "image/png": blob })]);
        status.textContent = "copied";
      } catch {
        const link = Object.assign(document.createElement("a"), { href: URL.createObjectURL(blob), download: `${this.section.dataset.figure}.png` });
        link.click();
        status.textContent = "saved instead: this browser does not let a page copy pictures";
      }
    }

    isHidden(curve, kind) { return this.hidden.has(`curve ${curve}`) || this.hidden.has(`kind ${kind}`); }

    highlight(key) {
      for (const { plot } of this.charts) {
        for (const renderer of tagged(plot)) {
          const [curve, kind] = renderer.tags;
          fade(renderer.glyph, key === null || key === `curve ${curve}` || key === `kind ${kind}` ? 1 : 0.15);
        }
      }
    }

    measure(select) {
      const words = JSON.parse(select.dataset.ordinates)[select.value];
      for (const chart of this.charts) {
        chart.element.querySelector("[data-ordinate]").textContent = `${words} (dB), lower is better`;
        for (const source of sourcesOf(chart.plot)) {
          const data = { ...source.data }, gap = Array.from(data.x, () => NaN);
          for (const name of ["y", "low", "high", "error"]) if (name in data) data[name] = data[`${name}:${select.value}`] ?? gap;
          source.data = data;
        }
        chart.plot.reset.emit();
        chart.update();
      }
    }

    drag(name) {
      for (const tool of this.section.querySelectorAll("[data-tool][aria-pressed]")) {
        tool.setAttribute("aria-pressed", String(tool.dataset.tool === name));
      }
      for (const { plot } of this.charts) {
        const wanted = { box: "BoxZoomTool", pan: "PanTool" }[name];
        for (const tool of plot.toolbar.tools) if (/^(BoxZoom|Pan)Tool$/.test(tool.type)) tool.active = tool.type === wanted;
      }
    }

    use(tool) {
      const name = tool.dataset.tool;
      if (name === "box" || name === "pan") return this.drag(tool.getAttribute("aria-pressed") === "true" ? null : name);
      for (const { plot } of this.charts) {
        if (name === "reset") { plot.reset.emit(); continue; }
        const factor = name === "in" ? 0.7 : 1 / 0.7;
        for (const range of [plot.x_range, ...(plot === this.charts[0].plot ? [plot.y_range] : [])]) {
          const middle = (range.start + range.end) / 2, half = factor * (range.end - range.start) / 2;
          range.setv({ start: middle - half, end: middle + half });
        }
      }
    }
  }

  class Chart {
    constructor(element, figure) {
      this.element = element;
      this.figure = figure;
      this.plot = plots.get(element.dataset.chart);
      this.readout = element.querySelector(".readout");
      this.place = element.querySelector(".place");
      this.at = null;
      this.cursor = this.plot.center.find((model) => model.name === "cursor");
      this.points = [...new Set(sourcesOf(this.plot).flatMap((source) => Array.from(source.data.x)))].sort((a, b) => a - b);
      const nearest = (x) => this.points.reduce((best, point) => (Math.abs(point - x) < Math.abs(best - x) ? point : best));
      this.plot.on_event("mousemove", (event) => this.show(nearest(event.x), event.sx));
      // A finger leaves the chart with every tap; what it asked for stays.
      this.place.addEventListener("pointerdown", (event) => { this.touched = event.pointerType === "touch"; }, true);
      this.plot.on_event("mouseleave", () => { if (!this.touched) this.show(null); });
      this.plot.on_event("tap", (event) => this.show(nearest(event.x), event.sx));
      this.place.addEventListener("keydown", (event) => this.step(event));
      this.place.addEventListener("blur", () => this.show(null));
    }

    update() {
      for (const renderer of tagged(this.plot)) {
        const [curve, kind] = renderer.tags;
        const [wide, shown] = [!(kind === "label" && narrow.matches), !this.figure.isHidden(curve, kind === "label" ? "simulation" : kind)];
        renderer.visible = wide && shown;
      }
      if (this.at !== null) this.show(this.at);
    }

    step(event) {
      const move = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
      if (event.key === "Escape") return this.show(null);
      if (!move) return;
      event.preventDefault();
      const now = this.at === null ? (move > 0 ? -1 : this.points.length) : this.points.indexOf(this.at);
      const next = Math.min(Math.max(now + move, 0), this.points.length - 1);
      this.show(this.points[next], ((next + 0.5) / this.points.length) * this.place.clientWidth);
    }

    show(x, sx) {
      if (x === this.at && sx !== undefined) { this.put(sx); return; }
      this.at = x;
      this.cursor.visible = x !== null;
      if (x !== null) this.cursor.location = x;
      this.readout.hidden = x === null;
      if (x === null) return;
      this.list(x);
      this.put(sx);
    }

    put(sx) {
      if (sx === undefined || narrow.matches) return;
      const width = this.readout.offsetWidth, room = this.place.clientWidth;
      const left = sx + 18 + width > room ? sx - 18 - width : sx + 18;
      this.readout.style.left = `${Math.max(0, Math.min(left, room - width))}px`;
    }

    list(x) {
      const rows = new Map(), kinds = new Set();
      for (const source of sourcesOf(this.plot)) {
        const [curve, kind, label] = source.tags, place = Array.from(source.data.x).indexOf(x);
        if (place < 0 || this.figure.isHidden(curve, kind) || !Number.isFinite(source.data.y[place])) continue;
        const row = rows.get(curve) ?? { label, values: {} };
        const error = source.data.error ? ` ± ${source.data.error[place].toFixed(2)}` : "";
        row.values[kind] = { text: write(source.data.y[place], 2) + error, level: source.data.y[place] };
        rows.set(curve, row);
        kinds.add(kind);
      }
      const shown = Object.keys(columns).filter((kind) => kinds.has(kind));
      const level = ([, row]) => (row.values.simulation ?? Object.values(row.values)[0]).level;
      const head = shown.map((kind) => `<th scope="col">${columns[kind]}</th>`).join("");
      const body = [...rows].sort((a, b) => level(b) - level(a)).map(([curve, row]) => {
        const cells = shown.map((kind) => `<td data-kind="${kind}">${row.values[kind]?.text ?? ""}</td>`).join("");
        return `<tr data-curve="${curve}"><th scope="row"><i class="dot" style="--hue:${this.colour(curve)}"></i>${row.label}</th>${cells}</tr>`;
      }).join("");
      this.readout.innerHTML = `<table><caption>${this.element.dataset.x} = ${Number(x.toPrecision(6))}</caption><thead><tr><th></th>${head}</tr></thead><tbody>${body}</tbody></table>`;
    }

    colour(curve) {
      const chip = this.figure.section.querySelector(`.chip[data-curve="${curve}"] svg`);
      return chip ? chip.style.getPropertyValue("--hue") : "currentColor";
    }
  }

  // --- start ------------------------------------------------------------------------------------------------------
  function start() {
    const models = window.Bokeh && Bokeh.documents.length ? Bokeh.documents[0] : null;
    if (models === null) { setTimeout(start, 20); return; }
    for (const plot of models.roots()) plots.set(plot.name, plot);
    const figures = [...document.querySelectorAll("[data-figure]")].map((section) => new Figure(section));
    const fit = () => {
      for (const figure of figures) for (const chart of figure.charts) chart.update();
      const headline = plots.get("headline"), { start, end } = wide;
      headline.height = narrow.matches ? 360 : 460;
      // Without the names beside the curves, their room is not needed.
      headline.x_range.setv({ start, end: narrow.matches ? start + (end - start) * 0.78 : end });
    };
    const wide = (({ start, end }) => ({ start, end }))(plots.get("headline").x_range);
    narrow.addEventListener("change", fit);
    fit();
    paint();
    document.body.dataset.ready = "";
  }
  const menu = document.querySelector(".menu");
  menu.querySelector("nav").addEventListener("click", (event) => { if (event.target.closest("a")) menu.open = false; });
  const links = new Map([...document.querySelectorAll(".bar nav a")].map((link) => [link.getAttribute("href").slice(1), link]));
  const watch = new IntersectionObserver((entries) => {
    for (const entry of entries) {
      if (!entry.isIntersecting) continue;
      for (const link of links.values()) link.removeAttribute("aria-current");
      links.get(entry.target.id).setAttribute("aria-current", "true");
    }
  }, { rootMargin: "-70px 0px -70% 0px" });
  for (const id of links.keys()) { const target = document.getElementById(id); if (target) watch.observe(target); }
  start();
})();

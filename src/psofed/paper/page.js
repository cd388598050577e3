"use strict";
// Draws every figure from the data in the page: one panel per uplink, curves that can be switched on and off,
// values under the pointer. No library, nothing fetched. When all is drawn, <body data-drawn="n"> says so.

const SVG = "http://www.w3.org/2000/svg";
const WIDTH = 540, HEIGHT = 330, LEFT = 62, RIGHT = 10, TOP = 8, BOTTOM = 40;
const BAND = 1.96;

function make(name, attributes, parent) {
  const element = document.createElementNS(SVG, name);
  for (const key in attributes) element.setAttribute(key, attributes[key]);
  if (parent) parent.appendChild(element);
  return element;
}

function html(name, className, parent, text) {
  const element = document.createElement(name);
  if (className) element.className = className;
  if (text !== undefined) element.textContent = text;
  if (parent) parent.appendChild(element);
  return element;
}

function markerPath(kind, size) {
  const s = size, t = 0.75 * size;
  switch (kind) {
    case "o": return `M${-s} 0a${s} ${s} 0 1 0 ${2 * s} 0a${s} ${s} 0 1 0 ${-2 * s} 0Z`;
    case "s": return `M${-t} ${-t}H${t}V${t}H${-t}Z`;
    case "^": return `M0 ${-s}L${s} ${t}H${-s}Z`;
    case "v": return `M0 ${s}L${s} ${-t}H${-s}Z`;
    case "D": return `M0 ${-s}L${s} 0L0 ${s}L${-s} 0Z`;
    case "P": return `M${-s / 3} ${-s}H${s / 3}V${-s / 3}H${s}V${s / 3}H${s / 3}V${s}H${-s / 3}V${s / 3}H${-s}V${-s / 3}H${-s / 3}Z`;
    case "X": return `M0 ${-s / 2}L${s / 2} ${-s}L${s} ${-s / 2}L${s / 2} 0L${s} ${s / 2}L${s / 2} ${s}L0 ${s / 2}L${-s / 2} ${s}L${-s} ${s / 2}L${-s / 2} 0L${-s} ${-s / 2}L${-s / 2} ${-s}Z`;
    default: return `M${-t} ${-t}L${t} ${t}M${-t} ${t}L${t} ${-t}`;
  }
}

function ticks(low, high, count) {
  const raw = (high - low) / count, power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 2.5, 5, 10].map((factor) => factor * power).find((value) => value >= raw);
  const found = [];
  for (let i = Math.ceil(low / step - 1e-9); i * step <= high + 1e-9 * step; i++) found.push(Number((i * step).toPrecision(10)));
  return found;
}

const minus = (number, digits) => number.toFixed(digits).replace("-", "−");
const kindKey = (series) =>
  series.kind === "paper-theory" && series.label.includes("approximation") ? "approximation"
  : series.kind === "published" && series.label.includes("theory") ? "published-theory" : series.kind;

const KINDS = {
  "simulation": { title: "simulation (95 % band)" },
  "exact-theory": { title: "exact theory", dash: "" },
  "paper-theory": { title: "paper’s theory", dash: "7 4" },
  "approximation": { title: "paper’s theory for small stepsizes", dash: "1.5 3" },
  "published": { title: "printed in the paper" },
  "published-theory": { title: "theory printed there" },
};

class Chart {
  constructor(holder, figure, look) {
    this.figure = figure;
    this.look = look;
    this.metric = figure.metric;
    this.hiddenCurves = new Set();
    this.hiddenKinds = new Set();
    this.all = [...figure.series, ...figure.other_metrics];
    this.controls = html("div", "controls", holder);
    this.panels = html("div", "panels", holder);
    this.tip = html("div", "tip", this.panels);
    this.plots = figure.panels.map((uplink) => {
      const box = html("div", "", this.panels);
      const title = html("h4", "", box, figure.panel_titles[uplink]);
      html("span", "", title, figure.misfits[uplink]);
      const svg = make("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img" }, box);
      svg.setAttribute("aria-label", `${figure.title}, ${figure.panel_titles[uplink]}`);
      svg.addEventListener("pointermove", (event) => this.point(event, uplink, svg));
      svg.addEventListener("pointerleave", () => { this.tip.style.display = "none"; });
      return { uplink, svg, points: [] };
    });
    this.addControls();
    this.draw();
  }

  colour(series) { return this.look.colours[series.curve % this.look.colours.length]; }
  marker(series) { return this.look.markers[series.curve % this.look.markers.length]; }

  addControls() {
    const curves = new Map();
    for (const series of this.figure.series) if (series.kind === "simulation" && !curves.has(series.curve)) curves.set(series.curve, series);
    for (const [curve, series] of curves) {
      const icon = this.toggle(series.label, this.hiddenCurves, curve);
      make("path", { d: markerPath(this.marker(series), 5), transform: "translate(12 8)", fill: this.colour(series) }, icon);
    }
    html("div", "break", this.controls);
    const kinds = new Set(this.figure.series.map(kindKey));
    for (const key of Object.keys(KINDS)) {
      if (!kinds.has(key)) continue;
      const icon = this.toggle(KINDS[key].title, this.hiddenKinds, key), dash = KINDS[key].dash;
      if (dash !== undefined) make("path", { d: "M0 8H24", stroke: "#333", "stroke-width": 1.8, "stroke-dasharray": dash }, icon);
      else if (key === "simulation") make("path", { d: markerPath("o", 4.5), transform: "translate(12 8)", fill: "#333" }, icon);
      else make("path", { d: markerPath(key === "published" ? "o" : "x", 5.5), transform: "translate(12 8)", fill: "none", stroke: "#333" }, icon);
    }
    const metrics = [...new Set(this.all.map((series) => series.metric))];
    if (metrics.length < 2) return;
    const label = html("label", "", this.controls, "ordinate "), select = html("select", "", label);
    for (const metric of metrics) html("option", "", select, this.figure.ordinates[metric]).value = metric;
    select.value = this.metric;
    select.addEventListener("change", () => { this.metric = select.value; this.draw(); });
  }

  toggle(text, hidden, key) {
    const label = html("label", "", this.controls), box = html("input", "", label);
    box.type = "checkbox";
    box.checked = true;
    box.addEventListener("change", () => { box.checked ? hidden.delete(key) : hidden.add(key); this.draw(); });
    const icon = make("svg", { width: 24, height: 16 }, label);
    label.append(text);
    return icon;
  }

  visible(uplink) {
    return this.all.filter((series) => series.metric === this.metric
      && (series.uplink === uplink || series.uplink === null || series.kind === "paper-theory")
      && !this.hiddenCurves.has(series.curve) && !this.hiddenKinds.has(kindKey(series)));
  }

  draw() {
    const shown = this.figure.panels.flatMap((uplink) => this.visible(uplink));
    const values = shown.flatMap((series) => series.y_db).filter((value) => value !== null);
    const xs = this.all.flatMap((series) => series.x);
    let low = Math.min(...values), high = Math.max(...values);
    if (!values.length) { low = -20; high = 0; }
    const room = 0.06 * (high - low || 1), x0 = Math.min(...xs), x1 = Math.max(...xs), side = 0.04 * (x1 - x0);
    this.x = (value) => LEFT + (value - x0 + side) / (x1 - x0 + 2 * side) * (WIDTH - LEFT - RIGHT);
    this.y = (value) => TOP + (high + room - value) / (high - low + 2 * room) * (HEIGHT - TOP - BOTTOM);
    for (const plot of this.plots) this.drawPanel(plot, low - room, high + room, x0, x1);
  }

  drawPanel(plot, low, high, x0, x1) {
    plot.svg.replaceChildren();
    plot.points = [];
    for (const value of ticks(low, high, 7)) {
      make("path", { d: `M${LEFT} ${this.y(value)}H${WIDTH - RIGHT}`, stroke: "#e6e9ed" }, plot.svg);
      make("text", { x: LEFT - 7, y: this.y(value) + 4, "text-anchor": "end" }, plot.svg).textContent = String(value).replace("-", "−");
    }
    for (const value of ticks(x0, x1, 6)) {
      make("path", { d: `M${this.x(value)} ${TOP}V${HEIGHT - BOTTOM}`, stroke: "#e6e9ed" }, plot.svg);
      make("text", { x: this.x(value), y: HEIGHT - BOTTOM + 16, "text-anchor": "middle" }, plot.svg).textContent = value;
    }
    make("path", { d: `M${LEFT} ${TOP}V${HEIGHT - BOTTOM}H${WIDTH - RIGHT}`, stroke: "#57606a", fill: "none" }, plot.svg);
    make("text", { x: (LEFT + WIDTH) / 2, y: HEIGHT - 5, "text-anchor": "middle" }, plot.svg).textContent = this.figure.x_label;
    const middle = (TOP + HEIGHT - BOTTOM) / 2;
    make("text", { transform: `translate(13 ${middle}) rotate(-90)`, "text-anchor": "middle" }, plot.svg).textContent = `${this.figure.ordinates[this.metric]} (dB)`;
    for (const series of this.visible(plot.uplink)) this.drawSeries(plot, series);
  }

  drawSeries(plot, series) {
    const colour = this.colour(series), key = kindKey(series);
    const points = series.x.map((x, i) => ({ x, y: series.y_db[i], i })).filter((point) => point.y !== null);
    const path = (list) => list.map((p, i) => `${i ? "L" : "M"}${this.x(p.x).toFixed(1)} ${this.y(p.y).toFixed(1)}`).join("");
    if (key === "simulation") {
      const reach = (i) => BAND * 10 / Math.LN10 * (series.standard_error[i] || 0) / series.y[i];
      const upper = points.map((p) => ({ x: p.x, y: p.y + reach(p.i) })), lower = points.map((p) => ({ x: p.x, y: p.y - reach(p.i) }));
      make("path", { d: path(upper) + path(lower.reverse()).replace("M", "L") + "Z", fill: colour, "fill-opacity": 0.22 }, plot.svg);
      for (const p of points) {
        make("path", { d: `M${this.x(p.x)} ${this.y(p.y - reach(p.i))}V${this.y(p.y + reach(p.i))}`, stroke: colour }, plot.svg);
        make("path", { d: markerPath(this.marker(series), 4.5), transform: `translate(${this.x(p.x)} ${this.y(p.y)})`, fill: colour }, plot.svg);
      }
    } else if (KINDS[key].dash !== undefined) {
      make("path", { d: path(points), stroke: colour, fill: "none", "stroke-width": 1.7, "stroke-dasharray": KINDS[key].dash }, plot.svg);
    } else {
      const shape = key === "published" ? markerPath(this.marker(series), 7) : markerPath("x", 5);
      for (const p of points) make("path", { d: shape, transform: `translate(${this.x(p.x)} ${this.y(p.y)})`, stroke: colour, fill: "none" }, plot.svg);
    }
    for (const p of points) plot.points.push({ ...p, series });
  }

  point(event, uplink, svg) {
    const frame = svg.getBoundingClientRect(), scale = WIDTH / frame.width;
    const at = { x: (event.clientX - frame.left) * scale, y: (event.clientY - frame.top) * scale };
    const plot = this.plots.find((candidate) => candidate.uplink === uplink);
    let best = null, distance = 24;
    for (const p of plot.points) {
      const apart = Math.hypot(this.x(p.x) - at.x, this.y(p.y) - at.y);
      if (apart < distance) { best = p; distance = apart; }
    }
    this.tip.style.display = best ? "block" : "none";
    if (!best) return;
    const series = best.series, error = series.standard_error && series.standard_error[best.i];
    const spread = error ? ` ± ${(10 / Math.LN10 * error / series.y[best.i]).toFixed(3)}` : "";
    this.tip.replaceChildren();
    html("b", "", this.tip, series.label);
    html("div", "", this.tip, KINDS[kindKey(series)].title);
    html("div", "", this.tip, `${this.figure.x_label} = ${best.x}`);
    html("div", "", this.tip, `${minus(best.y, 3)}${spread} dB (${series.y[best.i].toPrecision(4)})`);
    const home = this.panels.getBoundingClientRect();
    const left = event.clientX - home.left + 14;
    this.tip.style.left = `${Math.min(left, home.width - 230)}px`;
    this.tip.style.top = `${event.clientY - home.top + 14}px`;
  }
}

function fail(message) {
  document.body.dataset.error = message;
  const box = document.getElementById("failure");
  box.textContent = `The interactive figures could not be drawn (${message}); the static pictures below each figure can be opened.`;
  box.style.display = "block";
}

window.addEventListener("error", (event) => fail(event.message));
const report = JSON.parse(document.getElementById("data").textContent);
let drawn = 0;
for (const figure of report.figures) {
  new Chart(document.getElementById(`${figure.figure}-chart`), figure, report.look);
  drawn += 1;
}
document.body.dataset.drawn = drawn;

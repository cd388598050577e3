// Sliders over tables of exact theory. The tables (PLAYGROUND) are computed by docs/playground_tables.py when the site is built.
"use strict";
(() => {
  const root = document.getElementById("pg-root");
  const { stepsizes, stepsize, fleets } = PLAYGROUND;
  const defaults = { fleet: "readme", m: 1, b: 15, p: 0.2, v: 0.5, mu: stepsizes.indexOf(stepsize), metric: "network_mse" };
  const metrics = { network_mse: "Network MSE", server_msd: "Server MSD" };
  let state = { ...defaults };

  // The formula of the page: clean + |S_B| p_a σ_B² · unit.
  const fleet = () => fleets[state.fleet];
  const power = (b = state.b) => b * state.p * state.v;
  function level(m, mu, b = state.b) {
    const cell = fleet().values[state.metric][m - 1][mu];
    return cell === null ? null : cell[0] + power(b) * cell[1];
  }
  const decibels = (value) => 10 * Math.log10(value);
  const minus = (text) => text.replace("-", "\u2212");
  const show = (value) => (value === null ? "unstable" : minus(decibels(value).toFixed(2)) + "\u00a0dB");
  function best(m) {
    let place = 0;
    for (let i = 1; i < stepsizes.length; i++) {
      const value = level(m, i), least = level(m, place);
      if (value !== null && (least === null || value < least)) place = i;
    }
    return place;
  }

  const nearest = (mu) => stepsizes.reduce((place, x, i) => Math.abs(Math.log(x / mu)) < Math.abs(Math.log(stepsizes[place] / mu)) ? i : place, 0);

  function make(tag, attributes = {}, ...children) {
    const element = document.createElementNS(tag === "svg" || attributes.ns ? "http://www.w3.org/2000/svg" : "http://www.w3.org/1999/xhtml", tag);
    for (const [name, value] of Object.entries(attributes)) {
      if (name === "ns") continue;
      if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
      else element.setAttribute(name, value);
    }
    element.append(...children.filter((child) => child !== null && child !== undefined));
    return element;
  }

  // Controls
  const fields = {
    b: { label: "Byzantine clients", min: 0, max: () => fleet().clients, step: 1, text: (x) => `${x} of ${fleet().clients}` },
    p: { label: "attack probability", min: 0, max: () => 1, step: 0.05, text: (x) => (+x).toFixed(2) },
    v: { label: "attack variance", min: 0, max: () => 2, step: 0.05, text: (x) => (+x).toFixed(2) },
    m: { label: "shared parameters M", min: 1, max: () => fleet().dimension, step: 1, text: (x) => `${x} of ${fleet().dimension}` },
    mu: { label: "stepsize μ", min: 0, max: () => stepsizes.length - 1, step: 1, text: (x) => String(stepsizes[x]) },
  };
  const inputs = {}, outputs = {};
  const form = make("form", { "aria-label": "Settings" });
  const choice = make("select", { id: "pg-fleet", onchange: () => set("fleet", choice.value) },
    ...Object.entries(fleets).map(([name, { title }]) => make("option", { value: name }, title)));
  const measure = make("select", { id: "pg-metric", onchange: () => set("metric", measure.value) },
    ...Object.entries(metrics).map(([name, title]) => make("option", { value: name }, title)));
  form.append(make("label", { for: "pg-fleet" }, "fleet"), choice, make("label", { for: "pg-metric" }, "error"), measure);
  for (const [name, field] of Object.entries(fields)) {
    inputs[name] = make("input", { type: "range", id: `pg-${name}`, min: field.min, step: field.step, oninput: () => set(name, +inputs[name].value) });
    outputs[name] = make("output", { for: `pg-${name}`, id: `pg-${name}-text` });
    form.append(make("label", { for: `pg-${name}` }, field.label, " ", outputs[name]), inputs[name]);
  }
  form.append(make("button", { type: "button", id: "pg-best", onclick: () => set("mu", best(state.m)) }, "Use the best stepsize"));
  form.addEventListener("submit", (event) => event.preventDefault());
  const sentence = make("p", { id: "pg-sentence", "aria-live": "polite" });
  const charts = make("div", { class: "pg-charts" });
  root.append(sentence, form, charts);

  // Charts: curves over one quantity, the current settings as a dot. Lower is better.
  function chart(title, xLabel, xs, curves, current, options = {}) {
    const width = 280, height = 196, left = 46, right = 12, top = 12, bottom = 40;
    const values = curves.flatMap(({ ys }) => ys).filter((y) => y !== null).map(decibels);
    const node = make("figure", {}, make("figcaption", {}, title));
    if (!values.length) {
      node.append(make("p", { class: "pg-empty" }, `Unstable at every point: use a stepsize below ${fleet().limits[state.m - 1].toPrecision(2)}.`));
      return node;
    }
    let low = Math.floor(Math.min(...values) - 0.5), high = Math.min(Math.ceil(Math.max(...values) + 0.5), low + 30);
    if (high - low < 2) high = low + 2;
    const scale = options.log ? Math.log : (x) => x;
    const x0 = scale(xs[0]), x1 = scale(xs[xs.length - 1]);
    const px = (x) => left + ((scale(x) - x0) / (x1 - x0 || 1)) * (width - left - right);
    const py = (y) => top + ((high - Math.min(decibels(y), high)) / (high - low)) * (height - top - bottom);
    const svg = make("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": `${title}. ${options.summary ?? ""}` });
    const step = (high - low) > 16 ? 5 : (high - low) > 6 ? 2 : 1;
    for (let y = Math.ceil(low / step) * step; y <= high; y += step) {
      const at = top + ((high - y) / (high - low)) * (height - top - bottom);
      svg.append(make("line", { ns: 1, x1: left, x2: width - right, y1: at, y2: at, class: "grid" }),
        make("text", { ns: 1, x: left - 6, y: at + 4, "text-anchor": "end" }, minus(String(y))));
    }
    for (const x of options.ticks ?? xs)
      svg.append(make("text", { ns: 1, x: px(x), y: height - bottom + 16, "text-anchor": "middle" }, String(x)));
    svg.append(make("text", { ns: 1, x: (left + width - right) / 2, y: height - 6, "text-anchor": "middle" }, xLabel),
      make("text", { ns: 1, x: 12, y: top + 70, transform: `rotate(-90 12 ${top + 70})`, "text-anchor": "middle" }, "dB, lower is better"));
    // Names stand at the end where the curves are further apart.
    const ends = curves.map(({ ys }) => xs.flatMap((x, i) => ys[i] === null ? [] : [[px(x), py(ys[i])]])).map((on) => [on[0], on.at(-1)]);
    const gap = (end) => ends.length < 2 || !ends.every(([first]) => first) ? 0 : Math.abs(ends[0][end][1] - ends[1][end][1]);
    const atStart = gap(0) > gap(1);
    curves.forEach(({ ys, name, kind }, place) => {
      let path = "", pen = false;
      ys.forEach((y, i) => {
        if (y === null) { pen = false; return; }
        path += `${pen ? "L" : "M"}${px(xs[i]).toFixed(1)} ${py(y).toFixed(1)}`;
        pen = true;
      });
      svg.append(make("path", { ns: 1, d: path, class: `curve ${kind}` }));
      if (xs.length <= 12) // points stay visible where their neighbours are unstable
        ys.forEach((y, i) => y !== null && svg.append(make("circle", { ns: 1, cx: px(xs[i]), cy: py(y), r: 2.5, class: `point ${kind}` })));
      const [first, last] = ends[place];
      if (name && atStart) svg.append(make("text", { ns: 1, x: first[0] + 8, y: Math.max(first[1] - 4, 10), class: kind }, name));
      else if (name && last) svg.append(make("text", { ns: 1, x: last[0] - 4, y: last[1] - 6, "text-anchor": "end", class: kind }, name));
    });
    if (current && current[1] !== null) svg.append(make("circle", { ns: 1, cx: px(current[0]), cy: py(current[1]), r: 5, class: "dot" }));
    node.append(svg);
    return node;
  }

  function terms() {
    const cell = fleet().values[state.metric][state.m - 1][state.mu];
    const node = make("figure", {}, make("figcaption", {}, "What contributes to the error"));
    if (cell === null) {
      node.append(make("p", { class: "pg-empty" }, "Unstable: the error grows without limit."));
      return node;
    }
    const floor = state.metric === "network_mse" ? fleet().noise : 0;
    const parts = [["irreducible noise", floor], ["noise absorbed by the models", cell[0] - floor], ["attack", power() * cell[1]]].filter(([, x]) => x > 0);
    const total = parts.reduce((sum, [, x]) => sum + x, 0);
    node.append(make("dl", { class: "pg-terms" }, ...parts.flatMap(([name, x]) => [
      make("dt", {}, `${name}: ${(100 * x / total).toFixed(0)}\u00a0%`),
      make("dd", {}, make("span", { style: `width: ${(100 * x / total).toFixed(1)}%` }))])));
    return node;
  }

  function say() {
    const { clients, dimension, limits } = fleet(), value = level(state.m, state.mu), title = metrics[state.metric];
    const mu = stepsizes[state.mu], limit = limits[state.m - 1];
    if (value === null)
      return [`Unstable: stepsize ${mu} exceeds the largest stable stepsize, ${limit.toPrecision(3)}. Use ${stepsizes[best(state.m)]}.`];
    const what = `Sharing ${state.m} of ${dimension} parameters with ${state.b} of ${clients} clients Byzantine: ${title} `;
    const number = make("strong", { id: "pg-value" }, show(value));
    if (state.m === dimension) return [what, number, "."];
    // Each at its own best stepsize; the current one need not be.
    const own = level(state.m, best(state.m)), everything = level(dimension, best(dimension)), share = Math.round((100 * state.m) / dimension);
    if (everything === null) return [what, number, ". Sharing everything is unstable at every stepsize."];
    const ratio = everything / own;
    const relation = Math.abs(ratio - 1) < 0.005 ? "the same as" : ratio > 1 ? `${ratio.toPrecision(2)} times lower than` : `${(1 / ratio).toPrecision(2)} times higher than`;
    return [what, number, `. At its best stepsize, ${stepsizes[best(state.m)]}, the error is ${relation} with everything shared at its own best, ${stepsizes[best(dimension)]} (${show(everything)}), with ${share}\u00a0% of the traffic.`];
  }

  function render() {
    const { clients, dimension } = fleet();
    choice.value = state.fleet; measure.value = state.metric;
    for (const [name, field] of Object.entries(fields)) {
      inputs[name].max = field.max();
      inputs[name].value = state[name];
      outputs[name].textContent = field.text(state[name]);
      inputs[name].setAttribute("aria-valuetext", field.text(state[name]));
    }
    sentence.replaceChildren(...say());
    sentence.classList.toggle("unstable", level(state.m, state.mu) === null);
    const shared = Array.from({ length: dimension }, (_, i) => i + 1);
    const counts = Array.from({ length: 21 }, (_, i) => Math.round((i * clients) / 20));
    const over = (m) => ({ ys: stepsizes.map((_, i) => level(m, i)), name: m === state.m ? `M = ${m}` : "all shared", kind: m === state.m ? "main" : "other" });
    const now = level(state.m, state.mu);
    charts.replaceChildren(
      chart("Error over the stepsize", "stepsize μ", stepsizes, state.m === dimension ? [over(dimension)] : [over(dimension), over(state.m)], [stepsizes[state.mu], now],
        { log: true, ticks: [0.01, 0.03, 0.1, 0.3], summary: `Best stepsize ${stepsizes[best(state.m)]}.` }),
      chart("Error over the number of shared parameters", "M", shared, [{ ys: shared.map((m) => level(m, state.mu)), kind: "main" }], [state.m, now]),
      chart("Error over the number of Byzantine clients", "Byzantine clients", counts,
        [dimension, state.m].filter((m, i, all) => all.indexOf(m) === i).map((m) => ({ ys: counts.map((b) => level(m, state.mu, b)), name: m === state.m ? `M = ${m}` : "all shared", kind: m === state.m ? "main" : "other" })),
        [state.b, now], { ticks: [0, clients / 4, clients / 2, (3 * clients) / 4, clients].map(Math.round) }),
      terms());
  }

  // The fragment holds what differs from the defaults.
  function write() {
    const pairs = Object.entries(state).filter(([name, value]) => value !== defaults[name]).map(([name, value]) => `${name}=${name === "mu" ? stepsizes[value] : value}`);
    history.replaceState(null, "", pairs.length ? `#${pairs.join("&")}` : location.pathname + location.search);
  }
  function read() {
    const next = { ...defaults };
    for (const [name, text] of new URLSearchParams(location.hash.slice(1))) {
      if (name === "fleet" && Object.hasOwn(fleets, text)) next.fleet = text;
      else if (name === "metric" && Object.hasOwn(metrics, text)) next.metric = text;
      else if (name === "mu" && +text > 0) next.mu = nearest(+text);
      else if (Object.hasOwn(fields, name) && name !== "mu" && Number.isFinite(+text)) next[name] = +text;
    }
    state = next;
    clamp();
    render();
  }
  function clamp() {
    for (const name of ["b", "m", "p", "v"]) {
      const { min, max, step } = fields[name];
      const bounded = Math.min(Math.max(state[name], min), max());
      state[name] = step === 1 ? Math.round(bounded) : bounded;
    }
  }
  function set(name, value) {
    state[name] = value;
    clamp();
    render();
    write();
  }
  window.addEventListener("hashchange", read);
  read();
})();

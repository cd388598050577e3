// The page around the charts: a form built from the fields that Python describes, sentences and numbers.
// It computes nothing except the positions of sliders.

const STEPS = 1000; // positions of a slider with a logarithmic scale

function make(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (value === true) element.setAttribute(name, "");
    else if (value !== false && value != null) element.setAttribute(name, value);
  }
  element.append(...children.filter((child) => child != null));
  return element;
}

const identify = (name) => "field-" + name.replaceAll(".", "-");

function toPosition(field, value) {
  if (field.scale !== "log") return value;
  return Math.round((STEPS * Math.log(value / field.low)) / Math.log(field.high / field.low));
}

function fromPosition(field, position) {
  let value = Number(position);
  if (field.scale === "log") value = field.low * (field.high / field.low) ** (value / STEPS);
  if (field.integer) return String(Math.round(value));
  return String(Number(value.toPrecision(field.scale === "log" ? 3 : 6)));
}

export function render({ model, el }) {
  document.documentElement.lang = "en";
  document.head.append(make("meta", { name: "viewport", content: "width=device-width, initial-scale=1" }));
  const tell = (message) => model.send_msg(message);
  const state = { ...model.start }; // the latest form, errors, headline, address, words and copies
  const pending = new Map();
  let scheduled = false, painting = false;
  let inputs = new Map();
  let shape = "";
  let level = "simple"; // or "expert", with all fields
  try { level = localStorage.getItem("psofed-level") === "expert" ? "expert" : "simple"; } catch { /* no store */ }

  // What changes settings, and can be undone
  function act(message) { undoing.cause = message.name ?? message.type; tell(message); }

  // A changed field goes to Python at once; what follows within the same frame goes after it, each with its latest value.
  function send(name, value) {
    pending.set(name, value);
    if (scheduled) return;
    flush();
    scheduled = true;
    requestAnimationFrame(() => { scheduled = false; flush(); });
  }

  function flush() {
    for (const [field, latest] of pending) act({ type: "set", side: state.form.side, name: field, value: latest });
    pending.clear();
  }

  // The frame of the page

  const preset = make("select", { id: "preset", onchange: () => preset.value && act({ type: "preset", name: preset.value }) });
  const metric = make("select", { id: "metric", onchange: () => act({ type: "metric", name: metric.value }) });
  const compare = make("button", { id: "compare", type: "button", onclick: () => act({ type: "compare" }) });
  const undo = make("button", { id: "undo", type: "button", title: "Undo the last change (Ctrl+Z)", onclick: () => history.back() }, "Undo");
  const simulate = make("button", { id: "simulate", type: "button", class: "primary", onclick: () => tell({ type: "simulate" }) });
  const bar = make("progress", { max: "1", value: "0", "aria-label": "progress of the simulation" });
  const status = make("span", { id: "status", role: "status" });
  const share = make("button", { id: "share", type: "button", "aria-expanded": "false", "aria-controls": "copies", onclick: () => {
    copies.hidden = !copies.hidden;
    share.setAttribute("aria-expanded", String(!copies.hidden));
    if (!copies.hidden) tell({ type: "copies" });
  } }, "Copy and download");
  const copies = make("section", { id: "copies", hidden: true, "aria-label": "Copy and download" });
  const sentence = make("div", { id: "sentence", "aria-live": "polite" });
  const numbers = make("div", { id: "numbers" });
  const form = make("form", { id: "form", "aria-label": "Settings", onsubmit: (event) => event.preventDefault() });
  const settings = make("details", { id: "settings" }, make("summary", {}, "Settings"), form);
  const charts = make("div", { id: "charts" });
  const glossary = make("details", { id: "glossary" }, make("summary", {}, "What do these words mean?"),
    make("dl", {}, ...Object.entries(model.start.glossary).flatMap(([word, text]) => [make("dt", {}, word), make("dd", {}, text)])));
  el.append(make("div", { class: "page" },
    make("header", {},
      make("h1", {}, "psofed ", make("span", {}, "explorer")),
      make("span", { class: "pair" }, make("label", { for: "preset" }, "start from"), preset),
      make("span", { class: "pair" }, make("label", { for: "metric" }, "error"), metric),
      // The texts that change stand left of the buttons, so that a button never moves away under the pointer.
      make("span", { class: "gap" }), status, bar, undo, compare, simulate, share),
    make("div", { id: "body" }, settings, make("main", {}, copies, sentence, numbers, charts, glossary))));
  const wide = matchMedia("(min-width: 900px)");
  const unfold = () => { settings.open = wide.matches; };
  wide.addEventListener("change", unfold);
  unfold();

  const cards = model.get_child("charts").map((chart) => {
    const card = { alt: make("p", { class: "unseen" }), why: make("div", { class: "why" }), caption: make("figcaption") };
    card.figure = make("figure", { class: "card" }, card.alt, make("div", { class: "canvas" }, chart, card.why), card.caption);
    charts.append(card.figure);
    return card;
  });

  // The words around the charts: captions, text alternatives, and why there is nothing to see
  function onWords() {
    state.words.forEach(({ caption, summary, gaps, empty }, place) => {
      const card = cards[place];
      card.figure.hidden = caption === "";
      card.figure.classList.toggle("empty", empty);
      card.caption.textContent = caption.replaceAll(" %", "\u00a0%");
      card.alt.textContent = summary;
      card.why.replaceChildren(...gaps.map(([side, text]) =>
        make("p", {}, state.form.sides.length > 1 ? make("b", { class: `side-${side}` }, `${side} `) : null, text)));
    });
  }

  // The form

  function shapeOf({ side, sides, groups }) {
    const fields = groups.flatMap((group) => group.fields);
    return JSON.stringify([side, sides, fields.map((f) => [f.name, f.type, f.choices, f.label])]);
  }

  function drawForm() {
    const { side: shown, sides, groups } = state.form;
    const focused = el.getRootNode().activeElement?.id;
    const folded = new Map([...form.querySelectorAll("details")].map((d) => [d.dataset.title, d.open]));
    inputs = new Map();
    form.replaceChildren();
    if (sides.length > 1) {
      form.append(make("div", { class: "sides", role: "group", "aria-label": "Scenario to edit" },
        ...sides.map((side) => make("button", { type: "button", class: `side-${side}`, "aria-pressed": String(side === shown),
          onclick: () => tell({ type: "side", name: side }) }, `Settings of ${side}`))));
    }
    const choose = (name) => make("button", { type: "button", id: `level-${name}`, "aria-pressed": String(level === name), onclick: () => {
      level = name;
      try { localStorage.setItem("psofed-level", level); } catch { /* no store */ }
      drawForm();
    } }, name === "simple" ? "Simple" : "Expert");
    form.append(make("div", { class: "levels", role: "group", "aria-label": "How many settings are shown" }, choose("simple"), choose("expert")));
    if (level === "simple") {
      const simple = groups.flatMap((group) => group.fields).filter((field) => field.simple);
      form.append(...simple.sort((a, b) => b.name.startsWith("attack") - a.name.startsWith("attack")).map(drawField), summary);
    } else for (const group of groups) {
      const open = folded.get(group.title) ?? group.open;
      form.append(make("details", { open, "data-title": group.title }, make("summary", {}, group.title), ...group.fields.map(drawField)));
    }
    if (focused) el.getRootNode().getElementById?.(focused)?.focus();
    drawErrors();
    offerBest();
  }

  function offerBest() {
    const button = form.querySelector("#use-best");
    if (button) button.disabled = !state.headline.tuned.includes(state.form.side);
  }

  const summary = make("p", { class: "note", id: "summary" });

  function drawField(field) {
    const id = identify(field.name);
    const note = make("p", { class: "note", id: `${id}-note` });
    const common = { id, name: field.name, "aria-describedby": note.id };
    let box, slider = null;
    if (field.type === "kept") {
      box = make("output", { id });
    } else if (field.type === "choice") {
      box = make("select", { ...common, onchange: () => send(field.name, box.value) },
        ...field.choices.map(([value, label]) => make("option", { value }, label)));
    } else {
      box = make("input", { ...common, type: "text", autocomplete: "off", spellcheck: "false", maxlength: "4000",
        inputmode: field.type === "number" ? "decimal" : "text",
        oninput: () => { place(field, slider, box.value); send(field.name, box.value); } });
      if (field.type === "number") {
        slider = make("input", { type: "range", "aria-label": `${field.label}, slider`, id: `${id}-slider`,
          oninput: () => { box.value = fromPosition(slider.field, slider.value); speak(slider, box.value); send(field.name, box.value); } });
      }
    }
    inputs.set(field.name, { box, slider, note });
    fill(field);
    const name = make("span", { class: "name" }, make("label", { for: id }, field.label));
    if (level === "expert" && field.hint && !["choice", "kept"].includes(field.type)) {
      const help = make("button", { type: "button", class: "help", "aria-label": `Explain ${field.label}`, "aria-expanded": "false", "aria-controls": note.id, onclick: () => {
        note.asked = !note.asked;
        help.setAttribute("aria-expanded", String(note.asked));
        explain(note);
      } }, "?");
      name.append(help);
    }
    const best = field.name !== "stepsize" ? null
      : make("button", { type: "button", id: "use-best", onclick: () => act({ type: "best" }) }, "Use the best one");
    return make("div", { class: `field ${field.type}` }, name, box, slider, best, note);
  }

  // The error of a field, else its explanation where it is always shown or was asked for
  function explain(note) {
    const text = note.error || (note.always || note.asked ? note.hint : "");
    if (note.textContent !== text) note.textContent = text; // the same text again would cost a layout
  }

  // A logarithmic slider's position is no number that anyone could use.
  function speak(slider, text) { slider.setAttribute("aria-valuetext", text); }

  function place(field, slider, text) {
    const value = Number(text);
    if (slider && text.trim() !== "" && Number.isFinite(value)) { slider.value = toPosition(slider.field ?? field, value); speak(slider, text); }
  }

  function fill(field) {
    if (!inputs.has(field.name)) return; // of the other level
    const { box, slider, note } = inputs.get(field.name);
    const active = el.getRootNode().activeElement;
    if (slider) {
      slider.field = field;
      const ends = field.scale === "log" ? [0, STEPS, 1] : [field.low, field.high, field.step];
      if ([slider.min, slider.max, slider.step].join() !== ends.join()) [slider.min, slider.max, slider.step] = ends;
      if (active !== slider) place(field, slider, field.value);
    }
    if (active !== box && !(slider && active === slider)) box.value = field.value;
    note.hint = field.hint;
    note.always = level === "simple" || ["choice", "kept"].includes(field.type);
    explain(note);
  }

  function onForm() {
    const { sides, groups, presets, metrics } = state.form;
    const now = shapeOf(state.form);
    if (now !== shape) { shape = now; drawForm(); }
    else for (const group of groups) group.fields.forEach(fill);
    const known = JSON.stringify(presets);
    if (preset.dataset.known !== known) {
      preset.dataset.known = known;
      preset.replaceChildren(make("option", { value: "", hidden: true }, "your settings"), ...presets.map(([value, label]) => make("option", { value }, label)));
      metric.replaceChildren(...metrics.map(([value, label]) => make("option", { value }, label)));
    }
    preset.value = state.form.preset;
    metric.value = state.form.metric;
    compare.textContent = sides.length > 1 ? "Close B" : "Compare with B";
    summary.textContent = `${state.form.summary}. Expert shows every setting.`;
    if (!copies.hidden) tell({ type: "copies" });
  }

  function drawErrors() {
    if (level === "simple" && Object.keys(state.errors).some((name) => !inputs.has(name))) { level = "expert"; drawForm(); return; }
    for (const [name, { box, note }] of inputs) {
      const text = note.error = state.errors[name] ?? "";
      note.classList.toggle("bad", text !== "");
      explain(note);
      text ? box.setAttribute("aria-invalid", "true") : box.removeAttribute("aria-invalid");
      if (text) { note.setAttribute("role", "alert"); note.closest("form details")?.setAttribute("open", ""); }
      else note.removeAttribute("role");
    }
  }

  // Sentences and numbers

  // The main number is the first of a sentence.
  function emphasised(text) {
    const [first, number, ...rest] = text.replaceAll(" dB", "\u00a0dB").split(/(?<=gives )(\u2212?\d+\.\d+\u00a0dB)/);
    return number === undefined ? [first] : [first, make("strong", {}, number), rest.join("")];
  }

  function onHeadline() {
    const top = state.headline;
    const lines = top.lines.map(({ side, text, trouble, slow }) =>
      make("p", { class: trouble ? "trouble" : slow ? "slow" : "" },
        state.form.sides.length > 1 && side ? make("b", { class: `side-${side}` }, side) : null, ...emphasised(text),
        slow ? make("button", { type: "button", class: "stop-theory", onclick: () => tell({ type: "stop-theory", name: side }) }, "Stop theory") : null));
    sentence.replaceChildren(...lines);
    sentence.classList.toggle("stale", top.stale);
    numbers.replaceChildren(...top.tiles.map((tile) => make("dl", { class: tile.values.length > 1 ? "tile two" : "tile" }, make("dt", {}, tile.title),
      ...tile.values.map(({ side, text, key, stale }) => make("dd", { class: `side-${side}${stale ? " stale" : ""}`, id: `${key}-${side}` },
        tile.values.length > 1 ? make("small", {}, side === "difference" ? tile.relation : side) : null, text)))));
    simulate.textContent = top.simulation.running ? "Stop" : "Simulate";
    bar.hidden = !top.simulation.running;
    bar.value = top.simulation.fraction;
    status.textContent = top.simulation.text;
    offerBest();
    if (!painting) requestAnimationFrame(() => setTimeout(() => { painting = false; tell({ type: "painted" }); }));
    painting = true; // Python draws the charts when the numbers are on the screen
  }

  // The address holds all settings, so that reloading keeps them and Back undoes. A slider on its way is one change.
  const undoing = { cause: "", last: "", time: 0 };
  function onAddress() {
    const address = `${location.pathname}?${state.address}`, depth = history.state?.depth ?? 0;
    if (history.state !== null && location.search !== new URL(address, location.href).search) {
      const isSame = undoing.cause === undoing.last && Date.now() - undoing.time < 1500;
      if (undoing.cause === "" || (isSame && depth > 0)) history.replaceState({ depth }, "", address);
      else history.pushState({ depth: depth + 1 }, "", address);
      [undoing.last, undoing.time] = [undoing.cause, Date.now()];
    } else history.replaceState({ depth }, "", address);
    undo.disabled = (history.state?.depth ?? 0) === 0;
  }
  window.addEventListener("popstate", () => {
    undoing.cause = undoing.last = "";
    el.getRootNode().activeElement?.blur(); // a field in use would keep what was typed
    tell({ type: "address", name: location.search.slice(1) });
    undo.disabled = (history.state?.depth ?? 0) === 0;
  });
  window.addEventListener("keydown", (event) => {
    const typing = el.getRootNode().activeElement?.matches?.("input[type=text]");
    if ((event.ctrlKey || event.metaKey) && event.key === "z" && !typing && !undo.disabled) { event.preventDefault(); history.back(); }
  });

  function onCopies() {
    const texts = state.copies;
    const link = `${location.origin}${location.pathname}?token=${texts.token}&${texts.query}`;
    const block = (title, id, text) => {
      const done = make("span", { role: "status", class: "done" });
      const button = make("button", { type: "button", id: `copy-${id}`, onclick: async () => {
        try { await navigator.clipboard.writeText(text); done.textContent = "copied"; }
        catch { done.textContent = "select the text and copy it"; }
      } }, `Copy ${title}`);
      return make("div", { class: "copy" }, button, done, make("pre", { id: `text-${id}`, tabindex: "0", "aria-label": title }, text));
    };
    const download = (kind) => make("button", { type: "button", id: `download-${kind}`, onclick: () => tell({ type: "download", name: kind }) },
      `Numbers as ${kind.toUpperCase()}`);
    copies.replaceChildren(
      make("p", {}, `Settings of ${state.form.side}. To save a chart, use the disk icon next to it. `, download("csv"), download("json")),
      make("div", { class: "grid" }, block("TOML", "toml", texts.toml), block("commands", "command", texts.command),
        block("Python", "python", texts.python), block("link (while this explorer runs)", "link", link)));
  }

  function save({ name, mime, text }) {
    const link = make("a", { href: URL.createObjectURL(new Blob([text], { type: mime })), download: name });
    link.click();
    URL.revokeObjectURL(link.href);
  }

  const draw = { form: onForm, errors: drawErrors, headline: onHeadline, address: onAddress, words: onWords, copies: onCopies };
  model.on("msg:custom", (message) => {
    if (message.type === "file") save(message);
    if (message.type !== "news") return;
    state[message.part] = message.value;
    draw[message.part]();
  });
  onForm();
  onHeadline();
  onWords();
  onAddress();
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const tint = () => { model.dark = dark.matches; };
  dark.addEventListener("change", tint);
  tint();
  tell({ type: "hello" });
}

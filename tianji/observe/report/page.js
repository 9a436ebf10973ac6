// Draws the report from one JSON document: the one inside this page, or one that is fetched again and
// again while a run goes on. Nothing from a run is ever parsed as HTML: text goes in as text.
"use strict";

// What went wrong here, for whoever tests this page.
const page = document.documentElement;
const note = (message) => { page.dataset.errors = (page.dataset.errors || "") + message + "\n"; };
addEventListener("error", (event) => note(event.message));
addEventListener("unhandledrejection", (event) => note(String(event.reason)));

// Elements.
function el(tag, attributes, ...children) {
  return filled(document.createElement(tag), attributes, children);
}
function svg(tag, attributes, ...children) {
  return filled(document.createElementNS("http://www.w3.org/2000/svg", tag), attributes, children);
}
function filled(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes || {})) {
    if (value !== undefined && value !== null) node.setAttribute(name, value);
  }
  node.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined));
  return node;
}
// Makes `nodes` the children of `parent`; does nothing if they are, so that nothing flickers.
function arrange(parent, nodes) {
  const wanted = nodes.filter(Boolean);
  const same = wanted.length === parent.childNodes.length && wanted.every((n, i) => n === parent.childNodes[i]);
  if (!same) parent.replaceChildren(...wanted);
  return parent;
}
// The node known as `id`, filled anew only when what it shows has changed.
const kept = new Map();
function steady(id, tag, attributes, shown, fill) {
  let known = kept.get(id);
  if (!known) kept.set(id, known = { node: el(tag, { id, ...attributes }), said: null });
  const said = JSON.stringify(shown);
  if (said !== known.said) {
    known.said = said;
    known.node.replaceChildren(...fill().filter(Boolean));
  }
  return known.node;
}

// Numbers as one says them.
const known = (value) => value !== null && value !== undefined;
const DASH = "–";
function number(value) {
  if (!known(value)) return DASH;
  const size = Math.abs(value);
  if (size >= 1000 || Number.isInteger(value)) return value.toLocaleString("en-US", { maximumFractionDigits: 0 });
  return value.toLocaleString("en-US", size >= 1 ? { maximumFractionDigits: size >= 100 ? 1 : 2 } : { maximumSignificantDigits: 3 });
}
function compact(value, step) {
  for (const [size, letter] of [[1e9, " G"], [1e6, " M"], [1e3, " k"]]) {
    if (Math.abs(value) >= size * (size === 1e3 ? 10 : 1)) return decimals(value / size, step / size) + letter;
  }
  return decimals(value, step);
}
function decimals(value, step) {
  const whole = (digits) => Math.abs(step * 10 ** digits - Math.round(step * 10 ** digits)) < 1e-6;
  const digits = [0, 1, 2, 3, 4, 5].find(whole) ?? 6; // so that each step shows
  return value.toLocaleString("en-US", { minimumFractionDigits: digits, maximumFractionDigits: digits });
}
const percent = (share) => known(share) ? `${share > 0 && share < 0.0995 ? (100 * share).toFixed(1) : Math.round(100 * share)} %` : DASH;
function span(seconds) {
  if (!known(seconds)) return DASH;
  if (seconds < 60) return `${seconds.toFixed(1)} s`;
  const whole = Math.round(seconds), minutes = Math.floor(whole / 60), two = (n) => String(n).padStart(2, "0");
  return minutes < 60 ? `${minutes} min ${two(whole % 60)} s` : `${Math.floor(minutes / 60)} h ${two(minutes % 60)} min`;
}
function bytes(count) {
  const place = Math.min(3, Math.floor(Math.log2(Math.max(1, count)) / 10));
  return `${number(+(count / 1024 ** place).toPrecision(3))} ${["bytes", "KiB", "MiB", "GiB"][place]}`;
}

// Axes.
function niceStep(range, count) {
  const rough = range / count, power = 10 ** Math.floor(Math.log10(rough));
  return [1, 2, 2.5, 5, 10].map((n) => n * power).find((step) => step >= rough * 0.999);
}
const wholeStep = (range, count) => Math.max(1, Math.ceil(niceStep(range, count))); // of what is counted
function clockStep(range, count) {
  const steps = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 21600, 43200, 86400];
  return range / count < 1 ? niceStep(range, count) : steps.find((step) => step >= range / count) || niceStep(range / 86400, count) * 86400;
}
function clock(seconds, step) {
  const [size, unit] = step >= 3600 ? [3600, "h"] : step >= 60 ? [60, "min"] : [1, "s"];
  return seconds === 0 ? "0" : `${decimals(seconds / size, step / size)} ${unit}`;
}
const AXES = {
  time: { label: "training time", step: clockStep, tick: clock, value: span },
  steps: { label: "environment steps", step: wholeStep, tick: compact, value: (x) => `${number(x)} steps` },
  updates: { label: "updates", step: wholeStep, tick: compact, value: number },
  age: { label: "environment steps", step: wholeStep, tick: compact, value: number },
};
function ticksBetween(low, high, step) {
  const found = [];
  for (let i = Math.ceil(low / step - 1e-9); i * step <= high + step * 1e-9; i++) found.push(i * step || 0); // never -0
  return found;
}
function extent(spec) {
  let x = [0, -Infinity], y = [Infinity, -Infinity];
  const seeX = (v) => { if (known(v)) x = [Math.min(x[0], v), Math.max(x[1], v)]; };
  const seeY = (v) => { if (known(v)) y = [Math.min(y[0], v), Math.max(y[1], v)]; };
  for (const line of spec.lines || []) line.y.forEach((v, i) => { if (known(v)) { seeX(line.x[i]); seeY(v); } });
  for (const band of spec.bands || []) { band.low.forEach(seeY); band.high.forEach(seeY); }
  for (const dot of spec.dots || []) { seeX(dot.x); [dot.y, dot.low, dot.high].forEach(seeY); }
  if (spec.bars) { seeX(spec.bars.width * spec.bars.shares.length); spec.bars.shares.forEach(seeY); }
  if (y[0] > y[1] || x[1] === -Infinity) return null; // nothing to draw
  for (const rule of spec.rules || []) seeY(rule.y);
  if (spec.zero) seeY(0);
  if (spec.top) seeY(spec.top);
  if (x[0] === x[1]) x[1] = x[0] + 1;
  if (y[0] === y[1]) y = y[0] === 0 ? [0, 1] : [y[0] - Math.abs(y[0]) * 0.1, y[1] + Math.abs(y[1]) * 0.1];
  return { x, y };
}
// The place of the value nearest to `x` in a rising column that may have gaps.
function nearest(column, values, x) {
  let best = -1;
  for (let i = 0; i < column.length; i++) {
    if (known(column[i]) && known(values[i]) && (best < 0 || Math.abs(column[i] - x) < Math.abs(column[best] - x))) best = i;
  }
  return best;
}

// A chart.
// A `spec` has an axis, a unit and any of: lines {label, c, x, y, dashed}, bands {c, x, low, high},
// dots {label, c, full, x, y, low, high}, rules {y, label}, bars {width, shares}, marks {x, label}.
class Chart {
  constructor() {
    this.svg = svg("svg", { role: "img" });
    this.readout = el("div", { class: "readout", hidden: "" });
    this.node = el("div", { class: "plot" }, this.svg, this.readout);
    this.pointer = null;
    this.node.addEventListener("pointermove", (event) => {
      this.pointer = event.clientX - this.node.getBoundingClientRect().left;
      this.read();
    });
    this.node.addEventListener("pointerleave", () => { this.pointer = null; this.read(); });
    this.width = 0;
    // Later: drawing here and now would change what is being observed.
    new ResizeObserver(() => requestAnimationFrame(() => this.fit())).observe(this.node);
  }
  set(spec) {
    this.spec = spec;
    this.draw();
  }
  fit() {
    if (this.node.clientWidth !== this.width) this.draw();
  }
  draw() {
    const width = this.node.clientWidth, height = this.spec.height || 190, range = extent(this.spec);
    if (!width || !range) return;
    this.width = width;
    const axis = AXES[this.spec.axis];
    const stepOf = this.spec.unit === "updates" && !this.spec.percent ? wholeStep : niceStep;
    const yStep = stepOf(range.y[1] - range.y[0], height > 230 ? 6 : 4);
    const low = Math.floor(range.y[0] / yStep + 1e-9) * yStep, high = Math.ceil(range.y[1] / yStep - 1e-9) * yStep;
    const yTick = (v) => this.spec.percent ? `${decimals(100 * v, 100 * yStep)} %` : compact(v, yStep);
    const yTicks = ticksBetween(low, high, yStep);
    const left = 12 + Math.max(...yTicks.map((v) => yTick(v).length)) * 6.4, right = width - 14, top = 8, bottom = height - 38;
    const [x0, x1] = range.x, xStep = axis.step(x1 - x0, Math.max(2, Math.min(10, (right - left) / 74)));
    this.place = { left, right, top, bottom, x0, x1 };
    this.x = (v) => left + (v - x0) / (x1 - x0) * (right - left);
    this.y = (v) => bottom - (v - low) / (high - low) * (bottom - top);
    const parts = yTicks.flatMap((v) => [
      svg("line", { class: "grid", x1: left, x2: right, y1: this.y(v), y2: this.y(v) }),
      svg("text", { x: left - 7, y: this.y(v) + 4, "text-anchor": "end" }, yTick(v))]);
    for (const v of ticksBetween(x0, x1, xStep)) {
      parts.push(svg("line", { class: "axis", x1: this.x(v), x2: this.x(v), y1: bottom, y2: bottom + 4 }),
        svg("text", { x: Math.min(this.x(v), width - 3.2 * axis.tick(v, xStep).length), y: bottom + 17, "text-anchor": "middle" }, axis.tick(v, xStep)));
    }
    parts.push(svg("line", { class: "axis", x1: left, x2: right, y1: bottom, y2: bottom }),
      svg("text", { x: (left + right) / 2, y: height - 4, "text-anchor": "middle" }, axis.label));
    this.cursor = svg("g", {});
    this.svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
    this.svg.setAttribute("height", height);
    this.svg.setAttribute("aria-label", this.spec.title);
    this.svg.replaceChildren(...parts, ...this.shapes(), this.cursor);
    this.read();
  }
  shapes() {
    const spec = this.spec, { left, right, top, bottom } = this.place, found = [];
    for (const rule of spec.rules || []) {
      const y = this.y(rule.y);
      found.push(svg("line", { class: "rule", x1: left, x2: right, y1: y, y2: y }),
        svg("text", { class: "over", x: left + 6, y: y < top + 14 ? y + 14 : y - 5 }, rule.label));
    }
    for (const band of spec.bands || []) found.push(svg("path", { class: `band c${band.c}`, d: this.area(band) }));
    if (spec.bars) found.push(...this.bars(spec.bars));
    for (const mark of spec.marks || []) {
      const x = this.x(mark.x), leftwards = x > (left + right) / 2;
      found.push(svg("line", { class: "rule", x1: x, x2: x, y1: top, y2: bottom }),
        svg("text", { class: "over", x: x + (leftwards ? -5 : 5), y: top + mark.row * 15 + 9, "text-anchor": leftwards ? "end" : "start" }, mark.label));
    }
    for (const line of spec.lines || []) found.push(...this.line(line));
    for (const dot of spec.dots || []) found.push(...this.dot(dot));
    const isText = (part) => part.tagName === "text";
    return [...found.filter((part) => !isText(part)), ...found.filter(isText)]; // words lie on top
  }
  line(line) {
    let path = "", lone = [], length = 0;
    const finish = (i) => { if (length === 1) lone.push(i - 1); length = 0; };
    line.x.forEach((x, i) => {
      if (!known(x) || !known(line.y[i])) return finish(i);
      path += `${length++ ? "L" : "M"}${this.x(x).toFixed(1)},${this.y(line.y[i]).toFixed(1)}`;
    });
    finish(line.x.length);
    return [svg("path", { class: `line c${line.c}${line.dashed ? " dashed" : ""}`, d: path }),
      ...lone.map((i) => svg("circle", { class: `dot full c${line.c}`, cx: this.x(line.x[i]), cy: this.y(line.y[i]), r: 2.5 }))];
  }
  area(band) {
    const there = band.x.map((_, i) => i).filter((i) => known(band.low[i]) && known(band.high[i]));
    const point = (column) => (i) => `${this.x(band.x[i]).toFixed(1)},${this.y(column[i]).toFixed(1)}`;
    return there.length < 2 ? "" : `M${there.map(point(band.high)).join("L")}L${there.reverse().map(point(band.low)).join("L")}Z`;
  }
  bars({ width, shares }) {
    const { bottom } = this.place;
    return shares.map((share, i) => svg("rect", { class: "bar c0", x: this.x(i * width) + 0.5, y: this.y(share),
      width: Math.max(0.5, this.x((i + 1) * width) - this.x(i * width) - 1), height: Math.max(0, bottom - this.y(share)) }));
  }
  dot(dot) {
    const x = this.x(dot.x), found = [];
    if (known(dot.low) && known(dot.high)) {
      found.push(svg("line", { class: `whisker c${dot.c}`, x1: x, x2: x, y1: this.y(dot.low), y2: this.y(dot.high) }));
    }
    found.push(svg("circle", { class: `dot c${dot.c}${dot.full ? " full" : ""}`, cx: x, cy: this.y(dot.y), r: 3.4 }));
    return found;
  }
  // Shows the values under the pointer, also when the chart has just been drawn anew beneath it.
  read() {
    this.cursor?.replaceChildren();
    this.readout.hidden = true;
    if (this.pointer === null || !this.x) return;
    const { left, right, x0, x1 } = this.place;
    const x = x0 + Math.min(1, Math.max(0, (this.pointer - left) / (right - left))) * (x1 - x0);
    const { title, rows, at } = this.spec.bars ? this.barAt(x) : this.valuesAt(x);
    if (!rows.length) return;
    const { top, bottom } = this.place, place = this.x(at);
    this.cursor.append(svg("line", { class: "cursor", x1: place, x2: place, y1: top, y2: bottom }),
      ...rows.filter((row) => known(row.y)).map((row) => svg("circle", { class: `at c${row.c}`, cx: this.x(row.x), cy: this.y(row.y), r: 4 })));
    this.readout.replaceChildren(el("div", {}, el("b", {}, title)), ...rows.map((row) =>
      el("div", { class: `c${row.c}` }, el("i"), el("span", {}, row.label), el("b", {}, row.said))));
    this.readout.hidden = false;
    const room = this.node.clientWidth - this.readout.offsetWidth;
    const beside = place > this.node.clientWidth / 2 ? place - this.readout.offsetWidth - 14 : place + 14;
    this.readout.style.left = `${Math.min(room, Math.max(0, beside))}px`;
  }
  say(value) {
    return this.spec.percent ? percent(value) : `${number(value)}${this.spec.unit ? ` ${this.spec.unit}` : ""}`;
  }
  valuesAt(x) {
    const rows = [];
    let at = null;
    for (const line of this.spec.lines || []) {
      const i = nearest(line.x, line.y, x);
      if (i < 0 || Math.abs(this.x(line.x[i]) - this.x(x)) > 40 && (this.spec.lines.length > 1 || line.x.length > 20)) continue;
      const band = (this.spec.bands || []).find((b) => b.of === line);
      const range = band && known(band.low[i]) ? ` (${number(band.low[i])} to ${number(band.high[i])})` : "";
      rows.push({ label: line.label, c: line.c, x: line.x[i], y: line.y[i], said: this.say(line.y[i]) + range });
      if (at === null || Math.abs(line.x[i] - x) < Math.abs(at - x)) at = line.x[i];
    }
    const close = (this.spec.dots || []).filter((d) => known(d.x) && Math.abs(this.x(d.x) - this.x(x)) < 9);
    for (const dot of close.slice(0, 4)) {
      const range = known(dot.low) ? ` (${number(dot.low)} to ${number(dot.high)})` : "";
      rows.push({ label: dot.label, c: dot.c, x: dot.x, y: dot.y, said: number(dot.y) + range });
      if (at === null) at = dot.x;
    }
    return { title: at === null ? "" : AXES[this.spec.axis].value(at), rows, at };
  }
  barAt(x) {
    const { width, shares } = this.spec.bars, i = Math.min(shares.length - 1, Math.floor(x / width));
    const from = i * width, to = (i + 1) * width - 1, said = this.spec.unit;
    const title = to > from ? `${number(from)} to ${number(to)} ${said}` : `${number(from)} ${said}`;
    return { title, rows: [{ label: "of samples", c: 0, x: from, y: null, said: percent(shares[i]) }], at: (i + 0.5) * width };
  }
}

// Cards.
const charts = new Map();
function chartCard(id, size, title, remark, spec, tool) {
  if (!extent(spec)) return null;
  let made = charts.get(id);
  if (!made) {
    const parts = { title: el("h3"), remark: el("span", { class: "note" }), legend: el("div", { class: "legend" }), chart: new Chart() };
    parts.node = el("section", { class: `card ${size}`, id },
      el("div", { class: "head" }, el("span", {}, parts.title, " ", parts.remark), tool), parts.legend, parts.chart.node);
    charts.set(id, made = parts);
  }
  made.title.textContent = title;
  made.remark.textContent = remark;
  made.node.className = `card ${size}`;
  const items = spec.unnamed ? [] : legendOf(spec), said = JSON.stringify(items);
  if (said !== made.said) {
    made.said = said;
    made.legend.replaceChildren(...items.map((item) => el("span", { class: item.class }, el("i"), item.label)));
    made.legend.hidden = items.length === 0 && (size !== "" || spec.unnamed); // small ones stay level with their neighbours
  }
  made.chart.set({ ...spec, title });
  return made.node;
}
function legendOf(spec) {
  const items = [];
  for (const line of spec.lines || []) items.push({ class: `c${line.c}${line.dashed ? " dashed" : ""}`, label: line.label });
  for (const dot of spec.dots || []) {
    const item = { class: `${spec.manyColours ? "cn" : `c${dot.c}`} ${dot.full ? "full" : "dot"}`, label: dot.label };
    if (!items.some((other) => other.label === item.label)) items.push(item);
  }
  return items.length > 1 ? items : [];
}
function table(columns, rows, attributes) {
  const head = columns[0].head === undefined ? null
    : el("thead", {}, el("tr", {}, columns.map((c) => el("th", { class: c.class }, c.head))));
  const body = rows.map((row) => el("tr", { class: row.other ? "other" : null }, columns.map((c) => el("td", { class: c.class }, c.cell(row)))));
  return el("div", { class: "wide" }, el("table", attributes, head, el("tbody", {}, body)));
}
const withSmall = (main, small) => small ? [main, el("small", {}, small)] : [main];
const chip = (status, words) => el("span", { class: `chip ${status}` }, words);
const plural = (n, word) => `${number(n)} ${word}${n === 1 ? "" : "s"}`;

// What the page says.
const state = { axis: "time", run: 0, data: null, live: null };

function outcome(run) {
  const n = run.numbers, target = n.stop_return, episodes = n.episodes;
  const over = known(episodes) ? ` over ${plural(Math.min(100, episodes), "episode")}` : "";
  const reached = known(n.mean_return_100) ? `mean return ${number(n.mean_return_100)}${over}` : "no episode has ended";
  if (run.status === "solved") return `Solved in ${span(n.final_time_seconds)}: ${reached}${known(target) ? ` (target ${number(target)})` : ""}.`;
  const missed = !known(target) ? "" : run.status === "running" ? ` (target ${number(target)})` : ` (target ${number(target)}, not reached)`;
  return `${run.status_words}: ${reached}${missed}.`;
}
function headerOf(data) {
  const one = data.runs.length === 1 ? data.runs[0] : null, groups = data.groups;
  const names = [...new Set(groups.map((group) => group.label))];
  const title = one ? one.config_name : names.length > 3 ? `${names.length} configurations` : names.join(", ");
  const below = one
    ? [outcome(one), [one.task, one.engine && `${one.engine} engine`, known(one.seed) && `seed ${one.seed}`, one.folder].filter(Boolean).join(" · ")]
    : [`${plural(data.runs.length, "run")} of ${plural(groups.length, "configuration")}`];
  const above = [state.live ? "TianJi" : `TianJi report · ${data.made}`];
  const lamp = state.live ? el("span", { id: "live", class: state.live.ok ? "chip live" : "chip unfinished" }, state.live.words) : null;
  return steady("top", "header", {}, [data.made, title, below, state.live, one && one.status], () => [
    el("div", { class: "above" }, above, lamp),
    el("div", { class: "title" }, el("h1", {}, title), one ? chip(one.status, one.status_words) : null),
    ...below.map((line) => el("p", { class: "below" }, line))]);
}
// What a reader must not overlook: that a run failed, is not finished, or could not be read in full.
// The first line of a notice, and what follows it, as in a traceback, with its own line ends.
function noticeOf(text) {
  const [first, ...rest] = text.trim().split("\n");
  return [el("p", {}, first), rest.length ? el("pre", {}, rest.join("\n")) : null].filter(Boolean);
}
function bannersOf(data) {
  const several = data.runs.length > 1;
  return data.runs.flatMap((run, i) => {
    const told = { failed: "This run failed.", unfinished: "This run is unfinished.", interrupted: "This run was interrupted before its end." }[run.status];
    if (!told && !run.error && !run.notices.length) return [];
    const tone = run.status === "failed" || run.error ? "failed" : "unfinished";
    return [steady(`banner-${i}`, "div", { class: `banner ${tone}`, role: "status" }, [run.status, run.error, run.notices, several], () => [
      told || several ? el("b", {}, several ? `${run.name}: ${(told || run.status_words + ".").replace("This run", "it")}` : told) : null,
      ...run.notices.flatMap(noticeOf), run.error ? el("pre", {}, run.error.trim()) : null])];
  });
}
function tilesOf(run) {
  const n = run.numbers, evaluated = run.evaluations.map((e) => e.iqm);
  const broken = faultsOf(run), solved = known(n.final_time_seconds), limits = known(n.stop_return) ? `target ${number(n.stop_return)}` : "last 100 episodes";
  const tiles = [
    solved ? ["Final time", span(n.final_time_seconds), "until the target"] : ["Training time", span(n.training_seconds), known(n.stop_return) && run.status !== "running" ? "target not reached" : ""],
    ["Mean return", number(n.mean_return_100), limits],
    known(n.win_ratio_100) ? ["Won", percent(n.win_ratio_100), known(n.stop_win_ratio) ? `target ${percent(n.stop_win_ratio)}` : "last 100 episodes"] : null,
    evaluated.length ? ["Best evaluation", number(Math.max(...evaluated)), `IQM, ${plural(evaluated.length, "evaluation")}`] : null,
    ["Steps", number(n.env_steps), known(n.episodes) ? plural(n.episodes, "episode") : ""],
    ["Updates", number(n.updates), n.dropped ? `${number(n.dropped)} samples dropped` : ""],
    ["Production", `${number(n.production_per_second && Math.round(n.production_per_second))}`, "steps/s"],
    ["Consumption", `${number(n.consumption_per_second && Math.round(n.consumption_per_second))}`, "samples/s"],
    ["Staleness", number(n.staleness_p50), "updates (median)"],
    ["Wall time", span(n.wall_seconds), n.resumes ? `resumed ${plural(n.resumes, "time")}` : known(n.startup_seconds) ? `${span(n.startup_seconds)} to start` : ""],
    broken.length ? ["Faults survived", number(nFaults(run)), n.restarts ? `processes replaced: ${number(n.restarts)}` : "no process was lost"] : null,
  ];
  return steady("tiles", "div", { class: "tiles" }, tiles, () => tiles.filter(Boolean).map(([name, value, more]) =>
    el("div", { class: "tile" }, el("div", { class: "name" }, name), el("div", { class: "value" }, value), el("div", { class: "more" }, more))));
}

// What broke in a run and was mended, each with how often; nothing where nothing did.
function faultsOf(run) {
  const kinds = { restarts: "processes lost and replaced", env_restarts: "environments made anew", not_finite: "episodes with NaN or Inf discarded", lost_episodes: "episodes lost to errors of the game", skipped_updates: "updates skipped" };
  return Object.entries(kinds).map(([name, words]) => ({ words, n: run.numbers[name] })).filter((fault) => fault.n);
}
const nFaults = (run) => faultsOf(run).reduce((sum, fault) => sum + fault.n, 0);
function faultsCard(run) {
  const broken = faultsOf(run);
  return !broken.length ? null : steady("faults", "section", { class: "card" }, [broken, run.faults, run.first_words], () => [
    el("h3", {}, "Faults survived"),
    table([{ cell: (fault) => fault.words }, { class: "n", cell: (fault) => number(fault.n) }], broken, { class: "pairs" }),
    run.faults.length ? el("h3", { class: "later" }, run.faults.length < run.numbers.restarts ? `The last ${run.faults.length} processes` : "Processes") : null,
    run.faults.length ? table([{ head: "process", class: "open", cell: (fault) => withSmall(fault.process, fault.how) },
      { head: "at", class: "n", cell: (fault) => span(fault.seconds) },
      { head: "away", class: "n", cell: (fault) => span(fault.away_seconds) }], run.faults) : null,
    run.first_words ? el("h3", { class: "later" }, "First words in a log") : null,
    run.first_words ? el("pre", {}, run.first_words) : null]);
}

// One curve of each configuration: of its only run, or the mean over its seeds with a band.
function curvesOf(data, name, axis) {
  const lines = [], bands = [];
  data.groups.forEach((group, g) => {
    const band = group.curves?.[name]?.[axis], curves = data.runs[group.runs[0]].curves;
    const line = { label: `${group.label}${group.runs.length > 1 ? ` (${group.runs.length} runs)` : ""}`, c: g % 8, dashed: g >= 8 };
    Object.assign(line, band ? { x: band.x, y: band.mean } : { x: curves[axis] || [], y: curves[name] || [] });
    lines.push(line);
    if (band) bands.push({ of: line, c: g % 8, x: band.x, low: band.low, high: band.high });
  });
  return { lines, bands };
}
const EVALUATED = { training: "evaluated while training (IQM, 95 % interval)", eval: "tianji eval (IQM, 95 % interval)" };
function returnCard(data, size) {
  const axis = state.axis, spec = { axis, unit: "", height: Math.max(300, Math.min(520, 110 + 22 * data.runs[0].roles.length)), ...curvesOf(data, "return", axis) };
  if (data.runs.length === 1) spec.lines[0].label = "training episodes";
  spec.dots = data.groups.flatMap((group, g) => group.runs.flatMap((r) => data.runs[r].evaluations.map((e) =>
    ({ label: EVALUATED[e.of], c: data.runs.length > 1 ? g % 8 : e.of === "training" ? 1 : 3, full: e.of === "eval", x: e[axis], y: e.iqm, low: e.low, high: e.high }))));
  spec.manyColours = data.groups.length > 1;
  const targets = [...new Set(data.runs.map((run) => run.numbers.stop_return).filter(known))];
  spec.rules = targets.map((y) => ({ y, label: `target ${number(y)}` }));
  const seeds = spec.bands.length ? "; line: mean over runs, band: lowest to highest; a run that has ended in order counts with its last value" : "";
  return chartCard("return", size, "Return", `mean of the last 100 episodes${seeds}`, spec, toggle());
}
// Only where games can be won.
function wonCard(data, size) {
  const axis = state.axis, spec = { axis, unit: "", percent: true, zero: true, top: 1, ...curvesOf(data, "win_ratio", axis) };
  if (!spec.lines.some((line) => line.y.some(known))) return null;
  if (data.runs.length === 1) spec.lines[0].label = "training episodes";
  spec.dots = data.groups.flatMap((group, g) => group.runs.flatMap((r) => data.runs[r].evaluations.filter((e) => known(e.win_ratio)).map((e) =>
    ({ label: e.of === "eval" ? "tianji eval (95 % interval)" : "evaluated while training (95 % interval)", c: data.runs.length > 1 ? g % 8 : e.of === "training" ? 1 : 3, full: e.of === "eval", x: e[axis], y: e.win_ratio, low: e.win_low, high: e.win_high }))));
  spec.manyColours = data.groups.length > 1;
  const targets = [...new Set(data.runs.map((run) => run.numbers.stop_win_ratio).filter(known))];
  spec.rules = targets.map((y) => ({ y, label: `target ${percent(y)}` }));
  return chartCard("won", size, "Won games", "share of the last 100 episodes", spec);
}
let toggled = null;
function toggle() {
  const choose = (axis) => el("button", { type: "button", "data-axis": axis, "aria-pressed": axis === state.axis }, axis === "time" ? "over time" : "over steps");
  if (toggled) return toggled;
  toggled = el("span", { class: "toggle", id: "axis" }, choose("time"), choose("steps"));
  toggled.addEventListener("click", (event) => {
    state.axis = event.target.dataset?.axis || state.axis;
    for (const button of toggled.children) button.setAttribute("aria-pressed", button.dataset.axis === state.axis);
    render();
  });
  return toggled;
}

// What limited the run, and where the time of each role went: the one is read off the other.
const KINDS = ["learner", "buffer", "actor", "evaluator", "reducer"];
const colourOf = (role) => Math.max(0, KINDS.indexOf(role.split("-")[0]));
function limitsCard(run) {
  if (!run.bottleneck && !run.roles.length) return null;
  const limit = run.bottleneck ? run.bottleneck[0].toUpperCase() + run.bottleneck.slice(1) : null;
  return steady("limits", "section", { class: "card" }, [limit, run.roles, run.roles_over], () => [
    limit ? el("h3", {}, "What limited it") : null,
    limit ? el("p", { id: "bottleneck" }, `${limit}.`) : null,
    run.roles.length ? el("h3", { class: limit ? "later" : "" }, "Busy and idle") : null,
    run.roles.length ? el("p", { class: "note" }, `share of ${run.roles_over}; pale: busy with another role of its process`) : null,
    run.roles.length ? el("div", { class: "roles", id: "roles" }, el("span"), el("span"), el("span", { class: "n" }, "busy"), el("span", { class: "n" }, "idle"), run.roles.flatMap(roleBar)) : null]);
}
function roleBar(role) {
  const busy = el("div", { class: "busy" }), shared = el("div", { class: "shared" });
  busy.style.width = `${100 * role.busy}%`;
  shared.style.width = `${Math.max(0, 100 * (1 - role.busy - role.idle))}%`;
  return [el("span", {}, role.name), el("div", { class: `track c${colourOf(role.name)}` }, busy, shared),
    el("span", { class: "n" }, percent(role.busy)), el("span", { class: "n" }, percent(role.idle))];
}
function predictedCard(run) {
  const gap = (p) => {
    const off = known(p.measured) && p.predicted ? p.measured / p.predicted - 1 : null;
    return off === null ? DASH : Math.abs(off) < 0.0005 ? "0 %" : `${off > 0 ? "+" : "−"}${percent(Math.abs(off))}`;
  };
  return !run.predicted.length ? null : steady("predicted", "section", { class: "card" }, run.predicted, () => [
    el("h3", {}, "Predicted and measured"),
    table([{ head: "", cell: (p) => p.name }, { head: "predicted", class: "n", cell: (p) => number(p.predicted) },
      { head: "measured", class: "n", cell: (p) => number(p.measured) }, { head: "gap", class: "n", cell: gap }], run.predicted, { class: "pairs" })]);
}
function histogramCard(id, title, axis, bars, unit) {
  if (!bars) return null;
  if (known(bars.only)) return sentenceCard(id, title, `All samples: ${number(bars.only)} ${unit} old.`);
  const top = bars.width * bars.shares.length;
  const marks = [["p50", "median"], ["p95", "95 %"]].filter(([key]) => known(bars[key]) && bars[key] <= top)
    .map(([key, word], row) => ({ x: bars[key] + Math.min(1, bars.width) / 2, label: `${word}: ${number(bars[key])}`, row }));
  return chartCard(id, "", title, `share of samples learned from, by ${unit}`, { axis, unit, percent: true, zero: true, bars, marks });
}
// Where a chart would be one block.
function sentenceCard(id, title, sentence) {
  return steady(`${id}-only`, "section", { class: "card" }, sentence, () => [el("h3", {}, title), el("p", {}, sentence)]);
}
function runCards(run) {
  const c = run.curves, line = (label, colour, name, dashed) => ({ label, c: colour, x: c.time || [], y: c[name] || [], dashed });
  const busy = Object.entries(c.busy || {}).map(([kind, y]) => ({ label: kind === "actor" ? "actors (mean)" : kind, c: colourOf(kind), x: c.time, y }));
  const scalars = Object.entries(c.train || {}).map(([name, y]) =>
    chartCard(`train-${name}`, "", name, "as learn returned it", { axis: "time", unit: "", lines: [{ label: name, c: 0, x: c.time, y }] }));
  return [
    chartCard("production", "", "Production and receiving", "steps/s", { axis: "time", unit: "steps/s", zero: true, lines: [line("produced", 0, "production"), line("received", 1, "receiving", true)] }),
    chartCard("consumption", "", "Consumption", "samples/s", { axis: "time", unit: "samples/s", zero: true, lines: [line("consumed", 2, "consumption")] }),
    chartCard("ratio", "", "Replay ratio", "samples consumed per sample received", { axis: "time", unit: "", zero: true, lines: [line("target", "n", "target", true), line("measured", 0, "ratio")] }),
    chartCard("staleness-time", "", "Staleness over time", "updates, of all samples so far", { axis: "time", unit: "updates", zero: true, lines: [line("median", 0, "staleness_p50"), line("95 %", 1, "staleness_p95")] }),
    chartCard("ess", "", "Effective samples", "of each batch, as a share", { axis: "time", percent: true, zero: true, top: 1, lines: [line("ESS", 0, "ess")] }),
    chartCard("kl", "", "Drift", "KL divergence of the policy that learns from those that acted", { axis: "time", unit: "", zero: true, lines: [line("KL", 1, "kl")] }),
    chartCard("fusion-distance", "", "Distance between groups", "of their parameters from their mean, root mean square", { axis: "time", unit: "", zero: true, lines: [line("distance", 0, "fusion_distance")] }),
    chartCard("fusion-kl", "", "Divergence between groups", "KL of a policy after a fusion from the one before", { axis: "time", unit: "", zero: true, lines: [line("KL", 1, "fusion_kl")] }),
    histogramCard("staleness", "Staleness", "updates", run.histograms.staleness, "updates"),
    histogramCard("age", "Age", "age", run.histograms.age, "steps"),
    chartCard("busy", "", "Busy over time", "share of its process's time", { axis: "time", percent: true, zero: true, top: 1, lines: busy }),
    predictedCard(run),
    faultsCard(run),
    ...scalars,
  ];
}
function aboutCards(run) {
  const listed = (id, title, rows) => rows.length === 0 ? null : steady(id, "section", { class: "card" }, rows, () => [
    el("h3", {}, title), table([{ cell: (row) => row[0] }, { class: "n", cell: (row) => row[1] }], rows, { class: "pairs" })]);
  const versions = Object.entries(run.versions).map(([name, said]) => [name, name === "commit" ? said.slice(0, 12) : said]);
  return [
    listed("versions", "Versions", versions),
    listed("memory", "Memory planned for", Object.entries(run.memory).map(([name, size]) => [name, bytes(size)])),
    run.checkpoints.length ? steady("checkpoints", "section", { class: "card" }, run.checkpoints, () => [
      el("h3", {}, "Checkpoints"), table([{ cell: (name) => el("code", {}, name) }], run.checkpoints)]) : null,
  ];
}
function configCard(data) {
  const groups = data.groups, several = groups.length > 1, keys = [...new Set(data.runs.flatMap((run) => Object.keys(run.config)))];
  const values = (group, key) => [...new Set(group.runs.map((r) => data.runs[r].config[key] ?? "not set"))].join(", "), other = new Set(data.differing);
  if (!keys.length) return null;
  const rows = keys.map((key) => ({ key, values: groups.map((group) => values(group, key)), other: several && other.has(key) }));
  return steady("config", "section", { class: "card whole" }, rows, () => {
    const columns = [{ head: several ? "" : undefined, cell: (row) => row.key },
      ...groups.map((group, g) => ({ head: several ? group.label : undefined, cell: (row) => row.values[g] }))];
    const half = Math.ceil(rows.length / 2);
    const shown = several ? [table(columns, rows, { class: "config" })]
      : [el("div", { class: "columns" }, table(columns, rows.slice(0, half), { class: "config" }), table(columns, rows.slice(half), { class: "config" }))];
    const remark = several ? `${rows.filter((row) => row.other).length} of ${rows.length} keys differ, marked` : `${rows.length} keys, with their defaults`;
    return [el("details", {}, el("summary", {}, "Configuration", el("span", { class: "note" }, remark)), ...shown)];
  });
}

// Several runs side by side.
const between = (spread, say) => !spread ? [DASH] : withSmall(say(spread.median), spread.n > 1 ? `${say(spread.low)} to ${say(spread.high)}` : "");
function comparisonCards(data) {
  const rate = (v) => number(Math.round(v)), runsOf = (group) => group.runs.length;
  const named = (g) => el("span", { class: `key c${g % 8}` });
  const byGroup = steady("comparison", "section", { class: "card whole" }, data.groups.map((g) => ({ ...g, curves: 0 })), () => [
    el("h3", {}, "Configurations"),
    table([
      { head: "configuration", class: "open", cell: (group) => [named(data.groups.indexOf(group)), group.label] },
      { head: "runs", class: "n", cell: runsOf },
      { head: "seeds", cell: (group) => group.seeds.map((seed) => seed ?? DASH).join(", ") },
      { head: "status", cell: (group) => Object.entries(group.status).map(([status, n]) => [chip(status, `${n} ${status}`), " "]) },
      { head: "final time, median", class: "n", cell: (group) => between(group.final_time, span) },
      { head: "final return, IQM", class: "n", cell: ({ return: r }) => !r ? [DASH] : withSmall(number(r.iqm), known(r.low) ? `95 %: ${number(r.low)} to ${number(r.high)}` : "one run: no interval") },
      ...(data.groups.some((group) => group.won) ? [{ head: "won, median", class: "n", cell: (group) => between(group.won, percent) }] : []),
      { head: "consumed/s, median", class: "n", cell: (group) => between(group.consumption, rate) },
      { head: "staleness, median", class: "n", cell: (group) => between(group.staleness, number) }], data.groups),
    el("p", { class: "note" }, "Small figures: range over the runs; of the IQM the 95 % stratified bootstrap interval. Final time counts only runs that reached their target.")]);
  const over = (id, title, name, unit) => chartCard(id, "", title, unit, { axis: "time", unit, zero: true, unnamed: true, ...curvesOf(data, name, "time") });
  const groupOf = (run) => data.groups.findIndex((group) => group.runs.includes(data.runs.indexOf(run)));
  const byRun = steady("runs", "section", { class: "card whole" }, data.runs.map((run) => [run.name, run.status, run.numbers]), () => [
    el("h3", {}, "Runs"),
    table([
      { head: "run", class: "open", cell: (run) => [named(groupOf(run)), run.name] },
      { head: "seed", class: "n", cell: (run) => run.seed ?? DASH },
      { head: "status", cell: (run) => chip(run.status, run.status) },
      { head: "final time", class: "n", cell: (run) => span(run.numbers.final_time_seconds) },
      { head: "mean return", class: "n", cell: (run) => number(run.numbers.mean_return_100) },
      ...(data.runs.some((run) => known(run.numbers.win_ratio_100)) ? [{ head: "won", class: "n", cell: (run) => percent(run.numbers.win_ratio_100) }] : []),
      { head: "steps", class: "n", cell: (run) => number(run.numbers.env_steps) },
      { head: "updates", class: "n", cell: (run) => number(run.numbers.updates) },
      { head: "consumed/s", class: "n", cell: (run) => number(run.numbers.consumption_per_second && Math.round(run.numbers.consumption_per_second)) },
      { head: "staleness p50 / p95", class: "n", cell: (run) => `${number(run.numbers.staleness_p50)} / ${number(run.numbers.staleness_p95)}` },
      ...(data.runs.some((run) => faultsOf(run).length) ? [{ head: "faults", class: "n", cell: (run) => number(nFaults(run)) }] : []),
      { head: "wall time", class: "n", cell: (run) => span(run.numbers.wall_seconds) }], data.runs)]);
  return [byGroup, returnCard(data, "whole"), wonCard(data, "whole"), over("all-production", "Production", "production", "steps/s"),
    over("all-consumption", "Consumption", "consumption", "samples/s"), over("all-staleness", "Staleness, median", "staleness_p50", "updates"), byRun, configCard(data)];
}
function chooser(data) {
  return steady("chooser", "h2", {}, data.runs.map((run) => run.name), () => {
    const select = el("select", { id: "run", "aria-label": "run" }, data.runs.map((run, i) => el("option", { value: i }, `${run.name} (${run.status})`)));
    select.addEventListener("change", () => { state.run = Number(select.value); render(); });
    return [document.createTextNode("One run in detail: "), select];
  });
}

// Putting it together.
const main = document.getElementById("page");
const [upper, lower, about] = [1, 2, 3].map(() => el("div", { class: "cards" }));
function render() {
  const data = state.data, several = data.runs.length > 1, run = data.runs[several ? state.run : 0];
  const limits = limitsCard(run);
  if (several) {
    arrange(upper, comparisonCards(data));
    arrange(lower, [limits, ...runCards(run)]);
  } else {
    arrange(upper, [returnCard(data, limits ? "most" : "whole"), limits, wonCard(data, ""), ...runCards(run)]);
  }
  arrange(about, [...aboutCards(run), several ? null : configCard(data)]);
  const waiting = state.live && !run.curves.time?.length ? steady("waiting", "p", { class: "banner waiting" }, 0, () => ["No row of metrics yet: the roles are starting."]) : null;
  const foot = steady("foot", "footer", {}, [data.tianji, run.curves.rows_per_point], () => [
    `TianJi ${data.tianji}. ${run.curves.rows_per_point > 1 ? `Each point of a curve is the mean of ${run.curves.rows_per_point} rows of metrics.jsonl. ` : ""}What each figure means is explained in docs/metrics.md.`]);
  arrange(main, [headerOf(data), ...bannersOf(data), several ? null : tilesOf(run), waiting, upper, several ? chooser(data) : null, several ? lower : null, about, foot]);
  for (const { chart } of charts.values()) chart.fit(); // only now do new ones have a width
  page.dataset.drawn = Number(page.dataset.drawn || 0) + 1;
}

// Live.
const EVERY_MS = 1000, PATIENCE = 3; // answers that may be missing before we say so
async function follow() {
  let missed = 0, seen = "";
  for (;;) {
    try {
      const answer = await fetch("data.json", { cache: "no-store", signal: AbortSignal.timeout(5000) });
      if (!answer.ok) throw new Error(`the server answered ${answer.status}`);
      state.data = await answer.json();
      missed = 0;
      seen = new Date().toLocaleTimeString();
    } catch {
      missed += 1;
    }
    const ended = state.data && state.data.runs[0].status !== "running";
    const gone = missed >= PATIENCE;
    state.live = ended ? { ok: false, words: "the run has ended" } : gone ? { ok: false, words: `no answer: the run has ended or was killed; last seen ${seen || "never"}` } : { ok: true, words: "live" };
    page.dataset.live = ended ? "ended" : gone ? "gone" : "yes";
    if (state.data) render();
    else arrange(main, [steady("waiting", "p", {}, gone, () => [gone ? "The run does not answer: it has ended, or it was killed." : "Waiting for the run ..."])]);
    if (ended || gone) return;
    await new Promise((resolve) => setTimeout(resolve, EVERY_MS));
  }
}

state.data = JSON.parse(document.getElementById("data").textContent);
if (state.data) render();
else follow();

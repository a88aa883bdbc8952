// The status page: asks each second for what is new, and draws it. What comes from a job (names, errors) is foreign: it is set as
// text, never as HTML. Nothing is asked of anybody but the server that this page came from.
//
// Parts: words and numbers; elements; plots; timeline; map; table; the page as a whole, which asks.
(() => {
"use strict";

const EVERY_MS = 1000;
const PATIENCE_MS = 5000;  // for one answer
const STALE_MS = 3000;     // without an answer, until the page says so
const FROZEN_MS = 6000;    // with answers that are all of one moment

// ---------------------------------------------------------------- words and numbers

const NOT_KNOWN = "–";
const PREFIXES = [[1e15, "P"], [1e12, "T"], [1e9, "G"], [1e6, "M"], [1e3, "k"]];
const TIME_STEPS = [
  0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 21600, 43200, 86400,
];
const WHOLE = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const CLOCK = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit", second: "2-digit" });
const CLOCK_SHORT = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit" });
const DAY = new Intl.DateTimeFormat("en-GB", { day: "numeric", month: "short" });
const NATURAL = new Intl.Collator("en", { numeric: true });

const known = (value) => value !== null && value !== undefined;
const whole = (value) => (known(value) ? WHOLE.format(value) : NOT_KNOWN);
const count = (number, noun) => `${whole(number)} ${noun}${number === 1 ? "" : "s"}`;
const share = (value) => (known(value) ? `${Math.round(100 * value)} %` : NOT_KNOWN);
const clock = (at_s) => CLOCK.format(1000 * at_s);

/** 212400 is `212k`, with a unit `212 kB`. `trimmed`: without zeros at the end, as on an axis. */
function scaled(value, unit = "", trimmed = false) {
  if (!known(value)) return NOT_KNOWN;
  const [divisor, prefix] = PREFIXES.find(([size]) => Math.abs(value) >= 0.9995 * size) ?? [1, ""];
  const digits = (value / divisor).toPrecision(3);
  const text = trimmed || divisor === 1 ? String(Number(digits)) : digits;
  return unit ? `${text} ${prefix}${unit}` : text + prefix;
}

const rate = (value) => (known(value) ? `${scaled(value)}/s` : NOT_KNOWN);

function duration(seconds) {
  if (!known(seconds)) return NOT_KNOWN;
  if (seconds < 99.5) return `${seconds < 9.95 ? Math.max(0, seconds).toFixed(1) : Math.round(seconds)} s`;
  const all = Math.round(seconds);
  const [days, hours, minutes] = [Math.floor(all / 86400), Math.floor(all / 3600) % 24, Math.floor(all / 60) % 60];
  if (days) return `${days} d ${hours} h`;
  return hours ? `${hours} h ${minutes} min` : `${minutes} min ${all % 60} s`;
}

function milliseconds(ms) {
  if (!known(ms)) return NOT_KNOWN;
  if (ms < 999.5) return `${ms < 9.95 ? ms.toFixed(1) : Math.round(ms)} ms`;
  return ms < 99_500 ? `${(ms / 1000).toPrecision(3)} s` : duration(ms / 1000);
}

/** A number of seconds at a line of an axis. */
function secondsTick(seconds) {
  if (seconds >= 3600) return `${Number((seconds / 3600).toFixed(2))} h`;
  return seconds >= 60 ? `${Number((seconds / 60).toFixed(2))} min` : `${Number(seconds.toFixed(1))} s`;
}

const millisecondsTick = (ms) => (ms >= 1000 ? secondsTick(ms / 1000) : `${Number(ms.toFixed(1))} ms`);

/** A moment; with its day where that isn't the day of `now_s`. */
function moment(at_s, now_s) {
  const [day, today] = [DAY.format(1000 * at_s), DAY.format(1000 * now_s)];
  return day === today ? clock(at_s) : `${day} ${clock(at_s)}`;
}

/** Ray's name of a node is long; its beginning tells nodes apart. */
function nodeName(node) {
  if (!node) return "not placed yet";
  return `node ${/^[0-9a-f]{20,}$/.test(node) ? node.slice(0, 8) : node}`;
}

/** What reasons mean, by how they begin. */
const MEANINGS = [
  ["at end", "all that is there has been processed"],
  ["paused", "it is not read until it is resumed"],
  ["buffer full", "records come faster than the worker's function takes them"],
  ["no leader", "no broker leads it at the moment"],
  ["open transaction", "what follows can be read once the transaction has ended"],
  ["retrying", "the function failed on records of it and is called again"],
  ["failed", "the function failed for good"],
  ["backing off", "a request failed and is sent again after a pause"],
  ["broker", "its broker can't be reached, or holds its answers back"],
  ["draining", "its worker finishes what it has in hand"],
  ["awaiting offset", "where to read from is being asked"],
  ["validating", "whether the log is still the same one is being asked"],
  ["no lease", "its worker hears nothing from the coordinator, so it does no work"],
  ["no worker", "it waits to be given to one"],
];
const CONDITIONS = {
  reading: { word: "reading", tone: "blue" },
  end: { word: "at end", tone: "grey" },
  blocked: { word: "blocked", tone: "orange" },
  draining: { word: "draining", tone: "purple", reason: "its worker finishes what it has in hand" },
  leaving: { word: "leaving", tone: "purple", reason: "the group has taken it from this job" },
  released: { word: "released", tone: "purple", reason: "its worker has let go of it" },
  free: { word: "no worker", tone: "orange", reason: "no worker has it" },
};

const meaningOf = (reason) => MEANINGS.find(([head]) => reason.startsWith(head))?.[1] ?? "";

/** A partition with what the page says of it. */
function viewOf(partition) {
  const { topic, partition: number, state, reason, lag, lag_s } = partition;
  let kind = state;
  if (state === "granted") kind = !reason ? "reading" : reason === "at end" ? "end" : "blocked";
  const condition = CONDITIONS[kind] ?? { word: state, tone: "grey" };
  const moving = condition.tone === "purple";
  const behind = lag === 0 ? 0 : known(lag_s) ? lag_s : lag ? 1 : 0;
  const level = behind < 1 ? 0 : behind < 10 ? 1 : behind < 60 ? 2 : 3;
  const name = `${topic}-${number}`;
  const leader = known(partition.leader) ? `broker ${partition.leader}` : null;
  const said = reason || condition.reason || "";
  return {
    ...partition,
    key: `p:${number}:${topic}`,
    name,
    condition: condition.word,
    tone: condition.tone,
    cell: kind === "blocked" || kind === "free" ? kind : moving ? "moving" : `lag-${level}`,
    blocked: Boolean(reason) && reason !== "at end",
    kind: moving ? "moving" : kind,
    leader,
    broker: partition.leader,
    reason: said,
    meaning: reason ? meaningOf(reason) : "",
    words: `${name} ${partition.worker ?? ""} ${leader ?? ""} ${state} ${condition.word} ${said}`.toLowerCase(),
  };
}

const byName = (a, b) => NATURAL.compare(a.topic, b.topic) || a.partition - b.partition;

function grouped(things, keyOf) {
  const groups = new Map();
  for (const thing of things) {
    const key = keyOf(thing);
    if (!groups.has(key)) groups.set(key, []);
    groups.get(key).push(thing);
  }
  return groups;
}

// ---------------------------------------------------------------- elements

const byId = (id) => document.getElementById(id);

function element(tag, className = "", text = "") {
  const made = document.createElement(tag);
  if (className) made.className = className;
  if (text) made.textContent = text;
  return made;
}

function drawn(tag, attributes = {}, text = "") {
  const made = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  if (text) made.textContent = text;
  return made;
}

/** Only what changed is touched: selections and screen readers are left in peace. */
function say(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

function dress(node, className) {
  if (node.className !== className) node.className = className;
}

function button(text, pressed, clicked) {
  const made = element("button", "", text);
  made.type = "button";
  made.setAttribute("aria-pressed", String(pressed));
  made.addEventListener("click", clicked);
  return made;
}

function badge(node, text, tone) {
  say(node, text);
  dress(node, `badge ${tone}`);
  node.hidden = !text;
}

/** Terms and what they are in a `dl`; what isn't known is left out. A third part is a class. */
function fillPairs(list, rows) {
  const there = rows.filter(([, text]) => known(text) && text !== "");
  const terms = there.map(([term]) => term).join("\n");
  if (list.dataset.terms !== terms) {
    list.dataset.terms = terms;
    list.replaceChildren(...there.map(([term, , className]) => {
      const pair = element("div", className);
      pair.append(element("dt", "", term), element("dd"));
      return pair;
    }));
  }
  const texts = list.querySelectorAll("dd");
  there.forEach(([, text], index) => say(texts[index], text));
}

/** A few lines beside what is pointed at. */
const tip = {
  node: byId("tip"),
  show(lines, target) {
    this.node.replaceChildren(...lines.filter(Boolean).map((line) => element("p", "", line)));
    this.node.hidden = false;
    this.node.style.left = "0";  // as wide as it likes while it is measured
    const { left, top, bottom } = target.getBoundingClientRect();
    const { offsetWidth: width, offsetHeight: height } = this.node;
    const room = document.documentElement.clientWidth - width - 8;
    const below = bottom + 6 + height < window.innerHeight || top < height + 6;
    this.node.style.left = `${Math.max(8, Math.min(left, room)) + window.scrollX}px`;
    this.node.style.top = `${(below ? bottom + 6 : top - height - 6) + window.scrollY}px`;
  },
  hide() {
    this.node.hidden = true;
  },
};

// ---------------------------------------------------------------- plots

const EDGE = { left: 52, right: 8, top: 8, bottom: 20 };

/** Where lines of an axis go that begins at 0 and has room for `highest`. */
function ticksUpTo(highest, most, steps = null) {
  const least = Math.max(highest, 1e-9) / most;
  const power = 10 ** Math.floor(Math.log10(least));
  const step = (steps ?? [1, 2, 2.5, 5, 10].map((factor) => factor * power)).find((size) => size >= least * 0.999_999)
    ?? 86_400 * Math.ceil(least / 86_400);
  const lines = Math.max(1, Math.ceil(highest / step - 1e-9));
  return Array.from({ length: lines + 1 }, (_, index) => index * step);
}

const PLOTS = [
  { title: "Records processed", series: [["records_per_s", ""]], value: rate, tick: (v) => scaled(v, "", true) },
  {
    title: "Bytes of values processed",
    series: [["value_bytes_per_s", ""]],
    value: (v) => scaled(v, "B/s"),
    tick: (v) => scaled(v, "B", true),
  },
  {
    title: "Lag in records",
    series: [["lag", ""]],
    value: (v) => scaled(v),
    tick: (v) => scaled(v, "", true),
    ticks: (highest, most) => ticksUpTo(Math.max(highest, most), most),
  },
  {
    title: "Lag in time, at most",
    series: [["lag_s", ""]],
    value: duration,
    tick: secondsTick,
    ticks: (highest, most) => ticksUpTo(Math.max(highest, 1), most, TIME_STEPS),
  },
  {
    title: "Latency",
    series: [["latency_p50_ms", "p50"], ["latency_p99_ms", "p99"]],
    value: milliseconds,
    tick: millisecondsTick,
  },
];

/** Lines of a time axis with their texts, at round times of the reader's clock. */
function timeTicks(from, to, width) {
  const step = TIME_STEPS.find((size) => size >= 1 && (to - from) / size <= width / 85) ?? 86_400;
  const shift = -60 * new Date(1000 * to).getTimezoneOffset();
  const ticks = [];
  for (let local = Math.ceil((from + shift) / step) * step; local - shift <= to; local += step) {
    const at = local - shift;
    ticks.push([at, step < 60 ? clock(at) : CLOCK_SHORT.format(1000 * at)]);
  }
  return ticks;
}

/** The grid's upright lines and the texts below, for a surface of this size. */
function timeAxis(frame, x, width, height) {
  return timeTicks(frame.from, frame.to, width).flatMap(([at, text]) => {
    const place = x(at).toFixed(1);
    const line = drawn("line", { class: "grid", x1: place, x2: place, y1: EDGE.top, y2: height - EDGE.bottom });
    const fits = place > EDGE.left - 4 && place < width - 16;
    return fits ? [line, drawn("text", { x: place, y: height - 5, "text-anchor": "middle" }, text)] : [line];
  });
}

class Plot {
  /** `moved`: told the moment that is pointed at, or null. */
  constructor(parent, kind, moved) {
    this.kind = kind;
    this.moved = moved;
    const figure = element("figure", kind.series.length > 1 ? "plot tall" : "plot");
    const caption = element("figcaption");
    const readout = element("span", "readout");
    this.time = element("span");
    this.values = kind.series.map(([, label], index) => {
      const value = element("b");
      if (label) readout.append(element("span", index ? "sample second" : "sample"), `${label} `);
      readout.append(value);
      return value;
    });
    readout.prepend(this.time);
    caption.append(element("span", "", kind.title), readout);
    this.surface = element("div", "surface");
    this.svg = drawn("svg", {
      tabindex: 0, role: "slider", "aria-readonly": "true", "aria-orientation": "horizontal", "aria-label": kind.title,
      "aria-valuemin": 0, "aria-valuemax": 0, "aria-valuenow": 0, "aria-valuetext": "no values yet",
    });
    this.back = drawn("g");
    this.front = drawn("g");
    this.areas = kind.series.length > 1 ? [] : [drawn("path", { class: "area" })];
    this.lines = kind.series.map((_, index) => drawn("path", { class: index ? "line second" : "line" }));
    this.svg.append(this.back, ...this.areas, ...this.lines, this.front);
    this.surface.append(this.svg);
    figure.append(caption, this.surface);
    parent.append(figure);
    this.svg.addEventListener("pointermove", (event) => this.point(event));
    this.svg.addEventListener("pointerdown", (event) => this.point(event));
    this.svg.addEventListener("pointerleave", () => moved(null));
    this.svg.addEventListener("blur", () => moved(null));
    this.svg.addEventListener("keydown", (event) => this.press(event));
  }

  draw(frame) {
    this.frame = frame;
    const { clientWidth: width, clientHeight: height } = this.surface;
    if (!width || !height) return;
    const fields = this.kind.series.map(([field]) => field);
    const values = frame.points.flatMap((point) => fields.map((field) => point[field])).filter(known);
    const highest = values.reduce((most, value) => Math.max(most, value), 0);
    const ticks = (this.kind.ticks ?? ticksUpTo)(highest || 1, Math.max(2, Math.floor((height - EDGE.bottom) / 34)));
    const [span, room] = [width - EDGE.left - EDGE.right, height - EDGE.top - EDGE.bottom];
    this.x = (at) => EDGE.left + ((at - frame.from) / (frame.to - frame.from)) * span;
    this.y = (value) => EDGE.top + room * (1 - value / ticks.at(-1));
    const across = ticks.flatMap((value) => {
      const place = this.y(value).toFixed(1);
      const line = drawn("line", { class: value ? "grid" : "base", x1: EDGE.left, x2: width - EDGE.right, y1: place, y2: place });
      return [line, drawn("text", { x: EDGE.left - 6, y: Number(place) + 4, "text-anchor": "end" }, this.kind.tick(value))];
    });
    const events = frame.events.map((at) => {
      const place = this.x(at).toFixed(1);
      return drawn("line", { class: "event", x1: place, x2: place, y1: EDGE.top, y2: height - EDGE.bottom });
    });
    this.back.replaceChildren(...timeAxis(frame, this.x, width, height), ...across, ...events);
    fields.forEach((field, index) => this.trace(field, index));
    this.highest = highest;
    this.showCursor();
  }

  /** One line; where a value or a point is missing it stops and begins anew. */
  trace(field, index) {
    const runs = [];
    let before = null;
    for (const point of this.frame.points) {
      if (!known(point[field])) {
        before = null;
        continue;
      }
      if (before === null || point.at_s - before > 2.5 * this.frame.every_s) runs.push([]);
      runs.at(-1).push(`${this.x(point.at_s).toFixed(1)} ${this.y(point[field]).toFixed(1)}`);
      before = point.at_s;
    }
    // A point alone is a line to itself: its round ends are a dot.
    this.lines[index].setAttribute("d", runs.map((run) => `M${run.join("L")}${run.length > 1 ? "" : `L${run[0]}`}`).join(""));
    const floor = this.y(0).toFixed(1);
    const end = (place) => `${place.split(" ")[0]} ${floor}`;
    this.areas[index]?.setAttribute("d", runs.map((run) => `M${end(run[0])}L${run.join("L")}L${end(run.at(-1))}Z`).join(""));
  }

  showCursor() {
    const { points, cursor } = this.frame;
    const chosen = cursor === null ? points.at(-1) : points[cursor];
    say(this.time, cursor !== null && chosen ? `${clock(chosen.at_s)} ` : "");
    const texts = this.kind.series.map(([field]) => (chosen ? this.kind.value(chosen[field]) : NOT_KNOWN));
    texts.forEach((text, index) => say(this.values[index], text));
    const marks = [];
    if (cursor !== null && chosen) {
      const place = this.x(chosen.at_s).toFixed(1);
      marks.push(drawn("line", { class: "cursor", x1: place, x2: place, y1: EDGE.top, y2: this.y(0) }));
      this.kind.series.forEach(([field], index) => {
        if (!known(chosen[field])) return;
        marks.push(drawn("circle", { class: index ? "dot second" : "dot", cx: place, cy: this.y(chosen[field]).toFixed(1), r: 3.5 }));
      });
    }
    this.front.replaceChildren(...marks);
    this.tell(chosen, texts, cursor);
  }

  /** For screen readers: the plot in a sentence, and the values of the chosen moment. */
  tell(chosen, texts, cursor) {
    const { points } = this.frame;
    // Its changes each second would be read out to whoever has the focus on it.
    if (cursor === null && document.activeElement === this.svg) return;
    const named = this.kind.series.map(([, label], index) => (label ? `${label} ${texts[index]}` : texts[index])).join(", ");
    const told = chosen ? `${clock(chosen.at_s)}: ${named}` : "no values yet";
    const label = `${this.kind.title}: now ${named}, highest ${this.kind.value(this.highest)}`;
    const attributes = {
      "aria-valuemax": Math.max(0, points.length - 1), "aria-valuenow": cursor ?? Math.max(0, points.length - 1), "aria-valuetext": told,
    };
    for (const [name, value] of Object.entries(attributes)) this.svg.setAttribute(name, value);
    if (cursor === null) this.svg.setAttribute("aria-label", label);
  }

  point(event) {
    if (!this.x || !this.frame.points.length) return;
    const { from, to } = this.frame;
    const place = event.clientX - this.svg.getBoundingClientRect().left;
    this.moved(from + ((place - EDGE.left) / (this.surface.clientWidth - EDGE.left - EDGE.right)) * (to - from));
  }

  press(event) {
    const { points, cursor } = this.frame ?? { points: [] };
    if (!points.length) return;
    const last = points.length - 1;
    const here = cursor ?? last;
    const step = event.shiftKey ? 10 : 1;
    const wanted = { ArrowLeft: here - step, ArrowRight: here + step, Home: 0, End: last }[event.key];
    if (event.key === "Escape") this.moved(null);
    if (wanted === undefined) return;
    event.preventDefault();
    this.moved(points[Math.min(last, Math.max(0, wanted))].at_s);
  }
}

/** The points that the server remembers, and all plots of them: one time axis, one cursor. */
class Plots {
  constructor(grid, ranges, redraw) {
    this.points = [];
    this.run = null;
    this.last = null;
    this.every_s = 1;
    this.keeps_s = 0;
    this.range_s = null;
    this.cursor_s = null;
    this.ranges = ranges;
    this.redraw = redraw;
    this.plots = PLOTS.map((kind) => new Plot(grid, kind, (at) => this.move(at)));
    new ResizeObserver(redraw).observe(grid);
  }

  get query() {
    return this.last === null ? "history.json" : `history.json?after=${this.last}`;
  }

  /** Adds what is new. Points of another process are numbered anew: then all of them are asked for. */
  take(history) {
    if (this.run !== null && history.run !== this.run) {
      this.points = [];
      this.run = this.last = null;
      return;
    }
    const newest = this.points.at(-1)?.number ?? 0;
    this.points.push(...history.points.filter((point) => point.number > newest));
    [this.run, this.last, this.every_s] = [history.run, history.last, history.every_s];
    const oldest = (this.points.at(-1)?.at_s ?? 0) - history.keeps_s;
    this.points = this.points.filter((point) => point.at_s >= oldest);
    if (history.keeps_s !== this.keeps_s) this.offer(history.keeps_s);
  }

  /** Buttons for how far back to look. */
  offer(keeps_s) {
    this.keeps_s = keeps_s;
    const spans = [60, 300, keeps_s].filter((span, index, all) => all.indexOf(span) === index && span <= keeps_s);
    const buttons = spans.map((span) =>
      button(secondsTick(span), span === keeps_s, () => {
        this.range_s = span;
        buttons.forEach((other, index) => other.setAttribute("aria-pressed", String(spans[index] === span)));
        this.redraw();
      }));
    this.range_s = keeps_s;
    this.ranges.replaceChildren(...buttons);
  }

  /** What is to be seen: `points` from `from` to `to`, `events` as moments, `cursor` an index or null. */
  frame(now_s, events) {
    const to = this.points.at(-1)?.at_s ?? now_s;
    const first = this.points[0]?.at_s ?? to;
    const from = Math.min(to - 30, Math.max(to - (this.range_s ?? 300), first));
    const points = this.points.filter((point) => point.at_s >= from);
    return {
      from, to, points, every_s: this.every_s, cursor: this.nearest(points),
      events: events.filter((at) => at >= from && at <= to),
    };
  }

  draw(frame) {
    this.shown = frame;
    this.plots.forEach((plot) => plot.draw(frame));
  }

  move(at_s) {
    this.cursor_s = at_s;
    if (!this.shown) return;
    this.shown.cursor = this.nearest(this.shown.points);
    this.plots.forEach((plot) => plot.x && plot.showCursor());
  }

  nearest(points) {
    if (this.cursor_s === null || !points.length) return null;
    let [low, high] = [0, points.length - 1];
    while (low < high) {
      const middle = (low + high) >> 1;
      if (points[middle].at_s < this.cursor_s) low = middle + 1;
      else high = middle;
    }
    return low && this.cursor_s - points[low - 1].at_s < points[low].at_s - this.cursor_s ? low - 1 : low;
  }
}

// ---------------------------------------------------------------- timeline

const ROUND = "M-4 0a4 4 0 1 0 8 0a4 4 0 1 0-8 0Z";
const DIAMOND = "M0-5.5L5.5 0L0 5.5L-5.5 0Z";
const TRIANGLE = "M0-5.5L5.5 4.5L-5.5 4.5Z";
const SQUARE = "M-4.5-4.5h9v9h-9Z";
const HAPPENED = {
  state: { lane: 0, tone: "grey", form: SQUARE },
  rebalance: { lane: 1, tone: "blue", form: ROUND, marks: true },
  restart: { lane: 2, tone: "orange", form: DIAMOND, marks: true },
  workers: { lane: 3, tone: "blue", form: SQUARE, marks: true },
  move: { lane: 4, tone: "purple", form: ROUND },
  drain: { lane: 4, tone: "purple", form: DIAMOND },
  forced: { lane: 4, tone: "orange", form: TRIANGLE, marks: true },
  stall: { lane: 5, tone: "orange", form: TRIANGLE, marks: true },
};
const FAILED = { lane: 5, tone: "red", form: SQUARE, marks: true };
const LANES = ["Job", "Group", "Restarts", "Workers", "Moves", "Trouble"];

/** What an entry looks like. That a job failed is told as a state, and is trouble. */
function happened({ kind, text }) {
  const failed = kind === "state" && text.startsWith("failed");
  return failed ? FAILED : (HAPPENED[kind] ?? HAPPENED.state);
}

const wordOf = (entry) => (entry.kind === "state" ? "job" : entry.kind);

/** Lanes over the time that the plots show, and all entries as a list, the newest first. */
class Timeline {
  constructor(lanes, list) {
    this.lanes = lanes;
    this.list = list;
    this.items = new Map();
    this.entries = [];
    this.svg = drawn("svg", { role: "img", "aria-label": "nothing has happened yet" });
    lanes.append(this.svg);
    this.svg.addEventListener("pointerover", ({ target }) => this.point(target));
    this.svg.addEventListener("pointerleave", () => tip.hide());
  }

  /** The moments that plots mark. */
  get events() {
    return this.entries.filter((entry) => happened(entry).marks).map((entry) => entry.at_s);
  }

  /** By when they happened: some are told late, by another actor. */
  take(entries, now_s) {
    this.entries = [...entries].sort((a, b) => a.at_s - b.at_s || a.number - b.number);
    this.now_s = now_s;
    const before = this.items;
    this.items = new Map(this.entries.map((entry) => {
      const key = `${entry.number}@${entry.at_s}`;
      return [key, before.get(key) ?? this.item(entry)];
    }));
    const items = [...this.items.values()].reverse();
    if (items.length === this.list.children.length && items.every((item, place) => item === this.list.children[place])) return;
    const { scrollTop, scrollHeight } = this.list;
    this.list.replaceChildren(...items);
    // Who reads further down goes on reading there.
    if (scrollTop) this.list.scrollTop = scrollTop + this.list.scrollHeight - scrollHeight;
  }

  item(entry) {
    const made = element("li");
    const kind = element("span", `badge ${happened(entry).tone}`, wordOf(entry));
    made.append(element("span", "soft", moment(entry.at_s, this.now_s)), kind, element("span", "", entry.text));
    return made;
  }

  draw(frame) {
    const { clientWidth: width, clientHeight: height } = this.lanes;
    if (!width || !height) return;
    const left = 68;
    const x = (at) => left + ((at - frame.from) / (frame.to - frame.from)) * (width - left - 12);
    const gap = (height - EDGE.bottom) / LANES.length;
    const y = (lane) => gap * (lane + 0.5);
    const names = LANES.flatMap((name, lane) => [
      drawn("line", { class: "grid", x1: left, x2: width - 8, y1: y(lane), y2: y(lane) }),
      drawn("text", { x: 0, y: y(lane) + 4 }, name),
    ]);
    const seen = this.entries.filter((entry) => entry.at_s >= frame.from && entry.at_s <= frame.to + 5);
    const marks = seen.map((entry) => {
      const { lane, tone, form } = happened(entry);
      const place = `translate(${Math.min(x(entry.at_s), width - 6).toFixed(1)} ${y(lane).toFixed(1)})`;
      const mark = drawn("path", { class: `happened ${tone}`, d: form, transform: place });
      mark.dataset.number = entry.number;
      return mark;
    });
    this.svg.replaceChildren(...timeAxis(frame, x, width, height), ...names, ...marks);
    const told = `${count(seen.length, "event")} in the time shown; the list below has all that are kept`;
    this.svg.setAttribute("aria-label", told);
  }

  point(target) {
    const entry = this.entries.find(({ number }) => String(number) === target.dataset?.number);
    if (entry) tip.show([`${moment(entry.at_s, this.now_s)}, ${wordOf(entry)}`, entry.text], target);
    else tip.hide();
  }
}

// ---------------------------------------------------------------- the map

const MOST_LABELLED = 120;
const MOST_TOPICS = 4;

/** Brokers → connection actors → workers → partitions. Each has a key; what is pointed at lights up what it is joined to. */
class JobMap {
  constructor(root, choose) {
    this.root = root;
    this.svg = root.querySelector(".links");
    this.boxes = new Map();
    this.cells = new Map();
    this.paths = new Map();
    this.links = [];
    this.shape = "";
    this.pointed = this.focused = this.chosen = null;
    const keyOf = (target) => target.closest?.("[data-key]")?.dataset.key ?? null;
    root.addEventListener("pointerover", (event) => this.look({ pointed: keyOf(event.target) }));
    root.addEventListener("pointerleave", () => this.look({ pointed: null }));
    root.addEventListener("focusin", ({ target }) => this.look({ focused: target.matches(":focus-visible") ? keyOf(target) : null }));
    root.addEventListener("focusout", () => this.look({ focused: null }));
    root.addEventListener("click", (event) => {
      const key = keyOf(event.target);
      if (key !== null) choose(key);
    });
    new ResizeObserver(() => this.drawLinks()).observe(root);
  }

  show(job, views) {
    this.job = job;
    this.views = views;
    this.connections = new Map(job.connections.map((actor) => [`${actor.node} ${actor.broker}`, actor]));
    this.workers = new Map(job.workers.map((worker) => [worker.name, worker]));
    this.byKey = new Map([
      ...job.brokers.map((broker) => [`b:${broker.broker}`, { broker }]),
      ...job.connections.map((connection) => [`c:${connection.name}`, { connection }]),
      ...job.workers.map((worker) => [`w:${worker.name}`, { worker }]),
      ...views.map((view) => [view.key, { view }]),
    ]);
    const shape = JSON.stringify([
      job.brokers.map(({ broker }) => broker),
      job.connections.map(({ name, node }) => [name, node]),
      job.workers.map(({ name, node }) => [name, node]),
      views.map(({ key, worker }) => [key, worker]),
    ]);
    if (shape !== this.shape) this.build();
    this.shape = shape;
    this.fill();
    this.join();
    this.look({});
  }

  // ------------------------------------------------ boxes and cells

  build() {
    this.boxes.clear();
    this.cells.clear();
    byId("brokers").replaceChildren(...this.job.brokers.map(({ broker }) => this.box(`b:${broker}`)));
    byId("connections").replaceChildren(
      ...this.byNode(this.job.connections, (actors) => actors.map(({ name }) => this.box(`c:${name}`))));
    const held = grouped(this.views, (view) => view.worker);
    const row = (name) => {
      const made = element("div", "worker-row");
      made.append(this.box(`w:${name ?? ""}`), this.cellsOf(held.get(name) ?? []));
      return made;
    };
    const workers = [...this.job.workers].sort((a, b) => NATURAL.compare(a.name, b.name));
    const others = [...held.keys()].filter((name) => !this.workers.has(name));
    byId("worker-rows").replaceChildren(
      ...this.byNode(workers, (there) => there.map(({ name }) => row(name))), ...others.map(row));
  }

  /** Groups with the name of a node above, in the order in which connection actors are on them. */
  byNode(things, content) {
    const order = [...new Set([...this.job.connections, ...this.job.workers].map(({ node }) => node))];
    return order.flatMap((node) => {
      const there = things.filter((thing) => thing.node === node);
      if (!there.length) return [];
      const group = element("div", "node-group");
      const name = element("p", "node-name", nodeName(node));
      name.title = node ?? "";
      group.append(name, ...content(there));
      return [group];
    });
  }

  box(key) {
    const node = element("button", "box");
    node.type = "button";
    node.dataset.key = key;
    const [title, note] = [element("span", "title"), element("span", "note")];
    node.append(title, note);
    let bar = null;
    if (this.workers.has(key.slice(2)) && key.startsWith("w:")) {
      bar = element("span", "bar");
      bar.append(element("span"));
      node.append(bar);
    }
    this.boxes.set(key, { node, title, note, bar });
    return node;
  }

  cellsOf(views) {
    const topics = new Set(this.views.map(({ topic }) => topic));
    const labelled = this.views.length <= MOST_LABELLED && topics.size <= MOST_TOPICS;
    const list = element("div", labelled ? "cells labelled" : "cells");
    list.setAttribute("role", "img");
    let topic = null;
    for (const view of [...views].sort(byName)) {
      if (labelled && topics.size > 1 && view.topic !== topic) list.append(element("span", "topic", view.topic));
      topic = view.topic;
      const cell = element("span", "cell", labelled ? String(view.partition) : "");
      cell.dataset.key = view.key;
      this.cells.set(view.key, cell);
      list.append(cell);
    }
    return list;
  }

  fill() {
    for (const [key, box] of this.boxes) {
      const { title, note, off = false, busy = null } = this.wordsOf(key);
      say(box.title, title);
      say(box.note, note);
      box.off = off;
      if (box.bar) box.bar.firstChild.style.setProperty("--share", String(Math.min(1, busy ?? 0)));
      if (box.bar) box.bar.hidden = busy === null;
    }
    for (const list of this.root.querySelectorAll(".cells")) {
      const views = [...list.querySelectorAll(".cell")].map(({ dataset }) => this.byKey.get(dataset.key).view);
      const kinds = [...new Set(views.map(({ condition }) => condition))];
      const told = kinds.map((kind) => `${views.filter(({ condition }) => condition === kind).length} ${kind}`).join(", ");
      const label = views.length ? `${count(views.length, "partition")}: ${told}` : "no partitions";
      if (list.getAttribute("aria-label") !== label) list.setAttribute("aria-label", label);
    }
  }

  /** What a box says. */
  wordsOf(key) {
    const { broker, connection, worker } = this.byKey.get(key) ?? {};
    const again = (restarts) => (restarts ? `, ${count(restarts, "restart")}` : "");
    if (broker) return { title: `broker ${broker.broker}`, note: `leads ${count(broker.leads, "partition")}` };
    if (connection) {
      const state = connection.ready ? `pid ${connection.pid ?? NOT_KNOWN}` : "not ready";
      // Its node stands above it.
      return { title: connection.name.split("@")[0], note: `broker ${connection.broker}, ${state}${again(connection.restarts)}`, off: !connection.ready };
    }
    if (worker) {
      const state = worker.state === "ready" ? rate(worker.records_per_s) : worker.state;
      const busy = known(worker.busy) && worker.ready ? `, busy ${share(worker.busy)}` : "";
      return { title: worker.name, note: `${state}${busy}${again(worker.restarts)}`, off: !worker.ready, busy: worker.busy };
    }
    return { title: key.slice(2) || "without a worker", note: key.slice(2) ? "is gone" : "waiting to be given to one", off: true };
  }

  /** All that is known of what has this key, in lines. */
  linesOf(key) {
    const { broker, connection, worker, view } = this.byKey.get(key) ?? {};
    if (broker) return [`broker ${broker.broker}`, `${broker.host}:${broker.port}`, `leads ${count(broker.leads, "partition")} of this job`];
    if (connection) {
      const { name, node, broker: number, pid, ready, restarts } = connection;
      return [name, `fetches from broker ${number} for the workers on ${nodeName(node)}`, `${ready ? "ready" : "not ready"}, pid ${pid ?? NOT_KNOWN}, ${count(restarts, "restart")}`];
    }
    if (worker) {
      return [
        worker.name,
        `${worker.state}, ${nodeName(worker.node)}, pid ${worker.pid ?? NOT_KNOWN}, ${count(worker.restarts, "restart")}`,
        `${count(worker.partitions, "partition")}, ${rate(worker.records_per_s)}, ${scaled(worker.value_bytes_per_s, "B/s")}, busy ${share(worker.busy)}`,
        `${count(worker.records, "record")} processed, ${scaled(worker.value_bytes, "B")}`,
      ];
    }
    if (!view) return [this.wordsOf(key).title];
    const reason = view.reason ? `${view.reason}${view.meaning ? `: ${view.meaning}` : ""}` : "";
    return [
      `${view.name}, ${view.condition}`,
      reason,
      `lag ${whole(view.lag)}, ${duration(view.lag_s)} behind`,
      `position ${whole(view.position)}, committed ${whole(view.committed)}, end ${whole(view.end)}`,
      `${view.worker ?? "no worker"}, ${view.leader ?? "no leader known"}`,
    ];
  }

  // ------------------------------------------------ lines

  /** The keys from a partition up to its broker. */
  pathOf(view) {
    const worker = this.workers.get(view.worker);
    const connection = worker && this.connections.get(`${worker.node} ${view.broker}`);
    return [view.key, `w:${view.worker ?? ""}`, ...(connection ? [`c:${connection.name}`, `b:${view.broker}`] : [])];
  }

  join() {
    const links = new Map();
    for (const { name, broker, ready } of this.job.connections) {
      links.set(`b:${broker}\nc:${name}`, { from: `b:${broker}`, to: `c:${name}`, count: 0, broken: !ready });
    }
    for (const view of this.views) {
      const [, worker, connection, broker] = this.pathOf(view);
      if (!connection) continue;
      const { ready } = this.byKey.get(connection).connection;
      const id = `${connection}\n${worker}`;
      if (!links.has(id)) links.set(id, { from: connection, to: worker, count: 0, broken: !ready });
      links.get(id).count += 1;
      const first = links.get(`${broker}\n${connection}`);
      if (first) first.count += 1;
    }
    this.links = links;
    for (const [id, path] of this.paths) {
      if (links.has(id)) continue;
      path.remove();
      this.paths.delete(id);
    }
    this.drawLinks();
  }

  drawLinks() {
    if (!this.job || getComputedStyle(this.svg).display === "none") return;
    const zero = this.root.getBoundingClientRect();
    const places = new Map([...this.boxes].map(([key, { node }]) => [key, node.getBoundingClientRect()]));
    const most = Math.max(1, ...[...this.links.values()].map((link) => link.count));
    for (const [id, { from, to, count: number }] of this.links) {
      const [start, end] = [places.get(from), places.get(to)];
      if (!start || !end) continue;
      if (!this.paths.has(id)) this.paths.set(id, this.svg.appendChild(drawn("path")));
      const [x1, y1] = [start.right - zero.left, (start.top + start.bottom) / 2 - zero.top];
      const [x2, y2] = [end.left - zero.left, (end.top + end.bottom) / 2 - zero.top];
      const bend = (x2 - x1) / 2;
      const path = this.paths.get(id);
      path.setAttribute("d", `M${x1.toFixed(1)} ${y1.toFixed(1)}C${(x1 + bend).toFixed(1)} ${y1.toFixed(1)} ${(x2 - bend).toFixed(1)} ${y2.toFixed(1)} ${x2.toFixed(1)} ${y2.toFixed(1)}`);
      path.setAttribute("stroke-width", (1 + (2.5 * number) / most).toFixed(1));
    }
  }

  // ------------------------------------------------ what is looked at

  look(change) {
    Object.assign(this, change);
    if (!this.job) return;
    const key = this.pointed ?? this.focused ?? this.chosen;
    const lit = this.byKey.has(key) || this.boxes.has(key) ? this.trace(key) : null;
    this.root.classList.toggle("tracing", lit !== null);
    for (const [id, { node, off }] of this.boxes) {
      dress(node, `box${off ? " off" : ""}${lit?.has(id) ? " lit" : ""}`);
      node.setAttribute("aria-pressed", String(id === this.chosen));
    }
    for (const [id, cell] of this.cells) {
      dress(cell, `cell ${this.byKey.get(id).view.cell}${lit?.has(id) ? " lit" : ""}${id === this.chosen ? " picked" : ""}`);
    }
    for (const [id, path] of this.paths) {
      const { from, to, broken } = this.links.get(id);
      path.setAttribute("class", `${broken ? "broken" : ""}${lit?.has(from) && lit.has(to) ? " lit" : ""}`);
    }
    const near = this.pointed ?? this.focused;
    const target = near === null ? null : (this.boxes.get(near)?.node ?? this.cells.get(near));
    if (target) tip.show(this.linesOf(near), target);
    else if ("pointed" in change || "focused" in change) tip.hide();
  }

  trace(key) {
    const lit = new Set([key]);
    for (const view of this.views) {
      const path = this.pathOf(view);
      if (path.includes(key)) path.forEach((id) => lit.add(id));
    }
    for (const { name, broker } of this.job.connections) {
      if (key === `b:${broker}`) lit.add(`c:${name}`);
      if (key === `c:${name}`) lit.add(`b:${broker}`);
    }
    return lit;
  }
}

// ---------------------------------------------------------------- the table

const COLUMNS = [
  { field: "name", title: "Partition", compare: byName },
  { field: "condition", title: "State" },
  { field: "lag", title: "Lag", number: true, text: whole },
  { field: "lag_s", title: "Behind", number: true, text: duration },
  { field: "position", title: "Position", number: true, text: whole },
  { field: "committed", title: "Committed", number: true, text: whole },
  { field: "end", title: "End", number: true, text: whole },
  { field: "worker", title: "Worker" },
  { field: "leader", title: "Leader" },
  { field: "reason", title: "Reason" },
];
const KINDS = [
  ["All", () => true],
  ["Blocked", (view) => view.blocked],
  ["Reading", (view) => view.kind === "reading"],
  ["At end", (view) => view.kind === "end"],
  ["Moving", (view) => view.kind === "moving"],
  ["No worker", (view) => view.kind === "free"],
];
const OVERSCAN = 6;

/** All partitions. Only the rows that can be seen, and a few more, are there; empty ones stand for the others. */
class PartitionTable {
  constructor(choose) {
    this.views = [];
    this.rows = [];
    this.pool = [];
    this.kind = 0;
    this.sort = { column: COLUMNS[0], down: false };
    this.height = 30;
    this.chosen = null;
    this.choose = choose;
    this.scroll = byId("scroll");
    this.body = byId("rows");
    this.space = [0, 1].map(() => {
      const row = element("tr", "space");
      row.setAttribute("aria-hidden", "true");
      const cell = element("td");
      cell.colSpan = COLUMNS.length;
      row.append(cell);
      return row;
    });
    this.body.append(...this.space);
    this.heads = COLUMNS.map((column) => this.head(column));
    byId("table-head").append(...this.heads);
    this.kinds = KINDS.map(([text], index) => button(text, index === 0, () => {
      this.kind = index;
      this.kinds.forEach((other, place) => other.setAttribute("aria-pressed", String(place === index)));
      this.again();
    }));
    byId("conditions").append(...this.kinds);
    byId("find").addEventListener("input", () => this.again());
    this.scroll.addEventListener("scroll", () => this.render(), { passive: true });
    window.addEventListener("resize", () => this.render());
    byId("chosen-close").addEventListener("click", () => choose(null));
  }

  head(column) {
    const made = element("th", `c-${column.field}${column.number ? " number" : ""}`);
    made.scope = "col";
    const inside = element("button", "", column.title);
    inside.type = "button";
    inside.addEventListener("click", () => {
      const down = this.sort.column === column ? !this.sort.down : Boolean(column.number);
      this.sort = { column, down };
      this.again();
    });
    made.append(inside);
    return made;
  }

  show(views) {
    this.views = views;
    this.kinds.forEach((node, index) => {
      const text = `${KINDS[index][0]} ${whole(views.filter(KINDS[index][1]).length)}`;
      say(node, text);
    });
    this.arrange();
  }

  /** After a change of what is asked for: from the top. */
  again() {
    this.scroll.scrollTop = 0;
    this.arrange();
  }

  arrange() {
    const words = byId("find").value.toLowerCase().split(/\s+/).filter(Boolean);
    const wanted = KINDS[this.kind][1];
    this.rows = this.views.filter((view) => wanted(view) && words.every((word) => view.words.includes(word)));
    const { column, down } = this.sort;
    const compare = column.compare ?? (column.number ? (a, b) => a[column.field] - b[column.field] : (a, b) => NATURAL.compare(a[column.field], b[column.field]));
    const empty = (view) => !known(view[column.field]) || view[column.field] === "";
    // What isn't known stands last, whichever way.
    this.rows.sort((a, b) => empty(a) - empty(b) || (empty(a) ? 0 : (down ? -1 : 1) * compare(a, b)) || byName(a, b));
    this.heads.forEach((head, index) => {
      if (COLUMNS[index] === column) head.setAttribute("aria-sort", down ? "descending" : "ascending");
      else head.removeAttribute("aria-sort");
    });
    const all = count(this.views.length, "partition");
    say(byId("found"), this.rows.length === this.views.length ? all : `${whole(this.rows.length)} of ${all}`);
    byId("table").setAttribute("aria-rowcount", String(this.rows.length + 1));
    this.render();
    this.showChosen();
  }

  render(once = false) {
    const fit = Math.ceil(window.innerHeight / this.height) + 2 * OVERSCAN;
    const first = Math.max(0, Math.min(Math.floor(this.scroll.scrollTop / this.height) - OVERSCAN, this.rows.length - fit));
    const shown = this.rows.slice(first, first + fit);
    while (this.pool.length < shown.length) {
      this.pool.push(this.row());
      this.space[1].before(this.pool.at(-1).node);
    }
    this.pool.splice(shown.length).forEach(({ node }) => node.remove());
    shown.forEach((view, index) => this.fill(this.pool[index], view, first + index));
    this.space[0].firstChild.style.height = `${first * this.height}px`;
    this.space[1].firstChild.style.height = `${(this.rows.length - first - shown.length) * this.height}px`;
    this.space[0].hidden = first === 0;
    this.space[1].hidden = first + shown.length === this.rows.length;
    const height = this.pool[0]?.node.getBoundingClientRect().height;
    if (!once && height && Math.abs(height - this.height) > 0.1) {
      this.height = height;
      this.render(true);
    }
  }

  row() {
    const node = element("tr");
    const cells = COLUMNS.map(({ field, number }) => {
      const cell = element("td", `c-${field}${number ? " number" : ""}`);
      node.append(cell);
      return cell;
    });
    const name = element("button");
    name.type = "button";
    name.append(element("span"), element("span"));
    const below = element("div", "sub");
    cells[0].append(name, below);
    cells[1].append(element("span", "badge"));
    const made = { node, cells, name, below, view: null };
    name.addEventListener("click", () => this.choose(made.view.key));
    return made;
  }

  fill(row, view, index) {
    row.view = view;
    row.node.setAttribute("aria-rowindex", String(index + 2));
    dress(row.node, view.key === this.chosen ? "chosen-row" : "");
    COLUMNS.forEach(({ field, text }, place) => {
      if (place > 1) say(row.cells[place], text ? text(view[field]) : (view[field] ?? NOT_KNOWN));
    });
    const [topic, number] = row.name.children;
    say(topic, view.topic);
    say(number, `-${view.partition}`);
    if (row.name.title !== view.name) row.name.title = view.name;
    say(row.below, `lag ${scaled(view.lag)}${view.reason ? `, ${view.reason}` : ""}`);
    badge(row.cells[1].firstChild, view.condition, view.tone);
    const last = row.cells.at(-1);
    const told = view.meaning && view.reason !== "at end" ? `${view.reason} (${view.meaning})` : view.reason;
    say(last, told);
    if (last.title !== told) last.title = told;
  }

  /** All of one partition, above the table, until it is closed. */
  showChosen() {
    const panel = byId("chosen");
    panel.hidden = this.chosen === null || !this.chosen.startsWith("p:");
    if (panel.hidden) return;
    const view = this.views.find(({ key }) => key === this.chosen);
    if (!view) {
      fillPairs(byId("chosen-pairs"), [["State", "no longer among this job's partitions"]]);
      return;
    }
    const waiting = known(view.position) && known(view.committed) ? Math.max(0, view.position - view.committed) : null;
    say(byId("chosen-name"), `${view.name}: ${view.condition}`);
    fillPairs(byId("chosen-pairs"), [
      ["Reason", view.reason, "wide"],
      ["Which means", view.meaning, "wide"],
      ["State", view.state],
      ["Lag", whole(view.lag)],
      ["Behind", duration(view.lag_s)],
      ["Position", whole(view.position)],
      ["Committed", whole(view.committed)],
      ["Not committed", whole(waiting)],
      ["End", whole(view.end)],
      ["Worker", view.worker ?? NOT_KNOWN],
      ["Leader", view.leader ?? NOT_KNOWN],
    ]);
  }
}

// ---------------------------------------------------------------- the page

const STATES = { running: "blue", starting: "grey", paused: "purple", stopping: "purple", stopped: "grey", failed: "red" };

let shown = null;       // the document on the page
let heardAt = null;     // when the last answer came, by this browser's steady clock
let heardClock = null;  // and by its calendar, in seconds
let changedAt = null;   // when an answer last was of another moment than the one before
let visibleAt = performance.now();
let problem = "";       // why there was no answer the last time
let fault = "";         // an error of this page itself
let waiting = null;
let asking = false;
let scheduled = false;

const timeline = new Timeline(byId("lanes"), byId("entries"));
const plots = new Plots(byId("plot-grid"), byId("ranges"), () => redrawSoon());
const map = new JobMap(byId("chart"), (key) => choose(key === map.chosen ? null : key));
const table = new PartitionTable((key) => choose(key));
new ResizeObserver(() => redrawSoon()).observe(byId("lanes"));

/** Plots and lanes, once before the next picture however often it is asked for. */
function redrawSoon() {
  if (scheduled) return;
  scheduled = true;
  requestAnimationFrame(() => {
    scheduled = false;
    if (shown) redraw();
  });
}

function redraw() {
  const frame = plots.frame(shown.at_s, timeline.events);
  plots.draw(frame);
  timeline.draw(frame);
}

/** A key of the map, or null for nothing: lit up there, and told in full above the table if it is a partition. */
function choose(key) {
  table.chosen = key;
  table.arrange();
  map.look({ chosen: key });
}

function show(job) {
  const views = job.partitions.map(viewOf).sort(byName);
  headline(job);
  tiles(job);
  details(job);
  control(job.control);
  timeline.take(job.timeline, job.at_s);
  redraw();
  map.show(job, views);
  table.show(views);
}

function headline({ job, health, at_s }) {
  const name = job.name ?? job.group;
  say(byId("job-name"), name);
  badge(byId("job-state"), job.state, STATES[job.state] ?? "grey");
  badge(byId("ready"), health.ready ? "ready" : "not ready", health.ready ? "blue" : "orange");
  say(byId("group"), job.group);
  const told = job.topics.slice(0, 3).join(", ") + (job.topics.length > 3 ? ` and ${job.topics.length - 3} more` : "");
  say(byId("topics-told"), `${job.topics.length === 1 ? "topic" : "topics"} ${told}`);
  byId("topics-told").title = job.topics.join("\n");
  say(byId("updated"), `updated ${clock(at_s)}`);
  say(byId("version"), `kafka-actors ${job.version}`);
  const notReady = byId("not-ready");
  notReady.hidden = health.ready;
  say(notReady, health.ready ? "" : `${health.live ? "Not ready" : "Not live"}: ${health.reason}`);
}

function tiles({ totals, scaling, group }) {
  const texts = {
    "records-rate": rate(totals.records_per_s),
    "records-total": `${scaled(totals.records)} in all`,
    "bytes-rate": scaled(totals.value_bytes_per_s, "B/s"),
    "bytes-total": `${scaled(totals.value_bytes, "B")} in all`,
    lag: scaled(totals.lag),
    "lag-time": known(totals.lag_s) ? `records, up to ${duration(totals.lag_s)} behind` : "records",
    latency: milliseconds(totals.latency_p50_ms),
    "latency-high": `p99 ${milliseconds(totals.latency_p99_ms)}`,
    workers: `${whole(totals.workers_ready)} of ${whole(totals.workers)}`,
    "workers-policy": scaling.policy === null ? `${whole(scaling.workers)} asked for` : `${scaling.policy}, busy ${share(scaling.busy)}`,
    "partitions-count": whole(totals.partitions),
    "partitions-blocked": totals.blocked ? `${whole(totals.blocked)} blocked` : "none blocked",
    rebalances: whole(group.rebalances),
    generation: known(group.generation) ? `generation ${whole(group.generation)}` : "not in the group",
    restarts: whole(totals.restarts),
  };
  for (const [id, text] of Object.entries(texts)) say(byId(id), text);
}

function details({ at_s, job, group, scaling }) {
  const ago = (since_s) => (known(since_s) ? `${duration(at_s - since_s)} ago` : "never");
  const heartbeat = known(group.heartbeat_age_s) ? `${duration(group.heartbeat_age_s)} ago` : "none yet";
  const policy = scaling.policy !== null;
  fillPairs(byId("details"), [
    ["Job", `${job.state} for ${duration(at_s - job.state_since_s)}`],
    ["Member", `${group.state}, ${group.protocol} protocol${known(group.generation) ? `, generation ${group.generation}` : ""}`],
    ["Member id", group.member_id],
    ["Instance id", group.instance_id],
    ["Heartbeat", `${heartbeat}, session ${duration(group.session_timeout_s)}`],
    ["Coordinator", `answered ${ago(group.answered_s)}`],
    ["Workers", policy ? `${whole(scaling.workers)} by the policy ${scaling.policy}` : `${whole(scaling.workers)}, as asked for`],
    ["Holding", scaling.holding],
    ["Backlog", policy ? `${duration(scaling.backlog_s)} of work, target ${duration(scaling.target_lag_s)}` : null],
    ["Arriving", policy ? rate(scaling.arriving_per_s) : null],
    ["Processed", policy ? rate(scaling.processed_per_s) : null],
    ["Pace", policy ? `${rate(scaling.pace_per_s)} for a worker without a pause` : null],
    ["Busiest worker", policy ? share(scaling.busy) : null],
  ]);
}

function control(actors) {
  const list = byId("control");
  while (list.children.length > actors.length) list.lastChild.remove();
  while (list.children.length < actors.length) list.append(element("li"));
  actors.forEach(({ name, role, node, pid, ready, restarts }, index) => {
    const item = list.children[index];
    const again = restarts ? `, ${count(restarts, "restart")}` : "";
    say(item, `${name}: ${ready ? "" : "not ready, "}${nodeName(node)}, pid ${pid ?? NOT_KNOWN}${again}`);
    item.title = role;
    item.classList.toggle("off", !ready);
  });
}

// ------------------------------------------------ asking

async function ask(path) {
  const response = await fetch(path, { cache: "no-store", signal: AbortSignal.timeout(PATIENCE_MS) });
  if (response.ok) return response.json();
  const said = (await response.text()).trim().slice(0, 200);
  throw new Error(`the server says ${response.status}${said ? `, ${said}` : ""}`);
}

function causeOf(error) {
  if (error.name === "TimeoutError") return `nothing came within ${PATIENCE_MS / 1000} s`;
  return error instanceof TypeError ? "the server can't be reached" : error.message;
}

async function poll() {
  asking = true;
  const begun = performance.now();
  let answers = null;
  try {
    answers = await Promise.all([ask("status.json"), ask(plots.query)]);
    problem = "";
  } catch (error) {
    problem = causeOf(error);
  }
  if (answers) take(...answers);
  asking = false;
  age();
  // A page that nobody sees asks nothing.
  if (!document.hidden) waiting = setTimeout(poll, Math.max(100, EVERY_MS - (performance.now() - begun)));
}

function take(job, history) {
  heardAt = performance.now();
  heardClock = Date.now() / 1000;
  if (job.at_s !== shown?.at_s) changedAt = heardAt;
  shown = job;
  try {
    plots.take(history);
    show(job);
    fault = "";
  } catch (error) {
    fault = error.message;
    console.error(error);
  }
}

/** What to warn of: an error of this page, a server that doesn't answer, or one that has nothing new to say. */
function warning(now) {
  if (fault) return `This page can't show what the job says: ${fault}`;
  const because = problem ? `: ${problem}` : "";
  if (heardAt === null) return problem && `No answer from the job yet${because}.`;
  if (now - Math.max(heardAt, visibleAt) > STALE_MS) {
    return `No answer from the job since ${clock(heardClock)}${because}. The numbers are of then.`;
  }
  if (now - Math.max(changedAt, visibleAt) > FROZEN_MS) {
    return `The job has said nothing new since ${clock(shown.at_s)}. The numbers are of then.`;
  }
  return "";
}

/** What depends on the time since the last answer. A page that nobody sees has asked nothing, so it says nothing. */
function age() {
  if (document.hidden) return;
  const now = performance.now();
  const text = warning(now);
  byId("stale").hidden = !text;
  document.body.classList.toggle("stale", Boolean(text));
  say(byId("stale-text"), text);
  say(byId("stale-age"), text && !fault && heardAt !== null ? `(${duration((now - heardAt) / 1000)} ago)` : "");
  if (!shown) return;
  const name = shown.job.name ?? shown.job.group;
  document.title = text ? `stale: ${name}` : `${name}: ${shown.job.state}, lag ${scaled(shown.totals.lag)}`;
  if (!text) say(byId("uptime"), duration(shown.at_s - shown.job.started_s + (now - heardAt) / 1000));
}

document.addEventListener("visibilitychange", () => {
  visibleAt = performance.now();
  clearTimeout(waiting);
  if (!document.hidden && !asking) poll();
});
document.addEventListener("keydown", (event) => {
  if (event.key !== "Escape") return;
  map.look({ pointed: null, focused: null });
  if (map.chosen !== null) choose(null);
});
setInterval(age, 500);
poll();
})();

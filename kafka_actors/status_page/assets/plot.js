// One plot: a line or two over time, and the values of the moment that is pointed at.
"use strict";

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

class Plot {
  /** `moved` is called with the moment that is pointed at, or null. */
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

  /** Path of a line, with a gap where a value or a point is missing. */
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
    // A single point is a line of its own, whose round ends make a dot.
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

  /** Texts for screen readers: the plot in a sentence, and the values of the chosen moment. */
  tell(chosen, texts, cursor) {
    const { points } = this.frame;
    // While it has the focus, its changes each second would be read out.
    if (cursor === null && document.activeElement === this.svg) return;
    const named = this.kind.series.map(([, label], index) => (label ? `${label} ${texts[index]}` : texts[index])).join(", ");
    const text = chosen ? `${clock(chosen.at_s)}: ${named}` : "no values yet";
    const label = `${this.kind.title}: now ${named}, highest ${this.kind.value(this.highest)}`;
    const attributes = {
      "aria-valuemax": Math.max(0, points.length - 1), "aria-valuenow": cursor ?? Math.max(0, points.length - 1), "aria-valuetext": text,
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

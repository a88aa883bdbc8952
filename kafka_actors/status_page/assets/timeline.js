// The timeline: what happened, in lanes over the time that the plots show, and as a list.
"use strict";

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

/** Lane, colour and form of an entry. An entry of a failed job has the kind `state`, and goes to the lane of troubles. */
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

  /** Sorted by their moments: entries of another actor may come late. */
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
    // The list keeps its position for somebody who has scrolled down.
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

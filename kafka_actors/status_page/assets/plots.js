// All plots together: the points that the job remembers, how far back to look, and one cursor.
"use strict";

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

  /** Adds new points. Another process numbers its points anew: then all of them are fetched next. */
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

  /** Frame to draw: `points` from `from` to `to`, `events` as moments, `cursor` an index or null. */
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

// Axes of plots and of the timeline: positions and texts of their lines.
"use strict";

const TIME_STEPS = [
  0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 21600, 43200, 86400,
];

const EDGE = { left: 52, right: 8, top: 8, bottom: 20 };

/** Positions of the lines of an axis that begins at 0 and has room for `highest`. */
function ticksUpTo(highest, most, steps = null) {
  const least = Math.max(highest, 1e-9) / most;
  const power = 10 ** Math.floor(Math.log10(least));
  const step = (steps ?? [1, 2, 2.5, 5, 10].map((factor) => factor * power)).find((size) => size >= least * 0.999_999)
    ?? 86_400 * Math.ceil(least / 86_400);
  const lines = Math.max(1, Math.ceil(highest / step - 1e-9));
  return Array.from({ length: lines + 1 }, (_, index) => index * step);
}

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

// Formats of numbers, times and names.
"use strict";

const NOT_KNOWN = "–";
const PREFIXES = [[1e15, "P"], [1e12, "T"], [1e9, "G"], [1e6, "M"], [1e3, "k"]];
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

/** Time of day, with the date where that isn't the date of `now_s`. */
function moment(at_s, now_s) {
  const [day, today] = [DAY.format(1000 * at_s), DAY.format(1000 * now_s)];
  return day === today ? clock(at_s) : `${day} ${clock(at_s)}`;
}

/** Name of a node: the beginning of Ray's id, which is enough to tell nodes apart. */
function nodeName(node) {
  if (!node) return "not placed yet";
  return `node ${/^[0-9a-f]{20,}$/.test(node) ? node.slice(0, 8) : node}`;
}

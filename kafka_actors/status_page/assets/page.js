// The page as a whole: fetches status and history each second, draws them, and warns when no answers come. It fetches
// only from the server that it came from.
"use strict";

const EVERY_MS = 1000;
const PATIENCE_MS = 5000;  // limit of one request
const STALE_MS = 3000;     // without an answer, until the page warns
const FROZEN_MS = 6000;    // with answers of one and the same moment, until the page warns

let shown = null;       // the status on the page
let heardAt = null;     // when the last answer came, by this browser's steady clock
let heardClock = null;  // and by its calendar, in seconds
let changedAt = null;   // when the moment of the answers last changed
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

/** Redraws plots and lanes before the next frame, once however often it is called. */
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

/** Chooses a key of the map, or nothing (null): lit up there, and shown in full above the table if it is a partition. */
function choose(key) {
  table.chosen = key;
  table.arrange();
  map.look({ chosen: key });
}

function show(status) {
  const views = status.partitions.map(viewOf).sort(byName);
  const job = { ...status, ...actorsOf(status) };
  headline(job);
  tiles(job);
  details(job);
  control(job.control);
  timeline.take(job.timeline, job.at_s);
  redraw();
  map.show(job, views);
  table.show(views);
}

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
  // A hidden page fetches nothing.
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

/** Text of the warning: an error of this page, a server that doesn't answer, or one whose status doesn't change; else empty. */
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

/** Updates what depends on the time since the last answer. A hidden page has fetched nothing, so it warns of nothing. */
function age() {
  if (document.hidden) return;
  const now = performance.now();
  const text = warning(now);
  byId("stale").hidden = !text;
  document.body.classList.toggle("stale", Boolean(text));
  say(byId("stale-text"), text);
  say(byId("stale-age"), text && !fault && heardAt !== null ? `(${duration((now - heardAt) / 1000)} ago)` : "");
  if (!shown) return;
  const name = shown.name ?? shown.group_id;
  document.title = text ? `stale: ${name}` : `${name}: ${shown.state}, lag ${scaled(shown.totals.lag)}`;
  if (!text) say(byId("uptime"), duration(shown.at_s - shown.started_s + (now - heardAt) / 1000));
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

// The job in short: headline, tiles, group and scaling, and control actors.
"use strict";

const STATES = { running: "blue", starting: "grey", paused: "purple", stopping: "purple", stopped: "grey", failed: "red" };

function headline({ name, group_id, topics, state, version, health, at_s }) {
  say(byId("job-name"), name ?? group_id);
  badge(byId("job-state"), state, STATES[state] ?? "grey");
  badge(byId("ready"), health.ready ? "ready" : "not ready", health.ready ? "blue" : "orange");
  say(byId("group"), group_id);
  const named = topics.slice(0, 3).join(", ") + (topics.length > 3 ? ` and ${topics.length - 3} more` : "");
  say(byId("topics"), `${topics.length === 1 ? "topic" : "topics"} ${named}`);
  byId("topics").title = topics.join("\n");
  say(byId("updated"), `updated ${clock(at_s)}`);
  say(byId("version"), `kafka-actors ${version}`);
  const notReady = byId("not-ready");
  notReady.hidden = health.ready;
  say(notReady, health.ready ? "" : `${health.live ? "Not ready" : "Not live"}: ${health.reason}`);
}

/** The policy as a range, such as 1..16; null where the number of workers is fixed. */
const policyOf = ({ autoscale }) => (known(autoscale) ? `${autoscale.min}..${autoscale.max}` : null);
const generationOf = (group) => (known(group) && group.generation >= 0 ? group.generation : null);

function tiles({ records, value_bytes, workers, partitions, totals, scaling, group }) {
  const policy = policyOf(scaling);
  const generation = generationOf(group);
  const texts = {
    "records-rate": rate(totals.records_per_s),
    "records-total": `${scaled(records)} in all`,
    "bytes-rate": scaled(totals.value_bytes_per_s, "B/s"),
    "bytes-total": `${scaled(value_bytes, "B")} in all`,
    lag: scaled(totals.lag),
    "lag-time": known(totals.lag_s) ? `records, up to ${duration(totals.lag_s)} behind` : "records",
    latency: milliseconds(totals.latency_p50_ms),
    "latency-high": `p99 ${milliseconds(totals.latency_p99_ms)}`,
    workers: `${whole(totals.workers_ready)} of ${whole(workers.length)}`,
    "workers-policy": policy === null ? `${whole(scaling.workers)} asked for` : `${policy}, busy ${share(scaling.busy)}`,
    "partitions-count": whole(partitions.length),
    "partitions-blocked": totals.blocked ? `${whole(totals.blocked)} blocked` : "none blocked",
    rebalances: whole(group?.rebalances ?? 0),
    generation: known(generation) ? `generation ${whole(generation)}` : "not in the group",
    restarts: whole(totals.restarts),
  };
  for (const [id, text] of Object.entries(texts)) say(byId(id), text);
}

/** Transactions of a job that delivers exactly once, as pairs; all null in other jobs. */
function transactionPairs(transactions) {
  if (!known(transactions)) return [];
  const { committed, aborted, repeated, cause, open_s, committed_ago_s } = transactions;
  const last = known(committed_ago_s) ? `the last ${duration(committed_ago_s)} ago` : "none yet";
  const open = known(open_s) ? `, open for ${duration(open_s)}` : "";
  return [
    ["Transactions", `${whole(committed)} committed, ${last}${open}`],
    ["Aborted", aborted ? `${whole(aborted)}, ${count(repeated, "record")} again: ${cause}` : null],
  ];
}

/** Pairs for the records in flight of a job, or of one partition, whose calls overtake each other. */
function windowPairs(window) {
  if (!known(window)) return [];
  const { records, calls, parked, keys, held_s, held_by } = window;
  const more = [count(calls, "call"), keys ? count(keys, "key") : "", parked ? `${whole(parked)} parked` : ""];
  return [
    ["In flight", [count(records, "record"), ...more.filter(Boolean)].join(", ")],
    ["Held", known(held_s) ? `for ${duration(held_s)} by ${held_by}` : null],
  ];
}

function details({ at_s, state, state_since_s, answered_s, session_timeout_s, group, scaling, transactions, totals }) {
  const ago = (since_s) => (known(since_s) ? `${duration(at_s - since_s)} ago` : "never");
  const heartbeat = known(group?.heartbeat_age_s) ? `${duration(group.heartbeat_age_s)} ago` : "none yet";
  const policy = policyOf(scaling);
  const generation = generationOf(group);
  fillPairs(byId("details"), [
    ["Job", `${state} for ${duration(at_s - state_since_s)}`],
    ["Member", `${group?.state ?? "unknown"}${known(generation) ? `, generation ${generation}` : ""}`],
    ["Member id", group?.member_id],
    ["Instance id", group?.group_instance_id],
    ["Heartbeat", `${heartbeat}, session ${duration(session_timeout_s)}`],
    ["Coordinator", `answered ${ago(answered_s)}`],
    ["Workers", policy ? `${whole(scaling.workers)} by the policy ${policy}` : `${whole(scaling.workers)}, as asked for`],
    ["Holding", scaling.holding],
    ["Backlog", policy ? `${duration(scaling.backlog_seconds)} of work, target ${duration(scaling.autoscale.target_lag_seconds)}` : null],
    ["Arriving", policy ? rate(scaling.arriving_per_s) : null],
    ["Processed", policy ? rate(scaling.processed_per_s) : null],
    ["Pace", policy ? `${rate(scaling.pace_per_s)} for a worker without a pause` : null],
    ["Busiest worker", policy ? share(scaling.busy) : null],
    ...windowPairs(totals?.window),
    ...transactionPairs(transactions),
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

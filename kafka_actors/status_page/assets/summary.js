// The job in short: headline, tiles, group and scaling, and the actors that are no workers.
"use strict";

const STATES = { running: "blue", starting: "grey", paused: "purple", stopping: "purple", stopped: "grey", failed: "red" };

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

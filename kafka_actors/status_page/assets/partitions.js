// Conditions of partitions in words and colours, and the meanings of their reasons.
"use strict";

/** Meanings of reasons, by how these begin. */
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
  ["waits for its turn", "its worker is at other partitions: each has its turn by time"],
  ["no worker", "it waits to be given to one"],
  ["not due", "records of this retry topic wait for their time"],
  ["reading ahead", "which keys wait in the retry topics is being read"],
];
/** Reasons without trouble, by how they begin, with the conditions that they stand for; any other one is "blocked". */
const HARMLESS = [["at end", "end"], ["not due", "waiting"], ["reading ahead", "waiting"]];
const CONDITIONS = {
  reading: { word: "reading", tone: "blue" },
  end: { word: "at end", tone: "grey" },
  waiting: { word: "waiting", tone: "grey" },
  blocked: { word: "blocked", tone: "orange" },
  draining: { word: "draining", tone: "purple", reason: "its worker finishes what it has in hand" },
  leaving: { word: "leaving", tone: "purple", reason: "the group has taken it from this job" },
  released: { word: "released", tone: "purple", reason: "its worker has let go of it" },
  free: { word: "no worker", tone: "orange", reason: "no worker has it" },
};

const meaningOf = (reason) => MEANINGS.find(([head]) => reason.startsWith(head))?.[1] ?? "";

/** A partition with all texts and colours that the page shows for it. */
function viewOf(partition) {
  const { topic, partition: number, state, reason, lag, lag_seconds: lag_s } = partition;
  const ofReason = !reason ? "reading" : HARMLESS.find(([head]) => reason.startsWith(head))?.[1] ?? "blocked";
  const kind = state === "granted" ? ofReason : state;
  const condition = CONDITIONS[kind] ?? { word: state, tone: "grey" };
  const moving = condition.tone === "purple";
  const behind = lag === 0 ? 0 : known(lag_s) ? lag_s : lag ? 1 : 0;
  const level = behind < 1 ? 0 : behind < 10 ? 1 : behind < 60 ? 2 : 3;
  const name = `${topic}-${number}`;
  const leader = known(partition.leader) ? `broker ${partition.leader}` : null;
  const said = reason || condition.reason || "";
  return {
    ...partition,
    lag_s,
    key: `p:${number}:${topic}`,
    name,
    condition: condition.word,
    tone: condition.tone,
    cell: kind === "blocked" || kind === "free" ? kind : moving ? "moving" : `lag-${level}`,
    blocked: ofReason === "blocked",
    kind: moving ? "moving" : kind,
    leader,
    broker: partition.leader,
    reason: said,
    meaning: reason ? meaningOf(reason) : "",
    words: `${name} ${partition.worker ?? ""} ${leader ?? ""} ${state} ${condition.word} ${said}`.toLowerCase(),
  };
}

const byName = (a, b) => NATURAL.compare(a.topic, b.topic) || a.partition - b.partition;

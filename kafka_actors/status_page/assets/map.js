// The map of a job: brokers, connection actors, workers and partitions, by node.
"use strict";

const MOST_LABELLED = 120;
const MOST_TOPICS = 4;

function grouped(things, keyOf) {
  const groups = new Map();
  for (const thing of things) {
    const key = keyOf(thing);
    if (!groups.has(key)) groups.set(key, []);
    groups.get(key).push(thing);
  }
  return groups;
}

const stateOf = ({ ready, retiring }) => (retiring ? "retiring" : ready ? "ready" : "starting");

/** Actors other than workers: connection actors, control actors, and the brokers that the former are connected to. Where there are
 *  several nodes, the names of actors that each node has are followed by the beginning of the node's id. */
function actorsOf({ others, partitions }) {
  const several = new Set(others.map(({ node }) => node)).size > 1;
  const named = others.map((actor) => {
    const suffix = several && ["connection", "spare"].includes(actor.role) ? `@${(actor.node ?? "").slice(0, 8)}` : "";
    return { ...actor, name: actor.name + suffix, node: actor.node ?? "" };
  });
  const connections = named.filter(({ broker }) => known(broker));
  const leads = grouped(partitions, ({ leader }) => leader);
  const brokers = [...new Map(connections.map((actor) => [actor.broker, actor])).values()]
    .map(({ broker, host, port }) => ({ broker, host, port, leads: leads.get(broker)?.length ?? 0 }))
    .sort((a, b) => a.broker - b.broker);
  return { brokers, connections, control: named.filter(({ broker }) => !known(broker)) };
}

/** Brokers → connection actors → workers → partitions, each with a key. The one that is pointed at lights up all that it is joined to. */
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

  /** Title and note of a box. */
  wordsOf(key) {
    const { broker, connection, worker } = this.byKey.get(key) ?? {};
    const again = (restarts) => (restarts ? `, ${count(restarts, "restart")}` : "");
    if (broker) return { title: `broker ${broker.broker}`, note: `leads ${count(broker.leads, "partition")}` };
    if (connection) {
      const state = connection.ready ? `pid ${connection.pid ?? NOT_KNOWN}` : "not ready";
      // The name of its node is shown above the box.
      return { title: connection.name.split("@")[0], note: `broker ${connection.broker}, ${state}${again(connection.restarts)}`, off: !connection.ready };
    }
    if (worker) {
      const state = stateOf(worker) === "ready" ? rate(worker.records_per_s) : stateOf(worker);
      const busy = known(worker.busy) && worker.ready ? `, busy ${share(worker.busy)}` : "";
      return { title: worker.name, note: `${state}${busy}${again(worker.restarts)}`, off: !worker.ready, busy: worker.busy };
    }
    return { title: key.slice(2) || "without a worker", note: key.slice(2) ? "is gone" : "waiting to be given to one", off: true };
  }

  /** Lines of the tooltip for a key. */
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
        `${stateOf(worker)}, ${nodeName(worker.node)}, pid ${worker.pid ?? NOT_KNOWN}, ${count(worker.restarts, "restart")}`,
        `${count(worker.partitions.length, "partition")}, ${rate(worker.records_per_s)}, ${scaled(worker.value_bytes_per_s, "B/s")}, busy ${share(worker.busy)}`,
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

  // ------------------------------------------------ highlights

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

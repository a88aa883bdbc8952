// The table of partitions: sorted, searched, and one of them in full.
"use strict";

const COLUMNS = [
  { field: "name", title: "Partition", compare: byName },
  { field: "condition", title: "State" },
  { field: "lag", title: "Lag", number: true, text: whole },
  { field: "lag_s", title: "Behind", number: true, text: duration },
  { field: "position", title: "Position", number: true, text: whole },
  { field: "committed", title: "Committed", number: true, text: whole },
  { field: "end", title: "End", number: true, text: whole },
  { field: "worker", title: "Worker" },
  { field: "leader", title: "Leader" },
  { field: "reason", title: "Reason" },
];
const KINDS = [
  ["All", () => true],
  ["Blocked", (view) => view.blocked],
  ["Reading", (view) => view.kind === "reading"],
  ["At end", (view) => view.kind === "end"],
  ["Moving", (view) => view.kind === "moving"],
  ["No worker", (view) => view.kind === "free"],
];
const OVERSCAN = 6;

/** Table of all partitions. Only the visible rows and a few more exist; two empty rows take the space of the others. */
class PartitionTable {
  constructor(choose) {
    this.views = [];
    this.rows = [];
    this.pool = [];
    this.kind = 0;
    this.sort = { column: COLUMNS[0], down: false };
    this.height = 30;
    this.chosen = null;
    this.choose = choose;
    this.scroll = byId("scroll");
    this.body = byId("rows");
    this.space = [0, 1].map(() => {
      const row = element("tr", "space");
      row.setAttribute("aria-hidden", "true");
      const cell = element("td");
      cell.colSpan = COLUMNS.length;
      row.append(cell);
      return row;
    });
    this.body.append(...this.space);
    this.heads = COLUMNS.map((column) => this.head(column));
    byId("table-head").append(...this.heads);
    this.kinds = KINDS.map(([text], index) => button(text, index === 0, () => {
      this.kind = index;
      this.kinds.forEach((other, place) => other.setAttribute("aria-pressed", String(place === index)));
      this.again();
    }));
    byId("conditions").append(...this.kinds);
    byId("find").addEventListener("input", () => this.again());
    this.scroll.addEventListener("scroll", () => this.render(), { passive: true });
    window.addEventListener("resize", () => this.render());
    byId("chosen-close").addEventListener("click", () => choose(null));
  }

  head(column) {
    const made = element("th", `c-${column.field}${column.number ? " number" : ""}`);
    made.scope = "col";
    const inside = element("button", "", column.title);
    inside.type = "button";
    inside.addEventListener("click", () => {
      const down = this.sort.column === column ? !this.sort.down : Boolean(column.number);
      this.sort = { column, down };
      this.again();
    });
    made.append(inside);
    return made;
  }

  show(views) {
    this.views = views;
    this.kinds.forEach((node, index) => {
      const text = `${KINDS[index][0]} ${whole(views.filter(KINDS[index][1]).length)}`;
      say(node, text);
    });
    this.arrange();
  }

  /** Shows the rows from the top, after another search, sort or filter. */
  again() {
    this.scroll.scrollTop = 0;
    this.arrange();
  }

  arrange() {
    const words = byId("find").value.toLowerCase().split(/\s+/).filter(Boolean);
    const wanted = KINDS[this.kind][1];
    this.rows = this.views.filter((view) => wanted(view) && words.every((word) => view.words.includes(word)));
    const { column, down } = this.sort;
    const compare = column.compare ?? (column.number ? (a, b) => a[column.field] - b[column.field] : (a, b) => NATURAL.compare(a[column.field], b[column.field]));
    const empty = (view) => !known(view[column.field]) || view[column.field] === "";
    // Unknown values come last in both directions.
    this.rows.sort((a, b) => empty(a) - empty(b) || (empty(a) ? 0 : (down ? -1 : 1) * compare(a, b)) || byName(a, b));
    this.heads.forEach((head, index) => {
      if (COLUMNS[index] === column) head.setAttribute("aria-sort", down ? "descending" : "ascending");
      else head.removeAttribute("aria-sort");
    });
    const all = count(this.views.length, "partition");
    say(byId("found"), this.rows.length === this.views.length ? all : `${whole(this.rows.length)} of ${all}`);
    byId("table").setAttribute("aria-rowcount", String(this.rows.length + 1));
    this.render();
    this.showChosen();
  }

  render(once = false) {
    const fit = Math.ceil(window.innerHeight / this.height) + 2 * OVERSCAN;
    const first = Math.max(0, Math.min(Math.floor(this.scroll.scrollTop / this.height) - OVERSCAN, this.rows.length - fit));
    const shown = this.rows.slice(first, first + fit);
    while (this.pool.length < shown.length) {
      this.pool.push(this.row());
      this.space[1].before(this.pool.at(-1).node);
    }
    this.pool.splice(shown.length).forEach(({ node }) => node.remove());
    shown.forEach((view, index) => this.fill(this.pool[index], view, first + index));
    this.space[0].firstChild.style.height = `${first * this.height}px`;
    this.space[1].firstChild.style.height = `${(this.rows.length - first - shown.length) * this.height}px`;
    this.space[0].hidden = first === 0;
    this.space[1].hidden = first + shown.length === this.rows.length;
    const height = this.pool[0]?.node.getBoundingClientRect().height;
    if (!once && height && Math.abs(height - this.height) > 0.1) {
      this.height = height;
      this.render(true);
    }
  }

  row() {
    const node = element("tr");
    const cells = COLUMNS.map(({ field, number }) => {
      const cell = element("td", `c-${field}${number ? " number" : ""}`);
      node.append(cell);
      return cell;
    });
    const name = element("button");
    name.type = "button";
    name.append(element("span"), element("span"));
    const below = element("div", "sub");
    cells[0].append(name, below);
    cells[1].append(element("span", "badge"));
    const made = { node, cells, name, below, view: null };
    name.addEventListener("click", () => this.choose(made.view.key));
    return made;
  }

  fill(row, view, index) {
    row.view = view;
    row.node.setAttribute("aria-rowindex", String(index + 2));
    dress(row.node, view.key === this.chosen ? "chosen-row" : "");
    COLUMNS.forEach(({ field, text }, place) => {
      if (place > 1) say(row.cells[place], text ? text(view[field]) : (view[field] ?? NOT_KNOWN));
    });
    const [topic, number] = row.name.children;
    say(topic, view.topic);
    say(number, `-${view.partition}`);
    if (row.name.title !== view.name) row.name.title = view.name;
    say(row.below, `lag ${scaled(view.lag)}${view.reason ? `, ${view.reason}` : ""}`);
    badge(row.cells[1].firstChild, view.condition, view.tone);
    const last = row.cells.at(-1);
    const text = view.meaning && view.reason !== "at end" ? `${view.reason} (${view.meaning})` : view.reason;
    say(last, text);
    if (last.title !== text) last.title = text;
  }

  /** Shows one partition in full above the table, until it is closed. */
  showChosen() {
    const panel = byId("chosen");
    panel.hidden = this.chosen === null || !this.chosen.startsWith("p:");
    if (panel.hidden) return;
    const view = this.views.find(({ key }) => key === this.chosen);
    if (!view) {
      fillPairs(byId("chosen-pairs"), [["State", "no longer among this job's partitions"]]);
      return;
    }
    const waiting = known(view.position) && known(view.committed) ? Math.max(0, view.position - view.committed) : null;
    say(byId("chosen-name"), `${view.name}: ${view.condition}`);
    fillPairs(byId("chosen-pairs"), [
      ["Reason", view.reason, "wide"],
      ["Which means", view.meaning, "wide"],
      ["State", view.state],
      ["Lag", whole(view.lag)],
      ["Behind", duration(view.lag_s)],
      ["Position", whole(view.position)],
      ["Committed", whole(view.committed)],
      ["Not committed", whole(waiting)],
      ["End", whole(view.end)],
      ...windowPairs(view.window),
      ["Worker", view.worker ?? NOT_KNOWN],
      ["Leader", view.leader ?? NOT_KNOWN],
    ]);
  }
}

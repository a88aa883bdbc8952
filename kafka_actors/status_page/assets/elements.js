// Elements of the page. Texts of a job (names, errors) may hold anything, so they are set as text, never as HTML.
"use strict";

const byId = (id) => document.getElementById(id);

function element(tag, className = "", text = "") {
  const made = document.createElement(tag);
  if (className) made.className = className;
  if (text) made.textContent = text;
  return made;
}

function drawn(tag, attributes = {}, text = "") {
  const made = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  if (text) made.textContent = text;
  return made;
}

/** Sets a text only if it changed, so that selections stay and screen readers don't repeat it. */
function say(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

function dress(node, className) {
  if (node.className !== className) node.className = className;
}

function button(text, pressed, clicked) {
  const made = element("button", "", text);
  made.type = "button";
  made.setAttribute("aria-pressed", String(pressed));
  made.addEventListener("click", clicked);
  return made;
}

function badge(node, text, tone) {
  say(node, text);
  dress(node, `badge ${tone}`);
  node.hidden = !text;
}

/** Fills a `dl` with pairs of term and value; pairs without a value are left out. A third part of a pair is a class. */
function fillPairs(list, rows) {
  const there = rows.filter(([, text]) => known(text) && text !== "");
  const terms = there.map(([term]) => term).join("\n");
  if (list.dataset.terms !== terms) {
    list.dataset.terms = terms;
    list.replaceChildren(...there.map(([term, , className]) => {
      const pair = element("div", className);
      pair.append(element("dt", "", term), element("dd"));
      return pair;
    }));
  }
  const texts = list.querySelectorAll("dd");
  there.forEach(([, text], index) => say(texts[index], text));
}

/** Tooltip: a few lines beside the element that is pointed at. */
const tip = {
  node: byId("tip"),
  show(lines, target) {
    this.node.replaceChildren(...lines.filter(Boolean).map((line) => element("p", "", line)));
    this.node.hidden = false;
    this.node.style.left = "0";  // so that its width isn't limited while it is measured
    const { left, top, bottom } = target.getBoundingClientRect();
    const { offsetWidth: width, offsetHeight: height } = this.node;
    const room = document.documentElement.clientWidth - width - 8;
    const below = bottom + 6 + height < window.innerHeight || top < height + 6;
    this.node.style.left = `${Math.max(8, Math.min(left, room)) + window.scrollX}px`;
    this.node.style.top = `${(below ? bottom + 6 : top - height - 6) + window.scrollY}px`;
  },
  hide() {
    this.node.hidden = true;
  },
};

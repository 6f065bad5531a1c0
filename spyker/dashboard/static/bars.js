// Histograms as columns, and traffic per link as rows.

import { el, svgEl } from "./dom.js";
import { bytesText, countText, shortCount } from "./format.js";
import { serverColour } from "./theme.js";

const WIDE = 320;
const TALL = 165;
const FOOT = 18;

/** Stacked columns: `stacks` has one number per part for each column; `names` are the labels below. */
export class Columns {
  constructor(title, about) {
    this.title = title;
    this.drawing = svgEl("svg", { viewBox: `0 0 ${WIDE} ${TALL}`, role: "img", class: "columns", "aria-label": title });
    this.node = el("section", { class: "panel" }, el("h3", {}, title, el("span", { class: "about" }, about)), this.drawing);
  }

  show(stacks, names, parts, unit) {
    const key = JSON.stringify([stacks, names]);
    if (key === this.key) return;
    this.key = key;
    const highest = Math.max(1, ...stacks.map((stack) => sum(stack)));
    const wide = Math.min(46, WIDE / Math.max(1, stacks.length));
    const left = (WIDE - wide * stacks.length) / 2;
    const every = Math.ceil(stacks.length / 9);
    this.drawing.replaceChildren(svgEl("line", { x1: 0, x2: WIDE, y1: TALL - FOOT, y2: TALL - FOOT, class: "axis" }));
    stacks.forEach((stack, i) => {
      let y = TALL - FOOT;
      const total = sum(stack);
      const column = svgEl("g", {}, svgEl("title", {}, `${names[i]}: ${countText(total)} ${unit}`));
      stack.forEach((number, part) => {
        const height = (number / highest) * (TALL - FOOT - 16);
        if (!number) return;
        y -= height;
        const bar = svgEl("rect", { x: left + i * wide + 1.5, y, width: wide - 3, height, rx: 1.5, class: "bar" });
        bar.style.fill = parts > 1 ? serverColour(part) : "var(--accent)";
        column.append(bar);
      });
      const middle = left + (i + 0.5) * wide;
      if (wide > 26 && total) column.append(svgEl("text", { x: middle, y: y - 4, class: "number" }, shortCount(total)));
      if (i % every === 0) column.append(svgEl("text", { x: middle, y: TALL - 4, class: "name" }, names[i]));
      this.drawing.append(column);
    });
    const label = stacks.map((stack, i) => `${names[i]}: ${sum(stack)}`).join(", ");
    this.drawing.setAttribute("aria-label", `${this.title}. ${label}`);
  }
}

function sum(numbers) {
  return numbers.reduce((a, b) => a + b, 0);
}

/** Labels of the staleness histogram. */
export function stalenessColumns(staleness) {
  const last = Math.max(3, staleness.findLastIndex((number) => number > 0));
  const kept = staleness.slice(0, last + 1);
  return { stacks: kept.map((number) => [number]), names: kept.map((_, i) => (i ? `≤${shortCount(2 ** (i - 1))}` : "0")) };
}

/** Labels of the histogram of updates per client. */
export function countColumns({ low, step, regions }) {
  const stacks = (regions[0] ?? []).map((_, i) => regions.map((region) => region[i]));
  const names = stacks.map((_, i) => {
    const first = low + i * step;
    return step === 1 ? String(first) : `${first}–${first + step - 1}`;
  });
  return { stacks, names: step > 1 && names.length > 6 ? names.map((name) => name.split("–")[0]) : names };
}

const ROWS = 9;

/** Traffic per link, in descending order. */
export class LinkRows {
  constructor() {
    this.list = el("ol", { class: "links" });
    this.node = el("section", { class: "panel" },
      el("h3", {}, "Bytes per link", el("span", { class: "about" }, "messages with a model × their mean size")), this.list);
  }

  show(links) {
    const key = JSON.stringify(links);
    if (key === this.key) return;
    this.key = key;
    const most = Math.max(1, ...links.map((link) => link.bytes));
    const rows = links.slice(0, ROWS).map((link) => {
      const bar = el("i", { class: `way-${link.way}` });
      bar.style.width = `${(100 * link.bytes) / most}%`;
      return el("li", {}, el("span", { class: "ends" }, `${link.from} → ${link.to}`), el("span", { class: "track" }, bar),
        el("b", { title: `${countText(link.messages)} messages` }, bytesText(link.bytes)));
    });
    if (links.length > ROWS) {
      const rest = links.slice(ROWS).reduce((total, link) => total + link.bytes, 0);
      rows.push(el("li", { class: "rest" }, el("span", { class: "ends" }, `${links.length - ROWS} more links`),
        el("span"), el("b", {}, bytesText(rest))));
    }
    this.list.replaceChildren(...(rows.length ? rows : [el("li", { class: "none" }, "nothing yet")]));
  }
}

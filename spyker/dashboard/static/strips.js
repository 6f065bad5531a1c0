// One strip over time per server, shaded by value: for queues, whose lines would overlap.

import { el, fitCanvas } from "./dom.js";
import { ticks, tickText, timeText } from "./format.js";
import { colour, onTheme } from "./theme.js";

const NAME = 76;
const AXIS = 20;
const GAP = 3;

export class Strips {
  constructor(title, seek, about) {
    this.title = title;
    this.rows = [];
    this.canvas = el("canvas", { role: "img", "aria-label": title });
    this.cursor = el("div", { class: "cursor" });
    this.tip = el("div", { class: "tip", hidden: true });
    this.holder = el("div", { class: "plot strips" }, this.canvas, this.cursor, this.tip);
    this.most = el("span", { class: "about" });
    this.node = el("section", { class: "panel chart" }, el("h3", {}, title, el("span", { class: "about" }, about), this.most), this.holder);
    fitCanvas(this.canvas, this.holder, (width, height) => {
      Object.assign(this, { width, height });
      this.draw();
    });
    onTheme(() => this.draw());
    const time = (event) => ((event.clientX - this.canvas.getBoundingClientRect().left - NAME) / (this.width - NAME)) * this.end;
    this.canvas.addEventListener("click", (event) => seek(Math.max(0, time(event))));
    this.canvas.addEventListener("pointermove", (event) => this.#read(time(event), event));
    this.canvas.addEventListener("pointerleave", () => (this.tip.hidden = true));
  }

  show(rows, times, end) {
    Object.assign(this, { rows, times, end });
    this.largest = Math.max(1, ...rows.map((row) => row.values.reduce((a, b) => Math.max(a, b), 0)));
    const label = rows.map((row) => `${row.name} at most ${row.values.reduce((a, b) => Math.max(a, b), 0)}`).join(", ");
    this.canvas.setAttribute("aria-label", `${this.title}: ${label}`);
    this.most.textContent = `at most ${this.largest}`;
    this.draw();
  }

  draw() {
    if (!this.width || !this.rows.length) return;
    const pen = this.canvas.getContext("2d");
    pen.clearRect(0, 0, this.width, this.height);
    pen.font = "11px " + colour("font");
    const tall = (this.height - AXIS) / this.rows.length;
    const wide = this.width - NAME;
    this.rows.forEach((row, i) => {
      const y = i * tall;
      pen.globalAlpha = 1;
      pen.fillStyle = colour("grid");
      pen.fillRect(NAME, y, wide, Math.max(1, tall - GAP));
      pen.fillStyle = row.colour();
      let from = 0;
      row.values.forEach((value, k) => {
        const to = this.times[k];
        if (value) {
          pen.globalAlpha = 0.15 + (0.85 * value) / this.largest;
          const x = NAME + (from / this.end) * wide;
          pen.fillRect(x, y, Math.max(1, NAME + (to / this.end) * wide - x), Math.max(1, tall - GAP));
        }
        from = to;
      });
      pen.globalAlpha = 1;
      if (tall < 11) return;
      pen.fillStyle = colour("quiet");
      pen.textAlign = "left";
      pen.textBaseline = "middle";
      pen.fillText(row.name.length > 11 ? `${row.name.slice(0, 10)}…` : row.name, 0, y + (tall - GAP) / 2);
    });
    pen.fillStyle = colour("quiet");
    pen.textAlign = "center";
    pen.textBaseline = "top";
    for (const t of ticks(0, this.end, Math.max(2, Math.floor(wide / 90)))) {
      const x = NAME + (t / this.end) * wide;
      if (x < this.width - 8) pen.fillText(t === 0 ? "0 s" : tickText(t), Math.max(x, NAME + 8), this.height - AXIS + 5);
    }
    this.at(this.now ?? 0);
  }

  /** Move the cursor to the page's time. */
  at(t) {
    this.now = t;
    const x = NAME + (t / (this.end || 1)) * (this.width - NAME);
    this.cursor.style.transform = `translateX(${x.toFixed(1)}px)`;
  }

  #read(t, event) {
    const at = this.times?.findIndex((end) => end >= t) ?? -1;
    const row = this.rows[Math.floor(event.offsetY / ((this.height - AXIS) / this.rows.length))];
    this.tip.hidden = at < 0 || !row || t < 0;
    if (this.tip.hidden) return;
    this.tip.replaceChildren(el("b", {}, timeText(t, 2)), el("div", {}, `${row.name}: ${row.values[at]}`));
    const right = event.offsetX > this.width / 2;
    this.tip.style.left = right ? "" : `${event.offsetX + 12}px`;
    this.tip.style.right = right ? `${this.width - event.offsetX + 12}px` : "";
  }
}

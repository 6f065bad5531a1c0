// Line charts over time: a canvas with axes, a legend whose entries can be switched off, a cursor at the page's time, and
// values at the position of the pointer or the arrow keys.

import { el, fitCanvas, setText } from "./dom.js";
import { ticks, tickText, timeText, valueText } from "./format.js";
import { colour, onTheme } from "./theme.js";

const EDGE = { left: 46, right: 12, top: 10, bottom: 22 };
const LINE = 13; // pixels from one label to the next

export class LineChart {
  /** `log` selects a logarithmic axis; `seek` is called with the time of a click. */
  constructor(title, { log = false, zero = false, seek = null, about = "" } = {}) {
    Object.assign(this, { title, log, zero, seek });
    this.lines = [];
    this.levels = [];
    this.hidden = new Set();
    this.zoom = null;
    this.hover = null;
    this.right = EDGE.right; // larger if levels have labels
    this.canvas = el("canvas", { tabindex: "0", role: "img", "aria-label": title });
    this.cursor = el("div", { class: "cursor" });
    this.tip = el("div", { class: "tip", hidden: true });
    this.holder = el("div", { class: "plot" }, this.canvas, this.cursor, this.tip);
    this.legend = el("div", { class: "legend" });
    this.node = el("section", { class: "panel chart" },
      el("h3", {}, title, about ? el("span", { class: "about" }, about) : null), this.holder, this.legend);
    fitCanvas(this.canvas, this.holder, (width, height) => {
      this.width = width;
      this.height = height;
      this.draw();
    });
    onTheme(() => {
      this.#drawLegend();
      this.draw();
    });
    this.#listen();
  }

  /** Lines are { name, colour(), t, values, width, dash, band }, levels { value, name }. */
  show(lines, levels = [], end = null) {
    const names = (all) => all.map((line) => line.name).join("\n");
    const same = names(lines) === names(this.lines);
    this.lines = lines;
    this.levels = levels;
    this.end = end;
    if (!same) this.#drawLegend();
    this.#label();
    this.draw();
  }

  #label() {
    const label = this.lines
      .filter((line) => line.name)
      .map((line) => `${line.name} ${valueText(line.values.findLast((value) => value != null))}`);
    this.canvas.setAttribute("aria-label", `${this.title}; newest: ${label.join(", ")}. Arrow keys read along the time.`);
  }

  #drawLegend() {
    this.legend.replaceChildren(
      ...this.lines.filter((line) => line.name && !line.quiet).map((line) => {
        const key = el("span", { class: line.dash ? "key dashed" : "key" });
        key.style.setProperty("--key", line.colour());
        return el("button", {
          type: "button",
          "aria-pressed": String(!this.hidden.has(line.name)),
          onclick: (event) => {
            if (!this.hidden.delete(line.name)) this.hidden.add(line.name);
            event.currentTarget.setAttribute("aria-pressed", String(!this.hidden.has(line.name)));
            this.draw();
          },
        }, key, line.name);
      }),
    );
  }

  #shown() {
    return this.lines.filter((line) => !this.hidden.has(line.name));
  }

  #scales() {
    const lines = this.#shown();
    const last = Math.max(1e-3, this.end ?? 0, ...lines.map((line) => line.t.at(-1) ?? 0));
    const [x0, x1] = this.zoom ?? [0, last];
    let [low, high] = [Infinity, -Infinity];
    const look = (value) => {
      if (value == null || (this.log && value <= 0)) return;
      low = Math.min(low, value);
      high = Math.max(high, value);
    };
    for (const line of lines) {
      line.t.forEach((t, i) => t >= x0 && t <= x1 && look(line.values[i]));
    }
    for (const level of this.levels) look(level.value);
    if (this.zero) look(0);
    if (low > high) [low, high] = this.log ? [1, 10] : [0, 1];
    if (this.log) {
      [low, high] = [Math.log10(low) - 0.05, Math.log10(high) + 0.05];
    } else {
      const room = (high - low || Math.abs(high) || 1) * 0.06;
      [low, high] = [this.zero ? low : low - room, high + room];
    }
    const { left, top, bottom } = EDGE;
    const wide = this.width - left - this.right;
    const tall = this.height - top - bottom;
    const scaled = (value) => (this.log ? Math.log10(Math.max(value, 1e-12)) : value);
    return {
      x0, x1, low, high,
      x: (t) => left + ((t - x0) / (x1 - x0 || 1)) * wide,
      y: (value) => top + (1 - (scaled(value) - low) / (high - low || 1)) * tall,
      time: (x) => x0 + ((x - left) / wide) * (x1 - x0),
    };
  }

  draw() {
    if (!this.width) return;
    const pen = this.canvas.getContext("2d");
    pen.font = "11px " + colour("font");
    const { left, top, bottom } = EDGE;
    const right = (this.right = EDGE.right + Math.max(0, ...this.levels.map(({ name }) => pen.measureText(name).width)));
    const scale = (this.scale = this.#scales());
    pen.clearRect(0, 0, this.width, this.height);
    pen.lineWidth = 1;
    pen.strokeStyle = colour("grid");
    pen.fillStyle = colour("quiet");
    pen.textBaseline = "middle";
    pen.textAlign = "right";
    const wanted = Math.max(2, Math.floor(this.height / 44));
    let rows = ticks(scale.low, scale.high, wanted);
    if (this.log) rows = rows.map((power) => 10 ** power);
    for (const value of rows) {
      const y = Math.round(scale.y(value)) + 0.5;
      stroke(pen, [[left, y], [this.width - right, y]]);
      pen.fillText(this.log ? valueText(value) : tickText(value), left - 6, y);
    }
    pen.textAlign = "center";
    pen.textBaseline = "top";
    for (const t of ticks(scale.x0, scale.x1, Math.max(2, Math.floor(this.width / 90)))) {
      pen.fillText(t === 0 ? "0 s" : tickText(t), scale.x(t), this.height - bottom + 7);
    }
    pen.save();
    pen.beginPath();
    pen.rect(left, top - 4, this.width - left - right + 2, this.height - top - bottom + 8);
    pen.clip();
    for (const line of this.#shown()) this.#drawLine(pen, line, scale);
    pen.restore();
    pen.textAlign = "left";
    pen.textBaseline = "middle";
    let free = Infinity; // each label at its line, or above the previous label
    for (const level of this.levels.toSorted((a, b) => a.value - b.value)) {
      const y = Math.round(scale.y(level.value)) + 0.5;
      pen.strokeStyle = pen.fillStyle = colour("quiet");
      pen.setLineDash([2, 3]);
      stroke(pen, [[left, y], [this.width - right, y]]);
      pen.setLineDash([]);
      free = Math.min(y, free);
      pen.fillText(level.name, this.width - right + 5, free);
      free -= LINE;
    }
    this.#place();
  }

  #drawLine(pen, line, scale) {
    pen.strokeStyle = line.colour();
    pen.lineWidth = line.width ?? 1.5;
    pen.lineJoin = "round";
    pen.setLineDash(line.dash ?? []);
    let run = [];
    const ends = [];
    line.t.forEach((t, i) => {
      if (line.values[i] == null) {
        ends.push(run);
        run = [];
      } else run.push([scale.x(t), scale.y(line.values[i])]);
    });
    ends.push(run);
    if (line.area && run.length > 1) {
      pen.fillStyle = line.colour();
      pen.globalAlpha = 0.12;
      pen.beginPath();
      run.forEach(([x, y]) => pen.lineTo(x, y));
      pen.lineTo(run.at(-1)[0], scale.y(0));
      pen.lineTo(run[0][0], scale.y(0));
      pen.fill();
    }
    pen.globalAlpha = line.alpha ?? 1;
    for (const points of ends) {
      if (points.length === 1) pen.fillRect(points[0][0] - 1, points[0][1] - 1, 2, 2);
      else stroke(pen, points);
    }
    pen.globalAlpha = 1;
    pen.setLineDash([]);
  }

  /** Move the cursor to the page's time. */
  at(t) {
    this.now = t;
    this.#place();
  }

  #place() {
    const shown = this.scale && this.now >= this.scale.x0 && this.now <= this.scale.x1;
    this.cursor.hidden = !shown;
    if (shown) this.cursor.style.transform = `translateX(${this.scale.x(this.now).toFixed(1)}px)`;
  }

  #listen() {
    let from = null;
    const canvas = this.canvas;
    const time = (event) => this.scale.time(event.clientX - canvas.getBoundingClientRect().left);
    canvas.addEventListener("pointerdown", (event) => {
      from = time(event);
      canvas.setPointerCapture(event.pointerId);
    });
    canvas.addEventListener("pointermove", (event) => this.#read(time(event)));
    canvas.addEventListener("pointerup", (event) => {
      const to = time(event);
      const wide = Math.abs(this.scale.x(to) - this.scale.x(from ?? to));
      if (wide > 12) {
        this.zoom = [Math.max(0, Math.min(from, to)), Math.max(from, to)];
        this.draw();
      } else this.seek?.(Math.max(0, to));
      from = null;
    });
    canvas.addEventListener("dblclick", () => {
      this.zoom = null;
      this.draw();
    });
    canvas.addEventListener("pointerleave", () => this.#read(null));
    canvas.addEventListener("blur", () => this.#read(null));
    canvas.addEventListener("keydown", (event) => {
      const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
      if (event.key === "Escape") this.zoom = null;
      if (event.key === "Enter" && this.hover != null) this.seek?.(this.hover);
      else if (step) {
        const all = [...new Set(this.#shown().flatMap((line) => line.t))].sort((a, b) => a - b);
        const at = this.hover ?? this.now ?? 0;
        const next = step > 0 ? all.find((t) => t > at + 1e-9) : all.findLast((t) => t < at - 1e-9);
        if (next != null) this.#read(next);
      } else return;
      event.preventDefault();
      event.stopPropagation();
      this.draw();
    });
    canvas.title = "Click: go to this time. Drag: zoom in. Double click: zoom out.";
  }

  #read(t) {
    this.hover = t;
    this.tip.hidden = t == null || !this.scale;
    if (this.tip.hidden) return;
    const rows = this.#shown().filter((line) => line.name).map((line) => {
      const at = nearest(line.t, t);
      return { line, at, value: line.values[at] };
    });
    this.tip.replaceChildren(
      el("b", {}, timeText(Math.max(0, t), 2)),
      ...rows.slice(0, 12).map(({ line, value }) => {
        const key = el("span", { class: "key" });
        key.style.setProperty("--key", line.colour());
        return el("div", {}, key, `${line.name} `, el("b", {}, valueText(value)));
      }),
    );
    const x = this.scale.x(t);
    const right = x > this.width / 2;
    this.tip.style.left = right ? "" : `${x + 12}px`;
    this.tip.style.right = right ? `${this.width - x + 12}px` : "";
    this.canvas.setAttribute("aria-description", this.tip.textContent);
  }
}

function stroke(pen, points) {
  pen.beginPath();
  points.forEach(([x, y]) => pen.lineTo(x, y));
  pen.stroke();
}

function nearest(times, t) {
  let [low, high] = [0, times.length - 1];
  while (high - low > 1) {
    const middle = (low + high) >> 1;
    if (times[middle] <= t) low = middle;
    else high = middle;
  }
  return high >= 0 && Math.abs((times[high] ?? Infinity) - t) < Math.abs(times[low] - t) ? high : Math.max(0, low);
}

/** A labelled number in large type. */
export class Tile {
  constructor(name) {
    this.value = el("b", {}, "–");
    this.node = el("div", { class: "tile" }, el("span", {}, name), this.value);
  }

  set(text) {
    setText(this.value, text);
  }
}

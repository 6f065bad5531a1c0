// Playback controls: play, step, slider, speed and keys, shared by all runs of the page.

import { announce, el, setText } from "./dom.js";
import { timeText } from "./format.js";

const SPEEDS = [0.02, 0.05, 0.1, 0.25, 0.5, 1, 2, 4, 8, 16];
const STEPS = 10_000; // of the slider
const LAG = 0.3; // seconds of the run, at least
const REAL_LAG = 1.5; // in deployments, with the delay of the page's updates
const CATCH_UP = 0.7; // seconds in which a live page reaches the newest time

export class Transport {
  constructor(playbacks, { live }) {
    this.playbacks = playbacks;
    this.t = 0;
    this.speed = 0.25;
    this.playing = false;
    this.following = live;
    this.busy = false;
    this.play = button("play", "Play", "space", () => this.toggle());
    this.back = button("back", "Previous event", "←", () => this.step(-1));
    this.forward = button("forward", "Next event", "→", () => this.step(1));
    this.slider = el("input", {
      type: "range", min: 0, max: STEPS, value: 0, step: 1, "aria-label": "Time", class: "time",
      oninput: () => this.seek((this.slider.value / STEPS) * this.end),
    });
    this.marks = el("div", { class: "marks", "aria-hidden": "true" });
    this.clock = el("output", { class: "clock" }, timeText(0));
    this.rate = el("select", { "aria-label": "Speed", title: "Speed (+ and −)", onchange: () => (this.speed = Number(this.rate.value)) },
      ...SPEEDS.map((speed) => el("option", { value: speed, selected: speed === this.speed }, `${speed} ×`)));
    this.live = el("button", { type: "button", class: "live-button", "aria-pressed": "false", title: "Latest state (l)",
      onclick: () => this.follow() }, "live");
    this.live.hidden = !live;
    this.node = el("div", { class: "transport", role: "group", "aria-label": "Playback" },
      el("div", { class: "buttons" }, this.back, this.play, this.forward), this.clock,
      (this.slide = el("div", { class: "slide" }, this.marks, this.slider)), this.rate, this.live);
    this.over = new AbortController();
    document.addEventListener("keydown", (event) => this.#key(event), { signal: this.over.signal });
    this.#show();
  }

  /** Stop, because another instance has replaced this one. */
  leave() {
    this.over.abort();
  }

  get end() {
    return Math.max(0.001, ...this.playbacks.map((playback) => playback.end));
  }

  /** Prefetched seconds of the run. */
  get ahead() {
    return this.following ? this.#lag : this.playing ? 2.5 * this.speed : 0;
  }

  /** Delay of a live page: messages in flight are known only after their arrival. */
  get #lag() {
    const running = this.playbacks.filter((one) => one.timeline && !one.timeline.finished);
    const least = running.some((one) => one.info.world === "deployed") ? REAL_LAG : LAG;
    return running.length ? Math.max(least, ...running.flatMap((one) => one.info.latency.flat())) : 0;
  }

  seek(t) {
    this.following = false;
    this.#go(t);
  }

  #go(t) {
    this.t = Math.max(0, Math.min(t, this.end));
    for (const playback of this.playbacks) playback.seek(this.t, this.ahead);
    this.#show();
  }

  toggle() {
    this.following = false;
    this.playing = !this.playing;
    if (this.playing && this.t >= this.end - 1e-9) this.t = 0;
    this.#show();
  }

  follow() {
    this.following = true;
    this.playing = false;
    this.#show();
  }

  /** Step one event forwards or backwards, in the run where it happens first. */
  async step(direction) {
    if (this.busy) return;
    this.busy = true;
    this.playing = this.following = false;
    try {
      const times = await Promise.all(this.playbacks.map((one) => (direction > 0 ? one.next() : one.previous())));
      const known = times.filter((t) => t != null);
      if (!known.length) return;
      const first = times.indexOf(direction > 0 ? Math.min(...known) : Math.max(...known));
      const playback = this.playbacks[first];
      const event = direction > 0 ? playback.window.events[playback.index + 1] : playback.window.events[playback.index];
      if (direction > 0) playback.forward();
      else playback.back();
      this.t = playback.t;
      this.playbacks.forEach((other) => other !== playback && other.seek(this.t, 0));
      announce(direction > 0 ? `${timeText(event.t)}: ${event.text}` : `undone: ${event.text}`);
    } finally {
      this.busy = false;
      this.#show();
    }
  }

  /** Advance the time. */
  frame(elapsed) {
    if (this.busy) return;
    if (this.following) {
      const goal = Math.max(0, this.end - this.#lag);
      const share = 1 - Math.exp(-elapsed / (0.4 * CATCH_UP));
      if (goal < this.t || goal - this.t > 0.5 * this.end + 5) this.#go(goal);
      else this.#go(goal - this.t < 1e-4 ? goal : this.t + share * (goal - this.t));
    } else if (this.playing) {
      this.#go(this.t + elapsed * this.speed);
      if (this.t >= this.end) this.playing = false;
      this.#show();
    }
  }

  /** Mark token arrivals and concerns on the slider. */
  mark() {
    const end = this.end;
    const marks = this.playbacks.flatMap((playback) => playback.timeline?.marks ?? []).slice(0, 600);
    const stretches = this.playbacks.filter(({ source }) => source.stretch).map(({ source, info }) => {
      const [from, to] = source.stretch(info.id);
      const stretch = el("i", { class: "stretch", title: `Every event from ${timeText(Math.max(0, from), 2)} to ${timeText(to, 2)}` });
      stretch.style.left = `${(100 * Math.max(0, from)) / end}%`;
      stretch.style.width = `${(100 * (to - Math.max(0, from))) / end}%`;
      return stretch;
    });
    this.marks.replaceChildren(...stretches, ...marks.map(([t, kind]) => {
      const mark = el("i", { class: kind });
      mark.style.left = `${(100 * t) / end}%`;
      return mark;
    }));
  }

  #show() {
    setText(this.clock, timeText(this.t));
    this.slider.value = Math.round((this.t / this.end) * STEPS);
    this.slider.setAttribute("aria-valuetext", timeText(this.t));
    this.slide.dataset.end = this.end;
    this.play.classList.toggle("on", this.playing);
    this.play.setAttribute("aria-label", this.playing ? "Pause" : "Play");
    this.live.setAttribute("aria-pressed", String(this.following));
  }

  #key(event) {
    const typing = /^(INPUT|SELECT|TEXTAREA|BUTTON)$/.test(event.target.tagName) && event.target !== this.slider;
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const speed = SPEEDS.indexOf(this.speed);
    const actions = {
      " ": () => !typing && (this.toggle(), true),
      ArrowRight: () => !typing && (this.step(1), true),
      ArrowLeft: () => !typing && (this.step(-1), true),
      Home: () => !typing && (this.seek(0), true),
      End: () => !typing && (this.seek(this.end), true),
      l: () => !this.live.hidden && (this.follow(), true),
      "+": () => this.#pace(SPEEDS[speed + 1]),
      "-": () => this.#pace(SPEEDS[speed - 1]),
      d: () => (document.getElementById("theme").click(), true),
    };
    if (actions[event.key]?.()) event.preventDefault();
  }

  #pace(speed) {
    if (!speed) return false;
    this.speed = speed;
    this.rate.value = String(speed);
    return true;
  }
}

function button(name, label, key, act) {
  return el("button", { type: "button", class: name, "aria-label": label, title: `${label} (${key})`, onclick: act });
}

// The page: lists its runs, shows them side by side and synchronises their time.

import { LineChart } from "./chart.js";
import { announce, el, setText } from "./dom.js";
import { capital } from "./format.js";
import { RunPanels } from "./panels.js";
import { Playback } from "./playback.js";
import { FileSource, NetworkSource } from "./source.js";
import { runColour, startTheme } from "./theme.js";
import { Transport } from "./transport.js";

const REFRESH_MS = 600; // between two refreshes of a run in progress

class App {
  constructor(source) {
    this.source = source;
    this.main = document.getElementById("runs");
    this.foot = document.getElementById("transport");
    this.status = document.getElementById("status");
    this.news = {};
    this.playbacks = [];
    this.seen = {};
    startTheme(document.getElementById("theme"));
  }

  async start() {
    await this.build();
    if (this.source.live) {
      this.source.listen((news) => this.heard(news), () => this.lost());
    }
    let before = performance.now();
    const frame = (stamp) => {
      requestAnimationFrame(frame); // even if this one fails
      const elapsed = Math.min(0.25, (stamp - before) / 1000);
      before = stamp;
      if (this.transport) {
        this.transport.frame(elapsed);
        const speed = this.transport.following ? 1 : this.transport.speed;
        for (const panel of this.panels) panel.frame(this.transport.t, speed, stamp);
        this.compared?.at(this.transport.t);
      }
    };
    requestAnimationFrame(frame);
  }

  async build() {
    const { life, changes, runs } = await this.source.runs();
    this.life = life;
    this.changes = changes;
    const playbacks = runs.map((info) => new Playback(this.source, info));
    await Promise.all(playbacks.map((playback) => playback.load()));
    const running = playbacks.some((playback) => !playback.timeline.finished);
    const kept = this.playbacks.length ? this.transport : null; // keeps the time that the user has selected
    this.transport?.leave();
    const seek = (t) => this.transport.seek(t);
    this.playbacks = playbacks;
    this.transport = new Transport(playbacks, { live: running && this.source.live });
    this.panels = playbacks.map((playback) => new RunPanels(playback, seek));
    this.compared = null;
    const shown = this.panels.map((panel) => panel.node);
    const side = playbacks.length > 1 ? [el("div", { class: "side" }, ...shown)] : shown;
    if (playbacks.length > 1) {
      this.compared = new LineChart(`${capital(playbacks[0].info.metric)}, mean`, {
        log: playbacks[0].info.metric === "perplexity", seek,
      });
      this.compared.node.classList.add("compared");
      side.unshift(this.compared.node);
    }
    this.main.className = playbacks.length > 1 ? "many" : "one";
    this.main.replaceChildren(...side);
    this.foot.replaceChildren(this.transport.node);
    this.refresh();
    const stretch = playbacks.length ? this.source.stretch?.(playbacks[0].info.id) : null;
    this.transport.seek(kept && !kept.following ? kept.t : stretch ? Math.max(0, stretch[0]) : this.transport.end);
    if (running && this.source.live && !(kept && !kept.following)) this.transport.follow();
    this.say();
    document.body.dataset.ready = playbacks.length;
  }

  refresh() {
    for (const panel of this.panels) panel.timeline();
    this.transport.mark();
    this.compared?.show(this.playbacks.map(({ info, timeline }) => ({
      name: info.label, colour: () => runColour(info), width: 2,
      t: timeline.scores.map((point) => point[0]), values: timeline.scores.map((point) => point[1]),
    })), [], this.transport.end);
  }

  /** Handle the server's progress events: fetch changed runs, at a limited rate. */
  async heard(news) {
    this.news = news;
    document.body.classList.remove("lost");
    this.say(news.problem ?? undefined, Boolean(news.problem));
    if (this.hearing) return;
    this.hearing = true;
    try {
      if (this.news.life !== this.life || this.news.changes !== this.changes) {
        await this.build();
        announce("The runs on this page have changed.");
      }
      let fetched = false;
      for (const playback of this.playbacks) {
        const changes = this.news.runs[playback.info.id]?.[0];
        if (changes != null && changes !== playback.timeline.changes) {
          await playback.load();
          fetched = true;
        }
      }
      if (fetched) this.refresh();
    } catch {
      this.lost();
    }
    setTimeout(() => {
      this.hearing = false;
      const behind = this.playbacks.some(({ info, timeline }) => (this.news.runs?.[info.id]?.[0] ?? timeline.changes) !== timeline.changes);
      if (behind || this.news.changes !== this.changes) this.heard(this.news);
    }, REFRESH_MS);
  }

  lost() {
    document.body.classList.add("lost");
    this.say("The dashboard server does not respond.", true);
  }

  /** Show what the page waits for, if there is no run yet. */
  say(text = this.playbacks.length ? "" : "No run yet. It appears here as soon as it starts.", bad = false) {
    setText(this.status, text);
    this.status.hidden = !text;
    this.status.classList.toggle("bad", bad);
  }
}

const held = document.getElementById("data");
const app = new App(held ? new FileSource(JSON.parse(held.textContent)) : new NetworkSource());
app.start().catch((error) => app.say(`The dashboard failed to load: ${error.message}`, true));

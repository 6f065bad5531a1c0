// The event log: descriptions of the events before the current time, newest first.

import { el, setText } from "./dom.js";
import { timeText } from "./format.js";

const ROWS = 60;
const SAME = 1e-4; // seconds between events that a deployed server writes together
const GROUPS = {
  update: ["update", "report"],
  exchange: ["token", "sync", "merge", "announce", "cloud-round"],
  round: ["round"],
  score: ["evaluation"],
};

function groupOf(kind) {
  return Object.keys(GROUPS).find((group) => GROUPS[group].includes(kind)) ?? "other";
}

function sameRound(event, before) {
  return before?.kind === "update" && before.server === event.server && event.t - before.t < SAME;
}

export class EventLog {
  constructor(seek) {
    this.hidden = new Set();
    this.rows = Array.from({ length: ROWS }, () => {
      const row = { time: el("time"), text: el("span") };
      row.node = el("li", { hidden: true, onclick: () => row.t != null && seek(row.t) }, row.time, row.text);
      return row;
    });
    const chips = ["update", "exchange", "round", "score", "other"].map((group) =>
      el("button", {
        type: "button",
        class: `chip is-${group}`,
        "aria-pressed": "true",
        onclick: (event) => {
          if (!this.hidden.delete(group)) this.hidden.add(group);
          event.currentTarget.setAttribute("aria-pressed", String(!this.hidden.has(group)));
          this.show(this.playback, true);
        },
      }, { update: "updates", exchange: "exchange", round: "rounds", score: "scores", other: "others" }[group]));
    this.note = el("p", { class: "note", hidden: true });
    this.node = el("section", { class: "panel log" },
      el("h3", {}, "Events", el("span", { class: "chips", role: "group", "aria-label": "Which events" }, ...chips)),
      this.note, el("ol", { "aria-label": "Events before this time, newest first" }, ...this.rows.map((row) => row.node)));
  }

  show(playback, again = false) {
    this.playback = playback;
    const window = playback.window;
    if (!window || (!again && this.seen === window && this.index === playback.index)) return;
    this.seen = window;
    this.index = playback.index;
    this.note.hidden = window.every === 1;
    setText(this.note, window.every === 0 ? "The report contains the events of the replayed interval only." :
      `One update in ${window.every} is shown. Step, or play slower, to see all.`);
    let used = 0;
    for (let i = playback.index; i >= 0 && used < ROWS; i--) {
      const event = window.events[i];
      const group = groupOf(event.kind);
      if (this.hidden.has(group)) continue;
      let alike = 1; // a round's updates are one line
      while (event.kind === "update" && sameRound(event, window.events[i - 1])) [i, alike] = [i - 1, alike + 1];
      const row = this.rows[used++];
      row.t = event.t;
      setText(row.time, timeText(event.t));
      setText(row.text, alike > 1 ? `${playback.info.servers[event.server]?.name ?? `server ${event.server}`} took ${alike} updates` : event.text);
      row.node.className = `is-${group} kind-${/^[a-z-]+$/.test(event.kind) ? event.kind : "other"}`;
      row.node.hidden = false;
    }
    for (; used < ROWS; used++) this.rows[used].node.hidden = true;
  }
}

// All panels of one run.

import { Columns, LinkRows, countColumns, stalenessColumns } from "./bars.js";
import { LineChart, Tile } from "./chart.js";
import { el, setText } from "./dom.js";
import { bytesText, capital, countText, tickText, timeText, valueText } from "./format.js";
import { EventLog } from "./log.js";
import { WorldMap } from "./map.js";
import { SERVER } from "./playback.js";
import { Strips } from "./strips.js";
import { colour, runColour, serverColour } from "./theme.js";

const DETAILS_MS = 500; // between two updates of the distributions
const NO_ANSWER_MS = 5000; // additional, after a failed request
const LOG_MS = 250; // between two updates of the event log
const NUMBERS_MS = 100; // between two updates of the numbers
const LINES = 12; // servers that get a line each in a chart

export class RunPanels {
  constructor(playback, seek) {
    this.playback = playback;
    const info = (this.info = playback.info);
    const metric = info.metric;
    this.map = new WorldMap(info);
    this.tiles = {
      score: new Tile(`${metric}, mean`),
      updates: new Tile("updates"),
      syncs: new Tile(info.servers.some((server) => server.clients == null) ? "cloud rounds" : "exchanges"),
      bytes: new Tile("sent"),
      spread: new Tile("spread of ages"),
    };
    if (info.servers.length < 2) delete this.tiles.spread;
    this.score = new LineChart(capital(metric), { log: metric === "perplexity", seek });
    this.ages = new LineChart("Ages", { zero: true, seek });
    this.spread = new LineChart("Spread of ages", { zero: true, seek, about: "highest age minus lowest" });
    this.queues = new Strips("Queues", seek, "longest; darker is longer");
    this.staleness = new Columns("Staleness", "updates by staleness");
    this.counts = new Columns("Updates per client", "clients by number of applied updates");
    this.links = new LinkRows();
    this.log = new EventLog(seek);
    this.servers = new ServerTable(info);
    this.concerns = new Concerns();
    this.byClients = new ClientEvaluations(info);
    this.badge = el("span", { class: "badge" });
    const swatch = el("span", { class: "swatch" });
    swatch.style.background = runColour(info);
    const facts = [info.task, `${countText(info.clients)} clients`, `seed ${info.seed}`, info.world];
    if (info.part != null) facts.push(info.parts > 1 ? `${info.parts} records` : `server ${info.part}’s record`);
    this.node = el("article", { class: "run", "aria-label": info.label },
      el("header", { class: "run-head" }, swatch, el("h2", {}, info.label), this.badge,
        el("span", { class: "run-facts", title: info.folder }, facts.join(" · "))),
      el("div", { class: "tiles" }, ...Object.values(this.tiles).map((tile) => tile.node)),
      el("section", { class: "panel map-panel" }, this.map.node, legend(info)),
      this.score.node,
      ...(info.servers.length > 1 ? [this.ages.node, this.spread.node] : [this.ages.node]),
      this.servers.node, this.log.node, this.byClients.node, this.concerns.node,
      this.queues.node, this.staleness.node, this.counts.node, this.links.node);
    this.shownDetails = this.shownNumbers = this.shownLog = 0;
  }

  /** Update all series, for a new or a longer run. */
  timeline() {
    const { timeline, info } = this.playback;
    if (!timeline) return;
    const end = Math.max(timeline.end, timeline.finished ? 0 : info.duration ?? 0);
    const learners = info.servers.filter((server) => server.clients != null);
    const many = learners.length > LINES;
    const times = timeline.scores.map((point) => point[0]);
    const column = (i) => timeline.scores.map((point) => point[i]);
    const each = (values) => learners.map((server) => ({
      name: server.name, quiet: many, colour: () => serverColour(server.region), alpha: many ? 0.35 : 0.9, width: 1.3, ...values(server),
    }));
    const scores = learners.length > 1 ? each((server) => ({ t: times, values: column(3 + server.id) })) : [];
    scores.push({ name: learners.length > 1 ? "mean" : info.metric, colour: () => colour("ink"), width: 2.4, t: times, values: column(1) });
    if (learners.length > 1 && timeline.scores.some((point) => point[2] != null)) {
      scores.push({ name: "averaged model", colour: () => colour("ink"), dash: [5, 4], width: 1.4, t: times, values: column(2) });
    }
    if (timeline.clientScores.length) {
      const theirs = timeline.clientScores.map((point) => point[0]);
      const values = (i) => timeline.clientScores.map((point) => point[i]);
      scores.push({ name: "clients, weighted mean", colour: () => colour("token"), width: 2, t: theirs, values: values(1) });
      scores.push({ name: "clients, worst tenth", colour: () => colour("token"), dash: [3, 3], width: 1.4, t: theirs, values: values(2) });
    }
    const targets = info.targets.map((value) => ({ value, name: `target ${value}` }));
    const best = column(1).reduce((a, b) => (b == null ? a : Math.max(a, b)), 0);
    this.score.show(scores, targets.filter(({ value }) => !info.higherIsBetter || value < 2.5 * best), end);
    this.ages.show(each((server) => ({ t: timeline.t, values: timeline.ages[server.id] })), [], end);
    const limit = info.hInter == null ? [] : [{ value: info.hInter, name: `h_inter ${tickText(info.hInter)}` }];
    this.spread.show([{ name: "spread", quiet: true, area: true, colour: () => colour("accent"), t: timeline.t, values: timeline.spread }], limit, end);
    this.queues.show(learners.slice(0, 40).map((server) => ({
      name: server.name, colour: () => serverColour(server.region), values: timeline.queues[server.id],
    })), timeline.t, end);
    const live = !timeline.finished;
    setText(this.badge, live ? "not finished" : "finished");
    this.badge.classList.toggle("live", live);
    this.node.dataset.facts = timeline.facts;
  }

  /** Draw the state at a time; expensive panels are drawn less often. */
  frame(t, speed, stamp) {
    const playback = this.playback;
    const own = Math.min(t, Math.max(playback.end, 0));
    const recent = Math.max(0.02, Math.min(2, 0.3 * speed));
    this.map.draw(playback, own, recent);
    if (stamp - this.shownNumbers < NUMBERS_MS || !playback.now) return;
    this.shownNumbers = stamp;
    for (const chart of [this.score, this.ages, this.spread, this.queues]) chart.at(own);
    const now = playback.now;
    this.tiles.score.set(valueText(now.mean));
    this.tiles.updates.set(countText(now.updates));
    this.tiles.syncs.set(countText(now.syncs));
    this.tiles.bytes.set(bytesText(now.bytes));
    const ages = this.info.servers.filter((server) => server.clients != null).map((server) => now.servers[server.id][SERVER.age]);
    this.tiles.spread?.set(valueText(Math.max(...ages) - Math.min(...ages)));
    this.servers.show(playback, own);
    this.byClients.show(now.byClients);
    if (stamp - this.shownLog >= LOG_MS) {
      this.shownLog = stamp;
      this.log.show(playback);
    }
    this.#details(own, stamp);
  }

  #details(t, stamp) {
    if (stamp - this.shownDetails < DETAILS_MS || this.asking || t === this.detailed) return;
    this.shownDetails = stamp;
    this.asking = true;
    this.playback.source.state(this.info.id, t).then((details) => {
      this.detailed = t;
      this.playback.details = details;
      const staleness = stalenessColumns(details.staleness);
      this.staleness.show(staleness.stacks, staleness.names, 1, "updates");
      const counts = countColumns(details.counts);
      this.counts.show(counts.stacks, counts.names, this.info.regions.length, "clients");
      this.links.show(details.links);
      this.concerns.show(details.concerns);
      this.map.describe(this.playback, t);
    }).catch(() => (this.shownDetails = stamp + NO_ANSWER_MS)).finally(() => (this.asking = false));
  }
}

function legend(info) {
  const item = (kind, text) => el("li", {}, el("i", { class: `mark-${kind}` }), text);
  const many = info.servers.length > 1;
  const token = many && info.servers.every((server) => server.clients != null);
  return el("ul", { class: "map-legend" },
    token ? item("token", "token") : null,
    many ? item("model", "a server’s model") : item("update", "updates and answers"),
    token ? item("age", "its age") : null,
    item("client", "client; lit when its update is applied"),
    el("li", { class: "hint" }, "distance is latency"));
}

class ServerTable {
  constructor(info) {
    this.info = info;
    const heads = ["server", "clients", "age", "updates", "queue", "rounds", info.metric];
    this.rows = info.servers.map((server) => {
      const name = el("th", { scope: "row" }, server.name);
      name.style.setProperty("--key", serverColour(server.region));
      const cells = heads.slice(1).map(() => el("td"));
      return { cells, node: el("tr", {}, name, ...cells) };
    });
    this.node = el("section", { class: "panel servers" }, el("h3", {}, "Servers"),
      el("div", { class: "scroll", tabindex: "0", role: "group", "aria-label": "Servers" },
        el("table", {}, el("thead", {}, el("tr", {}, ...heads.map((head) => el("th", { scope: "col" }, head)))),
          el("tbody", {}, ...this.rows.map((row) => row.node)))));
  }

  show(playback, t) {
    const token = playback.token(t);
    playback.now.servers.forEach((server, i) => {
      const row = this.rows[i];
      if (!row) return;
      const values = [
        countText(this.info.servers[i].clients), valueText(server[SERVER.age]), countText(server[SERVER.updates]),
        countText(server[SERVER.queue]), countText(server[SERVER.round] || null), valueText(server[SERVER.score]),
      ];
      values.forEach((value, k) => setText(row.cells[k], value));
      row.node.classList.toggle("holder", token?.at === i);
    });
  }
}

/** Evaluation by clients: weighted mean, worst decile and regions. */
class ClientEvaluations {
  constructor(info) {
    this.body = el("tbody");
    this.node = el("section", { class: "panel servers by-clients", hidden: true },
      el("h3", {}, "Evaluation by clients", el("span", { class: "about" }, "means of regions are weighted by examples")),
      el("div", { class: "scroll", tabindex: "0", role: "group", "aria-label": "Evaluation by clients" },
        el("table", {}, el("thead", {}, el("tr", {}, ...["", info.metric, "clients"].map((head) => el("th", { scope: "col" }, head)))),
          this.body)));
    this.keys = new Map(info.regions.map((region, i) => [region.name, i]));
    this.shown = null;
  }

  show(found) {
    if (found === this.shown) return;
    this.shown = found;
    this.node.hidden = !found;
    if (!found) return;
    const row = (name, value, clients) => {
      const head = el("th", { scope: "row" }, name);
      head.style.setProperty("--key", this.keys.has(name) ? serverColour(this.keys.get(name)) : "transparent");
      return el("tr", {}, head, el("td", {}, valueText(value)), el("td", {}, countText(clients)));
    };
    this.body.replaceChildren(
      row("weighted mean", found.weightedMean, found.clients),
      ...(found.worstDecileClients ? [row("mean", found.mean, found.clients), row("worst tenth", found.worstDecile, found.worstDecileClients)] : []),
      ...found.regions.map((region) => row(region[0], region[2], region[1])));
  }
}

class Concerns {
  constructor() {
    this.list = el("ul", {});
    this.node = el("section", { class: "panel concerns" }, el("h3", {}, "Concerns",
      el("span", { class: "about" }, "suspected, rejected, quarantined, restarted")), this.list);
  }

  show(concerns) {
    const rows = concerns.slice(-30).reverse().map((concern) =>
      el("li", {}, el("b", {}, concern.who || "unknown"), ` ${concern.what} `, el("time", {}, timeText(concern.t)), el("span", {}, concern.text)));
    this.list.replaceChildren(...(rows.length ? rows : [el("li", { class: "none" }, "nobody")]));
    this.node.classList.toggle("any", rows.length > 0);
  }
}

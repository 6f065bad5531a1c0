// The map: regions at distances that follow latencies, servers with their ages, clients around them, messages in flight,
// and the token, the only golden element.

import { el, fitCanvas, setText, svgEl } from "./dom.js";
import { countText, valueText } from "./format.js";
import { SERVER } from "./playback.js";
import { colour, onTheme, serverColour } from "./theme.js";

const DISC = 21; // the radius of a server
const GOLDEN = Math.PI * (3 - Math.sqrt(5));
const SHARES = [0.5, 0.42, 0.58, 0.34, 0.66, 0.26, 0.74]; // of a link: where its latency may stand, the best first
const FEW = 16; // clients, drawn in a circle
const CROWD = 8; // servers; with more, only some pairs get a line
const STRETCH = 1.35;
const BEND = 0.13; // of the distance, so that the two directions are separate lines

export class WorldMap {
  constructor(info) {
    this.info = info;
    this.canvas = el("canvas", { "aria-hidden": "true" });
    this.still = document.createElement("canvas"); // static content
    this.svg = svgEl("svg", { "aria-hidden": "true" });
    this.node = el("div", { class: "map", role: "img", "aria-label": "Map" }, this.canvas, this.svg);
    this.names = info.servers.map((server) => server.name);
    this.#build();
    fitCanvas(this.canvas, this.node, (width, height) => {
      this.width = width;
      this.height = height;
      this.#place();
    });
    onTheme(() => this.width && this.#place());
  }

  #build() {
    this.lines = svgEl("g");
    this.labels = svgEl("g", { class: "latencies" });
    this.tokenWay = svgEl("path", { class: "token-way" });
    this.homes = this.info.regions.map((region) => {
      const name = svgEl("text", { class: "region" }, shorten(region.name));
      const more = svgEl("text", { class: "more" });
      return { name, more, node: svgEl("g", {}, svgEl("title", {}, region.name), name, more) };
    });
    this.discs = this.info.servers.map((server) => {
      const ring = svgEl("circle", { r: DISC + 5, class: "ring" });
      const disc = svgEl("circle", { r: DISC, class: "disc" });
      const age = svgEl("text", { class: "age" });
      const caption = svgEl("text", { class: "caption", y: 12 }, server.clients == null ? "cloud" : "age");
      return { ring, disc, age, node: svgEl("g", { class: "server" }, svgEl("title", {}, server.name), ring, disc, age, caption) };
    });
    const letter = svgEl("text", { class: "letter" }, "T");
    this.token = svgEl("g", { class: "token", visibility: "hidden" },
      svgEl("circle", { r: 17, class: "glow" }), svgEl("circle", { r: 11, class: "coin" }), letter);
    this.svg.append(this.lines, this.labels, this.tokenWay, ...this.homes.map((home) => home.node),
      ...this.discs.map((disc) => disc.node), this.token);
  }

  #place() {
    const { regions, servers } = this.info;
    const small = this.width < 520;
    const count = Math.max(1, regions.length);
    const fit = Math.min(this.width, this.height * 1.4) / (count === 1 ? 3 : Math.max(3.4, 2.2 * Math.sqrt(count)));
    this.radius = Math.max(DISC + 10, Math.min(small ? 58 : 82, 0.5 * fit + 8));
    const side = this.radius + (small ? 6 : 26);
    const top = this.radius + 16;
    const foot = this.radius + 40;
    this.svg.setAttribute("viewBox", `0 0 ${this.width} ${this.height}`);
    const wide = Math.max(1, this.width - 2 * side);
    const tall = Math.max(1, this.height - top - foot);
    const [xs, ys] = [regions.map(({ x }) => x), regions.map(({ y }) => y)];
    const spanX = Math.max(1e-6, Math.max(...xs) - Math.min(...xs));
    const spanY = Math.max(1e-6, Math.max(...ys) - Math.min(...ys));
    const scale = Math.min(wide / spanX, tall / spanY);
    const across = Math.min(wide / spanX, STRETCH * scale); // stretched horizontally if there is room
    const down = Math.min(tall / spanY, STRETCH * scale);
    const middle = [(Math.max(...xs) + Math.min(...xs)) / 2, (Math.max(...ys) + Math.min(...ys)) / 2];
    this.centres = regions.map(({ x, y }) => [
      side + wide / 2 + (x - middle[0]) * across, top + tall / 2 + (y - middle[1]) * down,
    ]);
    if (count > 1) {
      let least = Infinity;
      this.centres.forEach((a, i) => this.centres.slice(0, i).forEach((b) => (least = Math.min(least, distance(a, b)))));
      this.radius = Math.max(8, Math.min(this.radius, 0.46 * least));
    }
    this.spots = servers.map((server) => {
      const [x, y] = this.centres[server.region];
      if (server.clients != null) return [x, y];
      const [dx, dy] = [this.width / 2 - x, this.height / 2 - y]; // a cloud is drawn beside its region, towards the centre
      const away = (this.radius + 1.5 * DISC) / Math.max(1, Math.hypot(dx, dy));
      return [x + dx * away, y + dy * away];
    });
    this.disc = Math.max(6, Math.min(DISC, 0.42 * this.radius));
    this.discs.forEach(({ node, ring, disc }, i) => {
      node.setAttribute("transform", `translate(${this.spots[i]}) scale(${this.disc / DISC})`);
      disc.style.stroke = ring.style.stroke = serverColour(this.#tint(i));
    });
    this.homes.forEach(({ node, more }, i) => {
      const [x, y] = this.centres[i];
      node.setAttribute("transform", `translate(${x} ${y + this.radius + 17})`);
      more.setAttribute("y", 15);
      setText(more, `${countText(regions[i].clients)} clients`);
    });
    this.#drawLinks();
    this.#drawStill();
    if (this.last) this.draw(...this.last);
  }

  #tint(server) {
    return this.info.servers[server]?.region ?? server;
  }

  /** The endpoints of a message: a server, or the clients of a region. */
  #end(name) {
    const number = Number(name.slice(1));
    return name[0] === "s" ? this.spots[number] : this.centres[number];
  }

  #way(a, b) {
    const [dx, dy] = [b[0] - a[0], b[1] - a[1]];
    return [a, [(a[0] + b[0]) / 2 - BEND * dy, (a[1] + b[1]) / 2 + BEND * dx], b];
  }

  #drawLinks() {
    this.paths = new Map();
    this.lines.replaceChildren();
    this.labels.replaceChildren();
    const { servers, latency } = this.info;
    const hubs = servers.filter((server) => server.clients == null);
    const pairs = [];
    for (const a of servers) {
      for (const b of servers) {
        const ring = b.id === (a.id + 1) % servers.length;
        const wanted = hubs.length ? a.clients == null || b.clients == null : servers.length <= CROWD || ring;
        if (a.id !== b.id && wanted) pairs.push([`s${a.id}`, `s${b.id}`, a.region, b.region]);
      }
    }
    if (servers.length === 1) {
      this.info.regions.forEach((_, region) => region !== servers[0].region &&
        pairs.push([`r${region}`, "s0", region, servers[0].region], ["s0", `r${region}`, servers[0].region, region]));
    }
    for (const [from, to, a, b] of pairs) {
      const way = this.#way(this.#end(from), this.#end(to));
      const path = svgEl("path", { d: curve(way), class: "link" });
      this.paths.set(`${from} ${to}`, path);
      this.lines.append(path);
      if (pairs.length <= 30 && a < b) {
        const back = this.#way(this.#end(to), this.#end(from));
        const ms = 500 * (latency[a][b] + latency[b][a]);
        const places = SHARES.map((share) => between(point(way, share), point(back, 1 - share)));
        const [x, y] = places.find((place) => !this.#named(place)) ?? places[0];
        this.labels.append(svgEl("text", { x, y }, `${ms < 10 ? ms.toFixed(1) : ms.toFixed(0)} ms`));
      }
    }
  }

  /** Whether a latency at this place would cover the name of a region or its number of clients. */
  #named([x, y]) {
    return this.centres.some(([left, top]) => Math.abs(x - left) < 62 && Math.abs(y - (top + this.radius + 22)) < 28);
  }

  #drawStill() {
    this.still.width = this.canvas.width;
    this.still.height = this.canvas.height;
    const pen = this.still.getContext("2d");
    const ratio = this.canvas.width / this.width;
    pen.setTransform(ratio, 0, 0, ratio, 0, 0);
    this.dots = [];
    this.info.regions.forEach((region, i) => {
      const [x, y] = this.centres[i];
      const inner = this.disc + 7;
      const outer = Math.max(inner + 2, this.radius);
      const glow = pen.createRadialGradient(x, y, inner, x, y, outer + 14);
      glow.addColorStop(0, withAlpha(serverColour(i), 0.16));
      glow.addColorStop(1, withAlpha(serverColour(i), 0));
      pen.fillStyle = glow;
      disc(pen, x, y, outer + 14);
      this.dot = Math.max(1.1, Math.min(3.6, 0.42 * Math.sqrt((outer ** 2 - inner ** 2) / Math.max(1, region.clients))));
      pen.fillStyle = withAlpha(serverColour(i), 0.55);
      for (let k = 0; k < region.clients; k++) {
        const few = region.clients <= FEW;
        const share = few ? 0.5 : (k + 0.5) / region.clients;
        const away = Math.sqrt(inner ** 2 + (outer ** 2 - inner ** 2) * share);
        const turn = few ? (2 * Math.PI * k) / region.clients - Math.PI / 2 : k * GOLDEN;
        const spot = [x + away * Math.cos(turn), y + away * Math.sin(turn), i, this.dot];
        this.dots.push(spot);
        disc(pen, spot[0], spot[1], this.dot);
      }
    });
  }

  /** Draw the state at a time. `recent`: for how long an event is visible, in seconds of the run. */
  draw(playback, t, recent) {
    this.last = [playback, t, recent];
    if (!this.width || !playback.now) return;
    const pen = this.canvas.getContext("2d");
    pen.clearRect(0, 0, this.width, this.height);
    pen.drawImage(this.still, 0, 0, this.width, this.height);
    this.#drawRecent(pen, playback, t, recent);
    let flying = 0;
    for (const [kind, from, to, left, arrived] of playback.flying(t)) {
      if (kind === "token") continue;
      flying++;
      this.#drawMessage(pen, kind, this.#way(this.#end(from), this.#end(to)), (t - left) / (arrived - left), from);
    }
    this.#drawServers(playback);
    this.#drawToken(playback.token(t));
    this.node.dataset.flying = flying;
  }

  #drawRecent(pen, playback, t, recent) {
    const events = playback.window.events;
    for (let i = playback.index; i >= 0 && events[i].t > t - recent; i--) {
      const event = events[i];
      if (event.t > t) continue; // the window still belongs to a later time
      const fresh = 1 - (t - event.t) / recent;
      if (event.kind === "update") {
        const spot = this.dots[event.client];
        if (!spot) continue;
        pen.fillStyle = withAlpha(colour("ink"), fresh);
        disc(pen, spot[0], spot[1], spot[3] + 1.2 * fresh);
        const home = this.spots[event.server];
        if (home && playback.window.every === 1 && this.info.servers[event.server].region === spot[2]) {
          pen.strokeStyle = withAlpha(serverColour(spot[2]), 0.6 * fresh);
          pen.lineWidth = 1;
          segment(pen, spot, home);
        }
      } else if (event.kind === "sync" || event.kind === "merge" || event.kind === "round" || event.kind === "cloud-round") {
        const spot = this.spots[event.server ?? this.info.servers.length - 1];
        if (!spot) continue;
        pen.strokeStyle = withAlpha(serverColour(this.#tint(event.server ?? 0)), 0.8 * fresh);
        pen.lineWidth = event.kind === "sync" ? 4 : 2;
        circleLine(pen, spot[0], spot[1], this.disc + 4 + (1 - fresh) * 16);
      }
    }
  }

  #drawMessage(pen, kind, way, share, from) {
    const number = Number(from.slice(1));
    const tint = serverColour(from[0] === "s" ? this.#tint(number) : number);
    const size = { model: 6, age: 2.2, update: 2.6, answer: 2.6 }[kind] ?? 3;
    const tail = { model: 0.14, age: 0.05 }[kind] ?? 0.06;
    const [x, y] = point(way, share);
    const [x0, y0] = point(way, Math.max(0, share - tail));
    const fade = pen.createLinearGradient(x0, y0, x, y);
    fade.addColorStop(0, withAlpha(tint, 0));
    fade.addColorStop(1, withAlpha(tint, kind === "model" ? 0.75 : 0.5));
    pen.strokeStyle = fade;
    pen.lineWidth = size;
    pen.lineCap = "round";
    segment(pen, [x0, y0], [x, y]);
    pen.fillStyle = tint;
    disc(pen, x, y, size);
    if (kind === "model") {
      pen.strokeStyle = colour("panel");
      pen.lineWidth = 1.5;
      circleLine(pen, x, y, size);
    }
  }

  #drawServers(playback) {
    const concerned = new Set((playback.details?.concerns ?? []).map((concern) => concern.who));
    playback.now.servers.forEach((server, i) => {
      const disc = this.discs[i];
      if (!disc) return;
      const cloud = this.info.servers[i].clients == null;
      setText(disc.age, cloud ? String(server[SERVER.round]) : valueAge(server[SERVER.age]));
      disc.node.classList.toggle("concern", concerned.has(`server ${i}`) || concerned.has(`peer ${i}`));
    });
    this.info.regions.forEach((region, r) => {
      const queue = this.info.servers.reduce(
        (most, server) => (server.region === r ? Math.max(most, playback.now.servers[server.id]?.[SERVER.queue] ?? 0) : most), 0);
      setText(this.homes[r].more, `${countText(region.clients)} clients${queue > 1 ? ` · queue ${queue}` : ""}`);
    });
  }

  #drawToken(token) {
    this.token.setAttribute("visibility", token ? "visible" : "hidden");
    this.tokenWay.setAttribute("visibility", token?.from != null ? "visible" : "hidden");
    this.discs.forEach(({ node }, i) => node.classList.toggle("holder", token?.at === i));
    if (!token) {
      delete this.node.dataset.token;
      return;
    }
    let spot;
    if (token.at != null) {
      const [x, y] = this.spots[token.at] ?? [0, 0];
      spot = [x + this.disc * 0.95, y - this.disc * 0.95];
      this.node.dataset.token = String(token.at);
    } else {
      const way = this.#way(this.spots[token.from], this.spots[token.to]);
      spot = point(way, token.share);
      this.tokenWay.setAttribute("d", curve(way));
      this.node.dataset.token = `${token.from}>${token.to}`;
    }
    this.token.setAttribute("transform", `translate(${spot[0].toFixed(1)} ${spot[1].toFixed(1)})`);
  }

  /** Set line widths by traffic, and describe the map for screen readers. */
  describe(playback, t) {
    const links = playback.details?.links ?? [];
    const most = Math.max(1, ...links.filter((link) => link.way === "peer").map((link) => link.bytes));
    for (const link of links) {
      if (link.way !== "peer") continue;
      const path = this.paths.get(`s${link.a} s${link.b}`);
      if (path) path.style.strokeWidth = (1 + (2.2 * link.bytes) / most).toFixed(2);
    }
    const token = playback.token(t);
    const where = !token ? "" : token.at != null ? `The token is at ${this.names[token.at]}. ` :
      `The token is in flight from ${this.names[token.from]} to ${this.names[token.to]}. `;
    const ages = (playback.now?.servers ?? [])
      .map((server, i) => `${this.names[i] ?? `server ${i}`}: age ${valueText(server[SERVER.age])}`).join(", ");
    this.node.setAttribute("aria-label", `Map at ${t.toFixed(2)} seconds. ${where}${this.node.dataset.flying ?? 0} messages are in flight. ${ages}`);
  }
}

function valueAge(age) {
  return age >= 9999.5 ? `${(age / 1000).toFixed(0)}k` : age.toFixed(age < 99.5 ? 1 : 0);
}

function shorten(name) {
  return name.length > 18 ? `${name.slice(0, 17)}…` : name;
}

function withAlpha(hex, alpha) {
  return `${hex}${Math.round(255 * Math.max(0, Math.min(1, alpha))).toString(16).padStart(2, "0")}`;
}

function distance(a, b) {
  return Math.hypot(a[0] - b[0], a[1] - b[1]);
}

function between(a, b) {
  return [(a[0] + b[0]) / 2, (a[1] + b[1]) / 2];
}

function point([a, b, c], share) {
  const rest = 1 - share;
  return [0, 1].map((axis) => rest * rest * a[axis] + 2 * rest * share * b[axis] + share * share * c[axis]);
}

function curve([a, b, c]) {
  return `M${a[0].toFixed(1)} ${a[1].toFixed(1)}Q${b[0].toFixed(1)} ${b[1].toFixed(1)} ${c[0].toFixed(1)} ${c[1].toFixed(1)}`;
}

function disc(pen, x, y, radius) {
  pen.beginPath();
  pen.arc(x, y, radius, 0, 2 * Math.PI);
  pen.fill();
}

function circleLine(pen, x, y, radius) {
  pen.beginPath();
  pen.arc(x, y, radius, 0, 2 * Math.PI);
  pen.stroke();
}

function segment(pen, a, b) {
  pen.beginPath();
  pen.moveTo(a[0], a[1]);
  pen.lineTo(b[0], b[1]);
  pen.stroke();
}

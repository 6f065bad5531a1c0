// The state of one run at a time. The server sends windows: a state, the events after it and the messages in flight.
// Playing applies events; going back starts again from the window's state.

/** Indices of a server's numbers in the payload. */
export const SERVER = { age: 0, queue: 1, updates: 2, round: 3, syncs: 4, score: 5 };

export class Playback {
  constructor(source, info) {
    this.source = source;
    this.info = info;
    this.timeline = null;
    this.window = null;
    this.index = -1; // of the last event that is applied
    this.now = null; // the state
    this.t = 0;
    this.details = null; // the last state with distributions
    this.asked = null;
    this.pause = 1; // seconds until the next request, after a failed one
  }

  async load() {
    this.timeline = await this.source.timeline(this.info.id);
    this.details ??= this.timeline.state;
  }

  get end() {
    return this.timeline?.end ?? 0;
  }

  /** Mean number of events per second of the run. */
  get density() {
    return Math.max(1, (this.timeline?.facts ?? 1) / Math.max(0.001, this.end));
  }

  covers(t) {
    return this.window && t >= this.window.from - 1e-9 && (t <= this.window.to + 1e-9 || this.window.to >= this.end);
  }

  /** Go to a time as far as it is loaded, and request the rest. */
  seek(t, ahead) {
    this.t = t;
    if (this.covers(t)) this.#apply(t);
    const near = this.window && this.covers(t) && t + 0.3 * ahead <= this.window.to;
    const done = this.covers(t) && (!this.source.live || this.window.to >= this.end - 1e-9);
    if (!near && !done && !this.asked) this.#ask(t, ahead);
  }

  #ask(t, ahead) {
    const around = Math.min(60, 150 / this.density);
    this.asked = this.source
      .window(this.info.id, t, around, Math.max(ahead, 0.3, around))
      .then((window) => this.#take(window))
      .catch(() => this.#wait())
      .finally(() => {
        this.asked = null;
        if (this.window && !this.covers(this.t) && this.t !== t) this.#ask(this.t, ahead); // the user moved on during the request
      });
    return this.asked;
  }

  /** Retry a failed request with exponential backoff. */
  #wait() {
    const seconds = this.pause;
    this.pause = Math.min(15, 2 * seconds);
    return new Promise((resolve) => setTimeout(resolve, 1000 * seconds));
  }

  /** Wait until the state at a time is loaded. */
  async settle(t) {
    this.t = t;
    while (this.asked) await this.asked;
    if (!this.covers(t)) await this.#ask(t, 0);
    if (this.covers(t)) this.#apply(t);
  }

  #take(window) {
    this.pause = 1;
    this.window = window;
    this.details = window.state;
    this.#begin();
    this.#apply(this.t); // as far as the window reaches, if time has advanced
  }

  #begin() {
    const base = this.window.state;
    this.index = -1;
    this.now = { ...base, servers: base.servers.map((server) => [...server]) };
  }

  #apply(t) {
    const events = this.window.events;
    if (this.index >= 0 && events[this.index].t > t) this.#begin();
    while (this.index + 1 < events.length && events[this.index + 1].t <= t) this.#one();
  }

  #one() {
    const event = this.window.events[++this.index];
    const now = this.now;
    [now.updates, now.syncs, now.bytes] = event.sums;
    if (event.now) now.servers[event.server] = event.now;
    if (event.token != null) now.token = event.token;
    if (event.byClients) now.byClients = event.byClients;
    if (event.scores) {
      const [, mean, averaged, ...scores] = event.scores;
      Object.assign(now, { mean, averaged });
      scores.forEach((score, i) => now.servers[i] && (now.servers[i] = now.servers[i].with(SERVER.score, score)));
    }
  }

  /** The last applied event. */
  get last() {
    return this.index >= 0 ? this.window.events[this.index] : null;
  }

  /** Wait for pending requests, without applying further events of the same time. */
  async #ready() {
    while (this.asked) await this.asked;
    if (!this.covers(this.t)) await this.settle(this.t);
  }

  /** The time of the next event, if there is one. */
  async next() {
    await this.#ready();
    if (!this.window) return null;
    if (this.window.every !== 1 || this.index + 1 >= this.window.events.length) {
      const from = this.window.every === 1 ? Math.max(this.t, this.window.to) : this.t;
      if (from >= this.end) return null;
      this.#take(await this.source.after(this.info.id, from));
    }
    return this.window.events[this.index + 1]?.t ?? null;
  }

  /** Apply one event; others may have the same time. */
  forward() {
    this.#one();
    this.t = this.last.t;
  }

  /** The time of the event before the last applied one. */
  async previous() {
    await this.#ready();
    if (!this.window) return null;
    if (this.window.every !== 1 || this.index < 0) {
      if (this.t <= 0) return null;
      this.#take(await this.source.before(this.info.id, this.window.every === 1 ? this.window.from + 2e-9 : this.t));
    }
    return this.last?.t ?? null;
  }

  /** Undo one event. */
  back() {
    const to = this.index - 1;
    this.#begin();
    while (this.index < to) this.#one();
    this.t = this.last?.t ?? this.window.from;
  }

  /** Messages in flight. */
  flying(t) {
    return this.window ? this.window.flights.filter((flight) => flight[3] <= t && t < flight[4]) : [];
  }

  /** The position of the token: a server, or between two. */
  token(t) {
    const flight = this.window?.flights.find((each) => each[0] === "token" && each[3] <= t && t < each[4]);
    if (flight) {
      const [, sender, receiver, left, arrived] = flight;
      return { from: Number(sender.slice(1)), to: Number(receiver.slice(1)), share: (t - left) / (arrived - left) };
    }
    return this.now?.token == null ? null : { at: this.now.token };
  }
}

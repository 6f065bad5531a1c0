// Where runs come from: the page's server, or the report itself.

/** Asks the server, and listens to it. */
export class NetworkSource {
  live = true;

  async #get(path) {
    const answer = await fetch(path, { credentials: "same-origin" });
    if (!answer.ok) throw new Error(`${path}: ${answer.status}`);
    return answer.json();
  }

  runs() {
    return this.#get("api/runs");
  }

  timeline(run) {
    return this.#get(`api/runs/${run}/timeline`);
  }

  state(run, t) {
    return this.#get(`api/runs/${run}/state?t=${t}`);
  }

  /** What happens around a time, so many seconds back and ahead. */
  window(run, t, back, ahead) {
    return this.#get(`api/runs/${run}/window?from=${Math.max(-1e-9, t - back)}&to=${t + ahead}`);
  }

  after(run, t) {
    return this.#get(`api/runs/${run}/window?from=${t}&limit=300`);
  }

  before(run, t) {
    return this.#get(`api/runs/${run}/window?before=${t}&limit=200`);
  }

  /** Hear how far the runs are, as long as the page is open. */
  listen(heard, lost) {
    const events = new EventSource("api/events");
    events.onmessage = (event) => heard(JSON.parse(event.data));
    events.onerror = () => lost();
  }
}

/** Finds everything in a file: each run as some moments of it, and a stretch with every event. */
export class FileSource {
  live = false;

  constructor(data) {
    this.data = data;
  }

  async runs() {
    return { life: "report", changes: 0, runs: this.data.runs };
  }

  /** From when to when a run can be replayed event by event. */
  stretch(run) {
    const { from, to } = this.data.windows[run];
    return [from, to];
  }

  async timeline(run) {
    return this.data.timelines[run];
  }

  async state(run, t) {
    return this.#moments(run)[this.#before(run, t)];
  }

  async window(run, t) {
    const exact = this.data.windows[run];
    if (t >= exact.from && t <= exact.to) return exact;
    const moments = this.#moments(run);
    const at = this.#before(run, t);
    const next = moments[at + 1]?.t ?? Infinity;
    const from = t > exact.to ? Math.max(moments[at].t, exact.to) : moments[at].t;
    const to = t < exact.from ? Math.min(next, exact.from) : next;
    return { from, to: to - 1e-6, state: moments[at], events: [], flights: [], every: 0 };
  }

  async after(run, t) {
    const exact = this.data.windows[run];
    return t < exact.to ? exact : this.window(run, t);
  }

  async before(run, t) {
    const exact = this.data.windows[run];
    return t > exact.from ? exact : this.window(run, Math.max(0, t - 1e-6));
  }

  #moments(run) {
    return this.data.moments[run];
  }

  #before(run, t) {
    const moments = this.#moments(run);
    let at = 0;
    while (at + 1 < moments.length && moments[at + 1].t <= t + 1e-9) at++;
    return at;
  }
}

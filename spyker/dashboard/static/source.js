// Sources of runs: the dashboard's server, or the data in a report.

/** Requests runs from the server, and receives its events. */
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

  /** The window around a time, with seconds before and after it. */
  window(run, t, back, ahead) {
    return this.#get(`api/runs/${run}/window?from=${Math.max(-1e-9, t - back)}&to=${t + ahead}`);
  }

  after(run, t) {
    return this.#get(`api/runs/${run}/window?from=${t}&limit=300`);
  }

  before(run, t) {
    return this.#get(`api/runs/${run}/window?before=${t}&limit=200`);
  }

  /** Subscribe to the progress of runs. */
  listen(heard, lost) {
    const events = new EventSource("api/events");
    events.onmessage = (event) => heard(JSON.parse(event.data));
    events.onerror = () => lost();
  }
}

/** Reads the data of a report: states of each run, and one window with all events. */
export class FileSource {
  live = false;

  constructor(data) {
    this.data = data;
  }

  async runs() {
    return { life: "report", changes: 0, runs: this.data.runs };
  }

  /** The interval of a run that has single events. */
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

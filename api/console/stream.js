// The event stream of one node: it connects, notices when nothing comes, and connects again with a growing pause.

const PAUSES_MS = [500, 1_000, 2_000, 4_000, 8_000];
const SILENCE_MS = 6_000; // a node sends a sample each second

export class NodeStream {
  /** `url` is "" for the node that served this page. `on` has functions by the name of the event, and `state`. */
  constructor(url, on) {
    this.url = url;
    this.on = on;
    this.failures = 0;
    this.lastEventAt = 0;
    this.retryAt = 0;
    this.isClosed = true;
  }

  open() {
    this.isClosed = false;
    this.#connect();
    this.watch = setInterval(() => this.#checkSilence(), 1_000);
  }

  close() {
    this.isClosed = true;
    clearInterval(this.watch);
    clearTimeout(this.retry);
    this.source?.close();
    this.source = null;
  }

  #connect() {
    clearTimeout(this.retry);
    this.retryAt = 0;
    this.openedAt = Date.now();
    const source = new EventSource(`${this.url}/v1/status/stream`);
    this.source = source;
    for (const kind of ["status", "milestones", "figures"]) {
      source.addEventListener(kind, (event) => {
        if (source !== this.source) return;
        this.failures = 0;
        this.lastEventAt = Date.now();
        this.on[kind](JSON.parse(event.data));
      });
    }
    source.onerror = () => source === this.source && this.#lost();
  }

  #lost() {
    this.source?.close();
    this.source = null;
    if (this.isClosed) return;
    const pause = PAUSES_MS[Math.min(this.failures, PAUSES_MS.length - 1)] * (0.8 + 0.4 * Math.random());
    this.failures += 1;
    this.retryAt = Date.now() + pause;
    this.retry = setTimeout(() => this.#connect(), pause);
    this.on.lost();
  }

  #checkSilence() {
    if (this.source && Date.now() - Math.max(this.openedAt, this.lastEventAt) > SILENCE_MS) this.#lost();
  }
}

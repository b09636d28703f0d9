// What this page knows of the cluster: of each node its own words (first-hand) where the browser reaches it, and what
// the node that served the page says of it (second-hand) where it does not.

import { NodeStream } from "./stream.js";

const STALE_MS = 3_500;
const SAMPLES_MAX = 300;
const MILESTONES_MAX = 400;
const HIDDEN_CLOSE_MS = 20_000;

class KnownNode {
  constructor(name, url) {
    this.name = name;
    this.url = url;
    this.status = null; // its own last words
    this.heardAt = 0; // when the browser last heard from it
    this.lostAt = 0; // since when its stream is broken
    this.milestones = [];
    this.samples = [];
    this.outages = []; // [from, to] in which its stream was broken
  }

  get ageMs() {
    return this.heardAt ? Date.now() - this.heardAt : Infinity;
  }

  get isFirstHand() {
    return this.status !== null && this.ageMs < STALE_MS && !this.lostAt;
  }
}

export class Model extends EventTarget {
  constructor() {
    super();
    this.me = null; // the node that served this page
    this.nodes = new Map();
    this.streams = new Map();
    this.isPaused = false;
    this.own = new KnownNode("", "");
  }

  start() {
    this.#open("", this.own);
    setInterval(() => this.changed("time"), 500);
    document.addEventListener("visibilitychange", () => this.#onVisibility());
  }

  changed(what) {
    this.dispatchEvent(new CustomEvent("change", { detail: what }));
  }

  get names() {
    return this.own.status ? this.own.status.roster : [];
  }

  get(name) {
    return this.nodes.get(name);
  }

  /** The node whose word counts for those that do not answer: the one that served this page, if it answers itself. */
  get witness() {
    return [this.own, ...this.nodes.values()].find((node) => node.isFirstHand) ?? this.own;
  }

  /** What the witness knows of a node. */
  hearsay(name) {
    return this.witness.status?.nodes.find((node) => node.name === name) ?? null;
  }

  urlOf(name) {
    return name === this.me ? "" : this.get(name)?.url ?? null;
  }

  get isStale() {
    return this.own.status !== null && !this.own.isFirstHand;
  }

  /** Whether this page's address is one that the nodes know, so that the others let it ask them. */
  get isKnownOrigin() {
    return !this.own.status || this.own.status.nodes.some((node) => node.url && originOf(node.url) === location.origin);
  }

  /** The state of a node and how we know it. */
  stateOf(name) {
    const node = this.get(name);
    if (node?.isFirstHand) {
      const state = node.status.disk === "ok" ? node.status.state : "away";
      return { state, source: "first-hand", view: node.status.view };
    }
    const { witness } = this;
    if (witness.isFirstHand && this.hearsay(name)?.connected) {
      return { state: witness.status.state, source: "second-hand", view: witness.status.view };
    }
    return { state: "unknown", source: "none", view: null };
  }

  /** The components that exist, as far as this page can tell: nodes by the view that they are in. */
  components() {
    const found = new Map();
    for (const name of this.names) {
      const { state, view } = this.stateOf(name);
      const id = view ? view.id : `unknown ${name}`;
      if (!found.has(id)) found.set(id, { id, members: [], state, view });
      found.get(id).members.push(name);
    }
    return [...found.values()];
  }

  #open(url, node) {
    const stream = new NodeStream(url, {
      status: (status) => this.#onStatus(node, status),
      milestones: (new_) => this.#onMilestones(node, new_),
      figures: (samples) => this.#onFigures(node, samples),
      lost: () => this.#onLost(node),
    });
    this.streams.set(node, stream);
    stream.open();
  }

  #heard(node) {
    node.heardAt = Date.now();
    if (node.lostAt) {
      node.outages.push([node.lostAt, node.heardAt]);
      node.outages = node.outages.slice(-50);
      node.lostAt = 0;
    }
  }

  #onStatus(node, status) {
    node.status = status;
    this.#heard(node);
    if (node === this.own) this.#onOwnStatus(status);
    this.changed("status");
  }

  #onOwnStatus(status) {
    if (this.me === null) {
      this.me = status.node;
      this.own.name = status.node;
    }
    for (const { name, url } of status.nodes) {
      if (this.nodes.has(name)) continue;
      const node = name === this.me ? this.own : new KnownNode(name, url);
      if (name === this.me) node.url = url;
      this.nodes.set(name, node);
      if (name !== this.me && url && this.isKnownOrigin) this.#open(url, node);
    }
  }

  #onMilestones(node, milestones) {
    this.#heard(node);
    const known = new Set(node.milestones.map(keyOf));
    node.milestones.push(...milestones.filter((one) => !known.has(keyOf(one))));
    node.milestones = node.milestones.slice(-MILESTONES_MAX);
    this.changed("milestones");
  }

  #onFigures(node, samples) {
    this.#heard(node);
    const last = node.samples.length ? node.samples[node.samples.length - 1].time_ms : 0;
    node.samples.push(...samples.filter((one) => one.time_ms > last));
    node.samples = node.samples.slice(-SAMPLES_MAX);
    this.changed("figures");
  }

  #onLost(node) {
    if (!node.lostAt && node.heardAt) node.lostAt = Date.now();
    this.changed("status");
  }

  /** A page that nobody sees needs no streams: browsers allow only six connections to a node. */
  #onVisibility() {
    clearTimeout(this.pausing);
    if (document.hidden) {
      this.pausing = setTimeout(() => {
        this.isPaused = true;
        for (const stream of this.streams.values()) stream.close();
      }, HIDDEN_CLOSE_MS);
    } else if (this.isPaused) {
      this.isPaused = false;
      for (const stream of this.streams.values()) stream.open();
    }
  }
}

const keyOf = (milestone) => `${milestone.time_ms} ${milestone.number}`;

function originOf(url) {
  try {
    return new URL(url).origin;
  } catch {
    return "";
  }
}

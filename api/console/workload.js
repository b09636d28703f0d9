// A small bounded workload: writes at a steady rate, made by this browser through the API.

import { keyPath } from "./api.js";
import { field, h, panel, setText, slider } from "./dom.js";
import { count, milliseconds } from "./format.js";

const TICK_MS = 50;
const IN_FLIGHT_MAX = 4; // at each node: browsers allow six connections, and one of them is the stream
const KEYS = 100;

export function createWorkload(model, script) {
  const speed = slider("Rate", { id: "writes-per-s", min: 1, max: 100, value: 20 }, (number) => `${number} writes/s`);
  const seconds = h("select", { class: "input" }, [10, 30, 60].map((number) => h("option", { value: number }, `${number} s`)));
  const through = h("select", { class: "input" });
  const button = h("button", { class: "button primary", type: "button" }, "Start writing");
  const numbers = Object.fromEntries(["sent", "green", "red", "failed", "left out", "median"].map((name) => [name, h("dd", { class: "mono" }, "0")]));
  const { root } = panel(
    "Workload",
    "writes of this browser, to keys lab/…",
    h(
      "div",
      { class: "stack" },
      speed.root,
      h("div", { class: "row" }, field("Through", through, { class: "grow" }), field("For", seconds), button),
      h("dl", { class: "facts tight" }, Object.entries(numbers).map(([name, value]) => h("div", {}, h("dt", {}, name), value))),
    ),
  );
  let run = null;
  let known = "";

  button.addEventListener("click", () => (run ? stop() : start()));

  function start() {
    const names = through.value === "*" ? model.names : [through.value];
    const step = script.add({ do: "workload", writes_per_s: speed.value(), seconds: Number(seconds.value), through: [...names] });
    run = { names, step, began: Date.now(), due: 0, next: 0, flying: {}, figures: { sent: 0, green: 0, red: 0, failed: 0, "left out": 0 }, times: [] };
    run.timer = setInterval(() => tick(run), TICK_MS);
    setText(button, "Stop writing");
  }

  function stop() {
    clearInterval(run.timer);
    run.step.seconds = Math.max(0.1, Math.round((Date.now() - run.began) / 100) / 10);
    run = null;
    script.onChange();
    setText(button, "Start writing");
  }

  function tick(current) {
    const elapsed = Date.now() - current.began;
    if (elapsed >= current.step.seconds * 1_000) {
      stop();
      return;
    }
    const wanted = Math.floor((elapsed / 1_000) * current.step.writes_per_s);
    for (; current.due < wanted; current.due += 1) {
      const name = current.names[current.next++ % current.names.length];
      if ((current.flying[name] ?? 0) < IN_FLIGHT_MAX) write(current, name);
      else current.figures["left out"] += 1;
    }
    show(current);
  }

  async function write(current, name) {
    const url = model.urlOf(name);
    if (url === null) {
      current.figures.failed += 1;
      return;
    }
    current.flying[name] = (current.flying[name] ?? 0) + 1;
    const number = (current.figures.sent += 1);
    const began = performance.now();
    try {
      const answer = await fetch(`${url}${keyPath(`lab/${number % KEYS}`)}?timeout_ms=3000`, { method: "PUT", body: `write ${number} through ${name}`, headers: { "Content-Type": "text/plain" } });
      await answer.arrayBuffer();
      current.figures[answer.status === 200 ? "green" : answer.status === 202 ? "red" : "failed"] += 1;
      current.times = [...current.times.slice(-99), performance.now() - began];
    } catch {
      current.figures.failed += 1;
    }
    current.flying[name] -= 1;
    show(current);
  }

  function show({ figures, times }) {
    for (const [name, value] of Object.entries(figures)) setText(numbers[name], count(value));
    const sorted = [...times].sort((one, other) => one - other);
    setText(numbers.median, sorted.length ? milliseconds(sorted[Math.floor(sorted.length / 2)]) : "–");
  }

  return {
    root,
    update() {
      if (known === model.names.join()) return;
      known = model.names.join();
      through.replaceChildren(h("option", { value: "*" }, "all nodes in turn"), ...model.names.map((name) => h("option", { value: name }, `node ${name}`)));
    },
  };
}

// What was done in the laboratory, as a script that `corelkv replay` performs again: see docs/console.md.

import { h, panel, replace } from "./dom.js";
import { duration, milliseconds, percent } from "./format.js";

const STEPS_MAX = 500;

export class Script {
  constructor() {
    this.steps = [];
    this.startedAt = 0;
    this.onChange = () => {};
  }

  /** Records a step that is done now, and returns it. */
  add(step) {
    const now = Date.now();
    if (!this.steps.length) this.startedAt = now;
    const recorded = { at_ms: now - this.startedAt, ...step };
    if (this.steps.length < STEPS_MAX) this.steps.push(recorded);
    this.onChange();
    return recorded;
  }

  clear() {
    this.steps = [];
    this.onChange();
  }

  text(nodes) {
    const steps = this.steps.map((step) => `    ${JSON.stringify(step)}`).join(",\n");
    return `{\n  "format": "corelkv-script",\n  "version": 1,\n  "nodes": ${JSON.stringify(nodes)},\n  "steps": [\n${steps}\n  ]\n}\n`;
  }
}

function describeStep(step) {
  switch (step.do) {
    case "partition":
      return `cut ${step.islands.map((names) => names.join(",")).join(" | ")}`;
    case "disturb":
      return `${percent(step.loss)} loss, ${milliseconds(step.delay_ms)} delay at ${step.nodes.join(",")}`;
    case "heal":
      return "heal all links";
    case "workload":
      return `${step.writes_per_s} writes/s for ${step.seconds} s through ${step.through.join(", ")}`;
    default:
      return `${step.do} ${step.node}`;
  }
}

export function createScript(model, script) {
  const steps = h("ol", { class: "steps" });
  const name = () => `corelkv-${new Date().toISOString().slice(0, 19).replaceAll(":", "")}.json`;
  const save = () => {
    const url = URL.createObjectURL(new Blob([script.text(model.names)], { type: "application/json" }));
    const link = h("a", { href: url, download: name() });
    document.body.append(link);
    link.click();
    link.remove();
    setTimeout(() => URL.revokeObjectURL(url), 10_000);
  };
  const exporting = h("button", { class: "button", type: "button", id: "export-script", click: save }, "Export the script");
  const clearing = h("button", { class: "button small", type: "button", click: () => script.clear() }, "Clear");
  const hint = h("p", { class: "note" }, "Performs it again, with its timing: ", h("code", {}, "corelkv replay FILE"));
  const { root } = panel("What you did", null, steps, h("div", { class: "row" }, exporting, clearing), hint);
  script.onChange = () => {
    const isEmpty = !script.steps.length;
    exporting.disabled = clearing.disabled = isEmpty;
    replace(
      steps,
      isEmpty
        ? h("li", { class: "empty" }, "Nothing yet. Cuts, loss and delay, heals, kills, starts and workloads are recorded here.")
        : script.steps.map((step) => h("li", {}, h("time", { class: "mono muted" }, `+${duration(step.at_ms)}`), h("span", {}, describeStep(step)))),
    );
    steps.scrollTop = steps.scrollHeight;
  };
  script.onChange();
  return root;
}

// Loss and delay: nodes that lose a share of what they receive, and get the rest late. Cuts stay as they are.

import { patch } from "./api.js";
import { askNodes } from "./asking.js";
import { field, h, panel, replace, setAttribute, setText, slider } from "./dom.js";
import { disturbances, milliseconds, percent } from "./format.js";

export function createDisturbances(model, script) {
  const loss = slider("Loss", { id: "loss", min: 0, max: 60, step: 1, value: 10 }, (number) => `${number} % of what a node receives`);
  const delay = slider("Delay", { id: "delay-ms", min: 0, max: 500, step: 5, value: 20 }, (number) => milliseconds(number));
  const at = h("select", { class: "input" });
  const set = h("button", { class: "button primary", type: "button", id: "disturb", click: () => disturb(chosen(), loss.value() / 100, delay.value()) }, "Set loss and delay");
  const end = h("button", { class: "button", type: "button", id: "end-disturbances", click: () => disturb(model.names, 0, 0) }, "End them everywhere");
  const rows = h("dl", { class: "disturbances" });
  const said = h("p", { class: "note", role: "status" });
  const { root } = panel(
    "Loss and delay",
    "of datagrams between nodes",
    h("div", { class: "stack" }, loss.root, delay.root, field("At", at), h("div", { class: "row" }, set, end), rows, said),
  );
  const shown = new Map();
  let known = "";

  const chosen = () => (at.value === "*" ? model.names : [at.value]);

  async function disturb(names, share, delayMs) {
    script.add({ do: "disturb", nodes: [...names], loss: share, delay_ms: delayMs });
    const what = share || delayMs ? `${percent(share)} loss and ${milliseconds(delayMs)} delay` : "No loss and no delay";
    await askNodes(model, names.map((name) => [name, (url) => patch(`${url}/v1/chaos`, { loss: share, delay_ms: delayMs })]), `${what} at ${names.join(", ")}`, said);
  }

  function list() {
    if (known === model.names.join()) return;
    known = model.names.join();
    replace(at, h("option", { value: "*" }, "all nodes"), model.names.map((name) => h("option", { value: name }, `node ${name}`)));
    shown.clear();
    for (const name of model.names) shown.set(name, h("dd", { "data-disturbed": name }));
    replace(rows, [...shown].map(([name, text]) => h("div", {}, h("dt", {}, name), text)));
  }

  return {
    root,
    update() {
      list();
      for (const [name, text] of shown) {
        const node = model.get(name);
        const chaos = node?.isFirstHand ? node.status.lab.chaos : null;
        const found = chaos ? disturbances(chaos) : [];
        setText(text, chaos ? found.join(", ") || "undisturbed" : "not known");
        setAttribute(text, "data-is", found.length > 0);
      }
    },
  };
}

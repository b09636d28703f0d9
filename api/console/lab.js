// The partition laboratory: cut and heal links, lose and delay datagrams, kill and start nodes, write a little, and watch the
// lines move. Only where the nodes run with --chaos.

import { call, patch, post, why } from "./api.js";
import { askNodes } from "./asking.js";
import { createDisturbances } from "./disturbances.js";
import { h, panel, replace, setAttribute, setText } from "./dom.js";
import { STATES } from "./format.js";
import { createIslands } from "./islands.js";
import { createMap } from "./map.js";
import { createNodes } from "./nodes.js";
import { Script, createScript } from "./script.js";
import { createWorkload } from "./workload.js";

export function createLab(model) {
  const script = new Script();
  const islands = createIslands(model);
  const loss = createDisturbances(model, script);
  const workload = createWorkload(model, script);
  const nodes = createNodes(model);
  const map = createMap(model);
  const said = h("p", { class: "note", role: "status" });
  const cut = h("button", { class: "button primary", type: "button", id: "apply-cut", click: () => apply() }, "Cut the links between islands");
  const heal = h("button", { class: "button", type: "button", id: "heal", click: () => mend() }, "Heal all links");
  const links = panel("Links", "drag nodes to islands, or use the buttons", h("div", { class: "stack" }, islands.root, h("div", { class: "row" }, cut, heal), said));
  const processes = createProcesses(model, script);
  const work = h(
    "div",
    { class: "columns" },
    h("div", { class: "span-5 stack" }, links.root, loss.root, processes.root, workload.root),
    h("div", { class: "span-7 stack compact" }, map.root, nodes.root, createScript(model, script)),
  );
  const off = panel("Laboratory", null, h("p", { class: "empty" }, "This node was started without --chaos, so its network cannot be cut from here. A cluster of `corelkv cluster` can."));
  const root = h("div", {}, off.root, work);

  async function apply() {
    const sides = islands.islands();
    if (sides.length < 2) {
      said.className = "note bad";
      setText(said, "All nodes are on one island: move at least one to another first.");
      return;
    }
    script.add({ do: "partition", islands: sides });
    const requests = sides.flatMap((side) => {
      const others = model.names.filter((name) => !side.includes(name));
      return side.map((name) => [name, (url) => patch(`${url}/v1/chaos`, { drop_from: others, drop_to: others })]);
    });
    await askNodes(model, requests, `Cut: ${sides.map((side) => side.join(", ")).join(" | ")}`, said);
  }

  async function mend() {
    script.add({ do: "heal" });
    islands.reset();
    await askNodes(model, model.names.map((name) => [name, (url) => call(`${url}/v1/chaos`, "DELETE")]), "Healed: nothing is cut, lost or late", said);
  }

  return {
    root,
    update() {
      const isOn = Boolean(model.own.status?.lab.chaos);
      off.root.hidden = isOn || !model.own.status;
      work.hidden = !isOn;
      if (!isOn) return;
      for (const part of [islands, loss, workload, nodes, map, processes]) part.update();
    },
  };
}

/** Kills and starts nodes, where the process that watches them can do so. */
function createProcesses(model, script) {
  const rows = h("ul", { class: "processes" });
  const said = h("p", { class: "note", role: "status" });
  const { root } = panel("Processes", "kill -9, and start again", rows, said);
  const known = new Map();

  async function act(name, action) {
    script.add({ do: action, node: name });
    // A node that is to start cannot relay it, and one that answers now is the best to ask.
    const helpers = model.names.filter((one) => model.get(one)?.isFirstHand).sort((one, other) => (one === name) - (other === name));
    for (const helper of helpers) {
      const answer = await post(`${model.urlOf(helper)}/v1/lab/nodes/${encodeURIComponent(name)}`, { action });
      said.className = `note ${answer.ok ? "good" : "bad"}`;
      setText(said, answer.ok ? (action === "kill" ? `Node ${name} is killed, and stays down until it is started.` : `Node ${name} is starting.`) : why(answer));
      if (answer.status !== 0) return;
    }
    if (!helpers.length) setText(said, "No node answers, so nobody can pass this on. See the terminal of corelkv cluster.");
  }

  function update() {
    const isOn = Boolean(model.own.status?.lab.supervised);
    if (!isOn) {
      replace(rows, h("li", { class: "note" }, "Nobody watches these processes who could kill or start them. With corelkv cluster, they can be."));
      known.clear();
      return;
    }
    for (const name of model.names) {
      if (!known.has(name)) {
        if (!known.size) replace(rows);
        const state = h("span", { class: "chip" });
        const kill = h("button", { class: "button small danger", type: "button", "data-kill": name, click: () => act(name, "kill") }, `Kill ${name}`);
        const start = h("button", { class: "button small", type: "button", "data-start": name, click: () => act(name, "start") }, `Start ${name}`);
        known.set(name, { state, kill, start });
        rows.append(h("li", {}, h("span", { class: "process-name" }, name), state, kill, start));
      }
      const { state, kill, start } = known.get(name);
      const isUp = Boolean(model.get(name)?.isFirstHand);
      const kind = isUp ? model.stateOf(name).state : "unknown";
      setText(state, isUp ? STATES[kind].label : "No answer");
      setAttribute(state, "data-color", STATES[kind].color);
      kill.disabled = !isUp;
      start.disabled = isUp;
    }
  }
  return { root, update };
}

// Milestones in words, and what they make together: stages over time, and one establishment per view.

import { nameOf, plural } from "./format.js";

const TOGETHER_MS = 250;

/** One milestone as a sentence. */
function describe({ event, reason, details }) {
  const names = (machines) => (machines ?? []).map(nameOf).join(", ");
  switch (event) {
    case "suspected":
      return `suspects ${names(details.machines)} (${reason.replaceAll("_", " ")})`;
    case "view":
      return `view of ${names(details.members)}`;
    case "states_exchanged":
      return `states exchanged; ${nameOf(details.representative)} represents primary ${details.committed}`;
    case "retransmitting":
      return `${plural(details.count, "message")} sent that others lack`;
    case "reds_merged":
      return "all messages of the members are here";
    case "demoted":
      return `${plural(details.count, "yellow message")} became red`;
    case "attempted":
      return `attempt of primary ${details.number}`;
    case "committed":
      return `commit of primary ${details.number}: everything is yellow`;
    case "voter":
      return "vote restored";
    case "vote_doubted":
      return `${details.machine} does not vote: ${details.detail}`;
    case "contradicted":
      return `states contradict each other: ${details.detail}`;
    case "aborted":
      return `establishing primary ${details.number} ended: ${reason.replaceAll("_", " ")}`;
    case "stage":
      return describeStage(reason, details);
    default:
      return event.replaceAll("_", " ");
  }
}

function describeStage(reason, { stage, committed, attempted, green, length }) {
  if (stage === "primary") return `primary ${committed}: ${plural(green, "message")} green`;
  if (stage === "establishing") return `establishing primary ${attempted}: the members are a majority`;
  if (stage === "recovering") return "recovering: the members exchange their states";
  const why = { no_majority: "no majority", orders_differ: "the orders differ", contradiction: "contradicting states" }[reason];
  return `no primary (${why ?? reason}): ${plural(length - green, "message")} not final`;
}

/** The stages of a node, as [{stage, from, to}] by the wall clock; the last one lasts. */
export function stagesOf(milestones, now) {
  const changes = milestones.filter((one) => one.event === "stage");
  return changes.map((one, place) => ({
    stage: one.details.stage,
    from: one.time_ms,
    to: place + 1 < changes.length ? changes[place + 1].time_ms : now,
  }));
}

/** How the members of each view came to a primary component, or to none: newest first. */
export function establishmentsOf(milestones) {
  const views = new Map();
  for (const one of milestones) {
    if (one.event === "suspected") continue;
    if (!views.has(one.view)) views.set(one.view, { view: one.view, members: [], steps: {}, start: one.time_ms });
    const found = views.get(one.view);
    if (one.event === "view") found.members = one.details.members.map(nameOf);
    const step = one.event === "stage" ? one.details.stage : one.event;
    if (!(step in found.steps)) found.steps[step] = one.time_ms;
    if (one.event === "stage" && one.details.stage === "primary") found.outcome = { stage: "primary", number: one.details.committed };
    if (one.event === "stage" && one.details.stage === "non_primary") found.outcome = { stage: "non_primary" };
  }
  return [...views.values()].map(withPhases).reverse();
}

const PHASES = [
  ["states", "recovering", ["states_exchanged"]],
  ["messages", "states_exchanged", ["establishing", "non_primary"]],
  ["attempt", "establishing", ["committed"]],
  ["commit", "committed", ["primary"]],
];

function withPhases(found) {
  const { steps } = found;
  const phases = [];
  for (const [name, from, ends] of PHASES) {
    const end = ends.map((one) => steps[one]).find((time) => time !== undefined);
    if (steps[from] !== undefined && end !== undefined) phases.push({ name, ms: Math.max(0, end - steps[from]) });
  }
  const total = phases.reduce((sum, { ms }) => sum + ms, 0);
  return { ...found, phases, total };
}

/** Milestones of all nodes, newest first, with those that say the same at about the same time as one. */
export function together(milestones) {
  const groups = [];
  const latest = new Map();
  for (const one of [...milestones].sort((a, b) => a.time_ms - b.time_ms || a.number - b.number)) {
    const text = describe(one);
    const known = latest.get(text);
    if (known && one.time_ms - known.time_ms < TOGETHER_MS && !known.names.includes(one.name)) {
      known.names.push(one.name);
      continue;
    }
    const group = { ...one, text, names: [one.name] };
    latest.set(text, group);
    groups.push(group);
  }
  return groups.reverse();
}

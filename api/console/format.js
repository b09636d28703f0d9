// Numbers, times and states in words.

const whole = new Intl.NumberFormat("en-US", { maximumFractionDigits: 0 });
const fine = new Intl.NumberFormat("en-US", { maximumFractionDigits: 1 });
const finest = new Intl.NumberFormat("en-US", { maximumFractionDigits: 2 });

export const count = (number) => whole.format(number);

export function rate(number) {
  return number < 10 ? fine.format(number) : whole.format(number);
}

export function milliseconds(number) {
  if (number >= 10_000) return `${fine.format(number / 1_000)} s`;
  return `${number < 1 ? finest.format(number) : number < 10 ? fine.format(number) : whole.format(number)} ms`;
}

export const percent = (share) => `${fine.format(share * 100)} %`;

export function duration(ms) {
  const seconds = Math.max(0, ms) / 1_000;
  if (seconds < 10) return `${fine.format(seconds)} s`;
  if (seconds < 60) return `${Math.floor(seconds)} s`;
  if (seconds < 3_600) return `${Math.floor(seconds / 60)} min ${Math.floor(seconds % 60)} s`;
  if (seconds < 86_400) return `${Math.floor(seconds / 3_600)} h ${Math.floor((seconds % 3_600) / 60)} min`;
  return `${Math.floor(seconds / 86_400)} d ${Math.floor((seconds % 86_400) / 3_600)} h`;
}

export function clock(ms, withMilliseconds = false) {
  const time = new Date(ms);
  const text = time.toLocaleTimeString("en-GB", { hour12: false });
  return withMilliseconds ? `${text}.${String(time.getMilliseconds()).padStart(3, "0")}` : text;
}

export function bytes(number) {
  if (number < 1_024) return `${number} B`;
  return number < 1_048_576 ? `${fine.format(number / 1_024)} KiB` : `${fine.format(number / 1_048_576)} MiB`;
}

/** A name like "a.1794953000.17" without its incarnation, for where there is little room. */
export const nameOf = (machine) => String(machine).replace(/\.\d+$/, "");

/** The end of a view's id, which differs between views; the title has all of it. */
export function shortView(id) {
  const [clockPart, node] = String(id).split(".");
  return `${clockPart}.${node}`;
}

export const STATES = {
  primary: { label: "Primary", color: "green", meaning: "Writes here become green." },
  establishing: { label: "Establishing", color: "yellow", meaning: "A majority is agreeing on a primary component." },
  recovering: { label: "Recovering", color: "yellow", meaning: "The members exchange what each of them has." },
  non_primary: { label: "Not primary", color: "red", meaning: "Writes here are accepted and stay red." },
  away: { label: "Away", color: "red", meaning: "It has left the others because of its disk, or to begin again with what it has learned." },
  unknown: { label: "Unknown", color: "grey", meaning: "Nothing is known of it at present." },
};

/** How far a node is with taking over what it lacks, in words; empty if it does not. */
export function learningText(learning) {
  if (!learning) return "";
  if (learning.phase === "asking") return learning.source ? `asks ${learning.source} for what it lacks` : "cannot learn: see its log";
  return `learning ${Math.min(99, Math.floor((100 * learning.bytes) / Math.max(learning.total_bytes, 1)))} %`;
}

/** What disturbs the network of a node, in words; empty if nothing does. */
export function disturbances(chaos) {
  const found = [
    [chaos.drop_from.length || chaos.drop_to.length, "links cut"],
    [chaos.loss, `${percent(chaos.loss)} loss`],
    [chaos.delay_ms, `${milliseconds(chaos.delay_ms)} delay`],
    [chaos.jitter_ms, `${milliseconds(chaos.jitter_ms)} jitter`],
    [chaos.duplication, `${percent(chaos.duplication)} doubled`],
  ];
  return found.filter(([is]) => is).map(([, text]) => text);
}

export const plural = (number, word) => `${count(number)} ${word}${number === 1 ? "" : "s"}`;

export const list = (names) =>
  names.length < 2 ? names.join("") : `${names.slice(0, -1).join(", ")} and ${names[names.length - 1]}`;

/** A value of the API as text: texts are as they are, other bytes are counted. */
export function valueText(value) {
  if (value === null || value === undefined) return "(no value)";
  if (typeof value === "string") return value;
  if (typeof value.base64 === "string") return `(${bytes(Math.floor((value.base64.length * 3) / 4))} that are not text)`;
  if ("increment" in value) return `increment by ${value.increment}`;
  if ("append" in value) return `append ${valueText(value.append)}`;
  return JSON.stringify(value);
}

// The values of a topic over time, where they are numbers, or where their JSON has numbers.
import { html, useMemo, useState } from "../../html.js";
import { compact } from "../../format.js";
import { jsonIn, numberIn, numberPaths, pathText, textIn } from "../../payload.js";
import { shortened, visible } from "../../text.js";
import { moment } from "../../time.js";
import { Chart } from "../../parts/chart.js";
import { Choice } from "../../parts/fields.js";

const LOOKED_AT = 20;
const LARGEST = 65_536;

/** `entries`: {row, bytes} with the newest first. `onPick(row)` is called for a click on a value. */
export function Timeline({ entries, onPick }) {
  const [chosen, setChosen] = useState(null);
  const texts = useMemo(() => entries.map((each) => (each.bytes && each.bytes.length <= LARGEST ? textIn(each.bytes) : null)), [entries]);
  const paths = useMemo(() => pathsIn(texts), [texts]);
  const path = paths.find((each) => pathText(each) === chosen) ?? paths[0];
  const drawn = useMemo(() => {
    if (!path) return null;
    const points = [];
    entries.forEach((each, at) => points.push([moment(each.row.changed_at) / 1000, each.row.op === "set" ? numberIn(texts[at], path) : null, each.row]));
    points.reverse();
    return { times: points.map(([time]) => time), values: points.map(([, value]) => value), rows: points.map(([, , row]) => row) };
  }, [path, entries, texts]);
  if (!drawn || drawn.values.filter((each) => each !== null).length < 2) return null;
  const name = pathText(path);
  return html`<div class="timeline">${paths.length > 1 && html`<${Choice} label="Values of" value=${name} onValue=${setChosen} options=${paths.map((each) => [pathText(each), visible(shortened(pathText(each), 60))])} />`}
    <${Chart} title=${path.length ? visible(shortened(name, 60)) : "Values"} times=${drawn.times} series=${[{ name: "value", values: drawn.values, format: number }]} height=${150} points=${drawn.values.length <= 150} stepped zero=${false} onPick=${(at) => onPick(drawn.rows[at])} /></div>`;
}

const number = (value) => (typeof value === "number" && Math.abs(value) < 1e4 ? String(Math.round(value * 1e4) / 1e4) : compact(value));

function pathsIn(texts) {
  const found = new Map();
  for (const text of texts.filter((each) => each !== null).slice(0, LOOKED_AT)) {
    const json = jsonIn(text.trim());
    if (json) for (const path of numberPaths(json.value)) found.set(pathText(path), path);
  }
  return [...found.values()];
}

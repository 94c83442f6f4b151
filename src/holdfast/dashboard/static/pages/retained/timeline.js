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

/** Find the numbers of `entries`, {row, bytes} with the newest first: {values, name, names, choose}, or null without two. */
export function useNumbers(entries) {
  const [chosen, setChosen] = useState(null);
  const texts = useMemo(() => entries.map((each) => (each.bytes && each.bytes.length <= LARGEST ? textIn(each.bytes) : null)), [entries]);
  const paths = useMemo(() => pathsIn(texts), [texts]);
  const path = paths.find((each) => pathText(each) === chosen) ?? paths[0];
  const values = useMemo(() => (path ? entries.map((each, at) => (each.row.op === "set" ? numberIn(texts[at], path) : null)) : []), [path, entries, texts]);
  if (values.filter((each) => each !== null).length < 2) return null;
  return { values, name: pathText(path), names: paths.map(pathText), choose: setChosen };
}

/** `entries` as for `useNumbers`, which returned `numbers`. `onPick(row)` is called for a click on a value. */
export function Timeline({ entries, numbers, onPick }) {
  const drawn = useMemo(() => {
    const rows = entries.map((each) => each.row).reverse();
    return { times: rows.map((row) => moment(row.changed_at) / 1000), values: numbers.values.toReversed(), rows };
  }, [entries, numbers.values]);
  const { name, names, choose } = numbers;
  return html`<div class="timeline">${names.length > 1 && html`<${Choice} label="Values of" value=${name} onValue=${choose} options=${names.map((each) => [each, visible(shortened(each, 60))])} />`}
    <${Chart} title=${name !== "$" ? visible(shortened(name, 60)) : "Values"} times=${drawn.times} series=${[{ name: "value", values: drawn.values, format: number }]} height=${150} points=${drawn.values.length <= 150} stepped zero=${false} onPick=${(at) => onPick(drawn.rows[at])} /></div>`;
}

export const number = (value, step) => (typeof value === "number" && Math.abs(value) < 1e4 ? String(Math.round(value * 1e4) / 1e4) : compact(value, step));

function pathsIn(texts) {
  const found = new Map();
  for (const text of texts.filter((each) => each !== null).slice(0, LOOKED_AT)) {
    const json = jsonIn(text.trim());
    if (json) for (const path of numberPaths(json.value)) found.set(pathText(path), path);
  }
  return [...found.values()];
}

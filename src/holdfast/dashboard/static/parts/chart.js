// Charts over time: uPlot in a frame with a title and the values, at the pointer or the newest.
import uPlot from "../vendor/uplot.js";
import { html, useEffect, useLayoutEffect, useRef, useState } from "../html.js";
import { byteRate, bytes, compact } from "../format.js";
import { exact } from "../time.js";

const DASHES = [[], [6, 4], [2, 3]];
const BINARY = Array.from({ length: 55 }, (_each, power) => 2 ** power);
const WHOLE = Array.from({ length: 15 }, (_each, power) => [1, 2, 5].map((digit) => digit * 10 ** power)).flat();
const STEPS = new Map([[bytes, BINARY], [byteRate, BINARY], [compact, WHOLE]]);
const drawn = new Set();

const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

/** Draw all charts again, after the colours have changed. */
export const redrawCharts = () => drawn.forEach((each) => each());
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redrawCharts);

/**
 * `times`: seconds since the epoch; `series`: {name, values, format}; `range`: [first, last] in seconds; `points` marks
 * each value; `stepped` keeps a value until the next one;
 * `bridged` draws lines over times without a value, such as latencies while nothing happens.
 */
export function Chart({ title, times, series, range, height = 150, points = false, stepped = false, zero = true, bridged = false, empty = "No values yet", onPick }) {
  const frame = useRef(null);
  const chart = useRef(null);
  const input = useRef(null);
  const [index, setIndex] = useState(null);
  const [theme, setTheme] = useState(0);
  const format = series[0].format;
  input.current = { times, series, range, onPick };
  const shape = `${series.map((each) => each.name).join()}|${points}|${stepped}|${height}|${theme}|${zero}`;

  useEffect(() => {
    const again = () => setTheme((before) => before + 1);
    drawn.add(again);
    return () => drawn.delete(again);
  }, []);

  useLayoutEffect(() => {
    const axis = { stroke: colour("--quiet"), grid: { stroke: colour("--line"), width: 1 }, ticks: { show: false }, font: "11px system-ui", size: 26 };
    const options = {
      width: Math.max(120, frame.current.clientWidth), height, legend: { show: false }, pxAlign: 1, padding: [8, 18, 0, 0],
      cursor: { y: false, drag: { x: false, y: false }, points: { size: 7 } },
      scales: {
        x: { time: true, range: (_chart, low, high) => input.current.range ?? (low === high ? [low - 30, high + 30] : [low, high]) },
        y: { range: (_chart, low, high) => heights(low, high, zero) },
      },
      axes: [{ ...axis, space: 60, values: labels }, { ...axis, size: (_chart, values) => 14 + 6.200 * Math.max(2, ...(values ?? []).map((each) => String(each).length)), values: (_chart, splits) => splits.map((each) => input.current.series[0].format(each, splits[1] - splits[0])), space: 32, incrs: STEPS.get(format) }],
      series: [{}, ...series.map((each, at) => ({
        label: each.name, stroke: colour(`--series-${at + 1}`), width: 1.500, dash: DASHES[at], points: { show: points, size: 5, fill: colour("--panel") },
        fill: at === 0 && series.length === 1 && !points ? colour("--series-fill") : undefined, spanGaps: bridged,
        paths: stepped ? uPlot.paths.stepped({ align: 1 }) : undefined,
      }))],
      hooks: { setCursor: [(self) => setIndex(self.cursor.idx ?? null)] },
    };
    const made = new uPlot(options, [times, ...series.map((each) => each.values)], frame.current);
    chart.current = made;
    made.over.addEventListener("click", () => { if (made.cursor.idx !== null && made.cursor.idx !== undefined) input.current.onPick?.(made.cursor.idx); });
    const sized = new ResizeObserver(() => { if (frame.current) made.setSize({ width: Math.max(120, frame.current.clientWidth), height }); });
    sized.observe(frame.current);
    return () => { sized.disconnect(); made.destroy(); chart.current = null; };
  }, [shape]);

  useLayoutEffect(() => { chart.current?.setData([times, ...series.map((each) => each.values)]); }, [times, series, range?.[0], range?.[1]]);

  const at = index !== null && index < times.length ? index : times.length - 1;
  const newest = series.map((each) => `${each.name} ${each.format(each.values.at(-1))}`).join(", ");
  return html`<figure class="chart">
    <figcaption><strong>${title}</strong><span class="values">${series.map((each, place) => html`<span key=${each.name}><i class=${`dash dash-${place + 1}`} aria-hidden="true"></i>${each.name} <b>${times.length ? each.format(each.values[at]) : "–"}</b></span>`)}
      ${index !== null && times.length > 0 && html`<span class="quiet at">${exact(times[at] * 1000).slice(0, 19)}</span>`}</span></figcaption>
    <div class=${`plot height-${height} ${onPick ? "picks" : ""}`} ref=${frame} role="img" aria-label=${times.length ? `${title}: now ${newest}` : `${title}: ${empty}`}>${!times.length && html`<p class="nothing">${empty}</p>`}</div>
  </figure>`;
}

/** Times on the axis, in 24 hours. */
function labels(_chart, splits, _axis, _space, step) {
  return splits.map((each) => {
    const text = exact(each * 1000);
    if (step >= 86400) return text.slice(5, 10);
    return step >= 60 ? text.slice(11, 16) : text.slice(11, 19);
  });
}

/** From 0 where values are amounts; some room where all are the same. */
function heights(low, high, zero) {
  if (low === null || low === undefined || high === null) return [0, 1];
  if (zero && low >= 0) return [0, high === 0 ? 1 : high * 1.080];
  const room = high === low ? Math.abs(high) * 0.100 || 1 : (high - low) * 0.080;
  return [low - room, high + room];
}

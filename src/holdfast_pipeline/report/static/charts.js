"use strict";
// Draws the charts with ECharts: each in its element with data-chart, from the page's JSON. All texts reach ECharts as
// text: labels as plain text, tooltips as elements that this script makes. Colours are the style sheet's variables, so a
// dark screen and print need nothing here. A chart is drawn when its element gets a width, and goes when that is hidden.
(() => {
  document.documentElement.dataset.charts = "yes";
  const specs = JSON.parse(document.getElementById("charts").textContent);
  const drawn = new Map();
  // Pixels of a chart's width in print, alone and beside another one. Paper that is narrower or wider scales it.
  const PRINTED = 690, PRINTED_PAIR = 335;
  const ALL = "All topics";
  const still = matchMedia("(prefers-reduced-motion: reduce)").matches;
  const ink = "var(--ink)", soft = "var(--soft)", line = "var(--line)";
  const hue = (place) => `var(--c${place})`;

  const made = (name, text) => {
    const element = document.createElement(name);
    element.textContent = text;
    return element;
  };
  const told = (heading, facts) => {
    const box = document.createElement("div");
    box.append(made("b", heading), made("div", facts));
    return box;
  };
  const short = (value) => value.toLocaleString("en", { notation: "compact", maximumFractionDigits: 1 }).replace("K", "k");
  // With three digits of the values' range: 1,234,567.25 in a range of 10, but 1,234,567 in a range of 5,000.
  const quantity = ({ low, high }) => {
    const places = 3 - Math.floor(Math.log10(high - low || Math.abs(high) || 1));
    return (value) => {
      if (Math.abs(value) < 1e15 && places <= 12) {
        return value.toLocaleString("en", { maximumFractionDigits: Math.max(0, places) });
      }
      const [digits, power] = value.toExponential(3).split("e");
      return value ? Number(digits) + "e" + Number(power) : "0";
    };
  };
  const moment = (seconds) => new Date(seconds * 1000).toISOString().slice(0, 16).replace("T", " ") + " UTC";
  // Bytes get the unit of the highest value, so that the scale has round numbers of it.
  const unitOf = (unit, values) => {
    if (unit !== "bytes") return { name: "", scale: 1 };
    const names = ["B", "KB", "MB", "GB", "TB", "PB"];
    const power = Math.min(names.length - 1, Math.floor(Math.log2(Math.max(1, ...values)) / 10));
    return { name: " " + names[power], scale: 1024 ** power };
  };

  const base = (tooltip) => ({
    animation: false,
    textStyle: { fontFamily: getComputedStyle(document.body).fontFamily, color: ink },
    tooltip: {
      confine: true, transitionDuration: 0, backgroundColor: ink, borderWidth: 0, padding: [6, 10], className: "tip",
      textStyle: { color: "var(--card)", fontSize: 13 }, ...tooltip,
    },
  });
  const label = { color: soft, fontSize: 11, hideOverlap: true };
  const value = (more) => ({
    type: "value", splitNumber: 3, splitLine: { lineStyle: { color: line } }, axisLine: { show: false }, ...more,
    axisLabel: { ...label, ...more.axisLabel },
  });
  const bottom = (more) => ({
    axisLine: { onZero: false, lineStyle: { color: soft } }, axisTick: { show: false }, splitLine: { show: false }, ...more,
    axisLabel: { ...label, ...more.axisLabel },
  });
  const grid = { left: 2, right: 10, top: 10, bottom: 2, outerBoundsMode: "same", outerBoundsContain: "axisLabel" };
  const bars = (labels, series, unit, tips) => {
    const { name, scale } = unitOf(unit, series.flatMap((one) => one[1]));
    return {
      ...base({ trigger: "axis", axisPointer: { type: "shadow", shadowStyle: { color: "var(--mark)" }, z: -1 },
        formatter: (found) => tips(found[0].dataIndex) }),
      grid,
      xAxis: bottom({ type: "category", data: labels }),
      yAxis: value({ minInterval: unit === "bytes" ? 0 : 1, min: 0, max: ({ max }) => (max > 0 ? null : 1), axisLabel: { formatter: (each) => short(each) + name } }),
      // A value that is not 0 has a pixel at least; 0 has none.
      series: series.map(([each, values], place) => ({
        type: "bar", name: each, stack: "all", barCategoryGap: "14%", barMaxWidth: 120, barMinHeight: 1, emphasis: { disabled: true },
        itemStyle: { color: hue(place) }, data: values.map((one) => (one ? one / scale : null)),
      })),
    };
  };

  const edges = ({ low, high, bands }) => {
    const count = high > low ? bands.length : 1;
    return Array.from({ length: count + 1 }, (_, place) => low + ((high - low) / count) * place);
  };
  // The times of a line, each with its index. Where nothing changed for much longer than usual, the line is interrupted.
  const pointsOf = (times) => {
    const apart = times.slice(1).map((time, place) => time - times[place]);
    const usual = [...apart].sort((one, other) => one - other)[apart.length >> 1];
    return times.flatMap((time, place) => {
      const gap = place ? apart[place - 1] : 0;
      return gap > 4 * usual ? [[time - gap / 2, null], [time, place]] : [[time, place]];
    });
  };
  const options = {
    columns: (spec) => bars(spec.labels, spec.series, spec.unit, (at) => told(spec.headings[at], spec.facts[at])),
    distribution: (spec) => {
      const at = edges(spec), rows = figures.distribution(spec).rows;
      return bars(at.slice(0, -1).map(quantity(spec)), [["values", rows.map((row) => row[1].v)]], "count",
        (place) => told(rows[place][0].text, rows[place][1].text + (rows[place][1].v === 1 ? " value" : " values")));
    },
    course: (spec) => {
      const inScale = (one) => Math.min(spec.high, Math.max(spec.low, one));
      const points = pointsOf(spec.steps.map((step) => step[0]));
      const at = (place, less) => points.map(([time, index]) => {
        const step = spec.steps[index];
        return [time * 1000, step ? inScale(step[place]) - (less ? inScale(step[less]) : 0) : null, index];
      });
      const quiet = { type: "line", symbol: "none", silent: true, emphasis: { disabled: true } };
      const area = { ...quiet, stack: "area", stackStrategy: "all", lineStyle: { width: 0 } };
      const rows = figures.course(spec).rows;
      return {
        ...base({ trigger: "axis", axisPointer: { type: "line", lineStyle: { color: soft } },
          formatter: (found) => {
            const row = rows[found[0].value[2]];
            if (!row) return ""; // where the line is interrupted
            const [from, least, mean, most] = row.map((one) => one.text);
            return told(from, `mean ${mean}, from ${least} to ${most}`);
          } }),
        useUTC: true,
        grid,
        xAxis: bottom({ type: "time", min: spec.since * 1000, max: spec.until * 1000, splitNumber: 4,
          axisLabel: { formatter: { day: "{d} {MMM}" } } }),
        yAxis: value({ scale: true, axisLabel: { formatter: quantity(spec) } }),
        series: [
          { ...area, data: at(1) },
          { ...area, data: at(3, 1), areaStyle: { color: hue(0), opacity: 0.25 } },
          // A line of one point would not be seen.
          { ...quiet, data: at(2), showAllSymbol: true, symbolSize: 5, itemStyle: { color: hue(0) },
            symbol: (_, { dataIndex }) => {
              const beside = [points[dataIndex - 1], points[dataIndex + 1]];
              return beside.some((one) => one && one[1] !== null) ? "none" : "circle";
            },
            lineStyle: { color: hue(0), width: 2 } },
        ],
      };
    },
    map: (spec, width) => {
      const measure = document.querySelector("input[name=measure]:checked").value;
      const DEPTHS = [46, 37, 29, 22, 16];
      // Each node has an id, and the id of the node that a click on it shows: itself, or the prefix above it.
      let count = 0;
      const node = (one, depth, above) => {
        const id = `n${count++}`, opens = one.children ? id : above;
        const share = DEPTHS[Math.min(depth, DEPTHS.length - 1)];
        const color = `color-mix(in srgb, ${hue(one.hue)} ${share}%, var(--tint))`;
        return {
          id, opens, name: one.name, value: one[measure], told: one.told, itemStyle: { color, borderColor: color },
          children: one.children && one.children.map((each) => node(each, depth + 1, id)),
        };
      };
      const text = { color: ink, fontSize: 12, ellipsis: "…", formatter: (found) => found.name };
      return {
        ...base({ formatter: (found) => {
          const [heading, ...facts] = (found.data.told || ALL).split("\n");
          return told(heading, facts.join("\n"));
        } }),
        series: [{
          type: "treemap", name: ALL, data: spec.nodes.map((each) => node(each, 0)), left: 0, right: 0, top: 0, bottom: 34,
          animation: !still, animationDuration: 0, animationDurationUpdate: 250, emphasis: { disabled: true },
          roam: false, nodeClick: false, leafDepth: width < 600 ? 2 : 3, visibleMin: 30, childrenVisibleMin: 1200, drillDownIcon: "",
          label: { ...text, padding: [4, 2, 0, 5], position: [0, 0] },
          upperLabel: { ...text, show: true, height: 20, padding: [0, 5] },
          itemStyle: { borderWidth: 1, gapWidth: 1 },
          levels: [{ itemStyle: { borderWidth: 0, gapWidth: 2, borderColor: "var(--card)" }, upperLabel: { show: false } }],
          breadcrumb: {
            left: 0, bottom: 4, height: 24, emphasis: { itemStyle: { color: line } },
            itemStyle: { color: "var(--mark)", borderColor: line, borderWidth: 1, textStyle: { color: ink, fontSize: 12 } },
          },
        }],
      };
    },
  };

  // The figures behind the charts of values, which the page has as JSON only: heads, and rows of texts and numbers.
  const figures = {
    distribution: (spec) => {
      const at = edges(spec), text = quantity(spec);
      const rows = at.slice(0, -1).map((from, place) => [
        { text: text(from) + (spec.high > spec.low ? " to " + text(at[place + 1]) : ""), v: from },
        { text: spec.bands[place].toLocaleString("en"), v: spec.bands[place] },
      ]);
      return { heads: ["value", "retained values"], rows };
    },
    course: (spec) => ({
      heads: ["from", "least", "mean", "highest"],
      rows: spec.steps.map(([at, ...values]) => [{ text: moment(at), v: at * 1000 }, ...values.map((v) => ({ text: quantity(spec)(v), v }))]),
    }),
  };
  const behind = (element, spec) => {
    const { heads, rows } = figures[spec.kind](spec);
    const details = document.createElement("details"), region = document.createElement("div"), table = document.createElement("table");
    details.className = "behind";
    details.append(made("summary", "The same in figures"), region);
    region.className = "wide";
    region.tabIndex = 0;
    region.setAttribute("role", "region");
    region.setAttribute("aria-label", element.getAttribute("aria-label"));
    region.append(table);
    table.createTHead().insertRow().append(...heads.map((head) => { const cell = made("th", head); cell.scope = "col"; return cell; }));
    const body = table.createTBody();
    for (const row of rows) body.insertRow().append(...row.map(({ text, v }) => { const cell = made("td", text); cell.dataset.v = v; return cell; }));
    element.after(details);
    return region;
  };

  // The prefix that the map shows: a new width or the other measure begins with it again.
  let opened;
  const open = (chart) => { if (opened) chart.dispatchAction({ type: "treemapRootToNode", targetNode: opened }); };
  const fill = (chart, spec, width) => {
    chart.setOption(options[spec.kind](spec, width), true);
    if (spec.kind === "map") open(chart);
  };
  const begin = (element, spec, width) => {
    const chart = echarts.init(element, null, { renderer: "svg", width });
    drawn.set(element, chart);
    fill(chart, spec, width);
    if (spec.kind === "map") {
      chart.on("click", ({ data, selfType }) => {
        if (selfType || !data || !data.opens) return;
        opened = data.opens;
        open(chart);
      });
      chart.on("treemaproottonode", ({ targetNode }) => { opened = targetNode.getId ? targetNode.getId() : targetNode; });
    }
    const details = element.parentNode.querySelector(".behind");
    if (!details) document.dispatchEvent(new CustomEvent("table", { detail: behind(element, spec) }));
    else if (!element.dataset.drawn) details.open = false;
    element.dataset.drawn = "yes";
    return chart;
  };
  const draw = (element, width) => {
    const spec = specs[element.dataset.chart];
    let chart = drawn.get(element);
    if (!chart) chart = begin(element, spec, width);
    else if (chart.getWidth() !== width) {
      chart.resize({ width });
      if (spec.kind === "map") fill(chart, spec, width);
    }
    chart.getZr().flush();
    element.querySelector("svg").setAttribute("viewBox", `0 0 ${width} ${chart.getHeight()}`);
  };
  const seen = (element) => {
    const width = Math.floor(element.clientWidth);
    if (width) draw(element, width);
    else if (drawn.has(element)) {
      drawn.get(element).dispose();
      drawn.delete(element);
    }
  };
  const places = [...document.querySelectorAll("[data-chart]")];
  const watch = new ResizeObserver((changes) => { for (const { target } of changes) seen(target); });
  for (const place of places) watch.observe(place);
  for (const input of document.querySelectorAll("input[name=measure]")) {
    input.addEventListener("change", () => {
      const place = document.querySelector("[data-chart=map]");
      const chart = drawn.get(place);
      if (chart) fill(chart, specs.map, chart.getWidth());
    });
  }
  addEventListener("beforeprint", () => { for (const place of drawn.keys()) draw(place, place.closest(".pair") ? PRINTED_PAIR : PRINTED); });
  addEventListener("afterprint", () => { for (const place of [...drawn.keys()]) seen(place); });
})();

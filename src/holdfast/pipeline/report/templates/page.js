"use strict";
// Tooltips at once, in place of the browser's own, zooming into the map, and search, order and download of tables.
// All that matters is there without.
(() => {
  const tip = document.body.appendChild(document.createElement("div"));
  tip.id = "tip";
  tip.hidden = true;
  for (const title of document.querySelectorAll("main svg title")) {
    title.parentNode.tip = title.textContent;
    title.remove();
  }
  const told = (event) => {
    const found = event.target.closest && event.target.closest("svg svg");
    tip.hidden = !(found && found.tip);
    if (tip.hidden) return;
    tip.textContent = found.tip;
    const box = tip.getBoundingClientRect();
    tip.style.left = Math.max(4, Math.min(event.clientX + 14, innerWidth - box.width - 4)) + "px";
    tip.style.top = (event.clientY + 18 + box.height > innerHeight ? event.clientY - box.height - 10 : event.clientY + 18) + "px";
  };
  addEventListener("pointermove", told);
  addEventListener("pointerdown", told);
  addEventListener("scroll", () => { tip.hidden = true; });

  for (const map of document.querySelectorAll(".icicle")) {
    const height = map.height.baseVal.value;
    const tiles = [...map.children].filter((one) => one.tip).map((one) => ({
      one, top: parseFloat(one.getAttribute("y")), high: parseFloat(one.getAttribute("height")),
    }));
    const back = document.createElement("button");
    back.type = "button";
    back.textContent = "Show all";
    back.hidden = true;
    map.before(back);
    const hint = document.createElement("p");
    hint.className = "note";
    hint.textContent = "A click on a prefix shows it larger; Escape shows all again.";
    map.after(hint);
    const show = (top, high) => {
      for (const tile of tiles) {
        const first = Math.max(tile.top, top), last = Math.min(tile.top + tile.high, top + high);
        const seen = last - first > 1e-6;
        tile.one.style.display = seen ? "" : "none";
        if (!seen) continue;
        tile.one.setAttribute("y", (100 * (first - top)) / high + "%");
        tile.one.setAttribute("height", (100 * (last - first)) / high + "%");
        tile.one.classList.toggle("small", ((last - first) / high) * height < 15);
      }
      back.hidden = high >= 100;
    };
    map.classList.add("zooms");
    map.addEventListener("click", (event) => {
      const tile = tiles.find((one) => one.one === event.target.closest("svg svg"));
      if (tile) show(tile.top, tile.high);
    });
    back.addEventListener("click", () => show(0, 100));
    addEventListener("keydown", (event) => { if (event.key === "Escape") show(0, 100); });
  }
  const SEARCHED = 8;
  const value = (cell) => (cell.dataset.v === undefined ? cell.textContent.trim() : Number(cell.dataset.v));
  // Unknown values come last in either order.
  const compare = (one, other, sign) => {
    const numbers = [one, other].map((each) => typeof each === "number");
    if (numbers[0] !== numbers[1]) return numbers[0] ? -1 : 1;
    return sign * (numbers[0] ? one - other : one < other ? -1 : one > other ? 1 : 0);
  };
  // A spreadsheet must take a topic that begins like a formula for text.
  const quoted = (cell) => {
    const text = cell.dataset.v === undefined ? cell.textContent.trim().replace(/^(?=[=+\-@\t\r])/, "'") : cell.dataset.v;
    return '"' + text.replaceAll('"', '""') + '"';
  };
  for (const region of document.querySelectorAll(".wide")) {
    const table = region.querySelector("table"), body = table.tBodies[0], rows = [...body.rows];
    const heads = [...table.tHead.rows[0].cells];
    const kept = heads.map((head, place) => place).filter((place) => !rows.some((row) => row.cells[place].classList.contains("drawn")));
    const tools = document.createElement("div");
    tools.className = "tools";
    if (rows.length >= SEARCHED) {
      const search = document.createElement("input"), count = document.createElement("span");
      search.type = "search";
      search.placeholder = "Search";
      search.setAttribute("aria-label", "Search in: " + region.getAttribute("aria-label"));
      count.className = "count";
      count.setAttribute("role", "status");
      search.addEventListener("input", () => {
        const words = search.value.toLowerCase().split(/\s+/);
        for (const row of rows) {
          const text = row.textContent.toLowerCase();
          row.hidden = !words.every((word) => text.includes(word));
        }
        const seen = rows.filter((row) => !row.hidden).length;
        count.textContent = seen === rows.length ? "" : seen + " of " + rows.length;
      });
      tools.append(search, count);
    }
    const save = document.createElement("button");
    save.type = "button";
    save.textContent = "CSV";
    save.setAttribute("aria-label", "Download as CSV: " + region.getAttribute("aria-label"));
    save.addEventListener("click", () => {
      const seen = [...body.rows].filter((row) => !row.hidden);
      const lines = [table.tHead.rows[0], ...seen].map((row) => kept.map((place) => quoted(row.cells[place])).join(","));
      const link = document.createElement("a");
      link.href = URL.createObjectURL(new Blob([lines.join("\r\n") + "\r\n"], { type: "text/csv" }));
      link.download = region.getAttribute("aria-label").toLowerCase().replaceAll(" ", "-") + ".csv";
      link.click();
      setTimeout(() => URL.revokeObjectURL(link.href), 60000);
    });
    tools.append(save);
    region.before(tools);
    if (rows.length < 2) continue;
    for (const place of kept) {
      const head = heads[place];
      if (!head.textContent) continue;
      const button = document.createElement("button");
      button.type = "button";
      button.textContent = head.textContent;
      head.replaceChildren(button);
      button.addEventListener("click", () => {
        const first = rows.some((row) => row.cells[place].dataset.v !== undefined) ? "descending" : "ascending";
        const other = first === "ascending" ? "descending" : "ascending";
        const order = head.getAttribute("aria-sort") === first ? other : first;
        for (const each of heads) each.removeAttribute("aria-sort");
        head.setAttribute("aria-sort", order);
        const sign = order === "ascending" ? 1 : -1;
        body.append(...[...rows].sort((a, b) => compare(value(a.cells[place]), value(b.cells[place]), sign)));
      });
    }
  }
  document.documentElement.dataset.ready = "yes";
})();

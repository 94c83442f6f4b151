"use strict";
// Search, order and download of tables. All that matters is there without.
(() => {
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
  const equip = (region) => {
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
    if (rows.length < 2) return;
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
  };
  for (const region of document.querySelectorAll(".wide")) equip(region);
  document.addEventListener("table", (event) => equip(event.detail));
  document.documentElement.dataset.ready = "yes";
})();

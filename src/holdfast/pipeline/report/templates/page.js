"use strict";
// Tooltips at once, in place of the browser's own, and zooming into the map. All that matters is there without.
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
  document.documentElement.dataset.ready = "yes";
})();

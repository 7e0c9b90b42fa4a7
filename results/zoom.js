// Zooming and pointing in the pictures of class `zoomable`: bars know their times, so only these are laid out anew.
(() => {
  "use strict";
  const tip = document.createElement("div");
  tip.className = "tip";
  tip.hidden = true;
  document.body.append(tip);
  const MIN_BAR = 3, LETTER = 6.2;

  for (const svg of document.querySelectorAll("svg.zoomable")) {
    const whole = [Number(svg.dataset.from), Number(svg.dataset.to)];
    const left = Number(svg.dataset.left), width = Number(svg.dataset.width);
    const parts = [...svg.querySelectorAll("[data-begin]")].map((element) => (
      { element, begin: Number(element.dataset.begin), end: Number(element.dataset.end) }));
    let [from, to] = whole;

    const draw = () => {
      const x = (ns) => left + (ns - from) / (to - from) * width;
      for (const { element, begin, end } of parts) {
        const a = Math.max(x(begin), left), b = Math.min(x(end), left + width);
        const outside = x(end) < left || x(begin) > left + width;
        if (element.tagName === "text") {
          element.setAttribute("x", a + 3);
          element.style.display = outside || element.textContent.length * LETTER > b - a ? "none" : "";
        } else {
          element.setAttribute("x", a);
          element.setAttribute("width", Math.max(b - a, MIN_BAR));
          element.style.display = outside ? "none" : "";
        }
      }
      for (const label of svg.querySelectorAll("[data-axis]")) {
        const ns = label.dataset.axis === "start" ? from : to;
        label.textContent = (ns / 1e9).toFixed(to - from < 1e7 ? 6 : 3) + "\u00a0s";
      }
    };
    const look = (a, b) => {
      const length = Math.min(Math.max(b - a, 1e4), whole[1] - whole[0]);
      from = Math.min(Math.max(a, whole[0]), whole[1] - length);
      to = from + length;
      draw();
    };
    const zoom = (factor, at) => look(at - (at - from) * factor, at + (to - at) * factor);
    const steps = {
      in: () => zoom(0.5, (from + to) / 2),
      out: () => zoom(2, (from + to) / 2),
      left: () => look(from - (to - from) / 3, to - (to - from) / 3),
      right: () => look(from + (to - from) / 3, to + (to - from) / 3),
      all: () => look(...whole),
    };
    const keys = { "+": "in", "-": "out", ArrowLeft: "left", ArrowRight: "right", "0": "all" };
    const moment = (event) => {
      const box = svg.getBoundingClientRect();
      return from + ((event.clientX - box.left) / box.width * (left + width) - left) / width * (to - from);
    };
    for (const button of svg.closest("article").querySelectorAll("[data-zoom]")) {
      button.addEventListener("click", steps[button.dataset.zoom]);
    }
    svg.addEventListener("keydown", (event) => {
      if (keys[event.key]) { steps[keys[event.key]](); event.preventDefault(); }
    });
    svg.addEventListener("wheel", (event) => {
      if (event.ctrlKey) { zoom(event.deltaY < 0 ? 0.8 : 1.25, moment(event)); event.preventDefault(); }
    }, { passive: false });
    let dragged = null;
    svg.addEventListener("pointerdown", (event) => { dragged = { at: moment(event) }; });
    svg.addEventListener("pointermove", (event) => {
      if (dragged && event.buttons) { const by = dragged.at - moment(event); look(from + by, to + by); }
      const told = event.target.closest("[data-tip]");
      tip.hidden = !told;
      if (told) {
        tip.textContent = told.dataset.tip;
        tip.style.left = Math.min(event.clientX + 14, innerWidth - 340) + "px";
        tip.style.top = event.clientY + 16 + "px";
      }
    });
    for (const name of ["pointerup", "pointerleave"]) {
      svg.addEventListener(name, () => { dragged = null; tip.hidden = true; });
    }
  }
})();

"use strict";
// Each flame graph becomes a `srcdoc` document when it is first opened, because its script expects to own the document. Browsers
// limit the length of `data:` addresses, and a frame of another origin may not show the prompt for a search. The script keeps the
// search in its address, which a `srcdoc` document cannot change, so that call is disabled.
for (const part of document.querySelectorAll("#flame details")) {
  const frame = part.querySelector("iframe");
  const show = () => {
    if (!part.open || frame.srcdoc) return;
    const bytes = Uint8Array.from(atob(frame.dataset.picture), (letter) => letter.charCodeAt(0));
    const picture = new TextDecoder().decode(bytes).replace("<svg", '<svg style="display: block; width: 100%"');
    frame.addEventListener("load", () => (frame.contentWindow.history.replaceState = () => {}));
    frame.srcdoc = '<body style="margin: 0">' + picture;
  };
  part.addEventListener("toggle", show);
  show();
}
// A click on a column's head sorts, and a field above each table filters.
for (const table of document.querySelectorAll("table")) {
  const body = table.tBodies[0];
  const rows = [...body.rows];
  const key = (row, at) => {
    const cell = row.cells[at];
    return cell.dataset.v === undefined ? cell.textContent : Number(cell.dataset.v);
  };
  const compare = (a, b) => (typeof a === "number" && typeof b === "number" ? a - b : String(a).localeCompare(String(b)));
  [...table.tHead.rows[0].cells].forEach((head, at) => {
    head.addEventListener("click", () => {
      const down = !head.classList.contains("down");
      for (const other of table.tHead.rows[0].cells) other.classList.remove("up", "down");
      head.classList.add(down ? "down" : "up");
      rows.sort((one, two) => compare(key(one, at), key(two, at)) * (down ? -1 : 1));
      body.append(...rows);
    });
  });
  const filter = document.createElement("input");
  filter.className = "filter";
  filter.placeholder = "filter";
  filter.addEventListener("input", () => {
    const wanted = filter.value.toLowerCase();
    for (const row of rows) row.hidden = !row.textContent.toLowerCase().includes(wanted);
  });
  table.parentElement.querySelector("h2").append(filter);
}
// A line and a label show the time below the pointer.
const lanes = document.querySelector("#timeline svg");
if (lanes) {
  const line = lanes.querySelector(".cursor");
  const label = lanes.querySelector(".now");
  const left = Number(lanes.dataset.left);
  const width = Number(lanes.dataset.width);
  const [from, to] = [Number(lanes.dataset.from), Number(lanes.dataset.to)];
  lanes.addEventListener("mousemove", (event) => {
    const box = lanes.getBoundingClientRect();
    const scale = lanes.viewBox.baseVal.width / box.width;
    const [x, y] = [(event.clientX - box.left) * scale, (event.clientY - box.top) * scale];
    const share = Math.min(1, Math.max(0, (x - left) / width));
    line.setAttribute("x1", left + share * width);
    line.setAttribute("x2", left + share * width);
    // The label goes on the side of the line that has room.
    label.setAttribute("x", left + share * width + (share > 0.9 ? -4 : 4));
    label.setAttribute("y", y - 4);
    label.setAttribute("text-anchor", share > 0.9 ? "end" : "start");
    label.textContent = (from + share * (to - from)).toFixed(3) + " s";
  });
}

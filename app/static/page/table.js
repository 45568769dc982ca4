// Rows that come as they end, each at its place: pieces that only become more, the first [the run's name, the first line
// of a CSV], each other [number, cells, line of the CSV]. A value is [known, more], both counted in pieces.
function table(element) {
  const root = element.querySelector(".ll-rows"), body = root.querySelector("tbody");
  const saves = root.querySelector("[data-act=csv]");
  let run = null, head = "", seen = 0, rows = [];

  function receive([known, more]) {
    const first = known ? null : more[0];
    if (first && first[0] !== run) { [run, head] = first; seen = 0; rows = []; body.replaceChildren(); }
    if (known > seen) return;
    for (const row of more.slice(Math.max(1, seen) - known)) add(row);
    seen = known + more.length;
    saves.disabled = !rows.length;
    root.classList.toggle("empty", !rows.length);
  }
  function add([number, cells, line]) {
    const shown = document.createElement("tr"), last = cells.length - 1;
    shown.append(...cells.map((words, i) => {
      const cell = Object.assign(document.createElement("td"), { textContent: words });
      // What people and models write is in their own language.
      if (i === 0 || i === last) cell.setAttribute("translate", "no");
      return cell;
    }));
    const place = placed(rows, number);
    body.insertBefore(shown, body.children[place] ?? null);
    rows.splice(place, 0, { number, line });
  }
  saves.addEventListener("click", () => download(head + rows.map(({ line }) => line).join(""), saves.dataset.file, "text/csv"));
  receives(root.dataset.name, receive);
}

// Where a row of that number belongs among rows in order.
const placed = (rows, number) => {
  const later = rows.findIndex((row) => row.number > number);
  return later < 0 ? rows.length : later;
};

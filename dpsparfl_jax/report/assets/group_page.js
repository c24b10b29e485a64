// The table of very many settings, a page of lines at a time.
const table = spec.table, body = part("groups").tBodies[0];
const settings_count = table.heads.length - table.forms.length;
const everyRow = table.rows.map((_, i) => i);
let order = everyRow, start = 0;
const plain = cell => Array.isArray(cell) ? cell[0] : cell;
const write = (x, {percent, digits}) => x === null ? "-" : typeof x === "string" ? x :
  percent ? (100 * x).toFixed(2) + "%" :
  x.toLocaleString("en", {maximumFractionDigits: digits});
function cellText(cell, at) {
  if (at < settings_count) return cell;
  const form = table.forms[at - settings_count];
  if (!Array.isArray(cell)) return write(cell, form);
  const [mean, low, high] = cell.map(x => write(x, form));
  return low === high ? mean : `${mean} (${low} to ${high})`;
}
function fill() {
  start = Math.max(0, Math.min(start, order.length - 1));
  start -= start % table.page;
  const shown = order.slice(start, start + table.page);
  body.replaceChildren(...shown.map(number => {
    const line = document.createElement("tr");
    line.append(...table.rows[number].map((cell, at) => {
      const box = document.createElement("td");
      box.textContent = cellText(cell, at);
      return box;
    }));
    return line;
  }));
  part("where").textContent = order.length
    ? `${start + 1} to ${start + shown.length} of ${order.length}`
    : "no setting is like that";
}
const below = (x, y) => x === y ? 0 : x === null ? 1 : y === null ? -1 :
  typeof x === "number" && typeof y === "number" ? x - y :
  parseFloat(x) - parseFloat(y) || String(x).localeCompare(String(y));
for (const head of all("#groups th")) head.onclick = () => {
  const way = head.dataset.way = -(head.dataset.way || 1), at = head.cellIndex;
  const value = number => plain(table.rows[number][at]);
  order.sort((a, b) => way * below(value(a), value(b)));
  start = 0;
  fill();
};
part("before").onclick = () => { start -= table.page; fill(); };
part("after").onclick = () => { start += table.page; fill(); };
fill();
const settingsOf = number => Object.fromEntries(table.heads.slice(0, settings_count)
  .map((name, at) => [name, table.rows[number][at]]));
document.addEventListener("filtered", () => {
  order = everyRow.filter(number => fits(settingsOf(number)));
  start = 0;
  fill();
});
csvOf.groups = () => [
  [...table.heads.slice(0, settings_count), ...table.heads.slice(settings_count)
    .flatMap((head, at) => at ? [head, `${head}, least`, `${head}, largest`] : [head])],
  ...order.map(number => table.rows[number].flatMap((cell, at) =>
    at <= settings_count ? [cell] : Array.isArray(cell) ? cell : [cell, cell, cell])),
];

// Charts in the page's own colours, the legend, filters, sorting and CSV files.
const all = found => [...document.querySelectorAll(found)];
const part = id => document.getElementById(id);
const spec = JSON.parse(part("spec").textContent);
const boxes = all(".chart").filter(box => box.id in spec.charts);
const keys = all("nav [data-run]"), isOn = key => key.ariaPressed === "true";
const filters = all("nav select"), dark = matchMedia("(prefers-color-scheme: dark)");
const buttons = [["toImage", "zoom2d", "pan2d", "resetScale2d"]];
const settings = {responsive: true, displaylogo: false, modeBarButtons: buttons};
const onTheme = [];  // what else is drawn anew if the colours of the page change
const csvOf = {};  // tables whose CSV file is not what the page shows of them
let timer = 0;

function dressed({data, layout}) {
  const style = getComputedStyle(document.documentElement);
  const own = name => style.getPropertyValue(name).trim();
  const swaps = dark.matches ? Object.entries(spec.on_dark) : [];
  const text = swaps.reduce((x, [a, b]) => x.replaceAll(a, b), JSON.stringify(data));
  const made = {...layout, paper_bgcolor: own("--box"), plot_bgcolor: own("--box")};
  made.font = {...layout.font, color: own("--text")};
  made.modebar = {bgcolor: "rgba(0,0,0,0)", color: own("--soft"),
    activecolor: own("--text")};
  made.hoverlabel = {...layout.hoverlabel, bordercolor: own("--edge")};
  const axis = {gridcolor: own("--grid"), linecolor: own("--axis"),
    tickcolor: own("--axis")};
  for (const name of Object.keys(layout).filter(name => /^[xy]axis/.test(name)))
    made[name] = {...axis, ...layout[name]};
  if (layout.updatemenus) made.updatemenus = layout.updatemenus.map(menu =>
    ({...menu, bgcolor: own("--box"), bordercolor: own("--edge")}));
  return [JSON.parse(text), made, settings];
}
const draw = box => Plotly.react(box, ...dressed(spec.charts[box.id]));
async function drawAll() {  // one after the other, so that the first are there at once
  for (const box of boxes) {
    await new Promise(done => setTimeout(done));
    await draw(box);
  }
  paint();
}

function paint() {
  const few = keys.filter(isOn).length <= spec.few;
  const on = run => isOn(keys[run]);
  for (const box of boxes.filter(box => box.data)) {
    const own = box.data.map((_, i) => i).filter(i => box.data[i].meta.runs?.length);
    const seen = ({runs, band}) => (few || !band) && runs.some(on);
    const visible = own.map(i => seen(box.data[i].meta));
    if (own.length) Plotly.restyle(box, {visible}, own);
  }
  for (const panel of all("figure[data-run]")) panel.hidden = !on(panel.dataset.run);
}
function turn(rule) {
  for (const key of keys) key.ariaPressed = String(rule(key));
  clearTimeout(timer);
  timer = setTimeout(paint, 150);
}
for (const key of keys) {
  key.onclick = () => turn(other => isOn(other) !== (other === key));
  key.ondblclick = () => turn(other => other === key);
}
part("all").onclick = () => turn(() => true);
part("none").onclick = () => turn(() => false);
const fits = values => filters.every(({value, name}) => !value || values[name] === value);
for (const filter of filters) filter.onchange = () => {
  const free = filters.every(one => !one.value);
  turn(key => free ? spec.on.includes(+key.dataset.run)
    : fits(spec.values[key.dataset.run]));
  document.dispatchEvent(new Event("filtered"));
};

const value = (row, at) => row.cells[at].dataset.sort ??
  row.cells[at].textContent.replaceAll(",", "");
const compare = (x, y) => parseFloat(x) - parseFloat(y) || x.localeCompare(y);
function sortable(head) {
  head.onclick = () => {
    const way = head.dataset.way = -(head.dataset.way || 1), at = head.cellIndex;
    const lines = [...head.closest("table").tBodies[0].rows];
    lines.sort((a, b) => way * compare(value(a, at), value(b, at)));
    for (const line of lines) line.parentNode.append(line);
  };
}
all("th").forEach(sortable);

const quoted = cell => /[",\n]/.test(cell) ? `"${cell.replaceAll('"', '""')}"` : cell;
const shownLines = table =>
  [...table.rows].map(row => [...row.cells].map(cell => cell.textContent.trim()));
function csvText(table) {
  const lines = (csvOf[table.id] ?? shownLines)(table);
  return lines.map(line => line.map(x => quoted(String(x ?? ""))).join(",") + "\n")
    .join("");
}
all(".wide table").forEach((table, number) => {
  const button = document.createElement("button"), line = document.createElement("p");
  button.textContent = "Save this table as CSV";
  button.onclick = () => {
    const link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob([csvText(table)], {type: "text/csv"}));
    link.download = `${table.id || `table_${number + 1}`}.csv`;
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 1000);
  };
  line.append(button);
  table.parentNode.after(line);
});

drawAll().then(() => { document.body.dataset.drawn = boxes.length; });
dark.onchange = () => drawAll().then(() => onTheme.forEach(again => again()));

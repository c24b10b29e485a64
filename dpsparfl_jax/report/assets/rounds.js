// One round of one run: who is busy with what until when, and where in the cell.
const runChoice = part("which_run"), roundChoice = part("which_round");
const view = () => spec.rounds.runs[runChoice.value];
const seconds = x => `${x.toPrecision(4) / 1} s`;
const bar = (name, color, slots, base, length) => ({
  type: "bar", orientation: "h", name, marker: {color}, meta: {},
  y: slots.map(slotName), x: slots.map(length), base: slots.map(base),
  hovertemplate: slots.map(slot => `${slotName(slot)}<br>${name} ` +
    `${seconds(length(slot))}<br>keeps ${(100 * slot.keep).toFixed(1)}%<extra></extra>`),
});
const slotName = slot => `client ${slot.client}, ch. ${slot.channel}` +
  (slot.lost ? " (lost)" : slot.late ? " (late)" : "");

function timeline(run, at, slots) {
  const {colours} = spec.rounds, planned = run.planned[at];
  const data = run.parts ? [
    bar("downlink", colours.downlink, slots, () => 0, slot => slot.downlink),
    bar("training", colours.training, slots, s => s.downlink, slot => slot.training),
    bar("upload", colours.upload, slots, s => s.downlink + s.training, s => s.upload),
  ] : [bar("whole delay", colours.whole, slots, () => 0, slot => slot.upload)];
  const line = {type: "line", x0: planned, x1: planned, y0: 0, y1: 1, yref: "paper",
    line: {color: spec.rounds.guide, width: 2, dash: "6px,4px"}};
  const layout = {...spec.rounds.layouts.timeline, shapes: planned === null ? [] : [line]};
  layout.xaxis = {...layout.xaxis, range: [0, run.longest * 1.04]};
  return {data, layout};
}

function map(run, slots) {
  const {cell} = run, sender = new Set(slots.map(slot => slot.client));
  const at = slot => cell.clients[slot.client], to = slot => cell.receivers[slot.channel];
  const links = slots.flatMap(slot => [at(slot), to(slot), [null, null]]);
  const dots = (name, points, marker, more) => ({type: "scatter", mode: "markers", name,
    meta: {}, x: points.map(p => p[0]), y: points.map(p => p[1]), marker, ...more});
  const far = cell.clients.map((_, i) => `client ${i}, ${cell.metres[i]} m away<br>` +
    `mean gain ${cell.gain_db[i]} dB${sender.has(i) ? "<br>sends" : ""}<extra></extra>`);
  const busy = slots.map(at), names = slots.map(slot => String(slot.client));
  const data = [
    {...dots("upload", links), mode: "lines", hoverinfo: "skip",
      line: {color: spec.rounds.colours.upload, width: 2}},
    dots("client", cell.clients, {size: 10, color: cell.gain_db, colorscale: "Cividis",
      line: {width: 1, color: spec.rounds.guide},
      colorbar: {title: {text: "mean gain (dB)", side: "right"}, thickness: 12}},
      {hovertemplate: far}),
    dots("sends", busy, {size: 17, symbol: "circle-open", line: {width: 2},
      color: spec.rounds.colours.training}, {mode: "markers+text", text: names,
      textposition: "middle right", hoverinfo: "skip", cliponaxis: false}),
    dots("received here", cell.receivers, {size: 11, symbol: "triangle-up",
      color: spec.rounds.colours.whole}, {hovertemplate: "%{x:.0f} m, %{y:.0f} m"}),
    dots("access point", [cell.centre], {size: 13, symbol: "square",
      color: spec.rounds.guide}, {hovertemplate: "%{x:.0f} m, %{y:.0f} m"}),
  ];
  return {data, layout: spec.rounds.layouts.cell};
}

function showRound() {
  const run = view(), at = +roundChoice.value, names = spec.rounds.fields;
  const slots = run.slots[at].map(row =>
    Object.fromEntries(names.map((name, i) => [name, row[i]])));
  part("round_words").textContent = `Round ${run.rounds[at]}: ` + (slots.length
    ? `${slots.length} send, done after ${seconds(run.ends[at])}.` : "nobody sends.");
  Plotly.react("timeline", ...dressed(timeline(run, at, slots)));
  part("cell").hidden = !run.cell;
  part("cell_words").textContent = run.cell ? spec.rounds.cell_words : run.no_cell;
  if (run.cell) Plotly.react("cell", ...dressed(map(run, slots)));
}
function step(by) {
  roundChoice.value = +roundChoice.value + by;
  showRound();
}
runChoice.onchange = () => {
  roundChoice.max = view().rounds.length - 1;
  step(0);
};
roundChoice.oninput = showRound;
part("round_before").onclick = () => step(-1);
part("round_after").onclick = () => step(1);
onTheme.push(showRound);
runChoice.onchange();

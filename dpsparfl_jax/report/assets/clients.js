// The clients of one run, with how much of their budget is spent.
const clientChoice = part("whose_clients"), clientTable = part("client_table");
const {heads, forms, budget: budgetAt} = spec.clients;
const tidy = (x, form) => x === null ? "-" : form === "%" ? `${(100 * x).toFixed(1)}%` :
  x.toLocaleString("en", {maximumFractionDigits: form});
function budgetCell(cell, [spent, asked]) {
  if (spent === null || asked === null) {
    cell.textContent = spec.clients.runs[clientChoice.value].without;
    return;
  }
  const bar = document.createElement("span"), fill = document.createElement("i");
  bar.className = "budget";
  fill.style.width = `${Math.min(100, 100 * spent / asked)}%`;
  bar.append(fill);
  cell.append(bar, `${spent.toFixed(3)} of ${asked.toFixed(3)}`);
  cell.dataset.sort = spent / asked;
}
function showClients() {
  const {rows, left_out} = spec.clients.runs[clientChoice.value];
  clientTable.tBodies[0].replaceChildren(...rows.map(row => {
    const line = document.createElement("tr");
    line.append(...row.map((x, at) => {
      const cell = document.createElement("td");
      if (at === budgetAt) budgetCell(cell, x);
      else cell.textContent = tidy(x, forms[at]);
      return cell;
    }));
    return line;
  }));
  part("clients_words").textContent = left_out;
}
csvOf.client_table = () => {
  const parts = heads.flatMap((head, at) =>
    at === budgetAt ? ["epsilon spent", "epsilon asked"] : [head]);
  return [parts, ...spec.clients.runs[clientChoice.value].rows.map(row => row.flat())];
};
clientChoice.onchange = showClients;
showClients();

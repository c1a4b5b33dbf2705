"use strict";
{
  const shelf = document.getElementById("shelf");
  const words = document.getElementById("filter");
  const tool = document.getElementById("tool");
  const sort = document.getElementById("sort");
  const told = document.getElementById("shown");
  const groups = [...shelf.tBodies].map((body) => ({ body, rows: [...body.rows].slice(1) }));
  const textOf = new Map(groups.flatMap(({ rows }) => rows.map((row) => [row, row.textContent.toLowerCase()])));

  const filter = () => {
    const wanted = words.value.toLowerCase().split(/\s+/).filter(Boolean);
    let count = 0;
    for (const { body, rows } of groups) {
      const name = body.rows[0].textContent.toLowerCase();
      let left = 0;
      for (const row of rows) {
        const text = textOf.get(row) + " " + name;
        row.hidden = !((!tool.value || row.dataset.tool === tool.value) && wanted.every((each) => text.includes(each)));
        left += !row.hidden;
      }
      body.hidden = left === 0;
      count += left;
    }
    told.textContent = count + (count === 1 ? " session" : " sessions");
  };

  const arrange = () => {
    const [key, direction] = sort.value.split(" ");
    const sign = direction === "down" ? -1 : 1;
    const value = (row) => (key === "title" ? row.dataset.title : Number(row.dataset[key]));
    const compare = (one, other) => {
      const [a, b] = [value(one), value(other)];
      return sign * (a < b ? -1 : a > b ? 1 : 0);
    };
    for (const { body, rows } of groups) {
      rows.sort(compare);
      body.append(...rows);
    }
    groups.sort((one, other) => compare(one.rows[0], other.rows[0]));
    shelf.append(...groups.map((each) => each.body));
  };

  words.addEventListener("input", filter);
  tool.addEventListener("change", filter);
  sort.addEventListener("change", arrange);
  addEventListener("keydown", (event) => {
    if (event.key !== "/" || event.target.closest("input, select")) return;
    event.preventDefault();
    words.focus();
  });
  filter();
}

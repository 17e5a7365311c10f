"use strict";
// Tables choose, filter and sort themselves; without this script every row is still on the page.
(() => {
  const root = document.documentElement;
  const store = { get: () => { try { return localStorage.getItem("theme"); } catch { return null; } },
                  set: (v) => { try { localStorage.setItem("theme", v); } catch { /* file:// without storage */ } } };
  const toggle = document.querySelector(".theme");
  if (store.get()) root.dataset.theme = store.get();
  toggle.hidden = false;
  toggle.addEventListener("click", () => {
    const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
    root.dataset.theme = dark ? "light" : "dark";
    store.set(root.dataset.theme);
  });

  if (navigator.clipboard) {
    for (const block of document.querySelectorAll(".command")) {
      const button = document.createElement("button");
      button.type = "button";
      button.textContent = "Copy";
      button.addEventListener("click", async () => {
        await navigator.clipboard.writeText(block.querySelector("code").textContent.trim());
        button.textContent = "Copied";
        setTimeout(() => { button.textContent = "Copy"; }, 1500);
      });
      block.append(button);
    }
  }

  // ---- sorting: within each division, by the column whose header is pressed ----
  const text = (row, index) => row.cells[index].childNodes.length ? row.cells[index].firstChild.textContent.trim() : "";
  const key = (row, index) => {
    const value = text(row, index), number = Number.parseFloat(row.cells[index].dataset.v ?? value);
    return Number.isNaN(number) ? value.toLowerCase() : number;
  };
  const compare = (a, b) => {
    if (typeof a === typeof b) return typeof a === "number" ? a - b : a.localeCompare(b);
    return typeof a === "number" ? -1 : 1;
  };
  const sort = (table, column, direction) => {
    const heads = [...table.tHead.rows[1].cells], index = heads.findIndex((head) => head.dataset.sort === column);
    if (index < 0) return;
    for (const head of heads) head.removeAttribute("aria-sort");
    heads[index].setAttribute("aria-sort", direction < 0 ? "descending" : "ascending");
    for (const body of table.tBodies) {
      const rows = [...body.rows].filter((row) => !row.classList.contains("division"));
      const known = (row) => !["", "–"].includes(text(row, index));
      rows.sort((a, b) => known(b) - known(a) || direction * compare(key(a, index), key(b, index)));
      body.append(...rows);
    }
  };
  const descending = (column) => /^(i2t|t2i|r_sum)/.test(column);
  for (const table of document.querySelectorAll("table.board")) {
    for (const head of table.tHead.rows[1].cells) {
      if (!head.dataset.sort || !head.textContent) continue;
      const button = document.createElement("button");
      button.type = "button";
      button.append(...head.childNodes);
      head.append(button);
      button.addEventListener("click", () => {
        const now = head.getAttribute("aria-sort"), column = head.dataset.sort;
        const direction = now ? (now === "descending" ? 1 : -1) : (descending(column) ? -1 : 1);
        if (form) { state.sort = `${column}:${direction < 0 ? "desc" : "asc"}`; write(); }
        sort(table, column, direction);
      });
    }
  }

  // ---- the front page: one table at a time, filters, and a link for every view ----
  const form = document.querySelector(".filters"), boards = [...document.querySelectorAll("section.board")];
  const state = { board: "", sort: "" };
  if (!form || !boards.length) return;
  const FIELDS = ["q", "features", "networks", "status"];
  const fallback = form.dataset.first;

  const write = () => {
    const parameters = new URLSearchParams();
    for (const name of FIELDS) if (form[name].value) parameters.set(name, form[name].value);
    if (form.trusted.checked) parameters.set("trusted", "1");
    if (state.sort) parameters.set("sort", state.sort);
    const rest = parameters.toString();
    history.replaceState(null, "", `#${state.board}${rest ? `&${rest}` : ""}`);
  };

  const filter = () => {
    const words = form.q.value.toLowerCase().split(/\s+/).filter(Boolean);
    let shown = 0, all = 0;
    for (const body of document.getElementById(state.board).querySelectorAll("tbody")) {
      let here = 0;
      for (const row of body.rows) {
        if (row.classList.contains("division")) continue;
        const fits = ["features", "networks", "status"].every((name) => !form[name].value || row.dataset[name] === form[name].value)
          && !(form.trusted.checked && "doubtful" in row.dataset)
          && words.every((word) => row.textContent.toLowerCase().includes(word));
        row.hidden = !fits;
        here += fits;
        all += 1;
      }
      body.hidden = !here;
      shown += here;
    }
    form.querySelector(".shown").textContent = `${shown} of ${all} rows`;
  };

  const show = () => {
    for (const board of boards) board.hidden = board.id !== state.board;
    for (const link of document.querySelectorAll(".picker .unit a")) {
      if (link.hash === `#${state.board}`) link.setAttribute("aria-current", "true"); else link.removeAttribute("aria-current");
    }
    const [column, order] = (state.sort || "rank:asc").split(":");
    sort(document.getElementById(state.board).querySelector("table"), column, order === "desc" ? -1 : 1);
    filter();
  };

  const read = () => {
    const [board, ...rest] = location.hash.slice(1).split("&");
    const parameters = new URLSearchParams(rest.join("&"));
    const known = boards.some((section) => section.id === board);
    state.board = known ? board : fallback;
    state.sort = /^[a-z0-9_]+:(asc|desc)$/.test(parameters.get("sort") ?? "") ? parameters.get("sort") : "";
    for (const name of FIELDS) form[name].value = parameters.get(name) ?? "";
    form.trusted.checked = parameters.get("trusted") === "1";
    show();
  };

  form.hidden = false;
  form.addEventListener("submit", (event) => event.preventDefault());
  form.addEventListener("input", () => { write(); filter(); });
  for (const link of document.querySelectorAll(".picker .unit a")) {
    link.addEventListener("click", (event) => {
      event.preventDefault();
      state.board = link.hash.slice(1);
      history.pushState(null, "", `#${state.board}`);
      write();
      show();
    });
  }
  addEventListener("hashchange", read);
  addEventListener("popstate", read);
  read();
})();

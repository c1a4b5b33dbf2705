"use strict";
{
  const talk = document.getElementById("talk");
  const field = document.getElementById("search");
  const told = document.getElementById("found");
  const help = document.getElementById("help");
  const LIMIT = 5000;
  let ranges = [];
  let at = -1;

  const open = (node) => {
    for (let each = node; each && each !== document.body; each = each.parentElement) {
      if (each.tagName === "DETAILS") each.open = true;
      // what isn't on screen isn't laid out, so nobody could say where in it a match is
      if (each.classList.contains("b")) each.classList.add("seen");
    }
  };

  // Text is compared a block at a time, so that a word whose letters lie in several elements is found too.
  const search = (words) => {
    ranges = [];
    at = -1;
    if (words) {
      const pattern = new RegExp(words.replace(/[.*+?^${}()|[\]\\]/g, "\\$&").replace(/\s+/g, "\\s+"), "giu");
      for (const block of talk.children) {
        const nodes = [];
        const starts = [];
        let text = "";
        const walker = document.createTreeWalker(block, NodeFilter.SHOW_TEXT);
        while (walker.nextNode()) {
          nodes.push(walker.currentNode);
          starts.push(text.length);
          text += walker.currentNode.nodeValue;
        }
        const place = (offset) => {
          let low = 0;
          let high = starts.length - 1;
          while (low < high) {
            const middle = (low + high + 1) >> 1;
            if (starts[middle] <= offset) low = middle; else high = middle - 1;
          }
          return [nodes[low], offset - starts[low]];
        };
        for (const match of text.matchAll(pattern)) {
          const range = document.createRange();
          range.setStart(...place(match.index));
          const [node, offset] = place(match.index + match[0].length - 1);
          range.setEnd(node, offset + 1);
          ranges.push(range);
          if (ranges.length >= LIMIT) break;
        }
        if (ranges.length >= LIMIT) break;
      }
    }
    paint();
  };

  const paint = () => {
    const many = ranges.length >= LIMIT ? LIMIT + "+" : String(ranges.length);
    told.textContent = !field.value.trim() ? "" : ranges.length === 0 ? "nothing found"
      : at < 0 ? many + " found" : (at + 1) + " of " + many;
    if (!globalThis.CSS || !CSS.highlights || !globalThis.Highlight) return;
    CSS.highlights.delete("found");
    CSS.highlights.delete("here");
    if (ranges.length) CSS.highlights.set("found", new Highlight(...ranges));
    if (at >= 0) {
      const here = new Highlight(ranges[at]);
      here.priority = 1;
      CSS.highlights.set("here", here);
    }
  };

  // An element may be far longer than the window, and what comes into view around it changes its size.
  const settle = (range, tries) => {
    const off = range.getBoundingClientRect().top - innerHeight / 2;
    if (Math.abs(off) < 40 || tries === 0) return;
    scrollBy(0, off);
    requestAnimationFrame(() => settle(range, tries - 1));
  };

  const go = (step) => {
    if (!ranges.length) return;
    at = (at < 0 ? (step > 0 ? 0 : ranges.length - 1) : at + step + ranges.length) % ranges.length;
    const range = ranges[at];
    open(range.startContainer.parentElement);
    range.startContainer.parentElement.scrollIntoView({ block: "center" });
    settle(range, 8);
    if (!globalThis.Highlight) {
      const selection = getSelection();
      selection.removeAllRanges();
      selection.addRange(range);
    }
    paint();
  };

  let waiting = 0;
  field.addEventListener("input", () => {
    clearTimeout(waiting);
    waiting = setTimeout(() => search(field.value.trim()), 120);
  });
  field.form.addEventListener("submit", (event) => {
    event.preventDefault();
    clearTimeout(waiting);
    if (field.dataset.last !== field.value) search(field.value.trim());
    field.dataset.last = field.value;
    go(1);
  });
  document.getElementById("back").addEventListener("click", () => go(-1));
  field.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && event.shiftKey) { event.preventDefault(); go(-1); }
    if (event.key === "Escape") { field.value = ""; search(""); field.blur(); }
  });

  const messages = [...talk.querySelectorAll(".msg")].filter((each) => !each.closest(".agent"));
  let current = -1;
  const turn = (step, only) => {
    const line = document.querySelector(".bar").offsetHeight + 24;
    if (current < 0 || Math.abs(messages[current].getBoundingClientRect().top - line) > innerHeight) {
      const next = messages.findIndex((each) => each.getBoundingClientRect().top > line);
      current = (next < 0 ? messages.length : next) + (step > 0 ? -1 : 0);
    }
    let next = current + step;
    while (only && messages[next] && !messages[next].classList.contains(only)) next += step;
    if (!messages[next]) return;
    if (messages[current]) messages[current].classList.remove("at");
    current = next;
    messages[current].classList.add("at");
    open(messages[current]);
    messages[current].scrollIntoView({ block: "start" });
    messages[current].focus({ preventScroll: true });
  };
  const toggle = () => {
    const tools = [...talk.querySelectorAll(".call > details")];
    const close = tools.some((each) => each.open);
    for (const each of tools) each.open = !close;
    document.getElementById("toggle").setAttribute("aria-pressed", String(!close));
  };
  document.getElementById("toggle").addEventListener("click", toggle);
  document.getElementById("keys").addEventListener("click", () => help.showModal());

  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || help.open) return;
    if (event.target.closest("input, select, textarea, [contenteditable]")) return;
    const keys = {
      j: () => turn(1), k: () => turn(-1), J: () => turn(1, "you"), K: () => turn(-1, "you"), t: toggle,
      "/": () => { field.focus(); field.select(); }, n: () => go(1), N: () => go(-1), "?": () => help.showModal(),
    };
    if (!Object.hasOwn(keys, event.key)) return;
    event.preventDefault();
    keys[event.key]();
  });

  // A link to a record inside something folded opens that; browsers do so by themselves for some of it only.
  const follow = () => {
    const target = location.hash.length > 1 && document.getElementById(location.hash.slice(1));
    if (!target) return;
    open(target);
    const inner = target.querySelector(":scope > details");
    if (inner) inner.open = true;
    target.scrollIntoView({ block: "start" });
  };
  addEventListener("hashchange", follow);
  follow();

  const contents = document.querySelector(".toc > details");
  if (contents && !matchMedia("(min-width: 70rem)").matches) contents.open = false;
  const links = new Map([...document.querySelectorAll(".toc a")].map((each) => [each.hash.slice(1), each]));
  if (links.size && globalThis.IntersectionObserver) {
    let marked = null;
    const seen = new IntersectionObserver((entries) => {
      const entry = entries.find((each) => each.isIntersecting);
      if (!entry) return;
      if (marked) marked.removeAttribute("aria-current");
      marked = links.get(entry.target.id);
      marked.setAttribute("aria-current", "true");
      const rail = marked.closest(".toc");
      if (rail.scrollHeight > rail.clientHeight) {
        const shift = marked.getBoundingClientRect().top - rail.getBoundingClientRect().top;
        if (shift < 40 || shift > rail.clientHeight - 60) rail.scrollTop += shift - rail.clientHeight / 3;
      }
    }, { rootMargin: "-10% 0px -70% 0px" });
    for (const id of links.keys()) {
      const target = document.getElementById(id);
      if (target) seen.observe(target);
    }
  }
}

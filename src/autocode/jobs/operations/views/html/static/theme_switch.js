{
  const button = document.getElementById("theme");
  const root = document.documentElement;
  const order = ["auto", "light", "dark"];
  const show = () => { 
    const name = root.dataset.theme || "auto";
    document.getElementById("theme-name").textContent = name;
    button.setAttribute("aria-label", "Theme: " + name);
  };
  button.addEventListener("click", () => {
    const next = order[(order.indexOf(root.dataset.theme || "auto") + 1) % order.length];
    if (next === "auto") delete root.dataset.theme; else root.dataset.theme = next;
    try { localStorage.setItem("autocode-theme", next); } catch { /* it holds for this page then */ }
    show();
  });
  show();
  for (const each of document.querySelectorAll("[data-script]")) each.hidden = false;
}

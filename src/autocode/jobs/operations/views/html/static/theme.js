"use strict";
{
  let kept = null;
  try { kept = localStorage.getItem("autocode-theme"); } catch { /* a browser that keeps nothing for files */ }
  if (kept === "light" || kept === "dark") document.documentElement.dataset.theme = kept;
}

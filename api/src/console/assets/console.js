// What the console adds where scripts run: a live page fetches itself again. It renders nothing.
"use strict";
(() => {
  if (!document.body.hasAttribute("data-live")) return;
  const INTERVAL = 10_000;
  const main = document.getElementById("main");
  // What somebody reads or types in stays where it is.
  const isInUse = () => document.hidden || !getSelection().isCollapsed
    || (main.contains(document.activeElement) && document.activeElement !== main);
  async function refresh() {
    if (isInUse()) return;
    let answer;
    try {
      answer = await fetch(location.href, {
        cache: "no-store", redirect: "manual", headers: { "tidemark-live": "1" }, signal: AbortSignal.timeout(INTERVAL),
      });
    } catch {
      return; // The next time may find the service.
    }
    // The session has ended: the reload leads to the sign-in.
    if (answer.type === "opaqueredirect") return location.reload();
    if (!answer.ok) return;
    const next = new DOMParser().parseFromString(await answer.text(), "text/html");
    const fresh = next.getElementById("main");
    if (!fresh || fresh.innerHTML === main.innerHTML || isInUse()) return;
    main.innerHTML = fresh.innerHTML;
    document.title = next.title;
  }
  setInterval(refresh, INTERVAL);
  document.addEventListener("visibilitychange", refresh);
})();

// What the console adds where scripts run: a live page fetches itself again. It renders nothing.
"use strict";
(() => {
  if (!document.body.hasAttribute("data-live")) return;
  const INTERVAL = 10_000;
  const [main, stale] = ["main", "stale"].map((id) => document.getElementById(id));
  // What somebody reads or types in stays where it is.
  const isInUse = () => document.hidden || !getSelection().isCollapsed
    || (main.contains(document.activeElement) && document.activeElement !== main);
  async function refresh() {
    if (isInUse()) return;
    let next = null;
    try {
      const answer = await fetch(location.href, {
        cache: "no-store", redirect: "manual", headers: { "tidemark-live": "1" }, signal: AbortSignal.timeout(INTERVAL),
      });
      // The session has ended: the reload leads to the sign-in.
      if (answer.type === "opaqueredirect") return location.reload();
      if (answer.ok) next = new DOMParser().parseFromString(await answer.text(), "text/html");
    } catch {
      // The next time may find the service.
    }
    const fresh = next && next.getElementById("main");
    // Nobody may take what is shown for the present state.
    stale.hidden = Boolean(fresh);
    if (!fresh || fresh.innerHTML === main.innerHTML || isInUse()) return;
    main.innerHTML = fresh.innerHTML;
    document.title = next.title;
  }
  setInterval(refresh, INTERVAL);
  document.addEventListener("visibilitychange", refresh);
})();

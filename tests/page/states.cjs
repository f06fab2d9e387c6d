// Opens every state that `states.rs` has rows of: each is inspected, and each text of the page is in one of them.
"use strict";
const assert = require("node:assert/strict");
const { inspect, main, visit } = require("./checkout.cjs");

const STATES = JSON.parse(process.env.STATES);
const TEXTS = process.env.TEXTS.trim().split("\n").map((line) => line.split(/ = (.*)/s));
let seen = "";

const scenarios = Object.fromEntries(STATES.map(({ name, shows, page: url, link, query, languages }) => [name, async (browser) => {
  const page = await visit(browser, { baseURL: url });
  const isBroken = query.startsWith("exp=");
  if (isBroken) page.expected.push(/status of 401/);
  await page.goto(isBroken ? `${url}?${query}` : `${url}?${link}`);
  if (!isBroken && query) await page.goto(`${url}?${query}`);
  await page.getByText(shows).first().waitFor();
  if (name === "cancel") await page.locator("#cancel summary").click();
  await inspect(page, `state-${name}`);
  seen += await page.content();
  // Where a wrong word costs money, every language is looked at.
  for (const lang of languages) {
    await page.goto(`${url}?${query}${query && "&"}lang=${lang}`);
    if (name === "cancel") await page.locator("#cancel summary").click();
    await inspect(page, `state-${name}-${lang}`, true);
  }
}]));

main({
  ...scenarios,
  async "every text is seen"() {
    // `checkout.cjs` inspects the page that says so.
    const texts = TEXTS.filter(([key]) => !key.startsWith("busy."));
    // What the page puts into a text is between its parts.
    const missing = texts.filter(([, text]) => !text.split(/\{\d\}/).every((part) => seen.includes(part)));
    assert.deepEqual(missing.map(([key]) => key), []);
  },
});

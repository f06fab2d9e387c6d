// The customer of `main.rs` on a real EVM node, which mines when it is asked to.
"use strict";
const assert = require("node:assert/strict");
const { TOKEN, WALLET, chain, choose, create, heading, link, main, units, value, visit } = require("./checkout.cjs");

// The first of the accounts that anvil unlocks.
const BUYER = "0xf39Fd6e51aad88F6F4ce6aB8827279cffFb92266";

const mine = () => chain("anvil_mine", "0x1");
const word = (text) => text.padStart(64, "0");

// Calls `transfer(address,uint256)` of the token; the transaction's hash.
const send = (amount) => chain("eth_sendTransaction", {
  from: BUYER,
  to: TOKEN,
  data: `0xa9059cbb${word(WALLET.slice(2).toLowerCase())}${word(BigInt(units(amount)).toString(16))}`,
  gas: "0x200000",
});

main({
  async "a chain is picked, the amount copied, and each confirmation seen until the order is paid"(browser) {
    const page = await visit(browser);
    await page.goto(link(await create()));
    await heading(page, "Choose how to pay");
    await page.getByText("Test network").waitFor();
    await choose(page);
    // A reload would start another document: none comes from here on.
    await page.evaluate("window.isSame = true");
    await page.getByRole("button", { name: "Copy the amount" }).click();
    await page.locator(".copy.done").waitFor();
    const amount = await page.evaluate("navigator.clipboard.readText()");
    assert.equal(amount, await value(page));
    await page.getByRole("button", { name: "Copy the address" }).click();
    await page.waitForFunction((address) => navigator.clipboard.readText().then((text) => text === address), WALLET);
    const hash = await send(amount);
    for (const count of [1, 2, 3]) {
      await mine();
      await heading(page, "Payment seen");
      await page.locator("#confirmations", { hasText: `${count} of 4` }).waitFor();
      await page.getByText(hash).waitFor();
    }
    await mine();
    await heading(page, "Paid");
    await page.getByText(hash).waitFor();
    assert.equal(await page.evaluate("window.isSame"), true, "all of it came live");
    const { status, logs } = await chain("eth_getTransactionReceipt", hash);
    assert.deepEqual([status, logs.length, BigInt(logs[0].data)], ["0x1", 1, BigInt(units(amount))]);
  },
});

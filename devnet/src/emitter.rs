//! Code for a development chain that runs an EVM, as anvil does: a token that only emits.

/// For each pair (to, amount) of the call data behind the selector: LOG3 of Transfer(caller, to,
/// amount), without a check of balances. With one pair it is ERC-20's `transfer`; with more it is a batch
/// payout in one transaction. A selector alone is answered as `decimals()`. Put at a token's address by
/// `anvil_setCode`.
#[must_use]
pub fn emitter(decimals: u8) -> String {
    const TRANSFER: &str = "ddf252ad1be2c89b69c2b068fc378daa952ba7f163c4a11628f55a4df523b3ef";
    [
        "0x36600414605357", // a selector alone: to the end
        "6004",             // i = 4
        "5b80361115604857", // while i < calldatasize
        "8060200135600052", // memory = amount at i + 32
        "8035",             // to
        "33",               // caller
        "7f",
        TRANSFER,
        "60206000a3",             // log
        "604001600956",           // i += 64, again
        "5b600160005260206000f3", // return true
        "5b60",
        &format!("{decimals:02x}"),
        "60005260206000f3", // return the decimals
    ]
    .concat()
}

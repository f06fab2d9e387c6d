//! Code of a token contract that only emits Transfer logs, for a development chain with an EVM, such as anvil.

/// For each pair (to, amount) in the call data after the selector, the code emits LOG3 of Transfer(caller, to, amount),
/// without a check of balances. One pair is ERC-20's `transfer`; more are a batch payout in one transaction. A selector
/// alone is answered as `decimals()`. `anvil_setCode` puts the code at a token's address.
#[must_use]
pub fn emitter(decimals: u8) -> String {
    const TRANSFER: &str = "ddf252ad1be2c89b69c2b068fc378daa952ba7f163c4a11628f55a4df523b3ef";
    [
        "0x36600414605357", // a selector alone: jump to the end
        "6004",             // i = 4
        "5b80361115604857", // while i < calldatasize
        "8060200135600052", // memory = amount at i + 32
        "8035",             // to
        "33",               // caller
        "7f",
        TRANSFER,
        "60206000a3",             // log
        "604001600956",           // i += 64, next iteration
        "5b600160005260206000f3", // return true
        "5b60",
        &format!("{decimals:02x}"),
        "60005260206000f3", // return the decimals
    ]
    .concat()
}

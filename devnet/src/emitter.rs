//! Code for a development chain that runs an EVM, as anvil does: a token that only emits.

/// For each pair (to, amount) of the call data behind the selector: LOG3 of Transfer(caller, to,
/// amount), without a check of balances. With one pair it is ERC-20's `transfer`; with more it is a batch
/// payout in one transaction. Put at a token's address by `anvil_setCode`.
pub const EMITTER: &str = concat!(
    "0x6004",                                                             // i = 4
    "5b80361115604157",                                                   // while i < calldatasize
    "8060200135600052", // memory = amount at i + 32
    "8035",             // to
    "33",               // caller
    "7fddf252ad1be2c89b69c2b068fc378daa952ba7f163c4a11628f55a4df523b3ef", // Transfer
    "60206000a3",       // log
    "604001600256",     // i += 64, again
    "5b600160005260206000f3"  // return true
);

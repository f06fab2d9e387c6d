//! Addresses at which money is lost for good.

use schemas::{Address, StablecoinContract, known_contract};

/// Describes an address to which nobody has a key, and which cannot be a merchant's contract.
pub(super) fn nobodys(address: Address) -> Option<String> {
    if let Some(StablecoinContract { blockchain, stablecoin, .. }) = known_contract(address) {
        return Some(format!("the contract of {stablecoin} on {blockchain}, not a wallet"));
    }
    // Addresses of precompiles and predeploys: one leading byte, zeros, a number of two bytes.
    let [first, middle @ .., _, _] = address.bytes();
    let is_low = middle.iter().all(|byte| *byte == 0);
    match (is_low, *first) {
        (true, 0) if address.bytes() == &[0; 20] => Some("the zero address".into()),
        (true, _) => Some("an address of the chain itself, such as a precompile".into()),
        (false, _) => None,
    }
}

#[cfg(test)]
mod tests {
    use runtime::config::{Problems, Source};
    use schemas::{Blockchain, Stablecoin};

    use super::*;
    use crate::config::read_wallets;

    /// Payments to such addresses are lost.
    #[test]
    fn a_wallet_that_only_loses_money_is_refused() {
        let tron = |bytes| Address::new(schemas::AddressFamily::Tron, bytes).to_string();
        let tether = *schemas::stablecoin_contract(Blockchain::Tron, Stablecoin::Usdt).unwrap();
        let usdt = Some("the contract of USDT on eth");
        let usdc = Some("the contract of USDC on eth");
        let bridged = Some("the contract of USDC on polygon");
        for (chain, address, expected) in [
            ("eth", "0xdAC17F958D2ee523a2206206994597C13D831ec7", usdt),
            ("eth", "0xA0b86991c6218b36c1d19D4a2e9Eb0cE3606eB48", usdc),
            // A contract of another chain.
            ("polygon", "0xdAC17F958D2ee523a2206206994597C13D831ec7", usdt),
            // A contract of a bridged coin.
            ("polygon", "0x2791Bca1f2de4661ED88A30C99A7a9449Aa84174", bridged),
            ("tron", &tether.address.to_string(), Some("the contract of USDT on tron")),
            ("eth", "0x0000000000000000000000000000000000000000", Some("the zero address")),
            ("tron", &tron([0; 20]), Some("the zero address")),
            ("eth", "0x0000000000000000000000000000000000000009", Some("a precompile")),
            ("polygon", "0x0000000000000000000000000000000000001010", Some("a precompile")),
            ("op", "0x4200000000000000000000000000000000000006", Some("a precompile")),
            ("avaxc", "0x0200000000000000000000000000000000000005", Some("a precompile")),
            ("eth", "0x5aAeb6053F3E94C9b9A09f33669435E7Ef1BeAed", None),
            ("tron", &tron([7; 20]), None),
        ] {
            let text = format!(
                "[[wallets]]\nblockchain = \"{chain}\"\naddress = \"{address}\"\nenabled_coins = [\"USDT\"]"
            );
            let mut source = Source::parse("", &text, []);
            let wallets = read_wallets(&mut source);
            let lines = source.finish().err().map_or_else(Vec::new, |Problems(lines)| lines);
            assert_eq!((wallets.len(), lines.len()), (1, usize::from(expected.is_some())));
            if let Some(expected) = expected {
                assert!(lines[0].starts_with("wallets[0].address: is "), "{lines:?}");
                assert!(lines[0].contains(expected) && lines[0].ends_with("is lost"), "{lines:?}");
            }
        }
    }
}

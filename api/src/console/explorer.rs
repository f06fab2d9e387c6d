//! Links to block explorers. The console loads nothing from them.

use schemas::Blockchain;
use schemas::record::Transfer;

use super::markup::{plain, short};
use crate::machine::catalog::Catalog;
use crate::page::Html;

/// URL of an explorer, without the hash.
const fn site(blockchain: Blockchain) -> &'static str {
    match blockchain {
        Blockchain::Eth => "https://etherscan.io/tx/",
        Blockchain::Polygon => "https://polygonscan.com/tx/",
        Blockchain::Base => "https://basescan.org/tx/",
        Blockchain::Arb => "https://arbiscan.io/tx/",
        Blockchain::Op => "https://optimistic.etherscan.io/tx/",
        Blockchain::Linea => "https://lineascan.build/tx/",
        Blockchain::Avaxc => "https://snowtrace.io/tx/",
        Blockchain::Tron => "https://tronscan.org/#/transaction/",
    }
}

/// The hash of a transfer's transaction, linked to a block explorer. It has no link on a chain that is not followed,
/// and on a test network, because these explorers show main networks only.
pub(super) fn transaction(catalog: &Catalog, transfer: &Transfer) -> Html {
    let (hash, chain) = (transfer.observation.tx_hash, transfer.blockchain);
    if catalog.terms(chain).is_none_or(|terms| terms.is_test()) {
        return short(hash);
    }
    let text = hash.to_string();
    let digits = if chain == Blockchain::Tron { text.trim_start_matches("0x") } else { &text };
    let values = [("to", format!("{}{digits}", site(chain)).into()), ("hash", short(hash))];
    plain("<a href=\"{{to}}\" rel=\"noreferrer noopener\">{{hash}}</a>", &values)
}

#[cfg(test)]
mod tests {
    use runtime::config::Source;
    use schemas::record::example;

    use super::*;
    use crate::{ChainTerms, Config};

    #[test]
    fn an_explorer_of_the_network_is_linked() {
        let config = Config::read(&mut Source::parse(Config::DEFAULTS, "", []));
        let shown = |blockchain: Blockchain, chain_id| {
            let terms = ChainTerms { blockchain, chain_id, depths: Vec::new() };
            let catalog = Catalog::new(&config, Vec::new(), vec![terms]);
            transaction(&catalog, &Transfer { blockchain, ..example::transfer() }).into_string()
        };
        let hash = example::transfer().observation.tx_hash.to_string();
        for blockchain in Blockchain::ALL.iter().copied() {
            let link = shown(blockchain, blockchain.chain_id());
            assert!(link.starts_with("<a href=\"https://"), "{link}");
            assert!(link.contains("rel=\"noreferrer noopener\""), "{link}");
            let prefix = if blockchain == Blockchain::Tron { "/" } else { "/0x" };
            assert!(link.contains(&format!("{prefix}{}\"", &hash[2..])), "{link}");
            assert!(shown(blockchain, 31_337).starts_with("<code"), "a test network has none");
        }
    }
}

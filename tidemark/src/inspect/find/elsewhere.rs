//! The endpoints' receipts of a transaction that the installation has not seen.

use ingest::{Answer, ChainConfig, Mined, Moved};
use schemas::{Blockchain, TxHash};

/// The most moved tokens of a transaction that are shown.
const MOVED_MAX: usize = 5;

/// Requests the receipt from every endpoint of every chain: its transfers, or possible causes of a miss.
///
/// # Errors
/// No HTTP client can be made.
pub(super) async fn ask(chains: &[ChainConfig], hash: TxHash) -> anyhow::Result<Vec<String>> {
    let mut lines = Vec::new();
    let mut is_mined = false;
    for chain in chains {
        let answers = ingest::transaction(chain, hash).await?;
        is_mined |= answers.iter().any(|answer| matches!(answer.mined, Ok(Some(_))));
        lines.extend(answers.iter().flat_map(|answer| of_answer(chain.blockchain, answer)));
    }
    let words: Vec<_> = chains.iter().map(|chain| chain.blockchain.as_str()).collect();
    if !is_mined {
        lines.push(format!(
            "No endpoint has it in a block of {}: it is not mined yet, on another chain, or no hash of a transaction. Ask \
             the customer for the name of the chain and a link to an explorer.",
            words.join(", ")
        ));
    }
    Ok(lines)
}

fn of_answer(blockchain: Blockchain, answer: &Answer) -> Vec<String> {
    let Answer { endpoint, mined } = answer;
    match mined {
        Err(cause) => vec![format!("{blockchain}: {endpoint} does not answer: {cause}")],
        Ok(None) => vec![format!("{blockchain}: {endpoint} has no such transaction in a block")],
        Ok(Some(mined)) => of_mined(blockchain, endpoint, mined),
    }
}

fn of_mined(blockchain: Blockchain, endpoint: &str, mined: &Mined) -> Vec<String> {
    let block = mined.block.map(|block| format!(" in block {block}")).unwrap_or_default();
    let place = format!("{blockchain}: {endpoint} has it{block}");
    if !mined.succeeded {
        return vec![format!("{place}: it failed, and moved nothing")];
    }
    if mined.moved.is_empty() {
        return vec![format!(
            "{place}: it moved no token; coins of the chain itself are no payment"
        )];
    }
    let mut lines = vec![format!("{place}: it moved")];
    lines.extend(mined.moved.iter().take(MOVED_MAX).map(of_moved));
    let rest = mined.moved.len().saturating_sub(MOVED_MAX);
    lines.extend((rest > 0).then(|| format!("  and {rest} more")));
    let ours = mined.moved.iter().any(|moved| moved.is_ours && moved.coin.is_some());
    lines.push(if ours {
        format!(
            "  It is a payment to a wallet of the configuration that was not seen: `tidemark status` says whether the chain \
             is behind; if it is not, `tidemark rescan {blockchain}` asks for the block again."
        )
    } else if mined.moved.iter().any(|moved| moved.is_ours) {
        "  It reached a wallet of the configuration with a token that is not followed: no payment.".to_owned()
    } else {
        "  None of it went to a wallet of the configuration: the customer paid somebody else, or on another chain than the \
         wallet's."
            .to_owned()
    });
    lines
}

fn of_moved(moved: &Moved) -> String {
    let Moved { contract, coin, from, to, is_ours } = moved;
    let what = match coin {
        Some((coin, value)) => format!("{value} {coin}"),
        None => format!("a token of contract {contract}, which is not followed,"),
    };
    let whose = if *is_ours { ", a wallet of the configuration" } else { "" };
    format!("  {what} from {from} to {to}{whose}")
}

#[cfg(test)]
mod tests {
    use schemas::record::example;

    use super::*;

    fn moved(is_ours: bool, is_followed: bool) -> Moved {
        let seen = example::transfer().observation;
        Moved {
            contract: seen.contract,
            coin: is_followed.then_some((seen.stablecoin, seen.value)),
            from: seen.from_address,
            to: seen.to_address,
            is_ours,
        }
    }

    fn said(succeeded: bool, moved: Vec<Moved>) -> String {
        let mined = Mined { succeeded, block: Some(7), moved };
        of_mined(Blockchain::Eth, "https://a.example", &mined).join("\n")
    }

    #[test]
    fn each_transaction_is_explained() {
        for (text, part) in [
            (
                said(false, vec![moved(true, true)]),
                "has it in block 7: it failed, and moved nothing",
            ),
            (said(true, vec![]), "it moved no token"),
            (said(true, vec![moved(true, true)]), "`tidemark rescan eth`"),
            (said(true, vec![moved(true, false)]), "with a token that is not followed: no payment"),
            (said(true, vec![moved(false, true)]), "None of it went to a wallet"),
        ] {
            assert!(text.contains(part), "{part} is not in {text}");
        }
        let many = said(true, vec![moved(false, true); MOVED_MAX + 2]);
        assert!(many.contains("\n  and 2 more\n"), "{many}");
        assert_eq!(many.matches("10.50 USDT from").count(), MOVED_MAX);
    }
}

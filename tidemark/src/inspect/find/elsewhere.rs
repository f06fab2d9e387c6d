//! The endpoints' receipts of a transaction that the installation has not seen.

use ingest::{Answer, ChainConfig, Mined, Moved};
use schemas::{Blockchain, TxHash};

/// Maximum number of moved tokens that are shown of a transaction.
const MOVED_MAX: usize = 5;

/// The answers of a chain's endpoints.
type Asked = (Blockchain, Vec<Answer>);

/// Requests the receipt from every endpoint of every chain. Returns lines with its transfers, or with possible causes
/// of a miss; and `false` if no endpoint has it and a chain gave no answer.
pub(super) async fn ask(
    chains: &[ChainConfig],
    hash: TxHash,
) -> anyhow::Result<(Vec<String>, bool)> {
    let mut asked = Vec::new();
    for chain in chains {
        asked.push((chain.blockchain, ingest::transaction(chain, hash).await?));
    }
    Ok(judged(&asked))
}

fn judged(asked: &[Asked]) -> (Vec<String>, bool) {
    let of_chain = |(blockchain, answers): &Asked| {
        answers.iter().flat_map(|answer| of_answer(*blockchain, answer)).collect::<Vec<_>>()
    };
    let mut lines: Vec<_> = asked.iter().flat_map(of_chain).collect();
    let mut all = asked.iter().flat_map(|(_, answers)| answers);
    if all.any(|answer| matches!(answer.mined, Ok(Some(_)))) {
        return (lines, true);
    }
    let is_answered = |(_, answers): &&Asked| answers.iter().any(|answer| answer.mined.is_ok());
    let (answered, silent): (Vec<_>, Vec<_>) = asked.iter().partition(is_answered);
    if !answered.is_empty() {
        lines.push(format!(
            "No endpoint has it in a block of {}: it is not mined yet, on another chain, or no hash of a transaction. Ask \
             the customer for the name of the chain and a link to an explorer.",
            names(&answered)
        ));
    }
    if !silent.is_empty() {
        lines.push(format!(
            "No endpoint of {} answered: it is not known if the transaction is there. Try again, or run `tidemark doctor`.",
            names(&silent)
        ));
    }
    (lines, silent.is_empty())
}

fn names(chains: &[&Asked]) -> String {
    let names: Vec<_> = chains.iter().map(|(blockchain, _)| blockchain.as_str()).collect();
    names.join(", ")
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
        let heights = mined.block.map(|block| format!(" {block} {block}")).unwrap_or_default();
        format!(
            "  It is a payment to a wallet of the configuration that was not seen: `tidemark status` says whether the chain \
             is behind; if it is not, `tidemark rescan {blockchain}{heights}` asks for the block again."
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
    fn a_chain_that_gave_no_answer_is_not_known() {
        let of = |mined| Answer { endpoint: "https://a.example".to_owned(), mined };
        let (none, silent) = (of(Ok(None)), of(Err("time-out".to_owned())));
        let mined = of(Ok(Some(Mined { succeeded: true, block: Some(7), moved: vec![] })));
        let asked = |eth: &[&Answer], polygon: &Answer| {
            let eth: Vec<Answer> = eth.iter().map(|answer| (*answer).clone()).collect();
            let polygon = vec![polygon.clone()];
            let chains = [(Blockchain::Eth, eth), (Blockchain::Polygon, polygon)];
            let (lines, is_known) = judged(&chains);
            (lines.join("\n"), is_known)
        };
        let (text, is_known) = asked(&[&silent, &none], &none);
        assert!(is_known && text.contains("in a block of eth, polygon: it is not mined"), "{text}");
        let (text, is_known) = asked(&[&none], &silent);
        assert!(!is_known && text.contains("in a block of eth: it is not mined"), "{text}");
        assert!(text.contains("No endpoint of polygon answered: it is not known"), "{text}");
        let (text, is_known) = asked(&[&silent], &silent);
        assert!(!is_known && text.contains("No endpoint of eth, polygon answered"), "{text}");
        assert!(!text.contains("it is not mined"), "{text}");
        let (text, is_known) = asked(&[&mined], &silent);
        assert!(is_known && !text.contains("No endpoint of"), "{text}");
    }

    #[test]
    fn each_transaction_is_explained() {
        for (text, part) in [
            (
                said(false, vec![moved(true, true)]),
                "has it in block 7: it failed, and moved nothing",
            ),
            (said(true, vec![]), "it moved no token"),
            (said(true, vec![moved(true, true)]), "`tidemark rescan eth 7 7`"),
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

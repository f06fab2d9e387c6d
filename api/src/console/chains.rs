//! Page of the chains: their progress, stops, disputed transfers and wallets.

use std::collections::BTreeSet;

use schemas::record::{Held, StopScope};
use schemas::{Blockchain, Wallet};

use super::Page;
use super::markup::{
    address, choice, code, foreign, head, hint, link, notice, or_none, plain, section, short,
    table, time,
};
use crate::machine::survey::{Chain, Survey, stop_words};
use crate::page::Html;

/// Table of wallets, with a CSV of the transfers to each.
fn wallets(wallets: &[Wallet]) -> Html {
    let row = |wallet: &Wallet| {
        let coins: Vec<_> = wallet.stablecoins.iter().map(ToString::to_string).collect();
        let address = wallet.address.to_string();
        let file = format!(
            "/console/export/wallets/{address}/transfers?format=csv&blockchain={}",
            wallet.blockchain
        );
        vec![
            wallet.blockchain.label().into(),
            code(address.as_str()),
            coins.join(", ").into(),
            if wallet.retired { "retired" } else { "in use" }.into(),
            link(file, "Transfers as CSV"),
        ]
    };
    table(&["Chain", "Address", "Coins", "State", "File"], wallets.iter().map(row), "No wallet.")
}

/// The transfers that endpoints disagree about, each with the command that decides.
fn disputed(survey: &Survey) -> Html {
    let row = |(chain, Held { block, transfer }): (Blockchain, &Held)| {
        let command = format!("tidemark chain resolve {chain} {}", transfer.tx_hash);
        vec![
            chain.label().into(),
            block.number.to_string().into(),
            format!("{} {}", transfer.value, transfer.stablecoin).into(),
            short(transfer.tx_hash),
            code(format!("{command} --accept")).then(" or ").then(code("--reject")),
        ]
    };
    let all = survey.chains.iter();
    let all = all.flat_map(|chain| chain.held.iter().map(move |held| (chain.blockchain, held)));
    let names = ["Chain", "Block", "Amount", "Transaction", "Command"];
    let listed = table(&names, all.map(row), "Endpoints disagree about none.");
    section("Held transfers", listed)
}

/// Operations that need the command line.
fn by_command(survey: &Survey) -> Html {
    let of = |halted: &Chain| {
        let command = format!("tidemark chain rewind {} --find", halted.blockchain);
        let values = [("chain", halted.blockchain.label().into()), ("command", code(command))];
        plain(
            "<li>{{chain}} is halted. After a reorganisation below what was final: {{command}}</li>",
            &values,
        )
    };
    let halted: Html = survey.chains.iter().filter(|chain| chain.halt.is_some()).map(of).collect();
    let all = plain(
        "<ul class=\"likely\">{{halted}}<li>Blocks asked for once more, when a payment is missing: <code>tidemark rescan CHAIN \
         FROM TO</code></li></ul>",
        &[("halted", halted)],
    );
    let why = "These ask the endpoints of a chain, which this process does not know, and take the chain over from the ingest \
               that follows it. Each shows what it would write, and asks.";
    all.then(hint(why))
}

/// Data of the page of the chains.
pub(crate) struct Chains<'a> {
    pub(crate) survey: &'a Survey,
    /// Stops in force, as the lanes of each chain report them.
    pub(crate) stops: BTreeSet<(Blockchain, StopScope)>,
    pub(crate) wallets: &'a [Wallet],
    pub(crate) may_operate: bool,
    /// Message after an action.
    pub(crate) done: Option<&'static str>,
}

pub(crate) fn chains(of: &Chains<'_>) -> Page {
    let stop = |(chain, scope): &(Blockchain, StopScope)| {
        let end = of.may_operate.then(|| {
            let subject = scope.subject().unwrap_or_else(|| chain.to_string());
            let on = scope.blockchain.map(|on| on.to_string()).unwrap_or_default();
            link(
                address("/console/stops/end", &[("subject", &subject), ("blockchain", &on)]),
                "End…",
            )
        });
        vec![chain.label().into(), foreign(stop_words(*scope)), end.unwrap_or_default()]
    };
    let mut stops =
        table(&["Chain", "Stopped", "Action"], of.stops.iter().map(stop), "Nothing is stopped.");
    if of.may_operate {
        let chain = choice("blockchain", "Only on", Blockchain::WORDS, "");
        stops = stops.then(plain(
            "<form class=\"filter\" action=\"/console/stops\"><label>Wallet, coin, contract or chain <input name=\"subject\" \
             autocomplete=\"off\" required></label>{{chain}}<button class=\"button\">Stop…</button></form>",
            &[("chain", chain)],
        ));
    }
    let main = head("Chains", notice(of.done).then(of_chains(of.survey)))
        .then(section("Emergency stops", stops))
        .then(disputed(of.survey))
        .then(section("By command", by_command(of.survey)))
        .then(section("Wallets", wallets(of.wallets)));
    Page::new("Chains", main).at("/console/chains")
}

/// Block height; negative for none.
fn height(number: i64) -> Html {
    or_none((number >= 0).then(|| number.to_string().into()))
}

pub(super) fn of_chains(survey: &Survey) -> Html {
    let row = |chain: &Chain| {
        let age = chain.head.map(|head| {
            let age = survey.at.seconds().0.saturating_sub(head.timestamp.0).max(0);
            format!("block {}, {age} s old", head.number)
        });
        let state = match (&chain.halt, chain.held.len()) {
            (Some((why, since)), _) => {
                let values = [("since", time(since.seconds())), ("why", why.as_str().into())];
                plain("<b class=\"bad\">halted since {{since}}</b>: <bdi>{{why}}</bdi>", &values)
            }
            (None, 0) => "followed".into(),
            (None, held) => format!("{held} transfers held: endpoints disagree").into(),
        };
        vec![
            chain.blockchain.label().into(),
            or_none(age.map(Html::from)),
            height(chain.confirmed),
            height(chain.finalized),
            state,
        ]
    };
    let names = ["Chain", "Newest block", "Confirmed", "Final", "State"];
    table(&names, survey.chains.iter().map(row), "No chain is followed.")
}

//! `tokens` and `bridged`: the contracts that are a chain's stablecoins.

use std::collections::HashSet;

use runtime::config::Reader;
use schemas::{
    Address, Blockchain, Stablecoin, StablecoinContract, Wallet, bridged_contracts, known_contract,
    known_contracts, stablecoin_contracts,
};

/// The offered and the retired contracts of a chain: those that `tokens` lists, otherwise those of the issuers and the
/// chosen bridged ones.
pub(super) fn read(
    blockchain: Blockchain,
    section: &mut Reader,
    wallets: &[&Wallet],
) -> (Vec<StablecoinContract>, Vec<StablecoinContract>) {
    let (listed, retired) = read_listed(blockchain, section).unzip();
    let bridged = section.texts("bridged");
    if listed.is_some() && bridged.is_some() {
        section.problem("bridged", "has no meaning beside tokens: list the contracts there");
    }
    let contracts = listed.clone().unwrap_or_else(|| {
        let mut contracts: Vec<_> = stablecoin_contracts(blockchain).copied().collect();
        contracts.extend(chosen(blockchain, section, bridged.unwrap_or_default()));
        contracts
    });
    let mut reported = HashSet::new();
    for stablecoin in wallets.iter().flat_map(|wallet| &wallet.stablecoins) {
        let is_known = contracts.iter().any(|contract| contract.stablecoin == *stablecoin);
        if !is_known && reported.insert(*stablecoin) {
            report_missing(blockchain, section, *stablecoin, listed.is_some());
        }
    }
    (contracts, retired.unwrap_or_default())
}

/// The known contracts that are not `configured`; none on a development chain, where they do not exist.
pub(super) fn unlisted(
    blockchain: Blockchain,
    chain_id: u64,
    configured: &[StablecoinContract],
) -> Vec<StablecoinContract> {
    let is_public = chain_id == blockchain.chain_id();
    let is_new = |known: &&StablecoinContract| {
        is_public && configured.iter().all(|contract| contract.address != known.address)
    };
    known_contracts(blockchain).filter(is_new).copied().collect()
}

/// Refuses a contract as a wallet, as payments to it are lost. Known contracts are refused where the wallets are read.
pub(super) fn check_wallets(section: &Reader, contracts: &[StablecoinContract], all: &[Wallet]) {
    for StablecoinContract { stablecoin, address, .. } in contracts {
        let is_unknown = known_contract(*address).is_none();
        if is_unknown && all.iter().any(|wallet| wallet.address == *address) {
            let what = format!(
                "{address} is the contract of {stablecoin}, and one of [[wallets]]: what is sent there is lost"
            );
            section.problem("tokens", &what);
        }
    }
}

/// The known contracts of bridges with these symbols.
fn chosen(
    blockchain: Blockchain,
    section: &Reader,
    symbols: Vec<String>,
) -> Vec<StablecoinContract> {
    let mut contracts: Vec<StablecoinContract> = Vec::new();
    for symbol in symbols {
        let known = bridged_contracts(blockchain).find(|(known, _)| *known == symbol);
        match known.map(|(_, contract)| *contract) {
            Some(contract) if contracts.contains(&contract) => {
                section.problem("bridged", &format!("names {symbol} twice"));
            }
            Some(contract) => contracts.push(contract),
            None => {
                let known: Vec<_> = bridged_contracts(blockchain).map(|known| known.0).collect();
                let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
                let what = format!("{symbol:?} is not known on {blockchain}: {known}");
                section.problem("bridged", &what);
            }
        }
    }
    contracts
}

/// Reports a wallet's coin without a contract, with the remedy.
fn report_missing(
    blockchain: Blockchain,
    section: &Reader,
    stablecoin: Stablecoin,
    is_listed: bool,
) {
    let mut bridged = bridged_contracts(blockchain);
    let bridged = bridged.find(|(_, contract)| contract.stablecoin == stablecoin);
    match bridged {
        _ if is_listed => {
            let what = format!(
                "names no contract for {stablecoin} that is not retired, and a wallet takes it"
            );
            section.problem("tokens", &what);
        }
        Some((symbol, _)) => {
            let what = format!(
                "a wallet takes {stablecoin}, which on {blockchain} a bridge issued: add {symbol:?} if you trust it, \
                 or take {stablecoin} out of enabled_coins"
            );
            section.problem("bridged", &what);
        }
        None => {
            let what = format!(
                "no contract of {stablecoin} on {blockchain} is known, and a wallet takes it: take it out of \
                 enabled_coins"
            );
            section.problem("tokens", &what);
        }
    }
}

/// Offered and retired contracts.
fn read_listed(
    blockchain: Blockchain,
    section: &mut Reader,
) -> Option<(Vec<StablecoinContract>, Vec<StablecoinContract>)> {
    let value = section.value("tokens")?;
    let mut contracts: Vec<StablecoinContract> = Vec::new();
    let mut retired = HashSet::new();
    for (position, item) in value.as_array().into_iter().flatten().enumerate() {
        let key = format!("tokens[{position}]");
        let Some(table) = item.as_table() else {
            section.problem(&key, "must be { coin, contract, decimals }");
            continue;
        };
        let mut reader = section.nested(&key, table.clone());
        let stablecoin = reader.parsed("coin");
        let address = reader.parsed::<Address>("contract");
        let decimals = u8::try_from(reader.integer("decimals", 0..=18)).unwrap_or_default();
        let is_retired = reader.optional_flag("retired").unwrap_or_default();
        if let (Some(stablecoin), Some(address)) = (stablecoin, address) {
            let contract = StablecoinContract { blockchain, stablecoin, address, decimals };
            if address.family() != blockchain.address_family() {
                reader.problem("contract", &format!("is not an address of {blockchain}"));
            } else if contracts.iter().any(|other| other.address == address) {
                reader.problem("contract", "is listed twice");
            } else if contracts
                .iter()
                .any(|other| other.stablecoin == stablecoin && other.decimals != decimals)
            {
                reader.problem("decimals", "must be the same for all contracts of a coin");
            } else {
                contracts.push(contract);
                retired.extend(is_retired.then_some(address));
            }
        }
        reader.finish();
    }
    if value.as_array().is_none_or(Vec::is_empty) {
        section.problem("tokens", "must be a list of { coin, contract, decimals }");
    }
    Some(contracts.into_iter().partition(|contract| !retired.contains(&contract.address)))
}

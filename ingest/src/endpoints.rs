//! The endpoints of a chain. The best one that works serves a whole step. A second answer comes from another one, if
//! there is one.
//!
//! An endpoint that refuses, contradicts itself, is behind the others, on another fork or of another chain is put aside
//! and logged. After a switch, a difference is not yet a reorganisation. A new endpoint without our last block is
//! behind. If it has another block at that height, the others are asked first: while one of them still has ours, the
//! new endpoint is on a fork.

mod frozen;
mod health;
mod second;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

pub(crate) use health::{Fault, Pauses};
use metrics::counter;
use schemas::StablecoinContract;
use serde_json::{Value, json};

use self::health::Health;
use crate::machine::{Answer, Ask, Cursor, Point, Refusal, Role};
use crate::metrics as names;
use crate::rpc::{Endpoint, Failure};
use crate::{ChainConfig, Error};

pub(crate) struct Endpoints {
    chain: Arc<ChainConfig>,
    list: Vec<Endpoint>,
    health: Health,
    /// The endpoint of this step.
    first: usize,
    /// The endpoint that gives the second answers about a range.
    second: Option<usize>,
    /// Known difference of each endpoint from the configuration, in words: of chain id or of a contract.
    wrong: Vec<Option<String>>,
    /// `true` once it was reported that no endpoint is of this chain.
    is_reported: bool,
    /// `true` for each endpoint that pruned blocks of the scan.
    pruned: Vec<bool>,
    /// Failures of each endpoint, by class.
    errors: Vec<BTreeMap<&'static str, u64>>,
    #[cfg(test)]
    pub(crate) sabotage: crate::sabotage::Defect,
}

/// Reason why none of the endpoints may be asked, in words.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct AllWrong(pub(crate) String);

/// Reason why a step has no endpoint.
#[derive(Debug)]
pub(crate) enum NotBegun {
    AllWrong(AllWrong),
    /// An endpoint did not show which chain it serves; the next call chooses an endpoint anew.
    Refused(usize, Failure),
}

/// A question and its result.
pub(crate) struct Fetched {
    pub(crate) index: usize,
    pub(crate) ask: Ask,
    pub(crate) result: Result<Answer, Failure>,
    /// `true` if the question was sent: the caller then judges the endpoint. A refused check of its chain was judged
    /// already.
    pub(crate) is_asked: bool,
}

impl Fetched {
    /// Result without a request: no endpoint in the role may be asked now.
    fn waiting(index: usize, ask: Ask) -> Self {
        let failure = Failure::new(Refusal::Transient, "the other endpoints pause");
        Self { index, ask, result: Err(failure), is_asked: false }
    }
}

/// Clients for all endpoints of the chain, each with a unique name.
pub(crate) fn clients(chain: &ChainConfig) -> Result<Vec<Endpoint>, Error> {
    let mut list: Vec<Endpoint> = Vec::with_capacity(chain.endpoints.len());
    for config in &chain.endpoints {
        // URLs of one provider may differ only in the masked part, so equal names get a number.
        let same = chain.endpoints.iter().take(list.len());
        let same = same.filter(|other| other.url.to_string() == config.url.to_string());
        list.push(Endpoint::new(chain, config, same.count())?);
    }
    Ok(list)
}

impl Endpoints {
    /// Clients for all endpoints of the chain. Sends no request.
    pub(crate) fn new(chain: Arc<ChainConfig>, pauses: Pauses) -> Result<Self, Error> {
        let list = clients(&chain)?;
        list.iter().for_each(Endpoint::register);
        let health = Health::new(chain.endpoints.iter().map(|config| config.weight), pauses);
        let (wrong, errors) = (vec![None; list.len()], vec![BTreeMap::new(); list.len()]);
        Ok(Self {
            chain,
            list,
            health,
            first: 0,
            second: None,
            wrong,
            is_reported: false,
            pruned: vec![false; errors.len()],
            errors,
            #[cfg(test)]
            sabotage: crate::sabotage::Defect::None,
        })
    }

    /// The name of an endpoint, without its keys.
    pub(crate) fn name(&self, index: usize) -> &str {
        self.list.get(index).map_or("", Endpoint::name)
    }

    /// Returns the time without progress of a chain after which an alarm is raised.
    pub(crate) fn stalled(&self) -> Duration {
        self.health.pauses().stalled
    }

    pub(crate) fn is_first(&self, index: usize) -> bool {
        self.first == index
    }

    /// Name of this step's second endpoint; of `index` if the step has none.
    pub(crate) fn second_name(&self, index: usize) -> &str {
        self.name(self.second.unwrap_or(index))
    }

    pub(crate) fn first_name(&self) -> &str {
        self.name(self.first)
    }

    /// Returns the readable state of each endpoint, without its keys.
    pub(crate) fn details(&self) -> Value {
        let now = Instant::now();
        let detail = |(index, endpoint): (usize, &Endpoint)| {
            json!({
                "endpoint": endpoint.name(),
                "in_use": self.first == index && self.wrong[index].is_none(),
                "aside": !self.health.serves(index, now),
                "wrong": self.wrong[index],
                "errors": self.errors[index],
            })
        };
        self.list.iter().enumerate().map(detail).collect()
    }

    /// Sends the cursor's open question to the endpoint that is to answer it.
    ///
    /// # Errors
    /// [`AllWrong`], once, as from [`Endpoints::begin`]. The caller repeats the call.
    pub(crate) async fn fetch(&mut self, cursor: &Cursor) -> Result<Fetched, AllWrong> {
        let ask = cursor.ask();
        loop {
            if cursor.is_step_start() {
                match self.begin().await {
                    Ok(()) => {}
                    Err(NotBegun::AllWrong(wrong)) => return Err(wrong),
                    Err(NotBegun::Refused(index, failure)) => {
                        return Ok(Fetched { index, ask, result: Err(failure), is_asked: false });
                    }
                }
            }
            let (index, mut result) = match ask.role {
                Role::First => (self.first, self.ask(self.first, &ask).await),
                Role::Second | Role::Witness => match self.ask_another(&ask).await {
                    Some(asked) => asked,
                    None => return Ok(Fetched::waiting(self.first, ask)),
                },
            };
            if let Ok(answer) = &mut result {
                answer.is_alone = self.is_alone(index, &ask);
                answer.is_first = index == self.first;
            }
            if cursor.is_step_start()
                && let Ok(answer) = &result
                && (self.is_forked(index, (&ask, answer), cursor).await
                    || self.is_overtaken(index, (&ask, answer)).await)
            {
                continue;
            }
            return Ok(Fetched { index, ask, result, is_asked: true });
        }
    }

    async fn ask(&self, index: usize, ask: &Ask) -> Result<Answer, Failure> {
        let answered = self.list[index].fetch(ask).await;
        #[cfg(test)]
        let answered = answered.map(|answer| self.sabotage.answer(answer));
        answered
    }

    /// Chooses the endpoint of a step: one of the configured chain.
    ///
    /// # Errors
    /// [`NotBegun::AllWrong`], once, if every endpoint serves another chain or other contracts; the next call waits.
    /// [`NotBegun::Refused`] if one refused and all others have refused or are put aside.
    pub(crate) async fn begin(&mut self) -> Result<(), NotBegun> {
        self.second = None;
        let mut refused = BTreeSet::new();
        loop {
            let (index, wait) = self.health.first(Instant::now());
            tokio::time::sleep(wait).await;
            match self.checked(index).await {
                Ok(true) => {
                    self.first = index;
                    break;
                }
                Ok(false) => {}
                Err(failure) => {
                    refused.insert(index);
                    let now = Instant::now();
                    let mut others = (0..self.list.len()).filter(|other| !refused.contains(other));
                    if !others.any(|other| self.health.serves(other, now)) {
                        self.measure();
                        return Err(NotBegun::Refused(index, failure));
                    }
                }
            }
            if let Some(reasons) = self.wrong.iter().cloned().collect::<Option<Vec<_>>>()
                && !std::mem::replace(&mut self.is_reported, true)
            {
                return Err(NotBegun::AllWrong(AllWrong(reasons.join("; "))));
            }
        }
        self.measure();
        Ok(())
    }

    fn measure(&self) {
        let now = Instant::now();
        for (index, endpoint) in self.list.iter().enumerate() {
            endpoint.measure(index == self.first, !self.health.serves(index, now));
        }
    }

    /// Checks the chain of an endpoint that has none of our blocks. Returns `true` if it serves another chain, or does
    /// not answer.
    pub(crate) async fn may_be_other(&mut self, index: usize) -> bool {
        #[cfg(test)]
        if self.sabotage == crate::sabotage::Defect::AnyChain {
            return false;
        }
        match self.wrong_at(index).await {
            Ok(None) => false,
            Ok(Some(error)) => {
                self.serves_other(index, error.coded());
                true
            }
            Err(failure) => {
                self.refused(index, &failure);
                true
            }
        }
    }

    /// Returns `true` if an endpoint shows another block in place of our last one, while another
    /// endpoint still has ours. If the endpoint that scanned ours shows the other block, the chain
    /// has changed.
    async fn is_forked(
        &mut self,
        index: usize,
        (ask, answer): (&Ask, &Answer),
        cursor: &Cursor,
    ) -> bool {
        let Some(ours) = cursor.last_scanned() else { return false };
        let point = Point::Number(ours.number);
        let Some(theirs) = ask.shown(answer, point) else { return false };
        let differs = theirs.block.number == ours.number && theirs.block.hash != ours.hash;
        if !differs || self.health.last_scanner() == Some(index) {
            return false;
        }
        let hash = theirs.block.hash;
        let ask = Ask { blocks: vec![point], ..Ask::default() };
        for other in (0..self.list.len()).filter(|other| *other != index) {
            if !self.check(other).await {
                continue;
            }
            let Ok(answer) = self.ask(other, &ask).await else { continue };
            if answer.blocks.iter().flatten().any(|header| header.block == ours) {
                let name = self.name(other);
                let cause = format!("block {} is {hash} there, and not at {name}", ours.number);
                self.failed(index, Fault::Forked, &cause);
                return true;
            }
        }
        false
    }

    /// As [`Endpoints::checked`], with `false` for a refusal.
    async fn check(&mut self, index: usize) -> bool {
        self.checked(index).await.unwrap_or(false)
    }

    /// Checks that an endpoint serves the configured chain, unless it was checked, and not down for long since.
    async fn checked(&mut self, index: usize) -> Result<bool, Failure> {
        #[cfg(test)]
        if self.sabotage == crate::sabotage::Defect::AnyChain && !self.health.is_new(index) {
            return Ok(true);
        }
        if self.wrong[index].is_none() && !self.health.must_check(index, Instant::now()) {
            return Ok(true);
        }
        match self.wrong_at(index).await {
            Ok(None) => self.serves_ours(index),
            Ok(Some(error)) => self.serves_other(index, error.coded()),
            Err(failure) => {
                self.refused(index, &failure);
                return Err(failure);
            }
        }
        Ok(self.wrong[index].is_none())
    }

    /// Returns the difference of an endpoint from the configuration: in its chain id; if it was never
    /// checked, in contracts too.
    async fn wrong_at(&self, index: usize) -> Result<Option<Error>, Failure> {
        let (blockchain, expected) = (self.chain.blockchain, self.chain.chain_id);
        let endpoint = &self.list[index];
        let found = endpoint.fetch_chain_id().await?;
        if found != expected {
            return Ok(Some(Error::ChainId { blockchain, expected, found }));
        }
        let contracts = self.chain.taken().filter(|_| self.health.is_new(index));
        for StablecoinContract { stablecoin, address, decimals, .. } in contracts {
            let shown = endpoint.fetch_contract(*address).await?;
            let Some(found) = shown.unlike(*decimals) else {
                tracing::info!(
                    blockchain = blockchain.as_str(),
                    endpoint = endpoint.name(),
                    contract = %address,
                    symbol = shown.symbol.unwrap_or_default(),
                    decimals,
                    "contract of {stablecoin} on {blockchain} is as configured"
                );
                continue;
            };
            let (stablecoin, contract, expected) = (*stablecoin, *address, *decimals);
            return Ok(Some(Error::Contract { blockchain, stablecoin, contract, expected, found }));
        }
        Ok(None)
    }

    fn serves_ours(&mut self, index: usize) {
        self.health.checked(index);
        self.is_reported = false;
        if self.wrong[index].take().is_some() {
            let (name, endpoint) = (self.chain.blockchain.as_str(), self.name(index));
            tracing::info!(
                blockchain = name,
                endpoint,
                "endpoint of {name} now serves the configured chain"
            );
        }
    }

    fn serves_other(&mut self, index: usize, cause: String) {
        self.failed(index, Fault::Wrong, &cause);
        let name = self.chain.blockchain.as_str();
        // Logged once for each cause, however often the endpoint is checked.
        let is_new = self.wrong[index].as_ref() != Some(&cause);
        self.wrong[index] = Some(cause);
        if !is_new {
            return;
        }
        let (endpoint, cause) = (self.name(index), self.wrong[index].as_deref());
        tracing::error!(
            blockchain = name,
            endpoint,
            cause,
            "an endpoint of {name} does not serve what is configured and is not used: replace it"
        );
    }

    /// Takes note of a request that was refused.
    pub(crate) fn refused(&mut self, index: usize, failure: &Failure) {
        let fault = Fault::Refused(failure.refusal, failure.retry_after);
        self.failed(index, fault, &failure.message);
    }

    pub(crate) fn failed(&mut self, index: usize, fault: Fault, cause: &str) {
        let (name, class) = (self.chain.blockchain.as_str(), fault.class());
        if fault != Fault::Behind {
            self.count(index, class);
        }
        let is_aside = self.health.failed(index, fault, Instant::now());
        if is_aside && self.list.len() > 1 && fault != Fault::Wrong {
            let endpoint = self.name(index);
            tracing::warn!(
                blockchain = name,
                endpoint,
                class,
                cause,
                "endpoint of {name} is put aside: another one is asked"
            );
        }
    }

    pub(crate) fn count(&mut self, index: usize, class: &'static str) {
        *self.errors[index].entry(class).or_default() += 1;
        let (name, endpoint) = (self.chain.blockchain.as_str(), self.name(index).to_owned());
        counter!(
            names::RPC_ERRORS_TOTAL,
            "blockchain" => name, "endpoint" => endpoint, "class" => class
        )
        .increment(1);
    }

    /// Takes note of an endpoint whose answers could be used.
    pub(crate) fn served(&mut self, index: usize) {
        self.pruned[index] = false;
        if self.health.served(index) && self.list.len() > 1 {
            let name = self.chain.blockchain.as_str();
            let endpoint = self.name(index);
            tracing::info!(blockchain = name, endpoint, "endpoint of {name} is used again");
        }
    }

    /// Takes note of the head that an endpoint shows.
    pub(crate) fn note_head(&mut self, index: usize, ask: &Ask, answer: &Answer) {
        if let Some(header) = ask.shown(answer, Point::Latest) {
            self.health.head(index, header.block.number, Instant::now());
        }
    }

    /// Returns `true` if every endpoint has deleted the blocks that a scan asks for.
    pub(crate) fn is_gap(&mut self, index: usize, ask: &Ask, failure: &Failure) -> bool {
        if ask.role != Role::First || failure.refusal != Refusal::Pruned {
            return false;
        }
        self.pruned[index] = true;
        self.pruned.iter().all(|pruned| *pruned)
    }

    /// Returns `true` if another endpoint scanned the last block.
    pub(crate) fn is_switched(&self) -> bool {
        self.health.last_scanner().is_some_and(|by| by != self.first)
    }

    /// Takes note of a rewind to this block, which this step did not scan.
    pub(crate) fn rewound(&mut self, number: i64) {
        self.health.rewound(number);
    }

    /// Takes note of the last block that this step scanned.
    pub(crate) fn scanned(&mut self, number: i64) {
        self.health.scanned(self.first, number);
    }
}

impl Drop for Endpoints {
    /// Clears the gauges of the endpoints: another process may follow the chain now.
    fn drop(&mut self) {
        self.list.iter().for_each(Endpoint::withdraw);
    }
}

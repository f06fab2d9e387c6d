//! Manual rescan: fetches scanned blocks again and publishes missing transfers.
//!
//! Every endpoint is asked for the whole range. A transfer that the log lacks must be proven by receipts: of two
//! endpoints, where two are configured. It is then published with the last head in an atomic step, as a late find.
//! Opening the writer fences ingest, so it is opened for that step alone. Transfers published meanwhile are left out.

mod survey;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use log::{Log, NewRecord};
use schemas::record::{Alert, Block, ChainBody, ChainRecord, Observation};
use schemas::{
    AlertKind, BlockHash, Epoch, FORGET_SECONDS, Partition, PaymentKey, Topic, UnixMicros,
    UnixSeconds,
};

use crate::endpoints::clients;
use crate::machine::{
    Answer, Ask, EventLog, Flow, History, Outcome, Point, Refusal, Rules, Span, Verdict, Watch,
    next_ordinal, payments,
};
use crate::rpc::{Endpoint, Failure};
use crate::{ChainConfig, Error, publish, restore, watched};
pub use survey::{Survey, Wealth};

/// Maximum attempts at a question to an endpoint.
const ATTEMPTS: u32 = 5;
const PAUSE: Duration = Duration::from_secs(1);
/// Maximum number of transfers in one step.
const STEP_MAX: usize = 500;

/// Reason why a rescan or survey failed.
#[derive(Debug, thiserror::Error)]
pub enum RescanError {
    #[error(transparent)]
    Ingest(#[from] Error),
    #[error("the log has no record of the chain: nothing was scanned yet")]
    Unknown,
    #[error("the chain is scanned up to block {0}: those after it are asked for anyway")]
    NotScanned(i64),
    #[error(
        "the log's records begin at block {0}: it does not know which transfers before it were published; begin after \
         it, or have them scanned again by `tidemark chain rewind CHAIN HEIGHT`"
    )]
    Gone(i64),
    #[error("no endpoint answered for the whole range: {0}")]
    NoEndpoint(String),
    #[error("the chain was reorganised meanwhile: nothing was written; ask again")]
    Reorganised,
}

/// Transfers that the blocks have and the log lacks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rescan {
    pub from: i64,
    /// At most the last scanned block.
    pub to: i64,
    /// Number of endpoints that answered for all of these blocks.
    pub endpoints: usize,
    /// Endpoints that failed, with the cause, for a block or a receipt.
    pub left_out: Vec<String>,
    /// Transfers to publish.
    pub missing: Vec<(Block, Observation)>,
    /// Transfers that too few receipts prove, or that some deny.
    pub unproven: Vec<(Block, Observation)>,
    /// Block time before which the processor reports transfers as too old and matches none.
    pub stale_before: UnixSeconds,
    epoch: Epoch,
}

/// A transfer in its block, without the index of its log, which nodes may correct.
type Place = (i64, BlockHash, PaymentKey);

fn place(number: i64, hash: BlockHash, seen: &Observation) -> Place {
    (number, hash, seen.payment())
}

/// Transfers by place. Equal transfers of a transaction get ordinals from 0 in each block.
fn numbered(
    transfers: impl IntoIterator<Item = (i64, BlockHash, Observation)>,
) -> BTreeMap<Place, Observation> {
    let mut equal: HashMap<Place, i32> = HashMap::new();
    let mut number_of = |(number, hash, seen): (i64, BlockHash, Observation)| {
        let first = Observation { ordinal: 0, ..seen };
        let count = equal.entry(place(number, hash, &first)).or_default();
        let seen = Observation { ordinal: *count, ..seen };
        *count = count.saturating_add(1);
        (place(number, hash, &seen), seen)
    };
    transfers.into_iter().map(&mut number_of).collect()
}

/// Places of the transfers published between two heights.
fn published(history: &History, from: i64, to: i64) -> BTreeSet<Place> {
    let transfers = history.between(from, to).into_iter();
    let transfers = transfers.map(|(block, seen)| (block.number, block.hash, seen));
    numbered(transfers).into_keys().collect()
}

/// The transfers among sifted logs, by place.
fn shown(watch: &Watch, logs: &[EventLog]) -> BTreeMap<Place, Observation> {
    let hashes: BTreeMap<i64, BlockHash> =
        logs.iter().map(|log| (log.block_number, log.block_hash)).collect();
    let transfers = payments(watch, logs).into_iter();
    numbered(transfers.filter_map(|(number, seen)| Some((number, *hashes.get(&number)?, seen))))
}

/// Reads the history of a chain from the log, from a height on.
async fn known(log: &Arc<dyn Log>, chain: &ChainConfig, from: i64) -> Result<History, RescanError> {
    let (log, chain) = (log.clone(), chain.clone());
    let read = move || restore::restore_with_reach(&*log, &chain, from - 1);
    let restored = tokio::task::spawn_blocking(read).await.map_err(Error::from)??;
    let (history, reach) = restored.ok_or(RescanError::Unknown)?;
    if reach >= from { Err(RescanError::Gone(reach)) } else { Ok(history) }
}

impl Rescan {
    /// Asks every endpoint for the blocks from one height to another. `progress` is called with the numbers of blocks
    /// fetched so far and in total.
    ///
    /// # Errors
    /// [`RescanError`].
    pub async fn find(
        log: &Arc<dyn Log>,
        chain: &ChainConfig,
        (from, to): (i64, i64),
        mut progress: impl FnMut(i64, i64),
    ) -> Result<Self, RescanError> {
        let history = known(log, chain, from).await?;
        let (last, rules) = (history.last(), chain.rules());
        if from > last.number {
            return Err(RescanError::NotScanned(last.number));
        }
        let to = to.min(last.number);
        let (useful, mut left_out, finalized) = serving(chain, &rules, last).await?;
        let all = (to - from + 1) * i64::try_from(useful.len()).unwrap_or(1);
        let known = published(&history, from, to);
        let (mut found, mut asked, mut complete) = (BTreeMap::new(), 0, Vec::new());
        for endpoint in useful {
            let mut next = |blocks: i64| {
                asked += blocks;
                progress(asked, all);
            };
            let part = (Flow::Received, from, to);
            match scan(&endpoint, &rules, chain.range_max, part, &mut next).await {
                Ok(logs) => {
                    let new = shown(&rules.watch, &logs).into_iter();
                    found.extend(new.filter(|(place, _)| !known.contains(place)));
                    complete.push(endpoint);
                }
                Err(cause) => left_out.push(format!("{}: {cause}", endpoint.name())),
            }
        }
        if complete.is_empty() {
            return Err(RescanError::NoEndpoint(left_out.join("; ")));
        }
        // An outage of the second endpoint must not lower the proof needed.
        let needed = chain.endpoints.len().min(2);
        let (mut missing, mut unproven) = (Vec::new(), Vec::new());
        for ((number, hash, ..), seen) in found {
            let asked = (last, finalized, &mut left_out);
            let tally = prove(&complete, &rules, (number, hash), &seen, asked).await;
            if tally.denials >= needed && tally.proofs == 0 {
                continue;
            }
            let unknown = Block { number, hash, timestamp: last.timestamp };
            let is_proven = tally.proofs >= needed && tally.denials == 0;
            let list = if is_proven { &mut missing } else { &mut unproven };
            list.push((tally.block.unwrap_or(unknown), seen));
        }
        let in_order = |(block, seen): &(Block, Observation)| (block.number, seen.log_index);
        missing.sort_by_key(in_order);
        unproven.sort_by_key(in_order);
        let (endpoints, epoch) = (complete.len(), history.epoch());
        let stale_before = last.timestamp.plus(-FORGET_SECONDS);
        Ok(Self { from, to, endpoints, left_out, missing, unproven, stale_before, epoch })
    }

    /// Fences the ingest of the chain and publishes the transfers still missing. Returns their number. Blocks the
    /// thread.
    ///
    /// # Errors
    /// [`RescanError`]; the first steps of a long list may have been written.
    pub fn write(
        &self,
        log: &dyn Log,
        chain: &ChainConfig,
        now: UnixMicros,
    ) -> Result<usize, RescanError> {
        let mut writer = log.writer(&chain.writer()).map_err(Error::from)?;
        let watched = watched::known(log, chain.blockchain).map_err(Error::from)?;
        let restored = restore::restore_with_reach(log, chain, self.from - 1)?;
        let (mut history, _) = restored.ok_or(RescanError::Unknown)?;
        if history.epoch() != self.epoch {
            return Err(RescanError::Reorganised);
        }
        let known = published(&history, self.from, self.to);
        let is_missing = |(block, seen): &&(Block, Observation)| {
            !known.contains(&place(block.number, block.hash, seen))
        };
        let missing: Vec<_> = self.missing.iter().filter(is_missing).copied().collect();
        for some in missing.chunks(STEP_MAX) {
            let records = records(chain, &history, some, now);
            let mut step = publish::step(&records, watched.clone(), &log.layout())?;
            for (block, seen) in some {
                step.push(alert(chain, *block, seen, now)?);
            }
            writer.commit(step).map_err(Error::from)?;
            records.iter().for_each(|record| history.apply(record));
        }
        Ok(missing.len())
    }
}

/// Records of a step that publishes missing transfers: the transfers, and the last head again.
fn records(
    chain: &ChainConfig,
    history: &History,
    missing: &[(Block, Observation)],
    now: UnixMicros,
) -> Vec<ChainRecord> {
    let (last, head) = (history.last(), history.head());
    let observed_at = history.observed_at().next(now);
    let record = |block, body| chain.record(history.epoch(), observed_at, block, body);
    let mut transfers: Vec<(Block, Observation)> = Vec::with_capacity(missing.len());
    for (block, seen) in missing {
        let ordinal = next_ordinal(history, block.number, seen, &transfers);
        transfers.push((*block, Observation { ordinal, ..*seen }));
    }
    let transfers = transfers.into_iter().map(|(block, seen)| {
        let confirmed = block.number <= last.number && head.confirms(&block, &seen);
        ChainRecord { confirmed, ..record(block, ChainBody::Transfer(seen)) }
    });
    transfers.chain([record(last, ChainBody::Head(head.clone()))]).collect()
}

fn alert(
    chain: &ChainConfig,
    block: Block,
    seen: &Observation,
    raised_at: UnixMicros,
) -> Result<NewRecord, Error> {
    let name = chain.blockchain;
    let message = format!(
        "the transfer in transaction {} of block {} ({}) was missing, and `tidemark rescan {name}` found it. It is \
         published now. The endpoints of chains.{name}.rpc left it out when the block was scanned and checked: replace \
         one of them if this comes again",
        seen.tx_hash, block.number, block.hash
    );
    let alert = Alert::raise(AlertKind::LateFind, Some(name), &seen.tx_hash, message, raised_at);
    Ok(NewRecord::encode(Topic::Alerts, Partition(0), name.as_str(), &alert)?)
}

/// The endpoints on the scanned fork, the others with the reason, and the final height.
async fn serving(
    chain: &ChainConfig,
    rules: &Rules,
    last: Block,
) -> Result<(Vec<Endpoint>, Vec<String>, i64), RescanError> {
    let (mut useful, mut left_out, mut finalized) = (Vec::new(), Vec::new(), -1);
    for endpoint in clients(chain)? {
        match final_of(&endpoint, chain, rules, last).await {
            Ok(number) => {
                finalized = finalized.max(number);
                useful.push(endpoint);
            }
            Err(cause) => left_out.push(format!("{}: {cause}", endpoint.name())),
        }
    }
    if useful.is_empty() {
        return Err(RescanError::NoEndpoint(left_out.join("; ")));
    }
    Ok((useful, left_out, finalized))
}

/// Finalized height that an endpoint reports, else -1; an error unless it serves the configured chain and the scanned
/// fork.
async fn final_of(
    endpoint: &Endpoint,
    chain: &ChainConfig,
    rules: &Rules,
    last: Block,
) -> Result<i64, String> {
    let found = endpoint.fetch_chain_id().await.map_err(|failure| failure.to_string())?;
    if found != chain.chain_id {
        return Err(format!("serves chain id {found}, not {}", chain.chain_id));
    }
    let mut blocks = vec![Point::Number(last.number)];
    blocks.extend(rules.policy.uses_tags().then_some(Point::Finalized));
    let asked = Ask { blocks, ..Ask::default() };
    let answer = ask(endpoint, &asked).await.map_err(|failure| failure.to_string())?;
    let mut headers = answer.blocks.into_iter();
    match headers.next().flatten() {
        Some(header) if header.block.hash == last.hash => {
            Ok(headers.next().flatten().map_or(-1, |header| header.block.number))
        }
        Some(_) => Err(format!("has another block {} than was scanned", last.number)),
        None => Err(format!("does not have block {}", last.number)),
    }
}

/// Our logs of a range, in order.
async fn scan(
    endpoint: &Endpoint,
    rules: &Rules,
    range_max: i64,
    (flow, from, to): (Flow, i64, i64),
    progress: &mut impl FnMut(i64),
) -> Result<Vec<EventLog>, String> {
    let (mut all, mut next, mut blocks, mut failures) = (Vec::new(), from, range_max, 0);
    while next <= to {
        let end = to.min(next.saturating_add(blocks - 1));
        let failure = match fetch(endpoint, flow, next, end).await {
            Ok(logs) => {
                let sifted = rules.watch.sift_flow(flow, logs, (next, end));
                all.extend(sifted.map_err(str::to_owned)?);
                progress(end - next + 1);
                (next, failures) = (end + 1, 0);
                continue;
            }
            Err(failure) => failure,
        };
        if let Some(smaller) = failure.smaller_range(end - next + 1) {
            (blocks, failures) = (smaller, 0);
            // A range that is too large needs no pause. Every other failure may be a short outage.
            if matches!(failure.refusal, Refusal::Size { .. }) {
                continue;
            }
        } else {
            failures += 1;
        }
        if failures == ATTEMPTS {
            return Err(failure.to_string());
        }
        tokio::time::sleep(failure.retry_after.unwrap_or(PAUSE)).await;
    }
    Ok(all)
}

/// The raw logs of a range.
async fn fetch(
    endpoint: &Endpoint,
    flow: Flow,
    from: i64,
    to: i64,
) -> Result<Vec<EventLog>, Failure> {
    match flow {
        Flow::Received => {
            let logs = vec![Span::Range { from, to }];
            let answer = endpoint.fetch(&Ask { logs, ..Ask::default() }).await?;
            Ok(answer.logs.into_iter().flatten().collect())
        }
        Flow::Sent => endpoint.sent(from, to).await,
    }
}

/// Counted answers of the endpoints about a transfer.
#[derive(Debug, Default)]
struct Tally {
    /// Block of the transfer.
    block: Option<Block>,
    /// Number of receipts that have it.
    proofs: usize,
    /// Number of endpoints that deny it, as in [`Verdict::Denied`].
    denials: usize,
}

/// Fetches from each endpoint the block of a transfer and the outcome of its transaction. On Tron the outcome comes
/// from the native interface if the block is final. An endpoint that is behind, or on another fork than the scan,
/// proves nothing. One that gives no answer is added to `left_out`.
async fn prove(
    endpoints: &[Endpoint],
    rules: &Rules,
    (number, hash): (i64, BlockHash),
    seen: &Observation,
    (last, finalized, left_out): (Block, i64, &mut Vec<String>),
) -> Tally {
    let mut tally = Tally::default();
    let blocks = vec![Point::Number(number), Point::Number(last.number)];
    let (transaction, is_final) = (seen.tx_hash, number <= finalized);
    let receipts = vec![Outcome { transaction, number, block_hash: hash, is_final }];
    let asked = Ask { blocks, receipts, ..Ask::default() };
    for endpoint in endpoints {
        let answer = match ask(endpoint, &asked).await {
            Ok(answer) => answer,
            Err(failure) => {
                let line = format!("{}: gave no receipt: {failure}", endpoint.name());
                if !left_out.contains(&line) {
                    left_out.push(line);
                }
                continue;
            }
        };
        let blocks: Vec<_> = answer.blocks.iter().flatten().map(|header| header.block).collect();
        let [block, newest] = blocks.as_slice() else { continue };
        if (block.hash, newest.hash) != (hash, last.hash) {
            continue;
        }
        tally.block = Some(*block);
        let rank = usize::try_from(seen.ordinal).unwrap_or(0);
        let says = answer.receipts.first();
        let says = says.map(|proof| Verdict::of(proof, &rules.watch, block, seen, rank));
        tally.proofs += usize::from(says == Some(Verdict::Proven));
        tally.denials += usize::from(says == Some(Verdict::Denied));
    }
    tally
}

/// Sends a question, with up to `ATTEMPTS` attempts unless a retry cannot help.
async fn ask(endpoint: &Endpoint, asked: &Ask) -> Result<Answer, Failure> {
    for _ in 1..ATTEMPTS {
        match endpoint.fetch(asked).await {
            Err(failure) if !matches!(failure.refusal, Refusal::Fatal | Refusal::Pruned) => {
                tokio::time::sleep(failure.retry_after.unwrap_or(PAUSE)).await;
            }
            ended => return ended,
        }
    }
    endpoint.fetch(asked).await
}

#[cfg(test)]
mod tests;

//! This process's share of the chains: those whose partitions of `chains` its group member owns.
//!
//! The group assigns chains, and opening a chain's writer fences its predecessor: a process that missed its heartbeats
//! and continues is refused by the log once its successor has opened the writer.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use log::consumer::{Handler, Member, Plan};
use log::{Assigned, Record, StageContext, TopicPartition};
use metrics::gauge;
use runtime::Readiness;
use runtime::readiness::Detail;
use schemas::{Blockchain, Topic};
use serde_json::json;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::metrics as names;
use crate::{ChainConfig, Config, Error, follow, watched};

/// The pause before a chain is followed again after another process published for it.
const FENCED_PAUSE: Duration = Duration::from_secs(1);

/// Follows the chains that the group assigns to this process, until it stops. Chains of lost processes
/// resume where they stopped. `readiness` reports halted ones. Blocks: run it on a separate thread.
///
/// # Errors
/// [`Error`]: the log or this process failed, or at the start the configuration lacks a watch of the log.
/// A failure of one chain alone halts that chain ([`follow`]).
pub fn run(config: Config, readiness: Readiness, context: &StageContext) -> Result<(), Error> {
    let share = Share::new(config.chains, readiness, context);
    for blockchain in Blockchain::ALL {
        let known = || watched::known(&*context.log, *blockchain);
        let Some(known) = log::retry(&context.stop, "ingest", known)? else { return Ok(()) };
        watched::check(*blockchain, share.chains.get(blockchain), &known)?;
    }
    log::consumer::run(context, share)
}

struct Share {
    chains: BTreeMap<Blockchain, ChainConfig>,
    readiness: Readiness,
    context: StageContext,
    ours: BTreeMap<Blockchain, Following>,
    /// Readiness details of the configured chains that this process does not follow.
    others: BTreeMap<Blockchain, Detail>,
}

enum Following {
    Running {
        stop: CancellationToken,
        task: JoinHandle<Result<(), Error>>,
    },
    /// Another process published for the chain. This one starts again only after a pause, as the group may assign the
    /// chain to that process meanwhile.
    Fenced {
        until: Instant,
    },
}

impl Handler for Share {
    const GROUP: &'static str = "ingest";
    const BATCH_MAX: usize = 1;
    type Error = Error;

    fn topics(&self) -> Vec<Topic> {
        vec![Topic::Chains]
    }

    fn assigned(&mut self, assigned: Vec<Assigned>, member: &mut Member<'_>) -> Result<(), Error> {
        for one in assigned {
            // The records are for other groups; this one reads none of them.
            member.pause(one.partition);
            self.take_up(one.partition);
        }
        Ok(())
    }

    /// Every task of a lost chain ends before the next poll. A successor that is faster fences it.
    fn revoked(&mut self, lost: &[TopicPartition]) -> Result<(), Error> {
        let lost: Vec<_> = lost.iter().copied().filter_map(chain_of).collect();
        self.give_up(&lost)
    }

    fn step(&mut self, _records: &[Arc<Record>], _member: &mut Member<'_>) -> Result<Plan, Error> {
        self.restart_ended()?;
        Ok(Plan::Nothing)
    }
}

impl Share {
    fn new(chains: Vec<ChainConfig>, readiness: Readiness, context: &StageContext) -> Self {
        let chains: BTreeMap<_, _> =
            chains.into_iter().map(|chain| (chain.blockchain, chain)).collect();
        let all: Vec<_> = chains.keys().copied().collect();
        let names: Vec<_> = all.iter().map(|chain| chain.as_str()).collect();
        runtime::metrics::register(names::METRICS, &[("blockchain", &names)]);
        let (context, ours, others) = (context.clone(), BTreeMap::new(), BTreeMap::new());
        let mut share = Self { chains, readiness, context, ours, others };
        all.into_iter().for_each(|chain| share.show_not_followed(chain));
        share
    }

    fn show_not_followed(&mut self, blockchain: Blockchain) {
        let detail = self.readiness.detail();
        detail.set(json!({ "blockchain": blockchain, "followed": false }));
        self.others.insert(blockchain, detail);
        gauge!(names::FOLLOWED, "blockchain" => blockchain.as_str()).set(0);
    }

    /// Follows the chain of a partition, from where its published records end.
    fn take_up(&mut self, partition: TopicPartition) {
        let Some(blockchain) = chain_of(partition) else { return };
        if self.ours.contains_key(&blockchain) || self.begin(blockchain) {
            return;
        }
        if self.context.log.bounds(partition).is_ok_and(|bounds| bounds.end > bounds.start) {
            let name = blockchain.as_str();
            tracing::warn!(
                blockchain = name,
                "{name} was followed before and no process follows it now: the group assigned it to \
                 this process, whose configuration has no section [chains.{name}]"
            );
        }
    }

    /// Starts the chain's task; false if the chain is not configured here.
    fn begin(&mut self, blockchain: Blockchain) -> bool {
        let Some(chain) = self.chains.get(&blockchain).cloned() else { return false };
        let stop = CancellationToken::new();
        let StageContext { log, clock, handle, .. } = &self.context;
        let (readiness, log, clock) = (self.readiness.clone(), log.clone(), clock.clone());
        let task = handle.spawn(follow(chain, readiness, log, clock, stop.clone()));
        self.ours.insert(blockchain, Following::Running { stop, task });
        self.others.remove(&blockchain);
        gauge!(names::FOLLOWED, "blockchain" => blockchain.as_str()).set(1);
        true
    }

    /// Stops following chains. Returns once this process publishes nothing for them.
    fn give_up(&mut self, lost: &[Blockchain]) -> Result<(), Error> {
        let gone: Vec<_> =
            lost.iter().filter_map(|chain| Some((*chain, self.ours.remove(chain)?))).collect();
        for (_, following) in &gone {
            if let Following::Running { stop, .. } = following {
                stop.cancel();
            }
        }
        let mut result = Ok(());
        for (blockchain, following) in gone {
            if let Following::Running { task, .. } = following {
                let ended = self.context.handle.block_on(task).map_err(Error::from).flatten();
                // The new owner may have opened the chain's writer already.
                result = result.and(
                    ended.or_else(|error| if error.is_fenced() { Ok(()) } else { Err(error) }),
                );
            }
            let name = blockchain.as_str();
            tracing::info!(blockchain = name, "{name} is no longer followed by this process");
            self.show_not_followed(blockchain);
        }
        result
    }

    /// Takes note of chains whose task has ended, and begins those again whose pause is over.
    fn restart_ended(&mut self) -> Result<(), Error> {
        let (mut paused, mut fenced) = (Vec::new(), Vec::new());
        for (blockchain, following) in &mut self.ours {
            match following {
                Following::Running { task, .. } if task.is_finished() => {
                    let ended = self.context.handle.block_on(task).map_err(Error::from).flatten();
                    let cause = match ended {
                        Err(error) if error.is_fenced() => error.to_string(),
                        other => {
                            other?;
                            "it ended".to_owned()
                        }
                    };
                    let name = blockchain.as_str();
                    tracing::warn!(
                        blockchain = name,
                        cause,
                        "following {name} ended because another process published for it; it restarts \
                         here if the group leaves the chain assigned to this process"
                    );
                    *following = Following::Fenced { until: Instant::now() + FENCED_PAUSE };
                    fenced.push(*blockchain);
                }
                Following::Fenced { until } if *until <= Instant::now() => {
                    paused.push(*blockchain);
                }
                Following::Running { .. } | Following::Fenced { .. } => {}
            }
        }
        fenced.into_iter().for_each(|blockchain| self.show_not_followed(blockchain));
        for blockchain in paused {
            self.begin(blockchain);
        }
        Ok(())
    }
}

/// The chain of a partition; `None` for one that only a newer version knows.
fn chain_of(partition: TopicPartition) -> Option<Blockchain> {
    Blockchain::at(partition.partition.0)
}

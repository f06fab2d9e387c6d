//! This process's share of the chains: those whose partition of `chains` its member of the group has.
//!
//! Membership says who should follow a chain, the name of the chain's writer says who may publish: a
//! process that was taken for dead and comes back is fenced by its successor, whatever it believes.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use log::consumer::{Handler, Member, Plan};
use log::{Assigned, Record, StageContext, TopicPartition};
use metrics::gauge;
use schemas::{Blockchain, Topic};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::metrics as names;
use crate::{ChainConfig, Config, Error, follow};

/// How long to wait before a chain is taken up again that another process had published for.
const FENCED_PAUSE: Duration = Duration::from_secs(1);
/// Follows the chains that the group gives to this process, until it stops. Chains of processes that are
/// gone are taken over where they stopped. Blocks: belongs on a thread of its own.
///
/// # Errors
/// [`Error`]: the log or this process failed. What one chain alone has halts that chain ([`follow`]).
pub fn run(config: Config, context: &StageContext) -> Result<(), Error> {
    let chains = config.chains.into_iter().map(|chain| (chain.blockchain, chain)).collect();
    let share = Share { chains, context: context.clone(), ours: BTreeMap::new() };
    log::consumer::run(context, share)
}

struct Share {
    chains: BTreeMap<Blockchain, ChainConfig>,
    context: StageContext,
    ours: BTreeMap<Blockchain, Following>,
}

/// A chain that is ours.
enum Following {
    Running {
        stop: CancellationToken,
        task: JoinHandle<Result<(), Error>>,
    },
    /// Another process published for it. If the group takes it away from us meanwhile, that was right.
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
            // The records tell others how far a chain is; this group reads none of them.
            member.pause(one.partition);
            self.take_up(one.partition);
        }
        Ok(())
    }

    /// All that was begun is ended before the next poll. A successor that is quicker than that fences
    /// what is still under way.
    fn revoked(&mut self, lost: &[TopicPartition]) -> Result<(), Error> {
        let lost: Vec<_> = lost.iter().copied().filter_map(chain_of).collect();
        self.give_up(&lost)
    }

    fn step(&mut self, _records: &[Arc<Record>], _member: &mut Member<'_>) -> Result<Plan, Error> {
        self.look_after()?;
        Ok(Plan::Nothing)
    }
}

impl Share {
    /// A partition is ours: its chain begins, or goes on where the log says it stands.
    fn take_up(&mut self, partition: TopicPartition) {
        let Some(blockchain) = chain_of(partition) else { return };
        if self.ours.contains_key(&blockchain) {
            return;
        }
        if let Some(chain) = self.chains.get(&blockchain).cloned() {
            let following = self.begin(chain);
            self.ours.insert(blockchain, following);
        } else if self.context.log.bounds(partition).is_ok_and(|bounds| bounds.end > bounds.start) {
            let name = blockchain.as_str();
            tracing::warn!(
                blockchain = name,
                "{name} was followed before and nobody follows it now: this process got it from its \
                 group, and its configuration has no section [chains.{name}]"
            );
        }
    }

    fn begin(&self, chain: ChainConfig) -> Following {
        let stop = CancellationToken::new();
        let StageContext { log, clock, handle, .. } = &self.context;
        let followed = follow(chain, log.clone(), clock.clone(), stop.clone());
        Following::Running { stop, task: handle.spawn(followed) }
    }

    /// Chains are no longer ours. Returns once nothing of this process publishes for them.
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
                // Whoever has it now may have been faster.
                let ended = if is_fenced(&ended) { Ok(()) } else { ended };
                result = result.and(ended);
            }
            let name = blockchain.as_str();
            tracing::info!(blockchain = name, "{name} is not followed here any more");
            // Whoever follows it now tells how it does.
            gauge!(names::HALTED, "blockchain" => name).set(0);
            gauge!(names::LAG_SECONDS, "blockchain" => name).set(0);
        }
        result
    }

    /// Takes note of chains whose task has ended, and begins those again whose pause is over.
    fn look_after(&mut self) -> Result<(), Error> {
        let mut changed = Vec::new();
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
                        "following {name} stops here, and begins anew if it stays ours: another \
                         process may have published for it"
                    );
                    *following = Following::Fenced { until: Instant::now() + FENCED_PAUSE };
                }
                Following::Fenced { until } if *until <= Instant::now() => {
                    changed.push(*blockchain);
                }
                Following::Running { .. } | Following::Fenced { .. } => {}
            }
        }
        for blockchain in changed {
            if let Some(chain) = self.chains.get(&blockchain).cloned() {
                let following = self.begin(chain);
                self.ours.insert(blockchain, following);
            }
        }
        Ok(())
    }
}

fn is_fenced(ended: &Result<(), Error>) -> bool {
    ended.as_ref().is_err_and(Error::is_fenced)
}

/// Each chain has the partition of its own number.
fn chain_of(partition: TopicPartition) -> Option<Blockchain> {
    Blockchain::ALL.iter().find(|chain| chain.index() == partition.partition.0).copied()
}

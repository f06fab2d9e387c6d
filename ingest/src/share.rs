//! This process's share of the chains: those whose partition of `chains` its member of the group has.
//!
//! Membership says who should follow a chain, the name of the chain's writer says who may publish: a
//! process that was taken for dead and comes back is fenced by its successor, whatever it believes.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use log::{Error as LogError, Event, Log, TopicPartition, Worker, WorkerSpec};
use metrics::gauge;
use runtime::{Clock, task};
use schemas::{Blockchain, Topic};
use tokio::runtime::Handle;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::metrics as names;
use crate::{ChainConfig, Config, Error, follow};

/// Consumer group of all ingest processes.
const GROUP: &str = "ingest";
/// How long one poll waits: how late the end of a chain's task, or a stop, may be noticed.
const POLL: Duration = Duration::from_millis(50);
/// How long to wait after the log could not be reached.
const BACK_OFF: Duration = Duration::from_millis(500);
/// How long to wait before a chain is taken up again that another process had published for.
const FENCED_PAUSE: Duration = Duration::from_secs(1);
/// Records of `chains` are not wanted; they tell others how far a chain is.
const BATCH_MAX: usize = 1;

/// Follows the chains that the group gives to `member`, until `stop`. Chains of processes that are gone
/// are taken over where they stood. Blocks: belongs on a thread of its own; `handle` runs the chains.
///
/// # Errors
/// [`Error`]: the log or this process failed. What one chain alone has halts that chain ([`follow`]).
pub fn run(
    config: Config,
    log: Arc<dyn Log>,
    clock: Arc<dyn Clock>,
    member: &str,
    handle: Handle,
    stop: &CancellationToken,
) -> Result<(), Error> {
    let spec = WorkerSpec {
        group: GROUP,
        member: member.to_owned(),
        topics: vec![Topic::Chains],
        batch_max: BATCH_MAX,
    };
    let Some(worker) = log::retry(stop, GROUP, || log.worker(spec.clone()))? else {
        return Ok(());
    };
    let chains = config.chains.into_iter().map(|chain| (chain.blockchain, chain)).collect();
    let mut share = Share { worker, chains, log, clock, handle, ours: BTreeMap::new() };
    let ended = share.keep(stop);
    let gone: Vec<_> = share.ours.keys().copied().collect();
    // Of two errors the first one is the cause.
    ended.and(share.give_up(&gone))
}

struct Share {
    worker: Box<dyn Worker>,
    chains: BTreeMap<Blockchain, ChainConfig>,
    log: Arc<dyn Log>,
    clock: Arc<dyn Clock>,
    handle: Handle,
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

impl Share {
    fn keep(&mut self, stop: &CancellationToken) -> Result<(), Error> {
        while !stop.is_cancelled() {
            match self.worker.poll(POLL) {
                Ok(Event::Assigned(assigned)) => {
                    for one in assigned {
                        self.worker.pause(one.partition);
                        self.take_up(one.partition);
                    }
                }
                // All that was begun is ended before the next poll. A successor that is quicker than
                // that fences what is still under way.
                Ok(Event::Revoked(lost)) => {
                    let lost: Vec<_> = lost.into_iter().filter_map(chain_of).collect();
                    self.give_up(&lost)?;
                }
                Ok(Event::Records(_) | Event::Idle) => {}
                // The chains go on: they wait for the log by themselves.
                Err(LogError::Transient(cause)) => {
                    tracing::debug!(cause, "ingest cannot reach its group, trying again");
                    task::wait(stop, BACK_OFF);
                }
                Err(error) => return Err(error.into()),
            }
            self.look_after()?;
        }
        Ok(())
    }

    /// A partition is ours: its chain begins, or goes on where the log says it stands.
    fn take_up(&mut self, partition: TopicPartition) {
        let Some(blockchain) = chain_of(partition) else { return };
        if self.ours.contains_key(&blockchain) {
            return;
        }
        if let Some(chain) = self.chains.get(&blockchain).cloned() {
            let following = self.begin(chain);
            self.ours.insert(blockchain, following);
        } else if self.log.bounds(partition).is_ok_and(|bounds| bounds.end > bounds.start) {
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
        let followed = follow(chain, self.log.clone(), self.clock.clone(), stop.clone());
        Following::Running { stop, task: self.handle.spawn(followed) }
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
                let ended = self.handle.block_on(task).map_err(Error::from).flatten();
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
                    let ended = self.handle.block_on(task).map_err(Error::from).flatten();
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

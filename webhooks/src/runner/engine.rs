//! State that the workers of a process share: the hosts, the failing endpoints, and the client. All
//! workers use the same knowledge of a receiver.
//!
//! A request that ends starts the next one, of any worker, without waiting for a worker's turn. A
//! job's result is put on the [`Inbox`] of its worker.

use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use log::StageContext;
use runtime::Clock;
use schemas::record::Delivery;
use schemas::{AttemptOutcome, DeliveryKind, UnixMicros};
use tokio::runtime::Handle;

use super::elapsed;
use super::endpoints::Endpoints;
use super::job::{self, Back, Inbox, Job};
use crate::config::Config;
use crate::error::Error;
use crate::guard::{host_key, host_of};
use crate::machine::hosts::{Hosts, Permit};
use crate::machine::schedule::Reason;
use crate::metrics;
use crate::sender::Sender;

/// Interval at which the topic `alerts` is read: the delay with which a change by another process
/// or an operator is noticed.
const ALERTS_READ_EVERY: Duration = Duration::from_secs(10);
/// Interval of the metrics that need a pass over all hosts.
const REPORTED_EVERY: Duration = Duration::from_secs(1);

/// Delivers webhooks for the workers of a process.
#[derive(Clone)]
pub struct Engine(Arc<Shared>);

struct Shared {
    config: Config,
    sender: Sender,
    clock: Arc<dyn Clock>,
    handle: Handle,
    hosts: Mutex<Hosts<Job>>,
    endpoints: Mutex<Endpoints>,
    inboxes: Mutex<Vec<Weak<Inbox>>>,
    reported_at: Mutex<Option<Instant>>,
    follows_alerts: AtomicBool,
}

impl std::fmt::Debug for Engine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Engine").field("config", &self.0.config).finish_non_exhaustive()
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Engine {
    /// Requests are made on the runtime of `handle`.
    ///
    /// # Errors
    /// [`Error::Client`], for example on a system without trusted certificates.
    pub fn new(config: &Config, clock: Arc<dyn Clock>, handle: Handle) -> Result<Self, Error> {
        Ok(Self(Arc::new(Shared {
            sender: Sender::new(config, clock.clone())?,
            clock,
            handle,
            hosts: Mutex::new(Hosts::new(config.concurrency, config.concurrency_per_host)),
            endpoints: Mutex::new(Endpoints::new(config.failing_after)),
            inboxes: Mutex::default(),
            reported_at: Mutex::default(),
            follows_alerts: AtomicBool::new(false),
            config: config.clone(),
        })))
    }

    pub(super) fn config(&self) -> &Config {
        &self.0.config
    }

    pub(super) fn clock(&self) -> &Arc<dyn Clock> {
        &self.0.clock
    }

    pub(super) fn hosts(&self) -> MutexGuard<'_, Hosts<Job>> {
        locked(&self.0.hosts)
    }

    pub(super) fn endpoints(&self) -> MutexGuard<'_, Endpoints> {
        locked(&self.0.endpoints)
    }

    /// Follows the open alerts of the topic `alerts` until the process stops.
    pub(super) fn follow_alerts(&self, context: &StageContext) {
        // Once for all workers.
        if self.0.follows_alerts.swap(true, Ordering::Relaxed) {
            return;
        }
        let (engine, log, stop) = (self.clone(), context.log.clone(), context.stop.clone());
        drop(self.0.handle.spawn(async move {
            loop {
                let (mut open, log) = (engine.endpoints().open().clone(), log.clone());
                let read = move || open.refresh(&*log).map(|()| open);
                // Errors are retried here; fatal ones stop the other readers of the log.
                if let Ok(Ok(open)) = tokio::task::spawn_blocking(read).await {
                    engine.endpoints().set_open(open);
                }
                let wait = tokio::time::sleep(ALERTS_READ_EVERY);
                if stop.run_until_cancelled(wait).await.is_none() {
                    return;
                }
            }
        }));
    }

    /// Adds the inbox of a new worker.
    pub(super) fn open_inbox(&self) -> Arc<Inbox> {
        let inbox = Arc::<Inbox>::default();
        let mut inboxes = locked(&self.0.inboxes);
        inboxes.retain(|inbox| inbox.strong_count() > 0);
        inboxes.push(Arc::downgrade(&inbox));
        inbox
    }

    /// Queues a job for its host. A job that cannot be sent soon, this or another, is returned to its inbox.
    pub(super) fn offer(&self, job: Job, now: UnixMicros) {
        let (host, emitted_at) = (job.host.clone(), job.delivery.emitted_at);
        let is_manual = job.delivery.manual;
        let given_back = self.hosts().offer(&host, emitted_at, is_manual, job, now);
        given_back.into_iter().for_each(give_back);
    }

    /// Host of a delivery, and the reason if it may not be called. An unknown transfer's delivery gets the URL that is
    /// configured now. A host's addresses are checked when its name is resolved.
    pub(super) fn find(&self, delivery: &mut Delivery) -> (String, Option<String>) {
        let config = self.config();
        if delivery.kind == DeliveryKind::UnknownTransfer {
            match &config.unknown_transfer_webhook_url {
                Some(url) => delivery.url.clone_from(url),
                None => {
                    let cause = "merchant.unknown_transfer_webhook_url is not set any more";
                    return (host_key(&delivery.url), Some(cause.to_owned()));
                }
            }
        }
        match config.receivers.check(&delivery.url) {
            Ok(url) => (host_of(&url), None),
            Err(refusal) => (host_key(&delivery.url), Some(format!("the URL {refusal}"))),
        }
    }

    /// `true` if the receiver of a deferred delivery answers quickly and has room for it. A delivery
    /// deferred for a failure of our own has to wait.
    pub(super) fn wants(&self, delivery: &Delivery) -> bool {
        delivery.last_outcome != Some(AttemptOutcome::Local)
            && self.hosts().wants(&host_key(&delivery.url))
    }

    /// Returns jobs that have waited for too long, and starts others.
    pub(super) fn turn(&self, now: UnixMicros) {
        let mut hosts = self.hosts();
        hosts.overdue(now).into_iter().for_each(give_back);
        self.start(&mut hosts, now);
    }

    fn start(&self, hosts: &mut Hosts<Job>, now: UnixMicros) {
        while let Some((job, permit)) = hosts.next(now) {
            if !job.lost.is_cancelled() && job.inbox.begin(Instant::now()) {
                let flight: Pin<Box<dyn Future<Output = ()> + Send>> =
                    Box::pin(self.clone().fly(job, permit));
                self.0.handle.spawn(flight);
            } else {
                hosts.ended(permit, None, now).into_iter().for_each(give_back);
                put_back(job, Back::Unsent);
            }
        }
    }

    async fn fly(self, job: Job, permit: Permit) {
        let (engine, inbox) = (self.clone(), job.inbox.clone());
        let attempt = async move {
            let span = job.span();
            let answer = job.lost.run_until_cancelled(engine.0.sender.send(&job.delivery)).await;
            span.into_iter().for_each(|span| job::end(span, answer.as_ref()));
            (job, answer)
        };
        // A task of its own, so that a panic ends the stage and no permit is lost.
        let ended = self.0.handle.spawn(attempt).await;
        let answer = ended.as_ref().ok().and_then(|(_, answer)| answer.as_ref());
        let outcome = answer.map(|answer| answer.outcome);
        let now = self.0.clock.now();
        let mut hosts = self.hosts();
        hosts.ended(permit, outcome, now).into_iter().for_each(give_back);
        self.start(&mut hosts, now);
        drop(hosts);
        inbox.ended(Back::Ended(ended));
    }

    /// Sets the metrics of shared state.
    pub(super) fn report(&self) {
        let now = self.0.clock.now();
        let inboxes = locked(&self.0.inboxes);
        let dues = inboxes.iter().filter_map(Weak::upgrade).filter_map(|inbox| inbox.next_due());
        let oldest_due = dues.min().map_or(Duration::ZERO, |due| elapsed(due, now));
        drop(inboxes);
        let mut reported_at = locked(&self.0.reported_at);
        let hosts = self.hosts();
        metrics::load(hosts.running(), hosts.waiting(), oldest_due);
        if reported_at.is_none_or(|at| at.elapsed() >= REPORTED_EVERY) {
            *reported_at = Some(Instant::now());
            let oldest = hosts.oldest().into_iter().chain(self.endpoints().oldest(now)).min();
            let oldest = oldest.map_or(Duration::ZERO, |oldest| elapsed(oldest, now));
            metrics::undelivered(hosts.breakers_open(), oldest);
        }
    }
}

fn give_back((job, reason): (Job, Reason)) {
    put_back(job, |job| Back::Spilled(job, reason));
}

/// Puts a job that was not sent into its inbox. One of a lost partition is forgotten: its worker may be gone.
fn put_back(job: Job, back: impl FnOnce(Job) -> Back) {
    if !job.lost.is_cancelled() {
        job.inbox.clone().put(back(job));
    }
}
